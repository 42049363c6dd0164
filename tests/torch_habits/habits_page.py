#!/usr/bin/env python3
"""Writes docs/torch-habits.md from the programs: `habits_page.py --write`. Without the option, prints the page.

The columns are what differs between the two sides of a program. Sources are parsed, not imported, so that no framework is needed.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import pathlib
import sys
from collections.abc import Iterator

FOLDER = pathlib.Path(__file__).resolve().parent
PAGE = FOLDER.parents[1] / "docs" / "torch-habits.md"
MODULES = [
    "loops",
    "iterators",
    "states",
    "losses",
    "ranks",
    "arguments",
    "structures",
    "torchvision",
    "lightning",
    "huggingface",
]

HEAD = """# Habits of torch

Programs that are written from habit do here what they do in torch. Each row of these tables is a program, which the tests run twice (`tests/torch_habits`).
The second run has the lines of the third column in place of those of the second one. The last column says what is equal.

`dataset` is a map-style data set, and `uri` names the same samples: a folder or a bucket. The images of these programs have 16 x 16 pixels, hence `size=16`.
A program with `shuffle=True` compares which samples came, and not their order, since the order is Millrace's own ([plan.md](plan.md)).

This page is made by `tests/torch_habits/habits_page.py --write`.
"""


@dataclasses.dataclass
class Program:
    words: str
    same: str
    torch: list[str]
    """Its lines, of which each is a statement or the head of one."""
    ours: list[str]

    def changes(self) -> tuple[list[str], list[str]]:
        """The lines that only one side has, in their order."""
        removed, added = [], []
        matcher = difflib.SequenceMatcher(None, self.torch, self.ours, autojunk=False)
        for kind, start, end, other_start, other_end in matcher.get_opcodes():
            if kind != "equal":
                removed += self.torch[start:end]
                added += self.ours[other_start:other_end]
        return removed, added


def lines(source: str, body: list[ast.stmt]) -> Iterator[str]:
    """As they are written; a statement of several lines becomes one."""

    def head(node: ast.stmt | ast.excepthandler, end: int | None) -> str:
        if node.lineno == end:
            return source.splitlines()[node.lineno - 1].strip()
        return ast.unparse(node).splitlines()[0]

    for statement in body:
        inner = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
        if not any(inner):
            yield head(statement, statement.end_lineno)
            continue
        yield head(statement, inner[0][0].lineno - 1)
        yield from lines(source, inner[0])
        for handler in getattr(statement, "handlers", []):
            yield head(handler, handler.body[0].lineno - 1)
            yield from lines(source, handler.body)
        yield from lines(source, inner[1] + inner[2])


def _code(line: str) -> str:
    if '"' not in line:
        line = line.replace("'", '"')
    return f"`{line}`".replace("|", "\\|")


def programs(module: str) -> Iterator[str | Program]:
    """Headings and programs, in their order."""
    found: Program | None = None
    source = (FOLDER / f"programs_{module}.py").read_text()
    for node in ast.parse(source).body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "group":
            yield ast.literal_eval(node.value.args[0])
        if not isinstance(node, ast.FunctionDef) or not node.decorator_list:
            continue
        decorator = node.decorator_list[0]
        assert isinstance(decorator, ast.Call)
        if ast.unparse(decorator.func) == "habit":
            (same,) = [keyword.value for keyword in decorator.keywords if keyword.arg == "same"]
            found = Program(
                ast.literal_eval(decorator.args[0]), ast.literal_eval(same), list(lines(source, node.body)), []
            )
        else:
            assert found is not None
            found.ours = list(lines(source, node.body))
            yield found


def page() -> str:
    out = [HEAD]
    for module in MODULES:
        for found in programs(module):
            if isinstance(found, str):
                out.append(f"\n## {found}\n\n| Habit | torch | Millrace | The same |\n|---|---|---|---|\n")
                continue
            theirs, mine = ("<br>".join(map(_code, side)) or "the same line" for side in found.changes())
            out.append(f"| {found.words} | {theirs} | {mine} | {found.same} |\n")
    return "".join(out)


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(page())
    else:
        print(page(), end="")
