"""For programs that keep torch's ``DataLoader``: its workers read samples, or whole objects, through Millrace.

A :class:`millrace.Loader` does more with less CPU: it needs no workers, decodes natively and knows the order ahead.

``StorageWriter`` and ``StorageReader`` are for programs that save by ``torch.distributed.checkpoint``.
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

_LARGE_BYTES = 8 << 20  # objects above this are read when somebody reads them
_HELD_BYTES = 256 << 20  # of the others, how many bytes are fetched together
_CHUNK = 64  # samples that an IterableDataset reads at a time

_ends_with_trainer = 0  # the process that does


def __getattr__(name: str) -> Any:
    if name not in ("StorageReader", "StorageWriter"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import _dcp  # here, since torch.distributed.checkpoint takes long to import

    publish(__name__, [name], vars(_dcp))
    return getattr(_dcp, name)


Fields = Union[Sequence[str], Mapping[str, Any], None]
Transform = Union[Callable[[Any], Any], None]


class Object(io.RawIOBase):
    """A whole object, in the shape that S3 Connector for PyTorch gives it: ``key``, ``read()``, seekable.

    ``uri`` and ``key`` (below the bucket or folder) name it; ``size`` is its bytes. Small objects of a batch are read together, ahead;
    a large one is read when it is asked for, piece by piece. Pickling takes the contents along.
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
        """``size`` bytes from where the last read ended, or all that are left."""
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
    """Torch's ``WorkerInfo`` in a worker of a DataLoader, which from now on ends when its trainer has; else None.

    Torch's own watch asks whether the trainer is there, and then waits at the worker's end for its last batches to go through a pipe. If the
    trainer was killed, nobody empties that, and batches of bytes that fill it keep the worker for good.
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

    ``dataset[i]`` is a sample: a dict of its fields, typed as :meth:`millrace.Dataset.read` has them (images are bytes), and its key as
    ``"key"``. With ``objects=True`` it is an :class:`Object`. A ``DataLoader`` that batches asks for a batch at a time, whose
    requests are in flight together, within each worker. Pickling keeps the URI and opens it again; so does a fork. So workers may
    be forked, spawned or served by a fork server.

    Args:
        data: A :class:`millrace.Dataset` or its URI.
        fields: Which fields, by their names in the samples: None for all, a list, or a dict from the name that the sample gets to a field, or to a
            pair of a field and a function of its value: ``{"image": ("jpg", decode), "label": "cls"}``.
        transform: A function of the sample (or object), whose result takes its place. With ``spawn`` it must be possible to pickle it.

    Raises:
        InvalidArgumentError: The data set has no field of that name.

        The errors of :class:`millrace.Dataset`.
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
        """The samples of the data set at ``uri``; with ``objects=True`` all objects below it, in bytewise order of their keys."""
        if not _arguments.flag("objects", objects):
            return cls(uri, fields=fields, transform=transform)
        if fields is not None:
            raise InvalidArgumentError("fields are of samples; objects=True gives whole objects, which have none")
        return cls._of(_Objects(_core.list_objects(_arguments.uri("uri", uri))), transform)

    @classmethod
    def from_objects(cls, uris: Iterable[str | os.PathLike[str]], *, transform: Transform = None) -> MapDataset:
        """Whole objects, each given by its URI or path, in this order. Nothing is asked of the store until they are read."""
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
        """Samples or objects."""
        return len(self._source)

    def __getitem__(self, number: int) -> Any:
        return self.__getitems__([number])[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[Any]:
        """Several at once, which is what ``DataLoader`` asks for."""
        _worker()
        is_course = len(numbers) > 0 and isinstance(numbers[0], Place)
        fetched = self._reader().take(numbers) if is_course else self._source.fetch(numbers)
        items = map(self._source.finish, fetched)
        return list(items) if self._transform is None else [self._transform(item) for item in items]

    def _reader(self) -> ReadAhead:
        """This process's."""
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

    Each sample comes once an epoch: rank r of W and its worker w of N take the positions that are r + W w modulo W N. Each reads ahead.
    An iteration is of the epoch that :meth:`set_epoch` has set, which reaches workers that persist, too. Iterators have ``state_dict()`` and
    ``load_state_dict()``, so that torchdata's ``StatefulDataLoader`` goes on with the next sample.

    Args:
        data, fields, transform: As of :class:`MapDataset`.
        shuffle: As of :class:`millrace.Plan`.
        seed: Of the shuffle.
        rank, world: As of :class:`millrace.Loader`.
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
        # Shared with forked and spawned workers, also persistent ones.
        self._epoch = _shared(torch.zeros(1, dtype=torch.int64))

    @classmethod
    def from_prefix(cls, uri: str | os.PathLike[str], **options: Any) -> IterableDataset:
        """The samples of the data set at ``uri``."""
        return cls(uri, **options)

    def set_epoch(self, epoch: int) -> None:
        """The epoch of the next iteration, from 0. Without it each iteration is epoch 0 again."""
        self._epoch[0] = _arguments.integer("epoch", epoch, least=0)

    def __iter__(self) -> Iterator[Any]:
        return _Iteration(self)

    def _plan(self, epoch: int) -> Plan:
        return Plan(self._dataset, shuffle=self._shuffle, seed=self._seed, epoch=epoch)

    def __repr__(self) -> str:
        return f"<millrace.torch.IterableDataset {self._dataset.uri}: {len(self._dataset):,} samples>"


