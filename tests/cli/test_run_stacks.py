"""`millrace run --hang-after` keeps the stacks of a program that hangs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from test_run import running

# It hangs in a function of its own, in a process that it has forked, too.
HANGS = """
import os, sys, time
sys.path[:0] = os.environ["PACKAGE"].split(os.pathsep)
if sys.argv[2] == "job": import job
def hang(sign):
    open(sign, "w").close()
    while True: time.sleep(0.05)
def child_hangs_here():
    hang(sys.argv[1] + ".child")
def parent_hangs_here():
    while not os.path.exists(sys.argv[1] + ".child"): time.sleep(0.05)
    hang(sys.argv[1])
child_hangs_here() if os.fork() == 0 else parent_hangs_here()
"""


def hangs(ready: Path, imported: str) -> list[str]:
    """The shell prints until the program hangs, so that its start takes as long as it likes."""
    script = """"$@" & while ! [ -e "$1" ]; do echo starts; sleep 0.1; done; wait"""
    # The first argument is that of the script, which is the third word of the program.
    script = script.replace('"$1"', f'"{ready}"')
    return ["--", "sh", "-c", script, "sh", sys.executable, "-c", HANGS, str(ready), imported]


@pytest.fixture(autouse=True)
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACKAGE", str(Path(__file__).resolve().parents[2] / "python" / "millrace"))


def test_a_program_that_imports_millrace_says_where_it_hangs(millrace_bin: Path, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    options = ["--hang-after", "2", "--grace", "0.1", "--log-dir", str(logs)]
    with running(millrace_bin, *options, *hangs(tmp_path / "ready", "job")) as process:
        _, err = process.communicate(timeout=300)
    (kept,) = logs.glob("*.stacks")
    for text in (err, kept.read_text()):
        assert "in parent_hangs_here" in text and "in child_hangs_here" in text
    assert f"the stacks are in {kept}" in err and "the command hangs" in err


def test_py_spy_says_it_of_others(millrace_bin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it prints them; without it the hang ends all the same."""
    options = ["--hang-after", "2", "--grace", "0.1"]
    with running(millrace_bin, *options, *hangs(tmp_path / "first", "none")) as process:
        _, err = process.communicate(timeout=300)
    assert "no process says where it hangs" in err and "the command hangs" in err
    spy = tmp_path / "bin" / "py-spy"
    spy.parent.mkdir()
    spy.write_text('#!/bin/sh\necho "stack of $1 $2"\n')
    spy.chmod(0o755)
    monkeypatch.setenv("PATH", str(spy.parent), prepend=os.pathsep)
    with running(millrace_bin, *options, *hangs(tmp_path / "second", "none")) as process:
        _, err = process.communicate(timeout=300)
    assert err.count("  stack of dump --pid\n") == 2
