#!/usr/bin/env python3
"""Saving and loading checkpoints: Millrace beside its rivals and the ceiling, to the same devstore and the same folder, in one run.

    ```
    bench/checkpoint/run.py                    1 GiB of tensors, three interleaved rounds (some ten minutes on two cores)
    bench/checkpoint/run.py --full             4 GiB
    bench/checkpoint/run.py --quick            96 MiB, one round: shows that everything works; the figures mean little
    bench/checkpoint/run.py --place s3 --only ceiling,millrace
    ```

In parts, in any order, as the machine has time; each run is kept as soon as it has ended, and what is there is not run again:

    ```
    bench/checkpoint/run.py --keep runs.json --only "ceiling,ceiling new,millrace,millrace into"
    bench/checkpoint/run.py --keep runs.json --only dcp --place s3
    bench/checkpoint/run.py --keep runs.json --report                 the tables and targets of what there is
    ```

Rivals: torch.save and torch.load through S3 Connector for PyTorch (to a file: alone); torch.distributed.checkpoint with S3 Connector's storage (to a
folder: its own); safetensors with boto3 (to a file: alone); Run:ai Model Streamer, which only loads. They are those of `bench/setup_rivals s3` (run it
first); what is not installed is reported as missing. The ceiling is the same bytes without format, checksum and protocol (task.py), and reads into memory
that was touched before; "ceiling new" reads into new memory, as all do that return tensors. Server and client are pinned to one core each, in a network
namespace of their own whose loopback uses reno. Exits 1 if a target is missed (never with --quick).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "s3"))

from harness import (
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

SYSTEMS = (
    "ceiling",
    "ceiling new",
    "millrace",
    "millrace into",
    "millrace dcp",
    "torch.save",
    "dcp",
    "safetensors",
    "runai",
)
PLACES = ("s3", "folder")
CEILING_OF_LOADS = {"ceiling": "ceiling", "millrace into": "ceiling"}  # all others fill new memory
MIB = 1 << 20
LIMIT = 600  # seconds a system and round


class Runs:
    """Represents the results of the rounds of one place, by system."""

    def __init__(self) -> None:
        self.results: dict[str, list[Result]] = {name: [] for name in SYSTEMS}
        self.missing: dict[str, str] = {}

    def median(self, name: str, key: str) -> float:
        """Returns the median of all runs of all rounds, or NaN if there are no runs."""
        values = [value for result in self.results[name] for value in result[key]]
        return statistics.median(values) if values else float("nan")

    def ratio(self, name: str, what: str, unit: str = "") -> float:
        """Returns its speed, with its ceiling as 1. With ``unit`` "_cpu" it is by CPU-seconds."""
        ceiling = "ceiling" if what == "save" else CEILING_OF_LOADS.get(name, "ceiling new")
        return self.median(ceiling, what + unit) / self.median(name, what + unit)


class Kept:
    """All runs, in a file if there is one."""

    def __init__(self, path: Path | None, size: int) -> None:
        self._path = path
        self._size = size
        self.places = {place: Runs() for place in PLACES}
        if path is None or not path.exists():
            return
        found = json.loads(path.read_text())
        if found["bytes"] != size:
            raise SystemExit(
                f"{path} has runs of {found['bytes'] / MIB:,.0f} MiB, not of {size / MIB:,.0f}; give another --keep, or --full or --quick as then"
            )
        for place, results in found["places"].items():
            self.places[place].results.update(results)

    def write(self) -> None:
        if self._path is None:
            return
        partial = self._path.with_name(self._path.name + ".partial")
        partial.write_text(
            json.dumps(
                {"bytes": self._size, "places": {place: runs.results for place, runs in self.places.items()}}, indent=1
            )
        )
        os.replace(partial, self._path)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--full", action="store_true", help="4 GiB of tensors")
    size.add_argument("--quick", action="store_true", help="96 MiB of tensors, one round")
    parser.add_argument("--place", choices=PLACES, action="append", help="only there")
    parser.add_argument("--only", metavar="NAME,...", help="only these of: " + ", ".join(SYSTEMS))
    parser.add_argument("--rounds", type=int, help="interleaved rounds (default 3)")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="keep each run there, and do not run what is there")
    parser.add_argument("--report", action="store_true", help="run nothing: only print what --keep has")
    parser.add_argument(
        "--folder", type=Path, help="where the folder and the objects of devstore are (default: a temporary folder)"
    )
    parser.add_argument("--python", type=Path, default=RIVALS_PYTHON, help="the interpreter that has the rivals")
    add_arguments(parser)
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 3)
    options.bytes = (96 if options.quick else 4096 if options.full else 1024) * MIB
    options.only = options.only.split(",") if options.only else list(SYSTEMS)
    if unknown := set(options.only) - {*SYSTEMS}:
        parser.error(f"--only does not know {', '.join(sorted(unknown))}")
    if options.report and not options.keep:
        parser.error("--report is of the runs of --keep FILE")
    if options.report:
        return options
    if not options.python.exists():
        parser.error(
            f"{options.python} is missing: run bench/setup_rivals s3, or name a Python that has torch and numpy by --python"
        )
    complete_arguments(parser, options, ["millrace"])
    return options


def run_place(options: argparse.Namespace, place: str, folder: Path, kept: Kept) -> None:
    runs = kept.places[place]
    root = folder / "objects"
    (root / "bucket").mkdir(parents=True, exist_ok=True)
    for round_ in range(options.rounds):
        for name in SYSTEMS:
            if name not in options.only or name in runs.missing or len(runs.results[name]) > round_:
                continue
            # A server for each, since the harness counts connections at its port.
            with devstore(options, root, []) as environment:
                uri = "s3://bucket/run" if place == "s3" else str(folder / "run")
                environment = {**environment, **KEYS, "PYTHONPATH": str(options.build.parent / "python")}
                command = [
                    str(options.python),
                    str(Path(__file__).with_name("task.py")),
                    name,
                    uri,
                    "--bytes",
                    str(options.bytes),
                    "--runs",
                    "3",
                ]
                result = run_client(options, command, environment, LIMIT)
            shutil.rmtree(root / "bucket/run", ignore_errors=True)
            shutil.rmtree(folder / "run", ignore_errors=True)
            if isinstance(result, str):
                runs.missing[name] = result
                say(f"  {name}: {result}")
            else:
                runs.results[name].append(result)
                kept.write()
                times = ", ".join(
                    f"{what} {min(result[what]):.2f} s ({min(result[what + '_cpu']):.2f} CPU-s)"
                    for what in ("save", "load")
                    if result[what]
                )
                say(f"  round {round_ + 1}, {name}: {times}")


def shown(value: float, width: int, digits: int) -> str:
    return f"{'' if value != value else f'{value:,.{digits}f}':>{width}}"


def print_runs(place: str, runs: Runs, bytes_: int) -> None:
    say(
        f"\n{place}: {bytes_ / MIB:,.0f} MiB of tensors; medians, and each beside its ceiling by time and by CPU-seconds"
    )
    say(
        f"  {'':14}{'save MB/s':>10}{'time':>7}{'CPU':>6}{'load MB/s':>11}{'time':>7}{'CPU':>6}{'extra memory of a save, MiB':>29}{'stall s':>9}"
    )
    for name, results in runs.results.items():
        if not results:
            continue
        line = f"  {name:14}"
        for what, width in (("save", 10), ("load", 11)):
            line += shown(results[0]["bytes"] / 1e6 / runs.median(name, what), width, 0)
            line += shown(runs.ratio(name, what), 7, 2) + shown(runs.ratio(name, what, "_cpu"), 6, 2)
        extra = max(result["save_extra_bytes"] for result in results) / MIB if results[0]["save"] else float("nan")
        say(line + shown(extra, 29, 0) + shown(runs.median(name, "stall"), 9, 3))


def targets_of(place: str, runs: Runs) -> list[Target]:
    made = [
        Target(place, f"{what} of the ceiling's speed", runs.ratio("millrace", what), 0.9, True)
        for what in ("save", "load")
    ]
    made.append(
        Target(place, "load into tensors of the ceiling's speed", runs.ratio("millrace into", "load"), 0.9, True)
    )
    stall = runs.median("millrace", "stall") / runs.median("ceiling", "stall")
    made.append(Target(place, "stall of an asynchronous save to memcpy", stall, 1.3, False))
    for rival in ("torch.save", "dcp", "safetensors", "runai"):
        for what in ("save", "load"):
            if rival == "runai" and what == "save":
                continue
            made.append(
                Target(
                    place,
                    f"{what} as fast as {rival}",
                    runs.median(rival, what) / runs.median("millrace", what),
                    1.0,
                    True,
                )
            )
    return made


def main() -> int:
    options = parse_arguments()
    kept = Kept(options.keep, options.bytes)
    places = options.place or PLACES
    if not options.report:
        enter_namespace()
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            for place in places:
                say(f"{place}:")
                run_place(options, place, Path(folder), kept)
    targets: list[Target] = []
    for place in places:
        print_runs(place, kept.places[place], options.bytes)
        targets += targets_of(place, kept.places[place])
    say("\nTargets:")
    print_targets(targets)
    if options.json:
        report = {
            place: {"results": kept.places[place].results, "missing": kept.places[place].missing} for place in places
        }
        options.json.write_text(
            json.dumps(
                {"bytes": options.bytes, "places": report, "targets": [vars(target) for target in targets]}, indent=1
            )
        )
    measured = [target for target in targets if target.value == target.value]
    return 0 if options.quick or all(target.met for target in measured) else 1


if __name__ == "__main__":
    sys.exit(main())
