"""Image classification with DistributedDataParallel, checkpoints, and exact resume.

    torchrun --nproc-per-node 2 examples/classify.py s3://bucket/train --save s3://bucket/run-1 --epochs 10

Kill it at any moment, and start the same command again, perhaps with another number of processes: it continues with the next sample.
`millrace run --retries 3 --checkpoint URI -- torchrun ...` does that by itself.
"""

from __future__ import annotations

import argparse
import time

import millrace
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def make_model(classes: int) -> nn.Module:
    """Makes a small model that runs anywhere. Use torchvision's resnet50 for real training."""
    layers: list[nn.Module] = []
    for before, after in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="images in class folders, or shards")
    parser.add_argument("--save", required=True, help="where checkpoints are kept: s3://bucket/run-1 or a folder")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64, help="samples of all ranks together")
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--every", type=int, default=20, help="steps between checkpoints")
    parser.add_argument("--log-every", type=int, default=10, help="steps between losses that are told and kept")
    options = parser.parse_args()

    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", rank % torch.cuda.device_count()) if cuda else torch.device("cpu")

    dataset = millrace.Dataset(options.data)
    loader = millrace.Loader(  # rank and world are those of torch.distributed
        dataset,
        batch_size=options.batch // world,
        size=options.size,
        augment=True,
        epochs=options.epochs,
        seed=1,
        device=device,
    )
    model = DistributedDataParallel(make_model(len(dataset.class_counts)).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    criterion = nn.CrossEntropyLoss()

    checkpoints = millrace.Checkpoints(options.save, keep=3)
    chosen = [checkpoints.latest()]  # of rank 0, so that all load the same
    dist.broadcast_object_list(chosen)
    step = 0
    history: list[tuple[int, float, float]] = []  # (step, seconds of training, loss), for compare_runs.py
    if chosen[0] is not None:
        state = checkpoints.load(chosen[0])
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        loader.load_state_dict(state["loader"])
        step, history = state["step"], state["history"]
        if rank == 0:
            print(f"resumed after step {step}", flush=True)

    began = time.monotonic() - (history[-1][1] if history else 0)
    for epoch in range(loader.epoch, options.epochs):
        for batch in loader:
            logits = model(batch["image"])
            loss = criterion(logits, batch["label"])
            optimizer.zero_grad()
            # If the last batch of a rank is all padding, the rank has no loss, but still takes part in the step.
            (loss if any(batch["key"]) else logits.sum() * 0).backward()
            optimizer.step()
            step += 1
            if rank == 0 and step % options.log_every == 0:
                history.append((step, time.monotonic() - began, loss.item()))
                print(f"epoch {epoch} step {step} loss {loss.item():.3f}", flush=True)
            if step % options.every == 0 or loader.epoch >= options.epochs:
                state = {
                    "model": model.module.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "loader": loader.state_dict(),
                }
                checkpoints.save(step, {**state, "step": step, "history": history})  # does something on rank 0 only
    if rank == 0:
        print(f"done after {step} steps; waited most for: {loader.report()['bottleneck']}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
