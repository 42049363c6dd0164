"""Loaders of others over a data set of images, for `millrace bench --rival` (which runs this file) and bench/torch (which imports it).

    python rival_loaders.py NAME URI --kind tar --batch 128 --workers 2 --size 224 --scratch FOLDER

Each makes batches of u8 [rows, size, size, 3]: JPEGs that are decoded, cropped at random, resized and flipped, as Millrace does it with
`augment`. The last line on stdout is a JSON object with what it took, and with the mean of the pixels, by which the caller checks that the images
were decoded. Exits 3 if a package is missing, 4 if the loader cannot read such data; the last line on stderr says what to do.

    python rival_loaders.py NAME URI --kind tar --copy-from FOLDER --copy-to FOLDER

makes a copy of the images of FOLDER in the format of a loader that does not read data of that kind, or reads another
one faster. For other loaders, it makes nothing.

    python rival_loaders.py NAME URI --kind raw --epochs 3 --keep --scratch FOLDER

reports what each of so many epochs took, if the loader keeps what it has read on the disk.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import math
import os
import random
import re
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import rival_copies
import rival_frameworks
import rival_mounts
import rival_torch
from rival_images import Epochs, Refused, Task, load_u8

MISSING = 3
REFUSED = 4


@dataclass
class Rival:
    begin: Callable[[Task], Epochs]
    packages: str
    reads: tuple[str, ...]  # the first is what it reads if nothing is said
    copy: str = ""  # the format of its copy, if it reads that faster than any of these


RIVALS = {
    "dataloader": Rival(rival_torch.dataloader, "torch numpy pillow fsspec s3fs", ("raw", "tar")),
    "s3torchconnector": Rival(rival_torch.s3torchconnector, "torch numpy pillow s3torchconnector", ("raw", "tar")),
    "webdataset": Rival(rival_torch.webdataset, "torch numpy pillow webdataset boto3", ("tar",)),
    "mosaicml": Rival(rival_torch.mosaicml, "torch numpy pillow mosaicml-streaming", ("mds",)),
    "litdata": Rival(rival_torch.litdata, "torch numpy pillow litdata obstore", ("litdata",)),
    "spdl": Rival(rival_torch.spdl, "torch numpy spdl-core spdl-io obstore", ("tar",)),
    "huggingface": Rival(rival_torch.huggingface, "torch numpy pillow datasets s3fs", ("parquet",)),
    "tfdata": Rival(rival_frameworks.tfdata, "tensorflow-cpu numpy boto3", ("tfrecord",)),
    "dali": Rival(rival_frameworks.dali, "nvidia-dali-cuda120 numpy boto3", ("tar",), copy="files"),
    "ray": Rival(rival_frameworks.ray_data, "ray[data] numpy pillow", ("raw", "tar")),
    "s3fs": Rival(rival_mounts.s3fs, "torch numpy pillow fsspec", ("raw", "tar")),
    "rclone": Rival(rival_mounts.rclone, "torch numpy pillow fsspec", ("raw", "tar")),
}


# ---- Measuring


def processes() -> list[str]:
    """Returns this process, its children and theirs, while they live."""
    pids = ["self"]
    for pid in pids:
        with contextlib.suppress(OSError):  # it has just ended
            for task in Path(f"/proc/{pid}/task").iterdir():
                with contextlib.suppress(OSError):
                    pids += (task / "children").read_text().split()
    return pids


def cpu_seconds() -> float:
    """Returns the CPU seconds of this process and of all below it, also of those that have ended and were waited
    for."""
    ticks = 0
    for pid in processes():
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(int(value) for value in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def end_workers() -> None:
    """Some wait at the interpreter's end for workers that wait for them."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # PyTorch raises an error for a worker that is killed
    for pid in processes():
        if pid != "self":
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


@dataclass
class Pixels:
    """Has the means of the images of the first epoch, or of as many of them as are asked for."""

    wanted: int
    samples: int = 0
    total: float = 0.0
    squares: float = 0.0
    whole_epoch: bool = False

    @property
    def done(self) -> bool:
        return self.whole_epoch or self.samples >= self.wanted

    def add(self, batch: Any, size: int) -> None:
        import numpy

        images = numpy.asarray(batch)
        if images.shape[1:] != (size, size, 3) or images.dtype != numpy.uint8:
            raise RuntimeError(f"a batch is {images.shape} {images.dtype}; expected uint8 [rows, {size}, {size}, 3]")
        values = images.reshape(len(images), -1)
        if bool((values.min(axis=1) == values.max(axis=1)).any()):
            raise RuntimeError("an image is of one colour: it was not decoded")
        means = values.mean(axis=1, dtype=numpy.float64)
        self.samples += len(batch)
        self.total += float(means.sum())
        self.squares += float((means * means).sum())

    def report(self) -> dict[str, Any]:
        mean = self.total / self.samples
        return {
            "samples": self.samples,
            "mean": mean,
            "deviation": math.sqrt(max(0.0, self.squares / self.samples - mean * mean)),
            "whole_epoch": self.whole_epoch,
        }


class Stream:
    """Yields batches of epochs that follow one another without end."""

    def __init__(self, epochs: Epochs) -> None:
        self.ended = 0
        self._epochs = epochs
        self._now = epochs()
        self._empty = True

    def next(self) -> Any:
        while (batch := next(self._now, None)) is None:
            if self._empty:
                raise RuntimeError("an epoch has no samples")
            self.ended += 1
            self._empty = True
            self._now = self._epochs()
        self._empty = False
        return batch


