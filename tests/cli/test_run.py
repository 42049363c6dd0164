"""`millrace run`: restarts, exit statuses, signals, and processes that are left behind."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_support import Millrace, lines

# Fails as often as the test asks for; then prints the attempt.
FAIL_UNTIL = (
    "if [ $MILLRACE_ATTEMPT -lt {last} ]; then {failure}; else echo $MILLRACE_ATTEMPT of $MILLRACE_ATTEMPTS; fi"
)


def shell(script: str) -> list[str]:
    return ["--", "sh", "-c", script]


@contextlib.contextmanager
def running(binary: Path, *arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
    command = [str(binary), "run", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        # The second signal kills the process group of the command; SIGKILL reaches only the command itself.
        for _ in range(100):
            if process.poll() is not None:
                break
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.2)
        process.kill()
        process.communicate()


def wait_until(condition: object, what: str) -> None:
    deadline = time.monotonic() + 300
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def is_gone(pid: int) -> bool:
    """Also when nobody has asked for its status yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize("failure", ["exit 3", "kill -9 $$", "kill -SEGV $$"])
def test_a_command_is_started_again(millrace: Millrace, failure: str) -> None:
    done = millrace("run", "--retries", "2", "--delay", "0.01", *shell(FAIL_UNTIL.format(last=3, failure=failure)))
    assert lines(done) == ["3 of 3"]
    assert done.stderr.count(b"follows in") == 2


@pytest.mark.parametrize(("failure", "status"), [("exit 3", 3), ("kill -9 $$", 137), ("kill -TERM $$", 143)])
def test_the_status_is_that_of_the_last_attempt(millrace: Millrace, failure: str, status: int) -> None:
    done = millrace("run", "--retries", "1", "--delay", "0", *shell(f"echo once; {failure}"), code=status)
    assert lines(done) == ["once", "once"] and b"all retries are used up" in done.stderr
    done = millrace("run", *shell(f"echo once; {failure}"), code=status)
    assert lines(done) == ["once"] and b"there are no retries" in done.stderr


def test_what_cannot_be_executed_is_not_retried(millrace: Millrace, tmp_path: Path) -> None:
    done = millrace("run", "--retries", "5", "--", tmp_path / "nothing", code=127)
    assert done.stderr.count(b"\n") == 1 and b"No such file" in done.stderr
    (tmp_path / "data").write_text("no program")
    assert b"cannot be executed" in millrace("run", "--retries", "5", "--", tmp_path / "data", code=126).stderr
    assert (
        millrace("run", "--retries", "5", *shell("exec 2> /dev/null; no-such-program"), code=127).stderr.count(
            b"attempt 1"
        )
        == 2
    )


def test_usage(millrace: Millrace) -> None:
    for arguments in (
        [],
        ["--retries", "-1", "--", "true"],
        ["--delay", "-1", "--", "true"],
        ["--checkpoint", "ftp://x", "--", "true"],
    ):
        millrace("run", *arguments, code=2)


def test_the_command_is_told(millrace: Millrace) -> None:
    script = "echo $MILLRACE_ATTEMPT $MILLRACE_ATTEMPTS $MILLRACE_CHECKPOINT"
    assert lines(millrace("run", "--retries", "4", "--checkpoint", "s3://bucket/run-7", *shell(script))) == [
        "1 5 s3://bucket/run-7"
    ]
    assert lines(
        millrace("run", "--", sys.executable, "-c", "import sys; print(sys.argv[1:])", "--retries", "7", "--")
    ) == ["['--retries', '7', '--']"]


def test_words_reach_the_command_as_they_are(millrace: Millrace) -> None:
    words = ["a,b", "[1,2", "", "--", "-x", "'", "a b", "{}", "%s"]
    assert lines(millrace("run", "--", sys.executable, "-c", "import sys; print(sys.argv[1:])", *words)) == [str(words)]


def test_signals_are_as_programs_expect_them(millrace: Millrace) -> None:
    """A pipe whose reader is gone ends a program, and nothing is blocked."""
    script = "import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, []), signal.getsignal(signal.SIGTERM).name)"
    assert lines(millrace("run", "--", sys.executable, "-c", script)) == ["set() SIG_DFL"]
    assert lines(millrace("run", *shell("sh -c 'yes; echo still here >&2' | head -n 1"))) == ["y"]