class _Iteration:
    """What one worker of one rank takes of an epoch; its state is how much of that it has delivered."""

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
            self._begin(self._epoch, self._taken)  # a generator that has raised would tell of an end
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
                    f"{self._dataset._dataset.uri}: the state is one of {meaning}; go on with those, or begin a new epoch"
                )
        self._begin(int(state["epoch"]), int(state["taken"]))


class Sampler(_SamplerBase):
    """The order of a :class:`millrace.Plan` for a map-style data set: ``DataLoader(MapDataset(data), sampler=Sampler(plan), batch_size=256)``.

    Yields the numbers within the plan's data of this rank's samples: positions r, r + W, r + 2 W and so on. Ranks get equally many. An
    iteration is of the epoch of the plan, or the one that :meth:`set_epoch` has set. The numbers know which order they are of and where in it they
    stand: a :class:`MapDataset` that gets them, in this process or in a worker, knows what it will be asked for next, and reads it ahead.
    torchdata's ``StatefulDataLoader`` goes on with the next sample: it skips what it has seen, without reading it.

    Args:
        plan: The order, of a data set or a number of items, not of a mix; or the data set or its URI, in the order that these say:
        shuffle, seed, epoch: As of :class:`millrace.Plan`.
        rank, world: As of :class:`millrace.Loader`.
        last: If ranks do not divide the samples: ``"drop"`` leaves out up to W - 1 of them, ``"wrap"`` takes as many again from the beginning.
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
                "a Sampler needs the plan of a Dataset; what a Mix draws is delivered by millrace.Loader(mix)"
            )
        self._plan = plan
        self._data: Dataset | int = plan.data
        self._rank, self._world = rank_and_world(rank, world)
        self._last = _arguments.choice("last", last, ("drop", "wrap"))

    def set_epoch(self, epoch: int) -> None:
        """The epoch of the next iteration, from 0."""
        self._plan = self._plan.of_epoch(_arguments.integer("epoch", epoch, least=0))

    def __len__(self) -> int:
        """Samples of this rank."""
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
        """With functions of the program, which therefore run in its own thread."""
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
        # A size that is not known yet costs as much to ask for as a small object costs to read.
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
    """Without the scheme and the bucket; a path as it is."""
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
    """From numbers of the index to those within the data set, which may be a subset."""
    if isinstance(dataset, int) or len(dataset) == dataset._native.indexed:
        return lambda numbers: numbers.tolist()
    samples = dataset.samples
    return lambda numbers: samples.searchsorted(numbers).tolist()


publish(__name__, __all__, globals())
