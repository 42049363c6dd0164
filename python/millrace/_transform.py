"""Functions of samples and batches, and the random numbers that they get."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import Mapping
from typing import Any, Callable

import numpy as np

from . import _float_types, _remote_rows
from ._errors import InvalidArgumentError, TransformError
from ._padding import filled
from ._pads import Pads
from ._sample_values import FORMER_KEY, KEY, RENAMED, advice_of
from ._stacks import Stacks, UnequalError, has_parts, with_parts

_OF_BATCH = ("valid", "sample", "part", "row", "key")

Transform = Callable[..., Any]


def imported(name: str) -> Callable[..., Any]:
    """Returns the function that ``"module:function"`` names. Raises InvalidArgumentError, with the reason, if there is none."""
    module, _, path = name.partition(":")
    if not module or not path:
        raise InvalidArgumentError(f"transform={name!r} names no function; write 'module:function'")
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise InvalidArgumentError(f"transform={name!r} cannot be imported: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise InvalidArgumentError(f"transform={name!r} is no function but {type(found).__name__}")
    function: Callable[..., Any] = found
    return function


@dataclasses.dataclass(frozen=True)
class Seeds:
    """The numbers on which random numbers depend: seed, epoch and sample, or the row's number for tokens.

    In a mix, the position of the draw is also one of them. In the first epoch of a staged loader, samples do not have numbers, and their
    positions in the epoch stand for them.
    """

    seed: int
    rank: int
    world: int
    is_mix: bool
    streams: int = 1  # in a worker: the number of parts of the trainer's batches; the rows are those of one part
    stream: int = 0

    def of(self, batch: Mapping[str, Any], row: int, epoch: int, consumed: int) -> list[int]:
        number = int(batch["row" if "row" in batch else "sample"][row])
        if number < 0:  # in the first epoch of a staged loader, the place in the epoch stands for it
            number = consumed + (self.rank - consumed) % self.world + row * self.world
        if self.is_mix:  # in which a sample may come several times
            return [
                self.seed,
                epoch,
                number,
                int(batch["part"][row]),
                consumed + self._row_of_trainer(row, consumed) * self.world + self.rank,
            ]
        return [self.seed, epoch, number, int(batch["part"][row])] if "part" in batch else [self.seed, epoch, number]

    def _row_of_trainer(self, row: int, consumed: int) -> int:
        # This follows StreamSteps::FirstRow: after a change of the number of ranks, a batch may begin at any position.
        first = consumed + (self.rank - consumed) % self.world
        turn = (first - self.rank) // self.world % self.streams
        return (self.stream - turn) % self.streams + self.streams * row


def _takes_rng(function: Transform) -> bool:
    try:
        return "rng" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # of a function written in C
        return False


class SampleTransform:
    """Calls the transform with its random numbers, and checks its result. It can be sent to other processes."""

    def __init__(self, function: Transform, to_torch: bool) -> None:
        self._function = function
        self._takes_rng = _takes_rng(function)
        self._to_torch = to_torch

    def __call__(self, sample: dict[str, Any], seeds: list[int], name: str) -> dict[str, Any]:
        """Applies the transform. ``sample`` has numpy's arrays, and ``name`` names the sample in errors."""
        own_key = sample[KEY]
        if self._to_torch:
            sample = {key: to_tensor(value) for key, value in sample.items()}
        try:
            result = (
                self._function(sample, rng=np.random.default_rng(seeds)) if self._takes_rng else self._function(sample)
            )
        except Exception as error:
            raise TransformError(
                f"{name}: the transform raised {type(error).__name__}: {error}{advice_of(error)}"
            ) from error
        if not isinstance(result, dict):
            raise TransformError(
                f"{name}: the transform returned {type(result).__name__}; it must return a dict, such as {{**sample, 'image': image}}"
            )
        if FORMER_KEY in result:
            raise TransformError(f"{name}: the transform returned {FORMER_KEY!r}; {RENAMED}")
        returned = result.get(KEY, own_key)
        if type(returned) is not str or returned != own_key:
            raise TransformError(f"{name}: the transform changed {KEY!r}; a sample keeps its key")
        result = {key: value for key, value in result.items() if key != KEY}
        taken = [key for key in result if key in _OF_BATCH]
        if taken:
            raise TransformError(f"{name}: the transform returned {taken[0]!r}, which every batch has itself")
        return result


