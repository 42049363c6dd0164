"""Positions of loaders, as strings (docs/plan.md#the-position)."""

from __future__ import annotations


def is_staged(position: str) -> bool:
    """True if it is one of a loader whose first epoch is staged."""
    return position.startswith("mr3-")


def epoch_of(position: str) -> int:
    return int(position.split("-")[1])


def consumed_of(position: str) -> int:
    """Samples of the epoch that all ranks have received, those of the stages before included."""
    _, _, consumed, *stage, _ = position.split("-")
    return int(consumed) + (int(stage[1]) if stage else 0)


def start_of_epoch(position: str, epoch: int) -> str:
    """The position at the start of that epoch, of the loader that ``position`` belongs to."""
    version, *numbers, fingerprint = position.split("-")
    return "-".join([version, str(epoch), *["0"] * (len(numbers) - 1), fingerprint])
