"""A data set: samples in a store, and their index."""

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

        dataset = millrace.Dataset("s3://bucket/train")
        print(len(dataset), dataset.fields)
        # Parts are data sets, too.
        train, valid = dataset.split(train=0.9, valid=0.1).values()

    :meth:`split` and :meth:`where` make subsets. A subset is a data set of its own, for loaders, plans and further subsets. Samples keep
    the numbers that the index gives them. :meth:`balanced` and :meth:`weighted` draw some samples more often than others.

    Opening reads the index. If there is no index yet, it is built, and stored beside the data or in the cache folder
    (``$MILLRACE_CACHE``, ``~/.cache/millrace``). To build it, raw objects are only listed, and shards are read once. ``millrace index URI``
    does the same ahead of time. The ranks of a job build the index of shards together (docs/launchers.md).

    A data set is immutable and thread-safe. A pickle keeps the URI, and the copy opens it again, so that a data set may be sent to spawned
    workers. In a fork, a data set of the parent opens itself again when it is first used.

    A program can use data sets of several stores together, for example in a :class:`Mix`, since ``endpoint``, ``profile`` and ``region``
    apply to one data set. Its file of labels is read with the same settings. Workers of a data service use settings of their own.

    Args:
        uri: ``s3://bucket/prefix``, ``file:///folder`` or a plain path. It names a folder, a single shard or other object, or a manifest.
            With ``*``, ``**``, ``?``, ``[a-c]``, ``{a,b}`` or ``{000..123}`` it stands for the objects and folders that match. A list of
            these is allowed.
        progress: True: show progress on stderr while an index is built. None: show it if stderr is a terminal.
        path_column, label_column: The columns of a manifest that name the objects and their classes. None: the usual names
            (docs/formats/manifests.md). An index that was built with other columns is built again. Several columns of paths make samples
            of several objects: ``path_column={"image": "photo", "mask": "annotation"}``.
        csv_quotes: True: quotes in a manifest in CSV or TSV enclose cells. False: they are text, as with ``csv.QUOTE_NONE``. None: the
            value with which its index was built, or True if there is no index. An index that was built with another value is built again.
        labels: A file with the labels of the samples, as a :class:`Labels` or a URI. See :meth:`with_labels`. None: the samples have the
            labels of the data set.
        endpoint: The URL of a store other than AWS for ``s3://``. It replaces ``AWS_ENDPOINT_URL``. None: the setting of the environment
            and profile files.
        profile: The profile whose settings and credentials apply. It replaces ``AWS_PROFILE`` and keys in the environment. None: these.
        region: The region of the store. It replaces ``AWS_REGION``. None: the setting of the environment and profile files.
        classes: The order in which classes are numbered: names, or another data set, whose :attr:`classes` give the order. So a validation
            folder that lacks a class of the training folder has the numbers of the training folder. None: the order of the names.
        join: Fields, and patterns of paths below ``uri``, in which ``{}`` stands for the key. Files of different folders with the same key
            are one sample: ``join={"image": "JPEGImages/{}.jpg", "mask": "SegmentationClass/{}.png"}``. A key makes a sample if it has all
            fields. The other files are skipped (:attr:`skipped`). None: files are not joined.
        index: ``"beside"``: an index that has to be built is kept beside the data, or opening fails. ``"cache"``: it is kept in the cache
            folder. ``"require"``: no index is built. None: it is kept beside the data, or in the cache folder if that is not possible.

    Raises:
        NotFoundError: The bucket, folder or file does not exist, or has no samples; or with ``index="require"``, there is no index.
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
        line = ProgressLine(uri, is_data=True) if show else None
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
        """The native data set. A fork lacks its parent's threads, and so it opens the same samples again."""
        if self._process != os.getpid():
            opened, arguments = self.__reduce__()
            self._adopt(opened(*arguments)._handle)
        return self._handle

    def __len__(self) -> int:
        """Returns the number of samples."""
        return len(self._native)

    @overload
    def __getitem__(self, index: SupportsIndex) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> Dataset: ...
    def __getitem__(self, index: SupportsIndex | slice) -> dict[str, Any] | Dataset:
        """Returns one sample, or a slice as a data set.

            sample = dataset[7]
            first_thousand = dataset[:1000]

        A sample is as :meth:`read` returns it. In a subset, numbers count within the subset. A slice keeps the order of the index.

        Raises:
            IndexError: There is no such sample.
            InvalidArgumentError: The slice has a negative step.
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
        """Yields all samples in the order of the index, as :meth:`read` returns them. A :class:`Loader` is faster."""
        for at in range(0, len(self), _READ_TOGETHER):
            yield from self.read_many(range(at, min(at + _READ_TOGETHER, len(self))))

    def __add__(self, other: object) -> NoReturn:
        raise UnsupportedError(
            "data sets are not added: millrace.Dataset([one.uri, other.uri]) has the samples of both, and millrace.Mix([one, other]) "
            "draws from them by weights"
        )

    def head(self, samples: int = 5) -> list[dict[str, Any]]:
        """Returns the first samples, as :meth:`read` returns them.

        Args:
            samples: How many. A data set with fewer samples returns all of them.
        """
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
        """Divides the samples into parts by a stable hash of their keys.

            train, valid = dataset.split(train=0.9, valid=0.1).values()

        The part of a sample depends only on its key and ``seed``. It is the same on every machine and for every order of the data, and it
        does not change when samples are added or removed. The sizes of the parts are about their fractions, not exactly. If the fractions
        sum to less than 1, some samples are in no part.

        The hash is XXH3 of the key's bytes, with 64 bits and the seed. Part i takes a range of hashes: from the sum of the fractions before
        it, times 2^64, to that sum with its own fraction.

        With ``exact`` or ``stratify``, or with numbers of samples (``split(train=50_000, valid=10_000)``), parts have exactly these sizes.
        They are the same on every machine. But when samples are added or removed, other samples may change their parts.

        Args:
            seed: Another seed assigns the samples differently.
            exact: True: the sizes of the parts are exactly their fractions, rounded to whole samples.
            stratify: Each part has its share of each class, rounded down or up, and the sizes are exact. True: the classes of the index. Or
                the name of a field, or a class for each sample. With more than two parts, a class may differ by one sample more. None:
                classes do not matter.
            groups: True: samples with the same key, such as those of one patient, are always in the same part. False: a data set in
                which fewer than half of the samples have a unique key is refused.
            **fractions: Names and fractions of the parts.

        Returns:
            The parts by name, in the given order.

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
        """Returns the pair (train, valid) for each of ``count`` folds.

            for train, valid in dataset.folds(5, stratify=True):
                ...

        Each sample is in the valid part of one fold. The sizes of folds differ by one sample at most. With ``stratify``, so do the numbers of
        samples of each class. The folds are the same on every machine.

        Args:
            count: The number of folds, at least 2.
            seed: Another seed assigns the samples differently.
            stratify: As for :meth:`split`.

        Raises:
            InvalidArgumentError: ``count`` is less than 2, or greater than the number of samples.
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
        """Returns the samples that meet all of the given conditions.

            cats = dataset.where(label="cat", split="train")

        The index answers all conditions except those on fields inside of objects: for these, ``columns`` reads the bytes of the field.
        A condition that is None does not apply.

        Args:
            label: One or several classes. Those of raw objects are given by name or number (see :attr:`classes`), those of shards by the
                number in the field ``cls`` (see :attr:`class_counts`). With labels of your own, pass ``samples=labels == 3``.
            bytes: The minimum and the maximum size of a sample as it is stored, in bytes, both included. None in the pair: no limit.
            has: One or several fields. The sample has all of them.
            has_any: Fields. The sample has at least one of them.
            samples: Numbers of samples as the index gives them (``batch["sample"]``): a range, integers in any order, or a boolean mask
                over the whole index. Repeated numbers count once, and a warning says so. The order stays that of the index, unlike that of torch's
                ``Subset``: ``batch["sample"]`` tells the number of each row.
            keys: Keys of samples, such as those of an official list: ``keys=open("val.txt").read().split()``. Each must be in the data set.
                If several samples have the same key, all of them are taken.
            **columns: Fields and their wanted values, one or a list: ``split="val"``, ``source=["a", "b"]``. A member of JSON is named by its
                path, ``**{"json.meta.split": "val"}``. See :meth:`column`. If a column has the name of another argument, use
                ``samples=dataset.samples[numpy.array(dataset.column("label")) == 3]``.

        Raises:
            InvalidArgumentError: The data set has no such class, field, key or value.
            IndexError: There is no such sample.
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
        """Returns the key of each sample, in the order of this data set. No data are read."""
        return self._native.keys()

    def column(self, name: str) -> list[Any]:
        """Returns the value of a field for each sample, in the order of this data set, as :meth:`read` returns it.

            sources = dataset.column("json.meta.source")

        Samples that lack the field have None. The index holds columns of manifests and of labels files, so that no data are read. The bytes
        of other fields are read, at most 64 KiB a sample. They are not verified, since checksums cover whole samples.

        Args:
            name: The field. ``"json.meta.split"`` is a member of JSON.

        Raises:
            InvalidArgumentError: There is no such field, or its values are too large.
        """
        return _subsets.column_of(self._native, name)

    def with_labels(self, labels: LabelsLike) -> Dataset:
        """Returns the same samples with the labels of a file in place of their own.

            labeled = dataset.with_labels("s3://bucket/labels.csv")

        Numbers, bytes and order are those of this data set. A position of one is valid for the other, since positions do not depend on
        labels. A digest does. In a subset, only its own samples need a label.
        The file is combined with the index once for each version of the file. The result is kept beside the data, or in the cache folder.
        If the file is replaced, the new one takes effect when the data set is opened again.

        Args:
            labels: A :class:`Labels`, or the URI of the file.

        Raises:
            InvalidArgumentError: Samples have no label, a key occurs twice, or the file is malformed. The message names its lines.
            NotFoundError: There is no such file.
            MismatchError: This data set is a subset, and the whole data set was replaced.
        """
        given = to_labels(labels)
        same = self._in(_open(self.uri, self._progress, self._opening._replace(classes=()), given._native()))
        return same._subset(same._native.in_labels_file(given.missing == "drop"))

    def with_classes(self, classes: Sequence[str] | Dataset) -> Dataset:
        """Returns the same samples with classes that are numbered in the given order, as by ``Dataset(uri, classes=...)``.

            valid = valid.with_classes(train)

        Args:
            classes: Names of classes, or another data set, whose :attr:`classes` give the order.

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
        """Returns a mix that draws equally many samples of each class in every epoch. The parts of the mix are the classes.

            loader = millrace.Loader(dataset.balanced(), batch_size=64)

        :class:`Mix` describes ``draws``, and how a loader uses the result. With ``draws="exact"`` every epoch holds exactly its share of
        each class, evenly interleaved. Shares are rounded down or up to whole samples, in turn, so that epochs compensate each other. Each
        sample of a class is drawn equally often, up to a difference of one.

        Args:
            groups: The class of each sample of this data set, in its order, as integers or strings. None: the folders of raw objects, or the
                numbers in the field ``cls`` of shards.
            weights: The weight of each class. Classes that are not named get 0. None: all classes have the same weight.
            epoch_samples: The samples of an epoch. None: as many as this data set has.
            draws: ``"exact"``, ``"replacement"`` or ``"independent"``.

        Raises:
            InvalidArgumentError: ``groups`` does not fit the data set, or ``weights`` names a class that does not exist.
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
        """Returns a mix that draws samples in proportion to their weights, as ``torch.utils.data.WeightedRandomSampler`` does.

            loader = millrace.Loader(dataset.weighted(weights), batch_size=64)

        Samples of equal weight are a group. With ``draws="exact"`` every epoch holds exactly each group's share of the weight. Shares are
        rounded down or up to whole samples, in turn, so that epochs compensate each other. Each sample of a group is drawn equally often,
        up to a difference of one, and each epoch draws again which samples have one more. With ``"independent"`` each draw is independent.

        Args:
            weights: A number of at least 0 for each sample of this data set, in its order; at most 65,536 different numbers.
            epoch_samples: The samples of an epoch. None: as many as this data set has.
            draws: ``"exact"``, ``"replacement"`` or ``"independent"``, as for :class:`Mix`.

        Raises:
            InvalidArgumentError: There is not one weight for each sample, a weight is negative or not finite, or there are too many
                different ones.
        """
        from ._mix import weighted

        return weighted(self, weights, epoch_samples, draws)

    @property
    def samples(self) -> npt.NDArray[np.int64]:
        """Returns the numbers of its samples in the index, ascending, as int64 ``[len(dataset)]``. Without a subset:
        ``range(len(dataset))``."""
        numbers = np.empty(len(self), np.int64)
        self._native.samples(numbers)
        return numbers

    def read(self, number: int) -> dict[str, Any]:
        """Returns one sample: ``{"key": ..., field: value, ...}``.

            sample = dataset.read(0)
            print(sample["key"], sorted(sample))

        A field called ``key`` is returned as ``key_field``. The type of a field determines the type of its value:

        - numpy arrays: ``tokens`` of token files, arrays of MDS, lists of numbers of TFRecord
        - ``int``, ``float``, ``str``, and the values of JSON
        - ``bytes``: all else, images included

        Members of tar shards and raw objects have only an extension. If it is ``txt``, ``cls`` (a whole number), ``json`` or ``npy``, and the
        content is valid, the value has that type. All other values are ``bytes``: for example an ``.npz`` called ``.npy``, an array of
        Python objects, a truncated array, or malformed JSON. A Loader with a field for such a file (:class:`Array`, :class:`Json`)
        reports it as damaged.

        The call makes one request to the store, and verifies the bytes by the checksum in the index. It is for random access and for
        looking at samples. A :class:`Loader` knows the order ahead, and is faster.

        Args:
            number: The sample, from 0. In a subset, numbers count within the subset. Negative numbers count from the end.

        Raises:
            IndexError: There is no such sample.
            DamagedDataError: The sample's bytes are not those that were indexed, or cannot be decoded.
            MismatchError: Its object was replaced.
        """
        return self.read_many([number])[0]

    def read_many(self, numbers: Iterable[int]) -> list[dict[str, Any]]:
        """Returns several samples, as :meth:`read` does, in the order of ``numbers``. Many requests are in flight at once.

            samples = dataset.read_many(range(64))

        All samples are in memory at once, so ask for one batch at a time.

        Args:
            numbers: The samples, as for :meth:`read`.

        Raises:
            IndexError: There is no such sample.
            DamagedDataError: A sample's bytes are not those that were indexed, or cannot be decoded.
            MismatchError: An object was replaced.
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
        """The URI as it was given."""
        return self._native.uri

    @property
    def kind(self) -> str:
        """The format of the data: ``"tar"``, ``"tfrecord"``, ``"recordio"``, ``"mds"``, ``"tokens"`` or ``"raw"``."""
        return self._native.kind

    @property
    def fields(self) -> list[str]:
        """The names of all fields that occur, sorted: ``["cls", "jpg"]``. A raw object's folder is its field ``cls``."""
        return self._native.fields

    @property
    def classes(self) -> list[str]:
        """The names of the classes: label i is ``classes[i]``. They are the folders of raw objects, sorted, or in the given order.

        The list is empty for shards, which hold only numbers, unless ``millrace pack`` found names in Parquet files of Hugging Face.
        """
        return self._native.classes

    @property
    def class_to_idx(self) -> dict[str, int]:
        """The label of each of the :attr:`classes`, as in torchvision's ``ImageFolder``: ``{"cat": 0, "dog": 1}``.

        It is empty if :attr:`classes` is empty.
        """
        return {name: label for label, name in enumerate(self.classes)}

    @property
    def targets(self) -> list[int]:
        """The label of each sample, in the order of this data set, as in torchvision's ``ImageFolder``. No data are read.

        A sample without a class has -1. The list is empty if :attr:`class_counts` is empty. Each access makes a new list, so keep it.
        """
        return _subsets.targets_of(self)

    @property
    def class_counts(self) -> dict[str, int]:
        """The number of samples of each class, by folder (raw objects) or by number (shards). It is empty without numeric ``cls``.

        Raises:
            MismatchError: Classes of raw objects are in files (``7.cls`` beside ``7.jpg``), and ``millrace index --classes`` has not read them yet.
        """
        return self._native.class_counts

    @property
    def objects(self) -> int:
        """Returns the number of objects in the store that hold the samples."""
        return self._native.objects

    @property
    def skipped(self) -> dict[str, str]:
        """The objects below the URI that hold no samples, each with the reason: ``{"_SUCCESS": "a program has left it there for itself"}``.

        Each access lists the whole data set. At most 100,000 objects are named. A manifest lists its samples, so that nothing is skipped.
        """
        return dict(self._native.skipped())

    @property
    def total_bytes(self) -> int:
        """Returns the bytes that one epoch reads."""
        return self._native.total_bytes

    @property
    def fingerprint(self) -> str:
        """Returns an identifier of the samples and their order, of 16 hex digits. Equal data have the same one in every
        place."""
        return f"{self._native.fingerprint:016x}"


def _open(uri: str, progress: bool | None, opening: Opening, labels: Native | None = None) -> Dataset:
    """Opens a data set with the labels of all samples. The caller has checked that the wanted samples have labels."""
    dataset = Dataset.__new__(Dataset)
    dataset._progress, dataset._opening = progress, opening
    show = (
        ProgressLine(uri, is_data=True)
        if labels is None and (sys.stderr.isatty() if progress is None else progress)
        else None
    )
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
    """Returns the given samples of a data set that was opened again, if they have not changed."""
    if dataset._native.indexed == indexed:
        subset = dataset.where(samples=samples)
        if subset._native.fingerprint == fingerprint:
            return subset
    # Its samples have other numbers now: those of the subset would be others.
    raise MismatchError(f"{dataset.uri}: the data set is not the one of which a subset was made; make the subset again")
