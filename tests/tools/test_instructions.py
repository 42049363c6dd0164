"""bench/instructions.py: no hot path takes more instructions than the repository says, and one that did would be found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "bench/instructions.json"


def instructions(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, ROOT / "bench/instructions.py", *map(str, arguments)], capture_output=True, text=True, check=False)


def test_hot_paths_take_no_more_than_before(millrace_bin: Path) -> None:
    done = instructions("--build", millrace_bin.parents[1])
    if done.returncode == 77:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(name in done.stdout for name in json.loads(TABLE.read_text())["instructions"])


def test_a_path_that_takes_more_is_found(tmp_path: Path) -> None:
    known = json.loads(TABLE.read_text())["instructions"]
    figures = tmp_path / "figures.json"

    def compared(counted: dict[str, float]) -> subprocess.CompletedProcess[str]:
        figures.write_text(json.dumps(counted))
        return instructions("--figures", figures)

    assert compared(known).returncode == 0
    assert compared(known | {"plan-window": 1.1 * known["plan-window"], "s3-get": 0.9 * known["s3-get"]}).returncode == 0
    more = compared(known | {"plan-window": 1.2 * known["plan-window"]})
    assert more.returncode == 1 and "plan-window takes 1.20 times" in more.stderr and "--update" in more.stderr
    fewer = compared(known | {"plan-window": 0.5 * known["plan-window"]})
    assert fewer.returncode == 0 and "fewer than before" in fewer.stdout
    without = compared({name: number for name, number in known.items() if name != "s3-get"})
    assert without.returncode == 1 and "s3-get is in the file, but is not counted any more" in without.stderr
    assert "new is not in the file" in compared(known | {"new": 1.0}).stderr


def test_other_programs_are_not_compared(tmp_path: Path) -> None:
    done = instructions("--build", tmp_path)
    assert done.returncode == 77 and done.stderr
