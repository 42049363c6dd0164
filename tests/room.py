"""Room for a cache: it leaves 5 % of its file system free, and the disk on which the tests run may be fuller than that."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

# More than any test keeps.
_ENOUGH = 1 << 30


def room_in(folder: Path) -> float:
    """Bytes that a cache there may take, beyond which it would leave too little free; less than 0 if there is too little already."""
    disk = os.statvfs(folder)
    return (disk.f_bavail - 0.05 * disk.f_blocks) * disk.f_frsize


@contextlib.contextmanager
def with_room(folder: Path) -> Iterator[Path]:
    """`folder`, if a cache may keep something there; else a folder in memory, which is gone afterwards."""
    memory = Path("/dev/shm")
    if room_in(folder) >= _ENOUGH or not memory.is_dir() or room_in(memory) <= room_in(folder):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="millrace-test-", dir=memory) as other:
        yield Path(other)
