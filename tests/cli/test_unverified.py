"""The reports of `cp` and `sync` about objects without a checksum of the store."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_support import Bucket, Millrace, contents


def put_without_checksum(server: Any, key: str, *parts: bytes) -> None:
    """As a tool that sends no checksums uploads in parts: the ETag is no MD5 of the bytes either."""
    s3 = server.client(request_checksum_calculation="when_required")
    upload = s3.create_multipart_upload(Bucket="bkt", Key=key)["UploadId"]
    done = [
        {
            "PartNumber": number,
            "ETag": s3.upload_part(Bucket="bkt", Key=key, UploadId=upload, PartNumber=number, Body=part)["ETag"],
        }
        for number, part in enumerate(parts, 1)
    ]
    s3.complete_multipart_upload(Bucket="bkt", Key=key, UploadId=upload, MultipartUpload={"Parts": done})


SMALL = {"d/a": b"1", "d/b": b"22", "d/empty": b""}
LARGE = (bytes(range(256)) * 40960, b"the end")  # 10 MiB and a little: read in pieces


@pytest.fixture
def server(devstore: Callable[..., Any]) -> Any:
    """Five objects, two of them without a checksum."""
    server = devstore("mem:")
    server.client().create_bucket(Bucket="bkt")
    Bucket(server.client(), {}).put(**SMALL)
    put_without_checksum(server, "d/small", b"small")
    put_without_checksum(server, "d/large", *LARGE)
    return server


@pytest.fixture
def expected() -> dict[str, bytes]:
    return {key.removeprefix("d/"): data for key, data in SMALL.items()} | {"small": b"small", "large": b"".join(LARGE)}


def test_cp_and_sync_count_them(millrace: Millrace, server: Any, tmp_path: Path, expected: dict[str, bytes]) -> None:
    said = millrace("cp", "--recursive", "s3://bkt/d", tmp_path / "cp", env=server.env()).stdout
    assert said.startswith(b"copied 5 objects (2 without a checksum to verify), 10.0 MiB, in ")
    said = millrace("sync", "s3://bkt/d", tmp_path / "sync", env=server.env()).stdout
    assert said.startswith(b"copied 5 objects (2 without a checksum to verify), 10.0 MiB, removed 0")
    for command, out in ((["cp", "--recursive"], "cp"), (["sync"], "sync-2")):
        report = json.loads(millrace(*command, "--json", "s3://bkt/d", tmp_path / out, env=server.env()).stdout)
        assert (report["unverified"], report["read_twice"], report["failed"]) == (2, 0, 0)
    for out in ("cp", "sync", "sync-2"):
        assert contents(tmp_path / out) == expected


def test_validation_that_is_switched_off_verifies_nothing(millrace: Millrace, server: Any, tmp_path: Path) -> None:
    """But of objects above 8 MiB the checksum comes from HEAD, and is compared all the same."""
    env = server.env() | {"AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required"}
    said = millrace("cp", "--recursive", "s3://bkt/d", tmp_path / "cp", env=env).stdout
    assert said.startswith(b"copied 5 objects (4 without a checksum to verify)")


def test_what_was_verified_or_has_not_travelled_is_not_counted(millrace: Millrace, server: Any, tmp_path: Path) -> None:
    env = server.env()
    assert millrace("cp", "s3://bkt/d/b", tmp_path / "b", env=env).stdout.startswith(b"copied 1 object, 2 B")
    (tmp_path / "big").write_bytes(b"".join(LARGE))
    for source, target in (
        (tmp_path / "big", "s3://bkt/big"),  # a file has no checksum; its upload carries one
        ("s3://bkt/big", tmp_path / "back"),  # which the store keeps
        ("s3://bkt/d/large", "s3://bkt/copy"),  # the store copies
        (tmp_path / "big", tmp_path / "file"),
    ):
        assert millrace("cp", source, target, env=env).stdout.startswith(b"copied 1 object, 10.0 MiB, in "), (
            source,
            target,
        )


def test_verify_reads_them_twice(millrace: Millrace, server: Any, tmp_path: Path, expected: dict[str, bytes]) -> None:
    said = millrace("cp", "--recursive", "--verify", "s3://bkt/d", tmp_path / "cp", env=server.env()).stdout
    assert said.startswith(b"copied 5 objects (2 without a checksum, read twice), 10.0 MiB, in ")
    report = json.loads(
        millrace("cp", "--verify", "--json", "s3://bkt/d/small", tmp_path / "one", env=server.env()).stdout
    )
    assert (report["unverified"], report["read_twice"]) == (0, 1)
    assert contents(tmp_path / "cp") == expected
    assert b"--verify does not go" in millrace("cp", "--verify", "s3://bkt/d/a", "-", code=2, env=server.env()).stderr


@pytest.mark.parametrize("key", ["d/small", "d/large"])
def test_verify_finds_what_is_damaged_on_the_way(
    millrace: Millrace, devstore: Callable[..., Any], tmp_path: Path, key: str
) -> None:
    server = devstore("mem:", "--fault", f"GET bkt/{key} flip=3 count=1")
    server.client().create_bucket(Bucket="bkt")
    put_without_checksum(server, key, *(LARGE if key == "d/large" else (b"small",)))
    failed = millrace("cp", "--verify", f"s3://bkt/{key}", tmp_path / "out", code=1, env=server.env())
    assert f"s3://bkt/{key}: two reads brought different bytes".encode() in failed.stderr
    assert not (tmp_path / "out").exists()
    millrace("cp", "--verify", f"s3://bkt/{key}", tmp_path / "out", env=server.env())
    assert (tmp_path / "out").read_bytes() == (b"".join(LARGE) if key == "d/large" else b"small")
