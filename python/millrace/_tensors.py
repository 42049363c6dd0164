"""Tensors as safetensors: files of named tensors that many tools read (https://huggingface.co/docs/safetensors).

A file has the length of the header (u64, little-endian), the header (JSON), and the bytes of the tensors one behind the other, without gaps.
"""

from __future__ import annotations

import dataclasses
import json
import struct
import sys
from collections.abc import Callable, Iterable
from typing import Any, Union

import numpy as np
import numpy.typing as npt

from ._errors import DamagedDataError, UnsupportedError

Bytes = npt.NDArray[np.uint8]
Piece = Union[Bytes, "Deferred"]
"""The bytes of a part of a file to write. They are in memory, or are copied there when they are needed."""

_ALIGN = 64  # alignment of the first tensor, so that views of it suit every type
_METADATA = "__metadata__"

# The table has safetensors' names, and the names of the same types in torch and numpy. Numpy does not have bfloat16 and float8.
_TYPES = {
    **{
        "F64": ("float64", "float64"),
        "F32": ("float32", "float32"),
        "F16": ("float16", "float16"),
        "BF16": ("bfloat16", ""),
    },
    **{"F8_E4M3": ("float8_e4m3fn", ""), "F8_E5M2": ("float8_e5m2", ""), "C64": ("complex64", "complex64")},
    **{"I64": ("int64", "int64"), "I32": ("int32", "int32"), "I16": ("int16", "int16"), "I8": ("int8", "int8")},
    **{"U64": ("uint64", "uint64"), "U32": ("uint32", "uint32"), "U16": ("uint16", "uint16"), "U8": ("uint8", "uint8")},
    "BOOL": ("bool", "bool"),
}
_FROM_TORCH = {torch: name for name, (torch, _) in _TYPES.items()}
_FROM_NUMPY = {numpy: name for name, (_, numpy) in _TYPES.items() if numpy}
_ITEM_BYTES = {
    "BF16": 2,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    **{name: np.dtype(numpy).itemsize for numpy, name in _FROM_NUMPY.items()},
}


def torch_if_imported() -> Any:
    """Returns torch, or None. If it was never imported, there are no tensors either."""
    return sys.modules.get("torch")


@dataclasses.dataclass
class Stored:
    """Represents a tensor that is written into a file."""

    name: str
    type: str
    shape: tuple[int, ...]
    data: Piece


def item_bytes(kind: str) -> int:
    """Returns the bytes of one element of the type."""
    if kind not in _ITEM_BYTES:
        raise DamagedDataError(
            f"there is a tensor of the type {kind!r}, which this Millrace does not know; use a newer one"
        )
    return _ITEM_BYTES[kind]


def numpy_type(array: npt.NDArray[Any]) -> str | None:
    """Returns safetensors' name for the type of an array, or None if safetensors does not have the type."""
    return _FROM_NUMPY.get(array.dtype.name) if array.dtype.isnative else None


def torch_type(tensor: Any) -> str | None:
    return _FROM_TORCH.get(str(tensor.dtype).removeprefix("torch."))


def torch_dtype(kind: str, torch: Any) -> Any:
    item_bytes(kind)
    return getattr(torch, _TYPES[kind][0])


def numpy_dtype(kind: str, where: str) -> str:
    item_bytes(kind)
    if not _TYPES[kind][1]:
        raise UnsupportedError(f"{where} is {_TYPES[kind][0]}, which numpy does not have; import torch first")
    return _TYPES[kind][1]


