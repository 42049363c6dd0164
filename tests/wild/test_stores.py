"""Stores whose listings, rights and demands differ from those of AWS. The cases, with the reports that they come from, are those of
docs/wild-stores.md."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pytest
from stub_store import ENCRYPTION, MANNERS, run, serving


def tar(number: int) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        info = tarfile.TarInfo(f"{number:04}.txt")
        info.size = 4
        archive.addfile(info, io.BytesIO(b"text"))
    return out.getvalue()


LISTINGS = [
    ("fs-order", "https://github.com/juicedata/juicefs/issues/7489"),
    ("files-first", "https://github.com/leo-project/leofs/issues/558"),
    ("skip-one", "https://github.com/minio/minio/issues/21463"),
    ("no-start-after", "https://github.com/versity/versitygw/issues/138"),
]


@pytest.mark.parametrize(("manner", "report"), LISTINGS, ids=[manner for manner, _ in LISTINGS])
def test_listings_are_whole(millrace_bin: Path, manner: str, report: str) -> None:
    keys = {f"{folder}/{n:05}.txt" for folder in ("cat", "cat-2") for n in range(1100)} | {"zebra.txt"}
    with serving(manner, **dict.fromkeys(keys, b"1")) as stub:
        said = run(millrace_bin, "ls", "-r", "s3://b/", env=stub.env())
        listed = [line.split()[-1] for line in said.splitlines()]
        assert sorted(listed) == sorted(keys), report


def test_keys_with_control_characters(millrace_bin: Path) -> None:
    """https://github.com/boto/boto3/issues/2347: listings are asked for with encoding-type=url."""
    with serving(**{"a\x08b.txt": b"text", "a+b c.txt": b"text"}) as stub:
        said = run(millrace_bin, "ls", "-r", "s3://b/", env=stub.env())
        assert len(said.splitlines()) == 2 and "a+b c.txt" in said
        assert run(millrace_bin, "cat", "s3://b/a\x08b.txt", env=stub.env()) == "text"


def test_a_store_that_decompresses_what_it_sends(millrace_bin: Path) -> None:
    """https://github.com/apache/opendal/issues/5070"""
    with serving("gunzip", **{"x.gz": gzip.compress(b"text" * 1000)}) as stub:
        said = run(millrace_bin, "cat", "s3://b/x.gz", env=stub.env(), code=1)
        assert "Cache-Control: no-transform" in said
        assert len([asked for asked in stub.asked if asked.method == "GET"]) == 1, "asking again does not help"


NAMES = ["s3://b/train-{000..002}.tar", "{s3://b/train-002.tar,s3://b/train-000.tar,s3://b/train-001.tar}"]


@pytest.mark.parametrize("uri", NAMES)
def test_names_need_no_right_to_list(millrace_bin: Path, uri: str) -> None:
    """https://github.com/jschneier/django-storages/issues/1104"""
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


WRITES: list[tuple[str, list[str], str]] = [
    ("cp", ["FILE", "s3://b/new"], "https://github.com/awslabs/mountpoint-s3/issues/534"),
    ("cp", ["s3://b/x", "s3://b/new"], "https://github.com/gomods/athens/issues/2165"),
    ("cp", ["LARGE", "s3://b/new"], "https://github.com/aws/aws-cli/issues/4251"),
]


@pytest.mark.parametrize("write", range(len(WRITES)))
@pytest.mark.parametrize("key", ["", "arn:aws:kms:eu-west-1:1:key/k"])
def test_encryption_that_a_policy_demands(millrace_bin: Path, tmp_path: Path, write: int, key: str) -> None:
    (tmp_path / "FILE").write_bytes(b"text")
    with (tmp_path / "LARGE").open("wb") as file:
        file.truncate(20 << 20)
    command, names, report = WRITES[write]
    arguments = [str(tmp_path / name) if name in ("FILE", "LARGE") else name for name in names]
    with serving("kms", x=b"text") as stub:
        said = run(millrace_bin, command, *arguments, env=stub.env(), code=1)
        assert "MILLRACE_S3_SSE=aws:kms" in said, report
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
    """https://github.com/boto/boto3/issues/4138"""
    with serving("payer", x=b"text") as stub:
        assert run(millrace_bin, "cat", "s3://b/x", env=stub.env(MILLRACE_S3_REQUESTER_PAYS="1")) == "text"


def test_the_bucket_in_the_name_of_the_host(millrace_bin: Path) -> None:
    """https://github.com/peak/s5cmd/issues/518"""
    with serving("virtual-only", x=b"text") as stub:
        # Names below localhost are this machine's where the resolver knows them.
        env = stub.env(MILLRACE_S3_ADDRESSING_STYLE="virtual", AWS_MAX_ATTEMPTS="1")
        said = run(millrace_bin, "ls", "s3://bbb/", env=env, code=None)
    assert stub.asked or "resolve" in said or "cannot connect" in said
    assert all(asked.headers["host"].startswith("bbb.localhost") for asked in stub.asked)


