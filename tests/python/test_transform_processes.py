"""Tests Map(function, processes=) of a Loader: the same results as threads give, what travels, errors, deaths, and
nothing left behind."""

from __future__ import annotations

import contextlib
import functools
import gc
import multiprocessing.process
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import threading
import time
import weakref
from typing import Any, Callable

import millrace
import numpy as np
import pytest
import transforms_of_processes as functions
from millrace._blocks import Block
from millrace._processes import Launcher, RemoteTraceback, TransformProcess
from support import HEIGHT, WIDTH, Samples, add_digests, check_script, keys_of, run_script


def loader_of(
    samples: Samples, transform: Any, processes: int | None = 2, context: Any = "fork", **options: Any
) -> millrace.Loader:
    mapping = millrace.Map(transform, processes=processes, context=context)
    usual: dict[str, Any] = {"batch_size": 8, "output": "numpy", "epochs": 1, "seed": 2, "size": (HEIGHT, WIDTH)}
    return millrace.Loader(samples.uri, transform=mapping, **{**usual, **options})


def in_threads(samples: Samples, transform: Any = None, **options: Any) -> millrace.Loader:
    return loader_of(samples, transform, processes=None, context=None, **options)


def assert_equal(one: Any, other: Any) -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            assert_equal(one[name], other[name])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other) and type(one) is type(other)
        for each, that in zip(one, other):
            assert_equal(each, that)
    elif isinstance(one, np.ndarray):
        assert (
            one.dtype == other.dtype
            and one.shape == other.shape
            and one.tobytes() == other.tobytes()
            or one.dtype == object
        )
    else:
        assert type(one) is type(other) and (one == other or one is None)


