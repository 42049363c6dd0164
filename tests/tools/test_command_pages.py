"""Tests man pages and the page of commands: every command and every option of its --help is there."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

NODE = shutil.which("node")
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


@pytest.fixture(scope="module")
def site(millrace_bin: Path) -> Path:
    """Builds the site. All pages are in the navigation, and links between them lead somewhere: mkdocs is strict."""
    subprocess.run(
        [ROOT / "scripts/docs"], check=True, env={"PATH": "/usr/bin:/bin", "MILLRACE_BIN": str(millrace_bin)}
    )
    return ROOT / "build/site"


@pytest.mark.all
def test_site(site: Path) -> None:
    pages = {path.name for path in site.glob("*.html")}
    assert {path.with_suffix(".html").name for path in (ROOT / "docs").glob("*.md")} <= pages
    reference = (site / "reference/python.html").read_text()
    for name in ("Loader", "Dataset", "Checkpoints", "configure"):
        assert f'id="millrace.{name}"' in reference
    assert "http" not in re.findall(r'<script[^>]*src="([^"]*)"', reference)


# The words that readers type -> the place that answers, and a text that stands there.
QUESTIONS = {
    "resume on other GPUs": ("distributed.html#resume-on-other-gpus", "load_state_dict"),
    "IAM policy": ("production.html#iam-policies", "s3:GetObject"),
    "why is my loader slow?": ("tuning.html", "report()"),
    "masks": ("python.html#masks", "join="),
    "last batch": ("distributed.html#the-last-batch", "last="),
}


@pytest.mark.all
def test_the_index_of_the_site_answers_five_questions(site: Path) -> None:
    """The words of each question are in the title of the section that answers it."""
    docs = {doc["location"]: doc for doc in json.loads((site / "search/search_index.json").read_text())["docs"]}
    for query, (place, answer) in QUESTIONS.items():
        title, text = (re.sub(r"<[^>]*>", "", docs[place][part]).lower() for part in ("title", "text"))
        words = re.findall(r"\w+", query.lower())
        assert all(word.removesuffix("y") in title for word in words), (query, title)
        assert answer.lower() in title + text, (query, text)


@pytest.mark.all
@pytest.mark.skipif(NODE is None, reason="needs Node.js")
def test_the_search_box_finds_the_answers(site: Path) -> None:
    done = subprocess.run(
        [str(NODE), ROOT / "tests/tools/search_site.js", site, *QUESTIONS, "xyzzy"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for query, (place, _) in QUESTIONS.items():
        best = [page[:2] for page in found[query][:3]]  # what one sees without scrolling
        assert any(place in page for page in best), (query, best)
    assert found["xyzzy"] == []
