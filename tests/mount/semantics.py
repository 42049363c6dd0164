"""Helpers of the tests of docs/semantics.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

quoted: list[str] = []


def says(*sentences: str) -> Callable[[Any], Any]:
    """The sentences of the document that the test is about."""
    quoted.extend(sentences)
    return lambda test: test


def refused(attempt: Callable[[], object], *codes: int) -> None:
    with pytest.raises(OSError) as error:
        attempt()
    assert error.value.errno in codes, error.value
