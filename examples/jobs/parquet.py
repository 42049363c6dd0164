"""Parquet as Hugging Face has it, packed once without options, and trained on.

python examples/jobs/parquet.py s3://bucket/parquet s3://bucket/shards
"""

import sys

import millrace
import torch

source, shards = sys.argv[1:3]
report = millrace.pack(source, shards)  # nothing to do if it is packed already
train, valid = millrace.Dataset(shards).split(train=0.8, valid=0.2, stratify=True).values()
print(f"{report['samples']} samples, fields {', '.join(train.fields)}, classes {train.class_counts}")
loader = millrace.Loader(
    train, batch_size=8, size=32, augment=True, normalize="imagenet", last="drop", epochs=2, seed=1
)
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 5, 4), torch.nn.Flatten(), torch.nn.Linear(392, len(train.class_counts))
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(2):
    for batch in loader:
        loss = torch.nn.functional.cross_entropy(model(batch["image"]), batch["label"])
        optimizer.zero_grad(), loss.backward(), optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.3f}")
right = 0
for batch in millrace.Loader(valid, batch_size=8, size=32, normalize="imagenet", shuffle=False, epochs=1):
    right += int((model(batch["image"]).argmax(1) == batch["label"]).sum())
print(f"{right} of {len(valid)} are right")
