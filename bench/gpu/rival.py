"""Runs the rival of the benchmark: torch's DataLoader with workers and pin_memory over the same files, decoded by PIL,
normalized on the device."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from pathlib import Path

import numpy
import torch
from PIL import Image

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Files(torch.utils.data.Dataset):
    """Represents JPEGs in class folders: a random crop of 8 % to 100 %, resized, flipped half the time, u8 [H, W,
    C]."""

    def __init__(self, folder: Path, size: int) -> None:
        self.paths = sorted(folder.rglob("*.jpg"))
        self.classes = {name: number for number, name in enumerate(sorted({path.parent.name for path in self.paths}))}
        self.size = size

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        path = self.paths[number]
        image = Image.open(io.BytesIO(path.read_bytes())).convert("RGB")
        width, height = image.size
        area, ratio = width * height * random.uniform(0.08, 1), random.uniform(3 / 4, 4 / 3)
        w, h = min(width, max(1, round((area * ratio) ** 0.5))), min(height, max(1, round((area / ratio) ** 0.5)))
        left, top = random.randint(0, width - w), random.randint(0, height - h)
        image = image.resize((self.size, self.size), Image.Resampling.BILINEAR, box=(left, top, left + w, top + h))
        if random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return torch.from_numpy(numpy.array(image)), self.classes[path.parent.name]


def one_thread(_: int) -> None:
    torch.set_num_threads(1)


def batches(
    folder: Path, device: torch.device, batch: int, size: int, workers: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Without end: images f32 [B, C, H, W] with channels last in memory, and labels."""
    loader = torch.utils.data.DataLoader(
        Files(folder, size),
        batch,
        shuffle=True,
        drop_last=True,
        num_workers=workers,
        pin_memory=device.type == "cuda",
        persistent_workers=workers > 0,
        worker_init_fn=one_thread,
    )
    mean, std = (torch.tensor(values, device=device) * 255 for values in (MEAN, STD))
    while True:
        for images, labels in loader:
            images = images.to(device, non_blocking=True)
            yield ((images - mean) / std).permute(0, 3, 1, 2), labels.to(device, non_blocking=True)
