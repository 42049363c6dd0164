#!/usr/bin/env python3
"""Runs the trainer of a contestant of run.py: one process, one JSON object with what it took.

    build/bench-venv-service/bin/python bench/service/trainer.py millrace --rows DIR --workers 127.0.0.1:7070 127.0.0.1:7071

It takes batches of u8 [batch, 224, 224, 3] in host memory as fast as they come. The first ones are compared with the rows, byte by byte. Then the clock starts,
and for `--seconds` only their shape is checked. CPU-seconds are those of this process, of its descendants and of `--with-process`, user and system.
With `--kill PID` a worker gets a signal in the middle of that, and the longest wait between two batches after it is reported.
Exits 3 if the contestant is not installed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "s3")]

import numpy as np  # noqa: E402
import rows  # noqa: E402
from rival_task import cpu_seconds  # noqa: E402

MISSING = 3
Batches = Iterator[Any]


@dataclass
class Task:
    batch: int
    folder: Path
    workers: list[str]  # HOST:PORT; of tf.data service the dispatcher, of Ray the head


def millrace_loader(task: Task, data: str, **options: Any) -> Batches:
    import millrace

    with millrace.Loader(
        task.folder / data, batch_size=task.batch, seed=1, output="numpy", workers=task.workers, **options
    ) as loader:
        while True:
            for batch in loader:
                yield batch["image"]


def millrace_npy(task: Task) -> Batches:
    import millrace

    return millrace_loader(task, "npy", fields={"image": millrace.Array("npy")}, shuffle="none")


def millrace_bmp(task: Task) -> Batches:
    """Reads rows in their stored order, as the rivals do. Then the worker keeps decoded batches, as tf.data's ``cache()`` does."""
    return millrace_loader(task, "bmp", size=(rows.SIZE, rows.SIZE), shuffle="none")


def millrace_read(task: Task) -> Batches:
    return millrace_loader(task, "bmp", size=(rows.SIZE, rows.SIZE))


