"""Tests that sentences of pages get lines of their own, and that nothing else changes."""

from __future__ import annotations

import re

import pytest
import sentence_lines


@pytest.mark.parametrize(
    ("page", "written"),
    [
        ("One is\nhere. Two is. ", "One is here.\nTwo is."),
        ("- One. Two\n  is here.\n- Three.", "- One.\n  Two is here.\n- Three."),
        ("1. One. Two.", "1. One.\n   Two."),
        ("> One. Two\n> is.", "> One.\n> Two is."),
        ("Call `a. B` of [x. Y](b.md#C. D). It is.", "Call `a. B` of [x. Y](b.md#C. D).\nIt is."),
        ("It is J. Yang et al. It is e.g. This.", "It is J. Yang et al. It is e.g. This."),
        ("It has 0.5 of it. `x` is. lower", "It has 0.5 of it.\n`x` is. lower"),
        ("One. 2. Two.", "One. 2.\nTwo."),
    ],
)
def test_sentences(page: str, written: str) -> None:
    assert sentence_lines.reflow(page) == written
    assert sentence_lines.reflow(written) == written


@pytest.mark.parametrize(
    "page",
    [
        "# One. Two.",
        "| One. Two. | Three. Four. |\n|---|---|",
        "```\nOne. Two.\nThree.\n```",
        "> ```\n> One. Two.\n> ```",
        "<!-- One. Two.\nThree. -->",
        "One. Two.  \nThree.",
        "    One. Two.",
        "::: millrace\n    options:\n      show: false",
    ],
)
def test_kept(page: str) -> None:
    assert sentence_lines.reflow(page) == page


def test_words_stay() -> None:
    page = "- One. Two.\n\n  Three. Four\n  five.\n\n> Six. Seven.\n"
    assert re.sub(r"[\s>]+", " ", sentence_lines.reflow(page)) == re.sub(r"[\s>]+", " ", page)
