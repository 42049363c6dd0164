"""Tests ``last="short"``: the last batch of an epoch is as torch's DataLoader and DistributedSampler have it without
drop_last."""

from __future__ import annotations

import copy
from typing import Any

import millrace
import numpy as np
import pytest
import torch
from millrace._device import Device
from millrace.transforms import MixUp
from support import AT_SIZE, Samples, write_raw
from token_corpus import write_corpus
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def short(data: Any, **options: Any) -> millrace.Loader:
    usual: dict[str, Any] = {
        "batch_size": 8,
        "shuffle": "none",
        "epochs": 1,
        "last": "short",
        "output": "torch",
        "raw": True,
    }
    return millrace.Loader(data, **{**usual, **AT_SIZE, **options})


def columns(samples: Samples) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns images and labels, in the order of the index."""
    keys = sorted(samples.pixels)
    return torch.from_numpy(np.stack([samples.pixels[key] for key in keys])), torch.tensor(
        [samples.labels[key] for key in keys]
    )


@pytest.mark.parametrize("world", [1, 2, 3, 7, 50])
def test_every_rank_gets_what_torch_gives_it(raw: Samples, world: int) -> None:
    """This also holds if there are fewer samples than ranks."""
    images, labels = columns(raw)
    padded = short(raw.uri, last="pad")
    for rank in range(world):
        sampler: Any = DistributedSampler(range(len(raw)), num_replicas=world, rank=rank, shuffle=False)
        theirs = list(DataLoader(TensorDataset(images, labels), batch_size=8, sampler=sampler))
        positions = list(range(rank, rank + len(sampler) * world, world))
        with short(raw.uri, rank=rank, world=world) as loader:
            ours = list(loader)
            assert len(ours) == len(loader) == len(theirs)
            for number, ((image, label), batch) in enumerate(zip(theirs, ours)):
                assert torch.equal(batch["image"], image) and torch.equal(batch["label"], label)
                at = positions[number * 8 : number * 8 + 8]
                assert batch["valid"].tolist() == [position < len(raw) for position in at]
                assert len(batch["key"]) == len(at) and all(batch["key"])
            assert loader.report()["samples"] == len([position for position in positions if position < len(raw)])
            assert [shape["image"].shape[0] for shape in loader.shapes()] == [8]
            assert loader.state_dict()["position"] == f"mr2-1-0-{padded.state_dict()['position'].split('-')[-1]}"


class Network(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(3, dtype=torch.float64)
        self.last = torch.nn.Linear(3, 3, dtype=torch.float64)

    def forward(self, image: torch.Tensor) -> Any:
        return self.last(self.norm(image.double().mean(dim=(1, 2)) / 255))


def trained(start: Network, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the means that BatchNorm has gathered, and the loss of the trained network on the same batches."""
    network = copy.deepcopy(start)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.5)
    for image, label in batches:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(image), label).backward()
        optimizer.step()
    network.eval()
    with torch.no_grad():
        losses = [torch.nn.functional.cross_entropy(network(image), label) for image, label in batches]
    return network.norm.running_mean.clone(), torch.stack(losses).mean()


def test_batch_norm_sees_samples_only(raw: Samples) -> None:
    torch.manual_seed(1)
    start = Network()
    images, labels = columns(raw)
    wanted = trained(start, list(DataLoader(TensorDataset(images, labels), batch_size=8)))
    ours = trained(start, [(batch["image"], batch["label"]) for batch in short(raw.uri)])
    assert all(torch.allclose(one, other, rtol=1e-12, atol=0) for one, other in zip(ours, wanted))
    padded = trained(start, [(batch["image"], batch["label"]) for batch in short(raw.uri, last="pad")])
    assert not torch.allclose(padded[0], wanted[0])  # else this test says nothing


@pytest.mark.parametrize("output", ["numpy", "torch"])
def test_functions_get_the_repeats(raw: Samples, output: str) -> None:
    """The second of two ranks has the sample at position 0 in place of position 45."""
    first = sorted(raw.pixels)[0]

    def twice(sample: dict[str, Any]) -> dict[str, Any]:
        return {"sum": int(sample["image"].sum()) * 2, "name": sample["key"], "label": sample["label"]}

    options = {"rank": 1, "world": 2, "output": output}
    *_, batch = short(raw.uri, transform=twice, **options)
    assert batch["valid"].tolist() == [True] * 6 + [False]
    assert [int(one) for one in batch["sum"]] == [int(raw.pixels[key].sum()) * 2 for key in batch["name"]]
    assert batch["name"][-1] == batch["key"][-1] == first and int(batch["label"][-1]) == raw.labels[first]

    *_, listed = short(raw.uri, transform=twice, collate_fn=list, **options)
    assert [row["key"] for row in listed] == batch["name"]

    *_, mixed = short(raw.uri, batch_transform=MixUp(num_classes=3), **options)
    np.testing.assert_allclose(np.asarray(mixed["label"]).sum(axis=1), np.ones(7), rtol=1e-6)


def test_a_repeat_that_is_damaged_is_padding(tmp_path: Any) -> None:
    samples = write_raw(tmp_path, count=9)
    (tmp_path / f"{sorted(samples.pixels)[0]}.png").write_bytes(b"\x89PNG\r\n\x1a\nno image")

    def named(sample: dict[str, Any]) -> dict[str, Any]:
        return {"name": sample["key"]}

    *_, batch = short(samples.uri, rank=1, world=2, bad_samples="mask", transform=named)
    assert batch["valid"].tolist() == [True] * 4 + [False]
    assert batch["name"][-1] == batch["key"][-1] == "" and all(batch["name"][:-1])


def test_shapes_that_are_fixed_stay(raw: Samples, tmp_path: Any) -> None:
    class Compiled(Device):  # as those of xla and jax
        fixed_shapes = True

    with pytest.raises(millrace.InvalidArgumentError, match="last is 'short'.*keep their shapes.*'pad'"):
        short(raw.uri, device=Compiled())
    corpus = write_corpus(tmp_path / "corpus", [5, 30, 17])
    with pytest.raises(millrace.InvalidArgumentError, match="the last batch cannot be short; use pad, drop or wrap"):
        millrace.Loader(corpus.uri, tokens=millrace.Tokens(64, "pack"), last="short")
