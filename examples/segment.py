"""Semantic segmentation: masks follow the random crop and flip of their images, and keep their class numbers.

python examples/segment.py s3://bucket/scenes --classes 21     # 7.jpg and 7.mask.png, in a folder or in shards
"""

from __future__ import annotations

import argparse

import millrace
import torch
from torch import nn

BORDER = 255  # what PASCAL VOC and others leave out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="samples with an image and a mask")
    parser.add_argument("--image", default="jpg", help="the field of the image [jpg]")
    parser.add_argument("--mask", default="mask.png", help="the field of the mask, a palette or gray PNG [mask.png]")
    parser.add_argument("--classes", type=int, default=21)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--size", type=int, default=128)
    options = parser.parse_args()

    train, valid = millrace.Dataset(options.data).split(train=0.9, valid=0.1).values()
    fields = {
        "image": millrace.Image(options.image),
        "mask": millrace.Image(options.mask, like="image", interpolation="nearest"),  # uint8 [B, H, W]
    }
    usual = {
        "fields": fields,
        "batch_size": options.batch,
        "size": options.size,
    }
    loader = millrace.Loader(train, augment=True, epochs=options.epochs, **usual)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 5, padding=2),
        nn.ReLU(),
        nn.Conv2d(32, 32, 5, padding=2),
        nn.ReLU(),
        nn.Conv2d(32, options.classes, 1),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss(ignore_index=BORDER)
    for epoch in range(options.epochs):
        for step, batch in enumerate(loader):
            loss = criterion(model(batch["image"]), batch["mask"].long())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.3f}", flush=True)
        right = total = 0
        with torch.no_grad():
            for batch in millrace.Loader(valid, shuffle="none", epochs=1, **usual):
                counts = batch["mask"] != BORDER
                right += int(((model(batch["image"]).argmax(1) == batch["mask"]) & counts).sum())
                total += int(counts.sum())
        print(f"epoch {epoch}: {right / max(total, 1):.1%} of the pixels are right", flush=True)


if __name__ == "__main__":
    main()
