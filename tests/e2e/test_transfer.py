"""ls, cat, cp and inspect, as far as the interface tells."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from . import corpus
from .conftest import Photos
from .harness import Sandbox, Server, binary, devstore, logged_devstore


def test_ls_shows_folders_and_objects(photos: Photos, sandbox: Sandbox, server: Server) -> None:
    assert all(name in sandbox.ok("ls", "s3://b/", env=server.env()).out for name in ("raw", "tar"))
    listed = sandbox.ok("ls", "s3://b/tar/", env=server.env()).out
    for path in photos.tar.glob("*.tar"):
        assert path.name in listed and str(path.stat().st_size) in listed


def test_cat_gives_the_bytes(photos: Photos, sandbox: Sandbox, server: Server) -> None:
    path = sorted(photos.raw.rglob("*.jpg"))[3]
    uri = f"s3://b/raw/{path.relative_to(photos.raw)}"
    for source in (uri, str(path)):
        done = subprocess.run(
            [binary(), "cat", source], env=sandbox.env(server.env()), capture_output=True, timeout=300, check=True
        )
        assert done.stdout == path.read_bytes()


def test_cp_there_and_back(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "root" / "b").mkdir(parents=True)
    files = {"x.bin": b"", "größe ü+%.bin": b"abc", "deep/er/y.bin": bytes(range(256)) * 100_000}
    for name, data in files.items():
        corpus.write(tmp_path / "src" / name, data)
    with devstore(sandbox, tmp_path / "root") as server:
        sandbox.ok("cp", tmp_path / "src", "s3://b/copy", "--recursive", env=server.env())
        sandbox.ok("cp", "s3://b/copy", tmp_path / "back", "--recursive", env=server.env())
        assert server.client().get_object(Bucket="b", Key="copy/größe ü+%.bin")["Body"].read() == b"abc"
    assert {name: (tmp_path / "back" / name).read_bytes() for name in files} == files


@pytest.mark.parametrize(
    "fault",
    [
        "GET b/* cut=1000000 p=0.3",
        "GET b/* reset=1000000 p=0.3",
        "PUT b/* status=503 p=0.3",
        "* b/* delay-ms=200 p=0.2",
    ],
)
def test_cp_survives_faults(sandbox: Sandbox, tmp_path: Path, fault: str) -> None:
    (tmp_path / "root" / "b").mkdir(parents=True)
    data = bytes(range(251)) * 120_000
    corpus.write(tmp_path / "x.bin", data)
    with devstore(sandbox, tmp_path / "root", "--seed", 2, faults=(fault,)) as server:
        sandbox.ok("cp", tmp_path / "x.bin", "s3://b/x.bin", env=server.env(), timeout=300)
        sandbox.ok("cp", "s3://b/x.bin", tmp_path / "y.bin", env=server.env(), timeout=300)
    assert (tmp_path / "y.bin").read_bytes() == data


def test_inspect_counts(photos: Photos, sandbox: Sandbox, server: Server) -> None:
    for uri in (photos.raw, photos.tar, "s3://b/tar"):
        assert isinstance(json.loads(sandbox.ok("inspect", uri, "--json", env=server.env()).out), dict)
        said = sandbox.ok("inspect", uri, env=server.env()).out
        assert ("1005" in said or "1,005" in said) and "jpg" in said and "cls" in said


def test_index_is_used_again(photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
    """Opening reads the index, not the data."""
    log = tmp_path / "log"
    with logged_devstore(sandbox, photos.root, log) as server:
        assert sandbox.ok("inspect", "s3://b/tar", "--json", env=server.env()).json()["samples"] == len(photos.samples)
    said = log.read_text()
    assert "/.millrace/index" in said and not re.search(r"GET \S*\.tar", said)


def test_what_arrives_damaged_is_read_again(sandbox: Sandbox, tmp_path: Path) -> None:
    """Small objects, large ones by parts, and those that somebody else put: their ETag is all there is."""
    (tmp_path / "root" / "b").mkdir(parents=True)
    files = {"small.bin": bytes(range(256)) * 400, "large.bin": bytes(range(255, -1, -1)) * 100_000}
    for name, data in files.items():
        corpus.write(tmp_path / "src" / name, data)
    faults = tuple(
        f"GET b/{name} flip=1000 count=1" for name in ("copy/small.bin", "copy/large.bin", "theirs.bin", "cat.bin")
    )
    with devstore(sandbox, tmp_path / "root", faults=faults) as server:
        sandbox.ok("cp", tmp_path / "src", "s3://b/copy", "--recursive", env=server.env())
        head = server.client().head_object(Bucket="b", Key="copy/large.bin", ChecksumMode="ENABLED")
        assert head["ChecksumType"] == "FULL_OBJECT" and len(head["ChecksumCRC32C"]) == 8
        sandbox.ok("cp", "s3://b/copy", tmp_path / "back", "--recursive", env=server.env())
        assert {name: (tmp_path / "back" / name).read_bytes() for name in files} == files

        for key in ("theirs.bin", "cat.bin"):
            server.client().put_object(Bucket="b", Key=key, Body=files["small.bin"])
        sandbox.ok("cp", "s3://b/theirs.bin", tmp_path / "theirs.bin", env=server.env())
        assert (tmp_path / "theirs.bin").read_bytes() == files["small.bin"]
        done = subprocess.run(
            [binary(), "cat", "s3://b/cat.bin"],
            env=sandbox.env(server.env()),
            capture_output=True,
            timeout=300,
            check=True,
        )
        assert done.stdout == files["small.bin"]


def test_a_damaged_large_object_is_not_passed_on_in_silence(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "root" / "b").mkdir(parents=True)
    corpus.write(tmp_path / "large.bin", bytes(range(256)) * 100_000)
    with devstore(sandbox, tmp_path / "root", faults=("GET b/large.bin flip=1000",)) as server:
        sandbox.ok("cp", tmp_path / "large.bin", "s3://b/large.bin", env=server.env())
        failed = sandbox.run("cp", "s3://b/large.bin", tmp_path / "back.bin", env=server.env())
        failed.failed(1, "does not match the CRC32C that the store keeps")
        assert not (tmp_path / "back.bin").exists()
        cat = subprocess.run(
            [binary(), "cat", "s3://b/large.bin"], env=sandbox.env(server.env()), capture_output=True, timeout=300
        )
        assert cat.returncode == 1 and b"does not match the CRC32C" in cat.stderr


def test_an_index_is_not_built_of_damaged_bytes(photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
    """It would pin them: every later read of the true bytes would be refused."""
    (tmp_path / "root" / "b").mkdir(parents=True)
    with devstore(sandbox, tmp_path / "root", faults=("GET b/tar/*.tar flip=5000 p=0.5 count=8",)) as server:
        sandbox.ok("cp", photos.tar, "s3://b/tar", "--recursive", env=server.env())
        sandbox.ok("index", "s3://b/tar", env=server.env())
        feed = sandbox.feed("s3://b/tar", env=server.env())
        assert feed["digest"] == sandbox.feed(photos.tar)["digest"]
