"""Loaders of others over a data set of images, for `millrace bench --rival` (which runs this file) and bench/torch (which imports it).

    python rival_loaders.py NAME URI --kind tar --batch 128 --workers 2 --size 224 --scratch FOLDER

Each makes batches of u8 [rows, size, size, 3]: JPEGs that are decoded, cropped at random, resized and flipped, as Millrace does it with
`augment`. The last line on stdout is a JSON object with what it took, and with the mean of the pixels, by which the caller checks that the images
were decoded. Exits 3 if a package is missing, 4 if the loader cannot read such data; the last line on stderr says what to do.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import itertools
import json
import math
import os
import random
import re
import shutil
import signal
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

MISSING = 3
REFUSED = 4
IMAGES = (".jpg", ".jpeg", ".png")
SHUFFLED = 1000  # samples of a buffer, for those that shuffle so
PACKAGES = {
    "dataloader": "torch numpy pillow fsspec s3fs",
    "s3torchconnector": "torch numpy pillow s3torchconnector",
    "webdataset": "torch numpy pillow webdataset boto3",
    "mosaicml": "torch numpy pillow mosaicml-streaming",
    "litdata": "torch numpy pillow litdata obstore",
    "spdl": "torch numpy spdl-core spdl-io obstore",
    "huggingface": "torch numpy pillow datasets s3fs",
}
READS = {  # the first is what it reads if nothing is said
    "dataloader": ("raw", "tar"),
    "s3torchconnector": ("raw", "tar"),
    "webdataset": ("tar",),
    "mosaicml": ("mds",),
    "litdata": ("litdata",),
    "spdl": ("tar",),
    "huggingface": ("parquet",),
}


class Refused(Exception):
    """These data are not what the loader reads."""


@dataclass
class Task:
    """What to read, and how. `load` makes an array of the bytes of an image; `finish` something else of a batch that was not made by it."""

    uri: str
    kind: str  # tar, raw, mds, litdata, parquet; own: what the loader reads
    batch: int
    workers: int
    size: int
    scratch: Path  # empty, on a disk
    load: Callable[[bytes], Any]
    finish: Callable[[Any], Any] = field(default=lambda batch: batch)
    began: float = 0.0
    at_end: list[Callable[[], None]] = field(default_factory=list)  # what the loader leaves behind is removed so

    def begin(self) -> None:
        """All imports are done: from here on it is the loader that takes time."""
        self.began = time.perf_counter()

    @property
    def on_s3(self) -> bool:
        return self.uri.startswith("s3://")

    @property
    def bucket(self) -> str:
        return self.uri.removeprefix("s3://").partition("/")[0]

    @property
    def prefix(self) -> str:
        """Below which the objects lie; with a slash at its end."""
        key = self.uri.removeprefix("s3://").partition("/")[2].rstrip("/")
        return key + "/" if key else ""

    @property
    def folder(self) -> str:
        return self.uri.removeprefix("file://").rstrip("/")

    @property
    def endpoint(self) -> str | None:
        return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")

    @property
    def region(self) -> str:
        return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"

    def check(self, name: str) -> None:
        """Settles the kind, which must be one that the loader of that name reads."""
        kinds = READS[name]
        self.kind = kinds[0] if self.kind == "own" else self.kind
        if self.kind not in kinds:
            raise Refused(f"it reads {' or '.join(kinds)}, and these data are {self.kind}: give it a copy of its own by --rival {name}=URI")


Epoch = Iterator[Any]  # of batches
Epochs = Callable[[], Epoch]  # begins one


# ---- What all do with an image


def crop_box(width: int, height: int) -> tuple[int, int, int, int]:
    """Left, top, width and height of a crop, as torchvision's RandomResizedCrop draws it."""
    area = width * height
    for _ in range(10):
        target = area * random.uniform(0.08, 1.0)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(target * ratio)), round(math.sqrt(target / ratio))
        if 0 < w <= width and 0 < h <= height:
            return random.randint(0, width - w), random.randint(0, height - h), w, h
    side = min(width, height)
    return (width - side) // 2, (height - side) // 2, side, side


