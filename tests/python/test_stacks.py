"""Tests that rows become arrays and tensors, in memory that is used again only when nothing refers to it any more."""

from __future__ import annotations

import sys
from typing import Any, Callable, NamedTuple

import numpy as np
import pytest
from millrace._stacks import Stacks, UnequalError

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


class Pair(NamedTuple):
    point: Any
    score: Any


def test_parts_are_stacked_each_for_itself() -> None:
    stacks, valid = Stacks(), np.array([True, False, True])
    rows = [Pair(np.full(2, n), {"name": f"n{n}", "area": n / 2, "deep": (np.int8(n), [np.ones(1)])}) for n in (3, 4)]
    stacked = stacks.stacked("target", [rows[0], None, rows[1]], valid)
    assert type(stacked) is Pair and stacked.point.tolist() == [[3, 3], [-100, -100], [4, 4]]
    assert stacked.score["name"] == ["n3", "", "n4"] and stacked.score["area"][[0, 2]].tolist() == [1.5, 2]
    small, ones = stacked.score["deep"]
    assert small.tolist() == [3, -100, 4] and small.dtype == np.int8 and ones[0].shape == (3, 1)


def test_numbers_beyond_64_bits_stay_a_list() -> None:
    valid = np.array([True, False, True])
    assert Stacks().stacked("id", [2**70, None, 1], valid) == [2**70, None, 1]
    assert Stacks().stacked("id", [{"n": 2**70, "a": np.ones(1)}] * 2, np.ones(2, bool))["n"] == [2**70] * 2


@pytest.mark.parametrize("value", [[1, 2], ["a", "b"], {"id": 3, "tags": ["a"]}, (1, "a"), [], {}])
def test_values_of_json_stay_as_they_are(value: Any) -> None:
    assert Stacks().stacked("meta", [value, value], np.ones(2, bool)) == [value, value]


@pytest.mark.parametrize(
    "one, other",
    [
        ([array(1)], [array(1), array(2)]),
        ({"box": array(1)}, {"box": array(1), "mask": array(2)}),
        ((array(1), 1), [array(1), 1]),
        ({"box": array(1)}, None),
    ],
)
def test_other_parts_are_an_error(one: Any, other: Any) -> None:
    with pytest.raises(UnequalError, match="'target' is a .* collate_fn="):
        Stacks().stacked("target", [one, other], np.ones(2, bool))


def test_classes_of_tensors_are_stacked() -> None:
    torch = pytest.importorskip("torch")
    own = type("Image", (torch.Tensor,), {"__module__": "torchvision.tv_tensors"})
    stacked = Stacks().stacked("image", [torch.ones(2, 3).as_subclass(own)] * 4, np.ones(4, bool))
    assert isinstance(stacked, torch.Tensor) and stacked.shape == (4, 2, 3)
