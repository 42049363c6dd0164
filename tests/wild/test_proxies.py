"""Proxies of the environment. The cases, with the reports that they come from, are those of docs/wild-stores.md; more names and networks of
NO_PROXY are in src/net/proxy_test.cc."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from stub_identity import PATIENCE
from stub_store import Denial, Stub, run, serving

NOBODY = "http://127.0.0.1:9"
FAR = "http://store.test:9000"  # a name that no resolver knows

VARIABLES = [
    ("http_proxy", "https://github.com/opentofu/opentofu/pull/1736"),
    ("HTTP_PROXY", "https://github.com/boto/boto3/issues/2936"),
    ("all_proxy", "https://github.com/facebookincubator/velox/pull/8574"),
    ("ALL_PROXY", "https://github.com/shieldproject/shield/issues/252"),
]


@pytest.mark.parametrize(("variable", "report"), VARIABLES, ids=[name for name, _ in VARIABLES])
def test_requests_go_through_the_proxy(millrace_bin: Path, variable: str, report: str) -> None:
    """The user and the password: https://github.com/s3tools/s3cmd/issues/1128"""
    with serving(x=b"text") as proxy:
        env = proxy.env(AWS_ENDPOINT_URL=FAR) | {variable: proxy.url.replace("http://", "http://me:pw@")}
        assert run(millrace_bin, "cat", "s3://b/x", env=env) == "text", report
        assert {asked.headers["host"] for asked in proxy.asked} == {"store.test:9000"}
        assert {asked.headers["proxy-authorization"] for asked in proxy.asked} == {"Basic bWU6cHc="}


def test_small_letters_win(millrace_bin: Path) -> None:
    """https://github.com/awsdocs/aws-cli-user-guide/pull/7"""
    with serving(x=b"text") as proxy:
        env = proxy.env(AWS_ENDPOINT_URL=FAR, HTTP_PROXY=NOBODY, http_proxy=proxy.url)
        assert run(millrace_bin, "cat", "s3://b/x", env=env) == "text"


EXCEPTIONS = [
    ("localhost", "localhost", "https://github.com/aws/aws-sdk-net/issues/3198"),
    ("localhost", "other,localhost", "https://github.com/aws/aws-sdk-java-v2/issues/6060"),
    ("localhost", "*", "https://github.com/aws/aws-sdk-java/issues/3143"),
    ("a.localhost", ".localhost", "https://github.com/aws/aws-sdk-java-v2/issues/5573"),
    ("a.localhost", "localhost", "https://github.com/aws/aws-sdk-java/pull/2853"),
    ("127.0.0.1", "127.0.0.0/8", "https://github.com/facebookincubator/velox/pull/9160"),
]


@pytest.mark.parametrize(("host", "exceptions", "report"), EXCEPTIONS, ids=[case[1] for case in EXCEPTIONS])
def test_exceptions(millrace_bin: Path, host: str, exceptions: str, report: str) -> None:
    with serving(x=b"text") as stub, serving(x=b"text") as proxy:
        url = stub.url.replace("localhost", host)
        env = stub.env(AWS_ENDPOINT_URL=url, HTTP_PROXY=proxy.url, NO_PROXY=exceptions, AWS_MAX_ATTEMPTS="1")
        said = run(millrace_bin, "cat", "s3://b/x", env=env, code=None)
        # Not all resolvers know names below localhost.
        assert said == "text" or host == "a.localhost", (report, said)
        assert all("proxy-authorization" not in asked.headers for asked in stub.asked)
        assert not proxy.asked, report


REFUSALS = [
    (407, "it wants a user and a password", "https://github.com/s3tools/s3cmd/issues/734"),
    (403, "the proxy answered HTTP 403", "https://github.com/aws/aws-cli/issues/3195"),
    (502, "the proxy answered HTTP 502", "https://github.com/chobits/ngx_http_proxy_connect_module/issues/137"),
]


