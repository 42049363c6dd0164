#!/usr/bin/env python3
"""Runs the contestants of run.py: one a process, which reads all samples of s3://b/ in each of several epochs through a
cache on a local disk.

    AWS_ENDPOINT_URL=... build/bench-venv-cache/bin/python bench/cache/contestants.py mosaicml --capacity 64000000 --scratch DIR

After each epoch it prints one JSON object with the samples, their bytes, seconds and CPU-seconds of all its processes. Then it waits for a line on
stdin, so that the program that started it can look at the server in between. Nothing is decoded. Exits 3 if the contestant is not installed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "torch"), str(HERE.parent / "s3")]

from rival_task import cpu_seconds, processes  # noqa: E402

MISSING = 3
BUCKET = "b"
BATCH = 8
WINDOW = {
    "window": 8,
    "extent": 2,
    "lanes": 8,
}  # of less than 2 MB, which fits into a small memory; run.py simulates the same
Epochs = Iterator[Iterator[list[bytes]]]  # the stored bytes of the samples of each batch


@dataclass
class Task:
    epochs: int
    capacity: int  # bytes of the disk
    workers: int
    memory: int  # of Millrace, which others do not bound
    scratch: Path

    @property
    def endpoint(self) -> str:
        return os.environ["AWS_ENDPOINT_URL"]


def millrace_loader(task: Task, shuffle: str) -> Epochs:
    import millrace

    millrace.configure(cpu_threads=task.workers)
    options: dict[str, Any] = {
        "batch_size": BATCH,
        "seed": 1,
        "shuffle": millrace.Shuffle(**WINDOW) if shuffle == "window" else shuffle,
        "memory": task.memory,
        "epochs": task.epochs,
        "output": "numpy",
    }
    fields = {"image": millrace.Bytes("jpg")}
    with millrace.Loader(
        f"s3://{BUCKET}/tar", cache=millrace.Cache(task.scratch, size=task.capacity), fields=fields, **options
    ) as loader:
        for _ in range(task.epochs):
            yield ([image for image, valid in zip(batch["image"], batch["valid"]) if valid] for batch in loader)


def images_of(samples: list[dict[str, bytes]]) -> list[bytes]:
    return [sample["image"] for sample in samples]


def mosaicml(task: Task) -> Epochs:
    """Removes the shards that were used longest ago."""
    import torch.utils.data
    from data import import_streaming

    base = import_streaming()
    from streaming.base.util import clean_stale_shared_memory

    clean_stale_shared_memory()
    os.environ["S3_ENDPOINT_URL"] = task.endpoint
    dataset = base.StreamingDataset(
        remote=f"s3://{BUCKET}/mds",
        local=str(task.scratch / "mds"),
        shuffle=True,
        shuffle_seed=1,
        num_canonical_nodes=1,
        batch_size=BATCH,
        cache_limit=task.capacity,
    )
    for stream in dataset.streams:
        stream._downloader.clean_up()  # as in src/diagnose/rivals/rival_torch.py
    loader = torch.utils.data.DataLoader(
        dataset, BATCH, num_workers=task.workers, collate_fn=images_of, persistent_workers=True
    )
    for _ in range(task.epochs):
        yield iter(loader)


def litdata(task: Task) -> Epochs:
    """Removes chunks when they were read, if there is no room."""
    import litdata as lit

    lit.streaming.downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True  # which it has no option for
    dataset = lit.StreamingDataset(
        f"s3://{BUCKET}/litdata",
        cache_dir=str(task.scratch),
        max_cache_size=task.capacity,
        shuffle=True,
        seed=1,
        storage_options={"endpoint_url": task.endpoint},
    )
    loader = lit.StreamingDataLoader(dataset, batch_size=BATCH, num_workers=task.workers, collate_fn=images_of)
    for _ in range(task.epochs):
        yield iter(loader)


def filecache(task: Task) -> Epochs:
    """fsspec's cache of whole files before s3fs, one file a sample, a batch at a time: it is not safe for threads. It has no bound: it keeps all."""
    import fsspec

    target = {
        "endpoint_url": task.endpoint,
        "key": os.environ["AWS_ACCESS_KEY_ID"],
        "secret": os.environ["AWS_SECRET_ACCESS_KEY"],
    }
    files = fsspec.filesystem(
        "filecache", target_protocol="s3", target_options=target, cache_storage=str(task.scratch / "files")
    )
    keys = sorted(key for key in files.find(f"{BUCKET}/objects") if key.endswith(".jpg"))

    def read(some: list[str]) -> list[bytes]:
        found = files.cat(some)
        return list(found.values()) if isinstance(found, dict) else [found]

    for epoch in range(task.epochs):
        order = random.Random(epoch).sample(keys, len(keys))
        yield (read(order[at : at + BATCH]) for at in range(0, len(order), BATCH))


CONTESTANTS: dict[str, Callable[[Task], Epochs]] = {
    "millrace": lambda task: millrace_loader(task, "window"),
    "millrace-global": lambda task: millrace_loader(task, "global"),
    "mosaicml": mosaicml,
    "litdata": litdata,
    "filecache": filecache,
}


def finish() -> None:
    """Ends the process without the interpreter's end, since some contestants wait there for workers that wait for them."""
    for pid in processes():
        if pid != "self":
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                pass
    os._exit(0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=CONTESTANTS)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--capacity", type=int, required=True, help="bytes that the cache may take of the disk")
    parser.add_argument("--workers", type=int, default=2, help="worker processes, or threads (default 2)")
    parser.add_argument("--memory", type=int, required=True, help="bytes of memory for Millrace")
    parser.add_argument("--scratch", type=Path, required=True, help="an empty folder for the cache")
    options = parser.parse_args()
    task = Task(options.epochs, options.capacity, options.workers, options.memory, options.scratch)
    try:
        began, burnt = time.perf_counter(), cpu_seconds()
        for epoch in CONTESTANTS[options.name](task):
            samples = size = 0
            for batch in epoch:
                samples += len(batch)
                size += sum(map(len, batch))
            now, cpu = time.perf_counter(), cpu_seconds()
            print(
                json.dumps({"samples": samples, "bytes": size, "seconds": now - began, "cpu_seconds": cpu - burnt}),
                flush=True,
            )
            sys.stdin.readline()
            began, burnt = time.perf_counter(), cpu_seconds()
    except ImportError as error:
        print(f"contestants.py: {options.name} is not installed: {error}", file=sys.stderr)
        return MISSING
    finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
