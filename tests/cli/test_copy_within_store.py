"""`millrace cp` and `sync` between buckets of one store, which copies by itself; tests/store/test_rgw.py on a real S3 server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_support import Bucket, Millrace, lines

KEPT: dict[str, Any] = {"ContentType": "image/x-test", "CacheControl": "no-store", "Metadata": {"who": "me"}}
BODIES = {"a b+%2F/ü?versionId=x": b"odd", "big": bytes(range(256)) * 40_000, "empty": b""}


@pytest.fixture
def source(bucket: Bucket) -> Bucket:
    bucket.s3.create_bucket(Bucket="other")
    for name, body in BODIES.items():
        bucket.s3.put_object(Bucket="bkt", Key=f"p/{name}", Body=body, **KEPT)
    return bucket


def check(bucket: Bucket, prefix: str, kept: dict[str, Any] = KEPT) -> None:
    for name, body in BODIES.items():
        copy = bucket.s3.get_object(Bucket="other", Key=f"{prefix}{name}")
        assert copy["Body"].read() == body
        assert {field: copy[field] for field in kept} == kept, name


def test_copies_keep_type_and_metadata(millrace: Millrace, source: Bucket) -> None:
    done = millrace("cp", "--recursive", "s3://bkt/p", "s3://other/cp", "--json", env=source.env)
    report = json.loads(done.stdout)
    assert (report["objects"], report["failed"], report["bytes"]) == (3, 0, sum(map(len, BODIES.values())))
    check(source, "cp/")  # bytes that came by the client would have lost them
    millrace("sync", "s3://bkt/p", "s3://other/sync", env=source.env)
    check(source, "sync/")
    assert "unchanged 3" in lines(millrace("sync", "s3://bkt/p", "s3://other/sync", env=source.env))[0]
    millrace("cp", "s3://bkt/p/big", "s3://other/one/", env=source.env)
    assert source.s3.head_object(Bucket="other", Key="one/big")["Metadata"] == {"who": "me"}


def faulty(faulty_bucket: Callable[..., Bucket], *faults: str) -> Bucket:
    bucket = faulty_bucket(*faults)
    bucket.s3.create_bucket(Bucket="other")
    for name, body in BODIES.items():
        bucket.s3.put_object(Bucket="bkt", Key=f"p/{name}", Body=body, **KEPT)
    return bucket


def test_an_error_within_200_is_tried_again(millrace: Millrace, faulty_bucket: Callable[..., Bucket]) -> None:
    bucket = faulty(faulty_bucket, "PUT other/to/* error-in-200 count=2", "PUT other/to/* status=503 count=2")
    millrace("cp", "--recursive", "s3://bkt/p", "s3://other/to", env=bucket.env)
    check(bucket, "to/")


def test_a_store_that_does_not_copy_gets_the_bytes(millrace: Millrace, faulty_bucket: Callable[..., Bucket]) -> None:
    # One at a time: after the first refusal no other copy is tried, and its PUT would meet the fault.
    bucket = faulty(faulty_bucket, *(f"PUT other/to/{number} status=501 count=1" for number in range(len(BODIES))))
    for number, (name, body) in enumerate(BODIES.items()):
        copied = millrace("cp", f"s3://bkt/p/{name}", f"s3://other/to/{number}", env=bucket.env)
        assert b"copied 1 object" in copied.stdout
        there = bucket.s3.get_object(Bucket="other", Key=f"to/{number}")
        assert (there["Body"].read(), there["Metadata"]) == (body, {})


def test_a_refusal_is_an_error_that_names_the_source(millrace: Millrace, faulty_bucket: Callable[..., Bucket]) -> None:
    bucket = faulty(faulty_bucket, "PUT other/big status=403")
    done = millrace("cp", "--recursive", "s3://bkt/p", "s3://other", env=bucket.env, code=1)
    assert b"s3://bkt/p/big" in done.stderr and b"s3:GetObjectTagging" in done.stderr
    assert b"copied 2 objects" in done.stdout


def test_an_interrupt_ends_copies(millrace_bin: Path, faulty_bucket: Callable[..., Bucket]) -> None:
    bucket = faulty(faulty_bucket, "PUT other/big retry-after=60")
    command: list[str | Path] = [millrace_bin, "cp", "--recursive", "s3://bkt/p", "s3://other"]
    with subprocess.Popen(command, env=os.environ | bucket.env, stderr=subprocess.PIPE) as running:
        while bucket.s3.list_objects_v2(Bucket="other")["KeyCount"] < 2:
            assert running.poll() is None
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=50)  # less than what the store lets it wait for
    assert running.returncode == 130 and b"interrupted" in said
    assert bucket.s3.list_objects_v2(Bucket="other")["KeyCount"] == 2


def test_devstore_copies_no_more_than_5_gib_at_once(devstore: Callable[..., Any], tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "bkt").mkdir(parents=True)
    with (root / "bkt" / "huge").open("wb") as file:
        file.truncate((5 << 30) + 1)  # takes no room
    s3 = devstore(root).client()
    with pytest.raises(s3.exceptions.ClientError, match=r"InvalidRequest.*copy source: 5368709120"):
        s3.copy_object(Bucket="bkt", Key="copy", CopySource={"Bucket": "bkt", "Key": "huge"})
    upload = s3.create_multipart_upload(Bucket="bkt", Key="copy")["UploadId"]
    with pytest.raises(s3.exceptions.ClientError, match="InvalidRequest"):
        s3.upload_part_copy(
            Bucket="bkt", Key="copy", UploadId=upload, PartNumber=1, CopySource={"Bucket": "bkt", "Key": "huge"}
        )
