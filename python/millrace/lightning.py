"""For PyTorch Lightning: a data module whose data loaders are Millrace Loaders.

    import lightning, millrace.lightning

    data = millrace.lightning.DataModule(train="s3://bucket/train", val="s3://bucket/val", batch_size=64, size=224, augment=True, seed=1)
    lightning.Trainer(max_epochs=90).fit(model, datamodule=data)

It works with the packages ``lightning`` and ``pytorch_lightning``, whose classes differ: it takes the one that the program has imported, and
``lightning`` if it has imported both or neither.
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

    class _Base:  # what is used of LightningDataModule: neither package needs to be there to check this one
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
    """A ``LightningDataModule`` whose data loaders are Millrace's, over data of which each may be missing.

    **Resuming.** Checkpoints of the Trainer hold the position, and ``Trainer.fit(..., ckpt_path=...)`` goes on with the next sample, also in the
    middle of an epoch, and with another number of devices or another batch size if the checkpoint is one of the end of an epoch.

    **Ranks** are those of the Trainer's strategy. Lightning adds no ``DistributedSampler``, since it knows these of torch's ``DataLoader`` only.

    **Epochs.** An epoch of the Trainer is one of the Loader. If ``limit_train_batches`` ends it early, the next one is whole again.
    Validation, test and prediction begin at the first sample each time, and leave padding out: a batch has as many rows as samples, by which ``self.log``
    weighs it. As with torch's ``DistributedSampler``, all ranks validate and test equally many samples: if their number does not divide the samples,
    some of the first samples come twice. Prediction repeats none.

    Args:
        train, val, test, predict: A :class:`millrace.Dataset`, a URI, several, or a :class:`millrace.Mix` each.
        evaluation: Options of the loaders for val, test and predict where they differ from those of training. These are read in order and not
            augmented if nothing else is said here. Images with transforms that augment need others here.
        options: As of :class:`millrace.Loader`, for all of them.
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
        """The same for as long as the Trainer's ``fit`` runs."""
        if self._train is None:
            # A Trainer plans by the length of an epoch.
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
        """The position of training. The Trainer puts it into its checkpoints."""
        if self._train is not None:
            return {"train": self._train.state_dict()}
        return self._last if self._to_load is None else self._to_load

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Training goes on from there. The Trainer calls this."""
        trainer = self.trainer
        if trainer is not None and trainer.state.fn not in (None, "fit"):
            return  # it tests the model of a checkpoint
        if not isinstance(state, Mapping) or "train" not in state:
            raise InvalidArgumentError("state must be what DataModule.state_dict() returned, a dict with 'train'")
        if self._train is not None:
            self._train.load_state_dict(state["train"])
        else:
            self._to_load = dict(state)

    def setup(self, stage: str) -> None:
        """The Trainer calls this before a stage begins."""
        self._close()  # what a run that has failed left

    def teardown(self, stage: str) -> None:
        """The Trainer calls this when a stage has ended: its loaders are closed."""
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
        """Of the devices that share the data, as the Trainer counts them; nothing if the program says them itself, or there is no Trainer."""
        if self.trainer is None or "rank" in self._options or "world" in self._options:
            return {}
        found = getattr(self.trainer.strategy, "distributed_sampler_kwargs", None) or {"rank": 0, "num_replicas": 1}
        return {"rank": int(found["rank"]), "world": int(found["num_replicas"])}


def _not_augmented(name: str, field: Any) -> Any:
    """An image of training without its crop and flip. InvalidArgumentError: its transforms augment, and none are known in their place."""
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
    """The batches of a Loader from the first one on, as often as they are asked for: also after an iteration that was left early.

    They have no rows of padding. ``share``: the rows that this rank gets of an epoch, if not all that are no padding. ``repeats``: also those
    that repeat a sample, so that all ranks have equally many.
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
