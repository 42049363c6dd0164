"""A corpus of JSON lines: tokens, packed rows, and a small language model whose attention stays within documents.

python examples/jobs/corpus.py 'corpus/*.jsonl' s3://bucket/tokens tokenizer.json
"""

import json
import sys

import millrace
import torch

source, tokens, tokenizer = sys.argv[1:4]
report = millrace.pack(source, tokens, tokenizer=tokenizer, eos="<end>")  # does nothing if it is done already
with millrace.open(f"{tokens}/tokens.json", "r") as file:
    vocabulary = json.load(file)["vocabulary"]
print(f"{report['documents']} documents, {report['tokens']} tokens of a vocabulary of {vocabulary}")
loader = millrace.Loader(tokens, tokens=millrace.Tokens(65, "pack"), batch_size=8, epochs=3, seed=1)
print(f"{100 * loader.padding:.1f} % padding")


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = torch.nn.Embedding(vocabulary, 32), torch.nn.Embedding(65, 32)
        self.layer = torch.nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True)

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
        apart = segments[:, :, None] != segments[:, None, :]
        later = torch.ones(apart.shape[1:], dtype=torch.bool).triu(1)
        mask = (apart | later).repeat_interleave(4, 0)
        return self.layer(self.words(tokens) + self.places(positions), src_mask=mask) @ self.words.weight.T


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for epoch in range(3):
    for batch in loader:
        inputs = [batch[name][:, :-1] for name in ("tokens", "position_ids", "segment_ids")]
        wanted = batch["tokens"][:, 1:].masked_fill(batch["segment_ids"][:, 1:] != batch["segment_ids"][:, :-1], -100)
        loss = torch.nn.functional.cross_entropy(model(*inputs).flatten(0, 1), wanted.flatten())
        optimizer.zero_grad(), loss.backward(), optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.3f}")
