"""Classes for programs that keep torch's ``DataLoader``: its workers read samples, or whole objects, through Millrace.

A :class:`millrace.Loader` does more with less CPU: it does not need workers, decodes natively, and knows the order ahead.

``StorageWriter`` and ``StorageReader`` are for programs that save with ``torch.distributed.checkpoint``.
"""

from __future__ import annotations

import io
import itertools
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from multiprocessing import parent_process
from typing import TYPE_CHECKING, Any, Callable, Literal, Union

import torch.utils.data

from . import _arguments, _core
from ._dataset import Dataset
from ._errors import InvalidArgumentError, MismatchError, UnsupportedError
from ._files import RawReader
from ._loader_benchmark import Diagnosis, benchmark
from ._mix import Mix
from ._option_groups import Shuffle
from ._plan import Plan
from ._public_names import publish
from ._ranks import rank_and_world
from ._read_ahead import Course, Place, ReadAhead, one_ahead
from ._sample_values import FIELD_OF_THAT_NAME, FORMER_KEY, KEY, RENAMED
from ._transform_process import end_with

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ._dcp import StorageReader, StorageWriter

    _MapBase = torch.utils.data.Dataset[Any]
    _IterableBase = torch.utils.data.IterableDataset[Any]
    _SamplerBase = torch.utils.data.Sampler[int]
else:
    _MapBase = torch.utils.data.Dataset
    _IterableBase = torch.utils.data.IterableDataset
    _SamplerBase = torch.utils.data.Sampler

__all__ = [
    "Diagnosis",
    "IterableDataset",
    "MapDataset",
    "Object",
    "Sampler",
    "StorageReader",
    "StorageWriter",
    "benchmark",
]

_LARGE_BYTES = 8 << 20  # larger objects are read when the program reads them
_HELD_BYTES = 256 << 20  # bytes of the other objects that are fetched together
_CHUNK = 64  # samples that an IterableDataset reads at a time

_ends_with_trainer = 0  # the process that ends when its trainer ends


def __getattr__(name: str) -> Any:
    if name not in ("StorageReader", "StorageWriter"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import _dcp  # here, since torch.distributed.checkpoint takes long to import

    publish(__name__, [name], vars(_dcp))
    return getattr(_dcp, name)


Fields = Union[Sequence[str], Mapping[str, Any], None]
Transform = Union[Callable[[Any], Any], None]


class Object(io.RawIOBase):
    """A whole object with the interface of S3 Connector for PyTorch: ``key``, ``read()``, seekable.

        dataset = millrace.torch.MapDataset.from_prefix("s3://bucket/raw", objects=True)
        print(dataset[0].key, len(dataset[0].read()))

    ``uri`` and ``key`` (below the bucket or folder) name it, and ``size`` is its size in bytes. Small objects of a batch are read ahead
    together. A large object is read when the program reads it, piece by piece. A pickle includes the contents.
    """

    def __init__(self, uri: str, key: str, data: bytes | None = None) -> None:
        super().__init__()
        self.uri = uri
        self.key = key
        self._data = data
        self._file: io.BytesIO | RawReader | None = None

    @property
    def size(self) -> int:
        if self._data is not None:
            return len(self._data)
        file = self._opened()
        assert isinstance(file, RawReader)
        return file.size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        """Returns bytes from the end of the last read on.

        Args:
            size: The number of bytes. -1 and None: all remaining bytes.
        """
        return self._opened().read(size)

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, into: Buffer) -> int:
        return self._opened().readinto(into)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._opened().seek(offset, whence)

    def tell(self) -> int:
        return self._opened().tell()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        super().close()

    def _opened(self) -> io.BytesIO | RawReader:
        if self.closed:
            raise ValueError("I/O operation on a closed file")
        if self._file is None:
            self._file = RawReader(_core.ReadFile(self.uri), self.uri) if self._data is None else io.BytesIO(self._data)
        return self._file

    def __reduce__(self) -> tuple[Callable[..., Object], tuple[Any, ...]]:
        data = self._data
        if data is None:
            file = self._opened()
            at = file.tell()
            file.seek(0)
            data = file.read()
            file.seek(at)
        return Object, (self.uri, self.key, data)

    def __repr__(self) -> str:
        return f"<millrace.torch.Object {self.uri}>"


