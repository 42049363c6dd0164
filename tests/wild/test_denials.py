"""Errors 403: the message, and `millrace doctor`, name the permission or the setting that helps. The cases are those of docs/wild-stores.md."""

from __future__ import annotations

from pathlib import Path

import pytest
from stub_store import Denial, run, serving

USER = "User: arn:aws:iam::123456789012:user/ann is not authorized to perform: "

# Command, answer, and what the message must contain.
CASES = [
    ("cat", Denial(403, "AccessDenied", "Access Denied"), ["s3:GetObject on arn:aws:s3:::b/x", "s3:ListBucket"]),
    ("cat", Denial(403, ""), ["s3:GetObject on arn:aws:s3:::b/x", "MILLRACE_S3_REQUESTER_PAYS=1"]),
    ("ls", Denial(403, "AccessDenied", "Access Denied"), ["s3:ListBucket on arn:aws:s3:::b"]),
    ("put", Denial(403, "AccessDenied", "Access Denied"), ["s3:PutObject on arn:aws:s3:::b/new", "MILLRACE_S3_SSE"]),
    ("rm", Denial(403, "AccessDenied", "Access Denied"), ["s3:DeleteObject"]),
    (
        "put",
        Denial(
            403, "AccessDenied", USER + 's3:PutObject on resource: "x" with an explicit deny in a resource-based policy'
        ),
        ["s3:PutObject", "MILLRACE_S3_SSE=aws:kms"],
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
    ),
    (
        "cat",
        Denial(
            403,
            "AccessDenied",
            USER + 's3:GetObject on resource: "x" with an explicit deny in a service control policy',
        ),
        ["service control policy (SCP)", "s3:GetObject"],
    ),
    (
        "cat",
        Denial(
            403, "AccessDenied", USER + 's3:GetObject on resource: "x" with an explicit deny in a VPC endpoint policy'
        ),
        ["the policy of the VPC endpoint denies s3:GetObject"],
    ),
    ("cat", Denial(403, "SignatureDoesNotMatch", "The signature does not match"), ["AWS_SECRET_ACCESS_KEY"]),
    (
        "cat",
        Denial(403, "InvalidAccessKeyId", "No such key"),
        ["AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"],
    ),
    ("cat", Denial(403, "RequestTimeTooSkewed", "Too large"), ["clock (NTP)"]),
    ("cat", Denial(403, "AllAccessDisabled", "Disabled"), ["check its name"]),
    ("cat", Denial(403, "AccountProblem", "A problem"), ["the account cannot use the store"]),
    (
        "rm",
        Denial(403, "AccessDenied", "Access Denied because object protected by object lock."),
        ["Object Lock", "retention"],
    ),
    ("put", Denial(400, "KMS.DisabledException", "key is disabled"), ["MILLRACE_S3_SSE_KMS_KEY_ID"]),
    ("ls", Denial(403, "SecondLevelDomainForbidden", "Use virtual hosted style"), ["addressing_style = virtual"]),
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_the_message_names_what_helps(millrace_bin: Path, tmp_path: Path, case: int) -> None:
    command, denial, expected = CASES[case]
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
        assert text in said, (command, denial)


def test_without_a_signature(millrace_bin: Path) -> None:
    with serving(x=b"text") as stub:
        stub.deny = lambda _: Denial(403, "AccessDenied", "Access Denied")
        said = run(millrace_bin, "ls", "s3://b/", "--no-sign-request", env=stub.env(), code=1)
    assert "unset MILLRACE_S3_ANONYMOUS" in said and "s3:ListBucket" in said


@pytest.mark.parametrize(
    ("manner", "remedy"),
    [
        ("virtual-only", "addressing_style = virtual"),
        ("payer", "MILLRACE_S3_REQUESTER_PAYS=1"),
        ("no-list", "s3:ListBucket"),
    ],
)
def test_doctor_names_the_remedy(millrace_bin: Path, manner: str, remedy: str) -> None:
    with serving(manner, x=b"text") as stub:
        said = run(millrace_bin, "doctor", "s3", "s3://b/x", env=stub.env(), code=1)
    assert remedy in said.split("Remedy:", 1)[1]
