"""Groups options of a Loader that belong together, as one argument. The short form of a group is its first entry."""

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
    """The windowed shuffle with sizes of your own, for ``shuffle=``. docs/shuffle.md describes the sizes.

        loader = millrace.Loader(dataset, shuffle=millrace.Shuffle(window=1024))

    Args:
        window: The number of extents that are shuffled together; a multiple of ``lanes``. None: as many as have about 256 MiB.
        extent: The number of consecutive samples that are fetched together. None: as many as have about 1.5 MiB.
        lanes: The number of parts of a window that are not split between ranks; a power of two. None: 64.
    """

    window: int | None = None
    extent: int | None = None
    lanes: int | None = None


@dataclasses.dataclass(frozen=True)
class Cache:
    """Represents a cache of the bytes that a Loader reads, for ``cache=``. The path is the short form.

        loader = millrace.Loader(dataset, cache=millrace.Cache("/scratch/cache", size="50GiB"))

    Args:
        path: A folder of a local disk, or ``"memory"``, as for the :class:`Loader`.
        size: The space that the cache may take on the disk, in bytes or as ``"50GiB"``. None: as much as leaves 5 % of the disk free. A cache
            in memory requires a size. It is taken from the process's budget (``millrace.configure(memory=)``), not from ``memory`` of the
            Loader.
        pin: True: bytes that were read stay in the cache until ``millrace cache clear`` removes them, or until a cache in memory ends.
        tenant: The name of a tenant. Programs with the same tenant share the cache. None: programs with the same credentials share it
            (docs/cache.md).
    """

    path: str | os.PathLike[str]
    size: int | str | None = None
    pin: bool = False
    tenant: str | None = None


@dataclasses.dataclass(frozen=True)
class Service:
    """Represents workers that decode in place of this process, for ``workers=``. The list of addresses is the short
    form.

        service = millrace.Service(["10.0.0.1:7070", "10.0.0.2:7070"], token="/etc/millrace/token")
        loader = millrace.Loader("s3://bucket/train", workers=service)

    Args:
        workers: Addresses ``"HOST:PORT"``, or places where they are found, as for the :class:`Loader`.
        token: A file with the secret of the workers. None: they do not require one.
        tls: A folder with ``ca.crt``, ``tls.crt`` and ``tls.key``: a certificate of the workers' authority. None: they do not require one.
        tls_name: The name in the workers' certificates. None: the host of the address.
        compression: ``"zstd"``: workers compress batches if that makes them smaller, for rows of tokens over a slow network. None: they do
            not.
        streams: The number of parts of each batch that different workers may decode, at most 64. None: the number of workers plus
            ``local_streams``, rounded up to a power of two, or less if that does not divide ``batch_size``. If workers come and go
            (``dns:``), it is 16.
        local_streams: The number of these parts that this process decodes from the start. ``"auto"``: all of them at first. While the
            program waits for this process, workers take over one part after the other, and return a part if they are slower.
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
    """A function of samples, with the threads or processes in which it runs, for ``transform=``. The function is the short form.

        loader = millrace.Loader(dataset, transform=millrace.Map(parse, processes=8))

    Args:
        function: A function, as ``transform`` of the :class:`Loader`. None: there are only functions of batches.
        threads: The number of threads for it, and for the functions of batches. None: one for each CPU that the process may use.
        processes: The number of processes for it, in place of threads, if it does not release the GIL. The results are the same. Pickle
            must be able to store the function, and the program must guard its main part by ``if __name__ == "__main__":``. ``collate_fn``
            and ``batch_transform`` run in as many threads of this process. None: threads.
        context: The way in which processes are started, in place of ``multiprocessing_context``: ``"spawn"``, ``"forkserver"``, ``"fork"``, or
            a context of multiprocessing. None: ``"spawn"``.
    """

    function: Transform | str | None
    threads: int | None = None
    processes: int | None = None
    context: Any = None


@dataclasses.dataclass(frozen=True)
class Transfer:
    """Represents the transfer of batches to a device, for ``device=``. The device is the short form.

        loader = millrace.Loader(dataset, device=millrace.Transfer("cuda", decode="device", ahead=3))

    Args:
        device: A device, as for the :class:`Loader`.
        decode: ``"host"``: the host decodes images. ``"device"``: JPEGs are sent as they are stored, and the GPU decodes, crops and resizes
            them with nvJPEG. This uses torchvision, which must be installed, and which decodes other formats on the host. Crops and flips
            are the same. Pixels differ slightly, as between any two decoders. It requires a device of torch, and no functions.
        ahead: The number of batches that are made and sent before the loop asks for them. None: 2, or as many as keep the threads of a
            transform busy.
        on_batch: A function without arguments. It is called in the program's thread after each batch, when the loop asks for the next
            one. None: for ``"xla"``, torch-xla's ``sync`` (its ``mark_step``) is called; for other devices, nothing.
    """

    device: Any
    decode: Literal["host", "device"] = "host"
    ahead: int | None = None
    on_batch: Callable[[], object] | None = None


def mapping_of(transform: Transform | str | Map | None, context: Any) -> Map:
    """Returns the transform as a Map. ``context`` is the option ``multiprocessing_context``, which means the same as ``Map(context=)``."""
    if not isinstance(transform, Map):
        return Map(transform, context=context)
    if context is None:
        return transform
    if transform.context is not None:
        raise InvalidArgumentError(
            "multiprocessing_context is given by millrace.Map(context=); leave multiprocessing_context out"
        )
    return dataclasses.replace(transform, context=context)


def shuffle_and_order(
    shuffle: Any,
) -> tuple[str, tuple[int | None, int | None, int | None]]:
    """Returns the kind of shuffle, and its extent, window and lanes."""
    if not isinstance(shuffle, Shuffle):
        return _arguments.shuffle(shuffle), (None, None, None)
    return "window", _arguments.order(shuffle.extent, shuffle.window, shuffle.lanes)
