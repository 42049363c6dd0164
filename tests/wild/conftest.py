"""Data, stores and settings as people really have them: the package and the cache of these tests."""

from __future__ import annotations

import os
import pathlib
import sys

# Helpers are those of the tests of the package.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))

import built_package

sys.path.insert(0, str(built_package.folder()))
os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def private_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No index of a test goes to the user's cache folder."""
    patch = pytest.MonkeyPatch()
    patch.setenv("MILLRACE_CACHE", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()
