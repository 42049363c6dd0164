"""Tests workers that trainers find: in lists, and behind a name in DNS, where they come and go."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import millrace
import pytest
from service_support import received, rows_of_workers
from support import Samples

CASES = pathlib.Path(__file__).with_name("cases_changing_names.py")


def test_names_and_lists(tar: Samples, workers: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = workers()
    port = worker.address.split(":")[1]
    groups = [
        {"instance_group_name": "data", "hosts": ["127.0.0.1"]},
        {"instance_group_name": "train", "hosts": ["algo-2"]},
    ]
    (tmp_path / "resourceconfig.json").write_text(json.dumps({"current_host": "algo-2", "instance_groups": groups}))
    monkeypatch.setenv("SM_INPUT_CONFIG_DIR", str(tmp_path))
    local, _ = received(tar.uri)
    for place in (f"dns:localhost:{port}", f"slurm:127.0.0.[1-1]:{port}", f"sagemaker:data:{port}"):
        remote, loader = received(tar.uri, workers=[place])
        assert remote == local and rows_of_workers(loader)[worker.address] > 0, place
    with pytest.raises(millrace.NotFoundError, match="data, train"):
        received(tar.uri, workers=[f"sagemaker:gpu:{port}"])


def test_a_name_without_workers(tar: Samples) -> None:
    """The trainer decodes, after a few seconds in which a worker may come."""
    remote, loader = received(tar.uri, workers=["dns:there-is-no-such-name.invalid:7070"])
    assert remote == received(tar.uri)[0] and rows_of_workers(loader)["local"] > 0


def test_names_that_change(tmp_path: pathlib.Path) -> None:
    """It runs in a process of its own, whose names come from a file: see there."""
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost\n")
    names = {"LD_PRELOAD": "libnss_wrapper.so", "NSS_WRAPPER_HOSTS": str(hosts)}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", CASES, "-q", "-x", "-p", "no:cacheprovider", "-p", "no:randomly"],
        env=os.environ | names, capture_output=True, text=True, timeout=800,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout, done.stdout
