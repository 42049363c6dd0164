"""Attacks on what Millrace serves, reads and imports. Names of tests begin with the number of the fault in the security review."""

from __future__ import annotations

import os
import pathlib
import sys

# The workers and the data sets are those of the tests of the package.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))

import built_package

sys.path.insert(0, str(built_package.folder()))
os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])

from collections.abc import Iterator

import pytest
from room import room_in
from two_users import TwoUsers, two_users


@pytest.fixture(scope="session", autouse=True)
def private_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No index of a test goes to the user's cache folder."""
    patch = pytest.MonkeyPatch()
    patch.setenv("MILLRACE_CACHE", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()


@pytest.fixture
def users(tmp_path: pathlib.Path, millrace_bin: pathlib.Path) -> TwoUsers:
    if os.geteuid() != 0:
        pytest.skip("only root can be two users")
    if room_in(tmp_path) < 64 << 20:
        pytest.skip("the disk is too full for a cache")
    return two_users(tmp_path, millrace_bin)
