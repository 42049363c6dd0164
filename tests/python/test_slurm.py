"""Tests with Slurm, a real scheduler: a node that it declares dead continues to write, and commits nothing that its
successor has not seen.

Also `millrace run` in a batch script: a notice of Slurm ends the job with status 75, which Slurm queues again.
"""

from __future__ import annotations

import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = REPOSITORY / "tests" / "servers" / "slurm.sh"
PATIENCE = 180

pytestmark = [pytest.mark.slow, pytest.mark.all]


@dataclass
class Slurm:
    folder: pathlib.Path
    env: dict[str, str]

    def run(self, *words: str) -> str:
        return subprocess.run(
            words, env=os.environ | self.env, capture_output=True, text=True, check=True, timeout=60
        ).stdout

    def submit(self, script: pathlib.Path, *options: str) -> str:
        return self.run("sbatch", "--parsable", "--chdir", str(self.folder), *options, str(script)).strip()

    def kill_daemon(self, node: str) -> None:
        """The node answers no more; what runs there continues."""
        for line in (self.folder / "slurm" / "pids").read_text().splitlines():
            pid, _, name = line.split()
            if name == node:
                os.kill(int(pid), signal.SIGKILL)
                return
        raise AssertionError(f"there is no daemon of {node}")


@pytest.fixture
def slurm() -> Iterator[Slurm]:
    with tempfile.TemporaryDirectory(prefix="millrace-slurm-") as name:
        folder = pathlib.Path(name)
        try:
            started = subprocess.run([SCRIPT, "start", folder], capture_output=True, text=True, timeout=580)
            assert started.returncode == 0, started.stderr
            words = (shlex.split(line)[1] for line in started.stdout.splitlines())
            yield Slurm(folder, dict(word.split("=", 1) for word in words))
        finally:
            subprocess.run([SCRIPT, "stop", folder], check=True, timeout=120)


def wait_for(what: str, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


# The program saves without end, and writes down what becomes of each save.
SAVES = """
import json, os, sys, time
import millrace

uri, record = sys.argv[1:]
ckpt = millrace.Checkpoints(uri, keep=1000)
ckpt.claim()
step = ckpt.latest() or 0
me = {"node": os.environ["SLURMD_NODENAME"], "pid": os.getpid(), "began": step}
with open(record, "a") as file:
    print(json.dumps(me | {"event": "claimed"}), file=file, flush=True)
    refused = 0
    while refused < 20:
        step += 1
        try:
            ckpt.save(step, me)
            event = "saved"
        except millrace.MismatchError:
            event = "refused"
            refused += 1
        print(json.dumps(me | {"event": event, "step": step}), file=file, flush=True)
        time.sleep(0.05)
"""


def test_a_node_that_was_declared_dead_commits_nothing(slurm: Slurm) -> None:
    program, script, record = slurm.folder / "saves.py", slurm.folder / "job.sh", slurm.folder / "record"
    program.write_text(SAVES)
    uri = str(slurm.folder / "checkpoints")
    script.write_text(f"#!/bin/sh\nexec {shlex.join([sys.executable, str(program), uri, str(record)])}\n")
    record.touch()

    def events(**wanted: object) -> list[dict[str, object]]:
        found = [json.loads(line) for line in record.read_text().splitlines() if line.endswith("}")]
        return [event for event in found if wanted.items() <= event.items()]

    job = slurm.submit(script, "--requeue")
    try:
        wait_for("the first attempt saves nothing", lambda: len(events(event="saved")) >= 5)
        (first,) = events(event="claimed")
        slurm.kill_daemon(str(first["node"]))
        wait_for("Slurm does not start the job on another node", lambda: len(events(event="claimed")) == 2)
        successor = events(event="claimed")[1]
        assert successor["node"] != first["node"]
        # The zombie continues on its node: it is alive, tries twenty times, and is refused each time.
        wait_for("the zombie is not refused", lambda: len(events(event="refused")) >= 20)
        assert {event["pid"] for event in events(event="refused")} == {first["pid"]}
        wait_for("the successor saves nothing", lambda: len(events(event="saved", pid=successor["pid"])) >= 20)
    finally:
        slurm.run("scancel", job)
    import millrace

    ckpt = millrace.Checkpoints(uri)
    for step in ckpt.steps():
        owner = ckpt.load(step)["pid"]
        # All that the zombie has committed came before the claim of its successor, which began behind it.
        assert owner == (first["pid"] if step <= int(str(successor["began"])) else successor["pid"])
    assert events(event="saved", pid=successor["pid"])[0]["step"] == int(str(successor["began"])) + 1


# The program ends when it is asked to leave, and in its second life at once.
LEAVES = """
import pathlib, sys, time
import millrace

seen = pathlib.Path(sys.argv[1])
with seen.open("a") as file:
    print("begins", file=file, flush=True)
    if seen.read_text().count("begins") > 1:
        raise SystemExit(0)
    while not (notice := millrace.notice()):
        time.sleep(0.05)
    print(notice.kind, notice.detail, file=file, flush=True)
raise SystemExit(0)
"""


def test_a_notice_of_slurm_queues_the_job_again(slurm: Slurm, millrace_bin: pathlib.Path) -> None:
    program, script, seen = slurm.folder / "leaves.py", slurm.folder / "job.sh", slurm.folder / "seen"
    program.write_text(LEAVES)
    command = [str(millrace_bin), "run", "--", sys.executable, str(program), str(seen)]
    script.write_text(f"#!/bin/sh\nexec {shlex.join(command)}\n")
    job = slurm.submit(script, "--requeue")
    wait_for("the job does not begin", lambda: seen.exists() and "begins" in seen.read_text())
    slurm.run("scancel", "--batch", "--signal=USR1", job)
    # RequeueExit=75 of slurm.conf.
    wait_for(
        "the job is not started again", lambda: seen.read_text().splitlines() == ["begins", "signal SIGUSR1", "begins"]
    )
    wait_for("the job does not end", lambda: "COMPLETED" in slurm.run("scontrol", "show", "job", job))
