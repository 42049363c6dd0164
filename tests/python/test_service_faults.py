"""Tests workers that are killed, stopped, slow, and that lie, in any order: the epoch is that of a local loader."""

from __future__ import annotations

import contextlib
import json
import pathlib
import random
import signal
import socket
import subprocess
import threading
import time
from typing import Any

import millrace
import pytest
from ports import free_port
from service_support import OPTIONS, Proxy, is_late, is_sound, none_here, outcome, received
from support import Samples, binary
from thoroughness import ALL, repeats


def test_a_slow_worker_is_overtaken(many: Samples, workers: Any) -> None:
    """It answers, but its batches never come to their end: their streams are opened at another worker, which has them from then on."""
    slow, fast = Proxy(workers().address, drips=True), workers()
    local, one = received(many.uri)
    remote, other = received(many.uri, workers=millrace.Service([slow.address, fast.address], streams=4))
    slow.close()
    assert remote == local and outcome(other) == outcome(one)
    report = other.report()["workers"]
    assert report[0]["rows"] == 0 and report[0]["last_failure"], report
    assert is_sound(report[1]) and none_here(report[1:]), report


def test_a_long_way(many: Samples, workers: Any) -> None:
    """If batches are waited for because the way is long, more of them are asked for at a time; each request has a connection."""
    far = Proxy(workers().address, delay=0.02)
    local, one = received(many.uri)
    remote, other = received(many.uri, workers=[far.address])
    assert remote == local and outcome(other) == outcome(one)
    far.delay = 0.25  # far more than a worker takes for a batch, also on a busy machine
    with millrace.Loader(many.uri, workers=[far.address], **{**OPTIONS, "epochs": None}) as loader:
        batches = (batch for _ in range(10**9) for batch in loader)
        far.connections = 0
        deadline = time.monotonic() + 300
        while far.connections < 9:
            next(batches)
            assert time.monotonic() < deadline
    far.close()


def test_bytes_in_flight_over_a_long_way(many: Samples, workers: Any) -> None:
    """A quarter of the memory may be on its way: what a way holds is its rate times its delay."""
    far = Proxy(workers().address, way=0.2)
    options = {
        **OPTIONS,
        "size": 224,
        "epochs": None,
        "digest": None,
    }  # 8 rows of 147 KiB: 13 batches are a quarter of 64 MiB
    with millrace.Loader(many.uri, workers=millrace.Service([far.address], streams=1), **options) as loader:
        batches = (batch for _ in range(10**9) for batch in loader)
        deadline = time.monotonic() + 300
        while far.most_on_their_way < 10:
            next(batches)
            assert time.monotonic() < deadline, loader.report()["workers"]
        for _ in range(40):
            next(batches)
        was_late = is_late(loader.report()["workers"][0])  # then some were asked for twice
    far.close()
    assert far.most_on_their_way <= 15 or was_late, "13, and what opens and closes sessions"


class Pool:
    """Has three workers with addresses that they keep, and what may happen to them. One worker is behind a relay that
    flips bytes now and then, one behind a relay that is slow at times."""

    def __init__(self, start: Any, chance: random.Random) -> None:
        self._start, self._chance = start, chance
        self._running = [start(listen=f"127.0.0.1:{free_port()}") for _ in range(3)]
        self._liar = Proxy(self._running[0].address, flips_every=60)
        self._slow = Proxy(self._running[1].address)
        self.addresses = [self._liar.address, self._slow.address, self._running[2].address]
        self._stopped: set[int] = set()
        self.stops = 0
        self.pauses = (0.0, 0.05, 4.0) if ALL else (0.0, 0.05)  # the last one is so long that another worker is asked

    def something_happens(self) -> None:
        number = self._chance.randrange(3)
        worker = self._running[number]
        if number == 1 and self._chance.random() < 0.5:
            self._slow.delay = 0.0 if self._slow.delay else self._chance.choice(self.pauses)
        elif worker.process.poll() is not None:
            with contextlib.suppress(AssertionError):  # another program may have its port by now
                self._running[number] = self._start(listen=worker.address)
        elif number in self._stopped:
            self._stopped.remove(number)
            worker.process.send_signal(signal.SIGCONT)
        elif self.stops < 1 and self._chance.random() < 0.3:
            self.stops += 1  # a trainer needs two seconds to notice
            self._stopped.add(number)
            worker.process.send_signal(signal.SIGSTOP)
        else:
            worker.process.send_signal(self._chance.choice([signal.SIGKILL, signal.SIGTERM]))
            worker.process.wait()

    def close(self) -> None:
        self._liar.close()
        self._slow.close()
        for worker in self._running:
            worker.end()


