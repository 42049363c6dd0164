"""This module has the part of millrace.huggingface that needs the package ``transformers``."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch.utils.data

from ._errors import InvalidArgumentError
from ._loader import Loader
from ._padding import Rows, filled, rows_of

if TYPE_CHECKING:
    # These are the used parts of transformers' classes, so that type checks work without the package.
    class _Callback: ...

    class _State: ...

    class _Trainer:
        args: Any
        model: Any
        train_dataset: Any
        eval_dataset: Any
        callback_handler: Any
        label_names: Any
        accelerator: Any
        gather_function: Any

        def __init__(self, *arguments: Any, **options: Any) -> None: ...
        def add_callback(self, callback: Any) -> None: ...
        def get_train_dataloader(self) -> Any: ...
        def get_eval_dataloader(self, eval_dataset: Any = None) -> Any: ...
        def get_test_dataloader(self, test_dataset: Any) -> Any: ...
        def evaluation_loop(self, dataloader: Any, *arguments: Any, **options: Any) -> Any: ...
        def prediction_step(self, *arguments: Any, **options: Any) -> Any: ...

    class _LoopState:
        end_of_dataloader: bool

        def begin(self) -> None: ...
        def end(self) -> None: ...

    _recursively_apply: Any
    _GradientState: Any
    _MixinBase = _Trainer
    _Iterable = torch.utils.data.IterableDataset[Any]
    _DataLoader = torch.utils.data.DataLoader[Any]
else:
    from transformers import Trainer as _Trainer
    from transformers import TrainerCallback as _Callback
    from transformers.trainer_callback import ExportableState as _State

    _MixinBase = object
    _Iterable = torch.utils.data.IterableDataset
    _DataLoader = torch.utils.data.DataLoader

    # These imports come last, so that the error names transformers if both packages are missing.
    from accelerate.data_loader import DataLoaderStateMixin as _LoopState
    from accelerate.state import GradientState as _GradientState
    from accelerate.utils import recursively_apply as _recursively_apply

_IGNORED = -100  # the label of rows without a label, in Hugging Face's losses and metrics
_OF_MILLRACE = ("valid", "sample", "part", "row", "key")


class TrainerMixin(_MixinBase):
    """Represents a base class with which any class of Trainer can train and evaluate on :class:`millrace.Loader`.

        class MyTrainer(millrace.huggingface.TrainerMixin, transformers.Seq2SeqTrainer):
            pass

    ``train_dataset`` may be a Loader, and ``eval_dataset`` a Loader or a dict of Loaders. The Trainer handles other data sets itself.

    **Batches** are those of the Loader, whose ``batch_size`` counts. Logs show ``per_device_train_batch_size``, so make them equal. Give the
    fields the names that the model takes (``pixel_values``, ``labels``), or return such a batch from the Loader's ``batch_transform``.
    With ``remove_unused_columns``, which is the default, columns that the model does not take are left out. Without it, the columns that
    every batch of Millrace has beside its fields are left out. Labels of padding (:attr:`millrace.Batch.valid` is false) become -100.

    **Evaluation and prediction** leave padding out. The model, metrics and predictions get each sample once, in the order of the Loader, for
    every number of ranks. The loss weighs batches by their samples.

    **Ranks** are those of the Loader. The package accelerate does not split batches, and does not send them from one rank to the others.

    **Resuming.** Checkpoints hold the position (see :class:`PositionCallback`). ``train(resume_from_checkpoint=...)`` continues with the next
    sample, also in the middle of an epoch. The batches before it are not read again.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if not any(isinstance(callback, PositionCallback) for callback in self.callback_handler.callbacks):
            self.add_callback(PositionCallback())

    def get_train_dataloader(self) -> Any:
        if isinstance(self.train_dataset, Loader):
            return _Batches(_Stream(self.train_dataset, self._columns()))
        return super().get_train_dataloader()

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        chosen = self.eval_dataset[eval_dataset] if isinstance(eval_dataset, str) else eval_dataset
        chosen = self.eval_dataset if chosen is None else chosen
        return (
            _Evaluated(_Whole(chosen, self._columns()))
            if isinstance(chosen, Loader)
            else super().get_eval_dataloader(eval_dataset)
        )

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        return (
            _Evaluated(_Whole(test_dataset, self._columns()))
            if isinstance(test_dataset, Loader)
            else super().get_test_dataloader(test_dataset)
        )

    def evaluation_loop(self, dataloader: Any, *arguments: Any, **options: Any) -> Any:
        if isinstance(dataloader, _Evaluated) and not getattr(self.args, "eval_use_gather_object", False):
            self.gather_function = _Gather(self.accelerator, dataloader.stream, self.args.eval_batch_size)
        return super().evaluation_loop(dataloader, *arguments, **options)

    def prediction_step(self, *arguments: Any, **options: Any) -> Any:
        step = super().prediction_step(*arguments, **options)
        if isinstance(self.gather_function, _Gather):
            self.gather_function.has_loss = step[0] is not None
        return step

    def _columns(self) -> set[str] | None:
        """Returns the columns that the model takes, or None for all."""
        if not self.args.remove_unused_columns:
            return None
        model = self.model.get_base_model() if hasattr(self.model, "get_base_model") else self.model  # of PEFT
        return {*inspect.signature(model.forward).parameters, *self.label_names}


