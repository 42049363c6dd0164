"""Several data sets, or parts of one, as one stream of samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from . import _arguments, _core
from ._dataset import Dataset
from ._errors import InvalidArgumentError

_DRAWS = ("exact", "replacement", "independent")
_MOST_PARTS = 65536
_MOST_SAMPLES = 2**60  # of an epoch
_MOST_COUNT = 2**64 - 1  # of samples of a run that a stage begins at


class Mix:
    """Several data sets whose samples make one epoch, by weights or counts. A Loader or a Plan takes a mix in place of a data set.

        mix = millrace.Mix({"web": web, "books": books}, weights={"web": 0.8, "books": 0.2})
        loader = millrace.Loader(mix, batch_size=64)

    An epoch has ``epoch_samples`` samples. With ``draws="exact"`` it holds exactly its share of each part. Shares are rounded down or up to
    whole samples, in turn, so that epochs compensate each other. The parts are evenly interleaved: the counts in any run of samples deviate
    from the proportions by at most one cycle of max(64, 4 x parts) samples.

    A part that is smaller than its share comes more than once. A part that is larger continues in the next epoch where it stopped. So no
    sample comes again before all others of its part. The Loader's shuffle shuffles each part again for each of its passes. Like every
    order, the order is a function of the seed and the epoch, and it resumes exactly, with any number of ranks.

    In a batch of a mix, ``part`` (int64 ``[B]``) is the number of each sample's part, and ``sample`` is its number in that data set's index.
    Labels that are folders are numbered by the names of all parts: ``classes``. A data set whose classes are numbers cannot be mixed
    with data sets that have different names, since numbers and names cannot be matched.

    Args:
        datasets: The data sets by name, or in a list. In a list their names are "0", "1", ...
        weights: The proportions of the data sets, by name or in a list. Only their ratios count. None: the sizes of the data sets.
        counts: The samples of each data set in an epoch, in place of ``weights`` and ``epoch_samples``. None: these count.
        epoch_samples: The samples of an epoch. None: as many as all data sets have.
        schedule: Weights that change during a run: ``{100_000: weights, ...}``. Each key is a number of samples of the run, of all ranks and
            epochs together, from which on the weights apply. None: the weights stay the same.
        draws: ``"exact"``. Or ``"replacement"``: counts of the parts are exact, but samples are drawn again each time. Or ``"independent"``:
            each draw chooses a part by its weight, and then a sample of it, as ``WeightedRandomSampler(replacement=True)`` does.

    Raises:
        InvalidArgumentError: Weights or counts do not fit the data sets, one is below 0, or all are 0.
    """

    def __init__(
        self,
        datasets: Mapping[str, Dataset] | Sequence[Dataset],
        *,
        weights: Mapping[str, float] | Sequence[float] | None = None,
        counts: Mapping[str, int] | Sequence[int] | None = None,
        epoch_samples: int | None = None,
        schedule: Mapping[int, Mapping[str, float] | Sequence[float]] | None = None,
        draws: Literal["exact", "replacement", "independent"] = "exact",
    ) -> None:
        named = dict(datasets) if isinstance(datasets, Mapping) else {str(i): part for i, part in enumerate(datasets)}
        for name, part in named.items():
            if not isinstance(part, Dataset):
                _arguments.refuse(f"data set {name!r}", "a millrace.Dataset", part)
        if not named:
            raise InvalidArgumentError("a mix of no data sets; give at least one")
        if counts is not None and (weights is not None or epoch_samples is not None or schedule is not None):
            raise InvalidArgumentError("counts stand for weights and epoch_samples; give either")
        names = list(named)
        first: Sequence[float] = [float(len(part)) for part in named.values()]
        if counts is not None:
            first = [
                _arguments.integer("counts", count, least=0, most=_MOST_SAMPLES)
                for count in _listed("counts", counts, names)
            ]
            epoch_samples = int(sum(first))
        elif weights is not None:
            first = _numbers("weights", weights, names)
        stages = {0: list(first)}
        for start, listed in (schedule or {}).items():
            stages[_arguments.integer("schedule", start, least=0, most=_MOST_COUNT)] = list(
                _numbers("schedule", listed, names)
            )
        self._settle(list(named.values()), names, stages, epoch_samples, draws, fresh=False)

    def _settle(
        self,
        parts: list[Dataset],
        names: list[str],
        stages: dict[int, list[float]],
        epoch_samples: int | None,
        draws: str,
        fresh: bool,
    ) -> None:
        if len(parts) > _MOST_PARTS:
            raise InvalidArgumentError(f"a mix of {len(parts)} parts; it takes up to {_MOST_PARTS}")
        self._parts = parts
        self._names = names
        usual = sum(len(part) for part in parts)
        length = (
            usual
            if epoch_samples is None
            else _arguments.integer("epoch_samples", epoch_samples, least=1, most=_MOST_SAMPLES)
        )
        draws = _arguments.choice("draws", draws, _DRAWS)
        self._mix: _core._Mix = (
            length,
            [(start, [float(w) for w in stages[start]]) for start in sorted(stages)],
            draws,
            fresh,
        )
        # All other errors are raised now, and not by the first loader.
        _core.Plan(0, self._natives, mix=self._mix, shuffle="none", seed=0, epoch=0, policies=[(1, 1, 1)] * len(parts))

    @property
    def _natives(self) -> list[_core.Dataset]:
        return [part._native for part in self._parts]

    def __len__(self) -> int:
        """Returns the number of samples of an epoch."""
        return self._mix[0]

    def __repr__(self) -> str:
        shown = ", ".join(self._names[:5]) + (", ..." if len(self._names) > 5 else "")
        return f"<millrace.Mix of {len(self._parts)} ({shown}): {len(self):,} samples an epoch, {self._mix[2]} draws>"

    @property
    def datasets(self) -> dict[str, Dataset]:
        """Returns the parts by name, in the order of ``batch["part"]``."""
        return dict(zip(self._names, self._parts))

    @property
    def classes(self) -> list[str]:
        """The names of the classes of all parts: label i of a batch is ``classes[i]``.

        They are sorted, unless all parts have the same names in one other order. The list is empty if classes are numbers.
        """
        named = [part.classes for part in self._parts if part.classes]
        if named and all(names == named[0] for names in named):
            return named[0]
        return sorted({name for names in named for name in names})

    @property
    def uri(self) -> str:
        """The URIs of all data sets, joined by ``" + "``."""
        return " + ".join(dict.fromkeys(part.uri for part in self._parts))


def _listed(name: str, values: Any, names: list[str]) -> list[Any]:
    """Returns the values in the order of the parts."""
    if isinstance(values, Mapping):
        if set(values) != set(names):
            raise InvalidArgumentError(
                f"{name} are for {', '.join(map(str, values))}; the data sets are {', '.join(names)}"
            )
        return [values[part] for part in names]
    listed = list(values)
    if len(listed) != len(names):
        raise InvalidArgumentError(f"{name} has {len(listed)} numbers for {len(names)} data sets")
    return listed


def _numbers(name: str, values: Any, names: list[str]) -> list[float]:
    return [_arguments.number(name, value) for value in _listed(name, values, names)]


def _groups(dataset: Dataset, numbers: npt.NDArray[np.int64], count: int) -> list[Dataset]:
    return [
        dataset._subset(native)
        for native in dataset._native.group_by(np.ascontiguousarray(numbers, dtype=np.int64), count)
    ]


def _from_groups(parts: list[Dataset], names: list[str], weights: list[float], samples: int | None, draws: str) -> Mix:
    mix = Mix.__new__(Mix)
    mix._settle(parts, names, {0: weights}, samples, draws, fresh=True)
    return mix


def balanced(
    dataset: Dataset,
    groups: npt.ArrayLike | None,
    weights: Mapping[Any, float] | None,
    epoch_samples: int | None,
    draws: str,
) -> Mix:
    """Implements :meth:`Dataset.balanced`."""
    if groups is None:
        parts = [dataset._subset(native) for native in dataset._native.by_class()]
        names: list[Any] = list(dataset.class_counts)
        if weights is not None and not dataset.classes:  # shards: classes are numbers
            weights = {str(name): weight for name, weight in weights.items()}
    else:
        array = np.asarray(groups)
        if array.shape != (len(dataset),):
            raise InvalidArgumentError(f"groups of shape {array.shape} for {len(dataset)} samples; give one for each")
        values, numbers = np.unique(array, return_inverse=True)
        names = values.tolist()
        parts = _groups(dataset, numbers, len(names))
    if weights is None:
        chosen = [1.0 if len(part) else 0.0 for part in parts]
    else:
        unknown = set(weights) - set(names)
        if unknown:
            raise InvalidArgumentError(f"weights for {', '.join(map(str, unknown))}; there are no such classes")
        chosen = [_arguments.number("weights", weights.get(name, 0)) for name in names]
    samples = len(dataset) if epoch_samples is None else epoch_samples
    return _from_groups(parts, [str(name) for name in names], chosen, samples, draws)


def weighted(dataset: Dataset, weights: npt.ArrayLike, epoch_samples: int | None, draws: str) -> Mix:
    """Implements :meth:`Dataset.weighted`."""
    array = np.asarray(weights, dtype=np.float64)
    if array.shape != (len(dataset),):
        raise InvalidArgumentError(f"weights of shape {array.shape} for {len(dataset)} samples; give one for each")
    if not np.isfinite(array).all() or (array < 0).any():
        raise InvalidArgumentError("weights are numbers from 0 on")
    values, numbers, counts = np.unique(array, return_inverse=True, return_counts=True)
    if len(values) > _MOST_PARTS:
        raise InvalidArgumentError(
            f"{len(values)} different weights; round them to at most {_MOST_PARTS}, or use groups"
        )
    parts = _groups(dataset, numbers, len(values))
    samples = len(dataset) if epoch_samples is None else epoch_samples
    return _from_groups(parts, [f"{value:g}" for value in values], (values * counts).tolist(), samples, draws)
