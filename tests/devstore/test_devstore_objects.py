"""Objects and buckets, by boto3."""

from __future__ import annotations

import base64
import datetime
import hashlib
import io
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from devstore_support import code, read

KEYS = [
    "plain",
    "a/b/c.jpg",
    "a//b",
    "a/",
    "a",
    "/leading",
    "..",
    "../../etc/passwd",
    "./x",
    "x/../y",
    "sp ace+plus%percent",
    "ümläut/日本",
    "tilde~-_.!*'()&$@=;:,?#[]",
    "back\\slash",
    "k" * 1024,
    "long/" + "n" * 300,
]


class TestBuckets:
    def test_life(self, s3: Any) -> None:
        s3.create_bucket(Bucket="another-one")
        assert [b["Name"] for b in s3.list_buckets()["Buckets"]] == ["another-one", "bucket"]
        head = s3.head_bucket(Bucket="another-one")
        assert head["ResponseMetadata"]["HTTPHeaders"]["x-amz-bucket-region"] == "us-east-1"
        assert s3.get_bucket_location(Bucket="another-one")["LocationConstraint"] is None
        s3.put_object(Bucket="another-one", Key="deep/key", Body=b"")
        with pytest.raises(ClientError) as error:
            s3.delete_bucket(Bucket="another-one")
        assert code(error) == ("BucketNotEmpty", 409)
        s3.delete_object(Bucket="another-one", Key="deep/key")
        s3.delete_bucket(Bucket="another-one")
        with pytest.raises(ClientError) as error:
            s3.head_bucket(Bucket="another-one")
        assert code(error) == ("404", 404)

    def test_errors(self, s3: Any) -> None:
        with pytest.raises(ClientError) as error:
            s3.create_bucket(Bucket="bucket")
        assert code(error) == ("BucketAlreadyOwnedByYou", 409)
        for bad in ("Upper", "a_b", "a..b", "1.2.3.4"):
            with pytest.raises(ClientError) as error:
                s3.create_bucket(Bucket=bad)
            assert code(error) == ("InvalidBucketName", 400)
        with pytest.raises(ClientError) as error:
            s3.create_bucket(Bucket="bucket-2", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
        assert code(error) == ("IllegalLocationConstraintException", 400)
        calls: list[Callable[[], object]] = [
            lambda: s3.delete_bucket(Bucket="missing"),
            lambda: s3.get_bucket_location(Bucket="missing"),
            lambda: s3.list_objects(Bucket="missing"),
            lambda: s3.list_objects_v2(Bucket="missing"),
            lambda: s3.put_object(Bucket="missing", Key="k", Body=b"x"),
            lambda: s3.get_object(Bucket="missing", Key="k"),
            lambda: s3.delete_object(Bucket="missing", Key="k"),
            lambda: s3.create_multipart_upload(Bucket="missing", Key="k"),
            lambda: s3.list_multipart_uploads(Bucket="missing"),
            lambda: s3.copy_object(Bucket="bucket", Key="k", CopySource="missing/k"),
            lambda: s3.delete_objects(Bucket="missing", Delete={"Objects": [{"Key": "k"}]}),
        ]
        for call in calls:
            with pytest.raises(ClientError) as error:
                call()
            assert code(error) == ("NoSuchBucket", 404)

    def test_what_devstore_does_not_offer_is_refused(self, s3: Any) -> None:
        calls: list[Callable[[], object]] = [
            lambda: s3.get_object_acl(Bucket="bucket", Key="k"),
            lambda: s3.get_bucket_versioning(Bucket="bucket"),
            lambda: s3.get_object_tagging(Bucket="bucket", Key="k"),
            lambda: s3.get_object_attributes(Bucket="bucket", Key="k", ObjectAttributes=["ETag"]),
        ]
        for call in calls:
            with pytest.raises(ClientError) as error:
                call()
            assert code(error) == ("NotImplemented", 501)


class TestPutAndGet:
    @pytest.mark.parametrize("key", KEYS, ids=lambda key: key[:20])
    def test_any_key(self, s3: Any, key: str) -> None:
        body = key.encode() * 3
        etag = s3.put_object(Bucket="bucket", Key=key, Body=body)["ETag"]
        assert etag == f'"{hashlib.md5(body).hexdigest()}"'
        assert read(s3, key) == body
        assert s3.head_object(Bucket="bucket", Key=key)["ETag"] == etag
        assert [o["Key"] for o in s3.list_objects_v2(Bucket="bucket")["Contents"]] == [key]
        s3.delete_object(Bucket="bucket", Key=key)
        with pytest.raises(ClientError) as error:
            read(s3, key)
        assert code(error) == ("NoSuchKey", 404)

    def test_all_keys_together(self, s3: Any) -> None:
        for key in KEYS:
            s3.put_object(Bucket="bucket", Key=key, Body=key.encode())
        for key in KEYS:
            assert read(s3, key) == key.encode()
        listed = [o["Key"] for o in s3.list_objects_v2(Bucket="bucket")["Contents"]]
        assert listed == sorted(KEYS, key=str.encode)

    def test_a_key_that_is_too_long(self, s3: Any) -> None:
        with pytest.raises(ClientError) as error:
            s3.put_object(Bucket="bucket", Key="k" * 1025, Body=b"")
        assert code(error) == ("KeyTooLongError", 400)

    def test_metadata_and_headers(self, s3: Any) -> None:
        expires = datetime.datetime(2030, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)
        s3.put_object(
            Bucket="bucket",
            Key="k",
            Body=b"text",
            ContentType="text/plain; charset=utf-8",
            CacheControl="max-age=5",
            ContentDisposition='attachment; filename="x"',
            ContentEncoding="gzip",
            ContentLanguage="de",
            Expires=expires,
            Metadata={"one": "1", "two": "zwei Wörter".encode().decode("ascii", "ignore")},
        )
        for answer in (s3.get_object(Bucket="bucket", Key="k"), s3.head_object(Bucket="bucket", Key="k")):
            assert answer["ContentType"] == "text/plain; charset=utf-8"
            assert answer["CacheControl"] == "max-age=5"
            assert answer["ContentDisposition"] == 'attachment; filename="x"'
            assert answer["ContentEncoding"] == "gzip"  # without aws-chunked
            assert answer["ContentLanguage"] == "de"
            assert answer["Metadata"] == {"one": "1", "two": "zwei Wrter"}
            assert answer["ContentLength"] == 4
            assert answer["AcceptRanges"] == "bytes"
            assert abs((datetime.datetime.now(datetime.timezone.utc) - answer["LastModified"]).total_seconds()) < 60
            headers = answer["ResponseMetadata"]["HTTPHeaders"]
            assert headers["x-amz-request-id"] and headers["date"] and headers["etag"].startswith('"')
        with pytest.raises(ClientError) as error:
            s3.put_object(Bucket="bucket", Key="k2", Body=b"", Metadata={"big": "x" * 2100})
        assert code(error) == ("MetadataTooLarge", 400)
        assert s3.put_object(Bucket="bucket", Key="default", Body=b"")
        assert s3.get_object(Bucket="bucket", Key="default")["ContentType"] == "binary/octet-stream"

    def test_response_overrides(self, s3: Any) -> None:
        s3.put_object(Bucket="bucket", Key="k", Body=b"x", ContentType="text/plain", CacheControl="no-cache")
        answer = s3.get_object(
            Bucket="bucket", Key="k", ResponseContentType="image/png", ResponseCacheControl="x\r\nEvil: yes"
        )
        assert answer["ContentType"] == "image/png"
        assert answer["CacheControl"] == "x  Evil: yes"

    def test_large_and_empty(self, s3: Any) -> None:
        body = bytes(range(256)) * 40_000
        s3.put_object(Bucket="bucket", Key="large", Body=body)
        assert read(s3, "large") == body
        s3.put_object(Bucket="bucket", Key="empty", Body=b"")
        assert read(s3, "empty") == b""

    def test_overwriting(self, s3: Any) -> None:
        for n in (1000, 10, 100_000, 0):
            s3.put_object(Bucket="bucket", Key="k", Body=b"x" * n, Metadata={"n": str(n)})
            answer = s3.get_object(Bucket="bucket", Key="k")
            assert (answer["Body"].read(), answer["Metadata"]) == (b"x" * n, {"n": str(n)})

    def test_a_reader_keeps_the_old_object(self, s3: Any) -> None:
        old = b"o" * 6_000_000
        s3.put_object(Bucket="bucket", Key="k", Body=old)
        stream = s3.get_object(Bucket="bucket", Key="k")["Body"]
        first = stream.read(1000)
        s3.put_object(Bucket="bucket", Key="k", Body=b"new")
        assert first + stream.read() == old
        assert read(s3, "k") == b"new"

    def test_delete_of_nothing_succeeds(self, s3: Any) -> None:
        assert s3.delete_object(Bucket="bucket", Key="none")["ResponseMetadata"]["HTTPStatusCode"] == 204

    def test_unsized_streams_come_chunked(self, store: Any) -> None:
        class Unseekable(io.RawIOBase):
            def __init__(self) -> None:
                self.left = 300_000

            def readable(self) -> bool:
                return True

            def seekable(self) -> bool:
                return False

            def read(self, n: int = -1) -> bytes:
                n = self.left if n < 0 else min(n, self.left)
                self.left -= n
                return b"u" * n

        s3 = store.client()
        s3.upload_fileobj(Unseekable(), "bucket", "k")
        assert read(s3, "k") == b"u" * 300_000


class TestCopy:
    def test_keeps_or_replaces_metadata(self, s3: Any) -> None:
        s3.put_object(Bucket="bucket", Key="a b/ü", Body=b"text", ContentType="text/plain", Metadata={"x": "1"})
        answer = s3.copy_object(Bucket="bucket", Key="copy", CopySource={"Bucket": "bucket", "Key": "a b/ü"})
        assert answer["CopyObjectResult"]["ETag"] == f'"{hashlib.md5(b"text").hexdigest()}"'
        copied = s3.get_object(Bucket="bucket", Key="copy")
        assert (copied["Body"].read(), copied["ContentType"], copied["Metadata"]) == (b"text", "text/plain", {"x": "1"})
        s3.copy_object(
            Bucket="bucket", Key="copy", CopySource="bucket/copy", MetadataDirective="REPLACE", Metadata={"y": "2"}
        )
        assert s3.head_object(Bucket="bucket", Key="copy")["Metadata"] == {"y": "2"}

    def test_errors(self, s3: Any) -> None:
        etag = s3.put_object(Bucket="bucket", Key="k", Body=b"text")["ETag"]
        for arguments, expected in [
            ({"CopySource": "bucket/k"}, ("InvalidRequest", 400)),  # onto itself
            ({"CopySource": "bucket/none"}, ("NoSuchKey", 404)),
            ({"CopySource": "bucket/k", "CopySourceIfMatch": '"x"'}, ("PreconditionFailed", 412)),
            ({"CopySource": "bucket/k", "CopySourceIfNoneMatch": etag}, ("PreconditionFailed", 412)),
            ({"CopySource": "nonsense", "MetadataDirective": "REPLACE"}, ("InvalidArgument", 400)),
        ]:
            with pytest.raises(ClientError) as error:
                s3.copy_object(Bucket="bucket", Key="k", **arguments)
            assert code(error) == expected
        s3.copy_object(Bucket="bucket", Key="k2", CopySource="bucket/k", CopySourceIfMatch=etag)
        with pytest.raises(ClientError) as error:
            s3.copy_object(Bucket="bucket", Key="k2", CopySource="bucket/k", IfNoneMatch="*")
        assert code(error) == ("PreconditionFailed", 412)


class TestDeleteObjects:
    def test_many(self, s3: Any) -> None:
        keys = [f"k/{n}" for n in range(1000)]
        for key in keys[:50]:
            s3.put_object(Bucket="bucket", Key=key, Body=b"")
        answer = s3.delete_objects(Bucket="bucket", Delete={"Objects": [{"Key": key} for key in keys]})
        assert [d["Key"] for d in answer["Deleted"]] == keys  # missing ones count as deleted
        assert s3.list_objects_v2(Bucket="bucket")["KeyCount"] == 0
        quiet = s3.delete_objects(Bucket="bucket", Delete={"Objects": [{"Key": "x"}], "Quiet": True})
        assert "Deleted" not in quiet

    def test_errors(self, s3: Any) -> None:
        with pytest.raises(ClientError) as error:
            s3.delete_objects(Bucket="bucket", Delete={"Objects": [{"Key": str(n)} for n in range(1001)]})
        assert code(error) == ("MalformedXML", 400)


class TestFolder:
    def test_files_of_others(self, devstore: Any, tmp_path: Path) -> None:
        (tmp_path / "root" / "photos" / "cat").mkdir(parents=True)
        file = tmp_path / "root" / "photos" / "cat" / "1.jpg"
        file.write_bytes(b"meow")
        s3 = devstore(tmp_path / "root").client()
        assert [b["Name"] for b in s3.list_buckets()["Buckets"]] == ["photos"]
        first = s3.get_object(Bucket="photos", Key="cat/1.jpg")
        assert first["Body"].read() == b"meow"
        assert s3.head_object(Bucket="photos", Key="cat/1.jpg")["ETag"] == first["ETag"]
        file.write_bytes(b"hiss!")
        assert s3.head_object(Bucket="photos", Key="cat/1.jpg")["ETag"] != first["ETag"]
        s3.put_object(Bucket="photos", Key="dog/1.jpg", Body=b"woof")
        assert (tmp_path / "root" / "photos" / "dog" / "1.jpg").read_bytes() == b"woof"

    def test_everything_survives_a_restart(self, devstore: Any, tmp_path: Path) -> None:
        (tmp_path / "root").mkdir()
        first = devstore(tmp_path / "root", "--bucket", "bucket")
        s3 = first.client()
        for key in KEYS:
            s3.put_object(Bucket="bucket", Key=key, Body=key.encode(), Metadata={"m": "1"}, ContentType="a/b")
        before = s3.list_objects_v2(Bucket="bucket")["Contents"]
        upload = s3.create_multipart_upload(Bucket="bucket", Key="mp")["UploadId"]
        part = s3.upload_part(Bucket="bucket", Key="mp", UploadId=upload, PartNumber=1, Body=b"part")
        first.stop()
        s3 = devstore(tmp_path / "root").client()
        assert s3.list_objects_v2(Bucket="bucket")["Contents"] == before
        for key in KEYS:
            answer = s3.get_object(Bucket="bucket", Key=key)
            assert answer["Body"].read() == key.encode()
            assert (answer["Metadata"], answer["ContentType"]) == ({"m": "1"}, "a/b")
        s3.complete_multipart_upload(
            Bucket="bucket",
            Key="mp",
            UploadId=upload,
            MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]},
        )
        assert read(s3, "mp") == b"part"

    @pytest.mark.parametrize(
        "path",
        [
            "/../secret",
            "/..%2fsecret",
            "/%2e%2e/secret",
            "/bucket/../../secret",
            "/bucket/..%2f..%2fsecret",
            "/.devstore/meta",
        ],
    )
    def test_nothing_outside_is_reachable(self, devstore: Any, raw: Any, tmp_path: Path, path: str) -> None:
        (tmp_path / "secret").write_bytes(b"top secret")
        (tmp_path / "root" / "bucket").mkdir(parents=True)
        store = devstore(tmp_path / "root", "--anonymous")
        assert b"top secret" not in raw(store).get(path)[0]
        raw(store).request("PUT", path, b"overwritten")
        for source in ("../secret", "..%2Fsecret", "bucket/../../secret", ".devstore/../../secret"):
            raw(store).request("PUT", "/bucket/copy", headers={"x-amz-copy-source": source})
            assert b"top secret" not in raw(store).get("/bucket/copy")[0]
        assert (tmp_path / "secret").read_bytes() == b"top secret"


