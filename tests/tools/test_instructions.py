"""Tests bench/instructions.py: no hot path takes more instructions than the repository says, and one that did would be
found."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "bench/instructions.json"


def instructions(*arguments: object, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "bench/instructions.py", *map(str, arguments)]
    return subprocess.run(command, env={**os.environ, **(env or {})}, capture_output=True, text=True, check=False)


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
    assert (
        compared(known | {"plan-window": 1.1 * known["plan-window"], "s3-get": 0.9 * known["s3-get"]}).returncode == 0
    )
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


def test_where_valgrind_does_not_work_nothing_is_compared(millrace_bin: Path, tmp_path: Path) -> None:
    valgrind = tmp_path / "valgrind"
    valgrind.write_text("#!/bin/sh\necho 'no valgrind here' >&2\nexit 1\n")
    valgrind.chmod(0o755)
    done = instructions("--build", millrace_bin.parents[1], env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert done.returncode == 77
    assert "no valgrind here" in done.stderr or "processor" in done.stderr  # one without AVX2 is told of first


@pytest.mark.parametrize("noisy_runs", [0, 1, 5])
def test_what_seems_to_take_more_is_counted_again(monkeypatch: pytest.MonkeyPatch, noisy_runs: int) -> None:
    """Each path takes a thousand instructions each time; but the first runs of `feed` take more, as threads do that wait for
    each other."""
    spec = importlib.util.spec_from_file_location("instructions", ROOT / "bench/instructions.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "instructions", module)
    spec.loader.exec_module(module)
    runs: Counter[str] = Counter()

    def counted(command: list[str], *_: Any) -> int:
        name = " ".join(command)
        often = int(re.findall(r"\d+", name)[-1])
        runs[name] += 1
        is_noisy = " feed " in name and often == module.PATHS["feed"].many and runs[name] <= noisy_runs
        return 5 + 1000 * often * (2 if is_noisy else 1)

    monkeypatch.setattr(module, "prepare", lambda *_: None)
    monkeypatch.setattr(module, "served", lambda *_: nullcontext({}))
    monkeypatch.setattr(module, "counted", counted)
    monkeypatch.setattr(module, "page_faults", counted)
    found = module.count(Path("programs"), {name: 1000 / path.each for name, path in module.PATHS.items()})
    exact = {name: pytest.approx(1000 / path.each) for name, path in module.PATHS.items()}
    assert {name: number for name, number in found.items() if name != "feed"} == {
        name: number for name, number in exact.items() if name != "feed"
    }
    assert (found["feed"] == exact["feed"]) == (noisy_runs < module.TRIES)
    tries = min(noisy_runs + 1, module.TRIES)
    assert all(number == (tries if " feed " in name else 1) for name, number in runs.items())
