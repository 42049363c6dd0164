"""Signatures: botocore's are accepted, wrong ones refused with the error that AWS documents."""

from __future__ import annotations

import datetime
import hashlib
import hmac
import http.client
import subprocess
import time
import unittest.mock
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

# The help of devstore documents these keys.
ACCESS_KEY = "millrace"
SECRET_KEY = "millrace-secret"


@pytest.fixture
def store(devstore: Any) -> Any:
    return devstore("mem:", "--bucket", "bucket")


def refusal(client: Any) -> tuple[str, int, dict[str, Any]]:
    with pytest.raises(ClientError) as error:
        client.list_objects_v2(Bucket="bucket")
    response = error.value.response
    return response["Error"]["Code"], response["ResponseMetadata"]["HTTPStatusCode"], response["Error"]


def send(store: Any, method: str, url: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", store.port, timeout=120)
    parsed = urllib.parse.urlsplit(url)
    target = parsed.path + ("?" + parsed.query if parsed.query else "")
    connection.request(method, target, body or None, headers)
    response = connection.getresponse()
    return response.status, response.read()


def signed(
    store: Any,
    method: str,
    path: str,
    body: bytes = b"",
    at: datetime.datetime | None = None,
    region: str = "us-east-1",
    headers: dict[str, str] | None = None,
) -> tuple[str, dict[str, str]]:
    """A request signed by botocore, to be changed before it is sent."""
    request = AWSRequest(method, store.url + path, headers or {}, body)
    now = (at or datetime.datetime.now(datetime.timezone.utc)).replace(tzinfo=None)
    with unittest.mock.patch("botocore.auth.get_current_datetime", return_value=now):
        S3SigV4Auth(Credentials(ACCESS_KEY, SECRET_KEY), "s3", region).add_auth(request)
    return request.url, dict(request.headers.items())


def test_wrong_credentials(store: Any) -> None:
    code, status, details = refusal(store.client(access_key="nobody"))
    assert (code, status, details["AWSAccessKeyId"]) == ("InvalidAccessKeyId", 403, "nobody")
    code, status, details = refusal(store.client(secret_key="wrong"))
    assert (code, status) == ("SignatureDoesNotMatch", 403)
    assert details["StringToSign"].startswith("AWS4-HMAC-SHA256\n")


def test_wrong_region(store: Any, devstore: Any) -> None:
    url, headers = signed(store, "GET", "/bucket", region="eu-west-1")
    status, body = send(store, "GET", url, b"", headers)
    assert (status, b"<Code>AuthorizationHeaderMalformed</Code>" in body) == (400, True)
    assert b"<Region>us-east-1</Region>" in body
    store.client(region_name="eu-west-1").list_objects_v2(Bucket="bucket")  # boto3 reads that, and signs again
    other = devstore("mem:", "--bucket", "bucket", "--region", "eu-west-1")
    other.client(region_name="eu-west-1").list_objects_v2(Bucket="bucket")
    location = other.client(region_name="eu-west-1").get_bucket_location(Bucket="bucket")
    assert location["LocationConstraint"] == "eu-west-1"


def test_unsigned_requests(store: Any, raw: Any, devstore: Any) -> None:
    status, _, body = raw(store).request("GET", "/bucket")
    assert (status, b"<Code>AccessDenied</Code>" in body) == (403, True)
    anonymous = devstore("mem:", "--bucket", "bucket", "--anonymous")
    assert raw(anonymous).request("GET", "/bucket")[0] == 200
    anonymous.client(secret_key="any").list_objects_v2(Bucket="bucket")


def test_own_keys(devstore: Any) -> None:
    store = devstore("mem:", "--bucket", "bucket", "--access-key", "me", "--secret-key", "s3cr3t/+=")
    store.client(access_key="me", secret_key="s3cr3t/+=").list_objects_v2(Bucket="bucket")
    assert refusal(store.client())[0] == "InvalidAccessKeyId"


def test_a_secret_from_a_file_or_the_environment(
    devstore: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no other user sees it, as on a command line."""
    file = tmp_path / "secret"
    file.write_text("of the file\nnot this\n")
    monkeypatch.setenv("MILLRACE_DEVSTORE_SECRET_KEY", "of the environment")
    for options, secret in [
        ([], "of the environment"),
        (["--secret-key-file", str(file)], "of the file"),
        (["--secret-key", "of the option"], "of the option"),
    ]:
        store = devstore("mem:", "--bucket", "bucket", *options)
        store.client(secret_key=secret).list_objects_v2(Bucket="bucket")
        assert refusal(store.client(secret_key="millrace-secret"))[0] == "SignatureDoesNotMatch"


@pytest.mark.parametrize(
    ("content", "options", "code", "words"),
    [
        (None, [], 1, "cannot be read"),
        ("", [], 1, "first line"),
        ("x" * 2000, [], 1, "first line"),
        ("fine", ["--secret-key", "other"], 2, "exclude each other"),
    ],
)
def test_a_secret_that_cannot_be_had(
    millrace_bin: Path, tmp_path: Path, content: str | None, options: list[str], code: int, words: str
) -> None:
    if content is not None:
        (tmp_path / "secret").write_text(content)
    command = [str(millrace_bin), "devstore", "mem:", "--secret-key-file", str(tmp_path / "secret"), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, words in done.stderr) == (code, True), done.stderr
    assert "xxx" not in done.stderr


@pytest.mark.parametrize(
    ("options", "warns"),
    [
        (["--host", "0.0.0.0"], True),
        (["--host", "0.0.0.0", "--anonymous", "--access-key", "me", "--secret-key", "mine"], True),
        (["--host", "0.0.0.0", "--access-key", "me", "--secret-key", "mine"], False),
        (["--anonymous"], False),
        ([], False),
    ],
)
def test_a_server_that_is_open_to_all_says_so(devstore: Any, tmp_path: Path, options: list[str], warns: bool) -> None:
    devstore("mem:", *options).stop()
    assert ("everybody who reaches 0.0.0.0" in (tmp_path / "devstore-0.err").read_text()) == warns


@pytest.mark.parametrize("minutes", [-16, 16])
def test_skewed_clocks(store: Any, minutes: int) -> None:
    at = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(minutes=minutes)
    url, headers = signed(store, "GET", "/bucket", at=at)
    assert at.strftime("%Y%m%dT%H%M") in headers["X-Amz-Date"]
    status, body = send(store, "GET", url, b"", headers)
    assert (status, b"<Code>RequestTimeTooSkewed</Code>" in body) == (403, True)
    assert b"<ServerTime>" in body
    at = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(minutes=minutes * 0.8)
    url, headers = signed(store, "GET", "/bucket", at=at)
    assert send(store, "GET", url, b"", headers)[0] == 200


def test_changed_requests(store: Any) -> None:
    url, headers = signed(store, "PUT", "/bucket/k?x-id=PutObject", b"body", headers={"X-Amz-Meta-A": "1"})
    assert send(store, "PUT", url, b"body", headers)[0] == 200

    def code(url: str, body: bytes, headers: dict[str, str], method: str = "PUT") -> str:
        text = send(store, method, url, body, headers)[1].decode()
        return text.partition("<Code>")[2].partition("</Code>")[0]

    assert code(url + "x", b"body", headers) == "SignatureDoesNotMatch"
    assert code(url + "&more=1", b"body", headers) == "SignatureDoesNotMatch"
    assert code(url, b"", headers, "DELETE") == "SignatureDoesNotMatch"
    assert code(url, b"tampered", headers) == "XAmzContentSHA256Mismatch"
    assert code(url, b"body", {**headers, "X-Amz-Meta-A": "2"}) == "SignatureDoesNotMatch"
    assert code(url, b"body", {**headers, "X-Amz-Meta-B": "2"}) == "AccessDenied"
    malformed = {**headers, "Authorization": "AWS4-HMAC-SHA256 nonsense"}
    assert code(url, b"body", malformed) == "AuthorizationHeaderMalformed"
    assert code(url, b"body", {**headers, "Authorization": "AWS me:signature"}) == "InvalidRequest"
    assert code(url, b"body", {k: v for k, v in headers.items() if k != "X-Amz-Date"}) == "AccessDenied"
    assert store.client().get_object(Bucket="bucket", Key="k")["Body"].read() == b"body"


def test_a_refused_body_writes_nothing(store: Any) -> None:
    url, headers = signed(store, "PUT", "/bucket/new", b"body")
    assert send(store, "PUT", url, b"BODY", headers)[0] == 400
    with pytest.raises(ClientError) as error:
        store.client().get_object(Bucket="bucket", Key="new")
    assert error.value.response["Error"]["Code"] == "NoSuchKey"


def test_presigned_urls(store: Any) -> None:
    s3 = store.client(signature_version="s3v4")
    where = {"Bucket": "bucket", "Key": "a b/ü+%"}
    put = s3.generate_presigned_url("put_object", Params=where, ExpiresIn=60)
    assert send(store, "PUT", put, b"presigned", {})[0] == 200
    get = s3.generate_presigned_url("get_object", Params={**where, "ResponseContentType": "a/b"}, ExpiresIn=60)
    with urllib.request.urlopen(get, timeout=120) as response:
        assert (response.read(), response.headers["Content-Type"]) == (b"presigned", "a/b")
    status, body = send(store, "DELETE", get, b"", {})
    assert (status, b"<Code>SignatureDoesNotMatch</Code>" in body) == (403, True)
    status, body = send(store, "GET", get.replace("X-Amz-Expires=60", "X-Amz-Expires=61"), b"", {})
    assert (status, b"<Code>SignatureDoesNotMatch</Code>" in body) == (403, True)
    status, body = send(store, "GET", get.replace("X-Amz-Expires=60", "X-Amz-Expires=700000"), b"", {})
    assert (status, b"<Code>AuthorizationQueryParametersError</Code>" in body) == (400, True)
    expired = s3.generate_presigned_url("get_object", Params=where, ExpiresIn=0)
    deadline = time.monotonic() + 120
    while (answer := send(store, "GET", expired, b"", {}))[0] == 200 and time.monotonic() < deadline:
        pass
    assert (answer[0], b"<Code>AccessDenied</Code>" in answer[1]) == (403, True)


def test_headers_with_many_blanks(store: Any) -> None:
    s3 = store.client()
    s3.put_object(Bucket="bucket", Key="k", Body=b"", Metadata={"a": "one   two  three"})
    assert "one" in s3.head_object(Bucket="bucket", Key="k")["Metadata"]["a"]


def test_streaming_signatures(store: Any) -> None:
    """STREAMING-AWS4-HMAC-SHA256-PAYLOAD, signed here step by step as AWS describes it."""
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    scope = f"{now[:8]}/us-east-1/s3/aws4_request"
    key = ("AWS4" + SECRET_KEY).encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()

    def sign(*lines: str) -> str:
        return hmac.new(key, "\n".join(lines).encode(), hashlib.sha256).hexdigest()

    def sha(data: bytes) -> str:
        return hashlib.sha256(data).hexdigest()

    chunks = [b"x" * 70_000, b"y" * 10, b""]

    def put(tamper: bool, skip_last: bool = False) -> tuple[int, bytes]:
        mode = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
        length = str(sum(map(len, chunks)))
        headers = {
            "host": f"127.0.0.1:{store.port}",
            "x-amz-content-sha256": mode,
            "x-amz-date": now,
            "x-amz-decoded-content-length": length,
        }
        names = ";".join(headers)
        canonical = "\n".join(["PUT", "/bucket/s", "", *(f"{n}:{v}" for n, v in headers.items()), "", names, mode])
        signature = sign("AWS4-HMAC-SHA256", now, scope, sha(canonical.encode()))
        headers["Authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/{scope}, SignedHeaders={names}, Signature={signature}"
        )
        headers["Content-Encoding"] = "aws-chunked"
        body = b""
        for chunk in chunks[:-1] if skip_last else chunks:
            signature = sign("AWS4-HMAC-SHA256-PAYLOAD", now, scope, signature, sha(b""), sha(chunk))
            body += f"{len(chunk):x};chunk-signature={signature}\r\n".encode() + chunk + b"\r\n"
        if tamper:
            body = body.replace(b"yyy", b"yyz", 1)
        return send(store, "PUT", store.url + "/bucket/s", body, headers)

    assert put(False)[0] == 200
    assert store.client().get_object(Bucket="bucket", Key="s")["Body"].read() == b"".join(chunks)
    status, body = put(True)
    assert (status, b"<Code>SignatureDoesNotMatch</Code>" in body) == (403, True)
    status, body = put(False, skip_last=True)
    assert (status, b"<Code>IncompleteBody</Code>" in body) == (400, True)
