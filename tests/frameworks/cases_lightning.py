"""Tests millrace.lightning: a Trainer gets the batches of a plain Loader, and continues exactly where a checkpoint
says."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any

import lightning
import lightning.pytorch
import millrace
import millrace.lightning
import numpy as np
import page
import pytest
import torch
from millrace.transforms import RandomHorizontalFlip, RandomResizedCrop, Resize
from PIL import Image
from support import AT_SIZE, CLASSES, Samples, add_digests, check_script, keys_of, write_raw

OPTIONS: dict[str, Any] = {
    "batch_size": 4,
    "image": millrace.Image(dtype="f32", layout="nhwc"),
    "seed": 3,
    "shuffle": millrace.Shuffle(window=128, extent=2),
    "digest": "raw",
    **AT_SIZE,
}


class Killed(Exception):
    pass


class Model(lightning.pytorch.LightningModule):
    """Notes what it gets."""

    def __init__(self, kill_at: int = 0) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)
        self.kill_at = kill_at
        self.trained: list[list[str]] = []
        self.validated: list[list[str]] = []

    def training_step(self, batch: Any, number: int) -> torch.Tensor:
        if self.kill_at and self.global_step + 1 >= self.kill_at:
            raise Killed
        self.trained.append(keys_of(batch))
        return torch.nn.functional.cross_entropy(self.layer(batch["image"].mean((1, 2))), batch["label"])

    def validation_step(self, batch: Any, number: int) -> None:
        self.validated.append(keys_of(batch))

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def trainer(folder: pathlib.Path, epochs: int = 3, **options: Any) -> lightning.pytorch.Trainer:
    quiet: dict[str, Any] = {
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "accelerator": "cpu",
        "devices": 1,
    }
    keep = lightning.pytorch.callbacks.ModelCheckpoint(folder, filename="{step}", every_n_train_steps=1, save_top_k=-1)
    return lightning.pytorch.Trainer(max_epochs=epochs, callbacks=[keep], default_root_dir=folder, **quiet, **options)


def plain(data: str, epochs: int = 3) -> tuple[list[list[str]], str]:
    with millrace.Loader(data, **OPTIONS, epochs=epochs) as loader:
        batches = [keys_of(batch) for _ in range(epochs) for batch in loader]
        return batches, str(loader.report()["digest"])


def data_module(raw: Samples, **options: Any) -> millrace.lightning.DataModule:
    return millrace.lightning.DataModule(train=raw.uri, val=raw.uri, **{**OPTIONS, **options})


def test_a_trainer_gets_what_a_plain_loader_yields(raw: Samples, tmp_path: pathlib.Path) -> None:
    model, data = Model(), data_module(raw)
    assert isinstance(data, lightning.pytorch.LightningDataModule)
    trainer(tmp_path, num_sanity_val_steps=2).fit(model, datamodule=data)
    batches, digest = plain(raw.uri)
    assert model.trained == batches
    assert data.state_dict()["train"]["digest"] == digest
    in_order = sorted(raw.pixels)
    validated = sum(model.validated, [])
    assert validated == in_order[:8] + 3 * in_order, "two batches before training, and all after each epoch"


def test_an_evaluation_is_not_augmented_by_transforms(raw: Samples) -> None:
    image = millrace.Image(transforms=[RandomResizedCrop(8), RandomHorizontalFlip()])
    centre = millrace.Image(transforms=[Resize((8, 8))])
    for options in ({"image": image}, {"image": None, "fields": {"image": image, "label": millrace.Label()}}):
        with pytest.raises(millrace.InvalidArgumentError, match="RandomResizedCrop in the transforms of .*evaluation="):
            data_module(raw, **options)
        name = "fields" if "fields" in options else "image"
        theirs = {"image": centre, "label": millrace.Label()} if name == "fields" else centre
        assert len(data_module(raw, **options, evaluation={name: theirs}).val_dataloader()) > 0
    assert data_module(raw, image=centre).val_dataloader(), "transforms that do not augment stay"


def test_an_evaluation_crops_the_centre(raw: Samples) -> None:
    image = dataclasses.replace(OPTIONS["image"], crop=(0.3, 0.4), flip=0.5)
    flat, cropped = data_module(raw), data_module(raw, image=image)
    chosen = data_module(raw, image=image, evaluation={"image": image})
    options = {name: value for name, value in OPTIONS.items() if name != "image"}
    options["fields"] = {"image": image, "label": millrace.Label()}
    fields = millrace.lightning.DataModule(val=raw.uri, **options)
    for one, other, third in zip(*(data.val_dataloader() for data in (flat, cropped, fields)), strict=True):
        assert torch.equal(one["image"], other["image"]) and torch.equal(one["image"], third["image"])
    first, second = (next(iter(data.val_dataloader()))["image"] for data in (flat, chosen))
    assert not torch.equal(first, second), "or the test says nothing"


@pytest.mark.parametrize("kill_at", [2, 7, 12, 13, 14, 25])  # 12 batches an epoch
def test_a_trainer_goes_on_with_the_next_sample(kill_at: int, raw: Samples, tmp_path: pathlib.Path) -> None:
    model, data = Model(kill_at), data_module(raw)
    with pytest.raises(Killed):
        trainer(tmp_path).fit(model, datamodule=data)
    before = model.trained
    newest = max(tmp_path.glob("*.ckpt"), key=lambda path: int(path.stem.partition("=")[2].partition("-")[0]))
    digest_before = torch.load(newest, weights_only=False)["DataModule"]["train"]["digest"]
    model, data = Model(), data_module(raw)
    trainer(tmp_path).fit(model, datamodule=data, ckpt_path=newest)
    batches, digest = plain(raw.uri)
    assert len(before) == kill_at - 1 and before + model.trained == batches
    assert add_digests(digest_before, data.state_dict()["train"]["digest"]) == digest


def test_a_checkpoint_after_an_epoch_goes_on_with_the_next_one(raw: Samples, tmp_path: pathlib.Path) -> None:
    first, model = trainer(tmp_path / "a", epochs=1), Model()
    first.fit(model, datamodule=data_module(raw))
    first.save_checkpoint(tmp_path / "end.ckpt")
    resumed = Model()
    trainer(tmp_path / "b").fit(resumed, datamodule=data_module(raw, batch_size=8), ckpt_path=tmp_path / "end.ckpt")
    assert sum(model.trained + resumed.trained, []) == sum(plain(raw.uri)[0], []), "with another batch size"


def test_epochs_that_the_trainer_limits_are_whole_again(raw: Samples, tmp_path: pathlib.Path) -> None:
    model = Model()
    trainer(tmp_path, epochs=3, limit_train_batches=5).fit(model, datamodule=data_module(raw))
    batches, _ = plain(raw.uri)
    assert model.trained == batches[:5] + batches[12:17] + batches[24:29]


def test_training_validation_test_and_prediction(raw: Samples, tmp_path: pathlib.Path) -> None:
    class Predicting(Model):
        def test_step(self, batch: Any, number: int) -> None:
            self.trained.append(keys_of(batch))

        def predict_step(self, batch: Any, number: int) -> list[str]:
            return keys_of(batch)

    data = millrace.lightning.DataModule(raw.uri, raw.uri, raw.uri, raw.uri, **OPTIONS, evaluation={"batch_size": 10})
    model, once = Predicting(), trainer(tmp_path, epochs=1)
    once.fit(model, datamodule=data)
    model.trained, state = [], data.state_dict()
    once.test(model, datamodule=data, ckpt_path=tmp_path / "step=6.ckpt", verbose=False)
    assert sum(model.trained, []) == sorted(raw.pixels) and len(model.trained) == 5
    assert data.state_dict() == state, "the position of training stays"
    once.validate(model, datamodule=data, verbose=False)
    assert sum(once.predict(model, datamodule=data) or [], []) == sorted(raw.pixels)


class Judge(lightning.pytorch.LightningModule):
    """Is always the same one, which logs as most programs do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)
        with torch.no_grad():
            self.layer.weight.copy_(torch.tensor([[9.0, -5, 1], [-7, 8, 2], [1, 2, -3]]))
            self.layer.bias.zero_()
        self.rows = 0

    def validation_step(self, batch: Any, number: int) -> None:
        image, label = (batch["image"], batch["label"]) if isinstance(batch, dict) else batch
        logits = self.layer(image.mean((1, 2)))
        self.rows += len(label)
        right = (logits.argmax(1) == label).float().mean()
        self.log("loss", torch.nn.functional.cross_entropy(logits, label), sync_dist=True)
        self.log("accuracy", right, sync_dist=True, on_step=True, on_epoch=True)

    def predict_step(self, batch: Any, number: int) -> Any:
        return self.layer(batch["image"].mean((1, 2)))


