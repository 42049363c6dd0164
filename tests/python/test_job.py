"""Tests what a program and `millrace run` report to each other: notices and heartbeats (tests/cli/test_run_notices.py
has both ends)."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import time

import millrace
import pytest


def test_without_millrace_run_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MILLRACE_HEARTBEAT", "MILLRACE_NOTICE"):
        monkeypatch.delenv(name, raising=False)
    millrace.heartbeat()
    assert millrace.notice() is None and millrace.notice(advice=True) is None


def test_a_heartbeat_changes_the_time_of_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    beat = tmp_path / "heartbeat"
    beat.touch()
    os.utime(beat, (1, 1))
    monkeypatch.setenv("MILLRACE_HEARTBEAT", str(beat))
    millrace.heartbeat()
    assert abs(beat.stat().st_mtime - time.time()) < 60
    beat.unlink()
    millrace.heartbeat()  # the supervisor has gone
    assert not beat.exists()


def test_a_heartbeat_tells_the_step(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    beat = tmp_path / "heartbeat"
    beat.touch()
    os.utime(beat, (1, 1))
    monkeypatch.setenv("MILLRACE_HEARTBEAT", str(beat))
    for step in (7, 8, 12):
        millrace.heartbeat(step)
    assert [int(word) for word in beat.read_text().split()] == [7, 12]
    assert abs(beat.stat().st_mtime - time.time()) < 60
    millrace.heartbeat()
    assert beat.read_text().split()[1].endswith("12")
    # This is another process of the attempt, such as one that torchrun has started again.
    other = "import millrace; millrace.heartbeat(9)"
    subprocess.run([sys.executable, "-c", other], check=True)
    assert [int(word) for word in beat.read_text().split()] == [7, 9]


@pytest.mark.parametrize("watched", [False, True])
def test_steps_are_whole_numbers(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, watched: bool) -> None:
    beat = tmp_path / "heartbeat"
    beat.touch()
    monkeypatch.delenv("MILLRACE_HEARTBEAT", raising=False)
    if watched:
        monkeypatch.setenv("MILLRACE_HEARTBEAT", str(beat))
    with pytest.raises(ValueError, match="step is -1"):
        millrace.heartbeat(-1)
    with pytest.raises(TypeError, match="integer"):
        millrace.heartbeat(1.5)  # type: ignore[arg-type]


def test_notices(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "notice"
    monkeypatch.setenv("MILLRACE_NOTICE", str(file))
    assert millrace.notice() is None
    assert (tmp_path / "notice.watched").exists()
    deadline = time.time() + 100
    file.write_text(json.dumps({"kind": "interruption", "detail": "terminate", "final": True, "deadline": deadline}))
    found = millrace.notice()
    assert found == millrace.Notice("interruption", "terminate", True, deadline)
    left = found.seconds_left()
    assert left is not None and 0 < left <= 100
    assert millrace.Notice("interruption", "stop", True, 1.0).seconds_left() == 0
    # A later attempt of the same job: its supervisor has forgotten that the earlier one has asked.
    (tmp_path / "notice.watched").unlink()
    assert millrace.notice() == found and (tmp_path / "notice.watched").exists()


def test_advice_is_told_on_demand(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "notice"
    monkeypatch.setenv("MILLRACE_NOTICE", str(file))
    file.write_text(json.dumps({"kind": "rebalance", "detail": "", "final": False, "deadline": None}))
    assert millrace.notice() is None
    found = millrace.notice(advice=True)
    assert found is not None and found.kind == "rebalance" and found.seconds_left() is None
