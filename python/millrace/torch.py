"""For programs that keep torch's ``DataLoader``: its workers read samples, or whole objects, through Millrace.

A :class:`millrace.Loader` does more with less CPU: it needs no workers, decodes natively and knows the order ahead.
"""

from __future__ import annotations

import io
import os
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, Mapping, Sequence, Union

import torch.utils.data

from . import _arguments, _core
from .dataset import Dataset
from .errors import InvalidArgumentError, MismatchError, UnsupportedError
from .files import RawReader
from .plan import Plan
from .ranks import rank_and_world

if TYPE_CHECKING:
    from typing_extensions import Buffer

    _MapBase = torch.utils.data.Dataset[Any]
    _IterableBase = torch.utils.data.IterableDataset[Any]
    _SamplerBase = torch.utils.data.Sampler[int]
else:
    _MapBase = torch.utils.data.Dataset
    _IterableBase = torch.utils.data.IterableDataset
    _SamplerBase = torch.utils.data.Sampler

__all__ = ["IterableDataset", "MapDataset", "Object", "Sampler"]

_LARGE_BYTES = 8 << 20  # objects above this are read when somebody reads them
_HELD_BYTES = 256 << 20  # of the others, how many bytes are fetched together
_CHUNK = 64  # samples that an IterableDataset reads at a time

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


