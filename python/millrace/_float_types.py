"""The types of pixels that are floats, and the arrays and tensors that hold those of 16 bits."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from ._errors import UnsupportedError

NAMES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
"""The names of the types in numpy and torch."""
HALVES = ("f16", "bf16")

_BITS = np.dtype(np.int16)
_CARRIER = np.dtype([("bfloat16", "<i2")])  # of numbers on their way to tensors: numpy has no bfloat16


def element(kind: str, torch: Any, as_tensors: bool) -> tuple[Any, Any]:
    """The type of an array of such numbers, and the type of torch as which its tensor is viewed, None if it has that type already.

    ``torch``: the module, if the arrays become tensors; ``as_tensors``: at once, else :func:`tensor_of` makes them.
    UnsupportedError: numpy cannot hold them.
    """
    if kind != "bf16":
        return np.dtype(NAMES[kind]), None
    if torch is not None:
        return (_BITS, torch.bfloat16) if as_tensors else (_CARRIER, None)
    try:
        return np.dtype(importlib.import_module("ml_dtypes").bfloat16), None
    except ImportError:
        raise UnsupportedError(
            "numpy has no bfloat16; install ml_dtypes, which adds it, or choose output='torch' or dtype='float16'"
        ) from None


def tensor_of(array: Any, torch: Any) -> Any:
    """The array as a tensor over the same memory. TypeError: torch does not have its type."""
    if array.dtype == _CARRIER:
        return torch.from_numpy(array.view(_BITS)).view(torch.bfloat16)
    return torch.from_numpy(array)


def array_of(tensor: Any) -> Any:
    """The tensor of the host as an array over the same memory. ImportError: it is bfloat16, and ml_dtypes is not installed."""
    if str(tensor.dtype) != "torch.bfloat16":
        return tensor.numpy()
    import torch

    return tensor.view(torch.int16).numpy().view(importlib.import_module("ml_dtypes").bfloat16)


def is_float(kind: np.dtype[Any]) -> bool:
    """Says the same of ml_dtypes' bfloat16 as of numpy's own types."""
    return kind.kind == "f" or kind.name == NAMES["bf16"]
