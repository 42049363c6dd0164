"""Stores with faults of their own in listings: a command must list, remove or copy every object."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_support import Millrace, lines


@pytest.mark.parametrize("command", ["ls", "rm", "sync"])
def test_a_store_that_skips_keys(
    millrace: Millrace, devstore: Callable[..., Any], tmp_path: Path, command: str
) -> None:
    """If a listing starts after a name that is no key, MinIO's continuation leaves out a key. A long listing asks so."""
    folder = tmp_path / "root" / "bkt" / "train"
    folder.mkdir(parents=True)
    for number in range(9000):
        (folder / f"{number * 2654435761 % 2**32:08x}.jpg").touch()
    store = devstore(tmp_path / "root", "--fault", "GET * skip-key")
    names = {path.name for path in folder.iterdir()}
    if command == "ls":
        listed = lines(millrace("ls", "--recursive", "s3://bkt/train/", env=store.env()))
        assert len(listed) == len(names)
    elif command == "rm":
        millrace("rm", "--recursive", "s3://bkt/train/", env=store.env())
        assert not list(folder.parent.rglob("*.jpg"))
    else:
        report = lines(millrace("sync", "--dry-run", "s3://bkt/train/", tmp_path / "copy", env=store.env()))
        assert len(report) == len(names) + 1