def test_the_limit_of_open_files_is_as_it_was(millrace_bin: Path) -> None:
    """Millrace itself has as many open as it may; a command may use select(), or go through all numbers up to the limit."""
    hard = min(3000, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    command = ["prlimit", f"--nofile=300:{hard}", str(millrace_bin), "run", *shell("ulimit -Sn; ulimit -Hn")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.split() == ["300", str(hard)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_are_passed_on_and_end_it(millrace_bin: Path, number: signal.Signals) -> None:
    """To the command, and when that has ended to what it has started, once each; then there is no further attempt."""
    # The shell ends before its child, which has to be given the time. (A program that a shell starts by & ignores SIGINT.)
    child = "(trap 'sleep 0.2; echo child too; exit 0' TERM HUP; echo ready; while :; do sleep 0.05; done) &"
    script = f"trap 'echo got it; exit 5' TERM INT HUP; {child} echo ready; while :; do wait; done"
    with running(
        millrace_bin, "--retries", "9", "--grace", "5" if number == signal.SIGINT else "600", *shell(script)
    ) as process:
        assert process.stdout is not None
        assert [process.stdout.readline(), process.stdout.readline()] == ["ready\n", "ready\n"]
        process.send_signal(number)
        out, err = process.communicate(timeout=300)
    assert out.splitlines() == (["got it"] if number == signal.SIGINT else ["got it", "child too"])
    assert process.returncode == 5 and f"{number.name} is passed on" in err and "asked to end" in err


def test_what_nohup_ignores_stays_ignored(millrace_bin: Path) -> None:
    command = ["nohup", str(millrace_bin), "run", *shell("echo ready; read line; echo done")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGHUP)
        out, err = process.communicate("go on\n", timeout=300)
    assert process.returncode == 0 and out == "done\n" and "SIGHUP" not in err


@pytest.mark.parametrize("second", [True, False])
def test_a_command_that_does_not_end_is_killed(millrace_bin: Path, second: bool) -> None:
    script = "trap 'echo no' TERM; echo ready; while :; do sleep 0.05; done"
    with running(millrace_bin, "--grace", "600" if second else "0.2", *shell(script)) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        if second:  # else it may be killed before it has got to say so
            assert process.stdout.readline() == "no\n"
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=300)
    assert process.returncode == 137


def test_a_signal_between_attempts_ends_it(millrace_bin: Path) -> None:
    with running(millrace_bin, "--retries", "9", "--delay", "600", *shell("exit 4")) as process:
        assert process.stderr is not None
        while "follows in" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=300)
    assert process.returncode == 4 and "not started again" in err


def test_what_a_failed_attempt_leaves_is_killed(millrace_bin: Path, tmp_path: Path) -> None:
    """Its children, and those that have a session of their own; before the next attempt begins."""
    pids = tmp_path / "pids"
    script = f"""
if [ $MILLRACE_ATTEMPT = 2 ]; then for pid in $(cat {pids}); do cat /proc/$pid/stat; done 2>/dev/null; exit 0; fi
sleep 600 & echo $! >> {pids}
setsid sh -c 'echo $$ >> {pids}; trap "" TERM; sleep 600 & echo $! >> {pids}; wait' &
while [ $(wc -l < {pids}) -lt 3 ]; do sleep 0.01; done
kill -9 $$
"""
    with running(millrace_bin, "--retries", "1", "--delay", "0", *shell(script)) as process:
        out, _ = process.communicate(timeout=300)
    assert process.returncode == 0 and out == ""
    assert all(is_gone(int(pid)) for pid in pids.read_text().split())


def test_what_a_successful_command_leaves_is_ended(millrace_bin: Path, tmp_path: Path) -> None:
    """It gets SIGTERM, and time to save; also what has a session of its own. Only then is the job over."""
    pids, saved = tmp_path / "pids", tmp_path / "saved"
    script = f"""
sleep 600 & echo $! >> {pids}
setsid sh -c 'trap "sleep 0.2; echo saved > {saved}; exit" TERM; echo $$ >> {pids}; while :; do sleep 0.05; done' &
while [ $(wc -l < {pids}) -lt 2 ]; do sleep 0.01; done
"""
    with running(millrace_bin, "--grace", "600", "--on-success", f"cat {saved}", *shell(script)) as process:
        out, err = process.communicate(timeout=300)
    assert process.returncode == 0 and out == "saved\n" and "left running got SIGTERM" in err
    assert all(is_gone(int(pid)) for pid in pids.read_text().split())


def test_what_does_not_end_after_success_is_killed(millrace_bin: Path, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    script = f"""trap "" TERM; sleep 600 & echo $! > {pid}"""
    with running(millrace_bin, "--grace", "0.1", *shell(script)) as process:
        process.communicate(timeout=300)
    assert process.returncode == 0 and is_gone(int(pid.read_text()))


def test_a_killed_supervisor_takes_the_command_with_it(millrace_bin: Path) -> None:
    with running(millrace_bin, *shell("echo $$; while :; do sleep 0.05; done")) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.kill()
        wait_until(lambda: is_gone(pid), f"process {pid} is still there")


def test_standard_input_reaches_the_command(millrace_bin: Path) -> None:
    done = subprocess.run([str(millrace_bin), "run", "--", "cat"], input=b"text", capture_output=True, timeout=300)
    assert done.stdout == b"text"
    assert os.environ.get("MILLRACE_ATTEMPT") is None