def numpy_bytes(array: npt.NDArray[Any]) -> Bytes:
    """Returns the bytes of an array in C order. They are a view if the array has that order."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def torch_bytes(tensor: Any) -> Bytes:
    """Returns the bytes of a tensor in C order. They are a view if it has that order and is in the memory of the host."""
    flat = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
    if flat.numel() == 0:
        return np.empty(0, np.uint8)
    data: Bytes = flat.view(torch_if_imported().uint8).numpy()
    return data


class Deferred:
    """Represents the bytes, in C order, of a tensor that is copied later.

    Such a tensor is on a device, or is not contiguous, or is made only when it is needed. One thread at a time copies the bytes, a part at a
    time and in order, so that there is no copy of the whole tensor. Only a tensor that is not contiguous is copied whole, and only while it
    is written.
    """

    def __init__(self, make: Callable[[], Any], size: int, device: Any = None) -> None:
        """``device`` is the device of the tensor, if that is not the host."""
        self._make = make
        self._flat: Any = None
        self.size = size
        self.device = device

    @property
    def is_cuda(self) -> bool:
        return self.device is not None and self.device.type == "cuda"

    def begin_copy(self, memory: Any) -> None:
        """Starts to write all bytes into memory. They are there after the same thread has called :func:`finish_devices`."""
        self._copy(0, memory, wait=not self.is_cuda)

    def copy_to(self, offset: int, memory: Any) -> None:
        """Writes the bytes that begin at ``offset`` into memory."""
        self._copy(offset, memory, wait=True)

    def _copy(self, offset: int, memory: Any, wait: bool) -> None:
        torch = torch_if_imported()
        into = torch.frombuffer(memory, dtype=torch.uint8)
        if self._flat is None:
            tensor = self._make().detach()
            if tensor.is_conj() or tensor.is_neg() or not tensor.is_contiguous():
                tensor = tensor.cpu().resolve_conj().resolve_neg().contiguous()
            self._flat = tensor.reshape(-1).view(torch.uint8)
        end = offset + into.numel()
        with torch.no_grad():
            into.copy_(self._flat[offset:end], non_blocking=not wait)
        if end == self.size:
            self._flat = None


@dataclasses.dataclass
class Later:
    """Stands for a tensor in a state to save. Its bytes are in a file, or are made when they are needed."""

    type: str
    shape: tuple[int, ...]
    data: Piece


def torch_piece(tensor: Any) -> Piece:
    """Returns the bytes of a tensor in C order, as a view. If the host's memory does not hold them, it returns an object that copies them."""
    if tensor.numel() == 0:
        return np.empty(0, np.uint8)
    in_place = tensor.device.type == "cpu" and tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()
    if in_place:
        return torch_bytes(tensor)
    return Deferred(
        lambda: tensor, tensor.numel() * tensor.element_size(), None if tensor.device.type == "cpu" else tensor.device
    )


def finish_devices(pieces: Iterable[Piece]) -> None:
    """Waits until the devices have done the work of this thread, since another thread, with other streams, will copy the tensors."""
    for device in {piece.device for piece in pieces if isinstance(piece, Deferred) and piece.device is not None}:
        module: Any = getattr(
            torch_if_imported(), device.type, None
        )  # not for XLA, which computes a value when it is copied
        if hasattr(module, "current_stream"):
            module.current_stream(device).synchronize()
        elif hasattr(module, "synchronize"):
            module.synchronize()


def encode(tensors: list[Stored], of_torch: bool) -> tuple[list[Piece], dict[str, int]]:
    """Returns the file as consecutive pieces, and the offset of each tensor. The pieces of tensors are their own memory."""
    # The widest types come first, so that each tensor begins at a multiple of its width.
    ordered = sorted(tensors, key=lambda tensor: -_ITEM_BYTES[tensor.type])
    header: dict[str, Any] = {_METADATA: {"format": "pt" if of_torch else "np"}}
    offset = 0
    for tensor in ordered:
        end = offset + tensor.data.size
        header[tensor.name] = {"dtype": tensor.type, "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % _ALIGN)
    head = np.frombuffer(struct.pack("<Q", len(text)) + text, np.uint8)
    places = {tensor.name: head.size + header[tensor.name]["data_offsets"][0] for tensor in ordered}
    return [head, *(tensor.data for tensor in ordered if tensor.data.size)], places


def array_of(data: Bytes, kind: str, shape: tuple[int, ...], where: str) -> npt.NDArray[Any]:
    """Returns the array whose memory is ``data``."""
    return data.view(numpy_dtype(kind, where)).reshape(shape)


def tensor_of(data: Bytes, kind: str, shape: tuple[int, ...], torch: Any) -> Any:
    """Returns the tensor whose memory is ``data``."""
    dtype = torch_dtype(kind, torch)
    if data.size == 0:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(data, dtype=dtype).reshape(shape)
