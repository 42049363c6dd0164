"""Tests every interface under kills at any moment: each sample once an epoch, with the same bytes; the digest adds up;
nothing stays behind."""

from __future__ import annotations

import os
import pathlib
import pickle
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from typing import Any, Callable

import pytest
import thoroughness
from interface_trainer import DATA_LOADERS, EPOCHS, LOADERS
from support import Samples, add_digests, write_tar
from thoroughness import repeats

SAMPLES = 840 * (10 if thoroughness.ALL else 1)  # enough for all kills, and any world from 1 to 8 divides them
PROGRAM = pathlib.Path(__file__).with_name("interface_trainer.py")
MARK = "MILLRACE_TEST_MARK"


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Samples:
    return write_tar(tmp_path_factory.mktemp("killed"), SAMPLES)


def until(condition: Callable[[], bool], seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert condition()


class Job:
    """Has the ranks of a training, and the processes that are of it."""

    def __init__(self, folder: pathlib.Path, interface: str, uri: str) -> None:
        self.folder, self.interface, self.uri = folder, interface, uri
        self.mark = f"{folder}-{os.getpid()}"
        self.home = folder / "tmp"
        self.home.mkdir()
        self._started = 0

    def start(
        self, rank: int = 0, world: int = 1, batch: int = 16, state: Any = None, step: float = 0.002, **popen: Any
    ) -> tuple[Any, pathlib.Path]:
        self._started += 1
        options, log = self.folder / f"{self._started}.in", self.folder / f"{self._started}.out"
        given = {
            "interface": self.interface,
            "uri": self.uri,
            "rank": rank,
            "world": world,
            "batch": batch,
            "state": state,
            "step": step,
        }
        options.write_bytes(pickle.dumps(given))
        environment = {**os.environ, MARK: self.mark, "TMPDIR": str(self.home), "OMP_NUM_THREADS": "1"}
        return subprocess.Popen([sys.executable, str(PROGRAM), str(options), str(log)], env=environment, **popen), log

    def alive(self) -> list[int]:
        found = []
        for folder in pathlib.Path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            try:
                ended = (folder / "stat").read_text().rpartition(")")[2].split()[0] in "ZX"
                if not ended and f"{MARK}={self.mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
            except OSError:  # it has ended, or is another user's
                continue
        return found

    def check_nothing_is_left(self) -> None:
        until(lambda: not self.alive())
        assert not list(self.home.iterdir())
        assert not [name for name in os.listdir("/dev/shm") if name.startswith("millrace-transform")]


def written(log: pathlib.Path) -> list[tuple[Any, list[tuple[int, str, int]]]]:
    """Returns what a rank had, batch by batch. A record that was being written when the rank was killed is not
    there."""
    data = log.read_bytes() if log.exists() else b""
    records, at = [], 0
    while len(data) >= at + 4 and len(data) >= at + 4 + (size := int.from_bytes(data[at : at + 4], "little")):
        records.append(pickle.loads(data[at + 4 : at + 4 + size]))
        at += 4 + size
    return records


def kill_somewhen(started: list[tuple[Any, pathlib.Path]], chance: random.Random, seconds: float = 0.2) -> None:
    """Kills them once all of them have had a batch."""
    until(lambda: all((log.exists() and log.stat().st_size) or rank.poll() is not None for rank, log in started))
    time.sleep(chance.uniform(0, seconds))
    for rank, _ in started:
        rank.kill()


@pytest.mark.slow
@pytest.mark.parametrize("interface", LOADERS)
def test_a_loader_goes_on_in_any_world(tmp_path: pathlib.Path, samples: Samples, interface: str) -> None:
    chance = random.Random(interface)
    job = Job(tmp_path, interface, samples.uri)
    whole, log = job.start(step=0)
    assert whole.wait(300) == 0
    expected = written(log)
    kills = repeats(40, least=3)
    came: Counter[tuple[int, str, int]] = Counter()
    digests, state, killed = [], None, 0
    for part in range(20 * kills):
        # Thorough tests take worlds as they come; the others take small ones, which start soon.
        world = chance.randint(1, 8) if thoroughness.ALL or part == 1 else chance.randint(1, 2)
        batch = chance.choice([1, 2, 5] if part < kills else [1, 4, 7, 16])  # so that the data last for all kills
        started = [job.start(rank, world, batch, state, step=0.01 if part < kills else 0) for rank in range(world)]
        if part < kills:
            kill_somewhen(started, chance, 0.05)
        codes = [rank.wait(300) for rank, _ in started]
        assert set(codes) <= {0, -signal.SIGKILL}
        killed += codes.count(-signal.SIGKILL)
        batches = [written(log) for _, log in started]
        if common := min(map(len, batches)):
            states = [of_rank[common - 1][0] for of_rank in batches]
            assert len({each["position"] for each in states}) == 1
            state = states[0]
            digests += [each["digest"] for each in states]
            for of_rank in batches:
                came.update(had for _, of_batch in of_rank[:common] for had in of_batch)
        if set(codes) == {0}:
            break
    assert killed >= kills // 2
    assert came == Counter(had for _, of_batch in expected for had in of_batch) and len(came) == EPOCHS * SAMPLES
    assert add_digests(*digests) == expected[-1][0]["digest"]
    job.check_nothing_is_left()


# Each process imports torch.
SOME_DATA_LOADERS = [pytest.param(name, marks=[pytest.mark.all] if "spawn" in name else []) for name in DATA_LOADERS]


@pytest.mark.slow
@pytest.mark.parametrize("interface", SOME_DATA_LOADERS)
def test_a_data_loader_goes_on(tmp_path: pathlib.Path, samples: Samples, interface: str) -> None:
    pytest.importorskip("torchdata.stateful_dataloader")
    chance = random.Random(interface)
    worlds = [1] if not thoroughness.ALL else range(1, 9) if "fork" in interface else [2, 5]
    for world in worlds:
        (tmp_path / str(world)).mkdir()
        job = Job(tmp_path / str(world), interface, samples.uri)
        states: list[Any] = [None] * world
        came: Counter[tuple[int, str, int]] = Counter()
        kills, killed = 2 if thoroughness.ALL else 1, 0
        for part in range(20 * kills):
            started = [
                job.start(rank, world, 7, state, step=0.02 if part < kills else 0) for rank, state in enumerate(states)
            ]
            if part < kills:
                kill_somewhen(started, chance)
            codes = [rank.wait(300) for rank, _ in started]
            assert set(codes) <= {0, -signal.SIGKILL}
            killed += codes.count(-signal.SIGKILL)
            for rank, (_, log) in enumerate(started):
                records = written(log)
                came.update(had for _, of_batch in records for had in of_batch)
                states[rank] = records[-1][0] if records else states[rank]
            if set(codes) == {0}:
                break
        assert killed >= kills
        assert set(came.values()) == {1} and len(came) == EPOCHS * SAMPLES
        assert len({(key, checksum) for _, key, checksum in came}) == SAMPLES
        job.check_nothing_is_left()


@pytest.mark.slow
def test_a_thousand_starts_and_kills_leave_nothing(tmp_path: pathlib.Path, samples: Samples) -> None:
    """The job is a Loader with transforms in processes, since the most could stay of it. Several run at a time, killed
    from their first moments on."""
    chance = random.Random(0)
    job = Job(tmp_path, "processes-fork", samples.uri)
    caches = [pathlib.Path(samples.uri), pathlib.Path(os.environ["MILLRACE_CACHE"])]

    def files() -> set[pathlib.Path]:
        return {path for folder in caches for path in folder.rglob("*")}

    whole, _ = job.start(step=0)
    assert whole.wait(300) == 0
    before = files()
    cycles, together = repeats(1000), 5
    ends: Counter[bool] = Counter()
    for number in range(cycles // together):
        started = [job.start(chance.randrange(8), 8, 4) for _ in range(together)]
        if number % 2:  # on a busy machine, too, some have had a batch
            until(lambda jobs=started: any(log.exists() and log.stat().st_size for _, log in jobs))
            time.sleep(chance.uniform(0, 0.3))
        else:
            time.sleep(chance.uniform(0, 1.0))
        for rank, log in started:
            rank.kill()
            rank.wait()
            ends[bool(log.exists() and log.stat().st_size)] += 1
            log.unlink(missing_ok=True)
    job.check_nothing_is_left()
    assert files() == before
    assert sum(ends.values()) == cycles
    assert not thoroughness.ALL or min(ends[True], ends[False]) > 50, "some before their first batch, and some after it"


@pytest.mark.slow
@pytest.mark.parametrize("interface", LOADERS + SOME_DATA_LOADERS)
def test_ctrl_c_ends_it(tmp_path: pathlib.Path, samples: Samples, interface: str) -> None:
    """It ends within a second, as thorough tests go: the best of three, as other programs may have the machine."""
    job = Job(tmp_path, interface, samples.uri)
    seconds = []
    for _ in range(3 if thoroughness.ALL else 1):
        trainer, log = job.start(step=0.05, stderr=subprocess.PIPE, text=True, start_new_session=True)
        with trainer:
            until(lambda log=log: log.exists() and log.stat().st_size > 0)
            begin = time.monotonic()
            os.killpg(trainer.pid, signal.SIGINT)  # as a terminal does
            errors = trainer.communicate(timeout=300)[1]
            seconds.append(time.monotonic() - begin)
            assert trainer.returncode in (1, -signal.SIGINT) and "KeyboardInterrupt" in errors, errors
        job.check_nothing_is_left()
    assert not thoroughness.ALL or min(seconds) < 1, seconds
