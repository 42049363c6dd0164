"""Inference to shards: each sample exactly once, also after a kill; results have the keys of their samples.

python examples/jobs/infer.py s3://bucket/photos s3://bucket/vectors
"""

import os
import sys

import millrace
import torch

photos, vectors = sys.argv[1:3]
stop_after = int(os.environ.get("STOP_AFTER", "0"))  # batches: for the test, which then starts it again
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 5, 4), torch.nn.Flatten(), torch.nn.Linear(392, 16)).eval()
with millrace.ShardWriter(vectors, shard_size="4KiB") as writer, torch.no_grad():
    loader = millrace.Loader(photos, batch_size=8, size=32, normalize="imagenet", shuffle=False, epochs=1)
    if writer.state is not None:
        loader.load_state_dict(writer.state)
        print(f"continues after {writer.samples} samples", flush=True)
    for _ in range(loader.epoch, 1):
        for number, batch in enumerate(loader, start=1):
            for key, valid, vector in zip(batch["key"], batch["valid"], model(batch["image"])):
                if valid:
                    writer.write({"key": key, "npy": vector.numpy()})
            writer.advance(loader.state_dict())
            if number == stop_after:
                os.kill(os.getpid(), 9)
print(f"{writer.samples} vectors")
