"""Ceph RADOS Gateway, a real S3 server that we did not write: the contract of ObjectStore and the command line on it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import boto3
import botocore.config
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPT = REPOSITORY / "tests" / "servers" / "rgw.sh"


class Gateway:
    """A running gateway, reached over http or https."""

    def __init__(self, exports: dict[str, str], home: Path, millrace: Path) -> None:
        self.exports = exports
        self.millrace = millrace
        self.home = home
        self.s3 = boto3.client(
            "s3",
            endpoint_url=exports["AWS_ENDPOINT_URL"],
            aws_access_key_id=exports["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=exports["AWS_SECRET_ACCESS_KEY"],
            region_name="us-east-1",
            # RGW 16 answers 400 to the checksum trailers that boto3 sends by default.
            config=botocore.config.Config(request_checksum_calculation="when_required", s3={"addressing_style": "path"}),
        )

    def environment(self, tls: bool) -> dict[str, str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        clean["HOME"] = str(self.home)
        clean.update({name: value for name, value in self.exports.items() if name.startswith("AWS_")})
        if tls:
            clean["AWS_ENDPOINT_URL"] = self.exports["RGW_TLS_URL"]
            clean["AWS_CA_BUNDLE"] = self.exports["RGW_CA"]
        return clean

    def run(self, *command: str | Path, tls: bool = False, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=self.environment(tls) | more, capture_output=True, text=True, timeout=280, check=False
        )

    def bucket(self, name: str) -> str:
        self.s3.create_bucket(Bucket=name)
        return name


@pytest.fixture(scope="module")
def gateway(millrace_bin: Path) -> Iterator[Gateway]:
    # Not pytest's tmp_path: Ceph does not take paths with spaces or of any length.
    with tempfile.TemporaryDirectory(prefix="millrace-rgw-") as folder:
        started = subprocess.run([SCRIPT, "start", folder, "--tls"], capture_output=True, text=True, timeout=280)
        try:
            assert started.returncode == 0, started.stderr
            words = (shlex.split(line)[1] for line in started.stdout.splitlines())
            yield Gateway(dict(word.split("=", 1) for word in words), Path(folder), millrace_bin)
        finally:
            subprocess.run([SCRIPT, "stop", folder], check=True, timeout=60)


@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
def test_store_contract(gateway: Gateway, tls: bool) -> None:
    bucket = gateway.bucket(f"contract-{tls}".lower())
    done = gateway.run(gateway.millrace.parent / "s3_conformance_test", "--gtest_brief=1", tls=tls, MILLRACE_TEST_BUCKET=bucket)
    assert done.returncode == 0, done.stdout[-10000:] + done.stderr[-2000:]
    passed = re.search(r"PASSED\s*\]\s*(\d+) tests", done.stdout)
    assert passed and int(passed[1]) >= 30, done.stdout  # the suite ran
    # Writers that were dropped have aborted their uploads.
    assert gateway.s3.list_multipart_uploads(Bucket=bucket).get("Uploads", []) == []


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
    done = gateway.run(gateway.millrace, "cp", "--recursive", f"s3://{bucket}/copy", back, tls=True)
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
