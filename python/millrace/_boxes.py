"""Computes boxes within arrays, which say which bytes of a stored chunk a region needs. This is pure geometry, in
elements of arrays in C order."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

Sides = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Box:
    """Represents a region of an array: where it begins in each dimension, and its sides."""

    begin: Sides
    shape: Sides

    @staticmethod
    def whole(shape: Sides) -> Box:
        return Box((0,) * len(shape), shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def __and__(self, other: Box) -> Box:
        """Returns the intersection, whose size is 0 if the boxes have no element in common."""
        begin = tuple(map(max, self.begin, other.begin))
        ends = map(min, self._end(), other._end())
        return Box(begin, tuple(max(0, end - first) for first, end in zip(begin, ends)))

    def within(self, outer: Box) -> Box:
        """Returns the same region in coordinates that start at the beginning of ``outer``."""
        return Box(tuple(mine - theirs for mine, theirs in zip(self.begin, outer.begin)), self.shape)

    def fits(self, shape: Sides) -> bool:
        """Says if the box is within an array of that shape."""
        return len(self.begin) == len(shape) and all(
            begin >= 0 and side >= 0 and begin + side <= most
            for begin, side, most in zip(self.begin, self.shape, shape)
        )

    def _end(self) -> Iterator[int]:
        return (begin + side for begin, side in zip(self.begin, self.shape))


def first_element(box: Box, shape: Sides) -> int:
    """Returns the place of the box's first element in the memory of an array of that shape."""
    place = 0
    for begin, side in zip(box.begin, shape):
        place = place * side + begin
    return place


def strip_size(box: Box, shape: Sides) -> int:
    """Returns how many elements of the box are contiguous in the memory of an array of that shape."""
    size = 1
    for mine, all_of_it in zip(reversed(box.shape), reversed(shape)):
        size *= mine
        if mine != all_of_it:
            break
    return size


def widened(box: Box, shape: Sides) -> Box:
    """Returns the smallest box around the given one that is a single strip.

    Such a box is whole in all dimensions after the first one in which it has several elements.
    """
    begin, sides = list(box.begin), list(box.shape)
    first = next((number for number, side in enumerate(sides) if side != 1), len(sides))
    for number in range(first + 1, len(sides)):
        begin[number], sides[number] = 0, shape[number]
    return Box(tuple(begin), tuple(sides))


def strips(box: Box, shape: Sides) -> Iterator[int]:
    """Yields the places at which the strips of the box begin in the memory of an array of that shape, in order."""
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
