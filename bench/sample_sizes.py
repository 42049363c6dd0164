#!/usr/bin/env python3
"""CPU time of a sample by its size, 128 B to 1 MiB, beside a bound: the same bytes copied twice and decoded.

    bench/sample_sizes.py                  the table; two minutes
    bench/sample_sizes.py --quick          a quarter of the bytes
    bench/sample_sizes.py --json FILE

A sample is an array of bytes (`.npy`) in a tar, which a Loader reads from the page cache and delivers as `fields={"x": Array("npy")}`. The
bound is what no reader can do without: two copies of each byte, from the page cache to memory, and from there to the program. See bench/README.md.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import tarfile
import tempfile
from pathlib import Path

import millrace
import numpy as np

SIZES = (128, 512, 2048, 8192, 32768, 131072, 1048576)
MOST = 100_000  # samples of a data set
EPOCHS = 3


def make(folder: Path, size: int, count: int) -> None:
    random = np.random.default_rng(size)
    with tarfile.open(folder / "0.tar", "w") as archive:
        for number in range(count):
            encoded = io.BytesIO()
            np.save(encoded, random.integers(0, 256, size, dtype=np.uint8))
            entry = tarfile.TarInfo(f"{number:07}.npy")
            entry.size = len(encoded.getvalue())
            archive.addfile(entry, io.BytesIO(encoded.getvalue()))


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def of_loader(folder: Path, batch: int) -> tuple[float, float]:
    """CPU time of a sample in microseconds: of everything, and of that what the program's own thread took."""
    with millrace.Loader(
        str(folder), fields={"x": millrace.Array("npy")}, batch_size=batch, output="numpy", epochs=EPOCHS + 1
    ) as loader:
        for _ in loader:  # in which memory is touched for the first time
            pass
        before, samples = cpu_seconds(), loader.report()["samples"]
        of_thread = resource.getrusage(resource.RUSAGE_THREAD)
        for _ in range(EPOCHS):
            for _ in loader:
                pass
        spent, taken = cpu_seconds() - before, loader.report()["samples"] - samples
        now = resource.getrusage(resource.RUSAGE_THREAD)
        own = now.ru_utime + now.ru_stime - of_thread.ru_utime - of_thread.ru_stime
    return spent / taken * 1e6, own / taken * 1e6


def bound(folder: Path, size: int, count: int) -> tuple[float, float]:
    """Returns microseconds of a sample: of the two copies, and of numpy's decoding of its header in Python."""
    data = bytearray(os.path.getsize(folder / "0.tar"))
    target = np.empty(len(data), dtype=np.uint8)
    file = os.open(folder / "0.tar", os.O_RDONLY)
    best = float("inf")
    for _ in range(EPOCHS + 1):
        before = cpu_seconds()
        at = 0
        while at < len(data):
            at += os.preadv(file, [memoryview(data)[at : at + (1 << 20)]], at)
        np.copyto(target, np.frombuffer(data, dtype=np.uint8))
        best = min(best, cpu_seconds() - before)
    os.close(file)
    encoded = io.BytesIO()
    np.save(encoded, np.zeros(size, dtype=np.uint8))
    before, times = cpu_seconds(), min(count, 2000)
    for _ in range(times):
        np.load(io.BytesIO(encoded.getvalue()), allow_pickle=False)
    return best / count * 1e6, (cpu_seconds() - before) / times * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    most_bytes = (32 if options.quick else 128) << 20
    rows = []
    print("| sample | Millrace | in the program's thread | two copies | times the copies | np.load in Python |")
    print("|---|---|---|---|---|---|")
    for size in SIZES:
        count = max(32, min(MOST, most_bytes // size))
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            make(folder, size, count)
            spent, own = of_loader(folder, max(8, min(256, (4 << 20) // size)))
            copies, decode = bound(folder, size, count)
        rows.append({"bytes": size, "us": spent, "own_us": own, "copies_us": copies, "numpy_us": decode})
        print(
            f"| {size:,} B | {spent:.2f} us | {own:.2f} us | {copies:.2f} us | {spent / copies:.1f} | {decode:.1f} us |",
            flush=True,
        )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