def cropped(data: Any, size: int) -> Any:
    """Of the bytes of an image, or of one that Pillow has opened and not yet decoded."""
    from PIL import Image

    with Image.open(io.BytesIO(data)) if isinstance(data, (bytes, bytearray, memoryview)) else data as image:
        rgb = image.convert("RGB")
    left, top, width, height = crop_box(*rgb.size)
    small = rgb.resize((size, size), Image.Resampling.BILINEAR, box=(left, top, left + width, top + height))
    return small.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if random.random() < 0.5 else small


def load_u8(data: bytes, size: int) -> Any:
    import numpy
    import torch

    return torch.from_numpy(numpy.array(cropped(data, size)))


# ---- The loaders


def data_loader(dataset: Any, task: Task, **options: Any) -> Epochs:
    import torch.utils.data

    loader = torch.utils.data.DataLoader(dataset, task.batch, num_workers=task.workers, **options)
    return lambda: iter(loader)


def of_this_worker(items: list[str]) -> list[str]:
    import torch.utils.data

    info = torch.utils.data.get_worker_info()
    return items if info is None else items[info.id :: info.num_workers]


def shuffled(samples: Iterator[Any]) -> Iterator[Any]:
    """Through a buffer, as WebDataset and others do it."""
    buffer: list[Any] = []
    for sample in samples:
        if len(buffer) < SHUFFLED:
            buffer.append(sample)
            continue
        at = random.randrange(SHUFFLED)
        yield buffer[at]
        buffer[at] = sample
    random.shuffle(buffer)
    yield from buffer


def images_in_tar(file: Any) -> Iterator[bytes]:
    with tarfile.open(fileobj=file, mode="r|") as archive:
        for member in archive:
            content = archive.extractfile(member) if member.name.endswith(IMAGES) else None
            if content is not None:
                yield content.read()


def iterable(read: Callable[[], Iterator[Any]]) -> Any:
    import torch.utils.data

    class Samples(torch.utils.data.IterableDataset):  # type: ignore[type-arg]
        def __iter__(self) -> Iterator[Any]:
            return read()

    return Samples()


def dataloader(task: Task) -> Epochs:
    """PyTorch's DataLoader over fsspec: objects by their keys, or shards one after the other."""
    import fsspec
    import torch.utils.data

    protocol, options = ("file", {})
    if task.on_s3:
        import s3fs  # noqa: F401

        protocol, options = "s3", {"endpoint_url": task.endpoint}
    place = task.bucket + "/" + task.prefix if task.on_s3 else task.folder
    open_system = functools.cache(lambda pid: fsspec.filesystem(protocol, skip_instance_cache=True, **options))
    task.begin()
    system = lambda: open_system(os.getpid())  # noqa: E731  (its event loop does not outlive a fork)
    keys = [key for key in system().find(place) if key.endswith(IMAGES if task.kind == "raw" else ".tar")]

    class Objects(torch.utils.data.Dataset):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return len(keys)

        def __getitem__(self, number: int) -> Any:
            return task.load(system().cat_file(keys[number]))

    def shards() -> Iterator[Any]:
        for key in random.sample(mine := of_this_worker(keys), len(mine)):
            with system().open(key, "rb") as file:
                yield from images_in_tar(file)

    if task.kind == "raw":
        return data_loader(Objects(), task, shuffle=True)
    return data_loader(iterable(lambda: map(task.load, shuffled(shards()))), task)


