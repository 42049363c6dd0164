"""This module has the stream of batches."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Literal, NoReturn, cast

from . import _arguments, _core, _dataloader_names, _moved_options, _pads
from ._batch import Batch, State
from ._batch_shapes import BatchShapes
from ._dataset import Dataset
from ._device import device_of
from ._device_decode import decoder_of
from ._errors import Error, InvalidArgumentError, UnsupportedError
from ._fields import Field, Image, Label, padding_of_values, refuse_objects
from ._hand_over import handed_over
from ._iteration import BatchIterator, iteration_over, position_of
from ._loader_options import (
    cache_options,
    checked_functions,
    entry_options,
    token_options,
    torch_for,
    tuple_names,
    usual_image,
    worker_options,
)
from ._mix import Mix
from ._option_groups import Cache, Map, Service, Shuffle, Transfer, mapping_of, shuffle_and_order
from ._positions import is_staged, start_of_epoch
from ._ranks import local_ranks, rank_and_world
from ._report import Report, Table, flat
from ._staged import Start, opened_data, option_for_whole, staged_data
from ._stream import Stream
from ._stream_maker import destination_of, stream_maker
from ._tokenized import tokenized
from ._tokens import Rows, Shape, Tokens
from ._transform import Seeds, Transform, Work, imported


class Loader:
    """Streams the samples of a data set, decoded and batched, in an order that depends on data, seed and shuffle only.

        loader = millrace.Loader("s3://bucket/train", batch_size=256, size=224, augment=True, seed=1)
        for epoch in range(10):
            for batch in loader:
                train_step(batch["image"], batch["label"])

    :class:`Batch` lists the entries of a batch, with their shapes.

    **Epochs.** ``for batch in loader:`` is an epoch, from its start to its end, and the next ``for`` is the next epoch, also after a
    ``break``. An iterator that has delivered at most one batch does not count: ``next(iter(loader))``, to look at a batch, costs nothing.
    :meth:`set_epoch` chooses another epoch. After ``epochs`` epochs a loop raises :class:`UsageError`. ``loader.epoch``
    counts from 0; ``len(loader)`` is the batches of a whole epoch. To continue after ``break``, keep the iterator: ``batches = iter(loader)``.

    **Reading.** It begins with the first iterator, and stops when nothing refers to an iterator any more, and at the end of an epoch. Where samples
    are shuffled, the next epoch is read ahead from the end of one that was taken whole. Two iterators at a time read apart, each with
    ``memory`` of its own, and a warning says so.

    **Memory.** Arrays are views of the loader's memory: no copy is made. They may be written to, and stay valid for as long as they, or
    any view of them, live, also after the loader is gone. Batches that the program keeps count against ``memory``. A program that
    keeps too many (``list(loader)``) gets :class:`ExhaustedError`. It may release some batches and continue.

    **Resuming.** ``state_dict()`` describes exactly what the program has received, never what was prefetched. ``load_state_dict()`` gives the
    place to the next iterator. A loader over the same data with the same seed and shuffle continues with the next sample. Batch size and world may differ. With buckets
    of tokens they may differ as long as batch size x world stays the same for each bucket.

    **Processes.** A Loader takes the place of torch's ``DataLoader``. It does not need worker processes, and a ``DataLoader`` that gets
    one raises :class:`UnsupportedError`. After a fork, objects of the parent raise
    :class:`UsageError` in the child, which can make its own. A Loader cannot be pickled; a Dataset can.

    Args:
        data: A :class:`Dataset` (or the URI, or a list of URIs, of one), also a subset; or a :class:`Mix` of several.
        batch_size: Samples of a batch, per rank.
        size: The size of the images in pixels: ``s`` for s x s, or ``(height, width)``.
        augment: False: the shorter side is resized and the center cropped. True: random resized crop and flip, drawn from (seed, epoch,
            sample), so that they are the same for every number of threads and ranks.
        raw: Deliver pixels as they are decoded: uint8 ``[B, H, W, C]``. Without, they are float32 ``[B, C, H, W]`` for torch; for numpy uint8, or
            with ``normalize`` float32, ``[B, H, W, C]``.
        normalize: ``"imagenet"`` or ``(mean, std)``, each one number for all channels or one a channel: float32 pixels, 0 to 1, minus the mean, divided by
            ``std``. None: pixels are not normalized.
        as_tuple: Names of entries of the batch, such as ``("image", "label")``: batches are tuples of these, for ``for image, label in loader:``. None: dicts.
        image: The image of a batch without ``fields``, as an :class:`Image`: its field, crop, flip, orientation, type and all that it can
            say. ``size``, ``augment``, ``raw`` and ``normalize`` determine its options that are None. None: these options alone.
        label: The label of a batch without ``fields``: a :class:`Label`, or the name of its field, an integer. None: ``cls`` as an integer, if
            there is one.
        shuffle: ``"window"`` (reads each byte once, in long runs; also True), ``"global"`` (one permutation of all samples), or ``"none"``
            (also False and None). Or a :class:`Shuffle`, with sizes of your own.
        seed: The seed of order and augmentation, 0 to 2^64 - 1.
        epochs: The number of epochs. None: there is no end.
        rank: This consumer's number. With None for both, rank and world are those of ``torch.distributed`` when it is initialized, else
            of the environment (of torchrun, MPI or ``srun``), else 0 of 1.
        world: How many consumers share the data. All get equally many batches.
        last: The last batch of an epoch: ``"short"`` (fewer rows), ``"pad"`` (see ``valid``), ``"drop"`` (no batch at all if an epoch has fewer
            samples than one of each rank), or ``"wrap"`` (filled from the epoch's start). Short batches are equally long on all ranks. Rows that make them so repeat a sample. None: ``"short"``; where shapes stay, which is
            for rows of tokens and devices of XLA and JAX, ``"pad"``.
        pad: The numbers in rows of padding, by the names of arrays: ``{"label": -1}``. None: integer labels are -100, which torch's losses ignore.
            Floating point labels are NaN (0 with ``device="xla"`` and ``"jax"``), masks 255, and all else 0. Integers of a ``transform`` are -100. Its floats
            are as those of labels, except images, which are 0.
        start: ``"indexed"``: begin when all shards are indexed. ``"staged"``: begin when some of the shards are, and index the others meanwhile
            (docs/plan.md). In the first epoch, ``batch["sample"]`` is then -1, and ``len(loader)`` raises TypeError. None: as the position says that
            is loaded, else ``"indexed"``.
        memory: Budget for fetched bytes and batches together, in bytes or as ``"1GiB"``. None: all Loaders of the process with None share 512 MiB
            (each of those with ``workers`` has as much). A data set that needs less takes less.
        cache: A folder of a local disk that keeps what is read, for later epochs and runs; processes of a machine may share one. If it
            cannot be used, a warning says so, and everything is read from the store. Or ``"memory"``: the Loaders of this process keep it in
            memory, as long as one of them lives. (A folder of that name is ``"./memory"``, or a ``Path``.) Or a :class:`Cache`, with its size. None: no cache.
        workers: Addresses ``"HOST:PORT"`` of workers (``millrace worker``), which decode in place of this process: the same batches in the
            same order. If a worker does not deliver a batch, another one does, or this process, which therefore must be able to read the
            data too; :meth:`report` shows it. Or the places of workers: ``"dns:NAME:PORT"``, ``"slurm:NODES:PORT"``,
            ``"sagemaker:GROUP:PORT"``. Or a :class:`Service`, with these and further options. None: this process decodes.
        bad_samples: ``"fail"``: a damaged sample raises DamagedDataError. ``"replace"``: another sample takes its place. ``"mask"``: its row
            stays, with zeros and ``valid`` false, so that all ranks keep in step. :meth:`report` lists the damaged ones.
        digest: ``"raw"`` or ``"decoded"``: :meth:`report` gets a digest of stored bytes or of pixels, which proves that every sample
            came exactly once. Digests of parts and of ranks add up (modulo 2^128). None, and ``"none"``: no digest.
        output: ``"torch"`` or ``"numpy"``. None: torch if it is installed, unless ``device`` takes numpy's arrays.
        device: Where the arrays of batches go, ahead of the loop and beside its work: ``"cuda"``, ``"cuda:1"`` or 1, a ``torch.device``, ``"xla"``,
            ``"jax"``, a device or a sharding of JAX; or ``"cpu"``: nowhere. None: nowhere, and nothing is made ahead in Python. Lists,
            texts and other objects stay on the host. ``transform``, ``collate_fn`` and ``batch_transform`` run before, on the host. Without
            them, images of float32 travel as bytes, and are normalized on the device. Or a :class:`Transfer`, which also says how they get there.
        tokens: A :class:`Tokens`: deliver rows of tokens in place of images. The statements about "samples" above then hold for rows, and
            the options for images do not count. If the rows are not kept with the index yet, they are made first. None: no tokens.
        fields: The entries of batches beside ``valid``, ``sample`` and ``key``, by name: an :class:`Image`, :class:`Label`, :class:`Text`,
            :class:`Json`, :class:`Array`, :class:`Bytes` or :class:`Boxes` each. None: ``image`` and ``label``. ``size``, ``augment``, ``raw`` and ``normalize``
            are then those of images that do not say otherwise.
        transform: A function of a sample, called in threads for each row that is not padding. It gets a dict of the row's values (arrays or
            tensors as ``output`` says, which it may change, and ``"key"``) and returns a dict of what takes their place. Results are
            stacked where they are numbers or arrays of one shape and type, else they are lists. Dicts, tuples and lists of arrays are stacked part
            by part, as torch's ``default_collate`` does. If it has a parameter ``rng``, that is
            ``numpy.random.default_rng((seed, epoch, sample))``: the same for every number of threads and ranks. Or its name,
            ``"module:function"``: then ``workers`` run it in place of this process, if they are workers of :mod:`millrace.worker`. Or a :class:`Map`, with one of
            these and the threads or processes for it. None: samples stay as they are.
        collate_fn: A function of the list of a batch's samples, as ``transform`` gets (or has returned) them and with ``"key"``, in place of
            stacking: what it returns is the batch, such as that of ``torch.utils.data.default_collate``. Padding is left out, so that
            the last batch of an epoch is shorter. None: samples are stacked.
        batch_transform: A function of a whole batch, which is called after these, also in threads. The loop gets its result. None: the loop gets the batch.
        multiprocessing_context: How processes of a :class:`Map` are started: ``"spawn"`` (None), ``"forkserver"``, ``"fork"``, or a context of multiprocessing.
        drop_last: As torch's ``DataLoader`` has it: True is ``last="drop"``, False the default of ``last``.
        num_workers, persistent_workers, prefetch_factor, pin_memory, pin_memory_device, in_order: Arguments of torch's ``DataLoader`` that a Loader does not need.
            They have no effect; a warning says so, once a process for each of them.
        sampler, batch_sampler, generator, timeout, worker_init_fn: Arguments of torch's ``DataLoader`` that raise :class:`InvalidArgumentError`, which says what to
            write in their place.

    Raises:
        InvalidArgumentError: An option makes no sense; the message says which.
        ExhaustedError: ``memory`` cannot hold two batches; the message says what would do.
        UsageError: ``data`` was made before a fork.

        The errors of :class:`Dataset`, when ``data`` is a URI; iteration also raises DamagedDataError, UnavailableError and
        MismatchError, with the object's name, and TransformError, with the sample's. After such an error each loop raises it again, until :meth:`load_state_dict`.
    """

    _given: dict[str, Any]  # options

    def __new__(cls, *args: Any, **options: Any) -> Loader:
        if cls.__init__ is Loader.__init__:  # a class of the program may have options of these names
            _moved_options.check(options)
        return super().__new__(cls)

    def __init__(
        self,
        data: Dataset | Mix | str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        batch_size: int = 128,
        shuffle: Literal["window", "global", "none"] | bool | Shuffle | None = "window",
        *,
        size: int | tuple[int, int] = 224,
        augment: bool = False,
        raw: bool = False,
        normalize: Literal["imagenet"] | tuple[float | Sequence[float], float | Sequence[float]] | None = None,
        as_tuple: Sequence[str] | None = None,
        image: Image | None = None,
        label: str | Label | None = None,
        seed: int = 0,
        epochs: int | None = None,
        rank: int | None = None,
        world: int | None = None,
        last: Literal["pad", "short", "drop", "wrap"] | None = None,
        pad: Mapping[str, float] | None = None,
        start: Start = None,
        memory: int | str | None = None,
        cache: str | os.PathLike[str] | Cache | None = None,
        workers: Sequence[str] | Service | None = None,
        bad_samples: Literal["fail", "replace", "mask"] = "fail",
        digest: Literal["raw", "decoded", "none"] | None = None,
        output: Literal["torch", "numpy"] | None = None,
        device: Any = None,
        tokens: Tokens | None = None,
        fields: Mapping[str, Field] | None = None,
        transform: Transform | str | Map | None = None,
        batch_transform: Transform | None = None,
        multiprocessing_context: Any = None,
        drop_last: bool | None = None,
        collate_fn: Transform | None = None,
        num_workers: int = 0,
        persistent_workers: bool = False,
        prefetch_factor: int | None = None,
        pin_memory: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        sampler: Any = None,
        batch_sampler: Any = None,
        generator: Any = None,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
    ) -> None:
        given = {name: value for name, value in locals().items() if name not in ("self", "data")}
        _dataloader_names.check(given)
        self._given = given
        kind, order = shuffle_and_order(shuffle)
        mapping = mapping_of(transform, multiprocessing_context)
        transfer = device if isinstance(device, Transfer) else Transfer(device)
        device = transfer.device
        named = mapping.function if isinstance(mapping.function, str) else None
        function = imported(mapping.function) if isinstance(mapping.function, str) else mapping.function
        self._device = None if device is None else device_of(device)
        self._torch = torch_for(output, self._device)
        usual = usual_image(size, augment, raw, normalize, self._torch is not None)
        is_compiled_for = self._device is not None and self._device.fixed_shapes
        keeps_shapes = is_compiled_for or tokens is not None
        batch_size = _arguments.integer("batch_size", batch_size, least=1)
        rank, world = rank_and_world(rank, world)
        checked: dict[str, Any] = {
            "batch": batch_size,
            **entry_options(usual, fields, image, label, raw, normalize),
            "bad_samples": _arguments.choice("bad_samples", bad_samples, ("fail", "replace", "mask")),
            "shuffle": kind,
            "order": order,
            "seed": _arguments.integer("seed", seed),
            "epochs": 0 if epochs is None else _arguments.integer("epochs", epochs, least=1),
            "rank": rank,
            "world": world,
            "last": _dataloader_names.last_batch(last, drop_last, keeps_shapes),
            "memory": "" if memory is None else _arguments.memory(memory),
            **(kept := cache_options(cache)),
            "local_ranks": 1 if kept["cache"] == _arguments.MEMORY else local_ranks(rank, world),
            "workers": worker_options(workers),
            **token_options(tokens),
            "finite_padding": is_compiled_for,
            "digest": "none" if digest is None else _arguments.choice("digest", digest, ("raw", "decoded", "none")),
        }
        if checked["last"] == "short" and is_compiled_for:
            raise InvalidArgumentError(
                f"last is 'short', and batches for device={device!r} keep their shapes, for which programs are compiled: use 'pad', 'drop' or 'wrap'"
            )
        functions = checked_functions(function, collate_fn, batch_transform)
        decoder = decoder_of(
            transfer.decode, self._device is not None and self._device.decodes, checked, functions, tokens is not None
        )
        pad = _pads.checked(pad, {"image": image, "label": label} if fields is None else fields)
        if pad and tokens is not None:
            raise InvalidArgumentError("pad is for arrays of samples; rows of tokens have Tokens(pad=...)")
        checked["padding"] = list(pad.items())
        names = tuple_names(as_tuple, collate_fn)
        if names and checked["bad_samples"] == "mask":
            raise InvalidArgumentError(
                "bad_samples='mask' marks its rows in batch['valid'], which a tuple does not show; leave as_tuple out"
            )
        self._remote = named is not None and workers is not None
        self._hand_over, self._payload = handed_over(
            checked,
            pad,
            names,
            self._torch,
            self._device,
            decoder,
            functions,
            self._remote,
            collate_fn is not None or batch_transform is not None,
        )
        self._data, self._start = tokenized(data, tokens), start
        whole = option_for_whole(data, tokens, workers)
        staged = staged_data(self._data, start, whole)
        self._opened = None if staged else opened_data(self._data)
        self._is_staged = staged is not None
        self._uri = staged.uri if staged else self._dataset.uri
        mix = self._opened if isinstance(self._opened, Mix) else None
        natives: list[_core.Dataset] = []
        if self._opened is not None:
            natives = [self._opened._native] if isinstance(self._opened, Dataset) else self._opened._natives
        if checked["bad_samples"] == "fail":
            refuse_objects(natives, checked["fields"])
        if self._remote:
            checked["workers"] = (*checked["workers"][:-1], (named, self._uri, self._torch is not None))
        self._last = checked["last"]
        samples = 0 if self._opened is None else len(self._opened)
        self._is_empty = _dataloader_names.drops_all(self._last, tokens, samples, batch_size * world)
        if self._is_empty:  # the native loader, which has one step to drop, reads nothing
            checked["last"] = "pad"
        self._native = _core.Loader(natives, mix=mix._mix if mix else None, staged=staged, **checked)
        entries = checked["fields"] or [("label", "", "label", None, "", checked["label_kind"])]
        pads = _pads.of_entries(pad, entries, tokens, is_compiled_for)
        self._batch_size = batch_size
        self._shapes = BatchShapes(
            self._native,
            self._torch,
            self._device,
            self._payload,
            self._hand_over,
            pads,
            {} if tokens else padding_of_values(entries),
            batch_size,
            functions,
        )
        if not functions:
            self._shapes.check_names(pad, entries)
        seeds = Seeds(checked["seed"], rank, world, mix is not None)
        self._rank, self._world = rank, world
        to_torch = self._torch is not None
        self._has_functions = functions
        work = None
        if functions or self._device:
            work = Work(function, collate_fn, batch_transform, to_torch, self._uri, seeds, pads)
        destination = destination_of(self._device, work, transfer, self._payload)
        make_stream = stream_maker(work, mapping, destination, self._hand_over, batch_size, self._remote)
        self._iteration = iteration_over(
            self._native,
            make_stream,
            self._torch.from_numpy if self._torch else None,
            self._hand_over,
            checked["epochs"],
            checked["shuffle"] != "none",
            self._is_empty,
        )
        self._last_stats: Mapping[str, Any] = {}
        self._options = (
            f"{tokens or f'{batch_size=}'}, shuffle={kind!r}, seed={checked['seed']}, rank {rank} of {world}"
        )

    def __len__(self) -> int:
        """Returns the number of batches of a whole epoch, which is the same for all ranks.

        Raises:
            TypeError: The first epoch is staged, and it is the next one or not over. A file beside the shards may count their samples: then there is no error.
                :meth:`estimated_len` tells about how many batches there are.
        """
        if self._is_empty:
            return 0
        steps = self._native.steps_per_epoch
        if (
            self._is_staged and self.epoch > 0 and steps == 0
        ):  # the first epoch has been delivered: its data set is whole
            step = self._batch_size * self._world
            steps = len(self._dataset) // step if self.drop_last else -(-len(self._dataset) // step)
        if self._is_staged and self.epoch == 0:
            if counted := self._native.counted_steps:
                return counted
            raise TypeError(
                f"{self._uri}: the length of a staged first epoch is not known before its end; it is about {self.estimated_len():,} "
                "(estimated_len()). With start='indexed' it is known from the start"
            )
        return steps

    def __bool__(self) -> bool:
        return self._is_staged or len(self) > 0

    def estimated_len(self) -> int:
        """Returns about how many batches an epoch has: ``len(loader)``, or in a staged epoch an estimate from its first stage. It does not wait."""
        return self._native.estimated_steps if self._is_staged else len(self)

    def __repr__(self) -> str:
        batches = f"about {self.estimated_len():,}" if self._is_staged else f"{len(self):,}"
        kind = ", staged" if self._is_staged else ""
        return f"<millrace.Loader {self._uri}: {batches} batches an epoch, {self._options}{kind}>"

    def __iter__(self) -> BatchIterator:
        return self._iteration.begin()

    def __getitem__(self, index: object) -> NoReturn:
        """Refuses: samples come in the loader's order. It is what torch's ``DataLoader`` would call."""
        raise UnsupportedError(
            "a Loader has no items: it is a stream of whole batches. If a torch DataLoader asked for this one, leave the DataLoader out "
            "and write `for batch in loader:`; batch_size, shuffle, seed and the like are options of millrace.Loader, and it needs no workers"
        )

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Returns the arguments that a program of torch asks its ``DataLoader`` for."""
            return _dataloader_names.attribute(self, name)

    def peek(self) -> Batch | None:
        """Returns the next batch without taking it, or None after the last one. The loader's next batches and its report do not change.

            print(loader.peek()["key"])

        A loader of its own reads and decodes the batch, and is closed again. So it is for looking at data, not for a loop of training.
        """
        return self._peek()

    def _peek(self, **changes: Any) -> Batch | None:
        if self._is_empty:
            return None
        given: dict[str, Any] = {
            "digest": None,
            "output": "torch" if self._torch else "numpy",
            "rank": self._rank,
            "world": self._world,
        }
        given["start"] = "staged" if self._is_staged else "indexed"
        with Loader(
            self._data if self._opened is None else self._opened, **{**self._given, **given, **changes}
        ) as other:
            other.load_state_dict(self._iteration.next_position)
            return None if other._iteration.is_used_up else next(iter(other), None)

    def _repr_html_(self) -> str:
        from ._contact_sheet import ContactSheet, page_of_text

        title = repr(self)
        try:
            batch = self._peek(device=None, as_tuple=None)
        except Error as error:
            return page_of_text(title, [("next batch", str(error))])
        return ContactSheet(batch, title).html if isinstance(batch, Mapping) else page_of_text(title, [])

    def shapes(self) -> list[dict[str, Shape]]:
        """Returns all shapes that batches have, as :class:`Shape` by the names of their arrays: one dict, or one for each bucket of tokens.

            print(loader.shapes()[0]["image"].shape)

        With ``last="short"``, the default, the last batch of an epoch has fewer rows. No other batch has another shape: a document that fits into none is
        split, truncated or refused before the first one, as
        :class:`Tokens` says, and images are resized.
        """
        return self._shapes.listed()

    def rehearse(self) -> Iterator[Batch]:
        """Yields one batch of padding for each of the :meth:`shapes`, so that programs can be compiled for all of them before they train.

            for batch in loader.rehearse():
                train_step(batch)

        It reads nothing, and does not change the batches that the loader delivers.
        """
        return self._shapes.rehearsed()

    @property
    def rows(self) -> list[Rows]:
        """A description of the rows of tokens of each length (in a Mix, of each part), as :class:`Rows`. It is empty without ``tokens``."""
        return cast("list[Rows]", self._native.rows())

    @property
    def padding(self) -> float:
        """The share of the places in the rows of an epoch that hold no tokens; what the last batch lacks comes on top. 0 without ``tokens``."""
        places = sum(rows["rows"] * rows["length"] for rows in self.rows)
        return 1 - sum(rows["tokens"] for rows in self.rows) / places if places else 0.0

    @property
    def dataset(self) -> Dataset | Mix:
        """The data set that it was made with. If a staged loader was given a URI, this opens the data set, and waits for its index."""
        return self._dataset

    @property
    def _dataset(self) -> Dataset | Mix:
        if self._opened is None:
            self._opened = opened_data(self._data)
        return self._opened

    @property
    def batch_size(self) -> int:
        """Rows of a batch of this rank; with buckets of tokens each bucket says how many."""
        return self._batch_size

    @property
    def drop_last(self) -> bool:
        """Says if the last batch of an epoch is left out unless it is full, as of torch's ``DataLoader``: with ``last="drop"``."""
        return bool(self._last == "drop")

    def _rows_of_last(self) -> int:
        """Returns the rows of the last received batch, before functions changed it."""
        rows = self._iteration.rows_of_last
        return self._batch_size if rows is None else rows

    @property
    def epoch(self) -> int:
        """Returns the epoch of the next batch, from 0."""
        return self._iteration.epoch

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next iterator, as samplers of torch do. It is not needed, since every loop is the next epoch.

        Report and digest begin again, unless the next iterator would be that epoch in any case.

        Args:
            epoch: The number of the epoch, from 0.
        """
        epoch = _arguments.integer("epoch", epoch, least=0)
        place = self._iteration.place
        position = start_of_epoch(place, epoch)
        if place != position:
            self._iteration.load(position)

    def reset(self) -> None:
        """Goes back to the beginning of the first epoch. Report and digest begin again."""
        self.set_epoch(0)

    @property
    def _stream(self) -> Stream | None:
        feed = self._iteration.feed
        return feed if isinstance(feed, Stream) else None

    def state_dict(self) -> State:
        """Returns the position after the last batch that was received, for :meth:`load_state_dict`.

            ckpt.save(step, {"model": model.state_dict(), "loader": loader.state_dict()})

        If several iterators are alive, the one that has delivered most since the last load counts. An iterator has a ``state_dict`` of its own, too.
        ``samples`` and ``digest`` are those of :meth:`report`: evidence, not needed to resume. The position of equally many batches is the
        same on all ranks, so the state of any rank serves all.
        """
        return self._iteration.state()

    def load_state_dict(self, state: State | str) -> None:
        """Makes the next iterator begin right after the last batch that the writer of ``state`` received. Report and digest begin again.

            loader.load_state_dict(ckpt.load()["loader"])

        The position alone, a string, is enough. Call it at any time, also after an error; an iterator that is alive keeps its own place.
        ``batch_size``,
        ``world``, ``memory`` and what is decoded may differ from the writer's; with buckets of tokens, batch size x world of each bucket
        may not.

        Args:
            state: The result of :meth:`state_dict`, or its ``position``.

        Raises:
            MismatchError: The position belongs to another data set, seed or shuffle. The loader stays as it was.
            InvalidArgumentError: Not a state of a loader, or of another version of Millrace. The loader stays as it was.
        """
        position = position_of(state)
        turns = self._start is None and is_staged(position) != self._is_staged
        if turns and option_for_whole(self._data, self._given.get("tokens"), self._given.get("workers")) is None:
            self._turn(position)
        else:
            self._iteration.load(position)

    def _turn(self, position: str) -> None:
        """Changes to the order of a position, since the program has not chosen one. If the position is refused, nothing changes."""
        start = "staged" if is_staged(position) else "indexed"
        other = Loader(self._data if self._opened is None else self._opened, **{**self._given, "start": start})
        other.load_state_dict(position)
        given = self._given
        self.__dict__.update(other.__dict__)
        self._given, self._start = given, None

    def report(self) -> Report:
        """Returns a :class:`Report` of the received samples and the waiting times, in all epochs since the last load.

            print(loader.report())  # shows it as a table

        An iterator that has delivered at most one batch counts as long as it is alive. The method works after :meth:`close`, too.
        """
        return cast(Report, Table(self._iteration.report()))

    def stats(self, prefix: str = "") -> dict[str, float]:
        """Numbers by name, for TensorBoard, W&B and MLflow: ``wandb.log(loader.stats("data/"), step=step)``.

        ``samples``, ``waited_seconds``, ``bad_samples``, ``odd_images``, ``tokens`` and ``padding_share`` (of rows of tokens), and ``cache_hit_share``
        are those of :meth:`report`. ``samples_per_second``, ``tokens_per_second``, ``waited_share`` and ``waited_share/CAUSE`` are of the time since
        the last call; 0 at first. Shares are from 0 to 1.

        Args:
            prefix: In front of each name.
        """
        report = self._iteration.report()
        numbers = flat(report, self._last_stats)
        self._last_stats = report
        return {prefix + name: number for name, number in numbers.items()}

    def close(self) -> None:
        """Stops prefetching and gives its memory back. Batches stay valid; a loop raises UsageError. May be called twice."""
        self._iteration.close()

    def __enter__(self) -> Loader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise UnsupportedError(
            "a Loader cannot be copied or sent to another process, such as a worker of a torch DataLoader, which it does not need; to use one elsewhere, "
            "send its Dataset (or URI) and state_dict(), and make the Loader there"
        )
