"""MILLRACE_LOG: levels, the line that `debug` logs for each request, and that no secret is in it."""

from __future__ import annotations

import http.server
import json
import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cli_support import Bucket, Millrace

REQUEST = re.compile(
    r"^\S+ debug s3: (?P<method>[A-Z]+) (?P<url>http://\S+?)(?: range=(?P<range>\S+))?(?: sent=\d+)? status=(?P<status>\d+|-) ms=[\d.]+"
    r"(?: first_byte_ms=[\d.]+)? bytes=(?P<bytes>\d+) attempt=(?P<attempt>\d+)(?P<hedge> hedge)?(?: request=(?P<id>\S+))?(?: host_id=\S+)?(?: error=(?P<error>\S+))?$"
)  # fmt: skip

SECRET, TOKEN = "CANARY/secret+key", "CANARY//session+token=="


def requests(log: bytes) -> list[dict[str, str]]:
    return [found.groupdict() for line in log.decode().splitlines() if (found := REQUEST.match(line))]


def test_debug_tells_each_request(millrace: Millrace, bucket: Bucket) -> None:
    bucket.put(**{"p/a b": b"x" * 1000})
    found = requests(
        millrace("cat", "s3://bkt/p/a b", "--range", "0-99", env=bucket.env | {"MILLRACE_LOG": "debug"}).stderr
    )
    url = f"{bucket.env['AWS_ENDPOINT_URL']}/bkt/p/a%20b"
    assert [(one["method"], one["url"], one["status"], one["attempt"]) for one in found] == [
        ("HEAD", url, "200", "1"),
        ("GET", url, "206", "1"),
    ]
    assert (found[1]["range"], found[1]["bytes"]) == ("bytes=0-99", "100")
    assert all(one["id"] for one in found) and found[0]["id"] != found[1]["id"]


def test_debug_tells_attempts(millrace: Millrace, faulty_bucket: Callable[..., Bucket]) -> None:
    bucket = faulty_bucket("PUT bkt/x status=503 count=2")
    log = millrace("cp", "-", "s3://bkt/x", env=bucket.env | {"MILLRACE_LOG": "debug"}).stderr
    puts = [one for one in requests(log) if one["method"] == "PUT"]
    assert [(one["status"], one["attempt"]) for one in puts] == [("503", "1"), ("503", "2"), ("200", "3")]
    assert len(re.findall(rb"s3://bkt/x: PUT is tried again in [\d.]+ s: ", log)) == 2


def test_debug_tells_that_nobody_answers(millrace: Millrace) -> None:
    env = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_ACCESS_KEY_ID": "A",
        "AWS_SECRET_ACCESS_KEY": "B",
        "MILLRACE_LOG": "debug",
    }
    found = requests(millrace("ls", "s3://bkt", code=1, env=env | {"AWS_MAX_ATTEMPTS": "2"}).stderr)
    assert [(one["status"], one["error"]) for one in found] == [("-", "connect")] * 2


@pytest.mark.parametrize("level", ["", "info", "warning", "error", "off"])
def test_other_levels_tell_no_requests(millrace: Millrace, bucket: Bucket, level: str) -> None:
    assert millrace("ls", "s3://bkt", env=bucket.env | {"MILLRACE_LOG": level}).stderr == b""


@pytest.mark.parametrize("level", ["trace", "DEBUG", "1", "no\x1bsuch"])
def test_unknown_levels_are_refused(millrace: Millrace, tree: Path, level: str) -> None:
    done = millrace("ls", tree, code=2, env={"MILLRACE_LOG": level})
    shown = level.replace("\x1b", r"\x1b")
    assert (
        done.stderr.decode() == f"millrace: MILLRACE_LOG is '{shown}'; it must be debug, info, warning, error or off\n"
    )
    assert done.stdout == b""
    assert b"MILLRACE_LOG=debug" in millrace("--help", env={"MILLRACE_LOG": level}).stdout