def measure(stream: Stream, task: Task, options: argparse.Namespace) -> dict[str, Any]:
    batch = stream.next()
    result: dict[str, Any] = {"first_batch_seconds": time.perf_counter() - task.began}
    pixels = Pixels(options.check)
    warm_up = time.perf_counter() + options.warm_up
    while not pixels.done or time.perf_counter() < warm_up:
        if not pixels.done:
            pixels.add(batch, task.size)
        batch = stream.next()
        pixels.whole_epoch = pixels.whole_epoch or (stream.ended > 0 and not pixels.done)
    result["pixels"] = pixels.report()
    result["windows"] = []
    for _ in range(options.repeats):
        began, burnt, samples = time.perf_counter(), cpu_seconds(), 0
        while (seconds := time.perf_counter() - began) < options.seconds or not samples:
            samples += len(stream.next())
        result["windows"].append({"seconds": seconds, "samples": samples, "cpu_seconds": cpu_seconds() - burnt})
    return result


def measure_epochs(epochs: Epochs, count: int) -> dict[str, Any]:
    """Measures each from its beginning: nothing is warmed up, since the first one is what it is about."""
    costs = []
    for _ in range(count):
        began, burnt = time.perf_counter(), cpu_seconds()
        samples = sum(len(batch) for batch in epochs())
        costs.append({"seconds": time.perf_counter() - began, "samples": samples, "cpu_seconds": cpu_seconds() - burnt})
    return {"epochs": costs}


def versions(name: str) -> dict[str, str]:
    found = {}
    for package in RIVALS[name].packages.split():
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package.partition("[")[0])
    return found


def said(error: Exception) -> str:
    """Returns the end of the error, which says why, in a line. URLs lose what may be a signature."""
    text = re.sub(r"\?[^\s'\"]+", "?...", " ".join(str(error).split()))
    return text if len(text) <= 300 else "..." + text[-300:]


def install_command(packages: str, environment: str) -> str:
    """Returns the command for an environment of its own, which may exist already."""
    folder = shlex.quote(environment)
    return f"python3 -m venv {folder} && {folder}/bin/pip install {packages}"


def needs_copy(rival: Rival, kind: str) -> bool:
    return bool(rival.copy) or kind not in rival.reads


def copy(rival: Rival, kind: str, into: Path, images: Path) -> None:
    if needs_copy(rival, kind):
        rival_copies.WRITERS[rival.copy or rival.reads[0]](
            rival_copies.images_below(images), into, rival_copies.SHARD_BYTES
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=RIVALS)
    parser.add_argument("uri")
    parser.add_argument(
        "--kind", default="own", help="what the data are: tar, raw, mds ...; own: what the loader reads (default)"
    )
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--workers", type=int, default=2, help="worker processes, or decoding threads")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--warm-up", type=float, default=1.0, help="seconds that are not counted")
    parser.add_argument("--seconds", type=float, default=2.0, help="of a repeat, at the least")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--check", type=int, default=2000, help="images whose pixels are added up, at the most an epoch's"
    )
    parser.add_argument("--epochs", type=int, help="tell what each of so many epochs took, instead")
    parser.add_argument(
        "--keep", action="store_true", help="keep what was read below the scratch folder, for later epochs"
    )
    parser.add_argument(
        "--environment",
        default="ENVIRONMENT",
        help="the folder of an environment that has its packages, for what is said if they are missing",
    )
    parser.add_argument(
        "--needs-copy", action="store_true", help="say yes if it gets a copy of data of that kind, else no, and end"
    )
    parser.add_argument("--copy-from", type=Path, help="a folder of images, raw or in tar shards")
    parser.add_argument("--copy-to", type=Path, help="a folder that does not exist")
    parser.add_argument("--scratch", type=Path, required=True, help="an empty folder for what is downloaded")
    options = parser.parse_args()
    options.scratch.mkdir(parents=True, exist_ok=True)
    random.seed(1)
    # Workers that are killed leave files and sockets behind. The path is short: that of a socket has at most 108 characters.
    temporary = tempfile.mkdtemp(prefix="r-")
    tempfile.tempdir = os.environ["TMPDIR"] = temporary
    load = functools.partial(load_u8, size=options.size)
    task = Task(options.uri, options.kind, options.batch, options.workers, options.size, options.scratch, load)
    task.cache = options.scratch / "kept" if options.keep else None
    rival = RIVALS[options.name]
    status, why = 0, ""
    try:
        if options.needs_copy:
            print("yes" if needs_copy(rival, options.kind) else "no", flush=True)
        elif options.copy_to:
            copy(rival, options.kind, options.copy_to, options.copy_from)
        else:
            task.check(options.name, rival.reads)
            if "torch" in rival.packages.split():
                import torch

                torch.set_num_threads(1)
            epochs = rival.begin(task)
            took = measure_epochs(epochs, options.epochs) if options.epochs else measure(Stream(epochs), task, options)
            print(json.dumps({**took, "versions": versions(options.name)}), flush=True)
    except ImportError as error:
        install = install_command(rival.packages, options.environment)
        status, why = (
            MISSING,
            f"Python's package '{error.name}' is missing in {sys.executable}; this installs it: {install}",
        )
    except Refused as error:
        status, why = REFUSED, str(error)
    except Exception as error:
        status, why = 1, f"{type(error).__name__}: {said(error)}"
    for end in task.to_end:
        end()
    end_workers()
    for clean in task.at_end:
        clean()
    for folder in (options.scratch, temporary):
        shutil.rmtree(folder, ignore_errors=True)
    if why:  # the last line, whatever warnings came before
        print(why, file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(status)


if __name__ == "__main__":
    sys.exit(main())
