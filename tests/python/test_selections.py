"""Tests data sets by URIs with wildcards and braces, and by lists of URIs."""

from __future__ import annotations

import pathlib
import pickle
import subprocess

import millrace
import pytest
from support import binary


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    for name in ("cat/1", "cat/2", "cow/1", "dog,1/1"):
        path = tmp_path / "data" / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path / "data"


def texts(dataset: millrace.Dataset) -> list[str]:
    return [sample["txt"] for sample in dataset]


def test_wildcards_and_braces(folder: pathlib.Path) -> None:
    assert texts(millrace.Dataset(f"{folder}/c*/1.txt")) == ["cat/1", "cow/1"]
    assert texts(millrace.Dataset(f"{folder}/cat/{{1..2}}.txt")) == ["cat/1", "cat/2"]
    with pytest.raises(millrace.NotFoundError, match=r"there is nothing at .*cat/3\.txt"):
        millrace.Dataset(f"{folder}/cat/{{1..3}}.txt")


def test_a_list_of_uris(folder: pathlib.Path) -> None:
    parts = [folder / "dog,1", f"{folder}/cat/2.txt"]
    dataset = millrace.Dataset(parts)
    assert texts(dataset) == ["cat/2", "dog,1/1"]
    assert texts(pickle.loads(pickle.dumps(dataset))) == texts(dataset)
    assert dataset.classes == ["cat", "dog,1"]
    loader = millrace.Loader(parts, batch_size=2, fields={"text": millrace.Text("txt")}, shuffle=False, epochs=1)
    assert [batch["text"] for batch in loader] == [["cat/2", "dog,1/1"]]
    assert texts(millrace.Dataset([folder / "cat"])) == ["cat/1", "cat/2"]
    with pytest.raises(millrace.InvalidArgumentError, match="different stores.*Mix"):
        millrace.Dataset(["s3://a/x", "s3://b/x"])
    with pytest.raises(TypeError, match="list"):
        millrace.Dataset([])
    with pytest.raises(TypeError, match="list"):
        millrace.Dataset([7])  # type: ignore[list-item]


def test_pack_of_a_selection(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    done = subprocess.run(
        [binary(), "pack", f"{folder}/c*", tmp_path / "packed"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert texts(millrace.Dataset(tmp_path / "packed")) == ["cat/1", "cat/2", "cow/1"]
    # The place may be beside what is selected, also in the same folder, but not among it.
    done = subprocess.run(
        [binary(), "pack", f"{folder}/c*", folder / "cat/packed"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode != 0 and "one lies within the other" in done.stderr
    done = subprocess.run(
        [binary(), "pack", f"{folder}/c*", folder / "packed"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr


def test_what_is_passed_over(folder: pathlib.Path) -> None:
    for name in ("_SUCCESS", "README.md", "cat/.hidden.txt", "_temporary/0/1.txt", "__background__/1.txt"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    (folder / "cow/2.txt").symlink_to("nowhere")
    dataset = millrace.Dataset(folder)
    assert dataset.classes == ["__background__", "cat", "cow", "dog,1"]
    skipped = dataset.skipped
    assert set(skipped) == {"_SUCCESS", "README.md", "cat/.hidden.txt", "_temporary/0/1.txt", "cow/2.txt"}
    assert "dot" in skipped["cat/.hidden.txt"] and "nowhere" in skipped["cow/2.txt"]
    assert dataset[:1].skipped == skipped, "of a subset, what its data set passes over"
    assert pickle.loads(pickle.dumps(dataset)).skipped == skipped
