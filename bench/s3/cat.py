#!/usr/bin/env python3
"""Compares `millrace cat` with curl: one large object from devstore to /dev/null, plain and over TLS.

    ```
    bench/s3/cat.py                      1 GiB, seven interleaved pairs each (about two minutes)
    bench/s3/cat.py --runs 3 --mib 256   less data
    ```

Each run is a process: its time and CPU-seconds include its start. Server and clients are pinned to a core each, in a network
namespace whose loopback uses reno (README.md names the reasons). Exits 1 when a target is missed: at least 0.97 of curl's
speed, at no more than curl's CPU-seconds (medians over the pairs).
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from harness import (
    Target,
    add_arguments,
    complete_arguments,
    devstore,
    enter_namespace,
    print_targets,
    say,
)

MIB = 1 << 20
MIN_RATE = 0.97
MAX_CPU = 1.0


class Cost(NamedTuple):
    """Holds the cost of one process."""

    seconds: float
    cpu_seconds: float


def cost_of(command: list[str], environment: dict[str, str], size: int) -> Cost:
    """Runs `command`, whose standard output goes to /dev/null. curl writes there itself and reports what it has read."""
    began = time.perf_counter()
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE if "curl" in command else subprocess.DEVNULL
    )
    told = process.stdout.read() if process.stdout else str(size).encode()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0 or int(told) != size:
        raise SystemExit(f"{' '.join(command)}: exit status {process.returncode}, {told.decode()} bytes")
    return Cost(seconds, usage.ru_utime + usage.ru_stime)


def measure(options: argparse.Namespace, root: Path, tls: bool) -> list[Target]:
    size = options.mib * MIB
    pairs: list[tuple[Cost, Cost]] = []
    with devstore(options, root, ["--tls"] if tls else []) as environment:
        pin = ["taskset", "-c", options.client_cores]
        ours = [*pin, str(options.build / "millrace"), "cat", "s3://b/large"]
        ca = ["--cacert", environment["AWS_CA_BUNDLE"]] if tls else []
        url = f"{environment['AWS_ENDPOINT_URL']}/b/large"
        curl = [
            *pin,
            "curl",
            "--silent",
            "--fail",
            *ca,
            "--output",
            "/dev/null",
            "--write-out",
            "%{size_download}",
            url,
        ]
        for number in range(options.runs + 1):
            # The order alternates. The first pair warms the server up and does not count.
            first, second = (ours, curl) if number % 2 else (curl, ours)
            costs = {id(each): cost_of(each, environment, size) for each in (first, second)}
            if number:
                pairs.append((costs[id(ours)], costs[id(curl)]))
    name = "TLS" if tls else "plain"
    for who, costs in (("millrace cat", [pair[0] for pair in pairs]), ("curl", [pair[1] for pair in pairs])):
        seconds, cpu = (statistics.median(values) for values in zip(*costs, strict=True))
        say(f"{name:8}{who:14}{size / seconds / 1e9:6.2f} GB/s{cpu * 1e9 / size:8.3f} CPU-s/GB")
    rate = statistics.median(theirs.seconds / mine.seconds for mine, theirs in pairs)
    cpu = statistics.median(mine.cpu_seconds / theirs.cpu_seconds for mine, theirs in pairs)
    return [
        Target(name, "GB/s, against curl", rate, MIN_RATE, True),
        Target(name, "CPU-s/GB, against curl", cpu, MAX_CPU, False),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7, help="interleaved pairs (default 7)")
    parser.add_argument("--mib", type=int, default=1024, help="the size of the object in MiB (default 1024)")
    add_arguments(parser)
    options = parser.parse_args()
    complete_arguments(parser, options, ["millrace"])
    enter_namespace()
    targets: list[Target] = []
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "b").mkdir()
        with (Path(folder) / "b/large").open("wb") as file:
            for _ in range(options.mib):
                file.write(os.urandom(MIB))
        for tls in (False, True):
            targets += measure(options, Path(folder), tls)
    print_targets(targets)
    return 0 if all(target.met for target in targets) else 1


if __name__ == "__main__":
    sys.exit(main())
