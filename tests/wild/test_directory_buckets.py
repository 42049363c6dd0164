"""Directory buckets (S3 Express One Zone) against devstore, which makes sessions and refuses what AWS refuses. That its sessions are those of AWS
shows botocore. The cases, with the reports that they come from, are those of docs/wild-stores.md."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from stub_store import run
from wild_support import texts, write

StartDevstore = Callable[..., Any]

BUCKET = "data--usw2-az1--x-s3"
SIZES = {"train/a.bin": 4, "train/b.bin": 20 << 20, "test/a.bin": 0, "top.bin": 6}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for name, size in SIZES.items():
        path = tmp_path / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(size // 2).hex().encode())
    return tmp_path / "source"


def keys(said: str) -> list[str]:
    return sorted(line.split()[-1] for line in said.splitlines())


def test_commands(millrace_bin: Path, devstore: StartDevstore, source: Path, tmp_path: Path) -> None:
    """https://github.com/apache/opendal/issues/6152, https://github.com/archiecobbs/s3backer/issues/231: reading and writing."""
    server = devstore("mem:", "--bucket", BUCKET, "--access-log")
    env = server.env()
    run(millrace_bin, "cp", "-r", source, f"s3://{BUCKET}/", env=env)
    assert keys(run(millrace_bin, "ls", "-r", f"s3://{BUCKET}/", env=env)) == sorted(SIZES)
    assert run(millrace_bin, "cat", f"s3://{BUCKET}/to*.bin", env=env) == (source / "top.bin").read_text()
    run(millrace_bin, "cp", "-r", f"s3://{BUCKET}/", tmp_path / "back", env=env)
    for name in SIZES:
        assert (tmp_path / "back" / name).read_bytes() == (source / name).read_bytes()
    assert "copied 0" in run(millrace_bin, "sync", source, f"s3://{BUCKET}/", env=env)
    run(millrace_bin, "cp", f"s3://{BUCKET}/top.bin", f"s3://{BUCKET}/copy.bin", env=env)
    assert run(millrace_bin, "cat", f"s3://{BUCKET}/copy.bin", env=env) == (source / "top.bin").read_text()
    run(millrace_bin, "rm", "-r", f"s3://{BUCKET}/train/", env=env)
    run(millrace_bin, "rm", f"s3://{BUCKET}/t*.bin", f"s3://{BUCKET}/copy.bin", env=env)
    assert keys(run(millrace_bin, "ls", "-r", f"s3://{BUCKET}/", env=env)) == ["test/a.bin"]


def test_botocore_takes_the_sessions_of_devstore(devstore: StartDevstore, monkeypatch: pytest.MonkeyPatch) -> None:
    server = devstore("mem:", "--bucket", BUCKET)
    for name, value in server.env().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    client = botocore.session.Session().create_client("s3")
    client.put_object(Bucket=BUCKET, Key="folder/x", Body=b"text")
    assert client.get_object(Bucket=BUCKET, Key="folder/x")["Body"].read() == b"text"
    listed = client.list_objects_v2(Bucket=BUCKET, Prefix="folder/", Delimiter="/")
    assert [entry["Key"] for entry in listed["Contents"]] == ["folder/x"]
    client.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": "folder/x"}]})
    for wrong in ({"Prefix": "fol"}, {"StartAfter": "a"}, {"Delimiter": "-"}):
        with pytest.raises(client.exceptions.ClientError):
            client.list_objects_v2(Bucket=BUCKET, **wrong)


def test_a_session_that_is_denied_names_its_permission(millrace_bin: Path, devstore: StartDevstore) -> None:
    """https://github.com/awslabs/mountpoint-s3/issues/651"""
    server = devstore("mem:", "--bucket", BUCKET, "--fault", f"GET {BUCKET}/* error=403:AccessDenied")
    said = run(millrace_bin, "cat", f"s3://{BUCKET}/x", env=server.env(), code=1)
    assert "CreateSession failed" in said and "s3express:CreateSession" in said


def test_data_sets(millrace_bin: Path, devstore: StartDevstore, tmp_path: Path) -> None:
    """https://github.com/durner/AnyBlob/issues/13"""
    for number in range(3):
        write(tmp_path / "set" / f"train-{number:03}.tar", texts(5 * number, 5 * number + 5))
    env = devstore("mem:", "--bucket", BUCKET).env()
    run(millrace_bin, "cp", "-r", tmp_path / "set", f"s3://{BUCKET}/set", env=env)
    assert "15 samples" in run(millrace_bin, "index", f"s3://{BUCKET}/set", env=env)
    assert "15 samples" in run(millrace_bin, "inspect", f"s3://{BUCKET}/set/tra*.tar", env=env)
    assert "15 samples" in run(millrace_bin, "inspect", f"s3://{BUCKET}/set/train-{{000..002}}.tar", env=env)
    said = run(millrace_bin, "doctor", f"s3://{BUCKET}/set/train-000.tar", "--write", env=env)
    assert "FAILED" not in said


def test_unsigned_requests_are_refused(millrace_bin: Path, devstore: StartDevstore) -> None:
    """https://github.com/soto-project/soto/issues/745"""
    env = devstore("mem:", "--bucket", BUCKET).env()
    said = run(millrace_bin, "ls", f"s3://{BUCKET}/", "--no-sign-request", env=env, code=1)
    assert "a directory bucket takes signed requests only" in said
