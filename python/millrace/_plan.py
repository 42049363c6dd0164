"""The order of samples, as a pure function."""

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
    """The order of one epoch: a bijection between positions, ``0 .. len(plan) - 1``, and samples (of a mix: see below).

    ``plan[p]`` is the sample (ordinal in the index) that is delivered at position p of the epoch; ``plan.position_of(s)`` is the
    position of sample s. Both take an integer, or an array of integers and answer with an ``int64`` array of its shape. Rank r of W
    receives the positions p with ``p % W == r``. Nothing is read or stored: a plan of a billion samples takes no memory.

    Of a subset, samples have the numbers that the index gives them. In the plan of a :class:`Mix`, ``plan.part(p)`` is the number of the
    part that the sample at p is of; a sample may come several times, or not at all: ``plan.position_of(s)`` is its first position,
    or -1, and ``plan.positions(s)`` are all. Draws with replacement can only be looked through: ``plan.position_of`` raises UnsupportedError.

    Args:
        data: A data set or a mix, whose Loaders use the same order with the same options, or a number of samples.
        shuffle: ``"none"``, ``"global"`` or ``"window"`` (as :class:`Loader`), or a :class:`Shuffle`. Sizes that it leaves open are those of a Loader
            over ``data``; for a number, extents of 16, windows of 192 and 64 lanes.
        seed: Of the shuffle.
        epoch: Counted from 0.

    Raises:
        InvalidArgumentError: The numbers break these rules.
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
        """What it is the order of."""
        return self._data

    @property
    def epoch(self) -> int:
        """Which one it is the order of."""
        return self._epoch

    @property
    def options(self) -> dict[str, Any]:
        """Those that it was made with, but the epoch."""
        return dict(self._options)

    def of_epoch(self, epoch: int) -> Plan:
        """The same plan for another epoch."""
        return Plan(self._data, epoch=epoch, **self._options)

    @overload
    def __getitem__(self, position: int) -> int: ...
    @overload
    def __getitem__(self, position: _Integers) -> npt.NDArray[np.int64]: ...
    def __getitem__(self, position: int | _Integers) -> int | npt.NDArray[np.int64]:
        """The sample at a position, or those at an array of positions; negative ones count from the end."""
        return _answer(position, self._positions(position), self._native.at)

    @overload
    def part(self, position: int) -> int: ...
    @overload
    def part(self, position: _Integers) -> npt.NDArray[np.int64]: ...
    def part(self, position: int | _Integers) -> int | npt.NDArray[np.int64]:
        """Of a mix: which of its data sets the sample at this position is of; negative ones count from the end. Else 0."""
        return _answer(position, self._positions(position), self._native.part)

    def _positions(self, position: int | _Integers) -> npt.NDArray[np.int64]:
        numbers = _as_int64(position)
        from_end = numbers < 0
        if not from_end.any():
            return numbers
        # What lies before the first one stays negative, to be refused as it was given.
        return np.where(from_end & (numbers >= -len(self)), numbers + len(self), numbers)

    @overload
    def position_of(self, sample: int, *, part: int | None = None) -> int: ...
    @overload
    def position_of(self, sample: _Integers, *, part: int | None = None) -> npt.NDArray[np.int64]: ...
    def position_of(self, sample: int | _Integers, *, part: int | None = None) -> int | npt.NDArray[np.int64]:
        """The position of a sample; the inverse of ``plan[position]``. IndexError for one that does not exist.

        Of a mix: the first one, or -1 when it does not come in this epoch. ``part``: by its number, the part whose draws are meant;
        None: all parts that have the sample, which may be subsets of one data set. Where several data sets have a sample of this
        number it is to be said which one is meant (InvalidArgumentError). With thousands of parts it is also faster to say it.
        """
        of = _part(part)
        return _answer(sample, _as_int64(sample), lambda samples, into: self._native.position_of(samples, of, into))

    where = position_of

    def positions(self, sample: int, *, part: int | None = None) -> npt.NDArray[np.int64]:
        """All positions of a sample in this epoch, ascending: one, but for mixes. ``part`` as for :meth:`position_of`.

        Draws with replacement are found by going through the epoch, which Ctrl-C may end.
        """
        return self._native.positions(_arguments.integer("sample", sample), _part(part))

    def write_order(self, path: str | os.PathLike[str], epoch: int | None = None) -> int:
        """Writes the objects in the order in which this epoch reads them, for ``millrace mount --order``; returns how many lines.

        A line is the key of an object below the data set's URI, which is the one to mount. Samples that follow one another in one
        object make one line. The file appears whole, in place of an older one: a mount that uses it goes on with the new one, so
        that a training program can write that of the next epoch.

        Args:
            path: The file.
            epoch: Another one than that of the plan.

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
    """What ``fill`` makes of the numbers: an integer for an integer, else an array of the same shape."""
    into = np.empty_like(numbers)
    fill(numbers, into)
    return int(into) if isinstance(question, (int, np.integer)) else into
