"""Fixtures of the devstore tests: every behaviour is tried on a folder and in memory."""

from __future__ import annotations

import http.client
import socket
from typing import Any

import pytest


class Raw:
    """HTTP without an S3 client: what is sent and received is what the test says."""

    def __init__(self, store: Any) -> None:
        self.port: int = store.port

    def request(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request(method, path, body or None, headers or {})
            response = connection.getresponse()
            return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
        finally:
            connection.close()

    def exchange(self, data: bytes) -> tuple[bytes, str]:
        """Sends, reads to the end; the end is "fin" or "rst"."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=120) as connection:
            connection.sendall(data)
            received = b""
            while True:
                try:
                    piece = connection.recv(1 << 16)
                except ConnectionResetError:
                    return received, "rst"
                if not piece:
                    return received, "fin"
                received += piece

    def get(self, path: str) -> tuple[bytes, str]:
        return self.exchange(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())


@pytest.fixture
def raw() -> type[Raw]:
    return Raw


@pytest.fixture(params=["folder", "memory"])
def store(request: pytest.FixtureRequest, devstore: Any) -> Any:
    return devstore("mem:" if request.param == "memory" else None, "--bucket", "bucket")


@pytest.fixture
def s3(store: Any) -> Any:
    return store.client()
