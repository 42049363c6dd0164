"""Tests `millrace checkpoint`: it lists, shows, compares, copies and removes what millrace.Checkpoints has saved."""

from __future__ import annotations

import collections
import json
import pathlib
import subprocess
from typing import Any

import millrace
import numpy as np
import pytest
import torch
from millrace import _state
from support import binary


def test_the_command_lists_and_shows(folder: str) -> None:
    def run(*arguments: str, code: int = 0) -> list[Any]:
        result = subprocess.run([str(binary()), "checkpoint", *arguments, "--json"], capture_output=True, text=True)
        assert result.returncode == code, result.stderr
        return [json.loads(line) for line in result.stdout.splitlines()]

    assert run("ls", folder, code=1) == [] and run("verify", folder, code=1) == []
    ckpt = millrace.Checkpoints(folder)
    for step in (100, 200):
        ckpt.save(step, {"model": {"w": np.arange(1000, dtype=np.int64)}})
    assert [(entry["step"], entry["newest"]) for entry in run("ls", folder)] == [(100, False), (200, True)]
    (shown,) = run("show", folder, "--step", "100")
    assert shown["step"] == 100 and [shard["name"] for shard in shown["shards"]] == ["model.safetensors", "state.json"]
    assert shown["shards"][0]["bytes"] == 8000 + 128
    assert [(entry["step"], entry["whole"]) for entry in run("verify", folder, "--all")] == [(100, True), (200, True)]
    assert run("verify", folder, "--all", "--step", "100", code=2) == []
    run("show", folder, "--step", "7", code=1)


def test_verify_names_the_damaged_file(folder: str) -> None:
    ckpt = millrace.Checkpoints(folder)
    for step in (100, 200):
        ckpt.save(step, {"model": {"w": np.arange(1000, dtype=np.int64)}, "more": {"w": np.arange(10)}})
    (damaged,) = pathlib.Path(folder).glob("000000000200/*/model.safetensors")
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    why = f"{damaged}: its bytes are not those that were saved: they have another CRC32C; load another step, or restore this file from a copy"
    verify = [str(binary()), "checkpoint", "verify", folder]
    one = subprocess.run(verify, capture_output=True, text=True)
    assert (
        one.returncode == 1
        and one.stderr == f"millrace checkpoint: step 200 is damaged: {why}; --all says which steps are whole\n"
    )
    all_of_them = subprocess.run([*verify, "--all"], capture_output=True, text=True)
    assert all_of_them.returncode == 1 and all_of_them.stderr == f"millrace checkpoint: step 200 is damaged: {why}\n"
    assert all_of_them.stdout.startswith("step 100 is whole: ")
    with pytest.raises(millrace.DamagedDataError, match="its bytes are not those that were saved"):
        ckpt.load()


def run_json(*arguments: str, code: int = 0) -> list[Any]:
    result = subprocess.run([str(binary()), "checkpoint", *arguments, "--json"], capture_output=True, text=True)
    assert result.returncode == code, (result.stderr, result.stdout)
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_the_command_compares(place: tuple[str, pathlib.Path]) -> None:
    uri, _ = place
    torch.manual_seed(5)
    state: dict[Any, Any] = {
        "model": {"w": torch.randn(500, 1000), "b": torch.zeros(7), "n": np.arange(9)},
        "lr": 0.1,
        "steps": (1, 2),
        0: {"x": None},
    }
    ckpt = millrace.Checkpoints(uri)
    ckpt.save(1, state)
    ckpt.save(2, state)
    assert run_json("diff", uri, "--step", "1") == []
    state["model"]["w"][3, 5:7] += 1
    state["model"]["w"][499, 999] += 1
    state["model"] = {**state["model"], "b": torch.zeros(8), "new": torch.zeros(2)}
    del state["model"]["n"]
    state["lr"] = 0.2
    ckpt.save(3, state)
    found = {entry["name"]: entry for entry in run_json("diff", uri, "--step", "1", code=1)}
    assert {name: entry["kind"] for name, entry in found.items()} == {
        "model.w": "elements",
        "model.b": "type",
        "model.n": "only-first",
        "model.new": "only-second",
        "lr": "value",
    }
    assert found["model.w"]["elements"] == 3 and found["model.w"]["first"] == "F32 [500, 1000]"
    assert (found["model.b"]["first"], found["model.b"]["second"]) == ("F32 [7]", "F32 [8]")
    assert (found["lr"]["first"], found["lr"]["second"]) == ("0.1", "0.2")
    said = subprocess.run(
        [str(binary()), "checkpoint", "diff", uri, "--step", "1"], capture_output=True, text=True
    ).stdout
    assert "model.w: 3 elements differ of F32 [500, 1000]\n" in said
    assert run_json("diff", uri, code=2) == []


def test_what_is_empty_differs_from_nothing(folder: str) -> None:
    ckpt = millrace.Checkpoints(folder)
    ckpt.save(1, {"a": {}, "b": collections.OrderedDict(), "c": [], "d": 1})
    ckpt.save(2, {"d": 1})
    found = {
        entry["name"]: (entry["kind"], entry["first"]) for entry in run_json("diff", folder, "--step", "1", code=1)
    }
    assert found == {"a": ("only-first", "{}"), "b": ("only-first", "{}"), "c": ("only-first", "[]")}


