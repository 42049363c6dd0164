"""Moves batches on their way through Python: transformed in threads, sent to a device, in order, a few ahead of the
program."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Callable

from . import _core
from ._device import Ring, Sent, Slot
from ._errors import ExhaustedError, UsageError
from ._hand_over import Destination, HandOver
from ._padding import filled
from ._positions import consumed_of
from ._transform import Work

if TYPE_CHECKING:
    from ._processes import TransformProcess

CLOSED = "the Loader is closed; make a new one, and give it the state_dict() of this one to continue"
_LEAST_AHEAD = 2
_MOST_WAIT = 30.0  # seconds, for threads whose memory another loader needs
_TASKS_OF_PROCESS = 2  # one that it is at, and one that it finds when it is done


class _Entry:
    """Represents a batch on its way. The program has received all entries up to one of them, which is all that there is
    to a position."""

    __slots__ = (
        "batch",
        "counts",
        "done",
        "epoch",
        "error",
        "failed_row",
        "left",
        "next",
        "number",
        "raw",
        "report",
        "ring",
        "rows",
        "size",
        "slot",
        "start",
    )

    def __init__(
        self, raw: dict[str, Any] | None, counts: Any, report: Mapping[str, Any], epoch: int, ring: Ring
    ) -> None:
        self.raw = raw
        self.number = 0  # of the batches since the position of the stream was set
        self.counts = counts  # after it, as the native loader takes them back
        self.report = report  # the same as a dict
        self.epoch = epoch  # of the batch after it
        self.start = (0, 0)  # its epoch, and what was consumed of that before it
        self.size = 0  # rows
        self.rows: list[Any] = []
        self.left = 0  # tasks
        self.slot: Slot | None = None  # where its arrays lie
        self.ring = ring
        self.batch: Sent | None = None
        self.error: BaseException | None = None
        self.failed_row: int | None = None
        self.done = False
        self.next: _Entry | None = None


class Stream:
    """The batches of a native loader after Python has worked on them, in threads that begin with :meth:`start`, or processes with a thread each.

    The received batches are one attribute, ``_received``, so that each interruption comes before or after a batch was delivered.
    The program's thread waits by SimpleQueue and plain locks alone, since a signal handler that raises within a threading.Condition leaves
    it broken. Thread-safe.
    """

    def __init__(
        self,
        native: _core.Loader,
        work: Work,
        threads: int,
        batch_size: int,
        processes: Sequence[TransformProcess],
        destination: Destination,
        hand_over: HandOver,
    ) -> None:
        self._native = native
        self._work = work
        self._work_name = "transform" if work.has_functions else "device"
        native.count_program_waits(self._work_name)
        self._device = destination.device
        self._payload = destination.payload
        self._on_batch = destination.on_batch
        self._hand_over = hand_over
        self._hook_is_due = False
        self._ring = self._device.ring()
        self._ahead = destination.ahead or max(_LEAST_AHEAD, -(-2 * threads // batch_size))
        self._consumer = threading.Lock()  # of the program's threads, one receives at a time
        self._news: SimpleQueue[None] = SimpleQueue()  # for it: something has changed
        self._wake: SimpleQueue[None] = SimpleQueue()  # likewise for the thread that pulls
        self._native_lock = threading.Lock()  # held while a batch is taken from the native loader, and over _last
        self._counting = threading.Lock()  # over what threads count together
        self._tasks: SimpleQueue[tuple[_Entry, list[int]] | None] = SimpleQueue()
        self._received: _Entry
        self._last: _Entry  # that was taken from the native loader
        self._first_asked = self._last_asked = self._waited_data = self._waited_work = 0.0  # seconds
        self._waits = 0  # of the program, begun so far
        self._waiting = 0  # the number of the one that it is in, when it has let go of what it does not keep; else 0
        self._stopping = False
        self._restarting = False
        self._is_paused = True  # nothing is read
        self._stop_is_due = False  # by the thread that pulls
        self._epochs = 0
        self._process = os.getpid()
        self._workers = threads
        self._transform_processes = processes  # none, or one for each thread
        self._begin()
        self._threads: list[threading.Thread] = []
        _streams.add(self)

    def _start_threads(self) -> None:
        if self._threads:
            return
        works: list[Callable[[], None]] = [
            lambda process=process: self._work_with(process)  # type: ignore[misc]
            for process in self._transform_processes
        ]
        runs = [("pull", self._pull)] + [
            (f"transform-{n}", work) for n, work in enumerate(works or [self._work_on] * self._workers)
        ]
        self._threads = [threading.Thread(target=run, name=f"millrace-{name}", daemon=True) for name, run in runs]
        try:
            for thread in self._threads:
                thread.start()
        except BaseException:
            self.abandon()
            self._native.close()
            raise

    # ---- The program

    def batches(self) -> Batches:
        """Returns the rest of one epoch."""
        return Batches(self)

    @property
    def received(self) -> int:
        """Returns batches since :meth:`begin`."""
        return self._received.number

    def call_hook(self) -> None:
        """Runs after the batch that was received last, once."""
        if self._hook_is_due and self._on_batch is not None:
            self._hook_is_due = False
            self._on_batch()

    @property
    def epoch(self) -> int:
        self._check_process()
        return self._received.epoch

    def rows_of_last(self) -> int:
        """Returns rows of the batch that was received last, before functions made something of it."""
        return self._received.size

    def report(self, counts: _core.Counts | None = None) -> dict[str, Any]:
        self._check_process()
        report = dict(self._received.report if counts is None else self._native.report(counts))
        data = sum(report["stalls"].values())
        stalls = {
            cause: self._waited_data * seconds / data if data else 0.0 for cause, seconds in report["stalls"].items()
        }
        if not data:
            stalls["decode"] = self._waited_data
        stalls[self._work_name] = self._waited_work
        waited = self._waited_data + self._waited_work
        report.update(seconds=self._last_asked - self._first_asked, waited=waited, stalls=stalls)
        is_busy = _core.consumer_limits(waited, report["seconds"])
        report["bottleneck"] = "consumer" if is_busy else max(stalls, key=lambda cause: stalls[cause])
        return report

    def counts(self) -> Any:
        return self._received.counts

    def settled(self, position: str) -> str:
        return self._native.settled(position)

    def begin(self, position: str, epochs: int, counts: Any) -> None:
        self._check_process()
        self._restarting = True
        self._wake.put(None)
        try:
            with self._native_lock:
                self._go_to(position, epochs, counts)
        finally:
            self._restarting = False
            self._wake.put(None)
            self._news.put(None)

    def _go_to(self, position: str, epochs: int, counts: Any) -> None:
        self._ring.close()
        self._ring = self._device.ring()
        self._native.begin(position, epochs, counts)
        self._epochs = epochs
        self._is_paused = True
        self._stop_is_due = False
        if counts is None:
            self._waited_data = self._waited_work = 0.0
            self._first_asked = self._last_asked = 0.0
        self._begin()

    def start(self) -> None:
        self._check_process()
        if self._stopping:
            raise UsageError(CLOSED)
        with self._native_lock:
            self._native.start()
            self._stop_is_due = False
            self._is_paused = False
        self._start_threads()
        self._wake.put(None)

    def stop(self) -> None:
        """The thread that pulls does it. For finalizers, which may run on that thread, whatever it is at."""
        if self._process == os.getpid():
            self._stop_is_due = True
            self._wake.put(None)

    def _stop_if_due(self) -> None:
        if not self._stop_is_due or self._process != os.getpid():
            return
        with self._native_lock, contextlib.suppress(UsageError):  # another thread may close the loader
            if self._stop_is_due and not self._stopping:
                self._go_to(self._received.report["position"], self._epochs, self._received.counts)

    def close(self) -> None:
        """Ends the threads, and what they are at."""
        self.abandon()
        self._join()

    def _join(self, deadline: float | None = None) -> None:
        for thread in self._threads:
            if thread is not threading.current_thread() and self._process == os.getpid() and thread.ident is not None:
                thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))

    def abandon(self) -> None:
        """The threads end soon. For finalizers, which may run on any thread, whatever it is at."""
        if self._process != os.getpid():
            return  # the threads are the parent's
        self._stopping = True
        self._wake.put(None)
        self._news.put(None)
        for _ in range(self._workers):
            self._tasks.put(None)
        for process in self._transform_processes:
            process.abandon()
        if (
            not self._device.pins or not self._threads
        ):  # else the thread that pulls frees the slots first, which may take a while
            self._native.close()

    def receive(self, epoch: int) -> tuple[bool, Any]:
        """Returns True and the next batch, or False if that epoch has no more."""
        self._check_process()
        previous: _Entry | None = None
        try:
            with self._consumer:
                entry = self._await(epoch)
                if entry is None:
                    return False, None
                if entry.error is not None:
                    if isinstance(entry.error, ExhaustedError):  # the program may let go of batches and go on
                        self._forget_failure(entry)
                    raise entry.error
                assert entry.batch is not None
                batch = self._hand_over.chosen(self._device.receive(entry.batch))
                previous, self._received = self._received, entry
                self._wake.put(None)
        except BaseException:
            if previous is not None and self._received is not previous:
                self._received = previous
            raise
        previous.batch = None
        self._hook_is_due = True
        return True, batch

    def _await(self, epoch: int) -> _Entry | None:
        self._native.program_calls()
        asked = time.monotonic()
        self._first_asked = self._first_asked or asked
        self._received.batch = None  # the program's own from now on
        try:
            while True:
                _drain(self._news)
                if self._stopping:
                    raise UsageError(CLOSED)
                received = self._received
                if received.epoch != epoch:
                    return None
                is_last = self._ended
                entry = received.next
                if entry is not None and entry.done:
                    return entry
                if entry is None and is_last:
                    return None
                self._wait_for_news(entry is not None)
        finally:
            self._last_asked = time.monotonic()
            self._native.program_calls()

    def _wait_for_news(self, is_worked_on: bool) -> None:
        began = time.monotonic()
        self._waits += 1
        self._waiting = self._waits
        try:
            self._native.program_waits(is_worked_on)
            self._news.get()
        finally:
            self._native.program_waited()
            self._waiting = 0
        if is_worked_on:
            self._waited_work += time.monotonic() - began
        else:
            self._waited_data += time.monotonic() - began

    def _forget_failure(self, entry: _Entry) -> None:
        with self._native_lock:
            if self._received.next is entry:
                self._received.next = None
                self._last = self._received
        self._wake.put(None)

    def _check_process(self) -> None:
        if self._process != os.getpid():
            _ = self._native.epoch  # says what is wrong

    def _begin(self) -> None:
        """Starts at the position of the native loader, which nobody uses meanwhile."""
        _drain(self._tasks)
        if self._stopping:  # what tells the threads was perhaps among them
            for _ in range(self._workers):
                self._tasks.put(None)
        counts = self._native.counts()
        start = _Entry(None, counts, self._native.report(counts), self._native.epoch, self._ring)
        start.done = True
        self._batches: _core.Batches | None = None
        self._ended = False
        self._last = start
        self._received = start

    # ---- The thread that pulls

    def _on_their_way(self) -> int:
        count, entry = 0, self._received.next
        while entry is not None:
            count, entry = count + 1, entry.next
        return count

    def _may_pull(self) -> bool:
        has_failed = self._last.error is not None
        is_reading = not (self._restarting or self._is_paused or self._stop_is_due or self._ended)
        return is_reading and not has_failed and self._on_their_way() < self._ahead

    def _pull(self) -> None:
        try:
            self._pull_until_stopped()
        finally:
            if self._device.pins:
                self._ring.close()
                self._native.close()

    def _pull_until_stopped(self) -> None:
        while not self._stopping:
            _drain(self._wake)
            if self._stopping:
                return
            self._stop_if_due()
            if not self._may_pull():
                self._wake.get()
                continue
            with self._native_lock:
                if not self._restarting and self._may_pull():
                    self._take()

    def _take(self) -> None:
        """Takes the native loader's next batch, if it comes within a moment."""
        is_fresh = self._batches is None
        if self._batches is None:
            self._batches = self._native.batches(None, self._hand_over.native_floats(as_tensors=False))
        waiting = 0 if self._on_their_way() else self._waiting
        try:
            raw = self._batches.poll()
        except StopIteration:
            self._batches = None  # the next epoch
            if is_fresh:
                self._ended = True
                self._news.put(None)
            return
        except BaseException as error:
            return self._fail(error, waiting != 0 and waiting == self._waiting)
        if raw is None:
            return
        counts = self._native.counts()
        entry = _Entry(raw, counts, self._native.report(counts), self._native.epoch, self._ring)
        if self._device.pins and not self._work.by_row:  # rows make arrays of their own
            entry.slot = self._batches.slot
        entry.start = (self._last.epoch, consumed_of(self._last.report["position"]))
        self._append(entry, raw)

    def _fail(self, error: BaseException, was_awaited: bool) -> None:
        if self._stopping:
            return
        # Memory returns when the batches in flight are done, and when the program releases batches. The program holds too many only if it
        # was waiting all the time.
        if isinstance(error, ExhaustedError) and not was_awaited:
            self._pause(0.02)
            return
        entry = _Entry(None, self._last.counts, self._last.report, self._last.epoch, self._ring)
        entry.error = error
        entry.done = True
        self._last.next = self._last = entry
        self._news.put(None)

    def _append(self, entry: _Entry, raw: dict[str, Any]) -> None:
        rows = [row for row, has_sample in enumerate(filled(raw)) if has_sample] if self._work.by_row else []
        before = self._last
        entry.number = before.number + 1
        if not rows and self._work.by_row:  # its columns are like those of the batch before it
            while not before.done and not self._stopping and not self._restarting:
                self._pause(1)
        entry.size = len(raw["valid"])
        entry.rows = [None] * entry.size
        share = max(1, -(-len(rows) // (2 * self._workers)))
        chunks = [rows[at : at + share] for at in range(0, len(rows), share)] or [[]]
        entry.left = len(chunks)
        before.next = self._last = entry
        self._news.put(None)
        for chunk in chunks:
            self._tasks.put((entry, chunk))

    def _pause(self, seconds: float) -> None:
        try:
            self._wake.get(timeout=seconds)
        except Empty:
            pass

    # ---- The threads that transform

    def _work_on(self) -> None:
        while not self._stopping:
            task = self._tasks.get()
            if task is not None and not self._stopping:
                self._run(*task)
            del task

    def _run(self, entry: _Entry, rows: list[int]) -> None:
        raw = entry.raw
        assert raw is not None
        error: BaseException | None = None
        row = 0
        try:
            for row in rows:
                entry.rows[row] = self._work.row(raw, row, *entry.start)
        except BaseException as raised:
            error = raised
        self._complete(entry, row, error)

    def _work_with(self, process: TransformProcess) -> None:
        tasks: deque[tuple[_Entry, list[int]]] = deque()
        try:
            while not self._stopping:
                task = None
                if len(tasks) < _TASKS_OF_PROCESS:
                    try:
                        task = self._tasks.get(block=not tasks)
                    except Empty:
                        pass
                if task is not None:
                    if self._send(process, *task):
                        tasks.append(task)
                elif tasks and not self._stopping:
                    self._receive(process, *tasks.popleft())
                del task
        finally:
            process.end()

    def _send(self, process: TransformProcess, entry: _Entry, rows: list[int]) -> bool:
        """Sends rows to a process. Returns True if there will be something to receive."""
        raw = entry.raw
        assert raw is not None
        error: BaseException | None = None
        try:
            if rows:
                process.send([self._work.arguments(raw, row, *entry.start) for row in rows])
                return True
        except BaseException as raised:  # else the loop would wait for ever
            error = raised
        self._complete(entry, rows[0] if rows else 0, error)
        return False

    def _receive(self, process: TransformProcess, entry: _Entry, rows: list[int]) -> None:
        results: list[Any] = []
        error: BaseException | None
        try:
            outcome = process.receive()
            results, error = outcome.results, outcome.error
        except BaseException as raised:
            error = raised
        for row, result in zip(rows, results):
            entry.rows[row] = result
        self._complete(entry, rows[min(len(results), len(rows) - 1)], error)

    def _complete(self, entry: _Entry, row: int, error: BaseException | None) -> None:
        """After a task: ``row`` is the one that failed, if there is an error. The last task of a batch makes the batch."""
        raw = entry.raw
        assert raw is not None
        batch: Any = None
        with self._counting:
            if error is not None and (entry.failed_row is None or row < entry.failed_row):
                entry.error, entry.failed_row = error, row  # of the first row, whichever thread was faster
            entry.left -= 1
            if entry.left > 0:
                return
        if entry.error is None:
            try:
                made = [row for row, is_real in zip(entry.rows, filled(raw)) if is_real] if self._work.by_row else []
                batch = self._work.batch(raw, made, *entry.start)
                self._hand_over.check(batch)
                entry.batch = self._device.send(batch, self._payload, entry.slot, entry.ring)
            except BaseException as raised:
                entry.error = raised
        del raw
        batch = None
        entry.raw, entry.rows = None, []
        entry.done = True
        self._news.put(None)
        self._wake.put(None)


def _drain(queue: SimpleQueue[Any]) -> None:
    """Before a look at what has changed, so that a queue never holds more than has happened since the last one."""
    try:
        while True:
            queue.get_nowait()
    except Empty:
        pass


class Batches:
    """Represents the rest of one epoch, for a `for` loop."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._before = stream.received
        self._epoch = stream.epoch
        self._ended = False

    def __iter__(self) -> Batches:
        return self

    @property
    def delivered(self) -> int:
        return self._stream.received - self._before

    @property
    def rows(self) -> int:
        return self._stream.rows_of_last()

    def __next__(self) -> Any:
        self._stream.call_hook()
        if not self._ended:
            there, batch = self._stream.receive(self._epoch)
            if there:
                return batch
        self._ended = True
        raise StopIteration


_streams: weakref.WeakSet[Stream] = weakref.WeakSet()


def finish_stops() -> None:
    """Makes all streams that were stopped or abandoned return their memory now, if their threads end within ``_MOST_WAIT`` seconds."""
    deadline = time.monotonic() + _MOST_WAIT
    for stream in list(_streams):
        stream._stop_if_due()
        if stream._stopping:
            stream._join(deadline)


@atexit.register
def close_all() -> None:
    for stream in list(_streams):
        stream.close()
