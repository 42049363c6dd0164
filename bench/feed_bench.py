#!/usr/bin/env python3
"""How well `millrace feed` hides the latency of S3: 30 ms first byte, 0 ms and local files, side by side in one run.

    ```
    bench/feed_bench.py                    20,000 JPEGs of about 115 KB, five interleaved runs (half an hour on two cores)
    bench/feed_bench.py --quick            2,000 JPEGs, three runs (a few minutes; the figures are rougher)
    bench/feed_bench.py --json result.json
    ```

Exits 1 when a target is missed (never with --quick). The images are made once and kept in --cache. See bench/README.md for what the columns mean.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "s3"))

from harness import KEYS, REPOSITORY, enter_namespace, say
from rival_task import cpu_seconds

SLOW_MS = 30
AGAINST_0_MS = 0.97
AGAINST_FILES = 0.85
LAYOUTS = ("tar", "raw")
RIVALS = ("dataloader", "dataloader-draft", "webdataset")


@dataclass
class Run:
    """Runs one feed of the whole epoch."""

    samples_per_second: float
    cpu_per_1000: float  # CPU-seconds of the client
    server_cpu_per_1000: float
    first_batch_seconds: float
    requests: int
    bytes_read: int
    max_rss_bytes: int
    bottleneck: str


def newest(pattern: str) -> Path | None:
    release = REPOSITORY / "build/release/bin" / pattern
    if release.exists():
        return release
    found = sorted(REPOSITORY.glob(f"build/*/bin/{pattern}"), key=lambda path: path.stat().st_mtime)
    return found[-1] if found else None


def core_list(text: str) -> list[int]:
    mine = os.sched_getaffinity(0)
    if not all(core.isdigit() and int(core) in mine for core in text.split(",")):
        raise argparse.ArgumentTypeError(f"{text}: a list such as 0,1 of the cores {cpu_list(sorted(mine))}")
    return sorted({int(core) for core in text.split(",")})


def cpu_list(cores: list[int]) -> str:
    return ",".join(map(str, cores))


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """Adds the options that both benchmarks of whole commands have. `parse` reads them."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="2,000 images and three runs, unless told otherwise")
    parser.add_argument("--count", type=int, help="images (default 20000)")
    parser.add_argument("--runs", type=int, help="interleaved runs of which the median counts (default 5)")
    parser.add_argument("--kb", type=int, default=115, help="size of an image (default 115)")
    parser.add_argument(
        "--cache", type=Path, default=REPOSITORY / "build/bench-data", help="where the images are kept (5 GB)"
    )
    parser.add_argument("--millrace", type=Path, help="the binary (default: build/release, else the newest build)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all runs and ratios there")
    return parser


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Returns the command line, with the defaults that depend on the machine and on --quick."""
    options = parser.parse_args()
    options.count = options.count or (2000 if options.quick else 20_000)
    options.runs = options.runs or (3 if options.quick else 5)
    options.millrace = options.millrace or newest("millrace")
    if options.millrace is None or not options.millrace.exists():
        parser.error("no millrace binary: build it (cmake --build --preset release), or name it with --millrace")
    return options


def parse_arguments() -> argparse.Namespace:
    parser = make_parser(__doc__)
    parser.add_argument(
        "--shuffle",
        default="window",
        choices=("none", "global", "window"),
        help="order of the samples (default window)",
    )
    parser.add_argument("--memory", default="512MiB", help="budget of a feed (default 512MiB)")
    parser.add_argument(
        "--server-cores", type=core_list, metavar="LIST", help="for devstore, as 0 or 0,1 (default: the first core)"
    )
    parser.add_argument(
        "--client-cores", type=core_list, metavar="LIST", help="for feeds, rivals and the ceiling (default: all others)"
    )
    parser.add_argument(
        "--threads", type=int, help="CPU pool of a feed, and workers of a rival (default: one for each client core)"
    )
    parser.add_argument("--no-rivals", action="store_true", help="leave PyTorch's DataLoader and webdataset out")
    options = parse(parser)
    cores = sorted(os.sched_getaffinity(0))
    options.server_cores = options.server_cores or cores[:1]
    options.client_cores = options.client_cores or [core for core in cores if core not in options.server_cores] or cores
    options.threads = options.threads or len(options.client_cores)
    return options


def make_data(millrace: Path, cache: Path, count: int, kb: int) -> Path:
    """Returns the folder with `root`, which devstore serves as bucket `b`, and `files`, the same files under another
    name, so that each place has an index of its own. Made in a temporary folder that is renamed when it is whole."""
    folder = cache / f"jpeg-{count}-{kb}kb"
    if folder.exists():
        return folder
    say(f"Making {count:,} JPEGs of {kb} KB in {folder}, once ...")
    making = cache / f".{folder.name}.{os.getpid()}"
    served = making / "root/b"
    served.mkdir(parents=True)
    run = lambda *args: subprocess.run([millrace, *map(str, args)], check=True, stdout=subprocess.DEVNULL)  # noqa: E731
    run("synth", served / "raw", "--count", count, "--kb", kb, "--seed", 1)
    run("pack", served / "raw", served / "tar", "--shard-size", "256MiB")
    for path in served.rglob("*"):
        if path.is_file() and ".millrace" not in path.parts:
            link = making / "files" / path.relative_to(served)
            link.parent.mkdir(parents=True, exist_ok=True)
            os.link(path, link)
    # An index that was made through the file system does not describe the objects as the server shows them.
    for index in served.rglob(".millrace/*"):
        index.unlink()
    making.rename(folder)
    return folder


@contextlib.contextmanager
def devstore(
    options: argparse.Namespace, root: Path, first_byte_ms: int, *more: str
) -> Iterator[tuple[int, dict[str, str]]]:
    """The server's process id, and the environment of its clients. `more`: further options of the server."""
    process = subprocess.Popen(
        [
            options.millrace,
            "devstore",
            root,
            "--port",
            "0",
            "--first-byte-ms",
            str(first_byte_ms),
            "--access-key",
            KEYS["AWS_ACCESS_KEY_ID"],
            "--secret-key",
            KEYS["AWS_SECRET_ACCESS_KEY"],
            *more,
        ],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, options.server_cores),
    )
    try:
        line = process.stdout.readline()
        found = re.match(r"listening on (http://\S+)", line)
        if not found:
            raise RuntimeError(f"devstore does not start: {line!r}")
        yield process.pid, {**os.environ, **KEYS, "AWS_ENDPOINT_URL": found[1]}
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)
        process.stdout.close()


