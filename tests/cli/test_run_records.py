"""`millrace run`: journal, logs, failure file and hooks."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import built_package
import pytest
from cli_support import Millrace, lines
from test_run import FAIL_UNTIL, is_gone, running, shell


def events(journal: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in journal.read_text().splitlines()]


def test_the_journal(millrace: Millrace, tmp_path: Path) -> None:
    journal = tmp_path / "run.jsonl"
    run = ["run", "--journal", journal, "--delay", "0", "--retries", "2"]
    millrace(*run, "--checkpoint", tmp_path / "ckpt", *shell(FAIL_UNTIL.format(last=3, failure="kill -9 $$")))
    millrace(*run, *shell("exit 3"), code=3)
    lines_ = events(journal)
    first, second = (
        [line for line in lines_ if line["run"] == name] for name in dict.fromkeys(line["run"] for line in lines_)
    )
    assert [line["event"] for line in first] == [
        "start",
        *["attempt-start", "attempt-end", "restart"] * 2,
        "attempt-start",
        "attempt-end",
        "end",
    ]
    assert (
        first[0]["attempts"] == 3
        and first[0]["command"][:2] == ["sh", "-c"]
        and first[0]["checkpoint"] == str(tmp_path / "ckpt")
    )
    assert (first[2]["status"], first[2]["signal"], first[2]["reason"]) == (137, "SIGKILL", "Signal: SIGKILL")
    assert [line["attempt"] for line in first if line["event"] == "attempt-start"] == [1, 2, 3]
    assert (first[-1]["outcome"], first[-1]["status"], first[-1]["attempts"]) == ("success", 0, 3)
    assert (second[-1]["outcome"], second[-1]["status"], second[-1]["why"]) == ("failure", 3, "all retries are used up")
    assert all({"time", "run", "host"} <= line.keys() for line in lines_)


STEPS = """
import os, sys
import millrace
attempt = int(os.environ["MILLRACE_ATTEMPT"])
for step in range(1, 7) if attempt == 1 else range(5, 11):  # it continues at its checkpoint
    millrace.heartbeat(step)
