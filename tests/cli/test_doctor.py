"""`millrace doctor s3`: each way in which access can fail gets its line, its remedy and exit status 1."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import time
from typing import Any

import pytest
from cli_support import Bucket, Millrace

SECRET = "millrace-secret"


@pytest.fixture
def doctor(millrace: Millrace) -> Callable[..., dict[str, dict[str, str]]]:
    """The checks by name. Both forms of output must agree, and hold no secret."""

    def run(uri: str, env: dict[str, str], code: int = 0) -> dict[str, dict[str, str]]:
        text = millrace("doctor", "s3", uri, code=code, env=env).stdout.decode()
        done = millrace("doctor", "s3", uri, "--json", code=code, env=env)
        assert done.stdout.count(b"\n") == 1  # as that of every other command
        report = json.loads(done.stdout)
        assert report["ok"] == (code == 0)
        words = {"ok": "ok", "failed": "FAILED", "skipped": "-"}
        shown = [line.split(":")[0].split(None, 1) for line in text.splitlines() if not line.startswith("advice")]
        assert shown == [[words[check["result"]], check["name"]] for check in report["checks"]]
        for check in report["checks"]:
            assert bool(check["remedy"]) == (check["result"] == "failed")
            assert not check["remedy"] or f"Remedy: {check['remedy']}" in text
        assert SECRET not in text + done.stdout.decode() + done.stderr.decode()
        return {check["name"]: check for check in report["checks"]}

    return run


Doctor = Callable[..., dict[str, dict[str, str]]]


def failed(checks: dict[str, dict[str, str]]) -> list[str]:
    return [name for name, check in checks.items() if check["result"] == "failed"]


def test_all_is_well(doctor: Doctor, bucket: Bucket) -> None:
    bucket.put(**{"train/a": b"x" * 3_000_000, "train/b": b"y" * 100})
    checks = doctor("s3://bkt/train/", bucket.env)
    assert list(checks) == [
        "credentials",
        "region",
        "endpoint",
        "dns",
        "connect",
        "http",
        "clock",
        "list",
        "head",
        "get",
        "first byte",
        "speed",
    ]
    assert not failed(checks)
    assert checks["credentials"]["text"] == "access key mill... from AWS_ACCESS_KEY_ID"
    assert checks["region"]["text"] == "us-east-1 from AWS_REGION"
    assert checks["endpoint"]["text"] == f"{bucket.env['AWS_ENDPOINT_URL']} from AWS_ENDPOINT_URL"
    assert checks["list"]["text"] == "2 objects"


def test_it_measures(millrace: Millrace, devstore: Callable[..., Any]) -> None:
    # So little a connection that the machine is no limit, however busy it is. (A server may be late, but not early.)
    server = devstore(
        "mem:", "--bucket", "bkt", "--first-byte-ms", "20", "--first-byte-sigma", "0", "--bandwidth", "1MiB"
    )
    server.client().put_object(Bucket="bkt", Key="big", Body=b"x" * 2_000_000)
    report = json.loads(millrace("doctor", "s3", "s3://bkt", "--json", env=server.env()).stdout)
    assert 20 <= report["first_byte_ms"]["median"] < 20_000
    assert report["first_byte_ms"]["median"] <= report["first_byte_ms"]["p99"]
    speed = report["bytes_per_second"]
    assert 1e4 < speed["one"] < 1.05 * 2**20
    assert speed["many"] > 3 * speed["one"]
    assert any("times as fast as one" in line for line in report["advice"])


def test_small_objects_show_no_throughput(doctor: Doctor, millrace: Millrace, bucket: Bucket) -> None:
    bucket.put(a=b"x" * 1000, b=b"y" * 1_000_000)
    checks = doctor("s3://bkt", bucket.env)
    assert checks["speed"]["result"] == "skipped" and "1.0 MiB" in checks["speed"]["text"]
    assert checks["first byte"]["result"] == "ok"
    report = json.loads(millrace("doctor", "s3", "s3://bkt", "--json", env=bucket.env).stdout)
    assert "bytes_per_second" not in report and not any(
        "/s" in line or "connection" in line for line in report["advice"]
    )


def test_settings_of_a_profile_are_named(doctor: Doctor, bucket: Bucket, tmp_path: Path) -> None:
    (tmp_path / "config").write_text(
        f"[profile lab]\nendpoint_url = {bucket.env['AWS_ENDPOINT_URL']}\nregion = us-east-1\n"
    )
    (tmp_path / "credentials").write_text(f"[lab]\naws_access_key_id = millrace\naws_secret_access_key = {SECRET}\n")
    files = {"AWS_CONFIG_FILE": str(tmp_path / "config"), "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials")}
    checks = doctor("s3://bkt", files | {"AWS_PROFILE": "lab"})
    assert not failed(checks)
    assert checks["credentials"]["text"].endswith(f"from the profile 'lab' in {tmp_path}/credentials")
    assert checks["region"]["text"].endswith(f"from the profile 'lab' in {tmp_path}/config")
    checks = doctor("s3://bkt", files | {"AWS_PROFILE": "other"}, code=1)
    assert failed(checks) == ["settings"] and "'other'" in checks["settings"]["text"]


def test_no_credentials(doctor: Doctor, bucket: Bucket) -> None:
    checks = doctor("s3://bkt", {"AWS_ENDPOINT_URL": bucket.env["AWS_ENDPOINT_URL"]}, code=1)
    assert failed(checks) == ["credentials"]
    assert checks["http"]["result"] == "ok" and checks["list"]["result"] == "skipped"
    assert "AWS_ACCESS_KEY_ID" in checks["credentials"]["remedy"]


def test_wrong_secret_and_unknown_key(doctor: Doctor, bucket: Bucket) -> None:
    checks = doctor("s3://bkt", bucket.env | {"AWS_SECRET_ACCESS_KEY": "wrong"}, code=1)
    assert failed(checks) == ["list"] and "secret key does not belong" in checks["list"]["remedy"]
    checks = doctor("s3://bkt", bucket.env | {"AWS_ACCESS_KEY_ID": "AKIAEXAMPLEUNKNOWN"}, code=1)
    assert failed(checks) == ["list"] and "does not know the access key AKIA...NOWN" in checks["list"]["remedy"]


def test_missing_bucket_and_key(doctor: Doctor, bucket: Bucket) -> None:
    checks = doctor("s3://nowhere", bucket.env, code=1)
    assert failed(checks) == ["list"] and "bucket's name" in checks["list"]["remedy"]
    checks = doctor("s3://bkt/Typo", bucket.env, code=1)
    assert failed(checks) == ["list"] and "capitals count" in checks["list"]["remedy"]
    checks = doctor("s3://bkt", bucket.env)  # an empty bucket is no fault
    assert checks["get"]["result"] == checks["speed"]["result"] == "skipped"


def test_who_may_not_list_may_read(doctor: Doctor, millrace: Millrace, faulty_bucket: Callable[..., Bucket]) -> None:
    # The listing comes before the GET of the same name.
    bucket = faulty_bucket("GET bkt/ status=403", "GET bkt/one status=403 count=1")
    bucket.put(one=b"x" * 10)
    checks = doctor("s3://bkt/", bucket.env, code=1)
    assert failed(checks) == ["list"] and "s3:ListBucket on arn:aws:s3:::bkt" in checks["list"]["remedy"]
    assert checks["get"]["result"] == "skipped"
    report = json.loads(millrace("doctor", "s3", "s3://bkt/one", "--json", code=1, env=bucket.env).stdout)
    checks = {check["name"]: check for check in report["checks"]}
    assert failed(checks) == ["list"] and checks["get"]["result"] == checks["first byte"]["result"] == "ok"


def test_who_may_list_may_not_read(doctor: Doctor, faulty_bucket: Callable[..., Bucket]) -> None:
    bucket = faulty_bucket("GET bkt/secret/a status=403", "HEAD bkt/secret/a status=403")
    bucket.put(**{"secret/a": b"x" * 10})
    checks = doctor("s3://bkt/secret/", bucket.env, code=1)
    assert failed(checks) == ["head", "get"] and "s3:GetObject on arn:aws:s3:::bkt/" in checks["get"]["remedy"]
    assert checks["list"]["result"] == "ok" and checks["speed"]["result"] == "skipped"


def test_dead_port_and_unknown_host(doctor: Doctor, bucket: Bucket) -> None:
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        checks = doctor("s3://bkt", bucket.env | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}, code=1)
    assert failed(checks) == ["connect"] and "refused" in checks["connect"]["text"]
    assert checks["dns"]["result"] == "ok" and checks["list"]["result"] == "skipped"
    checks = doctor("s3://bkt", bucket.env | {"AWS_ENDPOINT_URL": "http://no.such.host.invalid"}, code=1)
    assert failed(checks) == ["dns"] and "no.such.host.invalid" in checks["dns"]["text"]


def test_tls(doctor: Doctor, devstore: Callable[..., Any]) -> None:
    server = devstore("mem:", "--bucket", "bkt", "--tls")
    checks = doctor("s3://bkt", server.env())
    assert checks["tls"]["result"] == "ok"
    checks = doctor(
        "s3://bkt", {name: value for name, value in server.env().items() if name != "AWS_CA_BUNDLE"}, code=1
    )
    assert failed(checks) == ["tls"] and "AWS_CA_BUNDLE" in checks["tls"]["remedy"]
    plain = server.env() | {"AWS_ENDPOINT_URL": server.url.replace("https", "http")}
    assert (
        doctor("s3://bkt", plain, code=1)["http"]["remedy"]
        == f"the server speaks https: set AWS_ENDPOINT_URL={server.url}"
    )


@pytest.fixture
def late_server() -> Iterator[str]:
    """Its clock is an hour ahead, and it insists."""
    with clock_ahead(3600) as url:
        yield url


@contextlib.contextmanager
def clock_ahead(seconds: int) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = b"<Error><Code>RequestTimeTooSkewed</Code><Message>too large</Message></Error>"
            self.send_response_only(403)
            self.send_header("Date", formatdate(time() + seconds, usegmt=True))
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_wrong_clock(doctor: Doctor, bucket: Bucket, late_server: str) -> None:
    checks = doctor("s3://bkt", bucket.env | {"AWS_ENDPOINT_URL": late_server}, code=1)
    assert failed(checks) == ["clock", "list"]
    # As far as the time allows that the answer took.
    assert (
        re.match(r"is (1h|5[5-9]m(\d+s)?) behind the server's$", checks["clock"]["text"])
        and "NTP" in checks["clock"]["remedy"]
    )
    assert "clock" in checks["list"]["remedy"]


@pytest.mark.parametrize(("seconds", "bad"), [(60, False), (600, False), (870, False), (930, True)])
def test_a_clock_is_wrong_when_the_store_refuses_it(doctor: Doctor, bucket: Bucket, seconds: int, bad: bool) -> None:
    """That is beyond 15 minutes."""
    with clock_ahead(seconds) as url:
        checks = doctor("s3://bkt", bucket.env | {"AWS_ENDPOINT_URL": url}, code=1)
    assert ("clock" in failed(checks)) == bad
    assert ("behind" in checks["clock"]["text"]) == (seconds > 300)


def test_usage(millrace: Millrace) -> None:
    assert b"s3://" in millrace("doctor", "s3", "/data", code=2).stderr
    millrace("doctor", "s3", code=2)
