"""Objects and buckets, by boto3 and by raw HTTP."""

from __future__ import annotations

import base64
import concurrent.futures
import datetime
import hashlib
import http.client
import io
import socket
import zlib
from pathlib import Path
from typing import Any

import pytest
from collections.abc import Callable
from botocore.exceptions import ClientError

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


def code(error: pytest.ExceptionInfo[ClientError]) -> tuple[str, int]:
    response = error.value.response
    return response["Error"]["Code"], response["ResponseMetadata"]["HTTPStatusCode"]


def read(s3: Any, key: str, **arguments: Any) -> bytes:
    body: bytes = s3.get_object(Bucket="bucket", Key=key, **arguments)["Body"].read()
    return body


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


class TestRanges:
    @pytest.fixture
    def hundred(self, s3: Any) -> Any:
        s3.put_object(Bucket="bucket", Key="k", Body=bytes(range(100)))
        return s3

    @pytest.mark.parametrize(
        ("header", "first", "last"),
        [
            ("bytes=0-9", 0, 9),
            ("bytes=95-", 95, 99),
            ("bytes=-5", 95, 99),
            ("bytes=90-1000", 90, 99),
            ("bytes=-1000", 0, 99),
            ("bytes=0-99", 0, 99),
            ("bytes=99-99", 99, 99),
        ],
    )
    def test_part(self, hundred: Any, header: str, first: int, last: int) -> None:
        answer = hundred.get_object(Bucket="bucket", Key="k", Range=header)
        assert answer["ResponseMetadata"]["HTTPStatusCode"] == 206
        assert answer["ContentRange"] == f"bytes {first}-{last}/100"
        assert answer["Body"].read() == bytes(range(first, last + 1))
        assert hundred.head_object(Bucket="bucket", Key="k", Range=header)["ContentLength"] == last - first + 1

    @pytest.mark.parametrize("header", ["bytes=100-", "bytes=100-110", "bytes=-0"])
    def test_unsatisfiable(self, hundred: Any, header: str) -> None:
        with pytest.raises(ClientError) as error:
            hundred.get_object(Bucket="bucket", Key="k", Range=header)
        assert code(error) == ("InvalidRange", 416)
        assert error.value.response["ResponseMetadata"]["HTTPHeaders"]["content-range"] == "bytes */100"
        assert error.value.response["Error"]["ActualObjectSize"] == "100"

    @pytest.mark.parametrize("header", ["bytes=9-5", "bytes=0-1,5-6", "lines=0-9", "bytes=x"])
    def test_ignored(self, hundred: Any, header: str) -> None:
        answer = hundred.get_object(Bucket="bucket", Key="k", Range=header)
        assert answer["ResponseMetadata"]["HTTPStatusCode"] == 200
        assert answer["Body"].read() == bytes(range(100))

    def test_empty_object(self, s3: Any) -> None:
        s3.put_object(Bucket="bucket", Key="empty", Body=b"")
        with pytest.raises(ClientError) as error:
            s3.get_object(Bucket="bucket", Key="empty", Range="bytes=0-")
        assert code(error) == ("InvalidRange", 416)