class TestOpaqueETags:
    """As of objects that S3 encrypts by KMS."""

    def test_are_no_md5s(self, devstore: Any) -> None:
        store = devstore("mem:", "--bucket", "bucket", "--opaque-etags")
        s3 = store.client()
        body = b"x" * 1000
        tags = {s3.put_object(Bucket="bucket", Key=key, Body=body)["ETag"].strip('"') for key in ("a", "b")}
        (tag,) = tags
        assert len(tag) == 32 and tag != hashlib.md5(body).hexdigest()
        assert s3.head_object(Bucket="bucket", Key="a")["ETag"] == f'"{tag}"'
        copied = s3.copy_object(Bucket="bucket", Key="c", CopySource="bucket/a")["CopyObjectResult"]["ETag"]
        assert copied.strip('"') == tag
        assert s3.put_object(Bucket="bucket", Key="d", Body=body + b"y")["ETag"].strip('"') != tag

    def test_content_md5_is_checked(self, devstore: Any) -> None:
        s3 = devstore("mem:", "--bucket", "bucket", "--opaque-etags").client()
        good = base64.b64encode(hashlib.md5(b"body").digest()).decode()
        s3.put_object(Bucket="bucket", Key="a", Body=b"body", ContentMD5=good)
        with pytest.raises(ClientError) as error:
            s3.put_object(Bucket="bucket", Key="a", Body=b"b0dy", ContentMD5=good)
        assert code(error)[0] == "BadDigest"

    def test_millrace_copies_there_and_back(self, devstore: Any, millrace_bin: Path, tmp_path: Path) -> None:
        """Objects without a checksum, whose ETag looks like an MD5 and is none."""
        store = devstore("mem:", "--bucket", "bucket", "--opaque-etags")
        contents = {f"{number}.bin": bytes([number]) * 100_000 for number in range(20)}
        for key, body in contents.items():
            store.client().put_object(Bucket="bucket", Key=key, Body=body)
        environment = {**os.environ, **store.env()}
        command = [millrace_bin, "cp", "--recursive", "s3://bucket/", tmp_path / "back"]
        subprocess.run(command, env=environment, check=True, capture_output=True)
        assert {path.name: path.read_bytes() for path in (tmp_path / "back").iterdir()} == contents
