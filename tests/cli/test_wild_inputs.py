"""Inputs as people have them: shards that `cat` has joined, leftovers of engines, missing shards, labels that are not all numbers, hashes
that do not fit. Millrace reports each fault, and loses nothing silently."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import struct
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import xxhash
from cli_support import Millrace


def tar(first: int, last: int, members: dict[str, bytes] | None = None) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        named = members or {
            f"{n:06}.{field}": f"{field}{n}".encode() for n in range(first, last) for field in ("txt", "x")
        }
        for name, data in named.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def write(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def indexed(millrace: Millrace, uri: Path, *options: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(millrace("index", uri, *options, "--json").stdout)
    return found


def zstd(data: bytes) -> bytes:
    return subprocess.run(["zstd", "-q", "-c"], input=data, capture_output=True, check=True).stdout


def test_shards_that_cat_has_joined(millrace: Millrace, tmp_path: Path) -> None:
    joined = tar(0, 10) + tar(10, 20) + tar(0, 0) + tar(20, 25)
    write(tmp_path / "set/c.tar", joined)
    assert indexed(millrace, tmp_path / "set")["samples"] == 25
    millrace("pack", tmp_path / "set", tmp_path / "out")
    packed = b"".join(path.read_bytes() for path in sorted((tmp_path / "out").glob("*.tar")))
    with tarfile.open(fileobj=io.BytesIO(packed), ignore_zeros=True) as archive:
        assert [name for name in archive.getnames() if name.endswith(".txt")] == [f"{n:06}.txt" for n in range(25)]


@pytest.mark.parametrize("ending", ["tar.gz", "tar.zst"])
def test_compressed_shards_that_cat_has_joined(millrace: Millrace, tmp_path: Path, ending: str) -> None:
    compress: Callable[[bytes], bytes] = gzip.compress if ending == "tar.gz" else zstd
    write(tmp_path / f"apart/c.{ending}", compress(tar(0, 3)) + compress(tar(3, 5)))
    write(tmp_path / f"together/c.{ending}", compress(tar(0, 3) + tar(3, 5)))
    for folder in ("apart", "together"):
        done = millrace("pack", tmp_path / folder, tmp_path / f"out-{folder}", "--json")
        assert json.loads(done.stdout)["samples"] == 5, folder


def test_bytes_behind_the_end_of_a_tar(millrace: Millrace, tmp_path: Path) -> None:
    write(tmp_path / "zeros/c.tar", tar(0, 3) + bytes(100_001))
    assert indexed(millrace, tmp_path / "zeros")["samples"] == 3
    for number, tail in enumerate((b"garbage", tar(3, 6)[7:], bytes(512) + b"x", gzip.compress(tar(3, 6)))):
        shard = write(tmp_path / str(number) / "c.tar", tar(0, 3) + tail)
        failed = millrace("index", shard.parent, code=1)
        assert b"bytes that are not zero follow the end of the tar archive" in failed.stderr, tail[:10]
        kept = indexed(millrace, shard.parent, "--skip-bad")
        assert kept["samples"] == 3 and kept["damaged"][0]["object"] == "c.tar"


def test_a_class_folder_with_underscores(millrace: Millrace, tmp_path: Path) -> None:
    for kind in ("__background__", "_noise_", "cat", "dog"):
        for n in range(3):
            write(tmp_path / "raw" / kind / f"{n}.jpg", b"x")
    classes = json.loads(millrace("inspect", tmp_path / "raw", "--json").stdout)["classes"]
    assert [(entry["name"], entry["samples"]) for entry in classes] == [
        ("__background__", 3),
        ("_noise_", 3),
        ("cat", 3),
        ("dog", 3),
    ]


def test_what_is_passed_over_is_counted_and_named(millrace: Millrace, tmp_path: Path) -> None:
    root = tmp_path / "set"
    for name in ("part-00000-x-c000.tar", "part-00001-x-c000.tar", "_temporary/0/attempt_1/part-00001-x-c000.tar"):
        write(root / name, tar(0, 2) if name.startswith("part-00000") else tar(2, 4))
    for name in ("_SUCCESS", "._SUCCESS.crc", ".part-00000-x-c000.tar.crc", "README.md", "part-00000-x-c000.tar.idx"):
        write(root / name, b"x")
    skipped = {
        "_SUCCESS",
        "._SUCCESS.crc",
        ".part-00000-x-c000.tar.crc",
        "README.md",
        "part-00000-x-c000.tar.idx",
        "_temporary/0/attempt_1/part-00001-x-c000.tar",
    }
    found = indexed(millrace, root)
    assert found["samples"] == 4 and found["warnings"] == []
    for report in (found, json.loads(millrace("inspect", root, "--json").stdout)):
        assert report["skipped"]["objects"] == 6
        assert {entry["object"] for entry in report["skipped"]["named"]} == skipped
        assert all(entry["why"] for entry in report["skipped"]["named"])
    for command in ("index", "inspect"):
        text = millrace(command, root).stdout.decode()
        assert "6 objects were passed over" in text and all(name in text for name in skipped)


def test_members_that_are_passed_over_are_counted(millrace: Millrace, tmp_path: Path) -> None:
    members = {"README": b"x", "0.txt": b"x", "__meta__/0.txt": b"x", ".hidden.txt": b"x", "1.txt": b"x"}
    write(tmp_path / "set/a.tar", tar(0, 0, members))
    found = indexed(millrace, tmp_path / "set")
    assert found["samples"] == 2 and found["skipped_members"] == {"links": 0, "unnamed": 3}
    text = millrace("index", "--full", tmp_path / "set").stdout.decode()
    assert "3 files of tar shards were passed over" in text and "'README' in 'a.tar'" in text


def test_missing_and_mixed_shards_are_named(millrace: Millrace, tmp_path: Path) -> None:
    for n in (0, 1, 2, 4):
        write(tmp_path / f"gap/x-0000{n}-of-00005.tar", tar(2 * n, 2 * n + 2))
    done = millrace("index", tmp_path / "gap", "--json")
    assert b"x-00003-of-00005.tar" in done.stderr
    assert "x-00003-of-00005.tar" in json.loads(done.stdout)["warnings"][0]
    assert "x-00003-of-00005.tar" in json.loads(millrace("inspect", tmp_path / "gap", "--json").stdout)["advice"][-1]

    for n in range(3):
        write(tmp_path / f"mixed/train-{n:03}.tar", tar(n, n + 1))
    write(tmp_path / "mixed/test-000.tar", tar(7, 8))
    assert b"test-*.tar (1), train-*.tar (3)" in millrace("index", tmp_path / "mixed").stderr
    assert not millrace("index", tmp_path / "mixed" / "train-*.tar").stderr

    for name in ("0.tar", "1.tar", "old/0.tar"):
        write(tmp_path / "twice" / name, tar(3, 6) if name == "1.tar" else tar(0, 3))
    said = millrace("index", tmp_path / "twice").stderr
    assert b"3 samples have the key of a sample before: '000000' in 0.tar and old/0.tar" in said
    assert b"shards lie in 'old/'" in said


def test_a_name_among_numbers_is_no_label(millrace: Millrace, tmp_path: Path) -> None:
    for n in range(12):
        write(tmp_path / f"raw/{n}.txt", b"x")
    rows = "".join(f"{n},{n}\n" for n in range(11))
    labels = tmp_path / "labels.csv"
    command = ("pack", tmp_path / "raw", tmp_path / "out", "--labels", labels)
    for wrong, line in (("11,unknown", 13), ("11,N/A", 13), ("11,1.5.2", 13)):
        labels.write_text("key,label\n" + rows + wrong + "\n")
        failed = millrace(*command, code=1)
        assert f"line {line}: the label '{wrong[3:]}' is no number".encode() in failed.stderr
    labels.write_text("key,label\n" + rows + "11,11\n")
    millrace(*command)


def mds(samples: list[bytes], hashes: list[str]) -> tuple[bytes, dict[str, Any]]:
    """A shard of one column of bytes and its entry of index.json."""
    described: dict[str, Any] = {
        "version": 2,
        "format": "mds",
        "compression": None,
        "hashes": hashes,
        "size_limit": 1 << 26,
    }
    described |= {"column_names": ["x"], "column_encodings": ["bytes"], "column_sizes": [None]}
    config = json.dumps(described, sort_keys=True).encode()
    records = [struct.pack("<I", len(sample)) + sample for sample in samples]
    offsets = [4 + 4 * (len(records) + 1) + len(config)]
    for record in records:
        offsets.append(offsets[-1] + len(record))
    data = struct.pack(f"<{2 + len(records)}I", len(records), *offsets) + config + b"".join(records)
    digests = {
        name: (
            hashlib.new(name, data) if name in hashlib.algorithms_available else getattr(xxhash, name)(data)
        ).hexdigest()
        for name in hashes
    }
    raw = {"basename": "", "bytes": len(data), "hashes": digests}
    return data, described | {"raw_data": raw, "samples": len(records), "zip_data": None}


def write_mds(folder: Path, hashes: list[str]) -> list[Path]:
    entries, paths = [], []
    for shard in range(3):
        data, entry = mds([bytes([shard, n]) * 500 for n in range(4)], hashes)
        entry["raw_data"]["basename"] = f"shard.{shard:05}.mds"
        paths.append(write(folder / f"shard.{shard:05}.mds", data))
        entries.append(entry)
    write(folder / "index.json", json.dumps({"version": 2, "shards": entries}).encode())
    return paths


def test_other_json_beside_mds_is_not_its_index(millrace: Millrace, tmp_path: Path) -> None:
    """Statistics and cards of tools, before and behind index.json."""
    write_mds(tmp_path / "set", [])
    for name in ("a_stats.json", "stats.json", "dataset_info.json", "shard.00000.json"):
        write(tmp_path / "set" / name, b"[1, 2")
    found = indexed(millrace, tmp_path / "set")
    assert found["samples"] == 12 and not found["damaged"]
    assert found["skipped"]["objects"] == 5  # with index.json
    packed = json.loads(millrace("pack", tmp_path / "set", tmp_path / "out", "--json").stdout)
    assert packed["samples"] == 12


@pytest.mark.parametrize(
    "algorithm", ["sha1", "md5", "sha256", "blake2s", "xxh32", "xxh64", "xxh3_64", "xxh128", "xxh3_128"]
)
def test_the_hashes_of_an_mds_index_are_verified(millrace: Millrace, tmp_path: Path, algorithm: str) -> None:
    shards = write_mds(tmp_path / "set", [algorithm])
    assert indexed(millrace, tmp_path / "set")["samples"] == 12
    damaged = bytearray(shards[1].read_bytes())
    damaged[-100] ^= 1
    shards[1].write_bytes(damaged)
    failed = millrace("index", tmp_path / "set", code=1)
    assert b"shard.00001.mds" in failed.stderr and f"its {algorithm} is ".encode() in failed.stderr
    kept = indexed(millrace, tmp_path / "set", "--skip-bad")
    assert kept["samples"] == 8 and kept["damaged"][0]["object"] == "shard.00001.mds"
    assert kept["damaged"][0]["samples"] == 0, "nobody knows which of them are sound"


def test_all_hashes_count_and_unknown_ones_are_named(millrace: Millrace, tmp_path: Path) -> None:
    write_mds(tmp_path / "set", ["sha1", "xxh64"])
    text = (tmp_path / "set/index.json").read_text()
    index = json.loads(text)
    wrong = index["shards"][2]["raw_data"]["hashes"]
    wrong["xxh64"] = "0" * 16
    (tmp_path / "set/index.json").write_text(json.dumps(index))
    failed = millrace("index", tmp_path / "set", code=1)
    assert b"shard.00002.mds" in failed.stderr and b"its xxh64 is " in failed.stderr
    (tmp_path / "set/index.json").write_text(text.replace('"sha1": "', '"of_tomorrow": "'))
    assert b"'of_tomorrow' in index.json is not known here" in millrace("index", tmp_path / "set").stderr
