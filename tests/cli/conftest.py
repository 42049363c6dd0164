"""Fixtures for the tests of commands."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_support import Bucket, Millrace


@pytest.fixture
def millrace(millrace_bin: Path) -> Millrace:
    """Runs the command and holds it to its exit status; a failure must say why."""

    def run(
        *arguments: str | Path, code: int = 0, cwd: Path | None = None, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        done = subprocess.run(
            [str(millrace_bin), *map(str, arguments)],
            capture_output=True,
            cwd=cwd,
            env=os.environ | (env or {}),
            timeout=300,
        )
        assert done.returncode == code, (arguments, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
        if code and "doctor" not in arguments:  # whose findings are its output
            log = os.environ | (env or {})
            last = done.stderr.splitlines()[-1] if log.get("MILLRACE_LOG") == "debug" else done.stderr
            assert last.startswith(b"millrace"), done.stderr
        return done

    return run


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    for name, data in {
        "a-": b"1",
        "a/x": b"22",
        "a/y/z": b"333",
        "a0": b"4444",
        "big": bytes(range(256)) * 100_000,
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def in_bucket(server: Any) -> Bucket:
    s3 = server.client()
    s3.create_bucket(Bucket="bkt")
    return Bucket(s3, server.env())


@pytest.fixture
def bucket(devstore: Callable[..., Any]) -> Bucket:
    return in_bucket(devstore("mem:"))


@pytest.fixture
def faulty_bucket(devstore: Callable[..., Any]) -> Callable[..., Bucket]:
    """A bucket of a server with these faults."""
    return lambda *faults: in_bucket(devstore("mem:", *(word for fault in faults for word in ("--fault", fault))))
