"""Tests that figures in the README are those of docs/benchmarks.md, and each has a command that exists."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def figures(page: str) -> list[list[str]]:
    """Returns the cells of the rows below `| What | Figure | Beside | Command |`."""
    found = re.search(
        r"^\| What \| Figure \| Beside \| Command \|\n\|[-|]+\|\n((?:\|.*\n)+)", (ROOT / page).read_text(), re.MULTILINE
    )
    assert found, page
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in found[1].splitlines()]


def test_readme_has_no_figures_of_its_own() -> None:
    published = figures("docs/benchmarks.md")
    shown = figures("README.md")
    assert len(shown) >= 3 and all(row in published for row in shown)


def test_rates_are_those_of_the_json() -> None:
    """The chart of README is drawn from bench/published.json, and docs/benchmarks.md has the same figures."""
    report = json.loads((ROOT / "bench/published.json").read_text())
    table = (ROOT / "docs/benchmarks.md").read_text().partition("### Other loaders")[2]
    loaders = [report["scenarios"]["d"]["points"][0], *report["rivals"]]
    assert len(loaders) >= 8
    for loader in loaders:
        rate = loader["samples_per_second"]
        row = f"| {loader['name']} | {rate['median']:,} ({rate['least']:,} to {rate['most']:,}) |"
        assert row in table, row


def subcommands(millrace: Path) -> set[str]:
    told = subprocess.run([millrace, "--help"], capture_output=True, text=True, check=True, timeout=300).stdout
    return set(re.findall(r"^  ([a-z][a-z-]*)  ", told.partition(" commands:\n")[2], re.MULTILINE))


def test_each_figure_has_its_command(millrace_bin: Path) -> None:
    known = subcommands(millrace_bin)
    assert "bench" in known and "nonsense" not in known
    explained = (ROOT / "bench/README.md").read_text()
    for row in figures("docs/benchmarks.md"):
        assert len(row) == 4, row
        program = re.match(r"`(bench/[a-z0-9_/]+\.py|millrace [a-z-]+)(?![a-z-])", row[3])
        assert program, row
        if program[1].startswith("bench/"):
            assert (ROOT / program[1]).exists() and program[1].removeprefix("bench/") in explained, row
        else:
            assert program[1].removeprefix("millrace ") in known, row
