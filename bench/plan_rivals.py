#!/usr/bin/env python3
"""Measures the cost of an order: Millrace's plan, Grain's index shuffle, and MosaicML's partitioning with py1e. It makes the table of docs/plan.md.

    PYTHONPATH=build/release/python bench/plan_rivals.py              # 10^9 samples; 10^7 of MosaicML, which holds all of them in memory
    PYTHONPATH=build/release/python bench/plan_rivals.py --samples 1000000

Each is called from Python, as its users do: Millrace with arrays of positions, Grain for each, MosaicML once. Each has a process of its own. bench/README.md says how to read the table.
"""

from __future__ import annotations

import argparse
import importlib.machinery
import importlib.util
import json
import os
import resource
import subprocess
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

CALLS = 200_000
BLOCK = 1 << 16
STREAMED = 100 * BLOCK
EXTENT = 16
MOSAIC_SAMPLES = 10_000_000  # 10^9 would take a hundred times the memory

Found = dict[str, float | None]


def nanoseconds(items: int, work: Callable[[], Any]) -> float:
    """The best of three: what else runs on the machine makes it slower only."""
    best = float("inf")
    for _ in range(3):
        start = time.thread_time_ns()
        work()
        best = min(best, (time.thread_time_ns() - start) / items)
    return best


def millrace(shuffle: str, samples: int) -> Found:
    from millrace import Plan, Shuffle

    start = time.perf_counter()
    sizes = Shuffle(window=192, extent=EXTENT, lanes=64)
    plan = Plan(samples, shuffle=sizes if shuffle == "window" else shuffle, seed=42)
    plan[0]
    first = time.perf_counter() - start
    blocks = range(0, min(samples, STREAMED) // BLOCK * BLOCK, BLOCK)

    def stream() -> None:
        for at in blocks:
            plan[np.arange(at, at + BLOCK)]

    random = np.random.default_rng(1).integers(0, samples, CALLS)
    return {
        "first_ms": first * 1e3,
        "streaming_ns": nanoseconds(len(blocks) * BLOCK, stream),
        "at_ns": nanoseconds(CALLS, lambda: plan[random]),
        "where_ns": nanoseconds(CALLS, lambda: plan.position_of(random)),
    }


def grain(samples: int) -> Found:
    """The extension alone: what the package around it loads has no part in the order."""
    package = importlib.util.find_spec("grain")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("grain is not installed: run scripts/setup")
    path = (
        Path(package.submodule_search_locations[0])
        / "_src/python/experimental/index_shuffle/python/index_shuffle_module.so"
    )
    loader = importlib.machinery.ExtensionFileLoader("index_shuffle_module", str(path))
    spec = importlib.util.spec_from_loader("index_shuffle_module", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    shuffled: Callable[..., int] = module.index_shuffle

    start = time.perf_counter()
    shuffled(0, max_index=samples - 1, seed=42, rounds=4)
    first = time.perf_counter() - start
    indices = np.random.default_rng(1).integers(0, samples, CALLS).tolist()
    # Grain itself calls it so, for each element. With one element there is nothing to shuffle: what that takes is the call.
    call = nanoseconds(CALLS, lambda: [shuffled(0, max_index=0, seed=42, rounds=4) for _ in indices])
    at = nanoseconds(CALLS, lambda: [shuffled(index, max_index=samples - 1, seed=42, rounds=4) for index in indices])
    return {"first_ms": first * 1e3, "streaming_ns": at, "at_ns": at, "where_ns": None, "call_ns": call}


def mosaic(samples: int) -> Found:
    """get_partitions and py1e of a job with one node of 8 ranks: everything is worked out before the first sample."""
    package = importlib.util.find_spec("streaming")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("mosaicml-streaming is not installed: run scripts/setup")
    root = package.submodule_search_locations[0]
    for name in (
        "streaming",
        "streaming.base",
        "streaming.base.shuffle",
        "streaming.base.partition",
    ):  # whose __init__ would load the clients of five clouds
        module = types.ModuleType(name)
        module.__path__ = [root + name.removeprefix("streaming").replace(".", "/")]
        sys.modules[name] = module
    from streaming.base.partition.orig import get_partitions_orig
    from streaming.base.shuffle.py1e import get_shuffle_py1e

    shards = np.full(samples // 10_000, 10_000)
    start = time.perf_counter()
    ids = get_partitions_orig(len(shards) * 10_000, 1, 1, 8, 1, 32)
    shuffle = get_shuffle_py1e(shards, 1, 42, 0, 1 << 18)
    order = np.where(ids == -1, -1, shuffle[ids])
    first = time.perf_counter() - start
    flat = order.ravel()
    random = np.random.default_rng(1).integers(0, len(flat), CALLS)
    return {
        "first_ms": first * 1e3,
        "streaming_ns": first * 1e9 / samples,
        "at_ns": nanoseconds(CALLS, lambda: flat[random]),
        "where_ns": None,
    }


def nothing(samples: int) -> Found:
    """Measures the cost of Python by itself, with the same numbers."""
    np.random.default_rng(1).integers(0, samples, CALLS).tolist()
    return dict.fromkeys(("first_ms", "streaming_ns", "at_ns", "where_ns"))


CONTESTANTS: dict[str, Callable[[int], Found]] = {
    "none: Python and numpy": nothing,
    "Millrace, window": lambda samples: millrace("window", samples),
    "Millrace, global": lambda samples: millrace("global", samples),
    "Grain, index_shuffle": grain,
    "MosaicML, partitions + py1e": lambda samples: mosaic(min(samples, MOSAIC_SAMPLES)),
}


def rss_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=10**9)
    parser.add_argument("--one", choices=CONTESTANTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.samples < 1_000_000:
        parser.error("--samples: at least 1,000,000")
    if options.one:
        print(json.dumps(CONTESTANTS[options.one](options.samples) | {"rss_mb": rss_mb()}))
        return 0
    print(
        "| order | samples | first item | streaming, an item | at random | sample to position | memory of the process |\n|---|---|---|---|---|---|---|"
    )
    missing = 0
    for name in CONTESTANTS:
        command = [sys.executable, __file__, "--samples", str(options.samples), "--one", name]
        ran = subprocess.run(command, capture_output=True, text=True, env=os.environ)
        if ran.returncode != 0:
            print(f"| {name} | left out: {ran.stderr.strip().splitlines()[-1]} |")
            missing = 1
            continue
        found: Found = json.loads(ran.stdout)
        samples = min(options.samples, MOSAIC_SAMPLES) if "MosaicML" in name else options.samples
        cells = [f"{samples:,}", "-" if found["first_ms"] is None else f"{found['first_ms']:,.2f} ms"]
        cells += [
            "-" if found[key] is None else f"{found[key]:,.0f} ns" for key in ("streaming_ns", "at_ns", "where_ns")
        ]
        print(f"| {name} | {' | '.join(cells)} | {found['rss_mb']:,.0f} MB |", flush=True)
        if "call_ns" in found:
            print(f"{name}: a call from Python is {found['call_ns']:,.0f} ns of that.", file=sys.stderr)
    return missing


if __name__ == "__main__":
    sys.exit(main())
