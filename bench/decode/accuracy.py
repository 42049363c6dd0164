#!/usr/bin/env python3
"""A ResNet-18 on Fashion-MNIST, once with millrace.transforms and once with the same transforms in Pillow and numpy: do both learn alike?

    PYTHONPATH=build/release/python .venv/bin/python bench/decode/accuracy.py [--quick] [--seeds 5] [--epochs 5] [--minutes 15]

The images are packed as PNGs (Debian's package dataset-fashion-mnist, which is fetched and not installed if it is missing). The network has the layers of
ResNet-18 and an eighth of its channels. Both ways train it from the same weights on the same order of samples; only the way that makes the pixels differs. Prints
the accuracy on the test images, evaluated by Millrace for both, of each seed, then means and the difference beside its standard error. No seed is begun that
would not end within the minutes.
"""

from __future__ import annotations

import argparse
import gzip
import io
import math
import statistics
import struct
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import millrace
import numpy as np
import torch
from millrace import transforms as T
from PIL import Image, ImageEnhance
from torch import nn

PACKAGE = "dataset-fashion-mnist"
DATA = Path("usr/share/datasets/fashion-mnist")
SIDE, MEAN, STD = 24, 0.286, 0.353
Batch = tuple[torch.Tensor, torch.Tensor]


def data(scratch: Path) -> Path:
    """Returns the folder of Debian's package."""
    if (installed := Path("/") / DATA).exists():
        return installed
    subprocess.run(["apt-get", "download", "-qq", PACKAGE], cwd=scratch, check=True)
    subprocess.run(["dpkg-deb", "-x", *scratch.glob("*.deb"), scratch], check=True)
    return scratch / DATA


def pack(source: Path, part: str, folder: Path, count: int) -> str:
    """Writes the images as a tar of PNGs with classes."""
    with gzip.open(source / f"{part}-images-idx3-ubyte.gz") as file:
        _, total, height, width = struct.unpack(">IIII", file.read(16))
        pixels = np.frombuffer(file.read(), np.uint8).reshape(total, height, width)
    with gzip.open(source / f"{part}-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read()[8:], np.uint8)
    folder.mkdir()
    with tarfile.open(folder / "data.tar", "w") as archive:
        for number in range(min(count, total)):
            out = io.BytesIO()
            Image.fromarray(pixels[number]).save(out, "png")
            for name, content in (("png", out.getvalue()), ("cls", str(labels[number]).encode())):
                member = tarfile.TarInfo(f"{number:06}.{name}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return str(folder)


def crop_of(rng: np.random.Generator, width: int, height: int) -> tuple[int, int, int, int]:
    for _ in range(10):
        area = width * height * rng.uniform(0.5, 1.0)
        ratio = math.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            left, top = int(rng.integers(0, width - w + 1)), int(rng.integers(0, height - h + 1))
            return left, top, left + w, top + h
    return 0, 0, width, height


def in_pillow(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Applies RandomResizedCrop, flip, ColorJitter, Normalize and RandomErasing by torchvision's formulas."""
    image = Image.open(io.BytesIO(sample["png"]))
    image = image.crop(crop_of(rng, *image.size)).resize((SIDE, SIDE), Image.BILINEAR)
    if rng.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    changes = [ImageEnhance.Brightness, ImageEnhance.Contrast]
    factors = rng.uniform(0.7, 1.3, 2)
    for which in rng.permutation(2):
        image = changes[which](image).enhance(factors[which])
    pixels = (np.asarray(image, np.float32) / 255 - MEAN) / STD
    if rng.random() < 0.25:
        for _ in range(10):
            area = SIDE * SIDE * rng.uniform(0.02, 0.2)
            ratio = math.exp(rng.uniform(math.log(0.3), math.log(3.3)))
            h, w = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if h < SIDE and w < SIDE:
                top, left = int(rng.integers(0, SIDE - h + 1)), int(rng.integers(0, SIDE - w + 1))
                pixels = pixels.copy()
                pixels[top : top + h, left : left + w] = 0
                break
    return {"image": pixels[None], "label": sample["label"]}


def batches(uri: str, way: str, seed: int, epochs: int) -> Iterator[list[Batch]]:
    """Epochs."""
    usual: dict[str, Any] = {"batch_size": 128, "seed": seed, "epochs": epochs, "last": "drop", "output": "torch"}
    if way == "pillow":
        loader = millrace.Loader(
            uri, fields={"png": millrace.Bytes("png"), "label": millrace.Label()}, transform=in_pillow, **usual
        )
    else:
        chain: list[Any] = [
            T.RandomResizedCrop(SIDE, scale=(0.5, 1.0)),
            T.RandomHorizontalFlip(),
            T.ColorJitter(0.3, 0.3),
            T.Normalize(MEAN, STD),
        ]
        chain.append(T.RandomErasing(0.25, scale=(0.02, 0.2)))
        if way == "evaluation":
            chain = [T.Resize(SIDE), T.CenterCrop(SIDE), T.Normalize(MEAN, STD)]
            usual |= {"shuffle": False, "last": "pad"}
        image = millrace.Image("png", channels=1, layout="nchw", transforms=chain)
        loader = millrace.Loader(uri, fields={"image": image, "label": millrace.Label()}, **usual)
    for _ in range(epochs):
        yield ((batch["image"].clone(), batch["label"].clone()) for batch in loader)  # type: ignore[misc]


class Block(nn.Module):
    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, 1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, 1, 1, bias=False),
            nn.BatchNorm2d(after),
        )
        self.beside = nn.Conv2d(before, after, 1, stride, bias=False) if before != after else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.beside(x))


