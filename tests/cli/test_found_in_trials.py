"""Habits and odd surroundings that a trial of cp, sync and rm met."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from cli_support import Bucket, Millrace


def test_an_object_with_bytes_is_no_folder_marker(millrace: Millrace, bucket: Bucket, tmp_path: Path) -> None:
    bucket.put(**{"ts/a/": b"payload", "ts/empty/": b"", "ts/b": b"x"})
    assert (
        json.loads(millrace("cp", "-r", "s3://bkt/ts", "s3://bkt/copy", "--json", env=bucket.env).stdout)["objects"]
        == 2
    )
    assert bucket.objects()["copy/a/"] == b"payload" and "copy/empty/" not in bucket.objects()
    millrace("sync", "s3://bkt/ts", "s3://bkt/synced", env=bucket.env)
    assert bucket.objects()["synced/a/"] == b"payload"
    # A folder cannot hold it: it is named, and the rest copied.
    failed = millrace("cp", "-r", "s3://bkt/ts", tmp_path / "here", code=1, env=bucket.env)
    assert b"/a/: a folder cannot hold" in failed.stderr and (tmp_path / "here" / "b").read_bytes() == b"x"
    bucket.put(**{"synced/stale/": b"old"})
    assert (
        json.loads(millrace("sync", "--delete", "s3://bkt/ts", "s3://bkt/synced", "--json", env=bucket.env).stdout)[
            "removed"
        ]
        == 1
    )
    assert "synced/stale/" not in bucket.objects()


def test_a_round_trip_copies_nothing_twice(millrace: Millrace, bucket: Bucket, tree: Path, tmp_path: Path) -> None:
    def copied(*arguments: str | Path) -> int:
        return int(json.loads(millrace("sync", *arguments, "--json", env=bucket.env).stdout)["copied"])

    assert copied(tree, "s3://bkt/tree") == 5
    there = {
        item["Key"]: item["LastModified"].timestamp() for item in bucket.s3.list_objects_v2(Bucket="bkt")["Contents"]
    }
    assert copied("s3://bkt/tree", tmp_path / "back") == 5
    for key, modified in there.items():
        assert (tmp_path / "back" / key.removeprefix("tree/")).stat().st_mtime == pytest.approx(modified, abs=0.001), (
            key
        )
    assert copied(tmp_path / "back", "s3://bkt/tree") == 0
    assert copied("s3://bkt/tree", tmp_path / "back") == 0
    assert copied(tmp_path / "back", tmp_path / "third") == 5
    assert copied(tmp_path / "third", tmp_path / "back") == 0


def test_types_of_uploads(millrace: Millrace, bucket: Bucket, tmp_path: Path) -> None:
    for name in ("t.json", "p.JPG", "plain", "big.tar"):
        (tmp_path / name).write_bytes(b"x" * (20_000_000 if name == "big.tar" else 1))
        millrace("cp", tmp_path / name, "s3://bkt/", env=bucket.env)
    millrace("cp", tmp_path / "plain", "s3://bkt/typed", "--content-type", "text/x-mine", env=bucket.env)
    types = {
        name: bucket.s3.head_object(Bucket="bkt", Key=name)["ContentType"]
        for name in ("t.json", "p.JPG", "plain", "big.tar", "typed")
    }
    assert types == {
        "t.json": "application/json",
        "p.JPG": "image/jpeg",
        "plain": "binary/octet-stream",
        "big.tar": "application/x-tar",
        "typed": "text/x-mine",
    }


@pytest.mark.parametrize("missing", ["full", "closed", "gone"])
def test_messages_that_cannot_be_written(millrace_bin: Path, tmp_path: Path, missing: str) -> None:
    command = [str(millrace_bin), "cp", str(tmp_path / "none"), str(tmp_path / "x")]
    if missing == "closed":
        done = subprocess.run(["sh", "-c", 'exec "$@" 2>&-', "sh", *command], stdout=subprocess.PIPE)
    elif missing == "full":
        with open("/dev/full", "wb") as full:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=full)
    else:
        ours, theirs = os.pipe()
        os.close(ours)
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs)
        os.close(theirs)
    assert done.returncode == 1


def test_without_standard_streams(millrace_bin: Path, tmp_path: Path) -> None:
    """The files that it opens do not take their numbers."""
    (tmp_path / "a").write_bytes(b"data")

    def run(redirection: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            ["sh", "-c", f'exec "$@" {redirection}', "sh", str(millrace_bin), *arguments],
            capture_output=True,
            timeout=300,
        )

    done = run("<&-", "cp", "-", str(tmp_path / "x"))
    assert done.returncode == 1 and b"Bad file descriptor" in done.stderr and not (tmp_path / "x").exists()
    done = run(">&-", "cp", str(tmp_path / "a"), str(tmp_path / "b"))
    assert done.returncode == 1 and b"Bad file descriptor" in done.stderr and (tmp_path / "b").read_bytes() == b"data"
    assert run("<&- >&- 2>&-", "cp", str(tmp_path / "a"), str(tmp_path / "c")).returncode == 1
    assert (tmp_path / "c").read_bytes() == b"data"


def test_several_sources_are_a_pattern_without_quotes(millrace: Millrace, tmp_path: Path) -> None:
    assert b"quote" in millrace("cp", "a", "b", tmp_path, code=2).stderr
