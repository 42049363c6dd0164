"""Errors 403: the message, and `millrace doctor`, name the permission or the setting that helps. The cases, with the
reports that they come from, are those of docs/wild-stores.md."""

from __future__ import annotations

from pathlib import Path

import pytest
from stub_store import Denial, run, serving

USER = "User: arn:aws:iam::123456789012:user/ann is not authorized to perform: "

# Command, answer, what the message must contain, and the report.
CASES = [
    (
        "cat",
        Denial(403, "AccessDenied", "Access Denied"),
        ["s3:GetObject on arn:aws:s3:::b/x", "s3:ListBucket"],
        "https://github.com/aws/aws-cdk/issues/27389",
    ),
    (
        "cat",
        Denial(403, ""),
        ["s3:GetObject on arn:aws:s3:::b/x", "MILLRACE_S3_REQUESTER_PAYS=1"],
        "https://github.com/aws/aws-cli/issues/2557",
    ),
    (
        "ls",
        Denial(403, "AccessDenied", "Access Denied"),
        ["s3:ListBucket on arn:aws:s3:::b"],
        "https://github.com/eleven41/aws-lambda-encrypt-s3-objects/pull/2",
    ),
    (
        "put",
        Denial(403, "AccessDenied", "Access Denied"),
        ["s3:PutObject on arn:aws:s3:::b/new", "MILLRACE_S3_SSE"],
        "https://github.com/aws/aws-cli/issues/813",
    ),
    (
        "rm",
        Denial(403, "AccessDenied", "Access Denied"),
        ["s3:DeleteObject"],
        "https://github.com/symphonists/s3upload_field/issues/16",
    ),
    (
        "put",
        Denial(
            403, "AccessDenied", USER + 's3:PutObject on resource: "x" with an explicit deny in a resource-based policy'
        ),
        ["s3:PutObject", "MILLRACE_S3_SSE=aws:kms"],
        "https://github.com/rancher/backup-restore-operator/issues/176",
    ),
    (
        "put",
        Denial(
            403,
            "AccessDenied",
            USER + "kms:GenerateDataKey on resource: arn:aws:kms:eu-west-1:1:key/k because no identity-based policy "
            "allows the kms:GenerateDataKey action",
        ),
        ["they need kms:GenerateDataKey on arn:aws:kms:eu-west-1:1:key/k"],
        "https://github.com/buildkite/docs/pull/2344",
    ),
    (
        "cat",
        Denial(
            403,
            "AccessDenied",
            "The ciphertext refers to a customer master key that does not exist, does not exist in this region, or you "
            "are not allowed to access.",
        ),
        ["kms:Decrypt"],
        "https://github.com/ministryofjustice/modernisation-platform/issues/3468",
    ),
    (
        "cat",
        Denial(
            403,
            "AccessDenied",
            USER + 's3:GetObject on resource: "x" with an explicit deny in a service control policy',
        ),
        ["service control policy (SCP)", "s3:GetObject"],
        "https://github.com/aws-samples/data-perimeter-policy-examples/issues/15",
    ),
    (
        "cat",
        Denial(
            403, "AccessDenied", USER + 's3:GetObject on resource: "x" with an explicit deny in a VPC endpoint policy'
        ),
        ["the policy of the VPC endpoint denies s3:GetObject"],
        "https://github.com/moby/moby/issues/34185",
    ),
    (
        "cat",
        Denial(403, "SignatureDoesNotMatch", "The signature does not match"),
        ["AWS_SECRET_ACCESS_KEY"],
        "https://github.com/benrady/learnjs/issues/14",
    ),
    (
        "cat",
        Denial(403, "InvalidAccessKeyId", "No such key"),
        ["AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"],
        "https://github.com/prolane/samltoawsstskeys/issues/40",
    ),
    (
        "cat",
        Denial(403, "RequestTimeTooSkewed", "Too large"),
        ["clock (NTP)"],
        "https://github.com/boot2docker/boot2docker/issues/469",
    ),
    (
        "cat",
        Denial(403, "AllAccessDisabled", "All access to this object has been disabled"),
        ["check its name"],
        "https://github.com/planet-os/notebooks/issues/26",
    ),
    (
        "cat",
        Denial(403, "AccountProblem", "A problem"),
        ["the account cannot use the store"],
        "https://github.com/basho/riak_cs/issues/731",
    ),
    (
        "rm",
        Denial(403, "AccessDenied", "Access Denied because object protected by object lock."),
        ["Object Lock", "retention"],
        "https://github.com/versity/versitygw/issues/1330",
    ),
    (
        "put",
        Denial(400, "KMS.DisabledException", "key is disabled"),
        ["MILLRACE_S3_SSE_KMS_KEY_ID"],
        "https://github.com/localstack/localstack/issues/8422",
    ),
    (
        "ls",
        Denial(403, "SecondLevelDomainForbidden", "Use virtual hosted style"),
        ["addressing_style = virtual"],
        "https://github.com/electron-userland/electron-builder/issues/8674",
    ),
    (
        "cat",
        Denial(400, "ExpiredToken", "The provided token has expired."),
        ["renew the temporary credentials"],
        "https://github.com/boto/boto3/issues/1073",
    ),
    (
        "ls",
        Denial(403, "", page="<html><body>Access to this site is blocked by policy.</body></html>"),
        ["the answer is not S3's", "HTTPS_PROXY", "AWS_ENDPOINT_URL"],
        "",
    ),
    ("ls", Denial(403, "AccountSuspended", "The account is suspended"), ["the account cannot use the store"], ""),
    ("cat", Denial(403, "UnauthorizedAccess", "Unauthorized access"), ["ICP recordal"], ""),
    (
        "cat",
        Denial(
            400,
            "InvalidRequest",
            "The object was stored using a form of Server Side Encryption. The correct parameters must be provided to "
            "retrieve the object.",
        ),
        ["a key of its writer (SSE-C)"],
        "",
    ),
    (
        "cat",
        Denial(
            400,
            "InvalidArgument",
            "Requests specifying Server Side Encryption with AWS KMS managed keys must be made over a secure connection.",
        ),
        ["an endpoint with https://"],
        "",
    ),
    (
        "put",
        Denial(
            403, "AccessDenied", "Cannot upload files, storage cap exceeded. See the Caps & Alerts page to increase."
        ),
        ["a cap of the account is reached"],
        "",
    ),
    ("put", Denial(400, "XMinioAdminBucketQuotaExceeded", "Bucket quota exceeded"), ["raise the quota"], ""),
    (
        "ls",
        Denial(400, "ExpiredTokenException", "The security token is expired"),
        ["renew the temporary credentials"],
        "",
    ),
    ("ls", Denial(403, "UserDisabled", "disabled"), ["the account cannot use the store"], ""),
    (
        "put",
        Denial(413, "", page="<html><body>413 Request Entity Too Large</body></html>"),
        ["client_max_body_size of nginx"],
        "",
    ),
    (
        "ls",
        Denial(405, "MethodNotAllowed", "The specified method is not allowed against this resource."),
        ["AWS_ENDPOINT_URL, which may be that of a web site"],
        "",
    ),
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_the_message_names_what_helps(millrace_bin: Path, tmp_path: Path, case: int) -> None:
    command, denial, expected, report = CASES[case]
    source = tmp_path / "new"
    source.write_bytes(b"new")
    arguments: dict[str, list[str | Path]] = {
        "cat": ["cat", "s3://b/x"],
        "ls": ["ls", "s3://b/"],
        "put": ["cp", source, "s3://b/new"],
        "rm": ["rm", "s3://b/x"],
    }
    refused = {"cat": ("GET", "HEAD"), "ls": ("GET",), "put": ("PUT",), "rm": ("DELETE", "POST")}[command]
    with serving(x=b"text") as stub:
        stub.deny = lambda asked: denial if asked.method in refused else None
        # A HEAD has no body that says why.
        if command == "cat" and denial.code:
            stub.deny = lambda asked: (
                (Denial(denial.status, "") if asked.method == "HEAD" else denial) if asked.method in refused else None
            )
        said = run(millrace_bin, *arguments[command], env=stub.env(), code=1)
    for text in expected:
        assert text in said, (report, said)


def test_without_a_signature(millrace_bin: Path) -> None:
    """https://github.com/huggingface/huggingface_hub/issues/4710"""
    with serving(x=b"text") as stub:
        stub.deny = lambda _: Denial(403, "AccessDenied", "Access Denied")
        said = run(millrace_bin, "ls", "s3://b/", "--no-sign-request", env=stub.env(), code=1)
    assert "unset MILLRACE_S3_ANONYMOUS" in said and "s3:ListBucket" in said
