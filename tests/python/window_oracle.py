"""Makes the windowed shuffle as docs/plan.md describes it, written apart from src/plan with numpy's lists and random
numbers: the same structure, other permutations. `structure` is what the two have in common."""

from __future__ import annotations

import collections
import math
from collections.abc import Hashable

import numpy as np
import numpy.typing as npt

Order = npt.NDArray[np.int64]


def shares(samples: int, unit: int, window: int, lanes: int, seed: int) -> list[Order]:
    """Returns the order of one epoch, window by window, beginning with the first by slots.

    Windows are as few as windows of at most `window` extents allow, and as equal as whole rows of lanes allow. Extents
    that make no whole row go to the last window. Within a window each lane gets as many whole extents as there are for
    all, and a share of the rest. The rest is laid in a line and cut into as many pieces as there are lanes, in
    bit-reversed order, so that the lanes of one rank have neighboring pieces.
    """
    rng = np.random.default_rng(seed)
    extents = rng.permutation(samples // unit)
    windows = math.ceil(math.ceil(samples / unit) / window)
    rows, more = divmod(len(extents) // lanes, windows)
    ends = np.cumsum([(rows + (w < more)) * lanes for w in range(windows)])
    parts = np.split(extents, ends[:-1])
    short = np.arange(samples // unit * unit, samples)
    return [_window(part, short if w == windows - 1 else short[:0], unit, lanes, rng) for w, part in enumerate(parts)]


def _window(full: Order, short: Order, unit: int, most_lanes: int, rng: np.random.Generator) -> Order:
    lanes = lanes_of(len(full), most_lanes)
    rows = len(full) // lanes
    line = np.concatenate((_samples(full[rows * lanes :], unit), short))
    size = rows * lanes * unit + len(line)
    lacking = np.array([(size - lane + lanes - 1) // lanes - rows * unit for lane in range(lanes)])
    bits = lanes.bit_length() - 1
    by_reversed = sorted(range(lanes), key=lambda lane: int(format(lane, f"0{bits}b")[::-1] or "0", 2))
    cuts = np.concatenate(([0], np.cumsum(lacking[by_reversed])))
    order = np.empty(size, np.int64)
    for place, lane in enumerate(by_reversed):
        own = _samples(full[lane : rows * lanes : lanes], unit)
        order[lane::lanes] = rng.permutation(np.concatenate((own, line[cuts[place] : cuts[place + 1]])))
    return order


def _samples(extents: Order, unit: int) -> Order:
    return (extents[:, None] * unit + np.arange(unit)).ravel()


def lanes_of(full_extents: int, most: int) -> int:
    return min(most, 1 << max(0, full_extents.bit_length() - 1))


def structure(order: Order, unit: int, lanes: int) -> Hashable:
    """Describes one window, whatever its extents are called and however lanes are shuffled: for each extent which lane
    has how many of its samples, from which one to which. Two windows that agree differ by a renaming of extents and by
    permutations within lanes."""
    pieces: dict[int, list[tuple[int, ...]]] = collections.defaultdict(list)
    for lane in range(lanes):
        own = np.sort(order[lane::lanes])
        for extent in np.unique(own // unit).tolist():
            part = own[own // unit == extent]
            pieces[extent].append((lane, len(part), int(part[0] % unit), int(part[-1] % unit)))
    return tuple(sorted(collections.Counter(tuple(found) for found in pieces.values()).items()))