def digest_sum(loaders: list[millrace.Loader]) -> int:
    return sum(int(loader.report()["digest"], 16) for loader in loaders)


def part_of_epoch(
    pool: Pool, chance: random.Random, uri: str, state: dict[str, Any] | None, steps: int | None
) -> tuple[int, dict[str, Any]]:
    """Reads on from `state`, so many steps or to the end, with a world, streams and local streams of its own. The sum of the ranks'
    digests, and where they are."""
    world = chance.choice([1, 2])
    streams, local_streams = chance.choice([1, 2, 4]), chance.choice([0, 0, 1])
    named = chance.sample(pool.addresses, chance.randint(1, 3))
    service = millrace.Service(named, streams=streams, local_streams=local_streams)
    loaders = [millrace.Loader(uri, **OPTIONS, world=world, rank=rank, workers=service) for rank in range(world)]
    try:
        if state is not None:
            for loader in loaders:
                loader.load_state_dict(state)
        for number, _ in enumerate(zip(*loaders, strict=True)):
            if chance.random() < 0.15:
                pool.something_happens()
            if number + 1 == steps:
                break
        return digest_sum(loaders), loaders[0].state_dict()
    finally:
        for loader in loaders:
            loader.close()


@pytest.mark.parametrize("part", range(4))
def test_random_epochs(many: Samples, workers: Any, part: int) -> None:
    """Each epoch is read in pieces, as by a trainer that is killed and started again with other ranks and streams, while workers come,
    go, crawl and lie. The digest of a local epoch says that every sample came once, and whole."""
    whole = int(received(many.uri)[1].report()["digest"], 16)
    for number in range(repeats(200, 8) // 4):
        print(f"epoch of seed '{part} {number}'")  # shown if it fails
        chance = random.Random(f"{part} {number}")
        pool = Pool(workers, chance)
        try:
            first, state = part_of_epoch(pool, chance, many.uri, None, chance.randint(1, 20))
            rest, _ = part_of_epoch(pool, chance, many.uri, state, None)
        finally:
            pool.close()
        assert (first + rest) % 2**128 == whole, (part, number)


def test_a_trainer_that_is_killed(many: Samples, workers: Any, tmp_path: pathlib.Path) -> None:
    """`millrace feed` with a state file is killed again and again, and started with other workers and streams."""
    both = [workers().address for _ in range(2)]
    common = [str(binary()), "feed", many.uri, "--batch", "8", "--size", "16", "--json", "--epochs", "20"]
    local = json.loads(subprocess.run(common, check=True, capture_output=True).stdout)
    state = tmp_path / "state"
    chance = random.Random(3)
    for kill in range(8):
        service = ["--workers", ",".join(chance.sample(both, 1 + kill % 2)), "--streams", str(chance.choice([1, 2, 4]))]
        process = subprocess.Popen(
            [*common, *service, "--state", str(state)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        before = state.read_bytes() if state.exists() else b""
        while process.poll() is None and (not state.exists() or state.read_bytes() == before) and kill < 7:
            time.sleep(0.01)
        if kill < 7:
            process.kill()
        out, err = process.communicate()
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, err
    assert json.loads(out)["digest"] == local["digest"] and json.loads(out)["position"] == local["position"]


def test_more_requests_than_a_worker_has_memory_for(many: Samples, workers: Any) -> None:
    """Memory of a worker is bounded: it refuses what does not fit, says so, and the others have the streams."""
    small, large = workers("--memory", "48MiB"), workers()
    local, one = received(many.uri, memory="256MiB")
    remote, other = received(many.uri, memory="256MiB", workers=[small.address, large.address])
    assert remote == local and outcome(other) == outcome(one)
    report = other.report()["workers"]
    assert "memory" in report[0]["last_failure"] or "budget" in report[0]["last_failure"], report
    assert report[0]["rows"] == 0 and none_here(report[1:])
    with pathlib.Path(f"/proc/{small.process.pid}/status").open() as status:
        peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    assert peak < 200 << 10  # KiB


@pytest.mark.parametrize(
    "answer", [b"", b"\0" * 100, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", b"SSH-2.0-OpenSSH_9\r\n"]
)
def test_something_else_at_the_address(tar: Samples, answer: bytes) -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                with contextlib.suppress(OSError), client:
                    client.recv(10)
                    client.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    local, one = received(tar.uri)
    remote, other = received(tar.uri, workers=[f"127.0.0.1:{listener.getsockname()[1]}"])
    with contextlib.suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)  # what blocks in accept() does not wake when the socket is closed
    listener.close()
    assert remote == local and outcome(other) == outcome(one)
    report = other.report()["workers"]
    assert report[0]["failures"] > 0 and report[0]["last_failure"] and report[0]["rows"] == 0
