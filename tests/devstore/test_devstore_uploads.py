"""Multipart uploads: nothing may damage a part that is stored, and nothing is left of what has ended."""

from __future__ import annotations

import base64
import concurrent.futures
import hashlib
import os
import random
import shutil
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from devstore_support import code, read

PART = 5 << 20


class Upload:
    """An upload of bucket/k, into a folder whose path is `root` where it is one."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.s3 = store.client()
        self.where = {"Bucket": "bucket", "Key": "k"}
        self.where["UploadId"] = self.s3.create_multipart_upload(**self.where)["UploadId"]

    def part(self, number: int, body: bytes, **arguments: Any) -> dict[str, Any]:
        answer = self.s3.upload_part(**self.where, PartNumber=number, Body=body, **arguments)
        return {"PartNumber": number, "ETag": answer["ETag"]}

    def complete(self, parts: list[dict[str, Any]]) -> Any:
        return self.s3.complete_multipart_upload(**self.where, MultipartUpload={"Parts": parts})

    def begin(self, number: int, body: bytes, sent: int) -> socket.socket:
        """A PUT of a part of which the first `sent` bytes have arrived (the server is anonymous)."""
        connection = socket.create_connection(("127.0.0.1", self.store.port), timeout=120)
        head = f"PUT /bucket/k?partNumber={number}&uploadId={self.where['UploadId']} HTTP/1.1\r\n"
        head += f"Host: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body[:sent])
        return connection


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture(params=["folder", "memory"])
def upload(request: pytest.FixtureRequest, devstore: Any, root: Path) -> Upload:
    return Upload(devstore("mem:" if request.param == "memory" else root, "--bucket", "bucket", "--anonymous"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "root"
    path.mkdir()
    return path


@pytest.fixture
def folder_upload(devstore: Any, root: Path) -> Upload:
    return Upload(devstore(root, "--bucket", "bucket", "--anonymous"))


def test_parallel_parts_become_the_object_as_they_are(folder_upload: Upload, root: Path) -> None:
    bodies = {number: os.urandom(PART if number < 12 else 1000) for number in range(1, 13)}
    order = list(range(1, 12))
    random.Random(1).shuffle(order)
    parts = {order[0]: folder_upload.part(order[0], bodies[order[0]])}
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        rest = order[1:] + [12]
        parts |= zip(rest, pool.map(lambda number: folder_upload.part(number, bodies[number]), rest))
    folder_upload.complete([parts[number] for number in sorted(parts)])
    assert read(folder_upload.s3, "k") == b"".join(bodies[number] for number in sorted(bodies))
    assert files(root / ".devstore/uploads") == files(root / ".devstore/tmp") == []


def test_failed_puts_damage_nothing(upload: Upload) -> None:
    bodies = [os.urandom(PART), os.urandom(PART), os.urandom(100)]
    parts = [upload.part(number, body) for number, body in enumerate(bodies, 1)]
    for number in (1, 2, 3, 4):
        other = os.urandom(PART)
        upload.begin(number, other, PART // 2).close()  # cut
        with pytest.raises(ClientError) as error:
            upload.part(number, other, ContentMD5=base64.b64encode(hashlib.md5(b"else").digest()).decode())
        assert code(error) == ("BadDigest", 400)
        with pytest.raises(ClientError) as error:
            upload.part(number, other, ChecksumCRC32="AAAAAA==")
        assert code(error) == ("BadDigest", 400)
    listed = upload.s3.list_parts(**upload.where)["Parts"]
    assert [(part["ETag"], part["Size"]) for part in listed] == [(p["ETag"], len(b)) for p, b in zip(parts, bodies)]
    upload.complete(parts)
    assert read(upload.s3, "k") == b"".join(bodies)


def test_a_part_that_failed_is_sent_again(folder_upload: Upload) -> None:
    bodies = [os.urandom(PART), os.urandom(PART), os.urandom(100)]
    parts = [folder_upload.part(1, bodies[0])]
    for number in (2, 3):
        with pytest.raises(ClientError):
            folder_upload.part(number, bodies[number - 1], ContentMD5=base64.b64encode(bytes(16)).decode())
        parts.append(folder_upload.part(number, bodies[number - 1]))
    folder_upload.complete(parts)
    assert read(folder_upload.s3, "k") == b"".join(bodies)


def test_a_put_that_goes_on_after_the_end(upload: Upload) -> None:
    bodies = [os.urandom(PART), os.urandom(100)]
    parts = [upload.part(number, body) for number, body in enumerate(bodies, 1)]
    late = os.urandom(PART)
    with upload.begin(1, late, PART // 2) as again, upload.begin(3, late, PART // 2) as more:
        upload.complete(parts)
        for connection in (again, more):
            connection.sendall(late[PART // 2 :])
            assert b"404" in connection.recv(1 << 16).split(b"\r\n")[0]
    assert read(upload.s3, "k") == b"".join(bodies)
    assert "Uploads" not in upload.s3.list_multipart_uploads(Bucket="bucket")


def test_copied_and_sent_parts_mix(folder_upload: Upload) -> None:
    source, sent = os.urandom(2 * PART), os.urandom(PART)
    s3 = folder_upload.s3
    s3.put_object(Bucket="bucket", Key="source", Body=source)
    parts = [folder_upload.part(2, sent)]
    for number, span in [(1, f"bytes=0-{PART - 1}"), (3, f"bytes={PART}-{PART + 9}")]:
        answer = s3.upload_part_copy(
            **folder_upload.where, PartNumber=number, CopySource="bucket/source", CopySourceRange=span
        )
        parts.append({"PartNumber": number, "ETag": answer["CopyPartResult"]["ETag"]})
    folder_upload.complete(sorted(parts, key=lambda part: part["PartNumber"]))
    assert read(s3, "k") == source[:PART] + sent + source[PART : PART + 10]


def test_parts_survive_a_kill(devstore: Any, folder_upload: Upload, root: Path, tmp_path: Path) -> None:
    bodies = [os.urandom(PART), os.urandom(PART), os.urandom(100)]
    parts = [folder_upload.part(number, bodies[number - 1]) for number in (1, 2)]
    left = tmp_path / "left"
    with folder_upload.begin(3, bodies[0], PART // 2):
        wait_for(lambda: [path.stat().st_size for path in root.glob(".devstore/tmp/*")] == [PART // 2])
        shutil.copytree(root, left)  # what a kill would leave
    folder_upload.s3 = devstore(left, "--anonymous").client()
    listed = folder_upload.s3.list_parts(**folder_upload.where)["Parts"]
    assert [(p["PartNumber"], p["ETag"], p["Size"]) for p in listed] == [
        (part["PartNumber"], part["ETag"], PART) for part in parts
    ]
    parts.append(folder_upload.part(3, bodies[2]))
    folder_upload.complete(parts)
    assert read(folder_upload.s3, "k") == b"".join(bodies)
    assert files(left / ".devstore/uploads") == []


def test_completes_at_once(upload: Upload) -> None:
    bodies = [os.urandom(PART), os.urandom(100)]
    parts = [upload.part(number, body) for number, body in enumerate(bodies, 1)]

    def complete(_: int) -> tuple[str, int]:
        try:
            upload.complete(parts)
        except ClientError as error:
            return error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"]
        return "", 200

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = set(pool.map(complete, range(8)))
    assert ("", 200) in answers and answers <= {("", 200), ("NoSuchUpload", 404)}
    assert read(upload.s3, "k") == b"".join(bodies)
    assert upload.s3.head_object(Bucket="bucket", Key="k")["ETag"].endswith('-2"')


def test_an_abort_during_a_put_leaves_nothing(folder_upload: Upload, root: Path) -> None:
    folder_upload.part(1, os.urandom(PART))
    late = os.urandom(PART)
    with folder_upload.begin(2, late, PART // 2) as same, folder_upload.begin(3, late + b"x", PART // 2) as longer:
        folder_upload.s3.abort_multipart_upload(**folder_upload.where)
        for connection, rest in ((same, late[PART // 2 :]), (longer, late[PART // 2 :] + b"x")):
            connection.sendall(rest)
            assert b"404" in connection.recv(1 << 16).split(b"\r\n")[0]
    assert files(root / ".devstore/uploads") == []
    wait_for(lambda: files(root / ".devstore/tmp") == [])
