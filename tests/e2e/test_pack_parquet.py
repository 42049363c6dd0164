"""Parquet files are packed: what becomes of each type, held against pyarrow; large ones, kills, and what cannot be read."""

from __future__ import annotations

import io
import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import numpy
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from . import oracle
from .conftest import Photos
from .harness import Sandbox, devstore

PYTHON = {"MILLRACE_PYTHON": sys.executable}


def write(path: Path, columns: dict[str, Any], **more: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, **more)
    return path


def npy(value: bytes) -> Any:
    return numpy.load(io.BytesIO(value), allow_pickle=False)


def test_types(sandbox: Sandbox, tmp_path: Path) -> None:
    table = {
        "text": pa.array(["a", None, "\u65e5\u672c"]),
        "blob": pa.array([b"\x00\xff", b"", None]),
        "whole": pa.array([-(2**63), 0, 2**63 - 1], pa.int64()),
        "small": pa.array([1, 2, 255], pa.uint8()),
        "truth": pa.array([True, False, True]),
        "gaps": pa.array([7, None, 9], pa.int32()),
        "real": pa.array([0.1, None, -1e300]),
        "half": pa.array([0.5, 1.5, 2.5], pa.float32()),
        "word": pa.array(["x", "y", "x"]).dictionary_encode(),
        "tokens": pa.array([[1, 2, 3], [4], [5, 6]], pa.list_(pa.uint16())),
        "points": pa.array([[[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]], [[7.0, 8.0]]], pa.list_(pa.list_(pa.float32(), 2))),
        "vector": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int64(), 2)),
        "holes": pa.array([[1, None], [], [2]]),
        "record": pa.array([{"a": 1, "b": "x"}, {"a": None, "b": "y"}, None]),
        "words": pa.array([["a", "b"], [], ["c"]]),
    }
    write(tmp_path / "in/part-0.parquet", table)
    sandbox.ok("pack", tmp_path / "in", tmp_path / "out", env=PYTHON)
    samples = oracle.read_tar(tmp_path / "out")
    assert [sample.key for sample in samples] == [f"part-0/{row:08d}" for row in range(3)]
    rows = [sample.fields for sample in samples]
    for name, expected in {
        "text": [b"a", b"", "\u65e5\u672c".encode()],
        "blob": [b"\x00\xff", b"", b""],
        "whole": [b"-9223372036854775808", b"0", b"9223372036854775807"],
        "small": [b"1", b"2", b"255"],
        "truth": [b"1", b"0", b"1"],
        "gaps": [b"7", b"null", b"9"],
        "real": [b"0.1", b"nan", b"-1e+300"],
        "half": [b"0.5", b"1.5", b"2.5"],
        "word": [b"x", b"y", b"x"],
    }.items():
        assert [row[name] for row in rows] == expected, name
    for name in ("holes", "record", "words"):
        assert [json.loads(row[name]) for row in rows] == table[name].to_pylist(), name
    for name, dtype in (("tokens", "uint16"), ("points", "float32"), ("vector", "int64")):
        for row, value in zip(rows, table[name].to_pylist()):
            found = npy(row[name])
            assert found.dtype == dtype and found.tolist() == value, name


