"""Settings of the AWS tools: where a request goes, for which region, and with which keys, beside botocore, case by case. The cases are those of
docs/wild-stores.md."""

from __future__ import annotations

import re
from pathlib import Path

import botocore.config
import botocore.exceptions
import botocore.session
import pytest
from stub_store import Asked, run, serving

SERVICES = "[services mine]\ns3 =\n  endpoint_url = SERVER/services\nsts =\n  endpoint_url = SERVER/sts\n"
KEYS = {"AWS_ACCESS_KEY_ID": "AKENV", "AWS_SECRET_ACCESS_KEY": "secret-of-the-test"}
PROFILE_KEYS = "aws_access_key_id = AKFILE\naws_secret_access_key = secret-of-the-test\n"

# Variables, the configuration file, the credentials file, the report. SERVER is the URL of the stub, HOME the folder of both files.
CASES: dict[str, tuple[dict[str, str], str, str, str]] = {
    "global variable": (
        KEYS | {"AWS_ENDPOINT_URL": "SERVER/global"},
        "",
        "",
        "https://github.com/aws/aws-sdk/issues/229",
    ),
    "service variable": (
        KEYS | {"AWS_ENDPOINT_URL": "SERVER/global", "AWS_ENDPOINT_URL_S3": "SERVER/s3"},
        "",
        "",
        "https://github.com/aws/aws-sdk-js/issues/3236",
    ),
    "profile": (KEYS, "[default]\nendpoint_url = SERVER/profile\n", "", "https://github.com/aws/aws-cli/issues/1270"),
    "services": (KEYS, "[default]\nservices = mine\n" + SERVICES, "", "https://github.com/paws-r/paws/issues/667"),
    "services before profile": (
        KEYS,
        "[default]\nservices = mine\nendpoint_url = SERVER/profile\n" + SERVICES,
        "",
        "https://github.com/Sceptre/sceptre/issues/878",
    ),
    "services without s3": (
        KEYS,
        "[default]\nservices = other\nendpoint_url = SERVER/profile\n[services other]\nec2 =\n  endpoint_url = SERVER/ec2\n",
        "",
        "https://github.com/wbingli/awscli-plugin-endpoint/issues/2",
    ),
    "variable before services": (
        KEYS | {"AWS_ENDPOINT_URL": "SERVER/global"},
        "[default]\nservices = mine\n" + SERVICES,
        "",
        "https://github.com/huseyinbabal/taws/issues/181",
    ),
    "of another profile": (
        KEYS | {"AWS_PROFILE": "lab"},
        "[default]\nendpoint_url = SERVER/no\n[profile lab]\nservices = mine\nregion = eu-west-1\n" + SERVICES,
        "",
        "https://github.com/donnemartin/saws/issues/28",
    ),
    "default profile variable": (
        {"AWS_DEFAULT_PROFILE": "lab", "AWS_ENDPOINT_URL": "SERVER/x"},
        "[profile lab]\nregion = eu-west-3\n",
        "[lab]\n" + PROFILE_KEYS,
        "https://github.com/aws/aws-cli/issues/1281",
    ),
    "home in paths": (
        {"AWS_CONFIG_FILE": "~/config", "AWS_SHARED_CREDENTIALS_FILE": "$HOME/credentials"},
        "[default]\nendpoint_url = SERVER/home\n",
        "[default]\n" + PROFILE_KEYS,
        "https://github.com/aws/aws-sdk-go-v2/issues/3330",
    ),
    "braces in paths": (
        KEYS | {"AWS_CONFIG_FILE": "${HOME}/config"},
        "[default]\nendpoint_url = SERVER/home\nregion = ap-southeast-2\n",
        "",
        "https://github.com/hashicorp/aws-sdk-go-base/issues/117",
    ),
    "colon as delimiter": (
        KEYS,
        "[default]\nendpoint_url: SERVER/colon\nregion: eu-central-1\n",
        "",
        "https://github.com/aws/aws-sdk-go/issues/366",
    ),
    "capitals": (
        KEYS,
        "[default]\nEndpoint_Url = SERVER/capitals\nREGION = eu-north-1\n",
        "",
        "https://github.com/aws/aws-sdk/issues/574",
    ),
    "quoted profile": (
        KEYS | {"AWS_PROFILE": "my lab"},
        '[profile "my lab"]\nendpoint_url = SERVER/quoted\n',
        "",
        "https://github.com/aws/aws-cli/issues/2806",
    ),
    "region variable": (
        KEYS | {"AWS_ENDPOINT_URL": "SERVER", "AWS_DEFAULT_REGION": "sa-east-1"},
        "",
        "",
        "https://github.com/aws/aws-cli/issues/409",
    ),
    "region of profile": (
        KEYS | {"AWS_ENDPOINT_URL": "SERVER"},
        "[default]\nregion = cn-north-1\n",
        "",
        "https://github.com/rewind-community/aws-connect/issues/10",
    ),
    "variables before files": (
        KEYS | {"AWS_ENDPOINT_URL": "SERVER"},
        "",
        "[default]\n" + PROFILE_KEYS,
        "https://github.com/aws/aws-cli/issues/8270",
    ),
    "keys of the profile": (
        {"AWS_ENDPOINT_URL": "SERVER"},
        "",
        "[default]\n" + PROFILE_KEYS,
        "https://github.com/boto/boto/pull/2292",
    ),
    "keys of the configuration file": (
        {"AWS_ENDPOINT_URL": "SERVER"},
        "[default]\n" + PROFILE_KEYS,
        "",
        "https://github.com/aws/aws-cli/issues/918",
    ),
    "token": (
        KEYS | {"AWS_ENDPOINT_URL": "SERVER", "AWS_SESSION_TOKEN": "T1"},
        "",
        "",
        "https://github.com/databendlabs/databend/issues/8069",
    ),
    "token by its old name": (
        KEYS | {"AWS_ENDPOINT_URL": "SERVER", "AWS_SECURITY_TOKEN": "T2"},
        "",
        "",
        "https://github.com/boto/boto3/issues/2815",
    ),
    "token of the profile": (
        {"AWS_ENDPOINT_URL": "SERVER"},
        "",
        "[default]\n" + PROFILE_KEYS + "aws_session_token = T3\n",
        "https://github.com/obot-platform/obot/issues/3218",
    ),
    "process": (
        {"AWS_ENDPOINT_URL": "SERVER"},
        '[default]\ncredential_process = printf \'{"Version":1,"AccessKeyId":"AKPROC","SecretAccessKey":"s","SessionToken":"T4"}\'\n',
        "",
        "https://github.com/boto/botocore/pull/1316",
    ),
    "keys before the process": (
        {"AWS_ENDPOINT_URL": "SERVER"},
        '[default]\ncredential_process = printf \'{"Version":1,"AccessKeyId":"AKPROC","SecretAccessKey":"s"}\'\n',
        "[default]\n" + PROFILE_KEYS,
        "https://github.com/aws/aws-sdk-js/pull/1923",
    ),
    "a blank in the name of a profile of the credentials file": (
        {"AWS_ENDPOINT_URL": "SERVER", "AWS_PROFILE": "my lab"},
        "",
        "[my lab]\n" + PROFILE_KEYS,
        "",
    ),
    "keys come from one file": (
        {"AWS_ENDPOINT_URL": "SERVER"},
        "[default]\naws_access_key_id = AKCONFIG\naws_secret_access_key = other\naws_session_token = T5\n",
        "[default]\n" + PROFILE_KEYS,
        "",
    ),
    "a secret key alone in the credentials file": (
        {"AWS_ENDPOINT_URL": "SERVER"},
        "[default]\n" + PROFILE_KEYS,
        "[default]\naws_secret_access_key = other\naws_session_token = T6\n",
        "",
    ),
    "a secret key alone in the credentials file, and no keys in the other": (
        {"AWS_ENDPOINT_URL": "SERVER"},
        "[profile of another]\n",
        "[default]\naws_secret_access_key = other\ncredential_process = printf "
        '\'{"Version":1,"AccessKeyId":"AKPROC","SecretAccessKey":"s"}\'\n',
        "",
    ),
    "a time as Python prints it": (
        {"AWS_ENDPOINT_URL": "SERVER"},
        '[default]\ncredential_process = printf \'{"Version":1,"AccessKeyId":"AKPROC","SecretAccessKey":"s",'
        '"SessionToken":"T7","Expiration":"2199-01-01 00:00:00+00:00"}\'\n',
        "",
        "",
    ),
    "lines that end with CR": (
        {"AWS_ENDPOINT_URL": "SERVER"},
        "[default]\rregion = eu-west-1\r",
        ("[default]\n" + PROFILE_KEYS).replace("\n", "\r"),
        "",
    ),
    "an endpoint in capitals": (KEYS | {"AWS_ENDPOINT_URL": "SHOUTED"}, "", "", ""),
}


