"""Tests `millrace checkpoint cp`: files that torch.save, torch.distributed.checkpoint and safetensors have written
become a checkpoint."""

from __future__ import annotations

import json
import os
import pathlib
import pickle
import shutil
import signal
import subprocess
import sys
import time
from typing import Any

import millrace
import pytest
import torch
import torch.distributed.checkpoint as dcp
from millrace.checkpoint_import import import_checkpoint
from safetensors.torch import save_file
from support import binary, check_script, devstore

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


class Other:
    """Is neither a tensor nor plain data."""


def train_state() -> dict[str, Any]:
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(30, 40), torch.nn.Linear(40, 5)).to(torch.bfloat16)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 30, dtype=torch.bfloat16)).sum().backward()
    optimizer.step()
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "step": 3,
        "of": [1, 2.5, [torch.ones(2), "x"]],
        "none": torch.ones(0, 3),
    }


def same(found: Any, expected: Any) -> bool:
    if isinstance(expected, torch.Tensor):
        return isinstance(found, torch.Tensor) and found.dtype == expected.dtype and torch.equal(found, expected)
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(same(found[key], value) for key, value in expected.items())
    if isinstance(expected, (list, tuple)):
        return len(found) == len(expected) and all(map(same, found, expected))
    return bool(found == expected)


def write(kind: str, state: dict[str, Any], folder: pathlib.Path) -> pathlib.Path:
    if kind == "dcp":
        dcp.save(state, checkpoint_id=folder / "dcp", no_dist=True)
        return folder / "dcp"
    torch.save(state, folder / f"all.{kind}", _use_new_zipfile_serialization=kind != "bin")
    return folder / f"all.{kind}"


@pytest.mark.parametrize("kind", ["pt", "bin", "dcp"])
def test_a_whole_state(kind: str, tmp_path: pathlib.Path) -> None:
    state = train_state()
    source = write(kind, state, tmp_path)
    import_checkpoint(source, tmp_path / "run", step=7)
    ckpt = millrace.Checkpoints(tmp_path / "run")
    assert ckpt.steps() == [7]
    found = ckpt.load()
    if kind == "dcp":  # whose keys are all text
        state["optimizer"]["state"] = {str(key): value for key, value in state["optimizer"]["state"].items()}
        state["optimizer"]["param_groups"][0]["betas"] = tuple(state["optimizer"]["param_groups"][0]["betas"])
    assert same(found, state)


@pytest.mark.parametrize("kind", ["pt", "safetensors", "folder", "dcp"])
def test_tensors_alone_become_the_item_model(kind: str, tmp_path: pathlib.Path) -> None:
    state = dict(train_state()["model"])
    if kind in ("safetensors", "folder"):
        (tmp_path / "source").mkdir()
        names = sorted(state)
        save_file({name: state[name] for name in names[:2]}, tmp_path / "source/model-00001-of-00002.safetensors")
        save_file({name: state[name] for name in names[2:]}, tmp_path / "source/model-00002-of-00002.safetensors")
        save_file(state, tmp_path / "model.safetensors")
        source = tmp_path / ("source" if kind == "folder" else "model.safetensors")
    else:
        source = write(kind, state, tmp_path)
    import_checkpoint(source, tmp_path / "run")
    assert same(millrace.Checkpoints(tmp_path / "run").load(0), {"model": state})
    import_checkpoint(source, tmp_path / "run", step=1, name="ema", keep=1)
    assert same(millrace.Checkpoints(tmp_path / "run").load(), {"ema": state})
    assert millrace.Checkpoints(tmp_path / "run").steps() == [1]


