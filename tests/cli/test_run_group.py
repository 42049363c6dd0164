"""`millrace run --group`: the groups of a job, each host a process of its own here, which end together."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_support import Millrace
from ports import free_port

WAITS = "sleep 3000"
StartHost = Callable[..., "subprocess.Popen[str]"]


def wait_for(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + 300
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def host(millrace_bin: Path, tmp_path: Path) -> Iterator[StartHost]:
    """host("train", data="sleep 300", train="true") starts one of that group."""
    port = free_port()
    with contextlib.ExitStack() as stack:

        def start(
            role: str | None,
            *options: object,
            env: dict[str, str] | None = None,
            through: Callable[[int], int] = lambda port: port,
            **groups: str,
        ) -> subprocess.Popen[str]:
            words = [str(millrace_bin), "run", "--group-port", str(port)]
            if "--group-lost" not in options:
                words += ["--group-lost", "300s"]  # on a busy machine, too
            words += [*map(str, options)]
            words += [] if role is None else ["--role", role, "--coordinator", f"127.0.0.1:{through(port)}"]
            for name, command in groups.items():
                words += ["--group", f"{name}={command}"]
            errors = (tmp_path / f"errors-{time.monotonic_ns()}").open("w+")
            process = subprocess.Popen(
                words, stdout=subprocess.PIPE, stderr=errors, text=True, env=os.environ | (env or {})
            )
            process.errors = errors.name  # type: ignore[attr-defined]
            errors.close()
            stack.callback(end, process)
            return process

        def end(process: Any) -> None:
            process.kill()
            process.communicate()

        yield start


def said(process: Any) -> str:
    return Path(process.errors).read_text()


def joins(process: Any) -> None:
    """Its command runs, and the coordinator has heard of it."""
    wait_for(lambda: "attempt 1 of" in said(process) and "the coordinator has answered" in said(process))


def until(go: Path, then: str) -> str:
    return f"until [ -e {go} ]; do sleep 0.05; done; {then}"


def ends(*processes: Any) -> list[int]:
    return [process.wait(timeout=300) for process in processes]


def test_all_end_with_the_success_of_the_last_group(host: StartHost, tmp_path: Path) -> None:
    go = tmp_path / "go"
    groups = {"data": WAITS, "train": f"until [ -e {go} ]; do sleep 0.05; done; echo trained"}
    train, data = host("train", **groups), host("data", **groups)
    joins(data)
    go.touch()
    assert ends(train, data) == [0, 0]
    assert train.stdout is not None and train.stdout.read() == "trained\n"
    assert "group train has succeeded" in said(data)


def test_commands_know_the_hosts_of_the_last_group(host: StartHost) -> None:
    show = "echo $MILLRACE_GROUP $MILLRACE_MAIN_HOST $MILLRACE_MAIN_HOSTS"
    groups = {"data": WAITS, "train": show}
    options = ["--main-hosts", "2", "--host-index"]
    trainers = [host("train", *options, index, **groups) for index in (0, 1)]
    assert ends(*trainers) == [0, 0]
    for each in trainers:
        assert each.stdout is not None and each.stdout.read() == "train 127.0.0.1 2\n"


RANKS = """
import os
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
sum_of_ranks = torch.tensor([float(dist.get_rank())])
dist.all_reduce(sum_of_ranks)
print("rank", dist.get_rank(), "of", dist.get_world_size(), "sum", int(sum_of_ranks.item()), flush=True)
dist.destroy_process_group()
"""


@pytest.mark.all
def test_torchrun_on_two_hosts_of_the_last_group(host: StartHost, tmp_path: Path) -> None:
    """By the line of docs/groups.md, each host a process of its own here."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "groups.md").read_text()
    [line] = re.findall(r"--group train='(torchrun --nnodes .*?)'", page, re.DOTALL)
    line = line.replace("\\\n", " ").replace("torchrun", f"{sys.executable} -m torch.distributed.run", 1)
    line = line.replace(":29500", f":{free_port()}").replace("--nproc-per-node 8", "--nproc-per-node 1")
    (tmp_path / "train.py").write_text(RANKS)
    groups = {"data": WAITS, "train": line.replace("train.py", str(tmp_path / "train.py"))}
    options = ["--main-hosts", "2", "--host-index"]
    env = {"OMP_NUM_THREADS": "1"}
    trainers = [host("train", *options, index, env=env, **groups) for index in (0, 1)]
    data = host("data", **groups)
    assert ends(*trainers, data) == [0, 0, 0], said(trainers[0])
    shown = sorted(each.stdout.read() for each in trainers if each.stdout is not None)
    assert shown == ["rank 0 of 2 sum 1\n", "rank 1 of 2 sum 1\n"]


