"""Tests Parquet as Hugging Face's `datasets` write it: the names of classes come into the shards that are packed of
it."""

from __future__ import annotations

import io
import json
import pathlib
import pickle
import shutil
from typing import Any

import millrace
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from PIL import Image

NAMES = ["airplane", "bird", "cat", "dog, small"]


def photo(seed: int) -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (24, 24, 3), dtype=np.uint8)).save(out, "JPEG")
    return out.getvalue()


def write(
    path: pathlib.Path, labels: list[int | None], names: Any = NAMES, column: str = "label", **more: list[Any]
) -> pathlib.Path:
    images = [{"bytes": photo(number), "path": None} for number in range(len(labels))]
    table = pa.table({"image": images, column: pa.array(labels, pa.int64()), **more})
    features: dict[str, Any] = {name: {"dtype": "int64", "_type": "Value"} for name in table.column_names}
    features["image"] = {"_type": "Image"}
    features[column] = {"names": names, "_type": "ClassLabel"}
    features["tags"] = [{"dtype": "string", "_type": "Value"}]  # as earlier versions told lists
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.replace_schema_metadata(metadata), path)
    return path.parent


@pytest.fixture
def source(tmp_path: pathlib.Path) -> pathlib.Path:
    write(tmp_path / "in/train-00000-of-00002.parquet", [3, 0, 1, 3])
    return write(tmp_path / "in/train-00001-of-00002.parquet", [1, None, 0])


def check(dataset: millrace.Dataset) -> None:
    assert dataset.classes == NAMES
    assert dataset.class_to_idx == {"airplane": 0, "bird": 1, "cat": 2, "dog, small": 3}
    assert dataset.class_counts == {"airplane": 2, "bird": 2, "cat": 0, "dog, small": 2}
    assert len(dataset.where(label="dog, small")) == len(dataset.where(label=3)) == 2


def labels(dataset: Any) -> list[int]:
    with millrace.Loader(
        dataset, batch_size=4, size=8, shuffle=False, epochs=1, output="numpy", last="short", bad_samples="replace"
    ) as loader:
        return [int(label) for batch in loader for label in batch["label"]]


@pytest.mark.parametrize("kind", ["tar", "mds", "tfrecord"])
def test_names_come_into_the_shards(source: pathlib.Path, tmp_path: pathlib.Path, kind: str) -> None:
    fields = {} if kind == "tar" else {"image": "jpg", "label": "cls"}
    millrace.pack(source, tmp_path / "out", format=kind, fields=fields)
    dataset = millrace.Dataset(tmp_path / "out")
    check(dataset)
    assert labels(dataset) == [3, 0, 1, 3, 1, -1, 0], "the numbers stay"
    check(pickle.loads(pickle.dumps(dataset)))
    assert dataset.split(a=0.5, b=0.5, stratify=True, seed=1)["a"].classes == NAMES
    inspected = millrace.inspect(tmp_path / "out")["classes"]
    assert {each["name"]: each["samples"] for each in inspected}["dog, small"] == 2


def test_names_outlive_index_copies_and_packs(source: pathlib.Path, tmp_path: pathlib.Path) -> None:
    out = tmp_path / "out"
    millrace.pack(source, out)
    before = (out / ".millrace/index").read_bytes()
    millrace.index(out, full=True)
    assert (out / ".millrace/index").read_bytes() == before
    check(millrace.Dataset(out))
    millrace.sync(out, tmp_path / "copy")
    check(millrace.Dataset(tmp_path / "copy"))
    millrace.pack(out, tmp_path / "again")
    check(millrace.Dataset(tmp_path / "again"))
    shutil.copy(out / "shard-000000.tar", out / "shard-000001.tar")
    millrace.index(out)
    assert millrace.Dataset(out).class_counts["bird"] == 4
    # An order that the program gives wins, and other data at that place have no names.
    assert millrace.Dataset(out, classes=["a", "b", "c", "d"]).classes == ["a", "b", "c", "d"]
    write(tmp_path / "plain/a.parquet", [0, 1], names=None)
    millrace.pack(tmp_path / "plain", out, force=True)
    assert millrace.Dataset(out).classes == [] and millrace.Dataset(out).class_counts == {"0": 1, "1": 1}


def test_a_validation_set_has_the_numbers_of_the_training(source: pathlib.Path, tmp_path: pathlib.Path) -> None:
    millrace.pack(source, tmp_path / "train")
    folder = tmp_path / "photos"
    for name in ("cat", "bird"):
        (folder / name).mkdir(parents=True)
        (folder / name / "1.jpg").write_bytes(photo(1))
    valid = millrace.Dataset(folder, classes=millrace.Dataset(tmp_path / "train"))
    assert labels(valid) == [1, 2]
    mix = millrace.Mix([millrace.Dataset(tmp_path / "train"), valid])
    assert mix.classes == NAMES


@pytest.mark.parametrize(
    "files",
    [
        [([0, 1], NAMES), ([0, 1], NAMES[::-1])],  # which number the classes differently
        [([0, 1], None)],
        [([0, 1], ["a", "a"])],
        [([0, 7], NAMES)],  # a number without a name
    ],
)
def test_names_that_do_not_fit_are_left_out(files: list[Any], tmp_path: pathlib.Path) -> None:
    for number, (values, names) in enumerate(files):
        write(tmp_path / f"in/{number}.parquet", values, names)
    millrace.pack(tmp_path / "in", tmp_path / "out")
    dataset = millrace.Dataset(tmp_path / "out")
    assert dataset.classes == [] and "0" in dataset.class_counts


def test_of_several_class_columns_that_of_the_labels_counts(tmp_path: pathlib.Path) -> None:
    source = write(tmp_path / "in/a.parquet", [2, 1], column="fine", coarse=[0, 0])
    millrace.pack(source, tmp_path / "out", fields={"image": "jpg", "fine": "cls", "coarse": "coarse"})
    assert millrace.Dataset(tmp_path / "out").classes == NAMES
    millrace.pack(source, tmp_path / "other", fields={"image": "jpg", "coarse": "cls"})
    assert millrace.Dataset(tmp_path / "other").classes == []