def s3torchconnector(task: Task) -> Epochs:
    from s3torchconnector import S3ClientConfig, S3IterableDataset, S3MapDataset

    if not task.on_s3:
        raise Refused("it reads from S3 only")
    where = {"region": task.region, "endpoint": task.endpoint, "s3client_config": S3ClientConfig(force_path_style=task.endpoint is not None)}
    place = f"s3://{task.bucket}/{task.prefix}"
    task.begin()
    if task.kind == "raw":
        dataset = S3MapDataset.from_prefix(place, transform=functools.partial(load_object, load=task.load), **where)
        return data_loader(dataset, task, shuffle=True)
    objects = S3IterableDataset.from_prefix(place, enable_sharding=True, **where)

    def shards() -> Iterator[Any]:
        for each in objects:
            if each.key.endswith(".tar"):
                yield from images_in_tar(each)

    return data_loader(iterable(lambda: map(task.load, shuffled(shards()))), task)


def load_object(item: Any, load: Callable[[bytes], Any]) -> Any:
    return load(item.read())


def webdataset(task: Task) -> Epochs:
    """Its pipes with curl and presigned URLs, which is how it reads from S3 without a client."""
    import webdataset as wds

    if task.on_s3:
        import boto3
        from botocore.config import Config

        task.begin()
        client = boto3.client("s3", endpoint_url=task.endpoint, region_name=task.region, config=Config(signature_version="s3v4"))
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=task.bucket, Prefix=task.prefix)
        keys = [each["Key"] for page in pages for each in page.get("Contents", []) if each["Key"].endswith(".tar")]
        signed = [client.generate_presigned_url("get_object", {"Bucket": task.bucket, "Key": key}, 12 * 3600) for key in keys]
        urls = [f"pipe:curl --silent --fail '{url}'" for url in signed]
    else:
        task.begin()
        urls = [str(path) for path in sorted(Path(task.folder).rglob("*.tar"))]
    dataset = wds.WebDataset(urls, shardshuffle=len(urls), empty_check=False).shuffle(SHUFFLED).map(functools.partial(load_of_names, load=task.load))
    return data_loader(dataset, task)


def load_of_names(sample: dict[str, Any], load: Callable[[bytes], Any]) -> Any:
    return load(next(value for name, value in sample.items() if f".{name}".endswith(IMAGES)))


def import_streaming() -> Any:
    """mosaicml-streaming without its own `__init__`, which loads data sets of torchvision."""
    import importlib.util
    import types

    found = importlib.util.find_spec("streaming")
    if found is None or found.submodule_search_locations is None:
        raise ImportError("mosaicml-streaming is not installed", name="streaming")
    package = types.ModuleType("streaming")
    package.__path__ = list(found.submodule_search_locations)
    sys.modules["streaming"] = package
    import streaming.base

    return streaming.base


def mosaicml(task: Task) -> Epochs:
    base = import_streaming()
    from streaming.base.util import clean_stale_shared_memory

    class Images(base.StreamingDataset):  # type: ignore[misc, name-defined]
        def __getitem__(self, at: Any) -> Any:
            return load_of_columns(super().__getitem__(at), task.load)

    clean_stale_shared_memory()
    if task.endpoint:
        os.environ["S3_ENDPOINT_URL"] = task.endpoint
    task.begin()
    place = {"remote": task.uri, "local": str(task.scratch / "mds")} if task.on_s3 else {"local": task.folder}
    dataset = Images(**place, shuffle=True, batch_size=task.batch)
    # Which it leaves behind if its workers are killed.
    task.at_end.append(lambda: remove_shared_memory(f"{dataset._shm_prefix_int:06}_"))
    return data_loader(dataset, task)


def remove_shared_memory(prefix: str) -> None:
    for path in Path("/dev/shm").glob(f"{prefix}*"):
        path.unlink(missing_ok=True)


def load_of_columns(sample: dict[str, Any], load: Callable[[bytes], Any]) -> Any:
    """The column that is an image: by its name, else the longest bytes."""
    named = [value for name, value in sample.items() if name == "image" or f".{name}".endswith(IMAGES)]
    return load(named[0] if named else max((value for value in sample.values() if isinstance(value, bytes)), key=len))


