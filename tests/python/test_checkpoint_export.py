"""Tests `millrace checkpoint export`: what torch.load and safetensors read is what was saved."""

from __future__ import annotations

import argparse
import collections
import datetime
import enum
import json
import pathlib
import subprocess
import sys
from typing import Any, NamedTuple

import millrace
import numpy as np
import pytest
import torch
from millrace._restore import Restore
from millrace.checkpoint_export import export_checkpoint, main
from safetensors.torch import load_file
from support import binary


class Pair(NamedTuple):
    a: Any
    b: Any


class Level(enum.IntEnum):
    LOW = 1


@pytest.fixture
def run(tmp_path: pathlib.Path) -> pathlib.Path:
    ckpt = millrace.Checkpoints(tmp_path / "run")
    ckpt.save(1, {"model": {"w": torch.zeros(2)}})
    weight = torch.arange(6.0).reshape(2, 3)
    state = {
        "model": collections.OrderedDict(
            [("w", weight), ("tied", weight), ("half", torch.ones(2, dtype=torch.bfloat16))]
        ),
        "optimizer": {"state": {0: {"step": torch.tensor(3.0)}}, "lr": np.float32(0.5)},
        "array": np.arange(3),
        "counts": collections.Counter({"seen": 4}),
        "pair": Pair(1, torch.ones(1)),
    }
    ckpt.save(2, state)
    return tmp_path / "run"


def test_torch_load_reads_it_without_pickles(run: pathlib.Path, tmp_path: pathlib.Path) -> None:
    assert export_checkpoint(run, tmp_path / "out.pt") == 2
    state = torch.load(tmp_path / "out.pt", weights_only=True)
    assert [*state["model"]] == ["w", "tied", "half"] and state["model"]["half"].dtype == torch.bfloat16
    assert torch.equal(state["model"]["w"], torch.arange(6.0).reshape(2, 3))
    assert state["optimizer"]["state"][0]["step"].item() == 3 and state["optimizer"]["lr"] == 0.5
    assert state["array"].tolist() == [0, 1, 2] and state["counts"] == {"seen": 4}
    assert state["pair"][0] == 1 and type(state["pair"]) is tuple


def test_torch_load_reads_every_plain_value_without_pickles(tmp_path: pathlib.Path) -> None:
    state = {
        "frozen": frozenset({1, "a"}),
        "nested": {"s": {frozenset({1}), (2, frozenset({3}))}, frozenset({4}): [frozenset()]},
        "scalars": {np.int64(7): {np.float32(0.5)}},
        "recent": collections.deque([1, torch.ones(1)], maxlen=3),
        "arguments": argparse.Namespace(lr=0.1, out=pathlib.Path("/data")),
        "when": [datetime.datetime(2026, 3, 1), datetime.timedelta(seconds=2)],
        "complex": complex(1, 2),
        "buffer": bytearray(b"ab"),
        "bytes": b"ab",
        "level": Level.LOW,
        "torch": [torch.Size([2]), torch.float16, torch.device("cpu")],
        "default": collections.defaultdict(list, {1: [2]}),
    }
    millrace.Checkpoints(tmp_path / "run").save(1, state)
    export_checkpoint(tmp_path / "run", tmp_path / "out.pt")
    after = torch.load(tmp_path / "out.pt", weights_only=True)
    assert after["frozen"] == {1, "a"} and type(after["frozen"]) is set
    assert after["nested"]["s"] == {(1,), (2, (3,))} and after["nested"][(4,)] == [set()]
    assert after["scalars"] == {7: {0.5}} and after["default"] == {1: [2]}
    assert after["recent"] == [1, torch.ones(1)] and after["arguments"] == {"lr": 0.1, "out": "/data"}
    assert after["when"] == ["2026-03-01T00:00:00", 2.0] and after["complex"] == complex(1, 2)
    assert (after["buffer"], after["bytes"], after["level"]) == (b"ab", b"ab", 1)
    assert after["torch"] == [torch.Size([2]), torch.float16, torch.device("cpu")]


def test_safetensors_reads_the_tensors(run: pathlib.Path, tmp_path: pathlib.Path) -> None:
    export_checkpoint(run, tmp_path / "all.safetensors")
    names = {"model.w", "model.tied", "model.half", "optimizer.state.0.step", "array", "pair.1"}
    assert load_file(tmp_path / "all.safetensors").keys() == names
    export_checkpoint(run, tmp_path / "model.safetensors", only=["model"], step=2)
    tensors = load_file(tmp_path / "model.safetensors")
    assert tensors.keys() == {"w", "tied", "half"} and torch.equal(tensors["w"], tensors["tied"])
    export_checkpoint(run, tmp_path / "model.safetensors", only=["model"], step=1)  # replaces it
    assert load_file(tmp_path / "model.safetensors")["w"].tolist() == [0, 0]


