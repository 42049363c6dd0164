"""Makes environments for frameworks that the developer's .venv must stay free of: one for each requirements-NAME.txt,
in build/frameworks/NAME.

An environment sees the packages of the Python that runs the tests, torch and pytest among them, below its own. Pip takes them for installed, so
that torch is never fetched again. It is made when a test first asks for it, and again when its requirements change.
"""

from __future__ import annotations

import fcntl
import importlib.metadata
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

FOLDER = pathlib.Path(__file__).resolve().parent
BUILT = FOLDER.parents[1] / "build" / "frameworks"
NAMES = sorted(path.stem.removeprefix("requirements-") for path in FOLDER.glob("requirements-*.txt"))


def make(name: str) -> pathlib.Path:
    """Returns the Python interpreter of an environment, which is made first if need be. Several processes may call
    this."""
    BUILT.mkdir(parents=True, exist_ok=True)
    requirements, folder = FOLDER / f"requirements-{name}.txt", BUILT / name
    installed, wanted = folder / "installed.txt", requirements.read_text() + f"# {sys.executable}\n"
    with open(BUILT / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not installed.exists() or installed.read_text() != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            _install(folder, requirements)
            installed.write_text(wanted)
    return folder / "bin" / "python"


def _install(folder: pathlib.Path, requirements: pathlib.Path) -> None:
    _run([sys.executable, "-m", "venv", folder])
    outer = sysconfig.get_paths()["purelib"]
    inner = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (inner / "packages_of_the_tests.pth").write_text(f"{outer}\n")
    constraints = (
        folder / "constraints.txt"
    )  # the torch that is there: another one would be a build for CUDA, of several GB
    constraints.write_text(f"torch=={importlib.metadata.version('torch').partition('+')[0]}\n")
    pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, "--constraint", constraints, "--requirement", requirements])


def _run(command: list[str | pathlib.Path]) -> None:
    # The packages of PYTHONPATH are neither installed nor wanted here.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))} failed: {done.stdout}")
