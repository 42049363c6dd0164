"""The faults of tests/power still apply to the sources, so `make test-all` does not find out first."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATCHES = sorted((ROOT / "tests" / "power").glob("*.patch"))


def test_there_are_faults() -> None:
    assert len(PATCHES) >= 20


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.stem)
def test_a_fault_applies(patch: Path) -> None:
    checked = subprocess.run(
        ["git", "-C", str(ROOT), "apply", "--check", str(patch)], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, f"edit the source as {patch.name} does, and save its diff there:\n{checked.stderr}"
