"""An S3 server that we did not write, and the contract of ObjectStore on it. The fixtures of the test files start one."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
import botocore.config  # type: ignore[import-untyped]


class S3Server:
    """A running server; `exports` are the variables by which clients reach it."""

    def __init__(self, exports: dict[str, str], home: Path, millrace: Path) -> None:
        self.exports = exports
        self.millrace = millrace
        self.home = home
        self.s3: Any = boto3.client(
            "s3",
            endpoint_url=exports["AWS_ENDPOINT_URL"],
            aws_access_key_id=exports["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=exports["AWS_SECRET_ACCESS_KEY"],
            region_name="us-east-1",
            # RGW 16 answers 400 to the checksum trailers that boto3 sends by default.
            config=botocore.config.Config(
                request_checksum_calculation="when_required", s3={"addressing_style": "path"}
            ),
        )

    def environment(self) -> dict[str, str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        clean["HOME"] = str(self.home)
        clean["XDG_CACHE_HOME"] = str(self.home / "cache")
        clean.update({name: value for name, value in self.exports.items() if name.startswith("AWS_")})
        return clean

    def run(self, *command: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
        """`more`: further variables."""
        return subprocess.run(
            command, env=self.environment() | more, capture_output=True, text=True, timeout=400, check=False
        )

    def ok(self, *arguments: str | Path, **more: str) -> str:
        """The output of the millrace command, which must succeed."""
        done = self.run(self.millrace, *arguments, **more)
        assert done.returncode == 0, (arguments, done.stdout[-2000:], done.stderr[-2000:])
        return done.stdout

    def bucket(self, name: str) -> str:
        self.s3.create_bucket(Bucket=name)
        return name

    def check_contract(self, bucket: str, *, at_least: int, without: tuple[str, ...] = (), **more: str) -> None:
        """Runs the contract of ObjectStore, but for some tests, in a bucket of its own."""
        wanted = "*" if not without else "-" + ":".join(f"*.{name}/*:*.{name}" for name in without)
        program = self.millrace.parent / "s3_conformance_test"
        done = self.run(program, "--gtest_brief=1", f"--gtest_filter={wanted}", MILLRACE_TEST_BUCKET=bucket, **more)
        assert done.returncode == 0, done.stdout[-10000:] + done.stderr[-2000:]
        passed = re.search(r"PASSED\s*\]\s*(\d+) tests", done.stdout)
        assert passed and int(passed[1]) >= at_least, done.stdout  # the suite ran
        # Writers that were dropped have aborted their uploads.
        assert self.s3.list_multipart_uploads(Bucket=bucket).get("Uploads", []) == []
