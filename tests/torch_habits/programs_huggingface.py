"""Hugging Face's Trainer."""

from __future__ import annotations

import os
import tempfile
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("HF_HOME", "/nonexistent")

import millrace
import torch
import transformers
from habits import group, habit, ours
from torch import nn

ALL = list(range(37))


class Model(nn.Module):
    """A classifier that notes the samples it is trained on."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.net = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 37))
        self.trained: list[list[int]] = []

    def forward(self, pixel_values: Any, labels: Any = None) -> dict[str, Any]:
        if self.training:
            self.trained.append(labels.tolist())
        logits = self.net(pixel_values)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def arguments(batch_size: int, **options: Any) -> transformers.TrainingArguments:
    usual: dict[str, Any] = dict(use_cpu=True, report_to="none", disable_tqdm=True, save_strategy="no")
    sizes = dict(per_device_train_batch_size=batch_size, per_device_eval_batch_size=batch_size)
    return transformers.TrainingArguments(tempfile.gettempdir(), **usual, **sizes, **{"logging_steps": 1000, **options})


def count_and_accuracy(found: Any) -> dict[str, float]:
    right = found.predictions.argmax(-1) % 3 == found.label_ids % 3
    return {"count": len(found.label_ids), "accuracy": float(right.mean())}


FIELDS = {"pixel_values": millrace.Image(size=16), "labels": millrace.Label()}

group("Hugging Face Trainer")


@habit(
    "`evaluate()` with `compute_metrics`",
    same="count, accuracy and `eval_loss`",
    data="huggingface",
    cases=tuple({"batch_size": size} for size in (8, 37, 64)),
    close=1e-5,
)
def _(dataset, batch_size):
    trainer = transformers.Trainer(
        Model(), arguments(batch_size), eval_dataset=dataset, compute_metrics=count_and_accuracy
    )
    found = trainer.evaluate()
    return {name: found[name] for name in ("eval_count", "eval_accuracy", "eval_loss")}


@ours()
def _(uri, batch_size):
    dataset = millrace.Loader(uri, batch_size=batch_size, shuffle=False, fields=FIELDS)
    trainer = millrace.huggingface.Trainer(
        Model(), arguments(batch_size), eval_dataset=dataset, compute_metrics=count_and_accuracy
    )
    found = trainer.evaluate()
    return {name: found[name] for name in ("eval_count", "eval_accuracy", "eval_loss")}


@habit("`predict()`", same="a row for each sample, in order", data="huggingface", close=1e-5)
def _(dataset):
    trainer = transformers.Trainer(Model(), arguments(8))
    found = trainer.predict(dataset)
    return torch.from_numpy(found.predictions), found.label_ids.tolist()


@ours()
def _(uri):
    dataset = millrace.Loader(uri, batch_size=8, shuffle=False, fields=FIELDS)
    trainer = millrace.huggingface.Trainer(Model(), arguments(8))
    found = trainer.predict(dataset)
    return torch.from_numpy(found.predictions), found.label_ids.tolist()


@habit(
    "`train()` for two epochs",
    same="steps; the rows of batches; all samples twice",
    data="huggingface",
    result=[10, [8, 8, 8, 8, 5] * 2, sorted(ALL + ALL)],
)
def _(dataset):
    model = Model()
    trainer = transformers.Trainer(model, arguments(8, num_train_epochs=2), train_dataset=dataset)
    steps = trainer.train().global_step
    return steps, [len(batch) for batch in model.trained], sorted(sum(model.trained, []))


@ours()
def _(uri):
    model = Model()
    dataset = millrace.Loader(uri, batch_size=8, shuffle=True, fields=FIELDS)
    trainer = millrace.huggingface.Trainer(model, arguments(8, num_train_epochs=2), train_dataset=dataset)
    steps = trainer.train().global_step
    return steps, [len(batch) for batch in model.trained], sorted(sum(model.trained, []))


@habit("`dataloader_drop_last=True`", same="steps, and the rows of batches", data="huggingface", result=[8, [8] * 8])
def _(dataset):
    model = Model()
    options = arguments(8, num_train_epochs=2, dataloader_drop_last=True)
    trainer = transformers.Trainer(model, options, train_dataset=dataset)
    return trainer.train().global_step, [len(batch) for batch in model.trained]


@ours()
def _(uri):
    model = Model()
    options = arguments(8, num_train_epochs=2)
    dataset = millrace.Loader(uri, batch_size=8, shuffle=True, drop_last=True, fields=FIELDS)
    trainer = millrace.huggingface.Trainer(model, options, train_dataset=dataset)
    return trainer.train().global_step, [len(batch) for batch in model.trained]


@habit("`max_steps`", same="steps, and the rows of batches", data="huggingface", result=[7, [8, 8, 8, 8, 5, 8, 8]])
def _(dataset):
    model = Model()
    trainer = transformers.Trainer(model, arguments(8, max_steps=7), train_dataset=dataset)
    return trainer.train().global_step, [len(batch) for batch in model.trained]


@ours()
def _(uri):
    model = Model()
    dataset = millrace.Loader(uri, batch_size=8, shuffle=True, fields=FIELDS)
    trainer = millrace.huggingface.Trainer(model, arguments(8, max_steps=7), train_dataset=dataset)
    return trainer.train().global_step, [len(batch) for batch in model.trained]


@habit(
    "`gradient_accumulation_steps`",
    same="optimizer steps, and all samples",
    data="huggingface",
    result=[6, sorted(ALL + ALL)],
)
def _(dataset):
    model = Model()
    options = arguments(8, num_train_epochs=2, gradient_accumulation_steps=2)
    trainer = transformers.Trainer(model, options, train_dataset=dataset)
    return trainer.train().global_step, sorted(sum(model.trained, []))


@ours()
def _(uri):
    model = Model()
    options = arguments(8, num_train_epochs=2, gradient_accumulation_steps=2)
    dataset = millrace.Loader(uri, batch_size=8, shuffle=True, fields=FIELDS)
    trainer = millrace.huggingface.Trainer(model, options, train_dataset=dataset)
    return trainer.train().global_step, sorted(sum(model.trained, []))


@habit("Evaluate after each epoch", same="the counts of evaluations", data="huggingface", result=[37, 37])
def _(dataset):
    options = arguments(8, num_train_epochs=2, eval_strategy="epoch")
    trainer = transformers.Trainer(
        Model(), options, train_dataset=dataset, eval_dataset=dataset, compute_metrics=count_and_accuracy
    )
    trainer.train()
    return [entry["eval_count"] for entry in trainer.state.log_history if "eval_count" in entry]


@ours()
def _(uri):
    options = arguments(8, num_train_epochs=2, eval_strategy="epoch")
    trainer = millrace.huggingface.Trainer(
        Model(),
        options,
        train_dataset=millrace.Loader(uri, batch_size=8, shuffle=True, fields=FIELDS),
        eval_dataset=millrace.Loader(uri, batch_size=8, shuffle=False, fields=FIELDS),
        compute_metrics=count_and_accuracy,
    )
    trainer.train()
    return [entry["eval_count"] for entry in trainer.state.log_history if "eval_count" in entry]
