"""Has tf.data, DALI and Ray Data, for rival_loaders.py: each with decoding and random crops of its own, Ray Data with
Pillow."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterator
from typing import Any

from rival_images import IMAGES, SHUFFLED, Epoch, Epochs, Refused, Task, cropped, keys_below, s3_client

AREA = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)


def records(shard: bytes) -> Iterator[bytes]:
    """Yields the bytes of each record of a TFRecord file: a length, its checksum, the bytes, their checksum."""
    at = 0
    while at < len(shard):
        (length,) = struct.unpack_from("<Q", shard, at)
        yield shard[at + 12 : at + 12 + length]
        at += length + 16


def image_feature(example: bytes) -> str:
    """Finds the feature that is an image, by its name, else by how it begins."""
    import tensorflow as tf

    features = tf.train.Example.FromString(example).features.feature
    for name, feature in features.items():
        value = feature.bytes_list.value
        if value and (f".{name}".endswith(IMAGES) or value[0].startswith(b"\xff\xd8\xff")):
            return name
    raise Refused(f"no feature of its records is a JPEG; they are {', '.join(sorted(features))}")


def tfdata(task: Task) -> Epochs:
    """TensorFlow has no file system for S3 any more: boto3 fetches whole shards, some at a time."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    import numpy
    import tensorflow as tf

    client = s3_client(task) if task.on_s3 else None
    parallel = max(1, task.workers)
    suffixes = (".tfrecord", ".tfrecords")

    def shard(key: bytes) -> bytes:
        if client is not None:
            return client.get_object(Bucket=task.bucket, Key=key.decode())["Body"].read()  # type: ignore[no-any-return]
        with open(key, "rb") as file:
            return file.read()

    def examples(key: Any) -> Any:
        stored = tf.numpy_function(lambda name: numpy.array(list(records(shard(name))), object), [key], tf.string)
        stored.set_shape([None])
        return tf.data.Dataset.from_tensor_slices(stored)

    for first in keys_below(task, suffixes)[:1]:
        name = image_feature(next(records(shard(first.encode()))))
    task.begin()  # who trains knows the name of the feature
    keys = keys_below(task, suffixes)
    if not keys:
        raise Refused("there are no TFRecord shards (.tfrecord)")
    spec = {name: tf.io.FixedLenFeature([], tf.string)}

    def image(example: Any) -> Any:
        data = tf.io.parse_single_example(example, spec)[name]
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            tf.io.extract_jpeg_shape(data),
            tf.zeros([1, 0, 4]),
            use_image_if_no_bounding_boxes=True,
            min_object_covered=0.0,
            aspect_ratio_range=RATIO,
            area_range=AREA,
            max_attempts=10,
        )
        window = tf.stack([begin[0], begin[1], size[0], size[1]])
        pixels = tf.image.resize(tf.image.decode_and_crop_jpeg(data, window, channels=3), [task.size, task.size])
        return tf.cast(tf.clip_by_value(tf.round(tf.image.random_flip_left_right(pixels)), 0, 255), tf.uint8)

    order = tf.data.Dataset.from_tensor_slices(keys).shuffle(len(keys))
    stored = order.interleave(examples, cycle_length=parallel, num_parallel_calls=parallel).shuffle(SHUFFLED)
    dataset = stored.map(image, num_parallel_calls=parallel).batch(task.batch).prefetch(2)
    threads = tf.data.Options()
    threads.threading.private_threadpool_size = parallel + 1
    dataset = dataset.with_options(threads)
    return lambda: iter(dataset.as_numpy_iterator())


def dali(task: Task) -> Epochs:
    """Runs on the CPU. From S3, DALI's reader of files reads in all of its threads, and that of shards in one. The
    latter makes a request for each sample, one after the other. Before the first batch it also makes one for each head,
    if there is no index."""
    from nvidia.dali import fn, pipeline_def, types

    if task.on_s3:
        import boto3  # noqa: F401  (it lists the shards, which DALI does not)
    task.begin()
    keys = keys_below(task, (".tar",))
    paths = [f"s3://{task.bucket}/{key}" for key in keys] if task.on_s3 else keys
    options = {
        "random_shuffle": True,
        "initial_fill": SHUFFLED,
        "pad_last_batch": True,
        "dont_use_mmap": task.on_s3,
        "name": "reader",
    }

    def stored() -> Any:
        if paths:
            return fn.readers.webdataset(
                paths=paths, ext=["jpg;jpeg;png"], missing_component_behavior="skip", **options
            )
        return fn.readers.file(file_root=task.uri if task.on_s3 else task.folder, **options)[0]

    @pipeline_def(batch_size=task.batch, num_threads=max(1, task.workers), device_id=None, seed=1)  # type: ignore[misc]
    def images() -> Any:
        pixels = fn.decoders.image_random_crop(
            stored(), output_type=types.RGB, random_area=list(AREA), random_aspect_ratio=list(RATIO), num_attempts=10
        )
        small = fn.resize(
            pixels, resize_x=task.size, resize_y=task.size, interp_type=types.INTERP_LINEAR, antialias=False
        )
        return fn.flip(small, horizontal=fn.random.coin_flip())

    pipeline = images()
    pipeline.build()
    samples = pipeline.reader_meta("reader")["epoch_size"]

    def epoch() -> Epoch:
        for begin in range(0, samples, task.batch):
            (batch,) = pipeline.run()
            yield batch.as_array()[: samples - begin]

    return epoch


def ray_data(task: Task) -> Epochs:
    """Images are made by tasks in worker processes, and come as blocks from its object store."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import pyarrow.fs
    import ray

    task.begin()
    ray.init(num_cpus=max(1, task.workers), include_dashboard=False, log_to_driver=False, configure_logging=False)
    task.to_end.append(ray.shutdown)  # it ends this process if it finds its own ones killed
    ray.data.DataContext.get_current().enable_progress_bars = False
    place, system = task.folder, None
    if task.on_s3:
        plain = {"scheme": "http"} if (task.endpoint or "").startswith("http:") else {}
        own = {"endpoint_override": task.endpoint.partition("://")[2]} if task.endpoint else {}
        place, system = f"{task.bucket}/{task.prefix}", pyarrow.fs.S3FileSystem(region=task.region, **plain, **own)
    size = task.size  # not the task, which cannot be sent to others

    def image(row: dict[str, Any]) -> dict[str, Any]:
        import numpy

        found = (
            row["bytes"]
            if "bytes" in row
            else next(value for name, value in row.items() if f".{name}".endswith(IMAGES))
        )
        return {"image": numpy.array(cropped(found, size))}

    def epoch() -> Epoch:
        if task.kind == "raw":
            stored = ray.data.read_binary_files(
                place, filesystem=system, file_extensions=[name[1:] for name in IMAGES], shuffle="files"
            )
        else:
            stored = ray.data.read_webdataset(
                place, filesystem=system, decoder=None, file_extensions=["tar"], shuffle="files"
            )
        shuffling = {"local_shuffle_buffer_size": SHUFFLED, "local_shuffle_seed": random.getrandbits(31)}
        for batch in stored.map(image).iter_batches(batch_size=task.batch, batch_format="numpy", **shuffling):
            yield batch["image"]

    return epoch
