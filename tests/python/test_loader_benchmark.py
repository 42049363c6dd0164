"""Tests that millrace.torch.benchmark names what limits a DataLoader, by costs that are given, and by loaders whose
bottleneck is built in."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import millrace  # noqa: E402
import millrace.torch  # noqa: E402
from millrace._loader_benchmark import Costs, Diagnosis  # noqa: E402
from torch.utils.data import DataLoader, Dataset, IterableDataset  # noqa: E402

BALANCED = Costs(
    first=0.1,
    wait=0.1,
    step=0.1,
    storage=0.0,
    transform=0.0,
    collate=0.001,
    send=0.001,
    receive=0.001,
    batch_bytes=1 << 20,
    workers=4,
    cores=8,
    epoch_batches=1000,
)


@pytest.mark.parametrize(
    "expected, costs",
    [
        ("step", {"wait": 0.001, "transform": 0.4}),
        ("storage", {"storage": 0.9, "transform": 0.2}),
        ("storage", {"storage": 0.9, "transform": 0.2, "workers": 0}),
        # So many workers wait for storage that all cores compute.
        ("transform", {"storage": 0.9, "transform": 0.2, "workers": 64, "wait": 0.025}),
        ("transform", {"transform": 0.9, "storage": 0.1, "workers": 8}),
        ("workers", {"transform": 0.9, "storage": 0.1}),
        ("workers", {"transform": 0.9, "workers": 0}),
        ("transform", {"transform": 0.9, "workers": 0, "cores": 1}),
        ("collate", {"transform": 0.1, "collate": 0.5}),
        ("transfer", {"transform": 0.1, "send": 0.1, "receive": 0.2}),
        ("startup", {"first": 9.0, "epoch_batches": 10, "transform": 0.1}),
        ("startup", {"first": 9.0, "epoch_batches": 10, "transform": 0.1, "wait": 0.0}),
        ("workers", {"first": 9.0, "epoch_batches": None, "transform": 0.1}),
        # A batch takes that long, whether it is the first one or not.
        ("storage", {"first": 9.0, "epoch_batches": 10, "storage": 9.0, "wait": 2.0}),
    ],
)
def test_the_verdict_follows_from_the_costs(expected: str, costs: dict[str, Any]) -> None:
    diagnosis = Diagnosis(dataclasses.replace(BALANCED, **costs), "batch_size=64, shuffle=True")
    assert diagnosis.bottleneck == expected
    shown = str(diagnosis)
    assert f"bottleneck: {expected}. {diagnosis.verdict}" in shown and "{" not in shown
    assert expected == "step" or "batch_size=64, shuffle=True" in shown


def busy(seconds: float) -> None:
    began = time.thread_time()
    while time.thread_time() - began < seconds:
        pass


class Slow(Dataset):  # type: ignore[type-arg]
    """Its costs are all of one kind, and ten times what a busy machine adds."""

    def __init__(
        self, asleep: float = 0.0, computing: float = 0.0, at_first: float = 0.0, length: int = 100_000
    ) -> None:
        self._asleep, self._computing, self._at_first, self._length = asleep, computing, at_first, length

    def __len__(self) -> int:
        return (
            self._length
        )  # so long that starting workers, even on a busy machine, is no matter, unless it is said otherwise

    def __getitem__(self, number: int) -> Any:
        if self._at_first:
            time.sleep(self._at_first)
            self._at_first = 0.0
        time.sleep(self._asleep)
        busy(self._computing)
        return torch.zeros(4)


class Stream(IterableDataset):  # type: ignore[type-arg]
    def __iter__(self) -> Any:
        for _ in range(40):
            time.sleep(0.02)
            yield torch.zeros(4)


def collate_slowly(samples: list[Any]) -> Any:
    busy(0.05)
    return torch.stack(samples)


def many_objects(samples: list[Any]) -> Any:
    return [{"number": n} for n in range(100_000)]


@pytest.mark.parametrize("workers", [0, 2])
def test_sleep_is_storage_and_loops_are_computing(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: range(2))
    found = {}
    loaders = {
        "asleep": DataLoader(Slow(asleep=0.02), batch_size=2, num_workers=workers),
        "stream": DataLoader(Stream(), batch_size=2, num_workers=workers),
        "computing": DataLoader(Slow(computing=0.02), batch_size=2, num_workers=workers),
        "collating": DataLoader(Slow(), batch_size=2, num_workers=workers, collate_fn=collate_slowly),
        "items": DataLoader(Slow(asleep=0.02), batch_size=None, num_workers=workers),
    }
    if workers:
        loaders["sending"] = DataLoader(Slow(), batch_size=2, num_workers=workers, collate_fn=many_objects)
    for name, loader in loaders.items():
        diagnosis = millrace.torch.benchmark(loader, batches=6)
        found[name] = diagnosis.bottleneck
    computing = "transform" if workers else "workers"
    expected = {
        "asleep": "storage",
        "stream": "storage",
        "computing": computing,
        "collating": "collate",
        "items": "storage",
    }
    assert found == {**expected, **({"sending": "transfer"} if workers else {})}


def test_a_long_step_needs_no_faster_loader() -> None:
    diagnosis = millrace.torch.benchmark(
        DataLoader(Slow(), batch_size=2), batches=6, step=lambda batch: time.sleep(0.5)
    )
    assert diagnosis.bottleneck == "step" and diagnosis.costs.step >= 0.5
    assert "next to nothing" in repr(diagnosis)


def test_a_long_start_is_told_apart() -> None:
    diagnosis = millrace.torch.benchmark(
        DataLoader(Slow(computing=0.001, at_first=1.0, length=40), batch_size=4), batches=6
    )
    assert diagnosis.bottleneck == "startup" and diagnosis.costs.first >= 1.0


def test_what_cannot_be_measured() -> None:
    with pytest.raises(millrace.InvalidArgumentError, match="gave 1 batches"):
        millrace.torch.benchmark(DataLoader(Slow(length=40), batch_size=40))
    with pytest.raises(TypeError, match="loader must be a torch DataLoader"):
        millrace.torch.benchmark([1, 2])  # type: ignore[arg-type]
