"""`make demo`, on the developer's build: it checks its own claims and exits 1 when one does not hold."""

from __future__ import annotations

import os
import subprocess

import pytest

from .harness import REPOSITORY, binary


@pytest.mark.slow
def test_the_demo_keeps_its_promises() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "MILLRACE_"))}
    environment["MILLRACE_BINARY_DIR"] = str(binary().parents[1])
    environment["OMP_NUM_THREADS"] = "1"  # other tests run beside it
    result = subprocess.run(
        [REPOSITORY / "examples/demo/run"], env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"
    assert "test accuracy" in result.stdout and "their digests add up" in result.stdout
