#!/usr/bin/env python3
"""Training ResNet-50 (bf16, channels last) on one GPU: how long the GPU waits for data.

    ```
    bench/gpu/run.py --data /data/train                   JPEGs in class folders; on a machine with a GPU and torch for CUDA
    bench/gpu/run.py --data /data/train --url s3://b/t    the same images as Millrace reads them elsewhere, such as packed shards
    bench/gpu/run.py                                      4,000 synthetic images of 115 KB, made once
    bench/gpu/run.py --device cpu --quick                 a few steps of a small size, to see that it runs; measures nothing
    ```

It runs the same model with batches that are on the device already (the ceiling), and with Millrace's Loader(device=...). If torchvision is installed, it
runs the Loader also with decode="device". The rival is torch's DataLoader with pin_memory. Exits 1 if Millrace misses a target (only on a GPU). See bench/README.md.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
if "MILLRACE_BINARY_DIR" in os.environ or (REPOSITORY / "build/release/python").exists():
    sys.path.insert(0, str(Path(os.environ.get("MILLRACE_BINARY_DIR", REPOSITORY / "build/release")) / "python"))

sys.path.append(str(REPOSITORY / "bench/s3"))

import torch  # noqa: E402
from resnet50 import resnet50  # noqa: E402
from rival import MEAN, STD  # noqa: E402
from rival import batches as rival_batches  # noqa: E402
from rival_task import cpu_seconds  # noqa: E402

IDLE_AT_MOST = 0.02
Batches = Iterator[tuple[torch.Tensor, torch.Tensor]]


def still(device: torch.device, batch: int, size: int, classes: int) -> Batches:
    """Yields the ceiling: one batch, which is there."""
    images = torch.randn(batch, 3, size, size, device=device).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(classes, (batch,), device=device)
    while True:
        yield images, labels


def millrace_batches(url: str, device: torch.device, batch: int, size: int, decode: str = "host") -> Batches:
    import millrace

    options = {
        "augment": True,
        "normalize": (MEAN, STD),
        "image": millrace.Image(layout="nhwc"),
        "last": "drop",
        "memory": "2GiB",
        "output": "torch",
    }
    with millrace.Loader(
        url, batch_size=batch, size=size, device=millrace.Transfer(device, decode=decode), **options
    ) as loader:
        while True:
            for each in loader:
                yield each["image"].permute(0, 3, 1, 2), each["label"]  # channels last: no copy


class Clock:
    """Says when the device began and ended each step. On a CPU, the time of the host."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._marks: list[tuple[Any, Any]] = []

    def mark(self) -> Any:
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def step(self, begin: Any, end: Any) -> None:
        self._marks.append((begin, end))

    def _seconds(self, begin: Any, end: Any) -> float:
        return begin.elapsed_time(end) / 1000 if self._cuda else end - begin

    def result(self) -> tuple[float, float]:
        """Seconds in all, and of those the ones between steps: the next batch had not landed."""
        if self._cuda:
            torch.cuda.synchronize()
        between = sum(self._seconds(before[1], after[0]) for before, after in zip(self._marks, self._marks[1:]))
        return self._seconds(self._marks[0][0], self._marks[-1][1]), between


