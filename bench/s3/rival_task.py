"""This module has the task of a rival, the measurement of its time, CPU and memory, and the loops in which most rivals
read."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import resource
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Task:
    """Represents the objects to read, and the way to read them."""

    bucket: str
    prefix: str
    objects: int
    size: int
    count: int  # 0: for `seconds`
    seconds: float
    calls: int
    part: int  # 0: whole objects
    workers: int
    io_threads: int
    endpoint: str
    region: str
    access_key: str
    secret_key: str
    ca_file: str

    def key(self, number: int) -> str:
        return f"{self.prefix}{number % self.objects:06d}"

    def parts(self) -> list[tuple[int, int]]:
        """Offsets and ends of the parts of an object."""
        return [(begin, min(begin + self.part, self.size)) for begin in range(0, self.size, self.part)]


@dataclass
class Record:
    """Represents the record of a run. It is thread-safe."""

    task: Task
    began: float = 0.0
    cpu: float = 0.0
    latencies: list[float] = field(default_factory=list)  # ms
    each_second: dict[int, int] = field(default_factory=dict)
    errors: int = 0
    first_error: str = ""
    extra: dict[str, Any] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=itertools.count)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        self.began, self.cpu = time.perf_counter(), cpu_seconds()

    def next(self) -> int | None:
        """Returns the number of the object to read next."""
        if self.task.count == 0 and time.perf_counter() - self.began >= self.task.seconds:
            return None
        with self.lock:
            number = next(self.numbers)
        return None if self.task.count and number >= self.task.count else number

    def done(self, began: float, got: int) -> None:
        now = time.perf_counter()
        if got != self.task.size:
            self.failed(f"{got} bytes instead of {self.task.size}")
            return
        second = int(now - self.began)
        with self.lock:
            self.latencies.append(1000 * (now - began))
            self.each_second[second] = self.each_second.get(second, 0) + 1

    def failed(self, error: object) -> None:
        with self.lock:
            self.errors += 1
            # A URL may be signed: the message is cut off before its query.
            self.first_error = self.first_error or re.sub(r"\?\S+", "?...", str(error))[:200]

    def report(self) -> dict[str, Any]:
        seconds, cpu = time.perf_counter() - self.began, max(cpu_seconds() - self.cpu, 1e-9)
        times = sorted(self.latencies)
        objects = len(times)
        gigabytes = objects * self.task.size / 1e9

        def quantile(part: float) -> float:
            return times[int(part * (objects - 1))] if times else 0.0

        return {
            "objects": objects,
            "errors": self.errors,
            "first_error": self.first_error,
            "seconds": seconds,
            "objects_per_second": objects / seconds,
            "gb_per_second": gigabytes / seconds,
            "cpu_seconds_per_gb": cpu / gigabytes if gigabytes else 0.0,
            "objects_per_cpu_second": objects / cpu,
            "ms": {
                name: quantile(part) for name, part in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0))
            },
            "max_rss_bytes": peak_rss(),
            "each_second": [self.each_second.get(second, 0) for second in range(max(self.each_second, default=-1) + 1)],
            **self.extra,
        }


def processes(*roots: str) -> list[str]:
    """Returns these processes, their children and theirs, while they live; this one if none is named."""
    pids = list(roots or ["self"])
    for pid in pids:
        with contextlib.suppress(OSError):  # it has just ended
            for task in Path(f"/proc/{pid}/task").iterdir():
                with contextlib.suppress(OSError):
                    pids += (task / "children").read_text().split()
    return pids


def cpu_seconds(*roots: str) -> float:
    """Returns the CPU-seconds of these processes (by default this one) and of all their descendants, including ended ones that were waited for."""
    ticks = 0
    for pid in processes(*roots):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(int(value) for value in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def peak_rss() -> int:
    """Returns the sum over the processes that live; pages that they share count for each."""
    kilobytes = 0
    for pid in processes():
        found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
        kilobytes += int(found[1]) if found else 0
    return max(kilobytes, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) * 1024


def in_threads(task: Task, record: Record, read: Callable[[int], int], threads: int) -> None:
    def loop() -> None:
        while (number := record.next()) is not None:
            began = time.perf_counter()
            try:
                record.done(began, read(number))
            except Exception as error:
                record.failed(error)

    record.start()
    every = [threading.Thread(target=loop) for _ in range(threads)]
    for thread in every:
        thread.start()
    for thread in every:
        thread.join()


async def in_tasks(
    task: Task,
    record: Record,
    read: Callable[[int], Awaitable[int]],
    read_part: Callable[[int, int, int], Awaitable[int]],
) -> None:
    """Reads whole objects, `calls` at a time; or the parts of one object, `calls` at a time."""

    async def loop() -> None:
        while (number := record.next()) is not None:
            began = time.perf_counter()
            try:
                record.done(began, await read(number))
            except Exception as error:
                record.failed(error)

    async def in_parts(number: int) -> int:
        parts, got = iter(task.parts()), 0

        async def some() -> None:
            nonlocal got
            for begin, end in parts:
                received = await read_part(number, begin, end)
                got += received

        await asyncio.gather(*(some() for _ in range(task.calls)))
        return got

    if task.part:
        read = in_parts
    record.start()
    await asyncio.gather(*(loop() for _ in range(1 if task.part else task.calls)))
