"""Tests Plan.write_order: it writes the order of an epoch as a text, for `millrace mount --order`."""

from __future__ import annotations

import os
from pathlib import Path

import millrace
import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Makes 100 samples in five folders: all have a text, every tenth a second object beside it."""
    for i in range(100):
        path = tmp_path / "data" / f"class{i % 5}" / f"{i:03}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"text {i}")
        if i % 10 == 0:
            path.with_suffix(".json").write_text("{}")
    return tmp_path / "data"


def expected(data: millrace.Dataset, plan: millrace.Plan, folder: Path) -> list[str]:
    """Returns the order by the keys of the samples and by what is in the folder."""
    by_number = dict(zip(data.samples.tolist(), (sample["key"] for sample in data)))
    lines = []
    for number in plan[range(len(plan))].tolist():
        key = by_number[number]
        lines += [str(path.relative_to(folder)) for path in sorted(folder.glob(f"{key}.*"))]
    return lines


@pytest.mark.parametrize("shuffle", ["none", "global", "window"])
def test_lines_are_the_objects_in_order(folder: Path, tmp_path: Path, shuffle: str) -> None:
    data = millrace.Dataset(str(folder))
    plan = millrace.Plan(data, shuffle=shuffle, seed=3, epoch=1)
    lines = plan.write_order(tmp_path / "order")
    written = (tmp_path / "order").read_text().splitlines()
    assert written == expected(data, plan, folder) and lines == len(written) == 110
    assert plan.write_order(str(tmp_path / "other"), epoch=2) == 110
    assert (tmp_path / "other").read_text().splitlines() == expected(data, plan.of_epoch(2), folder)
    assert sorted(os.listdir(tmp_path)) == ["data", "order", "other"]  # nothing stays behind


def test_of_a_subset(folder: Path, tmp_path: Path) -> None:
    data = millrace.Dataset(str(folder))[20:40]
    plan = millrace.Plan(data, shuffle="global", seed=3)
    plan.write_order(tmp_path / "order")
    assert (tmp_path / "order").read_text().splitlines() == expected(data, plan, folder)


def test_shards_are_named_once_in_a_row(tmp_path: Path, folder: Path) -> None:
    import tarfile

    shards = tmp_path / "shards"
    shards.mkdir()
    for shard in range(3):
        with tarfile.open(shards / f"{shard}.tar", "w") as tar:
            for path in sorted(folder.glob(f"class{shard}/*.txt")):
                tar.add(path, path.name)
    plan = millrace.Plan(millrace.Dataset(str(shards)), shuffle="none")
    assert plan.write_order(tmp_path / "order") == 3
    assert (tmp_path / "order").read_text() == "0.tar\n1.tar\n2.tar\n"


def test_only_of_one_data_set(tmp_path: Path) -> None:
    with pytest.raises(millrace.UnsupportedError, match="one data set"):
        millrace.Plan(10).write_order(tmp_path / "order")
    assert os.listdir(tmp_path) == []
