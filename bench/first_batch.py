#!/usr/bin/env python3
"""Measures the first batch of raw objects that nobody has indexed, from S3 with a first byte after 30 ms: beside the
listing alone, and beside Amazon's S3 Connector for PyTorch.

    bench/first_batch.py                                    100,000 objects, three rounds
    bench/first_batch.py --count 10000 --rounds 1
    bench/first_batch.py --connector build/rivals/report/bin/python   a Python that has s3torchconnector and torch

Exits 1 when a target is missed: at most twice the time of `millrace ls -r` and one second, and no GET but those of the batch.

The objects are small JPEGs, hard links of a few files, which are made once and kept in --cache. Each round has a bucket without an index
and an empty cache folder. One round is: `ls -r`, Millrace, S3 Connector.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from feed_bench import REPOSITORY, SLOW_MS, devstore, newest, say

CLASSES = 100
PICTURES = 50  # that are different
EXTRA_SECONDS = 1.0
AGAINST_LISTING = 2.0

CONNECTOR = """
import json, sys, time
import torch
from s3torchconnector import S3MapDataset
uri, endpoint, batch = sys.argv[1], sys.argv[2], int(sys.argv[3])
start = time.monotonic()
dataset = S3MapDataset.from_prefix(uri, region="us-east-1", endpoint=endpoint, transform=lambda object: object.read())
loader = torch.utils.data.DataLoader(dataset, batch_size=batch, collate_fn=list)
assert len(next(iter(loader))) == batch
print(json.dumps({"seconds": time.monotonic() - start}))
"""


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """Returns the options of both benchmarks of the first batch."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=128, help="samples of a batch (default 128)")
    parser.add_argument("--rounds", type=int, default=3, help="of which the median counts (default 3)")
    parser.add_argument("--cache", type=Path, default=REPOSITORY / "build/bench-data", help="where the data are kept")
    parser.add_argument("--millrace", type=Path, help="the binary (default: build/release, else the newest build)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    return parser


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    options = parser.parse_args()
    options.millrace = options.millrace or newest("millrace")
    if options.millrace is None or not options.millrace.exists():
        parser.error("no millrace binary: build it (cmake --build --preset release), or name it with --millrace")
    options.server_cores = sorted(os.sched_getaffinity(0))
    return options


def seconds_of_rival(name: str, command: list[Any], env: dict[str, str] | None = None) -> float | None:
    """Returns the seconds that the rival's program prints. If it fails, a line says so, and there are none."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, env=env)
    if done.returncode == 0:
        seconds: float = json.loads(done.stdout)["seconds"]
        return seconds
    say(f"{name} is left out: {(done.stderr.strip().splitlines() or ['it failed'])[-1]}")
    return None


def parse_arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--count", type=int, default=100_000, help="objects (default 100000)")
    parser.add_argument(
        "--connector",
        type=Path,
        default=Path(sys.executable),
        help="a Python with s3torchconnector (default: this one, if it has it)",
    )
    return parse(parser)


def make_data(options: argparse.Namespace) -> Path:
    """Returns the folder that devstore serves, with the bucket `b`."""
    folder: Path = options.cache / f"first-batch-{options.count}"
    if folder.exists():
        return folder
    say(f"Making {options.count:,} objects in {folder}, once ...")
    making = options.cache / f".{folder.name}.{os.getpid()}"
    raw = making / "b" / "raw"
    command = [options.millrace, "synth", making / "pictures", "--count", str(PICTURES), "--kb", "4"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    pictures = sorted((making / "pictures").rglob("*.jpg"))
    for number in range(options.count):
        name = raw / f"class-{number % CLASSES:02}" / f"{number:07}.jpg"
        if number < CLASSES:
            name.parent.mkdir(parents=True)
        os.link(pictures[number % len(pictures)], name)
    shutil.rmtree(making / "pictures", ignore_errors=True)
    making.rename(folder)
    return folder


def time_of(command: list[Any], env: dict[str, str]) -> float:
    start = time.monotonic()
    subprocess.run([*map(str, command)], check=True, stdout=subprocess.DEVNULL, env=env)
    return time.monotonic() - start


def first_batch(options: argparse.Namespace, root: Path, env: dict[str, str]) -> dict[str, Any]:
    shutil.rmtree(root / "b/raw/.millrace", ignore_errors=True)
    order = ["--shuffle", "none", "--where", f"samples=0-{options.batch - 1}"]  # no batch but the first
    command = [options.millrace, "feed", "s3://b/raw", "--json", "--batch", options.batch, "--size", 64, *order]
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run(
            [*map(str, command)], check=True, stdout=subprocess.PIPE, text=True, env={**env, "MILLRACE_CACHE": cache}
        )
    report = json.loads(done.stdout)
    assert report["samples"] == options.batch, report
    return {
        "seconds": report["open_seconds"] + report["first_batch_seconds"],
        "gets": report["requests"]["GET"],
        "lists": report["requests"].get("LIST"),
    }


def connector(options: argparse.Namespace, env: dict[str, str]) -> float | None:
    command = [options.connector, "-c", CONNECTOR, "s3://b/raw", env["AWS_ENDPOINT_URL"], options.batch]
    return seconds_of_rival("S3 Connector", command, env)


def main() -> int:
    options = parse_arguments()
    root = make_data(options)
    listings, batches, rivals = [], [], []
    with devstore(options, root, SLOW_MS) as (_, env):
        time_of([options.millrace, "ls", "-r", "s3://b/raw"], env)  # so that the server knows its files
        for _ in range(options.rounds):
            listings.append(time_of([options.millrace, "ls", "-r", "s3://b/raw"], env))
            batches.append(first_batch(options, root, env))
            seconds = connector(options, env)
            if seconds is not None:
                rivals.append(seconds)
    listing = statistics.median(listings)
    first = statistics.median(one["seconds"] for one in batches)
    gets = max(one["gets"] for one in batches)
    bound = AGAINST_LISTING * listing + EXTRA_SECONDS
    say(f"{options.count:,} raw objects without an index, first byte after {SLOW_MS} ms, medians of {options.rounds}:")
    say(f"  millrace ls -r               {listing:7.2f} s")
    say(f"  first batch of {options.batch:<4}          {first:7.2f} s   (at most {bound:.2f} s), {gets} GETs")
    if rivals:
        say(f"  S3 Connector for PyTorch     {statistics.median(rivals):7.2f} s")
    met = first <= bound and gets <= options.batch
    if options.json:
        figures = {"listing": listings, "first_batch": batches, "connector": rivals, "bound": bound, "met": met}
        options.json.write_text(
            json.dumps({"count": options.count, "batch": options.batch, **figures}, indent=2) + "\n"
        )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
