"""A map-style data set reads ahead in the order of a Sampler, in the workers of a DataLoader, too; wrong guesses change nothing."""

from __future__ import annotations

import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
from typing import Any

import millrace
import pytest
from millrace._read_ahead import Course, Place, ReadAhead, Strides
from support import Samples, binary, check_script, devstore, write_raw
from thoroughness import repeats

torch = pytest.importorskip("torch")

import millrace.torch  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

DEADLINE = 300  # seconds; of a wait that should take none


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("batch", [1, 2, 7])
@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize("drop_last", [False, True])
def test_what_a_worker_will_be_asked_for_is_known(workers: int, batch: int, one_by_one: bool, drop_last: bool) -> None:
    length = 100
    batches = [range(at, min(at + batch, length)) for at in range(0, length, batch)]
    if drop_last and len(batches[-1]) < batch:
        batches.pop()
    for worker in range(workers):
        own = batches[worker::workers]
        calls = [range(place, place + 1) for each in own for place in each] if one_by_one else own
        asked = [place for each in own for place in each]
        strides = Strides(workers)
        known = 0
        for n, call in enumerate(calls):
            strides.came(call.start, len(call))
            rest = asked[sum(map(len, calls[: n + 1])) :]
            following = strides.following(10, length)
            # The guess may continue into the last batch, if that is left out; and one by one, two runs have to be seen
            # first.
            if (not one_by_one and batch > 1) or workers == 1 or n > batch:
                assert following[: len(rest)] == rest[:10]
                known += 1
            else:
                assert following[:1] in ([], rest[:1], [asked[n] + 1]), "no other guess than that a batch goes on"
        assert known > 0


def course_of(length: int, **options: Any) -> Course:
    return Course(length, {"shuffle": "none", **options}, 0, 0, 1, length)


def places(course: Course, which: Any) -> list[Place]:
    return [Place(place, course, place) for place in which]


class Fetched:
    """Has items that are their numbers, times ten."""

    def __init__(self, fails: Any = lambda numbers, main: False) -> None:
        self.calls: list[list[int]] = []
        self.fails = fails

    def __call__(self, numbers: Any) -> list[int]:
        self.calls.append([int(number) for number in numbers])
        if self.fails(self.calls[-1], threading.current_thread() is threading.main_thread()):
            raise OSError(f"{self.calls[-1]}")
        return [10 * int(number) for number in numbers]


def reader(fetch: Any, length: int, item_bytes: int = 1, workers: int = 1) -> ReadAhead:
    return ReadAhead(fetch, length, lambda numbers: numbers.tolist(), item_bytes, workers)


def wait(ahead: ReadAhead) -> None:
    for read, _ in ahead._slots.values():
        read.wait()


def test_whatever_is_asked_for_comes() -> None:
    for seed in range(repeats(400)):
        draw = random.Random(seed)
        length = draw.randint(1, 300)
        fetch = Fetched(lambda numbers, main: not main and sum(numbers) % 5 == 0 and len(numbers) > 4)
        ahead = reader(fetch, length, draw.choice([1, 1 << 20, 1 << 30]), draw.randint(1, 4))
        course, batch = course_of(length), draw.randint(1, 20)
        for at in range(0, length, batch):
            if draw.random() < 0.1:  # another course, the same again, or from elsewhere
                course = course_of(length, seed=draw.randint(0, 1))
            wanted = list(range(at, min(length, at + batch)))
            if draw.random() < 0.1:
                draw.shuffle(wanted)
            if draw.random() < 0.1:
                wanted = sorted(draw.sample(range(length), min(length, 3)))
            try:
                assert ahead.take(places(course, wanted)) == [10 * place for place in wanted]
            except OSError as error:
                assert str(error) == str(wanted), "only a read of what was asked for may fail the program"