def model() -> nn.Module:
    widths = [8, 8, 16, 32, 64]
    layers: list[nn.Module] = [nn.Conv2d(1, widths[0], 3, 1, 1, bias=False), nn.BatchNorm2d(widths[0]), nn.ReLU()]
    for stage, (before, after) in enumerate(zip(widths, widths[1:], strict=False)):
        layers += [Block(before, after, 1 if stage == 0 else 2), Block(after, after, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 10))


def accuracy(train: str, test: str, way: str, seed: int, epochs: int) -> float:
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    net = model()
    optimiser = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4, nesterov=True)
    for epoch, of_epoch in enumerate(batches(train, way, seed, epochs)):
        for group in optimiser.param_groups:
            group["lr"] = 0.05 * 0.5 * (1 + math.cos(math.pi * epoch / epochs))
        for images, labels in of_epoch:
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(images), labels).backward()
            optimiser.step()
    net.eval()
    right = total = 0
    with torch.no_grad():
        for of_epoch in batches(test, "evaluation", 0, 1):
            for images, labels in of_epoch:
                real = labels >= 0
                right += int((net(images).argmax(1) == labels)[real].sum())
                total += int(real.sum())
    return right / total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="2,000 images, one epoch, one seed")
    parser.add_argument("--images", type=int, default=12_000, help="of the 60,000 for training")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=15)
    options = parser.parse_args()
    if options.quick:
        options.images, options.epochs, options.seeds = 2000, 1, 1
    began = time.monotonic()
    found: dict[str, list[float]] = {"millrace": [], "pillow": []}
    # These are both ways side by side, with one thread each for the network.
    with tempfile.TemporaryDirectory() as name, ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        source = data(Path(name))
        train = pack(source, "train", Path(name) / "train", options.images)
        test = pack(source, "t10k", Path(name) / "test", 2000 if options.quick else 10_000)
        for seed in range(options.seeds):
            spent = time.monotonic() - began
            if seed > 0 and spent * (seed + 1) / seed > 60 * options.minutes:
                print(f"seed {seed} and those after it are left out: they would end after {options.minutes:g} minutes")
                break
            runs = {pool.submit(accuracy, train, test, way, seed, options.epochs): way for way in found}
            for run in as_completed(runs):
                found[runs[run]].append(100 * run.result())
                print(
                    f"seed {seed} {runs[run]:>10} {found[runs[run]][-1]:6.2f} %  after {time.monotonic() - began:4.0f} s",
                    flush=True,
                )
    differences = [ours - theirs for ours, theirs in zip(found["millrace"], found["pillow"], strict=True)]
    error = statistics.stdev(differences) / math.sqrt(len(differences)) if len(differences) > 1 else math.nan
    means = {way: statistics.mean(accuracies) for way, accuracies in found.items()}
    print(f"{len(differences)} seeds: millrace {means['millrace']:.2f} %, pillow {means['pillow']:.2f} %")
    print(f"difference {statistics.mean(differences):+.2f}, standard error {error:.2f} percentage points")


if __name__ == "__main__":
    main()
