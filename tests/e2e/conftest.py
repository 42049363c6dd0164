from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from . import corpus, oracle
from .harness import Sandbox, Server, devstore

# As strings of bytes, "B" comes first and "a" before "a-b". With what follows them in a path, "a/" comes after "a-b/".
FOLDERS = ["a", "a-b", "a.b", "a0", "B"]


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    home = tmp_path / "home"
    home.mkdir()
    return Sandbox(home)


@pytest.fixture(scope="session")
def session_sandbox(tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    return Sandbox(tmp_path_factory.mktemp("home"))


@dataclass(frozen=True)
class Photos:
    """1,005 JPEGs of about 14 KB in five folders: raw and packed, on disk and (the same files) in devstore's bucket `b`."""

    raw: Path
    tar: Path
    root: Path  # of devstore
    samples: list[oracle.Sample]

    def digest(self, *epochs: int) -> str:
        return oracle.add(*(oracle.digest(self.samples, epoch) for epoch in epochs or (0,)))


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory, session_sandbox: Sandbox) -> Photos:
    folder = tmp_path_factory.mktemp("photos")
    raw = corpus.raw_tree(folder / "raw", FOLDERS, 201, width=192, height=144, quality=85)
    tar = folder / "tar"
    session_sandbox.ok("pack", raw, tar, "--shard-size", "6MiB")
    root = folder / "root"
    corpus.copy_tree(raw, root / "b" / "raw")
    corpus.copy_tree(tar, root / "b" / "tar")
    return Photos(raw, tar, root, oracle.read_raw(raw))


@pytest.fixture(scope="session")
def server(photos: Photos, session_sandbox: Sandbox) -> Iterator[Server]:
    with devstore(session_sandbox, photos.root) as running:
        session_sandbox.ok("index", "s3://b/tar", env=running.env())
        # The files were put there without devstore, so it keeps no checksums of them.
        session_sandbox.ok("index", "s3://b/raw", "--checksums", env=running.env())
        yield running


@pytest.fixture(scope="session")
def big(session_sandbox: Sandbox) -> Iterator[tuple[Path, int]]:
    """A devstore root with 3,000 JPEGs of 115 KB, `b/raw`, and the same in shards of 256 MiB (`b/tar`), in one and in many;
    and the bytes of all images."""
    with tempfile.TemporaryDirectory(prefix="millrace-e2e-") as folder:
        root = Path(folder)
        session_sandbox.ok("synth", root / "b" / "raw", "--count", 3000, "--kb", 115, "--seed", 1, timeout=600)
        for place, size in (("tar", "256MiB"), ("one-shard", "1GiB"), ("small-shards", "4MiB")):
            session_sandbox.ok("pack", root / "b" / "raw", root / "b" / place, "--shard-size", size, timeout=300)
        with devstore(session_sandbox, root) as running:  # the index of the files is not that of the objects
            for place in ("raw", "tar", "one-shard", "small-shards"):
                session_sandbox.ok("index", f"s3://b/{place}", "--checksums", env=running.env(), timeout=300)
        yield root, sum(path.stat().st_size for path in (root / "b" / "raw").rglob("*.jpg"))
