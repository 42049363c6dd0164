#!/usr/bin/env python3
"""Writers that are killed while they overwrite a checkpoint: what can be loaded afterwards, of Millrace and of its rivals, in one folder.

    bench/checkpoint/overwrites.py             200 kills of each, 16 MiB of tensors: a few minutes
    bench/checkpoint/overwrites.py --quick     20 kills of each

torch.save and torch.distributed.checkpoint overwrite the same file and folder, as a training does that keeps "the last" checkpoint; Millrace saves the same step
again. After each kill another process loads: *whole* is what was saved at one moment, *mixed* has tensors of two moments, *lost* cannot be loaded. Exits 1 if
Millrace has lost or mixed one.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

TENSORS = 16

Save = Callable[[Path, dict[str, Any]], None]
Load = Callable[[Path, dict[str, Any]], dict[str, Any]]


def state_of(moment: int, size: int) -> dict[str, Any]:
    import torch

    return {f"w{number}": torch.full((size // TENSORS // 4,), float(moment)) for number in range(TENSORS)}


def systems() -> dict[str, tuple[Save, Load]]:
    import millrace
    import torch
    import torch.distributed.checkpoint as dcp

    def dcp_load(path: Path, state: dict[str, Any]) -> dict[str, Any]:
        dcp.load(state, checkpoint_id=path, no_dist=True)
        return state

    return {
        "millrace": (
            lambda path, state: millrace.Checkpoints(path, keep=1).save(1, state),
            lambda path, state: millrace.Checkpoints(path).load(),
        ),
        "torch.save": (
            lambda path, state: torch.save(state, path),
            lambda path, state: torch.load(path, weights_only=True),
        ),
        "dcp": (
            lambda path, state: dcp.save(
                state, storage_writer=dcp.FileSystemWriter(path, overwrite=True), no_dist=True
            ),
            dcp_load,
        ),
    }


def in_child(call: Callable[[], int]) -> int:
    """Returns the result of a function, 0 to 255, in a process of its own. The caller makes no threads, which a fork would lose."""
    pid = os.fork()
    if pid == 0:
        status = 255
        try:
            warnings.simplefilter("ignore")
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            status = call()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def judge(load: Load, path: Path, size: int) -> int:
    """0: whole; 1: mixed."""
    found = load(path, state_of(0, size))
    moments = {float(value) for tensor in found.values() for value in (tensor.min(), tensor.max())}
    return 0 if len(moments) == 1 and moments != {0.0} else 1


def killed(save: Save, path: Path, size: int, seconds: float) -> None:
    """Runs a writer that overwrites repeatedly."""

    def overwrite() -> int:
        for moment in range(2, 1_000_000):
            state = state_of(moment, size)
            if moment == 2:
                os.write(begun, b"x")
            save(path, state)
        return 0

    told, begun = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            warnings.simplefilter("ignore")
            overwrite()
        finally:
            os._exit(1)
    os.close(begun)
    os.read(told, 1)
    os.close(told)
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if not os.WIFSIGNALED(status):
        raise SystemExit("a writer failed")


def saved_once(save: Save, path: Path, size: int) -> int:
    save(path, state_of(1, size))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="20 kills of each")
    parser.add_argument("--kills", type=int, help="of each (default 200)")
    parser.add_argument("--bytes", type=int, default=16 << 20, help="of tensors (default 16 MiB)")
    parser.add_argument("--folder", type=Path, help="where (default: a temporary folder)")
    options = parser.parse_args()
    kills = options.kills or (20 if options.quick else 200)
    draw = random.Random(1)
    lost = 0
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for name, (save, load) in systems().items():
            counts: Counter[str] = Counter()
            path = Path(folder) / name
            for _ in range(kills):
                if path.is_dir():
                    shutil.rmtree(path)
                if in_child(partial(saved_once, save, path, options.bytes)):
                    raise SystemExit(f"{name} cannot save")
                killed(save, path, options.bytes, 0.3 * draw.random())
                counts[{0: "whole", 1: "mixed"}.get(in_child(partial(judge, load, path, options.bytes)), "lost")] += 1
            print(
                f"{name:12} {kills} kills: "
                + ", ".join(f"{counts[kind]} {kind}" for kind in ("whole", "mixed", "lost")),
                flush=True,
            )
            lost += (counts["mixed"] + counts["lost"]) if name == "millrace" else 0
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
