#!/usr/bin/env python3
"""Millrace's decode_bench and Pillow (draft, resize, crop) on the same files, one thread each, in turn.

    bench/pillow_decode_bench.py build/release/bin/decode_bench [--rounds 7] [--size 224] [--files DIR]
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

import numpy as np
from PIL import Image, __version__ as pillow_version


def center(path, size):
    """What torchvision's Resize and CenterCrop do with Pillow, after the draft that its users add for speed."""
    with Image.open(path) as image:
        image.draft("RGB", (size, size))
        image = image.convert("RGB")
        scale = size / min(image.size)
        resized = (max(size, int(image.width * scale)), max(size, int(image.height * scale)))
        image = image.resize(resized, Image.BILINEAR)
        left, top = (resized[0] - size) // 2, (resized[1] - size) // 2
        return np.asarray(image.crop((left, top, left + size, top + size)))


def whole(path, size):
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def rate(function, files, size):
    start = time.thread_time()
    for path in files:
        function(path, size)
    return len(files) / (time.thread_time() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--files", help="folder of .jpg files; default: synthetic photographs of 115 KB")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.files or scratch
        if not options.files:
            subprocess.run([options.program, "--save", folder], check=True)
        files = sorted(pathlib.Path(folder).glob("*.jpg"))
        rates = {}
        for _ in range(options.rounds):
            command = [options.program, "--files", folder, "--rounds", "1", "--size", str(options.size), "--json"]
            result = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
            result["pillow_center"] = rate(center, files, options.size)
            result["pillow_full"] = rate(whole, files, options.size)
            for name, value in result.items():
                rates.setdefault(name, []).append(value)
    print(f"{len(files)} JPEGs to {options.size} x {options.size}, Pillow {pillow_version}")
    print(f"images a CPU-second, median of {options.rounds} rounds")
    rival = statistics.median(rates["pillow_center"])
    for name, values in rates.items():
        value = statistics.median(values)
        print(f"{name:>14} {value:8.0f}  {value / rival:5.2f} x pillow_center")


if __name__ == "__main__":
    main()
