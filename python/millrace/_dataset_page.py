"""A data set in a notebook: its description, and its first images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ._contact_sheet import page_of_text
from ._errors import Error, MismatchError
from ._fields import Image
from ._loader import Loader

if TYPE_CHECKING:
    from ._dataset import Dataset

_SHOWN = 12  # images
_IMAGES = {"jpg", "jpeg", "png", "webp", "tif", "tiff", "bmp", "gif"}


def page_of(dataset: Dataset) -> str:
    try:
        counts = dataset.class_counts
        classes = ", ".join(f"{name}: {count:,}" for name, count in list(counts.items())[:10]) + (
            ", ..." if len(counts) > 10 else ""
        )
    except MismatchError as error:  # the classes are in files that were not read
        classes = str(error)
    lines = [
        ("kind", dataset.kind),
        ("fields", ", ".join(dataset.fields)),
        ("bytes", f"{dataset.total_bytes:,}"),
        ("classes", classes or "none"),
    ]
    try:
        return page_of_text(repr(dataset), lines, _first_images(dataset))
    except Error as error:
        return page_of_text(repr(dataset), [*lines, ("first samples", str(error))])


def _first_images(dataset: Dataset) -> Mapping[str, Any] | None:
    images = [field for field in dataset.fields if field.rpartition(".")[2].lower() in _IMAGES]
    if not images or not len(dataset):
        return None
    first = dataset[: min(len(dataset), _SHOWN)]
    options: dict[str, Any] = {
        "image": Image(images[0]),
        "bad_samples": "mask",
        "memory": "64MiB",
        "rank": 0,
        "world": 1,
    }
    with Loader(first, batch_size=len(first), size=80, shuffle="none", epochs=1, output="numpy", **options) as loader:
        return next(iter(loader))
