"""Everyday ways to copy and to make files (everyday.py) work on a mount as they do on a local disk."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import everyday
import pytest
from e2e.harness import Sandbox, devstore
from e2e.mounting import needs_fuse
from thoroughness import ALL

pytestmark = needs_fuse


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> everyday.Bench:
    return everyday.Bench(tmp_path_factory.mktemp("bench"))


def started(tmp_path_factory: pytest.TempPathFactory, system: str) -> Iterator[Path]:
    root = tmp_path_factory.mktemp(f"everyday-{system}")
    (root / "home").mkdir()
    sandbox = Sandbox(root / "home")
    with (
        devstore(sandbox, "mem:", "--bucket", "b") as store,
        everyday.file_system(system, sandbox, store, root / "mnt") as folder,
    ):
        yield folder


@pytest.fixture(scope="module")
def mount(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield from started(tmp_path_factory, "millrace")


@pytest.mark.parametrize("way", everyday.WAYS, ids=lambda way: way.name)
def test_what_works_on_a_disk_works_on_a_mount(bench: everyday.Bench, mount: Path, way: everyday.Way) -> None:
    if lacks := everyday.missing(way):
        pytest.skip(f"for lack of {', '.join(lacks)}")
    assert bench.compare(way, mount / str(everyday.WAYS.index(way))) == ""


@pytest.mark.parametrize("system", ["s3fs", "rclone"])
@pytest.mark.skipif(not ALL, reason="rivals are measured by make test-all")
def test_a_way_can_fail(bench: everyday.Bench, tmp_path_factory: pytest.TempPathFactory, system: str) -> None:
    """The check finds what is missing on mounts of others: neither is a disk for all of these ways."""
    if shutil.which(system) is None:
        pytest.skip(f"{system} is not installed")
    ways = [way for way in everyday.WAYS if not everyday.missing(way)]
    for folder in started(tmp_path_factory, system):
        failed = [way.name for number, way in enumerate(ways) if bench.compare(way, folder / str(number))]
        assert 0 < len(failed) < len(ways), failed


def test_a_tree_that_differs_is_found(bench: everyday.Bench, tmp_path: Path) -> None:
    """The canary: a way that leaves something else, and one that fails."""
    differs = everyday.shell("differs", script='echo "$PWD" > x')
    fails = everyday.shell("fails", script=f'case "$PWD" in {tmp_path}/*) exit 3;; esac')
    assert "another tree" in bench.compare(differs, tmp_path / "a")
    assert "3" in bench.compare(fails, tmp_path / "b")
