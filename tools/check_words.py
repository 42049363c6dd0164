#!/usr/bin/env python3
"""Counts texts that break the rules of STYLE.md ("English"), per file, and compares them with tools/words.json.

A count may only fall. `--update` writes lower counts (and those of new files) into tools/words.json, which belongs to the commit.

usage: check_words.py            exits 1 if a file has more findings than tools/words.json allows, and prints them
       check_words.py FILE...    prints all findings of these files
       check_words.py --update   writes today's counts, if none is above what is allowed
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
BASELINE = ROOT / "tools" / "words.json"
LONGEST_SENTENCE = 30  # words

# How a sentence must not begin: these open a fragment, or put the object before the subject.
OPENERS = re.compile(r"(Of|What|As which|By which|By whom|Whether|Whoever)\b(?! (is|are|does|do|was|if) [^.]*\?)")

# Words of a dialect -> the field's term.
FORBIDDEN: dict[str, str] = {
    r"\b[Mm]end(s|ed|ing)?\b": "fix",
    r"\b[Aa]new\b": "again",
    r"\b[Ll]ikewise\b": "say what it does",
    r"\b[Ww]hoever\b": "name the actor",
    r"\blets? go of\b": "release",
    r"\b(is|are|was|were|be|been) told\b": "is reported, is logged",
    r"\btells? of\b": "reports",
    r"\bat large\b": "global",
    r"\b(go|goes|went|going) on\b": "continues",
    r"\bthe least and the most\b": "min and max",
    r"\b(has|have|had) none\b": "does not have",
    r"\bother than what\b": "except",
}

# The rules are quoted there.
EXEMPT = {"STYLE.md", "tools/check_words.py", "tests/tools/test_check_words.py"}


class Finding(NamedTuple):
    line: int
    problem: str
    text: str


def of_markdown(text: str) -> Iterator[tuple[int, str]]:
    """Paragraphs, list items and cells of tables, without fenced blocks."""
    fenced = False
    start, block = 0, []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
            line = ""
        elif fenced:
            continue
        begins_item = re.match(r"\s*([-*|#>]|\d+\.|\w+: )", line)
        if block and (not line.strip() or begins_item):
            yield start, " ".join(block)
            block = []
        if not line.strip():
            continue
        if line.lstrip().startswith("|"):
            yield from ((number, cell) for cell in line.strip().strip("|").split("|"))
            continue
        if not block:
            start = number
        block.append(re.sub(r"^\s*([-*#>]+|\d+\.)\s+", "", line.strip()))


def of_comments(text: str, mark: str) -> Iterator[tuple[int, str]]:
    """Blocks of comments that begin their line, and comments that end one."""
    start, block = 0, []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        found = re.match(rf"\s*{mark}+!?\s?(.*)", line)
        if found and found[1].strip():
            if block and re.match(r"  |- \S", found[1]):  # a line of usage, or an item of a list
                yield start, " ".join(block)
                block = []
            if not block:
                start = number
            block.append(found[1].strip())
            continue
        if block:
            yield start, " ".join(block)
            block = []
        if trailing := re.search(rf"\s{mark}\s+([A-Z].*)", line):
            yield number, trailing[1]


def of_help(text: str) -> Iterator[tuple[int, str]]:
    """Paragraphs; lines that begin with spaces are examples and tables."""
    start, block = 0, []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.strip() and not line.startswith(" "):
            start = start if block else number
            block.append(line.strip())
        elif block:
            yield start, " ".join(block)
            block = []


def of_messages(text: str) -> Iterator[tuple[int, str]]:
    """String literals of C++ that hold a sentence; neighbours are one. Raw ones are texts of paragraphs, as those of help."""
    for raw in re.finditer(r'R"(\w*)\((.*?)\)\1"', text, re.DOTALL):
        if "\n" in raw[2]:
            first = text.count("\n", 0, raw.start()) + 1
            yield from ((first + line - 1, paragraph) for line, paragraph in of_help(raw[2]))
    for literal in re.finditer(r'"(?:[^"\\\n]|\\.)*"(?:\s+"(?:[^"\\\n]|\\.)*")*', text):
        message = re.sub(r'"\s+"', "", literal[0]).strip('"')
        if text[: literal.start()].endswith("#include "):
            continue
        for line in re.split(r"\\n", message):  # help has lines of examples, which begin with spaces
            if len(line.split()) >= 4 and not line.startswith("  "):
                yield text.count("\n", 0, literal.start()) + 1, line


def of_python(text: str) -> Iterator[tuple[int, str]]:
    """Comments and docstrings."""
    yield from of_comments(text, "#")
    before = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.STRING and before in (
            tokenize.NEWLINE,
            tokenize.INDENT,
            tokenize.NL,
            tokenize.ENCODING,
        ):
            for line, paragraph in of_markdown(token.string.strip("rbfRBF\"'")):
                yield token.start[0] + line - 1, paragraph
        if token.type not in (tokenize.COMMENT, tokenize.DEDENT):
            before = token.type


def blocks(path: str, text: str) -> Iterator[tuple[int, str]]:
    if path.endswith(".md"):
        return of_markdown(text)
    if path.endswith((".cc", ".h")):
        messages = of_messages(text) if path.startswith(("src/", "python/")) and not path.endswith("_test.cc") else ()
        return itertools.chain(of_comments(text, "//"), messages)
    return of_python(text) if path.endswith((".py", ".pyi")) else of_comments(text, "#")


def sentences(block: str) -> list[str]:
    block = re.sub(r"``.+?``|`[^`]*`", "CODE", block)
    parts = re.split(r"(?<=[.!?:;])\s+(?=[A-Z`\"(*\[])", block)
    return [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", part).strip(" *_\"'()") for part in parts]


def findings(path: str, text: str) -> list[Finding]:
    found = []
    for line, block in blocks(path, text):
        for sentence in sentences(block):
            shown = sentence if len(sentence) <= 90 else sentence[:87] + "..."
            if OPENERS.match(sentence) and " " in sentence:  # one word is the head of a column
                found.append(Finding(line, f"begins with '{sentence.split()[0]}'", shown))
            if (count := len(re.findall(r"[A-Za-z][\w'-]*", sentence))) > LONGEST_SENTENCE:
                found.append(Finding(line, f"{count} words in a sentence", shown))
            for pattern, instead in FORBIDDEN.items():
                if match := re.search(pattern, sentence):
                    found.append(Finding(line, f"'{match[0]}': {instead}", shown))
    return found


def texts() -> Iterator[str]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    for path in sorted(set(listed.stdout.decode().split("\0"))):
        named = path.endswith((".md", ".cc", ".h", ".py", ".pyi", "CMakeLists.txt", ".cmake")) or path.startswith(
            "scripts/"
        )
        if named and path not in EXEMPT and not path.endswith(".txt.in") and (ROOT / path).is_file():
            yield path


def main() -> int:
    parser = argparse.ArgumentParser(description="Counts texts that break the rules of STYLE.md.")
    parser.add_argument("files", nargs="*", help="print all findings of these")
    parser.add_argument("--update", action="store_true", help="write lower counts into tools/words.json")
    options = parser.parse_args()
    if options.files:
        for name in options.files:
            for finding in findings(name, Path(name).read_text()):
                print(f"{name}:{finding.line}: {finding.problem}: {finding.text}")
        return 0
    allowed: dict[str, int] = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    counts: Counter[str] = Counter()
    worse = 0
    for path in texts():
        found = findings(path, (ROOT / path).read_text())
        counts[path] = len(found)
        limit = allowed.get(path, 0)
        if BASELINE.exists() and len(found) > limit:
            worse += 1
            print(f"{path}: {len(found)} findings, {limit} allowed. All of them, since the new one is not known:")
            for finding in found:
                print(f"  {path}:{finding.line}: {finding.problem}: {finding.text}")
    if options.update and not worse:
        kept = {path: count for path, count in sorted(counts.items()) if count}
        BASELINE.write_text(json.dumps(kept, indent=0) + "\n")
    total = sum(counts.values())
    print(f"words: {total} findings in {sum(map(bool, counts.values()))} files; {worse} files have more than allowed")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