def until(condition: Callable[[], bool], seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert condition()


def is_alive(pid: int) -> bool:
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def children(pid: int) -> set[int]:
    """Returns the children of all threads of a process."""
    found: set[int] = set()
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has just ended
            found.update(map(int, (task / "children").read_text().split()))
    return found


@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
def test_processes_give_what_threads_give(tar: Samples, context: str) -> None:
    plain = in_threads(tar, transform=functions.shifted, epochs=2, digest="raw")
    loader = loader_of(
        tar,
        transform=functions.shifted,
        epochs=2,
        digest="raw",
        context=None if context == "spawn" else context,
    )
    for _ in range(2):
        for before, batch in zip(plain, loader, strict=True):
            assert_equal(dict(before), dict(batch))
            assert plain.state_dict() == loader.state_dict() and plain.epoch == loader.epoch
    assert loader.report()["digest"] == plain.report()["digest"]


@pytest.mark.parametrize("processes", [1, 3])
def test_random_numbers_do_not_depend_on_processes(tar: Samples, processes: int) -> None:
    def draws(loader: millrace.Loader) -> list[Any]:
        return [
            (key, draw, *wait)
            for batch in loader
            for key, draw, wait in zip(batch["key"], batch["draw"], batch["wait"])
        ]

    loader = loader_of(tar, transform=functions.drawing, processes=processes)
    assert draws(loader) == draws(in_threads(tar, transform=functions.drawing))
    loader = loader_of(tar, transform=functions.drawing, processes=processes)
    assert {int(pid) for batch in loader for pid in batch["pid"]}.isdisjoint({os.getpid()})


def test_everything_travels(tar: Samples) -> None:
    options = {"transform": functions.of_many_kinds, "batch_size": 6}
    for before, batch in zip(in_threads(tar, **options), loader_of(tar, **options), strict=True):
        assert_equal(dict(before), dict(batch))
    images = [image for batch in loader_of(tar, transform=functions.of_pillow) for image in batch["image"] if image]
    for image, before in zip(images, [pixels for batch in in_threads(tar) for pixels in batch["image"]]):
        assert np.array_equal(np.asarray(image), np.rot90(before))


def test_tensors_and_global_generators(tar: Samples) -> None:
    torch = pytest.importorskip("torch")
    options = {"transform": functions.of_tensors, "output": "torch", "raw": True}
    for before, batch in zip(in_threads(tar, **options), loader_of(tar, **options), strict=True):
        assert batch["half"].dtype == torch.bfloat16 and batch["image"].dtype == torch.uint8
        for name in ("half", "image", "turned", "label"):
            assert torch.equal(before[name], batch[name])

    def draws(processes: int) -> dict[str, Any]:
        loader = loader_of(tar, transform=functions.drawing_from_globals, processes=processes)
        return {key: tuple(row) for batch in loader for key, row in zip(batch["key"], batch["draws"]) if key}

    found = draws(3)
    assert found == draws(1) and len({draw for row in found.values() for draw in row}) == 3 * len(tar)


def test_results_that_are_kept_are_not_written_over(tar: Samples) -> None:
    loader = loader_of(tar, transform=functions.shifted, collate_fn=list, epochs=4, batch_size=5)
    kept = [(sample["image"], sample["image"].copy()) for _ in range(4) for batch in loader for sample in batch]  # type: ignore[call-overload]
    assert len(kept) == 200 and all(np.array_equal(view, copy) for view, copy in kept)
    loader = loader_of(tar, transform=functions.Keeping(), processes=1)
    batches = [batch for batch in loader]
    assert (
        all(batch["intact"][batch["valid"]].all() for batch in batches)
        and max(batch["kept"].max() for batch in batches) == 50
    )


def test_memory_of_which_something_is_kept_is_let_go_of(tar: Samples) -> None:
    loader = loader_of(tar, transform=functions.KeepingTheLast(), processes=1, epochs=3, context="forkserver")
    assert sum(1 for _ in range(3) for batch in loader) == 21
    process = loader._stream._transform_processes[0]  # type: ignore[union-attr]
    files = [os.readlink(file) for file in pathlib.Path(f"/proc/{process._process.pid}/fd").iterdir()]
    assert process._blocks >= 21, "none is used again"
    assert sum("millrace-transform" in file for file in files) <= 6, "each block has two"
    assert len(process._known) <= 3


def test_memory_is_used_again(tar: Samples) -> None:
    loader = loader_of(tar, transform=functions.shifted, epochs=20, batch_size=4)
    assert sum(1 for _ in range(20) for batch in loader) == 260
    counts = [process._blocks for process in loader._stream._transform_processes]  # type: ignore[union-attr]
    assert max(counts) <= 30, "of 260 tasks each"


def test_what_was_sent_is_free_at_once() -> None:
    """It is a view of a batch of the native loader, which has few of them and cannot wait for a garbage collection."""
    block, sent = Block.make(1), [np.arange(100)]
    reference = weakref.ref(sent[0])
    gc.collect()
    gc.disable()
    try:
        block.write({"image": sent[0]})
        sent.clear()
        assert reference() is None
    finally:
        gc.enable()


def test_resuming(tar: Samples) -> None:
    options = {"transform": functions.shifted, "digest": "raw", "epochs": 2}
    whole = in_threads(tar, **options)
    keys = [key for _ in range(2) for batch in whole for key in keys_of(batch)]
    first = loader_of(tar, **options)
    batches = iter(first)
    got = [key for _ in range(3) for key in keys_of(next(batches))]
    second = loader_of(tar, **options, batch_size=4)
    next(iter(second))
    second.load_state_dict(first.state_dict())
    got += [key for _ in range(2) for batch in second for key in keys_of(batch)]
    assert got == keys
    assert add_digests(first.report()["digest"], second.report()["digest"]) == whole.report()["digest"]


def test_an_exception_names_the_sample_and_keeps_its_causes(tar: Samples) -> None:
    order = [key for batch in in_threads(tar) for key in batch["key"]]
    loader = loader_of(tar, transform=functions.Failing([order[19], order[22]], "raises"))
    batches = iter(loader)
    assert [next(batches)["key"], next(batches)["key"]] == [order[:8], order[8:16]]
    for _ in range(2):
        with pytest.raises(millrace.TransformError, match=f"sample '{order[19]}' .*OSError: .*wrong") as caught:
            next(batches)
        cause = caught.value.__cause__
        assert isinstance(cause, OSError) and cause.errno == 5 and isinstance(cause.__cause__, KeyError)
        text = cause.__cause__.__cause__
        assert (
            isinstance(text, RemoteTraceback) and "in raises" in str(text) and "KeyError: 'no such thing'" in str(text)
        )
    with pytest.raises(millrace.TransformError, match=f"sample '{order[3]}' .*Odd: 1 and 2") as caught:
        next(iter(loader_of(tar, transform=functions.Failing([order[3]], "raises_odd"))))
    with pytest.raises(SystemExit) as ended:
        next(iter(loader_of(tar, transform=functions.Failing([order[0]], "quits"))))
    assert ended.value.code == 4
    with pytest.raises(
        millrace.TransformError, match="sample '.*' .*returned a value that its process cannot send: .*lambda"
    ):
        next(iter(loader_of(tar, transform=functions.unsendable)))
    with pytest.raises(millrace.TransformError, match="returned NoneType; it must return a dict"):
        next(iter(loader_of(tar, transform=print)))


@pytest.mark.parametrize("how, ending", [("killed", "signal SIGKILL. If memory was short"), ("exits", "exit status 3")])
def test_a_process_that_dies_names_the_sample(tar: Samples, how: str, ending: str) -> None:
    order = [key for batch in in_threads(tar) for key in batch["key"]]
    loader = loader_of(tar, transform=functions.Failing([order[19]], how))
    batches = iter(loader)
    assert [next(batches)["key"], next(batches)["key"]] == [order[:8], order[8:16]]
    with pytest.raises(
        millrace.TransformError,
        match=f"sample '{order[19]}' .*the process \\d+ that transformed it ended with {ending}",
    ):
        next(batches)
    loader.load_state_dict(in_threads(tar).state_dict())  # a new process takes its place
    assert next(iter(loader))["key"] == order[:8]


def test_one_process_ends_while_another_starts() -> None:
    """The start of a process looks at all others; before Python 3.12 it fails if one of them is closed meanwhile."""
    launcher = Launcher(functions.shifted, "fork")
    ending, starting = TransformProcess(launcher), TransformProcess(launcher)
    end = threading.Thread(target=ending.end)

    class Looked:
        """Is the first process that is looked at: the one that ends has time to be closed then."""

        def __hash__(self) -> int:
            return 0

        @property
        def _popen(self) -> Looked:
            return self

        def poll(self) -> None:
            if end.ident is None:
                end.start()
                end.join(2)

    ending._start()
    looked = Looked()
    multiprocessing.process._children.add(looked)  # type: ignore[attr-defined]
    try:
        starting._start()
    finally:
        multiprocessing.process._children.discard(looked)  # type: ignore[attr-defined]
    end.join()
    assert starting.end() is not None


def test_a_process_that_is_killed_from_outside(tar: Samples) -> None:
    first = next(iter(in_threads(tar)))["key"][0]
    loader = loader_of(tar, transform=functions.Failing([first], "sleeps"), processes=1)
    process = loader._stream._transform_processes[0]  # type: ignore[union-attr]
    batches = iter(loader)
    until(lambda: process._is_ready)
    os.kill(process._process.pid, signal.SIGTERM)
    with pytest.raises(
        millrace.TransformError,
        match=f"sample '{first}' .*the process \\d+ that transformed it ended with signal SIGTERM",
    ):
        next(batches)


def test_what_cannot_be_sent_says_what_to_write(tar: Samples) -> None:
    for context in ("spawn", None):
        with pytest.raises(
            millrace.InvalidArgumentError,
            match="at the top level of a module, not as a lambda .*multiprocessing_context='fork'",
        ):
            loader_of(tar, transform=lambda sample: sample, context=context)
    loader = loader_of(tar, transform=lambda sample: {"one": 1})
    assert next(iter(loader))["one"].tolist() == [1] * 8
    bound = functools.partial(functions.shifted)
    assert next(iter(loader_of(tar, transform=bound)))["image"].dtype == np.int16
    with pytest.raises(
        millrace.TransformError, match="cannot be loaded in a process: ValueError: .*Write it in a module"
    ):
        next(iter(loader_of(tar, transform=functions.Unloadable(), context="spawn")))
    for wrong, message in [
        ({"transform": millrace.Map(functions.slow, threads=2, processes=2)}, "leave one out"),
        ({"transform": millrace.Map(None, processes=2), "batch_transform": functions.slow}, "give a function"),
        ({"transform": millrace.Map(functions.slow, context="fork")}, "say how many with Map"),
        ({"transform": functions.slow, "multiprocessing_context": "fork"}, "say how many with Map"),
        ({"transform": millrace.Map(functions.slow, processes=0)}, "processes is 0"),
        ({"transform": millrace.Map(functions.slow, threads=0)}, "threads is 0"),
        ({"transform": millrace.Map(functions.slow, processes=1, context="thread")}, "choose one of 'spawn'"),
        (
            {"transform": millrace.Map(functions.slow, processes=1, context="fork"), "multiprocessing_context": "fork"},
            r"multiprocessing_context is given by millrace.Map\(context=\)",
        ),
    ]:
        with pytest.raises(millrace.InvalidArgumentError, match=message):
            millrace.Loader(tar.uri, **wrong)
    with pytest.raises(TypeError, match="the context of processes must be"):
        loader_of(tar, transform=functions.slow, context=3)


def test_a_program_without_a_guard_is_told(tar: Samples, tmp_path: pathlib.Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(
        "import sys, millrace, transforms_of_processes as functions\n"
        "for batch in millrace.Loader(sys.argv[1], size=8, transform=millrace.Map(functions.slow, processes=1)): pass\n"
    )
    result = subprocess.run([sys.executable, str(program), tar.uri], capture_output=True, text=True, timeout=300)
    assert result.returncode == 1
    assert "UsageError: a Loader with a transform in processes was made while" in result.stderr
    assert "TransformError" in result.stderr and "before it was ready" in result.stderr


@pytest.mark.parametrize("end", ["close", "drop", "exhaust", "busy"])
def test_closing_leaves_nothing(tar: Samples, end: str) -> None:
    before = children(os.getpid())
    files = len(os.listdir("/proc/self/fd"))
    transform = functions.endless if end == "busy" else functions.slow
    loader: Any = loader_of(tar, transform=transform, epochs=1 if end == "exhaust" else None)
    batches: Any = iter(loader)
    if end == "busy":
        until(lambda: len(children(os.getpid()) - before) == 2)
    else:
        next(batches)
    ours = children(os.getpid()) - before
    assert len(ours) == 2
    if end == "exhaust":
        assert sum(1 for _ in batches) == 6
    if end in ("close", "busy"):
        loader.close()
        assert not any(map(is_alive, ours))
        with pytest.raises(millrace.UsageError, match="closed"):
            next(batches)
    del loader, batches
    gc.collect()
    until(lambda: not any(map(is_alive, ours)))
    until(lambda: len(os.listdir("/proc/self/fd")) <= files)


TRAINER = """
import os, sys, time, millrace, transforms_of_processes as functions
if __name__ == "__main__":
    context, transform = sys.argv[2:]
    loader = millrace.Loader(sys.argv[1], batch_size=8, size=8, output="numpy",
                             transform=millrace.Map(getattr(functions, transform), processes=2, context=context))
    batches = iter(loader)
    while not all(process._is_ready for process in loader._stream._transform_processes):
        time.sleep(0.01)
    pids = [process._process.pid for process in loader._stream._transform_processes]
    if transform == "slow":
        next(batches)
    print(*pids, flush=True)
    for batch in batches:
        time.sleep(0.01)
"""


@pytest.mark.parametrize(
    "context, transform, number",
    [
        ("spawn", "endless", signal.SIGINT),
        ("fork", "slow", signal.SIGINT),
        ("spawn", "endless", signal.SIGKILL),
        ("forkserver", "slow", signal.SIGKILL),
    ],
)
def test_the_end_of_the_trainer_is_that_of_its_processes(
    tar: Samples, tmp_path: pathlib.Path, context: str, transform: str, number: signal.Signals
) -> None:
    program = tmp_path / "train.py"
    program.write_text(TRAINER)
    command = [sys.executable, str(program), tar.uri, context, transform]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as trainer:
        assert trainer.stdout is not None and trainer.stderr is not None
        line = trainer.stdout.readline()
        pids = [int(pid) for pid in line.split()]
        assert len(pids) == 2, trainer.stderr.read()
        everything = {*pids, *children(trainer.pid)}
        maps = "".join(pathlib.Path(f"/proc/{pid}/maps").read_text() for pid in (trainer.pid, *pids))
        assert "memfd:millrace-transform" in maps and "/dev/shm/" not in maps, (
            "what is shared has no name that could stay"
        )
        if number == signal.SIGINT:
            os.killpg(trainer.pid, number)  # as a terminal does
        else:
            trainer.kill()
        trainer.wait(timeout=300)
        errors = trainer.stderr.read()
    until(lambda: not any(map(is_alive, everything)))
    if number == signal.SIGINT:
        assert errors.count("Traceback") == 1 and errors.rstrip().endswith("KeyboardInterrupt"), errors


def test_an_exception_in_the_loop_and_the_end_of_the_interpreter(tar: Samples) -> None:
    script = """
import sys, millrace, transforms_of_processes as functions
loader = millrace.Loader(sys.argv[1], size=8, batch_size=8, transform=millrace.Map(functions.slow, processes=2, context="fork"))
for batch in loader:
    raise ArithmeticError("diverged")
"""
    result = run_script(script, tar.uri, timeout=300)
    assert (
        result.returncode == 1
        and result.stderr.rstrip().endswith("ArithmeticError: diverged")
        and result.stderr.count("Traceback") == 1
    )


def first_batch(loader: millrace.Loader) -> Any:
    """Returns the batch or the error; fails if there is neither."""
    got: list[Any] = []

    def receive() -> None:
        try:
            got.append(next(iter(loader)))
        except BaseException as error:
            got.append(error)

    thread = threading.Thread(target=receive, daemon=True)
    thread.start()
    thread.join(300)
    loader.close()
    assert got, "the loop hangs"
    return got[0]


def test_a_batch_of_padding_needs_no_process(tar: Samples) -> None:
    one = millrace.Dataset(tar.uri)[:1]
    loader = millrace.Loader(
        one,
        batch_size=4,
        epochs=1,
        output="numpy",
        rank=1,
        world=2,
        last="pad",
        transform=millrace.Map(functions.Unloadable(), processes=1),
    )
    assert first_batch(loader)["valid"].tolist() == [False] * 4
    assert loader._stream._transform_processes[0]._process is None  # type: ignore[union-attr]


@pytest.mark.parametrize("where", ["send", "receive"])
def test_an_unforeseen_error_is_raised_by_the_loop(tar: Samples, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    def fails(*arguments: Any) -> Any:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr(TransformProcess, where, fails)
    error = first_batch(loader_of(tar, transform=functions.slow))
    assert isinstance(error, RuntimeError) and str(error) == "unforeseen"


def test_a_task_that_cannot_be_sent_is_no_end_of_the_process(tar: Samples, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = loader_of(tar, transform=functions.slow, processes=1)
    start = loader.state_dict()
    batches = iter(loader)
    assert next(batches)["n"].tolist() == [1] * 8
    with monkeypatch.context() as patch:
        patch.setattr(pickle, "dumps", lambda rows: 1 / 0)
        with pytest.raises(
            millrace.TransformError, match="sample '.*it cannot be sent to a transform process: ZeroDivisionError"
        ):
            list(batches)
    loader.load_state_dict(start)
    assert [batch["n"].sum() for batch in loader] == [8] * 6 + [2]


def test_a_process_that_may_not_have_children_is_told(tar: Samples) -> None:
    script = """
import multiprocessing, sys, millrace, transforms_of_processes as functions
def make():
    try:
        millrace.Loader(sys.argv[1], transform=millrace.Map(functions.slow, processes=2))
    except millrace.UsageError as error:
        print(error, flush=True)
process = multiprocessing.get_context("fork").Process(target=make, daemon=True)
process.start()
process.join()
"""
    assert "write Map(function, threads=) in place of processes=" in check_script(script, tar.uri)
