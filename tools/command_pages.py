#!/usr/bin/env python3
"""Makes pages of what `millrace COMMAND --help` says: man pages, or one page of Markdown.

usage: command_pages.py MILLRACE man FOLDER      FOLDER/millrace.1, FOLDER/millrace-feed.1, ...
       command_pages.py MILLRACE markdown        to standard output
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path


def help_of(binary: str, words: tuple[str, ...]) -> str:
    return subprocess.run([binary, *words, "--help"], check=True, capture_output=True, text=True).stdout


def sub_commands(text: str) -> list[str]:
    """Names in the sections "Subcommands:" and "... commands:", whose lines are indented by two blanks."""
    sections = re.findall(r"^(?:Subcommands|[A-Z][a-z]+ commands):\n((?:  .*\n)+)", text, re.MULTILINE)
    return [name for section in sections for name in re.findall(r"^  (\S+)", section, re.MULTILINE)]


def pages(binary: str, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """The words of each command, and its help: the command itself first, then those below it."""
    text = help_of(binary, words)
    yield words, text
    for name in sub_commands(text):
        yield from pages(binary, (*words, name))


def roff(text: str) -> str:
    """Text as it is, for a man page."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "".join((f"\\&{line}" if line.startswith((".", "'")) else line) + "\n" for line in text.splitlines())


def man_page(words: tuple[str, ...], text: str, version: str) -> str:
    name = "-".join(("millrace", *words))
    summary, rest = text.split("\n", 1)
    usage, rest = rest.split("\n", 1) if rest.startswith("Usage:") else ("", rest)
    parts = [
        f'.TH "{name.upper()}" 1 "" "millrace {version}" "Millrace"\n',
        f".SH NAME\n{roff(name)[:-1]} \\- {roff(summary)}",
    ]
    parts.append(f".SH SYNOPSIS\n.nf\n{roff(usage.removeprefix('Usage: '))}.fi\n")
    parts.append(f".SH DESCRIPTION\n.nf\n{roff(rest.strip())}.fi\n")
    return "".join(parts)


def write_man_pages(binary: str, folder: Path) -> None:
    version = subprocess.run([binary, "--version"], check=True, capture_output=True, text=True).stdout.split()[-1]
    folder.mkdir(parents=True, exist_ok=True)
    for words, text in pages(binary):
        (folder / ("-".join(("millrace", *words)) + ".1")).write_text(man_page(words, text, version))


def markdown(binary: str) -> str:
    parts = ["# Commands\n\nWhat `millrace COMMAND --help` says.\n"]
    for words, text in pages(binary):
        heading = "#" * min(4, 2 + max(0, len(words) - 1))
        parts.append(f"\n{heading} {' '.join(('millrace', *words))}\n\n```\n{text.strip()}\n```\n")
    return "".join(parts)


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[2] == "man":
        write_man_pages(sys.argv[1], Path(sys.argv[3]))
    elif len(sys.argv) == 3 and sys.argv[2] == "markdown":
        sys.stdout.write(markdown(sys.argv[1]))
    else:
        sys.exit(__doc__)
