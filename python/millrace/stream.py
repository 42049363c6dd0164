"""Batches on their way through Python: transformed in threads, in order, a few ahead of the program."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections import deque
from typing import Any, Iterator, Mapping

from . import _core
from .errors import ExhaustedError, UsageError
from .transform import Work

_LEAST_AHEAD = 2


class _Entry:
    """A batch on its way. The program has received all entries up to one of them, which is all that there is to a position."""

    __slots__ = ("batch", "done", "epoch", "error", "failed_row", "left", "next", "raw", "report", "rows", "start")

    def __init__(self, raw: dict[str, Any] | None, report: Mapping[str, Any], epoch: int) -> None:
        self.raw = raw
        self.report = report  # after it
        self.epoch = epoch  # of the batch after it
        self.start = (0, 0)  # its epoch, and what was consumed of that before it
        self.rows: list[Any] = []
        self.left = 0  # tasks
        self.batch: Any = None
        self.error: BaseException | None = None
        self.failed_row: int | None = None
        self.done = False
        self.next: _Entry | None = None


class Stream:
    """The batches of a native loader after Python has worked on them. Threads begin with the first batch that is asked for.

    What has been received is one attribute, ``_received``: whatever interrupts the program comes before or after a batch was delivered.
    Thread-safe.
    """

    def __init__(self, native: _core.Loader, work: Work, threads: int, batch_size: int) -> None:
        self._native = native
        self._work = work
        self._threads_wanted = threads
        self._ahead = max(_LEAST_AHEAD, -(-2 * threads // batch_size))
        self._changed = threading.Condition()
        self._native_lock = threading.Lock()  # held while a batch is taken from the native loader
        self._tasks: deque[tuple[_Entry, list[int]]] = deque()
        self._threads: list[threading.Thread] = []
        self._waiting = 0  # threads of the program, which have let go of what they do not keep
        self._stopping = False
        self._restarting = False
        self._ended = False
        self._process = os.getpid()
        self._begin_at(native)
        _streams.add(self)

    # ---- The program

    def batches(self, keep: Any) -> Iterator[Any]:
        """The rest of one epoch. ``keep`` lives as long as the iterator."""
        return _Batches(self, keep)

    @property
    def epoch(self) -> int:
        self._check_process()
        return self._received.epoch

    def report(self) -> dict[str, Any]:
        self._check_process()
        with self._changed:
            report = dict(self._received.report)
            stalls = {cause: 0.0 for cause in report["stalls"]}
            data = sum(report["stalls"].values())
            for cause, seconds in report["stalls"].items():
                stalls[cause] = self._waited_data * seconds / data if data else 0.0
            if not data:
                stalls["decode"] = self._waited_data
            stalls["transform"] = self._waited_work
            waited = self._waited_data + self._waited_work
            report["seconds"] = self._last_asked - self._first_asked
            report["waited"] = waited
            report["stalls"] = stalls
            busy = waited < 0.05 * report["seconds"] or not waited
            report["bottleneck"] = "consumer" if busy else max(stalls, key=lambda cause: stalls[cause])
            return report

    def restart(self, position: str) -> None:
        self._check_process()
        with self._changed:
            self._restarting = True
            self._changed.notify_all()
        try:
            with self._native_lock:
                self._native.restart(position)
                with self._changed:
                    self._begin_at(self._native)
        finally:
            with self._changed:
                self._restarting = False
                self._changed.notify_all()

    def close(self) -> None:
        """Ends the threads, and what they are at."""
        self.abandon()
        for thread in self._threads:
            if thread is not threading.current_thread() and self._process == os.getpid():
                thread.join()

    def abandon(self) -> None:
        """The threads end soon. For finalizers, which may run on any thread, whatever it is at."""
        if self._process != os.getpid():
            return  # the threads are the parent's
        with self._changed:
            self._stopping = True
            self._tasks.clear()
            self._changed.notify_all()
        self._native.close()

    def _check_process(self) -> None:
        if self._process != os.getpid():
            _ = self._native.epoch  # says what is wrong

    def _begin_at(self, native: _core.Loader) -> None:
        self._received = self._last = _Entry(None, native.report(), native.epoch)
        self._last.done = True
        self._batches: _core.Batches | None = None
        self._tasks.clear()
        self._ended = False
        self._waited_data = self._waited_work = 0.0
        self._first_asked = self._last_asked = 0.0

    def receive(self, epoch: int | None) -> tuple[int, bool, Any]:
        """The next batch of that epoch (None: of the one that is next): which epoch it is, whether there was one, and the batch."""
        self._check_process()
        previous: _Entry | None = None
        try:
            with self._changed:
                self._begin_threads()
                entry, epoch = self._await(epoch)
                if entry is None:
                    return epoch, False, None
                if entry.error is not None:
                    if isinstance(entry.error, ExhaustedError):  # the program may let go of batches and go on
                        self._skip(entry)
                    raise entry.error
                previous, self._received = self._received, entry
                previous.batch = None
                self._changed.notify_all()
        except BaseException:
            if previous is not None and self._received is not previous:
                self._received = previous
            raise
        return epoch, True, entry.batch

    def _await(self, epoch: int | None) -> tuple[_Entry | None, int]:
        asked = time.monotonic()
        self._first_asked = self._first_asked or asked
        self._received.batch = None  # the program's own from now on
        try:
            while True:
                if self._stopping:
                    raise UsageError("the Loader is closed; make a new one, and give it the state_dict() of this one to go on")
                epoch = self._received.epoch if epoch is None else epoch
                if self._received.epoch != epoch:
                    return None, epoch
                entry = self._received.next
                if entry is not None and entry.done:
                    return entry, epoch
                if entry is None and self._ended:
                    return None, epoch
                began = time.monotonic()
                self._waiting += 1
                try:
                    self._changed.wait()
                finally:
                    self._waiting -= 1
                if entry is None:
                    self._waited_data += time.monotonic() - began
                else:
                    self._waited_work += time.monotonic() - began
        finally:
            self._last_asked = time.monotonic()

    def _skip(self, entry: _Entry) -> None:
        self._received.next = None
        self._last = self._received
        self._changed.notify_all()

    # ---- The threads

    def _begin_threads(self) -> None:
        if self._threads or self._stopping:
            return
        names = ["millrace-pull"] + [f"millrace-transform-{n}" for n in range(self._threads_wanted)]
        for name in names:
            run = self._pull if name == "millrace-pull" else self._work_on
            thread = threading.Thread(target=run, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def _on_their_way(self) -> int:
        count, entry = 0, self._received.next
        while entry is not None:
            count, entry = count + 1, entry.next
        return count

    def _may_pull(self) -> bool:
        failed = self._last.error is not None
        return self._on_their_way() < self._ahead and not self._restarting and not self._ended and not failed

    def _pull(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopping or self._may_pull())
                if self._stopping:
                    return
            with self._native_lock:
                if self._restarting or self._stopping:
                    continue
                entry = self._take()
                if entry is None:
                    continue
                with self._changed:
                    self._append(entry)

    def _take(self) -> _Entry | None:
        """The native loader's next batch, if it comes within a moment."""
        fresh = self._batches is None
        if self._batches is None:
            self._batches = self._native.batches(None)
        waiting = self._waiting > 0
        try:
            raw = self._batches.poll()
        except StopIteration:
            self._batches = None  # the next epoch
            if fresh:
                with self._changed:
                    self._ended = True
                    self._changed.notify_all()
            return None
        except BaseException as error:
            return self._failed(error, waiting)
        if raw is None:
            return None
        entry = _Entry(raw, self._native.report(), self._native.epoch)
        entry.start = (self._last.epoch, int(self._last.report["position"].split("-")[2]))
        return entry

    def _failed(self, error: BaseException, waiting: bool) -> _Entry | None:
        with self._changed:
            if self._stopping:
                return None
            # Memory comes back when the batches that are on their way are done with, and those that the program is about to
            # let go of. It holds too many only if it waits for another one and there is still none.
            if isinstance(error, ExhaustedError) and (self._on_their_way() > 0 or not waiting or not self._waiting):
                self._changed.wait(0.02)
                return None
            entry = _Entry(None, self._last.report, self._last.epoch)
            entry.error = error
            entry.done = True
            return entry

    def _append(self, entry: _Entry) -> None:
        before = self._last
        before.next = self._last = entry
        if entry.raw is not None:
            rows = [row for row, real in enumerate(entry.raw["valid"]) if real] if self._work.by_row else []
            if not rows and self._work.by_row:  # its columns are like those of the batch before it
                self._changed.wait_for(lambda: before.done or self._stopping or self._restarting)
            entry.rows = [None] * len(rows)
            share = max(1, -(-len(rows) // (2 * self._threads_wanted)))
            chunks = [rows[at : at + share] for at in range(0, len(rows), share)] or [[]]
            entry.left = len(chunks)
            self._tasks.extend((entry, chunk) for chunk in chunks)
        self._changed.notify_all()

    def _work_on(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopping or self._tasks)
                if self._stopping:
                    return
                entry, rows = self._tasks.popleft()
            self._run(entry, rows)
            del entry, rows

    def _run(self, entry: _Entry, rows: list[int]) -> None:
        raw = entry.raw
        assert raw is not None
        error: BaseException | None = None
        row = 0
        try:
            for row in rows:  # valid rows are the first ones, so row n of the batch is the n-th of them
                entry.rows[row] = self._work.row(raw, row, *entry.start)
        except BaseException as raised:
            error = raised
        with self._changed:
            if error is not None and (entry.failed_row is None or row < entry.failed_row):
                entry.error, entry.failed_row = error, row  # of the first row, whichever thread was faster
            entry.left -= 1
            if entry.left > 0:
                return
        batch: Any = None
        failed = entry.error
        if failed is None:
            try:
                batch = self._work.batch(raw, entry.rows, *entry.start)
            except BaseException as raised:
                failed = raised
        del raw
        with self._changed:
            entry.batch, entry.error, entry.raw, entry.rows, entry.done = batch, failed, None, [], True
            self._changed.notify_all()


class _Batches:
    def __init__(self, stream: Stream, keep: Any) -> None:
        self._stream = stream
        self._keep = keep
        self._epoch: int | None = None
        self._ended = False

    def __iter__(self) -> _Batches:
        return self

    def __next__(self) -> Any:
        if not self._ended:
            self._epoch, there, batch = self._stream.receive(self._epoch)
            if there:
                return batch
        self._ended = True
        raise StopIteration


_streams: weakref.WeakSet[Stream] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for stream in list(_streams):
        stream.close()
