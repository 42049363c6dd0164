#!/usr/bin/env python3
"""Measures the rate of a trainer that reads from a worker, while another program floods the worker's port with
connections that trickle.

    cmake --build --preset release --target millrace millrace_python
    PYTHONPATH=build/release/python bench/service/flood.py --connections 2000 --rounds 5

Rounds without and with the flood alternate, an epoch each, and the medians of their rates are compared: the ratio should be at least 0.8. The attacker
is a process of its own. Each connection sends a byte of a head each second, and is opened again as soon as the worker has closed it. Exit status 1 if
an epoch has an error, if the worker did not serve all of its rows, or if the ratio is less than --least.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HEAD = b"GET /millrace/hello HTTP/1.1\r\nX: "
REPOSITORY = Path(__file__).resolve().parents[2]


def attack(address: str, count: int) -> None:
    """Until it is killed. Prints `flooding` once `count` connections were opened: the worker may have closed some of them by then."""
    host, port = address.rsplit(":", 1)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(limit[1], count + 100), limit[1]))
    selector = selectors.DefaultSelector()
    has_begun: dict[socket.socket, bool] = {}  # a head
    next_byte = time.monotonic()
    opened = 0
    while True:
        for _ in range(min(count - len(has_begun), 200)):
            attacker = socket.socket()
            attacker.setblocking(False)
            attacker.connect_ex((host, int(port)))
            selector.register(attacker, selectors.EVENT_READ)
            has_begun[attacker] = False
            opened += 1
            if opened == count:
                print("flooding", flush=True)
        for key, _ in selector.select(0.2):
            assert isinstance(key.fileobj, socket.socket)
            selector.unregister(key.fileobj)  # the worker has closed it
            key.fileobj.close()
            del has_begun[key.fileobj]
        if time.monotonic() < next_byte:
            continue
        next_byte = time.monotonic() + 1
        for attacker, begun in has_begun.items():
            try:
                attacker.send(b"x" if begun else HEAD)
                has_begun[attacker] = True
            except OSError:
                pass  # it is not connected yet, or not any more


def epoch(uri: str, address: str) -> tuple[float, int]:
    """Samples a second, and how many rows the worker served."""
    import millrace

    begin = time.monotonic()
    with millrace.Loader(
        uri, batch_size=32, size=224, workers=[address], epochs=1, output="numpy", memory="256MiB"
    ) as loader:
        for _ in loader:
            pass
        report = loader.report()
    return report["samples"] / (time.monotonic() - begin), report["workers"][0]["rows"]


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    binary = str(options.millrace)
    made = subprocess.run([binary, "synth", folder / "photos", "--count", str(options.samples)], check=True)
    packed = subprocess.run([binary, "pack", folder / "photos", folder / "shards", "--json"], check=True, stdout=2)
    assert made.returncode == packed.returncode == 0
    worker = subprocess.Popen(
        [binary, "worker", "--listen", "127.0.0.1:0", "--threads", "1"], stdout=subprocess.PIPE, text=True
    )
    assert worker.stdout is not None
    address = worker.stdout.readline().split()[-1]
    rates: dict[bool, list[float]] = {False: [], True: []}
    least_rows = options.samples
    try:
        epoch(str(folder / "shards"), address)  # the caches of the system are warm from here on
        for _ in range(options.rounds):
            for is_flooded in (False, True):
                attacker = None
                if is_flooded:
                    command = [sys.executable, __file__, "--attack", address, "--connections", str(options.connections)]
                    attacker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
                    assert attacker.stdout is not None and attacker.stdout.readline() == "flooding\n"
                try:
                    rate, rows = epoch(str(folder / "shards"), address)
                finally:
                    if attacker is not None:
                        attacker.kill()
                        attacker.wait()
                rates[is_flooded].append(rate)
                least_rows = min(least_rows, rows)
    finally:
        worker.kill()
        worker.wait()
    calm, flooded = (statistics.median(rates[each]) for each in (False, True))
    return {
        "connections": options.connections,
        "samples_per_second": [round(rate, 1) for rate in rates[False]],
        "samples_per_second_flooded": [round(rate, 1) for rate in rates[True]],
        "ratio": round(flooded / calm, 3),
        "rows_of_worker": least_rows,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5, help="of each kind")
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--least", type=float, default=0.8, help="ratio of the rates")
    parser.add_argument("--millrace", type=Path, default=REPOSITORY / "build/release/bin/millrace")
    parser.add_argument("--attack", metavar="HOST:PORT", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.attack:
        attack(options.attack, options.connections)
    with tempfile.TemporaryDirectory(prefix="millrace-flood-") as folder:
        os.environ["MILLRACE_CACHE"] = str(Path(folder) / "cache")
        result = measure(options, Path(folder))
    print(json.dumps(result))
    return 0 if result["ratio"] >= options.least and result["rows_of_worker"] == options.samples else 1


if __name__ == "__main__":
    sys.exit(main())
