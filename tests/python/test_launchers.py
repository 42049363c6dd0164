"""Tests docs/launchers.md: its program runs under torchrun, as its lines and its batch script start it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import millrace
import pytest
from support import binary

pytestmark = [pytest.mark.all, pytest.mark.timeout(1800)]
PAGE = (Path(__file__).parents[2] / "docs" / "launchers.md").read_text()
(PROGRAM,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
LINE, SCRIPT = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)

# Rank 0 waits within a step for the test, or for a notice.
WAIT = """
import os, time
def wait(rank, step):
    if rank != 0 or step != int(os.environ["WAIT_AT"]) or os.path.exists("go"):
        return
    open("waits", "w").write(str(os.getpid()))
    while not os.path.exists("go") and millrace.notice() is None:
        time.sleep(0.02)
"""


class Job:
    """Is a shell in a folder of its own, which has the program of the page."""

    def __init__(self, folder: Path, script: str, **variables: str) -> None:
        self.folder = folder
        program = PROGRAM.replace("    step += 1\n", "    step += 1\n    wait(rank, step)\n")
        assert program != PROGRAM
        (folder / "train.py").write_text(WAIT + program.replace("STEPS = 1000", "STEPS = 250"))
        (folder / "bin").mkdir()
        (folder / "bin" / "torchrun").write_text(f'#!/bin/sh\nexec {sys.executable} -m torch.distributed.run "$@"\n')
        (folder / "bin" / "torchrun").chmod(0o755)
        (folder / "script").write_text(
            script.replace("s3://bucket/run-7", "ckpt").replace("run ", "run --journal journal ", 1)
        )
        path = f"{folder / 'bin'}:{binary().parent}:{os.environ['PATH']}"
        self.process = subprocess.Popen(
            ["bash", "script"],
            cwd=folder,
            env=os.environ | {"PATH": path, "OMP_NUM_THREADS": "1", "WAIT_AT": "150"} | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 600
        while not condition():
            assert self.process.poll() is None, self.process.communicate()[0]
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def rank_0(self) -> int:
        """Returns the process of rank 0, which waits in its step."""
        waits = self.folder / "waits"
        self.wait_for(lambda: waits.exists() and waits.read_text() != "")
        return int(waits.read_text())

    def events(self) -> list[str]:
        return [json.loads(line)["event"] for line in (self.folder / "journal").read_text().splitlines()]

    def ends(self) -> tuple[int, str]:
        out, _ = self.process.communicate(timeout=600)
        return self.process.returncode, out

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


def test_a_rank_that_dies_is_started_again_from_the_checkpoint(tmp_path: Path) -> None:
    with Job(tmp_path, LINE) as job:
        os.kill(job.rank_0(), signal.SIGKILL)
        (tmp_path / "go").touch()
        status, said = job.ends()
    assert status == 0, said
    assert job.events().count("attempt-start") == 2
    ckpt = millrace.Checkpoints(tmp_path / "ckpt")
    assert ckpt.steps()[-1] == 250 and ckpt.load()["step"] == 250


def test_slurm_requeues_a_job_that_it_gives_notice(tmp_path: Path) -> None:
    """The hook requeues it, after the program has saved."""
    requeue = tmp_path / "bin" / "scontrol"
    with Job(tmp_path, SCRIPT, SLURM_JOB_ID="17") as job:
        requeue.write_text('#!/bin/sh\necho "$@" >>requeued\n')
        requeue.chmod(0o755)
        job.rank_0()
        job.process.send_signal(signal.SIGUSR1)
        status, said = job.ends()
    assert status == 75, said
    assert (tmp_path / "requeued").read_text() == "requeue 17\n"
    assert millrace.Checkpoints(tmp_path / "ckpt").steps() == [100, 150]
