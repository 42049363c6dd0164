"""torchvision's `datasets` and `transforms`, or what stands for them where torchvision is not installed.

The stand-ins do what torchvision does to PIL images. cases_torchvision.py runs the same programs with torchvision itself.
"""

from __future__ import annotations

import importlib.util
import os
import random
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps

IS_TORCHVISION = importlib.util.find_spec("torchvision") is not None


class _ImageFolder(torch.utils.data.Dataset[Any]):
    def __init__(self, root: str, transform: Callable[[Any], Any] | None = None) -> None:
        self.classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
        if not self.classes:
            raise FileNotFoundError(f"Couldn't find any class folder in {root}.")
        self.class_to_idx = {name: number for number, name in enumerate(self.classes)}
        self.samples = [
            (os.path.join(root, name, file), number)
            for number, name in enumerate(self.classes)
            for file in sorted(os.listdir(os.path.join(root, name)))
        ]
        self.targets = [target for _, target in self.samples]
        self.transform = transform

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, number: int) -> Any:
        path, target = self.samples[number]
        with open(path, "rb") as file:
            image = Image.open(file).convert("RGB")
        return (self.transform(image) if self.transform else image), target


class _Compose:
    def __init__(self, transforms: list[Callable[[Any], Any]]) -> None:
        self.transforms = transforms

    def __call__(self, image: Any) -> Any:
        for transform in self.transforms:
            image = transform(image)
        return image


class _ToTensor:
    def __call__(self, image: Any) -> torch.Tensor:
        pixels = torch.from_numpy(np.array(image).reshape(image.height, image.width, -1))
        return pixels.permute(2, 0, 1).contiguous().float().div(255)


class _Normalize:
    def __init__(self, mean: Any, std: Any) -> None:
        self.mean, self.std = (torch.tensor(values).reshape(-1, 1, 1) for values in (mean, std))

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        return (image - self.mean) / self.std


class _Resize:
    def __init__(self, size: int) -> None:
        self.size = size

    def __call__(self, image: Any) -> Any:
        short, long = sorted(image.size)
        long = int(self.size * long / short)
        return image.resize((self.size, long) if image.width <= image.height else (long, self.size), Image.BILINEAR)


class _CenterCrop:
    def __init__(self, size: int) -> None:
        self.size = size

    def __call__(self, image: Any) -> Any:
        left, top = (int(round((length - self.size) / 2.0)) for length in image.size)
        return image.crop((left, top, left + self.size, top + self.size))


class _Grayscale:
    def __call__(self, image: Any) -> Any:
        return image.convert("L")


class _RandomHorizontalFlip:
    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def __call__(self, image: Any) -> Any:
        return ImageOps.mirror(image) if random.random() < self.p else image


class _RandomResizedCrop:
    """With a crop at the left and top: nothing depends on where it is."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __call__(self, image: Any) -> Any:
        part = random.uniform(0.3, 1.0)
        return image.crop((0, 0, int(image.width * part), int(image.height * part))).resize((self.size, self.size))


class _Lambda:
    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __call__(self, image: Any) -> Any:
        return self.function(image)


datasets: Any = types.SimpleNamespace(ImageFolder=_ImageFolder)
transforms: Any = types.SimpleNamespace(
    Compose=_Compose,
    ToTensor=_ToTensor,
    Normalize=_Normalize,
    Resize=_Resize,
    CenterCrop=_CenterCrop,
    Grayscale=_Grayscale,
    RandomHorizontalFlip=_RandomHorizontalFlip,
    RandomResizedCrop=_RandomResizedCrop,
    Lambda=_Lambda,
)

if IS_TORCHVISION:
    # The registry's build is for CUDA: its C++ operators do not load beside torch for the CPU. Their names are all that the import needs.
    operators = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
