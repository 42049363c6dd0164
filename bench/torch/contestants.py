#!/usr/bin/env python3
"""The contestants of run.py: one a process, one JSON object with what it took.

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
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "s3")]

import torch  # noqa: E402
import torch.utils.data  # noqa: E402

import images  # noqa: E402
from data import import_streaming  # noqa: E402
from rival_task import cpu_seconds, processes  # noqa: E402

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

    @property
    def endpoint(self) -> str:
        return os.environ["AWS_ENDPOINT_URL"]

    def begin(self) -> None:
        """All imports are done."""
        self.began = time.perf_counter()


def data_loader(dataset: Any, task: Task, **options: Any) -> torch.utils.data.DataLoader[Any]:
    return torch.utils.data.DataLoader(dataset, task.batch, num_workers=task.workers, **options)


def millrace_loader(task: Task, data: str) -> Batches:
    import millrace

    task.begin()
    millrace.configure(cpu_threads=task.workers)
    decoded: dict[str, Any] = {"size": images.SIZE, "augment": True, "dtype": "f32", "layout": "nchw", "mean": images.MEAN, "std": images.STD}
    with millrace.Loader(f"s3://{BUCKET}/{data}", batch_size=task.batch, seed=1, output="torch", **decoded) as loader:
        for batch in loader:
            yield batch["image"]


def map_dataset(task: Task, load: Callable[[bytes], torch.Tensor] = images.load) -> Batches:
    """In the order of a Plan, so that workers read ahead."""
    import millrace.torch

    task.begin()
    uri = f"s3://{BUCKET}/tar"
    dataset = millrace.torch.MapDataset(uri, fields={"image": ("jpg", load)})
    for batch in data_loader(dataset, task, sampler=millrace.torch.Sampler(uri, seed=1)):
        yield batch["image"]


def load_object(item: Any) -> torch.Tensor:
    return images.load(item.read())


def map_dataset_raw(task: Task) -> Batches:
    """What s3torchconnector does, with its objects, in DataLoader's own random order."""
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


def s3torchconnector(task: Task) -> Batches:
    from s3torchconnector import S3ClientConfig, S3MapDataset

    task.begin()
    dataset = S3MapDataset.from_prefix(
        f"s3://{BUCKET}/objects/",
        region=os.environ["AWS_REGION"],
        endpoint=task.endpoint,
        transform=load_object,
        s3client_config=S3ClientConfig(force_path_style=True),
    )
    yield from data_loader(dataset, task, shuffle=True)


def load_jpg(sample: dict[str, Any]) -> torch.Tensor:
    return images.load(sample["jpg"])


def webdataset(task: Task) -> Batches:
    """Its pipes with curl and presigned URLs, which is how it reads from S3 without a client."""
    import boto3
    import webdataset as wds

    task.begin()
    client = boto3.client("s3", endpoint_url=task.endpoint)
    listed = client.list_objects_v2(Bucket=BUCKET, Prefix="tar/")["Contents"]
    keys = [each["Key"] for each in listed if each["Key"].endswith(".tar")]
    signed = [client.generate_presigned_url("get_object", {"Bucket": BUCKET, "Key": key}, 3600) for key in keys]
    urls = [f"pipe:curl --silent --fail '{url}'" for url in signed]
    dataset = wds.WebDataset(urls, shardshuffle=len(urls)).shuffle(1000).map(load_jpg)
    yield from data_loader(dataset, task)


def load_image(sample: dict[str, Any]) -> torch.Tensor:
    return images.load(sample["image"])


def mosaicml(task: Task) -> Batches:
    base = import_streaming()
    from streaming.base.util import clean_stale_shared_memory

    class Images(base.StreamingDataset):  # type: ignore[misc, name-defined]
        def __getitem__(self, at: Any) -> torch.Tensor:
            return load_image(super().__getitem__(at))

    clean_stale_shared_memory()
    os.environ["S3_ENDPOINT_URL"] = task.endpoint
    task.begin()
    dataset = Images(remote=f"s3://{BUCKET}/mds", local=str(task.scratch / "mds"), shuffle=True, batch_size=task.batch)
    yield from data_loader(dataset, task)


