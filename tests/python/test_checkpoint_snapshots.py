"""Tests the copy that `save(asynchronous=True)` makes: nothing writes to it before it is saved, and it is pinned for
tensors of a GPU. Also tests loading onto a device."""

from __future__ import annotations

import gc
import signal
import threading
import time
import types
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import millrace
import numpy as np
import pytest
import torch
from fake_cuda import FakeCuda
from millrace import _restore, _snapshot, _tensors
from millrace._background_save import BackgroundSave
from millrace._snapshot import Snapshot

CUDA = torch.device("cuda:0")


class Late(_tensors.Deferred):
    """Looks like a tensor of a GPU, as far as can be seen from outside: its bytes come when somebody waits for the
    device."""

    copying: list[tuple[Late, Any]] = []

    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__(lambda: tensor, tensor.numel() * tensor.element_size(), CUDA)
        self.source = tensor

    def begin_copy(self, memory: Any) -> None:
        memory[:] = 0xEE
        Late.copying.append((self, memory))

    @staticmethod
    def finish(pieces: Iterable[Any]) -> None:
        assert [late for late, _ in Late.copying] == [piece for piece in pieces if isinstance(piece, Late)]
        for late, memory in Late.copying:
            memory[:] = late.source.reshape(-1).view(torch.uint8).numpy()
        Late.copying.clear()


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_tensors, "finish_devices", Late.finish)


def files(*tensors: torch.Tensor) -> list[tuple[str, list[Any]]]:
    return [("model", [_tensors.numpy_bytes(np.arange(5)), *map(Late, tensors)])]


def written(shards: list[tuple[str, list[Any]]]) -> list[bytes]:
    return [piece.tobytes() for _, pieces in shards for piece in pieces]


