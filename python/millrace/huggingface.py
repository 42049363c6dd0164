"""For Hugging Face: a ``transformers.Trainer`` that is fed by a :class:`millrace.Loader`, and data sets as ``datasets.IterableDataset``.

    import millrace.huggingface

    # The fields have the names that the model takes.
    train = millrace.Loader("s3://bucket/train", batch_size=64, last="drop", seed=1,
                            fields={"pixel_values": millrace.Image("jpg", 224, crop="random"), "labels": millrace.Label("cls")})
    # The Trainer gets batches from the Loader.
    trainer = millrace.huggingface.Trainer(model=model, args=TrainingArguments("out"), train_dataset=train)
    trainer.train(resume_from_checkpoint=True)

The Trainer needs the packages ``transformers`` and ``accelerate``, and :func:`to_datasets` needs the package ``datasets``. Each is imported when
it is first needed.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from . import _arguments
from ._dataset import Dataset
from ._errors import InvalidArgumentError
from ._plan import Plan
from ._public_names import publish
from ._read_ahead import one_ahead
from ._sample_values import FORMER_KEY, RENAMED

if TYPE_CHECKING:
    from ._huggingface_trainer import PositionCallback, Trainer, TrainerMixin

__all__ = ["PositionCallback", "Trainer", "TrainerMixin", "to_datasets"]

_CHUNK = 64  # samples that are read together
_MOST_SHARDS = 1024


def __getattr__(name: str) -> Any:
    if name in ("PositionCallback", "Trainer", "TrainerMixin"):
        trainer = importlib.import_module("._huggingface_trainer", __package__)
        publish(__name__, [name], vars(trainer))
        return getattr(trainer, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def to_datasets(
    data: Dataset | str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    features: Any = None,
    shuffle: Literal["window", "global", "none"] | bool | None = "none",
    seed: int = 0,
    epoch: int = 0,
    num_shards: int | None = None,
) -> Any:
    """Returns the samples of a data set as a ``datasets.IterableDataset``, which reads them through Millrace.

        examples = millrace.huggingface.to_datasets("s3://bucket/train", shuffle="window", seed=1)
        for example in examples.take(3):
            print(example["key"])

    An example is a dict of the sample's fields and its key, ``"key"``. Values have the types of :meth:`millrace.Dataset.read`, so that images
    are bytes. All operations of such a data set work: ``map``, ``shuffle``, ``with_format``, ``split_dataset_by_node``, workers of a
    ``DataLoader``, ``state_dict()`` and ``load_state_dict()``. After a resume, up to one shard of samples is read again.

    Args:
        data: A :class:`millrace.Dataset`, a URI, or a list of URIs.
        features: ``datasets.Features`` of the examples, which also decode images, such as
            ``Features({"jpg": Image(), "cls": Value("int64"), "key": Value("string")})``. None: they follow from the values.
        shuffle, seed, epoch: The order, as for :class:`millrace.Plan`. To shuffle with the methods of ``datasets``, keep ``"none"``.
        num_shards: The number of pieces of that order, which nodes and workers share. If it is a multiple of their number, each gets
            equally many. None: pieces of about 64 samples, but at most 1,024 pieces.

    Raises:
        InvalidArgumentError: An option has no valid value. Other errors are those of :class:`millrace.Dataset`.
    """
    datasets: Any = importlib.import_module("datasets")
    dataset = data if isinstance(data, Dataset) else Dataset(_arguments.uri_of_data("data", data, "a Dataset or a URI"))
    count = len(dataset)
    if num_shards is None:
        num_shards = min(_MOST_SHARDS, -(-count // _CHUNK))
    if features is not None and FORMER_KEY in features:
        raise InvalidArgumentError(f"features name {FORMER_KEY!r}; {RENAMED}")
    num_shards = _arguments.integer("num_shards", num_shards, least=1, most=max(1, count))
    ends = [count * number // num_shards for number in range(num_shards + 1)]
    examples = _Examples(
        dataset,
        _arguments.shuffle(shuffle),
        _arguments.integer("seed", seed),
        _arguments.integer("epoch", epoch, least=0),
    )
    return datasets.IterableDataset.from_generator(
        examples, features=features, gen_kwargs={"pieces": list(zip(ends, ends[1:]))}
    )


class _Examples:
    """Represents the samples at some positions of an order. It is pickled for workers, which open the data set
    again."""

    def __init__(self, dataset: Dataset, shuffle: str, seed: int, epoch: int) -> None:
        self._dataset = dataset
        self._order: dict[str, Any] = {"shuffle": shuffle, "seed": seed, "epoch": epoch}

    def __call__(self, pieces: list[tuple[int, int]]) -> Iterator[dict[str, Any]]:
        plan, samples = Plan(self._dataset, **self._order), self._dataset.samples
        for begin, end in pieces:
            positions = (range(at, min(at + _CHUNK, end)) for at in range(begin, end, _CHUNK))
            # Samples of a subset have the numbers of the index in its plan, and numbers within it when they are read.
            chunks = (samples.searchsorted(plan[chunk]) for chunk in positions)
            for read in one_ahead(self._dataset.read_many, chunks):
                yield from read
