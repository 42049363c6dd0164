"""Boxes within arrays: which bytes of a stored chunk a wanted region needs. Pure geometry, in elements of arrays in C order."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

Sides = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Box:
    """A region of an array: where it begins in each dimension, and its sides."""

    begin: Sides
    shape: Sides

    @staticmethod
    def whole(shape: Sides) -> Box:
        return Box((0,) * len(shape), shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def __and__(self, other: Box) -> Box:
        """What both have; of size 0 if that is nothing."""
        begin = tuple(map(max, self.begin, other.begin))
        ends = map(min, self._end(), other._end())
        return Box(begin, tuple(max(0, end - first) for first, end in zip(begin, ends)))

    def within(self, outer: Box) -> Box:
        """The same region as seen from the beginning of ``outer``."""
        return Box(tuple(mine - theirs for mine, theirs in zip(self.begin, outer.begin)), self.shape)

    def fits(self, shape: Sides) -> bool:
        """Whether it lies in an array of that shape."""
        return len(self.begin) == len(shape) and all(
            begin >= 0 and side >= 0 and begin + side <= most
            for begin, side, most in zip(self.begin, self.shape, shape)
        )

    def _end(self) -> Iterator[int]:
        return (begin + side for begin, side in zip(self.begin, self.shape))


def first_element(box: Box, shape: Sides) -> int:
    """Its place in the memory of an array of that shape."""
    place = 0
    for begin, side in zip(box.begin, shape):
        place = place * side + begin
    return place


def strip_size(box: Box, shape: Sides) -> int:
    """How many elements of the box follow each other in the memory of an array of that shape."""
    size = 1
    for mine, all_of_it in zip(reversed(box.shape), reversed(shape)):
        size *= mine
        if mine != all_of_it:
            break
    return size


def widened(box: Box, shape: Sides) -> Box:
    """The smallest box around it that is one strip: whole in all dimensions after the first in which it is not single."""
    begin, sides = list(box.begin), list(box.shape)
    first = next((number for number, side in enumerate(sides) if side != 1), len(sides))
    for number in range(first + 1, len(sides)):
        begin[number], sides[number] = 0, shape[number]
    return Box(tuple(begin), tuple(sides))


def strips(box: Box, shape: Sides) -> Iterator[int]:
    """Where in the memory of an array of that shape the strips of the box begin, in order."""
    outer = len(shape)
    inner = 1
    while outer > 0:
        outer -= 1
        inner *= box.shape[outer]
        if box.shape[outer] != shape[outer]:
            break
    first = first_element(box, shape)
    steps = [math.prod(shape[number + 1 :]) for number in range(outer)]

    def walk(number: int, place: int) -> Iterator[int]:
        if number == outer:
            yield place
            return
        for index in range(box.shape[number]):
            yield from walk(number + 1, place + index * steps[number])

    if inner:
        yield from walk(0, first)