def facts(asked: Asked) -> tuple[str, ...]:
    """Path in front of the bucket, access key, region, token."""
    scope = re.search(r"Credential=([^/]+)/\d+/([^/]+)/s3/", asked.headers["authorization"])
    assert scope
    return (asked.path.split("/b")[0], scope[1], scope[2], asked.headers.get("x-amz-security-token", ""))


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def write(settings: Path, monkeypatch: pytest.MonkeyPatch, url: str, case: tuple[dict[str, str], str, str]) -> None:
    variables, config, credentials = case
    for folder in (settings, settings / ".aws"):
        folder.mkdir(exist_ok=True)
        (folder / "config").write_text(config.replace("SERVER", url))
        (folder / "credentials").write_text(credentials)
    for name, value in variables.items():
        monkeypatch.setenv(name, value.replace("SERVER", url).replace("SHOUTED", url.replace("http", "HTTP")))


@pytest.mark.parametrize("case", CASES)
def test_as_botocore(millrace_bin: Path, settings: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    with serving() as stub:
        write(settings, monkeypatch, stub.url, CASES[case][:3])
        config = botocore.config.Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1})
        try:
            botocore.session.Session().create_client("s3", config=config).list_objects_v2(Bucket="b")
        except botocore.exceptions.ClientError:  # the base path is no bucket
            pass
        assert len(stub.asked) == 1
        run(millrace_bin, "ls", "s3://b/", env={}, code=None)
        assert len(stub.asked) > 1
        assert facts(stub.asked[1]) == facts(stub.asked[0]), CASES[case][3]