def tf_data(task: Task) -> Batches:
    """Each worker keeps the batches that it has made, so that it does nothing but send them."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    import tensorflow as tf

    def row(data: Any) -> Any:
        return tf.reshape(tf.io.decode_raw(data, tf.uint8), rows.SHAPE)

    dataset = tf.data.FixedLengthRecordDataset(str(task.folder / "rows.bin"), rows.ROW_BYTES).map(row)
    dataset = dataset.batch(task.batch, drop_remainder=True).cache().repeat()
    service = tf.data.experimental.service.distribute(
        processing_mode=tf.data.experimental.service.ShardingPolicy.OFF,
        service=f"grpc://{task.workers[0]}",
        compression=None,
    )
    yield from dataset.apply(service).prefetch(tf.data.AUTOTUNE).as_numpy_iterator()  # without a copy


def ray_data(task: Task) -> Batches:
    """Blocks of one batch each, made by tasks on the workers' nodes from rows that lie in memory."""
    import ray

    ray.init(address=task.workers[0], log_to_driver=False, configure_logging=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    path, shape, batch = task.folder / "rows.bin", rows.SHAPE, task.batch
    most = 4000  # batches, many more than are taken

    def load(block: dict[str, Any]) -> dict[str, Any]:
        mapped = np.memmap(path, np.uint8, "r").reshape(-1, *shape)
        begin = int(block["id"][0]) * batch % (len(mapped) - batch + 1)
        return {"image": mapped[begin : begin + batch]}

    dataset = ray.data.range(most, override_num_blocks=most).map_batches(load, batch_size=1)
    for taken in dataset.iter_batches(batch_size=task.batch, batch_format="numpy", prefetch_batches=4):
        yield taken["image"]


def grpc_streams(addresses: list[str]) -> Iterator[Any]:
    """Yields a batch of each stream in turn."""
    import grpc
    import torch

    warnings.filterwarnings("ignore", message="The given buffer is not writable")
    most = [("grpc.max_receive_message_length", 200 << 20)]
    channels = [grpc.insecure_channel(address, options=most) for address in addresses]
    streams = [channel.unary_stream("/feed/get_examples")(b"") for channel in channels]
    for stream in itertools.cycle(streams):
        yield torch.frombuffer(next(stream), dtype=torch.uint8).view(-1, *rows.SHAPE)


def grpc_loader(task: Task, loaders: int) -> Batches:
    """Works as AWS's sample: an IterableDataset of batches that come as messages, below a DataLoader."""
    import grpc  # noqa: F401  (if it is missing, the error comes here and not in a process of the DataLoader)
    import torch.utils.data

    class Remote(torch.utils.data.IterableDataset):  # type: ignore[type-arg]
        def __iter__(self) -> Iterator[Any]:
            info = torch.utils.data.get_worker_info()
            return grpc_streams(task.workers if info is None else task.workers[info.id :: info.num_workers])

    for batch in torch.utils.data.DataLoader(Remote(), batch_size=None, num_workers=loaders):
        yield batch.numpy()


CONTESTANTS: dict[str, Callable[[Task], Batches]] = {
    "millrace": millrace_bmp,
    "millrace-npy": millrace_npy,
    "millrace-read": millrace_read,
    "tfdata": tf_data,
    "ray": ray_data,
    "grpc": lambda task: grpc_loader(task, len(task.workers)),
    "grpc-inline": lambda task: grpc_loader(task, 0),
}


def measure(batches: Batches, task: Task, options: argparse.Namespace) -> dict[str, Any]:
    mapped = rows.open_rows(task.folder / "rows.bin")
    for batch in itertools.islice(batches, options.skip):
        rows.check(batch, mapped, task.batch)
    del batch
    also = [str(pid) for pid in options.with_process]
    burnt, began = cpu_seconds("self", *also), time.perf_counter()
    last, longest, count, killed = began, 0.0, 0, options.kill == 0
    while last - began < options.seconds:
        if not killed and last - began > options.seconds / 3:
            os.kill(options.kill, options.signal)
            killed, longest = True, 0.0
        batch = next(batches)
        if batch.shape != (task.batch, *rows.SHAPE):
            raise RuntimeError(f"a batch is {tuple(batch.shape)}")
        del batch
        now = time.perf_counter()
        longest, last, count = max(longest, now - last), now, count + 1
    burnt = cpu_seconds("self", *also) - burnt
    samples, seconds = count * task.batch, last - began
    return {
        "samples": samples,
        "seconds": seconds,
        "samples_per_second": samples / seconds,
        "bytes_per_second": samples * rows.ROW_BYTES / seconds,
        "cpu_per_1000": 1000 * burnt / samples,
        "longest_wait": longest,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=CONTESTANTS)
    parser.add_argument("--rows", type=Path, required=True, help="what rows.py has made")
    parser.add_argument("--workers", nargs="+", required=True, metavar="HOST:PORT")
    parser.add_argument("--batch", type=int, default=128, help="rows of a batch (default 128)")
    parser.add_argument(
        "--skip",
        type=int,
        default=20,
        help="batches that are checked before the clock starts, more than there are rows (default 20)",
    )
    parser.add_argument("--seconds", type=float, default=5, help="time that is measured (default 5)")
    parser.add_argument(
        "--with-process",
        type=int,
        nargs="*",
        default=[],
        metavar="PID",
        help="more processes whose CPU-seconds are the trainer's",
    )
    parser.add_argument(
        "--kill", type=int, default=0, metavar="PID", help="a worker that gets a signal after a third of the time"
    )
    parser.add_argument("--signal", type=int, default=signal.SIGKILL, help="which one (default: 9)")
    options = parser.parse_args()
    task = Task(options.batch, options.rows, options.workers)
    try:
        result = measure(CONTESTANTS[options.name](task), task, options)
    except ImportError as error:
        print(f"trainer.py: {options.name} is not installed: {error}", file=sys.stderr)
        return MISSING
    print(json.dumps(result), flush=True)
    os._exit(0)  # some wait at the end for workers that wait for them


if __name__ == "__main__":
    sys.exit(main())
