"""Tests labels=: it takes labels and further values from a file, by key, for data that are packed already."""

from __future__ import annotations

import collections
import json
import pathlib
import pickle
import shutil
import subprocess
from typing import Any

import millrace
import numpy as np
import pytest
from support import AT_SIZE, Samples, add_digests, binary, keys_of, write_raw, write_tar

OPTIONS: dict[str, Any] = {**AT_SIZE, "batch_size": 8, "epochs": 1, "output": "numpy", "seed": 3, "rank": 0, "world": 1}


@pytest.fixture
def shards(tmp_path: pathlib.Path) -> Samples:
    (tmp_path / "tar").mkdir()
    return write_tar(tmp_path / "tar", 50)


def csv_of(folder: pathlib.Path, labels: dict[str, Any], name: str = "labels.csv", header: str = "key,label") -> str:
    path = folder / name
    path.write_text(header + "\n" + "".join(f"{key},{label}\n" for key, label in labels.items()))
    return str(path)


def labels_of(loader: millrace.Loader) -> dict[str, Any]:
    return {key: batch["label"][row] for batch in loader for row, key in enumerate(batch["key"]) if batch["valid"][row]}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(binary()), *arguments], capture_output=True, text=True, timeout=300, check=False)


def test_labels_are_those_of_the_file(tmp_path: pathlib.Path, shards: Samples) -> None:
    wanted = {key: int(key) * 7 % 13 for key in shards.pixels}
    file = csv_of(tmp_path, wanted)
    for loader in (
        millrace.Loader(millrace.Dataset(shards.uri, labels=file), **OPTIONS),
        millrace.Loader(millrace.Dataset(shards.uri, labels=millrace.Labels(file)), **OPTIONS),
        millrace.Loader(millrace.Dataset(shards.uri).with_labels(file), **OPTIONS),
    ):
        assert loader.peek()["label"].dtype == np.int64  # type: ignore[index]
        assert labels_of(loader) == wanted
    dataset = millrace.Dataset(shards.uri, labels=file)
    assert dataset.class_counts == {str(label): n for label, n in sorted(collections.Counter(wanted.values()).items())}
    assert [each["cls"] for each in dataset] == [wanted[key] for key in sorted(wanted)]
    assert {wanted[each["key"]] for each in dataset.where(label=5)} == {5}
    drawn = collections.Counter(labels_of(millrace.Loader(dataset.balanced(epoch_samples=130), **OPTIONS)).values())
    assert set(drawn) == set(range(13))
    copy = pickle.loads(pickle.dumps(dataset.where(label=[5, 6])))
    assert {each["cls"] for each in copy} == {5, 6} and {name: n for name, n in copy.class_counts.items() if n} == {
        "5": 4,
        "6": 3,
    }


def test_texts_are_classes_and_floats_are_floats(tmp_path: pathlib.Path, shards: Samples) -> None:
    names = {key: ["zebra", "ant", "größer"][int(key) % 3] for key in shards.pixels}
    dataset = millrace.Dataset(shards.uri, labels=csv_of(tmp_path, names))
    assert dataset.classes == ["ant", "größer", "zebra"]
    assert {
        key: dataset.classes[label] for key, label in labels_of(millrace.Loader(dataset, **OPTIONS)).items()
    } == names
    scores = {key: int(key) / 8 for key in shards.pixels}
    loader = millrace.Loader(millrace.Dataset(shards.uri, labels=csv_of(tmp_path, scores, "scores.csv")), **OPTIONS)
    assert loader.peek()["label"].dtype == np.float32  # type: ignore[index]
    assert labels_of(loader) == scores


def test_further_columns_are_fields(tmp_path: pathlib.Path, shards: Samples) -> None:
    path = tmp_path / "more.jsonl"
    rows = {
        key: {"caption": f"no. {key}", "txt": "new", "box": [[1, 2, int(key), 4]], "weight": int(key) / 4}
        for key in shards.pixels
    }
    path.write_text("".join(json.dumps({"key": key, **row}) + "\n" for key, row in rows.items()))
    fields = {"text": millrace.Text("caption"), "txt": millrace.Text("txt"), "box": millrace.Json("box")}
    fields |= {"w": millrace.Label("weight", "float"), "label": millrace.Label("cls")}  # type: ignore[dict-item]
    for batch in millrace.Loader(millrace.Dataset(shards.uri, labels=path), fields=fields, **OPTIONS):
        for row, key in enumerate(keys_of(batch)):
            assert batch["text"][row] == rows[key]["caption"] and batch["txt"][row] == "new"
            assert batch["box"][row] == rows[key]["box"] and batch["w"][row] == rows[key]["weight"]
            assert batch["label"][row] == int(key) % 10, "the file has no labels: those of the shards stay"


