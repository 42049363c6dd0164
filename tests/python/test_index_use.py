"""Tests Dataset(index=): where an index that has to be built is kept, or that no index is built."""

from __future__ import annotations

import os
import pathlib
import shutil

import millrace
import pytest
from support import Samples


@pytest.fixture
def data(raw: Samples, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Makes data without an index; the cache folder is empty."""
    shutil.copytree(raw.uri, tmp_path / "data", ignore=shutil.ignore_patterns(".millrace"))
    monkeypatch.setenv("MILLRACE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "data"


def test_require_builds_none(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with pytest.raises(
        millrace.NotFoundError, match=f"there is no index, and none is to be built here.*millrace index {data}"
    ):
        millrace.Dataset(data, index="require")
    assert not (data / ".millrace").exists() and not list(tmp_path.glob("cache/**/*.index"))
    millrace.Dataset(data)
    assert len(millrace.Dataset(data, index="require")) == 45
    (data / "cat/0000.png").unlink()
    with pytest.raises(millrace.MismatchError, match="it is gone"):
        millrace.Dataset(data, index="require")


def test_cache_leaves_the_data_alone(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    assert len(millrace.Dataset(data, index="cache")) == 45
    assert not (data / ".millrace").exists() and list(tmp_path.glob("cache/**/*.index"))
    assert len(millrace.Dataset(data, index="require")) == 45


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anywhere")
def test_beside_or_not_at_all_without_rights(data: pathlib.Path) -> None:
    data.chmod(0o500)
    try:
        with pytest.raises(millrace.MismatchError, match="the index cannot be kept beside the data"):
            millrace.Dataset(data, index="beside")
    finally:
        data.chmod(0o700)


def test_beside_or_not_at_all(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (data / ".millrace").write_text("in the way")
    with pytest.raises(
        millrace.MismatchError, match="the index cannot be kept beside the data, and must not be kept elsewhere"
    ):
        millrace.Dataset(data, index="beside")
    assert len(millrace.Dataset(data)) == 45  # in the cache folder
    (data / ".millrace").unlink()
    shutil.rmtree(tmp_path / "cache")
    assert len(millrace.Dataset(data, index="beside")) == 45 and (data / ".millrace/index").exists()
    with pytest.raises(millrace.InvalidArgumentError, match="'beside', 'cache', 'require'"):
        millrace.Dataset(data, index="never")