@pytest.mark.parametrize(("status", "expected", "report"), REFUSALS, ids=[str(case[0]) for case in REFUSALS])
def test_refused_tunnels(millrace_bin: Path, status: int, expected: str, report: str) -> None:
    with serving() as proxy:
        proxy.deny = lambda _: Denial(status, "")
        env = proxy.env(AWS_ENDPOINT_URL="https://store.test", HTTPS_PROXY=proxy.url, AWS_MAX_ATTEMPTS="3")
        said = run(millrace_bin, "cat", "s3://b/x", env=env, code=1)
        assert expected in said, (report, said)
        assert {asked.method for asked in proxy.asked} == {"CONNECT"}


def test_a_proxy_that_knows_no_tunnels(millrace_bin: Path) -> None:
    """https://github.com/s3tools/s3cmd/issues/905"""
    with serving() as proxy:
        env = proxy.env(AWS_ENDPOINT_URL="https://store.test", HTTPS_PROXY=proxy.url, AWS_MAX_ATTEMPTS="3")
        assert "the proxy answered HTTP 501" in run(millrace_bin, "cat", "s3://b/x", env=env, code=1)


def test_a_proxy_that_is_away_is_named(millrace_bin: Path) -> None:
    """https://github.com/seanmonstar/reqwest/pull/596"""
    with serving(x=b"text") as stub:
        env = stub.env(HTTP_PROXY=NOBODY, AWS_MAX_ATTEMPTS="1")
        said = run(millrace_bin, "cat", "s3://b/x", env=env, code=1)
    assert "cannot connect to the proxy 127.0.0.1:9 of HTTP_PROXY" in said


def test_other_kinds_are_refused(millrace_bin: Path) -> None:
    """https://github.com/aws/aws-cli/issues/5976"""
    with serving() as stub:
        said = run(millrace_bin, "ls", "s3://b", env=stub.env(ALL_PROXY="socks5://me:CANARY@p:1"), code=None)
    assert "ALL_PROXY names a proxy of another kind" in said and "CANARY" not in said


def test_doctor_tells(millrace_bin: Path) -> None:
    """https://github.com/awslabs/aws-c-s3/issues/317"""
    with serving(x=b"text") as proxy:
        said = run(millrace_bin, "doctor", "s3", "s3://b/x", env=proxy.env(AWS_ENDPOINT_URL=FAR, HTTP_PROXY=proxy.url))
    assert "requests go through" in said and "of HTTP_PROXY" in said


def without_keys(stub: Stub) -> dict[str, str]:
    return stub.env(HTTP_PROXY=NOBODY, NO_PROXY="localhost", AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="")


def test_the_metadata_service_is_asked_itself(millrace_bin: Path) -> None:
    """https://github.com/boto/boto/issues/1146"""
    with serving(x=b"text") as store, serving() as metadata:
        env = without_keys(store) | PATIENCE | {"AWS_EC2_METADATA_DISABLED": "false"}
        address = metadata.url.replace("localhost", "127.0.0.1")
        run(millrace_bin, "ls", "s3://b/", env=env | {"AWS_EC2_METADATA_SERVICE_ENDPOINT": address}, code=None)
        assert [asked.path for asked in metadata.asked][:1] == ["/latest/api/token"]


def test_containers_are_asked_themselves(millrace_bin: Path) -> None:
    """https://github.com/aws/aws-sdk-kotlin/issues/1315"""
    keys = {"AccessKeyId": "AKBOX", "SecretAccessKey": "s", "Token": "t", "Expiration": "2199-01-01T00:00:00Z"}
    with serving(x=b"text") as store, serving(x=json.dumps(keys).encode()) as box:
        address = box.url.replace("localhost", "127.0.0.1") + "/b/x"
        env = without_keys(store) | {"AWS_CONTAINER_CREDENTIALS_FULL_URI": address}
        assert run(millrace_bin, "cat", "s3://b/x", env=env) == "text"
        assert "Credential=AKBOX/" in store.asked[0].headers["authorization"]
