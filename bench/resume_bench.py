#!/usr/bin/env python3
"""Measures how `millrace feed` resumes in the middle of a data set of a million samples.

It measures the time to the first batch, and the bytes that are fetched until the end of the epoch. It also measures the reads of several ranks that
share extents.

    bench/resume_bench.py                  samples of 128 B, 1 KB and 115 KB, from files and from S3 with 30 ms (ten minutes)
    bench/resume_bench.py --json result.json

Exits 1 when a target is missed: the first batch within 1 s, and no more bytes than those of the samples that are left and one window.

The data are pairs of token files, made once and kept in --cache (1.6 GB): feeding them decodes nothing, so that only the plan, the index
and the fetcher are measured. A million samples of 115 KB would be 115 GB: their 500 shards are hard links of one of 230 MB, which the index,
the plan and the server take for 500 objects. They all lie in the page cache: a real disk would add its own time.
"""

from __future__ import annotations

import argparse
import array
import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

from feed_bench import REPOSITORY, SLOW_MS, devstore, newest, say
from token_files import TOKEN_BYTES, write_idx

SAMPLES = 1_000_000
SIZES = {"128 B": (128, 1), "1 KB": (1024, 1), "115 KB": (115_000, 500)}  # bytes of a sample, and shards
CONSUMED = (1, 250_001, 500_001, 750_001, 999_001)
WORLDS = (1, 2, 3, 6, 8)
FIRST_BATCH_SECONDS = 1.0
READ_AT_ONCE = 4_000_000_000  # more than that is not fetched, but foretold by --explain


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--cache", type=Path, default=REPOSITORY / "build/bench-data", help="where the data are kept (1.6 GB)"
    )
    parser.add_argument("--millrace", type=Path, help="the binary (default: build/release, else the newest build)")
    parser.add_argument("--memory", default="512MiB", help="budget of a feed (default 512MiB)")
    parser.add_argument("--batch", default=128, type=int, help="samples of a batch (default 128)")
    parser.add_argument("--no-worlds", action="store_true", help="leave the table of worlds out")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    options = parser.parse_args()
    options.millrace = options.millrace or newest("millrace")
    if options.millrace is None or not options.millrace.exists():
        parser.error("no millrace binary: build it (cmake --build --preset release), or name it with --millrace")
    options.server_cores = sorted(os.sched_getaffinity(0))
    return options


