"""Checks of devices, other nodes and collectives, for ``millrace doctor host``, which runs ``python -m millrace.preflight``.

The program reads one JSON object from standard input: ``node`` (the name of this machine in reports), ``figures`` and ``failed`` (the results
that the command has already), ``min_bus_gbps``. It prints one object: ``checks``, ``figures``, ``healthy`` (for all ranks), ``silent`` (another
rank reports the results). The number of the rank comes from the environment, as for :class:`millrace.Loader`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from . import _ranks
from ._preflight_checks import Check, failed, local_rank, ok, skipped

SIZE = 1024  # of the square matrices
LARGEST = 8  # of their elements: sums of products stay below 2**24, so that float32 and TF32 hold them exactly
SECONDS = 0.3  # a device
LEAST_PRODUCTS = 3
COPY_BYTES = 256 << 20


def devices(torch: Any) -> list[Any]:
    """Returns the devices that this process is going to use: the device of its local rank, or all devices, and the CPU."""
    found = [torch.device("cpu")]
    accelerator = (
        torch.accelerator.current_accelerator()
        if hasattr(torch, "accelerator") and torch.accelerator.is_available()
        else None
    )
    if accelerator is None and torch.cuda.is_available():
        accelerator = torch.device("cuda")
    if accelerator is None:
        return found
    count = torch.accelerator.device_count() if hasattr(torch, "accelerator") else torch.cuda.device_count()
    local = local_rank()
    indexes = range(count) if local is None or not count else [local % count]
    return found + [torch.device(accelerator.type, index) for index in indexes]


def synchronise(torch: Any, device: Any) -> None:
    if device.type == "cpu":
        return
    (torch.accelerator if hasattr(torch, "accelerator") else torch.cuda).synchronize(device)


def check_device(torch: Any, device: Any) -> tuple[Check, dict[str, float]]:
    """Multiplies matrices of small integers repeatedly for a while. Their product has one right answer."""
    name = f"device {device}"
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.randint(-LARGEST, LARGEST + 1, (SIZE, SIZE), generator=generator) for _ in range(2))
    right = a.double() @ b.double()
    try:
        x, y = a.float().to(device), b.float().to(device)
        expected = right.float().to(device)
        wrong = int((x @ y != expected).sum())  # the first one also loads libraries
        synchronise(torch, device)
        products, best, end = 0, float("inf"), time.perf_counter() + SECONDS
        while not wrong and (products < LEAST_PRODUCTS or time.perf_counter() < end):
            start = time.perf_counter()
            product = x @ y
            synchronise(torch, device)
            best = min(best, time.perf_counter() - start)  # what else runs on this machine slows some, not all
            wrong = int((product != expected).sum())
            products += 1
    except Exception as error:
        return failed(
            name,
            f"multiplying matrices failed: {error}",
            "look into the log of the driver; restart or replace the machine",
        ), {}
    if wrong:
        return failed(
            name,
            f"{wrong} elements of a product of matrices are wrong",
            "take this device out of service; replace the machine",
        ), {}
    figures = {f"{device.type}_tflops": 2 * SIZE**3 / best / 1e12}
    text = f"{products} products of matrices are right"
    if device.type == "cuda":
        text = f"{torch.cuda.get_device_name(device)}: {text}"
        source = torch.empty(COPY_BYTES, dtype=torch.uint8, device=device)
        target = torch.empty_like(source)
        target.copy_(source)
        synchronise(torch, device)
        start = time.perf_counter()
        for _ in range(8):
            target.copy_(source)
        synchronise(torch, device)
        figures["cuda_memory_gbps"] = 8 * 2 * COPY_BYTES / (time.perf_counter() - start) / 1e9
        text += f", {figures['cuda_memory_gbps']:.0f} GB/s copied"
    return ok(name, text), figures


def examine(question: dict[str, Any]) -> dict[str, Any]:
    rank, world = _ranks.rank_and_world(None, None)
    try:
        import torch
    except ImportError:
        if world > 1:
            remedy = "install torch into the Python that --python names"
            return {
                "checks": [
                    failed("nodes", f"{sys.executable} has no torch, by which the nodes find each other", remedy)
                ],
                "healthy": False,
            }
        return {"checks": [skipped("devices", f"{sys.executable} has no torch")]}
    checks: list[Check] = []
    figures: dict[str, float] = {}
    for device in devices(torch):
        check, measured = check_device(torch, device)
        checks.append(check)
        figures.update(measured)
    if world == 1:
        return {"checks": checks, "figures": figures}
    from ._preflight_nodes import Member, examine_nodes

    broken = [
        str(check["name"]) + ": " + str(check["text"])
        for check in [*question["failed"], *checks]
        if check.get("result", "failed") == "failed"
    ]
    member = Member(str(question["node"]), {**question["figures"], **figures}, broken)
    found = examine_nodes(torch, rank, world, member, float(question["min_bus_gbps"]))
    return {
        "checks": checks + found.checks,
        "figures": {**figures, **found.figures},
        "healthy": found.healthy,
        "silent": found.silent,
    }


def main() -> None:
    # Libraries that print do so elsewhere: standard output is the answer's.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    answer = examine(json.load(sys.stdin))
    out.write(json.dumps(answer) + "\n")
    out.flush()
    os._exit(0)  # threads of a process group that has failed may hang


if __name__ == "__main__":
    main()
