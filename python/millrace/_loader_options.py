"""Options of a Loader that belong together, checked, and as ``_core.Loader`` takes them."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from . import _arguments
from .device import Device
from .errors import InvalidArgumentError


def cache_options(cache: str | os.PathLike[str] | None, cache_size: int | str | None, pin: bool) -> dict[str, Any]:
    place, size = _arguments.cache(cache, cache_size)
    if pin and cache is None:
        raise InvalidArgumentError("pin keeps what is read in a cache; name its folder with cache")
    return {"cache": place, "cache_size": size, "pin": bool(pin)}


def worker_options(
    workers: Sequence[str] | None,
    local_streams: Any,
    streams: int | None,
    token_file: str | os.PathLike[str] | None,
    tls: str | os.PathLike[str] | None,
    tls_name: str | None,
    compression: str | None,
) -> tuple[Any, ...] | None:
    """None without workers. The last entry is the function that they apply, None here."""
    if workers is None and (local_streams, streams, token_file, tls, tls_name, compression) != (0, *[None] * 5):
        raise InvalidArgumentError(
            "streams, local_streams, worker_token_file, worker_tls and worker_compression are for workers; "
            "name these with workers=['HOST:PORT']"
        )
    if tls is None and tls_name is not None:
        raise InvalidArgumentError(
            "worker_tls_name is the name in the workers' certificates; name your own folder with worker_tls"
        )
    if workers is None:
        return None
    return (
        _arguments.texts("workers", workers, "a list of HOST:PORT"),
        0 if streams is None else _arguments.integer("streams", streams, least=1, most=64),
        None if local_streams == "auto" else _arguments.integer("local_streams", local_streams),
        "" if token_file is None else os.fsdecode(_arguments.uri("worker_token_file", token_file, "a path")),
        "" if tls is None else os.fsdecode(_arguments.uri("worker_tls", tls, "a path")),
        _arguments.text("worker_tls_name", tls_name) or "",
        compression is not None and bool(_arguments.choice("worker_compression", compression, ("zstd",))),
        None,
    )


def checked_functions(transform: Any, collate: Any, batch_transform: Any) -> bool:
    """Whether there are any."""
    functions = {"transform": transform, "collate": collate, "batch_transform": batch_transform}
    for name, function in functions.items():
        if function is not None and not callable(function):
            _arguments.refuse(name, "a function", function)
    return any(function is not None for function in functions.values())


def torch_for(output: str | None, device: Device | None) -> Any:
    """The module torch when batches shall be tensors, else None."""
    if device is not None and type(device) is not Device:
        wanted = "torch" if device.uses_torch else "numpy"
        if output not in (None, wanted):
            raise InvalidArgumentError(
                f"output is {output!r}, and the device takes what output={wanted!r} delivers; leave output out"
            )
        output = wanted
    if output is None:
        return sys.modules.get("torch")
    wanted = _arguments.choice("output", output, ("torch", "numpy"))
    return importlib.import_module("torch") if wanted == "torch" else None
