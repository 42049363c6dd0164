"""The parent's side of processes that transform samples for a Loader."""

from __future__ import annotations

import atexit
import dataclasses
import multiprocessing.context
import multiprocessing.process
import multiprocessing.util
import os
import pickle
import select
import signal
import socket
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any, cast

from . import _arguments, _stream
from ._blocks import Block, Written, read
from ._errors import InvalidArgumentError, TransformError, UsageError
from ._transform import SampleTransform
from ._transform_process import DONE_AND_KEPT, FORGET, MESSAGE, READY, TASK, UNREADABLE, serve

_GRACE = 0.3  # seconds for a process to end by itself
_MOST_FREE = 8  # blocks that a process keeps for later tasks

Row = tuple[dict[str, Any], list[int], str]
"""The arguments with which a SampleTransform is called."""

# The lock keeps a forked process from inheriting parts of a process that is just being started. Also, before Python 3.12, a start looks at all
# processes, and fails if one of them is closed meanwhile.
_starting = threading.Lock()

# The function of multiprocessing ends all processes, which would look like a failure here. This one runs before it.
atexit.register(_stream.close_all)


class RemoteTraceback(Exception):
    """Represents the traceback of an exception in another process, as text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._text = text

    def __str__(self) -> str:
        return f'\n"""\n{self._text}"""'


@dataclasses.dataclass
class Outcome:
    """Represents the outcome of a task: the results of its samples, up to the first one that failed."""

    results: list[Any]
    error: BaseException | None = None


class Launcher:
    """The way in which processes are started, and their function."""

    def __init__(self, transform: SampleTransform, context: Any) -> None:
        self.context = _context(context)
        self.method = self.context.get_start_method()
        self.transform: SampleTransform | bytes = transform
        if multiprocessing.process.current_process().daemon:
            raise UsageError(
                "this process is a daemon of multiprocessing (such as a worker of a torch DataLoader or of a Pool), which may not start processes; "
                "write Map(function, threads=) in place of processes="
            )
        if getattr(multiprocessing.process.current_process(), "_inheriting", False):
            raise UsageError(
                "a Loader with a transform in processes was made while a process of it imports the main program; put what the program does "
                "below `if __name__ == '__main__':`, so that importing it makes no Loader"
            )
        if self.method == "fork":
            return
        try:
            self.transform = pickle.dumps(transform)
        except Exception as error:
            raise InvalidArgumentError(
                f"the transform cannot be sent to processes: {error}. Write it as a function at the top level of a module, not as a lambda or "
                "within another function (constants come by functools.partial, or by an object with __call__), or pass "
                "multiprocessing_context='fork', which needs no sending"
            ) from error

    def start(self) -> tuple[Any, socket.socket]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with _starting, theirs:
                process = self.context.Process(
                    target=serve, args=(theirs, self.transform, os.getpid()), name="millrace-transform", daemon=True
                )
                if self.method == "forkserver":
                    process.start()
                    return process, ours
                # The process starts with Ctrl-C blocked. Otherwise Ctrl-C would end it, with a message, before it has set its own handler.
                before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
                try:
                    process.start()
                finally:
                    signal.pthread_sigmask(signal.SIG_SETMASK, before)
                return process, ours
        except BaseException:
            ours.close()
            raise


class _Task:
    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows
        self.block: Block | None = None
        self.unsent: TransformError | None = None  # the error of sending it


class TransformProcess:
    """Represents one process and its tasks. A thread of its own calls it, and starts it with the first task. Another
    thread may abandon it.

    A task is a list of rows. Its block has the samples first, and their results behind them. The process uses the block until it answers.
    Then the results use it until the last of their arrays is gone.
    """

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._process: Any = None
        self._socket: socket.socket | None = None
        self._poll: Any = None
        self._is_ready = False
        self._failed: str | None = None  # the reason why no process starts
        self._abandoned = False
        self._tasks: deque[_Task] = deque()
        self._blocks = 0
        self._known: set[int] = set()  # numbers of the blocks that the process has
        self._free: deque[Block] = deque()  # released by any thread, taken by one

    @property
    def tasks(self) -> int:
        return len(self._tasks)

    def send(self, rows: Sequence[Row]) -> None:
        """Sends a task. An error becomes the outcome of the task."""
        task = _Task(rows)
        self._tasks.append(task)
        self._post(task)

    def receive(self) -> Outcome:
        """Returns the outcome of the first of the tasks."""
        task = self._tasks.popleft()
        if task.unsent is not None:
            return Outcome([], task.unsent)
        if self._failed is not None:
            return Outcome([], TransformError(f"{task.rows[0][2]}: {self._failed}"))
        try:
            while True:
                message = self._next_message()
                if not message:
                    return self._after_death(task)
                kind, _, offset, size = MESSAGE.unpack_from(message)
                if kind == UNREADABLE:
                    return self._unreadable(task, message[MESSAGE.size :].decode(errors="replace"))
                if kind == READY:
                    self._is_ready = True
                    continue
                return self._outcome(task, offset, size, kind == DONE_AND_KEPT)
        except OSError as error:
            return Outcome([], TransformError(f"{task.rows[0][2]}: its transform process cannot be reached: {error}"))

    def abandon(self) -> None:
        """Makes receive() return an outcome at once. Finalizers may call it, on any thread."""
        self._abandoned = True
        if self._socket is not None:
            try:
                self._socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the process is gone

    def end(self) -> int | None:
        """Ends the process, by force if it is still busy after a moment. Returns its exit status."""
        process, self._process = self._process, None
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if process is None:
            return None
        process.join(_GRACE)
        if process.is_alive():
            process.kill()
            process.join()
        status = cast("int | None", process.exitcode)
        with _starting:
            process.close()
        self._known.clear()
        self._is_ready = False
        return status

    # ---- The way there

    def _post(self, task: _Task) -> None:
        task.unsent = None
        if self._failed is not None or self._abandoned:
            return
        try:
            if self._process is None:
                try:
                    self._start()
                except Exception as error:
                    self._failed = f"a transform process cannot be started: {type(error).__name__}: {error}"
                    return
            block = task.block = self._free.popleft() if self._free else self._make_block()
            block.end = block.begin
            block.progress = 0
            where = block.put(pickle.dumps([block.write(row) for row in task.rows]))
            while len(self._free) > _MOST_FREE:
                self._forget(self._free.popleft())
            self._say(block, TASK, *where)  # last, since the process will answer it
        except (BrokenPipeError, ConnectionResetError):
            pass  # receive() finds the state of the process
        except Exception as error:  # it concerns this task alone
            task.unsent = TransformError(
                f"{task.rows[0][2]}: it cannot be sent to a transform process: {type(error).__name__}: {error}"
            )
            task.unsent.__cause__ = error
            if task.block is not None:
                self._free.append(task.block)

    def _start(self) -> None:
        self._process, self._socket = self._launcher.start()
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._poll.register(self._process.sentinel, select.POLLIN)
        if self._abandoned:
            self.abandon()

    def _make_block(self) -> Block:
        self._blocks += 1
        return Block.make(self._blocks)

    def _say(self, block: Block, kind: int, offset: int = 0, size: int = 0) -> None:
        assert self._socket is not None
        message = MESSAGE.pack(kind, block.number, offset, size)
        if block.number in self._known:
            self._socket.send(message)
        else:
            socket.send_fds(self._socket, [message], [block.file])
            self._known.add(block.number)

    def _forget(self, block: Block) -> None:
        if block.number in self._known:
            self._say(block, FORGET)
            self._known.remove(block.number)

    # ---- The way back

    def _next_message(self) -> bytes:
        """Returns the next message. It is empty if the process has ended."""
        if self._socket is None:
            return b""
        ready = {file for file, _ in self._poll.poll()}
        try:
            return self._socket.recv(1 << 16) if self._socket.fileno() in ready else b""
        except ConnectionResetError:
            return b""

    def _outcome(self, task: _Task, offset: int, size: int, is_kept: bool) -> Outcome:
        block = task.block
        assert block is not None
        if is_kept:
            self._known.discard(block.number)  # the process has released it
        block.remap()
        memory, _ = block.lease(None if is_kept else self._free.append)
        written: list[Written]
        written, failure = pickle.loads(memory[offset : offset + size])
        results: list[Any] = []
        try:
            results.extend(read(memory, each) for each in written)
        except Exception as error:
            name = task.rows[len(results)][2]
            unread = TransformError(
                f"{name}: the transform's result cannot be unpickled here: {type(error).__name__}: {error}"
            )
            unread.__cause__ = error
            return Outcome(results, unread)
        return Outcome(results, None if failure is None else _unpacked(*failure))

    def _after_death(self, task: _Task) -> Outcome:
        if self._abandoned:
            return Outcome([], UsageError("the Loader is closed"))
        was_ready = self._is_ready
        pid = None if self._process is None else self._process.pid
        status = self.end()
        if not was_ready:
            self._failed = (
                f"a transform process ended with {_ending(status)} before it was ready; its output says why. If the program does its work "
                "without `if __name__ == '__main__':`, put it below that line, since the process imports the program"
            )
            return Outcome([], TransformError(f"{task.rows[0][2]}: {self._failed}"))
        at = 0 if task.block is None else min(max(task.block.progress, 0), len(task.rows) - 1)
        remedy = ". If memory was short, use fewer processes or smaller batches" if status == -signal.SIGKILL else ""
        error = TransformError(
            f"{task.rows[at][2]}: the process {pid} that transformed it ended with {_ending(status)}{remedy}"
        )
        for waiting in self._tasks:  # which it had not begun
            self._post(waiting)
        return Outcome([None] * at, error)

    def _unreadable(self, task: _Task, why: str) -> Outcome:
        self.end()
        self._failed = (
            f"the transform cannot be loaded in a process: {why}. Write it in a module, a file that the process can import, and not in a "
            "notebook or an interactive session"
        )
        return Outcome([], TransformError(f"{task.rows[0][2]}: {self._failed}"))


def _context(value: Any) -> Any:
    if isinstance(value, multiprocessing.context.BaseContext):
        return value
    wanted = "'spawn', 'forkserver', 'fork' or a context of multiprocessing"
    if value is not None and not isinstance(value, str):
        _arguments.refuse("the context of processes", wanted, value)
    # This is not the default of multiprocessing, which may be fork, since the trainer has threads.
    method = (
        "spawn"
        if value is None
        else _arguments.choice("the context of processes", value, ("spawn", "forkserver", "fork"))
    )
    return multiprocessing.get_context(method)


def _ending(status: int | None) -> str:
    if status is None or status >= 0:
        return f"exit status {status}"
    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:
        return f"signal {-status}"


def _unpacked(chain: list[bytes | None], message: str, text: str) -> BaseException:
    """Returns the error with its causes. The traceback is at the end of these."""
    links: list[BaseException] = []
    for data in chain:
        try:
            link = pickle.loads(data) if data is not None else None
        except Exception:
            link = None
        if not isinstance(link, BaseException):
            break
        links.append(link)
    links = links or [TransformError(message)]
    for error, cause in zip(links, [*links[1:], RemoteTraceback(text)]):
        error.__cause__ = cause
    return links[0]
