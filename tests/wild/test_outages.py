"""Credentials that end, or are rejected, while their source is away, slow or wrong. The cases, with the reports that they come from, are those of
docs/wild-stores.md; src/aws/credentials_test.cc has those that take hours."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from stub_identity import PATIENCE, Grant, Source, giving
from stub_store import Asked, Denial, Stub, run, serving

FILES = {f"folder/{n}": b"text" for n in range(8)}


@dataclass
class Case:
    report: str
    grants: list[Grant]
    expected: str  # the access key of the last request to the store; "" if none is sent
    said: str = ""


# The metadata service of the instance, by the answers that it gives.
INSTANCE = {
    "it has only keys that have ended": Case(
        "https://github.com/aws/aws-sdk-cpp/pull/3592", [Grant("AKOLD", life=-3600)], "AKOLD"
    ),
    "it is overloaded": Case(
        "https://github.com/DataBiosphere/toil/issues/688", [Grant(status=429, body=""), Grant("AKNEW")], "AKNEW"
    ),
    "it fails once": Case(
        "https://github.com/aws/aws-sdk-js/issues/692", [Grant(status=500, body=""), Grant("AKNEW")], "AKNEW"
    ),
    "it fails after keys that end soon": Case(
        "https://github.com/smithy-lang/smithy-rs/pull/2258",
        [Grant("AKOLD", life=45), Grant(status=503, body="")],
        "AKOLD",
    ),
    "its keys live shorter than the lead of a renewal": Case(
        "https://github.com/boto/botocore/issues/2189", [Grant("AKSHORT", life=240)], "AKSHORT"
    ),
    "it answers nothing of use": Case(
        "https://github.com/buildkite/agent/issues/1090",
        [Grant(body="")],
        "",
        "the instance metadata service",
    ),
    "it has no role": Case(
        "https://github.com/aws/aws-sdk-js/issues/3284", [Grant(status=404, body="")], "", "allows IMDSv2"
    ),
}


def access_key(asked: Asked) -> str:
    return asked.headers["authorization"].split("Credential=")[1].split("/")[0]


def without_keys(stub: Stub) -> dict[str, str]:
    return stub.env(AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="")


def of_instance(stub: Stub, source: Source) -> dict[str, str]:
    service = {"AWS_EC2_METADATA_DISABLED": "false", "AWS_EC2_METADATA_SERVICE_ENDPOINT": source.url}
    return without_keys(stub) | service | PATIENCE


@pytest.mark.parametrize("name", INSTANCE)
def test_the_metadata_service(millrace_bin: Path, tmp_path: Path, name: str) -> None:
    case = INSTANCE[name]
    with serving(**FILES) as store, giving(*case.grants) as source:
        code = 0 if case.expected else 1
        said = run(
            millrace_bin, "cp", "-r", "s3://b/folder", tmp_path / "to", env=of_instance(store, source), code=code
        )
        assert case.said in said, (case.report, said)
        assert {access_key(asked) for asked in store.asked} == ({case.expected} if case.expected else set()), (
            case.report
        )
        assert not case.expected or len(list((tmp_path / "to").iterdir())) == len(FILES)


def test_the_token_of_the_metadata_service_is_refused(millrace_bin: Path) -> None:
    """https://github.com/fog/fog-aws/issues/560: the message names the hop limit."""
    with serving(x=b"text") as store, giving(token_status=403) as source:
        assert "a hop limit of 2 for containers" in run(
            millrace_bin, "cat", "s3://b/x", env=of_instance(store, source), code=1
        )


def test_the_endpoint_of_a_container_fails_once(millrace_bin: Path) -> None:
    """https://github.com/aws/aws-sdk-kotlin/issues/697"""
    with serving(x=b"text") as store, giving(Grant(status=500, body=""), Grant("AKBOX")) as source:
        env = without_keys(store) | {"AWS_CONTAINER_CREDENTIALS_FULL_URI": source.url + "/keys"}
        assert run(millrace_bin, "cat", "s3://b/x", env=env) == "text"
        assert access_key(store.asked[-1]) == "AKBOX"


