"""Tests hit rates of the cache, counted end to end over five epochs. They are compared with LRU and with the optimum,
which are computed here from the order of the samples alone (L. Belady, 1966: what is used latest goes, and what would
itself be used latest is not kept), and with `millrace cache simulate`."""

from __future__ import annotations

import dataclasses
import io
import json
import pathlib
import random
import subprocess
import tarfile
import tempfile
import time
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import millrace
import pytest
from room import with_room
from support import binary
from thoroughness import ALL

EPOCHS = 5
SAMPLES = 1000
NEVER = 1 << 62
CAPACITIES = [0.10, 0.25, 0.50, 0.75] if ALL else [0.10, 0.50]
# The hits reach at least this part of the optimum. Blocks of the disk, the heads of files, and candidates that are
# drawn at random may cost the rest.
LEAST = 0.95
# The memory is a small part of the data, as it would be another cache; but a window fits into it, so that an extent is read as one.
ORDERS: dict[str, Any] = {"global": "global", "window": millrace.Shuffle(window=8, extent=2, lanes=8)}
MEMORY = {"global": "6MiB", "window": "12MiB"}


@dataclasses.dataclass
class Shards:
    uri: str
    sizes: list[int]  # of the samples, in the order of the index


@pytest.fixture(scope="module")
def shards() -> Iterator[Shards]:
    """Makes 160 MB in four tar files."""
    with tempfile.TemporaryDirectory(prefix="millrace-cache-hits-") as folder:
        yield write_shards(pathlib.Path(folder))


def write_shards(folder: pathlib.Path) -> Shards:
    rng = random.Random(19)
    found = Shards(str(folder), [])
    for shard in range(4):
        with tarfile.open(folder / f"{shard}.tar", "w") as archive:
            for number in range(shard * SAMPLES // 4, (shard + 1) * SAMPLES // 4):
                size = rng.randrange(96 << 10, 224 << 10)
                for name, data in (("bin", rng.randbytes(size)), ("cls", b"1")):
                    member = tarfile.TarInfo(f"{number:04}.{name}")
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))
                found.sizes.append(size)
    return found


def _report(loader: millrace.Loader) -> dict[str, Any]:
    found = loader.report()["cache"]
    assert found is not None
    return dict(found)


def feed(shards: Shards, order: str, cache: pathlib.Path, size: int) -> tuple[list[list[int]], dict[str, Any]]:
    """Returns the samples of each epoch as they came, and the report of the cache. After each batch, the disk gets the
    time that it needs, as in a training whose steps take a while. So nothing is dropped on a machine that is busy with
    other things."""
    epochs: list[list[int]] = []
    options: dict[str, Any] = {
        "batch_size": 8,
        "memory": MEMORY[order],
        "seed": 7,
        "epochs": EPOCHS,
        "last": "drop",
        "shuffle": ORDERS[order],
    }
    fields = {"label": millrace.Label("cls")}
    with millrace.Loader(
        shards.uri, cache=millrace.Cache(cache, size=size), fields=fields, output="numpy", **options
    ) as loader:
        for _ in range(EPOCHS):
            epochs.append([])
            for batch in loader:
                epochs[-1] += batch["sample"].tolist()
                deadline = time.monotonic() + 300
                while _report(loader)["waiting_bytes"] > 0:
                    assert time.monotonic() < deadline, "the cache writes nothing"
                    time.sleep(0.0005)
        report = _report(loader)
    assert report["dropped_bytes"] == 0 and all(sorted(epoch) == list(range(SAMPLES)) for epoch in epochs)
    return epochs, report


def reads(shards: Shards, order: str, epochs: list[list[int]]) -> list[tuple[int, int]]:
    """Returns what is read, as (unit, bytes) in this order: in each epoch every extent once, when its first sample
    comes."""
    extent = 2 if order == "window" else 1
    found = []
    for epoch in epochs:
        for unit in dict.fromkeys(sample // extent for sample in epoch):
            found.append((unit, sum(shards.sizes[unit * extent : (unit + 1) * extent])))
    return found


def lru(trace: list[tuple[int, int]], capacity: int) -> float:
    cached: OrderedDict[int, int] = OrderedDict()
    used = hits = 0
    for unit, size in trace:
        if unit in cached:
            hits += size
            cached.move_to_end(unit)
            continue
        cached[unit] = size
        used += size
        while used > capacity:
            used -= cached.popitem(last=False)[1]
    return hits / sum(size for _, size in trace)


def optimum(trace: list[tuple[int, int]], capacity: int) -> float:
    following = [NEVER] * len(trace)
    last: dict[int, int] = {}
    for at in range(len(trace) - 1, -1, -1):
        following[at] = last.get(trace[at][0], NEVER)
        last[trace[at][0]] = at
    cached: dict[int, tuple[int, int]] = {}  # next use and size, by unit
    used = hits = 0
    for at, (unit, size) in enumerate(trace):
        if unit in cached:
            hits += size
            used -= size
        cached[unit] = (following[at], size)
        used += size
        while used > capacity:
            latest = max(cached, key=lambda other: cached[other][0])
            used -= cached.pop(latest)[1]
    return hits / sum(size for _, size in trace)


def test_the_oracles() -> None:
    """The oracles are run on orders whose rates are known."""
    cycle = [(unit, 10) for _ in range(10) for unit in range(10)]
    assert lru(cycle, 90) == 0 and lru(cycle, 100) == 0.9
    assert optimum(cycle, 50) == 0.45  # half of all but the first round
    assert optimum(cycle, 100) == 0.9 and optimum([(1, 10), (2, 10), (1, 10), (2, 10)], 10) == 0.25
    assert optimum([(1, 10), (2, 30), (1, 10), (2, 30)], 20) == 10 / 80


def simulated(shards: Shards, order: str, size: int) -> dict[str, float]:
    sizes = ["--window=8", "--extent=2", "--lanes=8"] if order == "window" else []
    words = [f"--shuffle={order}", *sizes]
    command = [
        binary(),
        "cache",
        "simulate",
        shards.uri,
        "--seed=7",
        f"--epochs={EPOCHS}",
        f"--capacity={size}",
        "--json",
        *words,
    ]
    return dict(json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["all"]["hit_rate"])


@pytest.mark.parametrize("capacity", CAPACITIES)
@pytest.mark.parametrize("order", ORDERS)
def test_hit_rates(shards: Shards, order: str, capacity: float) -> None:
    size = int(capacity * sum(shards.sizes))
    with tempfile.TemporaryDirectory(prefix="millrace-cache-hits-") as folder, with_room(pathlib.Path(folder)) as place:
        epochs, report = feed(shards, order, place, size)
    ours = report["hit_bytes"] / (report["hit_bytes"] + report["miss_bytes"])
    trace = reads(shards, order, epochs)
    best, least, told = optimum(trace, size), lru(trace, size), simulated(shards, order, size)
    said = f"{order} {capacity:.0%}: ours {ours:.4f}, LRU {least:.4f}, optimum {best:.4f}, ratio {ours / best:.4f}, simulated {told}, {report}"
    print(said)
    assert ours >= LEAST * best, said
    assert ours > least, said
    for name, measured in (("ours", ours), ("lru", least), ("optimum", best)):
        expected = report["forecast"][name]
        # The other two are worked out here for bytes of samples, there for blocks of the disk.
        near = 0.02 if name == "ours" else 0.03
        assert abs(told[name] - measured) <= near and len(expected) == EPOCHS, said
        assert abs(sum(expected) / EPOCHS - measured) <= near, said
