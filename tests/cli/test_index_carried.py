"""`millrace cp -r` and `sync` of a data set: its index comes along with the ETags of the copies, and nothing is read again."""

from __future__ import annotations

import base64
import io
import json
import os
import tarfile
import time
from pathlib import Path

import pytest
from cli_support import Bucket, Millrace

PIXEL = base64.b64decode(
    b"iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
PLACES = [("path", "path"), ("path", "s3"), ("s3", "path"), ("s3", "s3")]


def tar(*names: str, size: int = 2000) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for number, name in enumerate(names):
            for field, data in (("png", PIXEL), ("bin", os.urandom(size)), ("cls", str(number % 3).encode())):
                info = tarfile.TarInfo(f"{name}.{field}")
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def place(kind: str, tmp_path: Path, name: str) -> str:
    return f"s3://bkt/{name}" if kind == "s3" else str(tmp_path / name)


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    folder = tmp_path / "made"
    folder.mkdir()
    for number in range(4):
        (folder / f"{number}.tar").write_bytes(tar(*(f"{number}-{i}" for i in range(20))))
    (folder / "large.tar").write_bytes(
        tar("large", size=20 << 20)
    )  # an upload of several parts, with an ETag of its own
    return folder


def index(millrace: Millrace, bucket: Bucket, uri: str) -> dict[str, int]:
    found: dict[str, int] = json.loads(millrace("index", uri, "--json", env=bucket.env).stdout)
    return found


def told(millrace: Millrace, bucket: Bucket, *arguments: str | Path) -> dict[str, int]:
    report: dict[str, int] = json.loads(millrace(*arguments, "--json", env=bucket.env).stdout.splitlines()[-1])
    return report


def index_bytes(bucket: Bucket, uri: str) -> bytes:
    if uri.startswith("s3://bkt/"):
        return bucket.objects()[uri.removeprefix("s3://bkt/") + "/.millrace/index"]
    return Path(uri, ".millrace/index").read_bytes()


@pytest.mark.parametrize(("source", "target"), PLACES)
@pytest.mark.parametrize("command", [["cp", "--recursive"], ["sync"]])
def test_the_index_fits_the_copy(
    millrace: Millrace, bucket: Bucket, shards: Path, tmp_path: Path, command: list[str], source: str, target: str
) -> None:
    a, b = place(source, tmp_path, "a"), place(target, tmp_path, "b")
    told(millrace, bucket, "cp", "--recursive", shards, a)
    made = index(millrace, bucket, a)
    report = told(millrace, bucket, *command, a, b)
    assert (report["indexes"], report.get("objects", report.get("copied"))) == (1, 5)
    # It is the index that would have been built there, byte for byte.
    carried = index_bytes(bucket, b)
    again = index(millrace, bucket, b)
    assert again["reused_objects"] == 5 and again["samples"] == made["samples"]
    millrace("index", b, "--full", env=bucket.env)
    assert index_bytes(bucket, b) == carried
    # Opened and read, it is the same data set.
    epochs = [
        json.loads(millrace("feed", uri, "--size", "8", "--json", env=bucket.env).stdout.splitlines()[-1])
        for uri in (a, b)
    ]
    assert epochs[0]["digest"] == epochs[1]["digest"] and epochs[0]["samples"] == made["samples"]


def test_sync_goes_on_with_the_index(millrace: Millrace, bucket: Bucket, shards: Path, tmp_path: Path) -> None:
    a, b = str(shards), "s3://bkt/b"
    index(millrace, bucket, a)
    old = time.time() - 1000
    for path in shards.glob("*.tar"):
        os.utime(path, (old, old))
    index(millrace, bucket, a)
    (tmp_path / "part").mkdir()
    for name in ("0.tar", "large.tar"):  # as if an earlier run had been killed
        millrace("cp", shards / name, f"{b}/{name}", env=bucket.env)
    report = told(millrace, bucket, "sync", a, b)
    assert (report["copied"], report["unchanged"], report["indexes"]) == (3, 2, 1)
    assert index(millrace, bucket, b)["reused_objects"] == 5
    report = told(millrace, bucket, "sync", a, b)  # nothing to do
    assert (report["copied"], report["unchanged"], report["indexes"]) == (0, 5, 0)
    Path(shards, ".millrace/index").unlink()  # not found, and the other's stays
    assert told(millrace, bucket, "sync", a, b)["indexes"] == 0 and "b/.millrace/index" in bucket.objects()
    (shards / "4.tar").write_bytes(tar("new"))
    index(millrace, bucket, a)
    report = told(millrace, bucket, "sync", a, b)
    assert (report["copied"], report["unchanged"], report["indexes"]) == (1, 5, 1)
    again = index(millrace, bucket, b)
    assert (again["reused_objects"], again["objects"]) == (6, 6)
    (shards / "0.tar").unlink()
    index(millrace, bucket, a)
    assert told(millrace, bucket, "sync", a, b, "--delete")["indexes"] == 1
    assert index(millrace, bucket, b)["reused_objects"] == 5
    assert "b/.millrace/index" in bucket.objects()


def test_data_sets_in_folders_and_of_single_objects(
    millrace: Millrace, bucket: Bucket, shards: Path, tmp_path: Path
) -> None:
    top = tmp_path / "top"
    for name in ("train", "val"):
        millrace("cp", "--recursive", shards, top / name)
        index(millrace, bucket, str(top / name))
    index(millrace, bucket, str(top / "val/3.tar"))
    (top / "val/4.tar").write_bytes(b"x")
    report = told(millrace, bucket, "cp", "--recursive", top, "s3://bkt/top")
    assert (report["objects"], report["indexes"], report["failed"]) == (
        11,
        2,
        0,
    )  # val has a shard that its index lacks
    millrace("rm", "s3://bkt/top/val/4.tar", env=bucket.env)
    for name, objects in (("train", 5), ("val/3.tar", 1)):
        assert index(millrace, bucket, f"s3://bkt/top/{name}")["reused_objects"] == objects
    assert index(millrace, bucket, "s3://bkt/top/val")["reused_objects"] == 0


def test_an_index_is_replaced_by_renaming(millrace: Millrace, bucket: Bucket, shards: Path, tmp_path: Path) -> None:
    """A process that has the old one mapped keeps its bytes. A file written in place would end it by SIGBUS."""
    source, target = tmp_path / "source", tmp_path / "target"
    millrace("cp", "-r", shards, source, env=bucket.env)
    index(millrace, bucket, str(source))
    (shards / "large.tar").unlink()
    millrace("cp", "-r", shards, target, env=bucket.env)
    for replace in (
        ["index", target, "--full"],
        ["cp", source / ".millrace/index", target / ".millrace/index"],
        ["cp", source / ".millrace/index", str(target / ".millrace") + "/"],
        ["cp", "--recursive", source, target],
        ["sync", source, target],
    ):
        index(millrace, bucket, str(target))
        if replace[0] == "sync":
            (source / "0.tar").write_bytes(tar("changed", "since"))
            index(millrace, bucket, str(source))
        held = tmp_path / "held"
        os.link(target / ".millrace/index", held)
        before = held.read_bytes()
        millrace(*replace, env=bucket.env)
        assert not os.path.samefile(held, target / ".millrace/index"), replace
        assert held.read_bytes() == before, replace
        held.unlink()


def test_what_the_index_does_not_know_is_said_and_not_read(
    millrace: Millrace, bucket: Bucket, shards: Path, tmp_path: Path
) -> None:
    index(millrace, bucket, str(shards))
    (shards / "1.tar").write_bytes(tar("changed"))
    done = millrace("cp", "--recursive", shards, "s3://bkt/b", "--json", env=bucket.env)
    assert json.loads(done.stdout)["indexes"] == 0
    warning = done.stderr.decode()
    assert "warning: the index of s3://bkt/b/ was not carried over" in warning
    assert "'1.tar'" in warning and "millrace index s3://bkt/b/" in warning
    assert "b/.millrace/index" not in bucket.objects(), "one that does not fit would be in the way"


def test_filters_and_dry_runs(millrace: Millrace, bucket: Bucket, shards: Path, tmp_path: Path) -> None:
    index(millrace, bucket, str(shards))
    assert b".millrace" not in millrace("cp", "--recursive", shards, "s3://bkt/b", "--dry-run", env=bucket.env).stdout
    report = told(millrace, bucket, "cp", "--recursive", shards, "s3://bkt/b", "--exclude", "*", "--include", "?.tar")
    assert (report["objects"], report["indexes"]) == (4, 0) and "b/.millrace/index" not in bucket.objects()
    report = told(millrace, bucket, "sync", shards, "s3://bkt/b", "--exclude", "large.tar")
    assert (report["copied"], report["unchanged"], report["indexes"]) == (0, 4, 1)
    assert index(millrace, bucket, "s3://bkt/b")["reused_objects"] == 4


def test_an_index_that_knows_better_stays(millrace: Millrace, bucket: Bucket, shards: Path, tmp_path: Path) -> None:
    """A shard of the target was repaired in place: its size and name are those of the source, its samples are not."""
    source, target = tmp_path / "source", tmp_path / "target"
    millrace("cp", "-r", shards, source, env=bucket.env)
    index(millrace, bucket, str(source))
    millrace("sync", source, target, env=bucket.env)
    (target / "1.tar").write_bytes(tar(*(f"9-{i}" for i in range(20))))
    assert (target / "1.tar").stat().st_size == (source / "1.tar").stat().st_size
    index(millrace, bucket, str(target))
    before = index_bytes(bucket, str(target))
    synced = millrace("sync", source, target, "--json", env=bucket.env)
    assert json.loads(synced.stdout)["copied"] == 0 and json.loads(synced.stdout)["indexes"] == 0
    assert b"'1.tar' has the size of the source's" in synced.stderr
    assert index_bytes(bucket, str(target)) == before
    millrace("feed", target, "--epochs", "1", "--image-field", "png", "--size", "1", env=bucket.env)


@pytest.mark.parametrize("kind", ["path", "s3"])
def test_delete_removes_an_index_that_the_source_does_not_have(
    millrace: Millrace, bucket: Bucket, shards: Path, tmp_path: Path, kind: str
) -> None:
    target = place(kind, tmp_path, "target")
    millrace("sync", shards, target, env=bucket.env)
    index(millrace, bucket, target)
    assert told(millrace, bucket, "sync", "--delete", shards, target)["removed"] == 1
    with pytest.raises((KeyError, FileNotFoundError)):
        index_bytes(bucket, target)


def test_nothing_is_said_of_an_index_whose_data_are_gone(
    millrace: Millrace, bucket: Bucket, shards: Path, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    millrace("sync", shards, target, env=bucket.env)
    index(millrace, bucket, str(target / "1.tar"))
    assert (target / ".millrace" / "1.tar.index").exists()
    (shards / "1.tar").unlink()
    synced = millrace("sync", "--delete", shards, target, "--json", env=bucket.env)
    assert json.loads(synced.stdout)["removed"] == 2 and synced.stderr == b""
    assert not (target / "1.tar").exists() and not (target / ".millrace" / "1.tar.index").exists()