class Trainer(TrainerMixin, _Trainer):
    """A ``transformers.Trainer`` whose data sets may be Loaders. :class:`TrainerMixin` describes it.

        trainer = millrace.huggingface.Trainer(model=model, args=TrainingArguments("out"), train_dataset=loader)
        trainer.train()

    Its arguments are those of ``transformers.Trainer``.
    """


class PositionCallback(_Callback, _State):
    """Stores the position of the Loader in the checkpoints of a Trainer (in ``trainer_state.json``), and restores it from there.

    :class:`TrainerMixin` adds this callback by itself.
    """

    def __init__(self) -> None:
        self._loader: Loader | None = None

    def state(self) -> dict[str, Any]:
        """Returns the state to store. The Trainer calls this when it saves."""
        return {"args": {}, "attributes": {} if self._loader is None else {"position": self._loader.state_dict()}}

    def on_train_begin(self, args: Any, state: Any, control: Any, **options: Any) -> None:
        stream = getattr(options.get("train_dataloader"), "dataset", None)
        if not isinstance(stream, _Stream):
            return
        # The checkpoint may come from a Trainer without this callback. When the Trainer saves, it expects an entry.
        saved = state.stateful_callbacks.setdefault(type(self).__name__, {"args": {}, "attributes": {}})
        self._loader = loader = stream.loader
        if state.global_step == 0:
            return
        updates = -(-len(loader) // args.gradient_accumulation_steps)
        skipped = 0 if args.ignore_data_skip else state.global_step % updates * args.gradient_accumulation_steps
        position = _position(saved)
        if position is None:
            loader.set_epoch(state.global_step // updates)
        else:
            loader.load_state_dict(position)
            stream.received = skipped


def _position(saved: Any) -> Any:
    last = saved[-1] if isinstance(saved, list) and saved else saved
    return last.get("attributes", {}).get("position") if isinstance(last, dict) else None


class _Stream(_Iterable):
    """Represents the rest of one epoch of a Loader in each iteration.

    ``received`` counts the batches of the epoch that were received before the checkpoint from which training continues. They are yielded as
    None, since the Trainer skips as many. So its own count of steps in the epoch is right, and nothing is read twice.
    """

    def __init__(self, loader: Loader, columns: set[str] | None) -> None:
        self.loader = loader
        self.received = 0
        self._columns = columns

    def __iter__(self) -> Iterator[Any]:
        received, self.received = self.received, 0
        for _ in range(received):
            yield None
        for batch in self.loader:
            yield _fitted(batch, self._columns)

    def __len__(self) -> int:
        """Returns the number of samples, which the Trainer reports."""
        return len(self.loader.dataset)


class _Whole(_Stream):
    """Represents all batches of an epoch in each iteration, without padding. A model gets at least one row, and
    ``rows`` names the rows that are samples."""

    def __init__(self, loader: Loader, columns: set[str] | None) -> None:
        super().__init__(loader, columns)
        self.rows = Rows(np.arange(0), 0)

    def __iter__(self) -> Iterator[Any]:
        self.loader.reset()
        for batch, rows in rows_of(self.loader):
            self.rows = rows
            fed = rows if rows else Rows(np.arange(1), rows.total)
            yield _fitted(fed.of(batch), self._columns)


class _Batches(_DataLoader):
    """Represents the data loader that the Trainer gets. It has no workers, and returns batches unchanged."""

    def __init__(self, stream: _Stream) -> None:
        super().__init__(stream, batch_size=None, collate_fn=_unchanged)
        self._batches = len(stream.loader)

    def __len__(self) -> int:
        return self._batches


class _Evaluated(_Batches, _LoopState):
    """Represents the data loader for evaluation. It shows the last batch to accelerate, for metrics that are computed
    batch by batch."""

    def __init__(self, stream: _Whole) -> None:
        super().__init__(stream)
        self.stream = stream
        self.gradient_state = _GradientState()

    def __iter__(self) -> Any:
        self.begin()
        try:
            for number, batch in enumerate(super().__iter__(), start=1):
                self.end_of_dataloader = number == len(self)
                yield batch
        finally:
            self.end()


class _Gather:
    """Gathers the results of all ranks for a batch. It keeps only the rows of samples, in the order of the Loader, which assigns them in turn."""

    def __init__(self, accelerator: Any, stream: _Whole, repeats: int) -> None:
        self._accelerator = accelerator
        self._stream = stream
        self._repeats = repeats  # how often the Trainer repeats a loss, to weigh it
        self.has_loss = (
            True  # of the latest batch: the Trainer gathers a loss first, and predictions of one axis look like it
        )
        self._rows: Rows | None = None
        self._valid: Any = None  # of this batch, on all ranks

    def __call__(self, data: Any) -> Any:
        rows = self._stream.rows
        if self._rows is not rows:
            self._rows, self._valid = rows, None
            if self.has_loss and isinstance(data, torch.Tensor) and data.shape == (self._repeats,):
                data = data[:1].expand(max(1, len(rows)))
        return _recursively_apply(lambda one: self._gathered(one, rows), data)

    def _gathered(self, one: Any, rows: Rows) -> Any:
        world = self._accelerator.num_processes
        if one.ndim == 0 or len(one) != max(1, len(rows)):  # it has no rows
            return self._accelerator.gather(one)
        if world == 1:
            return one[: len(rows)]
        places = torch.from_numpy(rows.places).to(one.device)
        if self._valid is None:
            valid = torch.zeros(rows.total, dtype=torch.bool, device=one.device)
            valid[places] = True
            self._valid = self._in_turn(valid, world)
        padded = one.new_zeros((rows.total, *one.shape[1:]))
        padded[places] = one[: len(rows)]
        return self._in_turn(padded, world)[self._valid.to(one.device)]

    def _in_turn(self, one: Any, world: int) -> Any:
        return self._accelerator.gather(one).unflatten(0, (world, -1)).transpose(0, 1).flatten(0, 1)


def _unchanged(batch: Any) -> Any:
    return batch


def _fitted(batch: Any, columns: set[str] | None) -> Any:
    """Returns a batch for the model: only with columns that it takes, and with Hugging Face's label for padding."""
    if not isinstance(batch, Mapping):
        return batch
    chosen = {
        name: value
        for name, value in batch.items()
        if (name in columns if columns is not None else name not in _OF_MILLRACE)
    }
    if not chosen:
        raise InvalidArgumentError(
            f"the model takes {', '.join(sorted(columns or ()))}, and batches of the Loader have only {', '.join(batch)}; "
            "give its fields those names (fields={'pixel_values': millrace.Image('jpg')}), or return them from its batch_transform"
        )
    valid = batch.get("valid")
    if isinstance(valid, torch.Tensor) and not bool(valid.all()):
        for name in ("labels", "label", "label_ids"):
            labels = chosen.get(name)
            if isinstance(labels, torch.Tensor) and not labels.is_floating_point() and len(labels) == len(valid):
                labels[torch.from_numpy(~filled(batch)).to(labels.device)] = _IGNORED
    return chosen
