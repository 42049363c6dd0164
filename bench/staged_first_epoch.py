#!/usr/bin/env python3
"""Measures the first epoch of shards that nobody has indexed, from S3 with a first byte after 30 ms: staged, beside
indexing and an indexed epoch.

    bench/staged_first_epoch.py                             six shards of 256 MiB, three rounds
    bench/staged_first_epoch.py --shards 12 --rounds 1 --threads 2

Exits 1 when a target is missed. Without a cache, a staged epoch takes at most 1.1 times as long as `millrace index` and an indexed epoch
together. With an empty cache on a disk, it takes at most 1.1 times as long as an indexed epoch with an empty cache, whose index exists. Both hold
if decoding limits, and not the network: the program says what limited the indexed epoch. CPU-seconds of the processes stand beside: other programs
change the times, and hardly these.

The shards are those of bench/staged_first_batch.py. Each run has an empty cache, and what it has read is removed from the cache folder.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from feed_bench import SLOW_MS, devstore, say
from first_batch import parse, parser_of
from staged_first_batch import link_shards, make_shard

MOST = 1.1


def parse_arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--shards", type=int, default=6, help="how many (default 6)")
    parser.add_argument("--threads", type=int, default=0, help="that decode (default: all CPUs)")
    return parse(parser)


class Cost(NamedTuple):
    """Represents the cost of a process, from its start to its end."""

    seconds: float
    cpu_seconds: float


class Rounds:
    """Represents the runs over one bucket, each with an empty cache folder, and with an index or without one."""

    def __init__(self, options: argparse.Namespace, root: Path, env: dict[str, str]) -> None:
        self._options = options
        self._artifacts = root / "b/set/.millrace"
        self._env = env

    def index(self) -> Cost:
        """Returns the time of `millrace index`."""
        self._forget()
        with tempfile.TemporaryDirectory() as folder:
            return self._run(["index", "s3://b/set"], folder)[1]

    def epoch(self, start: str, with_cache: bool) -> tuple[dict[str, Any], Cost]:
        """Returns the report of `feed`, and its cost. A staged epoch begins without an index, an indexed one with
        it."""
        if start == "staged":
            self._forget()
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory(dir=self._options.cache) as cache:
            command = ["feed", "s3://b/set", "--json", "--start", start, "--batch", self._options.batch]
            command += ["--threads", self._options.threads] if self._options.threads else []
            command += ["--cache", cache] if with_cache else []
            printed, cost = self._run(command, folder)
            return json.loads(printed), cost

    def _forget(self) -> None:
        shutil.rmtree(self._artifacts, ignore_errors=True)

    def _run(self, command: Iterable[object], folder: str) -> tuple[str, Cost]:
        env = {**self._env, "MILLRACE_CACHE": folder}
        start, cpu = time.monotonic(), _cpu_seconds()
        printed = subprocess.run(
            [str(self._options.millrace), *map(str, command)], check=True, stdout=subprocess.PIPE, text=True, env=env
        ).stdout
        return printed, Cost(time.monotonic() - start, _cpu_seconds() - cpu)


def _cpu_seconds() -> float:
    """Returns the CPU-seconds of processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    options = parse_arguments()
    shard = make_shard(options)
    figures: dict[str, list[Cost]] = {
        "index": [],
        "indexed": [],
        "staged": [],
        "indexed, cache": [],
        "staged, cache": [],
    }
    limits = set()
    with tempfile.TemporaryDirectory(dir=options.cache) as folder:
        root = Path(folder)
        link_shards(shard, root, options.shards)
        with devstore(options, root, SLOW_MS) as (_, env):
            rounds = Rounds(options, root, env)
            for _ in range(options.rounds):
                figures["index"].append(rounds.index())
                for name, with_cache in (("", False), (", cache", True)):
                    for start in ("indexed", "staged"):
                        report, cost = rounds.epoch(start, with_cache)
                        figures[start + name].append(cost)
                        if start == "indexed":
                            limits.add(report["bottleneck"])
    medians = {
        name: Cost(*(statistics.median(one) for one in zip(*costs, strict=True))) for name, costs in figures.items()
    }
    say(f"{options.shards} shards of 256 MiB, first byte after {SLOW_MS} ms, medians of {options.rounds}:")
    for name, cost in medians.items():
        say(f"  {name:<16} {cost.seconds:7.2f} s {cost.cpu_seconds:8.2f} CPU-s")
    shares = {
        name: tuple(staged / bound for staged, bound in zip(medians[of], bounds, strict=True))
        for name, of, bounds in (
            ("without a cache", "staged", map(sum, zip(medians["index"], medians["indexed"], strict=True))),
            ("with a cache", "staged, cache", medians["indexed, cache"]),
        )
    }
    for name, (seconds, cpu) in shares.items():
        say(f"  staged {name}: {seconds:.2f} times (at most {MOST}), {cpu:.2f} times the CPU-seconds")
    say(f"  the indexed epochs were limited by: {', '.join(sorted(limits))}")
    met = all(seconds <= MOST for seconds, _ in shares.values())
    if options.json:
        options.json.write_text(json.dumps({"met": met, "shares": shares, "costs": figures}, indent=2) + "\n")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
