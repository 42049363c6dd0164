"""Every fault, seen from the wire."""

from __future__ import annotations

import hashlib
import socket
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError

BODY = bytes(range(256)) * 400  # 102,400 bytes


@pytest.fixture(params=["folder", "memory"])
def faulty(request: pytest.FixtureRequest, devstore: Any) -> Any:
    """faulty(SPEC...): an anonymous devstore with the object bucket/k."""

    def start(*specs: str, seed: int = 0) -> Any:
        arguments = ["--anonymous", "--bucket", "bucket", "--seed", str(seed)]
        for spec in specs:
            arguments += ["--fault", spec]
        store = devstore("mem:" if request.param == "memory" else None, *arguments)
        store.client().put_object(Bucket="bucket", Key="k", Body=BODY)
        return store

    return start


def split(response: bytes) -> tuple[bytes, bytes]:
    head, _, body = response.partition(b"\r\n\r\n")
    return head, body


@pytest.mark.parametrize("status", [500, 503, 403, 429, 404])
def test_status(faulty: Any, raw: Any, status: int) -> None:
    store = faulty(f"GET bucket/* status={status}")
    got, headers, body = raw(store).request("GET", "/bucket/k")
    assert got == status
    assert b"<Error><Code>" in body
    assert headers["x-amz-request-id"]
    assert raw(store).request("HEAD", "/bucket/k")[0] == 200


def test_503_is_slow_down(faulty: Any) -> None:
    with pytest.raises(ClientError) as error:
        faulty("GET bucket/* status=503").client().get_object(Bucket="bucket", Key="k")
    assert error.value.response["Error"]["Code"] == "SlowDown"


def test_a_refused_write_is_not_done(faulty: Any, raw: Any) -> None:
    store = faulty("PUT bucket/new* status=503", "DELETE bucket/k error-in-200")
    assert raw(store).request("PUT", "/bucket/new", b"x")[0] == 503
    assert raw(store).request("GET", "/bucket/new")[0] == 404
    status, _, body = raw(store).request("DELETE", "/bucket/k")
    assert (status, b"<Code>InternalError</Code>" in body) == (200, True)
    assert raw(store).request("GET", "/bucket/k")[0] == 200


def test_retry_after(faulty: Any, raw: Any) -> None:
    status, headers, _ = raw(faulty("GET * retry-after=7")).request("GET", "/bucket/k")
    assert (status, headers["retry-after"]) == (503, "7")


def test_limit(faulty: Any, raw: Any) -> None:
    client = raw(faulty("GET bucket/* limit=2"))
    start = time.monotonic()
    statuses: list[int] = []
    while 503 not in statuses or len(statuses) < 30:
        statuses.append(client.request("GET", "/bucket/k")[0])
    allowed = 2 + 2 * (time.monotonic() - start)  # in that time, however long it was
    assert 2 <= statuses.count(200) <= allowed + 1
    assert set(statuses) == {200, 503}


def test_delay(faulty: Any, raw: Any) -> None:
    client = raw(faulty("GET bucket/* delay-ms=150"))
    start = time.monotonic()
    assert client.request("GET", "/bucket/k")[2] == BODY
    assert time.monotonic() - start >= 0.15  # a server may be late, but not early


def test_rate(faulty: Any, raw: Any) -> None:
    client = raw(faulty("GET bucket/* rate=409600"))
    start = time.monotonic()
    assert client.request("GET", "/bucket/k")[2] == BODY
    assert time.monotonic() - start >= 0.24  # likewise


