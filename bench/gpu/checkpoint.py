#!/usr/bin/env python3
"""Checkpoints of tensors that lie on a GPU: that they come back byte for byte, and how long an asynchronous save keeps the training.

    ```
    bench/gpu/checkpoint.py                       2 GiB of tensors, to a temporary folder; on a machine with a GPU and torch for CUDA
    bench/gpu/checkpoint.py --uri s3://bucket/x   there
    bench/gpu/checkpoint.py --device cpu --quick  anywhere, to see that it runs; measures nothing
    ```

It saves and loads: to the host, to the device by map_location, and into tensors of the device. It compares all bytes, and changes the tensors as soon as an
asynchronous save has returned. The stall of such a save is compared with its ceiling: a copy of the same tensors to pinned memory that was touched.
Exits 1 if a byte differs, or on a GPU if a target is missed: a stall of at most 1.3 copies, and at most 320 MiB of the host for map_location.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
if "MILLRACE_BINARY_DIR" in os.environ or (REPOSITORY / "build/release/python").exists():
    sys.path.insert(0, str(Path(os.environ.get("MILLRACE_BINARY_DIR", REPOSITORY / "build/release")) / "python"))

import torch  # noqa: E402

import millrace  # noqa: E402  isort: skip

MIB = 1 << 20
STALL = 1.3
HOST_BYTES = 320 * MIB

Tensors = dict[str, torch.Tensor]


def make_state(size: int, device: torch.device) -> dict[str, Tensors]:
    """Returns a model and two moments, with tensors of 32 MiB; and what is seldom."""
    torch.manual_seed(1)
    count = max(1, size // 3 // (32 * MIB))

    def tensors() -> Tensors:
        large = {f"layer{number}.weight": torch.rand(2048, 4096, device=device) for number in range(count)}
        return {**large, **{f"layer{number}.bias": torch.rand(4096, device=device) for number in range(count)}}

    seldom = {
        "bf16": torch.rand(1001, 3, device=device).bfloat16(),
        "turned": torch.rand(300, 700, device=device).t(),
        "every other": torch.rand(2000, device=device)[::2],
        "conjugate": torch.rand(100, dtype=torch.complex64, device=device).conj(),
        "bool": torch.rand(77, device=device) > 0.5,
        "int64": torch.arange(999, device=device),
        "scalar": torch.tensor(2.5, device=device),
        "none": torch.empty(0, 5, device=device),
        "of the host": torch.rand(1000),
    }
    return {"model": tensors(), "first": tensors(), "second": tensors(), "seldom": seldom}


def each(state: dict[str, Tensors]) -> list[tuple[str, torch.Tensor]]:
    return [(f"{group}[{name}]", tensor) for group, tensors in state.items() for name, tensor in tensors.items()]


def changed(state: dict[str, Tensors], call: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, Tensors]:
    return {group: {name: call(tensor) for name, tensor in tensors.items()} for group, tensors in state.items()}


def compare(what: str, found: dict[str, Tensors], expected: dict[str, Tensors], device: torch.device | None) -> None:
    for (name, tensor), (_, wanted) in zip(each(found), each(expected), strict=True):
        if device is not None and tensor.device.type != device.type:
            raise SystemExit(f"{what}: {name} is on {tensor.device}, not on {device}")
        if tensor.dtype != wanted.dtype or not torch.equal(tensor.cpu(), wanted):
            raise SystemExit(f"{what}: {name} is not what was saved")
    print(f"{what}: all bytes are equal", flush=True)


def finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds(device: torch.device, call: Callable[[], Any]) -> float:
    finish(device)
    began = time.perf_counter()
    kept = call()
    finish(device)
    taken = time.perf_counter() - began
    del kept
    return taken


def figure(name: str) -> int:
    """Returns a figure of this process, VmRSS or VmHWM, in bytes."""
    text = Path("/proc/self/status").read_text()
    return int(text.partition(f"\n{name}:")[2].split()[0]) * 1024


def host_bytes(call: Callable[[], Any]) -> int:
    """Returns how much more memory of the host there was at most than before."""
    Path("/proc/self/clear_refs").write_text("5")  # begins the peak anew
    before = figure("VmRSS")
    kept = call()
    peak = figure("VmHWM")
    del kept
    return peak - before


def check(ckpt: millrace.Checkpoints, state: dict[str, Tensors], device: torch.device) -> None:
    expected = changed(state, lambda tensor: tensor.cpu().clone())
    ckpt.save(1, state)
    compare("save, load", ckpt.load(1), expected, torch.device("cpu"))
    compare("save, load(map_location=)", ckpt.load(1, map_location=device), expected, device)
    into = changed(state, torch.zeros_like)
    into["seldom"]["turned"] = torch.zeros(300, 700, device=device).t()
    ckpt.load(1, into=into)
    compare("save, load(into=)", into, expected, None)
    into["model"]["layer0.weight"] = torch.zeros(4096, 2048, device=device).t()
    ckpt.load(1, into=into)
    compare("save, load(into=) a turned tensor", into, expected, None)
    for step in (2, 3):
        # Work in flight that the save has to see, and work after it that it must not see.
        square = torch.rand(2048, 2048, device=device)
        for _ in range(50):
            square = torch.tanh(square @ square)
        state["model"]["layer0.weight"].add_(step + square[0, 0] * 0)
        ckpt.save(step, state, asynchronous=True)
        wanted = state["model"]["layer0.weight"].cpu().clone()
        for _, tensor in each(state):
            tensor.zero_()
        ckpt.wait()
        loaded = ckpt.load(step)
        if not torch.equal(loaded["model"]["layer0.weight"], wanted):
            raise SystemExit("an asynchronous save has not seen the work before it, or has seen that after it")
        for (_, tensor), (_, saved) in zip(each(state), each(loaded)):
            tensor.copy_(saved)
    expected["model"]["layer0.weight"] = wanted
    compare("save(asynchronous=True), tensors changed at once", loaded, expected, None)


def measure(ckpt: millrace.Checkpoints, state: dict[str, Tensors], device: torch.device, runs: int) -> bool:
    size = sum(tensor.nbytes for _, tensor in each(state))
    pinned = [
        torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=device.type == "cuda") for _, tensor in each(state)
    ]

    def copy() -> None:
        for into, (_, tensor) in zip(pinned, each(state)):
            into.copy_(tensor, non_blocking=True)

    def save(step: int) -> float:
        stalled = seconds(device, lambda: ckpt.save(step, state, asynchronous=True))
        ckpt.wait()
        return stalled

    copy()
    times: dict[str, list[float]] = {"copy": [], "stall": [], "save": [], "load": [], "load, map_location": []}
    print(f"stall of the first such save: {save(10):.3f} s", flush=True)
    for run in range(runs):
        times["copy"].append(seconds(device, copy))
        times["stall"].append(save(11 + run))
        times["save"].append(seconds(device, lambda: ckpt.save(100, state)))
        times["load"].append(seconds(device, ckpt.load))
        times["load, map_location"].append(seconds(device, lambda: ckpt.load(map_location=device)))
    for name, values in times.items():
        median = statistics.median(values)
        print(f"{name:20} {median:8.3f} s {size / 1e9 / median:8.2f} GB/s   ({min(values):.3f} to {max(values):.3f} s)")
    ratio = statistics.median(times["stall"]) / statistics.median(times["copy"])
    memory = host_bytes(lambda: ckpt.load(map_location=device))
    met = ratio <= STALL and memory <= HOST_BYTES
    print(
        f"stall: {ratio:.2f} copies (at most {STALL}); load(map_location=) took {memory / MIB:,.0f} MiB of the host (at most {HOST_BYTES / MIB:,.0f})"
    )
    return met


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", type=torch.device, default=torch.device("cuda"))
    parser.add_argument("--uri", help="where the checkpoints go (default: a temporary folder)")
    parser.add_argument("--bytes", type=int, help="of tensors (default 2 GiB)")
    parser.add_argument("--runs", type=int, help="that count (default 5)")
    parser.add_argument("--quick", action="store_true", help="100 MiB of tensors, one run")
    options = parser.parse_args()
    if options.device.type == "cuda" and not torch.cuda.is_available():
        sys.exit("torch sees no GPU here; give --device cpu --quick to see that it runs")
    state = make_state(options.bytes or (100 if options.quick else 2048) * MIB, options.device)
    with tempfile.TemporaryDirectory() as folder:
        ckpt = millrace.Checkpoints(options.uri or folder, keep=1)
        check(ckpt, state, options.device)
        met = measure(ckpt, state, options.device, options.runs or (1 if options.quick else 5))
    print(
        f"on {torch.cuda.get_device_name(options.device)}: targets {'met' if met else 'MISSED'}"
        if options.device.type == "cuda"
        else "it runs"
    )
    return 0 if met or options.device.type != "cuda" else 1


if __name__ == "__main__":
    sys.exit(main())