sys.exit(attempt == 1)
"""


def test_the_cost_of_a_step(millrace: Millrace, tmp_path: Path) -> None:
    journal = tmp_path / "run.jsonl"
    run = ["run", "--journal", journal, "--delay", "0", "--retries", "1"]
    paths = {"PYTHONPATH": str(built_package.folder())}
    done = millrace(*run, "--price", "36000", "--", sys.executable, "-c", STEPS, env=paths)
    end = events(journal)[-1]
    assert (end["steps"], end["last_step"]) == (10, 10)  # two of them were made twice
    assert end["dollars"] == pytest.approx(10 * end["seconds"])
    assert end["step_seconds"] == pytest.approx(end["seconds"] / 10)
    assert end["dollars_per_1000_steps"] == pytest.approx(100 * end["dollars"])
    assert re.search(rb"10 steps in .* each; \$[\d,.]+, \$[\d,.]+ for 1,000 steps", done.stderr), done.stderr
    # The machine is paid while it prepares; so is a job that fails then.
    git = tmp_path / "bin" / "git"
    git.parent.mkdir()
    git.write_text("#!/bin/sh\nsleep 1\nexit 1\n")
    git.chmod(0o755)
    slow = {"PATH": f"{git.parent}:{os.environ['PATH']}"}
    millrace(*run, "--price", "36000", "--code", tmp_path, *shell("true"), cwd=tmp_path, env=slow, code=1)
    assert events(journal)[-1]["seconds"] >= 1 and events(journal)[-1]["dollars"] >= 10
    # The price list of `advise` knows machines; without steps there is the cost of the job.
    millrace(*run, "--machine", "p5.48xlarge", *shell("true"))
    end = events(journal)[-1]
    assert end["dollars"] == pytest.approx(55.04 / 3600 * end["seconds"]) and "steps" not in end
    assert b"steps in" not in millrace(*run, *shell("true")).stderr and "dollars" not in events(journal)[-1]
    for options, why in (
        (["--machine", "none"], b"p5.48xlarge"),
        (["--machine", "trn2.48xlarge"], b"--price"),
        (["--price", "-1"], b"--price"),
        (["--price", "1", "--machine", "g5.xlarge"], b"both"),
    ):
        assert why in millrace("run", *options, *shell("true"), code=2).stderr


def test_a_journal_that_cannot_be_written(millrace: Millrace, tmp_path: Path) -> None:
    done = millrace("run", "--journal", tmp_path / "no" / "folder", *shell("echo ran"), code=1)
    assert done.stdout == b""
    if os.path.exists("/dev/full"):
        done = millrace("run", "--journal", "/dev/full", *shell("echo ran"))
        assert done.stdout == b"ran\n" and done.stderr.count(b"/dev/full") == 1


def test_a_stop_is_journalled(millrace_bin: Path, tmp_path: Path) -> None:
    journal = tmp_path / "run.jsonl"
    with running(
        millrace_bin, "--journal", journal, *shell("trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done")
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=300)
    assert process.returncode == 0
    found = events(journal)
    assert [line["event"] for line in found] == ["start", "attempt-start", "signal", "attempt-end", "end"]
    assert found[3]["stopped"] is True and found[4]["outcome"] == "stopped"


def test_the_output_of_each_attempt_is_kept(millrace: Millrace, tmp_path: Path) -> None:
    logs = tmp_path / "a" / "logs"
    run = ["run", "--log-dir", logs, "--delay", "0", "--retries", "1"]
    script = FAIL_UNTIL.format(last=2, failure="echo out; echo err >&2; exit 1")
    for runs in (1, 2):
        done = millrace(*run, *shell(script))
        # The line of `run` about the attempt may come before or after that of the command.
        assert lines(done) == ["out", "2 of 2"] and b"err" in done.stderr.splitlines()
        assert len(list(logs.iterdir())) == 2 * runs
    texts = [path.read_text() for path in sorted(logs.iterdir())]
    assert [sorted(text.splitlines()) for text in texts] == [["err", "out"], ["2 of 2"]] * 2


def test_logs_are_bounded(millrace: Millrace, tmp_path: Path) -> None:
    script = "for i in range(100_000): print(f'{i:09}')"
    done = millrace("run", "--log-dir", tmp_path, "--log-size", "64KiB", "--", sys.executable, "-c", script)
    assert len(done.stdout) == 1_000_000
    newer, older = sorted(tmp_path.iterdir())
    assert older.name == newer.name + ".1" and older.stat().st_size == 32 << 10 and newer.stat().st_size <= 32 << 10
    assert done.stdout.endswith(older.read_bytes() + newer.read_bytes())


def test_a_log_without_room_is_wrong_usage(millrace: Millrace, tmp_path: Path) -> None:
    done = millrace("run", "--log-dir", tmp_path, "--log-size", "1023", *shell("echo begun"), code=2)
    assert b"--log-size must be 1 KiB at least" in done.stderr and done.stdout == b""


def test_what_a_finished_program_leaves_behind_does_not_keep_it(millrace: Millrace, tmp_path: Path) -> None:
    """It holds its end of the output until it is ended."""
    pid = tmp_path / "pid"
    done = millrace("run", "--log-dir", tmp_path / "logs", *shell(f"sleep 600 & echo $! > {pid}; echo done"))
    assert done.stdout == b"done\n" and is_gone(int(pid.read_text()))


def test_secrets_are_not_shown(millrace: Millrace, tmp_path: Path) -> None:
    """Though the command gets them."""
    journal = tmp_path / "journal"
    words = ["env", "A=CANARY", "sh", "-c", "HF_TOKEN=CANARY; echo $A $1", "sh", "--api-key=CANARY"]
    done = millrace("run", "--journal", journal, "--", *words)
    assert lines(done) == ["CANARY --api-key=CANARY"] and b"CANARY" not in done.stderr
    assert "CANARY" not in journal.read_text() and events(journal)[0]["command"][:2] == ["env", "A=***"]


def test_the_failure_file(millrace: Millrace, tmp_path: Path) -> None:
    failure = tmp_path / "output" / "failure"
    journal = tmp_path / "journal"
    run = ["run", "--failure-file", failure, "--log-dir", tmp_path / "logs", "--journal", journal]
    millrace(*run, *shell("seq 10000; echo this is why >&2; sleep 0.1; kill -9 $$"), code=137)
    text = failure.read_text()
    assert (
        text.startswith("attempt 1 was killed by signal 9 (SIGKILL) after ")
        and text.endswith("\nthis is why\n")
        and len(text) <= 1024
    )
    assert text.splitlines()[1].isdigit() and len(text.splitlines()[1]) == 4
    # The words of the program count, but not those of an earlier attempt.
    millrace(
        *run,
        "--delay",
        "0",
        "--retries",
        "1",
        *shell(f"[ $MILLRACE_ATTEMPT = 2 ] || echo mine $MILLRACE_ATTEMPT > {failure}; exit 1"),
        code=1,
    )
    assert failure.read_text().startswith("attempt 2 exited with status 1")
    millrace(*run, *shell(f"echo mine > {failure}; exit 1"), code=1)
    assert failure.read_text() == "mine\n"
    assert [line["failure"] for line in events(journal) if line["event"] == "attempt-end"][-1] == "mine\n"
    millrace(*run, *shell("true"))
    assert not failure.exists()


def test_the_failure_file_of_a_training_job(millrace: Millrace, tmp_path: Path) -> None:
    millrace("run", "--root", tmp_path / "ml", "--hyperparameter", "a=1", *shell("exit 3"), code=3)
    assert (tmp_path / "ml" / "output" / "failure").read_text().startswith("attempt 1 exited with status 3")


TELL = "echo {name} $MILLRACE_OUTCOME $MILLRACE_STATUS $MILLRACE_ATTEMPT"


@pytest.mark.parametrize(
    ("script", "status", "told"),
    [
        ("true", 0, ["on-success success 0 1", "on-end success 0 1"]),
        ("test $MILLRACE_ATTEMPT = 2", 0, ["on-success success 0 2", "on-end success 0 2"]),
        ("exit 3", 3, ["on-end failure 3 2"]),
        ("kill -INT $$", 130, ["on-end stopped 130 1"]),
        ("exit 75", 75, ["on-end elsewhere 75 1"]),
    ],
)
def test_hooks_run_once_at_the_end(millrace: Millrace, script: str, status: int, told: list[str]) -> None:
    hooks = [word for name in ("on-success", "on-end") for word in (f"--{name}", TELL.format(name=name))]
    assert lines(millrace("run", "--retries", "1", "--delay", "0", *hooks, *shell(script), code=status)) == told


def test_a_job_that_cannot_begin_has_an_end(millrace: Millrace, tmp_path: Path) -> None:
    """So that nobody pays for machines without work."""
    journal = tmp_path / "journal"
    run = ["run", "--root", tmp_path / "ml", "--channel", f"train={tmp_path}/nothing", "--journal", journal]
    done = millrace(
        *run, "--on-end", TELL.format(name="on-end"), "--on-success", "echo success", *shell("echo ran"), code=1
    )
    assert lines(done) == ["on-end failure 1 0"]
    assert "nothing" in (tmp_path / "ml" / "output" / "failure").read_text()
    assert [line["event"] for line in events(journal)] == ["start", "hook", "end"]


def test_a_job_that_cannot_be_supervised_has_an_end(millrace: Millrace, tmp_path: Path) -> None:
    journal, failure = tmp_path / "journal", tmp_path / "failure"
    failure.write_text("of an earlier job")
    (tmp_path / "file").write_text("")
    run = ["run", "--log-dir", tmp_path / "file" / "logs", "--journal", journal, "--failure-file", failure]
    done = millrace(
        *run, "--on-end", TELL.format(name="on-end"), "--on-success", "echo success", *shell("echo ran"), code=1
    )
    assert lines(done) == ["on-end failure 1 1"]
    assert "logs" in failure.read_text()
    assert [line["event"] for line in events(journal)] == ["start", "hook", "end"]


def test_hooks_change_no_status_and_end_in_time(millrace: Millrace, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    run = ["run", "--journal", journal, "--hook-limit", "3s"]
    done = millrace(*run, "--on-success", "exit 5", "--on-end", "echo $$; sleep 600 & wait", *shell("true"))
    assert (
        b"--on-success exited with status 5" in done.stderr
        and b"--on-end was killed, since it did not end within 3.0 s" in done.stderr
    )
    hooks = [(line["name"], line["status"]) for line in events(journal) if line["event"] == "hook"]
    assert hooks == [("on-success", 5), ("on-end", 137)]


def test_a_signal_ends_a_hook(millrace_bin: Path) -> None:
    with running(millrace_bin, "--on-end", "echo ready; sleep 600", *shell("exit 3")) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=300)
    assert process.returncode == 3 and "--on-end was killed, since SIGTERM came" in err
