#!/usr/bin/env python3
"""JPEGs to normalised float32 [3, 224, 224], images a CPU-second on one core: Millrace beside others and beside its ceiling.

    ```
    bench/decode/run.py --prepare             only installs the rivals and makes the images (minutes, once)
    bench/decode/run.py --quick               one short round of everything: below four minutes
    bench/decode/run.py [--sets synth,500px,1280px] [--contestants millrace,tiles,entropy,simplejpeg,...] [--rounds 5]
    ```

`train` is RandomResizedCrop and a flip, `eval` is Resize(256) and CenterCrop(224). Rows are printed as they come; the last table has medians and ratios.
See bench/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / "build/bench-venv-decode"
DATA = ROOT / "build/bench-data/decode"
OURS = ("millrace", "tiles", "entropy")
RIVALS = ("simplejpeg", "pillow", "opencv", "dali", "spdl")
MODES = ("train", "eval")
WALLPAPERS = ("gnome-backgrounds", "mate-backgrounds", "ukui-wallpapers")
SETS = {"synth": (0, 0), "500px": (500, 115), "1280px": (1280, 270)}  # width of the photographs, mean size in kB
COUNT = 100
MISSING = 3

# Makes photographs of that width out of wallpapers, with the quality by which they have the mean size that is wanted. Drawings, which take few bits, are left out.
CUT = """
import io, pathlib, sys
from PIL import Image, ImageOps
Image.MAX_IMAGE_PIXELS = None
source, target, width, kb, most = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), *map(int, sys.argv[3:])
def encoded(image, quality):
    out = io.BytesIO()
    image.save(out, "JPEG", quality=quality)
    return out.getvalue()
