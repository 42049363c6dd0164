#!/usr/bin/env python3
"""Batches for training from S3 at 30 ms: Millrace beside the loaders that PyTorch users have, from one devstore, in one run.

    ```
    bench/torch/run.py                       3,600 JPEGs of 640 x 480 and 115 KB, three interleaved runs (a quarter of an hour on two quiet cores)
    bench/torch/run.py --quick               2,400 JPEGs, one run: some minutes; shows that everything works
    bench/torch/run.py --only millrace,spdl  these; targets that lack one of their two are not measured
    bench/torch/run.py --json result.json
    ```

Contestants: @CONTESTANTS@.

The rivals are those of `bench/setup_rivals torch` (run it first); what is not installed is reported as left out. Exits 1 if a target is missed
(never with --quick). bench/README.md explains columns and contestants.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "s3"))

from harness import (
    REPOSITORY,
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

PYTHON = REPOSITORY / "build/bench-venv-torch/bin/python"
SLOW_MS = 30
SHARD_BYTES = 32 << 20
WORKERS = 2
INDEXED = ("raw", "tar", "tiled")  # what Millrace's Loader reads
PILLOW = ("s3torchconnector", "webdataset", "mosaicml", "litdata", "huggingface")
CONTESTANTS = {
    "millrace": "Loader, tar shards",
    "millrace-tiled": "Loader, tar shards packed with --jpeg-tiles (the same pixels)",
    "millrace-raw": "Loader, raw objects",
    "mapdataset": "our MapDataset and Sampler, tar shards",
    "mapdataset-raw": "our MapDataset, raw objects",
    "iterabledataset": "our IterableDataset, tar shards",
    "s3torchconnector": "S3MapDataset, raw objects",
    "webdataset": "tar shards by curl",
    "mosaicml": "MDS",
    "litdata": "its chunks",
    "spdl": "tar shards by obstore",
    "huggingface": "datasets, Parquet",
    "millrace-distort": "Loader, 2 processes of a Map",
    "millrace-tiled-distort": "the same, shards packed with --jpeg-tiles",
    "mapdataset-distort": "our MapDataset, 2 workers",
}


@dataclass(frozen=True)
class Size:
    """Represents the amount of data. Enough batches follow the measured ones for all workers to read ahead until the
    end."""

    images: int
    skip: int
    batches: int
    batch: int = 128


FULL = Size(images=3600, skip=8, batches=16)
QUICK = Size(images=2400, skip=4, batches=10)


@dataclass
class Outcome:
    runs: dict[str, list[Result]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def median(self, name: str, key: str) -> float:
        """Returns NaN if there is none, so that no comparison with it holds."""
        return statistics.median(run[key] for run in self.runs[name]) if name in self.runs else float("nan")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").replace("@CONTESTANTS@", ", ".join(CONTESTANTS)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="fewer images and one run, unless told otherwise")
    parser.add_argument("--only", metavar="NAME,...", help="only these contestants")
    parser.add_argument("--runs", type=int, help="interleaved runs of which the median counts (default 3)")
    parser.add_argument(
        "--cache", type=Path, default=REPOSITORY / "build/bench-data/torch", help="where the data are kept (3 GB)"
    )
    parser.add_argument("--python-path", type=Path, help="with the package millrace (default: build/release/python)")
    add_arguments(parser)
    options = parser.parse_args()
    options.runs = options.runs or (1 if options.quick else 3)
    options.only = options.only.split(",") if options.only else list(CONTESTANTS)
    if unknown := set(options.only) - set(CONTESTANTS):
        parser.error(f"--only does not know {', '.join(sorted(unknown))}")
    cores = sorted(os.sched_getaffinity(0))
    # Two workers want two cores: on a machine with two the server takes what it needs of the first one.
    options.client_cores = options.client_cores or ",".join(map(str, cores[1:] if len(cores) > 2 else cores))
    complete_arguments(parser, options, ["millrace"])
    options.python_path = options.python_path or options.build.parent / "python"
    if not PYTHON.exists():
        parser.error("the rivals are not installed: bench/setup_rivals torch")
    return options


def make_data(options: argparse.Namespace, count: int) -> Path:
    """Makes the data, served as bucket `b`, in the format of each contestant and without Millrace's indexes. Each
    format appears when it is whole."""
    root = options.cache / str(count)
    served = root / "b"
    millrace = options.build / "millrace"
    run = lambda *args: subprocess.run([millrace, *map(str, args)], check=True, stdout=subprocess.DEVNULL)  # noqa: E731
    served.mkdir(parents=True, exist_ok=True)
    if not (served / "raw").exists():
        say(f"Making {count:,} JPEGs of 115 KB in {served}, once ...")
        making = root / f".raw.{os.getpid()}"
        run("synth", making, "--count", count, "--kb", 115, "--seed", 1)
        making.rename(served / "raw")
    if not (served / "objects").exists():  # for those that list a prefix, which must not find an index there
        making = root / f".objects.{os.getpid()}"
        shutil.copytree(served / "raw", making, copy_function=os.link, ignore=shutil.ignore_patterns(".millrace"))
        making.rename(served / "objects")
    if not (served / "tar").exists():
        making = root / f".tar.{os.getpid()}"
        run("pack", served / "raw", making, "--shard-size", SHARD_BYTES)
        making.rename(served / "tar")
    if not (served / "tiled").exists():
        making = root / f".tiled.{os.getpid()}"
        run("pack", served / "raw", making, "--shard-size", SHARD_BYTES, "--jpeg-tiles")
        making.rename(served / "tiled")
    # An index that was made through the file system does not describe the objects as the server shows them.
    for name in INDEXED:
        shutil.rmtree(served / name / ".millrace", ignore_errors=True)
    subprocess.run(
        [PYTHON, Path(__file__).with_name("data.py"), served, "--shard-size", str(SHARD_BYTES)],
        check=False,
        stdout=subprocess.DEVNULL,
    )
    for path in served.rglob("*"):  # into the page cache: no run is to wait for the disk
        if path.is_file():
            path.read_bytes()
    return root


def measure(options: argparse.Namespace, size: Size, root: Path) -> Outcome:
    outcome = Outcome()
    script = str(Path(__file__).with_name("contestants.py"))
    shape = ["--batch", size.batch, "--workers", WORKERS, "--skip", size.skip, "--batches", size.batches]
    with devstore(options, root, ["--first-byte-ms", str(SLOW_MS)]) as environment:
        environment = {**environment, "PYTHONPATH": str(options.python_path), "HF_HUB_OFFLINE": "1"}
        for name in INDEXED:
            subprocess.run(
                [options.build / "millrace", "index", f"s3://b/{name}"],
                check=True,
                stdout=subprocess.DEVNULL,
                env=environment,
            )
        for number in range(options.runs):
            say(f"Run {number + 1} of {options.runs}, load {os.getloadavg()[0]:.1f} ...")
            for name in options.only:
                if name in outcome.missing and name not in outcome.runs:
                    continue
                with tempfile.TemporaryDirectory(dir=options.cache, prefix=".scratch-") as scratch:
                    command = [str(PYTHON), script, name, *map(str, shape), "--scratch", scratch]
                    result = run_client(options, command, environment, 600, memory=True)
                if isinstance(result, str):
                    outcome.missing[name] = result
                    say(f"  {name} fails: {result}")
                else:
                    result["load"] = os.getloadavg()[0]
                    outcome.runs.setdefault(name, []).append(result)
                    rate, cpu, first = (
                        result[key] for key in ("samples_per_second", "cpu_per_1000", "first_batch_seconds")
                    )
                    say(
                        f"  {name}: {rate:.0f} samples/s, {cpu:.2f} CPU-s/1000, first batch {first:.2f} s, load {result['load']:.1f}"
                    )
    check_pixels(outcome)
    return outcome


def check_pixels(outcome: Outcome) -> None:
    """All have decoded, cropped and normalised the same images, in other orders and with other random numbers: their means and deviations agree."""
    measured = {name: run for name, runs in outcome.runs.items() for run in runs[:1] if not name.endswith("-distort")}
    if not measured:
        return
    usual = [statistics.median(run["mean"][channel] for run in measured.values()) for channel in range(3)]
    deviation = statistics.median(run["std"] for run in measured.values())
    for name, run in measured.items():
        if (
            max(abs(mean - other) for mean, other in zip(run["mean"], usual)) > 0.08
            or abs(run["std"] - deviation) > 0.08
        ):
            outcome.missing[name] = (
                f"its pixels are others: mean {run['mean']}, deviation {run['std']:.3f}; usual: {usual}, {deviation:.3f}"
            )
            del outcome.runs[name]


def print_outcome(outcome: Outcome) -> None:
    say(
        f"\n{'':20}{'samples/s':>10}{'spread':>8}{'CPU-s/1000':>12}{'spread':>8}{'PSS MiB':>9}{'first batch':>13}{'conns':>7}  reads"
    )
    for name, runs in outcome.runs.items():
        text = f"{name:20}"
        for key, width, digits in (("samples_per_second", 10, 0), ("cpu_per_1000", 12, 2)):
            values = [run[key] for run in runs]
            middle = statistics.median(values)
            text += f"{middle:{width}.{digits}f}{(max(values) - min(values)) / middle:8.0%}"
        conns = max((run["connections"] or 0) for run in runs)
        text += f"{max(run['pss_bytes'] for run in runs) / 2**20:9.0f}{outcome.median(name, 'first_batch_seconds'):11.2f} s{conns:7}"
        say(f"{text}  {CONTESTANTS[name]}")
    for name, why in outcome.missing.items():
        say(f"{name:20}{'failed in a run' if name in outcome.runs else 'left out'}: {why}")


def targets_of(outcome: Outcome) -> list[Target]:
    def ratio(key: str, one: str, other: str) -> float:
        return outcome.median(one, key) / outcome.median(other, key)

    targets = []
    for ours in ("millrace", "millrace-tiled"):
        for name, least in [*((name, 3) for name in PILLOW), ("spdl", 2)]:
            targets.append(
                Target(
                    "CPU", f"samples/CPU-s of {ours}, against {name}", ratio("cpu_per_1000", name, ours), least, True
                )
            )
    for ours in ("mapdataset", "mapdataset-raw"):
        rate = ratio("samples_per_second", ours, "s3torchconnector")
        targets.append(Target("DataLoader", f"samples/s of {ours}, against s3torchconnector", rate, 1.5, True))
    for ours in ("millrace", "mapdataset-raw"):
        sooner = ratio("first_batch_seconds", "s3torchconnector", ours)
        targets.append(Target("first batch", f"s3torchconnector's, against that of {ours}", sooner, 5, True))
    for ours in ("millrace-distort", "millrace-tiled-distort"):
        rate = ratio("samples_per_second", ours, "mapdataset-distort")
        targets.append(Target("transform", f"samples/s of {ours}, against DataLoader", rate, 1.5, True))
    return targets


def main() -> int:
    options = parse_arguments()
    enter_namespace()
    size = QUICK if options.quick else FULL
    root = make_data(options, size.images)
    congestion = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    say(
        f"{size.images:,} JPEGs of 115 KB to batches of {size.batch} f32 [3, 224, 224]; {SLOW_MS} ms, {WORKERS} workers or decoding threads. devstore on CPU "
        f"{options.server_cores}, clients on CPU {options.client_cores}, loopback with {congestion}, load {os.getloadavg()[0]:.1f}. Median of {options.runs} "
        "interleaved runs; PSS and connections are the most of them."
    )
    outcome = measure(options, size, root)
    print_outcome(outcome)
    targets = targets_of(outcome)
    say("\nTargets:")
    print_targets(targets)
    if options.quick:
        say("(a quick run: the figures show that everything works, no more)")
    if options.json:
        record = {
            "settings": {
                name: str(value) if isinstance(value, Path) else value for name, value in vars(options).items()
            },
            "congestion": congestion,
            "runs": outcome.runs,
            "left_out": outcome.missing,
            "targets": [{**vars(target), "met": target.met} for target in targets],
        }
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    return 0 if options.quick or all(target.met for target in targets) else 1


if __name__ == "__main__":
    sys.exit(main())
