"""Shards of other formats: the samples in them are those that would be in tar shards, down to the digest."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path

import pytest

from . import corpus, oracle
from .harness import Sandbox

COUNT = 50


def samples() -> list[oracle.Sample]:
    return [
        oracle.Sample(
            f"dir.d/s{n:04d}", {"jpg": corpus.jpeg(n), "cls": str(n % 7).encode(), "txt": f"größe {n}".encode()}
        )
        for n in range(COUNT)
    ]


def crc32c_table() -> list[int]:
    table = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
        table.append(n)
    return table


CRC_TABLE = crc32c_table()


def masked_crc(data: bytes) -> bytes:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC_TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def message(field: int, data: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(data)) + data


def tfrecord(found: list[oracle.Sample]) -> bytes:
    out = b""
    for sample in found:
        features = {"__key__": message(1, message(1, sample.key.encode()))}
        for name, data in sample.fields.items():
            features[name] = (
                message(3, message(1, varint(int(data)))) if name == "cls" else message(1, message(1, data))
            )
        record = message(
            1, b"".join(message(1, message(1, name.encode()) + message(2, f)) for name, f in features.items())
        )
        head = struct.pack("<Q", len(record))
        out += head + masked_crc(head) + record + masked_crc(record)
    return out


def mds(found: list[oracle.Sample]) -> bytes:
    columns = {"__key__": "str", "cls": "int", "jpg": "bytes", "txt": "str"}
    config = json.dumps(
        {
            "version": 2,
            "format": "mds",
            "column_names": list(columns),
            "column_encodings": list(columns.values()),
            "column_sizes": [8 if c == "int" else None for c in columns.values()],
        }
    ).encode()
    records = []
    for sample in found:
        variable = [sample.key.encode(), sample.fields["jpg"], sample.fields["txt"]]
        sizes = b"".join(struct.pack("<I", len(v)) for v in variable)
        records.append(sizes + variable[0] + struct.pack("<q", int(sample.fields["cls"])) + variable[1] + variable[2])
    offsets = [4 + 4 * (len(records) + 1) + len(config)]
    for record in records:
        offsets.append(offsets[-1] + len(record))
    return struct.pack(f"<{len(offsets) + 1}I", len(records), *offsets) + config + b"".join(records)


def recordio(found: list[oracle.Sample]) -> bytes:
    out = b""
    for n, sample in enumerate(found):
        record = struct.pack("<IfQQ", 0, float(sample.fields["cls"]), n, 0) + sample.fields["jpg"]
        assert struct.pack("<I", 0xCED7230A) not in record
        out += struct.pack("<II", 0xCED7230A, len(record)) + record + b"\0" * (-len(record) % 4)
    return out


def index_json(names: dict[str, int]) -> bytes:
    shards = [
        {"samples": 0, "raw_data": {"basename": n, "bytes": size, "hashes": {}}, "zip_data": None}
        for n, size in names.items()
    ]
    return json.dumps({"version": 2, "shards": shards}).encode()


class Written:
    """The samples in two shards, and what they are."""

    def __init__(self, root: Path, kind: str) -> None:
        self.root, self.kind, self.samples = root, kind, samples()
        halves = self.samples[:30], self.samples[30:]
        names = {
            "tfrecord": ["t.tfrecord-00000-of-00002", "t.tfrecord-00001-of-00002"],
            "recordio": ["a.rec", "b.rec"],
            "mds": ["shard.00000.mds", "shard.00001.mds"],
        }[kind]
        write = {"tfrecord": tfrecord, "recordio": recordio, "mds": mds}[kind]
        for name, half in zip(names, halves, strict=True):
            corpus.write(root / name, write(half))
        if kind == "mds":
            corpus.write(root / "index.json", index_json({name: (root / name).stat().st_size for name in names}))
        if kind == "recordio":
            corpus.write(root / "a.idx", b"0\t0\n")
            self.samples = [
                oracle.Sample(f"{name}/{n:08d}", {f: d for f, d in sample.fields.items() if f != "txt"})
                for name, half in zip(names, halves, strict=True)
                for n, sample in enumerate(half)
            ]


@pytest.fixture(params=["tfrecord", "recordio", "mds"])
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Written:
    return Written(tmp_path / "data", request.param)


def test_the_digest_is_that_of_the_same_samples_in_tar(sandbox: Sandbox, tmp_path: Path, written: Written) -> None:
    expected = oracle.digest(written.samples)
    assert sandbox.feed(written.root)["digest"] == expected
    corpus.write_tar(tmp_path / "tar" / "0.tar", written.samples)
    assert sandbox.feed(tmp_path / "tar")["digest"] == expected
    for options in ({"shuffle": "global"}, {"shuffle": "global", "rank": 1, "world": 3, "digest_of": "decoded"}):
        assert sandbox.feed(written.root, **options)["digest"] == sandbox.feed(tmp_path / "tar", **options)["digest"]


def test_inspect(sandbox: Sandbox, written: Written) -> None:
    report = sandbox.ok("inspect", written.root, "--json").json()
    assert report["kind"] == written.kind and report["samples"] == COUNT and report["objects"] == 2
    types = {field["name"]: field["type"] for field in report["fields"]}
    assert types["jpg"] == "bytes" and types["cls"] == ("float" if written.kind == "recordio" else "int")
    assert [c["samples"] for c in report["classes"]] == [8, 7, 7, 7, 7, 7, 7]


def test_python(written: Written) -> None:
    import millrace

    dataset = millrace.Dataset(written.root)
    assert dataset.kind == written.kind and len(dataset) == COUNT
    options = {"batch_size": COUNT, "size": 16, "shuffle": "none", "epochs": 1, "output": "numpy"}
    (batch,) = millrace.Loader(dataset, **options)
    assert list(batch["key"]) == [s.key for s in written.samples]
    assert [int(n) for n in batch["label"]] == [int(s.fields["cls"]) for s in written.samples]
    if written.kind != "recordio":
        (batch,) = millrace.Loader(dataset, label=millrace.Label("txt", "text"), **options)
        assert list(batch["label"]) == [s.fields["txt"].decode() for s in written.samples]


def test_an_image_under_any_name(sandbox: Sandbox, tmp_path: Path) -> None:
    found = [oracle.Sample(f"k{n}", {"image/encoded": corpus.jpeg(n), "other": b"x"}) for n in range(10)]
    corpus.write(tmp_path / "d" / "train-00000-of-00001", tfrecord(found))
    assert sandbox.feed(tmp_path / "d")["digest"] == oracle.digest(found)


def test_damage_is_named(sandbox: Sandbox, written: Written) -> None:
    shard = sorted(p for p in written.root.iterdir() if p.suffix not in (".idx", ".json"))[1]
    shard.write_bytes(shard.read_bytes()[:-7])
    sandbox.run("index", written.root).failed(1, re.escape(str(shard)), "offset", "truncated")


def test_mds_shards_are_those_of_their_index(sandbox: Sandbox, tmp_path: Path) -> None:
    for name in ("train", "val"):
        Written(tmp_path / "d" / name, "mds")
    assert sandbox.ok("inspect", tmp_path / "d", "--json").json()["samples"] == 2 * COUNT
    shard = tmp_path / "d" / "val" / "shard.00001.mds"
    shard.rename(tmp_path / "aside")
    sandbox.run("index", tmp_path / "d").failed(1, "val/index.json", "'shard.00001.mds', which is not there")
    corpus.write(shard, mds(samples()[:2]))
    sandbox.run("index", tmp_path / "d").failed(1, "val/index.json", "says that the shard 'shard.00001.mds' has")
    (tmp_path / "aside").rename(shard)
    corpus.write(tmp_path / "d" / "val" / "shard.00002.mds", mds(samples()[:2]))
    sandbox.run("index", tmp_path / "d").failed(1, "val/shard.00002.mds: is not listed")
    (tmp_path / "d" / "val" / "index.json").unlink()
    assert sandbox.ok("index", tmp_path / "d", "--json").json()["samples"] == 2 * COUNT + 2


def test_what_is_refused(sandbox: Sandbox, tmp_path: Path) -> None:
    corpus.write(tmp_path / "zip" / "shard.00000.mds.zstd", b"x")
    sandbox.run("index", tmp_path / "zip").failed(1, "decompress it")
    corpus.write(tmp_path / "two" / "a.rec", recordio(samples()[:1]))
    corpus.write(tmp_path / "two" / "b.tfrecord", tfrecord(samples()[:1]))
    sandbox.run("index", tmp_path / "two").failed(1, "shards of several kinds")
    corpus.write(tmp_path / "mixed" / "a.idx", b"")
    corpus.write(tmp_path / "mixed" / "b.jpg", corpus.jpeg(1))
    corpus.write(tmp_path / "mixed" / "c.mds", mds(samples()[:1]))
    sandbox.run("index", tmp_path / "mixed").failed(1, "both shards and other files")


@pytest.mark.parametrize("kind", ["tfrecord", "mds"])
def test_packed_they_are_the_same(sandbox: Sandbox, tmp_path: Path, kind: str) -> None:
    build = {"tfrecord": tfrecord, "mds": mds}[kind]
    corpus.write(tmp_path / "in" / f"a.{kind}", build(samples()))
    sandbox.ok("pack", tmp_path / "in", tmp_path / "out", "--shard-size", "20KiB")
    assert oracle.read_tar(tmp_path / "out") == samples()


def test_names_of_companions_alone_are_raw_objects(sandbox: Sandbox, tmp_path: Path) -> None:
    corpus.write(tmp_path / "d" / "a" / "index.json", b"{}")
    corpus.write(tmp_path / "d" / "a" / "x.idx", b"1")
    corpus.write(tmp_path / "d" / "b" / "x.jpg", b"2")
    report = sandbox.ok("inspect", tmp_path / "d", "--json").json()
    assert report["kind"] == "raw" and report["samples"] == 3