def test_the_order_in_which_hosts_come_does_not_matter(host: StartHost, tmp_path: Path) -> None:
    go = tmp_path / "go"
    groups = {"data": WAITS, "train": until(go, "true")}
    data = host("data", **groups)
    wait_for(lambda: "attempt 1 of" in said(data))
    train = host("train", **groups)
    joins(data)
    go.touch()
    assert ends(train, data) == [0, 0]


@pytest.mark.parametrize("victim", ["data", "train"])
def test_a_command_that_fails_for_good_ends_all(host: StartHost, victim: str, tmp_path: Path) -> None:
    """After its retries; the others end with its status."""
    go = tmp_path / "go"
    groups = {"data": WAITS, "train": WAITS, victim: f"until [ -e {go} ]; do sleep 0.05; done; exit 9"}
    options = ["--retries", 1, "--delay", 0.01]
    train, data = host("train", *options, **groups), host("data", *options, **groups)
    joins(data)
    go.touch()
    assert ends(train, data) == [9, 9]
    assert f"of group {victim} has failed with status 9" in said(data) and "attempt 2 of 2" in said(
        {"train": train, "data": data}[victim]
    )


def test_a_command_that_does_not_end_is_killed(host: StartHost, tmp_path: Path) -> None:
    pid, go = tmp_path / "pid", tmp_path / "go"
    groups = {"data": f"trap '' TERM; echo $$ >{pid}; while :; do sleep 0.1; done", "train": until(go, "exit 4")}
    train, data = host("train", "--group-grace", "0.5s", **groups), host("data", "--group-grace", "0.5s", **groups)
    joins(data)
    wait_for(lambda: pid.exists() and pid.read_text().strip())
    go.touch()
    assert ends(train, data) == [4, 4]
    wait_for(lambda: not Path(f"/proc/{pid.read_text().strip()}").exists())


def test_a_trainer_host_that_is_lost_ends_all(host: StartHost) -> None:
    groups = {"data": WAITS, "train": WAITS}
    hosts = ["--main-hosts", 2, "--group-lost", "6s"]
    first, second = (
        host("train", *hosts, "--host-index", 0, **groups),
        host("train", *hosts, "--host-index", 1, **groups),
    )
    data = host("data", *hosts, **groups)
    for each in (first, second, data):
        joins(each)
    second.kill()
    assert ends(first, data) == [75, 75]
    assert "nothing is heard of" in said(data)


def test_a_coordinator_that_is_lost_ends_all(host: StartHost) -> None:
    groups = {"data": WAITS, "train": WAITS}
    train, data = host("train", "--group-lost", "6s", **groups), host("data", "--group-lost", "6s", **groups)
    joins(data)
    train.kill()
    assert ends(data) == [75]
    assert "does not answer any more" in said(data)


def test_the_job_goes_on_without_a_host_that_serves(host: StartHost, tmp_path: Path) -> None:
    go = tmp_path / "go"
    groups = {"data": WAITS, "train": f"until [ -e {go} ]; do sleep 0.05; done"}
    train, lost, stays = (host(role, "--group-lost", "6s", **groups) for role in ("train", "data", "data"))
    joins(lost)
    joins(stays)
    lost.kill()
    wait_for(lambda: "the job continues without it" in said(train))
    go.touch()
    assert ends(train, stays) == [0, 0]


def test_a_host_that_serves_and_is_taken_away(host: StartHost, tmp_path: Path) -> None:
    """Its command asks for another machine (status 75): its scheduler gets that status, and the others continue."""
    go, leaves = tmp_path / "go", tmp_path / "leaves"
    groups = {"data": until(leaves, "exit 75"), "train": until(go, "true")}
    train, data = host("train", "--group-lost", "6s", **groups), host("data", "--group-lost", "6s", **groups)
    joins(data)
    leaves.touch()
    assert ends(data) == [75]
    wait_for(lambda: "the job continues without it" in said(train))
    go.touch()
    assert ends(train) == [0]