def write_pair(stem: Path, samples: int, size: int) -> None:
    """Writes sequences of int32, as Megatron's IndexedDataset does."""
    block = os.urandom(size)
    with stem.with_suffix(".bin").open("wb") as out:
        for number in range(samples):
            out.write(struct.pack("<q", number) + block[8:])
    write_idx(stem.with_suffix(".idx"), array.array("i", [size // TOKEN_BYTES]) * samples)


def make_data(cache: Path, size: int, shards: int) -> Path:
    """Returns the folder with `root`, which devstore serves as bucket `b`, and `files`, the same files under another
    name."""
    folder = cache / f"resume-{SAMPLES}-{size}"
    if folder.exists():
        return folder
    say(f"Making a million samples of {size:,} bytes in {folder}, once ...")
    making = cache / f".{folder.name}.{os.getpid()}"
    for place in ("root/b/data", "files"):
        (making / place).mkdir(parents=True)
    write_pair(making / "one", SAMPLES // shards, size)
    for place in ("root/b/data", "files"):
        for shard in range(shards):
            for suffix in (".bin", ".idx"):
                os.link(making / f"one{suffix}", making / place / f"shard-{shard:03}{suffix}")
    making.rename(folder)
    return folder


def feed(options: argparse.Namespace, uri: str, env: dict[str, str] | None, *more: object) -> dict[str, Any]:
    settings = ("--json", "--batch", options.batch, "--memory", options.memory, "--shuffle", "window", "--seed", 1)
    command = [options.millrace, "feed", uri, *map(str, settings), *map(str, more)]
    return json.loads(subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout)


def measure(
    options: argparse.Namespace, place: str, name: str, uri: str, env: dict[str, str] | None
) -> list[dict[str, Any]]:
    subprocess.run([options.millrace, "index", uri], check=True, stdout=subprocess.DEVNULL, env=env)
    size = SIZES[name][0]
    order = feed(options, uri, env, "--explain")["order"]
    results = []
    for consumed in CONSUMED:
        version, epoch, _, fingerprint = order["position"].split("-")
        resume = ("--resume", f"{version}-{epoch}-{consumed}-{fingerprint}")
        first = feed(options, uri, env, *resume, "--stop-after", 1)
        left = (SAMPLES - consumed) * size
        read_it = left <= READ_AT_ONCE
        rest = feed(options, uri, env, *resume) if read_it else feed(options, uri, env, *resume, "--explain")
        bytes_read = rest["bytes_read"] if read_it else rest["expected"]["bytes"]
        bound = left + order["window_bytes"]
        results.append(
            {
                "place": place,
                "samples": name,
                "consumed": consumed,
                "first_batch_seconds": first["first_batch_seconds"] + first["open_seconds"],
                "bytes": bytes_read,
                "fetched": read_it,
                "left": left,
                "bound": bound,
                "requests": rest["requests"]["GET"] if read_it else rest["expected"]["requests"],
                "samples_per_second": rest["samples_per_second"] if read_it else None,
                "met": first["first_batch_seconds"] + first["open_seconds"] <= FIRST_BATCH_SECONDS
                and bytes_read <= bound,
            }
        )
        result = results[-1]
        rate = f"{result['samples_per_second']:12,.0f}" if read_it else f"{'(foretold)':>12}"
        say(
            f"{place:8}{name:>8}{consumed:>10,}{result['first_batch_seconds']:11.2f} s{bytes_read / 1e6:12,.0f}{left / 1e6:12,.0f}"
            f"{bound / 1e6:12,.0f}{result['requests']:10,}{rate}  {'met' if result['met'] else 'MISSED'}"
        )
    return results


def worlds(options: argparse.Namespace, name: str, uri: str, env: dict[str, str]) -> list[dict[str, Any]]:
    results = []
    for world in WORLDS:
        ranks = [
            feed(options, uri, env, "--explain", "--world", world, "--rank", rank)["expected"]
            for rank in sorted({0, world - 1})
        ]
        requests, fetched, wanted = (
            sum(rank[key] for rank in ranks) / len(ranks) * world for key in ("requests", "bytes", "sample_bytes")
        )
        results.append(
            {"samples": name, "world": world, "requests": requests, "bytes": fetched, "amplification": fetched / wanted}
        )
        say(f"{name:>8}{world:>7}{requests:12,.0f}{fetched / 1e6:14,.0f}{fetched / wanted:12.2f}")
    return results


def main() -> int:
    options = parse_arguments()
    resumed: list[dict[str, Any]] = []
    say(
        f"Resuming in a million samples, batch {options.batch}, shuffle window, budget {options.memory}, one process of one rank\n\n"
        f"{'':8}{'samples':>8}{'consumed':>10}{'first batch':>13}{'MB read':>12}{'MB left':>12}{'bound':>12}{'requests':>10}{'samples/s':>12}"
    )
    for name, (size, shards) in SIZES.items():
        folder = make_data(options.cache, size, shards)
        resumed += measure(options, "file", name, str(folder / "files"), None)
        with devstore(options, folder / "root", SLOW_MS) as (_, env):
            resumed += measure(options, f"{SLOW_MS} ms", name, "s3://b/data", env)
    shared: list[dict[str, Any]] = []
    if not options.no_worlds:
        say(
            f"\nAll ranks together, an epoch from S3 (by --explain)\n\n{'samples':>8}{'world':>7}{'requests':>12}{'MB read':>14}{'times':>12}"
        )
        for name, (size, shards) in SIZES.items():
            with devstore(options, make_data(options.cache, size, shards) / "root", 0) as (_, env):
                shared += worlds(options, name, "s3://b/data", env)
    if options.json:
        options.json.write_text(json.dumps({"resumed": resumed, "worlds": shared}, indent=1) + "\n")
    return 0 if all(result["met"] for result in resumed) else 1


if __name__ == "__main__":
    sys.exit(main())
