"""Tests checkpoints that all ranks save: each writes its part, any world loads them, and whatever fails on a rank
leaves what there was."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import textwrap

import millrace
import numpy as np
import pytest
import torch
from millrace import _state
from support import binary, check_script, devstore
from thoroughness import ALL, repeats


def test_each_rank_writes_its_share() -> None:
    """If all ranks have a state, each writes about equally many bytes of it. Each byte is written once, and large
    tensors are split by rows."""
    torch.manual_seed(1)
    state = {
        "model": {
            "large": torch.randn(4000, 700),
            "one": torch.randn(3, 1000),
            "scalar": torch.tensor(1.0),
            "empty": torch.empty(0, 2),
        },
        "optimizer": {number: np.full(300_000, number, np.float32) for number in range(20)},
    }
    whole = sum(piece.size for _, pieces in _state.encode(state, allow_pickle=False) for piece in pieces)
    for world in (1, 2, 3, 8):
        encoded = _state.Encoded(state, allow_pickle=False)
        written = [encoded.files(rank, world) for rank in range(world)]
        encoded.state_file([chunks for _, chunks in written])  # raises unless each element is there once
        sizes = [sum(piece.size for _, pieces in shards for piece in pieces) for shards, _ in written]
        assert abs(sum(sizes) - whole) < 4000 * (world + 1)
        assert max(sizes) - min(sizes) < 2 * (2 << 20), sizes  # no tensor that is not split has more
    with pytest.raises(millrace.MismatchError, match="all_ranks=True"):
        encoded.state_file([encoded.files(0, 2)[1]])


# Forks the ranks of one job after the other, since importing torch takes longer than what is tested.
RANKS = """
import hashlib, json, os, random, sys, traceback, torch, torch.distributed as dist, numpy as np, millrace, millrace.torch
import torch.distributed.checkpoint as dcp
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, init_device_mesh, zeros

def whole(rows, columns, seed):
    return torch.arange(rows * columns, dtype=torch.float32).reshape(rows, columns) * seed

def spread(rows, columns, seed, dimension=0):
    mesh = init_device_mesh("cpu", (world,))
    full = whole(rows, columns, seed)
    return distribute_tensor(full, mesh, [Shard(dimension)])

