"""The same for programs of Lightning, Hugging Face and torchvision: each runs within an environment that has it (tests/frameworks)."""

from __future__ import annotations

import fcntl
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

import environments
import pytest

FOLDER = pathlib.Path(__file__).resolve().parent
NAMES = sorted(path.stem.removeprefix("cases_") for path in FOLDER.glob("cases_*.py"))


def interpreter(name: str) -> pathlib.Path:
    if name in environments.NAMES:
        return environments.make(name)
    requirements, folder = FOLDER / f"requirements-{name}.txt", environments.BUILT / name
    installed, wanted = folder / "installed.txt", requirements.read_text() + f"# {sys.executable}\n"
    environments.BUILT.mkdir(parents=True, exist_ok=True)
    with open(environments.BUILT / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not installed.exists() or installed.read_text() != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", folder], check=True)
            inner = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
            (inner / "packages_of_the_tests.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
            # Without what it depends on: its torch would be a build for CUDA, of several GB.
            pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
            subprocess.run([*pip, "--no-deps", "--requirement", requirements], check=True, env=environment)
            installed.write_text(wanted)
    return folder / "bin" / "python"


@pytest.mark.all
@pytest.mark.timeout(1800)  # with the time that the registry takes
@pytest.mark.parametrize("name", NAMES)
def test_cases(name: str, tmp_path: pathlib.Path) -> None:
    command = [interpreter(name), "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", tmp_path / "cases"]
    done = subprocess.run(
        [*command, FOLDER / f"cases_{name}.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "MILLRACE_TEST_ALL": "1"},
    )
    assert done.returncode == 0, done.stdout
