"""This module has the types of pixels that are floats, and the arrays and tensors that hold those of 16 bits."""

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
    """Returns the type of an array of such numbers, and the type of torch as which its tensor is viewed.

    The second type is None if the tensor has it already. ``torch`` is the module if the arrays become tensors. With ``as_tensors`` they
    become tensors at once; otherwise :func:`tensor_of` converts them. It raises UnsupportedError if numpy cannot hold the numbers.
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
    """Returns the array as a tensor over the same memory. Raises TypeError if torch does not have its type."""
    if array.dtype == _CARRIER:
        return torch.from_numpy(array.view(_BITS)).view(torch.bfloat16)
    return torch.from_numpy(array)


def array_of(tensor: Any) -> Any:
    """Returns a tensor of the host as an array over the same memory. Raises ImportError for bfloat16 if ml_dtypes is not installed."""
    if str(tensor.dtype) != "torch.bfloat16":
        return tensor.numpy()
    import torch

    return tensor.view(torch.int16).numpy().view(importlib.import_module("ml_dtypes").bfloat16)


def is_float(kind: np.dtype[Any]) -> bool:
    """Says if a type has floats: numpy's own types and ml_dtypes' bfloat16."""
    return kind.kind == "f" or kind.name == NAMES["bf16"]
