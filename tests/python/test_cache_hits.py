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
from collections.abc import Callable, Iterator
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
# Objects that are each a sample: how many there are, and what their sizes are drawn from. Those of images are as ImageNet's.
RAW: dict[str, tuple[int, Callable[[random.Random], int]]] = {
    "4 KB, equal": (6000, lambda _: 4000),
    "4 KB": (6000, lambda rng: rng.randrange(3000, 5200)),
    "40 KB": (1504, lambda rng: rng.randrange(20_000, 60_000)),
    "150 KB": (800, lambda rng: rng.randrange(100_000, 200_000)),
    "images": (1000, lambda rng: int(min(900e3, max(8e3, rng.lognormvariate(11.4, 0.55))))),
    "images, equal": (600, lambda _: 110_000),
}
# The disk may take so much of the bytes that are cached: what is beside them counts for more if they are small.
DISK = {"4 KB, equal": 1.04, "4 KB": 1.06, "40 KB": 1.05, "150 KB": 1.04, "images": 1.04, "images, equal": 1.01}


@dataclasses.dataclass
class Shards:
    uri: str
    sizes: list[int]  # of the samples, in the order of the index
    fields: dict[str, Any] = dataclasses.field(default_factory=lambda: {"label": millrace.Label("cls")})
    memory: str | None = None  # None: as the order needs


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


@pytest.fixture(scope="module", params=RAW)
def objects(request: pytest.FixtureRequest) -> Iterator[tuple[str, Shards]]:
    """A folder of up to 130 MB, in which each file is a sample."""
    count, draw = RAW[request.param]
    rng = random.Random(5)
    with tempfile.TemporaryDirectory(prefix="millrace-cache-hits-") as folder:
        sizes = [draw(rng) for _ in range(count)]
        for number, size in enumerate(sizes):
            (pathlib.Path(folder) / f"{number:06}.bin").write_bytes(rng.randbytes(size))
        yield request.param, Shards(folder, sizes, {"data": millrace.Bytes("bin")}, "24MiB")


def _report(loader: millrace.Loader) -> dict[str, Any]:
    found = loader.report()["cache"]
    assert found is not None
    return dict(found)


def feed(
    shards: Shards, order: str, cache: pathlib.Path, size: int, count: int = EPOCHS
) -> tuple[list[list[int]], dict[str, Any]]:
    """Returns the samples of each epoch as they came, and the report of the cache. After each batch, the disk gets the
    time that it needs, as in a training whose steps take a while. So nothing is dropped on a machine that is busy with
    other things."""
    epochs: list[list[int]] = []
    options: dict[str, Any] = {
        "batch_size": 8,
        "memory": shards.memory or MEMORY[order],
        "seed": 7,
        "epochs": count,
        "last": "drop",
        "shuffle": ORDERS[order],
    }
    with millrace.Loader(
        shards.uri, cache=millrace.Cache(cache, size=size), fields=shards.fields, output="numpy", **options
    ) as loader:
        for _ in range(count):
            epochs.append([])
            for batch in loader:
                epochs[-1] += batch["sample"].tolist()
                deadline = time.monotonic() + 300
                while _report(loader)["waiting_bytes"] > 0:
                    assert time.monotonic() < deadline, "the cache writes nothing"
                    time.sleep(0.0005)
        report = _report(loader)
    assert report["dropped_bytes"] == 0 and all(sorted(epoch) == list(range(len(shards.sizes))) for epoch in epochs)
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
    compare(shards, order, size, epochs, report)


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_hit_rates_of_small_objects(objects: tuple[str, Shards], capacity: float) -> None:
    name, shards = objects
    size = int(capacity * sum(shards.sizes))
    with tempfile.TemporaryDirectory(prefix="millrace-cache-hits-") as folder, with_room(pathlib.Path(folder)) as place:
        epochs, report = feed(shards, "global", place, size)
        disk = sum(path.stat().st_blocks * 512 for path in place.rglob("*") if path.is_file())
        listed = subprocess.run([binary(), "cache", "ls", str(place), "--json"], capture_output=True, check=True).stdout
    cached = sum(json.loads(line)["cached_bytes"] for line in listed.splitlines())
    print(f"{name}, {capacity:.0%}: disk {disk / cached:.4f} of what is cached")
    compare(shards, "global", size, epochs, report, disk / cached)
    assert disk <= size and disk <= DISK[name] * cached


def _written() -> tuple[int, int]:
    """Bytes that this process has given to `write`, and those of pages that it has made a disk write."""
    lines = pathlib.Path("/proc/self/io").read_text().splitlines()
    found = dict(line.split(": ") for line in lines)
    return int(found["wchar"]), int(found["write_bytes"])


@pytest.mark.skipif(not ALL, reason="ten epochs")
@pytest.mark.parametrize("objects", ["images"], indirect=True)
def test_what_is_cached_is_written_once(objects: tuple[str, Shards]) -> None:
    _, shards = objects
    with tempfile.TemporaryDirectory(prefix="millrace-cache-hits-") as folder:
        before = _written()
        _, report = feed(shards, "global", pathlib.Path(folder), sum(shards.sizes) // 2, count=10)
        given, of_pages = (after - then for after, then in zip(_written(), before, strict=True))
    cached = report["written_bytes"]
    print(f"written {given / cached:.4f} of what was cached over ten epochs, as pages {of_pages / cached:.4f}")
    assert given <= 1.05 * cached and of_pages <= 1.3 * cached


def compare(
    shards: Shards, order: str, size: int, epochs: list[list[int]], report: dict[str, Any], share: float = 1
) -> None:
    """Compares the hits with LRU, the optimum and the forecast. The disk takes `share` of what is cached."""
    ours = report["hit_bytes"] / (report["hit_bytes"] + report["miss_bytes"])
    trace = reads(shards, order, epochs)
    best, least, told = optimum(trace, size), lru(trace, size), simulated(shards, order, size)
    said = f"{order} {size / sum(shards.sizes):.0%}: ours {ours:.4f}, LRU {least:.4f}, optimum {best:.4f}, ratio {ours / best:.4f}, simulated {told}, {report}"
    print(said)
    assert ours >= LEAST * best, said
    assert ours > least, said
    # The forecast counts what the disk takes beside small objects: of 4 KB, it is enough to change LRU by 3 %.
    fits = int(size / share)
    for name, measured in (("ours", ours), ("lru", lru(trace, fits)), ("optimum", optimum(trace, fits))):
        expected = report["forecast"][name]
        # The other two are worked out here for bytes of samples, there for blocks of the disk.
        near = 0.02 if name == "ours" else 0.03
        assert abs(told[name] - measured) <= near and len(expected) == EPOCHS, said
        assert abs(sum(expected) / EPOCHS - measured) <= near, said
