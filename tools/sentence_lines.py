#!/usr/bin/env python3
"""Puts each sentence of Markdown pages on a line of its own, so that a change of one sentence is a change of one line.

Fenced blocks, tables, headings, comments, blocks of extensions (":::", "!!!") and lines that end with a break stay as they are. The page is shown as before.

usage: sentence_lines.py FILE...          rewrites these pages
       sentence_lines.py --check FILE...  exits 1 and names the pages that it would change
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

# A point after these does not end a sentence.
_SHORT = re.compile(r"(?:\b(?:e\.g|i\.e|vs|cf|al|etc|St|Dr|No|approx)|\b[A-Z])\.$")
_KEPT = re.compile(r"\s*([|#<]|!\[|\[[^\]]+\]:|---|===|\$\$)")
_ITEM = re.compile(r"(\s*(?:[-*+]|\d+\.)\s+)(.*)")


def split(text: str) -> list[str]:
    """Returns the sentences of a paragraph."""
    masked = re.sub(r"`+[^`]*`+|\[[^\]]*\]\([^)]*\)|<[^>]*>", lambda found: "x" * len(found[0]), text)
    parts, begin = [], 0
    for end in re.finditer(r"[.!?][)\"'*_]*\s+(?=[\"'(*_\[`x]*[A-Zx0-9`\[])", masked):
        before = masked[begin : end.end()].rstrip().rstrip(")\"'*_")
        follows = text[end.end() : end.end() + 1]
        if _SHORT.search(before) or follows.islower():
            continue
        if re.match(
            r"\d+\. |[-+*] |#|>|\|", text[end.end() :]
        ):  # at the beginning of a line, this is a list or the like
            continue
        parts.append(text[begin : end.end()].rstrip())
        begin = end.end()
    return [*parts, text[begin:].rstrip()]


def reflow(page: str) -> str:
    out: list[str] = []
    block: list[str] = []
    fence = ""
    comment = False

    def flush() -> None:
        if not block:
            return
        quote = re.match(r"(\s*(?:>\s?)*)", block[0])
        prefix = quote[1] if quote else ""
        bodies = [re.sub(r"^\s*(?:>\s?)*", "", line) if ">" in prefix else line for line in block]
        item = _ITEM.match(bodies[0])
        marker = item[1] if item else ""
        indent = " " * len(marker) if item else re.match(r"\s*", bodies[0])[0]  # type: ignore[index]
        if block[0].startswith((":::", "!!!", "???")) or any(line.endswith(("  ", "\\")) for line in block[:-1]):
            out.extend(block)
        else:
            text = " ".join([(item[2] if item else bodies[0]).strip(), *(line.strip() for line in bodies[1:])])
            first = (prefix if ">" in prefix else "") + (marker or indent)
            rest = (prefix if ">" in prefix else "") + indent
            out.extend((first if number == 0 else rest) + part for number, part in enumerate(split(text)))
        block.clear()

    for line in page.split("\n"):
        stripped = line.strip().lstrip("> ")
        mark = re.match(r"(`{3,}|~{3,})", stripped)
        if fence:
            out.append(line)
            if mark and stripped.startswith(fence):
                fence = ""
            continue
        if comment or stripped.startswith("<!--"):
            flush()
            out.append(line)
            comment = "-->" not in line
            continue
        if mark:
            flush()
            fence = mark[1]
            out.append(line)
        elif not stripped or _KEPT.match(line) or _KEPT.match(stripped):
            flush()
            out.append(line)
        else:
            indented = re.match(r" {4,}", line) and not block and not (out and out[-1].strip())
            if indented and not _ITEM.match(line):  # a block of code, or a paragraph of an item
                out.append(line)
                continue
            quoted = line.lstrip().startswith(">")
            if block and (_ITEM.match(line.lstrip("> ")) or quoted != block[0].lstrip().startswith(">")):
                flush()
            block.append(line)
    flush()
    return "\n".join(out)


def main() -> int:
    parser = argparse.ArgumentParser(description="Puts each sentence of Markdown pages on a line of its own.")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    other = 0
    for path in options.files:
        page = path.read_text()
        if (written := reflow(page)) == page:
            continue
        other += 1
        if options.check:
            print(f"{path}: sentences share lines: run tools/sentence_lines.py {path}")
        else:
            path.write_text(written)
    return 1 if options.check and other else 0


if __name__ == "__main__":
    sys.exit(main())
