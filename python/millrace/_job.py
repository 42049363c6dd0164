"""Exchanges messages between a program and the ``millrace run`` that supervises it."""

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
    """A notice that this machine will go away, which :func:`notice` returns.

        found = millrace.notice()
        if found is not None:
            print(found.kind, found.seconds_left())

    Attributes:
        kind: ``"interruption"`` of a spot instance, ``"maintenance"``, ``"scale-in"`` of an Auto Scaling group, ``"signal"`` of a
            scheduler, or ``"rebalance"``, which is a recommendation to leave.
        detail: The event: ``"terminate"``, ``"stop"``, ``"system-reboot"``; or the name of the signal; or ``""``.
        final: True: the machine goes away. False: it may go away, or it goes away much later.
        deadline: The time at which ``millrace run`` kills the program, in seconds as ``time.time()`` counts. None: it does not.
    """

    kind: str
    detail: str
    final: bool
    deadline: float | None

    def seconds_left(self) -> float | None:
        """Returns the time until the deadline, in seconds and at least 0, or None if there is no deadline."""
        return None if self.deadline is None else max(0.0, self.deadline - time.time())


def notice(*, advice: bool = False) -> Notice | None:
    """Returns the newest notice that this machine will go away, or None.

    The result is also None if ``millrace run`` has not started this program. The call reads a local file, which takes some microseconds.
    So a program can ask in each step, in any process and thread. Once a program has asked, ``millrace run`` sends it no signal (unless
    ``--on-notice`` chooses one). But the program must end before the deadline::

        for batch in loader:
            train_step(batch)
            millrace.heartbeat()
            # Save and end. Status 75 makes the job continue on another machine.
            if millrace.notice():
                ckpt.save(step, state())
                raise SystemExit(75)

    Args:
        advice: True: also return notices that are not final. EC2 recommends to leave a spot instance, or maintenance is not near.
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
    """Returns the first step that the processes of this attempt have reported."""
    words = os.pread(file, 20, 0).split()
    return int(words[0]) if words and words[0].isdigit() else None


def heartbeat(step: int | None = None) -> None:
    """Reports to ``millrace run --hang-after`` that this program is alive. Call it in each step::

        for step, batch in enumerate(loader):
            train_step(batch)
            millrace.heartbeat(step)

    It takes some microseconds, and may be called in any process and thread. If ``millrace run`` has not started this program, it does
    nothing.

    Args:
        step: The number of the step that is done. With it, the end of the job reports the number of steps and the time of one. With
            ``--price`` or ``--machine`` it also reports the cost of 1,000 steps. Steps that are repeated after a restart count once. None:
            the step is not counted.

    Raises:
        ValueError: ``step`` is negative.
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
                # Another process of the attempt may have reported an earlier step, since torchrun restarts its workers.
                first = _first_of(file)
                os.pwrite(file, b"%020d %020d\n" % (step if first is None else min(first, step), step), 0)
            finally:
                os.close(file)
        except OSError:  # the supervisor is gone, and this program with it soon
            pass


def _write_stacks_on_signal() -> None:
    """Makes this process and its forks write their stacks on a signal. ``millrace run --hang-after`` keeps the stacks of a hung program."""
    path = os.environ.get("MILLRACE_STACKS")
    if path:
        try:
            stacks = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            faulthandler.register(signal.SIGRTMAX - 2, stacks)
        except OSError:  # the supervisor is gone, or this is another machine or container
            pass


def _say_watched(path: str) -> None:
    """Records that this attempt asks for notices, so that the supervisor need not send a signal. The first process to ask does this."""
    watched = path + ".watched"
    if not os.path.exists(watched):
        try:
            os.close(os.open(watched, os.O_WRONLY | os.O_CREAT, 0o600))
        except OSError:
            pass


_write_stacks_on_signal()
