"""The encoding of a function's results, which a worker sends: numbers, texts, arrays, tensors, and lists, tuples and dicts of these.

Other values are refused, and nothing is pickled: a trainer runs no code that comes from a worker.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from ._errors import TransformError

ENTRY = "__row__"
"""The entry of a native batch that holds these bytes, one for each row. If they are empty, the row was decoded here."""

PADDING = b"-"
"""The bytes of a row without a sample."""

_ALIGN = 64
_HEAD = 8
_PLAIN_KINDS = "biufcSUmM"


class _Buffers:
    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size = 0

    def add(self, data: bytes) -> int:
        offset = self.size
        rest = -len(data) % _ALIGN
        self.parts += [data, b"\0" * rest]
        self.size += len(data) + rest
        return offset


def encode(value: dict[str, Any]) -> bytes:
    """Encodes a result. Raises TypeError, with the name of the value, if it cannot be sent."""
    buffers = _Buffers()
    return _packed({"value": _described(value, buffers, "the result")}, buffers)


def encode_error(error: BaseException, traceback: str) -> bytes:
    return _packed({"error": [str(error), traceback]}, _Buffers())


def decode(data: bytes) -> dict[str, Any]:
    """Decodes a result, which owns its arrays. Raises TransformError if the function has raised."""
    end = _HEAD + int.from_bytes(data[:_HEAD], "little")
    head = json.loads(data[_HEAD:end])
    if "error" in head:
        from ._processes import RemoteTraceback

        message, traceback = head["error"]
        raise TransformError(message) from RemoteTraceback(traceback)
    made = _made(head["value"], bytearray(data[end:]))
    assert isinstance(made, dict)
    return made


def _packed(head: dict[str, Any], buffers: _Buffers) -> bytes:
    text = json.dumps(head).encode()
    text += b" " * (-(_HEAD + len(text)) % _ALIGN)
    return b"".join([len(text).to_bytes(_HEAD, "little"), text, *buffers.parts])


def _described(value: Any, buffers: _Buffers, name: str) -> Any:
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return ["plain", value]
    if kind is bytes:
        return ["bytes", buffers.add(value), len(value)]
    if kind in (list, tuple):
        return [kind.__name__, [_described(each, buffers, f"{name}[{at}]") for at, each in enumerate(value)]]
    if kind is dict:
        if any(type(key) is not str for key in value):
            raise TypeError(f"{name} is a dict with a key that is not a str")
        return ["dict", {key: _described(each, buffers, f"{name}[{key!r}]") for key, each in value.items()}]
    if kind is np.ndarray or isinstance(value, np.generic):
        array = np.asarray(value)
        if array.dtype.kind in _PLAIN_KINDS:
            return [
                "array" if kind is np.ndarray else "number",
                array.dtype.str,
                list(array.shape),
                buffers.add(array.tobytes()),
                array.nbytes,
            ]
    torch = sys.modules.get("torch")
    if torch is not None and kind is torch.Tensor and _is_plain(value, torch):
        raw = value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b""
        return ["tensor", str(value.dtype).partition(".")[2], list(value.shape), buffers.add(raw), len(raw)]
    raise TypeError(
        f"{name} is a {kind.__module__}.{kind.__qualname__}, which workers cannot send; return numbers, texts, bytes, arrays, tensors, and lists of these"
    )


def _is_plain(tensor: Any, torch: Any) -> bool:
    return bool(
        tensor.layout == torch.strided
        and tensor.device.type == "cpu"
        and not (tensor.is_quantized or tensor.requires_grad or tensor.is_conj() or tensor.is_neg())
    )


def _made(described: list[Any], memory: bytearray) -> Any:
    kind, *rest = described
    if kind == "plain":
        return rest[0]
    if kind == "bytes":
        return bytes(memory[rest[0] : rest[0] + rest[1]])
    if kind in ("list", "tuple"):
        values = [_made(each, memory) for each in rest[0]]
        return values if kind == "list" else tuple(values)
    if kind == "dict":
        return {key: _made(each, memory) for key, each in rest[0].items()}
    dtype, shape, offset, size = rest
    if not size and shape and all(shape):
        raise ValueError(f"values of shape {shape} without bytes")
    if kind == "tensor":
        import torch

        if not size:
            return torch.empty(shape, dtype=getattr(torch, dtype))
        return (
            torch.frombuffer(memory, dtype=torch.uint8, count=size, offset=offset)
            .view(getattr(torch, dtype))
            .reshape(shape)
        )
    array: Any = (
        np.frombuffer(memory, np.uint8, size, offset).view(dtype).reshape(shape) if size else np.empty(shape, dtype)
    )
    return array if kind == "array" else array[()]
