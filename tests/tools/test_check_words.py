"""The lint of texts finds what it says it finds, and lets counts only fall."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import check_words
import pytest
import sentence_verbs

ROOT = Path(__file__).resolve().parents[2]


def problems(path: str, text: str) -> list[str]:
    return [finding.problem for finding in check_words.findings(path, text)]


@pytest.mark.parametrize(
    ("path", "text", "problem"),
    [
        ("a.md", "Of all files, the first.", "begins with 'Of'"),
        ("a.md", "Files are read.\n\n- What is kept stays.", "begins with 'What'"),
        ("a.md", "| a | It is read anew. |", "'anew': again"),
        ("a.h", "int a;  // What is left.\n", "begins with 'What'"),
        ("a.cc", "  // The loop\n  // goes on here.\n", "'goes on': continues"),
        ("src/a.cc", 'auto m = "the request "\n  "is mended by hand";\n', "'mended': fix"),
        ("src/a.cc", 'help("All of it.\\n\\nOf several the first one counts.");\n', "begins with 'Of'"),
        ("src/a.cc", 'auto m = R"(All of it.\n\nOf several the first\none counts.\n)";\n', "begins with 'Of'"),
        ("a.py", '"""Of the images."""\n', "begins with 'Of'"),
        ("a.py", "x = 1  # Likewise for y.\n", "'Likewise': say what it does"),
        ("a.cmake", "# What whoever needs.\n", "'whoever': name the actor"),
        ("a.md", " ".join(["word"] * 31) + ".", "31 words in a sentence"),
    ],
)
def test_findings(path: str, text: str, problem: str) -> None:
    assert problem in problems(path, text)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.md", "```\nOf what is mended anew.\n```\nThe file is read again."),
        ("a.md", "What is a shard?"),
        ("a.md", " ".join(["word"] * 20) + ". [" + " ".join(["link"] * 20) + "](b.md)."),
        ("a.md", "| What | Figure |\n|---|---|"),
        ("a.md", " ".join(["word"] * 30) + "."),
        ("a.md", "Run `whoever --anew`."),
        ("a.cc", 'auto m = "anew";  // one word is not a message\n'),
        ("src/a.cc", 'help("Examples:\\n' + "  millrace ls a b c d\\n" * 9 + '");\n'),
        ("src/a.cc", 'auto m = R"(Examples:\n' + "  millrace ls a b c d\n" * 9 + ')";\n'),
        ("a.py", 'x = "Of all"\n'),
        ("a.h", "// Cases:\n" + "// - " + "one " * 20 + "\n// - " + "two " * 20 + "\n"),
        ("a.cmake", "#   " + " ".join(["one"] * 20) + "\n#   " + " ".join(["two"] * 20) + "\n"),
    ],
)
def test_nothing_to_find(path: str, text: str) -> None:
    assert problems(path, text) == []


@pytest.mark.parametrize(
    "sentence",
    [
        "Returns the size of the file.",
        "Read it before the call.",
        "The store answers in any order.",
        "The keys of a profile come from one file.",
        "If the disk is full, nothing is written.",
        "Threads that wait share one lock.",
        "Only files that are open are counted.",
        "There is no index.",
    ],
)
def test_sentences(sentence: str) -> None:
    assert sentence_verbs.has_verb(sentence)


@pytest.mark.parametrize(
    "fragment",
    [
        "The size of the file.",
        "The bytes that are read for an index.",
        "What is left of the data.",
        "Whether the store has an answer.",
        "Of all files, the first.",
        "For people, in their own time zone.",
        "A list of reads, in the order in which they came.",
        "Used by the consumer alone.",
        "The same for machines.",
        "Bytes of any length, one for each row.",
        "If nothing is known of the other worker.",
    ],
)
def test_fragments(fragment: str) -> None:
    assert not sentence_verbs.has_verb(fragment)


def test_openings_are_those_of_comments_with_lines_of_their_own() -> None:
    text = """/// The size of a file. It is in bytes.
int a;  // The number of them
//   The table of it    A long line
// ---- The other part of it
// Holds the names of users:
// - One of many things
int F();
"""
    assert [line for line, _ in check_words.openings("src/a.h", text)] == [1]
    found, total = check_words.fragments("src/a.h", text)
    assert ([finding.line for finding in found], total) == ([1], 1)
    python = '"""The parts of a page."""\n\n# The second one of them\nx = "The text of a value"\n'
    assert [line for line, _ in check_words.openings("a.py", python)] == [3, 1]


def test_too_many_fragments_fail(tmp_path: Path) -> None:
    script = repository(tmp_path, "Text.", {})
    (tmp_path / "src").mkdir()
    comments = ["// Returns the size of it.\nint F();\n"] * 97 + ["// The size of the file.\nint F();\n"] * 3
    (tmp_path / "src" / "a.h").write_text("\n".join(comments))
    assert subprocess.run([sys.executable, script]).returncode == 0
    (tmp_path / "src" / "a.h").write_text("\n".join(comments[1:]))
    failed = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert failed.returncode == 1 and "3 of 99 comments open with a fragment" in failed.stdout
    shown = subprocess.run([sys.executable, script, "--fragments"], capture_output=True, text=True)
    assert "src/a.h:" in shown.stdout and "The size of the file." in shown.stdout


def repository(folder: Path, text: str, allowed: dict[str, int]) -> Path:
    (folder / "tools").mkdir()
    script = folder / "tools" / "check_words.py"
    script.write_text((ROOT / "tools" / "check_words.py").read_text())
    (folder / "tools" / "sentence_verbs.py").write_text((ROOT / "tools" / "sentence_verbs.py").read_text())
    (folder / "tools" / "words.json").write_text(json.dumps(allowed))
    (folder / "a.md").write_text(text)
    subprocess.run(["git", "init", "-q", folder], check=True)
    return script


def test_counts_may_only_fall(tmp_path: Path) -> None:
    script = repository(tmp_path, "It is read anew. Of all.", {"a.md": 2})
    command = [sys.executable, script]
    assert subprocess.run(command).returncode == 0
    (tmp_path / "a.md").write_text("It is read anew. Of all. Likewise.")
    failed = subprocess.run(command, capture_output=True, text=True)
    assert failed.returncode == 1 and "a.md:1: 'Likewise'" in failed.stdout
    assert subprocess.run([*command, "--update"], capture_output=True).returncode == 1
    (tmp_path / "a.md").write_text("It is read anew.")
    assert subprocess.run([*command, "--update"]).returncode == 0
    assert json.loads((tmp_path / "tools" / "words.json").read_text()) == {"a.md": 1}


def test_the_repository() -> None:
    result = subprocess.run([sys.executable, ROOT / "tools" / "check_words.py"], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout
