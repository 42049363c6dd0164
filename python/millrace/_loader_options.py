"""Checks of a Loader's options that belong together. They return the options as ``_core.Loader`` takes them."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from typing import Any, Literal

from . import _arguments
from ._device import Device
from ._errors import InvalidArgumentError
from ._fields import Image, Label, the_image, to_native
from ._option_groups import Cache, Service
from ._tokens import Tokens
from .transforms import compiled

_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def usual_image(size: Any, augment: bool, raw: bool, normalize: Any, for_torch: bool) -> Image:
    """Returns the values for images whose options are None."""
    crop: Literal["random", "center"] = "random" if _arguments.flag("augment", augment) else "center"
    mean, std = (None, None) if normalize is None else _mean_and_std(normalize)
    is_float = for_torch or normalize is not None
    layout: Literal["nchw", "nhwc"] = "nchw" if for_torch else "nhwc"
    if _arguments.flag("raw", raw):
        if normalize is not None:
            raise InvalidArgumentError("raw=True is uint8 pixels [B, H, W, C] as they are; leave normalize out")
        is_float, layout = False, "nhwc"
    dtype = "f32" if is_float else "u8"
    return Image(
        None, size, 3, crop, 0.5, dtype=dtype, layout=layout, mean=mean, std=std, orientation="stored", exact=False
    )


def _mean_and_std(normalize: Any) -> tuple[Any, Any]:
    if isinstance(normalize, str):
        _arguments.choice("normalize", normalize, ("imagenet",))
        return _IMAGENET
    try:
        mean, std = normalize
    except (TypeError, ValueError):
        _arguments.refuse("normalize", "'imagenet' or (mean, std)", normalize)
    return mean, std


def tuple_names(as_tuple: Sequence[str] | None, collate_fn: Any) -> list[str]:
    """Returns the names of the entries of a tuple. If the list is empty, batches are dicts."""
    if as_tuple is None:
        return []
    names = _arguments.texts("as_tuple", as_tuple, "names of entries of the batch, such as ('image', 'label')")
    if not names:
        raise InvalidArgumentError("as_tuple is empty; name entries of the batch, such as ('image', 'label')")
    if collate_fn is not None:
        raise InvalidArgumentError("collate_fn makes the batch, also a tuple; leave as_tuple out")
    return names


def entry_options(
    usual: Image, fields: Any, image: Image | None, label: str | Label | None, raw: bool, normalize: Any
) -> dict[str, Any]:
    """Returns the options of ``fields``, or of the image and the label. ``usual`` has the values for options of images that are None."""
    if fields is not None and (image, label) != (None, None):
        raise InvalidArgumentError(
            "fields names the entries of batches; name the fields of image and label there: fields={'image': millrace.Image('jpg'), "
            "'label': millrace.Label('cls')}"
        )
    label = Label(label) if isinstance(label, str) else label
    if label is not None and not isinstance(label, Label):
        _arguments.refuse("label", "a millrace.Label, or the name of a field", label)
    if label is not None and not isinstance(label.field, str):
        _arguments.refuse("the field of the label", "the name of a field of the samples", label.field)
    if isinstance(image, Image):
        _check_pixels(image, raw, normalize)
    native, field = the_image(image, usual)
    return {
        "image": native,
        "fields": [] if fields is None else to_native(fields, usual),
        "image_field": field,
        "label_field": None if label is None else label.field,
        "label_kind": "int" if label is None else label._form(),
    }


def _check_pixels(image: Image, raw: bool, normalize: Any) -> None:
    """Raises InvalidArgumentError if the image contradicts ``raw`` or ``normalize``."""
    if image.transforms is not None and (raw or normalize is not None) and compiled(image.transforms).normalize:
        said = "raw=True is pixels as they are" if raw else "normalize says mean and std"
        raise InvalidArgumentError(f"{said}; leave Normalize out of the transforms of image")
    for name in ("dtype", "layout", "mean", "std") if raw else ():
        if getattr(image, name) is not None:
            raise InvalidArgumentError(f"raw=True is uint8 pixels [B, H, W, C] as they are; leave {name} of image out")
    if normalize is None:
        return
    for name in ("mean", "std"):
        if getattr(image, name) is not None:
            raise InvalidArgumentError(f"normalize says mean and std; leave {name} of image out")
    if image.dtype is not None and _arguments.dtype(image.dtype) == "u8":
        raise InvalidArgumentError(
            "normalize makes floats of pixels; leave dtype of image out, or choose one of floats"
        )


def token_options(tokens: Tokens | None) -> dict[str, Any]:
    if tokens is None:
        return {"tokens": None, "token_type": "int64", "pad_token": 0}
    if not isinstance(tokens, Tokens):
        _arguments.refuse("tokens", "a millrace.Tokens, such as Tokens(2048, 'pack')", tokens)
    return {"tokens": tokens._native(), "token_type": tokens.dtype, "pad_token": tokens.pad}


def cache_options(cache: str | os.PathLike[str] | Cache | None) -> dict[str, Any]:
    if cache is None:
        return {"cache": "", "cache_size": "", "cache_tenant": "", "pin": False}
    if not isinstance(cache, Cache):
        cache = Cache(cache)
    if cache.path is None:
        _arguments.refuse("the path of a cache", "a path, or 'memory'", cache.path)
    place, size = _arguments.cache(cache.path, cache.size)
    return {
        "cache": place,
        "cache_size": size,
        "cache_tenant": _arguments.tenant(cache.tenant),
        "pin": _arguments.flag("pin of the cache", cache.pin),
    }


def cache_of_worker(cache: str | os.PathLike[str] | Cache | None) -> tuple[str, str, str]:
    """Returns the place, the size and the tenant of a cache. Each is "" if it is not given."""
    options = cache_options(cache)
    if options["pin"]:
        raise InvalidArgumentError(
            "pin keeps the bytes that one Loader reads, and the cache of a worker is that of all its trainers; leave pin out"
        )
    return options["cache"], options["cache_size"], options["cache_tenant"]


def worker_options(workers: Sequence[str] | Service | None) -> tuple[Any, ...] | None:
    """Returns the options of workers, or None without workers. The last entry is the function that they apply, which is None here."""
    if workers is None:
        return None
    service = workers if isinstance(workers, Service) else Service(workers)
    if service.tls is None and service.tls_name is not None:
        raise InvalidArgumentError("tls_name is the name in the workers' certificates; name your own folder with tls")
    streams, local, compression = service.streams, service.local_streams, service.compression
    return (
        _arguments.texts("workers", service.workers, "a list of HOST:PORT"),
        0 if streams is None else _arguments.integer("streams", streams, least=1, most=64),
        None if local == "auto" else _arguments.integer("local_streams", local),
        "" if service.token is None else os.fsdecode(_arguments.uri("token", service.token, "a path")),
        "" if service.tls is None else os.fsdecode(_arguments.uri("tls", service.tls, "a path")),
        _arguments.text("tls_name", service.tls_name) or "",
        compression is not None and bool(_arguments.choice("compression", compression, ("zstd",))),
        None,
    )


def checked_functions(transform: Any, collate_fn: Any, batch_transform: Any) -> bool:
    """Checks the functions, and returns True if there is at least one."""
    functions = {"transform": transform, "collate_fn": collate_fn, "batch_transform": batch_transform}
    for name, function in functions.items():
        if function is not None and not callable(function):
            _arguments.refuse(name, "a function", function)
    return any(function is not None for function in functions.values())


def torch_for(output: str | None, device: Device | None) -> Any:
    """Returns the module torch if batches are to be tensors, else None."""
    if device is not None and type(device) is not Device:
        wanted = "torch" if device.uses_torch else "numpy"
        if output not in (None, wanted):
            raise InvalidArgumentError(
                f"output is {output!r}, and the device takes the arrays of output={wanted!r}; leave output out"
            )
        output = wanted
    if output is None:
        try:
            return importlib.import_module("torch")
        except (ImportError, OSError):  # it is not installed, or cannot be loaded
            return None
    wanted = _arguments.choice("output", output, ("torch", "numpy"))
    return importlib.import_module("torch") if wanted == "torch" else None
