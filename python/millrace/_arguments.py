"""Checks of the arguments that users pass. Messages name the argument, the values that it takes, and the value that it got.

A wrong type raises TypeError, and a value out of range raises InvalidArgumentError. The native module checks the ranges that it knows.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, cast

from ._errors import InvalidArgumentError

_MAX_SIDE = 16384  # of images, in decode/image.cc
_MAX_DEVIATION = 10.0  # far above that of pixels from 0 to 1, and below those of photographs from 0 to 255
MEMORY = "memory"
"""This word stands in place of a cache's folder."""


def refuse(name: str, wanted: str, value: object) -> NoReturn:
    shown = repr(value)
    raise TypeError(f"{name} must be {wanted}, not {shown if len(shown) <= 60 else type(value).__name__}")


def integer(
    name: str, value: Any, *, least: int | None = None, most: int | None = None, wanted: str = "an integer"
) -> int:
    """Takes every value with ``__index__``, including numpy's integers, except a bool."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        refuse(name, wanted, value)
    try:
        number = operator.index(value)
    except TypeError:  # an array of several
        refuse(name, wanted, value)
    if (least is not None and number < least) or (most is not None and number > most):
        limits = f"at least {least}" if most is None else f"{least} to {most}"
        raise InvalidArgumentError(f"{name} is {number}; it must be {limits}")
    return number


def order(extent: Any, window: Any, lanes: Any) -> tuple[int | None, int | None, int | None]:
    """Checks the sizes of the windowed shuffle. None stands for a size that follows from the data."""
    given = (("extent", extent), ("window", window), ("lanes", lanes))
    first, second, third = (None if value is None else integer(name, value) for name, value in given)
    return first, second, third


def number(name: str, value: Any, wanted: str = "a number") -> float:
    if isinstance(value, (bool, str, bytes)) or not hasattr(value, "__float__"):
        refuse(name, wanted, value)
    try:
        return float(value)
    except (TypeError, ValueError):  # an array of several
        refuse(name, wanted, value)


def pair(name: str, value: Any) -> tuple[float, float]:
    wanted = "two numbers, (from, to)"
    first, second = _items(name, value, wanted, count=2)
    return number(name, first, wanted), number(name, second, wanted)


def flag(name: str, value: Any) -> bool:
    if type(value).__name__ not in ("bool", "bool_"):  # Python's and numpy's
        refuse(name, "True or False", value)
    return bool(value)


def text(name: str, value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        refuse(name, "a string or None", value)
    return value


def choice(name: str, value: Any, choices: Sequence[str]) -> str:
    listed = ", ".join(map(repr, choices))
    if not isinstance(value, str):
        refuse(name, f"one of {listed}", value)
    if value not in choices:
        raise InvalidArgumentError(f"{name} is {value!r}; choose one of {listed}")
    return value


def shuffle(value: Any) -> str:
    if value is None or type(value).__name__ in ("bool", "bool_"):  # Python's and numpy's
        return "window" if value else "none"
    kinds = ("window", "global", "none")
    if not isinstance(value, str):
        listed = ", ".join(map(repr, kinds))
        raise TypeError(f"shuffle must be one of {listed}, not {value!r}; True is 'window', and False is 'none'")
    return choice("shuffle", value, kinds)


def dtype(value: Any) -> str:
    """Returns Millrace's name for a type of pixels, which may be given as torch or numpy names it."""
    names = {"uint8": "u8", "float32": "f32", "float16": "f16", "half": "f16", "bfloat16": "bf16"}
    name = value if isinstance(value, str) else getattr(value, "__name__", str(value)).removeprefix("torch.")
    return names.get(name) or choice("dtype", value, ("u8", "f32", "f16", "bf16"))


def layout(value: Any) -> str:
    return choice("layout", value.lower() if isinstance(value, str) else value, ("nhwc", "nchw"))


def image_size(value: Any) -> tuple[int, int]:
    """Returns height and width."""
    wanted = "an integer or (height, width)"
    sides = (
        (value, value)
        if hasattr(value, "__index__") and not hasattr(value, "__len__")
        else _items("size", value, wanted, 2)
    )
    height, width = (integer("size", side, least=1, most=_MAX_SIDE, wanted=wanted) for side in sides)
    return height, width


def per_channel(name: str, value: Any, channels: int, usual: float) -> tuple[float, float, float]:
    """Returns ``value`` for each of three channels. Channels that do not exist get the usual value."""
    wanted = "a number or one for each channel"
    if value is None:
        value = usual
    one = hasattr(value, "__float__") and not getattr(value, "shape", ())
    items = [value] * channels if one else _items(name, value, wanted)
    numbers = [number(name, item, wanted) for item in items]
    if len(numbers) != channels:
        raise InvalidArgumentError(f"{name} has {len(numbers)} numbers for {channels} channels")
    numbers += [usual] * (3 - len(numbers))
    return numbers[0], numbers[1], numbers[2]


