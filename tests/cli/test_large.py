"""Large objects: their stored parts, pieces that are late or damaged."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_support import Bucket, Millrace, lines

MIB = 1 << 20


def upload(bucket: Bucket, key: str, body: bytes, part_bytes: int, **arguments: str) -> None:
    """By boto3, in parts, as other tools do."""
    where = {"Bucket": "bkt", "Key": key}
    where["UploadId"] = bucket.s3.create_multipart_upload(**where, **arguments)["UploadId"]
    parts = []
    sum_of_part = {"ChecksumAlgorithm": arguments["ChecksumAlgorithm"]} if "ChecksumAlgorithm" in arguments else {}
    for number, at in enumerate(range(0, len(body), part_bytes), 1):
        answer = bucket.s3.upload_part(**where, PartNumber=number, Body=body[at : at + part_bytes], **sum_of_part)
        parts.append(
            {"PartNumber": number}
            | {name: answer[name] for name in answer if name == "ETag" or name.startswith("ChecksumCRC")}
        )
    bucket.s3.complete_multipart_upload(**where, MultipartUpload={"Parts": parts})


@pytest.mark.parametrize("part_mib", [5, 9, 20])
@pytest.mark.parametrize("checksum", ["COMPOSITE", "FULL_OBJECT", ""])
def test_objects_uploaded_in_any_parts_are_copied(
    millrace: Millrace, bucket: Bucket, tmp_path: Path, part_mib: int, checksum: str
) -> None:
    body = os.urandom(43 * MIB + 11)
    arguments = {"ChecksumAlgorithm": "CRC32", "ChecksumType": checksum} if checksum else {}
    upload(bucket, "big", body, part_mib * MIB, **arguments)
    millrace("cp", "s3://bkt/big", tmp_path / "big", env=bucket.env)
    assert (tmp_path / "big").read_bytes() == body
    millrace("cp", tmp_path / "big", "s3://bkt/back", env=bucket.env)
    assert millrace("cat", "s3://bkt/back", env=bucket.env).stdout == body
    assert (
        millrace("cat", "s3://bkt/big", "--range", f"{part_mib * MIB - 3}-{30 * MIB}", env=bucket.env).stdout
        == body[part_mib * MIB - 3 : 30 * MIB + 1]
    )


def test_a_damaged_part_is_fetched_again_alone(
    millrace: Millrace, faulty_bucket: Callable[..., Bucket], tmp_path: Path
) -> None:
    """Its checksum comes with it: not even cat, which cannot take anything back, sees the damage."""
    body = os.urandom(36 * MIB)
    for command, key in (("cp", "a"), ("cat", "b")):
        bucket = faulty_bucket(f"GET bkt/{key} flip=1000 count=1 after=1")
        upload(bucket, key, body, 9 * MIB, ChecksumAlgorithm="CRC32")
        if command == "cp":
            millrace("cp", f"s3://bkt/{key}", tmp_path / key, env=bucket.env)
            assert (tmp_path / key).read_bytes() == body
        else:
            assert millrace("cat", f"s3://bkt/{key}", env=bucket.env).stdout == body


@pytest.mark.parametrize("target", ["file", "s3"])
@pytest.mark.parametrize("kind", ["COMPOSITE", "FULL_OBJECT"])
def test_a_damaged_piece_is_found_by_the_checksum_of_the_whole(
    millrace: Millrace, faulty_bucket: Callable[..., Bucket], tmp_path: Path, target: str, kind: str
) -> None:
    """Parts of 32 MiB are read in pieces that no checksum is kept of."""
    body = os.urandom(70 * MIB)
    bucket = faulty_bucket("GET bkt/big flip=1000 count=1 after=2")
    upload(bucket, "big", body, 32 * MIB, ChecksumAlgorithm="CRC32", ChecksumType=kind)
    if target == "file":
        millrace("cp", "s3://bkt/big", tmp_path / "big", env=bucket.env)
        assert (tmp_path / "big").read_bytes() == body
    else:
        millrace("cp", "s3://bkt/big", "s3://bkt/copy", env=bucket.env)
        assert hashlib.sha256(bucket.objects()["copy"]).digest() == hashlib.sha256(body).digest()


def test_cp_reports_what_stays_damaged_once(
    millrace: Millrace, faulty_bucket: Callable[..., Bucket], tmp_path: Path
) -> None:
    bucket = faulty_bucket("GET bkt/big flip=1000")
    upload(bucket, "big", os.urandom(20 * MIB), 16 * MIB, ChecksumAlgorithm="CRC32", ChecksumType="FULL_OBJECT")
    failed = millrace("cp", "s3://bkt/big", tmp_path / "big", env=bucket.env, code=1)
    assert b"s3://bkt/big: what arrived, twice in a row, does not match the CRC32 that the store keeps" in failed.stderr
    assert not list(tmp_path.glob("big*"))


def test_sync_reads_a_damaged_object_again(
    millrace: Millrace, faulty_bucket: Callable[..., Bucket], tmp_path: Path
) -> None:
    bucket = faulty_bucket("GET bkt/set/big flip=1000 count=1")
    body = os.urandom(20 * MIB)
    upload(bucket, "set/big", body, 16 * MIB, ChecksumAlgorithm="CRC32", ChecksumType="FULL_OBJECT")
    done = json.loads(lines(millrace("sync", "s3://bkt/set", tmp_path / "set", "--json", env=bucket.env))[-1])
    assert (done["copied"], done["bytes"], done["failed"]) == (1, len(body), 0)
    assert (tmp_path / "set" / "big").read_bytes() == body
