"""A place of samples and its index."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Callable, Literal, NoReturn, SupportsIndex, overload

import numpy as np
import numpy.typing as npt

from . import _arguments, _core, _moved_options, _subsets
from ._errors import InvalidArgumentError, MismatchError, UnsupportedError
from ._labels import LabelsLike, Native, to_labels
from ._opening import Opening, class_order, native_of
from ._progress_line import ProgressLine
from ._sample_values import sample_of

if TYPE_CHECKING:
    from ._mix import Mix


_MOST_BYTES = 2**64 - 1
_READ_TOGETHER = 64  # samples


class Dataset:
    """The samples under a URI: shards (WebDataset tar, TFRecord, RecordIO, MDS), token files or raw objects, one a sample; or a subset.

    :meth:`split` and :meth:`where` make subsets, which are data sets of their own: in loaders, plans and further subsets. Samples keep
    the numbers that the index gives them. :meth:`balanced` and :meth:`weighted` draw some samples more often than others.

    Opening reads the index; if there is no index yet, it is built, and stored beside the data or in the cache folder
    (``$MILLRACE_CACHE``, ``~/.cache/millrace``). For that, raw objects are only listed, and shards are read once. ``millrace index URI``
    does the same ahead of time. The ranks of a job build the index of shards together (docs/launchers.md).
    Immutable and thread-safe. Pickling keeps the URI: the copy opens it again, so a data set may be sent to spawned workers. In a fork
    a data set of the parent opens itself again when it is first used. Data sets of several stores can be used together, in a :class:`Mix` for
    instance: ``endpoint``, ``profile`` and ``region`` are of one of them. Its file of labels is read with them, too. Workers of a data service
    reach stores by settings of their own.

    Args:
        uri: ``s3://bucket/prefix``, ``file:///folder`` or a plain path: of a folder, of a single shard or other object, or of a manifest;
            with ``*``, ``**``, ``?``, ``[a-c]``, ``{a,b}`` or ``{000..123}``, the objects and folders that match; a list of these.
        progress: Whether to show progress on stderr while an index is built. ``None``: when stderr is a terminal.
        path_column, label_column: The columns of a manifest that name the objects and their classes, if they are not called as usual
            (docs/formats/manifests.md). An index that was built with others is built again. Several columns of paths make samples of several
            objects: ``path_column={"image": "photo", "mask": "annotation"}``.
        csv_quotes: True: quotes in a manifest in CSV or TSV stand around cells. False: they are text, as with ``csv.QUOTE_NONE``. None: as
            its index was built; True if there is none. An index that was built otherwise is built again.
        labels: A file with the labels of the samples, as :class:`Labels` says; or its URI. See :meth:`with_labels`.
        endpoint: The URL of another store than AWS for ``s3://``, in place of ``AWS_ENDPOINT_URL``. None: as the environment and profile files say.
        profile: The profile whose settings and credentials count, in place of ``AWS_PROFILE`` and of keys in the environment.
        region: In place of ``AWS_REGION``.
        classes: The order that numbers the classes: names, or another data set, whose :attr:`classes` are meant. So a validation folder
            that lacks a class of the training folder has its numbers. None: the order of the names.
        join: Folders beside each other whose files of one name are one sample: fields, and patterns of the paths below ``uri``, in which ``{}`` stands
            for the key: ``join={"image": "JPEGImages/{}.jpg", "mask": "SegmentationClass/{}.png"}``. Samples are those that have all fields; the
            other files are passed over (:attr:`skipped`).
        index: ``"beside"``: an index that has to be built is kept beside the data, or opening fails. ``"cache"``: it is kept in the cache folder.
            ``"require"``: none is built. None: it is kept beside the data, or in the cache folder if that cannot be.

    Raises:
        NotFoundError: No such bucket, folder or file, or no samples in it; or no index, which ``index="require"`` asks for.
        AccessDeniedError: The store refuses these credentials.
        DamagedDataError: A shard is truncated or corrupt; the message names object and offset.
        MismatchError: The index no longer matches its objects; the message says what to do.
    """

    def __new__(cls, *args: Any, **options: Any) -> Dataset:
        if cls.__init__ is Dataset.__init__:  # a class of the program may have options of these names
            _moved_options.check(options, "millrace.Dataset", _moved_options.OF_DATASETS)
        return super().__new__(cls)

    def __init__(
        self,
        uri: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        progress: bool | None = None,
        path_column: str | Mapping[str, str] | None = None,
        label_column: str | None = None,
        csv_quotes: bool | None = None,
        labels: LabelsLike | None = None,
        endpoint: str | None = None,
        profile: str | None = None,
        region: str | None = None,
        classes: Sequence[str] | Dataset | None = None,
        join: Mapping[str, str] | None = None,
        index: Literal["beside", "cache", "require"] | None = None,
    ) -> None:
        if join is None:
            uri = _arguments.uri_of_data("uri", uri, "a URI, a path, or a list of them")
        else:
            uri = _arguments.joined_folders(uri, join)
        self._progress = progress
        show = sys.stderr.isatty() if progress is None else progress
        line = ProgressLine(uri) if show else None
        try:
            clients = {"endpoint": endpoint, "profile": profile, "region": region}
            for name, value in clients.items():
                if _arguments.text(name, value) == "":
                    raise InvalidArgumentError(f"{name} is empty; leave it out for that of the environment")
            use = "build" if index is None else _arguments.choice("index", index, ("beside", "cache", "require"))
            self._opening = Opening(
                _arguments.path_columns(path_column),
                label_column or "",
                csv_quotes,
                endpoint or "",
                profile or "",
                region or "",
                class_order(classes),
                use,
            )
            given = None if labels is None else to_labels(labels)
            native = native_of(uri, self._opening, given._native() if given else None, line.update if line else None)
            self._adopt(native.in_labels_file(given.missing == "drop") if given else native)
        finally:
            if line:
                line.clear()

    def _adopt(self, native: _core.Dataset) -> None:
        self._handle, self._process = native, os.getpid()

    @property
    def _native(self) -> _core.Dataset:
        """In a fork, whose parent's threads do not exist there, the same samples, opened again."""
        if self._process != os.getpid():
            opened, arguments = self.__reduce__()
            self._adopt(opened(*arguments)._handle)
        return self._handle

    def __len__(self) -> int:
        """Samples."""
        return len(self._native)

    @overload
    def __getitem__(self, index: SupportsIndex) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> Dataset: ...
    def __getitem__(self, index: SupportsIndex | slice) -> dict[str, Any] | Dataset:
        """``dataset[7]``: that sample, as :meth:`read` gives it. ``dataset[:1000]``: those samples as a data set.

        Of a subset, numbers count within it. A slice keeps the order of the index, so that one with a negative step is refused.
        """
        if not isinstance(index, slice):
            return self.read(_arguments.integer("index", index, wanted="a number or a slice"))
        chosen = range(len(self))[index]
        if chosen.step < 0:
            raise InvalidArgumentError(
                "a data set keeps the order of its index; take the slice forwards, and choose the order in the Loader"
            )
        samples = (
            chosen if len(self) == self._native.indexed else self.samples[chosen.start : chosen.stop : chosen.step]
        )
        return self.where(samples=samples)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """All samples in the order of the index, as :meth:`read` gives them: for looking at them; a :class:`Loader` is faster."""
        for at in range(0, len(self), _READ_TOGETHER):
            yield from self.read_many(range(at, min(at + _READ_TOGETHER, len(self))))

    def __add__(self, other: object) -> NoReturn:
        raise UnsupportedError(
            "data sets are not added: millrace.Dataset([one.uri, other.uri]) has the samples of both, and millrace.Mix([one, other]) "
            "draws from them by weights"
        )

    def head(self, samples: int = 5) -> list[dict[str, Any]]:
        """The first samples, as :meth:`read` gives them."""
        return self.read_many(range(min(_arguments.integer("samples", samples, least=0), len(self))))

    def __repr__(self) -> str:
        part = f" of {self._native.indexed:,}" if len(self) < self._native.indexed else ""
        return f"<millrace.Dataset {self.uri}: {len(self):,}{part} samples, fields {', '.join(self.fields)}>"

    def _repr_html_(self) -> str:
        from ._dataset_page import page_of

        return page_of(self)

    def __reduce__(self) -> tuple[Callable[..., Dataset], tuple[Any, ...]]:
        native = self._handle  # works in a fork, as far as this goes
        if len(native) == native.indexed:
            return _open, (native.uri, self._progress, self._opening, native.labels)
        numbers = np.empty(len(native), np.int64)
        native.samples(numbers)
        mask = np.zeros(native.indexed, dtype=np.bool_)
        mask[numbers] = True
        known = (np.packbits(mask), native.indexed, native.fingerprint)
        return _open_subset, (native.uri, self._progress, self._opening, *known, native.labels)

    def split(
        self, *, seed: int = 0, groups: bool = False, exact: bool = False, stratify: Any = None, **fractions: float
    ) -> dict[str, Dataset]:
        """Parts by a stable hash of the samples' keys: ``train, valid = dataset.split(train=0.9, valid=0.1).values()``.

        Which part a sample belongs to depends on its key and ``seed`` alone: it is the same on every machine and in every order of the
        data, and stays when samples are added or removed. Parts are about, not exactly, as large as their fractions say. Fractions that
        sum to less than 1 leave samples out. (XXH3 of the key's bytes, 64 bits, seeded: part i takes the hashes from the sum of the
        fractions before it to that with its own, times 2^64.)

        With ``exact`` or ``stratify``, or with numbers of samples (``split(train=50_000, valid=10_000)``), parts have exactly these sizes, and the
        same ones on every machine; but when samples are added or removed, others may change their parts.

        Args:
            seed: Another one deals the samples differently.
            exact: The sizes of the parts are exactly their fractions, rounded to whole samples.
            stratify: Each part has its share of each class, rounded down or up, and the sizes are exact: True for the classes of the index, the name
                of a field, or a class for each sample. With more than two parts, a class may differ by one sample more.
            groups: Samples of one key belong together, as those of one patient do: they always come to one part. Without it, a data set in
                which fewer than half of the samples have a key of their own is refused.
            **fractions: Names and fractions of the parts.

        Raises:
            InvalidArgumentError: A fraction is not above 0, or they sum to more than 1; or many keys are equal.
        """
        if not fractions:
            raise InvalidArgumentError("name the parts and their fractions: split(train=0.9, valid=0.1)")
        in_samples = any(isinstance(value, int) and value > 1 for value in fractions.values())
        if exact or in_samples or (stratify is not None and stratify is not False):
            if groups:
                raise InvalidArgumentError(
                    "samples of one key stay together, so that parts cannot have exact sizes; leave groups or exact out"
                )
            return {
                name: self.where(samples=samples)
                for name, samples in _subsets.exact_parts(self, seed, stratify, fractions).items()
            }
        values = [_arguments.number(name, fraction) for name, fraction in fractions.items()]
        ranges = _core.split_keys(values, _arguments.integer("seed", seed))
        return {name: self._narrow(keys=keys, key_groups=bool(groups)) for name, keys in zip(fractions, ranges)}

    def folds(self, count: int, *, seed: int = 0, stratify: Any = None) -> list[tuple[Dataset, Dataset]]:
        """(train, valid) for each of ``count`` folds: ``for train, valid in dataset.folds(5, stratify=True):``.

        Each sample is in the valid part of one fold. Folds differ by one sample at most, and with ``stratify``, which is as of :meth:`split`, so
        do the samples of each class in them. The folds are the same on every machine.
        """
        count = _arguments.integer("count", count, least=2)
        return [
            (self.where(samples=train), self.where(samples=valid))
            for train, valid in _subsets.folds(self, count, seed, stratify)
        ]

    def where(
        self,
        *,
        label: str | int | list[str] | list[int] | None = None,
        bytes: tuple[int | None, int | None] | None = None,
        has: str | list[str] | None = None,
        has_any: list[str] | None = None,
        samples: Any = None,
        keys: Iterable[str] | None = None,
        **columns: Any,
    ) -> Dataset:
        """The samples that meet all of these conditions: ``dataset.where(label="cat", split="train")``.

        The index knows all of this but fields in objects, of which ``columns`` reads the bytes.

        Args:
            label: One or several classes: of raw objects by name or number (see :attr:`classes`), of shards the number in the field
                ``cls`` (see :attr:`class_counts`). With labels of your own, pass ``samples=labels == 3``.
            bytes: Least and most bytes of a sample as it is stored, both included; None for no limit.
            has: One or several fields, all of which the sample has.
            has_any: Fields of which the sample has one at least.
            samples: Numbers of samples as the index gives them (``batch["sample"]``): a range, integers in any order, or a boolean mask
                over the whole index. Repeats count once; the order stays that of the index.
            keys: Keys of samples, as of an official list: ``keys=open("val.txt").read().split()``. Each must be in the data set. If several samples
                have a key, all of them are taken.
            **columns: Fields and what they hold, one value or a list: ``split="val"``, ``source=["a", "b"]``; of JSON a member by its path,
                ``**{"json.meta.split": "val"}``. See :meth:`column`. Other conditions have names of their own; for a column that is called like one
                of them: ``samples=dataset.samples[numpy.array(dataset.column("label")) == 3]``.

        Raises:
            InvalidArgumentError: No such class, field, key or value in the data set.
            IndexError: No such sample.
        """
        least, most = (None, None) if bytes is None else bytes
        numbers = [] if samples is None else [_subsets.given_numbers(samples, self._native.indexed)]
        if keys is not None:
            numbers.append(_subsets.numbers_of_keys(self._native, self.uri, keys))
        if columns:
            numbers.append(_subsets.numbers_of_values(self, columns))
        return self._narrow(
            classes=None if label is None else _subsets.class_names(self.classes, label),
            min_bytes=0 if least is None else _arguments.integer("bytes", least, least=0),
            max_bytes=_MOST_BYTES if most is None else _arguments.integer("bytes", most, least=0),
            has=[has] if isinstance(has, str) else list(has or ()),
            has_any=[] if has_any is None else _arguments.texts("has_any", has_any, "a list of fields"),
            samples=functools.reduce(np.intersect1d, numbers) if numbers else None,
        )

    def keys(self) -> list[str]:
        """The key of each sample, in the order of this data set; no data are read."""
        return self._native.keys()

    def column(self, name: str) -> list[Any]:
        """The value of a field for each sample, in the order of this data set, as :meth:`read` gives it; None for samples that lack it.

        Columns of manifests and of labels files are in the index: no data are read. The bytes of other fields are read, at most 64 KiB a
        sample. They are not verified, since checksums are those of whole samples. ``"json.meta.split"`` is a member of JSON.

        Raises:
            InvalidArgumentError: No such field, or it is too large.
        """
        return _subsets.column_of(self._native, name)

    def with_labels(self, labels: LabelsLike) -> Dataset:
        """The same samples with labels of a file, in place of what they have: ``dataset.with_labels("s3://bucket/labels.csv")``.

        Numbers, bytes and order are those of this data set, and a position fits both, since they do not depend on labels (a digest does).
        Of a subset, only its own samples need a label. What is made of file and index is kept beside the data, or in the cache folder, for
        each version of the file; a file that is replaced takes effect when the data set is opened again.

        Raises:
            InvalidArgumentError: Samples have no label, a key is there twice, or the file is malformed; with its lines.
            NotFoundError: There is no such file.
            MismatchError: Of a subset: the data set was replaced.
        """
        given = to_labels(labels)
        same = self._in(_open(self.uri, self._progress, self._opening._replace(classes=()), given._native()))
        return same._subset(same._native.in_labels_file(given.missing == "drop"))

    def with_classes(self, classes: Sequence[str] | Dataset) -> Dataset:
        """The same samples, whose classes are numbered in this order, as of ``Dataset(uri, classes=...)``: ``valid.with_classes(train)``.

        Raises:
            InvalidArgumentError: A class of this data set is not among them.
        """
        opening = self._opening._replace(classes=class_order(classes))
        whole = _open(self.uri, self._progress, opening, self._native.labels)
        return self._in(whole)

    def _in(self, whole: Dataset) -> Dataset:
        if len(self) == self._native.indexed:
            return whole
        return _subset_of(whole, self.samples, self._native.indexed, self._native.fingerprint)

    def balanced(
        self,
        *,
        groups: npt.ArrayLike | None = None,
        weights: Mapping[Any, float] | None = None,
        epoch_samples: int | None = None,
        draws: Literal["exact", "replacement", "independent"] = "exact",
    ) -> Mix:
        """Draws equally many samples of each class, or as many as ``weights`` says, in every epoch; the parts are the classes.

        See :class:`Mix` for ``draws`` and for what a loader does with the result. With ``draws="exact"`` every epoch holds exactly its
        share of each class (rounded down or up to whole samples, in turn, so that epochs make up for each other), evenly interleaved,
        and each sample of a class equally often but for one.

        Args:
            groups: The class of each sample of this data set, in its order, integers or strings. None: the folders of raw objects, the
                numbers in the field ``cls`` of shards.
            weights: By class; those that are not named get 0. None: all are equal.
            epoch_samples: Samples of an epoch. None: as many as this data set has.
        """
        from ._mix import balanced

        return balanced(self, groups, weights, epoch_samples, draws)

    def weighted(
        self,
        weights: npt.ArrayLike,
        *,
        epoch_samples: int | None = None,
        draws: Literal["exact", "replacement", "independent"] = "exact",
    ) -> Mix:
        """Draws samples in proportion to their weights (``torch.utils.data.WeightedRandomSampler``'s task).

        Samples of equal weight are a group. With ``draws="exact"`` every epoch holds exactly each group's share of the weight (rounded down
        or up to whole samples, in turn, so that epochs make up for each other), and each sample of a group equally often but for one,
        which ones being drawn again each epoch; with ``"independent"`` each draw is made for itself.

        Args:
            weights: A number from 0 on for each sample of this data set, in its order; up to 65,536 different ones.
            epoch_samples: Samples of an epoch. None: as many as this data set has.
        """
        from ._mix import weighted

        return weighted(self, weights, epoch_samples, draws)

    @property
    def samples(self) -> npt.NDArray[np.int64]:
        """The numbers of its samples in the index, ascending: ``range(len(dataset))`` but for subsets."""
        numbers = np.empty(len(self), np.int64)
        self._native.samples(numbers)
        return numbers

    def read(self, number: int) -> dict[str, Any]:
        """One sample, by itself: ``{"key": ..., field: value, ...}``. A field called ``key`` comes as ``key_field``.

        Values are by the types of fields: numpy arrays (``tokens`` of token files, arrays of MDS, lists of numbers of TFRecord), ``int``,
        ``float``, ``str``, what JSON holds, and ``bytes`` for all else, images included. Members of tar shards and raw objects have no type
        but their extension: ``txt``, ``cls`` (a whole number), ``json`` and ``npy`` are read as such where they can be. Others are
        ``bytes``: an ``.npz`` called ``.npy``, an array of Python objects or one that is cut off, malformed JSON. A Loader
        with a field for such a file (:class:`Array`, :class:`Json`) calls it damaged. One request to the store, verified by the
        checksum in the index. For looking at samples and for random access: a :class:`Loader` knows the order ahead, and is faster.

        Args:
            number: From 0 on; of a subset, counted within it. Negative ones count from the end.

        Raises:
            IndexError: No such sample.
            DamagedDataError: The sample's bytes are not those that were indexed, or mean nothing.
            MismatchError: Its object was replaced.
        """
        return self.read_many([number])[0]

    def read_many(self, numbers: Iterable[int]) -> list[dict[str, Any]]:
        """Several samples, as :meth:`read` gives them and in the order of ``numbers``, with many requests in flight.

        All of them are in memory at once, so ask for a batch at a time.
        """
        size = len(self)
        ranks = []
        for number in numbers:
            at = _arguments.integer("number", number)
            if not -size <= at < size:
                raise IndexError(f"there is no sample {at}; the data set has {size}")
            ranks.append(at % size)
        return [sample_of(self.uri, key, fields) for key, fields in self._native.read(ranks)]

    def _narrow(self, **conditions: Any) -> Dataset:
        usual: dict[str, Any] = {
            "keys": None,
            "key_groups": False,
            "classes": None,
            "min_bytes": 0,
            "max_bytes": _MOST_BYTES,
        }
        usual |= {"has": [], "has_any": [], "samples": None}
        return self._subset(self._native.where(**{**usual, **conditions}))

    def _subset(self, native: _core.Dataset) -> Dataset:
        subset = Dataset.__new__(Dataset)
        subset._progress, subset._opening = self._progress, self._opening
        subset._adopt(native)
        return subset

    @property
    def uri(self) -> str:
        """As it was given."""
        return self._native.uri

    @property
    def kind(self) -> str:
        """``"tar"``, ``"tfrecord"``, ``"recordio"``, ``"mds"``, ``"tokens"`` or ``"raw"``."""
        return self._native.kind

    @property
    def fields(self) -> list[str]:
        """Names of all fields that occur, sorted: ``["cls", "jpg"]``. A raw object's folder is its field ``cls``."""
        return self._native.fields

    @property
    def classes(self) -> list[str]:
        """Folders of raw objects, sorted, or in the order that was given: label i is ``classes[i]``. Empty for shards, which hold numbers only,
        unless ``millrace pack`` has found names in Parquet of Hugging Face."""
        return self._native.classes

    @property
    def class_to_idx(self) -> dict[str, int]:
        """The label of each of the :attr:`classes`, as torchvision's ``ImageFolder`` has it: ``{"cat": 0, "dog": 1}``. Empty where :attr:`classes` is."""
        return {name: label for label, name in enumerate(self.classes)}

    @property
    def targets(self) -> list[int]:
        """The label of each sample, in the order of this data set, as torchvision's ``ImageFolder`` has it; the index knows them, no data are read.

        A sample without a class has -1. Empty where :attr:`class_counts` is. Made for each call: keep it.
        """
        return _subsets.targets_of(self)

    @property
    def class_counts(self) -> dict[str, int]:
        """Samples of each class: by folder (raw objects) or by number (shards); empty without numeric ``cls``.

        Raises:
            MismatchError: Classes of raw objects lie in files (``7.cls`` beside ``7.jpg``), and ``millrace index --classes`` has not read them yet.
        """
        return self._native.class_counts

    @property
    def objects(self) -> int:
        """Objects in the store that hold the samples."""
        return self._native.objects

    @property
    def skipped(self) -> dict[str, str]:
        """The objects below the URI that hold no samples, each with the reason: ``{"_SUCCESS": "a program has left it there for itself"}``.

        Looking lists the whole data set. At most 100,000 objects are named. A manifest lists its samples, so that nothing is passed over.
        """
        return dict(self._native.skipped())

    @property
    def total_bytes(self) -> int:
        """Bytes that one epoch reads."""
        return self._native.total_bytes

    @property
    def fingerprint(self) -> str:
        """Identifies the samples and their order, as 16 hex digits; equal for equal data, wherever they lie."""
        return f"{self._native.fingerprint:016x}"