def test_nothing_is_sent_before_the_copy_is_complete(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take the CPU from the training, which waits for the copy."""
    events: list[str] = []
    ckpt = millrace.Checkpoints(folder)
    core, copy = ckpt._core, _snapshot._core.copy_past_caches

    class Noted:
        def save(self, *arguments: Any) -> None:
            events.append("save")
            core.save(*arguments)

        def __getattr__(self, name: str) -> Any:
            return getattr(core, name)

    def noted(into: Any, source: Any) -> None:
        events.append("copy")
        copy(into, source)

    ckpt._core = Noted()  # type: ignore[assignment]
    monkeypatch.setattr(_snapshot, "_core", types.SimpleNamespace(copy_past_caches=noted))
    ckpt.save(1, {"w": torch.ones(3, 5), "b": np.arange(7)}, asynchronous=True)
    ckpt.wait()
    assert events == ["copy"] * 4 + ["save"]  # the headers of two files, and their tensors
    assert ckpt.load()["b"].tolist() == list(range(7))


def test_tensors_of_a_gpu_are_there_when_the_copy_returns(late: None) -> None:
    tensors = [torch.arange(number, number + 1000) for number in range(3)]
    copies, rest = Snapshot(None, FakeCuda()).copy(files(*tensors))
    assert not rest
    assert written(copies) == [np.arange(5).tobytes(), *(tensor.numpy().tobytes() for tensor in tensors)]


def test_a_copy_that_fails_leaves_nothing_in_flight(late: None) -> None:
    shards = files(torch.arange(10))
    shards[0][1].append(_tensors.Deferred(lambda: None, 8))  # None is no tensor
    with pytest.raises(AttributeError):
        Snapshot(None, FakeCuda()).copy(shards)
    assert not Late.copying


def test_the_memory_is_pinned_once_and_let_go_of(late: None) -> None:
    api = FakeCuda()
    snapshot = Snapshot(None, api)
    for _ in range(3):
        snapshot.copy(files(torch.arange(1000)))
    assert api.log == ["register"] and [*api.registered.values()] == [snapshot.bytes]
    snapshot.copy(files(torch.arange(100)))  # there is room
    assert api.log == ["register"]
    snapshot.copy(files(torch.arange(5000)))
    assert api.log == ["register", "unregister", "register"] and [*api.registered.values()] == [snapshot.bytes]
    del snapshot
    gc.collect()
    assert not api.registered and not api.faults


def test_memory_without_tensors_of_a_gpu_is_not_pinned() -> None:
    api = FakeCuda()
    Snapshot(None, api).copy([("model", [np.zeros(1000, np.uint8)])])
    assert not api.log


def test_memory_that_cannot_be_pinned_is_said_once(late: None) -> None:
    snapshot = Snapshot(None, FakeCuda(trouble="out of memory"))
    with pytest.warns(RuntimeWarning, match="cannot be pinned: cudaHostRegister says out of memory"):
        copies, _ = snapshot.copy(files(torch.arange(1000)))
    assert written(copies)[1] == torch.arange(1000).numpy().tobytes()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        snapshot.copy(files(torch.arange(9000)))


class SlowCore:
    """Saves only when it is let, and remembers what was there then."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.saved: list[tuple[int, bytes]] = []

    def save(self, step: int, shards: list[tuple[str, list[Any]]], *_: Any) -> None:
        assert self.go.wait(300)
        self.saved.append(
            (
                step,
                b"".join(piece.tobytes() for name, pieces in shards if name == "w.safetensors" for piece in pieces[1:]),
            )
        )


def slow(folder: str, monkeypatch: pytest.MonkeyPatch) -> tuple[millrace.Checkpoints, SlowCore]:
    ckpt, core = millrace.Checkpoints(folder), SlowCore()
    monkeypatch.setattr(ckpt, "_core", core)
    return ckpt, core


def test_an_interrupted_wait_does_not_let_go_of_the_copy(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait is interrupted as by Ctrl-C, after which a program saves once more."""
    ckpt, core = slow(folder, monkeypatch)
    ckpt.save(1, {"w": torch.full((1000,), 1.0)}, asynchronous=True)
    assert ckpt._background is not None
    thread = ckpt._background._thread

    def interrupted(timeout: float | None = None) -> None:
        monkeypatch.undo()
        monkeypatch.setattr(ckpt, "_core", core)
        raise KeyboardInterrupt

    monkeypatch.setattr(thread, "join", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ckpt.wait()
    again = threading.Thread(target=lambda: ckpt.save(2, {"w": torch.full((1000,), 2.0)}, asynchronous=True))
    again.start()
    again.join(0.5)  # it waits for the first one
    core.go.set()
    again.join(60)
    ckpt.wait()
    assert core.saved == [(step, torch.full((1000,), float(step)).numpy().tobytes()) for step in (1, 2)]


def test_a_wait_of_another_thread_does_not_let_go_of_the_copy(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ckpt, core = slow(folder, monkeypatch)
    ckpt.save(1, {"w": torch.full((1000,), 1.0)}, asynchronous=True)
    assert ckpt._background is not None
    thread, joining = ckpt._background._thread, threading.Event()
    join = thread.join

    def told(timeout: float | None = None) -> None:
        joining.set()
        join(timeout)

    monkeypatch.setattr(thread, "join", told)
    waiting = threading.Thread(target=ckpt.wait)
    waiting.start()
    assert joining.wait(60)
    again = threading.Thread(target=lambda: ckpt.save(2, {"w": torch.full((1000,), 2.0)}, asynchronous=True))
    again.start()
    again.join(0.5)
    core.go.set()
    again.join(60)
    waiting.join(60)
    ckpt.wait()
    assert core.saved == [(step, torch.full((1000,), float(step)).numpy().tobytes()) for step in (1, 2)]


def test_saves_of_two_threads_do_not_share_the_copy(folder: str) -> None:
    ckpt = millrace.Checkpoints(folder)
    inside, together = threading.Event(), threading.Event()

    class Watched(Snapshot):
        def copy(self, shards: Any) -> Any:
            if inside.is_set():
                together.set()
            inside.set()
            copied = super().copy(shards)
            together.wait(0.5)  # for as long as another one may come in
            inside.clear()
            return copied

    ckpt._snapshot = Watched(None)
    threads = [
        threading.Thread(target=ckpt.save, args=(step, {"w": np.full(1000, step)}), kwargs={"asynchronous": True})
        for step in (1, 2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    ckpt.wait()
    assert not together.is_set()
    assert sorted(ckpt.steps()) == [1, 2] and all((ckpt.load(step)["w"] == step).all() for step in (1, 2))


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_signal_may_save_in_the_midst_of_a_save(folder: str, asynchronous: bool) -> None:
    """A program that is asked to end saves so."""
    ckpt = millrace.Checkpoints(folder)

    class Signalled(Snapshot):
        def copy(self, shards: Any) -> Any:
            copied = super().copy(shards)
            signal.raise_signal(signal.SIGUSR1)
            return copied

    handled: list[int] = []

    def handle(number: int, frame: Any) -> None:
        handled.append(number)
        ckpt.save(2, {"w": torch.full((1000,), 2.0)}, asynchronous=asynchronous)

    ckpt._snapshot = Signalled(None)
    before = signal.signal(signal.SIGUSR1, handle)
    try:
        ckpt.save(1, {"w": torch.full((1000,), 1.0)}, asynchronous=True)
        ckpt.wait()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert handled == [signal.SIGUSR1]
    assert sorted(ckpt.steps()) == [1, 2] and all(ckpt.load(step)["w"].eq(step).all() for step in (1, 2))


class OneAtATime:
    """Saves nothing, a while long, and remembers in which order and how many at once. Step 2 may be one that fails."""

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails
        self.log: list[str] = []
        self.at_once = self.most_at_once = 0
        self.attempt = "attempt"

    def _write(self, step: int) -> None:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        time.sleep(0.2)
        self.at_once -= 1
        if self.fails and step == 2:
            raise millrace.UnavailableError("the store does not answer")
        self.log.append(f"saved {step}")

    def save(self, step: int, *_: Any) -> None:
        self._write(step)

    def begin(self, step: int, *_: Any) -> OneAtATime:
        self.step = step
        return self

    def upload(self, *_: Any) -> str:
        return "uploaded"

    def finish(self, *_: Any) -> None:
        self._write(self.step)

    def abandon(self, begun: OneAtATime) -> None:
        self.log.append(f"abandoned {begun.step}")


Handler = Callable[[Callable[[], None]], None]


@pytest.fixture
def handler() -> Iterator[Handler]:
    """Sets what a signal does."""
    before = signal.getsignal(signal.SIGUSR1)

    def does(call: Callable[[], None]) -> None:
        signal.signal(signal.SIGUSR1, lambda number, frame: call())

    yield does
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("parts", [False, True])
def test_a_signal_may_save_before_a_save_goes_to_the_background(
    folder: str, handler: Handler, monkeypatch: pytest.MonkeyPatch, parts: bool, fails: bool
) -> None:
    ckpt, core = millrace.Checkpoints(folder, snapshot_memory=2048 if parts else None), OneAtATime(fails)
    monkeypatch.setattr(ckpt, "_core", core)
    made = BackgroundSave.__init__

    def signalled(background: BackgroundSave, call: Any) -> None:
        made(background, call)
        if signals:
            signals.pop()
            signal.raise_signal(signal.SIGUSR1)

    signals = [1, 1]  # the second one meets the save of the first; steps 2 and 3
    monkeypatch.setattr(BackgroundSave, "__init__", signalled)
    steps = [3, 2]
    handler(lambda: ckpt.save(steps.pop(), {"w": torch.zeros(10)}, asynchronous=True))
    if fails:
        with pytest.raises(millrace.UnavailableError):
            ckpt.save(1, {"large": torch.zeros(1000), "small": torch.zeros(10)}, asynchronous=True)
        ckpt.wait()
        assert core.log == ["saved 3", *["abandoned 1"] * parts]
    else:
        ckpt.save(1, {"large": torch.zeros(1000), "small": torch.zeros(10)}, asynchronous=True)
        ckpt.wait()
        assert core.log == ["saved 3", "saved 2", "saved 1"]
    assert core.most_at_once == 1


@pytest.mark.parametrize("launched", [False, True])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_signal_may_save_while_the_thread_of_a_save_starts(
    folder: str, handler: Handler, monkeypatch: pytest.MonkeyPatch, asynchronous: bool, launched: bool
) -> None:
    ckpt, core = millrace.Checkpoints(folder), OneAtATime()
    monkeypatch.setattr(ckpt, "_core", core)
    start = threading.Thread.start

    def signalled(thread: threading.Thread) -> None:
        monkeypatch.setattr(threading.Thread, "start", start)
        if launched:
            start(thread)
        signal.raise_signal(signal.SIGUSR1)
        if not launched:
            start(thread)

    monkeypatch.setattr(threading.Thread, "start", signalled)
    handler(lambda: ckpt.save(2, {"w": torch.zeros(10)}, asynchronous=asynchronous))
    ckpt.save(1, {"w": torch.zeros(10)}, asynchronous=True)
    ckpt.wait()
    assert core.log == ["saved 1", "saved 2"] and core.most_at_once == 1


def test_a_save_whose_thread_does_not_start_is_not_made(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ckpt, core = millrace.Checkpoints(folder, snapshot_memory=2048), OneAtATime()
    monkeypatch.setattr(ckpt, "_core", core)
    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="no thread"):
        patch.setattr(threading.Thread, "start", lambda thread: (_ for _ in ()).throw(RuntimeError("no thread")))
        ckpt.save(1, {"large": torch.zeros(1000), "small": torch.zeros(10)}, asynchronous=True)
    ckpt.save(2, {"w": torch.zeros(10)}, asynchronous=True)
    ckpt.wait()
    assert core.log == ["abandoned 1", "saved 2"]


@pytest.mark.parametrize("within", [False, True], ids=["map_location", "into"])
def test_a_device_gets_parts_of_bounded_size(folder: str, within: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors of the host are treated as if nothing could be read straight to them."""
    state = {
        "model": {
            "large": torch.randn(500, 7),
            "complex": torch.randn(30, dtype=torch.complex64),
            "bf16": torch.randn(999).bfloat16(),
        },
        "others": [
            torch.tensor(True),
            torch.tensor(2.5),
            torch.empty(0, 3),
            torch.randn(200, 30).t(),
            torch.arange(2000, dtype=torch.int8),
        ],
    }
    ckpt = millrace.Checkpoints(folder)
    ckpt.save(1, state)
    made: list[int] = []
    monkeypatch.setattr(_restore, "_STAGED_BYTES", 4096)
    monkeypatch.setattr(_restore, "_DEVICE_PART_BYTES", 1024)
    monkeypatch.setattr(_restore, "memory_of", lambda place: None)
    monkeypatch.setattr(_restore, "_device_of", lambda location: torch.device("cpu"))  # in place of a real one
    put_flat = _restore._put_flat
    monkeypatch.setattr(
        _restore, "_put_flat", lambda part, data, kind: (made.append(data.nbytes), put_flat(part, data, kind))
    )
    into = None
    if within:
        into = {
            "model": {name: torch.zeros_like(tensor) for name, tensor in state["model"].items()},  # type: ignore[attr-defined]
            "others": [torch.zeros_like(tensor) for tensor in state["others"]],
        }
        assert not into["others"][3].is_contiguous()  # type: ignore[index]
    found = ckpt.load(map_location="cuda", into=into)
    for name, tensor in state["model"].items():  # type: ignore[attr-defined]
        assert found["model"][name].dtype == tensor.dtype and torch.equal(found["model"][name], tensor), name
    for got, tensor in zip(found["others"], state["others"]):
        assert got.dtype == tensor.dtype and torch.equal(got, tensor)
    assert max(made) <= 1024 and sum(made) >= 500 * 7 * 4


def test_a_place_that_is_none_is_refused(folder: str) -> None:
    ckpt = millrace.Checkpoints(folder)
    ckpt.save(1, {"w": torch.ones(1)})
    with pytest.raises(millrace.InvalidArgumentError, match="map_location is 'nowhere', which names no device"):
        ckpt.load(map_location="nowhere")
