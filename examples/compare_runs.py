"""Compares the quality of the models of two runs of classify.py, and their costs until they were good.

    python examples/compare_runs.py s3://bucket/on-demand s3://bucket/spot --data s3://bucket/validation --prices 98.32 36.4
    python examples/compare_runs.py /runs/a /runs/b --data /data/validation --target-loss 0.3

Both models see the same images, in the same order. Quality is the share of images whose class a model names. The runs are at parity if the shares differ
by at most --tolerance percent points (0.1). A run has converged when the mean of its last --window losses is at most the target for the first time. By
default, the target is the larger of the two runs' last means, which both have reached. The program exits with 1 if the runs are not at parity.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import millrace
import torch
from classify import make_model


def share_of_right(state: dict[str, Any], options: argparse.Namespace) -> float:
    model = make_model(classes=len(list(state.values())[-1]))  # the last bias
    model.load_state_dict(state)
    model.eval()
    loader = millrace.Loader(
        options.data,
        batch_size=options.batch,
        size=options.size,
        shuffle=False,
        epochs=1,
    )
    right = seen = 0
    with torch.inference_mode():
        for batch in loader:
            valid = batch["valid"]  # with several ranks, some samples come twice
            right += int((model(batch["image"]).argmax(1) == batch["label"])[valid].sum())
            seen += int(valid.sum())
    return right / seen


def means(history: list[tuple[int, float, float]], window: int) -> list[float]:
    """Returns the mean of each loss and the losses before it."""
    losses = [loss for _, _, loss in history]
    return [sum(losses[max(0, end - window) : end]) / (end - max(0, end - window)) for end in range(1, len(losses) + 1)]


def converged(history: list[tuple[int, float, float]], window: int, target: float) -> tuple[int, float] | None:
    """Returns the step and the seconds of training at which the mean loss was at most the target for the first time."""
    full = min(window, len(history))
    for (step, seconds, _), mean in list(zip(history, means(history, window)))[full - 1 :]:
        if mean <= target:
            return step, seconds
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs=2, help="where the two runs have saved; their newest checkpoints are compared")
    parser.add_argument("--data", required=True, help="images in class folders, or shards, that no run has seen")
    parser.add_argument(
        "--prices", type=float, nargs=2, default=(1.0, 1.0), help="of an hour of all machines of each run"
    )
    parser.add_argument("--target-loss", type=float, help="that of a run that has converged")
    parser.add_argument("--window", type=int, default=5, help="losses that are averaged; classify.py keeps one of ten")
    parser.add_argument("--tolerance", type=float, default=0.1, help="percent points by which the quality may differ")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--size", type=int, default=64)
    options = parser.parse_args()

    states = [millrace.Checkpoints(run).load(only=["model", "step", "history"]) for run in options.runs]
    for run, state in zip(options.runs, states):
        if not state["history"]:
            parser.error(f"{run} has kept no loss yet: classify.py keeps one of every --log-every steps")
    target = options.target_loss
    if target is None:
        target = max(means(state["history"], options.window)[-1] for state in states)
    shares, costs = [], []
    for run, price, state in zip(options.runs, options.prices, states):
        shares.append(100 * share_of_right(state["model"], options))
        reached = converged(state["history"], options.window, target)
        costs.append(None if reached is None else reached[1] / 3600 * price)
        when = (
            "not reached"
            if reached is None
            else f"step {reached[0]}, {reached[1]:.1f} s of training, cost {costs[-1]:.4g}"
        )
        print(f"{run}: step {state['step']}, right {shares[-1]:.3f} %, loss {target:.4f}: {when}")
    difference = abs(shares[0] - shares[1])
    parity = difference <= options.tolerance
    print(
        f"quality differs by {difference:.3f} percent points: {'parity' if parity else 'no parity'} (at most {options.tolerance:g})"
    )
    if costs[0] and costs[1]:
        print(f"the second run costs {costs[1] / costs[0]:.3f} of the first until it has converged")
    return 0 if parity else 1


if __name__ == "__main__":
    sys.exit(main())
