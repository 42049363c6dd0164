"""Reads ahead for programs that ask for items by number, in an order that the numbers themselves carry.

A worker of a ``DataLoader`` learns about a batch only when it has to make it. The numbers of :class:`millrace.torch.Sampler` carry their order
and their position in it. The order is a pure function, so that the worker knows the next items, and reads them ahead.
"""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Iterator, Sequence
from queue import SimpleQueue
from typing import Any, Callable

from ._dataset import Dataset
from ._errors import ExhaustedError
from ._plan import Plan

_LEAST_AHEAD = 32  # items; at least two batches
_AHEAD_BYTES = 64 << 20  # at most
_MOST_MISSES = 2  # in a row; after that the program has its own order, and nothing is read ahead

Fetch = Callable[[Sequence[int]], "list[Any]"]
RankOf = Callable[[Any], "list[int]"]


@dataclasses.dataclass(frozen=True)
class Course:
    """The places of one rank in an epoch: ``length`` places.

    Place k is position rank + world k of the plan, which begins again at its end.
    """

    data: str | int  # the fingerprint of a Dataset, or a number of items
    options: dict[str, Any]  # of the plan
    epoch: int
    rank: int
    world: int
    length: int

    def plan(self, data: Dataset | int) -> Plan:
        return Plan(data, epoch=self.epoch, **self.options)

    def numbers(self, plan: Plan, rank_of: RankOf, places: Sequence[int]) -> list[int]:
        return rank_of(plan[[(self.rank + self.world * place) % len(plan) for place in places]])


class Place(int):
    """Represents a number with its place in a course. For all other code than :class:`ReadAhead`, it is the number."""

    course: Course
    at: int

    def __new__(cls, number: int, course: Course, at: int) -> Place:
        made = super().__new__(cls, number)
        made.course, made.at = course, at
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return Place, (int(self), self.course, self.at)


