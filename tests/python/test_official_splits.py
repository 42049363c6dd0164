"""Tests subsets by official lists of keys, by the columns that data sets come with, and by exact parts."""

from __future__ import annotations

import collections
import io
import json
import pathlib
import pickle
import tarfile

import millrace
import numpy as np
import pytest
from support import CLASSES, Samples, png


@pytest.fixture
def manifest(tmp_path: pathlib.Path, raw: Samples) -> millrace.Dataset:
    """Writes the raw samples as a list of them, with a column of splits and one of numbers with gaps."""
    folder = pathlib.Path(raw.uri)
    lines = ["path,label,split,fold"]
    for number, key in enumerate(sorted(raw.pixels)):
        split = ("train", "train", "val")[number % 3]
        lines.append(f"{folder / key}.png,{raw.labels[key]},{split},{number % 5 if number % 7 else ''}")
    uri = folder.parent / f"{folder.name}.csv"
    if not uri.exists():  # the folder is that of the session
        uri.write_text("\n".join(lines) + "\n")
    return millrace.Dataset(uri)


def write_shard(folder: pathlib.Path, samples: int = 12) -> None:
    with tarfile.open(folder / "a.tar", "w") as archive:
        for number in range(samples):
            split = "val" if number % 4 == 3 else "train"
            fields = {
                "png": png(np.full((4, 4, 3), number, np.uint8)),
                "split": f"{split}\n".encode(),
                "cls": str(number % 3).encode(),
                "json": json.dumps({"meta": {"split": split, "n": number}}).encode(),
            }
            for name, data in fields.items():
                member = tarfile.TarInfo(f"{number:04}.{name}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))


def test_keys(raw: Samples) -> None:
    dataset = millrace.Dataset(raw.uri)
    assert dataset.keys() == sorted(raw.pixels)
    assert dataset.where(label="dog").keys() == [key for key in sorted(raw.pixels) if key.startswith("dog/")]
    assert dataset.where(samples=[]).keys() == []


def test_a_list_of_keys_chooses_samples(raw: Samples, tmp_path: pathlib.Path) -> None:
    dataset = millrace.Dataset(raw.uri)
    chosen = sorted(raw.pixels)[5:20:3]
    (tmp_path / "val.txt").write_text("\n".join(reversed(chosen)) + "\n")
    subset = dataset.where(keys=(tmp_path / "val.txt").read_text().split())
    assert subset.keys() == chosen
    assert pickle.loads(pickle.dumps(subset)).keys() == chosen
    assert dataset.where(keys=np.array(chosen), label="cat").keys() == [key for key in chosen if key.startswith("cat/")]
    assert dataset.where(keys=(key for key in chosen), samples=subset.samples[:2]).keys() == chosen[:2]
    # Keys of samples that are no part of the subset are no error.
    assert dataset.where(label="cat").where(keys=sorted(raw.pixels)).keys() == dataset.where(label="cat").keys()
    assert len(dataset.where(keys=[])) == 0


def test_keys_that_are_none_say_so(raw: Samples) -> None:
    dataset = millrace.Dataset(raw.uri)
    with pytest.raises(
        millrace.InvalidArgumentError,
        match=r"1 of 2 are not keys of .*: 'cow/1'; the first sample is called 'cat/0000'",
    ):
        dataset.where(keys=["cat/0000", "cow/1"])
    with pytest.raises(millrace.InvalidArgumentError, match=r"a key has no extension: leave it out \('cat/0000'\)"):
        dataset.where(keys=["cat/0000.png", "cat/0003.png"])
    with pytest.raises(TypeError, match="list of keys"):
        dataset.where(keys="val.txt")
    with pytest.raises(TypeError, match="list of keys"):
        dataset.where(keys=[1, 2])


def test_keys_without_their_folder(tar: Samples) -> None:
    with pytest.raises(millrace.InvalidArgumentError, match="a key has no folders here"):
        millrace.Dataset(tar.uri).where(keys=["a/0001", "b/0002"])


def test_columns_choose_samples(manifest: millrace.Dataset) -> None:
    everything = [(key, ("train", "train", "val")[number % 3]) for number, key in enumerate(manifest.keys())]
    assert manifest.column("split") == [split for _, split in everything]
    assert manifest.where(split="val").keys() == [key for key, split in everything if split == "val"]
    assert len(manifest.where(split=["val", "train"])) == len(manifest)
    folds = [number % 5 if number % 7 else None for number in range(len(manifest))]
    assert manifest.column("fold") == folds
    chosen = [key for key, fold in zip(manifest.keys(), folds) if fold in (1, 2)]
    assert manifest.where(fold=(1, 2)).keys() == manifest.where(fold=np.array([2, 1])).keys() == chosen
    both = manifest.where(fold=1, split="train", label=0)
    assert both.keys() == [
        key
        for number, (key, split) in enumerate(everything)
        if folds[number] == 1 and split == "train" and "/cat/" in key
    ]
    assert manifest.where(split="val").column("fold") == [f for f, (_, s) in zip(folds, everything) if s == "val"]


def test_values_and_columns_that_are_none_say_so(manifest: millrace.Dataset) -> None:
    with pytest.raises(millrace.InvalidArgumentError, match="no sample has split='valid'; it is 'train', 'val'"):
        manifest.where(split="valid")
    with pytest.raises(millrace.InvalidArgumentError, match="no field 'splitt'; its fields are: .*split"):
        manifest.where(splitt="val")


def test_members_of_shards_choose_samples(tmp_path: pathlib.Path) -> None:
    """Files of shards have no types: texts are compared without the end of their line, and numbers by their text."""
    write_shard(tmp_path)
    dataset = millrace.Dataset(tmp_path)
    valid = ["0003", "0007", "0011"]
    assert dataset.where(split="val").keys() == valid
    assert dataset.where(**{"json.meta.split": "val"}).keys() == valid
    assert dataset.where(**{"json.meta.n": [3, 4]}).keys() == ["0003", "0004"]
    assert dataset.where(cls=2).keys() == dataset.where(label=2).keys() == ["0002", "0005", "0008", "0011"]
    assert dataset.column("json.meta.n") == list(range(12)) and dataset.column("json.meta.x") == [None] * 12
    with pytest.raises(millrace.InvalidArgumentError, match="json holds a dict"):
        dataset.where(json="val")


def test_large_fields_are_no_columns(tmp_path: pathlib.Path) -> None:
    (tmp_path / "1.txt").write_bytes(b"x" * 70_000)
    with pytest.raises(millrace.InvalidArgumentError, match="68.4 KiB; samples are chosen by fields of at most 64"):
        millrace.Dataset(tmp_path).column("txt")


@pytest.mark.parametrize("options", [{"exact": True}, {"stratify": True}, {"exact": True, "seed": 3}])
def test_exact_parts(raw: Samples, options: dict[str, object]) -> None:
    dataset = millrace.Dataset(raw.uri)
    parts = dataset.split(train=0.7, valid=0.2, test=0.1, **options)
    assert {name: len(part) for name, part in parts.items()} == {"train": 32, "valid": 9, "test": 4}
    assert sorted(key for part in parts.values() for key in part.keys()) == sorted(raw.pixels)
    again = millrace.Dataset(raw.uri).split(train=0.7, valid=0.2, test=0.1, **options)
    assert {name: part.keys() for name, part in again.items()} == {name: part.keys() for name, part in parts.items()}
    other = dataset.split(train=0.7, valid=0.2, test=0.1, **{**options, "seed": 99})
    assert other["train"].keys() != parts["train"].keys()


def test_parts_by_numbers_of_samples(raw: Samples) -> None:
    dataset = millrace.Dataset(raw.uri)
    parts = dataset.split(train=30, valid=10)
    assert [len(part) for part in parts.values()] == [30, 10]
    assert not set(parts["train"].keys()) & set(parts["valid"].keys())
    with pytest.raises(millrace.InvalidArgumentError, match="the parts have 50 samples, and there are 45"):
        dataset.split(train=30, valid=20)
    with pytest.raises(millrace.InvalidArgumentError, match="fractions above 0 that sum to at most 1"):
        dataset.split(train=30, valid=0.2)
    with pytest.raises(millrace.InvalidArgumentError, match="leave groups or exact out"):
        dataset.split(train=0.5, valid=0.5, exact=True, groups=True)


@pytest.mark.parametrize("sizes", [(40, 3, 17), (5, 5, 5), (1, 2, 50)])
def test_stratified_parts_have_their_share_of_each_class(tmp_path: pathlib.Path, sizes: tuple[int, ...]) -> None:
    for name, size in zip(CLASSES, sizes):
        (tmp_path / name).mkdir()
        for number in range(size):
            (tmp_path / name / f"{number}.txt").write_text("x")
    dataset = millrace.Dataset(tmp_path)
    parts = dataset.split(train=0.8, valid=0.2, stratify=True)
    total = sum(sizes)
    assert len(parts["train"]) + len(parts["valid"]) == total and abs(len(parts["valid"]) - 0.2 * total) < 1
    for name, size in zip(CLASSES, sizes):
        share = size * len(parts["valid"]) / total
        assert abs(parts["valid"].class_counts[name] - share) < 1
    same = dataset.split(train=0.8, valid=0.2, stratify=dataset.targets)
    assert same["valid"].keys() == parts["valid"].keys()


def test_folds(raw: Samples) -> None:
    dataset = millrace.Dataset(raw.uri)
    for options in ({}, {"stratify": True}):
        folds = dataset.folds(4, **options)
        assert sorted(len(valid) for _, valid in folds) == [11, 11, 11, 12]
        seen = collections.Counter(key for _, valid in folds for key in valid.keys())
        assert seen == collections.Counter(sorted(raw.pixels))
        for train, valid in folds:
            assert sorted([*train.keys(), *valid.keys()]) == sorted(raw.pixels)
    assert {count for _, valid in folds for count in valid.class_counts.values()} <= {3, 4}
    with pytest.raises(millrace.InvalidArgumentError, match="46 folds of 45 samples"):
        dataset.folds(46)


def test_strata_of_a_column(manifest: millrace.Dataset) -> None:
    parts = manifest.split(a=0.5, b=0.5, stratify="split")
    counts = collections.Counter(parts["a"].column("split"))
    assert abs(counts["val"] - 7.5) < 1 and abs(counts["train"] - 15) < 1


def test_what_cannot_be_stratified_says_so(tmp_path: pathlib.Path, raw: Samples) -> None:
    (tmp_path / "1.txt").write_text("x")
    with pytest.raises(millrace.InvalidArgumentError, match="the index knows no classes"):
        millrace.Dataset(tmp_path).where(has="txt").split(a=0.5, stratify=True)
    with pytest.raises(millrace.InvalidArgumentError, match="for 45 samples"):
        millrace.Dataset(raw.uri).split(a=0.5, stratify=[1, 2])
    with pytest.raises(TypeError, match="True, the name of a field"):
        millrace.Dataset(raw.uri).split(a=0.5, stratify=3)


def test_texts_of_truth_values_are_chosen_by_them(tmp_path: pathlib.Path) -> None:
    """The texts are as `pack` writes a column of truth values, and as JSON and CSV have them."""
    for column, spelling in (("bit", "01"), ("word", ("False", "True")), ("json", ("false", "true"))):
        folder = tmp_path / column
        folder.mkdir()
        with tarfile.open(folder / "a.tar", "w") as archive:
            for number in range(6):
                member = tarfile.TarInfo(f"{number}.{column}.txt" if column == "json" else f"{number}.{column}")
                data = spelling[number % 3 == 0].encode()
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
        name = "json.txt" if column == "json" else column
        dataset = millrace.Dataset(folder)
        assert dataset.where(**{name: True}).keys() == ["0", "3"]
        assert dataset.where(**{name: np.bool_(False)}).keys() == ["1", "2", "4", "5"]


def test_all_spellings_of_a_truth_value_are_found(tmp_path: pathlib.Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for number, data in enumerate((b"true", b"1", b"True", b"0", b"false")):
            member = tarfile.TarInfo(f"{number}.flag")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    dataset = millrace.Dataset(tmp_path)
    assert dataset.where(flag=True).keys() == ["0", "1", "2"]
    assert dataset.where(flag=False).keys() == ["3", "4"]


def test_a_part_of_one_sample(raw: Samples) -> None:
    dataset = millrace.Dataset(raw.uri)
    parts = dataset.split(train=len(dataset) - 1, valid=1)
    assert [len(part) for part in parts.values()] == [len(dataset) - 1, 1]
    with pytest.raises(millrace.InvalidArgumentError, match="valid"):
        dataset.split(train=len(dataset), valid=0)
    with pytest.raises(millrace.InvalidArgumentError, match="or all of them numbers of samples"):
        dataset.split(train=30, valid=0.1)
