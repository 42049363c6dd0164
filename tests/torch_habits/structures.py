"""Transforms whose samples have parts, and what repositories wrap around a loader, for programs_structures.py."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch


class Pair(NamedTuple):
    number: Any
    half: Any


class OwnImage(torch.Tensor):
    """Stands for torchvision's `tv_tensors.Image`, whose module is not torch either."""


OwnImage.__module__ = "torchvision.tv_tensors"


def two_views(sample: dict[str, Any], kind: type) -> dict[str, Any]:
    return {"views": kind([sample["image"], sample["image"].flip(-1)])}


def target(sample: dict[str, Any]) -> dict[str, Any]:
    number = int(sample["label"])
    box = {"corner": np.full(2, number, np.float32), "is_large": number > 3, "scale": np.float16(number)}
    return {"target": {"label": number, "area": number / 2, "name": f"n{number}", "box": box}}


def named(sample: dict[str, Any]) -> dict[str, Any]:
    number = int(sample["label"])
    return {"pair": Pair(torch.tensor(number), np.float32(number / 2))}


def of_own_class(sample: dict[str, Any]) -> dict[str, Any]:
    return {"image": sample["image"].as_subclass(OwnImage)}


class Prefetcher:
    """Holds the next batch, as the loop of apex does."""

    def __init__(self, loader: Any) -> None:
        self._batches = iter(loader)
        self._next = next(self._batches, None)

    def __iter__(self) -> Iterator[Any]:
        while (batch := self._next) is not None:
            self._next = next(self._batches, None)
            yield [array.to("cpu", non_blocking=True) for array in batch]


def from_thread(loader: Any) -> Iterator[Any]:
    filled: queue.Queue[Any] = queue.Queue(2)

    def fill() -> None:
        for batch in loader:
            filled.put(batch)
        filled.put(None)

    thread = threading.Thread(target=fill)
    thread.start()
    while (batch := filled.get()) is not None:
        yield batch
    thread.join()