def litdata(task: Task) -> Epochs:
    import litdata as lit

    storage = {"endpoint_url": task.endpoint} if task.endpoint else {}
    if task.endpoint and task.endpoint.startswith("http:"):
        lit.streaming.downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True  # which it has no option for
    task.begin()
    dataset = lit.StreamingDataset(
        task.uri if task.on_s3 else task.folder,
        cache_dir=str(task.scratch),
        shuffle=True,
        storage_options=storage,
        transform=functools.partial(load_of_columns, load=task.load),
    )
    loader = lit.StreamingDataLoader(dataset, batch_size=task.batch, num_workers=task.workers)
    return lambda: iter(loader)


def spdl(task: Task) -> Epochs:
    """Threads in one process. It has no client of S3: obstore, a native one, fetches the shards."""
    import obstore
    import obstore.store
    import spdl.io
    from spdl.pipeline import PipelineBuilder

    def frames(data: Any) -> Any:
        packets = spdl.io.demux_image(data)
        left, top, width, height = crop_box(packets.width, packets.height)
        steps = [f"crop={width}:{height}:{left}:{top}", f"scale={task.size}:{task.size}:flags=bilinear"]
        steps += ["hflip"] if random.random() < 0.5 else []
        return spdl.io.decode_packets(packets, filter_desc=",".join([*steps, "format=pix_fmts=rgb24"]))

    def batch(samples: list[Any]) -> Any:
        return task.finish(spdl.io.to_torch(spdl.io.convert_frames([frames(data) for data in samples])))

    async def fetch(key: str) -> memoryview:
        return memoryview(await (await obstore.get_async(store, key)).bytes_async())

    def samples(shard: memoryview) -> Iterator[Any]:
        for name, data in spdl.io.iter_tarfile(shard):
            if name.endswith(IMAGES):
                yield data

    task.begin()
    if task.on_s3:
        plain = {"allow_http": True} if (task.endpoint or "").startswith("http:") else {}
        path_style = {"virtual_hosted_style_request": False} if task.endpoint else {}
        store: Any = obstore.store.S3Store(task.bucket, endpoint=task.endpoint, region=task.region, client_options=plain, **path_style)
        keys = [each["path"] for page in obstore.list(store, task.prefix) for each in page if each["path"].endswith(".tar")]
    else:
        store = obstore.store.LocalStore(task.folder)
        keys = [each["path"] for page in obstore.list(store) for each in page if each["path"].endswith(".tar")]

    def epoch() -> Epoch:
        random.shuffle(keys)
        builder = PipelineBuilder().add_source(keys).pipe(fetch, concurrency=max(1, task.workers)).pipe(samples)
        builder = builder.aggregate(task.batch).pipe(batch, concurrency=max(1, task.workers)).add_sink(2)
        pipeline = builder.build(num_threads=max(1, task.workers) + 1)
        with pipeline.auto_stop():
            yield from pipeline

    return epoch


def huggingface(task: Task) -> Epochs:
    """Streaming, from Parquet with a column `image`, as `datasets` writes it."""
    import datasets

    datasets.disable_progress_bars()
    place = f"s3://{task.bucket}/{task.prefix}" if task.on_s3 else task.folder + "/"
    storage = {"endpoint_url": task.endpoint} if task.on_s3 and task.endpoint else {}
    task.begin()
    dataset = datasets.load_dataset(
        "parquet",
        data_files=f"{place}*.parquet",
        split="train",
        streaming=True,
        storage_options=storage,
        cache_dir=str(task.scratch),
    )
    stored = dataset.cast_column("image", datasets.Image(decode=False)).select_columns(["image"])
    loaded = stored.shuffle(seed=1, buffer_size=SHUFFLED).map(functools.partial(load_stored, load=task.load), remove_columns=["image"])
    begin = data_loader(loaded, task)
    return lambda: (batch["loaded"] for batch in begin())


def load_stored(sample: dict[str, Any], load: Callable[[bytes], Any]) -> dict[str, Any]:
    return {"loaded": load(sample["image"]["bytes"])}