def test_a_key_is_one_line(millrace: Millrace, bucket: Bucket) -> None:
    key = "a\n2026-01-01T00:00:00.000 error s3: made up\x1b"
    bucket.put(**{key: b"x"})
    log = millrace("cat", f"s3://bkt/{key}", env=bucket.env | {"MILLRACE_LOG": "debug"}).stderr
    assert len(requests(log)) == len(log.splitlines()) == 2 and b"\x1b" not in log


@contextmanager
def credential_service(answer: dict[str, str]) -> Iterator[str]:
    """As ECS has it, on this machine."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def assert_no_secret(log: bytes) -> None:
    assert b"CANARY" not in log
    assert not re.search(rb"authorization|signature=|credential=|security-token|AWS4-HMAC", log, re.IGNORECASE), log[
        -2000:
    ]
    assert not re.search(rb"[0-9a-f]{64}", log), log[-2000:]  # a signature, or a hash that is signed


@pytest.mark.parametrize("token", [None, TOKEN], ids=["keys", "session"])
@pytest.mark.parametrize("secret", [SECRET, SECRET + "wrong"], ids=["right", "wrong"])
def test_no_secret_is_logged(
    millrace_bin: Path, devstore: Callable[..., Any], tree: Path, token: str | None, secret: str
) -> None:
    server = devstore(
        "mem:",
        "--bucket",
        "bkt",
        "--access-key",
        "AKID",
        "--secret-key",
        SECRET,
        "--fault",
        "PUT bkt/t/a0 status=503 count=1",
    )
    env = server.env() | {
        "AWS_ACCESS_KEY_ID": "AKID",
        "AWS_SECRET_ACCESS_KEY": secret,
        "MILLRACE_LOG": "debug",
        "AWS_MAX_ATTEMPTS": "3",
    }
    if token is not None:
        env["AWS_SESSION_TOKEN"] = token
    good = token is None and secret == SECRET
    logged = 0
    for command in (
        ["cp", "-r", tree, "s3://bkt/t"], ["ls"], ["ls", "-r", "s3://bkt"], ["cat", "s3://bkt/t/big"], ["cp", "s3://bkt/t/a0", "s3://bkt/copy"],
        ["sync", "s3://bkt/t", "s3://bkt/u"], ["uploads", "ls", "s3://bkt"], ["rm", "-r", "--yes", "s3://bkt"], ["doctor", "s3://bkt"],
    ):  # fmt: skip
        done = subprocess.run(
            [str(millrace_bin), *map(str, command)], capture_output=True, env=os.environ | env, timeout=300
        )
        assert (done.returncode == 0) == good, (command, done.stderr[-2000:])
        found = requests(done.stderr)
        assert found, command
        logged += len(found)
        assert_no_secret(done.stderr)
    assert logged > (25 if good else 8)


def test_no_secret_of_a_credential_service_is_logged(millrace: Millrace, devstore: Callable[..., Any]) -> None:
    server = devstore("mem:", "--bucket", "bkt", "--access-key", "AKID", "--secret-key", SECRET)
    answer = {"AccessKeyId": "AKID", "SecretAccessKey": SECRET, "Token": "", "Expiration": "2099-01-01T00:00:00Z"}
    with credential_service(answer) as url:
        env = server.env() | {
            "AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{url}/CANARY-path?CANARY=query",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN": "CANARY-token", "MILLRACE_LOG": "debug",
        }  # fmt: skip
        log = millrace("ls", "s3://bkt", env=env).stderr
    assert re.search(rf" debug s3: for credentials: GET {url} status=200 ms=".encode(), log), log
    assert requests(log)[-1]["status"] == "200"
    assert_no_secret(log)


@pytest.mark.parametrize(
    "line",
    [
        SECRET.encode(),
        TOKEN.encode(),
        b"Authorization: AWS4",
        b"x-amz-security-token: a",
        b"Signature=ab",
        b"0123456789abcdef" * 4,
    ],
)
def test_the_search_for_secrets_finds_them(line: bytes) -> None:
    with pytest.raises(AssertionError):
        assert_no_secret(b"2026-01-01T00:00:00.000 debug s3: GET http://host/b/k status=200\n" + line)
