"""Every table of inputs has at least ten cases that come from public reports.

A report is named `owner/name#number`, an issue or pull request on GitHub. A row without one is a sibling of the others."""

from __future__ import annotations

import re

import pytest
import test_containers
import test_decoders
import test_names
import test_resize
import test_values

TABLES = {
    "decoders": [row[-1] for row in test_decoders.FILES],
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
