#!/usr/bin/env python3
"""Compares the predictions of `millrace advise` with measured times: start-up within 10 %, an epoch within 15 %, from devstore at 30 and 150 ms.

    ```
    bench/advise_check.py                 2,000 JPEGs of 20 KB, seven repeats: some minutes on a machine that does nothing else
    bench/advise_check.py --quick         500 JPEGs, one repeat: shows that everything works
    bench/advise_check.py --json FILE
    ```

It measures reading by streaming (`millrace feed`) of raw objects and shards: from an empty cache folder to the first batch, and from there to the end of
the epoch. It also measures File mode's start-up: a copy of all samples by `millrace cp`, then the first batch from the disk. The start of a process is not
part of it, and there is no model. The median of the repeats counts. The table also shows the minimum, the maximum, and whether the median is within the
range that `advise` gives. The program exits with 1 if a prediction is off by more than is allowed (never with --quick).
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "scale"))

from check import devstore

REPOSITORY = Path(__file__).resolve().parents[1]
BATCH = 128
START_UP, EPOCH = 0.10, 0.15


@dataclass
class Row:
    place: str
    what: str
    predicted: float
    measured: list[float]
    bound: float
    said: list[float] | None = None  # the range of the prediction

    @property
    def ratio(self) -> float:
        return self.predicted / statistics.median(self.measured)

    @property
    def met(self) -> bool:
        return abs(self.ratio - 1) <= self.bound

    def print(self) -> None:
        spread = f"({min(self.measured):.2f} to {max(self.measured):.2f})"
        verdict = "met" if self.met else "MISSED"
        if self.said is not None:
            verdict += f"   (said: {self.said[0]:.2f} to {self.said[1]:.2f} s)"
        print(
            f"{self.place:18}{self.what:22}{self.predicted:8.2f} s{statistics.median(self.measured):8.2f} s {spread:18}{self.ratio:6.2f}   {verdict}",
            flush=True,
        )


class Bench:
    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.millrace = options.build / "millrace"
        self.count = 500 if options.quick else 2000
        self.repeats = 1 if options.quick else 7
        self.folder = folder
        self.rows: list[Row] = []

    def run(self, env: dict[str, str], *arguments: object) -> str:
        done = subprocess.run(
            [self.millrace, *map(str, arguments)], env=env, stdout=subprocess.PIPE, text=True, check=True, timeout=600
        )
        return done.stdout

    def fresh(self, env: dict[str, str]) -> dict[str, str]:
        """Runs a command with an empty cache folder."""
        cache = self.folder / "cache"
        shutil.rmtree(cache, ignore_errors=True)
        return {**env, "MILLRACE_CACHE": str(cache)}

    def add(
        self, place: str, what: str, prediction: dict[str, Any], of: str, measured: list[float], bound: float
    ) -> None:
        self.rows.append(Row(place, what, prediction[f"{of}_seconds"], measured, bound, prediction[f"{of}_range"]))
        self.rows[-1].print()

    def measure(self, first_byte_ms: int) -> None:
        with devstore(self.millrace, "mem:", ["--bucket", "b", "--first-byte-ms", str(first_byte_ms)]) as env:
            self.run(self.fresh(env), "synth", "s3://b/raw", "--count", self.count, "--kb", 20)
            self.run(self.fresh(env), "pack", "s3://b/raw", "s3://b/tar", "--shard-size", "8MiB")
            for kind in ("raw", "tar"):
                self.run(self.fresh(env), "index", f"s3://b/{kind}")
                self.measure_data(env, f"{kind}, {first_byte_ms} ms", f"s3://b/{kind}")

    def measure_data(self, env: dict[str, str], place: str, uri: str) -> None:
        advice = json.loads(self.run(self.fresh(env), "advise", uri, "--json", "--epochs", 1))
        predictions: dict[str, Any] = {one["mode"]: one for one in advice["predictions"]}
        feed = ("feed", uri, "--augment", "--batch", BATCH, "--json")
        starts, epochs = [], []
        for _ in range(self.repeats):
            fed = json.loads(self.run(self.fresh(env), *feed))
            starts.append(fed["open_seconds"] + fed["first_batch_seconds"])
            epochs.append(fed["seconds"] - fed["first_batch_seconds"])
        self.add(place, "streaming, start-up", predictions["streaming"], "startup", starts, START_UP)
        self.add(place, "streaming, epoch", predictions["streaming"], "epoch", epochs, EPOCH)
        files = [self.file_mode(env, uri) for _ in range(self.repeats)]
        self.add(place, "File mode, start-up", predictions["file"], "startup", files, START_UP)

    def file_mode(self, env: dict[str, str], uri: str) -> float:
        copy = self.folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        copied = json.loads(
            self.run(self.fresh(env), "cp", "--recursive", uri, copy, "--exclude", ".millrace/*", "--json")
        )
        first = json.loads(
            self.run(self.fresh(env), "feed", copy, "--stop-after", 1, "--augment", "--batch", BATCH, "--json")
        )
        seconds: float = copied["seconds"] + first["first_batch_seconds"]
        return seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--build", type=Path, default=REPOSITORY / "build/release/bin", help="the binaries (default: build/release/bin)"
    )
    parser.add_argument("--quick", action="store_true", help="less of everything")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all rows there")
    options = parser.parse_args()
    if not (options.build / "millrace").exists():
        parser.error(f"{options.build / 'millrace'} is missing: cmake --build --preset release --target millrace")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the server ends and the folder goes
    print(f"{'':18}{'':22}{'predicted':>10}{'measured':>10} {'':18}{'ratio':>6}", flush=True)
    with tempfile.TemporaryDirectory(prefix="millrace-advise-") as folder:
        bench = Bench(options, Path(folder))
        for first_byte_ms in (30, 150):
            bench.measure(first_byte_ms)
    if options.json:
        options.json.write_text(
            json.dumps([{**vars(row), "ratio": row.ratio, "met": row.met} for row in bench.rows], indent=1) + "\n"
        )
    if options.quick:
        print("(a quick run: the figures show that everything works, no more)")
    return 0 if options.quick or all(row.met for row in bench.rows) else 1


if __name__ == "__main__":
    sys.exit(main())
