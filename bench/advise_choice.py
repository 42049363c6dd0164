#!/usr/bin/env python3
"""The way to read that `millrace advise` chooses, beside a stopwatch for each way, and beside AWS's decision flow: three data sets, first bytes after 30 ms.

    bench/advise_choice.py                 five repeats: some minutes on a quiet machine
    bench/advise_choice.py --quick         one repeat, less data, to show that it works
    bench/advise_choice.py --json FILE

The data sets are small files, the same in shards of 8 MiB, and shards of more than 50 MB. Three epochs of each are predicted and measured, from an empty cache folder to the last
batch. No model runs. The ways are

- streaming: `millrace feed`;
- streaming with a cache;
- File mode: a copy by `millrace cp`, then a feed from the disk;
- FastFile mode: `millrace mount`, and a feed over the mounted folder. Without FUSE it is left out. A feed reads a folder with eight threads, each of which waits
  for its file, so `advise` predicts FastFile mode for `--workers 8`. One epoch is measured and counted three times: the kernel's page cache would serve the others.

Exits 1 if the chosen way takes over 10 % longer than the fastest that was measured (never with --quick).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "scale"))

from check import devstore

REPOSITORY = Path(__file__).resolve().parents[1]
BATCH, EPOCHS = 128, 3
FOLDER_READERS = 8  # threads of src/store/file_store.h, by which a feed reads a folder
TOLERANCE = 0.10
VCPUS = len(os.sched_getaffinity(0))
MACHINE = "this"  # of the price list that is used: the machine here, at a dollar an hour


@dataclass
class Choice:
    """A data set: what was said of it, and what was measured, in seconds of all epochs."""

    data: str
    answer: list[str]
    chosen: str
    equal: list[str]
    flow: str
    predicted: dict[str, float]
    measured: dict[str, float]

    @property
    def taken(self) -> str:
        """Returns the chosen way, or if it was not measured, that with the least predicted time of those that were."""
        if self.chosen in self.measured:
            return self.chosen
        return min(self.measured, key=lambda mode: self.predicted[mode])

    @property
    def lost(self) -> float:
        """Returns how much longer that takes than the fastest."""
        return self.measured[self.taken] / min(self.measured.values()) - 1

    def print(self) -> None:
        print(f"\n{self.data}\n  " + "\n  ".join(self.answer))
        for mode, seconds in sorted(self.measured.items(), key=lambda item: item[1]):
            print(f"    {mode:18} predicted {self.predicted[mode]:8.2f} s   measured {seconds:8.2f} s")
        print(f"  AWS's flow: {self.flow}. The answer's way takes {self.lost:.0%} longer than the fastest.", flush=True)


class Bench:
    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.millrace = options.build / "millrace"
        self.small = 300 if options.quick else 2000
        self.repeats = 1 if options.quick else 5
        self.folder = folder
        prices = json.loads((REPOSITORY / "src/diagnose/prices.json").read_text())
        prices["machines"] = [{"name": MACHINE, "vcpus": VCPUS, "gpus": 0, "dollars_per_hour": 1.0}]
        self.prices = folder / "prices.json"
        self.prices.write_text(json.dumps(prices))

    def run(self, env: dict[str, str], *arguments: object) -> str:
        done = subprocess.run(
            [self.millrace, *map(str, arguments)], env=env, stdout=subprocess.PIPE, text=True, check=True, timeout=1800
        )
        return done.stdout

    def fresh(self, env: dict[str, str]) -> dict[str, str]:
        """Runs a command with an empty cache folder."""
        cache = self.folder / "cache"
        shutil.rmtree(cache, ignore_errors=True)
        return {**env, "MILLRACE_CACHE": str(cache)}

    def feed(self, env: dict[str, str], uri: object, *arguments: object, epochs: int = EPOCHS) -> float:
        """The seconds of all epochs, also if fewer were run."""
        words = ("--epochs", epochs, "--augment", "--batch", BATCH, "--json", *arguments)
        fed = json.loads(self.run(env, "feed", uri, *words))
        seconds: float = fed["open_seconds"] + fed["seconds"] * EPOCHS / epochs
        return seconds

    def streaming(self, env: dict[str, str], uri: str) -> float:
        return self.feed(self.fresh(env), uri)

    def streaming_cache(self, env: dict[str, str], uri: str) -> float:
        kept = self.folder / "kept"
        shutil.rmtree(kept, ignore_errors=True)
        return self.feed(self.fresh(env), uri, "--cache", kept)

    def file_mode(self, env: dict[str, str], uri: str) -> float:
        copy = self.folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        words = ("cp", "--recursive", uri, copy, "--exclude", ".millrace/*", "--json")
        copied: float = json.loads(self.run(self.fresh(env), *words))["seconds"]
        return copied + self.feed(self.fresh(env), copy)

    def fastfile_mode(self, env: dict[str, str], uri: str) -> float:
        with self.mounted(self.fresh(env), uri) as place:
            return self.feed(self.fresh(env), place, epochs=1)

    @contextlib.contextmanager
    def mounted(self, env: dict[str, str], uri: str) -> Iterator[Path]:
        place = self.folder / "mount"
        place.mkdir(exist_ok=True)
        words = ("--metadata-ttl", "indefinite", "--foreground")  # names are listed once, as in FastFile mode
        mount = subprocess.Popen([self.millrace, "mount", uri, place, *words], env=env)
        try:
            while not place.is_mount():
                if mount.poll() is not None:
                    raise RuntimeError(f"the mount has ended with status {mount.returncode}")
                time.sleep(0.05)
            yield place
        finally:
            mount.send_signal(signal.SIGTERM)
            mount.wait(120)

    def measure(self, env: dict[str, str], data: str, uri: str) -> Choice:
        self.run(self.fresh(env), "index", uri)
        of_mounts = ("--workers", FOLDER_READERS)
        words = ("--json", "--epochs", EPOCHS, "--machine", MACHINE, "--prices", self.prices, *of_mounts)
        advice: dict[str, Any] = json.loads(self.run(self.fresh(env), "advise", uri, *words))
        ways = {"streaming": self.streaming, "streaming-cache": self.streaming_cache, "file": self.file_mode}
        if os.access("/dev/fuse", os.R_OK | os.W_OK) and shutil.which("fusermount3"):
            ways["fastfile"] = self.fastfile_mode
        taken: dict[str, list[float]] = {mode: [] for mode in ways}
        for _ in range(self.repeats):  # in turns, so that other work on the machine meets all of them
            for mode, way in ways.items():
                taken[mode].append(way(env, uri))
        predicted = {
            one["mode"]: one["startup_seconds"] + one["epoch_seconds"] + (EPOCHS - 1) * one["later_epoch_seconds"]
            for one in advice["predictions"]
        }
        said = advice["recommendation"]
        measured = {mode: statistics.median(each) for mode, each in taken.items()}
        choice = Choice(
            data, advice["answer"], said["mode"], said["no_difference"], advice["flow"]["source"], predicted, measured
        )
        choice.print()
        return choice

    def measure_all(self) -> Iterator[Choice]:
        with devstore(self.millrace, "mem:", ["--bucket", "b", "--first-byte-ms", "30"]) as env:
            self.run(self.fresh(env), "synth", "s3://b/files", "--count", self.small, "--kb", 20)
            yield self.measure(env, f"{self.small} files of 20 KB", "s3://b/files")
            self.run(self.fresh(env), "pack", "s3://b/files", "s3://b/shards", "--shard-size", "8MiB")
            yield self.measure(env, "the same in shards of 8 MiB", "s3://b/shards")
            self.run(self.fresh(env), "synth", "s3://b/more", "--count", 1080, "--kb", 115)
            self.run(self.fresh(env), "pack", "s3://b/more", "s3://b/large", "--shard-size", "64MiB")
            yield self.measure(env, "1,080 images of 115 KB in shards of 64 MiB", "s3://b/large")


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
    with tempfile.TemporaryDirectory(prefix="millrace-advise-") as folder:
        choices = list(Bench(options, Path(folder)).measure_all())
    if options.json:
        rows = [{**asdict(one), "taken": one.taken, "lost": one.lost} for one in choices]
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    if options.quick:
        print("(a quick run: the figures show that everything works, no more)")
    return 0 if options.quick or all(one.lost <= TOLERANCE for one in choices) else 1


if __name__ == "__main__":
    sys.exit(main())
