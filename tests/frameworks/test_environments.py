"""Runs the cases of each framework within its environment, which has the package's framework at a pinned version
(environments.py)."""

from __future__ import annotations

import importlib
import os
import pathlib
import subprocess

import environments
import pytest

FOLDER = pathlib.Path(__file__).resolve().parent


def test_each_environment_has_cases_and_each_cases_have_an_environment() -> None:
    assert environments.NAMES == sorted(path.stem.removeprefix("cases_") for path in FOLDER.glob("cases_*.py"))


def test_a_framework_that_is_missing_is_named() -> None:
    for module, missing in (
        ("lightning", "'lightning' and 'pytorch_lightning'"),
        ("tf", "'(keras|tensorflow)'"),
        ("ray", "'ray'"),
        ("_huggingface_trainer", "'transformers'"),
    ):
        with pytest.raises(ModuleNotFoundError, match=missing):
            importlib.import_module(f"millrace.{module}")


@pytest.mark.all
@pytest.mark.timeout(1800)  # with the time that the registry takes
@pytest.mark.parametrize("name", environments.NAMES)
def test_cases(name: str, tmp_path: pathlib.Path) -> None:
    command = [
        environments.make(name),
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--basetemp",
        tmp_path / "cases",
        FOLDER / f"cases_{name}.py",
    ]
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "MILLRACE_TEST_ALL": "1"},
    )
    assert done.returncode == 0, done.stdout
