"""`millrace run` and notices that the machine will go away: against a strict fake of IMDSv2, and by signals."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from imds import MAINTENANCE, REBALANCE, TARGET, FakeImds, fake_imds
from test_run import running, shell


@pytest.fixture
def imds(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeImds]:
    with fake_imds() as (fake, url):
        monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", url)
        yield fake


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def python(script: str) -> list[str]:
    return ["--", sys.executable, "-u", "-c", script]


# A program that knows nothing of Millrace saves when it is asked to end.
SAVES = "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done"


def test_an_interruption_lets_the_program_save_and_ends_the_job_here(
    millrace_bin: Path, imds: FakeImds, tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    with running(millrace_bin, "--retries", "9", "--journal", journal, *shell(SAVES)) as process:
        assert first_line(process) == "ready"
        imds.announce(seconds=1200)
        out, err = process.communicate(timeout=300)
    # Though it ended with 0: it has not finished.
    assert process.returncode == 75 and out == "saved\n"
    assert "EC2 will terminate this spot instance" in err and "to save and to end" in err and "another machine" in err
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    assert [event["event"] for event in events] == ["start", "attempt-start", "notice", "signal", "attempt-end", "end"]
    assert (
        events[2]["kind"] == "interruption"
        and events[2]["detail"] == "terminate"
        and 1000 < events[2]["seconds_left"] <= 1200
    )
    assert events[3]["signal"] == "SIGTERM"
    assert events[4]["leaves"] is True and events[5]["outcome"] == "elsewhere" and events[5]["status"] == 75
    assert imds.unauthorized == 0


def test_it_is_killed_before_the_announced_time(millrace_bin: Path, imds: FakeImds) -> None:
    script = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
    with running(millrace_bin, "--retries", "9", "--requeue-exit", "99", *shell(script)) as process:
        assert first_line(process) == "ready"
        imds.announce(seconds=6)
        _, err = process.communicate(timeout=300)
    assert process.returncode == 99 and "has not ended in time and is killed" in err


def test_the_signal_can_be_chosen(millrace_bin: Path, imds: FakeImds) -> None:
    script = "trap 'echo term' TERM; trap 'echo usr1; exit 3' USR1; echo ready; while :; do sleep 0.05; done"
    with running(millrace_bin, "--on-notice", "SIGUSR1", *shell(script)) as process:
        assert first_line(process) == "ready"
        imds.documents[TARGET] = "Terminated"
        out, err = process.communicate(timeout=300)
    assert process.returncode == 75 and out == "usr1\n" and "Auto Scaling group will terminate" in err


@pytest.mark.parametrize("what", [REBALANCE, MAINTENANCE])
def test_advice_ends_nothing(millrace_bin: Path, imds: FakeImds, what: str) -> None:
    documents = {
        REBALANCE: '{"noticeTime":"2026-01-01T00:00:00Z"}',
        MAINTENANCE: '[{"NotBefore":"21 Jan 2099 09:00:43 GMT","Code":"system-reboot","State":"active"}]',
    }
    script = "trap 'echo usr1' USR1; trap 'echo term; exit 4' TERM; echo ready; until read line; do :; done; echo done"
    for chosen in ([], ["--on-notice", "USR1"]):
        imds.documents.clear()
        command = [str(millrace_bin), "run", *chosen, *shell(script)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert first_line(process) == "ready"
            imds.documents[what] = documents[what]
            if chosen:
                assert first_line(process) == "usr1"
            imds.wait_for_answers(4)
            out, err = process.communicate("go on\n", timeout=300)
        assert out == "done\n" and process.returncode == (75 if chosen else 0), err


def test_it_is_not_started_again_if_a_notice_comes_between_attempts(millrace_bin: Path, imds: FakeImds) -> None:
    with running(millrace_bin, "--retries", "9", "--delay", "600", *shell("exit 4")) as process:
        assert process.stderr is not None
        while "follows in" not in process.stderr.readline():
            pass
        imds.announce()
        _, err = process.communicate(timeout=300)
    assert process.returncode == 75 and "not started again on this machine" in err


def test_tokens_that_are_forgotten_and_refused(millrace_bin: Path, imds: FakeImds) -> None:
    with running(millrace_bin, *shell(SAVES)) as process:
        assert first_line(process) == "ready"
        imds.wait_for_answers(1)
        imds.forget_tokens()
        imds.wait_for_answers(5)
        assert imds.unauthorized == 1
        imds.announce()
        assert process.communicate(timeout=300)[0] == "saved\n"


def test_without_imds_v2_nothing_is_asked_and_the_job_goes_on(millrace_bin: Path, imds: FakeImds) -> None:
    imds.refuses_tokens = True
    imds.announce()
    assert subprocess.run([str(millrace_bin), "run", *shell("read line")], input=b"", timeout=300).returncode == 1
    assert imds.unauthorized == 0


def test_elsewhere_than_on_ec2_nobody_is_asked(
    millrace_bin: Path, imds: FakeImds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    imds.announce()
    done = subprocess.run(
        [str(millrace_bin), "run", "--on-notice", "USR1", *shell("sleep 0.3")], capture_output=True, timeout=300
    )
    assert done.returncode == 0 and imds.answers == 0


def test_a_wrong_endpoint_or_signal_is_wrong_usage(
    millrace_bin: Path, imds: FakeImds, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SIGKILL", "KILL", "SIGNOTHING", "9", ""):
        done = subprocess.run(
            [str(millrace_bin), "run", "--on-notice", name, "--", "true"], capture_output=True, timeout=300
        )
        assert done.returncode == 2 and b"--on-notice" in done.stderr
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "nonsense")
    done = subprocess.run([str(millrace_bin), "run", "--", "true"], capture_output=True, timeout=300)
    assert done.returncode == 2 and b"AWS_EC2_METADATA_SERVICE_ENDPOINT" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_a_scheduler_gives_notice_by_a_signal(millrace_bin: Path, number: signal.Signals) -> None:
    """As Slurm does with --signal=B:USR1@120."""
    with running(millrace_bin, "--retries", "9", *shell(SAVES)) as process:
        assert first_line(process) == "ready"
        process.send_signal(number)
        out, err = process.communicate(timeout=300)
    assert process.returncode == 75 and out == "saved\n" and f"{number.name} announces" in err


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_slurm_gives_less_time_than_the_grace(
    millrace_bin: Path, number: signal.Signals, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The promised time ends before the job does, as SLURM_JOB_END_TIME says. A later end does not lengthen the grace."""
    for left, grace, promised in [(3600, 7200, (3000, 3595)), (7200, 3600, (3000, 3600))]:
        monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + left))
        with running(millrace_bin, "--grace", str(grace), *shell(SAVES)) as process:
            assert first_line(process) == "ready"
            process.send_signal(number)
            out, err = process.communicate(timeout=300)
        assert out == "saved\n"
        (seconds,) = re.findall(r"has ([0-9.]+) s to (?:save|end)", err)
        assert promised[0] <= float(seconds) <= promised[1]


