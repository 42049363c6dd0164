"""Has data for the cases, which run within an environment of their framework: `cases_NAME.py` is run by
test_environments.py."""

from __future__ import annotations

import os
import pathlib
import sys

# The developer's own run of `build/frameworks/NAME/bin/python -m pytest tests/frameworks/cases_NAME.py` finds what test_environments.py gives.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))

import built_package

sys.path.insert(0, str(built_package.folder()))
os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])

import pytest
from support import Samples, write_raw, write_tar


@pytest.fixture(scope="session", autouse=True)
def private_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """No index of a test goes to the user's cache folder."""
    os.environ["MILLRACE_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Samples:
    """Makes 45 PNGs of 24 x 32 RGB pixels as raw objects, in the folders cat, dog and eel."""
    return write_raw(tmp_path_factory.mktemp("raw"), count=45)


@pytest.fixture(scope="session")
def tar(tmp_path_factory: pytest.TempPathFactory) -> Samples:
    """Makes 50 samples in three tar shards, with the fields cls, json, png and txt."""
    return write_tar(tmp_path_factory.mktemp("tar"), count=50)