def check_same(found: Any, wanted: Any) -> None:
    assert 0.2 < wanted["accuracy_epoch"] < 0.8
    assert {name: found[name] for name in wanted} == pytest.approx(wanted, rel=1e-5)


def rows_of_plain(folder: str) -> list[tuple[torch.Tensor, int]]:
    paths = sorted(pathlib.Path(folder).glob("*/*.png"))
    return [(torch.from_numpy(np.array(Image.open(path))) / 255, CLASSES.index(path.parent.name)) for path in paths]


@pytest.mark.parametrize("batch_size", [8, 45, 64])  # the last batch: 5 of 8, full, 45 of 64
def test_evaluation_is_that_of_plain_lightning(batch_size: int, raw: Samples, tmp_path: pathlib.Path) -> None:
    plain = torch.utils.data.DataLoader(rows_of_plain(raw.uri), batch_size)
    (wanted,) = trainer(tmp_path).validate(Judge(), plain, verbose=False)
    for options in ({}, {"batch_transform": lambda batch: (batch["image"], batch["label"])}):
        data = data_module(raw, batch_size=batch_size, **options)
        model = Judge()
        (found,) = trainer(tmp_path).validate(model, datamodule=data, verbose=False)
        check_same(found, wanted)
        assert model.rows == 45
    data = millrace.lightning.DataModule(predict=raw.uri, **{**OPTIONS, "batch_size": batch_size})
    predicted = trainer(tmp_path).predict(Judge(), datamodule=data)
    assert sum(len(rows) for rows in predicted or []) == 45


