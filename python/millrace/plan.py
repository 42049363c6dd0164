"""The order of samples, as a pure function."""

from __future__ import annotations

import os
from typing import Any, Union, overload

import numpy as np
import numpy.typing as npt

from . import _arguments, _core
from .dataset import Dataset

_Integers = Union[npt.NDArray[np.integer[Any]], "list[int]", range]


class Plan:
    """The order of one epoch: a bijection between positions and samples, both ``0 .. len(plan) - 1``.

    ``plan[p]`` is the sample (ordinal in the index) that is delivered at position p of the epoch; ``plan.where(s)`` is the position
    of sample s. Both take an integer, or an array of integers and answer with an ``int64`` array of its shape. Rank r of W
    receives the positions p with ``p % W == r``. Nothing is read or stored: a plan of a billion samples takes no memory.

    Args:
        data: A data set, whose Loaders use the same order by default, or a number of samples.
        shuffle: ``"none"``, ``"global"`` or ``"window"`` (as :class:`Loader`).
        seed: Of the shuffle.
        epoch: Counted from 0.
        extent: Consecutive samples that are fetched together (windowed shuffle only).
        window: Extents that are shuffled together; a multiple of ``lanes``.
        lanes: Parts of a window that are not split between ranks; a power of two. The defaults of all three are those of a Loader
            over ``data``; 16, 192 and 64 for a number.

    Raises:
        InvalidArgumentError: The numbers break these rules.
    """

    def __init__(
        self,
        data: Dataset | int,
        *,
        shuffle: str | bool | None = "window",
        seed: int = 0,
        epoch: int = 0,
        extent: int | None = None,
        window: int | None = None,
        lanes: int | None = None,
    ) -> None:
        shuffle = _arguments.shuffle(shuffle)
        usual = data._native.policy(shuffle) if isinstance(data, Dataset) else (16, 192, 64)
        if isinstance(data, (str, os.PathLike)):
            raise TypeError(f"data must be a Dataset or a number of samples; write millrace.Plan(millrace.Dataset({data!r}))")
        wanted = "a Dataset or a number of samples"
        self._native = _core.Plan(
            len(data) if isinstance(data, Dataset) else _arguments.integer("data", data, wanted=wanted),
            shuffle=shuffle,
            seed=_arguments.integer("seed", seed),
            epoch=_arguments.integer("epoch", epoch),
            extent=usual[0] if extent is None else _arguments.integer("extent", extent),
            window=usual[1] if window is None else _arguments.integer("window", window),
            lanes=usual[2] if lanes is None else _arguments.integer("lanes", lanes),
        )

    def __len__(self) -> int:
        return len(self._native)

    @overload
    def __getitem__(self, position: int) -> int: ...
    @overload
    def __getitem__(self, position: _Integers) -> npt.NDArray[np.int64]: ...
    def __getitem__(self, position: int | _Integers) -> int | npt.NDArray[np.int64]:
        numbers = _as_int64(position)
        return _like(position, self._native.at(numbers))

    @overload
    def where(self, sample: int) -> int: ...
    @overload
    def where(self, sample: _Integers) -> npt.NDArray[np.int64]: ...
    def where(self, sample: int | _Integers) -> int | npt.NDArray[np.int64]:
        """The position of a sample; the inverse of ``plan[position]``. IndexError for one that does not exist."""
        numbers = _as_int64(sample)
        return _like(sample, self._native.where(numbers))


def _as_int64(numbers: int | _Integers) -> npt.NDArray[np.int64]:
    if isinstance(numbers, slice):
        raise TypeError(f"positions are an integer or an array of integers, not {numbers}; write plan[range(0, 3)] for the first 3")
    array = np.asarray(numbers)
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(f"positions and samples are integers, not {array.dtype}")
    return np.ascontiguousarray(array, dtype=np.int64).reshape(array.shape)


def _like(question: int | _Integers, answer: npt.NDArray[np.int64]) -> int | npt.NDArray[np.int64]:
    return int(answer) if isinstance(question, (int, np.integer)) else answer
