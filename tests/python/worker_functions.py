"""Has functions of samples that workers run, for test_service_functions.py."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

APART = "MILLRACE_TEST_APART"  # set in workers: where a function runs


def noisy(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    image = sample["image"].astype(np.float32)
    image += rng.normal(size=image.shape).astype(np.float32)
    return {"image": image, "noise": float(rng.random()), "label": sample["label"], "name": "of " + sample["key"]}


def of_all_kinds(sample: dict[str, Any]) -> dict[str, Any]:
    image = sample["image"]
    return {
        "view": image[::2, ::-1],
        "number": np.float32(image[0, 0, 0]),
        "whole": int(image[0, 0, 1]) * 1000,
        "flag": bool(image[0, 0, 2] > 127),
        "raw": image.tobytes()[:5],
        "none": None,
        "empty": np.zeros((0, 3), np.int64),
        "nested": {"list": [1, 2.5, "ü"], "tuple": (image[0], [None]), "inf": float("inf"), "large": 2**70},
        "ragged": np.arange(int(image[0, 0, 0]) % 5),
    }


def of_tensors(sample: dict[str, Any]) -> dict[str, Any]:
    import torch

    image = sample["image"]
    assert isinstance(image, torch.Tensor)
    return {"image": image.permute(2, 0, 1).to(torch.bfloat16), "label": sample["label"], "empty": torch.zeros(0, 2)}


def of_tokens(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {"tokens": sample["tokens"] + rng.integers(0, 2, sample["tokens"].shape)}


def raises_at_17(sample: dict[str, Any]) -> dict[str, Any]:
    if sample["key"] == "0017":
        raise LookupError("no such thing as 17")
    return {"label": sample["label"]}


def not_sendable(sample: dict[str, Any]) -> dict[str, Any]:
    return {"what": object()} if APART in os.environ else {"what": 1}


def large(sample: dict[str, Any]) -> dict[str, Any]:
    return {"zeros": np.zeros(3_000_000, np.uint8)}


def where(sample: dict[str, Any]) -> dict[str, Any]:
    return {"apart": os.environ.get(APART, "")}
