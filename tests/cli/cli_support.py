"""Helpers that the tests of commands share; the fixtures are in conftest.py."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

Millrace = Callable[..., subprocess.CompletedProcess[bytes]]


def lines(done: subprocess.CompletedProcess[bytes]) -> list[str]:
    return done.stdout.decode().splitlines()


def on_terminal(*words: str | Path, env: dict[str, str] | None = None) -> tuple[int, bytes]:
    """Runs the program on a terminal of its own. Returns its exit status and all that the terminal showed."""
    main, terminal = pty.openpty()
    process = subprocess.Popen(words, stdout=terminal, stderr=terminal, env=os.environ | (env or {}))
    os.close(terminal)
    shown = b""
    try:
        while piece := os.read(main, 65536):
            shown += piece
    except OSError:  # the end, of a terminal
        pass
    os.close(main)
    return process.wait(timeout=300), shown


def contents(root: Path) -> dict[str, bytes]:
    """All files, hidden and temporary ones too."""
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def damage_three(folder: Path) -> set[str]:
    """Cuts one of the JPEGs, overwrites one and empties one; their names below the folder."""
    damaged = sorted(folder.rglob("*.jpg"))[3:12:4]
    assert len(damaged) == 3
    damaged[0].write_bytes(damaged[0].read_bytes()[:-500])
    damaged[1].write_bytes(b"no image" * 100)
    damaged[2].write_bytes(b"")
    return {str(path.relative_to(folder).with_suffix("")) for path in damaged}


@dataclass
class Bucket:
    """A bucket of a devstore: through boto3, and what a command needs to reach it."""

    s3: Any
    env: dict[str, str]

    def put(self, **objects: bytes) -> None:
        for key, body in objects.items():
            self.s3.put_object(Bucket="bkt", Key=key, Body=body)

    def objects(self) -> dict[str, bytes]:
        return {key: self.s3.get_object(Bucket="bkt", Key=key)["Body"].read() for key in self.keys()}

    def keys(self) -> list[str]:
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket="bkt")
        return [item["Key"] for page in pages for item in page.get("Contents", [])]


def can_mount() -> bool:
    """Containers often have no /dev/fuse, or root may not mount there."""
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError:
        return False
    held = re.search(r"^CapEff:\s*(\w+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    may_mount = os.geteuid() != 0 or (held is not None and int(held[1], 16) & 1 << 21 != 0)  # CAP_SYS_ADMIN
    return may_mount and shutil.which("fusermount3") is not None


needs_fuse = pytest.mark.skipif(
    not can_mount(), reason="file systems in user space need /dev/fuse, fusermount3 and CAP_SYS_ADMIN"
)