def test_two_wrong_guesses_are_enough() -> None:
    fetch = Fetched()
    ahead = reader(fetch, 10_000)
    course = course_of(10_000)
    for at in (0, 3000, 50, 7000, 200, 9000, 20):
        assert ahead.take(places(course, range(at, at + 10))) == [10 * place for place in range(at, at + 10)]
        wait(ahead)
    guessed = [call for call in fetch.calls if len(call) != 10]
    assert len(guessed) == 2 and len(fetch.calls) == 9
    ahead.take(places(course_of(10_000, seed=1), range(10)))
    wait(ahead)
    assert len(fetch.calls) == 11, "another epoch is another chance"


def test_what_is_read_ahead_is_bounded() -> None:
    for size, held in [(1, 40), (8 << 20, 8), (1 << 30, 0), (0, 0)]:
        fetch = Fetched()
        ahead = reader(fetch, 1000, size)
        ahead.take(places(course_of(1000), range(20)))
        ahead._settle()
        assert sum(map(len, fetch.calls)) == 20 + held


def test_what_failed_ahead_is_read_again() -> None:
    fetch = Fetched(lambda numbers, main: not main and len(numbers) == 40)
    ahead = reader(fetch, 60)
    course = course_of(60)
    assert ahead.take(places(course, range(20))) == [10 * place for place in range(20)]
    assert ahead.take(places(course, range(20, 40))) == [10 * place for place in range(20, 40)]
    fetch.fails = lambda numbers, main: True
    ahead._slots.clear()
    with pytest.raises(OSError, match=r"\[40"):
        ahead.take(places(course, range(40, 60)))


def test_numbers_of_a_sampler_are_numbers(tar: Samples) -> None:
    sampler = millrace.torch.Sampler(tar.uri, shuffle="global", seed=3, epoch=1)
    numbers = list(sampler)
    assert numbers == millrace.Plan(millrace.Dataset(tar.uri), shuffle="global", seed=3, epoch=1)[range(50)].tolist()
    assert torch.tensor(numbers).tolist() == numbers and repr(numbers[0]) == str(int(numbers[0]))
    subset = torch.utils.data.Subset(millrace.torch.MapDataset(tar.uri, fields=["cls"]), list(range(49, -1, -1)))
    assert [each["key"] for each in subset.__getitems__(numbers)] == [f"{49 - number:04}" for number in numbers]
    for last, lengths in (("drop", 12), ("wrap", 13)):
        ranks = [list(millrace.torch.Sampler(tar.uri, rank=rank, world=4, last=last)) for rank in range(4)]
        assert {len(rank) for rank in ranks} == {lengths}
        assert last == "drop" or set(sum(ranks, [])) == set(range(50))
    of_items = millrace.torch.Sampler(millrace.Plan(7, shuffle="none"))
    assert list(of_items) == list(range(7))
    with pytest.raises(millrace.InvalidArgumentError, match="the plan says shuffle"):
        millrace.torch.Sampler(millrace.Plan(7), seed=1)


def test_a_wrapper_that_asks_one_by_one_gets_the_same(tar: Samples) -> None:
    inner = millrace.torch.MapDataset(tar.uri, fields=["cls"])

    class Wrapper(torch.utils.data.Dataset):  # type: ignore[misc, name-defined]
        def __getitem__(self, number: int) -> str:
            return inner[number]["key"]

        def __len__(self) -> int:
            return len(inner)

    for workers in (0, 2):
        sampler = millrace.torch.Sampler(tar.uri, seed=2)
        for epoch in range(2):
            sampler.set_epoch(epoch)
            got = [
                key
                for keys in DataLoader(Wrapper(), sampler=sampler, batch_size=4, num_workers=workers)
                for key in keys
            ]
            assert got == [f"{number:04}" for number in sampler]


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_persistent_workers_follow_set_epoch(tar: Samples, method: str) -> None:
    dataset = millrace.Dataset(tar.uri).where(samples=range(3, 50))
    sampler = millrace.torch.Sampler(dataset, seed=2, rank=1, world=2)
    options: dict[str, Any] = {"num_workers": 2, "multiprocessing_context": method, "persistent_workers": True}
    loader = DataLoader(
        millrace.torch.MapDataset(dataset, fields=["cls"]), sampler=sampler, batch_size=4, drop_last=True, **options
    )
    for epoch in (0, 1, 7, 1):
        sampler.set_epoch(epoch)
        plan = millrace.Plan(dataset, seed=2, epoch=epoch)
        assert [key for batch in loader for key in batch["key"]] == [f"{number:04}" for number in plan[range(1, 40, 2)]]


