"""`millrace run --hang-after` keeps the stacks of a program that hangs."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

import pytest
from test_run import running

# It hangs in a function of its own, in a process that it has forked, too.
HANGS = """
import os, sys, time
sys.path[:0] = os.environ["PACKAGE"].split(os.pathsep)
if sys.argv[2] == "job": import _job
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


def stacks(binary: Path, folder: Path, imported: str, wanted: list[str], *more: str) -> tuple[str, str]:
    """The messages, and the file of stacks ("" if there is none), of a run with all of `wanted` in its messages.

    On a busy machine the start of the program may look like its hang; then it is run again."""
    deadline = time.monotonic() + 300
    while True:
        ready, logs = folder / "ready", folder / "logs"
        # The shell prints until the program hangs.
        shell = f'"$@" & while ! [ -e "{ready}" ]; do echo starts; sleep 0.1; done; wait'
        words = ["sh", "-c", shell, "sh", sys.executable, "-c", HANGS, str(ready), imported, *more]
        options = ["--hang-after", "2", "--grace", "0.1", "--log-dir", str(logs)]
        with running(binary, *options, "--", *words) as process:
            _, err = process.communicate(timeout=300)
        kept = "".join(path.read_text() for path in logs.glob("*.stacks"))
        if all(text in err for text in wanted) or time.monotonic() > deadline:
            return err, kept
        shutil.rmtree(logs)
        for file in folder.glob("ready*"):
            file.unlink()


@pytest.fixture(autouse=True)
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    # The module alone: the package would take a second to import.
    monkeypatch.setenv("PACKAGE", str(Path(__file__).resolve().parents[2] / "python" / "millrace"))


def test_a_program_that_imports_millrace_says_where_it_hangs(millrace_bin: Path, tmp_path: Path) -> None:
    functions = ["in parent_hangs_here", "in child_hangs_here"]
    err, kept = stacks(millrace_bin, tmp_path, "job", functions)
    assert all(text in err and text in kept for text in functions)
    assert f"the stacks are in {tmp_path / 'logs'}" in err and "the command hangs" in err


def test_py_spy_says_it_of_others(millrace_bin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it prints them; without it the hang ends all the same."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    err, kept = stacks(millrace_bin, tmp_path, "none", ["no process says where it hangs"])
    assert "no process says where it hangs" in err and "the command hangs" in err and not kept
    spy = tmp_path / "bin" / "py-spy"
    spy.parent.mkdir()
    # It shows the command line first, of which this one has two lines at least.
    header = 'printf "Process %s: " "$3"; tr "\\0" " " </proc/$3/cmdline; printf "\\nPython v3.11.2 (python)\\n\\n"'
    spy.write_text(f'#!/bin/sh\n{header}\necho "stack of $1 $2"\n')
    spy.chmod(0o755)
    monkeypatch.setenv("PATH", str(spy.parent), prepend=os.pathsep)
    both = tmp_path / "both"
    both.mkdir()
    two = "  stack of dump --pid\n"
    err, kept = stacks(millrace_bin, both, "none", [two], "--api-key", "CANARY")
    assert two in err and two in kept
    assert "CANARY" not in err + kept and "import os, sys, time" not in kept


def test_py_spy_without_rights_says_what_it_needs(
    millrace_bin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it ends where ptrace is restricted. No message asks to install the program that is there."""
    spy = tmp_path / "bin" / "py-spy"
    spy.parent.mkdir()
    spy.write_text('#!/bin/sh\necho "Error: Permission denied (os error 13) LEAK" >&2; exit 1\n')
    spy.chmod(0o755)
    monkeypatch.setenv("PATH", f"{spy.parent}:/usr/bin:/bin")
    wanted = ["py-spy may not look into process", "SYS_PTRACE", "no process says where it hangs"]
    err, kept = stacks(millrace_bin, tmp_path, "none", wanted)
    assert all(text in err for text in wanted) and not kept
    assert "install py-spy" not in err and "LEAK" not in err
