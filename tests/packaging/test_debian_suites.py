"""`scripts/debian-suites` knows what apt takes here, also in an image without the lists of its apt. The archive is a folder: no network is needed."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts/debian-suites"


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine whose apt takes Debian and another archive from folders, and has no lists yet."""
    sources = []
    for origin in ("Debian", "Other"):
        suite = tmp_path / origin / "dists/stable"
        (suite / "main/binary-amd64").mkdir(parents=True)
        packages = b"Package: small\nVersion: 1\nArchitecture: all\n"
        (suite / "main/binary-amd64/Packages").write_bytes(packages)
        entry = f"{hashlib.sha256(packages).hexdigest()} {len(packages)} main/binary-amd64/Packages"
        (suite / "Release").write_text(
            f"Origin: {origin}\nCodename: stable\nSuite: stable\nDate: Sat, 01 Jan 2022 00:00:00 UTC\nComponents: main\nArchitectures: amd64\nSHA256:\n {entry}\n"
        )
        sources.append(f"deb [trusted=yes] file:{tmp_path}/{origin} stable main\n")
    (tmp_path / "sources.list").write_text("".join(sources))
    (tmp_path / "lists/partial").mkdir(parents=True)
    configuration = tmp_path / "apt.conf"
    configuration.write_text(
        f"""
Dir::Etc::sourcelist "{tmp_path}/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::State::lists "{tmp_path}/lists";
Dir::Cache "{tmp_path}/cache";
APT::Architecture "amd64";
APT::Architectures "amd64";
APT::Sandbox::User "";
"""
    )
    return os.environ | {"APT_CONFIG": str(configuration)}


def suites(machine: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [SCRIPT, "deb $(REPO_URI) $(RELEASE) $(COMPONENT)"]
    return subprocess.run(command, capture_output=True, text=True, env=machine)


def test_with_and_without_lists(machine: dict[str, str], tmp_path: Path) -> None:
    said = suites(machine)
    assert said.stdout == f"deb file:{tmp_path}/Debian/ stable main\n", said.stderr
    assert list((tmp_path / "lists").glob("*Release")) == []  # those of the system stay
    subprocess.run(["apt-get", "-qq", "update"], check=True, capture_output=True, env=machine)
    assert list((tmp_path / "lists").glob("*Release")) != []
    assert suites(machine).stdout == said.stdout


def test_a_machine_without_debian(machine: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "sources.list").write_text(f"deb [trusted=yes] file:{tmp_path}/Other stable main\n")
    said = suites(machine)
    assert said.returncode == 1 and said.stdout == ""
    assert "apt knows no mirror of the Debian that runs here" in said.stderr


def test_no_other_script_asks_apt() -> None:
    asking = {path.name for path in (ROOT / "scripts").iterdir() if "indextargets" in path.read_text()}
    assert asking == {"debian-suites"}