PROGRAM = """
import signal, sys
import millrace, millrace.torch, torch
if __name__ == "__main__":
    dataset = millrace.Dataset("s3://b/raw")
    sampler = millrace.torch.Sampler(dataset, shuffle="none")
    options = dict(num_workers=2, prefetch_factor=1, multiprocessing_context=sys.argv[1]) if sys.argv[1] != "none" else {}
    loader = torch.utils.data.DataLoader(millrace.torch.MapDataset(dataset), sampler=sampler, batch_size=16, **options)
    print("begins", flush=True)
    for batch in loader: print("a batch?")
"""


@pytest.mark.parametrize("method, expected", [("none", 48), ("fork", 96), ("spawn", 96)])
def test_requests_of_the_next_batches_are_in_flight(tmp_path: pathlib.Path, method: str, expected: int) -> None:
    """The store sends no first byte, so that no worker gets beyond its first batch; and Ctrl-C ends the program nevertheless."""
    folder = tmp_path / "b" / "raw"
    folder.mkdir(parents=True)
    write_raw(folder, count=120)
    names = sorted(str(path.relative_to(tmp_path)) for path in folder.rglob("*.png"))
    (tmp_path / "program.py").write_text(PROGRAM)
    with devstore(tmp_path) as environment:
        check_script("import millrace; millrace.Dataset('s3://b/raw')", **environment)
    keys = ["--access-key", "test", "--secret-key", "test-secret"]
    serve = [binary(), "devstore", tmp_path, *keys, "--access-log", "--fault", "GET b/raw/*.png stall=0:3600000"]
    server = subprocess.Popen(serve, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    alarm = threading.Timer(DEADLINE, server.kill)  # ends the log
    alarm.start()
    try:
        environment["AWS_ENDPOINT_URL"] = server.stdout.readline().split()[-1]
        command = [sys.executable, tmp_path / "program.py", method]
        program = subprocess.Popen(command, env={**os.environ, **environment}, stderr=subprocess.PIPE, text=True)
        asked: set[str] = set()
        while len(asked) < expected:
            line = server.stdout.readline()
            assert line, f"no more requests came, after {len(asked)}"
            asked |= {name for name in [line.split()[2].lstrip("/")] if name.endswith(".png")}
        assert asked == set(names[:expected])
        program.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in program.communicate(timeout=DEADLINE)[1]
    finally:
        alarm.cancel()
        server.kill()
        server.wait()
        server.stdout.close()


def test_a_fork_begins_with_nothing(tar: Samples) -> None:
    script = """
import os, sys, threading, millrace, millrace.torch
dataset = millrace.torch.MapDataset(sys.argv[1], fields=["cls"])
numbers = list(millrace.torch.Sampler(sys.argv[1]))
assert dataset.__getitems__(numbers[:8])[0]["key"] == f"{numbers[0]:04}"
pid = os.fork()
if pid == 0:
    right = [each["key"] for each in dataset.__getitems__(numbers[8:16])] == [f"{n:04}" for n in numbers[8:16]]
    os._exit(0 if right else 1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
print([each["key"] for each in dataset.__getitems__(numbers[8:16])] == [f"{n:04}" for n in numbers[8:16]])
"""
    assert check_script(script, tar.uri) == "True\n"
