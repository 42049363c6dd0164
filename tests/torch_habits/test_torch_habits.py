"""Habits of torch users do here what they do in torch: programs of both kinds, side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import habits
import programs_arguments
import programs_iterators
import programs_loops
import programs_losses
import programs_ranks
import programs_states
import programs_structures
import programs_torchvision
import pytest

MODULES = [
    module.__name__
    for module in (
        programs_loops,
        programs_iterators,
        programs_states,
        programs_losses,
        programs_ranks,
        programs_arguments,
        programs_structures,
        programs_torchvision,
    )
]


@pytest.mark.parametrize("habit, case", habits.parameters(*MODULES))
def test_same(habit: habits.Habit, case: dict[str, Any], inputs: Callable[[str, str], Any]) -> None:
    habits.check(habit, case, inputs)
