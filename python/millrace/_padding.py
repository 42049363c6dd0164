"""The choice of the rows of a batch that are samples.

Evaluations leave the other rows out. So metrics that count rows, or weigh batches by them, count only samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from ._loader import Loader

__all__ = ["Rows", "filled", "rows_of", "share_with_repeats"]


class Rows:
    """Represents the rows of a batch to keep. ``total`` is the number of its rows."""

    def __init__(self, places: npt.NDArray[np.int64], total: int) -> None:
        self.places = places
        self.total = total

    def __len__(self) -> int:
        return len(self.places)

    def until(self, end: int) -> Rows:
        """Returns the kept rows in front of row ``end``."""
        return Rows(self.places[self.places < end], self.total)

    def of(self, batch: Any) -> Any:
        """Returns these rows of all values that have one entry for each row. Adjacent rows are views. All other values stay."""
        if len(self) == self.total:
            return batch
        first = int(self.places[0]) if len(self) else 0
        side_by_side = bool((np.diff(self.places) == 1).all())
        return self._of(batch, slice(first, first + len(self)) if side_by_side else self.places)

    def _of(self, value: Any, chosen: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: self._of(one, chosen) for name, one in value.items()}
        if _is_array(value):
            return value[chosen] if _length(value) == self.total else value
        if not isinstance(value, (list, tuple)):
            return value
        if len(value) == self.total and not any(_is_array(one) and _length(one) == self.total for one in value):
            return type(value)([value[place] for place in self.places])
        kept = [self._of(one, chosen) for one in value]
        return type(value)(*kept) if hasattr(value, "_fields") else type(value)(kept)


def filled(batch: Mapping[str, Any]) -> npt.NDArray[np.bool_]:
    """Returns True for rows that hold a sample. Rows of padding have no key. A repeat in a short batch holds a sample and is not valid."""
    valid: npt.NDArray[np.bool_] = np.asarray(_on_host(batch["valid"]), np.bool_)
    keys = batch.get("key")
    return valid if keys is None or valid.all() else valid | np.array([bool(key) for key in keys], np.bool_)


def rows_of(loader: Loader) -> Iterator[tuple[Any, Rows]]:
    """Yields the batches of an iteration, with the rows that are not padding."""
    before = loader.report()["samples"]
    for batch in loader:
        valid = batch.get("valid") if isinstance(batch, Mapping) else None
        if _is_array(valid):
            yield batch, Rows(np.flatnonzero(_on_host(valid)), len(valid))
            continue
        # A function has made the batch, and the rows that the loader counts come before padding.
        samples, total = loader.report()["samples"], loader._rows_of_last()
        yield batch, Rows(np.arange(min(samples - before, total)), total)
        before = samples


def share_with_repeats(loader: Loader) -> int | None:
    """Returns the number of samples of each rank if some samples come twice, so that all ranks have equally many. Otherwise returns None."""
    samples = sum(rows["rows"] for rows in loader.rows) or len(loader.dataset)
    world = loader._world
    counted = len(loader) == -(-samples // (world * loader.batch_size))  # buckets of tokens have sizes of their own
    return -(-samples // world) if counted and samples % world else None


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "__getitem__")


def _length(array: Any) -> int:
    return int(array.shape[0]) if len(array.shape) else -1


def _on_host(array: Any) -> Any:
    return array.cpu().numpy() if hasattr(array, "cpu") else np.asarray(array)