class Strides:
    """Predicts the next places from earlier ones: runs of equal lengths that begin a stride apart.

    Worker w of N gets batches w, w + N and so on: runs of a batch, N batches apart. If it asks for single items, the runs follow from its
    requests.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._run: int | None = 0  # None: has no end yet. 0: nothing is known
        self._stride = 0  # 0: not known
        self._begin = self._end = -1  # of the run that the program is in; the end is where it is

    def restart(self) -> None:
        self._begin = self._end = -1

    def came(self, first: int, count: int) -> None:
        if self._end < 0:
            self._start(first, count)
        elif first == self._end and (self._run is None or first + count - self._begin <= self._run):
            pass  # within a run
        elif self._run and first == self._begin + self._stride:
            self._begin = first
        elif first == self._end:
            self._run, self._stride = None, 0
        else:
            self._run, self._stride = self._end - self._begin, max(0, first - self._begin)
            self._begin = first
        self._end = first + count

    def _start(self, first: int, count: int) -> None:
        self._begin = first
        if count > 1 and count != self._run:
            self._run, self._stride = count, self._workers * count
        elif not self._run:
            self._run, self._stride = 1, int(self._workers == 1)

    def following(self, most: int, length: int) -> list[int]:
        """Returns the next places below ``length``, at most ``most``."""
        places: list[int] = []
        begin, at = self._begin, self._end
        while len(places) < most:
            if self._run is not None and at - begin >= self._run:
                if not self._stride:
                    break
                begin += self._stride
                at = begin
            if at >= length:
                break
            places.append(at)
            at += 1
        return places


class Read:
    """Represents items that a thread fetches. The thread ends by itself, and a program that ends does not wait for it,
    even if the store hangs."""

    def __init__(self, fetch: Callable[[], list[Any]]) -> None:
        self._fetch = fetch
        self._outcome: tuple[list[Any], BaseException | None] | None = None
        # This is not a Future, since a signal handler that raises within a threading.Condition leaves it broken.
        self._ended: SimpleQueue[None] = SimpleQueue()
        threading.Thread(target=self._run, name="millrace-ahead", daemon=True).start()

    def _run(self) -> None:
        try:
            self._outcome = self._fetch(), None
        except BaseException as error:
            self._outcome = [], error
        self._ended.put(None)

    def wait(self) -> list[Any]:
        """Returns the items, or raises the error of fetching them."""
        if self._outcome is None:
            self._ended.get()
            self._ended.put(None)  # for another thread that waits
        assert self._outcome is not None
        items, error = self._outcome
        if error is not None:
            raise error
        return items


class ReadAhead:
    """Fetches items, and reads ahead the items that the program will ask for next. A wrong guess only costs a request.

    It is thread-safe. A fork begins with an empty one.

    Args:
        fetch: A function that returns the items of the given numbers.
        data: The data of the courses that are read ahead: a Dataset, or a number of items.
        rank_of: A function from samples of the plan to numbers.
        item_bytes: The approximate size of an item. 0: nothing is read.
        workers: The number of processes that share the batches of a course.
    """

    def __init__(self, fetch: Fetch, data: Dataset | int, rank_of: RankOf, item_bytes: int, workers: int) -> None:
        self._fetch = fetch
        self._data = data
        self._name = data if isinstance(data, int) else data.fingerprint
        self._rank_of = rank_of
        self._most = _AHEAD_BYTES // item_bytes if item_bytes else 0
        self._lock = threading.Lock()
        self._workers = workers
        self._strides = Strides(workers)
        self._course: Course | None = None
        self._plan: Plan | None = None
        self._slots: dict[int, tuple[Read, int]] = {}
        self._misses = 0
        self.process = os.getpid()

    def take(self, numbers: Sequence[int]) -> list[Any]:
        first = numbers[0] if len(numbers) else None
        if not isinstance(first, Place) or first.course.data != self._name or not self._most:
            return self._fetch(numbers)
        if any(not isinstance(number, Place) or number.at != first.at + n for n, number in enumerate(numbers)):
            return self._fetch(numbers)
        with self._lock:
            slots, now = self._claim(first.course, first.at, numbers)
            self._schedule(first.course, len(numbers))
        items = {n: item for n, (read, at) in slots.items() for item in _fetched(read, at)}
        lacking = [n for n in range(len(numbers)) if n not in slots]
        if now is not None:
            try:
                items.update(zip(lacking, now.wait()))
            except ExhaustedError:  # items that were read ahead may hold the memory
                self._settle()
        again = [n for n in range(len(numbers)) if n not in items]
        items.update(zip(again, self._fetch([numbers[n] for n in again]) if again else []))
        return [items[n] for n in range(len(numbers))]

    def _claim(
        self, course: Course, first: int, numbers: Sequence[int]
    ) -> tuple[dict[int, tuple[Read, int]], Read | None]:
        """Returns the items that were read ahead, by their index in ``numbers``, and a read of the others, which begins now."""
        if course != self._course:
            self._course, self._plan = course, course.plan(self._data)
            self._slots.clear()
            self._strides = Strides(self._workers) if self._misses >= _MOST_MISSES else self._strides
            self._strides.restart()
            self._misses = 0
        had_any = bool(self._slots)
        slots = {n: self._slots.pop(first + n) for n in range(len(numbers)) if first + n in self._slots}
        now = None
        if len(slots) < len(numbers):
            self._misses += had_any
            self._slots.clear()
            now = self._start([number for n, number in enumerate(numbers) if n not in slots])
        else:
            self._misses = 0
        self._strides.came(first, len(numbers))
        return slots, now

    def _schedule(self, course: Course, count: int) -> None:
        if self._misses >= _MOST_MISSES:
            return
        most = min(max(2 * count, _LEAST_AHEAD), self._most)
        upcoming = self._strides.following(most, course.length)
        places = [place for place in upcoming if place not in self._slots]
        few = len(places) < min(max(count, most // 2), most)
        if not places or (few and len(upcoming) == most):
            return  # until there are more to read together
        assert self._plan is not None
        read = self._start(course.numbers(self._plan, self._rank_of, places))
        if read is not None:
            self._slots.update({place: (read, n) for n, place in enumerate(places)})

    def _settle(self) -> None:
        with self._lock:
            reads = {id(read): read for read, _ in self._slots.values()}
            self._slots.clear()
        for read in reads.values():
            _fetched(read, 0)

    def _start(self, numbers: Sequence[int]) -> Read | None:
        try:
            return Read(lambda: self._fetch(numbers))
        except RuntimeError:  # the system gives no more threads, or the program is ending
            return None


def _fetched(read: Read, at: int) -> list[Any]:
    """Returns the item, or nothing if it could not be read ahead. Then it is read again, which also raises the error."""
    try:
        return [read.wait()[at]]
    except Exception:
        return []


def one_ahead(read: Callable[[Any], list[Any]], chunks: Iterator[Any]) -> Iterator[list[Any]]:
    """Reads each chunk while the program works on the one before."""
    coming: Read | None = None
    for chunk in chunks:
        following = Read(lambda chunk=chunk: read(chunk))  # type: ignore[misc]
        if coming is not None:
            yield coming.wait()
        coming = following
    if coming is not None:
        yield coming.wait()
