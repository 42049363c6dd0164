"""Tests loops over a Loader as torch's DataLoader has them: epochs, looks at a batch, breaks, states of iterators."""

from __future__ import annotations

import copy
import gc
import itertools
import pickle
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import millrace
import pytest
from support import HEIGHT, WIDTH, Samples

ROWS = 8
STEPS = 7  # of the 50 samples


def same(sample: dict[str, Any]) -> dict[str, Any]:
    return sample


@pytest.fixture(params=["native", "transform", "threads"], ids=str)
def make(request: pytest.FixtureRequest, tar: Samples) -> Callable[..., millrace.Loader]:
    """Makes loaders whose batches come from C++, and those whose batches go through Python's threads."""
    ways: dict[str, dict[str, Any]] = {
        "native": {},
        "transform": {"transform": millrace.Map(same, threads=2)},
        "threads": {"device": "cpu", "output": "torch"},
    }
    if request.param == "threads":
        pytest.importorskip("torch")

    def new(**options: Any) -> millrace.Loader:
        usual = {"batch_size": ROWS, "size": (HEIGHT, WIDTH), "digest": "raw", "output": "numpy", "memory": "16MiB"}
        return millrace.Loader(tar.uri, **{**usual, **ways[request.param], **options})

    return new


def keys(batches: Any) -> list[str]:
    return [key for batch in batches for key in batch["key"] if key]


def epochs(loader: millrace.Loader, count: int) -> list[list[str]]:
    return [keys(loader) for _ in range(count)]


