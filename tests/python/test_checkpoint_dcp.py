"""Tests millrace.torch.StorageWriter and StorageReader in one process; with several ranks: test_checkpoint_ranks.py."""

from __future__ import annotations

import os
import pathlib
import pickle
import subprocess
import sys
from typing import Any

import millrace
import millrace.torch
import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner


@pytest.fixture
def uri(tmp_path: pathlib.Path) -> str:
    return str(tmp_path / "run")


def state_of(value: float) -> dict[str, Any]:
    value = float(value)
    return {
        "model": {
            "w": torch.full((300, 40), value),
            "half": torch.full((7,), value).half(),
            "scalar": torch.tensor(value),
        },
        "step": int(value),
    }


def save(uri: str, step: int, **options: Any) -> None:
    dcp.save(state_of(step), storage_writer=millrace.torch.StorageWriter(uri, step=step, **options), no_dist=True)


def load(uri: str, **options: Any) -> dict[str, Any]:
    state = state_of(0)
    dcp.load(state, storage_reader=millrace.torch.StorageReader(uri, **options), no_dist=True)
    return state


def test_saves_keeps_and_loads(uri: str) -> None:
    for step in (1, 2, 3, 4):
        save(uri, step, keep=1, keep_every=2)
    assert millrace.Checkpoints(uri).steps() == [2, 4]
    for found, step in ((load(uri), 4), (load(uri, step=2), 2)):
        assert found["step"] == step and all(
            torch.equal(value, state_of(step)["model"][name]) for name, value in found["model"].items()
        )
    state = state_of(0)
    dcp.load(state, checkpoint_id="2", storage_reader=millrace.torch.StorageReader(uri), no_dist=True)
    assert state["step"] == 2
    (file,) = pathlib.Path(uri).glob("000000000004/*/rank-00000.safetensors")
    import safetensors.torch

    assert torch.equal(safetensors.torch.load_file(file)["model.w"], torch.full((300, 40), 4.0))


def test_a_zombie_is_refused(uri: str) -> None:
    save(uri, 1)
    save(uri, 2)  # by another writer of this process, which keeps the claim
    millrace.Checkpoints(uri).claim()
    with pytest.raises(CheckpointException, match="another process has taken over"):
        save(uri, 3)
    assert millrace.Checkpoints(uri).steps() == [1, 2]


class Failing(DefaultSavePlanner):
    def resolve_data(self, write_item: Any) -> Any:
        raise OSError("the device is lost")


def test_a_save_that_fails_leaves_what_there_was(uri: str) -> None:
    save(uri, 1)
    writer = millrace.torch.StorageWriter(uri, step=2)
    with pytest.raises(CheckpointException, match="the device is lost"):
        dcp.save(state_of(2), storage_writer=writer, planner=Failing(), no_dist=True)
    assert millrace.Checkpoints(uri).steps() == [1] and load(uri)["step"] == 1
    dcp.save(state_of(2), storage_writer=writer, no_dist=True)
    assert len(list(pathlib.Path(uri).glob("0*/*"))) == 2  # nothing of the failed attempt
    assert load(uri)["step"] == 2


def test_damage_is_found(uri: str) -> None:
    save(uri, 1)
    for name in ("rank-00000.safetensors", "dcp.json"):
        (file,) = pathlib.Path(uri).glob(f"*/*/{name}")
        whole = file.read_bytes()
        file.write_bytes(whole[:-20] + bytes([whole[-20] ^ 1]) + whole[-19:])
        with pytest.raises(CheckpointException, match="rank-00000|dcp.json"):
            load(uri)
        file.write_bytes(whole)
    assert load(uri)["step"] == 1


def test_what_does_not_fit_is_said(uri: str) -> None:
    with pytest.raises(CheckpointException, match="the step is not known"):
        dcp.save(state_of(1), storage_writer=millrace.torch.StorageWriter(uri), no_dist=True)
    with pytest.raises(millrace.InvalidArgumentError, match="it must be the step"):
        dcp.save(state_of(1), checkpoint_id="run/5", storage_writer=millrace.torch.StorageWriter(uri), no_dist=True)
    with pytest.raises(millrace.InvalidArgumentError, match="give keep, too"):
        millrace.torch.StorageWriter(uri, keep_every=2)
    save(uri, 1)
    state = state_of(0)
    state["model"]["w"] = state["model"]["w"].double()
    with pytest.raises(CheckpointException, match="model.w of the checkpoint is F32"):
        dcp.load(state, storage_reader=millrace.torch.StorageReader(uri), no_dist=True)
    millrace.Checkpoints(uri).save(2, {"x": 1})
    with pytest.raises(CheckpointException, match="was not saved by torch.distributed.checkpoint"):
        load(uri)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        millrace.torch.Nothing  # noqa: B018


def test_cached_plans_are_refused(uri: str) -> None:
    """They name the folder of the attempt for which they were made."""
    planner = DefaultSavePlanner(enable_plan_caching=True)
    planner._cached_plans_key = uri  # which is kept by class: other tests have none of it
    writer = millrace.torch.StorageWriter(uri)
    dcp.save(state_of(1), checkpoint_id="1", storage_writer=writer, planner=planner, no_dist=True)
    with pytest.raises(CheckpointException, match="enable_plan_caching=False"):
        dcp.save(state_of(2), checkpoint_id="2", storage_writer=writer, planner=planner, no_dist=True)
    assert millrace.Checkpoints(uri).steps() == [1] and load(uri)["step"] == 1
    dcp.save(state_of(2), checkpoint_id="2", storage_writer=writer, no_dist=True)
    assert load(uri)["step"] == 2


IN_A_PROCESS = """
import os, sys, torch, torch.distributed as dist, torch.distributed.checkpoint as dcp, millrace.torch
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

if __name__ == "__main__":
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    for step in (1, 2):
        writer = millrace.torch.StorageWriter(sys.argv[1], keep=1)
        saved = dcp.async_save(
            {"w": torch.full((3,), float(step))}, checkpoint_id=str(step), storage_writer=writer,
            async_checkpointer_type=AsyncCheckpointerType.PROCESS,
        )
        saved.result()
    dist.destroy_process_group()
"""


def test_a_process_of_its_own_saves(uri: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "saves.py").write_text(IN_A_PROCESS)
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1"}
    words = [sys.executable, str(tmp_path / "saves.py"), uri]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stderr
    assert millrace.Checkpoints(uri).steps() == [2]
    state = {"w": torch.zeros(3)}
    dcp.load(state, storage_reader=millrace.torch.StorageReader(uri), no_dist=True)
    assert state["w"].tolist() == [2, 2, 2]


def test_a_writer_that_saves_stays_where_it_is(uri: str) -> None:
    writer = millrace.torch.StorageWriter(uri, step=3, keep=2)
    copy = pickle.loads(pickle.dumps(writer))
    assert copy.__getstate__() == writer.__getstate__()
    writer.prepare_global_plan([])
    with pytest.raises(millrace.UnsupportedError, match="another process"), writer:
        pickle.dumps(writer)
