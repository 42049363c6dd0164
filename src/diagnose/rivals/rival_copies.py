"""Writes the same JPEGs in formats that loaders of others want, each by the writer of its own library: for
rival_loaders.py and bench/torch/data.py."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rival_images import IMAGES

SHARD_BYTES = 64 << 20


@dataclass(frozen=True)
class Stored:
    """Is an image in a file: one of its own, or a shard."""

    name: str
    path: str
    offset: int
    size: int

    def read(self) -> bytes:
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            return file.read(self.size)


def images_below(folder: Path) -> list[Stored]:
    """Returns the images of raw files and of tar shards, by their names."""
    found = []
    for path in folder.rglob("*"):
        if path.suffix == ".tar":
            with tarfile.open(path) as archive:
                members = [member for member in archive if member.name.endswith(IMAGES)]
            found += [Stored(Path(member.name).stem, str(path), member.offset_data, member.size) for member in members]
        elif path.name.endswith(IMAGES):
            found.append(Stored(path.stem, str(path), 0, path.stat().st_size))
    return sorted(found, key=lambda image: image.name)


def write_mds(images: list[Stored], into: Path, shard_bytes: int) -> None:
    from rival_torch import import_streaming

    with import_streaming().MDSWriter(out=str(into), columns={"image": "bytes"}, size_limit=shard_bytes) as writer:
        for image in images:
            writer.write({"image": image.read()})


def columns_of(image: Stored) -> dict[str, bytes]:
    return {"image": image.read()}


def write_litdata(images: list[Stored], into: Path, shard_bytes: int) -> None:
    import litdata

    litdata.optimize(
        fn=columns_of, inputs=images, output_dir=str(into), chunk_bytes=shard_bytes, num_workers=1, verbose=False
    )


def write_parquet(images: list[Stored], into: Path, shard_bytes: int) -> None:
    """Writes images as `datasets` writes its own."""
    import datasets

    datasets.disable_progress_bars()
    features = datasets.Features({"image": datasets.Image()})
    into.mkdir()
    rows: list[dict[str, Any]] = []
    size = shards = 0

    def flush() -> None:
        nonlocal rows, size, shards
        datasets.Dataset.from_dict({"image": rows}, features=features).to_parquet(into / f"train-{shards:05d}.parquet")
        rows, size, shards = [], 0, shards + 1

    for image in images:
        if rows and size + image.size > shard_bytes:
            flush()
        rows.append({"bytes": image.read(), "path": f"{image.name}.jpg"})
        size += image.size
    if rows:
        flush()


def write_tfrecord(images: list[Stored], into: Path, shard_bytes: int) -> None:
    import tensorflow as tf

    into.mkdir()
    writer: Any = None
    size = shards = 0
    for image in images:
        if writer is None or size + image.size > shard_bytes:
            if writer is not None:
                writer.close()
            writer, size, shards = tf.io.TFRecordWriter(str(into / f"train-{shards:05d}.tfrecord")), 0, shards + 1
        feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=[image.read()]))
        writer.write(tf.train.Example(features=tf.train.Features(feature={"image": feature})).SerializeToString())
        size += image.size
    if writer is not None:
        writer.close()


def write_files(images: list[Stored], into: Path, shard_bytes: int) -> None:
    """Writes raw files into the folder of one class."""
    (into / "images").mkdir(parents=True)
    for number, image in enumerate(images):
        (into / "images" / f"{number:08}.jpg").write_bytes(image.read())


Writer = Callable[[list[Stored], Path, int], None]  # images, a folder that it makes, bytes of a shard, about
WRITERS: dict[str, Writer] = {
    "mds": write_mds,
    "litdata": write_litdata,
    "parquet": write_parquet,
    "tfrecord": write_tfrecord,
    "files": write_files,
}