def test_images_of_hugging_face_and_folders(photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
    """Image structs, several files and row groups below S3; the same samples as packed from elsewhere."""
    for number, part in enumerate((photos.samples[:7], photos.samples[7:])):
        columns = {
            "__key__": [sample.key for sample in part],
            "image": [{"bytes": sample.fields["jpg"], "path": f"{sample.key}.jpg"} for sample in part],
            "label": [int(sample.fields["cls"]) for sample in part],
        }
        write(tmp_path / f"root/b/data/train-{number:05d}.parquet", columns, row_group_size=100)
    (tmp_path / "root/out").mkdir()
    fields = ("--field", "image=jpg", "--field", "label=cls")
    with devstore(sandbox, tmp_path / "root") as server:
        env = {**server.env(), **PYTHON}
        sandbox.ok("pack", "s3://b/data", "s3://out/tar", *fields, env=env)
        sandbox.run("index", "s3://b/data", env=env).failed(1, "train-00000.parquet", "millrace pack")
        digests = {
            sandbox.ok("feed", place, "--json", "--shuffle", "none", "--batch", "4", "--size", "32", env=env).json()["digest"]
            for place in ("s3://out/tar", photos.tar)
        }
    assert oracle.read_tar(tmp_path / "root/out/tar") == photos.samples
    assert len(digests) == 1


def test_several_shards_and_kept_work(sandbox: Sandbox, tmp_path: Path) -> None:
    """More than one scratch shard a file; what was unpacked before is not unpacked again."""
    blobs = [bytes([row]) * (1 << 20) for row in range(150)]
    write(tmp_path / "in/a.parquet", {"blob": blobs}, row_group_size=40)
    write(tmp_path / "in/b.parquet", {"blob": [b"last"]})
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine.txt").write_text("x")
    scratch = tmp_path / "scratch"
    args = ["pack", tmp_path / "in", tmp_path / "out", "--scratch", scratch]
    sandbox.run(*args, env=PYTHON).failed(1, "mine.txt")
    (folder,) = scratch.iterdir()
    shards = {path.name: path.stat().st_mtime_ns for path in folder.glob("*.mds")}
    assert sorted(shards) == ["a.parquet.00000.mds", "a.parquet.00001.mds", "a.parquet.00002.mds", "b.parquet.00000.mds"]
    (tmp_path / "out/mine.txt").unlink()
    (folder / ".b.parquet.done").unlink()  # as if it had been killed there
    kept = tmp_path / "kept"
    os.link(folder / "a.parquet.00001.mds", kept)
    sandbox.ok(*args, env=PYTHON)
    assert kept.stat().st_mtime_ns == shards["a.parquet.00001.mds"]
    assert [sample.fields["blob"] for sample in oracle.read_tar(tmp_path / "out")] == [*blobs, b"last"]
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"image": [{"bytes": None, "path": "x.jpg"}]}, ("row 0", "image", "embed")),
        ({"big": pa.array([2**64 - 1], pa.uint64())}, ("18446744073709551615", "64 bits")),
        ({"__key__": [1]}, ("__key__", "text")),
    ],
)
def test_refused(sandbox: Sandbox, tmp_path: Path, columns: dict[str, Any], words: tuple[str, ...]) -> None:
    path = write(tmp_path / "in/a.parquet", columns)
    sandbox.run("pack", path.parent, tmp_path / "out", env=PYTHON).failed(1, str(path), *words)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("how", ["cut", "garbage", "damaged"])
def test_damage(sandbox: Sandbox, tmp_path: Path, how: str) -> None:
    path = write(tmp_path / "in/a.parquet", {"x": [os.urandom(1000) for _ in range(100)]}, compression="zstd", write_page_checksum=True)
    data = bytearray(path.read_bytes())
    data[len(data) // 4] ^= 255  # of a page
    path.write_bytes({"cut": path.read_bytes()[:5000], "garbage": b"no parquet" * 10, "damaged": bytes(data)}[how])
    sandbox.run("pack", path.parent, tmp_path / "out", env=PYTHON).failed(1, str(path))
    assert not (tmp_path / "out").exists()


def test_without_arrow(sandbox: Sandbox, tmp_path: Path) -> None:
    path = write(tmp_path / "in/a.parquet", {"x": [1]})
    no_python = {"MILLRACE_PYTHON": "no-such-python"}
    sandbox.run("pack", path.parent, tmp_path / "out", env=no_python).failed(1, "no-such-python", "MILLRACE_PYTHON")
    bare = tmp_path / "python"
    bare.write_text(f"#!/bin/sh\nexec {sys.executable} -S -E \"$@\"\n")
    bare.chmod(bare.stat().st_mode | stat.S_IXUSR)
    sandbox.run("pack", path.parent, tmp_path / "out", env={"MILLRACE_PYTHON": str(bare)}).failed(1, "pip install pyarrow")


def test_hdf5_says_how_to_convert(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/train.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    for command in (["index", tmp_path / "in"], ["pack", tmp_path / "in", tmp_path / "out"], ["feed", tmp_path / "in"]):
        sandbox.run(*command).failed(1, "train.h5", "h5py", "docs/formats/shards.md")
