"""Tests that rows become arrays and tensors, in memory that is used again only when nothing refers to it any more."""

from __future__ import annotations

import sys
from typing import Any, Callable

import numpy as np
import pytest
from millrace._stacks import Stacks

SHAPE = (512, 513)  # eight rows of u8 are above what is kept for later


def array(value: int) -> Any:
    return np.full(SHAPE, value, np.uint8)


def tensor(value: int) -> Any:
    return pytest.importorskip("torch").full(SHAPE, value, dtype=sys.modules["torch"].uint8)


@pytest.mark.parametrize("make", [array, tensor])
def test_memory_is_used_again_and_kept_results_are_not_written_over(make: Callable[[int], Any]) -> None:
    stacks = Stacks()
    kept, addresses = [], set()
    for number in range(20):
        stacked = stacks.stacked("image", [make(number)] * 8, np.ones(8, bool))
        addresses.add(stacked.__array_interface__["data"][0] if make is array else stacked.data_ptr())
        if number % 5 == 0:
            kept.append((number, stacked[3]))  # a view is enough
        del stacked
    assert len(kept) + 1 <= len(addresses) <= 6
    assert all(bool((view == number).all()) for number, view in kept)


@pytest.mark.parametrize("make", [array, tensor])
def test_padding_is_empty_in_memory_that_was_full(make: Callable[[int], Any]) -> None:
    stacks = Stacks()
    stacks.stacked("image", [make(7)] * 8, np.ones(8, bool))
    valid = np.array([True] * 5 + [False] * 3)
    stacked = stacks.stacked("image", [make(9) if real else None for real in valid], valid)
    assert len(stacked) == 8 and bool((stacked[:5] == 9).all()) and not bool(stacked[5:].any())


def test_what_is_free_is_bounded() -> None:
    stacks = Stacks()
    for rows in range(8, 20):
        stacks.stacked("image", [array(1)] * rows, np.ones(rows, bool))
    assert len(stacks._free) <= 4


def test_types_and_labels() -> None:
    stacks, valid = Stacks(), np.array([True, False, True])
    assert stacks.stacked("label", [3, None, 4], valid).tolist() == [3, -100, 4]
    mixed = stacks.stacked("x", [1, None, 2.5], valid)
    assert mixed.dtype == np.float64 and mixed[[0, 2]].tolist() == [1, 2.5] and np.isnan(mixed[1])
    assert stacks.stacked("caption", ["a", None, "b"], valid) == ["a", "", "b"]
    long = np.arange(300_000, dtype=np.int64)
    assert stacks.stacked("label", [long, None, long], valid)[1].tolist() == [-100] * 300_000
