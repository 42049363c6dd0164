"""Connections and uploads that go wrong, by raw HTTP."""

from __future__ import annotations

import http.client
import socket
from pathlib import Path
from typing import Any


def test_connections_live_after_errors(devstore: Any) -> None:
    store = devstore("mem:", "--anonymous", "--bucket", "bucket")
    connection = http.client.HTTPConnection("127.0.0.1", store.port, timeout=120)
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
