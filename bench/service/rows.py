#!/usr/bin/env python3
"""Rows that were decoded before, 224 x 224 x 3 u8 each: random bytes behind the row's number, so that a batch can be checked.

    build/bench-venv-service/bin/python bench/service/rows.py FOLDER --count 2048

FOLDER gets `rows.bin`, one row behind the other, for the rivals. It gets the same rows in tar shards for Millrace, as `.npy` arrays below `npy` and as
uncompressed `.bmp` images below `bmp`. Existing files stay.
"""

from __future__ import annotations

import argparse
import io
import os
import struct
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

SIZE = 224
SHAPE = (SIZE, SIZE, 3)
ROW_BYTES = SIZE * SIZE * 3
SHARD_ROWS = 64
NUMBER_BYTES = 4

Rows = np.ndarray[Any, np.dtype[np.uint8]]


def make_row(number: int) -> Rows:
    row = np.random.default_rng(number).integers(0, 256, ROW_BYTES, np.uint8)
    row[:NUMBER_BYTES] = np.frombuffer(struct.pack("<I", number), np.uint8)
    return row.reshape(SHAPE)


def open_rows(path: Path | str) -> Rows:
    """[rows, bytes of one], mapped."""
    return np.memmap(path, np.uint8, "r").reshape(-1, ROW_BYTES)


def check(batch: Any, rows: Rows, count: int) -> None:
    """Raises if a batch is not of `count` of these rows, each of them byte by byte."""
    if tuple(batch.shape) != (count, *SHAPE) or batch.dtype != np.uint8:
        raise RuntimeError(f"a batch is {batch.dtype} {tuple(batch.shape)}; expected uint8 {(count, *SHAPE)}")
    flat = np.ascontiguousarray(batch).reshape(count, ROW_BYTES)
    numbers = flat[:, :NUMBER_BYTES].copy().view("<u4")[:, 0]
    if len(set(numbers.tolist())) != count or not np.array_equal(flat, rows[numbers]):
        raise RuntimeError("a batch has rows that are none, or one of them twice")


def npy(row: Rows) -> bytes:
    out = io.BytesIO()
    np.save(out, row)
    return out.getvalue()


def bmp(row: Rows) -> bytes:
    """Rows from bottom to top, blue first; 224 x 3 bytes are a multiple of four."""
    head = struct.pack("<2sIHHI", b"BM", 54 + ROW_BYTES, 0, 0, 54)
    head += struct.pack("<IiiHHIIiiII", 40, SIZE, SIZE, 1, 24, 0, ROW_BYTES, 2835, 2835, 0, 0)
    return head + row[::-1, :, ::-1].tobytes()


def write_shards(folder: Path, count: int, suffix: str, encode: Callable[[Rows], bytes]) -> None:
    making = folder.with_name(f".{folder.name}.{os.getpid()}")
    making.mkdir()
    for begin in range(0, count, SHARD_ROWS):
        with tarfile.open(making / f"{begin:06}.tar", "w") as archive:
            for number in range(begin, min(begin + SHARD_ROWS, count)):
                data = encode(make_row(number))
                member = tarfile.TarInfo(f"{number:06}.{suffix}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    making.rename(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, required=True)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    whole = options.folder / "rows.bin"
    if not whole.exists():
        making = options.folder / f".rows.{os.getpid()}"
        with making.open("wb") as out:
            for number in range(options.count):
                out.write(make_row(number).tobytes())
        making.rename(whole)
    for suffix, encode in (("npy", npy), ("bmp", bmp)):
        if not (options.folder / suffix).exists():
            write_shards(options.folder / suffix, options.count, suffix, encode)
    return 0


if __name__ == "__main__":
    sys.exit(main())
