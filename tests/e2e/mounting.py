"""Mounts for tests, and whether there can be any."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .harness import Sandbox

CAP_SYS_ADMIN = 1 << 21


def can_mount() -> bool:
    """Containers often have no /dev/fuse, or root may not mount there."""
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError:
        return False
    held = re.search(r"^CapEff:\s*(\w+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    may_mount = os.geteuid() != 0 or (held is not None and int(held[1], 16) & CAP_SYS_ADMIN != 0)
    return may_mount and shutil.which("fusermount3") is not None


needs_fuse = pytest.mark.skipif(
    not can_mount(), reason="file systems in user space need /dev/fuse, fusermount3 and CAP_SYS_ADMIN"
)


def is_mounted(folder: Path) -> bool:
    # Not os.path.ismount: it would ask a file system that may be stuck.
    return any(line.split(" ")[4] == str(folder) for line in Path("/proc/self/mountinfo").read_text().splitlines())


def wait_until(done: Callable[[], bool], what: str, limit: float = 300) -> None:
    deadline = time.monotonic() + limit
    while not done():
        assert time.monotonic() < deadline, f"{what}: not within {limit} s"
        time.sleep(0.01)


@contextlib.contextmanager
def mounted(
    sandbox: Sandbox,
    uri: object,
    folder: Path,
    *args: object,
    env: dict[str, str] | None = None,
    most_files: int = 0,
    log: Path | None = None,
) -> Iterator[subprocess.Popen]:
    """`millrace mount --foreground`, until the end of the block; the process may end earlier. `log` gets its warnings."""
    folder.mkdir(exist_ok=True)
    with log.open("wb") if log is not None else contextlib.nullcontext(subprocess.PIPE) as err:
        process = sandbox.start("mount", uri, folder, "--foreground", *args, env=env, err=err, most_files=most_files)
    try:
        wait_until(lambda: is_mounted(folder) or process.poll() is not None, "mounting")
        assert process.poll() is None, process.communicate()[1]
        yield process
    finally:
        process.terminate()
        try:
            _, err = process.communicate(timeout=120)
            assert process.returncode == 0, err
        finally:
            process.kill()
            subprocess.run(["umount", "-l", folder], stderr=subprocess.DEVNULL)
    assert not is_mounted(folder)
