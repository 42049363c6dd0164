#!/usr/bin/env python3
"""Measures how fast `millrace pack` makes shards of a folder of JPEGs, durable at the end. Rivals are `tar` and `webdataset`.

It also packs from and to S3 at 30 ms, and compares `millrace index` with one pass that reads and hashes the same bytes.

    ```
    bench/pack_bench.py                    20,000 JPEGs of about 115 KB, five interleaved runs (a quarter of an hour)
    bench/pack_bench.py --quick            2,000 JPEGs, three runs (a minute; the figures are rougher)
    bench/pack_bench.py --json result.json
    ```

Exits 1 when a target is missed (never with --quick). The images are made once and kept in --cache, as those of feed_bench.py
are. See bench/README.md for what is measured.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from feed_bench import (
    REPOSITORY,
    SLOW_MS,
    core_list,
    cpu_list,
    cpu_seconds,
    devstore,
    enter_namespace,
    make_data,
    make_parser,
    newest,
    parse,
    say,
)

SHARD_SIZE = 256 << 20
AGAINST_TAR = 1.3  # at most so many times its time
AGAINST_WEBDATASET = 2.0  # at least so many times as fast
AGAINST_FOLDER = 1.3  # from and to S3: at most so many times the time from folder to folder
AGAINST_PASS = 0.8  # index: at least this much of the speed of one pass

WEBDATASET = """
import sys
from pathlib import Path
import webdataset
folder, out, size = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
classes = {name: number for number, name in enumerate(sorted(path.name for path in folder.iterdir() if path.is_dir()))}
with webdataset.ShardWriter(out + "/shard-%06d.tar", maxsize=size, maxcount=10**9, verbose=0) as writer:
    for path in sorted(folder.rglob("*.jpg")):
        key = str(path.relative_to(folder).with_suffix(""))
        writer.write({"__key__": key, "cls": classes[path.parent.name], "jpg": path.read_bytes()})
