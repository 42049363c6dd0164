"""Tests epochs, resuming, ranks."""

from __future__ import annotations

import contextlib
import json
import pathlib
import shutil
import threading
from typing import Any

import millrace
import numpy as np
import pytest
import torch
from support import AT_SIZE, Samples, add_digests, check_script, devstore, keys_of


def loader_of(samples: Samples, **options: Any) -> millrace.Loader:
    return millrace.Loader(samples.uri, **{"batch_size": 8, "output": "numpy", "digest": "raw", **AT_SIZE, **options})


def drain(loader: millrace.Loader) -> list[str]:
    """Returns the keys of all epochs that are left."""
    keys: list[str] = []
    with contextlib.suppress(millrace.UsageError):
        while True:
            for batch in loader:
                keys += keys_of(batch)
    return keys


def test_each_loop_is_one_epoch(tar: Samples) -> None:
    loader = loader_of(tar, epochs=2)
    assert len(loader) == 7 and loader.epoch == 0
    epochs = []
    for epoch in range(2):
        assert loader.epoch == epoch
        epochs.append([key for batch in loader for key in keys_of(batch)])
    assert loader.epoch == 2
    with pytest.raises(millrace.UsageError, match="all 2 epochs"):
        list(loader)
    assert sorted(epochs[0]) == sorted(epochs[1]) == sorted(tar.pixels)
    assert epochs[0] != epochs[1]


def test_without_epochs_the_stream_has_no_end(tar: Samples) -> None:
    loader = loader_of(tar)
    for _ in range(25):
        assert sum(len(keys_of(batch)) for batch in loader) == 50
    assert loader.epoch == 25


def test_an_iterator_that_was_left_goes_on(tar: Samples) -> None:
    whole = drain(loader_of(tar, epochs=1))
    loader = loader_of(tar, epochs=1)
    batches = iter(loader)
    keys: list[str] = []
    for batch in batches:
        keys += keys_of(batch)
        if len(keys) >= 16:
            break
    keys += keys_of(next(batches))
    assert keys == whole[:24]
    for batch in batches:
        keys += keys_of(batch)
    assert keys == whole


def test_a_loop_that_was_left_at_the_last_batch_is_over(tar: Samples) -> None:
    loader = loader_of(tar)
    for step, _ in enumerate(loader, 1):
        if step == len(loader):
            break
    assert loader.epoch == 1
    assert sum(1 for _ in loader) == 7


def test_order_is_chosen_by_the_seed(tar: Samples) -> None:
    assert drain(loader_of(tar, epochs=1, seed=1)) == drain(
        loader_of(tar, epochs=1, seed=1, batch_size=3, memory="2MiB")
    )
    assert drain(loader_of(tar, epochs=1, seed=1)) != drain(loader_of(tar, epochs=1, seed=2))
    assert drain(loader_of(tar, epochs=1, shuffle="none")) == sorted(tar.pixels)
    assert drain(loader_of(tar, epochs=1, seed=2**64 - 1))


def test_last_batch(tar: Samples) -> None:
    dropped = list(loader_of(tar, epochs=1, last="drop"))
    assert len(dropped) == 6 and all(batch["valid"].all() for batch in dropped)
    loader = loader_of(tar, epochs=1, last="wrap")
    wrapped = list(loader)
    assert len(wrapped) == 7 and all(batch["valid"].all() for batch in wrapped)
    assert wrapped[6]["key"][2:] == wrapped[0]["key"][:6]
    assert loader.report()["samples"] == 50
    assert loader.report()["digest"] == add_digests(loader_digest(tar))


def loader_digest(samples: Samples, **options: Any) -> str | None:
    loader = loader_of(samples, epochs=1, **options)
    drain(loader)
    return loader.report()["digest"]


def test_digest_of_pixels_and_none(tar: Samples) -> None:
    assert loader_digest(tar, digest=None) is None
    assert loader_digest(tar, digest="decoded") != loader_digest(tar, digest="raw")
    assert loader_digest(tar, digest="decoded", normalize=(0, 1)) == loader_digest(tar, digest="decoded")
    assert loader_digest(tar, digest="decoded", size=16) != loader_digest(tar, digest="decoded")


@pytest.mark.parametrize("shuffle", ["none", "global", "window"])
def test_resume_after_every_batch_of_two_epochs(tar: Samples, shuffle: str) -> None:
    options = {"shuffle": shuffle, "seed": 3, "epochs": 2, "batch_size": 9}
    whole = loader_of(tar, **options)
    keys, states = [], [whole.state_dict()]
    for _ in range(2):
        for batch in whole:
            keys.append(keys_of(batch))
            states.append(json.loads(json.dumps(whole.state_dict())))
    assert len(states) == 13 and len({state["position"] for state in states}) == 13
    for received, state in enumerate(states):
        rest = loader_of(tar, **options)
        rest.load_state_dict(state)
        assert rest.state_dict() == {**state, "samples": 0, "digest": "0" * 32}
        assert rest.epoch == received // 6
        assert drain(rest) == sum(keys[received:], [])
        assert state["samples"] + rest.report()["samples"] == 100
        assert add_digests(state["digest"], rest.report()["digest"]) == whole.report()["digest"]
        assert rest.state_dict()["position"] == whole.state_dict()["position"]


