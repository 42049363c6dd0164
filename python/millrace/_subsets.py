"""This module has the choice of the samples of a subset: by keys, by values of fields, and by exact parts."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from . import _arguments, _core
from ._errors import DamagedDataError, InvalidArgumentError
from ._sample_values import to_python

if TYPE_CHECKING:
    from ._dataset import Dataset

_Numbers = npt.NDArray[np.int64]

_SHOWN = 5
_SHOWN_VALUES = 20
_LARGEST_SEED = 2**64 - 1


def given_numbers(samples: Any, indexed: int) -> _Numbers:
    """Returns the numbers ascending, without repeats."""
    array = np.asarray(samples)
    if array.dtype == np.bool_:
        if array.shape != (indexed,):
            raise InvalidArgumentError(
                f"a mask of shape {array.shape} for {indexed} samples of the index; give one value for each"
            )
        return np.flatnonzero(array).astype(np.int64)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        _arguments.refuse("samples", "integers (a range, list or array) or a boolean mask", samples)
    unique = np.unique(array.astype(np.int64))
    if unique.size < array.size:
        warnings.warn(
            f"samples= repeats {array.size - unique.size:,} of its {array.size:,} numbers, and a part has each sample once; draws that repeat "
            "samples are dataset.weighted(weights)",
            UserWarning,
            stacklevel=3,
        )
    return unique


def numbers_of_keys(native: _core.Dataset, uri: str, keys: Any) -> _Numbers:
    """Returns the numbers in the whole index, ascending."""
    wanted = "a list of keys, such as open('val.txt').read().split()"
    if isinstance(keys, (str, bytes, os.PathLike)) or not isinstance(keys, Iterable):
        _arguments.refuse("keys", wanted, keys)
    listed = [str(key) if isinstance(key, np.str_) else key for key in keys]
    for key in listed:
        if not isinstance(key, str):
            _arguments.refuse("keys", wanted, keys)
    numbers, missing = native.find_keys(listed)
    if missing:
        names = [listed[place] for place in missing[:_SHOWN]]
        shown = ", ".join(map(repr, names)) + (", ..." if len(missing) > len(names) else "")
        raise InvalidArgumentError(
            f"keys: {len(missing):,} of {len(listed):,} are not keys of {uri}: {shown}{_hint(native, names)}"
        )
    return numbers


def _hint(native: _core.Dataset, missing: list[str]) -> str:
    """Returns a guess at the mistake in the keys, for a message."""
    plain = [name.rpartition("/")[2] for name in missing]
    forms = (
        ("a key has no extension: leave it out", [name.rpartition(".")[0] for name in missing]),
        ("a key has no folders here: leave them out", plain),
        ("a key has neither folders nor an extension here", [name.rpartition(".")[0] for name in plain]),
    )
    for text, others in forms:
        if all(others) and others != missing and not native.find_keys(others)[1]:
            return f"; {text} ({others[0]!r})"
    found = native.read([0])[0][0] if len(native) else ""
    return f"; the first sample is called {found!r}" if found else ""


def column_of(native: _core.Dataset, name: str) -> list[Any]:
    """Returns a value for each sample, or None. ``"json.meta.split"`` is a member of JSON."""
    field, path = _field_and_path(native, name)
    values: list[Any] = []
    for number, found in enumerate(native.column(field)):
        try:
            value = None if found is None else to_python(field, *found)
        except ValueError as error:
            raise DamagedDataError(f"{native.uri}: sample {number}, field '{field}': {error}") from None
        for member in path:
            value = value.get(member) if isinstance(value, Mapping) else None
        values.append(value)
    return values


def _field_and_path(native: _core.Dataset, name: str) -> tuple[str, list[str]]:
    """Returns the field and the path in ``name``, which is a field, or a field of JSON followed by names of members."""
    fields = set(native.fields)
    words = name.split(".")
    for count in range(len(words), 0, -1):
        field = ".".join(words[:count])
        if field in fields:
            return field, words[count:]
    return name, []  # the index checks that the field exists


def numbers_of_values(dataset: Dataset, columns: Mapping[str, Any]) -> _Numbers:
    """Returns the numbers in the index of samples whose values are among the wanted ones of each column, ascending."""
    chosen = np.ones(len(dataset), np.bool_)
    for name, wanted in columns.items():
        listed = list(wanted) if isinstance(wanted, (list, tuple, set, frozenset, np.ndarray, range)) else [wanted]
        values = [_comparable(name, value) for value in dataset.column(name)]
        there = set(values)
        keys = {key for value in listed for key in _wanted(value, there)}
        unknown = [value for value in listed if not _wanted(value, there)]
        if unknown:
            shown = ", ".join(f"{value!r}" for value in sorted(there, key=repr)[:_SHOWN_VALUES])
            more = ", ..." if len(there) > _SHOWN_VALUES else ""
            raise InvalidArgumentError(f"{dataset.uri}: no sample has {name}={unknown[0]!r}; it is {shown}{more}")
        chosen &= np.fromiter((value in keys for value in values), np.bool_, len(values))
    return dataset.samples[chosen]


def _comparable(name: str, value: Any) -> Any:
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            return value
    if isinstance(value, str):
        return value.strip()
    if value is not None and not isinstance(value, (int, float)):
        raise InvalidArgumentError(
            f"samples are chosen by numbers and texts, and {name} holds a {type(value).__name__}; choose them by "
            f"`samples=`, from dataset.column({name!r}), or by a member of JSON: **{{'{name}.member': ...}}"
        )
    return value


def _wanted(value: Any, there: set[Any]) -> set[Any]:
    """Returns the values in ``there`` that are meant.

    A number, True and False also find all their spellings as text. Files of shards do not have types. 0 and 1 are truth values only in
    a column without other numbers.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value in there or not isinstance(value, int):
        return {value} & there
    texts = {str(value)}
    if isinstance(value, bool):
        texts.add(str(value).lower())
        if there <= {"0", "1", "true", "false", "True", "False", "", None}:
            texts.add(str(int(value)))
    return texts & there


