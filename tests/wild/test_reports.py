"""Each kind of input, store and identity has at least ten cases that come from public reports.

In tables of inputs, a report is named `owner/name#number`, an issue or pull request on GitHub. A row without one is a sibling of the others.
The other tests name addresses, which docs/wild-stores.md links."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import test_containers
import test_decoders
import test_image_structure
import test_names
import test_resize
import test_values

HERE = Path(__file__).resolve().parent
REPORT = re.compile(r"https://github\.com/[\w.-]+/[\w.-]+/(?:issues|pull)/\d+")
TESTS = ["test_stores", "test_proxies", "test_settings", "test_identities", "test_outages", "test_denials"]
TABLES = {
    "decoders": [row[-1] for row in test_decoders.FILES],
    "structure": [row[-1] for row in test_image_structure.FILES],
    "names": [row[-1] for row in test_names.BESIDE],
    "containers": [row[-1] for row in test_containers.SHARDS],
    "values": [row[-1] for row in test_values.ARRAYS] + [row[-1] for row in test_values.TABLES],
    "resize": [row[-1] for row in test_resize.FILES],
}


@pytest.mark.parametrize("table", TABLES)
def test_ten_cases_come_from_public_reports(table: str) -> None:
    reports = [report for report in TABLES[table] if report]
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+#[0-9]+", report) for report in reports), reports
    assert len(reports) >= 10


def addresses(path: Path) -> set[str]:
    return set(REPORT.findall(path.read_text()))


@pytest.mark.parametrize("name", TESTS)
def test_there_are_ten_of_each_kind(name: str) -> None:
    assert len(addresses(HERE / f"{name}.py")) >= 10


def test_the_page_links_those_of_the_tests() -> None:
    page = HERE.parents[1] / "docs" / "wild-stores.md"
    assert addresses(page) == set().union(
        *(addresses(HERE / f"{name}.py") for name in [*TESTS, "test_addresses", "test_directory_buckets"])
    )
