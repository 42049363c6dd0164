"""Tests the Debian package: its version is that of the project, and it has what it takes to run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_it_is_built_with_what_setup_installs() -> None:
    setup = (ROOT / "scripts/setup").read_text()
    libraries = re.search(r"# libraries\n((?:  .*\n)+?)  #", setup)
    assert libraries
    control = (ROOT / "debian/control").read_text()
    named = set(
        re.findall(r"[\w.+-]+", control[control.index("Build-Depends:") : control.index("Rules-Requires-Root")])
    )
    wanted = {name for name in libraries[1].split() if name.endswith("-dev")}
    assert len(wanted) > 10 and wanted <= named, wanted - named


def make_rules(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "-f", ROOT / "debian/rules", "build", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def test_the_sources_alone_are_built_by_the_python_of_the_system(tmp_path: Path) -> None:
    """A builder of Debian's packages has them so: without the environment that scripts/setup makes, and without a
    library of the tests."""
    said = make_rules(tmp_path, "--dry-run").stdout
    assert "/usr/bin/python3 -c 'import nanobind'" in said and ".venv" not in said
    assert "-DPython_EXECUTABLE=/usr/bin/python3" in said and "-DMILLRACE_TESTS=OFF" in said
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").touch()
    assert f"-DPython_EXECUTABLE={tmp_path}/.venv/bin/python" in make_rules(tmp_path, "--dry-run").stdout


def test_a_python_without_nanobind_is_named(tmp_path: Path) -> None:
    python = tmp_path / "python3"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    done = make_rules(tmp_path, f"BUILD_PYTHON={python}")
    assert done.returncode != 0
    assert f"{python} has no nanobind" in done.stderr and "scripts/setup demo" in done.stderr


@pytest.mark.all
def test_the_package(tmp_path: Path, millrace_bin: Path) -> None:
    """Needs the release build, which it packs."""
    assert millrace_bin == ROOT / "build/release/bin/millrace"
    subprocess.run(
        [ROOT / "scripts/deb"],
        check=True,
        capture_output=True,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(tmp_path)},
    )
    version = re.search(r"project\(millrace VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())
    assert version
    (package,) = (ROOT / "dist").glob(f"millrace_{version[1]}_*.deb")
    facts = subprocess.run(["dpkg-deb", "--field", package], check=True, capture_output=True, text=True).stdout
    assert f"Version: {version[1]}\n" in facts
    for needed in ("libssl3", "libjpeg62-turbo", "libfuse3-3", "python3 (>= 3.", "python3-numpy"):
        assert needed in facts
    subprocess.run(["dpkg-deb", "--extract", package, tmp_path / "root"], check=True)
    said = subprocess.run(
        [tmp_path / "root/usr/bin/millrace", "--version"], check=True, capture_output=True, text=True
    ).stdout
    assert said.split()[-1] == version[1]
    packages = tmp_path / "root/usr/lib/python3/dist-packages"
    code = "import millrace, sys; print(millrace.__version__, millrace.__file__)"
    said = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(packages)},
    ).stdout
    assert said.split() == [version[1], str(packages / "millrace/__init__.py")]
    pages = {path.name for path in (tmp_path / "root/usr/share/man/man1").iterdir()}
    assert {"millrace.1.gz", "millrace-feed.1.gz", "millrace-top.1.gz"} <= pages
    share = tmp_path / "root/usr/share"
    for place in (
        "bash-completion/completions/millrace",
        "zsh/vendor-completions/_millrace",
        "fish/vendor_completions.d/millrace.fish",
    ):
        assert "checkpoint" in (share / place).read_text()
