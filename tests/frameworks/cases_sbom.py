"""Tests the bill of materials of a wheel against the schema of CycloneDX."""

from __future__ import annotations

import pathlib
import sys

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY / "tests" / "packaging"), str(REPOSITORY / "tools")]

import artifacts  # noqa: E402
import small_wheel  # noqa: E402


def test_the_schema_takes_the_bill(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    wheel = artifacts.Wheel(small_wheel.make(tmp_path))
    text = artifacts.make_sbom(wheel, tmp_path).read_text()
    validator = JsonStrictValidator(SchemaVersion.V1_5)
    assert validator.validate_str(text) is None
    assert validator.validate_str(text.replace('"type": "library"', '"type": "lib"')) is not None
