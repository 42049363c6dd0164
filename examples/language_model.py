"""A language model over packed rows: whole documents side by side, hardly any padding, attention within each document.

python examples/language_model.py s3://bucket/corpus --length 2048     # .bin and .idx of Megatron
"""

from __future__ import annotations

import argparse

import millrace
import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    def __init__(self, vocabulary: int, length: int, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, vocabulary))

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
        hidden = self.tokens(tokens) + self.positions(positions)
        batch, length, width = hidden.shape
        query, key, value = (
            part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.qkv(hidden).chunk(3, -1)
        )
        # Each token sees those before it in its own document.
        sees = (segments[:, :, None] == segments[:, None, :]) & torch.ones(length, length, dtype=torch.bool).tril()
        attended = functional.scaled_dot_product_attention(query, key, value, attn_mask=sees[:, None])
        return self.out(hidden + attended.transpose(1, 2).reshape(batch, length, width))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="token files")
    parser.add_argument("--vocabulary", type=int, default=50_304)
    parser.add_argument("--length", type=int, default=256, help="tokens of a row")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch", type=int, default=8)
    options = parser.parse_args()

    # Rows have one token more, since inputs and targets are shifted by one.
    loader = millrace.Loader(
        options.data,
        tokens=millrace.Tokens(options.length + 1, "pack"),
        batch_size=options.batch,
        epochs=options.epochs,
        output="torch",
    )
    model = Model(options.vocabulary, options.length + 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(options.epochs):
        for step, batch in enumerate(loader):
            tokens, segments = batch["tokens"], batch["segment_ids"]
            logits = model(tokens[:, :-1], batch["position_ids"][:, :-1].long(), segments[:, :-1])
            # No document predicts the first token of the next one, and nothing predicts padding.
            counts = (segments[:, 1:] == segments[:, :-1]) & batch["token_mask"][:, 1:]
            loss = functional.cross_entropy(logits[counts], tokens[:, 1:][counts])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.3f}", flush=True)
    report = loader.report()
    print(f"{report['tokens']:,} tokens in {report['token_places']:,} places", flush=True)


if __name__ == "__main__":
    main()
