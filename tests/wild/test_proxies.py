"""Proxies of the environment. The cases are those of docs/wild-stores.md; names and networks of NO_PROXY are in src/net/proxy_test.cc."""

from __future__ import annotations

from pathlib import Path

import pytest
from stub_store import run, serving

NOBODY = "http://127.0.0.1:9"
FAR = "http://store.test:9000"  # a name that no resolver knows


@pytest.mark.parametrize("variable", ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"])
def test_requests_go_through_the_proxy(millrace_bin: Path, variable: str) -> None:
    with serving(x=b"text") as proxy:
        env = proxy.env(AWS_ENDPOINT_URL=FAR) | {variable: proxy.url.replace("http://", "http://me:pw@")}
        assert run(millrace_bin, "cat", "s3://b/x", env=env) == "text"
        assert {asked.headers["host"] for asked in proxy.asked} == {"store.test:9000"}
        assert {asked.headers["proxy-authorization"] for asked in proxy.asked} == {"Basic bWU6cHc="}


@pytest.mark.parametrize("exceptions", ["localhost", "other,localhost", "*"])
def test_exceptions(millrace_bin: Path, exceptions: str) -> None:
    with serving(x=b"text") as stub:
        env = stub.env(HTTP_PROXY=NOBODY, NO_PROXY=exceptions)
        assert run(millrace_bin, "cat", "s3://b/x", env=env) == "text"
        assert all("proxy-authorization" not in asked.headers for asked in stub.asked)


def test_tls_asks_for_a_tunnel(millrace_bin: Path) -> None:
    with serving() as proxy:  # it knows no CONNECT
        env = proxy.env(AWS_ENDPOINT_URL="https://store.test", HTTPS_PROXY=proxy.url, AWS_MAX_ATTEMPTS="3")
        said = run(millrace_bin, "cat", "s3://b/x", env=env, code=1)
        assert "the proxy answered HTTP 501" in said
        assert not proxy.asked


def test_a_proxy_that_is_away_is_named(millrace_bin: Path) -> None:
    with serving(x=b"text") as stub:
        env = stub.env(HTTP_PROXY=NOBODY, AWS_MAX_ATTEMPTS="1")
        said = run(millrace_bin, "cat", "s3://b/x", env=env, code=1)
    assert "cannot connect to the proxy 127.0.0.1:9 of HTTP_PROXY" in said


def test_other_kinds_are_refused(millrace_bin: Path) -> None:
    with serving() as stub:
        said = run(millrace_bin, "ls", "s3://b", env=stub.env(ALL_PROXY="socks5://me:CANARY@p:1"), code=None)
    assert "ALL_PROXY names a proxy of another kind" in said and "CANARY" not in said


def test_doctor_tells(millrace_bin: Path) -> None:
    with serving(x=b"text") as proxy:
        said = run(millrace_bin, "doctor", "s3", "s3://b/x", env=proxy.env(AWS_ENDPOINT_URL=FAR, HTTP_PROXY=proxy.url))
    assert "requests go through" in said and "of HTTP_PROXY" in said


def test_the_metadata_service_is_asked_itself(millrace_bin: Path) -> None:
    with serving(x=b"text") as store, serving() as metadata:
        env = store.env(HTTP_PROXY=NOBODY, NO_PROXY="localhost", AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="")
        env["AWS_EC2_METADATA_DISABLED"] = "false"
        address = metadata.url.replace("localhost", "127.0.0.1")
        run(millrace_bin, "ls", "s3://b/", env=env | {"AWS_EC2_METADATA_SERVICE_ENDPOINT": address}, code=None)
        assert [asked.path for asked in metadata.asked][:1] == ["/latest/api/token"]
