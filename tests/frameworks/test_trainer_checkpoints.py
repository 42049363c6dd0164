"""Runs the cases of the checkpoints of each framework within its environment (environments.py)."""

from __future__ import annotations

import os
import pathlib
import subprocess

import pytest

environments = pytest.importorskip("environments", reason="tests/frameworks/environments.py makes the environments")
FOLDER = pathlib.Path(__file__).resolve().parent


@pytest.mark.all
@pytest.mark.timeout(1800)  # with the time that the registry takes
@pytest.mark.parametrize("name", ["huggingface", "lightning"])
def test_checkpoints_of(name: str, tmp_path: pathlib.Path, millrace_bin: pathlib.Path) -> None:
    cases = FOLDER / f"checkpoints_of_{name}.py"
    command = [
        environments.make(name),
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--basetemp",
        tmp_path / "cases",
        cases,
    ]
    environment = {**os.environ, "MILLRACE_BIN": str(millrace_bin)}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    assert done.returncode == 0, done.stdout
