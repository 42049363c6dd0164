"""Ranges, conditions and checksums, by boto3."""

from __future__ import annotations

import base64
import concurrent.futures
import datetime
import hashlib
import io
import zlib
from typing import Any

import pytest
from botocore.exceptions import ClientError
from devstore_support import code, read


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
