"""Tests how ranks that save together agree: ranks that are threads, and a step that fails on one of them fails on all,
with its reason."""

from __future__ import annotations

import collections
import json
import pathlib
import threading
from collections.abc import Callable
from typing import Any

import millrace
import numpy as np
import pytest
from millrace import _meeting
from millrace._meeting import Meeting, save_together
from millrace._snapshot import Snapshot


class Notes:
    """Is a board in memory."""

    def __init__(self) -> None:
        self.notes: dict[str, bytes] = {}
        self.lock = threading.Lock()

    def post(self, key: str, message: bytes) -> None:
        with self.lock:
            assert key not in self.notes
            self.notes[key] = message

    def read(self, key: str) -> bytes | None:
        with self.lock:
            return self.notes.get(key)

    def remove(self, key: str) -> None:
        with self.lock:
            self.notes.pop(key, None)


class Died(BaseException):
    """The rank says nothing any more."""


class Store:
    """Notes what save_together does to a store. The calls that `faults` names fail, or never return."""

    def __init__(self, faults: dict[str, BaseException] | None = None) -> None:
        self.faults = faults or {}
        self.uploaded: list[str] = []
        self.ended = ""

    def of(self, rank: int) -> OfRank:
        return OfRank(self, rank)


class OfRank:
    def __init__(self, store: Store, rank: int) -> None:
        self._store = store
        self._rank = rank
        self._uploads = 0

    def _call(self, name: str) -> None:
        fault = self._store.faults.get(f"{name}-{self._rank}")
        if fault is not None:
            raise fault

    def begin(self, step: int, keep: int, keep_every: int, keep_steps: list[int]) -> Any:
        self._call("begin")
        return collections.namedtuple("Save", "attempt")("e1-a")

    def upload(self, step: int, attempt: str, shards: list[tuple[str, list[Any]]]) -> str:
        self._uploads += 1
        self._call(f"upload{self._uploads}")
        assert (step, attempt) == (7, "e1-a")
        self._store.uploaded += [name for name, _ in shards]
        return json.dumps([name for name, _ in shards])

    def finish(self, save: Any, uploaded: list[str]) -> None:
        assert not self._store.ended
        self._call("finish")
        self._store.ended = "committed"
        self.parts = uploaded
        assert sorted(name for part in uploaded for name in json.loads(part)) == sorted(self._store.uploaded)

    def abandon(self, save: Any) -> None:
        assert not self._store.ended
        self._store.ended = "abandoned"
        self._call("abandon")


class Part:
    fingerprint = "of the tensors"

    def __init__(self, rank: int) -> None:
        self._rank = rank

    def shards(self) -> list[tuple[str, list[Any]]]:
        return [(f"shard-{self._rank}", [])]

    def chunks(self) -> Any:
        return self._rank

    def last_shards(self, chunks: list[Any]) -> list[tuple[str, list[Any]]]:
        assert chunks == list(range(len(chunks)))
        return [("state.json", [])]


class Clock:
    """Shows a time that passes while somebody waits, and only then."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def pause(self, seconds: float) -> None:
        threading.Event().wait(0.0005)
        self.seconds += 0.1


def run_ranks(
    store: Store, world: int, works: dict[int, Any] | None = None, steps: dict[int, int] | None = None
) -> list[BaseException | None]:
    """Returns what save raised on each rank."""
    notes = Notes()
    raised: list[BaseException | None] = [None] * world

    def run(rank: int) -> None:
        clock = Clock()
        meeting = Meeting(notes, "x", rank, world, 60, now=clock.now, pause=clock.pause)
        try:
            save_together(
                store.of(rank),
                meeting.begin(),
                (steps or {}).get(rank, 7),
                (works or {}).get(rank, Part(rank)),
                (0, 0, []),
            )
        except BaseException as error:
            raised[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


def test_all_ranks_commit_one_checkpoint() -> None:
    for world in (2, 5):
        store = Store()
        assert run_ranks(store, world) == [None] * world
        assert store.ended == "committed"
        assert sorted(store.uploaded) == [*(f"shard-{rank}" for rank in range(world)), "state.json"]


DOWN = millrace.UnavailableError("the store is down")


@pytest.mark.parametrize("call", ["begin-0", "upload1-0", "upload1-1", "upload1-2", "upload2-0", "finish-0"])
def test_a_step_that_fails_on_one_rank_fails_on_all(call: str) -> None:
    store = Store({call: DOWN})
    raised = run_ranks(store, 3)
    assert all(
        isinstance(error, millrace.UnavailableError) and "the store is down" in str(error) for error in raised
    ), raised
    assert store.ended == ("" if call in ("begin-0", "finish-0") else "abandoned")
    if call == "upload1-2":
        assert "rank 2" in str(raised[0]) and "rank 2" in str(raised[1])


@pytest.mark.parametrize("call", ["upload1-1", "upload1-2"])
def test_a_claim_explains_a_failed_upload(call: str) -> None:
    """A successor has swept what was being written: all ranks report that, except the one that saw a folder
    disappear."""
    store = Store(
        {
            call: millrace.NotFoundError("the folder is gone"),
            "abandon-0": millrace.MismatchError("another process has taken over"),
        }
    )
    raised = run_ranks(store, 3)
    assert [type(error).__name__ for error in raised].count("MismatchError") == 2


@pytest.mark.parametrize("rank", [1, 2])
def test_a_rank_that_dies_is_named(rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says nothing, not even that it failed."""
    monkeypatch.setattr(_meeting.Round, "answer_failed", lambda self, error: None)
    store = Store({f"upload1-{rank}": Died()})
    raised = run_ranks(store, 3)
    assert isinstance(raised[0], millrace.UnavailableError) and f"missing: rank {rank}. " in str(raised[0])
    assert isinstance(raised[3 - rank], millrace.UnavailableError)
    assert store.ended == "abandoned"


