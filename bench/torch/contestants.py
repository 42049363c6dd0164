#!/usr/bin/env python3
"""Runs the contestants of run.py: one a process, one JSON object with what it took.

    AWS_ENDPOINT_URL=... build/bench-venv-torch/bin/python bench/torch/contestants.py webdataset --skip 8 --batches 32

All deliver batches of float32 [batch, 3, 224, 224] (images.py) from what lies below s3://b/, by `workers` workers or threads. The clock of the
first batch starts when all imports are done, before anything of the loader is made, opened or listed. The rate and the CPU-seconds are those of
`batches` batches after the first `skip`, in mid-epoch: what was read ahead before them, others have read ahead after them. Exits 3 if the
contestant is not installed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "src/diagnose/rivals")]

import images  # noqa: E402
import rival_loaders  # noqa: E402
import torch  # noqa: E402
import torch.utils.data  # noqa: E402
from rival_loaders import cpu_seconds, end_workers  # noqa: E402

MISSING = 3
BUCKET = "b"
Batches = Iterator[torch.Tensor]


@dataclass
class Task:
    batch: int
    workers: int
    skip: int
    batches: int
    scratch: Path  # empty, on a disk: for those that download shards to files
    began: float = 0.0
    at_end: list[Callable[[], None]] = field(default_factory=list)

    def begin(self) -> None:
        """All imports are done."""
        self.began = time.perf_counter()


def data_loader(dataset: Any, task: Task, **options: Any) -> torch.utils.data.DataLoader[Any]:
    return torch.utils.data.DataLoader(dataset, task.batch, num_workers=task.workers, **options)


def millrace_loader(task: Task, data: str) -> Batches:
    import millrace

    task.begin()
    millrace.configure(cpu_threads=task.workers)
    decoded: dict[str, Any] = {
        "size": images.SIZE,
        "augment": True,
        "normalize": (images.MEAN, images.STD),
    }
    with millrace.Loader(f"s3://{BUCKET}/{data}", batch_size=task.batch, seed=1, output="torch", **decoded) as loader:
        for batch in loader:
            yield batch["image"]


def map_dataset(task: Task, load: Callable[[bytes], torch.Tensor] = images.load) -> Batches:
    """Reads in the order of a Plan, so that workers read ahead."""
    import millrace.torch

    task.begin()
    uri = f"s3://{BUCKET}/tar"
    dataset = millrace.torch.MapDataset(uri, fields={"image": ("jpg", load)})
    for batch in data_loader(dataset, task, sampler=millrace.torch.Sampler(uri, seed=1)):
        yield batch["image"]


def load_object(item: Any) -> torch.Tensor:
    return images.load(item.read())


def map_dataset_raw(task: Task) -> Batches:
    """Reads objects as s3torchconnector does, in DataLoader's own random order."""
    import millrace.torch

    task.begin()
    dataset = millrace.torch.MapDataset.from_prefix(f"s3://{BUCKET}/objects/", objects=True, transform=load_object)
    yield from data_loader(dataset, task, shuffle=True)


def iterable_dataset(task: Task) -> Batches:
    import millrace.torch

    task.begin()
    dataset = millrace.torch.IterableDataset(f"s3://{BUCKET}/tar", fields={"image": ("jpg", images.load)}, seed=1)
    for batch in data_loader(dataset, task):
        yield batch["image"]


def rival(name: str, data: str) -> Callable[[Task], Batches]:
    """Runs a loader of rival_loaders.py, with the decoding of this comparison."""

    def batches(task: Task) -> Batches:
        theirs = rival_loaders.Task(
            uri=f"s3://{BUCKET}/{data}",
            kind="own",
            batch=task.batch,
            workers=task.workers,
            size=images.SIZE,
            scratch=task.scratch,
            load=images.load,
            finish=images.normalised,
        )
        theirs.check(name, rival_loaders.RIVALS[name].reads)
        begin = rival_loaders.RIVALS[name].begin(theirs)
        task.began = theirs.began
        task.at_end = theirs.at_end
        yield from begin()

    return batches