def test_the_command_compares_what_other_worlds_have_saved(folder: str) -> None:
    """Parts of tensors that are stored in other ways are compared as one sequence."""
    state = {"w": torch.arange(3_000_000.0).reshape(3000, 1000), "b": torch.zeros(7)}

    def save(step: int, world: int) -> None:
        core = millrace._core.Checkpoints(folder)
        encoded = _state.Encoded(state, allow_pickle=False)
        files = [encoded.files(rank, world) for rank in range(world)]
        shards = [shard for some, _ in files for shard in some]
        core.save(step, [*shards, encoded.state_file([chunks for _, chunks in files])], 0, 0)

    save(1, 1)
    save(2, 3)
    assert run_json("diff", folder, "--step", "1") == []
    state["w"][2999, 999] = -1
    save(3, 2)
    (entry,) = run_json("diff", folder, "--step", "2", code=1)
    assert entry["name"] == "w" and entry["elements"] == 1
    assert torch.equal(millrace.Checkpoints(folder).load(3)["w"], state["w"])


def test_a_tensor_that_is_not_whole_is_not_equal(folder: str) -> None:
    core = millrace._core.Checkpoints(folder)

    def save(step: int, shape: list[int], chunks: list[dict[str, Any]]) -> None:
        state = json.dumps({"w": {"$": "tensor", "dtype": "U8", "shape": shape, "chunks": chunks}}).encode()
        core.save(step, [("w", [np.zeros(4, np.uint8)]), ("state.json", [np.frombuffer(state, np.uint8)])], 0, 0)

    save(1, [4], [{"shard": "w", "offset": 0}])
    save(2, [4], [{"shard": "w", "offset": 0, "begin": [0], "shape": [2]}])
    (entry,) = run_json("diff", folder, "--step", "1", code=1)
    assert entry["name"] == "w" and entry["kind"] == "layout"
    save(3, [2**32, 2**32], [{"shard": "w", "offset": 0}])  # 0 bytes, if the product may overflow
    assert run_json("diff", folder, "--step", "3", code=1) == []


def test_the_command_copies(place: tuple[str, pathlib.Path], tmp_path: pathlib.Path) -> None:
    uri, folder = place
    ckpt = millrace.Checkpoints(uri)
    for step in (1, 2):
        ckpt.save(step, {"w": torch.full((3_000_000,), step), "step": step})
    copies = str(tmp_path / "copies")
    (told,) = run_json("cp", uri, copies)
    assert told["step"] == 2 and told["uri"].startswith(f"{copies}/000000000002/")
    run_json("cp", uri, copies, "--step", "1", "--keep", "1")
    assert millrace.Checkpoints(copies).steps() == [1] and torch.equal(
        millrace.Checkpoints(copies).load()["w"], ckpt.load(1)["w"]
    )
    assert run_json("diff", uri, copies, "--step", "1") == []
    # The name of a file of torch does not make it one: those of Lightning are folders of such names.
    named = f"{uri}/last.ckpt"
    millrace.Checkpoints(named).save(3, {"w": torch.ones(2)})
    (told,) = run_json("cp", named, str(tmp_path / "named"))
    assert told["step"] == 3 and millrace.Checkpoints(tmp_path / "named").load()["w"].tolist() == [1, 1]
    (damaged,) = folder.glob("000000000002/*/w.safetensors")
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    assert run_json("cp", uri, copies, code=1) == []
    assert millrace.Checkpoints(copies).steps() == [1]
    assert [path.name for path in pathlib.Path(copies).glob("0*")] == ["000000000001"]


def test_the_command_removes(folder: str) -> None:
    ckpt = millrace.Checkpoints(folder)
    for step in (5, 10, 15, 20):
        ckpt.save(step, {"step": step})

    def say(*arguments: str) -> str:
        return subprocess.run(
            [str(binary()), "checkpoint", "gc", folder, *arguments], capture_output=True, text=True, check=True
        ).stdout

    assert say("--dry-run") == "nothing would be removed\n" and say() == "there was nothing to remove\n"
    assert run_json("gc", folder, "--dry-run") == []
    assert [entry["step"] for entry in run_json("gc", folder, "--keep", "1", "--keep-every", "10", "--dry-run")] == [
        5,
        15,
    ]
    assert ckpt.steps() == [5, 10, 15, 20]
    removed = run_json("gc", folder, "--keep", "1", "--keep-every", "10")
    assert [(entry["step"], entry["removed"]) for entry in removed] == [(5, True), (15, True)] and ckpt.steps() == [
        10,
        20,
    ]
    ckpt.save(25, {"step": 25})  # the training goes on
    left = pathlib.Path(folder) / "000000000030" / "e1-0123456789abcdef"
    left.mkdir(parents=True)
    (left / "x").write_bytes(b"half")
    assert run_json("gc", folder) == []  # perhaps it is being written
    (gone,) = run_json("gc", folder, "--claim")
    assert gone["step"] == 30 and gone["why"] == "left by a killed writer" and not left.exists()
    with pytest.raises(millrace.MismatchError):
        ckpt.save(30, {})
    assert millrace.Checkpoints(folder).steps() == [10, 20, 25]
    assert run_json("gc", folder, "--keep-every", "10", code=2) == []
    assert run_json("gc", str(pathlib.Path(folder).parent / "none"), code=1) == []
