"""examples/ray_train.py: a worker is killed, Ray starts all again, and every sample counts once; the same command goes on with another number of workers."""

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import millrace
import torch
from support import Samples, add_digests

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "ray_train.py"
STARTED_WITHIN = 240  # seconds


def start(data: str, save: pathlib.Path, log: pathlib.Path, workers: int, epochs: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(EXAMPLE), data, "--save", str(save), "--workers", str(workers), "--epochs", str(epochs)]
    settings = {"RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1", "RAY_DEDUP_LOGS": "0", "MILLRACE_CACHE": str(log.with_suffix(".cache"))}
    with open(log, "wb") as out:
        return subprocess.Popen([*command, "--batch", "8", "--size", "16", "--every", "2"], stdout=out, stderr=out, env={**os.environ, **settings})


def workers_of(log: pathlib.Path) -> list[int]:
    """Processes that train: Ray calls them so, and the environment tells whose they are."""
    mark = f"MILLRACE_CACHE={log.with_suffix('.cache')}".encode()
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and b"ray::RayTrainWorker" in (entry / "cmdline").read_bytes():
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        except OSError:  # it has ended
            pass
    return found


def checkpoints(save: pathlib.Path) -> dict[int, pathlib.Path]:
    """Whole ones, by step; of a step that was taken twice the later one."""
    found = {}
    for folder in sorted((save / "classify").glob("checkpoint_*-*")):
        if (folder / "model.pt").exists():
            found[torch.load(folder / "model.pt", weights_only=True)["step"]] = folder
    return found


def digests(folder: pathlib.Path) -> list[str]:
    return [json.loads(path.read_text())["digest"] for path in sorted(folder.glob("loader-*.json"))]


def finished(process: subprocess.Popen[bytes], log: pathlib.Path) -> str:
    code = process.wait(timeout=STARTED_WITHIN + 240)
    assert code == 0, log.read_text()
    return log.read_text()


def test_a_worker_is_lost_and_another_number_goes_on(raw: Samples, tmp_path: pathlib.Path) -> None:
    save, log = tmp_path / "save", tmp_path / "first"
    process = start(raw.uri, save, log, workers=2, epochs=3)
    try:
        deadline = time.monotonic() + STARTED_WITHIN
        while not (save / "classify" / "checkpoint_manager_snapshot.json").exists():  # then Ray knows of a checkpoint
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        os.kill(workers_of(log)[0], signal.SIGKILL)
        said = finished(process, log)
    finally:
        process.kill()
    resumed = re.search(r"resumed after step (\d+)", said)
    assert resumed and 0 < int(resumed[1]) < 18 and "done after 18 steps" in said  # 6 an epoch
    saved = checkpoints(save)
    before, after = digests(saved[int(resumed[1])]), digests(saved[18])
    assert len(before) == len(after) == 2

    process = start(raw.uri, save, tmp_path / "second", workers=1, epochs=4)
    try:
        said = finished(process, tmp_path / "second")
    finally:
        process.kill()
    assert "resumed after step 18" in said and "done after 24 steps" in said
    last = digests(checkpoints(save)[24])
    assert len(last) == 1
    with millrace.Loader(raw.uri, batch_size=8, size=16, epochs=4, seed=1, digest="raw") as loader:
        for _ in range(4):
            for _ in loader:
                pass
        assert add_digests(*before, *after, *last) == loader.report()["digest"]
