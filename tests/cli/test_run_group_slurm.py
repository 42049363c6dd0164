"""A job of two groups on a real Slurm, started by the script that `millrace run --print slurm-script` prints."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_support import Millrace
from ports import free_port
from test_run_group import RANKS

SCRIPT = Path(__file__).resolve().parents[1] / "servers" / "slurm.sh"
pytestmark = [pytest.mark.all, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def slurm() -> Iterator[dict[str, str]]:
    """Its environment. Two nodes of each of the partitions cpu and gpu, all of them this machine."""
    # Not pytest's tmp_path: paths of sockets are short.
    with tempfile.TemporaryDirectory(prefix="millrace-slurm-") as folder:
        started = subprocess.run([SCRIPT, "start", folder], capture_output=True, text=True, timeout=280)
        try:
            assert started.returncode == 0, started.stderr
            words = (shlex.split(line)[1] for line in started.stdout.splitlines())
            yield os.environ | dict(word.split("=", 1) for word in words)
        finally:
            subprocess.run([SCRIPT, "stop", folder], check=True, timeout=300)


class Job:
    """The printed script as a batch job: one node decodes, and two train."""

    def __init__(
        self, millrace: Millrace, binary: Path, slurm: dict[str, str], folder: Path, data: str, train: str
    ) -> None:
        self._env = {**slurm, "PATH": f"{binary.parent}:{slurm['PATH']}"}
        groups = [
            "--group",
            f"data={data}",
            "--group",
            f"train={train}",
            "--group-size",
            "train=2",
            "--print",
            "slurm-script",
        ]
        text = millrace("run", *groups).stdout.decode()
        # A user adds the places where the groups run. The nodes' names are no names of hosts here.
        text = text.replace("#SBATCH --nodes=1", "#SBATCH --partition=cpu --nodes=1").replace(
            "#SBATCH --nodes=2", "#SBATCH --partition=gpu --nodes=2"
        )
        text = text.replace("millrace run ", f"millrace run --coordinator 127.0.0.1:{free_port()} ", 1)
        (folder / "script").write_text(text)
        self._output = folder / "output"
        command = ["sbatch", "--parsable", "--no-requeue", f"--output={self._output}", str(folder / "script")]
        done = subprocess.run(command, env=self._env, cwd=folder, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        self.number = done.stdout.strip()

    def output(self) -> str:
        return self._output.read_text() if self._output.exists() else ""

    def wait_for(self, text: str, times: int = 1) -> None:
        deadline = time.monotonic() + 180
        while self.output().count(text) < times:
            assert time.monotonic() < deadline, self.output()
            time.sleep(0.1)

    def end(self) -> str:
        """Returns its output, when all its parts have ended."""
        deadline = time.monotonic() + 180
        while subprocess.run(
            ["squeue", "-h", "-j", self.number], env=self._env, capture_output=True, text=True
        ).stdout.strip():
            assert time.monotonic() < deadline, self.output()
            time.sleep(0.2)
        return self.output()


def test_data_and_train(millrace: Millrace, millrace_bin: Path, slurm: dict[str, str], tmp_path: Path) -> None:
    """The trainers feed from the worker on the node of the first component, with the digest of a local feed, and all end with them."""
    data, port = tmp_path / "data", free_port()
    data.mkdir()
    millrace("synth", data, "--count", "200")
    token = tmp_path / "token"
    token.write_text("0123456789abcdef")
    common = "--epochs 3 --batch 8 --json"
    local = json.loads(millrace("feed", data, *shlex.split(common)).stdout)
    # The list of nodes is that of Slurm; its one node is this machine.
    job = Job(
        millrace, millrace_bin, slurm, tmp_path,
        data=f"millrace worker --listen 127.0.0.1:{port} --token-file {token}",
        train=f"echo nodes $SLURM_JOB_NODELIST_HET_GROUP_0; millrace feed {data} --workers slurm:127.0.0.[1-1]:{port} --worker-token-file {token} {common}",
    )  # fmt: skip
    said = job.end()
    assert said.count("nodes cpu") == 2, said
    fed = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert [(each["digest"], each["position"]) for each in fed] == 2 * [(local["digest"], local["position"])], said
    assert {each["workers"][0]["worker"] for each in fed} == {f"127.0.0.1:{port}"}, fed
    assert said.count("the job ends with status 0: group train has succeeded") == 3, said


def test_torchrun_on_both_nodes_that_train(
    millrace: Millrace, millrace_bin: Path, slurm: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(RANKS)
    torchrun = (
        f"OMP_NUM_THREADS=1 {sys.executable} -m torch.distributed.run --nnodes $MILLRACE_MAIN_HOSTS --nproc-per-node 1 "
        f"--rdzv-backend c10d --rdzv-endpoint $MILLRACE_MAIN_HOST:{free_port()} --rdzv-id $SLURM_JOB_ID"
    )
    job = Job(millrace, millrace_bin, slurm, tmp_path, data="exec sleep 3000", train=f"{torchrun} {tmp_path}/train.py")
    said = job.end()
    assert said.count("rank 0 of 2 sum 1") == said.count("rank 1 of 2 sum 1") == 1, said
    assert said.count("the job ends with status 0: group train has succeeded") == 3, said


@pytest.mark.parametrize("victim", [0, 1])
def test_all_end_when_a_trainer_is_lost(
    millrace: Millrace, millrace_bin: Path, slurm: dict[str, str], tmp_path: Path, victim: int
) -> None:
    """`millrace run` of a node of the last group is killed, the coordinator or the other one."""
    job = Job(millrace, millrace_bin, slurm, tmp_path, data="sleep 300", train="sleep 300")
    job.wait_for("attempt 1 of 1", 3)
    time.sleep(3)
    pids = subprocess.run(
        ["pgrep", "-f", "--", f"run --coordinator .*{tmp_path}"], capture_output=True, text=True
    ).stdout.split()
    groups: dict[str, list[int]] = {"gpu1": [], "gpu2": []}
    for pid in pids:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        node = next((word.split(b"=")[1].decode() for word in environment if word.startswith(b"SLURMD_NODENAME=")), "")
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if node in groups and command[0].endswith(b"millrace"):
            groups[node].append(int(pid))
    first = min(groups[["gpu1", "gpu2"][victim]])  # the later one is the supervisor of its command
    os.kill(first, 9)
    said = job.end()
    assert said.count("the job ends with status 75") == 2, said
