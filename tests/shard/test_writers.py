"""Other programs read what the writers of shards write: the packages tfrecord and mosaicml-streaming, the oracle of RecordIO."""

from __future__ import annotations

import io
import json
import random
import struct
import subprocess
from pathlib import Path
from typing import Any

import mosaic
import numpy as np
import shards
import test_recordio_oracles as recordio

Field = tuple[str, str, bytes]


def npy(array: np.ndarray[Any, Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def write(kind: str, path: Path, samples: list[tuple[str, list[Field]]], index: Path | None = None) -> None:
    lines = "".join(
        json.dumps({"key": key, "fields": [[n, t, v.hex()] for n, t, v in fields]}) + "\n" for key, fields in samples
    )
    command = [shards.program("shard_write"), kind, path, *([index] if index else [])]
    subprocess.run(command, input=lines.encode(), check=True, timeout=60)
    first = path.read_bytes()
    subprocess.run(command, input=lines.encode(), check=True, timeout=60)
    assert path.read_bytes() == first  # the same input, the same bytes


def random_samples() -> list[tuple[str, list[Field]]]:
    rng = random.Random(12)
    samples = []
    for n in range(25):
        fields: list[Field] = [
            ("img", "bytes", rng.randbytes(rng.randrange(5000))),
            ("cls", "int", b"%d" % rng.randrange(-(2**63), 2**63)),
            ("score", "float", shards.shortest(np.float32(rng.uniform(-9, 9)))),
            ("txt", "text", ("größe" * n).encode()),
            ("ids", "ndarray", npy(np.arange(2 + n, dtype=np.int64) - 3)),
            ("box", "ndarray", npy(np.random.default_rng(n).random((1 + n, 300 * (n % 2) + 2), np.float32))),
        ]
        samples.append((f"a.b/{n}", fields))
    return samples


def test_tfrecord(tmp_path: Path) -> None:
    from tfrecord import example_pb2
    from tfrecord.reader import tfrecord_iterator

    samples = random_samples()
    write("tfrecord", tmp_path / "t.tfrecord", samples)
    records = [bytes(record) for record in tfrecord_iterator(str(tmp_path / "t.tfrecord"))]
    for (key, fields), record in zip(samples, records, strict=True):
        features = example_pb2.Example.FromString(record).features.feature
        wanted = {name: value for name, _, value in fields}
        assert list(features["__key__"].bytes_list.value) == [key.encode()]
        assert list(features["img"].bytes_list.value) == [wanted["img"]]
        assert list(features["cls"].int64_list.value) == [int(wanted["cls"])]
        assert shards.shortest(np.float32(features["score"].float_list.value[0])) == wanted["score"]
        assert npy(np.array(features["ids"].int64_list.value, np.int64)) == wanted["ids"]
        assert list(features["box"].bytes_list.value) == [wanted["box"]]
    assert [s["key"] for s in shards.dump(tmp_path / "t.tfrecord")] == [key for key, _ in samples]


def test_recordio(tmp_path: Path) -> None:
    rng = random.Random(13)
    samples: list[tuple[str, list[Field]]] = []
    records = []
    for n in range(40):
        data = (
            b"\xff\xd8\xff\x00"
            + b"".join(rng.choice([recordio.MAGIC, rng.randbytes(4)]) for _ in range(rng.randrange(9)))
            + b"x" * (n % 4)
        )
        labels = [float(n), 0.5]
        if n % 2:
            samples.append((str(n), [("jpg", "bytes", data), ("cls", "int", b"%d" % n)]))
            records.append(recordio.packed(float(n), data, n))
        else:
            samples.append((str(n), [("labels", "ndarray", npy(np.array(labels, np.float32))), ("jpg", "bytes", data)]))
            records.append(recordio.packed(labels, data, n))
    write("recordio", tmp_path / "t.rec", samples, tmp_path / "t.idx")
    shard = (tmp_path / "t.rec").read_bytes()
    assert recordio.records(shard) == records
    assert shard == b"".join(recordio.framed(record) for record in records)
    offsets = [int(line.split("\t")[1]) for line in (tmp_path / "t.idx").read_text().splitlines()]
    assert [recordio.records(shard[at:])[0] for at in offsets] == records
    assert all(struct.unpack_from("<I", shard, at)[0] == 0xCED7230A for at in offsets)


def test_mds(tmp_path: Path) -> None:
    _, reader = mosaic.load()
    samples = random_samples()
    write("mds", tmp_path / "shard.00000.mds", samples, tmp_path / "index.json")
    index = json.loads((tmp_path / "index.json").read_text())
    (shard,) = index["shards"]
    theirs = reader.from_json(str(tmp_path), "", shard)
    theirs.validate(allow_unsafe_types=False)
    assert (
        shard["samples"] == len(samples) and shard["raw_data"]["bytes"] == (tmp_path / "shard.00000.mds").stat().st_size
    )
    for n, (key, fields) in enumerate(samples):
        found = theirs.decode_sample(theirs.get_sample_data(n))
        wanted = {name: value for name, _, value in fields}
        assert found["__key__"] == key and found["img"] == wanted["img"] and found["txt"] == wanted["txt"].decode()
        assert found["cls"] == int(wanted["cls"]) and np.float32(found["score"]) == np.float32(wanted["score"].decode())
        assert npy(found["ids"]) == wanted["ids"] and npy(found["box"]) == wanted["box"]
    assert shards.values(tmp_path / "shard.00000.mds") == [
        {name: shards.value(kind, value) for name, kind, value in fields} for _, fields in samples
    ]
