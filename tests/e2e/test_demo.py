"""`make demo`, on the developer's build: it checks its own claims and exits 1 when one does not hold."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .harness import REPOSITORY, binary


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_the_demo_keeps_its_promises() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "MILLRACE_"))}
    environment["MILLRACE_BINARY_DIR"] = str(binary().parents[1])
    environment["OMP_NUM_THREADS"] = "1"  # other tests run beside it
    result = subprocess.run(
        [REPOSITORY / "examples/demo/run"], env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"
    said = result.stdout
    assert "test accuracy" in said and "their digests add up" in said
    # The output of a command stands below it.
    for command, printed in (
        ("pack", r"packed 60000 samples into \d+ shards, "),
        ("ls", r"[\d: -]+ +\d+ shard-000000\.tar"),
        ("feed", r'\{"schema":"millrace\.feed/\d+","samples":120000,'),
    ):
        assert re.search(rf"\$ millrace {command} .*\n +\| (?:.*\n +\| )*?{printed}", said), f"{command}: {said}"
    assert re.search(r"\] Removing the work folder (\S+) \.\.\.\n\nWhat happened\n", said), said
    folder = re.search(r"Removing the work folder (\S+)", said)
    assert folder and not Path(folder[1]).exists()
    # The next steps work as they stand.
    export = re.search(r'^  (export PATH=".*")$', said, re.MULTILINE)
    assert export, said
    script = f'{export[1]} && millrace --version && {sys.executable} -c "import millrace; print(millrace.__file__)"'
    found = subprocess.run(
        ["sh", "-c", script], cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0 and str(binary().parents[1]) in found.stdout, f"{found.stdout}\n{found.stderr}"
