"""Options of a Loader that belong together, as one argument. The first entry of a group alone is its short form."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any, Callable, Literal

from . import _arguments
from ._errors import InvalidArgumentError
from ._transform import Transform


@dataclasses.dataclass(frozen=True)
class Shuffle:
    """The windowed shuffle with sizes of your own, for ``shuffle=``; :doc:`shuffle` says what they do. Sizes that are None follow from the data.

    Args:
        window: Extents that are shuffled together; a multiple of ``lanes``. None: about 256 MiB of them.
        extent: Consecutive samples that are fetched together. None: about 1.5 MiB of them.
        lanes: Parts of a window that are not split between ranks; a power of two. None: 64.
    """

    window: int | None = None
    extent: int | None = None
    lanes: int | None = None


@dataclasses.dataclass(frozen=True)
class Cache:
    """A cache of what is read, for ``cache=``; its path alone is the short form.

    Args:
        path: A folder of a local disk, or ``"memory"``, as the :class:`Loader` says.
        size: The space that it may take on the disk, in bytes or as ``"50GiB"``. None: as much as leaves 5 % of the disk free. One in memory
            needs it; it is taken from the process's budget (``millrace.configure(memory=)``), beside ``memory`` of the Loader.
        pin: True: what was read stays, whatever is read later, until ``millrace cache clear`` removes it, or a cache in memory ends.
        tenant: Programs that name the same tenant share it. None: programs with the same credentials do (:doc:`cache`).
    """

    path: str | os.PathLike[str]
    size: int | str | None = None
    pin: bool = False
    tenant: str | None = None


@dataclasses.dataclass(frozen=True)
class Service:
    """Workers that decode in place of this process, for ``workers=``; their addresses alone are the short form.

    Args:
        workers: Addresses ``"HOST:PORT"``, or places where they are found, as the :class:`Loader` says.
        token: A file with the secret of the workers, if they ask for one.
        tls: A folder with ``ca.crt``, ``tls.crt`` and ``tls.key``, a certificate of the workers' authority, if they ask for one.
        tls_name: The name in the workers' certificates. None: that of the address.
        compression: ``"zstd"``: workers compress batches where that makes them smaller, for rows of tokens over a slow network.
        streams: Parts of each batch that different workers may decode, 64 at most. None: as many as there are workers and
            ``local_streams`` together, rounded up to a power of two, at most what divides ``batch_size``; 16, where workers come and go
            (``dns:``).
        local_streams: So many of these parts are decoded by this process from the start. ``"auto"``: all of them at first; while the
            program waits for this process, workers take one after the other, and give them back if they are slower.
    """

    workers: Sequence[str]
    token: str | os.PathLike[str] | None = None
    tls: str | os.PathLike[str] | None = None
    tls_name: str | None = None
    compression: Literal["zstd"] | None = None
    streams: int | None = None
    local_streams: int | Literal["auto"] = 0


@dataclasses.dataclass(frozen=True)
class Map:
    """A function of samples and where it runs, for ``transform=``; the function alone is the short form.

    Args:
        function: As ``transform`` of the :class:`Loader`. None: there is one of batches only.
        threads: Threads for it, and for the functions of batches. None: one for each CPU that the process may use.
        processes: Processes for it, in place of threads, where it does not release the GIL: the same results. The function must be fit for
            pickle, and the program have its ``if __name__ == "__main__":``. ``collate_fn`` and ``batch_transform`` run in threads of this process, one for each of those.
        context: How these are started, in place of ``multiprocessing_context``: ``"spawn"`` (None), ``"forkserver"``, ``"fork"``, or a context of multiprocessing.
    """

    function: Transform | str | None
    threads: int | None = None
    processes: int | None = None
    context: Any = None


@dataclasses.dataclass(frozen=True)
class Transfer:
    """The way of batches to a device, for ``device=``; the device alone is the short form.

    Args:
        device: As the :class:`Loader` says.
        decode: ``"host"``, or ``"device"``: JPEGs travel as they are stored, and the GPU decodes, crops and resizes them. It is nvJPEG, by way of
            torchvision, which must be installed and decodes other files of images on the host. Crops and flips are
            the same; pixels differ a little, as those of two decoders do. For a device of torch, without functions.
        ahead: Batches that are made and sent before the loop asks for them. None: 2, or as many as keep the threads of a transform busy.
        on_batch: A function without arguments, called in the program's thread after each batch: when the loop asks for the next one. None:
            for ``"xla"`` torch-xla's ``sync`` (its ``mark_step``), else none.
    """

    device: Any
    decode: Literal["host", "device"] = "host"
    ahead: int | None = None
    on_batch: Callable[[], object] | None = None


def mapping_of(transform: Transform | str | Map | None, context: Any) -> Map:
    """``context``: the option ``multiprocessing_context``, which says the same as ``Map(context=)``."""
    if not isinstance(transform, Map):
        return Map(transform, context=context)
    if context is None:
        return transform
    if transform.context is not None:
        raise InvalidArgumentError(
            "multiprocessing_context is said by millrace.Map(context=); leave multiprocessing_context out"
        )
    return dataclasses.replace(transform, context=context)


def shuffle_and_order(
    shuffle: Any,
) -> tuple[str, tuple[int | None, int | None, int | None]]:
    """The kind of shuffle, and its extent, window and lanes."""
    if not isinstance(shuffle, Shuffle):
        return _arguments.shuffle(shuffle), (None, None, None)
    return "window", _arguments.order(shuffle.extent, shuffle.window, shuffle.lanes)