def exact_parts(
    dataset: Dataset, seed: int, stratify: Any, fractions: Mapping[str, float | int]
) -> dict[str, _Numbers]:
    """Returns the numbers in the index for each part."""
    sizes = part_sizes(len(dataset), fractions)
    order = _dealing_order(dataset, seed, stratify)
    parts = {}
    for name, size in sizes.items():
        taken = _evenly(len(order), size)
        parts[name], order = np.sort(order[taken]), order[~taken]
    return parts


def part_sizes(samples: int, fractions: Mapping[str, float | int]) -> dict[str, int]:
    """Returns the sizes of parts. Whole numbers are sizes. With fractions, the largest remainders get the remaining samples, the first of equal ones first."""
    whole = {name: isinstance(value, int) and not isinstance(value, bool) for name, value in fractions.items()}
    if all(whole.values()):
        sizes = {name: _arguments.integer(name, value, least=1) for name, value in fractions.items()}
        if sum(sizes.values()) > samples:
            raise InvalidArgumentError(f"the parts have {sum(sizes.values()):,} samples, and there are {samples:,}")
        return sizes
    total = math.fsum(fractions.values())
    for name, value in fractions.items():
        if whole[name] and value != 1 or not value > 0 or total > 1 + 1e-9:
            raise InvalidArgumentError(
                f"{name}={value}: parts are fractions above 0 that sum to at most 1, or all of them numbers of samples"
            )
    shares = {name: samples * float(value) for name, value in fractions.items()}
    sizes = {name: math.floor(share + 1e-9) for name, share in shares.items()}
    wanted = min(samples, round(math.fsum(shares.values())))
    for name in sorted(shares, key=lambda name: round(sizes[name] - shares[name], 9))[: wanted - sum(sizes.values())]:
        sizes[name] += 1
    return sizes


def folds(dataset: Dataset, count: int, seed: int, stratify: Any) -> list[tuple[_Numbers, _Numbers]]:
    """Returns (others, fold) for each fold."""
    if count > len(dataset):
        raise InvalidArgumentError(f"{count} folds of {len(dataset)} samples; a fold has one at least")
    order = _dealing_order(dataset, seed, stratify)
    turns = np.arange(len(order)) % count
    return [(np.sort(order[turns != fold]), np.sort(order[turns == fold])) for fold in range(count)]


def _dealing_order(dataset: Dataset, seed: int, stratify: Any) -> _Numbers:
    """Returns the numbers in the index, ordered by class, and within each class by the hash of the key."""
    hashes = np.empty(len(dataset), np.uint64)
    dataset._native.key_hashes(_arguments.integer("seed", seed, least=0, most=_LARGEST_SEED), hashes)
    samples = dataset.samples
    if stratify is None or stratify is False:
        return samples[np.lexsort((samples, hashes))]
    return samples[np.lexsort((samples, hashes, _strata(dataset, stratify)))]


def _strata(dataset: Dataset, stratify: Any) -> _Numbers:
    """Returns a number for the class of each sample."""
    if stratify is True:
        targets = dataset.targets
        if not targets:
            raise InvalidArgumentError(
                f"{dataset.uri}: the index knows no classes; name the field of the classes (stratify='label'), or give one for each sample"
            )
        return np.asarray(targets, np.int64)
    if isinstance(stratify, str):
        values = [_comparable(stratify, value) for value in dataset.column(stratify)]
        numbers = {value: number for number, value in enumerate(sorted(set(values), key=repr))}
        return np.asarray([numbers[value] for value in values], np.int64)
    if not isinstance(stratify, (Sequence, np.ndarray)):
        _arguments.refuse("stratify", "True, the name of a field, or a class for each sample", stratify)
    array = np.asarray(stratify)
    if array.shape != (len(dataset),):
        raise InvalidArgumentError(f"stratify of shape {array.shape} for {len(dataset)} samples; give one for each")
    return np.unique(array, return_inverse=True)[1].astype(np.int64)


def _evenly(places: int, count: int) -> npt.NDArray[np.bool_]:
    """Marks ``count`` of the places as evenly as possible: each run of places has its share, rounded down or up."""
    return np.diff(np.arange(places + 1, dtype=np.int64) * count // max(places, 1)) > 0


def class_names(classes: list[str], label: Any) -> list[str]:
    labels = [label] if isinstance(label, str) or hasattr(label, "__index__") else list(label)
    names = []
    for item in labels:
        if isinstance(item, str):
            names.append(item)
            continue
        number = _arguments.integer("label", item, wanted="a class's name or number")
        if classes and not 0 <= number < len(classes):
            raise InvalidArgumentError(f"label is {number}; the classes are 0 to {len(classes) - 1}")
        names.append(classes[number] if classes else str(number))
    return names


def targets_of(dataset: Dataset) -> list[int]:
    """Returns the label of each sample, or -1 if it does not have one."""
    counts = dataset.class_counts
    if not counts:
        return []
    samples = dataset.samples
    targets = np.full(len(samples), -1, np.int64)
    for label, part in zip(range(len(counts)) if dataset.classes else map(int, counts), dataset._native.by_class()):
        numbers = np.empty(len(part), np.int64)
        part.samples(numbers)
        targets[np.searchsorted(samples, numbers)] = label
    found: list[int] = targets.tolist()
    return found
