"""bench/scale: the simulation asks a store for exactly what a feed asks for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_counts_are_those_of_a_feed(millrace_bin: Path, tmp_path: Path) -> None:
    """For up to 4 ranks, in all orders. Only counts: nothing depends on how fast this machine is."""
    figures = tmp_path / "figures.json"
    command = [
        sys.executable,
        ROOT / "bench/scale/check.py",
        "--counts-only",
        "--build",
        millrace_bin.parent,
        "--json",
        figures,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(figures.read_text())
    assert len(rows) == 7
    for row in rows:
        fed, simulated = row["requests"]
        assert fed - row["again"] <= simulated <= fed and simulated > 0, row
        fed, simulated = row["bytes"]
        assert fed == simulated > 0 or (row["again"] and fed > simulated > 0), row
    # All ranks read the extents that they share: three of them make more requests than four, whose lanes are their own.
    requests = {row["case"]: row["requests"][0] for row in rows}
    assert 2 * requests["window, 4 ranks"] < 1.5 * requests["window, 3 ranks"]
