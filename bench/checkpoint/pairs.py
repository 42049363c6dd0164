#!/usr/bin/env python3
"""Saving and loading against the ceiling, in alternating pairs within one process: what a machine does meanwhile hits both of a pair.

    ```
    bench/checkpoint/pairs.py               512 MiB of tensors, 9 pairs of each kind: two minutes
    bench/checkpoint/pairs.py --quick       96 MiB, 3 pairs: shows that it works
    bench/checkpoint/pairs.py --folder /x   to and from a folder in place of `millrace devstore mem:`
    bench/checkpoint/pairs.py --hold 12     12 GiB are in use meanwhile, so that new memory is not what the host has taken back
    ```

A pair sends the same bytes by bare PUTs or GETs of 8 MiB with eight connections (task.py: no format, checksum, signature or protocol), and by Millrace. The
order within pairs alternates. The ratio of a pair is ceiling / Millrace, so that 1 is as fast as the ceiling. The program prints the medians, for elapsed
seconds and for CPU-seconds of this process. The second says more on a machine that does other work. `load(into=)` and its ceiling fill memory that was
touched before. `load` makes new tensors, and its ceiling fills new memory, too, since the cost of the first touch of a page depends on the machine. On a
virtual machine whose host takes back memory that the guest has freed, it is ten times the cost of reading.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "s3"))

MIB = 1 << 20
TARGET = 0.9


def pairs(ceiling: Callable[[], Any], ours: Callable[[], Any], count: int) -> dict[str, list[tuple[float, float]]]:
    """(seconds, CPU-seconds) of each, in alternating order. A first pair is not counted."""
    found: dict[str, list[tuple[float, float]]] = {"ceiling": [], "ours": []}
    for number in range(count + 1):
        both = [("ceiling", ceiling), ("ours", ours)]
        for name, call in both if number % 2 else reversed(both):
            cpu, began = time.process_time(), time.perf_counter()
            kept = call()
            taken = time.perf_counter() - began, time.process_time() - cpu
            del kept  # not within the measurement
            if number:
                found[name].append(taken)
    return found


def client(options: argparse.Namespace) -> int:
    """Runs where the server's environment is set; prints one JSON object."""
    import numpy as np
    from task import Ceiling, Millrace, MillraceInto, bytes_of, equal, make_state

    held = np.ones(options.hold << 30, np.uint8)
    state = make_state(options.bytes)
    ceiling = Ceiling(f"{options.client}/ceiling", state)
    ours = Millrace(f"{options.client}/ours", state)
    into = MillraceInto(f"{options.client}/ours", state)
    touched = ceiling.into

    def load_new() -> Any:
        ceiling.into = new = np.empty_like(ceiling.data)
        ceiling.load(0)
        ceiling.into = touched
        return new

    ceiling.save(0)
    ours.save(0)
    if not equal(ours.load(0), state) or not equal(into.load(0), state):
        raise SystemExit("what was loaded is not what was saved")
    made = {"save": pairs(lambda: ceiling.save(0), lambda: ours.save(0), options.pairs)}
    made["load(into=)"] = pairs(lambda: ceiling.load(0), lambda: into.load(0), options.pairs)
    made["load"] = pairs(load_new, lambda: ours.load(0), options.pairs)
    print(json.dumps({"bytes": bytes_of(state), "held": held.size, "kinds": made}), flush=True)
    os._exit(0)  # threads of the ceiling wait for work


def report(result: dict[str, Any]) -> bool:
    """Says if the targets are met, by elapsed time."""
    size = result["bytes"] / 1e9
    print(f"{result['bytes'] / MIB:,.0f} MiB of tensors; medians of pairs", flush=True)
    print(
        f"  {'':18}{'ceiling GB/s':>13}{'Millrace GB/s':>15}{'ratio':>7}{'CPU-s/GB: ceiling':>19}{'Millrace':>10}{'ratio':>7}"
    )
    met = True
    for kind, found in result["kinds"].items():
        seconds, cpu = ([[one[which] for one in found[name]] for name in ("ceiling", "ours")] for which in (0, 1))
        ratio, cpu_ratio = (statistics.median(a / b for a, b in zip(*both)) for both in (seconds, cpu))
        medians = [statistics.median(values) for values in (*seconds, *cpu)]
        print(
            f"  {kind:18}{size / medians[0]:>13.2f}{size / medians[1]:>15.2f}{ratio:>7.2f}{medians[2] / size:>19.2f}{medians[3] / size:>10.2f}{cpu_ratio:>7.2f}"
        )
        met = met and ratio >= TARGET
    print(f"  target: at least {TARGET} by elapsed time: {'met' if met else 'MISSED'}")
    return met


def main() -> int:
    from harness import add_arguments, complete_arguments, devstore, enter_namespace

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="96 MiB of tensors, 3 pairs")
    parser.add_argument("--bytes", type=int, help="of tensors (default 512 MiB)")
    parser.add_argument("--pairs", type=int, help="of each kind (default 9)")
    parser.add_argument(
        "--hold",
        type=int,
        default=0,
        metavar="GIB",
        help="memory that is in use meanwhile: all but some GiB of the machine's, if its host takes back what is free",
    )
    parser.add_argument("--folder", type=Path, help="save there, not to devstore")
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="the interpreter that has torch")
    parser.add_argument("--client", metavar="URI", help=argparse.SUPPRESS)
    add_arguments(parser)
    options = parser.parse_args()
    options.bytes = options.bytes or (96 if options.quick else 512) * MIB
    options.pairs = options.pairs or (3 if options.quick else 9)
    if options.client:
        return client(options)
    complete_arguments(parser, options, ["millrace"])
    enter_namespace()
    with devstore(options, "mem:", ["--bucket", "bucket"]) as environment:
        environment = {**environment, "PYTHONPATH": str(options.build.parent / "python")}
        uri = str(options.folder) if options.folder else "s3://bucket"
        arguments = [
            __file__,
            "--client",
            uri,
            "--bytes",
            str(options.bytes),
            "--pairs",
            str(options.pairs),
            "--hold",
            str(options.hold),
        ]
        command = ["taskset", "-c", options.client_cores, options.python, *arguments]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    result = json.loads(done.stdout)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1))
    return 0 if report(result) or options.quick else 1


if __name__ == "__main__":
    sys.exit(main())
