"""Tests pages that quote programs: each message of docs/troubleshooting.md exists, and each picture is what
tools/pictures.py draws."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/troubleshooting.md").read_text()


def messages() -> list[str]:
    return re.findall(r'^\| "([^|]+)" \|', PAGE, re.MULTILINE)


def source() -> str:
    """Returns all code without the breaks between parts of a literal."""
    files = [
        *(ROOT / "src").rglob("*.cc"),
        *(ROOT / "src").rglob("*.h"),
        *(ROOT / "python").rglob("*.cc"),
        *(ROOT / "python").rglob("*.py"),
    ]
    text = "\n".join(path.read_text() for path in files if not path.name.endswith(("_test.cc", "_fuzz.cc")))
    return re.sub(r'"\s+f?"', "", text)


def missing(quoted: list[str], code: str) -> list[str]:
    return [message for message in quoted if not all(part.strip() in code for part in message.split("..."))]


def test_each_message_is_in_the_code() -> None:
    assert len(messages()) >= 30
    code = source()
    assert missing(messages(), code) == []
    assert missing(["no program says ... this"], code)


def test_each_variable_is_on_its_page() -> None:
    """docs/reference/environment.md has all variables of ours that programs read or set, and no others."""
    page = set(re.findall(r"\bMILLRACE_[A-Z0-9_]+", (ROOT / "docs/reference/environment.md").read_text()))
    # A channel between our own programs; credentials on their way to git; what only the build and tests set.
    inner = {
        "MILLRACE_REPORT_FD",
        "MILLRACE_GIT_USER",
        "MILLRACE_GIT_PASSWORD",
        "MILLRACE_VERSION",
        "MILLRACE_SHEET_FONT",
    }
    found = set(re.findall(r"""["'$]\{?(MILLRACE_[A-Z0-9_]+)""", source())) - inner
    tests_only = {
        name for name in found if name.startswith(("MILLRACE_TEST", "MILLRACE_PROCESS_TEST", "MILLRACE_SOURCE_DIR"))
    }
    assert page == found - tests_only


def test_each_schema_is_on_its_page() -> None:
    """docs/reference/json.md has the schemas of all lines of --json, and no others."""
    page = re.findall(r"^\| `millrace\.([a-z.]+)/1` \|", (ROOT / "docs/reference/json.md").read_text(), re.MULTILINE)
    found = re.findall(r'Versioned\("([a-z.]+)"\)|"schema": "millrace\.([a-z.]+)/1"', source())
    found = [command or of_python for command, of_python in found]
    assert len(page) == len(set(page)) and set(page) == set(found)


def test_pictures_are_drawn_by_the_program() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools/pictures.py", "--check"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr


def test_links_to_pages_and_headings_exist() -> None:
    """README and the pages of the site link to files and headings that exist."""

    def anchors(text: str) -> set[str]:
        heads = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
        plain = (re.sub(r"\[([^]]*)\]\([^)]*\)|`", r"\1", head).lower() for head in heads)
        return {re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", head)).strip("-") for head in plain}

    wrong = []
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs/reference").glob("*.md")]:
        for target, anchor in re.findall(r"\]\(([\w./-]*\.md)?(?:#([\w-]+))?\)", page.read_text()):
            path = page.parent / target if target else page
            if target == "reference/commands.md":  # made from --help
                continue
            if not path.exists() or anchor and anchor not in anchors(path.read_text()):
                wrong.append(f"{page.name}: {target}#{anchor}")
    assert wrong == []
