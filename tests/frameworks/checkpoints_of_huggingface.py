"""millrace.huggingface_checkpoints: a Trainer's checkpoints go to a shared place, and come back on a machine without any. Run by test_checkpoints.py."""

from __future__ import annotations

import pathlib
import shutil
from typing import Any

import millrace
import millrace.huggingface_checkpoints
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
        str(folder), max_steps=steps, save_steps=2, per_device_train_batch_size=2, report_to=[], use_cpu=True, disable_tqdm=True,
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
    import numpy as np

    millrace.Checkpoints(uri).save(2, {"files": {"../evil": np.zeros(3, np.uint8)}})
    with pytest.raises(millrace.DamagedDataError, match="would lie elsewhere"):
        millrace.huggingface_checkpoints.CheckpointCallback(uri).restore(tmp_path / "run")
    assert not list(tmp_path.glob("**/evil"))
