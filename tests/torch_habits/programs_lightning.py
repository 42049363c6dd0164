"""Lightning's Trainer, which gets loaders as they are."""

from __future__ import annotations

import logging
import tempfile
from typing import Any

import lightning.pytorch as lightning
import millrace
import torch
from habits import group, habit, ours
from torch import nn
from torch.utils.data import DataLoader

ALL = list(range(37))
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Model(lightning.LightningModule):
    """Notes the samples of each epoch, and logs as most programs do."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.net = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 3))
        self.trained: list[list[int]] = []
        self.validated: list[list[int]] = []

    def on_train_epoch_start(self) -> None:
        self.trained.append([])

    def on_validation_epoch_start(self) -> None:
        self.validated.append([])

    def training_step(self, batch: Any, number: int) -> Any:
        image, label = batch
        self.trained[-1] += label.tolist()
        return nn.functional.cross_entropy(self.net(image), label % 3)

    def validation_step(self, batch: Any, number: int) -> None:
        image, label = batch
        self.validated[-1] += label.tolist()
        logits = self.net(image)
        self.log("loss", nn.functional.cross_entropy(logits, label % 3))
        self.log("accuracy", (logits.argmax(1) == label % 3).float().mean())

    def test_step(self, batch: Any, number: int) -> None:
        self.validation_step(batch, number)

    def on_test_epoch_start(self) -> None:
        self.validated.append([])

    def predict_step(self, batch: Any, number: int) -> Any:
        return self.net(batch[0])

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def trainer(**options: Any) -> lightning.Trainer:
    quiet: dict[str, Any] = dict(
        logger=False, enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False
    )
    return lightning.Trainer(accelerator="cpu", devices=1, default_root_dir=tempfile.gettempdir(), **quiet, **options)


group("Lightning")


@habit(
    "`fit(model, train, valid)`",
    same="samples of each epoch, and of the sanity check and each validation",
    result=[[ALL] * 3, [ALL[:16], ALL, ALL, ALL]],
)
def _(dataset):
    train = DataLoader(dataset, batch_size=8, shuffle=True)
    valid = DataLoader(dataset, batch_size=8)
    model = Model()
    trainer(max_epochs=3).fit(model, train, valid)
    return [sorted(epoch) for epoch in model.trained], model.validated


@ours()
def _(uri):
    train = millrace.Loader(uri, batch_size=8, size=16, shuffle=True, as_tuple=("image", "label"))
    valid = millrace.Loader(uri, batch_size=8, size=16, shuffle=False, as_tuple=("image", "label"))
    model = Model()
    trainer(max_epochs=3).fit(model, train, valid)
    return [sorted(epoch) for epoch in model.trained], model.validated


@habit(
    "`self.log` of means in `validation_step`",
    same="loss and accuracy, weighted by the rows of batches",
    cases=tuple({"batch_size": size} for size in (8, 37, 64)),
    close=1e-5,
)
def _(dataset, batch_size):
    valid = DataLoader(dataset, batch_size=batch_size)
    (found,) = trainer().validate(Model(), valid, verbose=False)
    return found


@ours()
def _(uri, batch_size):
    valid = millrace.Loader(uri, batch_size=batch_size, size=16, shuffle=False, as_tuple=("image", "label"))
    (found,) = trainer().validate(Model(), valid, verbose=False)
    return found


@habit("`test()` and `predict()`", same="metrics; a row of predictions for each sample", close=1e-5)
def _(dataset):
    loader, model = DataLoader(dataset, batch_size=8), Model()
    (found,) = trainer().test(model, loader, verbose=False)
    return found, model.validated, torch.cat(trainer().predict(model, loader))


@ours()
def _(uri):
    loader = millrace.Loader(uri, batch_size=8, size=16, shuffle=False, as_tuple=("image", "label"))
    model = Model()
    (found,) = trainer().test(model, loader, verbose=False)
    return found, model.validated, torch.cat(trainer().predict(model, loader))


@habit(
    "`limit_train_batches`, `limit_val_batches`",
    same="rows of each epoch; the same samples in each validation",
    result=[[16, 16], [ALL[:8]] * 3],
)
def _(dataset):
    train = DataLoader(dataset, batch_size=8, shuffle=True)
    valid = DataLoader(dataset, batch_size=8)
    model = Model()
    trainer(max_epochs=2, limit_train_batches=2, limit_val_batches=1).fit(model, train, valid)
    return [len(epoch) for epoch in model.trained], model.validated


@ours()
def _(uri):
    train = millrace.Loader(uri, batch_size=8, size=16, shuffle=True, as_tuple=("image", "label"))
    valid = millrace.Loader(uri, batch_size=8, size=16, shuffle=False, as_tuple=("image", "label"))
    model = Model()
    trainer(max_epochs=2, limit_train_batches=2, limit_val_batches=1).fit(model, train, valid)
    return [len(epoch) for epoch in model.trained], model.validated


@habit(
    "`val_check_interval`: validate in the middle of epochs",
    same="samples of each epoch and of each validation",
    result=[[ALL, ALL], [37] * 4],
)
def _(dataset):
    train = DataLoader(dataset, batch_size=8, shuffle=True)
    valid = DataLoader(dataset, batch_size=16)
    model = Model()
    trainer(max_epochs=2, val_check_interval=2, num_sanity_val_steps=0).fit(model, train, valid)
    return [sorted(epoch) for epoch in model.trained], [len(each) for each in model.validated]


@ours()
def _(uri):
    train = millrace.Loader(uri, batch_size=8, size=16, shuffle=True, as_tuple=("image", "label"))
    valid = millrace.Loader(uri, batch_size=16, size=16, shuffle=False, as_tuple=("image", "label"))
    model = Model()
    trainer(max_epochs=2, val_check_interval=2, num_sanity_val_steps=0).fit(model, train, valid)
    return [sorted(epoch) for epoch in model.trained], [len(each) for each in model.validated]


@habit("`max_steps`, then `fit` once more with the same loader", same="rows, and all samples", result=[[37, 16], [ALL]])
def _(dataset):
    train, first, second = DataLoader(dataset, batch_size=8, shuffle=True), Model(), Model()
    trainer(max_steps=7).fit(first, train)
    trainer(max_epochs=1).fit(second, train)
    return [len(epoch) for epoch in first.trained], [sorted(epoch) for epoch in second.trained]


@ours()
def _(uri):
    train = millrace.Loader(uri, batch_size=8, size=16, shuffle=True, as_tuple=("image", "label"))
    first, second = Model(), Model()
    trainer(max_steps=7).fit(first, train)
    trainer(max_epochs=1).fit(second, train)
    return [len(epoch) for epoch in first.trained], [sorted(epoch) for epoch in second.trained]


@habit("A `LightningDataModule`", same="samples of each epoch and of each validation", result=[[ALL, ALL], [37, 37]])
def _(dataset):
    class Data(lightning.LightningDataModule):
        def train_dataloader(self):
            return DataLoader(dataset, batch_size=8, shuffle=True)

        def val_dataloader(self):
            return DataLoader(dataset, batch_size=8)

    model = Model()
    trainer(max_epochs=2, num_sanity_val_steps=0).fit(model, datamodule=Data())
    return [sorted(epoch) for epoch in model.trained], [len(each) for each in model.validated]


@ours()
def _(uri):
    class Data(lightning.LightningDataModule):
        def train_dataloader(self):
            return millrace.Loader(uri, batch_size=8, size=16, shuffle=True, as_tuple=("image", "label"))

        def val_dataloader(self):
            return millrace.Loader(uri, batch_size=8, size=16, shuffle=False, as_tuple=("image", "label"))

    model = Model()
    trainer(max_epochs=2, num_sanity_val_steps=0).fit(model, datamodule=Data())
    return [sorted(epoch) for epoch in model.trained], [len(each) for each in model.validated]
