#!/usr/bin/env python3
"""Counts texts that break the rules of STYLE.md ("English"), per file, and compares them with tools/words.json.

At most 3 % of the comment blocks in src, python and bench may open with a fragment: a sentence without a verb
(tools/sentence_verbs.py).

A count may only fall. `--update` writes lower counts (and those of new files) into tools/words.json, which belongs to the commit.

usage: check_words.py            exits 1 if a file has more findings than tools/words.json allows, or if there are too many fragments
       check_words.py FILE...    prints all findings of these files
       check_words.py --fragments [FOLDER...]  prints all fragments
       check_words.py --update   writes today's counts, if none is above what is allowed
"""

from __future__ import annotations

import argparse
import ast
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

sys.path.append(str(Path(__file__).resolve().parent))
from sentence_verbs import has_verb  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
BASELINE = ROOT / "tools" / "words.json"
LONGEST_SENTENCE = 30  # words
FRAGMENTS_IN = ("src/", "python/", "bench/")
MOST_FRAGMENTS = 0.03  # of the blocks of comments there

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
            for line, paragraph in of_markdown(
                re.sub(r"^[rbfuRBFU]*(\"\"\"|'''|[\"'])|(\"\"\"|'''|[\"'])$", "", token.string)
            ):
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


def docstring_lines(text: str) -> set[int]:
    """Returns the lines on which docstrings of modules, classes and functions begin."""
    lines = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if ast.get_docstring(node, clean=False) is not None:
                lines.add(node.body[0].lineno)
    return lines


def openings(path: str, text: str) -> Iterator[tuple[int, str]]:
    """Yields the first sentence of each comment that has lines of its own, and of each docstring. Code, tables, rules
    and heads of lists are left out."""
    lines = text.splitlines()
    mark = "//" if path.endswith((".cc", ".h")) else "#"
    begins = docstring_lines(text) if path.endswith((".py", ".pyi")) else set()
    for line, block in of_python(text) if begins or mark == "#" and path.endswith(".py") else of_comments(text, mark):
        shown = lines[line - 1].lstrip()
        if line not in begins and not re.match(rf"{mark}+!? ?[^\s/!#]", shown):
            continue
        first = sentences(block)[0]
        is_code = re.match(r"[A-Z_]{3,}\s|[\w:<>. ]+\(|[\w:]+[({]|(NOLINT|SPDX)", first) or "  " in first
        if first[:1].isupper() and len(first.split()) >= 3 and not is_code and not first.endswith(":"):
            yield line, first


def fragments(path: str, text: str) -> tuple[list[Finding], int]:
    """Returns the openings of comments that have no verb, and the number of all openings."""
    all_of_them = list(openings(path, text))
    found = [Finding(line, "no verb", first) for line, first in all_of_them if not has_verb(first)]
    return found, len(all_of_them)


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


def print_fragments(folders: tuple[str, ...]) -> int:
    opened = count = 0
    for path in texts():
        if path.startswith(folders) and not path.endswith(".md"):
            found, total = fragments(path, (ROOT / path).read_text())
            opened, count = opened + total, count + len(found)
            for finding in found:
                print(f"{path}:{finding.line}: {finding.text}")
    print(f"words: {count} of {opened} comments open with a fragment")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Counts texts that break the rules of STYLE.md.")
    parser.add_argument("files", nargs="*", help="print all findings of these")
    parser.add_argument("--fragments", action="store_true", help="print the fragments that open comments")
    parser.add_argument("--update", action="store_true", help="write lower counts into tools/words.json")
    options = parser.parse_args()
    if options.fragments:
        return print_fragments(tuple(options.files) or FRAGMENTS_IN)
    if options.files:
        for name in options.files:
            for finding in findings(name, Path(name).read_text()):
                print(f"{name}:{finding.line}: {finding.problem}: {finding.text}")
        return 0
    allowed: dict[str, int] = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    counts: Counter[str] = Counter()
    worse = 0
    opened = without_verb = 0
    for path in texts():
        text = (ROOT / path).read_text()
        found = findings(path, text)
        if path.startswith(FRAGMENTS_IN) and not path.endswith(".md"):
            of_file, total = fragments(path, text)
            opened += total
            without_verb += len(of_file)
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
    print(f"words: {without_verb} of {opened} comments open with a fragment; {MOST_FRAGMENTS:.0%} may")
    return 1 if worse or without_verb > MOST_FRAGMENTS * opened else 0


if __name__ == "__main__":
    sys.exit(main())
