"""Holds the TFRecord reader against the packages tfrecord and protobuf."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shards
from crc32c import crc32c
from tfrecord import example_pb2
from tfrecord.writer import TFRecordWriter


def masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def framed(record: bytes) -> bytes:
    head = struct.pack("<Q", len(record))
    return head + masked(head) + record + masked(record)


def text_value(text: bytes) -> Any:
    import base64

    try:
        return text.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(text).decode()}


def expected(record: bytes) -> dict[str, tuple[str, str]]:
    """The fields of a serialized Example, from protobuf's parser."""
    fields = {}
    for name, feature in example_pb2.Example.FromString(record).features.feature.items():
        kind = feature.WhichOneof("kind")
        if kind == "bytes_list":
            texts = list(feature.bytes_list.value)
            as_json = json.dumps([text_value(t) for t in texts], separators=(",", ":"), ensure_ascii=False).encode()
            fields[name] = shards.value("bytes", texts[0]) if len(texts) == 1 else shards.value("json", as_json)
        elif kind == "int64_list":
            ints = list(feature.int64_list.value)
            fields[name] = (
                shards.value("int", b"%d" % ints[0]) if len(ints) == 1 else shards.array(np.array(ints, np.int64))
            )
        elif kind == "float_list":
            floats = np.array(feature.float_list.value, np.float32)
            fields[name] = (
                shards.value("float", shards.shortest(floats[0])) if len(floats) == 1 else shards.array(floats)
            )
    return fields


@pytest.mark.parametrize("chunk", [1, 7, 65536])
def test_reads_the_package_tfrecord(tmp_path: Path, chunk: int) -> None:
    rng = random.Random(3)
    path = tmp_path / "t.tfrecord"
    records = []
    writer = TFRecordWriter(str(path))
    for n in range(40):
        sample = {
            "image/encoded": (rng.randbytes(rng.randrange(3000)), "byte"),
            "image/class/label": (rng.randrange(-5, 1000), "int"),
            "score": (rng.uniform(-1, 1) * 10 ** rng.randrange(-30, 30), "float"),
            "boxes": ([rng.random() for _ in range(n % 4)], "float"),
            "ids": ([rng.randrange(-(2**63), 2**63) for _ in range(n % 5)], "int"),
            "names": ([rng.choice([b"a", "größe".encode(), b"\xff\x00", b'"\\\n']) for _ in range(n % 3)], "byte"),
        }
        records.append(TFRecordWriter.serialize_tf_example(sample))
        writer.write(sample)
    writer.close()
    assert path.read_bytes() == b"".join(framed(record) for record in records)
    assert shards.values(path, chunk) == [expected(record) for record in records]


def test_the_name_of_the_file_may_end_in_numbers(tmp_path: Path) -> None:
    record = TFRecordWriter.serialize_tf_example({"cls": (7, "int")})
    for name in ("t.tfrecords", "t.tfrecord-00000-of-00064", "train-00003-of-01024"):
        (tmp_path / name).write_bytes(framed(record))
        assert shards.values(tmp_path / name) == [{"cls": shards.value("int", b"7")}]
        assert shards.dump(tmp_path / name)[0]["label"] == "7"


def varint(value: int) -> bytes:
    out = b""
    value &= 2**64 - 1
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def message(field: int, data: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(data)) + data


def ints(*numbers: int, packed: bool) -> bytes:
    if packed:
        return message(1, b"".join(varint(n) for n in numbers))
    return b"".join(b"\x08" + varint(n) for n in numbers)


def floats(*numbers: float, packed: bool) -> bytes:
    if packed:
        return message(1, b"".join(struct.pack("<f", n) for n in numbers))
    return b"".join(b"\x0d" + struct.pack("<f", n) for n in numbers)


def entry(name: str, *features: bytes) -> bytes:
    return message(1, message(1, name.encode()) + b"".join(message(2, f) for f in features))


def example(*entries: bytes) -> bytes:
    return b"".join(message(1, e) for e in entries)


