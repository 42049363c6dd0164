"""Flows of jobs: what they start with is that of the tests of the commands."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Iterator

import built_package

sys.path.insert(0, str(built_package.folder()))

import pytest


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> Iterator[None]:
    """Programs find the package that was built; no test belongs to a job of several hosts unless it says so."""
    monkeypatch.setenv("PYTHONPATH", str(built_package.folder()))
    monkeypatch.setenv("MILLRACE_CACHE", str(tmp_path / "cache"))
    for name in ("WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    yield