@pytest.mark.parametrize("kind", ["pt", "bin", "dcp"])
def test_pickles_only_on_demand(kind: str, tmp_path: pathlib.Path) -> None:
    source = write(kind, {"model": {"w": torch.ones(2)}, "other": Other()}, tmp_path)
    with pytest.raises(millrace.InvalidArgumentError, match="--allow-pickle"):
        import_checkpoint(source, tmp_path / "run")
    assert millrace.Checkpoints(tmp_path / "run").latest() is None
    import_checkpoint(source, tmp_path / "run", allow_pickle=True)
    found = millrace.Checkpoints(tmp_path / "run").load(allow_pickle=True)
    assert isinstance(found["other"], Other) and torch.equal(found["model"]["w"], torch.ones(2))


class Attack:
    def __init__(self, what: Any, *of: Any) -> None:
        self._reduced = what, of

    def __reduce__(self) -> Any:
        return self._reduced


@pytest.mark.parametrize(
    "attack", [(os.mkdir, "x"), (getattr, os, "mkdir"), (eval, "1")], ids=lambda attack: attack[0].__name__
)
def test_metadata_of_others_runs_nothing(
    attack: tuple[Any, ...], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = write("dcp", {"w": torch.ones(2)}, tmp_path)
    (source / ".metadata").write_bytes(
        pickle.dumps(Attack(*attack)) if attack[0] is not getattr else b"cbuiltins\ngetattr\n(cos\npath\nVjoin\ntR."
    )
    with pytest.raises(millrace.InvalidArgumentError, match=r"\.metadata"):
        import_checkpoint(source, tmp_path / "run")
    assert not (tmp_path / "x").exists()


def test_damage_is_told(tmp_path: pathlib.Path) -> None:
    state = {"w": torch.arange(1000.0)}
    save_file(state, tmp_path / "model.safetensors")
    whole = (tmp_path / "model.safetensors").read_bytes()
    cut = {"cut": whole[:-1], "header": whole[:20], "none": b"", "garbage": b"\x10" + b"\0" * 7 + b"[1, 2, 3, 4, 5, ]"}
    for name, data in cut.items():
        (tmp_path / f"{name}.safetensors").write_bytes(data)
        with pytest.raises(millrace.DamagedDataError, match=name):
            import_checkpoint(tmp_path / f"{name}.safetensors", tmp_path / "run")
    source = write("pt", state, tmp_path)
    source.write_bytes(source.read_bytes()[:-300])
    with pytest.raises(millrace.DamagedDataError, match=r"all\.pt"):
        import_checkpoint(source, tmp_path / "run")
    source = write("dcp", state, tmp_path)
    (source / "__0_0.distcp").write_bytes(b"")
    with pytest.raises((millrace.DamagedDataError, millrace.InternalError), match="EOF|distcp|w"):
        import_checkpoint(source, tmp_path / "run")
    (source / ".metadata").write_bytes(b"\x80")
    with pytest.raises(millrace.DamagedDataError, match=r"\.metadata"):
        import_checkpoint(source, tmp_path / "run")
    with pytest.raises(millrace.NotFoundError, match="nothing"):
        import_checkpoint(tmp_path / "nothing.pt", tmp_path / "run")
    (tmp_path / "empty").mkdir()
    with pytest.raises(millrace.InvalidArgumentError, match="empty"):
        import_checkpoint(tmp_path / "empty", tmp_path / "run")
    assert millrace.Checkpoints(tmp_path / "run").latest() is None


def command(
    *arguments: Any, code: int = 0, python: Any = sys.executable, **environment: str
) -> subprocess.CompletedProcess[str]:
    words = [str(binary()), "checkpoint", "cp", "--python", str(python), *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, env={**os.environ, **environment})
    assert done.returncode == code, done.stdout + done.stderr
    return done


def test_the_command(tmp_path: pathlib.Path) -> None:
    state = dict(train_state()["model"])
    run = tmp_path / "run"
    save_file(state, tmp_path / "model.safetensors")
    told = json.loads(command("--json", "--step", 5, tmp_path / "model.safetensors", run).stdout)
    assert told["schema"] == "millrace.checkpoint.cp/1"
    assert told["step"] == 5 and pathlib.Path(told["uri"], "MANIFEST.json").exists() and told["bytes"] > 1000
    assert command("--step", 6, "--keep", 1, "--name", "ema", tmp_path, run).stdout.startswith("step 6 is copied: ")
    ckpt = millrace.Checkpoints(run)
    assert ckpt.steps() == [6] and same(ckpt.load(), {"ema": state})
    # These are refused: pickles, a folder that is neither ours nor that of another program, and a Python that is none.
    source = write("pt", {"other": Other()}, tmp_path)
    assert "--allow-pickle" in command(source, run, code=1).stderr
    assert "there is no checkpoint" in command(tmp_path / "nowhere", run, code=1).stderr
    assert "--python" in command(source, run, python=tmp_path / "nothing", code=1).stderr


def test_from_s3_and_to_s3(tmp_path: pathlib.Path) -> None:
    state = train_state()
    (tmp_path / "store/bkt").mkdir(parents=True)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with devstore(tmp_path / "store") as environment:
        shutil.copytree(write("dcp", state, tmp_path), tmp_path / "store/bkt/dcp")
        save_file(dict(state["model"]), tmp_path / "store/bkt/model.safetensors")
        for number, name in enumerate(("dcp", "model.safetensors")):
            command(f"s3://bkt/{name}", "s3://bkt/run", "--step", number, TMPDIR=str(scratch), **environment)
        script = "import sys, torch, millrace; c = millrace.Checkpoints(sys.argv[1]); print(*(float(c.load(n)['model']['0.weight'].sum()) for n in (0, 1)))"
        said = check_script(script, "s3://bkt/run", timeout=300, **environment)
    assert said == f"{float(state['model']['0.weight'].sum())} {float(state['model']['0.weight'].sum())}\n"
    assert not list(scratch.glob("millrace-import-*"))


MEMORY = """
import resource, sys, torch
from millrace.checkpoint_import import import_checkpoint
import_checkpoint(sys.argv[1], sys.argv[2])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
import_checkpoint(sys.argv[3], sys.argv[2], step=1)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


def test_memory_of_dcp_is_that_of_a_tensor(tmp_path: pathlib.Path) -> None:
    """The files of torch.save and safetensors are mapped, which counts as memory of this process and can be taken from it at any moment."""
    for name, count in (("small", 1), ("large", 24)):
        dcp.save(
            {"model": {str(number): torch.ones(4 << 20) for number in range(count)}},
            checkpoint_id=tmp_path / name,
            no_dist=True,
        )
    grown = int(
        check_script(MEMORY, str(tmp_path / "small"), str(tmp_path / "run"), str(tmp_path / "large"), timeout=300)
    )
    assert grown < 24 * (16 << 20) * 0.6  # of 24 tensors of 16 MiB


def test_an_import_that_is_killed_leaves_nothing_and_begins_again(tmp_path: pathlib.Path) -> None:
    run = tmp_path / "run"
    millrace.Checkpoints(run).save(1, {"x": 1})
    source = tmp_path / "model.safetensors"
    save_file({"w": torch.ones(20 << 20)}, source)
    words = [sys.executable, "-m", "millrace.checkpoint_import", str(source), str(run), "--step", "2"]
    process = subprocess.Popen(
        words, env={**os.environ, "TMPDIR": str(tmp_path)}
    )  # where a killed one leaves its folder
    deadline = time.monotonic() + 300
    while not list(run.glob("000000000002/*")) and process.poll() is None:  # in the midst of it
        assert time.monotonic() < deadline
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    ckpt = millrace.Checkpoints(run)
    assert ckpt.steps() in ([1], [1, 2]) and ckpt.load(1) == {"x": 1}
    command(source, run, "--step", 2)
    assert ckpt.steps() == [1, 2] and ckpt.load(2)["model"]["w"].eq(1).all()
    assert len(list(run.glob("000000000002/*"))) == 1  # what the killed one left is gone
