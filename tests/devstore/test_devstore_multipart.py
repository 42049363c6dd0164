"""Multipart uploads."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError
from devstore_support import code

MIB = 1 << 20
PART = 5 * MIB


class Upload:
    def __init__(self, s3: Any, key: str = "k", **arguments: Any) -> None:
        self.s3 = s3
        self.where = {"Bucket": "bucket", "Key": key}
        self.where["UploadId"] = s3.create_multipart_upload(**self.where, **arguments)["UploadId"]

    def part(self, number: int, body: bytes, **arguments: Any) -> dict[str, Any]:
        answer = self.s3.upload_part(**self.where, PartNumber=number, Body=body, **arguments)
        return {"PartNumber": number, "ETag": answer["ETag"]}

    def complete(self, *parts: dict[str, Any], **arguments: Any) -> Any:
        return self.s3.complete_multipart_upload(**self.where, MultipartUpload={"Parts": list(parts)}, **arguments)


def multipart_etag(*bodies: bytes) -> str:
    digest = hashlib.md5(b"".join(hashlib.md5(body).digest() for body in bodies)).hexdigest()
    return f'"{digest}-{len(bodies)}"'


def test_life(s3: Any) -> None:
    bodies = [os.urandom(PART), os.urandom(PART + 1), b"the end"]
    upload = Upload(s3, "folder/k", ContentType="a/b", Metadata={"x": "1"})
    parts = [upload.part(n, body) for n, body in zip((3, 7, 9), bodies)]
    assert "Contents" not in s3.list_objects_v2(Bucket="bucket")  # nothing is visible before the end
    listed = s3.list_parts(**upload.where)
    assert [(p["PartNumber"], p["ETag"], p["Size"]) for p in listed["Parts"]] == [
        (p["PartNumber"], p["ETag"], len(b)) for p, b in zip(parts, bodies)
    ]
    assert upload.complete(*parts)["ETag"] == multipart_etag(*bodies)
    answer = s3.get_object(Bucket="bucket", Key="folder/k")
    assert answer["Body"].read() == b"".join(bodies)
    assert (answer["ETag"], answer["ContentType"], answer["Metadata"]) == (multipart_etag(*bodies), "a/b", {"x": "1"})
    assert "Uploads" not in s3.list_multipart_uploads(Bucket="bucket")
    across = s3.get_object(Bucket="bucket", Key="folder/k", Range=f"bytes={PART - 2}-{PART + 1}")["Body"].read()
    assert across == bodies[0][-2:] + bodies[1][:2]


def test_a_part_may_be_sent_again_or_left_out(s3: Any) -> None:
    upload = Upload(s3)
    old = upload.part(1, b"old")
    unused = upload.part(2, b"unused")
    new = upload.part(1, b"new")
    with pytest.raises(ClientError) as error:
        upload.complete(old)
    assert code(error) == ("InvalidPart", 400)
    upload.complete(new)
    assert s3.get_object(Bucket="bucket", Key="k")["Body"].read() == b"new"
    with pytest.raises(ClientError) as error:
        upload.complete(new, unused)
    assert code(error) == ("NoSuchUpload", 404)


def test_errors_of_complete(s3: Any) -> None:
    upload = Upload(s3)
    small, large = upload.part(1, b"small"), upload.part(2, b"x" * PART)
    for parts, expected in [
        ([small, large], "EntityTooSmall"),
        ([large, small], "InvalidPartOrder"),
        ([large, large], "InvalidPartOrder"),
        ([large, {"PartNumber": 3, "ETag": large["ETag"]}], "InvalidPart"),
        ([{"PartNumber": 2, "ETag": '"wrong"'}], "InvalidPart"),
        ([], "MalformedXML"),
    ]:
        with pytest.raises(ClientError) as error:
            upload.complete(*parts)
        assert code(error) == (expected, 400)
    upload.complete(large)  # after all that


@pytest.mark.parametrize("of", ["nothing", "another key"])
def test_unknown_uploads(s3: Any, of: str) -> None:
    upload_id = "nonsense" if of == "nothing" else Upload(s3).where["UploadId"]
    where = {"Bucket": "bucket", "Key": "other", "UploadId": upload_id}
    finish = {"MultipartUpload": {"Parts": [{"PartNumber": 1, "ETag": '"x"'}]}}
    calls: list[Callable[[], object]] = [
        lambda: s3.upload_part(**where, PartNumber=1, Body=b"x"),
        lambda: s3.list_parts(**where),
        lambda: s3.abort_multipart_upload(**where),
        lambda: s3.complete_multipart_upload(**where, **finish),
    ]
    for call in calls:
        with pytest.raises(ClientError) as error:
            call()
        assert code(error) == ("NoSuchUpload", 404)


@pytest.mark.parametrize("number", [0, 10_001])
def test_part_numbers(s3: Any, number: int) -> None:
    with pytest.raises(ClientError) as error:
        Upload(s3).part(number, b"x")
    assert code(error) == ("InvalidArgument", 400)


def test_abort(s3: Any) -> None:
    upload = Upload(s3)
    part = upload.part(1, b"x")
    s3.abort_multipart_upload(**upload.where)
    calls: list[Callable[[], object]] = [
        lambda: upload.complete(part),
        lambda: upload.part(2, b"x"),
        lambda: s3.list_parts(**upload.where),
    ]
    for call in calls:
        with pytest.raises(ClientError) as error:
            call()
        assert code(error) == ("NoSuchUpload", 404)


def test_conditional_complete(s3: Any) -> None:
    etag = s3.put_object(Bucket="bucket", Key="k", Body=b"there")["ETag"]
    upload = Upload(s3)
    part = upload.part(1, b"mine")
    with pytest.raises(ClientError) as error:
        upload.complete(part, IfNoneMatch="*")
    assert code(error) == ("PreconditionFailed", 412)
    with pytest.raises(ClientError) as error:
        upload.complete(part, IfMatch='"other"')
    assert code(error) == ("PreconditionFailed", 412)
    assert s3.get_object(Bucket="bucket", Key="k")["Body"].read() == b"there"
    upload.complete(part, IfMatch=etag)
    assert s3.get_object(Bucket="bucket", Key="k")["Body"].read() == b"mine"


def test_upload_part_copy(s3: Any) -> None:
    source = os.urandom(PART + 100)
    etag = s3.put_object(Bucket="bucket", Key="src", Body=source)["ETag"]
    upload = Upload(s3)
    parts = []
    for number, arguments in enumerate([{}, {"CopySourceRange": "bytes=10-19", "CopySourceIfMatch": etag}], 1):
        answer = s3.upload_part_copy(**upload.where, PartNumber=number, CopySource="bucket/src", **arguments)
        parts.append({"PartNumber": number, "ETag": answer["CopyPartResult"]["ETag"]})
    upload.complete(*parts)
    assert s3.get_object(Bucket="bucket", Key="k")["Body"].read() == source + source[10:20]
    for arguments, expected in [
        ({"CopySourceRange": f"bytes=0-{len(source)}"}, ("InvalidRange", 416)),
        ({"CopySourceRange": "bytes=5-"}, ("InvalidArgument", 400)),
        ({"CopySourceIfMatch": '"x"'}, ("PreconditionFailed", 412)),
    ]:
        with pytest.raises(ClientError) as error:
            s3.upload_part_copy(**Upload(s3).where, PartNumber=1, CopySource="bucket/src", **arguments)
        assert code(error) == expected


def crc32(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(4, "big")


@pytest.mark.parametrize("kind", ["COMPOSITE", "FULL_OBJECT"])
def test_checksums(s3: Any, kind: str) -> None:
    bodies = [os.urandom(PART), b"end"]
    upload = Upload(s3, ChecksumAlgorithm="CRC32", ChecksumType=kind)
    parts = [upload.part(n, body, ChecksumAlgorithm="CRC32") for n, body in enumerate(bodies, 1)]
    for part, body in zip(parts, bodies):
        part["ChecksumCRC32"] = base64.b64encode(crc32(body)).decode()
    answer = upload.complete(*parts, ChecksumType=kind)
    expected = base64.b64encode(crc32(b"".join(map(crc32, bodies) if kind == "COMPOSITE" else bodies))).decode()
    if kind == "COMPOSITE":
        expected += "-2"
    assert (answer["ChecksumCRC32"], answer["ChecksumType"]) == (expected, kind)
    head = s3.head_object(Bucket="bucket", Key="k", ChecksumMode="ENABLED")
    assert (head["ChecksumCRC32"], head["ChecksumType"]) == (expected, kind)


@pytest.mark.parametrize("kind", ["COMPOSITE", "FULL_OBJECT"])
def test_parts_can_be_read_singly(s3: Any, kind: str) -> None:
    bodies = [os.urandom(PART), os.urandom(PART + 1), b"end"]
    upload = Upload(s3, ChecksumAlgorithm="CRC32", ChecksumType=kind)
    parts = [upload.part(n, body, ChecksumAlgorithm="CRC32") for n, body in zip((2, 5, 9), bodies)]
    for part, body in zip(parts, bodies):
        part["ChecksumCRC32"] = base64.b64encode(crc32(body)).decode()
    etag = upload.complete(*parts, ChecksumType=kind)["ETag"]
    where: dict[str, Any] = {"Bucket": "bucket", "Key": "k", "ChecksumMode": "ENABLED"}
    offset = 0
    for number, body in enumerate(bodies, 1):  # renumbered: the parts that were completed, in order
        span = f"bytes {offset}-{offset + len(body) - 1}"
        for answer in (s3.head_object(**where, PartNumber=number), s3.get_object(**where, PartNumber=number)):
            assert (answer["ContentLength"], answer["PartsCount"], answer["ETag"]) == (len(body), 3, etag)
            assert answer["ContentRange"] == f"{span}/{sum(map(len, bodies))}"
            assert answer["ResponseMetadata"]["HTTPStatusCode"] == 206
            # S3 keeps those of parts for composite objects only.
            assert answer.get("ChecksumCRC32") == (parts[number - 1]["ChecksumCRC32"] if kind == "COMPOSITE" else None)
        assert answer["Body"].read() == body
        by_range = s3.get_object(**where, Range=span.replace(" ", "="))
        assert by_range.get("ChecksumCRC32") == (parts[number - 1]["ChecksumCRC32"] if kind == "COMPOSITE" else None)
        assert by_range["Body"].read() == body and "PartsCount" not in by_range
        offset += len(body)
    across = s3.get_object(**where, Range=f"bytes=1-{PART}")
    assert "ChecksumCRC32" not in across
    for number, expected in [(4, ("416", 416)), (0, ("400", 400)), (10_001, ("400", 400))]:
        with pytest.raises(ClientError) as error:
            s3.head_object(Bucket="bucket", Key="k", PartNumber=number)
        assert code(error) == expected
    with pytest.raises(ClientError) as error:
        s3.get_object(Bucket="bucket", Key="k", PartNumber=4)
    assert code(error) == ("InvalidPartNumber", 416)
    with pytest.raises(ClientError) as error:
        s3.get_object(Bucket="bucket", Key="k", PartNumber=1, Range="bytes=0-1")
    assert code(error) == ("InvalidRequest", 400)


def test_an_object_put_in_one_piece_has_one_part(s3: Any) -> None:
    upload = Upload(s3, "parts")
    upload.complete(upload.part(1, b"x" * PART), upload.part(2, b"end"))
    s3.put_object(Bucket="bucket", Key="k", Body=b"whole")
    s3.copy_object(Bucket="bucket", Key="copy", CopySource="bucket/parts")
    for key, size in [("k", 5), ("copy", PART + 3)]:
        answer = s3.get_object(Bucket="bucket", Key=key, PartNumber=1)
        assert len(answer["Body"].read()) == size and "PartsCount" not in answer
        with pytest.raises(ClientError) as error:
            s3.get_object(Bucket="bucket", Key=key, PartNumber=2)
        assert code(error) == ("InvalidPartNumber", 416)
    s3.put_object(Bucket="bucket", Key="empty", Body=b"")
    assert s3.get_object(Bucket="bucket", Key="empty", PartNumber=1)["ContentLength"] == 0


def test_parts_are_remembered_across_runs(devstore: Any, tmp_path: Any) -> None:
    (tmp_path / "bucket").mkdir()
    first = devstore(tmp_path)
    upload = Upload(first.client(), ChecksumAlgorithm="CRC32")
    sent = [upload.part(n, body, ChecksumAlgorithm="CRC32") for n, body in enumerate((b"x" * PART, b"end"), 1)]
    for part, body in zip(sent, (b"x" * PART, b"end")):
        part["ChecksumCRC32"] = base64.b64encode(crc32(body)).decode()
    upload.complete(*sent)
    head = devstore(tmp_path).client().head_object(Bucket="bucket", Key="k", PartNumber=2, ChecksumMode="ENABLED")
    assert (head["ContentLength"], head["PartsCount"]) == (3, 2)
    assert head["ChecksumCRC32"] == sent[1]["ChecksumCRC32"]


def test_the_checksum_of_the_object_is_checked(s3: Any) -> None:
    bodies = [os.urandom(PART), b"end"]
    upload = Upload(s3, ChecksumAlgorithm="CRC32", ChecksumType="FULL_OBJECT")
    parts = [upload.part(n, body, ChecksumAlgorithm="CRC32") for n, body in enumerate(bodies, 1)]
    with pytest.raises(ClientError) as error:
        upload.complete(*parts, ChecksumType="FULL_OBJECT", ChecksumCRC32=base64.b64encode(crc32(bodies[0])).decode())
    assert code(error) == ("BadDigest", 400)
    right = base64.b64encode(crc32(b"".join(bodies))).decode()
    assert upload.complete(*parts, ChecksumType="FULL_OBJECT", ChecksumCRC32=right)["ChecksumCRC32"] == right


def test_a_part_without_the_announced_checksum(store: Any) -> None:
    s3 = store.client(request_checksum_calculation="when_required")
    upload = Upload(s3, ChecksumAlgorithm="CRC32")
    with pytest.raises(ClientError) as error:
        upload.part(1, b"x")
    assert code(error) == ("InvalidRequest", 400)


def test_lists(s3: Any) -> None:
    uploads = [Upload(s3, key) for key in ("a", "b", "b", "dir/c")]
    listed = s3.list_multipart_uploads(Bucket="bucket")["Uploads"]
    assert [(u["Key"], u["UploadId"]) for u in listed] == [(u.where["Key"], u.where["UploadId"]) for u in uploads]
    assert len(s3.list_multipart_uploads(Bucket="bucket", Prefix="b")["Uploads"]) == 2
    found = []
    marker: dict[str, str] = {}
    while True:
        page = s3.list_multipart_uploads(Bucket="bucket", MaxUploads=1, **marker)
        found += [u["UploadId"] for u in page["Uploads"]]
        if not page["IsTruncated"]:
            break
        marker = {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}
    assert found == [u.where["UploadId"] for u in uploads]
    for number in range(1, 6):
        uploads[0].part(number, b"x")
    numbers = [
        part["PartNumber"]
        for page in s3.get_paginator("list_parts").paginate(**uploads[0].where, PaginationConfig={"PageSize": 2})
        for part in page["Parts"]
    ]
    assert numbers == [1, 2, 3, 4, 5]


def test_managed_transfer(s3: Any) -> None:
    """boto3's own transfer manager: parallel parts, each with a checksum, and parallel ranged reads."""
    body = os.urandom(30 * MIB)
    s3.upload_fileobj(io.BytesIO(body), "bucket", "k")
    out = io.BytesIO()
    s3.download_fileobj("bucket", "k", out)
    assert out.getvalue() == body
    s3.copy({"Bucket": "bucket", "Key": "k"}, "bucket", "copy")
    assert s3.get_object(Bucket="bucket", Key="copy")["Body"].read() == body