def test_what_the_command_leaves_ends_in_the_promised_time(
    millrace_bin: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The command ends at once, and leaves a process that ignores SIGTERM: the hook runs while Slurm still lets it."""
    ended = tmp_path / "ended"
    leaves = (
        "setsid sh -c 'trap \"\" TERM; echo ready; exec sleep 600' & trap 'exit 0' TERM; while :; do sleep 0.05; done"
    )
    until = int(time.time()) + 60
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(until))
    with running(millrace_bin, "--on-end", f"date +%s > {ended}", *shell(leaves)) as process:
        assert first_line(process) == "ready"
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=300)
    assert int(ended.read_text()) <= until


# A training loop that looks for notices in each step, in a process below a launcher.
LOOP = """
import os, sys, time
sys.path[:0] = os.environ["PACKAGE"].split(os.pathsep)
import _job
print("ready", _job.notice(), flush=True)
while not (found := _job.notice(advice=True)): time.sleep(0.01)
print(found.kind, found.detail, found.final, found.seconds_left() is not None and 1000 < found.seconds_left() <= 1195, flush=True)
time.sleep(0.2)
print("saved", flush=True)
raise SystemExit(75)
"""


def test_a_program_that_looks_for_notices_gets_no_signal(
    millrace_bin: Path, imds: FakeImds, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The module alone: the package would take a second to import.
    monkeypatch.setenv("PACKAGE", str(Path(__file__).resolve().parents[2] / "python" / "millrace"))
    script = f'import subprocess, sys; sys.exit(subprocess.run([sys.executable, "-c", {LOOP!r}]).returncode)'
    with running(millrace_bin, "--retries", "9", *python(script)) as process:
        assert first_line(process) == "ready None"
        imds.announce(seconds=1200)
        out, _ = process.communicate(timeout=300)
    assert out.splitlines() == ["interruption terminate True True", "saved"]
    assert process.returncode == 75


def test_sigterm_is_a_notice_to_such_a_program(
    millrace_bin: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As Kubernetes sends it: nothing of the launchers between is killed. The journal has the notice, since there is no signal."""
    monkeypatch.setenv("PACKAGE", str(Path(__file__).resolve().parents[2] / "python" / "millrace"))
    journal = tmp_path / "journal"
    with running(millrace_bin, "--retries", "9", "--grace", "1190", "--journal", journal, *python(LOOP)) as process:
        assert first_line(process) == "ready None"
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=300)
    assert out.splitlines() == ["signal SIGTERM True True", "saved"]
    assert process.returncode == 75 and "asked to end" in err
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    assert [event["event"] for event in events] == ["start", "attempt-start", "notice", "attempt-end", "end"]
    assert (events[2]["kind"], events[2]["detail"], events[2]["final"]) == ("signal", "SIGTERM", True)
    assert 1000 < events[2]["seconds_left"] <= 1190


