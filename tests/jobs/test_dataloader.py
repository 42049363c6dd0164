"""A training with torch's DataLoader under `millrace run`: its workers live until it has saved, and it continues where it was."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import millrace
import pytest

TRAINER = """
import os, pathlib, time
import millrace
import torch
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, i):
        return torch.tensor(i)

ckpt = millrace.Checkpoints()
notice = millrace.notice()
state = ckpt.load() if ckpt.latest() is not None else {"step": 0, "sum": 0}
loader = DataLoader(Numbers(), batch_size=1, sampler=range(state["step"], 40), num_workers=2)
for (number,) in zip(*[loader]):
    state = {"step": state["step"] + 1, "sum": state["sum"] + int(number)}
    if state["step"] == 10 and os.environ["WAITS"] == "1":
        pathlib.Path("waits").touch()
        while millrace.notice() is None:
            time.sleep(0.02)
        # The batches that come now are those of workers that a signal to the group would have ended.
    if state["step"] == 20 and millrace.notice() is not None:
        ckpt.save(state["step"], state)
        raise SystemExit(75)
ckpt.save(state["step"], state)
print("sum", state["sum"], flush=True)
"""


def run(binary: Path, folder: Path, waits: str) -> subprocess.Popen[str]:
    words = [binary, "run", "--checkpoint", folder / "ckpt", "--journal", folder / "journal", "--grace", "600"]
    command = ["--", "env", f"WAITS={waits}", sys.executable, "-c", TRAINER]
    return subprocess.Popen(
        [*map(str, words), *command], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.slow
def test_a_notice_leaves_the_workers_alive_until_the_program_has_saved(millrace_bin: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    job = run(millrace_bin, tmp_path, waits="1")
    try:
        deadline = time.monotonic() + 600
        while not (tmp_path / "waits").exists():
            assert job.poll() is None and time.monotonic() < deadline, job.communicate()
            time.sleep(0.02)
        job.send_signal(signal.SIGUSR1)  # as Slurm gives notice
        out, said = job.communicate(timeout=600)
        assert job.returncode == 75 and out == "", said
    finally:
        job.kill()
        job.wait()
    assert millrace.Checkpoints(tmp_path / "ckpt").load() == {"step": 20, "sum": sum(range(20))}
    again = run(millrace_bin, tmp_path, waits="0")
    out, said = again.communicate(timeout=600)
    assert (again.returncode, out) == (0, f"sum {sum(range(40))}\n"), said
    ends = [json.loads(line) for line in (tmp_path / "journal").read_text().splitlines()]
    assert [each["outcome"] for each in ends if each["event"] == "end"] == ["elsewhere", "success"]