def test_what_cannot_be_exported_leaves_the_file_that_was_there(run: pathlib.Path, tmp_path: pathlib.Path) -> None:
    out = tmp_path / "out.safetensors"
    out.write_bytes(b"before")
    with pytest.raises(millrace.InvalidArgumentError, match="no tensor"):
        export_checkpoint(run, out, only=["counts"])
    with pytest.raises(millrace.InvalidArgumentError, match="'models'"):
        export_checkpoint(run, out, only=["models"])
    with pytest.raises(millrace.NotFoundError):
        export_checkpoint(run, out, step=7)
    with pytest.raises(millrace.InvalidArgumentError, match=r"must end with \.pt"):
        export_checkpoint(run, tmp_path / "out.bin")
    millrace.Checkpoints(run).save(3, {"a.b": torch.ones(1), "a": {"b": torch.ones(1)}})
    with pytest.raises(millrace.InvalidArgumentError, match=r"two tensors would be called 'a\.b'"):
        export_checkpoint(run, out)
    assert out.read_bytes() == b"before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.safetensors", "run"]


def test_damage_is_found(run: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (shard,) = run.glob("000000000002/*/model.safetensors")
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    assert main([str(run), str(tmp_path / "out.pt")]) == 1
    assert not (tmp_path / "out.pt").exists()


def test_a_step_that_is_replaced_while_it_is_read_is_read_again(
    run: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another attempt of the same step takes the place of the one that was found, once or each time."""
    reads = 0

    def replace_then_read(self: Restore, *args: Any, **options: Any) -> Any:
        nonlocal reads
        reads += 1
        if reads <= replacements:
            millrace.Checkpoints(run, keep=1).save(2, {"model": {"w": torch.full((2,), float(reads))}})
        return whole(self, *args, **options)

    whole = Restore.run
    monkeypatch.setattr(Restore, "run", replace_then_read)
    replacements = 1
    assert export_checkpoint(run, tmp_path / "out.pt", step=2) == 2
    assert torch.load(tmp_path / "out.pt", weights_only=True)["model"]["w"].tolist() == [1, 1]
    replacements = 1000
    with pytest.raises(millrace.NotFoundError, match="step 2 was replaced while it was read; read it again, or name"):
        export_checkpoint(run, tmp_path / "out.pt", step=2)
    assert torch.load(tmp_path / "out.pt", weights_only=True)["model"]["w"].tolist() == [1, 1]


def test_a_step_that_is_removed_while_it_is_read_is_named(
    run: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def remove_then_read(self: Restore, *args: Any, **options: Any) -> Any:
        millrace.Checkpoints(run, keep=1).save(3, {"model": {"w": torch.ones(2)}})
        return whole(self, *args, **options)

    whole = Restore.run
    monkeypatch.setattr(Restore, "run", remove_then_read)
    with pytest.raises(millrace.NotFoundError, match="removed while it was read; .* no checkpoint of step 1"):
        export_checkpoint(run, tmp_path / "out.pt", step=1)


@pytest.mark.parametrize("ending", ["pt", "safetensors"])
def test_without_torch_the_error_names_the_option(
    run: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, ending: str
) -> None:
    for name in ("torch", "safetensors.torch"):
        monkeypatch.setitem(sys.modules, name, None)
    assert main([str(run), str(tmp_path / f"out.{ending}"), "--json"]) == 1
    shown = capsys.readouterr()
    assert shown.out == "" and "torch" in shown.err and "name a Python that has it by --python" in shown.err


def test_a_python_without_millrace_is_named(run: pathlib.Path, tmp_path: pathlib.Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    bare.chmod(0o755)
    words = [binary(), "checkpoint", "export", run, tmp_path / "out.pt", "--python", bare, "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1 and "No module named 'millrace'" in done.stderr
    assert "install it, or name a Python that has it by --python" in done.stderr


def test_the_command(run: pathlib.Path, tmp_path: pathlib.Path) -> None:
    out = tmp_path / "out.pt"
    words = [str(binary()), "checkpoint", "export", str(run), str(out), "--step", "1", "--only", "model"]
    done = subprocess.run([*words, "--python", sys.executable, "--json"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "schema": "millrace.checkpoint.export/1",
        "step": 1,
        "bytes": out.stat().st_size,
        "file": str(out),
    }
    assert torch.load(out, weights_only=True)["model"]["w"].tolist() == [0, 0]
    missing = subprocess.run([*words[:-4], "--step", "9", "--python", sys.executable], capture_output=True, text=True)
    assert missing.returncode == 1 and "9" in missing.stderr
