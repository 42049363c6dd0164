"""Tests that long calls let other Python threads run, and decoding gives way to them."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import millrace
import numpy as np
import numpy.typing as npt
import pytest
from support import Samples, binary, check_script

COUNT = 2_000_000

Numbers = npt.NDArray[np.int64]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> millrace.Dataset:
    folder = tmp_path_factory.mktemp("numbers")
    np.zeros(COUNT, np.uint16).tofile(folder / "a.bin")
    subprocess.run([binary(), "index", folder, "--tokens", "1:uint16"], check=True, capture_output=True)
    return millrace.Dataset(str(folder))


@pytest.fixture(autouse=True)
def _no_switching() -> Iterator[None]:
    """A thread gets the interpreter only when another gives it away of its own accord."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    yield
    sys.setswitchinterval(before)


def ends_without_the_interpreter(call: Callable[[Numbers], object], expected: Numbers, patience: float = 300) -> bool:
    """Returns whether the call fills an array with what is expected while another thread has the interpreter.

    That thread takes it as soon as the call gives it away, and keeps it until the last number is there. A call that
    needs the interpreter again before that does not get on. The thread may come too late, when all is done; then the
    call is made again.
    """
    into = np.full_like(expected, -1)
    asked, answered, last, deadline = (
        threading.Semaphore(0),
        threading.Semaphore(0),
        expected.item(-1),
        time.monotonic() + patience,
    )
    outcome = ""

    def keep_the_interpreter() -> None:
        nonlocal outcome
        while asked.acquire() and outcome != "enough":
            outcome = "late"
            while into.item(-1) != last:
                outcome = "kept"
                if time.monotonic() > deadline:
                    outcome = "stuck"
                    break
            answered.release()

    other = threading.Thread(target=keep_the_interpreter, daemon=True)
    other.start()
    while outcome in ("", "late") and time.monotonic() < deadline:
        into.fill(-1)
        asked.release()
        call(into)
        answered.acquire()
    kept, outcome = outcome == "kept", "enough"
    asked.release()
    other.join()
    np.testing.assert_array_equal(into, expected)
    return kept


def test_detectors() -> None:
    plan = millrace.Plan(COUNT, shuffle="global", seed=1)._native
    everything, other = np.arange(COUNT), np.empty(COUNT, np.int64)

    def keeps_it(into: Numbers) -> None:
        into[:] = everything.tolist()

    def takes_it_again(into: Numbers) -> None:
        plan.at(everything, other)
        into[:] = everything.tolist()

    for call in (keeps_it, takes_it_again):
        assert not ends_without_the_interpreter(call, everything, patience=0.5)


@pytest.mark.parametrize("what", ["at", "part", "position_of", "samples"])
def test_others_run_meanwhile(dataset: millrace.Dataset, what: str) -> None:
    everything = np.arange(COUNT)
    # The call goes by the native classes: numpy, which checks arguments before them, keeps the interpreter to itself.
    plan = millrace.Plan(COUNT, shuffle="global", seed=1)._native
    part = dataset.where(samples=np.arange(1, COUNT, 2))._native
    calls: dict[str, Callable[[Numbers], object]] = {
        "at": lambda into: plan.at(everything, into),
        "part": lambda into: plan.part(everything, into),
        "position_of": lambda into: plan.position_of(everything, -1, into),
        "samples": lambda into: part.samples(into),
    }
    expected = np.empty(len(part) if what == "samples" else COUNT, np.int64)
    calls[what](expected)
    assert what == "part" or expected[-1] != len(expected) - 1, "what is asked stands for no answer"
    assert ends_without_the_interpreter(calls[what], expected)


@pytest.mark.parametrize("nice", [None, 0, 19])
def test_decode_threads_give_way_and_no_others(tar: Samples, nice: int | None) -> None:
    script = """
import os, pathlib, sys, millrace
if sys.argv[2] != "None":
    millrace.configure(cpu_nice=int(sys.argv[2]), cpu_threads=3)
loader = millrace.Loader(sys.argv[1], size=8, output="numpy", epochs=1)
next(iter(loader))
found = {}
for task in pathlib.Path("/proc/self/task").iterdir():
    found.setdefault((task / "comm").read_text().strip() == "cpu", set()).add(os.getpriority(os.PRIO_PROCESS, int(task.name)))
print(found, os.nice(0))
"""
    found, own = eval(check_script(script, tar.uri, str(nice)).replace("} ", "}, "))
    assert found == {True: {min(19, own + (10 if nice is None else nice))}, False: {own}}
