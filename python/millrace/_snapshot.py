"""This module has the copy of a state that is saved while the training continues."""

from __future__ import annotations

import contextlib
import warnings
import weakref
from typing import Any, Protocol

import numpy as np

from . import _core, _tensors
from ._state import Shards

_ALIGN = 64


class Pinning(Protocol):
    """Represents the part of device.CudaApi that a snapshot needs."""

    def register(self, address: int, size: int) -> str: ...
    def unregister(self, address: int) -> None: ...


class Snapshot:
    """A copy of files, in memory that is kept from save to save, since new memory costs more time than the copy.

    Once tensors of a GPU are copied there, the memory is pinned, so that they are copied as fast as the bus allows.
    """

    def __init__(self, limit: int | None, pinning: Pinning | None = None) -> None:
        """Takes the limit of the memory. ``pinning`` is for tests; None: torch pins."""
        self._limit = limit
        self._pinning = pinning
        self._memory = np.empty(0, np.uint8)
        self._unpin: Any = None  # while the memory is pinned
        self._is_refused = False  # it cannot be pinned, and that was said

    @property
    def bytes(self) -> int:
        return self._memory.size

    def holds(self, shards: Shards) -> bool:
        """Says if all shards fit."""
        return self._limit is None or sum(map(_needed, shards)) <= self._limit

    def copy(self, shards: Shards) -> tuple[Shards, Shards]:
        """Copies as many files as fit. Returns the copies, and the other files."""
        chosen: list[int] = []
        needed = 0
        for number in sorted(range(len(shards)), key=lambda number: -_needed(shards[number])):
            if self._limit is None or needed + _needed(shards[number]) <= self._limit:
                needed += _needed(shards[number])
                chosen.append(number)
        pieces = [piece for number in chosen for piece in shards[number][1]]
        self._make_room(needed, pieces)
        end = 0
        copies: Shards = []
        try:
            for name, of_file in (shards[number] for number in chosen):
                copied: list[_tensors.Piece] = []
                for piece in of_file:
                    memory = self._memory[end : end + piece.size]
                    if isinstance(piece, _tensors.Deferred):
                        piece.begin_copy(memory)
                    else:
                        _core.copy_past_caches(memory, piece)  # a plain copy takes half as long again
                    copied.append(memory)
                    end += piece.size + -piece.size % _ALIGN
                copies.append((name, copied))
        finally:
            _tensors.finish_devices(pieces)
        return copies, [shard for number, shard in enumerate(shards) if number not in chosen]

    def _make_room(self, size: int, pieces: list[_tensors.Piece]) -> None:
        if self._memory.size < size:
            self._free()  # the old memory is freed before the new one is made
            self._memory = np.empty(size, np.uint8)
        devices = [piece.device for piece in pieces if isinstance(piece, _tensors.Deferred) and piece.is_cuda]
        if not devices or self._unpin is not None or self._is_refused:
            return
        pinning = self._pinning or _torch_pinning(devices[0])
        address = self._memory.__array_interface__["data"][0]
        trouble = pinning.register(address, self._memory.size)
        if not trouble:
            # This is needed for every end of this object: the address may belong to other memory later, and the driver would take it for pinned.
            self._unpin = weakref.finalize(self, _unpin, pinning, address, self._memory)
            return
        self._is_refused = True
        warnings.warn(
            f"the memory of asynchronous saves cannot be pinned: cudaHostRegister says {trouble}; tensors of the GPU are copied through the driver's own "
            "buffers, and the training waits longer for it. Give snapshot_memory=, so that there is less to pin",
            RuntimeWarning,
            stacklevel=2,
        )

    def _free(self) -> None:
        if self._unpin is not None:
            self._unpin()
            self._unpin = None
        self._memory = np.empty(0, np.uint8)


def _torch_pinning(device: Any) -> Pinning:
    from ._device import TorchCuda

    return TorchCuda(device)


def _unpin(pinning: Pinning, address: int, memory: Any) -> None:
    """Unpins memory. The argument ``memory`` only keeps it alive until then."""
    with contextlib.suppress(RuntimeError):  # a device that is lost raises
        pinning.unregister(address)


def _needed(shard: tuple[str, list[_tensors.Piece]]) -> int:
    return sum(piece.size + -piece.size % _ALIGN for piece in shard[1])
