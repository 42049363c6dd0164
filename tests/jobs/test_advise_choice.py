"""bench/advise_choice.py: three data sets, each with an answer, AWS's flow, and a stopwatch for every way. How good the answers are, is for a quiet machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.all


def test_three_data_sets(millrace_bin: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.json"
    command = [sys.executable, ROOT / "bench/advise_choice.py", "--quick", "--build", millrace_bin.parent]
    done = subprocess.run([*command, "--json", rows], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    choices = json.loads(rows.read_text())
    assert [one["flow"] for one in choices] == ["pack, then file", "pack, then file", "fastfile"]
    for one in choices:
        assert [line.split(":")[0] for line in one["answer"]] == ["Do", "Cost", "Time", "Otherwise", "Limit"]
        assert "for 3 epochs" in one["answer"][1] and "for this at $1.00 an hour" in one["answer"][1]
        assert {"streaming", "streaming-cache", "file"} <= set(one["measured"]) <= set(one["predicted"])
        assert all(seconds > 0 for seconds in one["measured"].values())
        assert one["lost"] == one["measured"][one["taken"]] / min(one["measured"].values()) - 1 >= 0
        fastest = min(one["measured"], key=lambda mode: one["predicted"][mode])
        assert one["taken"] == (one["chosen"] if one["chosen"] in one["measured"] else fastest)
        least = min(one["predicted"][mode] for mode in [one["chosen"], *one["equal"]])
        assert all(one["predicted"][mode] <= 1.05 * least + 1e-9 for mode in [one["chosen"], *one["equal"]])
