"""Allocates new memory for tensors that are read. It has huge pages, whose first touch costs half as much as that of
small pages."""

from __future__ import annotations

import mmap

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

_HUGE_PAGE = 2 << 20
_ALIGN = 64
_OWN_BYTES = 4 << 20  # from this size on, an array has memory of its own
_SMALL_BYTES = 32 << 10  # below this, an array comes from the heap
_BLOCK_BYTES = 8 << 20  # the others share a block: one of them keeps at most this much when all others are gone


class NewMemory:
    """Gives out memory that nothing has touched. Each array keeps the block that holds it. It is not thread-safe."""

    def __init__(self) -> None:
        self._rest = np.empty(0, np.uint8)

    def take(self, size: int) -> Bytes:
        if size < _SMALL_BYTES:
            return np.empty(size, np.uint8)
        if size >= _OWN_BYTES:
            return _huge_pages(size)
        if self._rest.size < size:
            self._rest = _huge_pages(_BLOCK_BYTES)
        taken = self._rest[:size]
        self._rest = self._rest[size + -size % _ALIGN :]
        return taken


def _huge_pages(size: int) -> Bytes:
    """Returns memory that begins with a huge page, if the system has huge pages."""
    block = mmap.mmap(-1, size + _HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    try:
        block.madvise(mmap.MADV_HUGEPAGE)
    except (AttributeError, OSError):  # a system without them
        pass
    whole = np.frombuffer(block, np.uint8)
    begin = -whole.__array_interface__["data"][0] % _HUGE_PAGE
    return whole[begin : begin + size]
