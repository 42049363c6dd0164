"""README.md names the tests of each fault: here each of them exists."""

from __future__ import annotations

import pathlib
import re

import pytest

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
ROW = re.compile(r"^\| ([CS]\d+) \| (.+?) \| (.+) \|$", re.MULTILINE)
NUMBERS = [*(f"C{number}" for number in range(1, 36)), *(f"S{number}" for number in range(1, 9))]
WITHOUT_TEST = ["S6"]


def rows() -> dict[str, str]:
    found = ROW.findall((HERE / "README.md").read_text(encoding="utf-8"))
    assert [number for number, _, _ in found] == NUMBERS
    return {number: tests for number, _, tests in found}


def named_in(text: str) -> dict[str, list[str]]:
    """Names of tests by file."""
    found: dict[str, list[str]] = {}
    for path, names in re.findall(r"`([\w./]+)` ([^`]+)", text):
        found.setdefault(path, []).extend(re.findall(r"\w+", names))
    return found


def is_there(path: str, name: str) -> bool:
    text = (REPOSITORY / path).read_text(encoding="utf-8")
    if path.endswith(".py"):
        return re.search(rf"^def {name}\(", text, re.MULTILINE) is not None
    return re.search(rf"^TEST(_F|_P)?\(\w+, {name}\)", text, re.MULTILINE) is not None


@pytest.mark.parametrize("number", NUMBERS)
def test_each_fault_has_tests_that_exist(number: str) -> None:
    text = rows()[number]
    if number in WITHOUT_TEST:
        assert text.startswith("none: ")
        return
    tests = named_in(text)
    assert tests
    for path, names in tests.items():
        assert names
        for name in names:
            assert is_there(path, name), f"{path} has no test {name}"


def test_the_check_sees_what_is_missing() -> None:
    assert is_there("tests/security/test_table.py", "test_the_check_sees_what_is_missing")
    assert not is_there("tests/security/test_table.py", "test_the_check")
    assert is_there("src/base/within_test.cc", "OpensWhatLiesInTheFoldersAndNothingElse")
    assert not is_there("src/base/within_test.cc", "OpensWhatLies")


def test_tests_with_a_number_are_in_the_table() -> None:
    """A test that has the number of a fault in its name is in the row of the fault."""
    named = {name for text in rows().values() for names in named_in(text).values() for name in names}
    for path in sorted(HERE.glob("test_*.py")):
        for name in re.findall(r"^def (test_[cs]\d+_\w+)\(", path.read_text(encoding="utf-8"), re.MULTILINE):
            assert name in named, f"{path.name}: {name}"
