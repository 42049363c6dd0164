"""Tests classes of one data set that are numbered as those of another."""

from __future__ import annotations

import pathlib
import pickle
import shutil
from typing import Any

import millrace
import pytest
from support import CLASSES, Samples


@pytest.fixture
def valid(raw: Samples, tmp_path: pathlib.Path) -> pathlib.Path:
    """Returns the samples without those of the first class."""
    folder = tmp_path / "valid"
    shutil.copytree(raw.uri, folder, ignore=shutil.ignore_patterns(".millrace", CLASSES[0]))
    return folder


def labels(data: object, **options: object) -> dict[str, int]:
    usual = {"batch_size": 8, "size": 8, "shuffle": False, "epochs": 1, "output": "numpy", "last": "short"}
    with millrace.Loader(data, **{**usual, **options}) as loader:
        return {key: int(label) for batch in loader for key, label in zip(batch["key"], batch["label"])}


def test_a_folder_that_lacks_a_class_has_the_numbers_of_another(raw: Samples, valid: pathlib.Path) -> None:
    train = millrace.Dataset(raw.uri)
    alone = millrace.Dataset(valid)
    assert alone.classes == CLASSES[1:] and alone.class_to_idx["dog"] == 0
    for dataset in (
        millrace.Dataset(valid, classes=train),
        millrace.Dataset(valid, classes=CLASSES),
        alone.with_classes(train),
    ):
        assert dataset.classes == CLASSES and dataset.class_counts == {"cat": 0, "dog": 15, "eel": 15}
        assert labels(dataset) == {key: label for key, label in raw.labels.items() if label > 0}
        assert set(dataset.targets) == {1, 2}
        assert dataset.where(label="eel").class_counts["eel"] == dataset.where(label=2).class_counts["eel"] == 15
        assert len(dataset.where(label="cat")) == 0
        assert dataset.fingerprint == alone.fingerprint
        copy = pickle.loads(pickle.dumps(dataset.where(label="dog")))
        assert copy.classes == CLASSES and set(labels(copy).values()) == {1}
    backwards = alone.with_classes(["eel", "dog"])
    assert backwards.classes == ["eel", "dog"] and backwards.class_to_idx == {"eel": 0, "dog": 1}
    assert {key.split("/")[0]: label for key, label in labels(backwards).items()} == {"eel": 0, "dog": 1}
    assert backwards.split(a=0.5)["a"].classes == ["eel", "dog"]


def test_classes_that_are_missing_in_the_order_say_so(raw: Samples, tar: Samples, tmp_path: pathlib.Path) -> None:
    with pytest.raises(
        millrace.InvalidArgumentError, match="its class 'cat', with 15 samples, is not among the 2 names"
    ):
        millrace.Dataset(raw.uri, classes=["dog", "eel"])
    with pytest.raises(millrace.InvalidArgumentError, match="'cat' is given twice"):
        millrace.Dataset(raw.uri, classes=["cat", "cat", "dog", "eel"])
    with pytest.raises(millrace.InvalidArgumentError, match="are numbers, or there are none"):
        millrace.Dataset(raw.uri, classes=millrace.Dataset(tar.uri))
    with pytest.raises(TypeError, match="names of classes"):
        millrace.Dataset(raw.uri, classes="cat")
    (tmp_path / "1.txt").write_text("x")
    with pytest.raises(millrace.InvalidArgumentError, match="the index knows no classes"):
        millrace.Dataset(tmp_path / "1.txt", classes=["a"])


def test_names_of_numbered_classes(tar: Samples) -> None:
    """Shards have numbers, which stay."""
    names = [f"name {number}" for number in range(11)]
    dataset = millrace.Dataset(tar.uri, classes=names)
    assert dataset.classes == names and dataset.class_counts["name 10"] == 0 and dataset.class_counts["name 3"] == 5
    assert labels(dataset) == tar.labels
    assert set(labels(dataset.where(label="name 7")).values()) == {7}
    with pytest.raises(millrace.InvalidArgumentError, match="its class '9'"):
        millrace.Dataset(tar.uri, classes=names[:9])


def test_mixes_number_classes_as_their_parts_do(raw: Samples, valid: pathlib.Path) -> None:
    order = ["eel", "cat", "dog"]
    train, other = millrace.Dataset(raw.uri, classes=order), millrace.Dataset(valid, classes=order)
    mix = millrace.Mix({"a": train, "b": other})
    assert mix.classes == order
    found = labels(mix)
    assert {key.split("/")[0]: label for key, label in found.items()} == {"eel": 0, "cat": 1, "dog": 2}
    # Parts that number them differently are numbered by all names.
    apart = millrace.Mix({"a": train, "b": millrace.Dataset(valid)})
    assert apart.classes == CLASSES
    assert {key.split("/")[0]: label for key, label in labels(apart).items()} == {"cat": 0, "dog": 1, "eel": 2}


def test_workers_number_classes_so_too(valid: pathlib.Path, workers: Any) -> None:
    """One worker serves one data set in two orders."""
    address = workers().address
    for order in (CLASSES, ["eel", "dog"]):
        dataset = millrace.Dataset(valid, classes=order)
        loader = millrace.Loader(
            dataset, batch_size=8, size=8, shuffle="none", epochs=1, output="numpy", workers=[address]
        )
        with loader:
            found = {key: int(label) for batch in loader for key, label in zip(batch["key"], batch["label"])}
        assert found == {key: order.index(key.split("/")[0]) for key in dataset.keys()}
        rows = {worker["worker"]: worker["rows"] for worker in loader.report()["workers"]}
        assert rows[address] >= len(dataset) and rows["local"] == 0