def _open(uri: str, progress: bool | None, opening: Opening, labels: Native | None = None) -> Dataset:
    """With the labels of all samples, whether these have some or not: the caller has looked."""
    dataset = Dataset.__new__(Dataset)
    dataset._progress, dataset._opening = progress, opening
    show = ProgressLine(uri) if labels is None and (sys.stderr.isatty() if progress is None else progress) else None
    try:
        dataset._adopt(native_of(uri, opening, labels, show.update if show else None))
    finally:
        if show:
            show.clear()
    return dataset


def _open_subset(
    uri: str,
    progress: bool | None,
    opening: Opening,
    mask: npt.NDArray[np.uint8],
    indexed: int,
    fingerprint: int,
    labels: Native | None = None,
) -> Dataset:
    dataset = _open(uri, progress, opening, labels)
    return _subset_of(dataset, np.flatnonzero(np.unpackbits(mask)), indexed, fingerprint)


def _subset_of(dataset: Dataset, samples: npt.NDArray[np.int64], indexed: int, fingerprint: int) -> Dataset:
    """Those samples of a data set that was opened again, if they are what they were."""
    if dataset._native.indexed == indexed:
        subset = dataset.where(samples=samples)
        if subset._native.fingerprint == fingerprint:
            return subset
    # Its samples have other numbers now: those of the subset would be others.
    raise MismatchError(f"{dataset.uri}: the data set is not the one of which a subset was made; make the subset again")
