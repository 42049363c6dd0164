"""Positions of loaders, as strings (docs/plan.md#the-position)."""

from __future__ import annotations


def is_staged(position: str) -> bool:
    """Returns True if the position comes from a loader whose first epoch is staged."""
    return position.startswith("mr3-")


def epoch_of(position: str) -> int:
    return int(position.split("-")[1])


def consumed_of(position: str) -> int:
    """Returns the samples of the epoch that all ranks have received, including those of earlier stages."""
    _, _, consumed, *stage, _ = position.split("-")
    return int(consumed) + (int(stage[1]) if stage else 0)


def start_of_epoch(position: str, epoch: int) -> str:
    """Returns the position at the start of an epoch, for the loader to which ``position`` belongs."""
    version, *numbers, fingerprint = position.split("-")
    return "-".join([version, str(epoch), *["0"] * (len(numbers) - 1), fingerprint])
