"""Ceph RADOS Gateway, a real S3 server that we did not write: the contract of ObjectStore and the command line on it."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from s3_server import S3Server

# Ceph 16 and 17 take the tags of an upload by parts and cannot read them back: an empty answer (tracker.ceph.com/issues/53016).
# They ignore If-Match of a DELETE and If-None-Match of a copy, which S3 has had since 2025.
NOT_LIKE_S3 = ("KeepsTagsOfWhatIsCopiedByParts", "AVersionIsDeletedAndNoOther", "ACopyReplacesNothingIfItMustNot")
REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPT = REPOSITORY / "tests" / "servers" / "rgw.sh"


class Gateway(S3Server):
    """A running gateway, reached over http or https."""

    @property
    def tls(self) -> dict[str, str]:
        return {"AWS_ENDPOINT_URL": self.exports["RGW_TLS_URL"], "AWS_CA_BUNDLE": self.exports["RGW_CA"]}


@pytest.fixture(scope="module")
def gateway(millrace_bin: Path) -> Iterator[Gateway]:
    # Not pytest's tmp_path: Ceph does not take paths with spaces or of any length.
    with tempfile.TemporaryDirectory(prefix="millrace-rgw-") as folder:
        started = subprocess.run([SCRIPT, "start", folder, "--tls"], capture_output=True, text=True, timeout=400)
        try:
            assert started.returncode == 0, started.stderr
            words = (shlex.split(line)[1] for line in started.stdout.splitlines())
            yield Gateway(dict(word.split("=", 1) for word in words), Path(folder), millrace_bin)
        finally:
            subprocess.run([SCRIPT, "stop", folder], check=True, timeout=120)


@pytest.mark.parametrize("tls", [True, pytest.param(False, marks=pytest.mark.all)], ids=["https", "http"])
def test_store_contract(gateway: Gateway, tls: bool) -> None:
    bucket = gateway.bucket(f"contract-{tls}".lower())
    gateway.check_contract(bucket, at_least=30, without=NOT_LIKE_S3, **(gateway.tls if tls else {}))


def test_other_tools_see_what_millrace_wrote(gateway: Gateway, tmp_path: Path) -> None:
    bucket = gateway.bucket("interop")
    small = b"\x00\xff small"
    large = os.urandom(1 << 20) * 20  # several parts
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "small & odd+name.bin").write_bytes(small)
    (tmp_path / "data" / "large").write_bytes(large)
    done = gateway.run(gateway.millrace, "cp", "--recursive", tmp_path / "data", f"s3://{bucket}/copy")
    assert done.returncode == 0, done.stderr
    assert gateway.s3.get_object(Bucket=bucket, Key="copy/small & odd+name.bin")["Body"].read() == small
    assert gateway.s3.get_object(Bucket=bucket, Key="copy/large")["Body"].read() == large

    gateway.s3.put_object(Bucket=bucket, Key="copy/by boto3", Body=b"hello")
    back = tmp_path / "back"
    done = gateway.run(gateway.millrace, "cp", "--recursive", f"s3://{bucket}/copy", back, **gateway.tls)
    assert done.returncode == 0, done.stderr
    assert {path.name: path.read_bytes() for path in back.iterdir()} == {
        "small & odd+name.bin": small,
        "large": large,
        "by boto3": b"hello",
    }


def test_copies_within_the_gateway(gateway: Gateway, tmp_path: Path) -> None:
    source, target = gateway.bucket("copy-from"), gateway.bucket("copy-to")
    kept = {"ContentType": "image/x-test", "CacheControl": "no-store", "Metadata": {"who": "me"}}
    bodies = {"a b+%2F/ü?versionId=x": b"odd", "plain": os.urandom(9 << 20), "empty": b""}
    for name, body in bodies.items():
        gateway.s3.put_object(Bucket=source, Key=f"p/{name}", Body=body, **kept)
    for command in (["cp", "--recursive"], ["sync"]):
        done = gateway.run(gateway.millrace, *command, f"s3://{source}/p", f"s3://{target}/{command[0]}")
        assert done.returncode == 0, done.stderr
        for name, body in bodies.items():
            copy = gateway.s3.get_object(Bucket=target, Key=f"{command[0]}/{name}")
            assert copy["Body"].read() == body
            assert {field: copy[field] for field in kept} == kept, name  # bytes that came by here would have lost them
    done = gateway.run(gateway.millrace, "sync", f"s3://{source}/p", f"s3://{target}/sync", "--json")
    assert '"copied":0' in done.stdout and '"unchanged":3' in done.stdout


def test_an_untrusted_certificate_is_refused(gateway: Gateway) -> None:
    environment = {"AWS_ENDPOINT_URL": gateway.exports["RGW_TLS_URL"]}
    done = gateway.run(gateway.millrace, "ls", "s3://any", **environment)
    assert done.returncode == 1
    assert "certificate" in done.stderr


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "wrong"}, ["AWS_SECRET_ACCESS_KEY"]),
        ({"AWS_ACCESS_KEY_ID": "nobody"}, ["AWS_ACCESS_KEY_ID"]),
    ],
)
def test_wrong_keys(gateway: Gateway, changes: dict[str, str], words: list[str]) -> None:
    bucket = gateway.bucket("keys")
    done = gateway.run(gateway.millrace, "ls", f"s3://{bucket}", **changes)
    assert done.returncode == 1
    for word in words:
        assert word in done.stderr
    assert "millrace-secret" not in done.stderr


def test_a_missing_bucket(gateway: Gateway) -> None:
    done = gateway.run(gateway.millrace, "ls", "s3://no-such-bucket-here")
    assert done.returncode == 1
    assert "bucket" in done.stderr and "no-such-bucket-here" in done.stderr


def test_buckets_and_unfinished_uploads(gateway: Gateway) -> None:
    bucket = gateway.bucket("unfinished")
    shown = gateway.run(gateway.millrace, "ls")
    assert shown.returncode == 0, shown.stderr
    assert bucket in [line[20:] for line in shown.stdout.splitlines()]

    ids = [
        gateway.s3.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
        for key in ("p/a +b", "p/a +b", "p/c", "p2")
    ]
    gateway.s3.upload_part(Bucket=bucket, Key="p/c", UploadId=ids[2], PartNumber=1, Body=b"part")
    listed = gateway.run(gateway.millrace, "uploads", "ls", f"s3://{bucket}/p")
    assert listed.returncode == 0, listed.stderr
    assert sorted(line[20:] for line in listed.stdout.splitlines()) == sorted(
        [f"{ids[0]} p/a +b", f"{ids[1]} p/a +b", f"{ids[2]} p/c"]
    )
    one = gateway.run(gateway.millrace, "uploads", "abort", f"s3://{bucket}/p/a +b", "--id", ids[1])
    assert one.stdout == "aborted 1 upload\n", one.stderr
    rest = gateway.run(gateway.millrace, "uploads", "abort", f"s3://{bucket}/p", "--older-than", "0s")
    assert rest.stdout == "aborted 2 uploads\n", rest.stderr
    left = gateway.s3.list_multipart_uploads(Bucket=bucket)["Uploads"]
    assert [upload["Key"] for upload in left] == ["p2"]
