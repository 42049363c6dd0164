#!/usr/bin/env python3
"""Rows of many short documents: packing, and `millrace feed --tokens` against the same documents as plain samples, side by side.

    bench/rows_bench.py                    a million documents of about 183 int32 tokens, three interleaved runs
    bench/rows_bench.py --quick            a tenth of them
    bench/rows_bench.py --json result.json

Exits 1 when a target is missed (never with --quick). See bench/README.md.
"""

from __future__ import annotations

import argparse
import array
import bisect
import json
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from feed_bench import REPOSITORY, newest, say
from token_files import write_idx

LENGTH = 2048
GROUP = 256  # rows that are packed at a time: as Millrace has it for this length and type
AGAINST_SAMPLES = 1.3  # times their time, at most
MEMORIES = ("512MiB", "128MiB")


def make_corpus(cache: Path, count: int) -> tuple[Path, np.ndarray]:
    """Returns a Megatron pair with an index beside it, made once; and the lengths of its documents."""
    random = np.random.default_rng(1)
    lengths = np.clip(np.exp(random.normal(np.log(122), 0.9, count)), 1, 20000).astype(np.int32)
    folder = cache / f"documents-{count}"
    if not folder.exists():
        say(f"Making {count:,} documents in {folder}, once ...")
        making = cache / f".{folder.name}"
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(parents=True)
        random.integers(0, 50000, int(lengths.sum()), dtype=np.int32).tofile(making / "a.bin")
        write_idx(making / "a.idx", array.array("i", lengths.tobytes()))
        making.rename(folder)
    return folder, lengths


def best_fit(lengths: np.ndarray) -> tuple[float, float]:
    """Runs the rival: best fit, longest first, for a group's worth of documents at a time, as data-preparation scripts do.

    It uses numpy's sort, and a bisected list of the room in rows. Returns the seconds, and the part of the places that is filled.
    """
    begin = time.monotonic()
    pieces = [
        length for whole in lengths.tolist() for length in [LENGTH] * (whole // LENGTH) + [whole % LENGTH] if length
    ]
    ends = np.searchsorted(np.cumsum(pieces), np.arange(GROUP * LENGTH, sum(pieces) + GROUP * LENGTH, GROUP * LENGTH))
    rows = at = 0
    for end in ends.tolist():
        left: list[int] = []
        for length in np.sort(pieces[at:end])[::-1].tolist():
            fit = bisect.bisect_left(left, length)
            new = fit == len(left)
            room = LENGTH if new else left.pop(fit)
            rows += new
            if room > length:
                bisect.insort(left, room - length)
        at = end
    return time.monotonic() - begin, sum(pieces) / (rows * LENGTH)


def feed(options: argparse.Namespace, folder: Path, memory: str, *more: str) -> dict:
    command = [options.millrace, "feed", folder, "--memory", memory, "--threads", str(options.threads), "--json", *more]
    return json.loads(
        subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    )


def measure(options: argparse.Namespace, folder: Path) -> tuple[list[float], dict[str, list[dict]]]:
    packing = []
    runs: dict[str, list[dict]] = {}
    for number in range(options.runs):
        say(f"Run {number + 1} of {options.runs} ...")
        for packs in folder.glob(".millrace/packs-*"):
            packs.unlink()
        packing.append(
            feed(options, folder, "512MiB", "--tokens", str(LENGTH), "--batch", "8", "--stop-after", "8")[
                "open_seconds"
            ]
        )
        for memory in MEMORIES[: 1 if options.quick else 2]:
            runs.setdefault(f"rows {memory}", []).append(
                feed(options, folder, memory, "--tokens", str(LENGTH), "--batch", "8")
            )
            runs.setdefault(f"samples {memory}", []).append(feed(options, folder, memory, "--batch", "64"))
    return packing, runs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2, help="CPU pool of a feed")
    parser.add_argument("--millrace", type=Path, default=newest("millrace"))
    parser.add_argument("--cache", type=Path, default=REPOSITORY / "build/bench-data")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.millrace is None or not options.millrace.exists():
        parser.error("no millrace binary: build it (cmake --build --preset release), or name it with --millrace")
    folder, lengths = make_corpus(options.cache, 100_000 if options.quick else 1_000_000)
    subprocess.run([options.millrace, "index", folder], check=True, stdout=subprocess.DEVNULL)
    packing, runs = measure(options, folder)
    rival_seconds, rival_fill = best_fit(lengths)
    ours = statistics.median(packing)
    fill = runs[f"rows {MEMORIES[0]}"][0]["rows"]["tables"][0]["fill"]
    say(
        f"\n{len(lengths):,} documents of {lengths.mean():.0f} tokens to rows of {LENGTH}, {options.threads} threads; median of {options.runs} runs"
    )
    say(
        f"packing          {ours:7.2f} s, {fill:.2%} full; in Python {rival_seconds:.2f} s, {rival_fill:.2%} full: {rival_seconds / ours:.1f} x as fast"
    )
    say(f"{'':17}{'seconds':>8}{'CPU-s':>8}{'requests':>10}{'MB read':>9}{'peak MiB':>10}")
    seconds = {}
    for name, results in runs.items():
        seconds[name] = statistics.median(r["seconds"] for r in results)
        first = results[0]
        say(
            f"{name:17}{seconds[name]:8.2f}{statistics.median(r['cpu_seconds'] for r in results):8.2f}{first['requests']['GET']:10}"
            f"{first['bytes_read'] / 1e6:9.0f}{max(r['max_rss_bytes'] for r in results) / 2**20:10.0f}"
        )
    met = True
    for memory in MEMORIES[: 1 if options.quick else 2]:
        ratio = seconds[f"rows {memory}"] / seconds[f"samples {memory}"]
        met = met and ratio <= AGAINST_SAMPLES
        say(
            f"rows / samples, {memory}: {ratio:.2f}   target {AGAINST_SAMPLES}   {'met' if ratio <= AGAINST_SAMPLES else 'MISSED'}"
        )
    if options.json:
        record = {"packing": packing, "rival": {"seconds": rival_seconds, "fill": rival_fill}, "runs": runs}
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    return 0 if met or options.quick else 1


if __name__ == "__main__":
    sys.exit(main())
