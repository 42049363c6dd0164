"""Trains a small CNN on images that Millrace streams from object storage.

Kill it at any moment: it is started again and continues from its checkpoint, and every epoch still has each sample exactly once.

    millrace run --retries 3 -- python train.py --train s3://bucket/train --test s3://bucket/test --checkpoint s3://bucket/run
"""

import argparse

import millrace
import torch
from torch import nn

IMAGES = dict(size=28, image=millrace.Image(channels=1), normalize=(0.2860, 0.3530))


def make_model() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Dropout(0.25), nn.Linear(32 * 7 * 7, 64), nn.ReLU(), nn.Linear(64, 10)),
    )


@torch.no_grad()
def accuracy(model: nn.Module, uri: str) -> float:
    model.eval()
    right = total = 0
    for batch in millrace.Loader(uri, batch_size=500, shuffle="none", epochs=1, memory="128MiB", **IMAGES):
        hits = model(batch["image"]).argmax(dim=1) == batch["label"]
        right += int((hits & batch["valid"]).sum())  # no padding of the last batch
        total += int(batch["valid"].sum())
    return right / total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", required=True, help="URI of the training images")
    parser.add_argument("--test", required=True, help="URI of the test images")
    parser.add_argument("--checkpoint", required=True, help="URI to keep the state at")
    parser.add_argument("--every", type=int, default=100, help="steps between checkpoints")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    model = make_model()
    # Shards that were packed from class folders are sorted by class, so all samples are shuffled, not only those of a window.
    loader = millrace.Loader(
        args.train, batch_size=128, shuffle="global", seed=args.seed, epochs=args.epochs, digest="raw", **IMAGES
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=4e-3, total_steps=args.epochs * len(loader))
    step = 0

    checkpoints = millrace.Checkpoints(args.checkpoint, keep=2)
    if checkpoints.latest() is not None:
        state = checkpoints.load()
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(state["schedule"])
        torch.set_rng_state(state["rng"])
        loader.load_state_dict(state["loader"])
        step = state["step"]
        print(f"resumed at step {step}, {state['loader']['position']}", flush=True)

    def checkpoint() -> None:
        checkpoints.save(
            step,
            {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "schedule": schedule.state_dict(),
                "rng": torch.get_rng_state(),
                "loader": loader.state_dict(),
                "step": step,
            },
        )

    for epoch in range(loader.epoch, args.epochs):
        model.train()
        for batch in loader:
            loss = nn.functional.cross_entropy(model(batch["image"]), batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            step += 1
            if step % 50 == 0:
                print(f"step {step}, epoch {epoch}, loss {loss.item():.3f}", flush=True)
            leaves = millrace.notice()  # this machine will go away: a spot interruption, for instance
            if step % args.every == 0 or leaves:
                checkpoint()
            if leaves:
                raise SystemExit(75)  # continue on another machine
    checkpoint()

    report = loader.report()
    print(f"waited {report['waited']:.1f} s of {report['seconds']:.1f} s for data; bottleneck: {report['bottleneck']}")
    print(f"test accuracy {accuracy(model, args.test):.4f}")


if __name__ == "__main__":
    main()