class TestConditions:
    def test_reads(self, s3: Any) -> None:
        etag = s3.put_object(Bucket="bucket", Key="k", Body=b"x")["ETag"]
        modified = s3.head_object(Bucket="bucket", Key="k")["LastModified"]
        hour = datetime.timedelta(hours=1)
        assert read(s3, "k", IfMatch=etag) == b"x"
        assert read(s3, "k", IfNoneMatch='"other"') == b"x"
        assert read(s3, "k", IfModifiedSince=modified - hour) == b"x"
        assert read(s3, "k", IfUnmodifiedSince=modified + hour) == b"x"
        assert read(s3, "k", IfMatch=etag, IfUnmodifiedSince=modified - hour) == b"x"
        for failing in ({"IfMatch": '"other"'}, {"IfUnmodifiedSince": modified - hour}):
            with pytest.raises(ClientError) as error:
                s3.get_object(Bucket="bucket", Key="k", **failing)
            assert code(error) == ("PreconditionFailed", 412)
            with pytest.raises(ClientError) as error:
                s3.head_object(Bucket="bucket", Key="k", **failing)
            assert code(error) == ("412", 412)
        for unchanged in ({"IfNoneMatch": etag}, {"IfModifiedSince": modified}):
            with pytest.raises(ClientError) as error:
                s3.get_object(Bucket="bucket", Key="k", **unchanged)
            assert code(error) == ("304", 304)
            assert error.value.response["ResponseMetadata"]["HTTPHeaders"]["etag"] == etag

    def test_writes(self, s3: Any) -> None:
        first = s3.put_object(Bucket="bucket", Key="k", Body=b"1", IfNoneMatch="*")["ETag"]
        with pytest.raises(ClientError) as error:
            s3.put_object(Bucket="bucket", Key="k", Body=b"2", IfNoneMatch="*")
        assert code(error) == ("PreconditionFailed", 412)
        second = s3.put_object(Bucket="bucket", Key="k", Body=b"2", IfMatch=first)["ETag"]
        with pytest.raises(ClientError) as error:
            s3.put_object(Bucket="bucket", Key="k", Body=b"3", IfMatch=first)
        assert code(error) == ("PreconditionFailed", 412)
        with pytest.raises(ClientError) as error:
            s3.put_object(Bucket="bucket", Key="none", Body=b"3", IfMatch=first)
        assert code(error) == ("NoSuchKey", 404)
        with pytest.raises(ClientError) as error:
            s3.put_object(Bucket="bucket", Key="k", Body=b"3", IfNoneMatch=first)
        assert code(error) == ("NotImplemented", 501)
        with pytest.raises(ClientError) as error:
            s3.delete_object(Bucket="bucket", Key="k", IfMatch=first)
        assert code(error) == ("PreconditionFailed", 412)
        assert read(s3, "k") == b"2"
        s3.delete_object(Bucket="bucket", Key="k", IfMatch=second)

    def test_racing_writers_have_one_winner(self, store: Any) -> None:
        s3 = store.client(max_pool_connections=16)

        def write(n: int) -> bool:
            try:
                s3.put_object(Bucket="bucket", Key="leader", Body=str(n).encode(), IfNoneMatch="*")
            except ClientError as error:
                assert error.response["Error"]["Code"] == "PreconditionFailed"
                return False
            return True

        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            won = list(pool.map(write, range(64)))
        assert won.count(True) == 1
        assert read(s3, "leader") == str(won.index(True)).encode()


