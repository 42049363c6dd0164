"""Tests batches of evaluations without padding, whatever makes them (tests/frameworks: what frameworks make of
these)."""

from __future__ import annotations

import collections
import shutil
from typing import Any

import millrace
import numpy as np
import pytest
import torch
from millrace._padding import Rows, rows_of, share_with_repeats
from support import AT_SIZE, Samples

Pair = collections.namedtuple("Pair", "one two")


def loader_of(data: Any, **options: Any) -> millrace.Loader:
    return millrace.Loader(data, **{"batch_size": 20, "shuffle": "none", "epochs": 1, **AT_SIZE, **options})


@pytest.mark.parametrize("output", ["numpy", "torch"])
@pytest.mark.parametrize(
    "function", [None, lambda batch: (batch["image"], batch["key"]), lambda batch: {"pixels": batch["image"]}]
)
def test_all_rows_but_padding_come(output: str, function: Any, raw: Samples) -> None:
    counts, wanted = [], sorted(raw.pixels)
    for batch, rows in rows_of(loader_of(raw.uri, output=output, raw=True, batch_transform=function)):
        kept = rows.of(batch)
        images = kept[0] if isinstance(kept, tuple) else kept["image" if function is None else "pixels"]
        for image, key in zip(images, wanted[sum(counts) :]):
            np.testing.assert_array_equal(np.asarray(image), raw.pixels[key])
        if not isinstance(kept, tuple) and function is None:
            assert kept["key"] == wanted[sum(counts) :][: len(images)] and kept["valid"].all()
        counts.append(len(images))
    assert counts == [20, 20, 5]


@pytest.mark.parametrize("function", [None, lambda batch: (batch["image"], batch["key"])])
def test_repeats_of_a_short_batch_are_left_out(function: Any, raw: Samples) -> None:
    for rank, wanted in ((0, [20, 3]), (1, [20, 2])):
        loader = loader_of(raw.uri, output="numpy", batch_transform=function, last="short", rank=rank, world=2)
        counts, totals = [], []
        for batch, rows in rows_of(loader):
            kept = rows.of(batch)
            counts.append(len(kept["image"] if function is None else kept[0]))
            totals.append(rows.total)
        assert counts == wanted and totals == [20, 3]


def test_masked_rows_are_left_out(raw: Samples, tmp_path: Any) -> None:
    shutil.copytree(raw.uri, tmp_path / "data", ignore=shutil.ignore_patterns(".millrace"))
    (tmp_path / "data" / "cat" / "0003.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"damaged" * 9)
    keys = [
        key
        for batch, rows in rows_of(loader_of(tmp_path / "data", bad_samples="mask", output="torch"))
        for key in rows.of(batch)["key"]
    ]
    assert keys == [key for key in sorted(raw.pixels) if key != "cat/0003"]


def test_only_what_has_rows_is_cut() -> None:
    rows = Rows(np.arange(2), 3)
    batch = {
        "x": torch.arange(6).reshape(3, 2),
        "keys": ["a", "b", "c"],
        "pair": Pair(np.arange(3), np.arange(4)),
        "two": [np.zeros((3, 1)), np.zeros(3), "text"],
        "scale": torch.tensor(2.0),
        "other": [1, 2],
    }
    kept = rows.of(batch)
    assert kept["x"].tolist() == [[0, 1], [2, 3]] and kept["keys"] == ["a", "b"] and kept["other"] == [1, 2]
    assert isinstance(kept["pair"], Pair) and [len(part) for part in kept["pair"]] == [2, 4]
    assert [len(part) for part in kept["two"]] == [2, 2, 4] and kept["scale"] == 2
    assert Rows(np.array([0, 2]), 3).of(batch["x"]).tolist() == [[0, 1], [4, 5]]
    assert Rows(np.arange(3), 3).of(batch) is batch


@pytest.mark.parametrize("world, share", [(1, None), (2, 23), (3, None), (7, 7), (50, 1)])
def test_ranks_have_equally_many_by_repeats(world: int, share: int | None, raw: Samples) -> None:
    assert share_with_repeats(loader_of(raw.uri, rank=0, world=world)) == share
