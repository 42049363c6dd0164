"""Pythons that Millrace starts in a folder that others have filled: they import nothing from there (C26)."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
import torch

# Modules of Python's library and of packages that these programs import.
MODULES = ["argparse", "base64", "json", "numpy", "os", "platform", "pyarrow", "runpy", "safetensors", "struct", "tokenizers", "torch"]  # fmt: skip
TRAP = "import pathlib\npathlib.Path({folder!r}, 'ran').touch()\n"


@pytest.fixture
def downloads(tmp_path: pathlib.Path) -> pathlib.Path:
    """As `millrace sync` has brought it from a bucket."""
    folder = tmp_path / "downloads"
    (folder / "millrace").mkdir(parents=True)
    trap = TRAP.format(folder=str(tmp_path))
    for name in [*MODULES, "millrace/__init__", "millrace/preflight", "millrace/checkpoint_import"]:
        (folder / f"{name}.py").write_text(trap)
    pq.write_table(pa.table({"label": [1, 2, 3]}), folder / "x.parquet")
    torch.save({"a": torch.ones(2)}, folder / "model.pt")
    (folder / "texts.jsonl").write_text('{"text": "one"}\n')
    (folder / "tokenizer.json").write_text("{}")
    return folder


def run(binary: pathlib.Path, folder: pathlib.Path, *words: str, **environment: str) -> Any:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    env |= {"MILLRACE_PYTHON": sys.executable, **environment}
    done = subprocess.run(
        [str(binary), *words], cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert not (folder.parent / "ran").exists(), (words, done.stderr)
    return done


def test_c26_a_python_imports_nothing_from_the_current_folder(
    millrace_bin: pathlib.Path, downloads: pathlib.Path
) -> None:
    python = ["--python", sys.executable]
    packed = run(millrace_bin, downloads, "pack", "x.parquet", "../packed")
    assert packed.returncode == 0, packed.stderr
    copied = run(millrace_bin, downloads, "checkpoint", "cp", *python, "model.pt", "../run")
    assert copied.returncode == 0, copied.stderr
    exported = run(millrace_bin, downloads, "checkpoint", "export", *python, "../run", "../out.pt")
    assert exported.returncode == 0, exported.stderr
    assert torch.load(downloads.parent / "out.pt", weights_only=True)["model"]["a"].tolist() == [1, 1]
    texts = run(millrace_bin, downloads, "pack", "texts.jsonl", "../tokens", "--tokenizer", "tokenizer.json")
    assert texts.returncode == 1 and "tokenizer" in texts.stderr
    key = run(millrace_bin, downloads, "compile-cache", "--print-key", "s3://bkt/compiled", "--", "python3", "t.py")
    assert f"torch {torch.__version__.split('+')[0]}" in key.stdout + key.stderr or key.returncode == 0, key.stderr
    host = run(millrace_bin, downloads, "doctor", "host", "--disk", "..", "--min-free", "1MiB", *python, "--json")
    checks = {check["name"]: check["text"] for check in json.loads(host.stdout)["checks"]}
    assert "No module" not in str(checks), checks


def test_c26_folders_of_the_user_are_searched(millrace_bin: pathlib.Path, downloads: pathlib.Path) -> None:
    """PYTHONPATH says where the user's own modules are, the current folder included."""
    own = downloads.parent / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import pathlib\npathlib.Path('../own/ran').touch()\n")
    path = os.pathsep.join([str(own), os.environ.get("PYTHONPATH", "")])
    assert run(millrace_bin, downloads, "pack", "x.parquet", "../packed", PYTHONPATH=path).returncode == 0
    assert (own / "ran").exists()