def test_rank_0_that_dies_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_meeting.Round, "say_failed", lambda self, what, error: None)
    raised = run_ranks(Store({"begin-0": Died()}), 2)
    assert isinstance(raised[1], millrace.UnavailableError) and "rank 0 has not sent its plan within 60 s" in str(
        raised[1]
    )


def test_ranks_that_do_not_fit_together() -> None:
    store = Store()
    raised = run_ranks(store, 2, steps={1: 8})
    assert all(
        isinstance(error, millrace.InvalidArgumentError)
        and "rank 0 saves step 7, and this rank saves step 8" in str(error)
        for error in raised
    )
    other = Part(1)
    other.fingerprint = "of others"
    raised = run_ranks(store := Store(), 2, works={1: other})
    assert (
        all(isinstance(error, millrace.MismatchError) and "per_rank=" in str(error) for error in raised)
        and store.ended == "abandoned"
    )
    for rank in (0, 1):
        raised = run_ranks(Store(), 2, works={rank: millrace.InvalidArgumentError("state['x'] is a lambda")})
        assert all(isinstance(error, millrace.InvalidArgumentError) and "lambda" in str(error) for error in raised)


def test_messages_do_not_pile_up() -> None:
    notes, world = Notes(), 3
    meetings = [Meeting(notes, "x", rank, world, 60) for rank in range(world)]
    for _ in range(5):
        threads = []
        store = Store()
        for rank, meeting in enumerate(meetings):
            arguments = (store.of(rank), meeting.begin(), 7, Part(rank), (0, 0, []))
            threads.append(threading.Thread(target=save_together, args=arguments))
            threads[-1].start()
        for thread in threads:
            thread.join()
    assert len(notes.notes) == world + 1  # of the last round


def on_two_ranks(
    uri: str, call: Callable[[millrace.Checkpoints, int], Any], *, patience: float = 120.0
) -> list[BaseException | None]:
    """Returns what the call raised on each of two ranks, which are threads."""
    notes = Notes()
    raised: list[BaseException | None] = [None] * 2

    def run(rank: int) -> None:
        ckpt = millrace.Checkpoints(uri, rank=rank)
        ckpt._meeting = Meeting(notes, "x", rank, 2, patience)
        try:
            call(ckpt, rank)
        except BaseException as error:
            raised[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


@pytest.mark.parametrize("poor", [0, 1])
def test_a_copy_that_fails_on_one_rank_fails_on_all(poor: int, tmp_path: pathlib.Path) -> None:
    def save(ckpt: millrace.Checkpoints, rank: int) -> None:
        if rank == poor:
            ckpt._snapshot = Poor(None)
        ckpt.save(1, {"x": np.zeros(3)}, asynchronous=True)
        ckpt.wait()

    class Poor(Snapshot):
        def copy(self, shards: Any) -> Any:
            raise MemoryError("no room for the copy")

    raised = on_two_ranks(str(tmp_path / "run"), save)
    assert isinstance(raised[poor], MemoryError)
    assert isinstance(raised[1 - poor], millrace.Error) and f"rank {poor}: MemoryError: no room" in str(
        raised[1 - poor]
    ), raised
    assert millrace.Checkpoints(str(tmp_path / "run")).latest() is None


@pytest.mark.parametrize("call", ["latest", "load"])
def test_a_claim_that_fails_is_said_to_all(call: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_CHECKPOINT", str(tmp_path / "run"))
    monkeypatch.setattr(millrace.Checkpoints, "claim", lambda self: (_ for _ in ()).throw(DOWN))
    raised = on_two_ranks(str(tmp_path / "run"), lambda ckpt, rank: getattr(ckpt, call)())
    assert all(
        isinstance(error, millrace.UnavailableError) and "the store is down" in str(error) for error in raised
    ), raised
