"""The programs of torchvision with torchvision itself, in an environment of its own (test_torch_habits_of_frameworks.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import habits
import programs_torchvision
import pytest
import vision


def test_it_is_torchvision() -> None:
    assert vision.IS_TORCHVISION


@pytest.mark.parametrize("habit, case", habits.parameters(programs_torchvision.__name__))
def test_same(habit: habits.Habit, case: dict[str, Any], inputs: Callable[[str, str], Any]) -> None:
    habits.check(habit, case, inputs)
