"""Stacks rows into one array, in memory that is used again. Fresh pages for each batch would cost more than
the copy."""

from __future__ import annotations

import math
import mmap
import sys
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from ._blocks import is_plain
from ._pads import Pads

_LEAST_BYTES = 1 << 20  # an allocator itself keeps the pages of smaller arrays
_MOST_FREE = 4


class UnequalError(ValueError):
    """The rows of a column have other parts than its first row."""


def has_parts(value: Any) -> bool:
    """Returns true for a dict, a tuple or a list of arrays and tensors. Its parts are stacked each for itself, as torch's ``default_collate``
    does. All else of these types, such as a value of JSON, stays as it is. A list is what its first part is, since it may be long."""
    if isinstance(value, dict):
        parts: Any = value.values()
    else:
        parts = value if isinstance(value, tuple) else value[:1] if isinstance(value, list) else ()
    return any(isinstance(part, (np.ndarray, np.generic)) or _is_tensor(part) or has_parts(part) for part in parts)


def _is_tensor(value: Any) -> bool:
    """Returns true also for classes of other packages, such as torchvision's images."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def with_parts(value: Any, change: Callable[[Any], Any]) -> Any:
    """Returns a dict, a list or a tuple with changed parts. A tuple becomes a list, as in ``default_collate``, unless it has names."""
    if isinstance(value, dict):
        return {name: change(part) for name, part in value.items()}
    parts = [change(part) for part in value]
    return type(value)(*parts) if hasattr(value, "_fields") else parts


class Stacks:
    """Makes arrays and tensors of a batch. Memory is used again when nothing refers to its array any more. It is thread-safe."""

    def __init__(self, pads: Pads | None = None) -> None:
        self._pads = pads or Pads()
        self._free: deque[mmap.mmap] = deque(maxlen=_MOST_FREE)

    def stacked(self, name: str, rows: list[Any], valid: Any) -> Any:
        """Returns one array if all rows are arrays or numbers of the same shape and type; otherwise the list. ``pads`` fills rows of padding.
        Rows with arrays as parts become one such object, whose parts are stacked. It raises UnequalError if they have other parts."""
        real = [row for row, is_real in zip(rows, valid) if is_real]
        first: Any = real[0] if real else None
        if isinstance(first, (dict, list, tuple)) and has_parts(first):
            return self._stacked_parts(name, rows, valid, real)
        if _is_tensor(first):
            return self._stacked_tensors(name, rows, valid, real)
        if not isinstance(first, (np.ndarray, np.generic, bool, int, float)):
            padding: Any = "" if isinstance(first, str) else b"" if isinstance(first, bytes) else None
            return [row if is_real else padding for row, is_real in zip(rows, valid)]
        if any(not isinstance(row, (np.ndarray, np.generic, bool, int, float)) for row in real):
            return rows
        arrays = [np.asarray(row) for row in real]
        kind = arrays[0].dtype if all(array.dtype == arrays[0].dtype for array in arrays) else None
        if not isinstance(first, (np.ndarray, np.generic)):  # Python's numbers: 1 and 2.5 are both float
            kind = np.result_type(*arrays)
            if kind.hasobject:  # a number is beyond 64 bits
                return [row if is_real else None for row, is_real in zip(rows, valid)]
        if kind is None or any(array.shape != arrays[0].shape for array in arrays):
            return [row if is_real else np.empty(0, arrays[0].dtype) for row, is_real in zip(rows, valid)]
        stacked = self._array((len(rows), *arrays[0].shape), kind)
        for place in np.flatnonzero(~np.asarray(valid, bool)):
            np.copyto(stacked[place : place + 1], self._pads.of(name, kind, arrays[0].ndim), casting="unsafe")
        for place, array in zip(np.flatnonzero(valid), arrays):
            stacked[place] = array
        return stacked

    def _stacked_parts(self, name: str, rows: list[Any], valid: Any, real: list[Any]) -> Any:
        first = real[0]
        wanted = _outline(first)
        for row in real:
            if _outline(row) != wanted:
                raise UnequalError(
                    f"{name!r} is {_shown(row)} for one sample and {_shown(first)} for another; parts are stacked if all samples have the same. "
                    "Make the batch with collate_fn="
                )
        names = list(first) if isinstance(first, dict) else range(len(first))
        at = iter(names)

        def stacked(_: Any) -> Any:
            part = next(at)
            return self.stacked(name, [row[part] if is_real else None for row, is_real in zip(rows, valid)], valid)

        return with_parts(first, stacked)

    def _stacked_tensors(self, name: str, rows: list[Any], valid: Any, real: list[Any]) -> Any:
        import torch

        first = real[0]
        if any(
            not isinstance(row, torch.Tensor) or row.shape != first.shape or row.dtype != first.dtype for row in real
        ):
            return rows
        padding = first
        if len(real) < len(rows):
            padding = torch.full_like(first, self._pads.of_tensor(name, first.dtype, first.ndim))
        parts = [row if is_real else padding for row, is_real in zip(rows, valid)]
        size = len(rows) * first.numel() * first.element_size()
        if size < _LEAST_BYTES or not all(type(row) is torch.Tensor and is_plain(row, torch) for row in real):
            return torch.stack(parts)
        into = torch.frombuffer(self._take(size), dtype=first.dtype).view(len(rows), *first.shape)
        return torch.stack(parts, out=into)

    def _array(self, shape: tuple[int, ...], kind: Any) -> Any:
        size = math.prod(shape) * kind.itemsize
        return (
            np.empty(shape, kind)
            if size < _LEAST_BYTES or kind.hasobject
            else np.ndarray(shape, kind, self._take(size))
        )

    def _take(self, size: int) -> Any:
        """Returns bytes that were used before, with any content. It takes no lock, since the finalizer may run within any line of any thread."""
        memory: mmap.mmap | None = None
        for _ in range(len(self._free)):
            try:
                memory = self._free.popleft()
            except IndexError:
                break
            if len(memory) == size:
                break
            self._free.append(memory)
            memory = None
        if memory is None:
            memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        whole: Any = np.frombuffer(memory, np.uint8)
        weakref.finalize(whole, self._free.append, memory).atexit = False
        return whole


def _outline(value: Any) -> Any:
    """Returns what all rows have in common if their parts can be stacked."""
    if isinstance(value, dict):
        return dict, frozenset(value)
    return (type(value), len(value)) if isinstance(value, (list, tuple)) else type(value)


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return f"a dict of {', '.join(map(str, value)) or 'nothing'}"
    kind = type(value).__name__
    return f"a {kind} of {len(value)} parts" if isinstance(value, (list, tuple)) else f"a value of type {kind}"
