"""Image classification under Ray Train: workers on any number of machines, and exact resume when one of them is lost.

    python examples/ray_train.py s3://bucket/train --save /shared/ray --workers 2 --epochs 10

Ray starts the workers again after a failure, and they continue with the next sample after the last checkpoint. If the program itself is killed,
the same command continues, perhaps with another number of workers.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import tempfile
from typing import Any

import millrace
import ray
import ray.train
import ray.train.torch
import torch
from torch import nn


def make_model(classes: int) -> nn.Module:
    """Makes a small model that runs anywhere. Use torchvision's resnet50 for real training."""
    layers: list[nn.Module] = []
    for before, after in ((3, 16), (16, 32)):
        layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, classes))


def train(options: dict[str, Any]) -> None:
    """Runs in each worker. Ray has initialized torch.distributed, from which the Loader takes rank and world."""
    context = ray.train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    dataset = millrace.Dataset(options["data"])
    loader = millrace.Loader(
        dataset, batch_size=options["batch"] // world, size=options["size"], augment=True,
        epochs=options["epochs"], seed=1, digest="raw",
    )  # fmt: skip
    model = make_model(len(dataset.class_counts))
    step = 0
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            saved = torch.load(pathlib.Path(folder) / "model.pt", weights_only=True)
            model.load_state_dict(saved["model"])
            step = saved["step"]
            loader.load_state_dict(
                json.loads((pathlib.Path(folder) / "loader-0.json").read_text())
            )  # positions of all ranks are equal
        if rank == 0:
            print(f"resumed after step {step}", flush=True)

    model = ray.train.torch.prepare_model(model)  # DistributedDataParallel, on the worker's device
    device = ray.train.torch.get_device()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    criterion = nn.CrossEntropyLoss()
    for _ in range(loader.epoch, options["epochs"]):
        for batch in loader:
            logits = model(batch["image"].to(device, non_blocking=True))
            loss = criterion(logits, batch["label"].to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % options["every"] == 0 or loader.epoch >= options["epochs"]:
                save(model, loader, rank, step, loss.item())
    if rank == 0:
        print(f"done after {step} steps", flush=True)


def save(model: nn.Module, loader: millrace.Loader, rank: int, step: int, loss: float) -> None:
    """Saves one checkpoint of all workers. Ray takes the files of each worker."""
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / f"loader-{rank}.json").write_text(json.dumps(loader.state_dict()))
        if rank == 0:
            plain = model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model
            torch.save({"model": plain.state_dict(), "step": step}, pathlib.Path(folder) / "model.pt")
        ray.train.report({"loss": loss, "step": step}, checkpoint=ray.train.Checkpoint.from_directory(folder))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="images in class folders, or shards")
    parser.add_argument(
        "--save",
        required=True,
        help="a folder that all machines share, or a URI that Ray knows: where checkpoints are kept",
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64, help="samples of all workers together")
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--every", type=int, default=20, help="steps between checkpoints")
    parser.add_argument("--failures", type=int, default=3, help="how many times lost workers are started again")
    options = parser.parse_args()

    trainer = ray.train.torch.TorchTrainer(
        train,
        train_loop_config=vars(options),
        scaling_config=ray.train.ScalingConfig(num_workers=options.workers, use_gpu=torch.cuda.is_available()),
        run_config=ray.train.RunConfig(
            name="classify",
            storage_path=options.save,
            failure_config=ray.train.FailureConfig(max_failures=options.failures),
        ),
    )
    result = trainer.fit()
    print(f"last checkpoint {result.checkpoint.path}: {result.metrics}")


if __name__ == "__main__":
    main()
