"""Has functions for processes, which import them from here."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from typing import Any

import numpy as np


def shifted(sample: dict[str, Any]) -> dict[str, Any]:
    sample["image"] = sample["image"].astype(np.int16) + 1
    return {**sample, "double": 2 * sample["label"], "name": sample["key"]}


def drawing(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {"draw": rng.random(), "wait": rng.integers(0, 1000, 3), "pid": os.getpid()}


def drawing_from_globals(sample: dict[str, Any]) -> dict[str, Any]:
    import torch

    return {"draws": np.array([random.random(), np.random.random(), float(torch.rand(()))])}


def of_many_kinds(sample: dict[str, Any]) -> dict[str, Any]:
    n = sample["label"]
    image = sample["image"]
    image += 1
    return {
        "same": image,
        "turned": image.transpose(2, 0, 1),
        "piece": image[2:5, ::2],
        "float": image / 7,
        "empty": np.empty((0, 3)),
        "scalar": np.float16(n),
        "record": np.array([(n, 2.5)], dtype=[("a", "i4"), ("b", "f8")]),
        "date": np.array(["2024-01-01"], dtype="datetime64[D]") + n,
        "objects": np.array([None, "x"], dtype=object),
        "long": np.zeros((n + 1, 2), np.int32),
        "nested": {"words": ["a", {"b": image[0]}], "bytes": b"x" * 100_000, "n": n},
        "text": f"{n}",
    }


def of_tensors(sample: dict[str, Any]) -> dict[str, Any]:
    import torch

    assert isinstance(sample["image"], torch.Tensor) and isinstance(sample["label"], int)
    image = sample["image"].permute(2, 0, 1)
    return {
        "half": (image / 255).to(torch.bfloat16),
        "image": sample["image"].add_(1),
        "turned": image,
        "label": sample["label"],
    }


def of_pillow(sample: dict[str, Any]) -> dict[str, Any]:
    from PIL import Image

    return {"image": Image.fromarray(sample["image"]).transpose(Image.Transpose.ROTATE_90)}


class Keeping:
    """Keeps views of what it was given, which stay as they were."""

    def __init__(self) -> None:
        self.kept: list[tuple[Any, Any]] = []

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        self.kept.append((sample["image"], sample["image"].copy()))
        return {"intact": all(np.array_equal(view, copy) for view, copy in self.kept), "kept": len(self.kept)}


class KeepingTheLast:
    """Keeps what it was given until it is called again."""

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        self.last = sample
        return {"n": 1}


class Failing:
    def __init__(self, keys: list[str], how: str) -> None:
        self.keys = keys
        self.how = how

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        if sample["key"] in self.keys:
            getattr(self, self.how)()
        return sample

    def raises(self) -> None:
        try:
            raise KeyError("no such thing")
        except KeyError as error:
            raise OSError(5, "wrong") from error

    def raises_odd(self) -> None:
        raise Odd(1, 2)

    def killed(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def sleeps(self) -> None:
        time.sleep(1000)

    def exits(self) -> None:
        os._exit(3)

    def quits(self) -> None:
        sys.exit(4)


class Odd(Exception):
    """Cannot be unpickled."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def unsendable(sample: dict[str, Any]) -> dict[str, Any]:
    return {"function": lambda: None}


def endless(sample: dict[str, Any]) -> dict[str, Any]:
    while True:
        time.sleep(60)


def slow(sample: dict[str, Any]) -> dict[str, Any]:
    time.sleep(0.002)
    return {"n": 1}


class Unloadable:
    def __reduce__(self) -> Any:
        return int, ("no number",)

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        return sample


def former_key(sample: dict[str, Any]) -> dict[str, Any]:
    return {"name": sample["__key__"]}


def former_key_returned(sample: dict[str, Any]) -> dict[str, Any]:
    return {"label": sample["label"], "__key__": sample["key"]}


def changed_key(sample: dict[str, Any]) -> dict[str, Any]:
    sample["key"] = "other"
    return sample


def same_key(sample: dict[str, Any]) -> dict[str, Any]:
    return {**sample, "name": sample["key"]}
