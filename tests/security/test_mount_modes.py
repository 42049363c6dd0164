"""A folder that is mounted shows its files to nobody who may not read them there (C7)."""

from __future__ import annotations

import os
import pathlib
import stat
import subprocess
import sys
from collections.abc import Iterator

import pytest
from e2e.harness import Sandbox
from e2e.mounting import mounted, needs_fuse
from two_users import cannot_be_others

STRANGER = 64_002
ANOTHER_GROUP = 64_003

pytestmark = needs_fuse

READS = """
import pathlib, sys
for path in sorted(pathlib.Path(sys.argv[1]).rglob("*")):
    try:
        if path.is_file():
            print(path.name, path.read_text())
    except OSError:
        pass
"""


@pytest.fixture
def source(tmp_path: pathlib.Path) -> pathlib.Path:
    """Files that are open to all, to a group, and to nobody else."""
    folder = tmp_path / "source"
    closed = folder / "closed"
    closed.mkdir(parents=True)
    folder.chmod(0o755)
    modes = {"open": 0o644, "group": 0o640, "private": 0o600, "closed/inside": 0o644}
    for name, mode in modes.items():
        path = folder / name
        path.write_text(f"text of {name}")
        path.chmod(mode)
    closed.chmod(0o700)
    return folder


def modes(folder: pathlib.Path) -> dict[str, int]:
    paths = [folder, *folder.rglob("*")]
    return {str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode) for path in paths}


@pytest.fixture
def sandbox(tmp_path: pathlib.Path) -> Iterator[Sandbox]:
    yield Sandbox(tmp_path)


def test_c7_a_private_file_stays_private_on_a_mount(
    sandbox: Sandbox, source: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    folder = tmp_path / "mnt"
    with mounted(sandbox, source, folder):
        assert modes(folder) == {
            ".": 0o555, "open": 0o444, "group": 0o440, "private": 0o400, "closed": 0o500, "closed/inside": 0o444
        }  # fmt: skip
    with mounted(sandbox, source, folder, "-o", f"umask=007,gid={ANOTHER_GROUP}"):
        # The group of the mount is another one than that of the files.
        assert modes(folder) == {
            ".": 0o550, "open": 0o440, "group": 0o400, "private": 0o400, "closed": 0o500, "closed/inside": 0o440
        }  # fmt: skip
    with mounted(sandbox, source, folder, "--writable"):
        for name in ("private", "new"):
            (folder / name).write_text("other text")
        assert stat.S_IMODE((folder / "private").stat().st_mode) == 0o600
        assert stat.S_IMODE((folder / "new").stat().st_mode) & 0o044 == (source / "new").stat().st_mode & 0o044
    assert (source / "private").read_text() == "other text"
    assert stat.S_IMODE((source / "private").stat().st_mode) == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
def test_c7_others_read_no_private_file(sandbox: Sandbox, source: pathlib.Path, tmp_path: pathlib.Path) -> None:
    for above in (tmp_path, *tmp_path.parents):
        if above.stat().st_uid == 0 and str(above).count("/") > 1:
            above.chmod(above.stat().st_mode | 0o711)

    def read_as(user: int) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", READS, str(folder)], user=user, group=user, extra_groups=[], capture_output=True, text=True, timeout=300, check=False
        )  # fmt: skip
        if done.returncode != 0:
            cannot_be_others(f"user {user} runs nothing here: {done.stderr}")
        return done.stdout.splitlines()

    folder = tmp_path / "mnt"
    with mounted(sandbox, source, folder, "-o", "allow_other"):
        assert read_as(STRANGER) == ["open text of open"]
        assert len(read_as(0)) == 4