EVALUATION_ON_TWO_DEVICES = """
import json, pathlib, sys
sys.path.insert(0, sys.argv[3])
from cases_lightning import *

folder, plain_rows = pathlib.Path(sys.argv[1]), rows_of_plain(sys.argv[2])
options = dict(logger=False, enable_progress_bar=False, enable_model_summary=False, accelerator="cpu", devices=2, strategy="ddp")
found = []
for batch_size in 4, 22:  # the last batches of the ranks have 3 samples each, of which one was repeated; 1 and the repeated one
    run = lightning.pytorch.Trainer(default_root_dir=folder, **options)
    plain = Judge()
    (wanted,) = run.validate(plain, torch.utils.data.DataLoader(plain_rows, batch_size), verbose=False)
    for last in "pad", "short":
        model = Judge()
        module = millrace.lightning.DataModule(
            val=sys.argv[2], predict=sys.argv[2], last="drop", evaluation={"last": last}, **{**OPTIONS, "batch_size": batch_size}
        )
        (ours,) = run.validate(model, datamodule=module, verbose=False)
        predicted = sum(len(rows) for rows in run.predict(model, datamodule=module))
        found.append((wanted, ours, plain.rows, model.rows, predicted))
(folder / f"{run.global_rank}.json").write_text(json.dumps(found))
"""