def normalization(mean: Any, std: Any, channels: int) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
    """Returns mean and standard deviation for each of three channels, in units of pixels from 0 to 1.

    Numbers that only pixels from 0 to 255 can have are refused: the results would be almost constant.
    """
    means, deviations = per_channel("mean", mean, channels, 0.0), per_channel("std", std, channels, 1.0)
    for name, numbers, most in (("mean", means, 1.0), ("std", deviations, _MAX_DEVIATION)):
        if most < max(numbers) < math.inf:
            raise InvalidArgumentError(
                f"{name} has {max(numbers):g}, as for pixels from 0 to 255 (DALI's unit), but Millrace's pixels are 0 to 1;"
                " divide mean and std by 255"
            )
    return means, deviations


def memory(value: Any, name: str = "memory") -> str:
    wanted = "an integer (bytes) or a string such as '512MiB'"
    return value if isinstance(value, str) else str(integer(name, value, wanted=wanted))


def tenant(name: Any) -> str:
    """Returns the tenant of a cache, or "" if the credentials determine it."""
    if name is not None and not text("the tenant of the cache", name):
        raise InvalidArgumentError("the tenant of a cache is a name for those who share it")
    return name or ""


def cache(place: Any, size: Any) -> tuple[str, str]:
    """Returns the place of a cache (a folder, or the word "memory") and its size, as ``_core`` takes them. The size "" means all free space."""
    if place == MEMORY and size is None:
        raise InvalidArgumentError("a cache in memory needs a bound; give it one with Cache('memory', size='4GiB')")
    path = os.fsdecode(uri("cache", place, "a path, or 'memory'"))
    if path == MEMORY and not isinstance(place, str):
        path = os.path.join(os.curdir, path)  # a path of that name is a folder
    return path, "" if size is None else memory(size, "the size of the cache")


def uri(name: str, value: Any, wanted: str = "a URI or a path") -> str:
    if not isinstance(value, (str, bytes, os.PathLike)):
        refuse(name, wanted, value)
    return cast(str, os.fspath(value))  # bytes, too, are taken where they come


def uri_of_data(name: str, value: Any, wanted: str) -> str:
    """Returns the URI of a data set. A list of URIs becomes one URI in braces."""
    if not isinstance(value, (list, tuple)):
        return uri(name, value, wanted)
    uris = [uri(name, one, wanted) for one in value]
    if not uris:
        refuse(name, wanted, value)
    return uris[0] if len(uris) == 1 else "{" + ",".join(one.replace(",", "\\,") for one in uris) + "}"


def path_columns(value: Any) -> str:
    """Returns the columns in the notation of src/dataset/path_columns.h: a name, or fields and their columns."""
    if not isinstance(value, Mapping):
        return text("path_column", value) or ""
    wanted = "the name of a column, or a dict of fields and columns, such as {'image': 'photo', 'mask': 'annotation'}"
    if len(value) < 2 or not all(isinstance(part, str) and part for pair in value.items() for part in pair):
        refuse("path_column", wanted, value)
    for field, column in value.items():
        if set(",=") & set(field) or "," in column:
            raise InvalidArgumentError(f"path_column: {field!r}: {column!r} has a comma or a sign =; rename it")
    return ",".join(f"{field}={column}" for field, column in value.items())


def joined_folders(uri_of_folder: Any, join: Any) -> str:
    """Returns the URI of a data set whose samples have a file in each of several folders (src/dataset/folder_join.h)."""
    wanted = "a dict of fields and patterns, such as {'image': 'JPEGImages/{}.jpg', 'mask': 'SegmentationClass/{}.png'}"
    if not isinstance(join, Mapping) or not join:
        refuse("join", wanted, join)
    folder = os.fsdecode(uri("uri", uri_of_folder, "the URI or the path of the folder that has the joined ones"))
    parts = []
    for field, pattern in join.items():
        if not isinstance(field, str) or not isinstance(pattern, (str, os.PathLike)):
            refuse("join", wanted, join)
        path = os.fspath(pattern)
        if path.count("{}") != 1 or set("{},*?[]\\") & set(field + path.replace("{}", "")) or "=" in field:
            raise InvalidArgumentError(
                f"join: {field}={path} is not a pattern: it has one {{}} for the key of the sample, and no braces, commas and wildcards"
            )
        parts.append(f"{field}={path}")
    return folder.rstrip("/") + "/{" + ",".join(parts) + "}"


def texts(name: str, value: Any, wanted: str) -> list[str]:
    items = _items(name, value, wanted)
    if not all(isinstance(item, str) for item in items):
        refuse(name, wanted, value)
    return items


def _items(name: str, value: Any, wanted: str, count: int | None = None) -> list[Any]:
    if isinstance(value, (str, bytes, dict)):
        refuse(name, wanted, value)
    try:
        items = list(value)
    except TypeError:
        refuse(name, wanted, value)
    if count is not None and len(items) != count:
        refuse(name, wanted, value)
    return items