def test_stall(faulty: Any) -> None:
    for stall, rest in ((1, BODY[1000:]), (3_600_000, b"")):
        store = faulty(f"GET bucket/* stall=1000:{stall}")
        with socket.create_connection(("127.0.0.1", store.port), timeout=120) as connection:
            connection.sendall(b"GET /bucket/k HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            received = b""
            while len(split(received)[1]) < 1000:
                received += connection.recv(1 << 16)
            if not rest:
                store.stop()
            while piece := connection.recv(1 << 16):
                received += piece
        assert split(received)[1] == BODY[:1000] + rest


@pytest.mark.parametrize(("action", "end"), [("cut", "fin"), ("reset", "rst")])
@pytest.mark.parametrize("at", [0, 1, 50_000, len(BODY) - 1])
def test_cut_and_reset_in_the_body(faulty: Any, raw: Any, action: str, end: str, at: int) -> None:
    response, ended = raw(faulty(f"GET bucket/* {action}={at}")).get("/bucket/k")
    head, body = split(response)
    assert f"Content-Length: {len(BODY)}".encode() in head
    assert (body, ended) == (BODY[:at], end)


@pytest.mark.parametrize(("action", "end"), [("cut", "fin"), ("reset", "rst")])
def test_cut_and_reset_at_the_head(faulty: Any, raw: Any, action: str, end: str) -> None:
    store = faulty(f"GET bucket/* {action}=head", f"PUT bucket/lost {action}=head")
    assert raw(store).get("/bucket/k") == (b"", end)
    # A write is done all the same: its answer is lost.
    with pytest.raises((ConnectionClosedError, OSError)):
        raw(store).request("PUT", "/bucket/lost", b"written")
    assert raw(store).request("HEAD", "/bucket/lost")[0] == 200


@pytest.mark.parametrize("at", [0, 777, len(BODY) - 1])
def test_flip(faulty: Any, raw: Any, at: int) -> None:
    store = faulty(f"GET bucket/* flip={at}")
    expected = bytearray(BODY)
    expected[at] ^= 1
    assert raw(store).request("GET", "/bucket/k")[2] == bytes(expected)
    # The offset counts within the body of the answer.
    partial = raw(store).request("GET", "/bucket/k", headers={"Range": f"bytes=100-{99 + at + 1}"})[2]
    assert len(partial) == min(at + 1, len(BODY) - 100)
    if at < len(partial):
        assert partial[at] == BODY[100 + at] ^ 1


def test_wrong_range(faulty: Any, raw: Any) -> None:
    store = faulty("GET bucket/* wrong-range")
    status, headers, body = raw(store).request("GET", "/bucket/k", headers={"Range": "bytes=1000-1999"})
    assert (status, len(body)) == (206, 1000)
    unit, _, span = headers["content-range"].partition(" ")
    first, last = map(int, span.partition("/")[0].split("-"))
    assert (unit, first != 1000, last - first) == ("bytes", True, 999)
    assert body == BODY[first : last + 1]


def test_short_range_and_whole(faulty: Any, raw: Any) -> None:
    store = faulty("GET bucket/k short-range count=1", "GET bucket/k whole")
    status, headers, body = raw(store).request("GET", "/bucket/k", headers={"Range": "bytes=1000-1999"})
    assert (status, headers["content-range"], body) == (206, f"bytes 1000-1499/{len(BODY)}", BODY[1000:1500])
    status, headers, body = raw(store).request("GET", "/bucket/k", headers={"Range": "bytes=1000-1999"})
    assert (status, "content-range" in headers, body) == (200, False, BODY)


@pytest.mark.parametrize(("action", "end"), [("cut", "fin"), ("reset", "rst")])
@pytest.mark.parametrize("at", [1, 20])
def test_cut_and_reset_within_the_head(faulty: Any, raw: Any, action: str, end: str, at: int) -> None:
    received, ended = raw(faulty(f"GET bucket/* {action}=head:{at}")).get("/bucket/k")
    assert (received, ended) == (b"HTTP/1.1 200 OK\r\nDate"[:at], end)


def test_close_and_chunks(faulty: Any, raw: Any) -> None:
    store = faulty("GET bucket/k close count=1", "GET bucket/k chunked count=1", "GET bucket/k chunked=70000")
    ask = b"GET /bucket/k HTTP/1.1\r\nHost: x\r\n\r\n"  # without Connection: close
    head, body = split(raw(store).exchange(ask)[0])
    assert b"Connection: close" in head and body == BODY
    status, headers, body = raw(store).request("GET", "/bucket/k")
    assert (status, headers["transfer-encoding"], body) == (200, "chunked", BODY)
    assert "content-length" not in headers
    head, body = split(raw(store).exchange(ask)[0])
    assert b"Transfer-Encoding: chunked" in head
    assert body.endswith(BODY[69_990:70_000] + b"\r\n")  # no last chunk


def test_an_error_by_its_code(faulty: Any, raw: Any) -> None:
    store = faulty(
        "GET bucket/k error=400:ExpiredToken",
        "GET bucket/away error=301:PermanentRedirect",
        "PUT bucket/new error=409:OperationAborted",
    )
    status, headers, body = raw(store).request("GET", "/bucket/k")
    assert (status, b"<Code>ExpiredToken</Code>" in body) == (400, True)
    assert "x-amz-bucket-region" not in headers
    status, headers, body = raw(store).request("GET", "/bucket/away")
    assert (status, headers["x-amz-bucket-region"]) == (301, "us-east-1")
    assert raw(store).request("PUT", "/bucket/new", b"x")[0] == 409
    assert raw(store).request("GET", "/bucket/new")[0] == 404  # nothing was done


@pytest.mark.parametrize(("offset", "works"), [(600, True), (-600, True), (3600, False), (-3600, False)])
def test_a_clock_that_is_wrong(devstore: Any, raw: Any, offset: int, works: bool) -> None:
    store = devstore("mem:", "--bucket", "bucket", "--clock-offset", str(offset))
    date = parsedate_to_datetime(raw(store).request("GET", "/bucket/k")[1]["date"]).timestamp()
    assert abs(date - time.time() - offset) < 60
    if works:
        store.client().put_object(Bucket="bucket", Key="k", Body=BODY)
    else:
        with pytest.raises(ClientError) as error:
            store.client().put_object(Bucket="bucket", Key="k", Body=BODY)
        assert error.value.response["Error"]["Code"] == "RequestTimeTooSkewed"


def test_new_etag(faulty: Any) -> None:
    s3 = faulty("GET bucket/* new-etag after=1 count=1").client()
    old = s3.get_object(Bucket="bucket", Key="k")["ETag"]
    assert old == f'"{hashlib.md5(BODY).hexdigest()}"'
    with pytest.raises(ClientError) as error:
        s3.get_object(Bucket="bucket", Key="k", IfMatch=old)
    assert error.value.response["Error"]["Code"] == "PreconditionFailed"
    new = s3.head_object(Bucket="bucket", Key="k")["ETag"]
    assert new != old
    assert s3.get_object(Bucket="bucket", Key="k", IfMatch=new)["Body"].read() == BODY  # it lasts, and is fired once
    assert s3.list_objects_v2(Bucket="bucket")["Contents"][0]["ETag"] == new
    with pytest.raises(ClientError) as error:
        s3.put_object(Bucket="bucket", Key="k", Body=b"", IfMatch=old)
    assert error.value.response["Error"]["Code"] == "PreconditionFailed"
    assert s3.put_object(Bucket="bucket", Key="k", Body=BODY + b"!", IfMatch=new)["ETag"] == (
        f'"{hashlib.md5(BODY + b"!").hexdigest()}"'
    )


def test_error_in_200(faulty: Any) -> None:
    s3 = faulty("POST bucket/mp error-in-200 after=1 count=1", "PUT bucket/copy error-in-200").client()
    upload = s3.create_multipart_upload(Bucket="bucket", Key="mp")["UploadId"]
    where = {"Bucket": "bucket", "Key": "mp", "UploadId": upload}
    part = s3.upload_part(**where, PartNumber=1, Body=b"x")
    finish = {"MultipartUpload": {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}}
    calls: list[Callable[[], object]] = [
        lambda: s3.complete_multipart_upload(**where, **finish),
        lambda: s3.copy_object(Bucket="bucket", Key="copy", CopySource="bucket/k"),
    ]
    for call in calls:
        with pytest.raises(ClientError) as error:
            call()
        assert error.value.response["Error"]["Code"] == "InternalError"
    s3.complete_multipart_upload(**where, **finish)  # nothing was done: the second try succeeds


def test_skip_key(faulty: Any) -> None:
    """As a store does that takes a start which is no key for one."""
    s3 = faulty("GET bucket/s skip-key").client()
    for name in "bdfhj":
        s3.put_object(Bucket="bucket", Key=f"s{name}")

    def listed(start_after: str) -> str:
        keys, more = "", {"StartAfter": start_after}
        while more:
            page = s3.list_objects_v2(Bucket="bucket", Prefix="s", MaxKeys=2, **more)
            keys += "".join(item["Key"][1:] for item in page["Contents"])
            more = {"ContinuationToken": page["NextContinuationToken"]} if page["IsTruncated"] else {}
        return keys

    assert listed("sb") == "dfhj"
    assert listed("sa") == "bdhj"


def test_rules_match_listings_by_prefix(faulty: Any) -> None:
    s3 = faulty("GET bucket/dir/* status=503").client()
    s3.list_objects_v2(Bucket="bucket")
    with pytest.raises(ClientError):
        s3.list_objects_v2(Bucket="bucket", Prefix="dir/")


def test_globs_are_decoded(faulty: Any, raw: Any) -> None:
    store = faulty("GET bucket/a%20b* status=503")
    assert raw(store).request("GET", "/bucket/a%20b")[0] == 503
    assert raw(store).request("GET", "/bucket/a%2520b")[0] == 404


def outcomes(store: Any, raw: Any) -> str:
    client = raw(store)
    return "".join("F" if client.request("GET", f"/bucket/k{n % 10}")[0] == 503 else "." for n in range(60))


def test_the_seed_decides(faulty: Any, raw: Any) -> None:
    spec = "GET bucket/* status=503 p=0.3"
    first, again, other = (outcomes(faulty(spec, seed=seed), raw) for seed in (1, 1, 2))
    assert first == again != other
    assert 5 <= first.count("F") <= 35


def test_counts_and_time(faulty: Any, raw: Any) -> None:
    start = time.monotonic()
    store = faulty("GET bucket/k0 status=503 after=1 count=2", "GET bucket/k1 status=503 from=1")
    status = raw(store).request("GET", "/bucket/k1")[0]
    assert status == 404 or time.monotonic() - start >= 1  # of which the server has been there for less
    assert [raw(store).request("GET", "/bucket/k0")[0] for _ in range(5)] == [404, 503, 503, 404, 404]
    while raw(store).request("GET", "/bucket/k1")[0] == 404:
        assert time.monotonic() - start < 120
