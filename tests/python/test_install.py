"""Tests that `pip install .` gives a working package and command."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest
from support import Samples

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.all
@pytest.mark.slow
@pytest.mark.timeout(2400)  # compiles everything, optimised, beside the other tests
def test_pip_install(tar: Samples, tmp_path: pathlib.Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    # The compiler by the name under which the other builds call it, so that its cache knows what they have compiled.
    environment.setdefault("CXX", "c++")

    def run(*command: str | pathlib.Path) -> str:
        result = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment, cwd=tmp_path)
        assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
        return result.stdout

    run(sys.executable, "-m", "venv", tmp_path / "venv")
    bin_folder = tmp_path / "venv" / "bin"
    run(bin_folder / "pip", "install", ROOT)
    script = """
import sys, millrace
loader = millrace.Loader(sys.argv[1], batch_size=8, size=8, epochs=1)
samples = 0
for batch in loader:
    samples += int(batch["valid"].sum())
print(millrace.__version__, samples, type(batch["image"]).__module__)
"""
    version, samples, module = run(bin_folder / "python", "-c", script, tar.uri).split()
    assert (samples, module) == ("50", "numpy")  # no torch there
    assert run(bin_folder / "millrace", "--version").split() == ["millrace", version]