def test_the_token_file_of_a_container_is_read_each_time(millrace_bin: Path, tmp_path: Path) -> None:
    """https://github.com/epam/ai-dial-adapter-vertexai/pull/520"""
    token = tmp_path / "token"
    token.write_text("first\n")
    rotated = Grant("AKFIRST", life=30, also=lambda: token.write_text("second\n"))
    with serving(**FILES) as store, giving(rotated, Grant("AKSECOND")) as source:
        env = without_keys(store) | {
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": source.url + "/keys",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(token),
        }
        run(millrace_bin, "cp", "-r", "s3://b/folder", tmp_path / "to", env=env)
        assert source.tokens[0] == "first" and set(source.tokens[1:]) <= {"second"}


def test_keys_that_another_program_renews(millrace_bin: Path, tmp_path: Path) -> None:
    """https://github.com/Netflix/metaflow/issues/486: the store rejects the old ones, so the file is read again."""
    file = tmp_path / "credentials"

    def write(key: str) -> None:
        file.write_text(
            f"[default]\naws_access_key_id = {key}\naws_secret_access_key = secret\naws_session_token = token\n"
        )

    def reject(asked: Asked) -> Denial | None:
        if access_key(asked) != "AKOLD":
            return None
        write("AKNEW")
        return Denial(400, "ExpiredToken", "The provided token has expired.")

    write("AKOLD")
    with serving(x=b"text") as store:
        store.deny = reject
        env = without_keys(store) | {"AWS_SHARED_CREDENTIALS_FILE": str(file)}
        assert run(millrace_bin, "cat", "s3://b/x", env=env) == "text"
        assert [access_key(asked) for asked in store.asked][-1] == "AKNEW"


def test_keys_that_stay_rejected(millrace_bin: Path) -> None:
    """https://github.com/smithy-lang/smithy-rs/issues/2687: the command ends, and says so."""
    with serving(x=b"text") as store, giving(Grant("AKOLD")) as source:
        store.deny = lambda _: Denial(400, "ExpiredToken", "The provided token has expired.")
        said = run(millrace_bin, "cat", "s3://b/x", env=of_instance(store, source), code=1)
        assert "ExpiredToken" in said and "renew the temporary credentials" in said


def test_sts_is_throttled(millrace_bin: Path, tmp_path: Path) -> None:
    """https://github.com/apache/datafusion-comet/pull/6025: the role of the node does not take the place of the pod's."""
    token = tmp_path / "token"
    token.write_text("pod")
    error = "<ErrorResponse><Error><Code>Throttling</Code><Message>Rate exceeded</Message></Error></ErrorResponse>"
    with serving(x=b"text") as store, giving(Grant(status=400, body=error), Grant()) as sts, giving() as node:
        env = of_instance(store, node) | {
            "AWS_WEB_IDENTITY_TOKEN_FILE": str(token),
            "AWS_ROLE_ARN": "arn:aws:iam::1:role/reader",
            "AWS_ENDPOINT_URL_STS": sts.url,
        }
        assert run(millrace_bin, "cat", "s3://b/x", env=env) == "text"
        assert access_key(store.asked[-1]) == "WEBREADERPOD"
        assert not node.asked


def test_a_process_that_fails(millrace_bin: Path, tmp_path: Path) -> None:
    """https://github.com/derekwisong/datui/pull/192: the message names the profile and what to do."""
    config = tmp_path / "config"
    config.write_text("[default]\ncredential_process = echo 'session has expired' >&2; exit 3\n")
    with serving(x=b"text") as store:
        env = without_keys(store) | {"AWS_CONFIG_FILE": str(config)}
        said = run(millrace_bin, "cat", "s3://b/x", env=env, code=1)
    assert "credential_process of profile 'default'" in said and "run it by hand" in said
    assert not store.asked