pictures = []
for path in sorted(p for p in source.rglob("*") if p.is_file() and not p.is_symlink() and p.suffix.lower() in (".jpg", ".jpeg", ".png", ".webp")):
    try:
        image = Image.open(path)
        image.draft("RGB", (2 * width, 2 * width))
        image = ImageOps.fit(image.convert("RGB"), (width, width * 3 // 4), Image.Resampling.LANCZOS)
    except OSError:
        continue
    if 8 * len(encoded(image, 90)) >= image.width * image.height:
        pictures.append(image)
pictures = pictures[:most]
def mean(quality):
    return sum(len(encoded(picture, quality)) for picture in pictures) / len(pictures)
low, high = 30, 100
while high - low > 1:
    middle = (low + high) // 2
    low, high = (middle, high) if mean(middle) < 1000 * kb else (low, middle)
target.mkdir(parents=True)
for number, picture in enumerate(pictures):
    (target / f"{number:04}.jpg").write_bytes(encoded(picture, high))
print(f"{len(pictures)} pictures at quality {high}, {mean(high) / 1000:.0f} kB on average")
"""


def wallpapers(scratch: Path) -> Path | None:
    """Returns Debian's packages, unpacked and not installed; None if none can be had."""
    for package in WALLPAPERS:
        fetched = subprocess.run(["apt-get", "download", "-qq", package], cwd=scratch, capture_output=True, text=True)
        if fetched.returncode != 0:
            print(
                f"the photographs of {package} cannot be had: {fetched.stderr.strip().splitlines()[-1:]}",
                file=sys.stderr,
            )
    for archive in scratch.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", archive, scratch / "wallpapers"], check=True)
    return scratch / "wallpapers" if (scratch / "wallpapers").exists() else None


def prepare(program: Path, sets: list[str]) -> None:
    """Installs the missing rivals, and makes the missing images."""
    subprocess.run([ROOT / "bench/setup_rivals", "decode"], check=False)
    DATA.mkdir(parents=True, exist_ok=True)
    if "synth" in sets and not (DATA / "synth").exists():
        subprocess.run([program, "--count", "48", "--save", DATA / "synth"], check=True)
    missing = [name for name in sets if not (DATA / name).exists()]
    if not missing:
        return
    with tempfile.TemporaryDirectory() as name:
        source = wallpapers(Path(name))
        for kind in missing if source else []:
            width, kb = SETS[kind]
            made = Path(name) / kind
            command = [VENV / "bin/python", "-c", CUT, source, made, width, kb, COUNT]
            print(
                f"{kind}: {subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout.strip()}",
                flush=True,
            )
            shutil.move(made, DATA / kind)


def on_one_core(command: list[str | Path]) -> subprocess.CompletedProcess[str]:
    core = min(os.sched_getaffinity(0))
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, preexec_fn=lambda: os.sched_setaffinity(0, {core})
    )


def ours(program: Path, contestant: str, folder: Path) -> dict[str, float]:
    """Returns rates by mode."""
    cases = (
        {"train": "entropy", "eval": "entropy"}
        if contestant == "entropy"
        else {"train": "augment_f32", "eval": "eval_f32"}
    )
    command: list[str | Path] = [
        program,
        "--files",
        folder,
        "--rounds",
        "1",
        "--json",
        "--cases",
        ",".join(sorted(set(cases.values()))),
    ]
    result = on_one_core([*command, *(["--tiles"] if contestant == "tiles" else [])])
    if result.returncode != 0:
        raise RuntimeError(result.stderr)
    rates = json.loads(result.stdout)
    return {mode: rates[case] for mode, case in cases.items()}


def rival(name: str, folder: Path, seconds: float) -> dict[str, float]:
    """Returns rates by mode, of those that it has."""
    rates = {}
    for mode in MODES:
        result = on_one_core(
            [VENV / "bin/python", ROOT / "bench/decode/rivals.py", name, mode, folder, "--seconds", str(seconds)]
        )
        if result.returncode == 0:
            rates[mode] = float(json.loads(result.stdout)["rate"])
        elif result.returncode == MISSING:
            print(f"{name} ({mode}) is left out: {json.loads(result.stdout)['missing']}", file=sys.stderr)
        else:
            print(f"{name} ({mode}) failed: {result.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
    return rates


def measure(program: Path, name: str, contestants: list[str], rounds: int, seconds: float) -> None:
    rates: dict[tuple[str, str], list[float]] = {}
    folder, absent = DATA / name, set[str]()
    for _ in range(rounds):
        for contestant in contestants:
            if contestant in absent:
                continue
            found = ours(program, contestant, folder) if contestant in OURS else rival(contestant, folder, seconds)
            if not found:
                absent.add(contestant)
            for mode, rate in found.items():
                rates.setdefault((contestant, mode), []).append(rate)
                print(f"{name:>8} {mode:>6} {contestant:>12} {rate:8.0f} images/CPU-s", flush=True)
    for mode in MODES:
        medians = {contestant: statistics.median(values) for (contestant, of), values in rates.items() if of == mode}
        best = max((value for contestant, value in medians.items() if contestant in RIVALS), default=None)
        for contestant, value in sorted(medians.items(), key=lambda item: -item[1]):
            ratio = "" if best is None else f"{value / best:6.2f} x the best rival"
            print(f"{name:>8} {mode:>6} {contestant:>12} {value:8.0f} median {ratio}", flush=True)


def names(known: tuple[str, ...]) -> Callable[[str], list[str]]:
    """Returns a comma-separated choice of them."""

    def parse(text: str) -> list[str]:
        chosen = text.split(",")
        if unknown := set(chosen) - set(known):
            raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: choose among {', '.join(known)}")
        return chosen

    return parse


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/bin/decode_bench")
    parser.add_argument("--sets", type=names(tuple(SETS)), default=list(SETS))
    parser.add_argument("--contestants", type=names(OURS + RIVALS), default=[*OURS, *RIVALS])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one round, one second each")
    parser.add_argument(
        "--prepare", action="store_true", help="installs the rivals and makes the images, and measures nothing"
    )
    options = parser.parse_args()
    prepare(options.program, options.sets)
    if options.prepare:
        return
    for name in options.sets:
        if not (DATA / name).exists():
            print(f"{name} is left out: its images are missing", file=sys.stderr)
            continue
        measure(
            options.program,
            name,
            options.contestants,
            1 if options.quick else options.rounds,
            1 if options.quick else 5,
        )


if __name__ == "__main__":
    main()
