"""Tests everyday ways (tests/mount/everyday.py) whose libraries and programs the developer's machine need not have:
they work on a mount."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "mount"))

import everyday
from e2e.harness import Sandbox, devstore
from e2e.mounting import needs_fuse

PROGRAMS = {"rsync": ["rsync", "libpopt0"], "sponge": ["moreutils"]}  # and their packages of Debian
WAYS = [way for way in everyday.WAYS if way.group == "library" or set(PROGRAMS).intersection(way.needs)]

pytestmark = needs_fuse


@pytest.fixture(scope="module", autouse=True)
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fetches Debian's programs and does not install them."""
    folder = tmp_path_factory.mktemp("programs")
    packages = [package for packages in PROGRAMS.values() for package in packages]
    subprocess.run(["apt-get", "download", "-qq", *packages], cwd=folder, check=True)
    for archive in folder.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", archive, folder], check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(folder / "usr/bin"), prepend=os.pathsep)
        libraries = [str(path) for path in folder.glob("usr/lib/*-linux-gnu")]
        patch.setenv("LD_LIBRARY_PATH", os.pathsep.join(libraries), prepend=os.pathsep)
        yield


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> everyday.Bench:
    return everyday.Bench(tmp_path_factory.mktemp("bench"))


@pytest.fixture(scope="module")
def mount(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pathlib.Path]:
    root = tmp_path_factory.mktemp("mount")
    (root / "home").mkdir()
    sandbox = Sandbox(root / "home")
    with (
        devstore(sandbox, "mem:", "--bucket", "b") as store,
        everyday.file_system("millrace", sandbox, store, root / "mnt") as folder,
    ):
        yield folder


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_what_works_on_a_disk_works_on_a_mount(bench: everyday.Bench, mount: pathlib.Path, way: everyday.Way) -> None:
    assert everyday.missing(way) == []
    assert bench.compare(way, mount / str(WAYS.index(way))) == ""
