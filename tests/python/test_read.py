"""Tests single samples by their number."""

from __future__ import annotations

import json
import pathlib
import struct

import millrace
import numpy as np
import pytest
from support import Samples, png


def test_the_fields_of_a_sample(raw: Samples, tar: Samples) -> None:
    for samples in (raw, tar):
        dataset = millrace.Dataset(samples.uri)
        for n, key in reversed(list(enumerate(sorted(samples.pixels)))):
            sample = dataset.read(n)
            assert sample["key"] == key
            assert sample["png"] == png(samples.pixels[key])
            assert int(sample["cls"]) == samples.labels[key]
    assert millrace.Dataset(raw.uri).read(0)["cls"] == 0, "the class of a raw object is an int"
    assert millrace.Dataset(tar.uri).read(0)["cls"] == 0, "a member of a tar has the type that its name says"


def test_files_are_what_their_names_say(tmp_path: pathlib.Path) -> None:
    """They are so if they can be: nobody has promised it."""
    array = np.arange(3)
    np.save(tmp_path / "a.npy", array)
    for name, value in {"a.cls": b"12", "a.txt": "größe".encode(), "a.meta.json": b"[1]", "a.bin": b"1"}.items():
        (tmp_path / name).write_bytes(value)
    for name, value in {"b.npy": b"x", "b.txt": b"\xff", "b.meta.json": b"{", "b.bin": b""}.items():
        (tmp_path / name).write_bytes(value)
    a, b = millrace.Dataset(tmp_path)
    assert (a["npy"] == array).all()
    assert {**a, "npy": None} == {"key": "a", "npy": None, "cls": 12, "txt": "größe", "meta.json": [1], "bin": b"1"}
    assert b == {"key": "b", "npy": b"x", "txt": b"\xff", "meta.json": b"{", "bin": b""}


def test_numbers(raw: Samples) -> None:
    dataset = millrace.Dataset(raw.uri)
    keys = sorted(raw.pixels)
    assert dataset.read(-1)["key"] == keys[-1]
    assert dataset.read(np.int64(3))["key"] == keys[3]
    subset = dataset.where(samples=[5, 2, 7])
    assert [subset.read(n)["key"] for n in range(3)] == [keys[2], keys[5], keys[7]]
    for wrong in (len(dataset), -len(dataset) - 1, 2**70):
        with pytest.raises(IndexError, match="there is no sample"):
            dataset.read(wrong)
    with pytest.raises(IndexError, match="has 3"):
        subset.read(3)
    for wrong in (True, "0", 1.0, None):
        with pytest.raises(TypeError, match="number must be an integer"):
            dataset.read(wrong)  # type: ignore[arg-type]


def test_values_that_the_index_holds(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one")
    (tmp_path / "t.jsonl").write_text('{"path": "a.txt", "label": 7, "width": 1.5, "note": "hi", "box": [1, 2]}\n')
    sample = millrace.Dataset(tmp_path / "t.jsonl").read(0)
    assert sample == {"key": "a", "txt": "one", "cls": 7, "width": 1.5, "note": "hi", "box": [1, 2]}


def test_values_that_mean_nothing(tmp_path: pathlib.Path) -> None:
    """The bytes of MDS columns are no JSON and no UTF-8, and one column is called as the key is."""
    columns = {"json": "json", "text": "str", "__key__": "bytes"}
    head = {"format": "mds", "version": 2, "compression": None, "hashes": []}
    head |= {"column_names": list(columns), "column_encodings": list(columns.values()), "column_sizes": [None] * 3}
    text = json.dumps(head).encode()
    rows = [(b"[1]", b"fine", b"evil"), (b"{", b"fine", b""), (b"1", b"\xff", b"")]
    samples = [struct.pack("<3I", *map(len, row)) + b"".join(row) for row in rows]
    offsets = [4 * (len(samples) + 2) + len(text)]
    for sample in samples:
        offsets.append(offsets[-1] + len(sample))
    shard = struct.pack(f"<{len(offsets) + 1}I", len(samples), *offsets) + text + b"".join(samples)
    (tmp_path / "shard.00000.mds").write_bytes(shard)
    dataset = millrace.Dataset(tmp_path)
    sample = dataset.read(0)
    assert sample == {"key": sample["key"], "json": [1], "text": "fine"}
    assert sample["key"] != b"evil"
    with pytest.raises(millrace.DamagedDataError, match="field 'json' is no json"):
        dataset.read(1)
    with pytest.raises(millrace.DamagedDataError, match="field 'text' is no text"):
        dataset.read(2)


def test_what_was_changed_is_noticed(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one")
    dataset = millrace.Dataset(tmp_path)
    assert dataset.read(0) == {"key": "a", "txt": "one"}
    (tmp_path / "a.txt").write_bytes(b"other")
    with pytest.raises(millrace.MismatchError, match="a.txt"):
        dataset.read(0)


def test_a_single_file(tar: Samples) -> None:
    """It is a data set of its own: in a Dataset, a Loader and a Plan."""
    folder = millrace.Dataset(tar.uri)
    shards = sorted(pathlib.Path(tar.uri).glob("*.tar"))
    parts = [millrace.Dataset(shard) for shard in shards]
    assert [part.objects for part in parts] == [1] * len(shards)
    keys = [part.read(n)["key"] for part in parts for n in range(len(part))]
    assert keys == [folder.read(n)["key"] for n in range(len(folder))]
    with millrace.Loader(shards[1], batch_size=4, size=8, epochs=1, output="numpy", shuffle="none") as loader:
        assert sum(int(batch["valid"].sum()) for batch in loader) == len(parts[1])
    with pytest.raises(FileNotFoundError, match="gone.tar"):
        millrace.Dataset(shards[0].with_name("gone.tar"))
