"""Mounts buckets as folders, for rival_loaders.py: PyTorch's DataLoader reads their files."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rival_images import Epochs, Refused, Task
from rival_torch import dataloader

MOUNT_SECONDS = 20


def s3fs(task: Task) -> Epochs:
    options = f"url={task.endpoint or f'https://s3.{task.region}.amazonaws.com'},endpoint={task.region},ro,stat_cache_expire=3600"
    more = (",use_path_request_style" if task.endpoint else "") + (f",use_cache={task.cache}" if task.cache else "")
    return mounted(task, lambda folder: ["s3fs", task.bucket, folder, "-f", "-o", options + more])


def rclone(task: Task) -> Epochs:
    where = (
        [f"--s3-endpoint={task.endpoint}", "--s3-force-path-style"] if task.endpoint else [f"--s3-region={task.region}"]
    )
    if "AWS_CA_BUNDLE" in os.environ:
        where.append(f"--ca-cert={os.environ['AWS_CA_BUNDLE']}")
    s3 = [f"--s3-provider={'Other' if task.endpoint else 'AWS'}", "--s3-env-auth", *where]
    options = ["--read-only", "--dir-cache-time=1h", "--config=/dev/null"]
    if task.cache:
        options += ["--vfs-cache-mode=full", f"--cache-dir={task.cache}"]
    return mounted(task, lambda folder: ["rclone", "mount", f":s3:{task.bucket}", folder, *s3, *options])


def mounted(task: Task, command: Callable[[str], list[str]]) -> Epochs:
    """Makes the loader over the folder of a mount, whose process is a child of this one, so that its CPU time
    counts."""
    folder = task.scratch / "mount"
    program = command(str(folder))[0]
    if not task.on_s3:
        raise Refused("it mounts buckets of S3, and these data are files")
    if shutil.which(program) is None:
        raise Refused(f"the program {program} is missing: apt-get install {program}")
    import fsspec  # noqa: F401
    import torch.utils.data  # noqa: F401

    folder.mkdir(parents=True)
    if task.cache:
        task.cache.mkdir()
    task.cache = None  # of the mount, and not of what reads its files
    environment = dict(os.environ)
    if bundle := environment.pop("AWS_CA_BUNDLE", ""):  # which rclone refuses, and s3fs does not know
        environment["CURL_CA_BUNDLE"] = bundle
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    task.begin()
    began = task.began
    mount = subprocess.Popen(command(str(folder)), env=environment, text=True, **pipes)
    task.at_end.append(lambda: unmount(folder))
    while not os.path.ismount(folder):
        if mount.poll() is not None or time.perf_counter() > began + MOUNT_SECONDS:
            mount.kill()
            said = (mount.communicate()[1] or "").strip().splitlines()
            raise Refused(f"{program} does not mount the bucket: {said[-1] if said else 'it says nothing'}")
        time.sleep(0.01)
    task.uri = str(folder / task.prefix)
    epochs = dataloader(task)
    task.began = began  # mounting is part of what it takes
    return epochs


def unmount(folder: Path) -> None:
    for program in ("fusermount3", "fusermount"):
        if (
            shutil.which(program)
            and subprocess.run([program, "-u", "-z", folder], stderr=subprocess.DEVNULL, check=False).returncode == 0
        ):
            return
