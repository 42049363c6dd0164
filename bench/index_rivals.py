#!/usr/bin/env python3
"""The samples of index_bench in other forms: what they take on disk, and how long it takes to write, open and look up.

    bench/index_rivals.py [SAMPLES]        1,000,000; needs numpy

`sqlite`: a table with the sample's number as its key, which is what most home-made indexes are. `arrays`: columns of
fixed width in .npy files, mapped; no keys, no names, no checks: the least work that a lookup can be in Python.
`json lines`: a line a sample, all of it read when it is opened.
"""

from __future__ import annotations

import json
import random
import resource
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

SHARD_SAMPLES = 2000
MOST_LOOKUPS = 200_000

Row = tuple[
    int, str, int, int, int, int, int, int, int
]  # number, key, shard, jpg: offset, bytes; cls: offset, bytes; class, CRC


def rows(samples: int) -> Iterator[Row]:
    rng = random.Random(1)
    offset = 0
    for number in range(samples):
        if number % SHARD_SAMPLES == 0:
            offset = 0
        label, jpeg = rng.randrange(1000), rng.randrange(60_000, 170_000)
        cls = offset + 1024 + -(-jpeg // 512) * 512
        yield (
            number,
            f"{number:09}",
            number // SHARD_SAMPLES,
            offset + 512,
            jpeg,
            cls,
            len(str(label)),
            label,
            rng.getrandbits(32),
        )
        offset = cls + 512


def write_sqlite(samples: int, path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA synchronous=OFF")
        columns = "key TEXT, shard INT, jpg INT, jpg_bytes INT, cls INT, cls_bytes INT, class INT, crc INT"
        db.execute(f"CREATE TABLE samples (number INTEGER PRIMARY KEY, {columns})")
        db.executemany("INSERT INTO samples VALUES (?,?,?,?,?,?,?,?,?)", rows(samples))


def open_sqlite(path: Path) -> Callable[[int], object]:
    db = sqlite3.connect(path)
    return lambda number: db.execute("SELECT * FROM samples WHERE number=?", (number,)).fetchone()


TYPES = np.dtype(
    [
        ("shard", "u4"),
        ("jpg", "u8"),
        ("jpg_bytes", "u4"),
        ("cls", "u8"),
        ("cls_bytes", "u4"),
        ("class", "u4"),
        ("crc", "u4"),
    ]
)


def write_arrays(samples: int, path: Path) -> None:
    array = np.lib.format.open_memmap(path, mode="w+", dtype=TYPES, shape=(samples,))
    chunk = []
    for row in rows(samples):
        chunk.append(row[2:])
        if len(chunk) == SHARD_SAMPLES or row[0] == samples - 1:
            array[row[0] + 1 - len(chunk) : row[0] + 1] = chunk
            chunk.clear()
    array.flush()


def open_arrays(path: Path) -> Callable[[int], object]:
    array = np.load(path, mmap_mode="r")
    return lambda number: array[number].item()


def write_json(samples: int, path: Path) -> None:
    with path.open("w") as out:
        for row in rows(samples):
            out.write(json.dumps(row[1:]) + "\n")


def open_json(path: Path) -> Callable[[int], object]:
    with path.open() as lines:
        entries = [json.loads(line) for line in lines]
    return entries.__getitem__


def main() -> None:
    samples = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    forms = {
        "arrays": (write_arrays, open_arrays),
        "sqlite": (write_sqlite, open_sqlite),
        "json lines": (write_json, open_json),
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, (write, open_it) in forms.items():
            path = Path(folder) / name.replace(" ", "-")
            began = time.perf_counter()
            write(samples, path)
            written = time.perf_counter()
            look_up = open_it(path)
            opened = time.perf_counter()
            rng = random.Random(2)
            wanted = [rng.randrange(samples) for _ in range(min(samples, MOST_LOOKUPS))]
            looking = time.perf_counter()
            for number in wanted:
                look_up(number)
            done = time.perf_counter()
            size = path.stat().st_size
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(
                f"{name}: {size / 1e6:.1f} MB, {size / samples:.1f} bytes a sample, written at {(written - began) / samples * 1e9:.0f} ns a sample, "
                f"opened in {(opened - written) * 1e6:.0f} us, random lookup {(done - looking) / len(wanted) * 1e9:.0f} ns, peak RSS so far {peak:.0f} MiB"
            )
            path.unlink()


if __name__ == "__main__":
    main()
