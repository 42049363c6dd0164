from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.harness import Sandbox, Server, devstore
from e2e.mounting import mounted


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    home = tmp_path / "home"
    home.mkdir()
    return Sandbox(home)


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    """The objects in the bucket `b` of `store`, as files: devstore's own folder."""
    folder = tmp_path / "root" / "b"
    contents = {"large": 12_000_000, "a/empty": 0, "a/b/small": 100, "a/b.txt": 5000, "z": 1}
    for name, size in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(random.Random(name).randbytes(size))
    return folder


@pytest.fixture
def store(sandbox: Sandbox, bucket: Path) -> Iterator[Server]:
    with devstore(sandbox, bucket.parent) as running:
        yield running


@pytest.fixture
def writable(sandbox: Sandbox, store: Server, tmp_path: Path) -> Iterator[Path]:
    """The bucket, mounted with --writable."""
    with mounted(sandbox, "s3://b", tmp_path / "mnt", "--writable", "--metadata-ttl", "minimal", env=store.env()):
        yield tmp_path / "mnt"


@pytest.fixture
def stream(sandbox: Sandbox, store: Server, tmp_path: Path) -> Iterator[Path]:
    """The bucket, mounted with --writable --no-staging."""
    options = ("--writable", "--no-staging", "--metadata-ttl", "minimal")
    with mounted(sandbox, "s3://b", tmp_path / "mnt", *options, env=store.env()):
        yield tmp_path / "mnt"
