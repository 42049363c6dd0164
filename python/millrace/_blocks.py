"""Holds memory that a transform process shares with its parent. Objects are written into it: arrays as they are, all
else as pickles."""

from __future__ import annotations

import io
import mmap
import os
import pickle
import struct
import sys
import weakref
from typing import Any, Callable

import numpy as np

_ALIGN = 64
_PROGRESS = struct.Struct("<q")
_LEAST_BYTES = 1 << 20

Place = tuple[int, int]
"""The offset and the size of a region within a block."""
Written = tuple[Place, list[Place]]
"""An object that was written: the place of its pickle, and the places of its arrays."""


class Block:
    """Anonymous memory of a file descriptor (memfd), which has no name that could outlive its processes. It grows, and never moves.

    Objects follow each other from ``begin`` on. The first bytes say how far the other process is.
    """

    begin = _ALIGN

    def __init__(self, number: int, file: int) -> None:
        self.number = number
        self.file = file
        self.end = self.begin
        self._bytes = 0
        self._map: mmap.mmap
        self.remap()

    @classmethod
    def make(cls, number: int) -> Block:
        file = os.memfd_create("millrace-transform")
        try:
            os.ftruncate(file, _LEAST_BYTES)
            return cls(number, file)
        except BaseException:
            os.close(file)
            raise

    def __del__(self) -> None:
        os.close(self.file)  # views keep the mapping, not the descriptor

    def remap(self) -> None:
        """Maps the file again after either process has made it larger. Views of the earlier mapping show the same bytes."""
        size = os.fstat(self.file).st_size
        if size > self._bytes:
            self._map = mmap.mmap(self.file, size)
            self._bytes = size

    def lease(self, released: Callable[[Block], None] | None = None) -> tuple[memoryview, weakref.ref[Any]]:
        """Returns the memory, and a reference that dies with the last view of it. At that moment some thread calls ``released``."""
        whole: Any = np.frombuffer(self._map, np.uint8)
        if released is not None:
            weakref.finalize(whole, released, self).atexit = False
        return whole.data, weakref.ref(whole)

    @property
    def progress(self) -> int:
        return int(_PROGRESS.unpack_from(self._map)[0])

    @progress.setter
    def progress(self, value: int) -> None:
        _PROGRESS.pack_into(self._map, 0, value)

    def reserve(self, size: int) -> int:
        """Reserves ``size`` bytes behind all that was written, and returns their offset."""
        offset = -(-self.end // _ALIGN) * _ALIGN
        self.end = offset + size
        if self.end > self._bytes:
            os.ftruncate(self.file, max(2 * self._bytes, -(-self.end // mmap.PAGESIZE) * mmap.PAGESIZE))
            self.remap()
        return offset

    def put(self, data: Any) -> Place:
        """Copies a flat buffer of bytes."""
        size = len(data)
        offset = self.reserve(size)
        self._map[offset : offset + size] = data
        return offset, size

    def array(self, offset: int, dtype: Any, shape: tuple[int, ...]) -> Any:
        return np.ndarray(shape, dtype, self._map, offset)

    def write(self, value: Any) -> Written:
        stream = io.BytesIO()
        pickler = _Pickler(stream, self)
        pickler.dump(value)
        return self.put(stream.getbuffer()), pickler.out_of_band.places

    def offset_of(self, address: int, size: int) -> int | None:
        """Returns the offset of bytes that this block holds already, or None."""
        if not size:
            return None
        offset = address - int(np.frombuffer(self._map, np.uint8).__array_interface__["data"][0])
        return offset if 0 <= offset and offset + size <= self._bytes else None


def read(memory: memoryview, written: Written) -> Any:
    """Returns the object that was written. Its arrays are views of ``memory``."""
    (offset, size), places = written
    return pickle.loads(memory[offset : offset + size], buffers=[memory[at : at + length] for at, length in places])


class _OutOfBand:
    """Represents the places of buffers.

    A pickler must not call a method of its own. That would make a cycle, which keeps all pickled objects until Python collects garbage.
    Those objects are views of the batches of a Loader, whose memory counts against its budget.
    """

    def __init__(self, block: Block) -> None:
        self.places: list[Place] = []
        self.placed: Place | None = (
            None  # of the buffer that comes next, which is an empty one in its place; not of bytes: those are read-only
        )
        self._block = block

    def __call__(self, buffer: pickle.PickleBuffer) -> None:
        self.places.append(self._block.put(buffer.raw()) if self.placed is None else self.placed)
        self.placed = None


class _Pickler(pickle.Pickler):
    """Arrays and tensors are copied into the block once, or not at all if they lie there, and the pickle says where."""

    def __init__(self, stream: io.BytesIO, block: Block) -> None:
        self.out_of_band = _OutOfBand(block)
        super().__init__(stream, protocol=5, buffer_callback=self.out_of_band)
        self._block = block

    def reducer_override(self, value: Any) -> Any:
        if type(value) is np.ndarray and not value.dtype.hasobject and value.nbytes:
            offset = (
                self._block.offset_of(value.__array_interface__["data"][0], value.nbytes)
                if value.flags.c_contiguous
                else None
            )
            if offset is None:
                offset = self._block.reserve(value.nbytes)
                np.copyto(self._block.array(offset, value.dtype, value.shape), value)
            self.out_of_band.placed = offset, value.nbytes
            return _to_array, (pickle.PickleBuffer(bytearray()), value.dtype, value.shape)
        torch = sys.modules.get("torch")
        if torch is not None and type(value) is torch.Tensor and is_plain(value, torch):
            size = value.numel() * value.element_size()
            offset = self._block.offset_of(value.data_ptr(), size) if value.is_contiguous() else None
            if offset is None:
                offset = self._block.reserve(size)
                _to_tensor(self._block.array(offset, np.uint8, (size,)), value.dtype, tuple(value.shape)).copy_(value)
            self.out_of_band.placed = offset, size
            return _to_tensor, (pickle.PickleBuffer(bytearray()), value.dtype, tuple(value.shape))
        return NotImplemented


def is_plain(tensor: Any, torch: Any) -> bool:
    """Says if a tensor consists only of its numbers in the memory of the CPU."""
    is_dense = tensor.layout == torch.strided and tensor.device.type == "cpu" and not tensor.is_quantized
    return bool(
        is_dense and tensor.numel() and not tensor.requires_grad and not tensor.is_conj() and not tensor.is_neg()
    )


def _to_array(buffer: Any, dtype: Any, shape: tuple[int, ...]) -> Any:
    return np.frombuffer(buffer, np.uint8).view(dtype).reshape(shape)


def _to_tensor(buffer: Any, dtype: Any, shape: tuple[int, ...]) -> Any:
    import torch

    return torch.frombuffer(buffer, dtype=dtype).reshape(shape)
