"""Images and their captions, as CLIP learns them.

python examples/image_text.py s3://bucket/pairs            # shards with jpg and txt, or files 7.jpg and 7.txt
"""

from __future__ import annotations

import argparse
import zlib

import millrace
import torch
from torch import nn
from torch.nn import functional

WORDS = 4096  # buckets that words are hashed into; take a tokenizer in earnest


class Model(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.image = nn.Sequential(
            nn.Conv2d(3, 32, 8, stride=8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, width)
        )
        self.text = nn.EmbeddingBag(WORDS, width)
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, images: torch.Tensor, captions: list[list[int]]) -> torch.Tensor:
        offsets = torch.tensor([0, *(len(words) for words in captions[:-1])]).cumsum(0)
        texts = self.text(torch.tensor([word for words in captions for word in words]), offsets)
        return functional.normalize(self.image(images)) @ functional.normalize(texts).T * self.scale.exp()


def words_of(sample: dict[str, object]) -> dict[str, object]:
    """Runs in threads, beside the training."""
    caption = str(sample["caption"]).lower().split()
    return {"image": sample["image"], "words": [zlib.crc32(word.encode()) % WORDS for word in caption] or [0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="samples with an image and a caption")
    parser.add_argument("--image", default="jpg", help="the field of the image [jpg]")
    parser.add_argument("--caption", default="txt", help="the field of the caption [txt]")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--size", type=int, default=64)
    options = parser.parse_args()

    loader = millrace.Loader(
        options.data,
        fields={"image": millrace.Image(options.image, crop="random"), "caption": millrace.Text(options.caption)},
        transform=words_of,
        batch_size=options.batch,
        size=options.size,
        epochs=options.epochs,
        last="drop",
    )
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(options.epochs):
        for step, batch in enumerate(loader):
            logits = model(batch["image"], batch["words"])
            wanted = torch.arange(len(logits))
            loss = (functional.cross_entropy(logits, wanted) + functional.cross_entropy(logits.T, wanted)) / 2
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.3f}", flush=True)
    print(loader.report())


if __name__ == "__main__":
    main()