def test_load_in_the_middle_rewinds(tar: Samples) -> None:
    loader = loader_of(tar, epochs=1)
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    rest = [key for batch in iterator for key in keys_of(batch)]
    loader.load_state_dict(state)
    assert drain(loader) == rest
    loader.load_state_dict(state)
    iterator = iter(loader)
    assert keys_of(next(iterator)) == rest[:8]
    assert loader.report()["samples"] == 8


def test_state_counts_what_was_received_not_what_was_prefetched(tar: Samples) -> None:
    loader = loader_of(tar)
    assert loader.state_dict()["samples"] == 0
    for batch in loader:
        state = loader.state_dict()
        assert state["samples"] % 8 == len(keys_of(batch)) % 8
        break
    assert loader.state_dict()["samples"] == 0, "a loop over one batch is a look at it"
    assert state["version"] == 1 and state["samples"] == 8
    assert state["position"].startswith("mr2-0-8-")


def test_resume_with_another_batch_size_and_world(tar: Samples) -> None:
    first = loader_of(tar, epochs=1, batch_size=10)
    batches = iter(first)
    done = keys_of(next(batches))
    rest = []
    for rank in range(3):
        loader = loader_of(tar, epochs=1, batch_size=4, rank=rank, world=3)
        loader.load_state_dict(first.state_dict())
        rest += drain(loader)
    assert sorted(done + rest) == sorted(tar.pixels)


def test_torch_saves_and_loads_the_state(tar: Samples, tmp_path: pathlib.Path) -> None:
    loader = loader_of(tar)
    batches = iter(loader)
    next(batches)
    torch.save({"loader": loader.state_dict()}, tmp_path / "x.pt")
    assert torch.load(tmp_path / "x.pt", weights_only=True)["loader"] == loader.state_dict()


@pytest.mark.parametrize("other", [{"seed": 4}, {"shuffle": "global"}, {"data": "raw"}])
def test_position_of_another_order_is_refused(tar: Samples, raw: Samples, other: dict[str, Any]) -> None:
    writer = loader_of(tar, seed=3)
    next(iter(writer))
    data = raw if other.pop("data", "") else tar
    loader = loader_of(data, **{"seed": 3, **other})
    batches = iter(loader)
    next(batches)
    before = loader.state_dict()
    with pytest.raises(
        millrace.MismatchError, match="belongs to another order: the data set, its index, the seed or the shuffle"
    ):
        loader.load_state_dict(writer.state_dict())
    assert loader.state_dict() == before
    assert loader.report()["samples"] == 8
    assert len(keys_of(next(batches))) == 8


@pytest.mark.parametrize(
    "broken",
    [
        {"version": 2},
        {"version": None},
        {"position": "mr2-0-8"},
        {"position": "mr9-0-8-0000000000000000"},
        {"position": ""},
        {"position": "mr2-0-99999999999999999999999-0000000000000000"},
    ],
)
def test_state_that_is_none(tar: Samples, broken: dict[str, Any]) -> None:
    loader = loader_of(tar)
    state: Any = {**loader.state_dict(), **broken}
    with pytest.raises(millrace.InvalidArgumentError):
        loader.load_state_dict(state)
    assert len(keys_of(next(iter(loader)))) == 8


def test_position_behind_the_end_of_the_epoch(tar: Samples) -> None:
    loader = loader_of(tar)
    state = loader.state_dict()
    state["position"] = state["position"].replace("mr2-0-0-", "mr2-0-50-")
    with pytest.raises(millrace.InvalidArgumentError, match="behind the 50 samples"):
        loader.load_state_dict(state)


def test_a_full_budget_allows_restarting(tar: Samples) -> None:
    script = f"""
import millrace
millrace.configure(memory="3MiB")
loader = millrace.Loader({tar.uri!r}, batch_size=4, size=16, memory="3MiB", output="numpy")
batches = iter(loader)
first = next(batches)["key"]
state = loader.state_dict()
second = next(batches)["key"]
del batches
loader.load_state_dict(state)
assert next(iter(loader))["key"] == second != first
print("restarted")
"""
    assert check_script(script) == "restarted\n"


