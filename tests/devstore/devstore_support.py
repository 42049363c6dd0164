"""Helpers that the tests of devstore through boto3 share."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError


def code(error: pytest.ExceptionInfo[ClientError]) -> tuple[str, int]:
    """The code of an S3 error and its HTTP status."""
    response = error.value.response
    return response["Error"]["Code"], response["ResponseMetadata"]["HTTPStatusCode"]


def read(s3: Any, key: str, **arguments: Any) -> bytes:
    body: bytes = s3.get_object(Bucket="bucket", Key=key, **arguments)["Body"].read()
    return body
