"""Is a rank of a training that reads through one of Millrace's interfaces, and writes down what it had and where it is,
batch by batch.

Imports torch only if the interface needs it: most of the tests' time is that of starting.
"""

from __future__ import annotations

import pickle
import sys
import time
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO

import millrace
import numpy as np

EPOCHS, SEED = 2, 5
LOADERS = ["loader", "threads", "processes-fork", "processes-spawn"]
DATA_LOADERS = ["map-fork", "map-spawn", "iterable-fork", "iterable-spawn"]

Had = list[tuple[int, str, int]]
"""Epochs, keys, and checksums of what came with them."""


def turned(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Depends on (seed, epoch, sample)."""
    return {**sample, "image": np.roll(sample["image"], int(rng.integers(0, 1000)))}


def of_loader(options: dict[str, Any]) -> Iterator[tuple[Any, Had]]:
    how, _, context = options["interface"].partition("-")
    transform = {
        "loader": None,
        "threads": millrace.Map(turned, threads=2),
        "processes": millrace.Map(turned, processes=2, context=context),
    }[how]
    ranks = {name: options[name] for name in ("rank", "world")}
    loader = millrace.Loader(
        options["uri"], batch_size=options["batch"], size=8, augment=True, seed=SEED, epochs=EPOCHS, digest="raw", output="numpy",
        memory="16MiB", transform=transform, **ranks,
    )  # fmt: skip
    if options["state"] is not None:
        loader.load_state_dict(options["state"])
    while loader.epoch < EPOCHS:
        epoch = loader.epoch
        for batch in loader:
            rows = [row for row in range(len(batch["key"])) if batch["valid"][row]]
            yield (
                loader.state_dict(),
                [(epoch, batch["key"][row], zlib.crc32(batch["image"][row].tobytes())) for row in rows],
            )


def as_they_are(samples: list[Any]) -> list[Any]:
    return samples


def of_data_loader(options: dict[str, Any]) -> Iterator[tuple[Any, Had]]:
    import millrace.torch
    from torchdata.stateful_dataloader import StatefulDataLoader

    style, _, context = options["interface"].partition("-")
    ranks = {name: options[name] for name in ("rank", "world")}
    state = options["state"] or {"epoch": 0, "loader": None}
    workers = {"num_workers": 2, "multiprocessing_context": context}
    for epoch in range(state["epoch"], EPOCHS):
        dataset: Any
        if style == "map":
            sampler = millrace.torch.Sampler(
                millrace.Plan(millrace.Dataset(options["uri"]), seed=SEED, epoch=epoch), **ranks
            )
            dataset, order = millrace.torch.MapDataset(options["uri"]), {"sampler": sampler}
        else:
            dataset, order = millrace.torch.IterableDataset(options["uri"], seed=SEED, **ranks), {}
            dataset.set_epoch(epoch)
        loader = StatefulDataLoader(dataset, batch_size=options["batch"], collate_fn=as_they_are, **workers, **order)
        if epoch == state["epoch"] and state["loader"] is not None:
            loader.load_state_dict(state["loader"])
        for samples in loader:
            yield (
                {"epoch": epoch, "loader": loader.state_dict()},
                [(epoch, each["key"], zlib.crc32(each["png"])) for each in samples],
            )


def write(out: BinaryIO, record: Any) -> None:
    data = pickle.dumps(record)
    out.write(len(data).to_bytes(4, "little") + data)
    out.flush()


def main() -> None:
    with open(sys.argv[1], "rb") as file:
        options = pickle.load(file)
    rank = of_loader if options["interface"] in LOADERS else of_data_loader
    with open(sys.argv[2], "wb") as out:
        for record in rank(options):
            write(out, record)
            time.sleep(options["step"])


if __name__ == "__main__":
    main()
