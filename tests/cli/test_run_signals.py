"""Whom `millrace run` signals: the trainer first, which needs its workers while it saves; all of the group when the grace is over."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
from test_run import is_gone, running, wait_until

# A trainer with a process that loads data for it, as a DataLoader has: it saves with what that gives it.
TRAINER = """
import os, signal, sys, time
number = getattr(signal, sys.argv[1])
signal.alarm(600)  # it never stays
ask, answer = os.pipe(), os.pipe()
if os.fork() == 0:
    os.close(ask[1])
    os.write(1, b"loads\\n")
    while word := os.read(ask[0], 1):
        os.write(answer[1], word)
    os._exit(0)
os.close(ask[0]), os.close(answer[1])
asked = []
signal.signal(number, lambda *_: asked.append(1))
os.write(1, b"ready\\n")
while not asked:
    time.sleep(0.01)
try:
    os.write(ask[1], b"x")
    print("saved" if os.read(answer[0], 1) == b"x" else "the worker is gone", len(asked), flush=True)
except BrokenPipeError:
    print("the worker is gone", flush=True)
"""


def start(folder: Path, number: str, wrapped: str) -> list[str]:
    (folder / "trainer.py").write_text(TRAINER)
    words = [sys.executable, str(folder / "trainer.py"), number]
    return ["--", *words] if not wrapped else ["--", "sh", "-c", wrapped.format(" ".join(words))]


@pytest.mark.parametrize("wrapped", ["", "{}; exit $?", "(true; {}; true); true"])
@pytest.mark.parametrize(
    ("options", "sent", "wanted"),
    [
        ([], signal.SIGTERM, "SIGTERM"),
        ([], signal.SIGHUP, "SIGHUP"),
        ([], signal.SIGUSR1, "SIGTERM"),  # a notice
        (["--on-notice", "SIGUSR2"], signal.SIGUSR1, "SIGUSR2"),
    ],
)
def test_a_trainer_saves_with_its_workers(
    millrace_bin: Path, tmp_path: Path, options: list[str], sent: signal.Signals, wanted: str, wrapped: str
) -> None:
    """Also below shells, which a signal ends, or which wait for what they have started."""
    with running(millrace_bin, "--grace", "600", *options, *start(tmp_path, wanted, wrapped)) as process:
        assert process.stdout is not None
        assert {process.stdout.readline() for _ in range(2)} == {"ready\n", "loads\n"}
        process.send_signal(sent)
        out, err = process.communicate(timeout=300)
    assert out == "saved 1\n", err


# The command ends by itself, and leaves another process, which does not end.
LEAVES = (
    "trap 'exit 3' TERM; "
    "sh -c \"trap 'echo told' TERM; echo \\$\\$; while :; do sleep 0.05; done\" & "
    "while :; do sleep 0.05; done"
)


def test_the_group_is_killed_when_the_grace_is_over(millrace_bin: Path) -> None:
    with running(millrace_bin, "--grace", "1", "--", "sh", "-c", LEAVES) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=300)
    assert process.returncode in {3, 128 + signal.SIGKILL}  # a busy machine may be too slow for the command, too
    wait_until(lambda: is_gone(pid), f"process {pid} is still there")


def test_others_get_the_signal_when_the_command_has_ended(millrace_bin: Path) -> None:
    """A second signal kills them."""
    with running(millrace_bin, "--grace", "600", "--", "sh", "-c", LEAVES) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "told\n"
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=300)
    assert process.returncode == 3
    wait_until(lambda: is_gone(pid), f"process {pid} is still there")
