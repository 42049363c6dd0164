"""`millrace ls` without a URI, and `millrace uploads`."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_support import Bucket, Millrace, lines


def begin(bucket: Bucket, *keys: str) -> dict[str, str]:
    """Uploads with a part each; their ids by key."""
    ids = {}
    for key in keys:
        ids[key] = bucket.s3.create_multipart_upload(Bucket="bkt", Key=key)["UploadId"]
        bucket.s3.upload_part(Bucket="bkt", Key=key, UploadId=ids[key], PartNumber=1, Body=b"part")
    return ids


def left(bucket: Bucket) -> list[str]:
    pages = bucket.s3.get_paginator("list_multipart_uploads").paginate(Bucket="bkt")
    return sorted(upload["Key"] for page in pages for upload in page.get("Uploads", []))


@pytest.mark.parametrize("place", [[], ["s3://"]], ids=["no URI", "s3://"])
def test_ls_lists_buckets(millrace: Millrace, bucket: Bucket, place: list[str]) -> None:
    bucket.s3.create_bucket(Bucket="another")
    shown = lines(millrace("ls", *place, env=bucket.env))
    assert [line[20:] for line in shown] == ["another", "bkt"]
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", line) for line in shown)
    found = [json.loads(line) for line in lines(millrace("ls", *place, "--json", env=bucket.env))]
    assert [entry["bucket"] for entry in found] == ["another", "bkt"] and found[0]["created"].endswith("Z")
    assert b"want a bucket" in millrace("ls", *place, "-r", code=2, env=bucket.env).stderr


def test_ls_of_buckets_that_cannot_be_listed(millrace: Millrace, bucket: Bucket) -> None:
    said = millrace("ls", code=1, env=bucket.env | {"AWS_SECRET_ACCESS_KEY": "wrong"}).stderr.decode()
    assert f"the buckets of {bucket.env['AWS_ENDPOINT_URL']}" in said and "SignatureDoesNotMatch" in said


def test_uploads_ls(millrace: Millrace, bucket: Bucket) -> None:
    ids = begin(bucket, "a", "p/x", "p/y z+", "p2")
    shown = lines(millrace("uploads", "ls", "s3://bkt", env=bucket.env))
    assert [line[20:].split(" ", 1) for line in shown] == [[ids[key], key] for key in sorted(ids)]

    def keys(*words: str) -> list[str]:
        return [json.loads(line)["key"] for line in lines(millrace("uploads", "ls", "--json", *words, env=bucket.env))]

    assert keys("s3://bkt/p") == keys("s3://bkt/p/") == ["p/x", "p/y z+"]
    assert keys("s3://bkt/a") == ["a"]
    assert keys("s3://bkt", "--older-than", "1h") == []
    assert len(keys("s3://bkt", "--older-than", "0s")) == 4
    assert bucket.keys() == []


def test_uploads_abort(millrace: Millrace, bucket: Bucket) -> None:
    bucket.put(**{"p/kept": b"1"})
    ids = begin(bucket, "a", "p/x", "p/y", "p2")
    assert lines(millrace("uploads", "abort", "s3://bkt", "--older-than", "1d", env=bucket.env)) == [
        "aborted 0 uploads"
    ]
    dry = lines(millrace("uploads", "abort", "s3://bkt/p", "--older-than", "0s", "--dryrun", env=bucket.env))
    assert [line.split(",")[0] for line in dry] == [
        "would abort the upload of s3://bkt/p/x",
        "would abort the upload of s3://bkt/p/y",
        "would abort 2 uploads",
    ]
    assert left(bucket) == ["a", "p/x", "p/y", "p2"]
    report = json.loads(
        millrace("uploads", "abort", "s3://bkt/p", "--older-than", "0s", "--json", env=bucket.env).stdout
    )
    assert report == {"schema": "millrace.uploads.abort/1", "aborted": 2, "failed": 0, "dry_run": False}
    assert left(bucket) == ["a", "p2"]
    assert lines(millrace("uploads", "abort", "s3://bkt/p2", "--id", ids["p2"], env=bucket.env)) == ["aborted 1 upload"]
    assert left(bucket) == ["a"] and bucket.keys() == ["p/kept"]
    # Another upload of the same key, or none, is not taken for it.
    assert (
        b"there is no unfinished upload 'x'"
        in millrace("uploads", "abort", "s3://bkt/a", "--id", "x", code=1, env=bucket.env).stderr
    )
    assert left(bucket) == ["a"]


def test_uploads_of_several_pages_and_of_one_key(millrace: Millrace, bucket: Bucket) -> None:
    for i in range(1010):
        bucket.s3.create_multipart_upload(Bucket="bkt", Key=f"p/{i % 7}")
    assert len(lines(millrace("uploads", "ls", "s3://bkt", env=bucket.env))) == 1010
    report = millrace("uploads", "abort", "s3://bkt/p", "--older-than", "0s", "--json", env=bucket.env).stdout
    assert json.loads(report)["aborted"] == 1010 and left(bucket) == []


def test_an_abort_that_fails_is_told_and_the_others_are_done(
    millrace: Millrace, faulty_bucket: Callable[..., Bucket]
) -> None:
    bucket = faulty_bucket("DELETE bkt/bad error=403:AccessDenied")
    begin(bucket, "a", "bad", "c")
    done = millrace("uploads", "abort", "s3://bkt", "--older-than", "0s", "--json", code=1, env=bucket.env)
    assert json.loads(done.stdout) == {
        "schema": "millrace.uploads.abort/1",
        "aborted": 2,
        "failed": 1,
        "dry_run": False,
    }
    assert b"s3://bkt/bad" in done.stderr and b"AccessDenied" in done.stderr
    assert left(bucket) == ["bad"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["abort", "s3://bkt"], b"say which uploads"),
        (["abort", "s3://bkt", "--id", "x", "--older-than", "1d"], b"say which uploads"),
        (["abort", "s3://bkt", "--older-than", "1 week"], b"is not an age"),
        (["abort", "s3://bkt", "--older-than", "7"], b"is not an age"),
        (["ls", "s3://bkt", "--older-than", "-1d"], b"--older-than"),
        (["ls", "some/folder"], b"only S3 keeps unfinished uploads"),
        (["ls"], b"uri"),
        ([], b"subcommand"),
    ],
)
def test_wrong_usage(millrace: Millrace, words: list[str], message: bytes) -> None:
    assert message in millrace("uploads", *words, code=2).stderr


def test_uploads_of_a_missing_bucket(millrace: Millrace, bucket: Bucket) -> None:
    assert b"NoSuchBucket" in millrace("uploads", "ls", "s3://nowhere", code=1, env=bucket.env).stderr


def test_what_a_killed_cp_leaves_behind(
    millrace: Millrace, millrace_bin: Path, bucket: Bucket, tmp_path: Path, devstore: Callable[..., Any]
) -> None:
    """A killed upload leaves parts that `uploads` finds."""
    source = tmp_path / "big"
    os.truncate(os.open(source, os.O_CREAT | os.O_WRONLY), 64 << 20)
    server = devstore(
        "mem:", "--bucket", "bkt", "--fault", "PUT bkt/big delay-ms=600000"
    )  # so that it continues until it is killed
    process = subprocess.Popen([millrace_bin, "cp", source, "s3://bkt/big"], env=os.environ | server.env())
    s3 = server.client()
    while not s3.list_multipart_uploads(Bucket="bkt").get("Uploads"):
        assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait(120)
    assert lines(millrace("ls", "s3://bkt", env=server.env())) == []
    assert lines(millrace("uploads", "ls", "s3://bkt", env=server.env()))[0].endswith(" big")
    assert lines(millrace("uploads", "abort", "s3://bkt", "--older-than", "0s", env=server.env())) == [
        "aborted 1 upload"
    ]
