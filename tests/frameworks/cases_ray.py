"""Tests workers of the data service as actors, and examples/ray_train.py. A worker is killed, Ray starts all again, and
every sample counts once; the same command continues with another number of workers."""

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
import pytest
import torch
from support import Samples, add_digests

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "ray_train.py"
STARTED_WITHIN = 240  # seconds


def start(data: str, save: pathlib.Path, log: pathlib.Path, workers: int, epochs: int) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        str(EXAMPLE),
        data,
        "--save",
        str(save),
        "--workers",
        str(workers),
        "--epochs",
        str(epochs),
    ]
    settings = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "OMP_NUM_THREADS": "1",
        "RAY_DEDUP_LOGS": "0",
        "MILLRACE_CACHE": str(log.with_suffix(".cache")),
    }
    with open(log, "wb") as out:
        return subprocess.Popen(
            [*command, "--batch", "8", "--size", "16", "--every", "2"],
            stdout=out,
            stderr=out,
            env={**os.environ, **settings},
        )


def workers_of(log: pathlib.Path) -> list[int]:
    """Returns the processes that train: Ray calls them so, and the environment tells whose they are."""
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
    """Returns whole checkpoints, by step; of a step that was taken twice the later one."""
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


def test_workers_as_actors(raw: Samples, tmp_path: pathlib.Path) -> None:
    """The workers are in a placement group; one that is killed is started again, and the batches are those of a local
    loader all the while."""
    import millrace.ray
    import ray

    options = {"batch_size": 8, "size": 16, "digest": "raw", "output": "numpy", "memory": "64MiB"}
    with millrace.Loader(raw.uri, epochs=1, **options) as local:
        keys = [list(batch["key"]) for batch in local]
        digest = local.report()["digest"]
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, configure_logging=False)
    try:
        with pytest.raises(millrace.InvalidArgumentError, match="allow"):
            millrace.ray.Workers(2, allow=[])
        with pytest.raises(millrace.UnavailableError, match="no room"):
            millrace.ray.Workers(3, cpus=64, allow=[raw.uri], timeout=2)
        with pytest.raises(millrace.InvalidArgumentError, match="keep_decoded"):
            millrace.ray.Workers(1, allow=[raw.uri], functions=["json"], keep_decoded="64MiB")
        with pytest.raises(
            TypeError, match=r"ray.Workers takes no cache_size; write cache=millrace.Cache\(path, size=\)"
        ):
            millrace.ray.Workers(1, allow=[raw.uri], cache="memory", cache_size="64MiB")
        kept = {"cache": millrace.Cache("memory", "64MiB"), "keep_decoded": "64MiB"}
        with millrace.ray.Workers(2, cpus=1, allow=[raw.uri], memory="512MiB", **kept) as pool:
            access = pool.access()
            assert len(set(access.addresses)) == 2 and access.token not in repr(access)

            @ray.remote
            def elsewhere(access: millrace.ray.Access) -> tuple[list[list[str]], str, list[dict[str, object]]]:
                with millrace.Loader(raw.uri, epochs=1, **options, **access.options()) as loader:
                    got = [list(batch["key"]) for batch in loader]
                    return got, loader.report()["digest"], loader.report()["workers"]

            got, found, report = ray.get(elsewhere.remote(access))
            # A worker that begins late may be overtaken by the other one.
            assert got == keys and found == digest and report[-1]["rows"] == 0
            assert all(entry["rows"] or entry["last_failure"] for entry in report[:-1])

            first = ray.get(pool._actors[0].pid.remote())
            os.kill(first, signal.SIGKILL)
            deadline = time.monotonic() + 60
            while ray.get(pool._actors[0].pid.remote()) == first:
                assert time.monotonic() < deadline
                time.sleep(0.1)
            got, found, report = ray.get(elsewhere.remote(access))
            assert got == keys and found == digest and (report[0]["rows"] or report[0]["last_failure"])
            pids = ray.get([actor.pid.remote() for actor in pool._actors])
        assert not [pid for pid in pids if pathlib.Path(f"/proc/{pid}/exe").exists()]
    finally:
        ray.shutdown()
