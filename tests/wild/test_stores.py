"""Stores whose listings, rights and demands differ from those of AWS. The cases are those of docs/wild-stores.md."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pytest
from stub_store import ENCRYPTION, run, serving


def tar(number: int) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        info = tarfile.TarInfo(f"{number:04}.txt")
        info.size = 4
        archive.addfile(info, io.BytesIO(b"text"))
    return out.getvalue()


@pytest.mark.parametrize("manner", ["plain", "fs-order", "skip-one"])
def test_listings_are_whole(millrace_bin: Path, manner: str) -> None:
    keys = {f"{folder}/{n:05}.txt" for folder in ("cat", "cat-2") for n in range(1100)}
    with serving(manner, **dict.fromkeys(keys, b"1")) as stub:
        said = run(millrace_bin, "ls", "-r", "s3://b/", env=stub.env())
        assert {line.split()[-1] for line in said.splitlines()} == keys


def test_a_store_that_decompresses_what_it_sends(millrace_bin: Path) -> None:
    with serving("gunzip", **{"x.gz": gzip.compress(b"text" * 1000)}) as stub:
        said = run(millrace_bin, "cat", "s3://b/x.gz", env=stub.env(), code=1)
        assert "Cache-Control: no-transform" in said
        assert len([asked for asked in stub.asked if asked.method == "GET"]) == 1, "asking again does not help"


NAMES = ["s3://b/train-{000..002}.tar", "{s3://b/train-002.tar,s3://b/train-000.tar,s3://b/train-001.tar}"]


@pytest.mark.parametrize("uri", NAMES)
def test_names_need_no_right_to_list(millrace_bin: Path, uri: str) -> None:
    shards = {f"train-{n:03}.tar": tar(n) for n in range(3)}
    with serving("no-list", **shards) as stub:
        said = run(millrace_bin, "inspect", uri, env=stub.env())
        assert "3 samples" in said
        # One that is not there looks to them like one that they may not read.
        del stub.objects["b/train-001.tar"]
        said = run(millrace_bin, "inspect", uri, env=stub.env(), code=None)
        assert "train-001.tar" in said and "s3:GetObject" in said and "does not exist" in said
        said = run(millrace_bin, "inspect", "s3://b/train-*.tar", env=stub.env(), code=1)
        assert "s3:ListBucket on arn:aws:s3:::b" in said


WRITES: list[tuple[str, list[str]]] = [
    ("cp", ["FILE", "s3://b/new"]),
    ("cp", ["s3://b/x", "s3://b/new"]),
    ("cp", ["LARGE", "s3://b/new"]),
]


@pytest.mark.parametrize("write", range(len(WRITES)))
@pytest.mark.parametrize("key", ["", "arn:aws:kms:eu-west-1:1:key/k"])
def test_encryption_that_a_policy_demands(millrace_bin: Path, tmp_path: Path, write: int, key: str) -> None:
    (tmp_path / "FILE").write_bytes(b"text")
    with (tmp_path / "LARGE").open("wb") as file:
        file.truncate(20 << 20)
    command, names = WRITES[write]
    arguments = [str(tmp_path / name) if name in ("FILE", "LARGE") else name for name in names]
    with serving("kms", x=b"text") as stub:
        said = run(millrace_bin, command, *arguments, env=stub.env(), code=1)
        assert "MILLRACE_S3_SSE=aws:kms" in said
        setting = {"MILLRACE_S3_SSE": "aws:kms"} if not key else {"MILLRACE_S3_SSE_KMS_KEY_ID": key}
        run(millrace_bin, command, *arguments, env=stub.env(**setting))
        assert "b/new" in stub.objects
        parts = [asked for asked in stub.asked if "partNumber" in asked.query and asked.method == "PUT"]
        assert all(ENCRYPTION not in asked.headers for asked in parts)
        creating = [asked for asked in stub.asked if asked.headers.get(ENCRYPTION) == "aws:kms"]
        assert creating
        assert {asked.headers.get(ENCRYPTION + "-aws-kms-key-id", "") for asked in creating} == {key}


def test_settings_of_encryption_that_contradict(millrace_bin: Path) -> None:
    with serving(x=b"text") as stub:
        wrong = run(millrace_bin, "ls", "s3://b", env=stub.env(MILLRACE_S3_SSE="kms"), code=None)
        assert "it must be aws:kms, aws:kms:dsse or AES256" in wrong
        both = stub.env(MILLRACE_S3_SSE="AES256", MILLRACE_S3_SSE_KMS_KEY_ID="k")
        assert "MILLRACE_S3_SSE_KMS_KEY_ID needs" in run(millrace_bin, "ls", "s3://b", env=both, code=None)


def test_requester_pays(millrace_bin: Path) -> None:
    with serving("payer", x=b"text") as stub:
        assert run(millrace_bin, "cat", "s3://b/x", env=stub.env(MILLRACE_S3_REQUESTER_PAYS="1")) == "text"


def test_the_bucket_in_the_name_of_the_host(millrace_bin: Path) -> None:
    with serving("virtual-only", x=b"text") as stub:
        # Names below localhost are this machine's where the resolver knows them.
        env = stub.env(MILLRACE_S3_ADDRESSING_STYLE="virtual", AWS_MAX_ATTEMPTS="1")
        said = run(millrace_bin, "ls", "s3://bbb/", env=env, code=None)
    assert stub.asked or "resolve" in said or "cannot connect" in said
    assert all(asked.headers["host"].startswith("bbb.localhost") for asked in stub.asked)


# The manner, what doctor is given, and what its lines must say.
REMEDIES = [
    ("virtual-only", [], "MILLRACE_S3_ADDRESSING_STYLE=virtual"),
    ("payer", [], "MILLRACE_S3_REQUESTER_PAYS=1"),
    ("no-list", [], "s3:ListBucket on arn:aws:s3:::b"),
    ("kms", ["--write"], "MILLRACE_S3_SSE=aws:kms"),
]


@pytest.mark.parametrize(("manner", "options", "remedy"), REMEDIES, ids=[case[0] for case in REMEDIES])
def test_doctor_names_the_remedy(millrace_bin: Path, manner: str, options: list[str], remedy: str) -> None:
    with serving(manner, x=b"text") as stub:
        said = run(millrace_bin, "doctor", "s3://b/x", *options, env=stub.env(), code=1)
        assert [line for line in said.splitlines() if line.startswith("FAILED") and remedy in line], said


@pytest.mark.parametrize("manner", ["plain", "fs-order", "skip-one"])
def test_doctor_writes_only_when_told(millrace_bin: Path, manner: str) -> None:
    with serving(manner, **{"folder/x": b"text"}) as stub:
        run(millrace_bin, "doctor", "s3://b/folder/x", env=stub.env())
        assert {asked.method for asked in stub.asked} <= {"GET", "HEAD"}
        said = run(millrace_bin, "doctor", "s3://b/folder/x", "--write", env=stub.env())
        assert "ok     write: s3://b/folder/.millrace-doctor-" in said and "ok     delete: " in said
        assert set(stub.objects) == {"b/folder/x"}
