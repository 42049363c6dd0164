"""docs/torch-habits.md is made from the programs, whose two sides differ by few lines."""

from __future__ import annotations

import habits_page
import pytest

ALL = [(module, one) for module in habits_page.MODULES for one in habits_page.programs(module)]
PROGRAMS = [(module, one) for module, one in ALL if isinstance(one, habits_page.Program)]


def test_the_page_is_that_of_the_programs() -> None:
    assert habits_page.PAGE.read_text() == habits_page.page(), "run tests/torch_habits/habits_page.py --write"


def test_all_programs_are_on_the_page() -> None:
    files = {path.stem.removeprefix("programs_") for path in habits_page.FOLDER.glob("programs_*.py")}
    assert files == set(habits_page.MODULES)
    assert len(PROGRAMS) >= 60
    assert len({one.words for _, one in PROGRAMS}) == len(PROGRAMS)


@pytest.mark.parametrize("module", habits_page.MODULES)
def test_few_lines_differ(module: str) -> None:
    for name, one in PROGRAMS:
        if name == module:
            removed, added = one.changes()
            assert len(added) <= 8, f"{one.words}: {added}"
            assert added or removed, f"{one.words}: both sides are the same"
