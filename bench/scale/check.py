#!/usr/bin/env python3
"""The small end of the simulation beside measurement: the same data, order and ranks, fed from devstore and simulated.

    ```
    bench/scale/check.py                 counts and times: below five minutes on a machine that does nothing else
    bench/scale/check.py --counts-only   requests and bytes alone, which do not depend on the machine: some seconds
    bench/scale/check.py --json FILE
    ```

Each case is a server with other limits: the delay of first bytes, the rate of a connection, the requests of a prefix. One `millrace feed` a rank
reads all of the data set, all ranks at once; `scale` simulates the same job from the index and the same numbers. Requests and bytes must be equal
each time, and times (medians of three, each from a server of its own) must be within 10 %. Otherwise the program exits with 1. If the requests of the prefix
are limited, the time of the first batch is not compared, since it depends on chance. The time of decoding is measured first, and given to the
simulation. The images are small, so that the time of the store counts. A delay is a function of the request and of how often it was made: so both draw
the same ones, as long as nobody has read the samples before. On a busy machine a request may be made again, or a second one beside a late one: then
the bytes are at least as many.
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
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
IMAGES, COUNTED_IMAGES = 1000, 400
KILOBYTES = 5
ORDER = ["--batch", "16", "--extent", "16", "--window", "64", "--lanes", "16", "--memory", "64MiB", "--seed", "7"]
TOLERANCE = 0.1
REPEATS = 3  # of what is timed


@dataclass(frozen=True)
class Case:
    name: str
    shuffle: str
    ranks: int
    first_byte_ms: int = 0
    bandwidth: int = 0  # bytes a second of a connection
    rate_per_prefix: int = 0
    timed: bool = True

    @property
    def server(self) -> list[str]:
        arguments = []
        if self.first_byte_ms:
            arguments += ["--first-byte-ms", str(self.first_byte_ms)]
        if self.bandwidth:
            arguments += ["--bandwidth", str(self.bandwidth)]
        if self.rate_per_prefix:
            arguments += ["--rate-per-prefix", str(self.rate_per_prefix)]
        return arguments


COUNTED = [
    Case(f"{shuffle}, {ranks} ranks", shuffle, ranks, timed=False)
    for shuffle in ("window", "global")
    for ranks in (1, 3, 4)
]
COUNTED += [Case("none, 4 ranks", "none", 4, timed=False)]
TIMED = [  # in all of them the store takes seconds, and the machine some tenths of one
    Case("first bytes after 2 s", "window", 1, first_byte_ms=2000),
    Case("first bytes after 2 s, 2 ranks", "window", 2, first_byte_ms=2000),
    Case("20 KB/s of each connection", "window", 1, first_byte_ms=30, bandwidth=20_000),
    Case("20 requests/s of the prefix", "global", 1, first_byte_ms=30, rate_per_prefix=20),
    Case("20 requests/s of the prefix, 2 ranks", "global", 2, first_byte_ms=30, rate_per_prefix=20),
]


@dataclass
class Outcome:
    requests: int
    bytes_read: int
    first_batch: float
    seconds: float  # from the beginning of the loader to the end
    again: int = 0  # requests of any kind that were made again, or beside a late one
    spread: dict[str, list[float]] = field(default_factory=dict)  # of the times


def median_of(outcomes: list[Outcome]) -> Outcome:
    """Returns the medians of the times, with the counts of the first outcome."""
    times = {"first batch": [each.first_batch for each in outcomes], "all": [each.seconds for each in outcomes]}
    first = outcomes[0]
    return Outcome(
        first.requests,
        first.bytes_read,
        statistics.median(times["first batch"]),
        statistics.median(times["all"]),
        first.again,
        times,
    )


@contextlib.contextmanager
def devstore(millrace: Path, root: Path | str, arguments: list[str]) -> Iterator[dict[str, str]]:
    """Yields the environment of its clients."""
    process = subprocess.Popen(
        [millrace, "devstore", root, "--port", "0", *arguments], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if found := re.match(r"listening on (\S+)", line):
                break
        else:
            raise RuntimeError("devstore does not start")
        keys = {"AWS_ACCESS_KEY_ID": "millrace", "AWS_SECRET_ACCESS_KEY": "millrace-secret", "AWS_REGION": "us-east-1"}
        yield {**os.environ, **keys, "AWS_ENDPOINT_URL": found[1]}
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(120)
        process.stdout.close()


def run(command: list[str | Path], env: dict[str, str]) -> dict[str, Any]:
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True, timeout=300)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def feed_command(millrace: Path, case: Case, rank: int) -> list[str | Path]:
    which = ["--shuffle", case.shuffle, "--world", str(case.ranks), "--rank", str(rank)]
    return [millrace, "feed", "s3://b/tar", *ORDER, *which, "--threads", "1", "--json"]


def bring_index(millrace: Path, case: Case, env: dict[str, str]) -> None:
    """Writes to the cache folder. No sample is read."""
    subprocess.run(
        [*feed_command(millrace, case, 0), "--explain"], env=env, stdout=subprocess.DEVNULL, check=True, timeout=300
    )


def decode_ms(millrace: Path, folder: Path, env: dict[str, str]) -> float:
    """CPU time for a sample, from files."""
    result = run([millrace, "feed", folder, *ORDER, "--threads", "1", "--json"], env)
    return 1000 * float(result["cpu_seconds"]) / int(result["samples"])


def fed(millrace: Path, case: Case, env: dict[str, str]) -> Outcome:
    """Returns all ranks at once. The index is in the cache folder already: what is read are samples."""
    processes = [
        subprocess.Popen(feed_command(millrace, case, rank), env=env, stdout=subprocess.PIPE, text=True)
        for rank in range(case.ranks)
    ]
    results = []
    for process in processes:
        output, _ = process.communicate(timeout=300)
        if process.returncode:
            raise RuntimeError(f"millrace feed ended with {process.returncode}")
        results.append(json.loads(output))
    return Outcome(
        requests=sum(each["requests"]["GET"] for each in results),
        bytes_read=sum(each["bytes_read"] for each in results),
        first_batch=max(each["first_batch_seconds"] for each in results),
        seconds=max(each["seconds"] for each in results),
        again=sum(each["retries"] + each["hedges"] for each in results),
    )


def simulated(scale: Path, case: Case, env: dict[str, str], decode_ms: float) -> Outcome:
    store = [
        "--first-byte-ms",
        str(case.first_byte_ms),
        "--bandwidth",
        str(case.bandwidth),
        "--rate-per-prefix",
        str(case.rate_per_prefix),
    ]
    job = [
        "--shuffle",
        case.shuffle,
        "--ranks",
        str(case.ranks),
        "--steps",
        "0",
        "--has-index",
        "--threads",
        "1",
        "--decode-ms",
        f"{decode_ms:.6f}",
    ]
    found = run([scale, "--data", "s3://b/tar", "--json", *ORDER, *job, *store], env)
    first = found["first_batch_seconds"]
    return Outcome(found["requests"], found["bytes"], first, first + found["seconds"])


def prepare(millrace: Path, folder: Path, images: int) -> Path:
    root = folder / "store"
    (root / "b").mkdir(parents=True)
    quiet = {"stdout": subprocess.DEVNULL, "check": True, "timeout": 300}
    subprocess.run([millrace, "synth", folder / "raw", "--count", str(images), "--kb", str(KILOBYTES)], **quiet)  # type: ignore[call-overload]
    subprocess.run([millrace, "pack", folder / "raw", root / "b/tar", "--shard-size", "1MiB"], **quiet)  # type: ignore[call-overload]
    return root


def same_counts(real: Outcome, paper: Outcome) -> bool:
    same_bytes = real.bytes_read >= paper.bytes_read if real.again else real.bytes_read == paper.bytes_read
    return real.requests - real.again <= paper.requests <= real.requests and same_bytes


def compare(case: Case, outcomes: list[Outcome], paper: Outcome) -> tuple[bool, dict[str, Any]]:
    """Compares the counts of each outcome, and the medians of their times. It shows the counts of the first that differ, else of the first."""
    others = [each for each in outcomes if not same_counts(each, paper)]
    met = not others
    real = median_of([*others, *(each for each in outcomes if each not in others)])
    row: dict[str, Any] = {
        "case": case.name,
        "requests": [real.requests, paper.requests],
        "bytes": [real.bytes_read, paper.bytes_read],
    }
    row["again"] = real.again
    print(
        f"{case.name:40} requests {real.requests:6} {paper.requests:6}   bytes {real.bytes_read:9} {paper.bytes_read:9}",
        end="",
    )
    if case.timed:
        for name, measured, foretold in (
            ("first batch", real.first_batch, paper.first_batch),
            ("all", real.seconds, paper.seconds),
        ):
            if name == "first batch" and case.rate_per_prefix:
                continue  # which of the requests that were sent at once is refused is chance
            ratio = foretold / measured
            row[name] = {"measured": real.spread[name], "simulated": foretold, "ratio": ratio}
            met = met and abs(ratio - 1) <= TOLERANCE
            print(
                f"   {name} {measured:6.2f} s ({min(real.spread[name]):.2f} to {max(real.spread[name]):.2f}) {foretold:6.2f} s ({ratio:.2f})",
                end="",
            )
    print("" if met else "   MISSED", flush=True)
    row["met"] = met
    return met, row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--build", type=Path, default=REPOSITORY / "build/release/bin", help="the binaries (default: build/release/bin)"
    )
    parser.add_argument("--counts-only", action="store_true", help="no times")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all rows there")
    options = parser.parse_args()
    millrace, scale = options.build / "millrace", options.build / "scale"
    for program in (millrace, scale):
        if not program.exists():
            parser.error(f"{program} is missing: cmake --build --preset release --target millrace scale")
    rows: list[dict[str, Any]] = []
    missed: list[str] = []
    print("Each pair: measured, simulated.")
    with tempfile.TemporaryDirectory(prefix="millrace-scale-") as folder:
        root = prepare(millrace, Path(folder), COUNTED_IMAGES if options.counts_only else IMAGES)
        cache = {"MILLRACE_CACHE": str(root.parent / "cache")}
        cpu_ms = 0.0 if options.counts_only else decode_ms(millrace, root / "b/tar", {**os.environ, **cache})

        def add(case: Case, outcomes: list[Outcome], paper: Outcome) -> None:
            met, row = compare(case, outcomes, paper)
            rows.append(row)
            missed.extend([] if met else [case.name])

        with devstore(millrace, root, COUNTED[0].server) as server:
            env = {**server, **cache}
            bring_index(millrace, COUNTED[0], env)
            for case in COUNTED:
                add(case, [fed(millrace, case, env)], simulated(scale, case, env, 0.0))
        for case in [] if options.counts_only else TIMED:
            outcomes = []
            for _ in range(REPEATS):
                with devstore(millrace, root, case.server) as server:
                    env = {**server, **cache}
                    bring_index(millrace, case, env)
                    outcomes.append(fed(millrace, case, env))
            with devstore(millrace, root, case.server) as server:
                env = {**server, **cache}
                bring_index(millrace, case, env)
                add(case, outcomes, simulated(scale, case, env, cpu_ms))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
