"""A transform that processes can import, since it is at the top of a small module."""

from __future__ import annotations

from typing import Any


def shout(sample: dict[str, Any]) -> dict[str, Any]:
    sample["word"] = f"PHOTO {sample['key']}!"
    return sample


class Shout:
    """A data set for torch that applies it."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, number: int) -> dict[str, Any]:
        return shout(self.dataset[number])
