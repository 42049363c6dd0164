"""The package is fully typed, its stub matches the module, and users' code is checked with it."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import millrace

PACKAGE = pathlib.Path(millrace.__file__).resolve().parent


def mypy(*arguments: str, cwd: pathlib.Path) -> subprocess.CompletedProcess[str]:
    # The sources beside the stub, not the built package: its files are links to these.
    environment = {**os.environ, "MYPYPATH": str(PACKAGE.parent)}
    return subprocess.run(
        [sys.executable, "-m", *arguments], cwd=cwd, env=environment, capture_output=True, text=True, timeout=800
    )


def test_package_is_strictly_typed(tmp_path: pathlib.Path) -> None:
    result = mypy("mypy", "--strict", "--cache-dir", str(tmp_path), str(PACKAGE), cwd=tmp_path)
    assert result.returncode == 0, result.stdout


def test_stub_matches_the_module(tmp_path: pathlib.Path) -> None:
    # A stub can neither name the metaclass of pybind11's classes nor say that one has no constructor.
    allowed = ["Batches", "Batches.__init__", "Checkpoint", "Checkpoint.__init__", "Checkpoints"]
    allowed += ["Counts", "Counts.__init__", "CheckpointSave", "CheckpointSave.__init__", "Dataset", "Loader", "Plan"]
    allowed += ["ReadFile", "Worker", "WriteFile"]
    (tmp_path / "allowed").write_text("".join(f"millrace._core.{name}\n" for name in allowed))
    result = mypy("mypy.stubtest", "millrace._core", "--allowlist", "allowed", cwd=tmp_path)
    assert result.returncode == 0, result.stdout


def test_users_code_is_checked(tmp_path: pathlib.Path) -> None:
    (tmp_path / "good.py").write_text(
        """
import millrace
from typing_extensions import assert_type
loader = millrace.Loader("s3://b/p", batch_size=4, image=millrace.Image(mean=(0.1, 0.2, 0.3)), memory="1GiB")
for batch in loader:
    assert_type(batch["key"], list[str])
assert_type(loader.report()["stalls"], dict[str, float])
assert_type(millrace.Plan(10)[3], int)
assert_type(len(loader), int)
millrace.Loader(
    "p", 8, False, bad_samples="mask", digest="raw", output="torch", last="pad", fields={"mask": millrace.Image("png", interpolation="nearest")}
)
"""
    )
    result = mypy("mypy", "--strict", "--cache-dir", str(tmp_path / "c"), "good.py", cwd=tmp_path)
    assert result.returncode == 0, result.stdout
    (tmp_path / "bad.py").write_text("import millrace\nmillrace.Loader('p', batch=3)\n")
    result = mypy("mypy", "--strict", "--cache-dir", str(tmp_path / "c"), "bad.py", cwd=tmp_path)
    assert result.returncode == 1 and 'Unexpected keyword argument "batch"' in result.stdout


def test_texts_that_are_a_choice_are_checked(tmp_path: pathlib.Path) -> None:
    wrong = [
        "millrace.Loader('p', shuffle='yes')",
        "millrace.Loader('p', bad_samples='skip')",
        "millrace.Loader('p', digest='crc')",
        "millrace.Loader('p', output='jax')",
        "millrace.Loader('p', last='keep')",
        "millrace.Loader('p', normalize='cifar')",
        "millrace.Plan(10, shuffle='yes')",
        "millrace.Image(layout='chw')",
        "millrace.Image(interpolation='linear')",
        "millrace.Label(kind='str')",
        "millrace.Boxes('boxes', format='yx')",
        "millrace.Tokens(8, 'packed')",
        "millrace.Transfer('cuda', decode='gpu')",
        "millrace.Dataset('p', index='none')",
    ]
    (tmp_path / "bad.py").write_text("\n".join(["import millrace", *wrong]) + "\n")
    result = mypy("mypy", "--strict", "--cache-dir", str(tmp_path / "c"), "bad.py", cwd=tmp_path)
    lines = {int(line.split(":")[1]) for line in result.stdout.splitlines() if line.startswith("bad.py:")}
    assert lines == set(range(2, 2 + len(wrong))), result.stdout
