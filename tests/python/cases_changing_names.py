"""Tests workers behind a name of DNS, which come and go. test_service_members.py runs these where libnss_wrapper takes
names from a file."""

from __future__ import annotations

import contextlib
import itertools
import os
import pathlib
import random
import signal
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import millrace
import pytest
from service_support import OPTIONS, none_here, outcome, received, rows_of_workers
from support import Samples
from thoroughness import repeats

Worker = Any


class Name:
    """Is a name whose addresses are those of some workers. All of them have one port, as behind a headless service of
    Kubernetes."""

    def __init__(self, name: str, start: Callable[..., Worker]) -> None:
        self._name, self._start = name, start
        self._hosts = (f"127.0.{number // 250}.{number % 250 + 2}" for number in itertools.count())
        self._listed: list[Worker] = []
        self._held = socket.create_server(("127.0.0.1", 0))  # so that nobody else gets the port
        self.port = self._held.getsockname()[1]
        self.place = f"dns:{name}:{self.port}"

    def close(self) -> None:
        self._held.close()

    def add(self) -> Worker:
        worker = self._start(listen=f"{next(self._hosts)}:{self.port}")
        self._list([*self._listed, worker])
        return worker

    def remove(self, worker: Worker) -> None:
        self._list([each for each in self._listed if each is not worker])

    def _list(self, workers: list[Worker]) -> None:
        self._listed = workers
        path = pathlib.Path(os.environ["NSS_WRAPPER_HOSTS"])
        hosts = [worker.address.split(":")[0] for worker in workers]
        following = path.with_suffix(".next")
        following.write_text("127.0.0.1 localhost\n" + "".join(f"{host} {self._name}\n" for host in hosts))
        following.replace(path)


@pytest.fixture
def name(workers: Any, request: pytest.FixtureRequest) -> Iterator[Name]:
    with contextlib.closing(Name(request.node.name.replace("_", "-") + ".example", workers)) as made:
        yield made


def test_all_addresses_of_a_name(tar: Samples, name: Name) -> None:
    addresses = {name.add().address for _ in range(2)}
    local, one = received(tar.uri)
    remote, other = received(tar.uri, workers=[name.place])
    assert remote == local and outcome(other) == outcome(one)
    report = {entry["worker"]: entry for entry in other.report()["workers"]}
    assert set(report) == {*addresses, "local"} and none_here(list(report.values()))
    # On a busy machine a worker that begins late may be overtaken.
    assert all(report[address]["rows"] > 0 or report[address]["last_failure"] for address in addresses)


def test_joining_and_leaving_in_mid_epoch(many: Samples, name: Name) -> None:
    """A new worker gets streams. A worker that ends or is killed loses its streams."""
    first = name.add()
    with millrace.Loader(many.uri, workers=[name.place], **{**OPTIONS, "epochs": None}) as loader:
        batches = (batch for _ in itertools.count() for batch in loader)
        next(batches)
        assert len(rows_of_workers(loader)) == 2

        def feed_until(condition: Callable[[], bool]) -> None:
            deadline = time.monotonic() + 300
            while not condition():
                next(batches)
                assert time.monotonic() < deadline, loader.report()["workers"]

        feed_until(lambda: rows_of_workers(loader)[first.address] > 0)
        second = name.add()
        feed_until(lambda: rows_of_workers(loader).get(second.address, 0) > 0)
        name.remove(first)
        first.process.terminate()
        first.process.wait()
        before = rows_of_workers(loader)[second.address]
        feed_until(lambda: rows_of_workers(loader)[second.address] > before + 100)
        second.process.kill()  # its address stays for a while, as in DNS
        second.process.wait()
        third = name.add()
        feed_until(lambda: rows_of_workers(loader).get(third.address, 0) > 0)
        name.remove(second)
        before = rows_of_workers(loader)[third.address]
        feed_until(lambda: rows_of_workers(loader)[third.address] > before + 100)


def test_members_that_come_and_go_at_random(many: Samples, name: Name) -> None:
    """During epochs they come, end, and are killed; there may be none for a while. Every epoch has the digest of a local one."""
    whole = received(many.uri)[1].report()["digest"]
    for number in range(repeats(60)):
        print(f"epoch of seed 'members {number}'")  # shown if it fails
        chance = random.Random(f"members {number}")
        there = [name.add()]
        with millrace.Loader(many.uri, workers=millrace.Service([name.place], streams=4), **OPTIONS) as loader:
            for _ in loader:
                if chance.random() > 0.1:
                    continue
                if there and chance.random() < 0.5:
                    leaving = there.pop(chance.randrange(len(there)))
                    leaving.process.send_signal(chance.choice([signal.SIGTERM, signal.SIGKILL]))
                    name.remove(leaving)
                else:
                    there.append(name.add())
            assert loader.report()["digest"] == whole, number
        for worker in there:
            name.remove(worker)
            worker.end()


def test_names_that_cannot_be_asked(many: Samples, name: Name) -> None:
    """The trainer keeps the workers that it knows."""
    worker = name.add()
    _, one = received(many.uri)
    with millrace.Loader(many.uri, workers=[name.place], **OPTIONS) as loader:
        for number, _ in enumerate(loader):
            if number == 3:
                pathlib.Path(os.environ["NSS_WRAPPER_HOSTS"]).write_text("no address\n")
        assert loader.report()["digest"] == one.report()["digest"]
        assert none_here(loader.report()["workers"]) and rows_of_workers(loader)[worker.address] > 0