def litdata(task: Task) -> Batches:
    import litdata as lit

    lit.streaming.downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True  # which it has no option for
    task.begin()
    dataset = lit.StreamingDataset(
        f"s3://{BUCKET}/litdata",
        cache_dir=str(task.scratch),
        shuffle=True,
        storage_options={"endpoint_url": task.endpoint},
        transform=load_image,
    )
    yield from lit.StreamingDataLoader(dataset, batch_size=task.batch, num_workers=task.workers)


def spdl(task: Task) -> Batches:
    """Threads in one process. It has no client of S3: obstore, a native one, fetches the shards."""
    import obstore
    import obstore.store
    import spdl.io
    from spdl.pipeline import PipelineBuilder

    def frames(data: Any) -> Any:
        packets = spdl.io.demux_image(data)
        left, top, width, height = images.crop_box(packets.width, packets.height)
        steps = [f"crop={width}:{height}:{left}:{top}", f"scale={images.SIZE}:{images.SIZE}:flags=bilinear"]
        steps += ["hflip"] if random.random() < 0.5 else []
        return spdl.io.decode_packets(packets, filter_desc=",".join([*steps, "format=pix_fmts=rgb24"]))

    def batch(samples: list[Any]) -> torch.Tensor:
        return images.normalised(spdl.io.to_torch(spdl.io.convert_frames([frames(data) for data in samples])))

    async def fetch(key: str) -> memoryview:
        return memoryview(await (await obstore.get_async(store, key)).bytes_async())

    def samples(shard: memoryview) -> Iterator[Any]:
        for name, data in spdl.io.iter_tarfile(shard):
            if name.endswith(".jpg"):
                yield data

    task.begin()
    store = obstore.store.S3Store(
        BUCKET, endpoint=task.endpoint, region=os.environ["AWS_REGION"], virtual_hosted_style_request=False, client_options={"allow_http": True}
    )
    keys = [each["path"] for page in obstore.list(store, "tar/") for each in page if each["path"].endswith(".tar")]
    random.shuffle(keys)
    builder = PipelineBuilder().add_source(keys).pipe(fetch, concurrency=task.workers).pipe(samples)
    builder = builder.aggregate(task.batch).pipe(batch, concurrency=task.workers).add_sink(2)
    pipeline = builder.build(num_threads=task.workers + 1)
    with pipeline.auto_stop():
        yield from pipeline


def load_bytes(sample: dict[str, Any]) -> dict[str, torch.Tensor]:
    return {"image": images.load(sample["image"]["bytes"])}


def hugging_face(task: Task) -> Batches:
    import datasets

    task.begin()
    dataset = datasets.load_dataset(
        "parquet",
        data_files=f"s3://{BUCKET}/parquet/*.parquet",
        split="train",
        streaming=True,
        storage_options={"endpoint_url": task.endpoint},
        cache_dir=str(task.scratch),
    )
    dataset = dataset.cast_column("image", datasets.Image(decode=False)).shuffle(seed=1, buffer_size=1000).map(load_bytes)
    for batch in data_loader(dataset, task):
        yield batch["image"]


def millrace_distorted(task: Task, data: str) -> Batches:
    import millrace

    task.begin()
    millrace.configure(cpu_threads=task.workers)
    options: dict[str, Any] = {"size": images.SIZE, "augment": True, "seed": 1, "output": "torch"}
    transform: dict[str, Any] = {"transform": images.distort_sample, "transform_processes": task.workers}
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
    "s3torchconnector": s3torchconnector,
    "webdataset": webdataset,
    "mosaicml": mosaicml,
    "litdata": litdata,
    "spdl": spdl,
    "huggingface": hugging_face,
    "millrace-distort": lambda task: millrace_distorted(task, "tar"),
    "millrace-tiled-distort": lambda task: millrace_distorted(task, "tiled"),
    "mapdataset-distort": lambda task: map_dataset(task, images.load_distorted),
}


def check(batch: Any, task: Task) -> None:
    wanted = (task.batch, 3, images.SIZE, images.SIZE)
    if not isinstance(batch, torch.Tensor) or tuple(batch.shape) != wanted or batch.dtype != torch.float32 or not batch.is_contiguous():
        found = f"{tuple(batch.shape)} {batch.dtype}, strides {batch.stride()}" if isinstance(batch, torch.Tensor) else type(batch).__name__
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


def finish() -> None:
    """Not through the interpreter's end: some wait for workers that wait for them."""
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
    finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