@pytest.mark.parametrize("world", [2, 3, 8])
def test_ranks_share_the_epoch(tar: Samples, world: int) -> None:
    digests, keys, states = [], [], []
    for rank in range(world):
        loader = loader_of(tar, rank=rank, world=world, epochs=1, batch_size=4)
        assert len(loader) == -(-50 // (4 * world))
        batches = list(loader)
        assert len(batches) == len(loader)
        keys += [key for batch in batches for key in keys_of(batch)]
        digests.append(loader.report()["digest"])
        states.append(loader.state_dict()["position"])
    assert sorted(keys) == sorted(tar.pixels)
    assert add_digests(*digests) == loader_digest(tar)
    assert len(set(states)) == 1


@pytest.mark.parametrize(
    "environment",
    [
        {
            "RANK": "1",
            "WORLD_SIZE": "3",
            "SLURM_PROCID": "0",
            "SLURM_STEP_NUM_TASKS": "2",
        },  # torchrun, which srun started
        {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "3"},
        {"PMI_RANK": "1", "PMI_SIZE": "3"},
        {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "3"},
    ],
)
def test_rank_and_world_of_the_environment(
    tar: Samples, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert drain(loader_of(tar, epochs=1)) == drain(loader_of(tar, epochs=1, rank=1, world=3))
    assert len(drain(loader_of(tar, epochs=1, rank=0, world=1))) == 50


def test_a_batch_script_of_slurm_is_no_rank(tar: Samples, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("SLURM_NTASKS", "4")
    assert len(drain(loader_of(tar, epochs=1))) == 50


@pytest.mark.parametrize("environment", [{"RANK": "0"}, {"WORLD_SIZE": "2"}, {"RANK": "one", "WORLD_SIZE": "2"}])
def test_half_an_environment_is_refused(
    tar: Samples, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(millrace.InvalidArgumentError, match="RANK=.* WORLD_SIZE="):
        loader_of(tar)


def test_rank_and_world_of_torch_distributed(tar: Samples, tmp_path: pathlib.Path) -> None:
    script = """
import sys, millrace, torch.distributed
uri, rank, folder = sys.argv[1:]
torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=0, world_size=1)
loader = millrace.Loader(uri, batch_size=8, size=8, epochs=1)  # the environment says otherwise
print(len(loader), sum(int(batch["valid"].sum()) for batch in loader))
torch.distributed.destroy_process_group()
"""
    out = check_script(script, tar.uri, "0", str(tmp_path), RANK="5", WORLD_SIZE="9")
    assert out.split() == ["7", "50"]


def test_two_threads_share_the_stream(tar: Samples) -> None:
    loader = loader_of(tar, epochs=1, batch_size=2)
    received: list[str] = []

    batches = iter(loader)

    def consume() -> None:
        for batch in batches:
            received.extend(keys_of(batch))

    threads = [threading.Thread(target=consume) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
        assert not thread.is_alive()
    assert sorted(received) == sorted(tar.pixels)
    assert loader.report()["digest"] == loader_digest(tar)


def test_report(tar: Samples) -> None:
    loader = loader_of(tar, epochs=1, digest=None)
    drain(loader)
    report = loader.report()
    assert set(report) == set(millrace.Report.__annotations__)
    assert (
        report["samples"] == 50
        and report["digest"] is None
        and report["quarantined"] == 0
        and report["quarantine"] == []
    )
    causes = {
        "queue",
        "credentials",
        "connect",
        "first_byte",
        "body",
        "throttling",
        "outage",
        "budget",
        "decode",
        "consumer",
        "worker",
        "index",
    }
    assert set(report["stalls"]) == causes and report["bottleneck"] in causes
    assert 0 <= report["waited"] <= report["seconds"]
    assert np.isclose(sum(report["stalls"].values()), report["waited"])


def test_waited_is_the_time_that_next_takes(
    tar: Samples, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It grows while next() waits, and not otherwise: measured from outside, more time never passes in there than it says."""
    shutil.copytree(tar.uri, tmp_path / "b" / "tar", ignore=shutil.ignore_patterns(".millrace"))
    monkeypatch.setenv("MILLRACE_CACHE", str(tmp_path / "cache"))
    script = """
import sys, threading, time, millrace
loader = millrace.Loader("s3://b/tar", batch_size=8, size=8, output="numpy", epochs=2, shuffle="none")
measured = 0.0
def take(iterator):
    global measured
    began = time.perf_counter()
    try:
        return next(iterator, None)
    finally:
        measured += time.perf_counter() - began
iterator = iter(loader)
if sys.argv[1] == "answers":
    for epoch in range(2):
        iterator = iter(loader)
        while take(iterator) is not None:
            before = loader.report()["waited"]
            time.sleep(0.01)  # not waiting for the loader
            assert loader.report()["waited"] == before
else:
    def close_after_half_a_second():
        while loader.report()["waited"] < 0.5: pass
        loader.close()
    threading.Thread(target=close_after_half_a_second).start()
    try:
        take(iterator)
    except millrace.UsageError:
        pass
report = loader.report()
print(0 < report["waited"] <= measured, abs(report["waited"] - sum(report["stalls"].values())) < 1e-6)
"""
    with devstore(tmp_path) as environment:
        check_script("import millrace; millrace.Dataset('s3://b/tar')", **environment)
    for server, delay in (("answers", 100), ("is silent", 3600000)):
        with devstore(tmp_path, "--fault", f"GET b/tar/*.tar delay-ms={delay}") as environment:
            assert check_script(script, server, **environment) == "True True\n"
