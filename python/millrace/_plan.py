"""Computes the order of samples, as a pure function."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any, Callable, Literal, Union, overload

import numpy as np
import numpy.typing as npt

from . import _arguments, _core, _moved_options
from ._dataset import Dataset
from ._errors import UnsupportedError
from ._mix import Mix
from ._option_groups import Shuffle, shuffle_and_order

_Integers = Union[npt.NDArray[np.integer[Any]], "list[int]", range]


class Plan:
    """The order of one epoch: a bijection between positions, ``0 .. len(plan) - 1``, and samples. (A mix differs, see below.)

        plan = millrace.Plan(millrace.Dataset("s3://bucket/train"), seed=1, epoch=0)
        first_samples = plan[range(64)]
        position = plan.position_of(7)

    ``plan[p]`` is the sample (its number in the index) that is delivered at position p of the epoch. ``plan.position_of(s)`` is the
    position of sample s. Both take an integer and return an integer, or take an array of integers and return an ``int64`` array of the same
    shape. Rank r of W receives the positions p with ``p % W == r``. Nothing is read or stored: a plan of a billion samples takes no memory.

    In a subset, samples have the numbers that the index gives them. In the plan of a :class:`Mix`, ``plan.part(p)`` is the number of the
    part to which the sample at p belongs. There a sample may occur several times, or not at all. ``plan.position_of(s)`` is its first
    position, or -1, and ``plan.positions(s)`` are all its positions. If draws are not exact, there is no inverse, and
    ``plan.position_of`` raises UnsupportedError.

    Args:
        data: A data set, a mix, or a number of samples. Loaders over the same data with the same options use the same order.
        shuffle: ``"none"``, ``"global"`` or ``"window"``, as for :class:`Loader`, or a :class:`Shuffle`. Sizes that are None are those of a
            Loader over ``data``. For a number of samples they are extents of 16, windows of 192 and 64 lanes.
        seed: The seed of the shuffle.
        epoch: The number of the epoch, from 0.

    Raises:
        InvalidArgumentError: A number is not valid.
    """

    def __new__(cls, *args: Any, **options: Any) -> Plan:
        _moved_options.check(options, "millrace.Plan")
        return super().__new__(cls)

    def __init__(
        self,
        data: Dataset | Mix | int,
        *,
        shuffle: Literal["window", "global", "none"] | bool | Shuffle | None = "window",
        seed: int = 0,
        epoch: int = 0,
    ) -> None:
        kind, given = shuffle_and_order(shuffle)
        self._data = data
        self._epoch = _arguments.integer("epoch", epoch)
        self._options: dict[str, Any] = {"shuffle": shuffle if isinstance(shuffle, Shuffle) else kind, "seed": seed}
        natives = data._natives if isinstance(data, Mix) else [data._native] if isinstance(data, Dataset) else []
        usual = [native.policy(kind) for native in natives] or [(16, 192, 64)]
        if isinstance(data, (str, os.PathLike)):
            raise TypeError(
                f"data must be a Dataset or a number of samples; write millrace.Plan(millrace.Dataset({data!r}))"
            )
        wanted = "a Dataset, a Mix or a number of samples"
        self._native = _core.Plan(
            0 if natives else _arguments.integer("data", data, wanted=wanted),
            natives,
            mix=data._mix if isinstance(data, Mix) else None,
            shuffle=kind,
            seed=_arguments.integer("seed", seed),
            epoch=self._epoch,
            policies=[_replaced(policy, given) for policy in usual],
        )

    def __len__(self) -> int:
        return len(self._native)

    @property
    def data(self) -> Dataset | Mix | int:
        """The data set, mix or number of samples that it orders."""
        return self._data

    @property
    def epoch(self) -> int:
        """Returns the number of the epoch that it orders."""
        return self._epoch

    @property
    def options(self) -> dict[str, Any]:
        """Returns the options that it was made with, except the epoch."""
        return dict(self._options)

    def of_epoch(self, epoch: int) -> Plan:
        """Returns the plan with the same options for another epoch.

        Args:
            epoch: The number of the epoch, from 0.
        """
        return Plan(self._data, epoch=epoch, **self._options)

    @overload
    def __getitem__(self, position: int) -> int: ...
    @overload
    def __getitem__(self, position: _Integers) -> npt.NDArray[np.int64]: ...
    def __getitem__(self, position: int | _Integers) -> int | npt.NDArray[np.int64]:
        """Returns the sample at a position, or the samples at an array of positions. Negative positions count from the end.

        Raises:
            IndexError: There is no such position.
        """
        return _answer(position, self._positions(position), self._native.at)

    @overload
    def part(self, position: int) -> int: ...
    @overload
    def part(self, position: _Integers) -> npt.NDArray[np.int64]: ...
    def part(self, position: int | _Integers) -> int | npt.NDArray[np.int64]:
        """Returns the number of the part to which the sample at a position belongs; 0 if the plan is not that of a mix.

        Args:
            position: A position, or an array of positions, which gives an ``int64`` array of its shape. Negative ones count from the end.

        Raises:
            IndexError: There is no such position.
        """
        return _answer(position, self._positions(position), self._native.part)

    def _positions(self, position: int | _Integers) -> npt.NDArray[np.int64]:
        numbers = _as_int64(position)
        from_end = numbers < 0
        if not from_end.any():
            return numbers
        # A position before the first one stays negative, so that the error shows it as it was given.
        return np.where(from_end & (numbers >= -len(self)), numbers + len(self), numbers)

    @overload
    def position_of(self, sample: int, *, part: int | None = None) -> int: ...
    @overload
    def position_of(self, sample: _Integers, *, part: int | None = None) -> npt.NDArray[np.int64]: ...
    def position_of(self, sample: int | _Integers, *, part: int | None = None) -> int | npt.NDArray[np.int64]:
        """Returns the position of a sample, or of an array of samples. It is the inverse of ``plan[position]``.

            assert plan[plan.position_of(7)] == 7

        In a mix it is the sample's first position, or -1 if the sample does not occur in this epoch.

        Args:
            sample: The number of the sample in the index.
            part: In a mix, the number of the part whose draws count. None: all parts that have the sample, which may be subsets of one
                data set. If several data sets have a sample with this number, ``part`` is required. With thousands of parts, it also
                makes the call faster.

        Raises:
            IndexError: There is no such sample.
            InvalidArgumentError: Several data sets have a sample with this number, and ``part`` is None.
            UnsupportedError: The draws of the mix are not exact.
        """
        of = _part(part)
        return _answer(sample, _as_int64(sample), lambda samples, into: self._native.position_of(samples, of, into))

    where = position_of

    def positions(self, sample: int, *, part: int | None = None) -> npt.NDArray[np.int64]:
        """Returns all positions of a sample in this epoch, ascending. Without a mix, there is one.

        If draws are not exact, the call searches the whole epoch; Ctrl-C ends it.

        Args:
            sample: The number of the sample in the index.
            part: As for :meth:`position_of`.
        """
        return self._native.positions(_arguments.integer("sample", sample), _part(part))

    def write_order(self, path: str | os.PathLike[str], epoch: int | None = None) -> int:
        """Writes the objects in the order in which this epoch reads them, for ``millrace mount --order``.

            plan.write_order("/tmp/order.txt")

        A line is the key of an object below the data set's URI, which is the URI to mount. Consecutive samples of one object make one
        line. The file replaces an older one in one step, and a mount that uses it continues with the new file. So a training program can
        write the order of the next epoch.

        Args:
            path: The file.
            epoch: The number of another epoch. None: the epoch of the plan.

        Returns:
            The number of lines.

        Raises:
            UnsupportedError: It is the plan of a Mix or of a number of samples.
        """
        if not isinstance(self._data, Dataset):
            raise UnsupportedError("write_order() is for the plan of one data set: only that has objects in one place")
        plan = self if epoch is None else self.of_epoch(epoch)
        native = self._data._native
        place = Path(path)
        lines, last = 0, b""
        handle, temporary = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")
        try:
            with open(handle, "wb") as file:
                for first in range(0, len(plan), _ORDER_STEP):
                    for line in native.object_lines(plan[range(first, min(first + _ORDER_STEP, len(plan)))]):
                        if line == last:
                            continue
                        lines, last = lines + line.count(b"\n"), line
                        file.write(line)
            os.chmod(temporary, 0o644)
            os.replace(temporary, place)
        except BaseException:
            os.unlink(temporary)
            raise
        return lines


_ORDER_STEP = 65_536  # samples at a time


def _part(part: int | None) -> int:
    return -1 if part is None else _arguments.integer("part", part, least=0)


def _replaced(policy: tuple[int, int, int], given: tuple[int | None, int | None, int | None]) -> tuple[int, int, int]:
    extent, window, lanes = (usual if wanted is None else wanted for usual, wanted in zip(policy, given))
    return extent, window, lanes


def _as_int64(numbers: int | _Integers) -> npt.NDArray[np.int64]:
    if isinstance(numbers, slice):
        raise TypeError(
            f"positions are an integer or an array of integers, not {numbers}; write plan[range(0, 3)] for the first 3"
        )
    array = np.asarray(numbers)
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(f"positions and samples are integers, not {array.dtype}")
    if array.dtype == np.uint64 and array.size and array.max() > np.iinfo(np.int64).max:
        raise IndexError(f"there is no position and no sample {array.max()}")
    return np.ascontiguousarray(array, dtype=np.int64).reshape(array.shape)


def _answer(
    question: int | _Integers,
    numbers: npt.NDArray[np.int64],
    fill: Callable[[npt.NDArray[np.int64], npt.NDArray[np.int64]], None],
) -> int | npt.NDArray[np.int64]:
    """Returns the result of ``fill`` for the numbers: an integer for an integer, else an array of the same shape."""
    into = np.empty_like(numbers)
    fill(numbers, into)
    return int(into) if isinstance(question, (int, np.integer)) else into
