#!/usr/bin/env python3
"""The first batch of shards that nobody has indexed, from S3 with a first byte after 30 ms: `feed --start staged`, beside WebDataset.

    bench/staged_first_batch.py                             8 and 200 shards of 256 MiB, three rounds
    bench/staged_first_batch.py --shards 8 --rounds 1
    bench/staged_first_batch.py --rival build/rivals/report/bin/python   a Python that has webdataset

Exits 1 when the target is missed: at most 3 seconds, for any number of shards.

The shards are hard links of one file, which is made once and kept in --cache, so they take 256 MiB of the disk. Each round has a bucket
without an index and an empty cache folder.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from feed_bench import SLOW_MS, devstore, say
from first_batch import parse, parser_of, seconds_of_rival

SHARD_BYTES = 256 << 20
PICTURES = 50  # that are different
MOST_SECONDS = 3.0

WEBDATASET = """
import json, sys, time
import webdataset
endpoint, shards, batch = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
start = time.monotonic()
urls = [f"{endpoint}/b/set/{number:04}.tar" for number in range(shards)]
dataset = webdataset.WebDataset(urls, shardshuffle=shards).shuffle(1000).to_tuple("jpg", "cls").batched(batch)
assert len(next(iter(dataset))[0]) == batch
print(json.dumps({"seconds": time.monotonic() - start}))
"""


def parse_arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--shards", type=int, nargs="+", default=[8, 200], help="how many (default 8 and 200)")
    parser.add_argument(
        "--rival",
        type=Path,
        default=Path(sys.executable),
        help="a Python with webdataset (default: this one, if it has it)",
    )
    return parse(parser)


def make_shard(options: argparse.Namespace) -> Path:
    shard: Path = options.cache / "staged-first-batch.tar"
    if shard.exists():
        return shard
    say(f"Making {shard}, once ...")
    options.cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.cache) as folder:
        command = [options.millrace, "synth", folder, "--count", str(PICTURES), "--kb", "110"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        pictures = [path.read_bytes() for path in sorted(Path(folder).rglob("*.jpg"))]
        making = Path(folder) / "shard.tar"
        with tarfile.open(making, "w", format=tarfile.USTAR_FORMAT) as tar:
            number = 0
            while tar.offset < SHARD_BYTES:
                for name, data in (("jpg", pictures[number % PICTURES]), ("cls", str(number % 10).encode())):
                    member = tarfile.TarInfo(f"{number:06}.{name}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
                number += 1
        making.rename(shard)
    return shard


def link_shards(shard: Path, root: Path, count: int) -> None:
    folder = root / "b" / "set"
    folder.mkdir(parents=True)
    for number in range(count):
        os.link(shard, folder / f"{number:04}.tar")


def first_batch(options: argparse.Namespace, root: Path, env: dict[str, str]) -> float:
    shutil.rmtree(root / "b/set/.millrace", ignore_errors=True)
    command = [options.millrace, "feed", "s3://b/set", "--json", "--start", "staged", "--batch", options.batch]
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run(
            [*map(str, command), "--size", "64", "--stop-after", str(options.batch)],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            env={**env, "MILLRACE_CACHE": cache},
        )
    report = json.loads(done.stdout)
    assert report["samples"] == options.batch, report
    seconds: float = report["open_seconds"] + report["first_batch_seconds"]
    return seconds


def webdataset(options: argparse.Namespace, shards: int, endpoint: str) -> float | None:
    command = [options.rival, "-c", WEBDATASET, endpoint, shards, options.batch]
    return seconds_of_rival("WebDataset", command)


def main() -> int:
    options = parse_arguments()
    shard = make_shard(options)
    figures: dict[str, Any] = {}
    for count in options.shards:
        with tempfile.TemporaryDirectory(dir=options.cache) as folder:
            root = Path(folder)
            link_shards(shard, root, count)
            with devstore(options, root, SLOW_MS, "--anonymous") as (_, env):  # WebDataset signs nothing
                ours, rivals = [], []
                for _ in range(options.rounds):
                    ours.append(first_batch(options, root, env))
                    seconds = webdataset(options, count, env["AWS_ENDPOINT_URL"])
                    if seconds is not None:
                        rivals.append(seconds)
        say(f"{count} shards of 256 MiB without an index, first byte after {SLOW_MS} ms, medians of {options.rounds}:")
        say(f"  millrace feed --start staged {statistics.median(ours):7.2f} s   (at most {MOST_SECONDS:.0f} s)")
        if rivals:
            say(f"  WebDataset                   {statistics.median(rivals):7.2f} s")
        figures[str(count)] = {"first_batch": ours, "webdataset": rivals}
    met = all(statistics.median(of["first_batch"]) <= MOST_SECONDS for of in figures.values())
    if options.json:
        options.json.write_text(json.dumps({"batch": options.batch, "met": met, **figures}, indent=2) + "\n")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
