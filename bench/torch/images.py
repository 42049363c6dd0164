"""Does the work of all contestants on a JPEG: a random resized crop of 224 x 224 and a flip, normalized, float32,
channels first.

Pillow-based ones share `load`; Millrace and SPDL do the same natively. `distort` is the transform of the scenario with processes.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import numpy
import torch
from PIL import Image, ImageFilter

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src/diagnose/rivals"))

import rival_images

SIZE = 224
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
_SCALE = torch.tensor([1 / (255 * std) for std in STD])
_SHIFT = torch.tensor([-mean / std for mean, std in zip(MEAN, STD)])


def cropped(data: bytes) -> Image.Image:
    return rival_images.cropped(data, SIZE)


def normalised(pixels: torch.Tensor) -> torch.Tensor:
    """Converts u8 [..., H, W, 3] to f32 [..., 3, H, W], in few passes."""
    planes = pixels.movedim(-1, -3).contiguous().to(torch.float32)
    return planes.mul_(_SCALE[:, None, None]).add_(_SHIFT[:, None, None])


def load(data: bytes) -> torch.Tensor:
    return normalised(torch.from_numpy(numpy.array(cropped(data))))


def distort(image: Image.Image) -> Image.Image:
    """Simulates a transform of pillow that takes about 2 ms a sample on one core of a server."""
    return image.filter(ImageFilter.GaussianBlur(random.uniform(1.0, 2.0)))


def load_distorted(data: bytes) -> torch.Tensor:
    return normalised(torch.from_numpy(numpy.array(distort(cropped(data)))))


def distort_sample(sample: dict[str, Any]) -> dict[str, Any]:
    """Returns the same of a sample that Millrace has decoded and cropped."""
    image = Image.fromarray(sample["image"].numpy())
    return {"image": normalised(torch.from_numpy(numpy.array(distort(image))))}
