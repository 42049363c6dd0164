#!/usr/bin/env python3
"""JPEGs to normalised float32 [3, 224, 224], images a CPU-second on one core: Millrace beside others and beside its ceiling.

    bench/decode/run.py [--quick] [--program build/release/bin/decode_bench] [--rounds 5]

Rows are printed as they come; the last table has medians and ratios. See bench/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / "build/bench-venv-decode"
RIVALS = ("simplejpeg", "pillow", "opencv", "dali", "spdl")
WALLPAPERS = ("gnome-backgrounds", "mate-backgrounds", "ukui-wallpapers")
PHOTOGRAPHS = {"500px": (500, 92), "1280px": (1280, 90)}  # side of the pieces, quality
MISSING = 3

CUT = """
import pathlib, sys
from PIL import Image
Image.MAX_IMAGE_PIXELS = None
source, target, side, quality, most = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), *map(int, sys.argv[3:])
target.mkdir(parents=True, exist_ok=True)
count = 0
for path in sorted(p for p in source.rglob("*") if p.is_file() and not p.is_symlink() and p.suffix.lower() in (".jpg", ".jpeg", ".png", ".webp")):
    try:
        image = Image.open(path).convert("RGB")
    except OSError:
        continue
    image.thumbnail((3 * side, 3 * side))  # so that a piece shows as much as a photograph of its size
    height = side * 3 // 4
    for top in range(0, image.height - height + 1, height):
        for left in range(0, image.width - side + 1, side):
            if count < most:
                image.crop((left, top, left + side, top + height)).save(target / f"{count:04}.jpg", quality=quality)
                count += 1
print(count)
"""


def photographs(scratch: Path, most: int) -> Iterator[tuple[str, Path]]:
    """Folders of pieces of wallpapers, if Debian's packages can be had."""
    for package in WALLPAPERS:
        fetched = subprocess.run(["apt-get", "download", "-qq", package], cwd=scratch, capture_output=True, text=True)
        if fetched.returncode != 0:
            print(f"the photographs of {package} cannot be had: {fetched.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
    for archive in scratch.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", archive, scratch / "wallpapers"], check=True)
    if not (scratch / "wallpapers").exists():
        return
    for name, (side, quality) in PHOTOGRAPHS.items():
        folder = scratch / name
        command = [VENV / "bin/python", "-c", CUT, scratch / "wallpapers", folder, str(side), str(quality), str(most)]
        if int(subprocess.run(command, check=True, capture_output=True, text=True).stdout) > 0:
            yield name, folder


def on_one_core(command: list[str | Path]) -> subprocess.CompletedProcess[str]:
    core = min(os.sched_getaffinity(0))
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, preexec_fn=lambda: os.sched_setaffinity(0, {core}))


def millrace(program: Path, folder: Path, tiles: bool) -> dict[tuple[str, str], float]:
    result = on_one_core([program, "--files", folder, "--rounds", "1", "--json", *(["--tiles"] if tiles else [])])
    if result.returncode != 0:
        raise RuntimeError(result.stderr)
    rates = json.loads(result.stdout)
    name = "millrace tiles" if tiles else "millrace"
    found = {(name, "train"): rates["augment_f32"], (name, "eval"): rates["center_f32"]}
    if not tiles:
        found |= {("ceiling: entropy", mode): rates["entropy"] for mode in ("train", "eval")}
    return found


def rival(name: str, mode: str, folder: Path, seconds: float) -> float | None:
    result = on_one_core([VENV / "bin/python", ROOT / "bench/decode/rivals.py", name, mode, folder, "--seconds", str(seconds)])
    if result.returncode == MISSING:
        print(f"{name} ({mode}) is left out: {json.loads(result.stdout)['missing']}", file=sys.stderr)
        return None
    if result.returncode != 0:
        print(f"{name} ({mode}) failed: {result.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    return float(json.loads(result.stdout)["rate"])


def measure(program: Path, name: str, folder: Path, rounds: int, seconds: float) -> None:
    rates: dict[tuple[str, str], list[float]] = {}

    def row(contestant: str, mode: str, rate: float) -> None:
        rates.setdefault((contestant, mode), []).append(rate)
        print(f"{name:>8} {mode:>6} {contestant:>18} {rate:8.0f} images/CPU-s", flush=True)

    absent: set[tuple[str, str]] = set()
    for _ in range(rounds):
        for tiles in (False, True):
            for (contestant, mode), rate in millrace(program, folder, tiles).items():
                row(contestant, mode, rate)
        for contestant in RIVALS:
            for mode in ("train", "eval"):
                if (contestant, mode) in absent:
                    continue
                found = rival(contestant, mode, folder, seconds)
                if found is None:
                    absent.add((contestant, mode))
                else:
                    row(contestant, mode, found)
    for mode in ("train", "eval"):
        medians = {contestant: statistics.median(values) for (contestant, of), values in rates.items() if of == mode}
        best = max((value for contestant, value in medians.items() if contestant in RIVALS), default=None)
        for contestant, value in sorted(medians.items(), key=lambda item: -item[1]):
            ratio = "" if best is None else f"{value / best:6.2f} x the best rival"
            print(f"{name:>8} {mode:>6} {contestant:>18} {value:8.0f} median {ratio}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/bin/decode_bench")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="synthetic images only, one short round")
    options = parser.parse_args()
    subprocess.run([ROOT / "bench/setup_rivals", "decode"], check=False)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        synth = scratch / "synth"
        subprocess.run([options.program, "--save", synth], check=True)
        measure(options.program, "synth", synth, 1 if options.quick else options.rounds, 1 if options.quick else 5)
        if not options.quick:
            for kind, folder in photographs(scratch, 100):
                measure(options.program, kind, folder, options.rounds, 5)


if __name__ == "__main__":
    main()
