#!/usr/bin/env python3
"""How well the windowed shuffle shuffles, beside others at equal cache bytes: the numbers and pictures of docs/shuffle.md.

    ```
    PYTHONPATH=build/release/python bench/shuffle_quality.py             # tables, some minutes
    PYTHONPATH=build/release/python bench/shuffle_quality.py --quick     # a tenth of the samples
    PYTHONPATH=build/release/python bench/shuffle_quality.py --figures docs/shuffle
    ```

Nothing is read: orders are pure functions. The data have the size of ImageNet: 1,281,167 samples of 115 KB in 1,000 classes. By default they are
sorted by class, which is the hardest case. bench/README.md says how to read the tables.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
from shuffle import figures, measures, orders

MEAN = 115_000  # bytes of a sample
MIB = 1 << 20
CLASSES = 1000
BATCH = 256  # global
RANKS = 8
UNIT = 14  # samples of an extent: 1.5 MiB, as OrderPolicy::ForSamples has it for this mean
SHARD = 64 * MIB // MEAN  # what MosaicML and LitData write by default
WINDOW = 192
LANES = 64
SEED = 1

Order = npt.NDArray[np.int64]
Maker = Callable[[int], Order]  # of a seed


def calibrated(make: Callable[[int, int], Order], unit: int, wanted: float) -> int:
    """The size (a block, chunks) for which `make(size, seed)` holds `wanted` samples on average."""
    size = wanted
    for _ in range(4):
        found = measures.held(make(int(size), SEED), unit)[0] * unit
        size = max(size * wanted / found, unit + 1)
    return int(size)


def rivals(samples: int, cache: float) -> list[tuple[str, int, float, Maker]]:
    """Name, unit, samples held (mean) and order of each, with what they hold equal to `cache` samples."""
    found: list[tuple[str, int, float, Maker]] = []
    for unit, name in ((UNIT, "1.5 MiB"), (SHARD, "64 MiB")):
        for algorithm in (orders.py1e, orders.py1br):
            make = functools.partial(algorithm, samples, unit)
            block = calibrated(make, unit, cache)
            found.append(
                (f"MosaicML {algorithm.__name__}, shards of {name}", unit, cache, functools.partial(make, block))
            )
        at_once = max(RANKS, round(cache / unit / RANKS) * RANKS)
        lit = functools.partial(orders.litdata, samples, unit, at_once, RANKS, BATCH // RANKS)
        found.append((f"LitData, chunks of {name}, {at_once} workers", unit, at_once * unit, lit))
    for buffer, name in ((int(cache / RANKS), "equal bytes"), (1000, "its usual 1,000")):
        web = functools.partial(orders.webdataset, samples, SHARD, buffer, RANKS, BATCH // RANKS)
        found.append((f"WebDataset, 64 MiB, 8 buffers of {buffer} ({name})", SHARD, buffer * RANKS, web))
    return found


def row(name: str, make: Maker, samples: int, unit: int, held: float | None) -> str:
    order = make(SEED)
    labels = measures.sorted_labels(samples, CLASSES)
    sorted_data = measures.clustering(labels[order], BATCH)
    shuffled_data = measures.clustering(np.random.default_rng(0).permutation(labels)[order], BATCH)
    counts = measures.classes_by_batch(labels[order], BATCH)
    worst = np.sort((counts > 0).sum(axis=1))[len(counts) // 100]
    return (
        f"| {name} | {'-' if held is None else f'{held * MEAN / MIB:.0f}'} | {-(-samples // unit):,} | {measures.simulator_score(order, SHARD):.3f} "
        f"| {sorted_data.mean():.2f} | {(counts > 0).sum(axis=1).mean():.0f} / {worst} | {shuffled_data.mean():.3f} "
        f"| {measures.displacement(order):.3f} | {measures.adjacency(order, UNIT):.2f} |"
    )


def compare(samples: int) -> None:
    window = functools.partial(orders.windowed, samples, UNIT, WINDOW, LANES)
    mean, peak = measures.held(window(SEED), UNIT)
    cache = mean * UNIT
    print(f"\n## Equal cache bytes\n\nMillrace holds {mean:.0f} extents on average, {peak} at most.\n")
    print(
        "| order | MiB held | requests | entropy, bits | clustering | classes in a batch, mean / worst 1 % | clustering, shuffled data | displacement | adjacency |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    print(row("chance (numpy)", functools.partial(orders.permutation, samples), samples, 1, None))
    print(row("Millrace global", functools.partial(orders.everything, samples), samples, 1, None))
    print(row("Millrace window", window, samples, UNIT, cache))
    for name, unit, held, make in rivals(samples, cache):
        print(row(name, make, samples, unit, held), flush=True)


def clustering_of(samples: int, unit: int, window: int, lanes: int) -> float:
    labels = measures.sorted_labels(samples, CLASSES)
    return float(measures.clustering(labels[orders.windowed(samples, unit, window, lanes, SEED)], BATCH).mean())


def of_lanes(wanted: float, lanes: int = LANES) -> int:
    """Returns extents of a window: a multiple of the lanes."""
    return lanes * max(1, round(wanted / lanes))


def defaults(samples: int) -> None:
    """Shows the effects of b, K and L, one at a time."""
    print(
        "\n## b, with windows of about 256 MiB\n\n| extent | b | K | window | requests | clustering |\n|---|---|---|---|---|---|"
    )
    for mib in (0.125, 0.25, 0.5, 1, 1.5, 3, 6):
        unit = max(1, round(mib * MIB / MEAN))
        window = of_lanes(256 * MIB / MEAN / unit)
        found = clustering_of(samples, unit, window, LANES)
        print(
            f"| {mib} MiB | {unit} | {window} | {window * unit * MEAN / MIB:.0f} MiB | {-(-samples // unit):,} | {found:.2f} |"
        )
    print("\n## K, with extents of 1.5 MiB\n\n| window | K | clustering |\n|---|---|---|")
    for window in (64, 128, 192, 384, 768, 1536, 3072):
        print(
            f"| {window * UNIT * MEAN / MIB:.0f} MiB | {window} | {clustering_of(samples, UNIT, window, LANES):.2f} |"
        )
    print("\n## L: requests of all ranks, as a multiple of those of one\n")
    worlds = (2, 8, 64, 3, 6, 100)
    print(
        "| L | " + " | ".join(f"W = {world}" for world in worlds) + " | clustering | of a rank of 8 | of a rank of 64 |"
    )
    print("|---|" + "---|" * (len(worlds) + 3))
    labels = measures.sorted_labels(samples, CLASSES)
    for lanes in (1, 8, 16, 64):
        order = orders.windowed(samples, UNIT, WINDOW, lanes, SEED)
        one = measures.requests(order, UNIT, 1)
        factors = [f"{measures.requests(order, UNIT, world) / one:.2f}" for world in worlds]
        own = [measures.clustering(labels[order[::world]], 32).mean() for world in (8, 64)]
        whole = measures.clustering(labels[order], BATCH).mean()
        print(f"| {lanes} | {' | '.join(factors)} | {whole:.2f} | {own[0]:.2f} | {own[1]:.2f} |", flush=True)


def tail_classes(make: Callable[[int, int], Order], trials: int, batches: int) -> npt.NDArray[np.float64]:
    """Mean number of classes in each of the last global batches of an epoch, the last one last; over data sets of random sizes."""
    sizes = np.random.default_rng(7).integers(195_000, 205_000, trials)
    total = np.zeros(batches)
    for seed, samples in enumerate(sizes.tolist()):
        labels = measures.sorted_labels(samples, CLASSES)[make(samples, seed)[samples - batches * BATCH :]]
        total += (measures.classes_by_batch(labels, BATCH) > 0).sum(axis=1)
    return total / trials


def tail(trials: int) -> dict[str, npt.NDArray[np.float64]]:
    cache = WINDOW * UNIT
    block = calibrated(lambda size, seed: orders.py1e(200_000, UNIT, size, seed), UNIT, cache)
    makers: dict[str, Callable[[int, int], Order]] = {
        "Millrace window": lambda samples, seed: orders.windowed(samples, UNIT, WINDOW, LANES, seed),
        "MosaicML py1e, 1.5 MiB": lambda samples, seed: orders.py1e(samples, UNIT, block, seed),
        "MosaicML py1e, 64 MiB": lambda samples, seed: orders.py1e(samples, SHARD, block, seed),
        "chance": orders.permutation,
    }
    shown = {name: tail_classes(make, trials, 24) for name, make in makers.items()}
    print("\n## Classes in the last global batches (200,000 samples, give or take 5,000)\n")
    print("| order | batch -24 | -12 | -4 | -3 | -2 | last |\n|---|---|---|---|---|---|---|")
    for name, classes in shown.items():
        print(f"| {name} | " + " | ".join(f"{classes[at]:.0f}" for at in (-24, -12, -4, -3, -2, -1)) + " |", flush=True)
    print("\nRequests of all ranks of Millrace's window, as a multiple of those of one:\n")
    for samples in (20_000, 100_000):
        order = makers["Millrace window"](samples, SEED)
        one = measures.requests(order, UNIT, 1)
        factors = [f"{measures.requests(order, UNIT, world) / one:.4f}" for world in (2, 8, 64)]
        print(f"- {samples:,} samples, W = 2, 8, 64: {', '.join(factors)}")
    return shown


def avalanche(samples: int) -> None:
    print(
        f"\n## Avalanche: samples at the same place in the orders of two seeds that differ in one bit ({samples:,} samples; chance: 1)\n"
    )
    makers: dict[str, Callable[[int, int], Order]] = {
        "global": lambda seed, epoch: orders.everything(samples, seed, epoch),
        "window": lambda seed, epoch: orders.windowed(samples, UNIT, WINDOW, LANES, seed, epoch),
    }
    for name, make in makers.items():
        base = make(0, 0)
        same = [measures.same_places(base, make(1 << bit, 0)) for bit in range(64)]
        same += [measures.same_places(base, make(0, 1 << bit)) for bit in range(64)]
        print(f"- {name}: mean {np.mean(same):.2f}, variance {np.var(same):.2f}, largest {max(same)} of 128 pairs")


def draw(folder: Path, samples: int, last: dict[str, npt.NDArray[np.float64]]) -> None:
    labels = measures.sorted_labels(samples, CLASSES)
    cache = WINDOW * UNIT
    rows = 48

    def panel(order: Order) -> npt.NDArray[np.int64]:
        middle = len(order) // BATCH // 2
        return labels[order[middle * BATCH : (middle + rows) * BATCH]].reshape(rows, BATCH)

    block = calibrated(functools.partial(orders.py1e, samples, SHARD), SHARD, cache)
    at_once = max(RANKS, round(cache / SHARD / RANKS) * RANKS)
    panels = [
        orders.windowed(samples, UNIT, WINDOW, LANES, SEED),
        orders.py1e(samples, SHARD, block, SEED),
        orders.litdata(samples, SHARD, at_once, RANKS, BATCH // RANKS, SEED),
        orders.webdataset(samples, SHARD, cache // RANKS, RANKS, BATCH // RANKS, SEED),
        orders.permutation(samples, SEED),
    ]
    figures.batches(folder / "classes.png", [panel(order) for order in panels], CLASSES)
    figures.chart(
        folder / "tail.svg",
        "Classes in each of the last global batches of 256, data sorted by class",
        figures.Axis(
            "global batches before the end of the epoch",
            [(at, str(-at) if at else "last") for at in (-23, -18, -12, -6, 0)],
            -23,
            0,
        ),
        figures.Axis("classes in a batch", [(at, str(at)) for at in range(0, 251, 50)], 0, 250),
        [figures.Line(name, list(zip(range(-23, 1), found))) for name, found in last.items()],
    )
    draw_cache(folder, labels)


def draw_cache(folder: Path, labels: npt.NDArray[np.int64]) -> None:
    samples = len(labels)
    curves: dict[str, list[tuple[float, float]]] = {}
    for window in (64, 128, 192, 384, 768, 1536):
        cache = window * UNIT
        makers: dict[str, Order] = {"Millrace window": orders.windowed(samples, UNIT, window, LANES, SEED)}
        for unit, name in ((UNIT, "1.5 MiB"), (SHARD, "64 MiB")):
            make = functools.partial(orders.py1e, samples, unit)
            if cache > 1.5 * unit:
                makers[f"MosaicML py1e, {name}"] = make(calibrated(make, unit, cache), SEED)
        makers["WebDataset, 8 buffers"] = orders.webdataset(samples, SHARD, cache // RANKS, RANKS, BATCH // RANKS, SEED)
        for name, order in makers.items():
            found = float(measures.clustering(labels[order], BATCH).mean())
            curves.setdefault(name, []).append((cache * MEAN / MIB, found))
    figures.chart(
        folder / "clustering.svg",
        "Pairs of one class in a global batch of 256, data sorted by class",
        figures.Axis("cache, MiB", [(at, str(at)) for at in (100, 200, 400, 800, 1600)], 90, 2600, log=True),
        figures.Axis(
            "multiple of chance", [(at, str(at)) for at in (1, 2, 5, 10, 20, 50, 100, 200, 500)], 1, 700, log=True
        ),
        [figures.Line(name, points) for name, points in curves.items()],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="a tenth of the samples and few trials: shows that everything works"
    )
    parser.add_argument("--figures", type=Path, metavar="FOLDER", help="write the pictures there, too")
    options = parser.parse_args()
    samples = 128_117 if options.quick else 1_281_167
    print(f"{samples:,} samples of {MEAN:,} bytes, {CLASSES} classes in sequence; global batches of {BATCH}")
    compare(samples)
    defaults(samples)
    last = tail(10 if options.quick else 100)
    avalanche(20_000)
    if options.figures:
        draw(options.figures, samples, last)


if __name__ == "__main__":
    main()
