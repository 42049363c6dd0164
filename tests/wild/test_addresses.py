"""Access points and other names that stand for buckets: the server that is asked, and the region and service that sign, beside botocore."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import botocore.exceptions
import botocore.session
import pytest
from stub_store import KEYS, run, serving

POINT = "arn:aws:s3:us-west-2:123456789012:accesspoint/my-point"
CHINA = "arn:aws-cn:s3:cn-north-1:123456789012:accesspoint/my-point"
GOV = "arn:aws-us-gov:s3:us-gov-west-1:123456789012:accesspoint/my-point"
DIRECTORY = "data--usw2-az1--x-s3"
FIPS = {"AWS_USE_FIPS_ENDPOINT": "true"}
DUAL = {"AWS_USE_DUALSTACK_ENDPOINT": "true"}
OWN_REGION = {"AWS_S3_USE_ARN_REGION": "false"}

# Region, bucket, further variables, and what Millrace says if neither takes it.
CASES: dict[str, tuple[str, str, dict[str, str], str]] = {
    "bucket": ("us-west-2", "my-bucket", {}, ""),
    "access point": ("us-west-2", POINT, {}, ""),
    "with a colon": ("us-west-2", POINT.replace("/", ":"), {}, ""),
    "of another region": ("eu-west-1", POINT, {}, ""),
    "of another region, allowed": ("eu-west-1", POINT, {"AWS_S3_USE_ARN_REGION": "true"}, ""),
    "of another region, not allowed": (
        "eu-west-1",
        POINT,
        OWN_REGION,
        "use_arn_region is false: set AWS_REGION=us-west-2",
    ),
    "of this region, others not allowed": ("us-west-2", POINT, OWN_REGION, ""),
    "dual-stack": ("us-west-2", POINT, DUAL, ""),
    "FIPS": ("us-west-2", POINT, FIPS, ""),
    "FIPS and dual-stack": ("us-west-2", POINT, FIPS | DUAL, ""),
    "China": ("cn-north-1", CHINA, {}, ""),
    "China, dual-stack": ("cn-north-1", CHINA, DUAL, ""),
    "GovCloud": ("us-gov-west-1", GOV, {}, ""),
    "GovCloud, FIPS": ("us-gov-west-1", GOV, FIPS, ""),
    "secret regions": ("us-iso-east-1", "arn:aws-iso:s3:us-iso-east-1:123456789012:accesspoint/p", {}, ""),
    "of another partition": ("cn-north-1", POINT, {}, "set AWS_REGION=us-west-2"),
    "GovCloud from elsewhere": ("us-west-2", GOV, {}, "set AWS_REGION=us-gov-west-1"),
    "alias": ("us-west-2", "my-point-hrzrlukc5m36ft7okagglf3gmwluquse1b-s3alias", {}, ""),
    "alias of Object Lambda": ("us-west-2", "my-point-hrzrlukc5m36ft7okagglf3gmwlu--ol-s3", {}, ""),
    "directory bucket": ("us-west-2", DIRECTORY, {}, ""),
    "directory bucket, dual-stack": ("us-west-2", DIRECTORY, DUAL, ""),
    "directory bucket, FIPS": ("us-west-2", DIRECTORY, FIPS, ""),
    "directory bucket in China": ("cn-north-1", "data--cnn1-az1--x-s3", {}, ""),
    "access point of a directory bucket": ("us-west-2", "point--usw2-az1--xa-s3", {}, ""),
    "directory bucket, own server": ("us-west-2", DIRECTORY, {"AWS_ENDPOINT_URL": "http://store.test:9000"}, ""),
    "own server": ("us-west-2", POINT, {"AWS_ENDPOINT_URL": "http://store.test:9000"}, ""),
    "own server, of another region": ("eu-west-1", POINT, {"AWS_ENDPOINT_URL": "http://store.test:9000"}, ""),
    "own server below a path": ("us-west-2", POINT, {"AWS_ENDPOINT_URL": "http://store.test:9000/base"}, ""),
}

# ARNs that Millrace refuses, whatever botocore does, and what to write instead.
REFUSED = {
    "arn:aws:s3:::my-bucket": "write s3://my-bucket",
    "arn:aws:s3-object-lambda:us-west-2:123456789012:accesspoint/p": "name the access point or the bucket behind it",
    "arn:aws:s3::123456789012:accesspoint/p.mrap": "name the access point of one region",
    "arn:aws:s3-outposts:us-west-2:123456789012:outpost/op-1/accesspoint/p": "name a bucket in a region",
    "arn:aws:ec2:us-west-2:123456789012:accesspoint/p": "is not an ARN of S3",
}


class SeenError(BaseException):
    """Ends a request before it is sent; botocore does not catch it."""


def of_botocore(region: str, bucket: str) -> tuple[str, str, str] | None:
    """Host, path and scope of a HEAD of the key k, or of the session that it needs first; None if botocore refuses."""
    client = botocore.session.Session().create_client("s3", region_name=region)
    seen: list[Any] = []

    def stop(request: Any, **_: Any) -> None:
        seen.append(request)
        raise SeenError

    client.meta.events.register("before-send.s3", stop)
    try:
        client.head_object(Bucket=bucket, Key="k")
    except botocore.exceptions.BotoCoreError:
        return None
    except SeenError:
        pass
    host, _, path = seen[0].url.split("://", 1)[1].partition("?")[0].partition("/")
    authorization = seen[0].headers["Authorization"]
    text = authorization.decode() if isinstance(authorization, bytes) else authorization
    return host, "/" + path, text.split("Credential=")[1].split(",")[0].split("/", 2)[2]


@pytest.mark.parametrize("name", CASES)
def test_as_botocore(millrace_bin: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    region, bucket, variables, said = CASES[name]
    for key, value in (KEYS | variables).items():
        monkeypatch.setenv(key, value)
    monkeypatch.delenv("AWS_REGION")
    expected = of_botocore(region, bucket)
    assert (expected is None) == bool(said)
    # A proxy sees where each request goes; one with TLS is the CONNECT of its host.
    with serving() as proxy:
        env = {"HTTP_PROXY": proxy.url, "HTTPS_PROXY": proxy.url, "AWS_MAX_ATTEMPTS": "1", "AWS_REGION": region}
        output = run(millrace_bin, "cat", f"s3://{bucket}/k", env=env, code=1)
    if expected is None:
        assert said in output
        assert not proxy.asked
        return
    host, path, scope = expected
    asked = proxy.asked[0]
    if asked.method == "CONNECT":
        assert asked.headers["host"] == f"{host}:443"
        return
    assert asked.headers["host"] == host
    assert asked.path.endswith(f"{host}{path}") or asked.path == path
    assert scope in asked.headers["authorization"]


@pytest.mark.parametrize("arn", REFUSED)
def test_arns_that_are_refused(millrace_bin: Path, arn: str) -> None:
    with serving() as stub:
        said = run(millrace_bin, "ls", f"s3://{arn}/train", env=stub.env(), code=None)
        assert REFUSED[arn] in said
        assert not stub.asked


def test_commands_take_access_points(millrace_bin: Path, tmp_path: Path) -> None:
    """As https://github.com/aws/aws-sdk-pandas/pull/491 wants them, with both spellings."""
    source = tmp_path / "file"
    source.write_bytes(b"text")
    with serving() as proxy:
        env = KEYS | {"AWS_ENDPOINT_URL": "http://store.test:9000", "HTTP_PROXY": proxy.url, "AWS_REGION": "us-west-2"}
        run(millrace_bin, "cp", source, f"s3://{POINT}/train/a.txt", env=env)
        run(millrace_bin, "cp", f"s3://{POINT}/train/a.txt", f"s3://{POINT.replace('/', ':')}/train/b.txt", env=env)
        said = run(millrace_bin, "ls", "-r", f"s3://{POINT}/train/", env=env)
        assert [line.split()[-1] for line in said.splitlines()] == ["train/a.txt", "train/b.txt"]
        assert run(millrace_bin, "cat", f"s3://{POINT}/train/*.txt", env=env) == "texttext"
        sources = [asked.headers["x-amz-copy-source"] for asked in proxy.asked if "x-amz-copy-source" in asked.headers]
        assert sources == ["arn%3Aaws%3As3%3Aus-west-2%3A123456789012%3Aaccesspoint/my-point/object/train/a.txt"]
        assert {asked.headers["host"] for asked in proxy.asked} == {"my-point-123456789012.store.test:9000"}
        run(millrace_bin, "rm", "-r", f"s3://{POINT}/train/", env=env)
        assert not proxy.objects
