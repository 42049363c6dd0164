"""Says how much of the long tests runs: all of it by `make test-all` (MILLRACE_TEST_ALL=1), a twentieth by `make
test`."""

from __future__ import annotations

import os

ALL = bool(os.environ.get("MILLRACE_TEST_ALL"))


def repeats(full: int, least: int = 1) -> int:
    """Returns how many kills, examples and the like to make: `full` of them, or a twentieth, but `least`."""
    return full if ALL else max(least, full // 20)
