"""`millrace run`: rules of restart, failures in a row, hangs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from cli_support import Millrace, lines
from test_run import FAIL_UNTIL, is_gone, running, shell


def test_rules_by_exit_code_and_signal(millrace: Millrace) -> None:
    run = ["run", "--retries", "2", "--delay", "0"]
    done = millrace(*run, "--on-exit", "code=3:exit", *shell("echo once; exit 3"), code=3)
    assert lines(done) == ["once"] and b"the rule code=3:exit ends the job" in done.stderr
    done = millrace(
        *run,
        "--on-exit",
        "code=4:exit",
        "--on-exit",
        "code=3*:exit",
        *shell(FAIL_UNTIL.format(last=3, failure="exit 2")),
    )
    assert lines(done) == ["3 of 3"]
    done = millrace(*run, "--on-exit", "reason=Signal: SIGSEGV:exit", *shell("echo once; kill -SEGV $$"), code=139)
    assert lines(done) == ["once"]
    # A rule is stronger than what is usual.
    done = millrace(*run, "--on-exit", "code=127:retry", *shell("echo once; exit 127"), code=127)
    assert lines(done) == ["once"] * 3
    assert millrace(*run, *shell("echo once; exit 75"), code=75).stdout == b"once\n"


def test_rules_of_aws_batch(millrace: Millrace, tmp_path: Path) -> None:
    rules = tmp_path / "job.json"
    strategy = {
        "attempts": 3,
        "evaluateOnExit": [{"onExitCode": "9*", "action": "RETRY"}, {"onReason": "*", "action": "EXIT"}],
    }
    rules.write_text(json.dumps({"jobDefinitionName": "x", "retryStrategy": strategy}))
    run = ["run", "--delay", "0", "--rules", rules]
    assert lines(millrace(*run, *shell("echo once; exit 91"), code=91)) == ["once"] * 3
    assert lines(millrace(*run, "--retries", "1", *shell("echo once; exit 91"), code=91)) == ["once"] * 2
    assert lines(millrace(*run, *shell("echo once; exit 1"), code=1)) == ["once"]
    assert lines(millrace(*run, "--on-exit", "code=1:retry", *shell("echo once; exit 1"), code=1)) == ["once"] * 3


def test_mistakes_in_rules_are_wrong_usage(millrace: Millrace, tmp_path: Path) -> None:
    for rule in ("code=1", "code=1:maybe", "code=1000:exit", "reason=a*b:exit"):
        assert b"--on-exit: '" in millrace("run", "--on-exit", rule, "--", "true", code=2).stderr
    rules = tmp_path / "rules.json"
    rules.write_text('[{"onExitCode": "1*"}]')
    assert b"rule 1: it has no action" in millrace("run", "--rules", rules, "--", "true", code=2).stderr
    millrace("run", "--rules", tmp_path / "nothing", "--", "true", code=1)


def test_fast_failures_in_a_row_end_the_job(millrace: Millrace) -> None:
    run = ["run", "--retries", "9", "--delay", "0"]
    done = millrace(*run, *shell("echo once; exit 1"), code=1)
    assert lines(done) == ["once"] * 4 and b"failure 4 in a row within 10 s" in done.stderr
    assert lines(millrace(*run, "--fast-failures", "2", *shell("echo once; exit 1"), code=1)) == ["once"] * 2
    assert lines(millrace(*run, "--fast-failures", "0", *shell("echo once; exit 1"), code=1)) == ["once"] * 10


@pytest.mark.parametrize("ends", [True, False])
def test_a_hang_is_ended_and_restarted(millrace: Millrace, tmp_path: Path, ends: bool) -> None:
    """Also if the program then says that it has succeeded."""
    trap = "trap 'exit 0' TERM" if ends else "trap '' TERM"
    pids = tmp_path / "pids"
    hang = f"{trap}; echo $$ >> {pids}; while :; do sleep 0.05; done"
    run = ["run", "--delay", "0", "--hang-after", "2500ms", "--grace", "600" if ends else "100ms"]
    done = millrace(*run, "--retries", "2", *shell(FAIL_UNTIL.format(last=3, failure=hang)))
    assert (
        lines(done) == ["3 of 3"] and done.stderr.count(b"the command hangs: no output and no heartbeat for 2.5 s") == 2
    )
    assert all(is_gone(int(pid)) for pid in pids.read_text().split())
    done = millrace(*run, *shell(hang), code=124 if ends else 137)
    assert b"hung and" in done.stderr
    done = millrace(*run, "--retries", "2", "--on-exit", "reason=Hang*:exit", *shell(hang), code=124 if ends else 137)
    assert done.stderr.count(b"the command hangs") == 1


SIGNS = {
    "output": "echo sign",
    "errors": "echo sign >&2",
    "heartbeat": "touch $MILLRACE_HEARTBEAT",
}


@pytest.mark.parametrize("sign", SIGNS)
def test_signs_of_life(millrace: Millrace, sign: str) -> None:
    script = f"i=0; while [ $i -lt 45 ]; do sleep 0.1; {SIGNS[sign]}; i=$((i+1)); done; exit 7"
    done = millrace("run", "--hang-after", "4s", *shell(script), code=7)
    assert b"hangs" not in done.stderr
    assert done.stdout.count(b"sign") == (45 if sign == "output" else 0)


def test_output_passes_through(millrace: Millrace, millrace_bin: Path) -> None:
    """All of it, unbuffered, and each stream to its own."""
    script = "import sys; sys.stdout.write('x' * 3_000_000); sys.stderr.write('y' * 3_000_000)"
    done = millrace("run", "--hang-after", "60", "--", sys.executable, "-c", script)
    assert done.stdout == b"x" * 3_000_000 and done.stderr.count(b"y") >= 3_000_000
    with running(
        millrace_bin,
        "--hang-after",
        "600",
        "--",
        sys.executable,
        "-c",
        "print('here'); input(); import time; time.sleep(600)",
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "here\n"
    # A reader that goes away ends the program, as without a supervisor.
    done = millrace(
        "run", *shell(f"'{millrace_bin}' run --hang-after 60 -- sh -c 'yes; echo still here >&2' | head -n 1")
    )
    assert done.stdout == b"y\n"


def test_wrong_times_are_wrong_usage(millrace: Millrace) -> None:
    for option in ("--hang-after", "--delay", "--grace", "--hook-limit"):
        for value in ("-1s", "soon", "10x", "nan"):
            assert option.encode() in millrace("run", f"{option}={value}", "--", "true", code=2).stderr
    millrace("run", "--hang-after", "0", "--", "true", code=2)
