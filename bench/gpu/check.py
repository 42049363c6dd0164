#!/usr/bin/env python3
"""Checks the batches that arrive on a GPU. The tests of the repository use a fake of CUDA, and this uses the real one.

    bench/gpu/check.py                    2,000 synthetic images of 115 KB, made once
    bench/gpu/check.py --data /data/train JPEGs in class folders

It compares every batch of an epoch that Loader(device="cuda") delivers with that of the host, beside work that keeps the GPU busy. Pixels of u8 are compared bit by
bit, f32 within the limits of docs/devices.md, and decode="device" within the tolerance of two decoders. It exits with 1 at the first difference.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import millrace
import torch
from run import MEAN, STD, make_images  # which finds the package of the build

OPTIONS: dict[str, Any] = {
    "batch_size": 64,
    "size": 224,
    "seed": 3,
    "epochs": 1,
    "output": "torch",
    "memory": "1GiB",
    "digest": "raw",
}


def busy(side: torch.Tensor) -> None:
    """Work in the program's stream, so that copies overlap with it."""
    for _ in range(20):
        torch.mm(side, side)


def compare(
    name: str, url: str, most: float, on_average: float, decode: str = "host", layout: str = "nhwc", **options: Any
) -> None:
    """Compares image by image; `most` and `on_average`: how far pixels may be off, in steps of u8."""
    side = torch.randn(4096, 4096, device="cuda")
    step = 1 / 255 / min(STD) if "normalize" in options else 1.0
    worst = total = count = 0.0
    kind = {} if "normalize" in options else {"dtype": "u8"}
    options = {"augment": True, "image": millrace.Image(layout=layout, **kind), **OPTIONS, **options}
    with (
        millrace.Loader(url, **options) as host,
        millrace.Loader(url, device=millrace.Transfer("cuda", decode=decode), **options) as device,
    ):
        kept: list[tuple[torch.Tensor, torch.Tensor]] = []
        for wanted, got in zip(host, device, strict=True):
            busy(side)
            assert (
                got["image"].device.type == "cuda"
                and got["image"].dtype == wanted["image"].dtype
                and got["image"].shape == wanted["image"].shape
            )
            assert got["key"] == wanted["key"]
            for other in ("label", "valid", "sample"):
                assert torch.equal(got[other].cpu(), wanted[other]), other
            kept.append((got["image"], wanted["image"].clone()))
            if len(kept) < 6:  # a batch stays what it was while others are made
                continue
            pixels, expected = kept.pop(0)
            difference = (pixels.float().cpu() - expected.float()).abs() / step
            worst, total, count = max(worst, float(difference.max())), total + float(difference.mean()), count + 1
        assert host.report()["digest"] == device.report()["digest"]
    print(f"{name:24} pixels off by {worst:7.4f} at most, {total / count:7.4f} on average (steps of u8)", flush=True)
    if worst > most or total / count > on_average:
        sys.exit(f"{name}: more than {most} at most, {on_average} on average")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a folder of JPEGs in class folders [synthetic images]")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("torch sees no GPU here")
    url = str(options.data or make_images(2000, 115))
    normalised = {"normalize": (MEAN, STD)}
    compare("u8", url, 0, 0)
    compare("f32", url, 0.01, 0.001, **normalised)
    compare("decode on the device", url, 64, 2, decode="device")
    compare("the same, f32", url, 64, 2, decode="device", **normalised)
    compare("the centre, NCHW", url, 64, 2, decode="device", augment=False, layout="nchw")
    print(f"all the same on {torch.cuda.get_device_name()}")


if __name__ == "__main__":
    main()