def state(fill=True):
    made = {"model": {"rows": spread(1001, 700, 1), "columns": spread(300, 500, 2, 1), "tiny": spread(3, 2, 3), "plain": whole(2000, 700, 4)}}
    if world % 2 == 0:  # as HSDP has it
        mesh = init_device_mesh("cpu", (2, world // 2))
        made["model"]["twice"] = distribute_tensor(whole(64, 50, 5), mesh, [Replicate(), Shard(0)])
    else:
        made["model"]["twice"] = spread(64, 50, 5)
    made["step"] = 12
    if not fill:
        for tensor in made["model"].values():
            (tensor.to_local() if isinstance(tensor, DTensor) else tensor).zero_()
    return made

def check(found):
    for name, expected in state()["model"].items():
        tensor = found["model"][name]
        if isinstance(tensor, DTensor):
            tensor, expected = tensor.to_local(), expected.to_local()
        elif isinstance(expected, DTensor):
            expected = expected.full_tensor()
        assert torch.equal(tensor, expected), (name, rank)
    assert found["step"] == 12
"""


FORKS = """
uri, folder = sys.argv[1:3]

def run(number, rank):
    os.dup2(os.open(f"{folder}/said-{number}-{rank}", os.O_WRONLY | os.O_CREAT), 1)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting-{number}", rank=rank, world_size=world)
    exec(script, globals())
    dist.destroy_process_group()

for number, (world, script) in enumerate(json.loads(sys.argv[3])):
    pids = []
    for rank in range(world):
        pids.append(os.fork())
        if pids[-1] == 0:
            code = 1
            try:
                run(number, rank)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * world
"""


def run_jobs(folder: pathlib.Path, uri: str, *jobs: tuple[int, str], prelude: str = "") -> list[list[str]]:
    """Runs each script as that many ranks, one job after the other; returns what each rank has printed."""
    folder.mkdir(exist_ok=True)
    given = json.dumps([[world, prelude + textwrap.dedent(script)] for world, script in jobs])
    check_script(RANKS + FORKS, uri, str(folder), given, timeout=600, OMP_NUM_THREADS="1")
    return [
        [(folder / f"said-{number}-{rank}").read_text() for rank in range(world)]
        for number, (world, _) in enumerate(jobs)
    ]


def uri_of(place: str, name: str, tmp_path: pathlib.Path, bucket: str) -> str:
    return str(tmp_path / "run") if place == "folder" else f"{bucket}/{name}"


# The parameters are the place, the world that saves, and the one that loads.
WORLDS = [
    ("folder", 2, 4),
    ("s3", 4, 1),
    *([("folder", 1, 2), ("folder", 4, 2), ("s3", 1, 2), ("s3", 2, 4)] if ALL else []),
]


SAVE = """
ckpt = millrace.Checkpoints(uri, all_ranks=True, patience=120)
assert ckpt.latest() is None
random.seed(rank); torch.manual_seed(rank)
ckpt.save(1, {"step": 0})
ckpt.save(2, state(), per_rank={"rng": millrace.rng_state(), "rank": rank, "own": torch.full((3,), rank)}, asynchronous=True)
drawn = random.random(), torch.rand(1).item()
ckpt.wait()
assert ckpt.latest() == 2
own = ckpt.load_per_rank()
assert own["rank"] == rank and own["own"].tolist() == [rank] * 3
millrace.set_rng_state(own["rng"])
assert drawn == (random.random(), torch.rand(1).item())
assert ckpt.load_per_rank(rank=world) is None
"""

LOAD = """
ckpt = millrace.Checkpoints(uri, all_ranks=True, patience=120)
assert ckpt.latest() == 2
into = state(fill=False)
found = ckpt.load(into={"model": into["model"]})
assert all(found["model"][name] is tensor for name, tensor in into["model"].items())
check(found)
check(ckpt.load(2))  # whole tensors
assert ckpt.load(2, only=["step"]) == {"step": 12}
"""


@pytest.mark.slow
@pytest.mark.parametrize(("place", "saved", "loaded"), WORLDS)
def test_any_world_loads_what_another_has_saved(
    place: str, saved: int, loaded: int, tmp_path: pathlib.Path, bucket: str
) -> None:
    uri = uri_of(place, f"ranks-{saved}-{loaded}", tmp_path, bucket)
    run_jobs(tmp_path / "job", uri, (saved, SAVE), (loaded, LOAD))
    alone = millrace.Checkpoints(uri)
    assert torch.equal(
        alone.load(only=["model"])["model"]["rows"], torch.arange(1001 * 700, dtype=torch.float32).reshape(1001, 700)
    )


@pytest.mark.slow
@pytest.mark.parametrize(("place", "saved", "loaded"), WORLDS)
def test_distributed_checkpoint(place: str, saved: int, loaded: int, tmp_path: pathlib.Path, bucket: str) -> None:
    uri = uri_of(place, f"dcp-{saved}-{loaded}", tmp_path, bucket)
    save = """
    dcp.save({**state(), "odd": {"x": [1, (2, 3)]}}, storage_writer=millrace.torch.StorageWriter(uri, step=1))
    writer = millrace.torch.StorageWriter(uri, keep=1)
    dcp.async_save({**state(), "odd": {"x": [1, (2, 3)]}}, checkpoint_id="2", storage_writer=writer).result()
    """
    load = """
    made = {**state(fill=False), "odd": {"x": None}}
    made["step"] = 0
    reader = millrace.torch.StorageReader(uri)
    dcp.load(made, storage_reader=reader)
    check(made)
    assert made["odd"] == {"x": [1, (2, 3)]}
    """
    run_jobs(tmp_path / "job", uri, (saved, save), (loaded, load))
    assert millrace.Checkpoints(uri).steps() == [2]
    with pytest.raises(millrace.InvalidArgumentError, match="StorageReader"):
        millrace.Checkpoints(uri).load()


FULLY_SHARDED = """
import torch.distributed.checkpoint.state_dict as states
from torch.distributed.fsdp import fully_shard
from millrace._restore import Restore
import millrace.torch

def made(seed):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(1024, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 1024, bias=False))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=init_device_mesh("cpu", (world,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return model, optimizer

def step(model, optimizer):
    optimizer.zero_grad()
    model(torch.ones(4, 1024)).square().mean().backward()  # the same on all ranks, so that the world does not matter
    optimizer.step()

def state_of(model, optimizer):
    model_state, optimizer_state = states.get_state_dict(model, optimizer)
    return {"model": model_state, "optimizer": optimizer_state}

def digest(model):
    sums = [parameter.full_tensor().double().sum().item() for parameter in model.parameters()]
    return " ".join(f"{value:.4f}" for value in sums)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("saved", "loaded"), [(3, 2), *([(1, 2), (4, 3), (3, 4)] if ALL else [])])
def test_fully_sharded_training_goes_on_in_another_world(
    bucket: str, tmp_path: pathlib.Path, saved: int, loaded: int
) -> None:
    """It continues by both ways of saving. Each rank reads at most 1.05 times what it needs."""
    uri = f"{bucket}/sharded-{saved}-{loaded}"
    save = """
    model, optimizer = made(1)
    step(model, optimizer)
    state = state_of(model, optimizer)
    millrace.Checkpoints(uri, all_ranks=True, patience=120).save(1, state)
    dcp.save(state, storage_writer=millrace.torch.StorageWriter(uri + "-dcp", step=1))
    step(model, optimizer)
    print(digest(model))
    """
    load = """
    for way in ("millrace", "dcp"):
        model, optimizer = made(2)
        into = state_of(model, optimizer)
        if way == "dcp":
            reader = millrace.torch.StorageReader(uri + "-dcp")
            dcp.load(into, storage_reader=reader)
            read, needed = reader.bytes_read, reader.bytes_needed
        else:
            restore = Restore(millrace.Checkpoints(uri, all_ranks=True, patience=120)._found(None), allow_pickle=False)
            into = restore.run(restore.json(), into=into)
            read, needed = restore.bytes_read, restore.bytes_needed
        assert 40_000_000 / world < needed <= read <= 1.05 * needed, (way, read, needed)
        states.set_state_dict(model, optimizer, model_state_dict=into["model"], optim_state_dict=into["optimizer"])
        step(model, optimizer)
        print(digest(model))
    """
    expected, found = run_jobs(tmp_path / "job", uri, (saved, save), (loaded, load), prelude=FULLY_SHARDED)
    for said in found:
        assert said.splitlines() == [expected[0].strip()] * 2


# Forks the ranks of a job for each kill. One of them, or all, are killed at a random moment of a save; those that are left must give up. Then this
# process, which has no part in the writing, loads the newest checkpoint.
KILLER = """
import os, random, signal, sys, time
import numpy as np, torch, torch.distributed as dist, millrace

uri, kills, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
WORLD = 3

def state_of(step):
    return {"model": {"w": torch.full((1200, 1000), step), "b": np.arange(step, step + 1000)}, "step": step}

def write(rank, number, begun):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/{number}", WORLD), rank=rank, world_size=WORLD)
    ckpt = millrace.Checkpoints(uri, keep=2, all_ranks=True, patience=4.0)
    step = ckpt.latest() or 0
    saves = 0
    while True:
        if saves == number // 2 % 2:  # in the first save, or in the one after it
            os.write(begun, b"x")
        step += 1
        saves += 1
        try:
            ckpt.save(step, state_of(step), per_rank={"rank": rank}, asynchronous=number % 2 == 0)
        except millrace.UnavailableError as error:
            assert "missing: rank" in str(error) or "rank" in str(error), error
            os._exit(7)

def check(least):
    found = reader.latest()
    assert found is not None or least == 0, "all checkpoints are gone"
    if found is None: return 0
    assert found >= least, (found, least)
    for step in reader.steps():
        state, expected = reader.load(step), state_of(step)
        assert state["step"] == step and torch.equal(state["model"]["w"], expected["model"]["w"])
        assert np.array_equal(state["model"]["b"], expected["model"]["b"])
        assert [reader.load_per_rank(step, rank=rank)["rank"] for rank in range(WORLD)] == [0, 1, 2]
    return found

draw = random.Random(1)
reader = millrace.Checkpoints(uri)
newest = moved = gave_up = 0
for number in range(kills):
    told, begun = os.pipe()
    ranks = []
    for rank in range(WORLD):
        pid = os.fork()
        if pid == 0:
            try:
                write(rank, number, begun)
            finally:
                os._exit(1)
        ranks.append(pid)
    os.close(begun)
    got = b""
    while len(got) < WORLD:
        more = os.read(told, WORLD)
        assert more, "a writer failed"
        got += more
    os.close(told)
    # Longer each time until a save was finished: a machine that is slow gets there, too.
    time.sleep(draw.choice([0.02, 0.1, 0.4]) * draw.random() * (1 if moved else 1 + number))
    killed = ranks if draw.random() < 0.4 else [draw.choice(ranks)]
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    for pid in ranks:
        _, status = os.waitpid(pid, 0)
        # One that has waited too long for the others, on a busy machine, has given up before it was killed.
        assert (os.WIFSIGNALED(status) and pid in killed) or os.WEXITSTATUS(status) == 7, status
        gave_up += pid not in killed
    before, newest = newest, check(newest)
    moved += newest > before
assert moved > 0 and gave_up > 0, (moved, gave_up)
final = millrace.Checkpoints(uri, keep=2)
final.claim()
final.save(newest + 1, {"x": 1})
print(newest)
"""


@pytest.mark.slow
@pytest.mark.parametrize("place", ["folder", "s3"])
def test_ranks_killed_at_any_moment(place: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "meetings").mkdir()
    with contextlib.ExitStack() as stack:
        uri, environment = str(tmp_path / "run"), {}
        if place == "s3":
            (tmp_path / "store" / "bkt").mkdir(parents=True)
            uri, environment = "s3://bkt/run", stack.enter_context(devstore(tmp_path / "store"))
        check_script(
            KILLER, uri, str(repeats(200)), str(tmp_path / "meetings"), timeout=850, OMP_NUM_THREADS="1", **environment
        )
        listed = subprocess.run(
            [str(binary()), "ls", "--recursive", "--json", uri + "/"],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
        )
    names = [json.loads(line)["key"].rsplit("/", 1)[-1] for line in listed.stdout.splitlines()]
    # Nothing is left of killed ranks: one job's checkpoint is there, and the last one.
    assert sorted(name for name in names if name.startswith("MANIFEST")) == ["MANIFEST.json"] * 2
    assert len(names) <= 1 + 2 * 16, names
