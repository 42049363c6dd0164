"""What a program and the ``millrace run`` above it tell each other."""

from __future__ import annotations

import faulthandler
import json
import operator
import os
import signal
import time
from dataclasses import dataclass

__all__ = ["Notice", "heartbeat", "notice"]


@dataclass(frozen=True)
class Notice:
    """What announces that this machine will go away.

    Attributes:
        kind: ``"interruption"`` of a spot instance, ``"maintenance"``, ``"scale-in"`` of an Auto Scaling group, ``"signal"`` of a
            scheduler, or ``"rebalance"``: advice to leave.
        detail: What will happen: ``"terminate"``, ``"stop"``, ``"system-reboot"``; the name of the signal; or ``""``.
        final: Whether the machine goes away. If not, it may, or not soon.
        deadline: When ``millrace run`` kills the program, as ``time.time()`` counts; None: it does not.
    """

    kind: str
    detail: str
    final: bool
    deadline: float | None

    def seconds_left(self) -> float | None:
        """The time to save and to end, at least 0; None if there is no deadline."""
        return None if self.deadline is None else max(0.0, self.deadline - time.time())


def notice(*, advice: bool = False) -> Notice | None:
    """The newest notice that this machine will go away; None if there is none, or if ``millrace run`` has not started this program.

    It reads a file of the machine, which takes some microseconds: ask in each step, in any process and thread. A program that has
    asked gets no signal from ``millrace run`` (unless ``--on-notice`` chooses one), but must have ended by the deadline::

        for batch in loader:
            train_step(batch)
            millrace.heartbeat()
            if millrace.notice():
                ckpt.save(step, state())
                raise SystemExit(75)        # to go on on another machine

    Args:
        advice: Whether to return notices that are not final, too: EC2 recommends to leave a spot instance, or maintenance is not near.
    """
    path = os.environ.get("MILLRACE_NOTICE")
    if not path:
        return None
    _say_watched(path)
    try:
        with open(path, encoding="utf-8") as file:
            said = json.load(file)
    except OSError:
        return None
    found = Notice(str(said["kind"]), str(said["detail"]), bool(said["final"]), said["deadline"])
    return found if found.final or advice else None


def _first_of(file: int) -> int | None:
    """The first step that the processes of this attempt have told."""
    words = os.pread(file, 20, 0).split()
    return int(words[0]) if words and words[0].isdigit() else None


def heartbeat(step: int | None = None) -> None:
    """Tells ``millrace run --hang-after`` that this program is alive: call it in each step.

    It takes some microseconds, may be called in any process and thread, and does nothing if ``millrace run`` has not started this program.

    Args:
        step: The number of the step that is done. The end of the job says how many steps there were, the time of one, and with ``--price`` or
            ``--machine`` the cost of 1,000. Steps that are made again after a restart count once.
    """
    if step is not None:
        step = operator.index(step)
        if step < 0:
            raise ValueError(f"step is {step}, and must be at least 0")
    path = os.environ.get("MILLRACE_HEARTBEAT")
    if path:
        try:
            if step is None:
                os.utime(path)
                return
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                # Another process of the attempt may have told an earlier one: torchrun starts its workers again.
                first = _first_of(file)
                os.pwrite(file, b"%020d %020d\n" % (step if first is None else min(first, step), step), 0)
            finally:
                os.close(file)
        except OSError:  # the supervisor is gone, and this program with it soon
            pass


def _write_stacks_on_signal() -> None:
    """For ``millrace run --hang-after``, which keeps the stacks of a program that hangs. Processes that this one forks do the same."""
    path = os.environ.get("MILLRACE_STACKS")
    if path:
        try:
            stacks = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            faulthandler.register(signal.SIGRTMAX - 2, stacks)
        except OSError:  # the supervisor is gone, or this is another machine or container
            pass


def _say_watched(path: str) -> None:
    """Once for each attempt, by whichever process comes first: the supervisor need not signal."""
    watched = path + ".watched"
    if not os.path.exists(watched):
        try:
            os.close(os.open(watched, os.O_WRONLY | os.O_CREAT, 0o600))
        except OSError:
            pass


_write_stacks_on_signal()
