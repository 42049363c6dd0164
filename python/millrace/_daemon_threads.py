"""Provides threads for calls that wait for a store. A program that ends does not wait for them."""

from __future__ import annotations

import asyncio
import os
import threading
from queue import SimpleQueue
from typing import Any, Callable


class DaemonThreads:
    """Runs up to ``most`` threads, which are started when needed. A forked process starts threads of its own.

    ``concurrent.futures`` and asyncio's executors join their threads when a program ends.
    With them, Ctrl-C would wait for a store that does not answer.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._begin()

    def _begin(self) -> None:
        self._tasks: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._unfinished = 0
        self._process = os.getpid()

    def run(self, task: Callable[[], None]) -> None:
        """Runs a task soon, in one of the threads. The task must not raise."""
        if self._process != os.getpid():
            self._begin()
        with self._lock:
            self._unfinished += 1
            is_needed = self._unfinished > self._threads and self._threads < self._most
            self._threads += is_needed
        self._tasks.put(task)
        if is_needed:
            threading.Thread(target=self._work, args=(self._tasks,), name="millrace-call", daemon=True).start()

    def _work(self, tasks: SimpleQueue[Callable[[], None]]) -> None:
        while True:
            tasks.get()()
            with self._lock:
                self._unfinished -= 1

    def map(self, function: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        """Returns, for each item in its order, the function's result or the exception that it raised."""
        results: list[Any] = [None] * len(items)
        ended: SimpleQueue[None] = SimpleQueue()  # whose wait Ctrl-C may interrupt

        def task(at: int) -> None:
            try:
                results[at] = function(items[at])
            except BaseException as error:
                results[at] = error
            ended.put(None)

        for at in range(len(items)):
            self.run(lambda at=at: task(at))  # type: ignore[misc]
        for _ in items:
            ended.get()
        return results

    async def call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Returns the function's result without blocking the event loop.

        If the caller is cancelled, it continues at once, and the function still runs to its end.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def settle(result: Any, error: BaseException | None) -> None:
            if future.cancelled():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        def task() -> None:
            result, failure = None, None
            try:
                result = function(*arguments, **options)
            except BaseException as error:
                failure = error
            try:
                loop.call_soon_threadsafe(settle, result, failure)
            except RuntimeError:  # the loop is closed: nobody waits
                pass

        self.run(task)
        return await future
