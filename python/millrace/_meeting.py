"""This module has the protocol by which the ranks of a job agree on a step and save together.

It uses messages under keys, a deadline for each wait, and errors that name the missing rank. Only rank 0 claims, chooses the folder of the
attempt, and commits. The protocol does not use collective operations of a process group, so that it may run in the background of a training
that uses them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, Protocol

from . import _errors
from ._errors import Error, InvalidArgumentError, MismatchError, UnavailableError

_FIRST_PAUSE, _LONGEST_PAUSE = 0.002, 0.1  # seconds between two looks for a message


class Board(Protocol):
    """A board on which ranks leave messages for each other. Only ranks of this start of the job reach it, not those of an earlier start."""

    def post(self, key: str, message: bytes) -> None: ...
    def read(self, key: str) -> bytes | None: ...
    def remove(self, key: str) -> None: ...


class TorchBoard:
    """Represents the key-value store with which torch.distributed was initialized."""

    def __init__(self) -> None:
        from torch.distributed import distributed_c10d

        self._store = distributed_c10d._get_default_store()

    def post(self, key: str, message: bytes) -> None:
        self._store.set(key, message)  # type: ignore[arg-type]  # which its stubs take for text

    def read(self, key: str) -> bytes | None:
        return bytes(self._store.get(key)) if self._store.check([key]) else None

    def remove(self, key: str) -> None:
        try:
            self._store.delete_key(key)
        except RuntimeError:  # a kind of store that cannot: the message stays
            pass


class Meeting:
    """Represents the messages of one ``Checkpoints``. All ranks call the same methods in the same order, and each call
    is a round.

    Args:
        patience: The time, in seconds, that a rank waits for another rank.
    """

    def __init__(
        self,
        board: Board,
        name: str,
        rank: int,
        world: int,
        patience: float,
        *,
        now: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._board = board
        self._name = name
        self.rank = rank
        self.world = world
        self._patience = patience
        self._now = now
        self._pause = pause
        self._round = 0
        self._oldest = 1  # round whose messages may still be there

    def begin(self) -> Round:
        """Returns the next round."""
        self._round += 1
        return Round(self, self._round)

    def _key(self, number: int, of: str) -> str:
        return f"millrace/{self._name}/{number}/{of}"


class Round:
    """One round: rank 0 sends a message, all others may answer, and rank 0 sends the result."""

    def __init__(self, meeting: Meeting, number: int) -> None:
        self._meeting = meeting
        self._number = number

    def say(self, what: str, message: Any) -> None:
        """Sends a message from rank 0 to all others."""
        self._post(what, {"message": message})

    def say_failed(self, what: str, error: BaseException) -> None:
        """Sends an error from rank 0 instead of a message. Ranks that wait for the message raise such an error."""
        self._post(what, _failure(error))

    def hear(self, what: str) -> Any:
        """Returns the message of rank 0, on another rank."""
        (heard,) = self._wait({0: what}, f"rank 0 has not sent its {what}").values()
        return _message(heard, "rank 0")

    def answer(self, message: Any) -> None:
        """Sends an answer to rank 0, from another rank."""
        self._post(f"answer-{self._meeting.rank}", {"message": message})

    def answer_failed(self, error: BaseException) -> None:
        self._post(f"answer-{self._meeting.rank}", _failure(error))

    def answers(self) -> list[Any]:
        """Returns, on rank 0, the answers of ranks 1, 2 and so on. It raises as soon as one of them has failed."""
        meeting = self._meeting
        others = range(1, meeting.world)
        heard = self._wait({rank: f"answer-{rank}" for rank in others}, "no answer has come", stop_at_failure=True)
        for old in range(meeting._oldest, self._number):  # all have left the rounds before
            for of in ["plan", "result", *(f"answer-{rank}" for rank in others)]:
                meeting._board.remove(meeting._key(old, of))
        meeting._oldest = self._number
        return [_message(heard[rank], f"rank {rank}") for rank in others]

    def _post(self, of: str, message: dict[str, Any]) -> None:
        self._meeting._board.post(self._meeting._key(self._number, of), json.dumps(message).encode())

    def _wait(self, keys: dict[int, str], lacking: str, *, stop_at_failure: bool = False) -> dict[int, dict[str, Any]]:
        meeting = self._meeting
        deadline = meeting._now() + meeting._patience
        pause = _FIRST_PAUSE
        heard: dict[int, dict[str, Any]] = {}
        while True:
            for rank, of in keys.items():
                found = None if rank in heard else meeting._board.read(meeting._key(self._number, of))
                if found is not None:
                    heard[rank] = json.loads(found)
                    if stop_at_failure and "error" in heard[rank]:
                        _message(heard[rank], f"rank {rank}")
            missing = [rank for rank in keys if rank not in heard]
            if not missing:
                return heard
            if meeting._now() >= deadline:
                ranks = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
                raise UnavailableError(
                    f"{lacking} within {meeting._patience:g} s; missing: rank {ranks}. All ranks must call the same methods in the same order; "
                    "if a rank has died, restart the job, and if it is only slow, raise patience"
                )
            meeting._pause(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


def _failure(error: BaseException) -> dict[str, Any]:
    return {"error": type(error).__name__, "text": str(error)}


def _message(heard: dict[str, Any], whose: str) -> Any:
    if "error" not in heard:
        return heard["message"]
    kind = getattr(_errors, heard["error"], None) if heard["error"] in _errors.__all__ else None
    raise (kind or Error)(f"{whose}: {heard['text'] if kind else heard['error'] + ': ' + heard['text']}")


Retention = tuple[int, int, list[int]]
"""The rules of retention: the number of the newest checkpoints, a step whose multiples stay, and further steps."""


class Core(Protocol):
    """Represents the part of _core.Checkpoints that a save needs."""

    def begin(self, step: int, keep: int, keep_every: int, keep_steps: list[int]) -> Any: ...
    def upload(self, step: int, attempt: str, shards: list[tuple[str, list[Any]]]) -> str: ...
    def finish(self, save: Any, uploaded: list[str]) -> None: ...
    def abandon(self, save: Any) -> None: ...


class Work(Protocol):
    """Represents the files that a rank saves."""

    fingerprint: str

    def shards(self) -> list[tuple[str, list[Any]]]:
        """Returns the files of this rank."""

    def chunks(self) -> Any:
        """Returns the places of tensors in these files, for rank 0, as JSON."""

    def last_shards(self, chunks: list[Any]) -> list[tuple[str, list[Any]]]:
        """Returns, on rank 0, the files that can be written only when the chunks of all ranks are known."""


def save_together(
    core: Core, meeting_round: Round, step: int, work: Work | BaseException, retention: Retention
) -> None:
    """Runs one save on every rank. ``work`` may be an error that keeps this rank from saving. Then no rank saves.

    Rank 0 begins the save, which checks that it may commit, and sends the name of the attempt. All ranks upload. Rank 0 commits once the
    parts of all ranks are stored. An error on one rank is raised on all ranks, or they give up at the deadline. Then nothing is committed.
    """
    if meeting_round._meeting.rank == 0:
        _lead(core, meeting_round, step, work, retention)
    else:
        _follow(core, meeting_round, step, work)


def _lead(core: Core, meeting: Round, step: int, work: Work | BaseException, retention: Retention) -> None:
    try:
        if isinstance(work, BaseException):
            raise work
        save = core.begin(step, *retention)
    except BaseException as error:
        meeting.say_failed("plan", error)
        raise
    try:
        meeting.say("plan", {"step": step, "attempt": save.attempt, "fingerprint": work.fingerprint})
        uploaded = [core.upload(step, save.attempt, work.shards())]
        parts = meeting.answers()
        uploaded += [part["uploaded"] for part in parts]
        uploaded.append(
            core.upload(step, save.attempt, work.last_shards([work.chunks(), *(part["chunks"] for part in parts)]))
        )
    except BaseException as error:
        try:
            core.abandon(save)
        except Error as claimed:  # which explains why
            meeting.say_failed("result", claimed)
            raise claimed from error
        meeting.say_failed("result", error)
        raise
    try:
        core.finish(save, uploaded)
    except BaseException as error:
        meeting.say_failed("result", error)
        raise
    meeting.say("result", None)


def _follow(core: Core, meeting: Round, step: int, work: Work | BaseException) -> None:
    try:
        if isinstance(work, BaseException):
            raise work
        plan = meeting.hear("plan")
        if plan["step"] != step:
            raise InvalidArgumentError(
                f"rank 0 saves step {plan['step']}, and this rank saves step {step}; all must save the same"
            )
        if plan["fingerprint"] != work.fingerprint:
            raise MismatchError(
                "the tensors of this rank's state have other names, shapes or types than those of rank 0; give what differs between "
                "ranks as per_rank="
            )
        uploaded = core.upload(step, plan["attempt"], work.shards())
        meeting.answer({"uploaded": uploaded, "chunks": work.chunks()})
    except BaseException as error:
        meeting.answer_failed(error)
        raise
    meeting.hear("result")
