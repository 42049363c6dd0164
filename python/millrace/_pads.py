"""Holds the numbers in rows without a sample."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from . import _arguments, _float_types
from ._errors import InvalidArgumentError
from ._fields import is_map

_IGNORED_LABEL = -100  # the usual ignore_index of torch
_IGNORED_CLASS = 255  # the usual one of masks
_EXACT = 1 << 53  # whole numbers that a double holds
_DIMS_OF_IMAGES = 3  # of one row, at least


class Pads:
    """Chooses the padding of each column, so that a loss never takes it for data.

    ``labels`` and ``masks`` are the names of columns that are labels, and images of numbers. ``arrays`` are the names of other images and
    arrays, whose floats are 0. Other floats come from a transform, and are NaN if a row has fewer dimensions than an image. With ``finite``,
    these floats and those of labels are 0.
    """

    def __init__(
        self,
        chosen: Mapping[str, float] | None = None,
        labels: Collection[str] = ("label",),
        masks: Collection[str] = (),
        arrays: Collection[str] = ("image",),
        finite: bool = False,
    ) -> None:
        self._chosen = dict(chosen or {})
        self._labels = labels
        self._masks = masks
        self._arrays = arrays
        self._missing = 0.0 if finite else math.nan

    def of(self, name: str, kind: Any, dims: int = 0) -> float:
        """Returns the padding of a column whose elements are ``kind``, a type of numpy, and whose rows have ``dims`` dimensions."""
        kind = np.dtype(kind)
        chosen = self._chosen.get(name)
        if chosen is not None:
            _check_fits(name, chosen, kind)
            return chosen
        is_mask = name in self._masks
        if _float_types.is_float(kind):
            is_target = is_mask or name in self._labels or (name not in self._arrays and dims < _DIMS_OF_IMAGES)
            return self._missing if is_target else 0
        if is_mask and kind.kind in "iu" and np.iinfo(kind).max >= _IGNORED_CLASS:
            return _IGNORED_CLASS
        if kind.kind == "i":
            return _IGNORED_LABEL
        return _IGNORED_CLASS if kind.kind == "u" and name in self._labels else 0

    def of_tensor(self, name: str, kind: Any, dims: int = 0) -> float:
        """Returns the padding for a type of torch."""
        if kind.is_complex:
            return self._chosen.get(name, 0)
        if kind.is_floating_point:  # numpy does not have bfloat16
            return self.of(name, np.float32, dims)
        return self.of(name, np.dtype(str(kind).removeprefix("torch.")) if str(kind) != "torch.bool" else np.bool_)


def _check_fits(name: str, value: float, kind: np.dtype[Any]) -> None:
    if kind.kind == "c" or _float_types.is_float(kind):
        return
    least, most = (
        (0, 1) if kind.kind == "b" else (np.iinfo(kind).min, np.iinfo(kind).max) if kind.kind in "iu" else (0, 0)
    )
    if not (least <= value <= most and value == int(value)):
        raise InvalidArgumentError(
            f"pad[{name!r}] is {value}, and '{name}' of the batches is {kind}, which cannot hold it"
        )


def checked(pad: Mapping[str, float] | None, fields: Any) -> dict[str, float]:
    """Returns the checked option ``pad`` of a Loader, with those of its fields."""
    pad = {} if pad is None else pad
    wanted = "a dict of names of arrays and the number for each, such as {'label': -1}"
    if not isinstance(pad, Mapping) or any(not isinstance(name, str) for name in pad):
        _arguments.refuse("pad", wanted, pad)
    of_fields = fields if isinstance(fields, Mapping) else {}
    of_fields = {name: field.pad for name, field in of_fields.items() if getattr(field, "pad", None) is not None}
    for name in of_fields:
        if name in pad:
            raise InvalidArgumentError(f"pad is given for {name!r} by the Loader and by its field; leave one out")
    values: dict[str, float] = {}
    for name, value in {**of_fields, **pad}.items():
        number = _arguments.number(f"pad[{name!r}]" if name in pad else f"the pad of fields[{name!r}]", value)
        whole = math.isfinite(number) and number == int(number)
        if whole and abs(number) > _EXACT:
            raise InvalidArgumentError(f"pad[{name!r}] is {value}; choose a number of at most 2^53")
        values[name] = int(number) if whole else number
    return values


def of_entries(pad: Mapping[str, float], entries: Sequence[tuple[Any, ...]], tokens: Any, finite: bool) -> Pads:
    """Returns the padding of the batches of a Loader.

    ``entries`` are its fields as the native loader takes them, and ``pad`` has the numbers that the user chose.
    """
    labels = {"label", *(entry[0] for entry in entries if entry[2] == "label")}
    images = {entry[0]: entry[3] for entry in entries if entry[2] == "image"}
    masks = {name for name, image in images.items() if is_map(image)}
    arrays = {entry[0] for entry in entries if entry[2] == "array"} | (images.keys() - masks)
    of_tokens = {"tokens": tokens.pad, "position_ids": 0, "segment_ids": 0} if tokens else {}
    return Pads({**pad, **of_tokens}, labels, masks, arrays or {"image"}, finite)