class MapDataset(_MapBase):
    """Samples, or whole objects, by number, for torch's ``DataLoader``.

    ``dataset[i]`` is a sample: a dict of its fields, typed as :meth:`millrace.Dataset.read` has them (images are bytes), and its key as
    ``"__key__"``. With ``objects=True`` it is an :class:`Object`. A ``DataLoader`` that batches asks for a batch at a time, whose
    requests are in flight together, within each worker. Pickling keeps the URI and opens it again; so does a fork. So workers may
    be forked, spawned or served by a fork server.

    Args:
        data: A :class:`millrace.Dataset` or its URI.
        fields: Which fields, by their names in the samples: None for all, a list, or a dict from the name that the sample gets to a field, or to a
            pair of a field and a function of its value: ``{"image": ("jpg", decode), "label": ("cls", int)}``.
        transform: A function of the sample (or object), whose result takes its place. With ``spawn`` it must be possible to pickle it.

    Raises:
        InvalidArgumentError: The data set has no field of that name.

        The errors of :class:`millrace.Dataset`.
    """

    def __init__(self, data: Dataset | str | os.PathLike[str], *, fields: Fields = None, transform: Transform = None) -> None:
        dataset = data if isinstance(data, Dataset) else Dataset(_arguments.uri("data", data, "a Dataset or a URI"))
        self._source: _Samples | _Objects = _Samples(dataset, fields)
        self._transform = transform

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
            raise TypeError("uris must be several URIs of objects, such as a list; of a prefix or folder use from_prefix")
        return cls._of(_Objects([(_arguments.uri("uris", uri), -1, "") for uri in uris]), transform)

    @classmethod
    def _of(cls, source: _Objects, transform: Transform) -> MapDataset:
        made = cls.__new__(cls)
        made._source = source
        made._transform = transform
        return made

    def __len__(self) -> int:
        """Samples or objects."""
        return len(self._source)

    def __getitem__(self, number: int) -> Any:
        return self.__getitems__([number])[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[Any]:
        """Several at once, which is what ``DataLoader`` asks for."""
        items = self._source.read(numbers)
        return items if self._transform is None else [self._transform(item) for item in items]

    def __repr__(self) -> str:
        return f"<millrace.torch.MapDataset {self._source.uri}: {len(self):,} {self._source.what}>"


class IterableDataset(_IterableBase):
    """The samples of a data set in the order of a :class:`millrace.Plan`, for torch's ``DataLoader`` with or without workers.

    Each sample comes once an epoch: rank r of W and its worker w of N take the positions that are r + W w modulo W N. Each reads ahead.
    An iteration is of the epoch that :meth:`set_epoch` has set, which reaches workers that persist, too. Iterators have ``state_dict()`` and
    ``load_state_dict()``, so that torchdata's ``StatefulDataLoader`` goes on with the next sample.

    Args:
        data, fields, transform: As of :class:`MapDataset`.
        shuffle: ``"window"``, ``"global"`` or ``"none"``.
        seed: Of the shuffle.
        rank, world: As of :class:`millrace.Loader`.
    """

    def __init__(
        self,
        data: Dataset | str | os.PathLike[str],
        *,
        fields: Fields = None,
        transform: Transform = None,
        shuffle: str | bool | None = "window",
        seed: int = 0,
        rank: int | None = None,
        world: int | None = None,
    ) -> None:
        self._dataset = data if isinstance(data, Dataset) else Dataset(_arguments.uri("data", data, "a Dataset or a URI"))
        self._source = _Samples(self._dataset, fields)
        self._transform = transform
        self._shuffle = _arguments.shuffle(shuffle)
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
        worker = torch.utils.data.get_worker_info()
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
        for items in _one_ahead(self._dataset._source.read, chunks):
            yield from items

    def __iter__(self) -> _Iteration:
        return self

    def __next__(self) -> Any:
        item = next(self._samples)
        self._taken += 1
        transform = self._dataset._transform
        return item if transform is None else transform(item)

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self._epoch, "taken": self._taken, "data": self._dataset._dataset.fingerprint, "parts": (self._first, self._step)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        now = self.state_dict()
        for what, meaning in (("data", "another data set"), ("parts", "another rank or number of ranks or workers")):
            if tuple(state[what]) != tuple(now[what]):
                raise MismatchError(f"{self._dataset._dataset.uri}: the state is one of {meaning}; go on with those, or begin a new epoch")
        self._begin(int(state["epoch"]), int(state["taken"]))


class Sampler(_SamplerBase):
    """The order of a :class:`millrace.Plan` for a map-style data set: ``DataLoader(MapDataset(data), sampler=Sampler(plan), batch_size=256)``.

    Yields the numbers within ``plan.data`` of this rank's samples: positions r, r + W, r + 2 W and so on. Ranks get equally many,
    so that up to W - 1 samples of an epoch are left out. An iteration is of the epoch of the plan, or the one that :meth:`set_epoch` has set.
    torchdata's ``StatefulDataLoader`` goes on with the next sample: it skips what it has seen, without reading it.

    Args:
        plan: The order; of a data set, not of a mix.
        rank, world: As of :class:`millrace.Loader`.
    """

    def __init__(self, plan: Plan, *, rank: int | None = None, world: int | None = None) -> None:
        if not isinstance(plan, Plan):
            _arguments.refuse("plan", "a millrace.Plan", plan)
        if not isinstance(plan.data, Dataset):
            raise UnsupportedError("a Sampler needs the plan of a Dataset; what a Mix draws is delivered by millrace.Loader(mix)")
        self._plan = plan
        self._data = plan.data
        self._rank, self._world = rank_and_world(rank, world)

    def set_epoch(self, epoch: int) -> None:
        """The epoch of the next iteration, from 0."""
        self._plan = self._plan.of_epoch(_arguments.integer("epoch", epoch, least=0))

    def __len__(self) -> int:
        """Samples of this rank."""
        return len(self._plan) // self._world

    def __iter__(self) -> Iterator[int]:
        rank_of = _ranks(self._data)
        positions = range(self._rank, self._world * len(self), self._world)
        for at in range(0, len(positions), _CHUNK):
            yield from rank_of(self._plan[positions[at : at + _CHUNK]])


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

    def read(self, numbers: Iterable[int]) -> list[Any]:
        samples = self._dataset.read_many(numbers)
        return samples if self._fields is None else [self._choose(sample, self._fields) for sample in samples]

    def _choose(self, sample: dict[str, Any], fields: dict[str, tuple[str, Transform]]) -> dict[str, Any]:
        chosen = {"__key__": sample["__key__"]}
        for name, (field, decode) in fields.items():
            if field not in sample:
                raise KeyError(f"{self.uri}: sample '{sample['__key__']}' has no field '{field}'; it has {', '.join(list(sample)[1:])}")
            chosen[name] = sample[field] if decode is None else decode(sample[field])
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

    def read(self, numbers: Sequence[int]) -> list[Any]:
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
    listed = dict(fields) if isinstance(fields, Mapping) else {name: name for name in _arguments._items("fields", fields, "names of fields")}
    chosen: dict[str, tuple[str, Transform]] = {}
    for name, wanted in listed.items():
        field, decode = (wanted, None) if isinstance(wanted, str) else wanted
        if not isinstance(field, str) or not (decode is None or callable(decode)):
            _arguments.refuse(f"fields[{name!r}]", "the name of a field, or a pair of it and a function", wanted)
        if field not in dataset.fields:
            raise InvalidArgumentError(f"the data set has no field '{field}'; its fields are: {', '.join(dataset.fields)}")
        if name == "__key__":
            raise InvalidArgumentError("'__key__' is the sample's key; choose another name")
        chosen[name] = field, decode
    return chosen


def _ranks(dataset: Dataset) -> Callable[[Any], Any]:
    """From numbers of the index to those within the data set, which may be a subset."""
    if len(dataset) == dataset._native.indexed:
        return lambda numbers: numbers.tolist()
    samples = dataset.samples
    return lambda numbers: samples.searchsorted(numbers).tolist()


def _one_ahead(read: Callable[[Any], list[Any]], chunks: Iterator[Any]) -> Iterator[list[Any]]:
    with ThreadPoolExecutor(1, "millrace-ahead") as pool:
        coming: Future[list[Any]] | None = None
        for chunk in chunks:
            following = pool.submit(read, chunk)
            if coming is not None:
                yield coming.result()
            coming = following
        if coming is not None:
            yield coming.result()
