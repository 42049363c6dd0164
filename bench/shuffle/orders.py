"""The orders that shuffle_quality.py compares, each as an array: the samples of one epoch as a job's global batches take them.

Those of others are written from their published algorithms, with numpy's random numbers: the same distribution, not the same sequence.
All take sizes in samples. `unit` is what is fetched at once: an extent, a shard or a chunk.
"""

from __future__ import annotations

import millrace
import numpy as np
import numpy.typing as npt

Order = npt.NDArray[np.int64]


def windowed(samples: int, unit: int, window: int, lanes: int, seed: int, epoch: int = 0) -> Order:
    """Returns the order of Millrace, --shuffle window."""
    plan = millrace.Plan(
        samples, shuffle=millrace.Shuffle(extent=unit, window=window, lanes=lanes), seed=seed, epoch=epoch
    )
    return plan[np.arange(samples)]


def everything(samples: int, seed: int, epoch: int = 0) -> Order:
    """Returns the order of Millrace, --shuffle global."""
    return millrace.Plan(samples, shuffle="global", seed=seed, epoch=epoch)[np.arange(samples)]


def permutation(samples: int, seed: int) -> Order:
    """Returns a random order, with which all others are compared."""
    return np.random.default_rng(seed).permutation(samples)


def _units_in_random_order(samples: int, unit: int, rng: np.random.Generator) -> tuple[Order, Order]:
    """Returns the samples in the order of a random permutation of units, and for each the number of its unit in that permutation."""
    units = -(-samples // unit)
    order = (rng.permutation(units)[:, None] * unit + np.arange(unit)).ravel()
    rank = np.repeat(np.arange(units), unit)
    real = order < samples
    return order[real], rank[real]


def py1e(samples: int, unit: int, block: int, seed: int) -> Order:
    """Returns the order of MosaicML Streaming with one canonical node.

    Each sample of a shard moves by a uniform distance. The shard then covers a range of `block` (give or take a quarter) around its place. At
    either end of the epoch, samples of a shard move only as far as there is room.
    """
    rng = np.random.default_rng(seed)
    order, rank = _units_in_random_order(samples, unit, rng)
    sizes = np.bincount(rank)
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    reach = np.maximum((rng.integers(int(0.75 * block), int(1.25 * block), len(sizes)) - sizes) / 2, 0)
    low = np.maximum(-reach, -starts)
    high = np.minimum(reach, samples - starts - sizes)
    # A shard's samples are shuffled among themselves, too, which changes who moves how far and nothing else.
    inside = np.lexsort((rng.random(samples), rank))
    return order[inside][np.argsort(np.arange(samples) + rng.uniform(low[rank], high[rank]), kind="stable")]


def py1br(samples: int, unit: int, block: int, seed: int) -> Order:
    """MosaicML Streaming, one canonical node: blocks of `block` samples, give or take a quarter, the first one cut short at random; each is
    shuffled by itself."""
    rng = np.random.default_rng(seed)
    order, _ = _units_in_random_order(samples, unit, rng)
    sizes = rng.integers(int(0.75 * block), int(1.25 * block), 2 + 2 * samples // block)
    ends = np.cumsum(sizes) - rng.integers(0, int(0.75 * block))
    block_of = np.searchsorted(ends, np.arange(samples), side="right")
    return order[np.lexsort((rng.random(samples), block_of))]


def litdata(samples: int, unit: int, chunks_at_once: int, ranks: int, batch: int, seed: int) -> Order:
    """Returns the order of LitData.

    Chunks are permuted, and assigned to the workers of all ranks in stripes. A worker reads one chunk after the other, and shuffles inside
    each. A rank takes whole batches from its workers in turn. Samples that do not fill a whole batch are left out.
    """
    rng = np.random.default_rng(seed)
    order, rank = _units_in_random_order(samples, unit, rng)
    order = order[np.lexsort((rng.random(samples), rank))]
    workers = max(1, chunks_at_once // ranks)
    batches = samples // (ranks * workers * batch)
    stripes = order[: ranks * workers * batches * batch].reshape(ranks, workers, batches, batch)
    return stripes.transpose(2, 1, 0, 3).ravel()


def webdataset(samples: int, unit: int, buffer: int, ranks: int, batch: int, seed: int, initial: int = 100) -> Order:
    """Returns the order of WebDataset.

    Shards in random order are assigned to ranks. Each rank reads its own in sequence through a buffer. For each sample that comes in, a random
    one is taken out. Samples that do not fill a whole global batch are left out.
    """
    rng = np.random.default_rng(seed)
    order, rank = _units_in_random_order(samples, unit, rng)
    streams = [_through_buffer(order[rank % ranks == r], buffer, initial, rng) for r in range(ranks)]
    steps = min(len(stream) for stream in streams) // batch
    return np.stack([stream[: steps * batch].reshape(steps, batch) for stream in streams], axis=1).ravel()


def _through_buffer(stream: Order, buffer: int, initial: int, rng: np.random.Generator) -> Order:
    out = np.empty_like(stream)
    held: list[int] = []
    coming = iter(stream.tolist())
    left = len(stream)
    for place, chance in enumerate(rng.random(len(stream)).tolist()):
        # Two come in for each that goes out until the buffer is full.
        while len(held) < min(buffer, initial + place) and left > 0:
            held.append(next(coming))
            left -= 1
        pick = int(chance * len(held))
        held[pick], held[-1] = held[-1], held[pick]
        out[place] = held.pop()
        if left > 0:
            held.append(next(coming))
            left -= 1
    return out