@pytest.mark.parametrize(
    ("variables", "config", "expected"),
    [
        (
            {"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"},
            "[default]\nendpoint_url = SERVER\n",
            "s3.eu-west-1.amazonaws.com",
        ),
        (
            {},
            "[default]\nendpoint_url = SERVER\nignore_configured_endpoint_urls = true\n",
            "s3.eu-west-1.amazonaws.com",
        ),
        ({"AWS_REGION": "cn-north-1"}, "", "s3.cn-north-1.amazonaws.com.cn"),
        ({"AWS_REGION": "us-gov-west-1"}, "", "s3.us-gov-west-1.amazonaws.com"),
        ({"AWS_REGION": "us-iso-east-1"}, "", "s3.us-iso-east-1.c2s.ic.gov"),
        ({"AWS_REGION": "us-isob-east-1"}, "", "s3.us-isob-east-1.sc2s.sgov.gov"),
        ({"AWS_REGION": "us-isof-south-1"}, "", "s3.us-isof-south-1.csp.hci.ic.gov"),
        ({"AWS_REGION": "eu-isoe-west-1"}, "", "s3.eu-isoe-west-1.cloud.adc-e.uk"),
        ({"AWS_REGION": "eusc-de-east-1"}, "", "s3.eusc-de-east-1.amazonaws.eu"),
        ({"AWS_USE_FIPS_ENDPOINT": "true"}, "", "s3-fips.eu-west-1.amazonaws.com"),
        ({"AWS_USE_DUALSTACK_ENDPOINT": "true"}, "", "s3.dualstack.eu-west-1.amazonaws.com"),
    ],
)
def test_servers_of_aws(
    millrace_bin: Path,
    settings: Path,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    config: str,
    expected: str,
) -> None:
    url = "http://127.0.0.1:9"
    region = {"AWS_REGION": "eu-west-1"} | variables
    write(settings, monkeypatch, url, (KEYS | region | {"AWS_DEFAULT_REGION": region["AWS_REGION"]}, config, ""))
    client = botocore.session.Session().create_client("s3")
    assert client.meta.endpoint_url == f"https://{expected}"
    # doctor says the address before it looks for the server.
    assert f"https://bbb.{expected}" in run(
        millrace_bin, "doctor", "s3", "s3://bbb/x", env={"AWS_MAX_ATTEMPTS": "1"}, code=1
    )


@pytest.mark.parametrize(
    ("config", "credentials", "words"),
    [
        (
            "[default]\naws_secret_access_key = other\n",
            "[default]\naws_access_key_id = AKHALF\n",
            "only the access key is set; set aws_secret_access_key in the same file",
        ),
        ("[default]\nlogin_session = arn:aws:iam::1:user/ann\n", "", "`aws login`"),
    ],
)
def test_what_gives_no_keys_is_named(
    millrace_bin: Path, settings: Path, monkeypatch: pytest.MonkeyPatch, config: str, credentials: str, words: str
) -> None:
    """botocore raises PartialCredentialsError for half a pair."""
    with serving() as stub:
        write(settings, monkeypatch, stub.url, ({"AWS_ENDPOINT_URL": "SERVER"}, config, credentials))
        assert words in run(millrace_bin, "ls", "s3://b/", env={"AWS_MAX_ATTEMPTS": "1"}, code=None)
        assert not stub.asked


def test_the_remedy_for_a_login_session_can_be_pasted(
    millrace_bin: Path, settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = "[profile my lab]\nlogin_session = arn:aws:iam::1:user/ann\n"
    with serving() as stub:
        write(settings, monkeypatch, stub.url, ({"AWS_ENDPOINT_URL": "SERVER", "AWS_PROFILE": "my lab"}, config, ""))
        assert "--profile 'my lab' --format process" in run(
            millrace_bin, "ls", "s3://b/", env={"AWS_MAX_ATTEMPTS": "1"}, code=None
        )


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("s3a://bucket/set", "write s3:// in its place"),
        ("s3n://bucket/set", "write s3:// in its place"),
        ("arn:aws:s3:::bucket/set", "write s3://bucket/set"),
    ],
)
def test_other_names_of_s3_have_a_remedy(millrace_bin: Path, uri: str, words: str) -> None:
    assert words in run(millrace_bin, "ls", uri, env=KEYS, code=None)


def test_a_services_section_that_does_not_exist(
    millrace_bin: Path, settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(settings, monkeypatch, "", (KEYS, "[default]\nservices = none\n", ""))
    said = run(millrace_bin, "ls", "s3://b", env={}, code=None)
    assert "there is no section [services none]" in said
