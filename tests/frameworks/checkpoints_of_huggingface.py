"""Tests millrace.huggingface_checkpoints: a Trainer's checkpoints go to a shared place, and come back on a machine
without any. Run by test_trainer_checkpoints.py."""

from __future__ import annotations

import os
import pathlib
import shutil
from typing import Any

import millrace
import millrace.huggingface_checkpoints
import numpy as np
import pytest
import torch
from transformers import Trainer, TrainingArguments


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        made = self.layer(x)
        return {"loss": (made - labels).square().mean(), "logits": made}


def train(folder: pathlib.Path, uri: str, steps: int) -> tuple[Net, str | None]:
    torch.manual_seed(0)
    arguments = TrainingArguments(
        str(folder),
        max_steps=steps,
        save_steps=2,
        per_device_train_batch_size=2,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        lr_scheduler_type="constant",
    )
    data: list[Any] = [{"x": torch.full((3,), float(number)), "labels": torch.ones(1)} for number in range(16)]
    saver = millrace.huggingface_checkpoints.CheckpointCallback(uri, keep=2)
    net = Net()
    resume = saver.restore(folder)
    Trainer(net, arguments, train_dataset=data, callbacks=[saver]).train(resume_from_checkpoint=resume)
    return net, resume


def test_a_trainer_goes_on(tmp_path: pathlib.Path) -> None:
    uri = str(tmp_path / "store")
    whole, resumed = train(tmp_path / "whole", str(tmp_path / "other"), 8)
    assert resumed is None
    train(tmp_path / "run", uri, 4)
    assert millrace.Checkpoints(uri).steps() == [2, 4]
    shutil.rmtree(tmp_path / "run")  # another machine
    second, resumed = train(tmp_path / "run", uri, 8)
    assert resumed == str(tmp_path / "run" / "checkpoint-4")
    assert all(torch.equal(value, second.state_dict()[name]) for name, value in whole.state_dict().items())
    assert millrace.Checkpoints(uri).steps() == [6, 8]


def test_what_another_has_saved_is_refused(tmp_path: pathlib.Path) -> None:
    uri = str(tmp_path / "store")
    millrace.Checkpoints(uri).save(1, {"x": 1})
    saver = millrace.huggingface_checkpoints.CheckpointCallback(uri)
    with pytest.raises(millrace.InvalidArgumentError, match="step 1 was not saved by a CheckpointCallback"):
        saver.restore(tmp_path / "run")
    millrace.Checkpoints(uri).save(2, {"files": {"../evil": np.zeros(3, np.uint8)}})
    with pytest.raises(millrace.DamagedDataError, match="would be elsewhere"):
        millrace.huggingface_checkpoints.CheckpointCallback(uri).restore(tmp_path / "run")
    assert not list(tmp_path.glob("**/evil"))


def test_restores_beside_each_other(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One ends within another one, and what it has brought stays."""
    uri, output = str(tmp_path / "store"), tmp_path / "run"
    files = {"model.bin": np.arange(100_000, dtype=np.int64).view(np.uint8), "sub/state.json": np.zeros(7, np.uint8)}
    millrace.Checkpoints(uri).save(3, {"files": files})
    load, inodes = millrace.Checkpoints.load, []

    def load_after_others(self: millrace.Checkpoints, *arguments: Any, **options: Any) -> Any:
        found = load(self, *arguments, **options)
        if not inodes:
            inodes.append(0)  # the inner one does not come here
            millrace.huggingface_checkpoints.CheckpointCallback(uri).restore(output)
            inodes.append((output / "checkpoint-3" / "model.bin").stat().st_ino)
        return found

    monkeypatch.setattr(millrace.Checkpoints, "load", load_after_others)
    assert millrace.huggingface_checkpoints.CheckpointCallback(uri).restore(output) == str(output / "checkpoint-3")
    target = output / "checkpoint-3"
    assert (target / "model.bin").stat().st_ino == inodes[-1]
    assert {name: (target / name).read_bytes() for name in files} == {
        name: data.tobytes() for name, data in files.items()
    }
    assert [path.name for path in output.iterdir()] == ["checkpoint-3"]


def test_a_restore_replaces_what_differs(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri, output = str(tmp_path / "store"), tmp_path / "run"
    target = output / "checkpoint-3"
    millrace.Checkpoints(uri).save(3, {"files": {"model.bin": np.full(9, 7, np.uint8)}})
    saver = millrace.huggingface_checkpoints.CheckpointCallback(uri)
    target.mkdir(parents=True)
    (target / "model.bin").write_bytes(bytes(9))  # of another run
    dead, alive = output / ".checkpoint-1.dead.part", output / ".checkpoint-1.alive.part"
    for partial in (dead, alive):
        partial.mkdir()
    os.utime(dead, (0, 0))
    saver.restore(output)
    assert (target / "model.bin").read_bytes() == b"\7" * 9
    assert sorted(path.name for path in output.iterdir()) == [alive.name, "checkpoint-3"]
    monkeypatch.setattr(
        millrace.Checkpoints, "load", lambda *_, **__: (_ for _ in ()).throw(millrace.DamagedDataError("a bit"))
    )
    with pytest.raises(millrace.DamagedDataError):
        saver.restore(output)
    assert sorted(path.name for path in output.iterdir()) == [alive.name, "checkpoint-3"]