class TestChecksums:
    def test_content_md5(self, s3: Any) -> None:
        good = base64.b64encode(hashlib.md5(b"abc").digest()).decode()
        s3.put_object(Bucket="bucket", Key="k", Body=b"abc", ContentMD5=good)
        with pytest.raises(ClientError) as error:
            s3.put_object(Bucket="bucket", Key="k", Body=b"abd", ContentMD5=good)
        assert code(error) == ("BadDigest", 400)
        with pytest.raises(ClientError) as error:
            s3.put_object(Bucket="bucket", Key="k", Body=b"abc", ContentMD5="nonsense")
        assert code(error) == ("InvalidDigest", 400)
        assert read(s3, "k") == b"abc"

    @pytest.mark.parametrize(
        ("algorithm", "value"),
        [
            ("CRC32", base64.b64encode(zlib.crc32(b"abc").to_bytes(4, "big")).decode()),
            ("SHA256", base64.b64encode(hashlib.sha256(b"abc").digest()).decode()),
            ("CRC32C", "Nks/tw=="),
            ("CRC64NVME", None),
        ],
    )
    def test_are_checked_and_returned(self, s3: Any, store: Any, algorithm: str, value: str | None) -> None:
        field = f"Checksum{algorithm}"
        if value is None:  # from the vector of "123456789"
            body, value = b"123456789", "rosUhgp5mIg="
        else:
            body = b"abc"
        answer = s3.put_object(Bucket="bucket", Key="k", Body=body, **{field: value})
        assert answer[field] == value
        got = s3.get_object(Bucket="bucket", Key="k", ChecksumMode="ENABLED")
        assert (got["Body"].read(), got[field], got["ChecksumType"]) == (body, value, "FULL_OBJECT")
        assert s3.head_object(Bucket="bucket", Key="k", ChecksumMode="ENABLED")[field] == value
        # Without the mode, and for a range, nothing is returned.
        plain = store.client(response_checksum_validation="when_required")
        assert field not in plain.get_object(Bucket="bucket", Key="k")
        assert field not in s3.get_object(Bucket="bucket", Key="k", ChecksumMode="ENABLED", Range="bytes=0-1")
        with pytest.raises(ClientError) as error:
            s3.put_object(Bucket="bucket", Key="k", Body=body + b"!", **{field: value})
        assert code(error) == ("BadDigest", 400)

    def test_the_default_of_boto3(self, s3: Any) -> None:
        """CRC32 in a trailer of an unsigned chunked body."""
        s3.put_object(Bucket="bucket", Key="k", Body=io.BytesIO(b"abc" * 100_000))
        head = s3.head_object(Bucket="bucket", Key="k", ChecksumMode="ENABLED")
        assert head["ChecksumCRC32"] == base64.b64encode(zlib.crc32(b"abc" * 100_000).to_bytes(4, "big")).decode()
        assert "ContentEncoding" not in head

    def test_unknown_ones_are_refused(self, s3: Any) -> None:
        with pytest.raises(ClientError) as error:
            s3.put_object(Bucket="bucket", Key="k", Body=b"abc", ChecksumAlgorithm="SHA1")
        assert code(error) == ("NotImplemented", 501)

    @pytest.mark.parametrize("signing", ["signed", "unsigned"])
    def test_without_checksums(self, store: Any, signing: str) -> None:
        s3 = store.client(
            request_checksum_calculation="when_required", s3={"payload_signing_enabled": signing == "signed"}
        )
        s3.put_object(Bucket="bucket", Key="k", Body=b"abc")
        assert read(s3, "k") == b"abc"


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


def test_connections_live_after_errors(devstore: Any) -> None:
    store = devstore("mem:", "--anonymous", "--bucket", "bucket")
    connection = http.client.HTTPConnection("127.0.0.1", store.port, timeout=20)
    connection.connect()
    first = connection.sock
    for method, path, body, status in [
        ("GET", "/bucket/none", None, 404),
        ("PUT", "/missing/k", b"x" * 100_000, 404),
        ("PUT", "/bucket/k", b"hello", 200),
        ("GET", "/bucket/k", None, 200),
        ("HEAD", "/bucket/none", None, 404),
        ("POST", "/bucket", b"what", 405),
        ("DELETE", "/bucket/k", None, 204),
    ]:
        connection.request(method, path, body)
        response = connection.getresponse()
        response.read()
        assert response.status == status
        assert connection.sock is first
    connection.close()


def test_put_needs_a_length(devstore: Any, raw: Any) -> None:
    store = devstore("mem:", "--anonymous", "--bucket", "bucket")
    request = b"PUT /bucket/k HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    assert b"<Code>MissingContentLength</Code>" in raw(store).exchange(request)[0]
    too_large = b"PUT /bucket/k HTTP/1.1\r\nHost: x\r\nContent-Length: 5368709121\r\n\r\n"
    assert b"<Code>EntityTooLarge</Code>" in raw(store).exchange(too_large)[0]


def test_an_upload_that_breaks_off_leaves_nothing(devstore: Any, raw: Any, tmp_path: Path) -> None:
    (tmp_path / "root" / "bucket").mkdir(parents=True)
    store = devstore(tmp_path / "root", "--anonymous")
    with socket.create_connection(("127.0.0.1", store.port)) as connection:
        connection.sendall(b"PUT /bucket/k HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nhalf")
    assert raw(store).request("GET", "/bucket/k")[0] == 404
    store.stop()
    assert list((tmp_path / "root" / ".devstore" / "tmp").iterdir()) == []
    assert not (tmp_path / "root" / "bucket" / "k").exists()