"""


@dataclass
class Run:
    seconds: float
    cpu: float  # CPU-seconds of the program and what it started
    server_cpu: float = 0.0


def parse_arguments() -> argparse.Namespace:
    parser = make_parser(__doc__)
    parser.add_argument("--only", help="contestants, separated by commas (default: all)")
    parser.add_argument(
        "--work", type=Path, default=REPOSITORY / "build/bench-pack", help="where shards are written, and removed"
    )
    parser.add_argument(
        "--server-cores",
        type=core_list,
        metavar="LIST",
        help="for devstore (default: the upper half of four or more, else all)",
    )
    parser.add_argument(
        "--client-cores",
        type=core_list,
        metavar="LIST",
        help="for all others (default: the lower half of four or more, else all)",
    )
    options = parse(parser)
    cores = sorted(os.sched_getaffinity(0))
    half = len(cores) // 2 if len(cores) >= 4 else 0
    options.server_cores = options.server_cores or cores[half:]
    options.client_cores = options.client_cores or cores[: half or len(cores)]
    return options


def link_tree(source: Path, target: Path) -> None:
    """The same files under another name, without an index: each place is to have its own, or none."""
    for path in source.rglob("*"):
        if path.is_file() and ".millrace" not in path.parts:
            link = target / path.relative_to(source)
            link.parent.mkdir(parents=True, exist_ok=True)
            os.link(path, link)


def timed(*commands: list[object], env: dict[str, str] | None = None) -> Run:
    """Returns all of them, one after the other."""
    burnt = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    for command in commands:
        subprocess.run([str(word) for word in command], check=True, env=env, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - began
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Run(seconds, now.ru_utime + now.ru_stime - burnt.ru_utime - burnt.ru_stime)


class Bench:
    def __init__(self, options: argparse.Namespace, folder: Path, server: int, server_env: dict[str, str]) -> None:
        self.millrace = options.millrace
        self.raw = options.work / "raw"
        self.indexed = options.work / "indexed"
        self.shards = folder / "files/tar"
        self.out = options.work / "out"
        self.root = options.work / "root"
        self.server, self.server_env = server, server_env
        self.env = {**os.environ, "XDG_CACHE_HOME": str(options.work / "cache")}
        self.ceiling = newest("read_crc")

    def clear(self) -> None:
        """Removes files and unwritten pages of earlier runs, so that no run pays for another one."""
        for path in (
            self.out,
            self.root / "out",
            self.root / ".devstore",
            self.raw / ".millrace",
            self.root / "in/raw/.millrace",
        ):
            shutil.rmtree(path, ignore_errors=True)
        shutil.rmtree(self.env["XDG_CACHE_HOME"], ignore_errors=True)
        self.out.mkdir()
        (self.root / "out").mkdir()
        subprocess.run(["sync"], check=True)

    def tar(self) -> Run:
        return timed(["tar", "-cf", self.out / "all.tar", "-C", self.raw, "."], ["sync"])

    def webdataset(self) -> Run:
        return timed([REPOSITORY / ".venv/bin/python", "-c", WEBDATASET, self.raw, self.out, SHARD_SIZE], ["sync"])

    def pack(self, source: Path | None = None) -> Run:
        return timed(
            [self.millrace, "pack", source or self.raw, self.out / "tar", "--shard-size", SHARD_SIZE], env=self.env
        )

    def pack_indexed(self) -> Run:
        return self.pack(self.indexed)

    def pack_s3(self) -> Run:
        before = cpu_seconds(str(self.server))
        command = [self.millrace, "pack", "s3://in/raw", "s3://out/tar", "--shard-size", SHARD_SIZE]
        run = timed(command, env=self.env | self.server_env)
        return Run(run.seconds, run.cpu, cpu_seconds(str(self.server)) - before)

    def index(self, data: Path) -> Run:
        return timed([self.millrace, "index", data, "--full", "--output", self.out / "x.index"], env=self.env)

    def one_pass(self, data: Path) -> Run | None:
        return timed([self.ceiling, data]) if self.ceiling else None

    def contestants(self) -> dict[str, Callable[[], Run | None]]:
        return {
            "tar + sync": self.tar,
            "webdataset": self.webdataset,
            "pack": self.pack,
            "pack indexed": self.pack_indexed,
            f"pack S3 {SLOW_MS} ms": self.pack_s3,
            "pass over raw": lambda: self.one_pass(self.raw),
            "index raw": lambda: self.index(self.raw),
            "pass over tar": lambda: self.one_pass(self.shards),
            "index tar": lambda: self.index(self.shards),
        }


def measure(options: argparse.Namespace, folder: Path) -> dict[str, list[Run]]:
    runs: dict[str, list[Run]] = {}
    shutil.rmtree(options.work, ignore_errors=True)
    link_tree(folder / "files/raw", options.work / "raw")
    link_tree(folder / "files/raw", options.work / "indexed")
    link_tree(folder / "files/raw", options.work / "root/in/raw")
    (options.work / "root/out").mkdir()
    try:
        with devstore(options, options.work / "root", SLOW_MS, "--opaque-etags") as (server, env):
            bench = Bench(options, folder, server, env)
            subprocess.run([options.millrace, "index", bench.indexed], check=True, stdout=subprocess.DEVNULL)
            for path in [*bench.raw.rglob("*.jpg"), *bench.shards.rglob("*.tar")]:  # into the page cache
                path.read_bytes()
            contestants = list(bench.contestants().items())
            if options.only:
                contestants = [c for c in contestants if c[0] in options.only.split(",")]
            for number in range(options.runs):
                say(f"Run {number + 1} of {options.runs} ...")
                # The rounds go there and back: what comes after what must not favour anyone.
                for name, contestant in contestants if number % 2 == 0 else reversed(contestants):
                    bench.clear()
                    run = contestant()
                    if run:
                        runs.setdefault(name, []).append(run)
    finally:
        shutil.rmtree(options.work, ignore_errors=True)
    return runs


def print_runs(runs: dict[str, list[Run]], gigabytes: float) -> dict[str, float]:
    say(f"\n{'':16}{'seconds':>9}{'spread':>8}{'GB/s':>7}{'CPU-s':>8}{'server':>8}")
    medians = {}
    for name, results in runs.items():
        every = [run.seconds for run in results]
        medians[name] = statistics.median(every)
        cpu, server = (statistics.median(getattr(run, field) for run in results) for field in ("cpu", "server_cpu"))
        say(
            f"{name:16}{medians[name]:9.2f}{(max(every) - min(every)) / medians[name]:8.1%}{gigabytes / medians[name]:7.2f}"
            f"{cpu:8.2f}{server:8.2f}"
        )
    return medians


def print_ratios(seconds: dict[str, float]) -> dict[str, dict[str, float | bool]]:
    say("")
    ratios = {}
    for ours, other, target, at_most in (
        ("pack", "tar + sync", AGAINST_TAR, True),
        ("webdataset", "pack", AGAINST_WEBDATASET, False),
        (f"pack S3 {SLOW_MS} ms", "pack", AGAINST_FOLDER, True),
        ("pass over raw", "index raw", AGAINST_PASS, False),
        ("pass over tar", "index tar", AGAINST_PASS, False),
    ):
        if ours not in seconds or other not in seconds:
            continue
        ratio = seconds[ours] / seconds[other]
        met = ratio <= target if at_most else ratio >= target
        name = f"time of {ours} / {other}"
        ratios[name] = {"ratio": ratio, "target": target, "met": met}
        say(f"{name:38}{ratio:7.3f}   target {'<=' if at_most else '>='} {target:.2f}   {'met' if met else 'MISSED'}")
    return ratios


def main() -> int:
    options = parse_arguments()
    enter_namespace()
    folder = make_data(options.millrace, options.cache, options.count, options.kb)
    if newest("read_crc") is None:
        say("  the pass that reads and hashes is left out: read_crc is not built")
    os.sched_setaffinity(0, options.client_cores)  # inherited by all that is started here, except devstore
    gigabytes = sum(path.stat().st_size for path in (folder / "files/raw").rglob("*.jpg")) / 1e9
    say(
        f"{options.count:,} JPEGs, {gigabytes:.2f} GB, into shards of 256 MiB, durable at the end. Median of {options.runs} interleaved "
        f"runs; sources are in the\npage cache; all on CPU {cpu_list(options.client_cores)}, devstore on CPU {cpu_list(options.server_cores)}. "
        "Packs start without an index of the source, but for the indexed ones."
    )
    if set(options.client_cores) & set(options.server_cores):
        say(
            "Server and client share cores: what the server burns is missing to the client, and the ratio to a folder contains that handicap."
        )
    runs = measure(options, folder)
    medians = print_runs(runs, gigabytes)
    ratios = print_ratios(medians)
    if options.json:
        with contextlib.suppress(FileExistsError):
            options.json.parent.mkdir(parents=True)
        record = {
            "settings": {
                name: str(value) if isinstance(value, Path) else value for name, value in vars(options).items()
            },
            "cores": len(options.client_cores),
            "runs": {name: [asdict(run) for run in results] for name, results in runs.items()},
            "ratios": ratios,
        }
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    return 0 if options.quick or all(ratio["met"] for ratio in ratios.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
