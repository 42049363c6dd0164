"""`make demo-spot`, on the developer's build: it checks its own claims and exits 1 when one does not hold."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from .harness import REPOSITORY, binary


@pytest.mark.slow
@pytest.mark.all
def test_the_demo_of_spot_instances_keeps_its_promises() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "MILLRACE_"))}
    environment["MILLRACE_BINARY_DIR"] = str(binary().parents[1])
    command = [sys.executable, REPOSITORY / "examples/demo-spot/demo.py"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=800)
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"
    assert result.stdout.count("ok  ") == 9 and "NOT" not in result.stdout
    assert "none was lost, and none came twice" in result.stdout
    assert (
        len(re.findall(r"mounts .* at ", result.stderr)) == 3 and result.stderr.count("is now the volume of demo") == 3
    )
