"""Holds RecordIO against a reader and a writer of their own, written from the specification of dmlc and MXNet: packages of
MXNet no longer install."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import numpy as np
import pytest
import shards

MAGIC = struct.pack("<I", 0xCED7230A)


def part(kind: int, data: bytes) -> bytes:
    return MAGIC + struct.pack("<I", kind << 29 | len(data)) + data + b"\0" * (-len(data) % 4)


def framed(record: bytes) -> bytes:
    """As dmlc's writer does it: cut at each magic that lies at a multiple of four bytes."""
    cuts = [at for at in range(0, len(record) - 3, 4) if record[at : at + 4] == MAGIC]
    if not cuts:
        return part(0, record)
    out, begin = b"", 0
    for n, at in enumerate(cuts):
        out += part(1 if n == 0 else 2, record[begin:at])
        begin = at + 4
    return out + part(3, record[begin:])


def records(shard: bytes) -> list[bytes]:
    """The reader: what `framed` wrote, one after the other."""
    found, at, parts = [], 0, []
    while at < len(shard):
        magic, word = struct.unpack_from("<II", shard, at)
        assert magic == 0xCED7230A
        kind, length = word >> 29, word & (1 << 29) - 1
        parts.append(shard[at + 8 : at + 8 + length])
        at += 8 + (length + 3) // 4 * 4
        if kind in (0, 3):
            found.append(MAGIC.join(parts))
            parts = []
    assert not parts
    return found


def packed(label: float | list[float], data: bytes, number: int = 0) -> bytes:
    """mxnet.recordio.pack."""
    if isinstance(label, list):
        return struct.pack("<IfQQ", len(label), 0, number, 0) + struct.pack(f"<{len(label)}f", *label) + data
    return struct.pack("<IfQQ", 0, label, number, 0) + data


def expected(label: float | list[float], data: bytes) -> dict[str, tuple[str, str]]:
    name = "jpg" if data[:3] == b"\xff\xd8\xff" else "png" if data[:8] == b"\x89PNG\r\n\x1a\n" else "bin"
    fields = {name: shards.value("bytes", data)}
    if isinstance(label, list) and len(label) > 1:
        fields["labels"] = shards.array(np.array(label, np.float32))
    else:
        number = label[0] if isinstance(label, list) else label
        fields["cls"] = shards.value("float", shards.shortest(np.float32(number)))
    return fields


@pytest.mark.parametrize("chunk", [1, 7, 65536])
def test_reads_records_of_mxnet(tmp_path: Path, chunk: int) -> None:
    rng = random.Random(4)
    samples: list[tuple[float | list[float], bytes]] = []
    for n in range(60):
        label: float | list[float] = rng.choice([float(n), -0.5, [3.0], [1.0, 2.5, -7.0]])
        words = (
            [rng.choice([MAGIC, rng.randbytes(4)]) for _ in range(rng.randrange(8))]
            if n % 2
            else [rng.randbytes(rng.randrange(5000))]
        )
        data = rng.choice([b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"", MAGIC]) + b"".join(words) + b"x" * (n % 4)
        samples.append((label, data))
    shard = b"".join(framed(packed(label, data, n)) for n, (label, data) in enumerate(samples))
    assert records(shard) == [packed(label, data, n) for n, (label, data) in enumerate(samples)]
    (tmp_path / "t.rec").write_bytes(shard)
    assert shards.values(tmp_path / "t.rec", chunk) == [expected(label, data) for label, data in samples]


def test_magic_numbers_in_the_header(tmp_path: Path) -> None:
    """As label, among labels, and as the id, which is no field."""
    (odd,) = struct.unpack("<f", MAGIC)
    samples: list[tuple[float | list[float], bytes, int]] = [
        (odd, b"jpeg", 0),
        ([1.0, odd, 2.0], b"jpeg", 0),
        ([odd, odd], MAGIC, 0),
        (3.0, MAGIC + b"jpeg", 0xCED7230A),
        ([odd], MAGIC * 3 + b"x", 0xCED7230A << 32),
    ]
    (tmp_path / "t.rec").write_bytes(b"".join(framed(packed(*sample)) for sample in samples))
    assert shards.values(tmp_path / "t.rec") == [expected(label, data) for label, data, _ in samples]


def test_labels_are_classes_where_they_are_whole_numbers(tmp_path: Path) -> None:
    (tmp_path / "t.rec").write_bytes(b"".join(framed(packed(label, b"x")) for label in (3.0, 0.5, -1.0, [12.0])))
    assert [s["label"] for s in shards.dump(tmp_path / "t.rec")] == ["3", "", "", "12"]


@pytest.mark.parametrize(
    "record", [b"", b"abc", b"some text that is long enough for a header", b"\n\x05hello" * 5], ids=repr
)
def test_records_without_a_header(tmp_path: Path, record: bytes) -> None:
    (tmp_path / "t.rec").write_bytes(framed(record))
    assert shards.values(tmp_path / "t.rec") == [{"bin": shards.value("bytes", record)}]


def test_damage(tmp_path: Path) -> None:
    """Cut or with a bit flipped it is an error, or what the oracle reads; there are no checksums in RecordIO."""
    path = tmp_path / "t.rec"
    data = [packed(3.0, b"abcd" + MAGIC + b"efgh" + MAGIC), packed([1.0, 2.0], b"xyz")]
    shard = b"".join(framed(d) for d in data)
    ends = {0, len(framed(data[0]))}
    for size in range(len(shard)):
        path.write_bytes(shard[:size])
        done = shards.run_dump(path, 5)
        assert (done.returncode == 0) == (size in ends), done.stderr
        assert size in ends or b"DATA_LOSS: offset" in done.stderr
    rng = random.Random(6)
    for _ in range(300):
        at = rng.randrange(len(shard))
        path.write_bytes(shard[:at] + bytes([shard[at] ^ 1 << rng.randrange(8)]) + shard[at + 1 :])
        done = shards.run_dump(path)
        assert done.returncode == 0 or b"offset" in done.stderr, done.stderr