def test_each_loop_is_an_epoch(make: Callable[..., millrace.Loader], tar: Samples) -> None:
    first, second, third = epochs(make(seed=3), 3)
    assert sorted(first) == sorted(second) == sorted(third) == sorted(tar.pixels)
    assert len({tuple(first), tuple(second), tuple(third)}) == 3, "each has its own order"
    assert epochs(make(shuffle=False), 2) == [sorted(tar.pixels)] * 2


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("world", [1, 2])
def test_a_step_larger_than_the_data_is_dropped(
    make: Callable[..., millrace.Loader], shuffle: bool, world: int
) -> None:
    options: dict[str, Any] = {"batch_size": 52 // world, "shuffle": shuffle, "world": world, "rank": world - 1}
    with pytest.warns(UserWarning, match="without batches: an epoch has 50 samples, a step of all ranks 52"):
        loader = make(**options, epochs=3, drop_last=True)
    assert len(loader) == 0 and loader.drop_last and loader.peek() is None
    with pytest.raises(StopIteration):
        next(iter(loader))
    state = loader.state_dict()
    assert loader.epoch == 1 and list(loader) == [] and loader.epoch == 2
    assert loader.state_dict()["position"].split("-")[1] == "2" and loader.report()["samples"] == 0
    iterator = iter(loader)
    assert list(iterator) == [] and iterator.state_dict()["position"].split("-")[1] == "3"
    with pytest.raises(millrace.UsageError, match="all 3 epochs"):
        iter(loader)
    loader.load_state_dict(state)
    assert [list(loader) for _ in range(2)] == [[], []]
    loader.set_epoch(0)
    kept, other = iter(loader), iter(loader)
    assert list(other) == list(kept) == [] and loader.epoch == 1
    whole = make(**options)
    whole.load_state_dict(state)
    assert len(keys(whole)) == 50 // world, "it is a place in the stream of any other loader"


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("taken", [2, 3, STEPS - 1, STEPS])
def test_a_break_makes_the_next_loop_the_next_epoch(
    make: Callable[..., millrace.Loader], shuffle: bool, taken: int
) -> None:
    expected = epochs(make(shuffle=shuffle), 3)
    loader = make(shuffle=shuffle)
    for number, _ in enumerate(loader, 1):
        if number == taken:
            break
    assert loader.epoch == 1
    assert epochs(loader, 2) == expected[1:]


def test_a_look_at_a_batch_costs_nothing(make: Callable[..., millrace.Loader]) -> None:
    expected = epochs(make(), 3)
    loader = make()
    start = loader.state_dict()
    looks = [next(iter(loader))["key"] for _ in range(3)]
    assert looks == [expected[0][:ROWS]] * 3
    assert loader.epoch == 0 and loader.state_dict() == start
    for _ in range(2):  # to overfit one batch
        for batch in loader:
            assert batch["key"] == expected[0][:ROWS]
            break
    assert keys(loader) == expected[0]
    after = loader.state_dict()
    assert next(iter(loader))["key"] == expected[1][:ROWS]
    assert loader.state_dict() == after and loader.epoch == 1
    assert epochs(loader, 2) == expected[1:]
    assert loader.report()["samples"] == 150, "looks are not counted"


def test_a_look_in_the_middle_of_a_loop(make: Callable[..., millrace.Loader]) -> None:
    expected = epochs(make(), 2)
    loader, seen = make(), []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number, batch in enumerate(loader):
            seen += keys([batch])
            if number in (0, 3):
                state = loader.state_dict()
                assert next(iter(loader))["key"] == expected[number > 0][:ROWS]
                assert loader.state_dict() == state
    assert [seen, keys(loader)] == expected


def test_the_batch_that_is_left_of_an_epoch_is_no_look(make: Callable[..., millrace.Loader]) -> None:
    expected = epochs(make(), 3)
    first = make()
    batches = iter(first)
    got = keys(itertools.islice(batches, STEPS - 1))
    second = make()
    second.load_state_dict(first.state_dict())
    assert len(second) == STEPS, "as Lightning counts batches"
    got += keys([next(iter(second))])
    assert got == expected[0] and second.epoch == 1
    assert epochs(second, 2) == expected[1:]


def test_one_rank_alone_looks_at_a_batch(make: Callable[..., millrace.Loader], tar: Samples) -> None:
    ranks = [make(rank=rank, world=2, batch_size=4) for rank in range(2)]
    next(iter(ranks[0]))
    for _ in range(2):
        assert sorted(keys(ranks[0]) + keys(ranks[1])) == sorted(tar.pixels)
        next(iter(ranks[0]))


def test_digests_of_looks_and_of_left_loops(make: Callable[..., millrace.Loader]) -> None:
    once, twice = make(), make()
    epochs(once, 1), epochs(twice, 2)
    loader = make()
    next(iter(loader))
    keys(loader)
    assert loader.report()["digest"] == once.report()["digest"]
    next(iter(loader))
    keys(loader)
    assert loader.report()["digest"] == twice.report()["digest"] != once.report()["digest"]
    loader.load_state_dict(make().state_dict())
    keys(loader)
    assert loader.report()["digest"] == once.report()["digest"]


def test_set_epoch_chooses_the_next_loop(make: Callable[..., millrace.Loader]) -> None:
    expected = epochs(make(), 4)
    loader = make()
    for epoch in (2, 0, 0, 3):
        loader.set_epoch(epoch)
        assert loader.epoch == epoch and keys(loader) == expected[epoch]
    loader.set_epoch(0)
    for number, _ in enumerate(loader):  # as DistributedSampler: in a loop it is for the next one
        if number == 2:
            loader.set_epoch(2)
    assert number == STEPS - 1 and keys(loader) == expected[2]


def test_more_loops_than_epochs(make: Callable[..., millrace.Loader]) -> None:
    loader = make(epochs=2)
    first = epochs(loader, 2)
    assert loader.peek() is None
    for _ in range(2):
        with pytest.raises(millrace.UsageError, match="all 2 epochs.*larger epochs="):
            iter(loader)
    loader.set_epoch(1)
    assert keys(loader) == first[1]
    left = make(epochs=1)
    next(iter(left))
    for number, _ in enumerate(left):
        if number == 1:
            break
    with pytest.raises(millrace.UsageError, match="epochs="):
        list(left)


def test_an_evaluation_loader_has_no_bound(make: Callable[..., millrace.Loader], tar: Samples) -> None:
    loader = make(shuffle=False)
    assert epochs(loader, 5) == [sorted(tar.pixels)] * 5
    assert [keys(itertools.islice(loader, 2)) for _ in range(3)] == [sorted(tar.pixels)[: 2 * ROWS]] * 3


def test_states_of_iterators(make: Callable[..., millrace.Loader]) -> None:
    expected = epochs(make(), 2)
    loader = make()
    batches = iter(loader)
    for taken in range(STEPS):
        state = batches.state_dict()
        assert loader.state_dict() == state
        other = make()
        other.load_state_dict(state)
        assert epochs(other, 2) == [expected[0][taken * ROWS :], expected[1]]
        next(batches)
    assert next(batches, None) is None and next(batches, None) is None
    end = batches.state_dict()
    assert loader.state_dict() == end and end["samples"] == 50
    other.load_state_dict(end)
    assert keys(other) == expected[1] == keys(loader)
    assert batches.state_dict() == end


def test_a_kept_iterator_continues_after_break(make: Callable[..., millrace.Loader]) -> None:
    expected = epochs(make(), 2)
    loader = make()
    batches = iter(loader)
    seen = [batch for batch, _ in zip(batches, range(2))][:2]
    assert keys(seen) == expected[0][: 2 * ROWS]
    # zip has taken one batch more
    assert keys(batches) == expected[0][3 * ROWS :]
    assert keys(loader) == expected[1]


def test_a_state_is_loaded_while_an_iterator_is_alive(make: Callable[..., millrace.Loader]) -> None:
    expected = epochs(make(), 2)
    loader = make()
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    next(batches), next(batches)
    loader.load_state_dict(state)
    assert loader.state_dict()["position"] == state["position"] and loader.report()["samples"] == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert epochs(loader, 2) == [expected[0][ROWS:], expected[1]]
    assert keys(batches) == expected[0][3 * ROWS :], "it keeps its place"
    assert loader.state_dict()["samples"] == 92


def test_two_iterators_at_a_time(make: Callable[..., millrace.Loader]) -> None:
    expected = epochs(make(), 2)
    loader = make()
    first, second = iter(loader), iter(loader)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        taken = [next(first), next(second), next(first), next(first)]
    ahead = loader.state_dict()
    assert ahead == first.state_dict() != second.state_dict()
    with pytest.warns(UserWarning, match="two iterators of one Loader") as noted:
        taken.append(next(second))
    assert noted[0].filename == __file__
    assert keys(taken[:1] + taken[2:4]) + keys(first) == expected[0]
    assert keys(taken[1:2] + taken[4:]) + keys(second) == expected[0]
    del first, second
    assert keys(loader) == expected[1]


@pytest.mark.parametrize("epochs", [None, 2])
def test_threads_share_an_iterator(make: Callable[..., millrace.Loader], tar: Samples, epochs: int | None) -> None:
    """A thread that waits while another one takes the last batch gets none of the next epoch."""

    def take(batches: Any, taken: list[str]) -> None:
        taken.extend(keys(batches))

    loader = make(seed=3, epochs=epochs)
    for _ in range(2):
        batches, taken = iter(loader), list[str]()
        threads = [threading.Thread(target=take, args=(batches, taken)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(taken) == sorted(tar.pixels)


def test_the_length_of_an_iterator(make: Callable[..., millrace.Loader]) -> None:
    loader = make(shuffle=False)
    batches = iter(loader)
    next(batches)
    assert len(batches) == len(loader) == STEPS, "as of torch, whatever was taken of it"
    assert len(iter(make(batch_size=64, last="drop", output="numpy"))) == 0


def test_an_iterator_is_not_copied(make: Callable[..., millrace.Loader]) -> None:
    batches = iter(make())
    for use in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(millrace.UnsupportedError, match=r"iterator.*state_dict\(\)"):
            use(batches)


def test_an_error_ends_a_loader_until_a_state_is_loaded(tar: Samples) -> None:
    bad = [False, True] + [False] * 100

    def collate(samples: list[Any]) -> list[Any]:
        if bad.pop(0):
            raise ValueError("a bad batch")
        return samples

    loader = millrace.Loader(tar.uri, batch_size=ROWS, size=8, shuffle=False, collate_fn=collate)
    start = loader.state_dict()
    for _ in range(2):
        with pytest.raises(millrace.TransformError, match="a bad batch"):
            list(loader)
    loader.load_state_dict(start)
    assert sum(len(batch) for batch in loader) == 50


MEMORY = """
import gc, sys, threading
import millrace

uri, way = sys.argv[1:]
options = {"transform": lambda sample: sample} if way == "transform" else {}
millrace.configure(memory="48MiB")


def make(**more):
    return millrace.Loader(uri, batch_size=8, size=32, output="numpy", memory="32MiB", **options, **more)


threads = threading.active_count()
kept = [make() for _ in range(10)]
assert all(len(loader) == 7 and loader.shapes for loader in kept)
assert threading.active_count() == threads, "nothing is read before the first iterator"
for loader in kept:
    for number, _ in enumerate(loader):
        if number == 2:
            break
    next(iter(loader))
valid = [make(shuffle=False) for _ in range(3)]
for loader in valid * 2:
    assert len(list(loader)) == 7
train = make()
batches = iter(train)
next(batches)
try:
    next(iter(valid[0]))
except millrace.ExhaustedError:
    print("reads")
del batches
assert len(list(valid[0])) == 7
for loader in kept[:2]:
    loader.set_epoch(0)
    list(loader)
    loader.close()
"""


@pytest.mark.parametrize("way", ["native", "transform"])
def test_memory_is_held_by_iterators_alone(tar: Samples, way: str) -> None:
    """The process has room for one loader that reads."""
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, tar.uri, way], check=False, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0 and done.stdout == "reads\n", done.stderr


def loop(loader: millrace.Loader) -> Iterator[Any]:
    yield from loader


def test_a_loader_lives_as_long_as_its_iterator(make: Callable[..., millrace.Loader], tar: Samples) -> None:
    batches = iter(make())
    gc.collect()
    assert sorted(keys(batches)) == sorted(tar.pixels)
    assert sorted(keys(loop(make()))) == sorted(tar.pixels)


def test_a_closed_loader(make: Callable[..., millrace.Loader]) -> None:
    loader = make()
    batches = iter(loader)
    next(batches), next(batches)
    loader.close()
    assert loader.report()["samples"] == 2 * ROWS and loader.epoch == 0
    with pytest.raises(millrace.UsageError, match="closed"):
        next(batches)
    with pytest.raises(millrace.UsageError, match="closed"):
        iter(loader)
    with pytest.raises(millrace.UsageError, match="closed"):
        make_closed = make()
        make_closed.close()
        list(make_closed)