def test_evaluation_on_two_devices_is_that_of_plain_lightning(raw: Samples, tmp_path: pathlib.Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(EVALUATION_ON_TWO_DEVICES)
    command = [sys.executable, str(script), str(tmp_path), raw.uri, str(pathlib.Path(__file__).parent)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    for rank, own in enumerate((23, 22)):
        for wanted, found, plain_rows, rows, predicted in json.loads((tmp_path / f"{rank}.json").read_text()):
            check_same(found, wanted)
            assert (plain_rows, rows, predicted) == (23, 23, own)


def test_few_samples_of_many_ranks(tmp_path: pathlib.Path) -> None:
    (tmp_path / "data").mkdir()
    few = write_raw(tmp_path / "data", count=3)
    first, second, third = sorted(few.pixels)
    for world, batch_size, wanted in ((2, 1, [third, first]), (5, 4, [first, second, third, first, second])):
        seen = []
        for rank in range(world):
            options = {"batch_size": batch_size, "rank": rank, "world": world, **AT_SIZE}
            data = millrace.lightning.DataModule(val=few.uri, predict=few.uri, **options)
            seen.append([batch["key"] for batch in data.val_dataloader()])
            assert sum((batch["key"] for batch in data.predict_dataloader()), []) == [first, second, third][rank::world]
            data.teardown("validate")
        assert [key for batches in seen for key in batches[-1]] == wanted and len(
            {len(batches) for batches in seen}
        ) == 1


def test_what_is_missing_is_said(raw: Samples, tmp_path: pathlib.Path) -> None:
    with pytest.raises(millrace.InvalidArgumentError, match="train=URI"):
        trainer(tmp_path).fit(Model(), datamodule=millrace.lightning.DataModule(val=raw.uri))
    with pytest.raises(millrace.InvalidArgumentError, match="DataModule.state_dict"):
        data_module(raw).load_state_dict({})
    with pytest.raises(TypeError, match="evaluation"):
        data_module(raw, evaluation=3)


WITH_TWO_DEVICES = """
import json, pathlib, sys
sys.path.insert(0, sys.argv[4])
from cases_lightning import *

folder, data, resume = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
model = Model(0 if resume else 4)
module = millrace.lightning.DataModule(train=data, **{**OPTIONS, "batch_size": 2})
keep = lightning.pytorch.callbacks.ModelCheckpoint(folder, filename="{step}", every_n_train_steps=1, save_top_k=-1)
options = dict(logger=False, enable_progress_bar=False, enable_model_summary=False, accelerator="cpu", devices=2, strategy="ddp")
run = lightning.pytorch.Trainer(max_epochs=2, callbacks=[keep], default_root_dir=folder, **options)
try:
    run.fit(model, datamodule=module, ckpt_path=resume or None)
finally:
    (folder / f"{'resumed' if resume else 'killed'}-{run.global_rank}.json").write_text(json.dumps(model.trained))
"""


def test_two_devices(raw: Samples, tmp_path: pathlib.Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(WITH_TWO_DEVICES)

    def run(resume: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(script), str(tmp_path), raw.uri, resume, str(pathlib.Path(__file__).parent)]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )

    assert "Killed" in run("").stderr
    done = run(str(tmp_path / "step=3.ckpt"))
    assert done.returncode == 0, done.stderr
    assert "DistributedSampler" not in done.stderr
    seen = [
        [json.loads((tmp_path / f"{part}-{rank}.json").read_text()) for part in ("killed", "resumed")]
        for rank in range(2)
    ]
    assert [len(killed) for killed, _ in seen] == [3, 3]
    for rank in range(2):
        with millrace.Loader(raw.uri, **{**OPTIONS, "batch_size": 2}, rank=rank, world=2) as loader:
            assert sum(seen[rank], []) == [keys_of(batch) for _ in range(2) for batch in loader]


def test_pytorch_lightning(raw: Samples, tmp_path: pathlib.Path) -> None:
    check_script(
        """
import sys
import pytorch_lightning, torch
import millrace.lightning
assert issubclass(millrace.lightning.DataModule, pytorch_lightning.LightningDataModule)

class Model(pytorch_lightning.LightningModule):
    seen = []
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)
    def training_step(self, batch, number):
        self.seen += [key for key in batch["key"] if key]
        return self.layer(batch["image"].mean((2, 3))).sum()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

data = millrace.lightning.DataModule(train=sys.argv[1], batch_size=8, size=16)
keep = pytorch_lightning.callbacks.ModelCheckpoint(sys.argv[2], filename="four", every_n_train_steps=4)
options = dict(logger=False, enable_progress_bar=False, accelerator="cpu", devices=1, default_root_dir=sys.argv[2])
pytorch_lightning.Trainer(**options, callbacks=[keep], max_steps=4).fit(Model(), datamodule=data)
assert len(Model.seen) == 32
pytorch_lightning.Trainer(**options, max_epochs=1).fit(Model(), datamodule=data, ckpt_path=sys.argv[2] + "/four.ckpt")
assert len(Model.seen) == len(set(Model.seen)) == 45, Model.seen
""",
        raw.uri,
        str(tmp_path),
    )


def test_the_page(tmp_path: pathlib.Path) -> None:
    page.make_bucket(tmp_path)

    class Classifier(Model):
        def training_step(self, batch: Any, number: int) -> torch.Tensor:
            self.trained.append(keys_of(batch))
            return torch.nn.functional.cross_entropy(self.layer(batch["image"].mean((2, 3))), batch["label"])

    model = Classifier()
    (piece,) = page.pieces("lightning")
    page.run(piece, tmp_path, model=model)
    assert len(sum(model.trained, [])) == 600 and len(sum(model.validated, [])) >= 120


def test_the_job_of_the_examples(tmp_path: pathlib.Path) -> None:
    page.make_bucket(tmp_path)
    shutil.rmtree(tmp_path / "val/class0")  # classes keep their numbers
    program = pathlib.Path(__file__).resolve().parents[2] / "examples/jobs/lightning_fit.py"
    command = [sys.executable, str(program), str(tmp_path / "train"), str(tmp_path / "val"), str(tmp_path / "runs")]
    for _ in range(2):  # the second time it goes on from the end
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "74 steps," in done.stdout, done.stdout
