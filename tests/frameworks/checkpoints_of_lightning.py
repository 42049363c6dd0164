"""Tests millrace.lightning_checkpoints: a Trainer saves, resumes and removes through Millrace. Run by
test_trainer_checkpoints.py."""

from __future__ import annotations

import fractions
import os
import pathlib
import subprocess
from typing import Any

import lightning.pytorch
import millrace
import millrace.lightning_checkpoints
import pytest
import torch


class Model(lightning.pytorch.LightningModule):
    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(width, 3)
        self.steps = 0

    def training_step(self, batch: Any, number: int) -> torch.Tensor:
        self.steps += 1
        return self.layer(batch).square().mean()

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 2)]


def fit(model: Model, folder: pathlib.Path, epochs: int, resume: str | None = None) -> None:
    """Trains four steps an epoch."""
    keep = lightning.pytorch.callbacks.ModelCheckpoint(
        folder, filename="{step}", every_n_train_steps=2, save_top_k=2, save_last=True, monitor="step", mode="max"
    )
    quiet: dict[str, Any] = {
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "accelerator": "cpu",
        "devices": 1,
    }
    plugins = [millrace.lightning_checkpoints.CheckpointIO()]
    data = torch.utils.data.DataLoader(torch.arange(24.0).reshape(8, 3), batch_size=2)
    trainer = lightning.pytorch.Trainer(
        max_epochs=epochs, callbacks=[keep], default_root_dir=folder, plugins=plugins, **quiet
    )
    trainer.fit(model, data, ckpt_path=resume)


def test_a_trainer_goes_on(tmp_path: pathlib.Path) -> None:
    whole = Model()
    start = {name: value.clone() for name, value in whole.state_dict().items()}
    fit(whole, tmp_path / "whole", 4)
    first = Model()
    first.load_state_dict(start)
    fit(first, tmp_path / "run", 2)
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["last.ckpt", "step=6.ckpt", "step=8.ckpt"]
    last = str(tmp_path / "run" / "last.ckpt")
    assert subprocess.run([os.environ["MILLRACE_BIN"], "checkpoint", "verify", last]).returncode == 0
    second = Model()
    fit(second, tmp_path / "run", 4, last)
    assert second.steps == 8
    assert all(torch.equal(value, second.state_dict()[name]) for name, value in whole.state_dict().items())
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["last.ckpt", "step=14.ckpt", "step=16.ckpt"]


def test_hyperparameters_and_objects(tmp_path: pathlib.Path) -> None:
    plugin = millrace.lightning_checkpoints.CheckpointIO()
    kept = Model().hparams
    plugin.save_checkpoint({"global_step": 3, "hyper_parameters": kept}, tmp_path / "a.ckpt")
    assert plugin.load_checkpoint(tmp_path / "a.ckpt") == {"global_step": 3, "hyper_parameters": {"width": 3}}
    plugin.save_checkpoint({"global_step": 3, "path": tmp_path}, tmp_path / "a.ckpt")
    assert plugin.load_checkpoint(tmp_path / "a.ckpt")["path"] == tmp_path
    share = fractions.Fraction(1, 3)
    with pytest.raises(millrace.InvalidArgumentError, match="allow_pickle"):
        plugin.save_checkpoint({"global_step": 3, "share": share}, tmp_path / "b.ckpt")
    trusting = millrace.lightning_checkpoints.CheckpointIO(allow_pickle=True)
    trusting.save_checkpoint({"global_step": 3, "share": share}, tmp_path / "b.ckpt")
    assert trusting.load_checkpoint(tmp_path / "b.ckpt")["share"] == share
    with pytest.raises(millrace.InvalidArgumentError, match="pickles"):
        trusting.load_checkpoint(tmp_path / "b.ckpt", weights_only=True)
    plugin.remove_checkpoint(tmp_path / "b.ckpt")
    assert not (tmp_path / "b.ckpt").exists()


def test_removes_what_other_plugins_have_saved(tmp_path: pathlib.Path) -> None:
    """It removes files, and the links that save_last="link" makes."""
    plugin = millrace.lightning_checkpoints.CheckpointIO()
    plugin.save_checkpoint({"global_step": 3}, tmp_path / "a.ckpt")
    (tmp_path / "old.ckpt").write_bytes(b"of torch.save")
    (tmp_path / "last.ckpt").symlink_to("a.ckpt")
    for name in ("old.ckpt", "last.ckpt", "never-there.ckpt"):
        plugin.remove_checkpoint(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["a.ckpt"]
