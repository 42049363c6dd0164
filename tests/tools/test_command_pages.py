"""Tests man pages and the page of commands: every command and every option of its --help is there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOL = [sys.executable, str(ROOT / "tools/command_pages.py")]


def test_man_pages(millrace_bin: Path, tmp_path: Path) -> None:
    subprocess.run([*TOOL, millrace_bin, "man", tmp_path], check=True)
    pages = {path.stem: path.read_text() for path in tmp_path.iterdir()}
    assert {"millrace", "millrace-feed", "millrace-bench-compare", "millrace-checkpoint-gc", "millrace-top"} <= set(
        pages
    )
    for name, page in pages.items():
        assert page.startswith(f'.TH "{name.upper()}" 1 ') and ".SH NAME\n" in page
        for line in page.splitlines():  # nothing of the text is taken for a command of the typesetter
            assert not line.startswith("'")
            assert not line.startswith(".") or re.match(r"\.(TH|SH|nf|fi)\b", line), line
    text = subprocess.run([millrace_bin, "feed", "--help"], check=True, capture_output=True, text=True).stdout
    shown = pages["millrace-feed"].replace("\\-", "-").replace("\\&", "").replace("\\e", "\\")
    missing = [line for line in text.splitlines() if line.strip() and line.removeprefix("Usage: ") not in shown]
    assert not missing


def test_page_of_commands(millrace_bin: Path) -> None:
    page = subprocess.run([*TOOL, millrace_bin, "markdown"], check=True, capture_output=True, text=True).stdout
    headings = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    assert headings[:2] == ["Commands", "millrace"] and "millrace doctor host" in headings
    for option in ("--metrics-port", "--scenario", "--retries"):
        assert option in page


@pytest.mark.all
def test_site(millrace_bin: Path) -> None:
    """All pages are in the navigation, and links between them lead somewhere: mkdocs is strict."""
    subprocess.run(
        [ROOT / "scripts/docs"], check=True, env={"PATH": "/usr/bin:/bin", "MILLRACE_BIN": str(millrace_bin)}
    )
    pages = {path.name for path in (ROOT / "build/site").glob("*.html")}
    assert {path.with_suffix(".html").name for path in (ROOT / "docs").glob("*.md")} <= pages
    reference = (ROOT / "build/site/reference/python.html").read_text()
    for name in ("Loader", "Dataset", "Checkpoints", "configure"):
        assert f'id="millrace.{name}"' in reference
    assert "http" not in re.findall(r'<script[^>]*src="([^"]*)"', reference)
