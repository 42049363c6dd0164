#!/usr/bin/env python3
"""Measures how much a loader slows a training that uses all cores: the same steps with data that are there, and with a
Loader that decodes beside them.

    bench/beside_training.py s3://bucket/train          # or a folder of JPEGs; prints a table

Each line is a process of its own: the steps alone, and with the Loader at several values of millrace.configure(cpu_nice=). `step` is the time
of a step, without waiting for its batch; `slowdown` compares it with the steps alone; `epoch` is all of it, beside the least that the cores allow:
the CPU time of the steps alone and of decoding alone, divided by the cores. Nothing can be faster than that, since both want all of the cores.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from typing import Any, Callable


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def make_step(batch: int) -> Callable[[Any], None]:
    """Forward and backward of a small convolutional net, by all threads that torch takes."""
    import torch

    torch.manual_seed(0)
    net = torch.nn.Sequential(
        *[torch.nn.Conv2d(3, 32, 3, 2), torch.nn.ReLU(), torch.nn.Conv2d(32, 64, 3, 2), torch.nn.ReLU()],
        *[
            torch.nn.Conv2d(64, 64, 3, 2),
            torch.nn.ReLU(),
            torch.nn.AdaptiveAvgPool2d(1),
            torch.nn.Flatten(),
            torch.nn.Linear(64, 10),
        ],
    )
    optimizer = torch.optim.SGD(net.parameters(), 1e-3)
    target = torch.zeros(batch, dtype=torch.int64)

    def step(image: Any) -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(image), target).backward()
        optimizer.step()

    return step


def measure(mode: str, uri: str, batch: int, steps: int) -> dict[str, float]:
    """`mode`: "steps", "decode", or the nice of the decode threads."""
    import millrace
    import torch

    millrace.configure(cpu_nice=int(mode) if mode.isdigit() else 0)
    options: dict[str, Any] = {
        "batch_size": batch,
        "size": 224,
        "augment": True,
        "image": millrace.Image(dtype="f32", layout="nchw"),
        "last": "drop",
        "epochs": None,
    }
    step = make_step(batch)
    image = torch.zeros(batch, 3, 224, 224)
    for _ in range(3):
        step(image)
    loader = None if mode == "steps" else millrace.Loader(uri, **options)
    batches = None if loader is None else iter(loader)

    def take() -> Any:
        nonlocal batches
        if loader is None:
            return image
        assert batches is not None
        try:
            return next(batches)["image"]
        except StopIteration:
            batches = iter(loader)
            return next(batches)["image"]

    for _ in range(3):
        step(take())
    times = []
    begin, cpu = time.perf_counter(), cpu_seconds()
    for _ in range(steps):
        given = take()
        if mode == "decode":
            continue
        start = time.perf_counter()
        step(given)
        times.append(time.perf_counter() - start)
    wall = time.perf_counter() - begin
    return {
        "wall": wall,
        "cpu": cpu_seconds() - cpu,
        "step": statistics.median(times) if times else 0,
        "steps": sum(times),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("uri")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument(
        "--rounds", type=int, default=3, help="the best of so many, as other programs may have the machine"
    )
    parser.add_argument("--mode", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.mode:
        print(json.dumps(measure(arguments.mode, arguments.uri, arguments.batch, arguments.steps)))
        return
    results: dict[str, dict[str, float]] = {}
    for _ in range(arguments.rounds):  # in turn, so that a noisy minute is not that of one mode
        for mode in ("steps", "decode", "0", "10", "19"):
            command = [
                sys.executable,
                __file__,
                arguments.uri,
                "--mode",
                mode,
                "--batch",
                str(arguments.batch),
                "--steps",
                str(arguments.steps),
            ]
            found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
            results[mode] = min(results.get(mode, found), found, key=lambda each: each["steps"] or each["wall"])
    alone = results["steps"]
    cores = len(os.sched_getaffinity(0))
    least = (alone["cpu"] + results["decode"]["cpu"]) / cores
    print(
        f"{arguments.steps} steps of {arguments.batch} images on {cores} cores; decoding alone: {results['decode']['wall']:.1f} s"
    )
    print(f"{'':24}{'step':>10}{'slowdown':>10}{'epoch':>9}{'least':>9}")
    print(f"{'steps alone':24}{1000 * alone['step']:7.1f} ms{'':>10}{alone['wall']:7.1f} s")
    for mode in ("0", "10", "19"):
        found = results[mode]
        slower = 100 * (found["step"] / alone["step"] - 1)
        print(
            f"{f'Loader, cpu_nice={mode}':24}{1000 * found['step']:7.1f} ms{slower:8.1f} %{found['wall']:7.1f} s{least:7.1f} s"
        )


if __name__ == "__main__":
    main()