def millrace_distorted(task: Task, data: str) -> Batches:
    import millrace

    task.begin()
    millrace.configure(cpu_threads=task.workers)
    options: dict[str, Any] = {"size": images.SIZE, "augment": True, "seed": 1, "output": "torch", "raw": True}
    transform: dict[str, Any] = {"transform": millrace.Map(images.distort_sample, processes=task.workers)}
    with millrace.Loader(f"s3://{BUCKET}/{data}", batch_size=task.batch, **options, **transform) as loader:
        for batch in loader:
            yield batch["image"]


CONTESTANTS: dict[str, Callable[[Task], Batches]] = {
    "millrace": lambda task: millrace_loader(task, "tar"),
    "millrace-tiled": lambda task: millrace_loader(task, "tiled"),
    "millrace-raw": lambda task: millrace_loader(task, "raw"),
    "mapdataset": map_dataset,
    "mapdataset-raw": map_dataset_raw,
    "iterabledataset": iterable_dataset,
    "s3torchconnector": rival("s3torchconnector", "objects"),
    "webdataset": rival("webdataset", "tar"),
    "mosaicml": rival("mosaicml", "mds"),
    "litdata": rival("litdata", "litdata"),
    "spdl": rival("spdl", "tar"),
    "huggingface": rival("huggingface", "parquet"),
    "millrace-distort": lambda task: millrace_distorted(task, "tar"),
    "millrace-tiled-distort": lambda task: millrace_distorted(task, "tiled"),
    "mapdataset-distort": lambda task: map_dataset(task, images.load_distorted),
}


def check(batch: Any, task: Task) -> None:
    wanted = (task.batch, 3, images.SIZE, images.SIZE)
    if (
        not isinstance(batch, torch.Tensor)
        or tuple(batch.shape) != wanted
        or batch.dtype != torch.float32
        or not batch.is_contiguous()
    ):
        found = (
            f"{tuple(batch.shape)} {batch.dtype}, strides {batch.stride()}"
            if isinstance(batch, torch.Tensor)
            else type(batch).__name__
        )
        raise RuntimeError(f"a batch is {found}; expected contiguous float32 {wanted}")


def measure(batches: Batches, task: Task) -> dict[str, Any]:
    first_batch = 0.0
    means: list[list[float]] = []
    stds: list[float] = []
    for batch in itertools.islice(batches, task.skip):
        first_batch = first_batch or time.perf_counter() - task.began
        check(batch, task)
        means.append(batch.mean(dim=(0, 2, 3)).tolist())
        stds.append(float(batch.std()))
        if not bool((batch.flatten(1).std(dim=1) > 0).all()):
            raise RuntimeError("an image is of one colour: it was not decoded")
    if len({mean for mean, *_ in means}) < len(means):
        raise RuntimeError("two batches are the same")
    del batch
    began, burnt = time.perf_counter(), cpu_seconds()
    for _ in range(task.batches):
        check(next(batches), task)
    seconds, burnt = time.perf_counter() - began, cpu_seconds() - burnt
    samples = task.batch * task.batches
    return {
        "first_batch_seconds": first_batch,
        "seconds": seconds,
        "samples": samples,
        "samples_per_second": samples / seconds,
        "cpu_per_1000": 1000 * burnt / samples,
        "mean": [sum(channel) / len(means) for channel in zip(*means)],
        "std": sum(stds) / len(stds),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=CONTESTANTS)
    parser.add_argument("--batch", type=int, default=128, help="samples of a batch (default 128)")
    parser.add_argument("--workers", type=int, default=2, help="worker processes, or decoding threads (default 2)")
    parser.add_argument("--skip", type=int, default=8, help="batches before the clock of the rate starts (default 8)")
    parser.add_argument("--batches", type=int, default=32, help="batches that are measured (default 32)")
    parser.add_argument("--scratch", type=Path, required=True, help="an empty folder for what is downloaded")
    options = parser.parse_args()
    task = Task(options.batch, options.workers, options.skip, options.batches, options.scratch)
    torch.set_num_threads(1)
    random.seed(1)
    try:
        batches = CONTESTANTS[options.name](task)
        result = measure(batches, task)
    except ImportError as error:
        print(f"contestants.py: {options.name} is not installed: {error}", file=sys.stderr)
        return MISSING
    print(json.dumps(result), flush=True)
    end_workers()
    for clean in task.at_end:
        clean()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