# Manners that need no setting: files of two lengths go there and back, and are removed.
QUIET = [
    ("odd-etags", "https://github.com/s3tools/s3cmd/issues/1273"),
    ("late-error", "https://github.com/s3tools/s3cmd/issues/577"),
    ("md5", "https://github.com/aws/aws-sdk-js-v3/issues/6920"),
    ("weak-etags", "https://github.com/commontoolsinc/labs/pull/1751"),
    ("single-deletes", "https://github.com/supabase/storage/issues/898"),
    ("no-trailers", "https://github.com/storj/gateway-st/issues/89"),
]


@pytest.mark.parametrize(("manner", "report"), QUIET, ids=[manner for manner, _ in QUIET])
def test_files_go_there_and_back(millrace_bin: Path, tmp_path: Path, manner: str, report: str) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "small").write_bytes(b"text")
    (source / "large").write_bytes(bytes(20 << 20))
    with serving(manner) as stub:
        run(millrace_bin, "cp", "-r", source, "s3://b/new", env=stub.env())
        run(millrace_bin, "cp", "-r", "s3://b/new", tmp_path / "back", env=stub.env())
        for name in ("small", "large"):
            assert (tmp_path / "back" / name).read_bytes() == (source / name).read_bytes(), report
        run(millrace_bin, "rm", "-r", "s3://b/new", env=stub.env())
        assert not stub.objects, report


def test_listings_that_do_not_say_that_there_is_more(millrace_bin: Path) -> None:
    """https://github.com/minio/minio-go/pull/1704"""
    with serving("no-truncated", **{f"folder/{n:04}": b"x" for n in range(1500)}) as stub:
        assert len(run(millrace_bin, "ls", "-r", "s3://b/folder/", env=stub.env()).splitlines()) == 1500


def test_deletes_of_many_objects_one_by_one(millrace_bin: Path) -> None:
    """https://github.com/minio/mc/issues/2398"""
    with serving("single-deletes", **{f"folder/{n:04}": b"x" for n in range(1500)}, other=b"x") as stub:
        said = run(millrace_bin, "rm", "-r", "s3://b/folder/", env=stub.env())
        assert "removed 1500 objects" in said and set(stub.objects) == {"b/other"}
        assert sum("delete" in asked.query for asked in stub.asked) <= 2


def test_a_page_of_a_proxy_is_no_object(millrace_bin: Path) -> None:
    """Not even the first bytes of the page."""
    with serving("pages", x=b"text") as stub:
        said = run(millrace_bin, "cat", "s3://b/x", env=stub.env(AWS_MAX_ATTEMPTS="2"), code=1)
    assert "instead of the object's 4" in said and "<htm" not in said


def test_the_region_is_learned(millrace_bin: Path) -> None:
    """https://github.com/aws/aws-cli/issues/851"""
    with serving("region", x=b"text") as stub:
        assert run(millrace_bin, "cat", "s3://b/x", env=stub.env()) == "text"


# The options of doctor for a manner that needs a remedy, and what the line of the check that fails must name.
REMEDIES = {
    "virtual-only": ([], "MILLRACE_S3_ADDRESSING_STYLE=virtual"),
    "payer": ([], "MILLRACE_S3_REQUESTER_PAYS=1"),
    "no-list": ([], "s3:ListBucket on arn:aws:s3:::b"),
    "kms": (["--write"], "MILLRACE_S3_SSE=aws:kms"),
    "gunzip": ([], "Cache-Control: no-transform"),
    "pages": ([], "AWS_ENDPOINT_URL"),
}


@pytest.mark.parametrize("manner", MANNERS)
def test_doctor_names_the_remedy(millrace_bin: Path, manner: str) -> None:
    options, remedy = REMEDIES.get(manner, (["--write"], ""))
    with serving(manner, **{"folder/x": gzip.compress(b"text" * 1000)}) as stub:
        said = run(millrace_bin, "doctor", "s3://b/folder/x", *options, env=stub.env(), code=1 if remedy else 0)
        failed = [line for line in said.splitlines() if line.startswith("FAILED")]
        assert bool(failed) == bool(remedy), said
        assert not remedy or [line for line in failed if remedy in line.split("Remedy:")[1]], said
        assert set(stub.objects) == {"b/folder/x"}


def test_doctor_writes_only_when_told(millrace_bin: Path) -> None:
    with serving(**{"folder/x": b"text"}) as stub:
        run(millrace_bin, "doctor", "s3://b/folder/x", env=stub.env())
        assert {asked.method for asked in stub.asked} <= {"GET", "HEAD"}
        said = run(millrace_bin, "doctor", "s3://b/folder/x", "--write", env=stub.env())
        assert "ok     write: s3://b/folder/.millrace-doctor-" in said and "ok     delete: " in said
        assert set(stub.objects) == {"b/folder/x"}