ODD = {
    "unpacked numbers": example(
        entry("i", message(3, ints(1, -2, 3, packed=False))), entry("f", message(2, floats(1, 2, packed=False)))
    ),
    "both in one list": example(entry("i", message(3, ints(1, 2, packed=True) + ints(3, packed=False)))),
    "one packed number": example(
        entry("i", message(3, ints(-1, packed=True))), entry("f", message(2, floats(0.1, packed=True)))
    ),
    "a list in two messages": example(entry("i", message(3, ints(1, packed=True)) + message(3, ints(2, packed=False)))),
    "a value in two messages": example(entry("b", message(1, message(1, b"x")), message(1, message(1, b"y")))),
    "another kind last": example(entry("b", message(1, message(1, b"x")), message(3, ints(5, packed=True)))),
    "bytes last": example(entry("b", message(3, ints(5, packed=True)) + message(1, message(1, b"bytes")))),
    "duplicate keys": example(
        entry("a", message(1, message(1, b"1"))),
        entry("b", message(1, message(1, b"2"))),
        entry("a", message(1, message(1, b"3"))),
    ),
    "duplicate keys, the last of another kind": example(
        entry("a", message(1, message(1, b"1"))), entry("a", message(3, ints(9, packed=True)))
    ),
    "the map in two messages": example(entry("a", message(1, message(1, b"1"))))
    + example(entry("b", message(3, ints(2, packed=False)))),
    "no name": example(message(1, message(2, message(1, message(1, b"x"))))),
    "value before name": example(message(1, message(2, message(1, message(1, b"x"))) + message(1, b"late"))),
    "empty bytes": example(entry("a", message(1, message(1, b"")))),
    "empty lists": example(entry("a", message(1, b"")), entry("b", message(2, b"")), entry("c", message(3, b""))),
    "odd names": example(
        *(entry(n, message(1, message(1, b"x"))) for n in ("../../etc/passwd", "/abs", "a\0b", ".", "日本"))
    ),
    "nan and infinity": example(
        *(
            entry(str(n), message(2, floats(v, packed=True)))
            for n, v in enumerate((float("nan"), float("inf"), -float("inf"), -0.0, 3.0, 1e-40))
        )
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_examples(tmp_path: Path, name: str) -> None:
    (tmp_path / "t.tfrecord").write_bytes(framed(ODD[name]))
    wanted = expected(ODD[name])
    assert wanted
    assert shards.values(tmp_path / "t.tfrecord") == [wanted]


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"hello",
        b"\xff" * 30,
        message(2, b"x"),
        example(message(1, message(1, b"only a name"))),
        example(entry("a", message(4, b"x"))),
    ],
    ids=["empty", "text", "bytes", "unknown field", "no value", "unknown kind"],
)
def test_records_that_are_no_examples(tmp_path: Path, record: bytes) -> None:
    (tmp_path / "t.tfrecord").write_bytes(framed(record) + framed(record))
    assert shards.values(tmp_path / "t.tfrecord") == [{"bin": shards.value("bytes", record)}] * 2


def test_keys(tmp_path: Path) -> None:
    records = [
        example(entry("__key__", message(1, message(1, b"a/b.c"))), entry("x", message(1, message(1, b"1")))),
        example(entry("x", message(1, message(1, b"1")))),
        example(entry("__key__", message(3, ints(5, packed=True))), entry("x", message(1, message(1, b"1")))),
        example(entry("__key__", message(1, message(1, b"alone")))),
    ]
    (tmp_path / "t.tfrecord").write_bytes(b"".join(framed(record) for record in records))
    found = shards.dump(tmp_path / "t.tfrecord")
    assert [s["key"] for s in found] == ["a/b.c", "", "", ""]
    assert [[f["name"] for f in s["fields"]] for s in found] == [["x"], ["x"], ["__key__", "x"], ["__key__"]]


def test_random_messages_agree_with_protobuf(tmp_path: Path) -> None:
    """Examples with one byte changed: either nobody can parse them, or both see the same."""
    rng = random.Random(5)
    agreed = 0
    records = []
    for _ in range(600):
        record = bytearray(ODD[rng.choice(list(ODD))])
        record[rng.randrange(len(record))] = rng.randrange(256)
        records.append(bytes(record))
    (tmp_path / "t.tfrecord").write_bytes(b"".join(framed(record) for record in records))
    for record, ours in zip(records, shards.values(tmp_path / "t.tfrecord"), strict=True):
        if ours == {"bin": shards.value("bytes", record)}:
            continue  # more strict than protobuf: nothing of such a record is dropped
        try:
            theirs = expected(record)
        except Exception:  # names that are no UTF-8
            continue
        assert ours == theirs, record
        agreed += 1
    assert agreed > 100


def test_damage(tmp_path: Path) -> None:
    path = tmp_path / "t.tfrecord"
    good = framed(ODD["unpacked numbers"]) + framed(b"hello")
    for size in range(len(good)):
        path.write_bytes(good[:size])
        done = shards.run_dump(path, 5)
        if size in (0, len(framed(ODD["unpacked numbers"]))):
            assert done.returncode == 0
        else:
            assert done.returncode == 1 and b"DATA_LOSS: offset" in done.stderr and b"truncated" in done.stderr
    for at in range(len(good)):
        path.write_bytes(good[:at] + bytes([good[at] ^ 4]) + good[at + 1 :])
        done = shards.run_dump(path)
        assert done.returncode == 1 and b"DATA_LOSS: offset" in done.stderr, done.stderr
    head = struct.pack("<Q", 2**63 - 1)
    path.write_bytes(head + masked(head))
    done = shards.run_dump(path)
    assert done.returncode == 1 and b"INVALID_ARGUMENT: offset 0: a record of 9223372036854775807 bytes" in done.stderr


def test_whole_files_that_are_compressed(tmp_path: Path) -> None:
    import gzip
    import zlib

    for data in (
        gzip.compress(framed(b"x" * 100)),
        zlib.compress(framed(b"x" * 100), 1),
        zlib.compress(framed(b"x" * 100), 9),
    ):
        (tmp_path / "t.tfrecord").write_bytes(data)
        done = shards.run_dump(tmp_path / "t.tfrecord")
        assert done.returncode == 1 and b"compressed as a whole" in done.stderr
