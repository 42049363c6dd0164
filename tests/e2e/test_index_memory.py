"""Building an index takes the memory it was given, whatever the data."""

from __future__ import annotations

import io
import struct
import tarfile
from pathlib import Path

import pytest

from .harness import MIB, Sandbox, devstore

BUDGET = 64 * MIB
PROGRAM = 56 * MIB  # code, stacks, lists of objects, and what the allocator keeps of freed memory


def tar_shard(path: Path, sizes: list[int]) -> None:
    """Makes a shard of samples with a field of that many zeros, which take no disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as out:
        for number, size in enumerate(sizes):
            member = tarfile.TarInfo(f"{path.stem}-{number}.bin")
            member.size = size
            out.write(member.tobuf(tarfile.USTAR_FORMAT))
            out.seek(-(-size // 512) * 512, io.SEEK_CUR)
        out.write(bytes(1024))


def shards(folder: Path, count: int) -> Path:
    """Makes shards of 40 MB and more, all of different sizes, so that their last pieces differ, too."""
    for number in range(count):
        tar_shard(folder / f"{number:03}.tar", [40_000_000 + 1_234_567 * (number % 7), 300_000])
    return folder


def indexed(sandbox: Sandbox, uri: object, *more: object, budget: int = BUDGET, **how: object) -> int:
    for _ in range(5):
        result = sandbox.ok(
            "index", uri, "--memory", budget, "--json", "--full", *more, watch_rss=True, timeout=300, **how
        )
        if result.peak_rss > 0:
            return result.peak_rss
    raise AssertionError(f"too fast to be watched: {result}")


def test_it_does_not_grow_with_the_data(tmp_path: Path, sandbox: Sandbox) -> None:
    small = indexed(sandbox, shards(tmp_path / "small", 4))
    large = indexed(sandbox, shards(tmp_path / "large", 40))
    assert large <= BUDGET + PROGRAM, f"{large / MIB:.0f} MiB"
    assert large <= small + 8 * MIB, f"{small / MIB:.0f} MiB, and {large / MIB:.0f} of ten times as much"


def test_nor_with_data_on_s3(tmp_path: Path, sandbox: Sandbox) -> None:
    shards(tmp_path / "root" / "b" / "data", 20)
    with devstore(sandbox, tmp_path / "root") as server:
        peak = indexed(sandbox, "s3://b/data", env=server.env())
    assert peak <= BUDGET + PROGRAM, f"{peak / MIB:.0f} MiB"


@pytest.mark.all
def test_ten_million_samples_take_a_byte_each_at_most(tmp_path: Path, sandbox: Sandbox) -> None:
    peaks = []
    for samples in (1_000_000, 10_000_000):
        array = tmp_path / f"{samples}" / "tokens.bin"
        array.parent.mkdir()
        array.write_bytes(bytes(2 * samples))
        peaks.append(indexed(sandbox, array.parent, "--tokens", "1:uint16", budget=4 * MIB))
    assert peaks[1] - peaks[0] <= 9 * MIB, peaks


def tfrecord(path: Path, size: int) -> None:
    """A shard with one record of zeros, which has the checksums of one with another length: it ends where they are looked at."""
    path.parent.mkdir(parents=True, exist_ok=True)
    head = struct.pack("<Q", size)
    with path.open("wb") as out:
        out.write(head + struct.pack("<I", masked_crc32c(head)))
        out.seek(size + 4, io.SEEK_CUR)
        out.truncate()


def masked_crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def test_a_record_that_does_not_fit_is_an_error(tmp_path: Path, sandbox: Sandbox) -> None:
    """It has to be held whole until its checksum is known."""
    tfrecord(tmp_path / "data" / "one.tfrecord", 400 * MIB)
    result = sandbox.run("index", tmp_path / "data", "--memory", "64MiB", watch_rss=True)
    result.failed(1, r"one\.tfrecord", "memory", "raise the limit")
    assert result.peak_rss <= BUDGET + PROGRAM
    result = sandbox.run("index", tmp_path / "data", "--memory", "2GiB", watch_rss=True)
    result.failed(1, "do not have their checksum")


@pytest.mark.parametrize("kind", ["csv", "jsonl", "manifest"])
def test_rows_of_manifests_are_paid_for(tmp_path: Path, sandbox: Sandbox, kind: str) -> None:
    """None of the objects is there, which shows once all has been read."""
    name = "{:012}.jpg"
    rows = {
        "csv": "path,label,weight\n" + "".join(f"{name.format(i)},{i % 1000},{i}\n" for i in range(200_000)),
        "jsonl": "".join(f'{{"path": "{name.format(i)}", "label": {i % 1000}}}\n' for i in range(200_000)),
        "manifest": '[{"prefix": "'
        + str(tmp_path)
        + '/"}'
        + "".join(f', "{name.format(i)}"' for i in range(200_000))
        + "]",
    }[kind]
    manifest = tmp_path / f"list.{kind}"
    manifest.write_text(rows)
    needs = len(rows) + 200_000 * 64
    result = sandbox.run("index", manifest, "--memory", needs, watch_rss=True)
    result.failed(1, r"000000000000\.jpg", "not (there|found)|no such")
    assert result.peak_rss <= needs + PROGRAM
    sandbox.run("index", manifest, "--memory", len(rows) + MIB).failed(1, f"list.{kind}", "memory")
