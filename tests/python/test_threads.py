"""Long calls let other Python threads run."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import millrace
import numpy as np
import pytest
from support import binary

COUNT = 2_000_000


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


def longest_pause(call: Callable[[], object]) -> tuple[float, float]:
    """Seconds of the call, and of them the most for which another thread stood still."""
    stop = threading.Event()
    ticks: list[float] = []

    def run() -> None:
        while not stop.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.001)

    other = threading.Thread(target=run, daemon=True)
    other.start()
    time.sleep(0.02)
    begin = time.monotonic()
    call()
    end = time.monotonic()
    time.sleep(0.02)
    stop.set()
    other.join()
    during = [begin, *(tick for tick in ticks if begin < tick < end), end]
    return end - begin, max(np.diff(during))


def test_detector() -> None:
    seconds, pause = longest_pause(lambda: sum(range(20_000_000)))
    assert pause > seconds / 2


@pytest.mark.parametrize("what", ["at", "where", "samples"])
def test_others_run_meanwhile(dataset: millrace.Dataset, what: str) -> None:
    everything = np.arange(COUNT)
    # By the native classes: numpy, which checks arguments before them, keeps the interpreter to itself.
    plan = millrace.Plan(COUNT, shuffle="global", seed=1)._native
    part = dataset.where(samples=np.arange(0, COUNT, 2))._native
    call = {
        "at": lambda: plan.at(everything),
        "where": lambda: plan.where(everything, -1),
        "samples": lambda: [part.samples() for _ in range(20)],
    }[what]
    # On a busy machine a thread stands still now and then whoever has the interpreter; one that never gets it does each time.
    tries = [longest_pause(call) for _ in range(10)]
    assert any(pause < max(0.05, seconds / 2) for seconds, pause in tries), f"(seconds, longest pause): {tries}"
