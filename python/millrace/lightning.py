"""Provides PyTorch Lightning with a data module whose data loaders are Millrace Loaders.

    import lightning, millrace.lightning

    data = millrace.lightning.DataModule(train="s3://bucket/train", val="s3://bucket/val", batch_size=64, size=224, augment=True, seed=1)
    lightning.Trainer(max_epochs=90).fit(model, datamodule=data)

It works with the packages ``lightning`` and ``pytorch_lightning``, whose classes differ. It uses the package that the program has imported. If
the program has imported both or neither, it uses ``lightning``.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union

from . import _arguments
from ._dataloader_names import last_batch
from ._dataset import Dataset
from ._errors import InvalidArgumentError
from ._fields import Image
from ._loader import Loader
from ._mix import Mix
from ._padding import rows_of, share_with_repeats
from .transforms import CenterCrop, Normalize, Resize

if TYPE_CHECKING:

    class _Base:  # the used parts of LightningDataModule, so that type checks work without either package
        trainer: Any

else:

    def _base() -> Any:
        names = {"lightning": "lightning.pytorch", "pytorch_lightning": "pytorch_lightning"}
        for name in [name for name in names if name in sys.modules] or names:
            if importlib.util.find_spec(name) is not None:
                return importlib.import_module(names[name]).LightningDataModule
        raise ModuleNotFoundError(
            "millrace.lightning needs one of the packages 'lightning' and 'pytorch_lightning'; install one",
            name="lightning",
        )

    _Base = _base()

__all__ = ["DataModule", "Evaluation"]

Data = Union[Dataset, Mix, str, "os.PathLike[str]", Sequence[Union[str, "os.PathLike[str]"]]]

_OF_EVALUATION = {"augment": False, "shuffle": "none", "epochs": 1, "last": "pad", "start": "indexed"}


class DataModule(_Base):
    """Represents a ``LightningDataModule`` whose data loaders are those of Millrace.

        data = millrace.lightning.DataModule(train="s3://bucket/train", val="s3://bucket/val", batch_size=64)
        lightning.Trainer(max_epochs=90).fit(model, datamodule=data)

    **Resuming.** Checkpoints of the Trainer hold the position. ``Trainer.fit(..., ckpt_path=...)`` continues with the next sample, also in the
    middle of an epoch. If the checkpoint was saved at the end of an epoch, the number of devices and the batch size may differ.

    **Ranks** are those of the Trainer's strategy. Lightning does not add a ``DistributedSampler``, since it does that only for torch's
    ``DataLoader``.

    **Epochs.** An epoch of the Trainer is an epoch of the Loader. If ``limit_train_batches`` ends it early, the next epoch is whole again.
    Validation, test and prediction begin at the first sample each time, and leave padding out. So a batch has as many rows as samples, and
    ``self.log`` weighs it by them. As with torch's ``DistributedSampler``, all ranks validate and test equally many samples. If the number of
    ranks does not divide the number of samples, some of the first samples come twice. Prediction does not repeat samples.

    Args:
        train, val, test, predict: A :class:`millrace.Dataset`, a URI, a list of URIs, or a :class:`millrace.Mix`. None: the stage has no
            data.
        evaluation: Options of the loaders for val, test and predict that differ from those of training. By default their samples are read
            in order and not augmented. If images have transforms that augment, other transforms are required here.
        options: Options of :class:`millrace.Loader` for all stages.

    Raises:
        InvalidArgumentError: An option has no valid value, or images augment and ``evaluation`` has no transforms for them.
    """

    def __init__(
        self,
        train: Data | None = None,
        val: Data | None = None,
        test: Data | None = None,
        predict: Data | None = None,
        *,
        evaluation: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self._data = {"train": train, "val": val, "test": test, "predict": predict}
        if evaluation is not None and not isinstance(evaluation, Mapping):
            _arguments.refuse("evaluation", "a dict of options of a Loader", evaluation)
        self._options = options
        usual = {name: value for name, value in options.items() if name != "drop_last"}
        self._evaluation = {**usual, **_OF_EVALUATION, **(evaluation or {})}
        if evaluation is not None and "drop_last" in evaluation:
            self._evaluation["last"] = last_batch(
                evaluation.get("last"), self._evaluation.pop("drop_last"), keeps_shapes=True
            )
        evaluates = any(data is not None for data in (val, test, predict))
        if evaluates and "image" in options and "image" not in (evaluation or {}):
            self._evaluation["image"] = _not_augmented("image", options["image"])
        if evaluates and isinstance(options.get("fields"), Mapping) and "fields" not in (evaluation or {}):
            self._evaluation["fields"] = {
                name: _not_augmented(f"fields[{name!r}]", field) for name, field in options["fields"].items()
            }
        self._train: Loader | None = None
        self._evaluations: list[Evaluation] = []
        self._to_load: dict[str, Any] | None = None  # by the next train_dataloader()
        self._last: dict[str, Any] = {}  # of a training that has ended

    def train_dataloader(self) -> Loader:
        """Returns the Loader of training, which stays the same while the Trainer's ``fit`` runs."""
        if self._train is None:
            # A Trainer needs the length of an epoch for its schedule.
            self._train = Loader(self._of("train"), **{"start": "indexed", **self._ranks(), **self._options})
            if self._to_load is not None:
                self._train.load_state_dict(self._to_load["train"])
                self._to_load = None
        return self._train

    def val_dataloader(self) -> Evaluation | list[Any]:
        return self._evaluate("val")

    def test_dataloader(self) -> Evaluation | list[Any]:
        return self._evaluate("test")

    def predict_dataloader(self) -> Evaluation | list[Any]:
        return self._evaluate("predict")

    def state_dict(self) -> dict[str, Any]:
        """Returns the position of training. The Trainer stores it in its checkpoints."""
        if self._train is not None:
            return {"train": self._train.state_dict()}
        return self._last if self._to_load is None else self._to_load

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Sets the position from which training continues. The Trainer calls this."""
        trainer = self.trainer
        if trainer is not None and trainer.state.fn not in (None, "fit"):
            return  # it tests the model of a checkpoint
        if not isinstance(state, Mapping) or "train" not in state:
            raise InvalidArgumentError("state must be the result of DataModule.state_dict(), a dict with 'train'")
        if self._train is not None:
            self._train.load_state_dict(state["train"])
        else:
            self._to_load = dict(state)

    def setup(self, stage: str) -> None:
        """Prepares a stage. The Trainer calls this before the stage begins."""
        self._close()  # what a run that has failed left

    def teardown(self, stage: str) -> None:
        """Closes the loaders of a stage. The Trainer calls this when the stage has ended."""
        self._close()

    def _close(self) -> None:
        if self._train is not None:
            self._last = self.state_dict()
            self._train.close()
            self._train = None
        for one in self._evaluations:
            one.loader.close()
        self._evaluations = []

    def _evaluate(self, name: str) -> Evaluation | list[Any]:
        if self._data[name] is None:
            return []
        options = {**self._ranks(), **self._evaluation}
        loader, share = Loader(self._of(name), **options), None
        if name != "predict" and options["last"] == "pad":
            share = share_with_repeats(loader)
            if share is not None:
                loader.close()
                loader = Loader(self._of(name), **{**options, "last": "wrap"})
        made = Evaluation(loader, share, repeats=name != "predict" and options["last"] == "short")
        self._evaluations.append(made)
        return made

    def _of(self, name: str) -> Data:
        data = self._data[name]
        if data is None:
            raise InvalidArgumentError(f"the DataModule has no data for this stage; give it {name}=URI")
        return data

    def _ranks(self) -> dict[str, Any]:
        """Returns rank and world of the devices that share the data, as the Trainer counts them.

        The result is empty if the program gives them itself, or if there is no Trainer.
        """
        if self.trainer is None or "rank" in self._options or "world" in self._options:
            return {}
        found = getattr(self.trainer.strategy, "distributed_sampler_kwargs", None) or {"rank": 0, "num_replicas": 1}
        return {"rank": int(found["rank"]), "world": int(found["num_replicas"])}


def _not_augmented(name: str, field: Any) -> Any:
    """Returns an image of training without its crop and flip. If its transforms augment, it raises InvalidArgumentError."""
    if not isinstance(field, Image):
        return field
    for transform in field.transforms or ():
        if not isinstance(transform, (Resize, CenterCrop, Normalize)):
            raise InvalidArgumentError(
                f"{type(transform).__name__} in the transforms of {name} would augment evaluation, too; say what val, test and predict get: "
                "evaluation={'image': millrace.Image(...)}, or with 'fields'"
            )
    return dataclasses.replace(field, crop=None, flip=None)


class Evaluation:
    """Represents the batches of a Loader. Each iteration begins with the first batch, also after an iteration that was
    left early.

    Rows of padding are left out. ``share`` is the number of rows that this rank gets of an epoch; None means all rows that are not padding.
    With ``repeats``, rows that repeat a sample are included, so that all ranks have equally many.
    """

    def __init__(self, loader: Loader, share: int | None = None, repeats: bool = False) -> None:
        self.loader = loader
        self._share = share
        self._repeats = repeats

    def __iter__(self) -> Iterator[Any]:
        self.loader.reset()
        return self._batches()

    def _batches(self) -> Iterator[Any]:
        if self._repeats:
            yield from self.loader
            return
        before = 0
        for batch, rows in rows_of(self.loader):
            if self._share is not None:
                rows = rows.until(self._share - before)
            before += rows.total
            if rows:
                yield rows.of(batch)

    def __len__(self) -> int:
        return len(self.loader)

    def __repr__(self) -> str:
        return f"<millrace.lightning.Evaluation of {self.loader!r}>"
