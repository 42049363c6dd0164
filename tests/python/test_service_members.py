"""Workers that trainers find: in lists, in DNS, and in a real etcd, where they come and go."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import random
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import millrace
import pytest
from service_support import OPTIONS, none_here, outcome, received
from support import Samples
from thoroughness import repeats

SCRIPT = pathlib.Path(__file__).resolve().parents[1] / "servers" / "etcd.sh"


class Etcd:
    """A running etcd, and how to ask it by its own tool."""

    def __init__(self, folder: str, *options: str) -> None:
        self._folder, self._options = folder, options
        self.exports: dict[str, str] = {}

    def start(self) -> None:
        started = subprocess.run(
            [SCRIPT, "start", self._folder, *self._options], capture_output=True, text=True, timeout=280
        )
        assert started.returncode == 0, started.stderr
        words = (shlex.split(line)[1] for line in started.stdout.splitlines())
        self.exports = dict(word.split("=", 1) for word in words)

    def stop(self) -> None:
        subprocess.run([SCRIPT, "stop", self._folder], check=True, timeout=120)

    def place(self, name: str) -> str:
        scheme, address = self.exports["ETCDCTL_ENDPOINTS"].split("://")
        return f"{'etcds' if scheme == 'https' else 'etcd'}://{address}/{name}"

    def registered(self, name: str) -> list[str]:
        done = subprocess.run(
            ["etcdctl", "get", "--prefix", f"/millrace/workers/{name}/", "--print-value-only"],
            env=os.environ | self.exports, capture_output=True, text=True, check=True, timeout=300,
        )  # fmt: skip
        return done.stdout.split()


@contextlib.contextmanager
def running(*options: str) -> Iterator[Etcd]:
    with tempfile.TemporaryDirectory(prefix="millrace-etcd-") as folder:
        etcd = Etcd(folder, *options)
        try:
            etcd.start()
            yield etcd
        finally:
            etcd.stop()


@pytest.fixture(scope="module")
def etcd() -> Iterator[Etcd]:
    with running() as server:
        yield server


def wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def rows_of(loader: millrace.Loader) -> dict[str, int]:
    return {entry["worker"]: entry["rows"] for entry in loader.report()["workers"]}


def test_workers_that_register_are_found(tar: Samples, workers: Any, etcd: Etcd) -> None:
    place = etcd.place("found")
    addresses = {workers("--register", place).address for _ in range(2)}
    wait_for(lambda: set(etcd.registered("found")) == addresses)
    local, one = received(tar.uri)
    remote, other = received(tar.uri, workers=[place])
    assert remote == local and outcome(other) == outcome(one)
    report = {entry["worker"]: entry for entry in other.report()["workers"]}
    assert set(report) == {*addresses, "local"} and none_here(
        [*(report[address] for address in addresses), report["local"]]
    )
    # On a busy machine a worker that begins late may be overtaken.
    assert all(report[address]["rows"] > 0 or report[address]["last_failure"] for address in addresses)


def test_joining_and_leaving_in_mid_epoch(many: Samples, workers: Any, etcd: Etcd) -> None:
    """A worker that registers gets streams, one that ends has none any more, and one that is killed is no member when its lease ends."""
    place = etcd.place("elastic")
    first = workers("--register", place)
    wait_for(lambda: etcd.registered("elastic") == [first.address])
    with millrace.Loader(many.uri, workers=[place], **{**OPTIONS, "epochs": None}) as loader:
        batches = (batch for _ in range(10**9) for batch in loader)
        next(batches)
        assert len({entry["worker"] for entry in loader.report()["workers"]}) == 2

        def feed_until(what: Callable[[], bool]) -> None:
            deadline = time.monotonic() + 300
            while not what():
                next(batches)
                assert time.monotonic() < deadline, loader.report()["workers"]

        feed_until(lambda: rows_of(loader)[first.address] > 0)
        second = workers("--register", place)
        feed_until(lambda: rows_of(loader).get(second.address, 0) > 0)
        first.process.terminate()  # leaves at once
        first.process.wait()
        wait_for(lambda: etcd.registered("elastic") == [second.address])
        before = rows_of(loader)[second.address]
        feed_until(lambda: rows_of(loader)[second.address] > before + 100)
        second.process.kill()
        second.process.wait()
        third = workers("--register", place)
        feed_until(lambda: rows_of(loader).get(third.address, 0) > 0)
        wait_for(lambda: etcd.registered("elastic") == [third.address])  # within the lease of the one that was killed


def test_members_that_come_and_go_at_random(many: Samples, workers: Any, etcd: Etcd) -> None:
    """In the midst of epochs they register, end, and are killed; there may be none for a while. Every epoch has the digest of a local one."""
    whole = received(many.uri)[1].report()["digest"]
    for number in range(repeats(60)):
        print(f"epoch of seed 'members {number}'")  # shown if it fails
        chance = random.Random(f"members {number}")
        place = etcd.place(f"random-{number}")
        there = [workers("--register", place)]
        wait_for(lambda name=f"random-{number}": len(etcd.registered(name)) == 1)
        with millrace.Loader(many.uri, workers=millrace.Service([place], streams=4), **OPTIONS) as loader:
            for _ in loader:
                if chance.random() > 0.1:
                    continue
                if there and chance.random() < 0.5:
                    leaving = there.pop(chance.randrange(len(there)))
                    leaving.process.send_signal(chance.choice([signal.SIGTERM, signal.SIGKILL]))
                else:
                    there.append(workers("--register", place))
            assert loader.report()["digest"] == whole, number
        for worker in there:
            worker.end()


def test_an_etcd_that_goes_away(many: Samples, workers: Any) -> None:
    """Trainers go on with the workers that they know; workers register again."""
    with running() as server:
        place = server.place("gone")
        worker = workers("--register", place)
        wait_for(lambda: server.registered("gone") == [worker.address])
        local, one = received(many.uri)
        with millrace.Loader(many.uri, workers=[place], **OPTIONS) as loader:
            for number, _ in enumerate(loader):
                if number == 3:
                    server.stop()
            assert loader.report()["digest"] == one.report()["digest"]
            assert none_here(loader.report()["workers"])
        server.start()
        wait_for(lambda: server.registered("gone") == [worker.address])
        assert received(many.uri, workers=[place])[0] == local


def test_etcd_with_certificates(tar: Samples, workers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with running("--tls") as server:
        for name, value in server.exports.items():
            monkeypatch.setenv(name, value)
        place = server.place("secured")
        assert place.startswith("etcds://")
        worker = workers("--register", place)
        wait_for(lambda: server.registered("secured") == [worker.address])
        remote, loader = received(tar.uri, workers=[place])
        assert remote == received(tar.uri)[0] and rows_of(loader)[worker.address] > 0
        monkeypatch.delenv("ETCDCTL_CERT")
        with pytest.raises(millrace.InvalidArgumentError, match="ETCDCTL_KEY"):
            received(tar.uri, workers=[place])


def test_no_etcd(tar: Samples, capfd: Any) -> None:
    """The trainer decodes, after a few seconds in which a worker may come."""
    remote, loader = received(tar.uri, workers=["etcd://127.0.0.1:1/none"])
    assert remote == received(tar.uri)[0] and rows_of(loader)["local"] > 0
    assert "does not answer" in capfd.readouterr().err


def test_names_and_lists(tar: Samples, workers: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = workers()
    port = worker.address.split(":")[1]
    groups = [
        {"instance_group_name": "data", "hosts": ["127.0.0.1"]},
        {"instance_group_name": "train", "hosts": ["algo-2"]},
    ]
    (tmp_path / "resourceconfig.json").write_text(json.dumps({"current_host": "algo-2", "instance_groups": groups}))
    monkeypatch.setenv("SM_INPUT_CONFIG_DIR", str(tmp_path))
    local, _ = received(tar.uri)
    for place in (f"dns:localhost:{port}", f"slurm:127.0.0.[1-1]:{port}", f"sagemaker:data:{port}"):
        remote, loader = received(tar.uri, workers=[place])
        assert remote == local and rows_of(loader)[worker.address] > 0, place
    with pytest.raises(millrace.NotFoundError, match="data, train"):
        received(tar.uri, workers=[f"sagemaker:gpu:{port}"])


def test_registering_elsewhere_than_listening(workers: Any, etcd: Etcd, tmp_path: pathlib.Path) -> None:
    """What trainers are told: --advertise, else the address by which etcd is reached."""
    token = tmp_path / "token"
    token.write_text("0123456789abcdef")
    wide = {"listen": "0.0.0.0:0"}
    guessed = workers("--register", etcd.place("wide"), "--token-file", token, "--allow", tmp_path, **wide)
    workers(
        "--register",
        etcd.place("told"),
        "--advertise",
        "worker-7.example:7070",
        "--token-file",
        token,
        "--allow",
        tmp_path,
        **wide,
    )
    wait_for(lambda: etcd.registered("wide") == ["127.0.0.1:" + guessed.address.split(":")[1]])
    wait_for(lambda: etcd.registered("told") == ["worker-7.example:7070"])
