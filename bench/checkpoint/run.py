#!/usr/bin/env python3
"""Saving and loading checkpoints: Millrace beside its rivals and the ceiling, to the same devstore and the same folder, in one run.

    bench/checkpoint/run.py                    1 GiB of tensors, three interleaved rounds (some ten minutes on two cores)
    bench/checkpoint/run.py --full             4 GiB
    bench/checkpoint/run.py --quick            96 MiB, one round: shows that everything works; the figures mean little
    bench/checkpoint/run.py --place s3 --only ceiling,millrace

Rivals: torch.save and torch.load through S3 Connector for PyTorch (to a file: alone); torch.distributed.checkpoint with S3 Connector's storage (to a
folder: its own); safetensors with boto3 (to a file: alone). They are those of `bench/setup_rivals s3` (run it first); what is not installed is reported
as missing. The ceiling is the same bytes without format, checksum and protocol (task.py). Server and client are pinned to one core each, in a
network namespace of their own whose loopback uses reno. Exits 1 if a target is missed (never with --quick).
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "s3"))

from harness import (  # noqa: E402
    KEYS,
    RIVALS_PYTHON,
    Result,
    Target,
    add_arguments,
    complete_arguments,
    devstore,
    enter_namespace,
    print_targets,
    run_client,
    say,
)

SYSTEMS = ("ceiling", "millrace", "millrace into", "millrace dcp", "torch.save", "dcp", "safetensors")
MIB = 1 << 20
LIMIT = 600  # seconds a system and round


class Runs:
    """What the rounds of one place gave, by system."""

    def __init__(self) -> None:
        self.results: dict[str, list[Result]] = {name: [] for name in SYSTEMS}
        self.missing: dict[str, str] = {}

    def median(self, name: str, key: str) -> float:
        """Of all runs of all rounds; NaN if there is none."""
        values = [value for result in self.results[name] for value in result[key]]
        return statistics.median(values) if values else float("nan")

    def ratio(self, name: str, key: str) -> float:
        """How fast it is, with the ceiling as 1."""
        return self.median("ceiling", key) / self.median(name, key)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--full", action="store_true", help="4 GiB of tensors")
    size.add_argument("--quick", action="store_true", help="96 MiB of tensors, one round")
    parser.add_argument("--place", choices=("s3", "folder"), action="append", help="only there")
    parser.add_argument("--only", metavar="NAME,...", help="only these of: " + ", ".join(SYSTEMS))
    parser.add_argument("--rounds", type=int, help="interleaved rounds (default 3)")
    parser.add_argument("--folder", type=Path, help="where the folder and the objects of devstore are (default: a temporary folder)")
    parser.add_argument("--python", type=Path, default=RIVALS_PYTHON, help="the interpreter that has the rivals")
    add_arguments(parser)
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 3)
    options.bytes = (96 if options.quick else 4096 if options.full else 1024) * MIB
    options.only = options.only.split(",") if options.only else list(SYSTEMS)
    if unknown := set(options.only) - {*SYSTEMS}:
        parser.error(f"--only does not know {', '.join(sorted(unknown))}")
    if not options.python.exists():
        parser.error(f"{options.python} is missing: run bench/setup_rivals s3")
    complete_arguments(parser, options, ["millrace"])
    return options


def run_place(options: argparse.Namespace, place: str, folder: Path) -> Runs:
    runs = Runs()
    root = folder / "objects"
    (root / "bucket").mkdir(parents=True, exist_ok=True)
    for round_ in range(options.rounds):
        for name in SYSTEMS:
            if name not in options.only or name in runs.missing:
                continue
            # A server for each, since the harness counts connections at its port.
            with devstore(options, root, []) as environment:
                uri = "s3://bucket/run" if place == "s3" else str(folder / "run")
                environment = {**environment, **KEYS, "PYTHONPATH": str(options.build.parent / "python")}
                command = [str(options.python), str(Path(__file__).with_name("task.py")), name, uri, "--bytes", str(options.bytes), "--runs", "3"]
                result = run_client(options, command, environment, LIMIT)
            shutil.rmtree(root / "bucket/run", ignore_errors=True)
            shutil.rmtree(folder / "run", ignore_errors=True)
            if isinstance(result, str):
                runs.missing[name] = result
                say(f"  {name}: {result}")
            else:
                runs.results[name].append(result)
                say(f"  round {round_ + 1}, {name}: save {min(result['save']):.2f} s, load {min(result['load']):.2f} s")
    return runs


def print_runs(place: str, runs: Runs, bytes_: int) -> None:
    say(f"\n{place}: {bytes_ / MIB:,.0f} MiB of tensors; medians")
    say(f"  {'':16}{'save MB/s':>10}{'of ceiling':>11}{'load MB/s':>11}{'of ceiling':>11}{'extra memory of a save, MiB':>29}{'stall s':>9}")
    for name, results in runs.results.items():
        if not results:
            continue
        size = results[0]["bytes"] / 1e6
        extra = max(result["save_extra_bytes"] for result in results) / MIB
        stall = runs.median(name, "stall")
        say(
            f"  {name:16}{size / runs.median(name, 'save'):>10,.0f}{runs.ratio(name, 'save'):>11.2f}{size / runs.median(name, 'load'):>11,.0f}"
            f"{runs.ratio(name, 'load'):>11.2f}{extra:>29,.0f}{'' if stall != stall else f'{stall:.3f}':>9}"
        )


def targets_of(place: str, runs: Runs) -> list[Target]:
    made = [Target(place, f"{what} of the ceiling's speed", runs.ratio("millrace", what), 0.9, True) for what in ("save", "load")]
    made.append(Target(place, "load into tensors of the ceiling's speed", runs.ratio("millrace into", "load"), 0.9, True))
    stall = runs.median("millrace", "stall") / runs.median("ceiling", "stall")
    made.append(Target(place, "stall of an asynchronous save to memcpy", stall, 1.3, False))
    for rival in ("torch.save", "dcp", "safetensors"):
        for what in ("save", "load"):
            made.append(Target(place, f"{what} as fast as {rival}", runs.median(rival, what) / runs.median("millrace", what), 1.0, True))
    return made


def main() -> int:
    options = parse_arguments()
    enter_namespace()
    targets: list[Target] = []
    report: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for place in options.place or ("s3", "folder"):
            say(f"{place}:")
            runs = run_place(options, place, Path(folder))
            print_runs(place, runs, options.bytes)
            targets += targets_of(place, runs)
            report[place] = {"results": runs.results, "missing": runs.missing}
    say("\nTargets:")
    print_targets(targets)
    if options.json:
        import json

        options.json.write_text(json.dumps({"bytes": options.bytes, "places": report, "targets": [vars(target) for target in targets]}, indent=1))
    return 0 if options.quick or all(target.met for target in targets) else 1


if __name__ == "__main__":
    sys.exit(main())