def test_a_host_that_stands_still_ends_all(host: StartHost) -> None:
    """It is there, and says nothing any more: a machine that hangs."""
    groups = {"data": WAITS, "train": WAITS}
    hosts = ["--main-hosts", 2, "--group-lost", "6s"]
    first, second = (
        host("train", *hosts, "--host-index", 0, **groups),
        host("train", *hosts, "--host-index", 1, **groups),
    )
    data = host("data", *hosts, **groups)
    for each in (first, second, data):
        joins(each)
    second.send_signal(signal.SIGSTOP)
    assert ends(first, data) == [75, 75]


@pytest.mark.parametrize(("last", "status"), [("kill -9 $$", 137), ("exec /nowhere/program", 127)])
def test_a_command_that_is_killed_or_cannot_start_ends_all(
    host: StartHost, tmp_path: Path, last: str, status: int
) -> None:
    go = tmp_path / "go"
    groups = {"data": WAITS, "train": until(go, last)}
    train, data = host("train", **groups), host("data", **groups)
    joins(data)
    go.touch()
    assert ends(train, data) == [status, status]


def test_a_command_that_serves_and_is_killed_is_started_again(host: StartHost, tmp_path: Path) -> None:
    """More often than a failure may happen, and without retries; also if a shell between says that it was killed."""
    starts, serves, go = tmp_path / "starts", tmp_path / "serves", tmp_path / "go"
    command = f"""
        echo >>{starts}
        case $(wc -l <{starts}) in
          [1-5]) kill -9 $$ ;;
          6) sh -c 'kill -9 $$'; exit $? ;;
        esac
        touch {serves}; {WAITS}
    """
    groups = {"data": command, "train": until(go, "true")}
    options = ["--delay", "0.01"]
    train, data = host("train", *options, **groups), host("data", *options, **groups)
    joins(data)
    wait_for(serves.exists)
    go.touch()
    assert ends(train, data) == [0, 0]
    assert said(data).count("was killed by signal 9") == 5
    assert "attempt 6 exited with status 137" in said(data) and "; attempt 7 follows" in said(data)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_is_asked_to_end_is_started_again(
    host: StartHost, millrace_bin: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """By an operator, or by what watches the memory: it ends with 0, and the training still needs it."""
    go, port = tmp_path / "go", free_port()
    worker = f"echo $$ >>{tmp_path / 'pids'}; exec {millrace_bin} worker --listen 127.0.0.1:{port}"
    groups = {"data": worker, "train": until(go, "true")}
    train, data = host("train", **groups), host("data", "--delay", "0.01", **groups)
    joins(data)
    assert data.stdout is not None
    for _ in range(2):
        assert data.stdout.readline() == f"listening on 127.0.0.1:{port}\n"
        os.kill(int((tmp_path / "pids").read_text().split()[-1]), number)
    assert data.stdout.readline() == f"listening on 127.0.0.1:{port}\n"
    go.touch()
    assert ends(train, data) == [0, 0]
    assert "exited with status 0" in said(data) and "attempt 3 follows" in said(data)


def test_a_command_that_serves_once(host: StartHost, tmp_path: Path) -> None:
    """A rule says that its success is one."""
    go, starts = tmp_path / "go", tmp_path / "starts"
    groups = {"data": f"echo >>{starts}", "train": until(go, "true")}
    options = ["--delay", "0.01", "--on-exit", "code=0:exit"]
    train, data = host("train", *options, **groups), host("data", *options, **groups)
    wait_for(lambda: "the job has not ended yet" in said(data))
    go.touch()
    assert ends(train, data) == [0, 0] and starts.read_text() == "\n"


def test_a_rule_may_say_otherwise(host: StartHost) -> None:
    groups = {"data": "kill -9 $$", "train": WAITS}
    rule = ["--on-exit", "reason=Signal*:exit"]
    assert ends(host("train", *rule, **groups), host("data", *rule, **groups)) == [137, 137]


class Relay:
    """A way to a port of this machine that can be cut."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._sockets = [socket.create_server(("127.0.0.1", 0))]
        self.port = int(self._sockets[0].getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        for each in list(self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._sockets[0].accept()
                try:
                    target = socket.create_connection(("127.0.0.1", self._target))
                except OSError:  # the coordinator does not listen yet; the host asks again
                    client.close()
                    continue
                self._sockets += [client, target]
                for source, to in ((client, target), (target, client)):
                    threading.Thread(target=self._copy, args=(source, to), daemon=True).start()

    @staticmethod
    def _copy(source: socket.socket, to: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                to.sendall(data)
        with contextlib.suppress(OSError):
            to.shutdown(socket.SHUT_WR)


def test_a_network_that_is_cut(host: StartHost, tmp_path: Path) -> None:
    """A host that serves ends by itself, and the job continues without it."""
    go, relays = tmp_path / "go", []

    def through(port: int) -> int:
        relays.append(Relay(port))
        return relays[0].port

    groups = {"data": WAITS, "train": until(go, "true")}
    train = host("train", "--group-lost", "20s", **groups)
    data = host("data", "--group-lost", "6s", through=through, **groups)
    joins(data)
    relays[0].cut()
    assert ends(data) == [75] and "does not answer any more" in said(data)
    wait_for(lambda: "the job continues without it" in said(train))
    go.touch()
    assert ends(train) == [0]


@pytest.mark.parametrize(("role", "number"), [("train", signal.SIGTERM), ("data", signal.SIGINT)])
def test_a_signal_to_one_host_ends_all(host: StartHost, role: str, number: signal.Signals) -> None:
    waits = f"exec {WAITS}"  # a shell that waits for a command leaves SIGINT until this has ended
    groups = {"data": waits, "train": waits}
    hosts = {"train": host("train", **groups), "data": host("data", **groups)}
    joins(hosts["data"])
    hosts[role].send_signal(number)
    assert ends(*hosts.values()) == [128 + number] * 2


@pytest.mark.parametrize("command", [WAITS, "trap 'exit 0' TERM; while :; do sleep 0.05; done"])
def test_a_host_that_serves_and_gets_sigterm_leaves(host: StartHost, tmp_path: Path, command: str) -> None:
    """As in an eviction: its scheduler is asked for another machine, and the others continue."""
    go = tmp_path / "go"
    groups = {"data": command, "train": until(go, "true")}
    train, data = host("train", "--group-lost", "6s", **groups), host("data", **groups)
    joins(data)
    data.send_signal(signal.SIGTERM)
    assert ends(data) == [75] and "this host serves, and leaves the job, which continues" in said(data)
    wait_for(lambda: "the job continues without it" in said(train))
    go.touch()
    assert ends(train) == [0]


def test_a_host_without_the_secret_is_not_heard(host: StartHost, tmp_path: Path) -> None:
    right, wrong, go = tmp_path / "right", tmp_path / "wrong", tmp_path / "go"
    right.write_text("correct-horse-battery")
    wrong.write_text("staple-staple-staple")
    groups = {"data": WAITS, "train": f"until [ -e {go} ]; do sleep 0.05; done"}
    train = host("train", "--group-token-file", right, **groups)
    stranger, data = (
        host("data", "--group-token-file", wrong, **groups),
        host("data", "--group-token-file", right, **groups),
    )
    assert ends(stranger) == [1] and "another token" in said(stranger)
    joins(data)
    go.touch()
    assert ends(train, data) == [0, 0]


def test_roles_of_sagemaker(host: StartHost, tmp_path: Path) -> None:
    groups = [
        {"instance_group_name": "data_group", "hosts": ["algo-1"]},
        {"instance_group_name": "dnn_group", "hosts": ["localhost"]},
    ]
    processes = []
    for own in ("localhost", "algo-1"):
        folder = tmp_path / own
        folder.mkdir()
        (folder / "resourceconfig.json").write_text(json.dumps({"current_host": own, "instance_groups": groups}))
        processes.append(
            host(
                None,
                env={"SM_INPUT_CONFIG_DIR": str(folder)},
                data_group=WAITS,
                dnn_group=until(tmp_path / "go", "exit 5"),
            )
        )
    joins(processes[1])
    (tmp_path / "go").touch()
    assert ends(*processes) == [5, 5]
    assert "this is a host of group dnn_group; it coordinates" in said(processes[0])
    assert "this is a host of group data_group; localhost:" in said(processes[1])


def test_roles_of_slurm(host: StartHost, tmp_path: Path) -> None:
    """As a heterogeneous job has them: its components are the groups, in their order."""
    lists = {
        "SLURM_HET_SIZE": "2",
        "SLURM_JOB_NODELIST_HET_GROUP_0": "cpu[1-2]",
        "SLURM_JOB_NODELIST_HET_GROUP_1": "localhost",
    }
    start = {"data": WAITS, "train": until(tmp_path / "go", "exit 6")}
    processes = [host(None, env={**lists, "SLURMD_NODENAME": node}, **start) for node in ("localhost", "cpu1", "cpu2")]
    joins(processes[1])
    joins(processes[2])
    (tmp_path / "go").touch()
    assert ends(*processes) == [6, 6, 6]
    assert "this is a host of group data" in said(processes[2])


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("--group train=true", "nothing says which group"),
        ("--group train=true --role data", "there is no such group"),
        ("--group train=true --role train", "--coordinator"),
        ("--group train=true --role train --coordinator here", "HOST:PORT"),
        ("--group train=true --role train --coordinator h:1", "--group-token-file"),
        ("--group train=true --role train --coordinator 127.0.0.1:1 --main-hosts 2", "--host-index"),
        ("--group train", "NAME=COMMAND"),
        ("--group a=true --group a=true --role a", "twice"),
        ("--group train=true -- true", "behind '--'"),
        ("--group train=true --group-size data=2 --print slurm-script", "--group-size"),
        ("--group train=true --print jobset", "--image"),
        ("--group a_b=true --print jobset --image x", "Kubernetes"),
        ("", "name the command"),
    ],
)
def test_what_makes_no_sense(millrace: Millrace, words: str, why: str) -> None:
    assert why in millrace("run", *shlex.split(words), code=2).stderr.decode()


GROUPS = [
    "--group",
    "data=millrace worker --listen 0.0.0.0:7070",
    "--group",
    'train=echo "it\'s $HOME"',
    "--group-size",
    "data=3",
]


def test_a_script_for_slurm(millrace: Millrace, tmp_path: Path) -> None:
    text = millrace("run", *GROUPS, "--print", "slurm-script", "--job-name", "run-7").stdout.decode()
    (tmp_path / "script").write_text(text)
    subprocess.run(["bash", "-n", str(tmp_path / "script")], check=True)
    assert "--job-name=run-7" in text and "--nodes=3" in text and text.count("#SBATCH hetjob") == 1
    # Run with stand-ins: each component of the job gets the same words, and no shell has looked into them.
    for name, body in {
        "srun": 'while [ $# -gt 0 ]; do [ "$1" != bash ] || bash -c run; shift; done',
        "millrace": 'printf "%s\\n" "$@"',
    }.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "7"}
    done = subprocess.run(
        ["bash", str(tmp_path / "script")], env=env, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.count("data=millrace worker --listen 0.0.0.0:7070\n") == 2
    assert done.stdout.count('train=echo "it\'s $HOME"\n') == 2
    assert not list(tmp_path.glob(".millrace-token*"))


def test_a_jobset_for_kubernetes(millrace: Millrace) -> None:
    text = millrace("run", *GROUPS, "--print", "jobset", "--image", "me/train:1", "--job-name", "run-7").stdout.decode()
    manifest = json.loads(text.split("\n", 1)[1])
    assert manifest["kind"] == "JobSet" and manifest["metadata"]["name"] == "run-7"
    data, train = manifest["spec"]["replicatedJobs"]
    assert (data["name"], train["name"]) == ("data", "train")
    assert data["template"]["spec"]["parallelism"] == data["template"]["spec"]["completions"] == 3
    pod = train["template"]["spec"]["template"]["spec"]
    command = pod["containers"][0]["command"]
    assert command[:6] == ["millrace", "run", "--role", "train", "--coordinator", "run-7-train-0-0.run-7:7079"]
    assert 'train=echo "it\'s $HOME"' in command and pod["volumes"][0]["secret"]["secretName"] == "run-7-token"