def trainer(device: torch.device, classes: int) -> Callable[[torch.Tensor, torch.Tensor], None]:
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    model = resnet50(classes).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = torch.nn.CrossEntropyLoss()

    def step(images: torch.Tensor, labels: torch.Tensor) -> None:
        with torch.autocast(device.type, torch.bfloat16):
            loss = criterion(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return step


def overlap(profile: Any) -> float | None:
    """Returns the share of the time of copies to the device in which the device also computes."""
    spans: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for event in profile.events():
        if not str(event.device_type).endswith("CUDA"):
            continue
        is_copy = event.name.startswith("Memcpy HtoD")
        if is_copy or not event.name.startswith(("Memcpy", "Memset")):
            spans[is_copy].append((event.time_range.start, event.time_range.end))
    return overlapped(spans[True], spans[False])


def overlapped(copies: list[tuple[float, float]], kernels: list[tuple[float, float]]) -> float | None:
    merged: list[list[float]] = []
    for begin, end in sorted(kernels):
        if merged and begin <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([begin, end])
    total = sum(end - begin for begin, end in copies)
    common = sum(max(0.0, min(end, e) - max(begin, b)) for begin, end in copies for b, e in merged)
    return common / total if total else None


def measure(name: str, batches: Batches, options: argparse.Namespace) -> dict[str, Any]:
    device = torch.device(options.device)
    step = trainer(device, options.classes)
    for _ in range(options.warm_up):
        step(*next(batches))
    if device.type == "cuda":
        torch.cuda.synchronize()
    clock, before, began = Clock(device), cpu_seconds(), time.perf_counter()
    for _ in range(options.steps):
        images, labels = next(batches)
        start = clock.mark()
        step(images, labels)
        clock.step(start, clock.mark())
    seconds, between = clock.result()
    wall, cpu = time.perf_counter() - began, cpu_seconds() - before
    copies = None
    if device.type == "cuda" and name != "ceiling":
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            for _ in range(min(20, options.steps)):
                step(*next(batches))
            torch.cuda.synchronize()
        copies = overlap(profile)
    batches.close()  # type: ignore[attr-defined]
    samples = options.steps * options.batch
    return {
        "name": name,
        "samples_per_second": samples / wall,
        "ms_per_step": 1000 * seconds / options.steps,
        "idle": between / seconds,
        "cpu_seconds_per_1000": 1000 * cpu / samples,
        "copies_overlapped": copies,
    }


def make_images(count: int, kilobytes: int) -> Path:
    folder = REPOSITORY / "build/bench-gpu" / f"{count}-{kilobytes}KB"
    if not folder.exists():
        binary = os.environ.get("MILLRACE_BIN", str(REPOSITORY / "build/release/bin/millrace"))
        making = folder.with_name(folder.name + ".making")
        making.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [binary, "synth", making, "--count", str(count), "--kb", str(kilobytes), "--seed", "1"], check=True
        )
        making.rename(folder)
    return folder


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--data", type=Path, help="a folder of JPEGs in class folders [synthetic images]")
    parser.add_argument("--url", help="where Millrace reads [--data]")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--warm-up", type=int, default=20)
    parser.add_argument(
        "--workers", type=int, default=len(os.sched_getaffinity(0)), help="of the DataLoader [one for each CPU]"
    )
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--quick", action="store_true", help="few steps, small images")
    parser.add_argument("--json", type=Path, help="write the results there")
    options = parser.parse_args()
    if options.quick:
        options.batch, options.size, options.steps, options.warm_up, options.workers = (
            4,
            64,
            3,
            1,
            min(2, options.workers),
        )
    return options


def main() -> int:
    options = arguments()
    device = torch.device(options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print("torch sees no GPU here; --device cpu --quick shows that the program runs", file=sys.stderr)
        return 2
    folder = options.data or make_images(*((64, 20) if options.quick else (4000, 115)))
    url = options.url or str(folder)
    decodes = device.type == "cuda" and importlib.util.find_spec("torchvision") is not None
    sources: dict[str, Callable[[], Batches]] = {
        "ceiling": lambda: still(device, options.batch, options.size, options.classes),
        "millrace": lambda: millrace_batches(url, device, options.batch, options.size),
        **(
            {"nvJPEG": lambda: millrace_batches(url, device, batch=options.batch, size=options.size, decode="device")}
            if decodes
            else {}
        ),
        "DataLoader": lambda: rival_batches(folder, device, options.batch, options.size, options.workers),
    }
    results = []
    shown = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    print(
        f"{shown}, {len(os.sched_getaffinity(0))} CPUs, batch {options.batch}, {options.size}x{options.size}, {options.workers} workers"
    )
    print(f"{'':12}{'samples/s':>10}{'of ceiling':>11}{'ms/step':>9}{'idle':>8}{'overlap':>9}{'CPU-s/1000':>12}")
    for name, make in sources.items():
        with contextlib.closing(make()) as batches:
            result = measure(name, batches, options)
        results.append(result)
        result["of_ceiling"] = result["samples_per_second"] / results[0]["samples_per_second"]
        cells = [
            f"{result['samples_per_second']:,.0f}",
            f"{result['of_ceiling']:.3f}",
            f"{result['ms_per_step']:.1f}",
            f"{result['idle']:.1%}",
        ]
        cells += [
            "-" if result["copies_overlapped"] is None else f"{result['copies_overlapped']:.2f}",
            f"{result['cpu_seconds_per_1000']:.2f}",
        ]
        print(f"{name:12}" + "".join(cell.rjust(width) for cell, width in zip(cells, (10, 11, 9, 8, 9, 12))))
    if options.json:
        options.json.write_text(json.dumps({"device": shown, "results": results}, indent=2))
    ours = results[1]
    if (
        device.type == "cuda"
        and not options.quick
        and (ours["idle"] > IDLE_AT_MOST or (ours["copies_overlapped"] or 0) < 0.9)
    ):
        print(f"missed: idle at most {IDLE_AT_MOST:.0%}, copies overlapped at least 0.9 of their time")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
