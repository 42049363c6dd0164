"""This module has the states of random number generators, for checkpoints."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from . import _tensors
from ._errors import InvalidArgumentError

__all__ = ["rng_state", "set_rng_state"]


def rng_state() -> dict[str, Any]:
    """Returns the states of the random number generators of this process.

        ckpt.save(step, state, per_rank={"rng": millrace.rng_state()})

    The generators are Python's ``random``, numpy's global generator, and those of torch on the host and on all CUDA devices, if torch
    was imported. Their states usually differ between ranks. A loader of Millrace does not need them, since its randomness follows from
    its seed and its position.
    """
    state: dict[str, Any] = {"python": random.getstate(), "numpy": np.random.get_state()}
    torch = _tensors.torch_if_imported()
    if torch is not None:
        state["torch"] = torch.get_rng_state()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def set_rng_state(state: dict[str, Any]) -> None:
    """Sets the states that :func:`rng_state` returned, also after they were saved and loaded.

        millrace.set_rng_state(ckpt.load_per_rank()["rng"])

    If the machine has another number of CUDA devices, their states are not set.

    Args:
        state: The result of :func:`rng_state`.

    Raises:
        InvalidArgumentError: ``state`` is not a result of :func:`rng_state`.
    """
    if not isinstance(state, dict) or not {"python", "numpy"} <= {*state}:
        raise InvalidArgumentError("state is not a result of millrace.rng_state()")
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    if "torch" in state:
        import torch

        torch.set_rng_state(state["torch"].cpu())
        if "cuda" in state and torch.cuda.is_available() and torch.cuda.device_count() == len(state["cuda"]):
            torch.cuda.set_rng_state_all([one.cpu() for one in state["cuda"]])
