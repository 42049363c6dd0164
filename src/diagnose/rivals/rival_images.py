"""Has what the loaders of rival_loaders.py have in common: what is to be read, and what is done with an image."""

from __future__ import annotations

import io
import math
import os
import random
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

IMAGES = (".jpg", ".jpeg", ".png")
SHUFFLED = 1000  # samples of a buffer, for those that shuffle so


class Refused(Exception):
    """These data are not what the loader reads."""


@dataclass
class Task:
    """Says what to read, and how. `load` makes an array of the bytes of an image. `finish` makes something else of a
    batch that `load` did not make."""

    uri: str
    kind: str  # tar, raw, mds, litdata, parquet, tfrecord; own: what the loader reads
    batch: int
    workers: int
    size: int
    scratch: Path  # empty, on a disk
    load: Callable[[bytes], Any]
    finish: Callable[[Any], Any] = field(default=lambda batch: batch)
    cache: Path | None = None  # a folder that does not exist, on a disk, for what later epochs need not ask for
    began: float = 0.0
    to_end: list[Callable[[], None]] = field(
        default_factory=list
    )  # what has to end by itself, before all of its processes are killed
    at_end: list[Callable[[], None]] = field(default_factory=list)  # then what the loader leaves behind is removed so

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
        """Returns the prefix of the objects, with a slash at its end."""
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

    def check(self, name: str, kinds: tuple[str, ...]) -> None:
        """Settles the kind, which must be one that the loader of that name reads: the first if nothing is said."""
        self.kind = kinds[0] if self.kind == "own" else self.kind
        if self.kind not in kinds:
            raise Refused(
                f"it reads {' or '.join(kinds)}, and these data are {self.kind}: give it a copy of its own by --rival {name}=URI"
            )


Epoch = Iterator[Any]  # of batches
Epochs = Callable[[], Epoch]  # begins one


def crop_box(width: int, height: int) -> tuple[int, int, int, int]:
    """Returns left, top, width and height of a crop, as torchvision's RandomResizedCrop draws it."""
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
    """Crops an image at random: the bytes of one, or one that Pillow has opened and not yet decoded."""
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


def shuffled(samples: Iterator[Any]) -> Iterator[Any]:
    """Shuffles through a buffer, as WebDataset and others do it."""
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


def keys_below(task: Task, suffixes: tuple[str, ...]) -> list[str]:
    """Lists the keys of objects of S3, by boto3, or the paths of files."""
    if not task.on_s3:
        return sorted(str(path) for path in Path(task.folder).rglob("*") if path.name.endswith(suffixes))
    pages = s3_client(task).get_paginator("list_objects_v2").paginate(Bucket=task.bucket, Prefix=task.prefix)
    return [each["Key"] for page in pages for each in page.get("Contents", []) if each["Key"].endswith(suffixes)]


def s3_client(task: Task) -> Any:
    import boto3
    from botocore.config import Config

    return boto3.client(
        "s3", endpoint_url=task.endpoint, region_name=task.region, config=Config(signature_version="s3v4")
    )