def test_order_and_positions_stay_and_digests_do_not(tmp_path: pathlib.Path, shards: Samples) -> None:
    """A training continues after its labels were corrected: the order is that of the data."""
    first = csv_of(tmp_path, {key: 1 for key in shards.pixels}, "a.csv")
    second = csv_of(tmp_path, {key: 2 for key in shards.pixels}, "b.csv")
    plain, one, two = (
        millrace.Loader(millrace.Dataset(shards.uri, labels=labels), digest="raw", **OPTIONS)
        for labels in (None, first, second)
    )
    batches = iter(one)
    taken = [keys_of(next(batches)) for _ in range(3)]
    two.load_state_dict(one.state_dict())
    assert taken + [keys_of(batch) for batch in two] == [keys_of(batch) for batch in plain]
    whole = [
        millrace.Loader(millrace.Dataset(shards.uri, labels=file), digest="raw", **OPTIONS) for file in (first, second)
    ]
    digests = []
    for loader in whole:
        for _ in loader:
            pass
        digests.append(loader.report()["digest"])
    assert len({*digests, plain.report()["digest"]}) == 3
    ranks = [
        millrace.Loader(
            millrace.Dataset(shards.uri, labels=first), digest="raw", **{**OPTIONS, "rank": rank, "world": 3}
        )
        for rank in range(3)
    ]
    for loader in ranks:
        for _ in loader:
            pass
    assert add_digests(*(loader.report()["digest"] for loader in ranks)) == digests[0]


def test_missing_labels(tmp_path: pathlib.Path, shards: Samples) -> None:
    some = csv_of(tmp_path, {key: 1 for key in sorted(shards.pixels) if int(key) not in (3, 4, 30, 31, 32, 33)})
    with pytest.raises(
        millrace.InvalidArgumentError,
        match=r"has no label for 6 of the 50 samples of .*: '0003', '0004', '0030', '0031', '0032', \.\.\.",
    ):
        millrace.Dataset(shards.uri, labels=some)
    dropped = millrace.Dataset(shards.uri, labels=millrace.Labels(some, missing="drop"))
    assert len(dropped) == 44 and len(labels_of(millrace.Loader(dropped, **OPTIONS))) == 44
    first = millrace.Dataset(shards.uri)[:3].with_labels(some)
    assert len(first) == 3 and {each["cls"] for each in first} == {1}, "only the samples of the subset need labels"
    with pytest.raises(millrace.InvalidArgumentError, match="has no label for 2 of the 5 samples"):
        millrace.Dataset(shards.uri)[:5].with_labels(some)
    empty = csv_of(tmp_path, {**{key: 1 for key in shards.pixels}, "0007": ""}, "empty.csv")
    with pytest.raises(millrace.InvalidArgumentError, match="for 1 of the 50 samples of .*: '0007'; add"):
        millrace.Dataset(shards.uri, labels=empty)


def test_what_is_wrong_is_said(tmp_path: pathlib.Path, shards: Samples) -> None:
    twice = tmp_path / "twice.csv"
    twice.write_text("key,label\n0001,1\n0002,2\n0001,1\n")
    with pytest.raises(millrace.InvalidArgumentError, match=r"twice\.csv: lines 2 and 4 have the same key"):
        millrace.Loader(millrace.Dataset(shards.uri, labels=twice))
    with pytest.raises(millrace.InvalidArgumentError, match="none of its 1 row has the key of a sample"):
        millrace.Loader(millrace.Dataset(shards.uri, labels=csv_of(tmp_path, {"x": 1})))
    with pytest.raises(millrace.NotFoundError, match="none.csv"):
        millrace.Loader(millrace.Dataset(shards.uri, labels=tmp_path / "none.csv"))
    with pytest.raises(millrace.InvalidArgumentError, match="missing"):
        millrace.Loader(millrace.Dataset(shards.uri, labels=millrace.Labels(twice, missing="keep")))


def test_names_of_files_are_keys(tmp_path: pathlib.Path) -> None:
    (tmp_path / "raw").mkdir()
    samples = write_raw(tmp_path / "raw", 12)
    file = csv_of(tmp_path, {f"{key}.png": n for n, key in enumerate(samples.pixels)}, header="filename,target")
    labels = millrace.Labels(file, label_column="target")
    assert labels_of(millrace.Loader(millrace.Dataset(samples.uri, labels=labels), **OPTIONS)) == {
        key: n for n, key in enumerate(samples.pixels)
    }