LOADERS: dict[str, Callable[[Task], Epochs]] = {
    "dataloader": dataloader,
    "s3torchconnector": s3torchconnector,
    "webdataset": webdataset,
    "mosaicml": mosaicml,
    "litdata": litdata,
    "spdl": spdl,
    "huggingface": huggingface,
}
assert list(LOADERS) == list(PACKAGES) == list(READS)


# ---- Measuring


def processes() -> list[str]:
    """This one, its children and theirs, while they live."""
    pids = ["self"]
    for pid in pids:
        with contextlib.suppress(OSError):  # it has just ended
            for task in Path(f"/proc/{pid}/task").iterdir():
                with contextlib.suppress(OSError):
                    pids += (task / "children").read_text().split()
    return pids


def cpu_seconds() -> float:
    """Of this process and of all below it, also of those that have ended and were waited for."""
    ticks = 0
    for pid in processes():
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(int(value) for value in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def end_workers() -> None:
    """Some wait at the interpreter's end for workers that wait for them."""
    for pid in processes():
        if pid != "self":
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


@dataclass
class Pixels:
    """The means of the images of the first epoch, or of as many of them as are asked for."""

    wanted: int
    samples: int = 0
    total: float = 0.0
    squares: float = 0.0
    whole_epoch: bool = False

    @property
    def done(self) -> bool:
        return self.whole_epoch or self.samples >= self.wanted

    def add(self, batch: Any, size: int) -> None:
        if tuple(batch.shape[1:]) != (size, size, 3) or str(batch.dtype) != "torch.uint8":
            raise RuntimeError(f"a batch is {tuple(batch.shape)} {batch.dtype}; expected uint8 [rows, {size}, {size}, 3]")
        values = batch.reshape(len(batch), -1).double()
        if bool((values.std(dim=1) == 0).any()):
            raise RuntimeError("an image is of one colour: it was not decoded")
        means = values.mean(dim=1)
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
    """Batches of epochs that follow one another without end."""

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


def versions(name: str) -> dict[str, str]:
    found = {}
    for package in PACKAGES[name].split():
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def said(error: Exception) -> str:
    """The end of it, which says why, in a line. URLs lose what may be a signature."""
    text = re.sub(r"\?[^\s'\"]+", "?...", " ".join(str(error).split()))
    return text if len(text) <= 300 else "..." + text[-300:]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=LOADERS)
    parser.add_argument("uri")
    parser.add_argument("--kind", default="own", help="what the data are: tar, raw, mds ...; own: what the loader reads (default)")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--workers", type=int, default=2, help="worker processes, or decoding threads")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--warm-up", type=float, default=1.0, help="seconds that are not counted")
    parser.add_argument("--seconds", type=float, default=2.0, help="of a repeat, at the least")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--check", type=int, default=2000, help="images whose pixels are added up, at the most an epoch's")
    parser.add_argument("--scratch", type=Path, required=True, help="an empty folder for what is downloaded")
    options = parser.parse_args()
    options.scratch.mkdir(parents=True, exist_ok=True)
    random.seed(1)
    load = functools.partial(load_u8, size=options.size)
    task = Task(options.uri, options.kind, options.batch, options.workers, options.size, options.scratch, load)
    status, why = 0, ""
    try:
        task.check(options.name)
        import torch

        torch.set_num_threads(1)
        print(json.dumps({**measure(Stream(LOADERS[options.name](task)), task, options), "versions": versions(options.name)}), flush=True)
    except ImportError as error:
        status, why = MISSING, f"Python's package '{error.name}' is missing in {sys.executable}; it needs: pip install {PACKAGES[options.name]}"
    except Refused as error:
        status, why = REFUSED, str(error)
    except Exception as error:
        status, why = 1, f"{type(error).__name__}: {said(error)}"
    end_workers()
    for clean in task.at_end:
        clean()
    shutil.rmtree(options.scratch, ignore_errors=True)
    if why:  # the last line, whatever warnings came before
        print(why, file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(status)


if __name__ == "__main__":
    sys.exit(main())
