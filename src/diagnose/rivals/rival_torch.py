"""Has the loaders that PyTorch's users have, for rival_loaders.py."""

from __future__ import annotations

import functools
import os
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rival_images import (
    IMAGES,
    SHUFFLED,
    Epoch,
    Epochs,
    Refused,
    Task,
    crop_box,
    images_in_tar,
    keys_below,
    s3_client,
    shuffled,
)


def data_loader(dataset: Any, task: Task, **options: Any) -> Epochs:
    import torch.utils.data

    loader = torch.utils.data.DataLoader(dataset, task.batch, num_workers=task.workers, **options)
    return lambda: iter(loader)


def of_this_worker(items: list[str]) -> list[str]:
    import torch.utils.data

    info = torch.utils.data.get_worker_info()
    return items if info is None else items[info.id :: info.num_workers]


def iterable(read: Callable[[], Iterator[Any]]) -> Any:
    import torch.utils.data

    class Samples(torch.utils.data.IterableDataset):  # type: ignore[type-arg]
        def __iter__(self) -> Iterator[Any]:
            return read()

    return Samples()


def dataloader(task: Task) -> Epochs:
    """Makes PyTorch's DataLoader over fsspec: objects by their keys, or shards one after the other."""
    import fsspec
    import torch.utils.data

    protocol, options = ("file", {})
    if task.on_s3:
        import s3fs  # noqa: F401

        protocol, options = "s3", {"endpoint_url": task.endpoint}
    place = task.bucket + "/" + task.prefix if task.on_s3 else task.folder
    open_system = functools.cache(lambda pid: fsspec.filesystem(protocol, skip_instance_cache=True, **options))
    keep = {"cache_storage": str(task.cache), "skip_instance_cache": True}
    open_cached = functools.cache(lambda pid: fsspec.filesystem("simplecache", fs=open_system(pid), **keep))
    task.begin()
    system = lambda: open_system(os.getpid())  # noqa: E731  (its event loop does not outlive a fork)
    keys = [key for key in system().find(place) if key.endswith(IMAGES if task.kind == "raw" else ".tar")]

    class Objects(torch.utils.data.Dataset):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return len(keys)

        def __getitem__(self, number: int) -> Any:
            if task.cache is None:
                return task.load(system().cat_file(keys[number]))
            with open_cached(os.getpid()).open(keys[number], "rb") as file:
                return task.load(file.read())

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
    where = {
        "region": task.region,
        "endpoint": task.endpoint,
        "s3client_config": S3ClientConfig(force_path_style=task.endpoint is not None),
    }
    place = f"s3://{task.bucket}/{task.prefix}"
    task.begin()
    if task.kind == "raw":
        # Not from_prefix: there may be other objects, such as an index of Millrace's.
        images = [
            f"s3://{each.bucket}/{each.key}"
            for each in S3IterableDataset.from_prefix(place, **where)
            if each.key.endswith(IMAGES)
        ]
        dataset = S3MapDataset.from_objects(images, transform=functools.partial(load_object, load=task.load), **where)
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
    """Uses its pipes with curl and presigned URLs, which is how it reads from S3 without a client."""
    import webdataset as wds

    if task.on_s3:
        import boto3  # noqa: F401

        task.begin()
        client = s3_client(task)
        keys = keys_below(task, (".tar",))
        signed = [
            client.generate_presigned_url("get_object", {"Bucket": task.bucket, "Key": key}, 12 * 3600) for key in keys
        ]
        urls = [f"pipe:curl --silent --fail '{url}'" for url in signed]
    else:
        task.begin()
        urls = keys_below(task, (".tar",))
    dataset = (
        wds.WebDataset(urls, shardshuffle=len(urls), empty_check=False)
        .shuffle(SHUFFLED)
        .map(functools.partial(load_of_names, load=task.load))
    )
    return data_loader(dataset, task)


def load_of_names(sample: dict[str, Any], load: Callable[[bytes], Any]) -> Any:
    return load(next(value for name, value in sample.items() if f".{name}".endswith(IMAGES)))


def import_streaming() -> Any:
    """Imports mosaicml-streaming without its own `__init__`, which loads data sets of torchvision."""
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
    for stream in dataset.streams:
        stream._downloader.clean_up()  # else its workers share the connection that read the index, and get each other's bytes
    # The library leaves shared memory behind if its workers are killed.
    task.at_end.append(lambda: remove_shared_memory(f"{dataset._shm_prefix_int:06}_"))
    return data_loader(dataset, task)


def remove_shared_memory(prefix: str) -> None:
    for path in Path("/dev/shm").glob(f"{prefix}*"):
        path.unlink(missing_ok=True)


def load_of_columns(sample: dict[str, Any], load: Callable[[bytes], Any]) -> Any:
    """Finds the column that is an image: by its name, else the longest bytes."""
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
    """Uses threads in one process. It has no client of S3: obstore, a native one, fetches the shards."""
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
        store: Any = obstore.store.S3Store(
            task.bucket, endpoint=task.endpoint, region=task.region, client_options=plain, **path_style
        )
        keys = [
            each["path"] for page in obstore.list(store, task.prefix) for each in page if each["path"].endswith(".tar")
        ]
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
    """Streams from Parquet with a column `image`, as `datasets` writes it."""
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
    loaded = stored.shuffle(seed=1, buffer_size=SHUFFLED).map(
        functools.partial(load_stored, load=task.load), remove_columns=["image"]
    )
    begin = data_loader(loaded, task)
    return lambda: (batch["loaded"] for batch in begin())


def load_stored(sample: dict[str, Any], load: Callable[[bytes], Any]) -> dict[str, Any]:
    return {"loaded": load(sample["image"]["bytes"])}