def test_a_file_that_is_replaced(tmp_path: pathlib.Path, shards: Samples) -> None:
    for label in (1, 2):
        file = csv_of(tmp_path, {key: label for key in shards.pixels})
        assert set(labels_of(millrace.Loader(millrace.Dataset(shards.uri, labels=file), **OPTIONS)).values()) == {label}


def test_feed_and_pack(tmp_path: pathlib.Path, shards: Samples) -> None:
    wanted = {key: int(key) + 100 for key in shards.pixels}
    file = csv_of(tmp_path, wanted, header="id,target")
    flags = ["--labels", file, "--label-column", "target"]
    loader = millrace.Loader(
        millrace.Dataset(shards.uri, labels=millrace.Labels(file, label_column="target")),
        digest="raw",
        **{**OPTIONS, "seed": 0},
    )
    for _ in loader:
        pass
    fed = run("feed", shards.uri, *flags, "--json")
    assert fed.returncode == 0, fed.stderr
    assert json.loads(fed.stdout)["digest"] == loader.report()["digest"]
    packed = run("pack", shards.uri, str(tmp_path / "packed"), *flags)
    assert packed.returncode == 0, packed.stderr
    assert labels_of(millrace.Loader(str(tmp_path / "packed"), **OPTIONS)) == wanted
    assert millrace.Dataset(str(tmp_path / "packed")).fields == ["cls", "json", "png", "txt"]
    csv_of(tmp_path, {**wanted, "0001": 5}, header="id,target")
    again = run("pack", shards.uri, str(tmp_path / "packed"), *flags)
    assert again.returncode == 1 and "already" not in again.stdout, "other labels are another job"
    csv_of(tmp_path, {"0001": 5}, header="id,target")
    refused = run("feed", shards.uri, *flags)
    assert refused.returncode == 1 and "has no label for 49 of the 50 samples" in refused.stderr
    fed = run("feed", shards.uri, *flags, "--missing-labels", "drop", "--json")
    assert fed.returncode == 0 and json.loads(fed.stdout)["samples"] == 1


def test_workers_read_the_same_labels(tmp_path: pathlib.Path, shards: Samples) -> None:
    wanted = {key: int(key) * 3 for key in shards.pixels}
    file = csv_of(tmp_path, wanted)
    with subprocess.Popen(
        [str(binary()), "worker", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True
    ) as worker:
        try:
            assert worker.stdout is not None
            address = worker.stdout.readline().removeprefix("listening on ").strip()
            loader = millrace.Loader(millrace.Dataset(shards.uri, labels=file), workers=[address], **OPTIONS)
            assert labels_of(loader) == wanted
            sources = loader.report()["workers"]  # type: ignore[typeddict-item]
        finally:
            worker.terminate()
    assert address in str(sources)


def test_columns_of_a_manifest_stay_with_its_data_set(tmp_path: pathlib.Path) -> None:
    (tmp_path / "raw").mkdir()
    samples = write_raw(tmp_path / "raw", 6)
    manifest = tmp_path / "raw" / "list.csv"
    lines = [f"{key}.png,{number},elsewhere,9" for number, key in enumerate(samples.pixels)]
    manifest.write_text("\n".join(["which,what,path,label", *lines]) + "\n")
    dataset = millrace.Dataset(str(manifest), path_column="which", label_column="what")
    assert sorted(each["cls"] for each in dataset) == list(range(6))
    keys = [each["key"] for each in dataset]
    subset = dataset.where(samples=[1, 2])
    file = csv_of(tmp_path, {key: 40 for key in keys})
    for made in (
        lambda: pickle.loads(pickle.dumps(dataset)),
        lambda: pickle.loads(pickle.dumps(subset)),
        lambda: subset.with_labels(file),
    ):
        for index in tmp_path.glob("raw/**/.millrace*"):  # as on another machine: it is made again
            shutil.rmtree(index)
        copy = made()
        assert [each["key"] for each in copy] == (keys if len(copy) == 6 else keys[1:3])
        assert {each["cls"] for each in pickle.loads(pickle.dumps(copy.with_labels(file)))} == {40}


def test_a_subset_of_data_that_were_replaced_gets_no_labels(tmp_path: pathlib.Path, shards: Samples) -> None:
    subset = millrace.Dataset(shards.uri)[10:20]
    file = csv_of(tmp_path, {f"{number:04}": 1 for number in range(80)})
    assert len(subset.with_labels(file)) == 10
    for shard in pathlib.Path(shards.uri).glob("*.tar"):
        shard.unlink()
    write_tar(pathlib.Path(shards.uri), 80)
    subprocess.run([str(binary()), "index", shards.uri], check=True, capture_output=True, timeout=300)
    with pytest.raises(millrace.MismatchError, match="make the subset again"):
        subset.with_labels(file)