def test_the_folder_of_a_killed_run_is_swept_by_the_next_one(
    millrace_bin: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And none that a process still holds, nor anything else."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "millrace-run-file").touch()
    (tmp_path / "other").mkdir()
    of_another_machine = "millrace-run-0123456789abcdef-AbCdEf"  # whose locks may not be seen here (C22)
    (tmp_path / of_another_machine).mkdir()
    kept = {"millrace-run-file", "other", of_another_machine}
    with running(millrace_bin, *shell("echo ready; exec sleep 600")) as alive:
        assert first_line(alive) == "ready"
        (folder,) = {path.name for path in tmp_path.iterdir()} - kept
        with running(millrace_bin, *shell("echo ready; exec sleep 600")) as killed:
            assert first_line(killed) == "ready"
            assert len(list(tmp_path.iterdir())) == 5
            killed.kill()
            killed.wait()
        assert len(list(tmp_path.iterdir())) == 5  # nobody was there to remove it
        done = subprocess.run(
            [str(millrace_bin), "run", *shell("ls $TMPDIR")], capture_output=True, text=True, timeout=300
        )
        assert folder in done.stdout and len(done.stdout.split()) == 5
        assert {path.name for path in tmp_path.iterdir()} == kept | {folder}
        alive.terminate()
        alive.wait(300)
    assert {path.name for path in tmp_path.iterdir()} == kept


def test_what_it_leaves_behind(
    millrace_bin: Path, imds: FakeImds, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No folder, and no descriptor in the command; those that the user gave are there."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    read_end, write_end = os.pipe()
    script = (
        "import os; print(*sorted(int(name) for name in os.listdir('/proc/self/fd')), os.environ['MILLRACE_NOTICE'])"
    )
    command = [str(millrace_bin), "run", "--on-notice", "USR1", *python("import time; time.sleep(0.1)\n" + script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, pass_fds=[write_end])
    os.close(read_end)
    os.close(write_end)
    *descriptors, folder = done.stdout.split()
    # One more is that of the listing itself.
    assert len(descriptors) == 5 and str(write_end) in descriptors and folder.startswith(str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_a_container_has_less_time_than_the_grace(millrace_bin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods have 30 seconds unless they say otherwise; --grace says what this one has."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    for given, promised in (([], "25.0 s to end"), (["--grace", "600"], "600.0 s to end")):
        with running(millrace_bin, *given, *shell(SAVES)) as process:
            assert first_line(process) == "ready"
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=300)
        assert out == "saved\n" and f"which has {promised}" in err
        assert ("Kubernetes kills 30 s after SIGTERM" in err) == (not given)
