"""Data sets and batches as notebooks show them: a table of fields, and small pictures."""

from __future__ import annotations

import base64
import html
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _float_types

_PICTURES = 12  # at most
_EDGE = 80  # of a picture, pixels at most
_TEXT = 60  # characters of a value


class ContactSheet:
    """A batch as a notebook shows it: the names, types and shapes of its arrays, and its first images with their keys and labels.

        millrace.ContactSheet(loader.peek())

    As the last line of a cell, this shows the sheet. ``.html`` is the page, which refers to nothing outside itself.

    Args:
        batch: A batch of a Loader, or a dict of arrays.
        title: A heading. ``""``: no heading.
    """

    def __init__(self, batch: Mapping[str, Any], title: str = "") -> None:
        self.html = _page(title, _table(_shapes(batch)), _pictures(batch))

    def _repr_html_(self) -> str:
        return self.html


def page_of_text(title: str, lines: Sequence[tuple[str, str]], batch: Mapping[str, Any] | None = None) -> str:
    """Returns a page with a title, lines of names and values, and the images of a batch."""
    return _page(title, _table(lines), "" if batch is None else _pictures(batch))


def _page(title: str, table: str, pictures: str) -> str:
    heading = f"<b>{html.escape(title)}</b>" if title else ""
    return f'<div style="font-family:monospace">{heading}{table}{pictures}</div>'


def _table(lines: Sequence[tuple[str, str]]) -> str:
    rows = "".join(
        f"<tr><td>{html.escape(name)}</td><td style='text-align:left'>{html.escape(value)}</td></tr>"
        for name, value in lines
    )
    return f"<table>{rows}</table>"


def _shapes(batch: Mapping[str, Any]) -> list[tuple[str, str]]:
    lines = []
    for name, values in batch.items():
        if hasattr(values, "shape"):
            lines.append((name, f"{str(values.dtype).replace('torch.', '')} {list(values.shape)}"))
        else:
            lines.append(
                (
                    name,
                    f"{len(values)} values, such as {_short(values[0])}"
                    if isinstance(values, list) and values
                    else _short(values),
                )
            )
    return lines


def _pictures(batch: Mapping[str, Any]) -> str:
    images = {
        name: array
        for name, array in ((name, _as_images(values)) for name, values in batch.items())
        if array is not None
    }
    valid = np.asarray(_on_host(batch.get("valid", ())), dtype=np.bool_)
    figures = []
    for row in range(min([_PICTURES, *(len(array) for array in images.values())]) if images else 0):
        if row < len(valid) and not valid[row]:
            continue
        pictures = "".join(
            f'<img title="{html.escape(name)}" src="{_data_uri(array[row])}">' for name, array in images.items()
        )
        said = [
            _short(values[row])
            for name, values in batch.items()
            if name in ("key", "label", "caption") and row < len(values)
        ]
        caption = "<br>".join(html.escape(text) for text in said)
        style = "display:inline-block;margin:4px;vertical-align:top;font-size:10px"
        figures.append(f'<figure style="{style}">{pictures}<figcaption>{caption}</figcaption></figure>')
    return "".join(figures)


def _short(value: Any) -> str:
    text = str(value.item() if hasattr(value, "item") and getattr(value, "ndim", 1) == 0 else value)
    return text if len(text) <= _TEXT else text[: _TEXT - 3] + "..."


def _as_images(values: Any) -> npt.NDArray[np.uint8] | None:
    """Returns small images ``[B, H, W, 1 or 3]`` of numbers from 0 to 255, or None if the values are not images."""
    if not hasattr(values, "shape") or len(values.shape) not in (3, 4) or not len(values):
        return None
    array = np.asarray(_on_host(values[:_PICTURES]))
    if _float_types.is_float(array.dtype) and array.dtype.itemsize == 2:
        array = array.astype(np.float32)
    if array.dtype not in (np.uint8, np.float32):
        return None
    if array.ndim == 3:
        array = array[..., None]
    elif array.shape[-1] not in (1, 3) and array.shape[1] in (1, 3):
        array = array.transpose(0, 2, 3, 1)
    if array.shape[-1] not in (1, 3) or 0 in array.shape:
        return None
    step = max(1, -(-max(array.shape[1:3]) // _EDGE))
    array = array[:, ::step, ::step]
    return array if array.dtype == np.uint8 else np.stack([_stretched(image) for image in array])


def _on_host(values: Any) -> Any:
    if not hasattr(values, "cpu"):
        return values
    is_half = str(values.dtype) == "torch.bfloat16"  # which numpy does not have
    return values.float().cpu() if is_half else values.cpu()


def _stretched(image: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Scales normalized pixels from the darkest to the brightest, since their mean and deviation are not known here."""
    image = np.nan_to_num(image, posinf=0.0, neginf=0.0)
    low, high = float(image.min()), float(image.max())
    return ((image - low) * (255 / (high - low) if high > low else 0)).astype(np.uint8)


def _data_uri(image: npt.NDArray[np.uint8]) -> str:
    return "data:image/png;base64," + base64.b64encode(_png(image)).decode()


def _png(image: npt.NDArray[np.uint8]) -> bytes:
    height, width, channels = image.shape

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    rows = np.zeros((height, 1 + width * channels), np.uint8)  # each begins with 0: not filtered
    rows[:, 1:] = image.reshape(height, -1)
    head = struct.pack(">IIBBBBB", width, height, 8, 2 if channels == 3 else 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows.tobytes()))
        + chunk(b"IEND", b"")
    )
