"""Checks for versions of torch that load files safely. Imports torch."""

from __future__ import annotations

import torch

from ._errors import InvalidArgumentError


def require_safe_loading(source: str) -> None:
    """Raises InvalidArgumentError if torch.load runs code of a file in spite of ``weights_only=True`` (CVE-2025-32434)."""
    major, minor = (int(part) for part in torch.__version__.split(".")[:2])
    if (major, minor) < (2, 6):
        raise InvalidArgumentError(
            f"{source}: torch {torch.__version__} runs code that a file holds, also when it reads weights only; install torch 2.6 or newer, "
            "or give allow_pickle=True (--allow-pickle) if you trust the file"
        )
