"""Tensors as safetensors: a file of named tensors that any tool reads (https://huggingface.co/docs/safetensors).

u64 length of the header, little-endian; the header, JSON; the bytes of the tensors one behind the other, without gaps.
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
"""Bytes of a file that is to be written: in memory, or copied there when their turn has come."""

_ALIGN = 64  # of the first tensor, so that views of it suit every type
_METADATA = "__metadata__"

# safetensors' names, and the names of the same types in torch and numpy. Numpy has no bfloat16 and no float8.
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
    """Torch, or None: where it was never imported there are no tensors either."""
    return sys.modules.get("torch")


@dataclasses.dataclass
class Stored:
    """One tensor on its way into a file."""

    name: str
    type: str
    shape: tuple[int, ...]
    data: Piece


def item_bytes(kind: str) -> int:
    """Of one element of the type."""
    if kind not in _ITEM_BYTES:
        raise DamagedDataError(
            f"there is a tensor of the type {kind!r}, which this Millrace does not know; use a newer one"
        )
    return _ITEM_BYTES[kind]


def numpy_type(array: npt.NDArray[Any]) -> str | None:
    """The name of its type; None if safetensors has none."""
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
    """Its bytes in C order: a view if it has that order."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def torch_bytes(tensor: Any) -> Bytes:
    """Its bytes in C order: a view if it has that order and lies in the memory of the host."""
    flat = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
    if flat.numel() == 0:
        return np.empty(0, np.uint8)
    data: Bytes = flat.view(torch_if_imported().uint8).numpy()
    return data


class Deferred:
    """The bytes, in C order, of a tensor on a device, of one whose elements do not lie one behind the other, or of one that is made only when its turn
    has come. They are copied a part at a time, in order, by one thread at a time, so that there is no copy of all of it; only one that is not
    contiguous is copied whole, and for as long as its turn lasts.
    """

    def __init__(self, make: Callable[[], Any], size: int, device: Any = None) -> None:
        """``device``: on which the tensor lies, if that is not the host."""
        self._make = make
        self._flat: Any = None
        self.size = size
        self.device = device

    @property
    def is_cuda(self) -> bool:
        return self.device is not None and self.device.type == "cuda"

    def begin_copy(self, memory: Any) -> None:
        """Writes all bytes into memory, where they are once :func:`finish_devices` was called by the same thread."""
        self._copy(0, memory, wait=not self.is_cuda)

    def copy_to(self, offset: int, memory: Any) -> None:
        """Writes those bytes that begin at ``offset`` into memory."""
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
    """Stands for a tensor in a state that is to be saved: its bytes lie in a file, or come when their turn has come."""

    type: str
    shape: tuple[int, ...]
    data: Piece


def torch_piece(tensor: Any) -> Piece:
    """Its bytes in C order: a view of them, or, if there is none in the memory of the host, something that copies them."""
    if tensor.numel() == 0:
        return np.empty(0, np.uint8)
    in_place = tensor.device.type == "cpu" and tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()
    if in_place:
        return torch_bytes(tensor)
    return Deferred(
        lambda: tensor, tensor.numel() * tensor.element_size(), None if tensor.device.type == "cpu" else tensor.device
    )


def finish_devices(pieces: Iterable[Piece]) -> None:
    """Waits until what this thread has asked the devices for is done: another thread, with other streams, will copy the tensors."""
    for device in {piece.device for piece in pieces if isinstance(piece, Deferred) and piece.device is not None}:
        module: Any = getattr(
            torch_if_imported(), device.type, None
        )  # none of XLA, which computes what is copied when it is copied
        if hasattr(module, "current_stream"):
            module.current_stream(device).synchronize()
        elif hasattr(module, "synchronize"):
            module.synchronize()


def encode(tensors: list[Stored], of_torch: bool) -> tuple[list[Piece], dict[str, int]]:
    """The file, as pieces that follow each other, those of the tensors being their own memory; and where in it they begin."""
    # The widest first: each begins at a multiple of its width then.
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
    """The array whose memory ``data`` is."""
    return data.view(numpy_dtype(kind, where)).reshape(shape)


def tensor_of(data: Bytes, kind: str, shape: tuple[int, ...], torch: Any) -> Any:
    """The tensor whose memory ``data`` is."""
    dtype = torch_dtype(kind, torch)
    if data.size == 0:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(data, dtype=dtype).reshape(shape)