def to_tensor(value: Any) -> Any:
    """Returns an array as a tensor over the same memory. Other values, and types that torch does not have, stay the same."""
    if not isinstance(value, np.ndarray):
        return value
    import torch

    try:
        return _float_types.tensor_of(value, torch)
    except TypeError:
        return value


class Work:
    """Represents the work on the batches of a loader. Several threads call it."""

    def __init__(
        self,
        transform: Transform | None,
        collate: Transform | None,
        batch_transform: Transform | None,
        to_torch: bool,
        uri: str,
        seeds: Seeds,
        pads: Pads | None = None,
    ) -> None:
        self.transform = None if transform is None else SampleTransform(transform, to_torch)
        self._join = collate
        self._batch_transform = batch_transform
        self._to_torch = to_torch
        self._uri = uri
        self._seeds = seeds
        self._pads = pads or Pads()
        self._stacks = Stacks(self._pads)
        self._batch_rng = batch_transform is not None and _takes_rng(batch_transform)
        self._padding: dict[
            str, Callable[[int], Any]
        ] = {}  # the columns for a batch without samples, as other batches have them

    @property
    def has_functions(self) -> bool:
        return self.by_row or self._batch_transform is not None

    @property
    def by_row(self) -> bool:
        """Returns true if several threads work on single rows."""
        return self.transform is not None or self._join is not None

    def row(self, batch: Mapping[str, Any], row: int, epoch: int, consumed: int) -> Any:
        """Returns the result for one sample."""
        sent = batch[_remote_rows.ENTRY][row] if _remote_rows.ENTRY in batch else b""
        if sent:
            return _remote_rows.decode(sent)
        sample, seeds, name = self.arguments(batch, row, epoch, consumed)
        if self.transform is not None:
            return self.transform(sample, seeds, name)
        return {key: self._to_output(value) for key, value in sample.items()}

    def arguments(
        self, batch: Mapping[str, Any], row: int, epoch: int, consumed: int
    ) -> tuple[dict[str, Any], list[int], str]:
        """Returns the arguments with which the transform is called for one sample."""
        sample: dict[str, Any] = {KEY: batch[KEY][row]}
        for name, column in batch.items():
            if name == _remote_rows.ENTRY:
                continue
            if name not in _OF_BATCH:
                sample[name] = _plain(column[row])
        return sample, self._seeds.of(batch, row, epoch, consumed), self.name_of(batch, row)

    def batch(self, batch: dict[str, Any], rows: list[Any], epoch: int, consumed: int) -> Any:
        """Returns the batch for the program. ``rows`` are the results for samples that are not padding. They are empty without a transform."""
        if self._join is not None:
            return self._transform_batch(self._joined(self._join, batch, rows), batch, epoch, consumed)
        made = batch
        if self.transform is not None:
            made = (
                self._collate(batch, rows)
                if rows
                else {name: padding(len(batch["valid"])) for name, padding in self._padding.items()}
            )
            # These are copies, so that the memory of the batch before the transform is free at once.
            own = {name: batch[name] for name in _OF_BATCH if name in batch}
            made.update(
                (name, column.copy() if isinstance(column, np.ndarray) else column) for name, column in own.items()
            )
        result = {name: self._to_output(column) for name, column in made.items()}
        if self._to_torch and not self.by_row:  # lists of arrays that do not come from a function
            for name, column in result.items():
                if isinstance(column, list) and any(isinstance(value, np.ndarray) for value in column):
                    result[name] = [to_tensor(value) for value in column]
        return self._transform_batch(result, batch, epoch, consumed)

    def _joined(self, collate: Transform, batch: Mapping[str, Any], rows: list[Any]) -> Any:
        places = np.flatnonzero(filled(batch))
        try:
            return collate([{KEY: batch[KEY][at], **row} for at, row in zip(places, rows)])
        except Exception as error:
            raise TransformError(
                f"{self.name_of(batch, 0)} and those after it: collate_fn raised {type(error).__name__}: {error}{advice_of(error)}"
            ) from error

    def _transform_batch(self, result: Any, batch: Mapping[str, Any], epoch: int, consumed: int) -> Any:
        function = self._batch_transform
        if function is None:
            return result
        try:
            if not self._batch_rng:
                return function(result)
            return function(result, rng=np.random.default_rng([*self._seeds.of(batch, 0, epoch, consumed), 1]))
        except Exception as error:
            raise TransformError(
                f"{self.name_of(batch, 0)} and those after it: the batch_transform raised {type(error).__name__}: {error}"
            ) from error

    def name_of(self, batch: Mapping[str, Any], row: int) -> str:
        return f"{self._uri}: sample '{batch['key'][row]}' (number {int(batch['sample'][row])})"

    def _collate(self, batch: Mapping[str, Any], rows: list[Any]) -> dict[str, Any]:
        has_sample = filled(batch)
        names = list(rows[0])
        for number, row in enumerate(rows):
            if list(row) != names and set(row) != set(names):
                at = int(np.flatnonzero(has_sample)[number])
                raise TransformError(
                    f"{self.name_of(batch, at)}: the transform returned {', '.join(row) or 'nothing'}, and for the samples before it {', '.join(names)}"
                )
        at_places: list[Any] = [None] * len(has_sample)
        for place, row in zip(np.flatnonzero(has_sample), rows):
            at_places[place] = row
        try:
            columns = {
                name: self._stacks.stacked(name, [row and row[name] for row in at_places], has_sample) for name in names
            }
        except UnequalError as error:
            raise TransformError(
                f"{self.name_of(batch, 0)} and those after it: the transform returned {error}"
            ) from None
        if self._to_torch:
            columns = {
                name: _deep_tensors(rows[0][name], column) if has_parts(rows[0][name]) else column
                for name, column in columns.items()
            }
        if not self._padding:
            self._padding = {
                name: _padding_like(name, rows[0][name], column, self._pads) for name, column in columns.items()
            }
        return columns

    def _to_output(self, column: Any) -> Any:
        return to_tensor(column) if self._to_torch else column


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _deep_tensors(row: Any, column: Any) -> Any:
    """Returns the stacked parts as tensors. ``row`` is the value of one sample, which says how deep the parts are."""
    if not has_parts(row):
        return to_tensor(column)
    rows = iter(row.values() if isinstance(row, dict) else row)
    return with_parts(column, lambda part: _deep_tensors(next(rows), part))


def _padding_like(name: str, row: Any, column: Any, pads: Pads) -> Callable[[int], Any]:
    """Returns what makes the column for a batch without samples. ``row`` is the value of one sample."""
    if has_parts(row):
        values = row.values() if isinstance(row, dict) else row
        parts = column.values() if isinstance(column, dict) else column
        made = [_padding_like(name, value, part, pads) for value, part in zip(values, parts)]

        def padding_of_parts(count: int) -> Any:
            each = iter(made)
            return with_parts(column, lambda _: next(each)(count))

        return padding_of_parts
    if isinstance(column, list):
        padding: Any = "" if isinstance(column[0], str) else b"" if isinstance(column[0], bytes) else None
        return lambda rows: [padding] * rows
    if isinstance(column, np.ndarray):
        shape, kind = column.shape[1:], column.dtype
        return lambda rows: np.full((rows, *shape), pads.of(name, kind, len(shape)), dtype=kind)
    row = column[:1].clone().fill_(pads.of_tensor(name, column.dtype, column.ndim - 1))
    return lambda rows: row.expand(rows, *row.shape[1:]).clone()
