"""The measures of shuffle_quality.py for an order (the samples of an epoch in the order of delivery). Each also gives the value of a random order."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.int64]


def entropy(sequence: Array) -> float:
    """Returns the entropy of the distances between successive numbers, in bits. MosaicML's simulator uses it for samples and for shards."""
    counts = np.bincount(np.abs(np.diff(sequence)))
    share = counts[counts > 0] / (len(sequence) - 1)
    return float(-np.sum(share * np.log2(share)))


def simulator_score(order: Array, shard: int) -> float:
    """MosaicML's measure: the harmonic mean of the entropies of samples and shards."""
    samples, shards = entropy(order), entropy(order // shard)
    return 2 * samples * shards / (samples + shards)


def sorted_labels(samples: int, classes: int) -> Array:
    """Returns the labels of data in order of their classes, which are of one size."""
    return np.arange(samples) * classes // samples


def classes_by_batch(labels: Array, batch: int) -> npt.NDArray[np.int64]:
    """Returns how often each class is in each whole batch."""
    batches = len(labels) // batch
    classes = int(labels.max()) + 1
    place = np.repeat(np.arange(batches), batch) * classes + labels[: batches * batch]
    return np.bincount(place, minlength=batches * classes).reshape(batches, classes)


def clustering(labels: Array, batch: int) -> npt.NDArray[np.float64]:
    """Returns pairs of one class in each batch, as a multiple of what chance gives. 1: shuffled. Classes of one
    size."""
    counts = classes_by_batch(labels, batch)
    pairs = (counts * (counts - 1) // 2).sum(axis=1)
    chance = batch * (batch - 1) / 2 / counts.shape[1]
    return np.asarray(pairs / chance, np.float64)


def displacement(order: Array) -> float:
    """Mean distance between a sample's place in the data and in the epoch, as a multiple of what chance gives."""
    return float(np.abs(order - np.arange(len(order))).mean() / (len(order) / 3))


def adjacency(order: Array, reach: int) -> float:
    """How often successive samples lie within `reach` of each other in the data, as a multiple of what chance gives."""
    near = np.count_nonzero(np.abs(np.diff(order)) <= reach)
    return float(near / (2 * reach / len(order) * (len(order) - 1)))


def held(order: Array, unit: int) -> tuple[float, int]:
    """Units in memory when each is fetched at its first sample and let go after its last: mean, and peak."""
    units = order // unit
    places = np.arange(len(order))
    count = int(units.max()) + 1
    first = np.full(count, -1)
    last = np.full(count, -1)
    first[units[::-1]] = places[::-1]  # the write that stays is the earliest
    last[units] = places
    used = first >= 0
    steps = np.zeros(len(order) + 1, np.int64)
    np.add.at(steps, first[used], 1)
    np.add.at(steps, last[used] + 1, -1)
    live = np.cumsum(steps)[:-1]
    return float(live.mean()), int(live.max())


def requests(order: Array, unit: int, world: int) -> int:
    """Returns the requests of all ranks, if each fetches runs of its own neighbors in an extent with one request.

    Every run counts, as if no gap with samples of another rank was small enough to be read over.
    """
    reader = np.empty(len(order), np.int64)
    reader[order] = np.arange(len(order)) % world
    if world == 1:
        return -(-len(order) // unit)
    cuts = (np.diff(reader) != 0) | (np.arange(1, len(order)) % unit == 0)
    return 1 + int(np.count_nonzero(cuts))


def same_places(one: Array, other: Array) -> int:
    """Samples that two orders have at the same place. Chance: one."""
    return int(np.count_nonzero(one == other))
