"""moto, a model of S3 in Python that others wrote: the contract of ObjectStore and the command line on it."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from s3_server import S3Server

# Where moto is not like S3, and our client cannot help it.
NOT_LIKE_S3 = {
    "TakesControlCharacters": "the paths that its web server knows end at a line feed: keys with one are 404",
    "ACopyReplacesNothingIfItMustNot": "If-None-Match of a copy is ignored",
    "HeadOfThePartsIsAHead": "a HEAD of part 1 is answered with 200 and the part's size, not with 206 and a Content-Range",
}


def wait_for_url(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        if found := re.search(r"Running on (http://127\.0\.0\.1:\d+)", log.read_text()):
            return found[1]
        try:
            process.wait(0.02)
        except subprocess.TimeoutExpired:
            continue
        raise AssertionError(f"moto ended: {log.read_text()}")
    raise AssertionError(f"moto does not say that it listens: {log.read_text()}")


@pytest.fixture(scope="module")
def moto(millrace_bin: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    home = tmp_path_factory.mktemp("moto")
    log = home / "log"
    with log.open("wb") as out:
        # Port 0: werkzeug takes a free one and logs it.
        process = subprocess.Popen([sys.executable, "-m", "moto.server", "-p", "0"], stdout=out, stderr=out, cwd=home)
    try:
        keys = {"AWS_ACCESS_KEY_ID": "moto-key", "AWS_SECRET_ACCESS_KEY": "moto-secret", "AWS_REGION": "us-east-1"}
        yield S3Server({"AWS_ENDPOINT_URL": wait_for_url(process, log), **keys}, home, millrace_bin)
    finally:
        process.terminate()
        try:
            process.wait(120)
        finally:
            process.kill()
            process.wait()


def test_store_contract(moto: S3Server) -> None:
    moto.check_contract(moto.bucket("contract"), at_least=40 - len(NOT_LIKE_S3), without=tuple(NOT_LIKE_S3))


def make_tree(folder: Path) -> dict[str, bytes]:
    files = {
        "small & odd+name.bin": b"\x00\xff small",
        "sub/empty": b"",
        "sub/\u65e5\u672c/deep": b"deep",
        "large": random.Random(1).randbytes(1 << 20) * 20,  # several parts
    }
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return files


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_cp_ls_cat_sync_rm(moto: S3Server, tmp_path: Path) -> None:
    bucket = moto.bucket("tools")
    files = make_tree(tmp_path / "data")
    there = f"s3://{bucket}/copy"
    moto.ok("cp", "--recursive", tmp_path / "data", there)
    for name, data in files.items():
        assert moto.s3.get_object(Bucket=bucket, Key=f"copy/{name}")["Body"].read() == data
    listed = moto.ok("ls", "--recursive", f"{there}/")
    assert all(name in listed for name in files)
    assert moto.ok("cat", f"{there}/sub/\u65e5\u672c/deep") == "deep"

    moto.s3.put_object(Bucket=bucket, Key="copy/by boto3", Body=b"hello")
    moto.ok("cp", "--recursive", there, tmp_path / "back")
    assert contents(tmp_path / "back") == files | {"by boto3": b"hello"}

    (tmp_path / "data" / "large").unlink()
    (tmp_path / "data" / "new").write_bytes(b"new")
    moto.ok("sync", "--delete", tmp_path / "data", there)
    moto.ok("sync", there, tmp_path / "synced")
    assert contents(tmp_path / "synced") == contents(tmp_path / "data")

    moto.ok("rm", "--recursive", there)
    assert moto.s3.list_objects_v2(Bucket=bucket).get("KeyCount") == 0


def test_index_and_feed(moto: S3Server, tmp_path: Path) -> None:
    bucket = moto.bucket("photos")
    moto.ok("synth", tmp_path / "raw", "--count", "60", "--kb", "8", "--seed", "1")
    moto.ok("pack", tmp_path / "raw", f"s3://{bucket}/tar", "--shard-size", "100KiB")
    moto.ok("cp", "--recursive", tmp_path / "raw", f"s3://{bucket}/raw")
    digests = set()
    for place in (tmp_path / "raw", f"s3://{bucket}/raw", f"s3://{bucket}/tar"):
        moto.ok("index", place)
        report = json.loads(
            moto.ok("feed", place, "--json", "--shuffle", "none", "--batch", "16", "--size", "32", "--memory", "64MiB")
        )
        assert report["samples"] == 60
        digests.add(report["digest"])
    assert len(digests) == 1


def test_errors_have_names(moto: S3Server) -> None:
    done = moto.run(moto.millrace, "ls", "s3://no-such-bucket-here")
    assert done.returncode == 1
    assert "bucket" in done.stderr and "no-such-bucket-here" in done.stderr
    done = moto.run(moto.millrace, "cat", f"s3://{moto.bucket('errors')}/none")
    assert done.returncode == 1
    assert "does not exist" in done.stderr
