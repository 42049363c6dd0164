"""The states of random number generators, to be kept in checkpoints."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from . import _tensors
from ._errors import InvalidArgumentError

__all__ = ["rng_state", "set_rng_state"]


def rng_state() -> dict[str, Any]:
    """Those of Python's ``random``, of numpy's old generator, and of torch, if it was imported, on the host and all CUDA devices.

    They differ between ranks, as a rule: ``ckpt.save(step, state, per_rank={"rng": millrace.rng_state()})``. A loader of
    Millrace needs none: its randomness follows from its seed and its position.
    """
    state: dict[str, Any] = {"python": random.getstate(), "numpy": np.random.get_state()}
    torch = _tensors.torch_if_imported()
    if torch is not None:
        state["torch"] = torch.get_rng_state()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def set_rng_state(state: dict[str, Any]) -> None:
    """Sets what :func:`rng_state` returned, also after it was saved and loaded. States of CUDA are left out if the machine has another number of devices.

    Raises:
        InvalidArgumentError: It is no such state.
    """
    if not isinstance(state, dict) or not {"python", "numpy"} <= {*state}:
        raise InvalidArgumentError("state is not what millrace.rng_state() returns")
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    if "torch" in state:
        import torch

        torch.set_rng_state(state["torch"].cpu())
        if "cuda" in state and torch.cuda.is_available() and torch.cuda.device_count() == len(state["cuda"]):
            torch.cuda.set_rng_state_all([one.cpu() for one in state["cuda"]])
