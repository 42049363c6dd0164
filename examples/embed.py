"""Batch inference: a vector for each image, as shards that Millrace and others read. After a kill, the same command continues.

python examples/embed.py s3://bucket/images s3://bucket/vectors
torchrun --nproc-per-node 4 examples/embed.py s3://bucket/images s3://bucket/logits --checkpoint s3://bucket/run-1 --step 1200
"""

from __future__ import annotations

import argparse

import millrace
import torch
from classify import make_model
from torch import nn


def model_of(options: argparse.Namespace) -> nn.Module:
    if options.model:
        return torch.jit.load(options.model)
    if options.checkpoint is None:
        return nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten())
    # The optimizer's tensors and the rest are not read.
    state = millrace.Checkpoints(options.checkpoint).load(options.step, only=["model"])["model"]
    model = make_model(classes=len(list(state.values())[-1]))  # the last bias
    model.load_state_dict(state)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="images")
    parser.add_argument("results", help="an empty place for the shards, or one where the same command has begun")
    parser.add_argument("--model", help="a file of torch.jit.save(); without it, the vectors are means of colors")
    parser.add_argument(
        "--checkpoint", help="where classify.py has saved: the vectors are what its model says of the classes"
    )
    parser.add_argument(
        "--step",
        type=int,
        help="which checkpoint; give it while the training goes on, so that all ranks and restarts take the same",
    )
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--shard-size", default="256MiB")
    options = parser.parse_args()

    model = model_of(options)
    model.eval()
    with millrace.ShardWriter(options.results, shard_size=options.shard_size) as writer, torch.inference_mode():
        if writer.complete:
            print(f"{options.results} is complete already")
            return
        loader = millrace.Loader(
            options.data,
            batch_size=options.batch,
            size=options.size,
            shuffle=False,
            epochs=1,
        )
        if writer.state is not None:
            loader.load_state_dict(writer.state)
        for _ in range(loader.epoch, 1):  # no loop if all samples were written before
            for batch in loader:
                for key, valid, vector in zip(batch["key"], batch["valid"], model(batch["image"])):
                    if valid:  # with several ranks, some samples come twice
                        writer.write({"key": key, "npy": vector})
                writer.advance(loader.state_dict())
        print(f"rank {writer.rank}: {writer.samples} vectors")


if __name__ == "__main__":
    main()
