"""Each case of stores, proxies, settings, credentials and errors comes from a public report, which docs/wild-stores.md links."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
REPORT = re.compile(r"https://github\.com/[\w.-]+/[\w.-]+/(?:issues|pull)/\d+")
TESTS = ["test_stores", "test_proxies", "test_settings", "test_identities", "test_outages", "test_denials"]


def reports(path: Path) -> set[str]:
    return set(REPORT.findall(path.read_text()))


@pytest.mark.parametrize("name", TESTS)
def test_there_are_ten_of_each_kind(name: str) -> None:
    assert len(reports(HERE / f"{name}.py")) >= 10


def test_the_page_links_those_of_the_tests() -> None:
    page = HERE.parents[1] / "docs" / "wild-stores.md"
    assert reports(page) == set().union(
        *(reports(HERE / f"{name}.py") for name in [*TESTS, "test_addresses", "test_directory_buckets"])
    )