def _worker() -> Any:
    """Returns torch's ``WorkerInfo`` in a worker of a DataLoader, which from now on ends when its trainer ends. Elsewhere it returns None.

    Torch's own watch checks that the trainer exists, but at its end the worker waits until its last batches have gone through a pipe. If the
    trainer was killed, no process empties the pipe, and batches of bytes that fill it would keep the worker for ever.
    """
    global _ends_with_trainer
    worker = torch.utils.data.get_worker_info()
    if worker is not None and _ends_with_trainer != os.getpid():
        _ends_with_trainer = os.getpid()
        trainer = parent_process()
        if trainer is not None and trainer.pid is not None:
            threading.Thread(target=end_with, args=(trainer.pid,), daemon=True).start()
    return worker


class MapDataset(_MapBase):
    """Samples, or whole objects, by number, for torch's ``DataLoader``.

        dataset = millrace.torch.MapDataset("s3://bucket/train", fields={"image": ("jpg", decode), "label": "cls"})
        loader = torch.utils.data.DataLoader(dataset, batch_size=64, num_workers=8)

    ``dataset[i]`` is a sample: a dict of its fields, and its key as ``"key"``. Values have the types of :meth:`millrace.Dataset.read`, so that
    images are bytes. With ``objects=True`` it is an :class:`Object`. A ``DataLoader`` that batches asks for one batch at a time, and the
    requests of a batch are in flight together, within each worker. A pickle keeps the URI and opens it again, and so does a fork. So
    workers may be started by fork, by spawn, or by a fork server.

    Args:
        data: A :class:`millrace.Dataset` or its URI.
        fields: The wanted fields, by their names in the samples, as a list. Or a dict from names in the result to fields, or to pairs of a
            field and a function of its value: ``{"image": ("jpg", decode), "label": "cls"}``. None: all fields.
        transform: A function of the sample (or object), whose result takes its place. With ``spawn``, pickle must be able to store it. None:
            samples stay as they are.

    Raises:
        InvalidArgumentError: The data set has no field of that name. Other errors are those of :class:`millrace.Dataset`.
    """

    def __init__(
        self,
        data: Dataset | str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        fields: Fields = None,
        transform: Transform = None,
    ) -> None:
        dataset = (
            data if isinstance(data, Dataset) else Dataset(_arguments.uri_of_data("data", data, "a Dataset or a URI"))
        )
        self._source: _Samples | _Objects = _Samples(dataset, fields)
        self._transform = transform
        self._ahead: ReadAhead | None = None

    @classmethod
    def from_prefix(
        cls, uri: str | os.PathLike[str], *, objects: bool = False, fields: Fields = None, transform: Transform = None
    ) -> MapDataset:
        """Returns the samples of the data set at ``uri``, or all objects below it.

        Args:
            uri: The URI of the data set, or the prefix of the objects.
            objects: True: whole objects, in bytewise order of their keys. False: samples.
            fields, transform: As for the class. Objects have no fields.
        """
        if not _arguments.flag("objects", objects):
            return cls(uri, fields=fields, transform=transform)
        if fields is not None:
            raise InvalidArgumentError("fields belong to samples; objects=True gives whole objects without fields")
        return cls._of(_Objects(_core.list_objects(_arguments.uri("uri", uri))), transform)

    @classmethod
    def from_objects(cls, uris: Iterable[str | os.PathLike[str]], *, transform: Transform = None) -> MapDataset:
        """Returns whole objects in the given order. No request is made before they are read.

        Args:
            uris: The URIs or paths of the objects.
            transform: As for the class.
        """
        if isinstance(uris, (str, bytes, os.PathLike)):
            raise TypeError(
                "uris must be several URIs of objects, such as a list; of a prefix or folder use from_prefix"
            )
        return cls._of(_Objects([(_arguments.uri("uris", uri), -1, "") for uri in uris]), transform)

    @classmethod
    def _of(cls, source: _Objects, transform: Transform) -> MapDataset:
        made = cls.__new__(cls)
        made._source = source
        made._transform = transform
        made._ahead = None
        return made

    def __len__(self) -> int:
        """Returns the number of samples or objects."""
        return len(self._source)

    def __getitem__(self, number: int) -> Any:
        return self.__getitems__([number])[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[Any]:
        """Returns several items at once. ``DataLoader`` calls this."""
        _worker()
        is_course = len(numbers) > 0 and isinstance(numbers[0], Place)
        fetched = self._reader().take(numbers) if is_course else self._source.fetch(numbers)
        items = map(self._source.finish, fetched)
        return list(items) if self._transform is None else [self._transform(item) for item in items]

    def _reader(self) -> ReadAhead:
        """Returns the reader of this process."""
        ahead = self._ahead
        if ahead is None or ahead.process != os.getpid():
            worker = _worker()
            self._ahead = ahead = self._source.read_ahead(1 if worker is None else worker.num_workers)
        return ahead

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_ahead": None}

    def __repr__(self) -> str:
        return f"<millrace.torch.MapDataset {self._source.uri}: {len(self):,} {self._source.what}>"


class IterableDataset(_IterableBase):
    """The samples of a data set in the order of a :class:`millrace.Plan`, for torch's ``DataLoader`` with or without workers.

        dataset = millrace.torch.IterableDataset("s3://bucket/train", seed=1)
        for epoch in range(10):
            dataset.set_epoch(epoch)
            for batch in torch.utils.data.DataLoader(dataset, batch_size=64, num_workers=8):
                train_step(batch)

    Each sample comes once an epoch: rank r of W and its worker w of N take the positions that are r + W w modulo W N. Each reads ahead.
    An iteration uses the epoch that :meth:`set_epoch` has set, also in persistent workers. Iterators have ``state_dict()`` and
    ``load_state_dict()``, so that torchdata's ``StatefulDataLoader`` continues with the next sample.

    Args:
        data, fields, transform: As for :class:`MapDataset`.
        shuffle: As for :class:`millrace.Plan`.
        seed: The seed of the shuffle.
        rank, world: As for :class:`millrace.Loader`.

    Raises:
        InvalidArgumentError: An option has no valid value. Other errors are those of :class:`millrace.Dataset`.
    """

    def __init__(
        self,
        data: Dataset | str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        fields: Fields = None,
        transform: Transform = None,
        shuffle: Literal["window", "global", "none"] | bool | Shuffle | None = "window",
        seed: int = 0,
        rank: int | None = None,
        world: int | None = None,
    ) -> None:
        self._dataset = (
            data if isinstance(data, Dataset) else Dataset(_arguments.uri_of_data("data", data, "a Dataset or a URI"))
        )
        self._source = _Samples(self._dataset, fields)
        self._transform = transform
        self._shuffle: Any = shuffle if isinstance(shuffle, Shuffle) else _arguments.shuffle(shuffle)
        self._seed = _arguments.integer("seed", seed)
        self._rank, self._world = rank_and_world(rank, world)
        # This is shared with forked and spawned workers, also persistent ones.
        self._epoch = _shared(torch.zeros(1, dtype=torch.int64))

    @classmethod
    def from_prefix(cls, uri: str | os.PathLike[str], **options: Any) -> IterableDataset:
        """Returns the samples of a data set.

        Args:
            uri: The URI of the data set.
            options: The options of the class.
        """
        return cls(uri, **options)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next iteration. Without it, each iteration is epoch 0 again.

        Args:
            epoch: The number of the epoch, from 0.
        """
        self._epoch[0] = _arguments.integer("epoch", epoch, least=0)

    def __iter__(self) -> Iterator[Any]:
        return _Iteration(self)

    def _plan(self, epoch: int) -> Plan:
        return Plan(self._dataset, shuffle=self._shuffle, seed=self._seed, epoch=epoch)

    def __repr__(self) -> str:
        return f"<millrace.torch.IterableDataset {self._dataset.uri}: {len(self._dataset):,} samples>"


class _Iteration:
    """Represents the part of an epoch that one worker of one rank takes. Its state is the number of samples that it has
    delivered."""

    def __init__(self, dataset: IterableDataset) -> None:
        self._dataset = dataset
        worker = _worker()
        number, workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
        self._first = dataset._rank + dataset._world * number
        self._step = dataset._world * workers
        self._begin(int(dataset._epoch[0]), 0)

    def _begin(self, epoch: int, taken: int) -> None:
        self._epoch, self._taken = epoch, taken
        self._samples = self._read(epoch, taken)

    def _read(self, epoch: int, taken: int) -> Iterator[Any]:
        plan = self._dataset._plan(epoch)
        positions = range(self._first + self._step * taken, len(plan), self._step)
        rank_of = _ranks(self._dataset._dataset)
        chunks = (rank_of(plan[positions[at : at + _CHUNK]]) for at in range(0, len(positions), _CHUNK))
        for samples in one_ahead(self._dataset._source.fetch, chunks):
            yield from map(self._dataset._source.finish, samples)

    def __iter__(self) -> _Iteration:
        return self

    def __next__(self) -> Any:
        try:
            item = next(self._samples)
        except StopIteration:
            raise
        except BaseException:
            self._begin(self._epoch, self._taken)  # a generator that has raised would report an end
            raise
        self._taken += 1
        transform = self._dataset._transform
        return item if transform is None else transform(item)

    def state_dict(self) -> dict[str, Any]:
        return {
            "epoch": self._epoch,
            "taken": self._taken,
            "data": self._dataset._dataset.fingerprint,
            "parts": (self._first, self._step),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        now = self.state_dict()
        for what, meaning in (("data", "another data set"), ("parts", "another rank or number of ranks or workers")):
            if tuple(state[what]) != tuple(now[what]):
                raise MismatchError(
                    f"{self._dataset._dataset.uri}: the state is one of {meaning}; continue with those, or begin a new epoch"
                )
        self._begin(int(state["epoch"]), int(state["taken"]))


class Sampler(_SamplerBase):
    """The order of a :class:`millrace.Plan` for a map-style data set.

        data = millrace.Dataset("s3://bucket/train")
        sampler = millrace.torch.Sampler(data, seed=1)
        loader = torch.utils.data.DataLoader(millrace.torch.MapDataset(data), sampler=sampler, batch_size=256)

    It yields the numbers, within the plan's data, of this rank's samples: positions r, r + W, r + 2 W and so on. Ranks get equally many. An
    iteration uses the epoch of the plan, or the epoch that :meth:`set_epoch` has set. Each number carries its order and its position in that
    order. So a :class:`MapDataset` that gets the numbers knows the next samples, and reads them ahead, in this process or in a worker.
    The ``StatefulDataLoader`` of torchdata continues with the next sample: it skips samples that it has seen, without reading them.

    Args:
        plan: A plan of a data set or of a number of items, but not of a mix. Or a data set or its URI, whose order the next options give.
        shuffle, seed, epoch: As for :class:`millrace.Plan`.
        rank, world: As for :class:`millrace.Loader`.
        last: The rule if the number of ranks does not divide the number of samples. ``"drop"`` leaves out up to W - 1 samples. ``"wrap"``
            repeats samples from the beginning instead.

    Raises:
        InvalidArgumentError: An option has no valid value.
    """

    def __init__(
        self,
        plan: Plan | Dataset | str | os.PathLike[str],
        *,
        shuffle: Literal["window", "global", "none"] | bool | Shuffle | None = "window",
        seed: int = 0,
        epoch: int = 0,
        rank: int | None = None,
        world: int | None = None,
        last: Literal["drop", "wrap"] = "drop",
    ) -> None:
        if isinstance(plan, Plan):
            if (shuffle, seed, epoch) != ("window", 0, 0):
                raise InvalidArgumentError(
                    "the plan says shuffle, seed and epoch: give these to the Plan, or its data to the Sampler"
                )
        elif isinstance(plan, (Dataset, str, os.PathLike)):
            data = plan if isinstance(plan, Dataset) else Dataset(_arguments.uri("plan", plan))
            plan = Plan(data, shuffle=shuffle, seed=seed, epoch=epoch)
        else:
            _arguments.refuse("plan", "a millrace.Plan, a Dataset or a URI", plan)
        if isinstance(plan.data, Mix):
            raise UnsupportedError(
                "a Sampler needs the plan of a Dataset; millrace.Loader(mix) delivers the draws of a Mix"
            )
        self._plan = plan
        self._data: Dataset | int = plan.data
        self._rank, self._world = rank_and_world(rank, world)
        self._last = _arguments.choice("last", last, ("drop", "wrap"))

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next iteration.

        Args:
            epoch: The number of the epoch, from 0.
        """
        self._plan = self._plan.of_epoch(_arguments.integer("epoch", epoch, least=0))

    def __len__(self) -> int:
        """Returns the number of samples of this rank."""
        samples = len(self._plan)
        return samples // self._world if self._last == "drop" else -(-samples // self._world)

    def __iter__(self) -> Iterator[int]:
        plan, rank_of = self._plan, _ranks(self._data)
        name = self._data if isinstance(self._data, int) else self._data.fingerprint
        course = Course(name, plan.options, plan.epoch, self._rank, self._world, len(self))
        for at in range(0, course.length, _CHUNK):
            places = range(at, min(at + _CHUNK, course.length))
            yield from map(Place, course.numbers(plan, rank_of, places), itertools.repeat(course), places)


class _Samples:
    what = "samples"

    def __init__(self, dataset: Dataset, fields: Fields) -> None:
        self._dataset = dataset
        self._fields = None if fields is None else _chosen(fields, dataset)

    @property
    def uri(self) -> str:
        return self._dataset.uri

    def __len__(self) -> int:
        return len(self._dataset)

    def read_ahead(self, workers: int) -> ReadAhead:
        size = self._dataset.total_bytes // max(1, len(self._dataset))
        return ReadAhead(self.fetch, self._dataset, _ranks(self._dataset), size, workers)

    def fetch(self, numbers: Iterable[int]) -> list[Any]:
        return self._dataset.read_many(numbers)

    def finish(self, sample: dict[str, Any]) -> dict[str, Any]:
        """Applies functions of the program. Therefore it runs in the program's own thread."""
        return sample if self._fields is None else self._choose(sample, self._fields)

    def _choose(self, sample: dict[str, Any], fields: dict[str, tuple[str, Transform]]) -> dict[str, Any]:
        chosen = {KEY: sample[KEY]}
        for name, (field, decode) in fields.items():
            stored = FIELD_OF_THAT_NAME if field == KEY else field
            if stored not in sample:
                raise KeyError(
                    f"{self.uri}: sample '{sample[KEY]}' has no field '{field}'; it has {', '.join(list(sample)[1:])}"
                )
            chosen[name] = sample[stored] if decode is None else decode(sample[stored])
        return chosen


class _Objects:
    what = "objects"

    def __init__(self, objects: list[tuple[str, int, str]]) -> None:
        self._objects = objects

    @property
    def uri(self) -> str:
        return self._objects[0][0] + (", ..." if len(self._objects) > 1 else "") if self._objects else "without objects"

    def __len__(self) -> int:
        return len(self._objects)

    def read_ahead(self, workers: int) -> ReadAhead:
        sizes = [size for _, size, _ in self._objects if 0 <= size <= _LARGE_BYTES]
        return ReadAhead(self.fetch, len(self), _ranks(len(self)), sum(sizes) // max(1, len(sizes)), workers)

    def finish(self, item: Object) -> Object:
        return item

    def fetch(self, numbers: Iterable[int]) -> list[Any]:
        chosen = [self._objects[_arguments.integer("number", number)] for number in numbers]
        # A request for an unknown size costs as much as reading a small object.
        small = [n for n, (_, size, _) in enumerate(chosen) if 0 <= size <= _LARGE_BYTES]
        data: list[bytes | None] = [None] * len(chosen)
        while small:
            together: list[int] = []
            taken = 0
            while small and (not together or taken + chosen[small[0]][1] <= _HELD_BYTES):
                taken += chosen[small[0]][1]
                together.append(small.pop(0))
            for n, content in zip(together, _core.read_objects([chosen[n] for n in together])):
                data[n] = content
        return [Object(uri, _key_of(uri), content) for (uri, _, _), content in zip(chosen, data)]


def _shared(tensor: torch.Tensor) -> torch.Tensor:
    tensor.share_memory_()  # type: ignore[no-untyped-call]
    return tensor


def _key_of(uri: str) -> str:
    """Returns a URI without the scheme and the bucket, or a path as it is."""
    scheme, found, rest = uri.partition("://")
    return rest.partition("/")[2] if found and scheme in ("s3", "mem") else rest or uri


def _chosen(fields: Any, dataset: Dataset) -> dict[str, tuple[str, Transform]]:
    listed = (
        dict(fields)
        if isinstance(fields, Mapping)
        else {name: name for name in _arguments._items("fields", fields, "names of fields")}
    )
    chosen: dict[str, tuple[str, Transform]] = {}
    for name, wanted in listed.items():
        field, decode = (wanted, None) if isinstance(wanted, str) else wanted
        if not isinstance(field, str) or not (decode is None or callable(decode)):
            _arguments.refuse(f"fields[{name!r}]", "the name of a field, or a pair of it and a function", wanted)
        if field not in dataset.fields:
            raise InvalidArgumentError(
                f"the data set has no field '{field}'; its fields are: {', '.join(dataset.fields)}"
            )
        if name in (KEY, FORMER_KEY):
            raise InvalidArgumentError(f"fields must not name {name!r}: {RENAMED}; choose another name")
        chosen[name] = field, decode
    return chosen


def _ranks(dataset: Dataset | int) -> Callable[[Any], Any]:
    """Returns the function from numbers of the index to numbers within the data set, which may be a subset."""
    if isinstance(dataset, int) or len(dataset) == dataset._native.indexed:
        return lambda numbers: numbers.tolist()
    samples = dataset.samples
    return lambda numbers: samples.searchsorted(numbers).tolist()


publish(__name__, __all__, globals())
