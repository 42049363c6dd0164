#!/usr/bin/env python3
"""Measures the cost of reading from the cache: CPU-seconds per GB of a feed whose data are all in the cache, against the same feed of local files.

    bench/cache/pairs.py                   1 GB of shards, five pairs of runs (a few minutes)
    bench/cache/pairs.py --quick           100 MB, one pair: whether it works

A feed of each kind runs by turns, and the median of the ratios of neighbours counts: so a machine that is slow for a minute is slow for both. CPU-seconds and not
the clock, as other programs may take cores away. Nothing is decoded. Exits 1 if the cache takes more than --most times the CPU of files.
"""

from __future__ import annotations

import argparse
import array
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from feed_bench import REPOSITORY, newest, say
from token_files import TOKEN_BYTES, write_idx

DOCUMENT = 64 << 10  # bytes


def write_pair(stem: Path, documents: int, rng: random.Random) -> None:
    """Writes token files, which are fed without decoding."""
    with stem.with_suffix(".bin").open("wb") as out:
        for _ in range(documents):
            out.write(rng.randbytes(DOCUMENT))
    write_idx(stem.with_suffix(".idx"), array.array("i", [DOCUMENT // TOKEN_BYTES]) * documents)


def feed(millrace: Path, data: Path, *more: object) -> dict[str, Any]:
    words = [millrace, "feed", data, "--json", "--batch", 64, "--epochs", 2, *more]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--millrace", type=Path, default=newest("millrace"), help="the binary (default: the newest build)"
    )
    parser.add_argument(
        "--folder", type=Path, default=REPOSITORY / "build", help="where the data and the cache lie meanwhile"
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--most", type=float, default=1.1, help="times the CPU of local files (default 1.1)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    if options.millrace is None or not options.millrace.exists():
        parser.error("no millrace binary: build it (cmake --build --preset release), or name it with --millrace")
    shards, documents, pairs = (2, 800, 1) if options.quick else (8, 2000, 5)
    rng = random.Random(19)
    results = []
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="cache-pairs-") as folder:
        data = Path(folder) / "data"
        data.mkdir()
        for shard in range(shards):
            write_pair(data / f"{shard:03}", documents, rng)
        gigabytes = 2 * shards * documents * DOCUMENT / 1e9
        cache = ["--cache", Path(folder) / "cache"]
        for shuffle in ("window", "global"):
            warm = feed(options.millrace, data, *cache, "--shuffle", shuffle)  # writes what is missing
            feed(options.millrace, data, "--shuffle", shuffle)
            say(f"{shuffle}: {warm['cache']['miss_bytes'] / 1e6:,.0f} MB were brought into the cache")
            ratios = []
            for _ in range(pairs):
                cached = feed(options.millrace, data, *cache, "--shuffle", shuffle)
                plain = feed(options.millrace, data, "--shuffle", shuffle)
                assert cached["cache"]["miss_bytes"] == 0 and cached["digest"] == plain["digest"]
                ratios.append(cached["cpu_seconds"] / plain["cpu_seconds"])
                print(
                    f"{shuffle:7} cache {cached['cpu_seconds'] / gigabytes:.3f} CPU-s/GB, files {plain['cpu_seconds'] / gigabytes:.3f} CPU-s/GB, "
                    f"ratio {ratios[-1]:.3f}",
                    flush=True,
                )
            results.append({"shuffle": shuffle, "ratio": statistics.median(ratios), "ratios": ratios})
            print(f"{shuffle:7} median ratio {results[-1]['ratio']:.3f}", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"cores": len(os.sched_getaffinity(0)), "pairs": results}, indent=2))
    return int(max(result["ratio"] for result in results) > options.most)


if __name__ == "__main__":
    sys.exit(main())
