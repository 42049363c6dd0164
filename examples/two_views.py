"""Contrastive learning (SimCLR): two random crops of each image, drawn from (seed, epoch, sample), whatever the number of ranks.

python examples/two_views.py s3://bucket/images
"""

from __future__ import annotations

import argparse

import millrace
import torch
from torch import nn
from torch.nn import functional


def contrast(first: torch.Tensor, second: torch.Tensor, temperature: float = 0.2) -> torch.Tensor:
    """NT-Xent: each view is to find the other one of its image among all views of the batch."""
    views = functional.normalize(torch.cat([first, second]))
    logits = views @ views.T / temperature
    logits.fill_diagonal_(float("-inf"))
    images = len(first)
    other = torch.arange(2 * images).roll(images)
    return functional.cross_entropy(logits, other)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="images")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--size", type=int, default=64)
    options = parser.parse_args()

    # Entries of different names have crops of their own.
    views = {"one": millrace.Image(crop=(0.2, 1.0)), "two": millrace.Image(crop=(0.2, 1.0))}
    loader = millrace.Loader(
        options.data,
        fields=views,
        batch_size=options.batch,
        size=options.size,
        augment=True,
        epochs=options.epochs,
        last="drop",
    )
    model = nn.Sequential(
        nn.Conv2d(3, 32, 8, stride=8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 64)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(options.epochs):
        for step, batch in enumerate(loader):
            loss = contrast(model(batch["one"]), model(batch["two"]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