def feed(options: argparse.Namespace, uri: str, server: int | None, env: dict[str, str] | None) -> Run:
    before = cpu_seconds(str(server)) if server else 0.0
    done = subprocess.run(
        [
            options.millrace,
            "feed",
            uri,
            "--batch",
            "128",
            "--size",
            "224",
            "--threads",
            str(options.threads),
            "--memory",
            options.memory,
            "--shuffle",
            options.shuffle,
            "--seed",
            "1",
            "--json",
        ],
        env=env,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    served = cpu_seconds(str(server)) - before if server else 0.0
    report = json.loads(done.stdout)
    if report["samples"] != options.count:
        raise RuntimeError(f"{uri}: {report['samples']} samples instead of {options.count}")
    thousands = report["samples"] / 1000
    return Run(
        report["samples_per_second"],
        report["cpu_seconds"] / thousands,
        served / thousands,
        report["first_batch_seconds"],
        sum(report["requests"].values()),
        report["bytes_read"],
        report["max_rss_bytes"],
        report["bottleneck"],
    )


def rival(name: str, folder: Path, options: argparse.Namespace) -> dict | None:
    """Measures a rival with at most a quarter of the images, since rivals are slower, and their rate does not depend on the count."""
    done = subprocess.run(
        [
            sys.executable,
            REPOSITORY / "bench/feed_rivals.py",
            name,
            folder / "files",
            "--workers",
            str(options.threads),
            "--count",
            str(min(options.count, 5000)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        say(f"  {name} is left out: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else 'it failed'}")
        return None
    return json.loads(done.stdout)


def ceiling(folder: Path) -> dict[str, float] | None:
    """Returns images a second of one core that does nothing but decode, from memory."""
    program = newest("decode_bench")
    if program is None:
        say("  the decode ceiling is left out: decode_bench is not built")
        return None
    folders = (path for path in (folder / "files/raw").iterdir() if path.is_dir() and not path.name.startswith("."))
    images = min(folders, key=lambda path: path.name)
    done = subprocess.run([program, "--files", images, "--json"], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def measure(options: argparse.Namespace, folder: Path) -> tuple[dict[str, list[Run]], dict[str, list[dict]]]:
    runs: dict[str, list[Run]] = {}
    rivals: dict[str, list[dict]] = {}
    with (
        devstore(options, folder / "root", 0) as (fast, fast_env),
        devstore(options, folder / "root", SLOW_MS) as (slow, slow_env),
    ):
        for layout in LAYOUTS:
            subprocess.run(
                [options.millrace, "index", folder / "files" / layout], check=True, stdout=subprocess.DEVNULL
            )
            subprocess.run(
                [options.millrace, "index", f"s3://b/{layout}"], check=True, stdout=subprocess.DEVNULL, env=fast_env
            )
        for path in (folder / "files").rglob("*"):  # into the page cache: no run is to wait for the disk
            if path.is_file():
                path.read_bytes()
        for number in range(options.runs):
            say(f"Run {number + 1} of {options.runs} ...")
            for layout in LAYOUTS:
                places = (
                    ("0 ms", f"s3://b/{layout}", fast, fast_env),
                    (f"{SLOW_MS} ms", f"s3://b/{layout}", slow, slow_env),
                    ("file", str(folder / "files" / layout), None, None),
                )
                # The rounds go there and back: what comes after what must not favour a place.
                for place, uri, server, env in places if number % 2 == 0 else reversed(places):
                    runs.setdefault(f"{layout} {place}", []).append(feed(options, uri, server, env))
            for name in () if options.no_rivals else RIVALS:
                result = rival(name, folder, options)
                if result:
                    rivals.setdefault(name, []).append(result)
    return runs, rivals


def print_feeds(runs: dict[str, list[Run]], cores: int) -> dict[str, float]:
    say(
        f"\n{'':12}{'samples/s':>10}{'spread':>8}{'CPU-s/1000':>12}{'busy':>7}{'server':>8}{'first batch':>13}{'requests':>10}"
        f"{'MB read':>9}{'peak MiB':>10}  bottleneck"
    )
    rates = {}
    for name, results in runs.items():

        def median(field: str, results: list[Run] = results) -> float:
            return statistics.median(getattr(r, field) for r in results)

        every = [r.samples_per_second for r in results]
        rates[name] = median("samples_per_second")
        say(
            f"{name:12}{rates[name]:10.0f}{(max(every) - min(every)) / rates[name]:8.1%}{median('cpu_per_1000'):12.2f}"
            f"{statistics.median(r.samples_per_second * r.cpu_per_1000 / 1000 for r in results) / cores:7.1%}"
            f"{median('server_cpu_per_1000'):8.2f}{median('first_batch_seconds'):11.2f} s{median('requests'):10.0f}"
            f"{median('bytes_read') / 1e6:9.0f}{max(r.max_rss_bytes for r in results) / 2**20:10.0f}  {results[-1].bottleneck}"
        )
    return rates


def print_ratios(rates: dict[str, float], runs: dict[str, list[Run]]) -> dict[str, dict[str, Any]]:
    """Shows the ratios of the medians, to which the targets apply, and the ratios of neighboring runs.

    If these disagree, the machine changed more than the places differ.
    """
    say("")
    ratios = {}
    for layout in LAYOUTS:
        for other, target in (("0 ms", AGAINST_0_MS), ("file", AGAINST_FILES)):
            pairs = zip(runs[f"{layout} {SLOW_MS} ms"], runs[f"{layout} {other}"], strict=True)
            each = [slow.samples_per_second / fast.samples_per_second for slow, fast in pairs]
            name, ratio = (
                f"{layout}: {SLOW_MS} ms / {other}",
                rates[f"{layout} {SLOW_MS} ms"] / rates[f"{layout} {other}"],
            )
            ratios[name] = {"ratio": ratio, "paired": each, "target": target, "met": ratio >= target}
            say(
                f"{name:22}{ratio:7.3f}   target {target:.2f}   "
                f"{'met' if ratio >= target else 'MISSED'}"
                f"   (neighbours {min(each):.3f} to {max(each):.3f}, median {statistics.median(each):.3f})"
            )
    return ratios


def print_context(
    rates: dict[str, float], rivals: dict[str, list[dict]], decoded: dict[str, float] | None, cores: int
) -> None:
    say("")
    ours = rates["tar file"]
    if decoded:
        for name, what in (("turbo_full", "whole images"), ("turbo_half", "at half size, as a feed may do")):
            limit = decoded[name] * cores
            say(
                f"ceiling  {'libjpeg-turbo, ' + what:56}{limit:8.0f} samples/s on {cores} cores: feed: {ours / limit:.2f} of it"
            )
    for results in rivals.values():
        rate, cpu = (statistics.median(r[field] for r in results) for field in ("samples_per_second", "cpu_per_1000"))
        say(
            f"rival    {results[0]['what']:56}{rate:8.0f} samples/s, {cpu:.2f} CPU-s/1000: feed is {ours / rate:.2f} x as fast"
        )
    say("(feed here: packed shards from local files)")


def main() -> int:
    options = parse_arguments()
    enter_namespace()
    folder = make_data(options.millrace, options.cache, options.count, options.kb)
    os.sched_setaffinity(0, options.client_cores)  # inherited by all that is started here, except devstore
    cores = len(options.client_cores)
    congestion = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    say(
        f"{options.count:,} JPEGs of {options.kb} KB, batch 128, 224x224 u8, shuffle {options.shuffle}, budget {options.memory}, "
        f"{options.threads} threads, one process.\nMedian of {options.runs} interleaved runs. Clients on CPU {cpu_list(options.client_cores)}, "
        f"devstore on CPU {cpu_list(options.server_cores)}. Files are in the page cache. Loopback uses {congestion}."
    )
    if set(options.client_cores) & set(options.server_cores):
        say(
            "Server and client share cores: what the server burns is missing to the client, and ratios contain that handicap."
        )
    ceiling_rates = ceiling(folder)
    runs, rivals = measure(options, folder)
    rates = print_feeds(runs, min(cores, options.threads))
    ratios = print_ratios(rates, runs)
    print_context(rates, rivals, ceiling_rates, min(cores, options.threads))
    if options.json:
        record = {
            "settings": vars(options),
            "runs": {name: [asdict(r) for r in results] for name, results in runs.items()},
            "rates": rates,
            "ratios": ratios,
            "rivals": rivals,
            "ceiling": ceiling_rates,
        }
        options.json.write_text(json.dumps(record, indent=1, default=str) + "\n")
    return 0 if options.quick or all(ratio["met"] for ratio in ratios.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
