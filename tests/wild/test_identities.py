"""Requests have the identity that botocore would give them. The sources of credentials come in its order, case by case.

docs/wild-stores.md lists the cases, and the reports that they come from."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path

import botocore.config
import botocore.credentials
import botocore.exceptions
import botocore.session
import botocore.tokens
import botocore.utils
import pytest
from stub_identity import PATIENCE, Grant, giving
from stub_store import run, serving

SECRETS = "aws_secret_access_key = secret-of-the-test\n"
KEYS = {"AWS_ACCESS_KEY_ID": "AKENV", "AWS_SECRET_ACCESS_KEY": "secret-of-the-test"}
WEB = {"AWS_WEB_IDENTITY_TOKEN_FILE": "HOME/token", "AWS_ROLE_ARN": "arn:aws:iam::1:role/pod"}
BOX = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "SOURCE/keys"}
IMDS = {"AWS_EC2_METADATA_DISABLED": "false", "AWS_EC2_METADATA_SERVICE_ENDPOINT": "SOURCE"}
PROCESS = 'credential_process = printf \'{"Version":1,"AccessKeyId":"AKPROCESS","SecretAccessKey":"s"}\'\n'
ROLE = "role_arn = arn:aws:iam::1:role/"
SSO = "sso_account_id = 111\nsso_role_name = reader\n"
START = "sso_start_url = https://login.test/start\nsso_region = us-east-1\n"


def static(key: str) -> str:
    return f"aws_access_key_id = {key}\n{SECRETS}"


@dataclass
class Case:
    report: str
    expected: str  # the access key that signs; "" if there is none
    variables: dict[str, str] = field(default_factory=dict)
    config: str = ""
    credentials: str = ""
    profile: str = ""  # --profile, and botocore's Session(profile=)
    differs: str = ""  # what botocore has, where a difference is meant


# SOURCE is the URL of the server that gives credentials, HOME the user's folder.
CASES: dict[str, Case] = {
    "variables before all": Case(
        "https://github.com/aws/aws-sdk-go/pull/2729",
        "AKENV",
        KEYS | WEB | BOX | IMDS | {"AWS_PROFILE": "lab"},
        f"[profile lab]\n{PROCESS}",
        f"[lab]\n{static('AKFILE')}",
    ),
    "AWS_PROFILE does not win over variables": Case(
        "https://github.com/aws/aws-cli/issues/7174",
        "AKENV",
        KEYS | {"AWS_PROFILE": "lab"},
        "",
        f"[lab]\n{static('AKFILE')}",
    ),
    "--profile does": Case(
        "https://github.com/aws/aws-cli/issues/113",
        "AKFILE",
        KEYS,
        "",
        f"[lab]\n{static('AKFILE')}",
        profile="lab",
    ),
    "--profile wins over a web identity": Case(
        "https://github.com/aws/aws-cli/issues/8883", "AKFILE", WEB, "", f"[lab]\n{static('AKFILE')}", profile="lab"
    ),
    "both variables of profiles": Case(
        "https://github.com/boto/botocore/issues/1725",
        "AKONE",
        {"AWS_PROFILE": "one", "AWS_DEFAULT_PROFILE": "two"},
        "",
        f"[one]\n{static('AKONE')}[two]\n{static('AKTWO')}",
        differs="AKTWO",
    ),
    "the credentials file before the configuration": Case(
        "https://github.com/aws/aws-cli/issues/1877",
        "AKCRED",
        {},
        f"[default]\n{static('AKCONFIG')}",
        f"[default]\n{static('AKCRED')}",
    ),
    "keys of the credentials file before a process": Case(
        "https://github.com/aws/aws-sdk-js/pull/1923",
        "AKCRED",
        {},
        f"[default]\n{PROCESS}",
        f"[default]\n{static('AKCRED')}",
    ),
    "a process before keys of the configuration": Case(
        "https://github.com/boto/botocore/pull/1316",
        "AKCONFIG",
        {},
        f"[default]\n{static('AKCONFIG')}{PROCESS}",
        differs="AKPROCESS",
    ),
    "a role of a profile with keys": Case(
        "https://github.com/hashicorp/terraform-provider-aws/issues/16841",
        "ROLEREADERBYAKBASE",
        {},
        f"[profile base]\n{static('AKBASE')}[default]\n{ROLE}reader\nsource_profile = base\n",
    ),
    "a chain of roles": Case(
        "https://github.com/aws/aws-sdk-net/issues/1072",
        "ROLELASTBYROLEFIRSTBYAKBASE",
        {"AWS_PROFILE": "last"},
        f"[profile last]\n{ROLE}last\nsource_profile = first\n[profile first]\n{ROLE}first\nsource_profile = base\n",
        f"[base]\n{static('AKBASE')}",
    ),
    "a role with an external id": Case(
        "https://github.com/runatlantis/atlantis/issues/856",
        "ROLEREADEREX1BYAKBASE",
        {},
        f"[profile base]\n{static('AKBASE')}[default]\n{ROLE}reader\nsource_profile = base\nexternal_id = ex1\n",
    ),
    "a role before keys of the same profile": Case(
        "https://github.com/remind101/assume-role/pull/23",
        "ROLEREADERBYAKFILE",
        {},
        f"[default]\n{ROLE}reader\nsource_profile = default\n",
        f"[default]\n{static('AKFILE')}",
    ),
    "a role by variables": Case(
        "https://github.com/aws/aws-sdk-go/issues/1901",
        "",
        KEYS,
        f"[profile lab]\n{ROLE}reader\ncredential_source = Environment\n",
        profile="lab",
        differs="ROLEREADERBYAKENV",
    ),
    "a role by the container": Case(
        "https://github.com/huseyinbabal/taws/issues/15",
        "ROLEREADERBYAKGRANTED",
        BOX,
        f"[default]\n{ROLE}reader\ncredential_source = EcsContainer\n",
    ),
    "a role by the instance": Case(
        "https://github.com/aws/aws-sdk-net/issues/1029",
        "ROLEREADERBYAKGRANTED",
        IMDS,
        f"[default]\n{ROLE}reader\ncredential_source = Ec2InstanceMetadata\n",
    ),
    "a role by a process": Case(
        "https://github.com/awslabs/aws-sdk-rust/issues/1097",
        "ROLEREADERBYAKPROCESS",
        {},
        f"[profile base]\n{PROCESS}[default]\n{ROLE}reader\nsource_profile = base\n",
    ),
    "a role of the profile before the web identity of variables": Case(
        "https://github.com/aws/aws-sdk/issues/350",
        "ROLEREADERBYAKBASE",
        WEB,
        f"[profile base]\n{static('AKBASE')}[default]\n{ROLE}reader\nsource_profile = base\n",
    ),
    "the web identity of a pod": Case(
        "https://github.com/aws-controllers-k8s/community/issues/1572", "WEBPODTOKEN", WEB
    ),
    "the web identity of a pod before keys of the profile": Case(
        "https://github.com/camunda/camunda-docs/pull/9134", "WEBPODTOKEN", WEB, "", f"[default]\n{static('AKFILE')}"
    ),
    "the web identity of a pod before the container and the instance": Case(
        "https://github.com/apache/datafusion-comet/pull/6025", "WEBPODTOKEN", WEB | BOX | IMDS
    ),
    "the web identity of a profile": Case(
        "https://github.com/aws/aws-sdk/issues/277",
        "WEBREADERTOKEN",
        {},
        f"[default]\n{ROLE}reader\nweb_identity_token_file = HOME/token\n",
    ),
    "a role by the web identity of another profile": Case(
        "https://github.com/awslabs/aws-c-auth/pull/298",
        "ROLELASTBYWEBHOPTOKEN",
        {},
        f"[default]\n{ROLE}last\nsource_profile = hop\n[profile hop]\n{ROLE}hop\nweb_identity_token_file = HOME/token\n",
    ),
    "SSO, as it was": Case(
        "https://github.com/tsub/s3-edit/issues/22", "SSO111READEROLD", {}, f"[default]\n{SSO}{START}"
    ),
    "SSO with a session": Case(
        "https://github.com/rgcsekaraa/brows3/issues/8",
        "SSO111READERNEW",
        {},
        f"[default]\nsso_session = corp\n{SSO}[sso-session corp]\n{START}",
    ),
    "SSO before keys": Case(
        "https://github.com/aws/aws-sdk-java-v2/pull/3532",
        "SSO111READERNEW",
        {},
        f"[default]\nsso_session = corp\n{SSO}[sso-session corp]\n{START}",
        f"[default]\n{static('AKFILE')}",
    ),
    "a role by SSO": Case(
        "https://github.com/synfinatic/aws-sso-cli/issues/38",
        "ROLEREADERBYSSO111READERNEW",
        {},
        f"[default]\n{ROLE}reader\nsource_profile = login\n"
        f"[profile login]\nsso_session = corp\n{SSO}[sso-session corp]\n{START}",
    ),
    "the container": Case("https://github.com/rclone/rclone/pull/1851", "AKGRANTED", BOX),
    "the container before the instance": Case("https://github.com/minio/minio-go/issues/1940", "AKGRANTED", BOX | IMDS),
    "the container with a token in a file": Case(
        "https://github.com/n8n-io/n8n/issues/21581",
        "AKGRANTED",
        BOX | {"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": "HOME/token", "AWS_CONTAINER_AUTHORIZATION_TOKEN": "other"},
    ),
    "the container with a token of two words": Case(
        "https://github.com/n8n-io/n8n/issues/21581",
        "AKGRANTED",
        BOX | {"AWS_CONTAINER_AUTHORIZATION_TOKEN": "Bearer x"},
    ),
    "keys of the profile before the container": Case(
        "https://github.com/NVIDIA/topograph/pull/403", "AKFILE", BOX, "", f"[default]\n{static('AKFILE')}"
    ),
    "the instance": Case("https://github.com/lumigo-io/lumigo-CLI/issues/92", "AKGRANTED", IMDS),
    "the instance, as the profile names it": Case(
        "https://github.com/spiffe/spire/pull/7287",
        "AKGRANTED",
        {"AWS_EC2_METADATA_DISABLED": "false"},
        "[default]\nec2_metadata_service_endpoint = SOURCE\n",
    ),
    "the instance is not asked": Case(
        "https://github.com/enclaver-io/enclaver/issues/132", "", IMDS | {"AWS_EC2_METADATA_DISABLED": "true"}
    ),
}


def of_botocore(profile: str) -> str:
    session = botocore.session.Session(profile=profile or None)
    config = botocore.config.Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1})
    try:
        session.create_client("s3", config=config).list_objects_v2(Bucket="b")
        return session.get_credentials().get_frozen_credentials().access_key
    except botocore.exceptions.NoCredentialsError:
        return ""


def log_in(home: Path) -> None:
    """The tokens that `aws sso login` leaves."""
    cache = home / ".aws" / "sso" / "cache"
    cache.mkdir(parents=True)
    for key, token in (("https://login.test/start", "OLD"), ("corp", "NEW")):
        text = {"accessToken": token, "expiresAt": "2199-01-01T00:00:00Z", "region": "us-east-1"}
        (cache / f"{hashlib.sha1(key.encode()).hexdigest()}.json").write_text(json.dumps(text))


@pytest.mark.parametrize("name", CASES)
def test_as_botocore(millrace_bin: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    case = CASES[name]
    with serving() as store, giving(Grant("AKGRANTED")) as source:

        def filled(text: str) -> str:
            return text.replace("SOURCE", source.url).replace("HOME", str(tmp_path))

        log_in(tmp_path)
        (tmp_path / "token").write_text("token")
        (tmp_path / ".aws" / "config").write_text(filled(case.config))
        (tmp_path / ".aws" / "credentials").write_text(case.credentials)
        services = {f"AWS_ENDPOINT_URL_{service}": source.url for service in ("STS", "SSO", "SSO_OIDC")}
        variables = {"HOME": str(tmp_path), "AWS_ENDPOINT_URL_S3": store.url, "AWS_DEFAULT_REGION": "us-east-1"}
        for variable in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
            monkeypatch.delenv(variable)
        for variable, value in (variables | services | PATIENCE | case.variables).items():
            monkeypatch.setenv(variable, filled(value))

        # It takes the user's folder when it is imported.
        cache = str(tmp_path / ".aws" / "sso" / "cache")
        monkeypatch.setattr(botocore.tokens.SSOTokenProvider, "_SSO_TOKEN_CACHE_DIR", cache)
        monkeypatch.setattr(botocore.credentials.SSOProvider, "_SSO_TOKEN_CACHE_DIR", cache)
        monkeypatch.setattr(botocore.utils.ContainerMetadataFetcher, "TIMEOUT_SECONDS", 60)
        assert of_botocore(case.profile) == (case.differs or case.expected), case.report
        store.asked.clear()
        options = ["--profile", case.profile] if case.profile else []
        run(millrace_bin, "ls", "s3://b/", *options, env=dict(os.environ), code=None)
        signed = {asked.headers["authorization"].split("Credential=")[1].split("/")[0] for asked in store.asked}
        assert signed == ({case.expected} if case.expected else set()), case.report
        if "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE" in case.variables:
            assert len(source.tokens) >= 2 and set(source.tokens) == {"token"}
        elif token := case.variables.get("AWS_CONTAINER_AUTHORIZATION_TOKEN"):
            assert len(source.tokens) >= 2 and set(source.tokens) == {token}
