"""The metrics port of a worker: connections that say nothing, and requests that nobody should send. It keeps answering."""

from __future__ import annotations

import contextlib
import socket
import urllib.request

from ports import free_port
from service_support import Worker

ATTACKERS = 300
REQUESTS = {
    "path": b"GET /../../etc/passwd HTTP/1.1\r\n\r\n",
    "nothing": b"\r\n\r\n\r\n\r\n",
    "binary": bytes(range(256)) * 64,
    "long line": b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\n\r\n",
    "long head": b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * 100_000 + b"\r\n",
    "length": b"POST /metrics HTTP/1.1\r\nContent-Length: 18446744073709551616\r\n\r\n",
    "two lengths": b"POST /metrics HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 100\r\n\r\nab",
    "chunks": b"POST /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF\r\n",
    "method": b"DELETE /metrics HTTP/1.1\r\n\r\n",
}


def answer(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=120) as client:
        with contextlib.suppress(OSError):  # the server closes before all of it has come
            client.sendall(request)
            client.shutdown(socket.SHUT_WR)
        got = b""
        with contextlib.suppress(ConnectionError):
            while piece := client.recv(1 << 16):
                got += piece
    return got


def test_it_answers_whatever_others_send() -> None:
    port = free_port()
    worker = Worker("--metrics-port", port, env={})
    try:
        for name, request in REQUESTS.items():
            got = answer(port, request)
            assert got == b"" or got.startswith(b"HTTP/1.1 4"), (name, got[:200])
            assert b"root:" not in got, name
        with contextlib.ExitStack() as stack:
            for _ in range(ATTACKERS):
                with contextlib.suppress(OSError):  # the server has closed it
                    silent = stack.enter_context(socket.create_connection(("127.0.0.2", port), timeout=120))
                    silent.sendall(b"GET /metr")
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=120) as page:
                assert b"millrace_" in page.read()
        assert worker.process.poll() is None
    finally:
        worker.end()
