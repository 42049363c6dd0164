"""Storage classes for torch.distributed.checkpoint (DCP) with the commit protocol of ``millrace.Checkpoints``."""

from __future__ import annotations

import dataclasses
import io
import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.storage import StorageReader as DcpStorageReader
from torch.distributed.checkpoint.storage import StorageWriter as DcpStorageWriter
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from . import _arguments, _core, _tensors
from ._boxes import Box
from ._errors import DamagedDataError, InvalidArgumentError, MismatchError, UnsupportedError
from ._restore import Reads, Restore, Target

if TYPE_CHECKING:
    from typing_extensions import Self

NAME = "dcp.json"  # what DCP calls its metadata
_FORMAT, _VERSION = "millrace-dcp", 1


class StorageWriter(DcpStorageWriter):
    """Represents a place to which ``torch.distributed.checkpoint`` saves.

    Its checkpoints are like those of :class:`millrace.Checkpoints`: complete or absent, verified, and only one process can commit::

        import torch.distributed.checkpoint as dcp

        dcp.save(state, storage_writer=millrace.torch.StorageWriter("s3://bucket/run-7", step=1200, keep=3))

    Each rank writes one file of safetensors below a folder of the attempt. Then the coordinator commits. If a save fails or is killed on any
    rank, the earlier checkpoints remain. ``dcp.async_save`` works in the same way, also with ``AsyncCheckpointerType.PROCESS``. The
    coordinator claims the checkpoints with the first save of its process (docs/checkpoints.md). Later writers of the same URI in this
    process keep that claim.

    Values that are not tensors are pickled by DCP itself, and unpickled by ``dcp.load``. The second save refuses planners that keep plans
    from save to save (``enable_plan_caching=True``).

    Args:
        uri: The place of the checkpoints: ``s3://bucket/prefix`` or a folder.
        step: The step of the next checkpoint. None: it is given as ``dcp.save(..., checkpoint_id="1200")``.
        keep, keep_every: As for :class:`millrace.Checkpoints`.

    Raises:
        InvalidArgumentError: An argument has no valid value.
        MismatchError: Another process has claimed the checkpoints. A save raises it.
    """

    def __init__(
        self,
        uri: str | os.PathLike[str],
        *,
        step: int | None = None,
        keep: int | None = None,
        keep_every: int | None = None,
    ) -> None:
        self._core = _writer_of(_arguments.uri("uri", uri))
        self._step = None if step is None else _arguments.integer("step", step, least=0)
        self._keep = 0 if keep is None else _arguments.integer("keep", keep, least=1)
        self._keep_every = 0 if keep_every is None else _arguments.integer("keep_every", keep_every, least=1)
        if self._keep_every and not self._keep:
            raise InvalidArgumentError(
                "keep_every names checkpoints that remain besides the newest: give keep, too, or neither"
            )
        self._save: Any = None  # the coordinator's save that has begun and not ended

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id is not None:
            self._step = _step_of(checkpoint_id)
        self._abandon()

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        if not kwargs.get("use_collectives", True):
            raise UnsupportedError(
                "a checkpoint of all ranks is committed once: save with use_collectives=True, which is the default"
            )

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        if self._step is None:
            raise InvalidArgumentError(
                "the step is not known: give StorageWriter(uri, step=...), or checkpoint_id='1200' with each save"
            )
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        assert self._step is not None
        self._abandon()
        if not all(getattr(plan, "usable", True) for plan in plans):
            # The ranks would use plans of an earlier save, which name the folder of its attempt, and overwrite its files.
            raise UnsupportedError(
                f"{self._core.uri}: the SavePlanner keeps plans from save to save, which StorageWriter does not support; give a "
                "DefaultSavePlanner with enable_plan_caching=False, which is the default"
            )
        self._save = self._core.begin(self._step, self._keep, self._keep_every)
        attempt = {"step": self._step, "attempt": self._save.attempt}
        return [
            dataclasses.replace(plan, storage_data={**attempt, "shard": f"rank-{rank:05}.safetensors"})
            for rank, plan in enumerate(plans)
        ]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        results: list[WriteResult] = []
        if plan.items:
            where = plan.storage_data
            stored = _unique([_stored(item, planner) for item in plan.items])
            pieces, places = _tensors.encode(stored, of_torch=True)
            _tensors.finish_devices(pieces)
            uploaded = self._core.upload(where["step"], where["attempt"], [(where["shard"], pieces)])
            for item, one in zip(plan.items, stored):
                place = {"shard": where["shard"], "offset": places[one.name], "bytes": one.data.size}
                results.append(WriteResult(item.index, one.data.size, place))
            results[0].storage_data["uploaded"] = uploaded
        done: Future[list[WriteResult]] = Future()
        done.set_result(results)
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        assert self._step is not None
        places: dict[MetadataIndex, dict[str, Any]] = {}
        uploaded = []
        for result in (result for of_rank in results for result in of_rank):
            place = dict(result.storage_data)
            if "uploaded" in place:
                uploaded.append(place.pop("uploaded"))
            places[result.index] = place
        try:
            text = np.frombuffer(json.dumps(_to_json(metadata, places), separators=(",", ":")).encode(), np.uint8)
            uploaded.append(self._core.upload(self._step, self._save.attempt, [(NAME, [text])]))
        except BaseException:
            self._abandon()
            raise
        save, self._save = self._save, None
        self._core.finish(save, uploaded)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return os.fspath(checkpoint_id).isdecimal()

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state for ``AsyncCheckpointerType.PROCESS``, which saves in a process of its own. That process claims the checkpoints."""
        if self._save is not None:
            raise UnsupportedError(
                f"{self._core.uri}: a StorageWriter that saves at this moment cannot go to another process"
            )
        return {"uri": self._core.uri, "step": self._step, "keep": self._keep, "keep_every": self._keep_every}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._core = _writer_of(state["uri"])
        self._step, self._keep, self._keep_every = state["step"], state["keep"], state["keep_every"]
        self._save = None

    def _abandon(self) -> None:
        """Abandons a save that failed on some rank. The coordinator learns about the failure only at its next call."""
        save, self._save = self._save, None
        if save is not None:
            self._core.abandon(save)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._abandon()


class StorageReader(DcpStorageReader):
    """A place from which ``torch.distributed.checkpoint`` loads checkpoints of :class:`StorageWriter`, with any number of ranks::

        dcp.load(state, storage_reader=millrace.torch.StorageReader("s3://bucket/run-7"))

    Each rank reads only the bytes that its parts need, and verifies them. ``bytes_read`` and ``bytes_needed`` count the bytes of the last load.

    Args:
        uri: As for :class:`StorageWriter`.
        step: The step of the checkpoint. It may also be given as ``dcp.load(..., checkpoint_id="1200")``. None: the newest one.

    Raises:
        NotFoundError: There is no checkpoint (of this step).
        DamagedDataError: Bytes are not those that were saved.
    """

    def __init__(self, uri: str | os.PathLike[str], *, step: int | None = None) -> None:
        self._core = _core.Checkpoints(_arguments.uri("uri", uri))
        self._step = None if step is None else _arguments.integer("step", step, least=0)
        self._found: _core.Checkpoint | None = None
        self._places: dict[MetadataIndex, dict[str, Any]] = {}
        self.bytes_read = 0
        self.bytes_needed = 0

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id is not None:
            self._step = _step_of(checkpoint_id)
        self.bytes_read = self.bytes_needed = 0

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        self._found = self._core.find(self._step)
        if all(name != NAME for name, _ in self._found.shards):
            raise InvalidArgumentError(
                f"{self._core.uri}: step {self._found.step} was not saved by torch.distributed.checkpoint; load it by millrace.Checkpoints"
            )
        metadata, self._places = _from_json(Restore(self._found, allow_pickle=False).json(NAME))
        return metadata

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        pass

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        assert self._found is not None
        plan.storage_data = self._found.attempt
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        if len({plan.storage_data for plan in plans}) > 1:
            raise MismatchError(
                f"{self._core.uri}: a checkpoint was committed while the ranks looked for the newest one; give step="
            )
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        assert self._found is not None
        reads = Reads(self._found)
        numbers = {name: number for number, (name, _) in enumerate(self._found.shards)}
        pickles: list[tuple[ReadItem, _tensors.Bytes]] = []
        tensors: list[tuple[ReadItem, torch.Tensor]] = []
        for item in plan.items:
            place = self._places[item.storage_index]
            shard = numbers[place["shard"]]
            if item.type == LoadItemType.BYTE_IO:
                data = np.empty(place["bytes"], np.uint8)
                reads.add_bytes(shard, place["offset"], data)
                pickles.append((item, data))
                continue
            target = planner.resolve_tensor(item)
            wanted = Box(tuple(item.storage_offsets), tuple(item.lengths))
            if tuple(target.shape) != wanted.shape or _tensors.torch_type(target) != place["dtype"]:
                raise InvalidArgumentError(
                    f"{item.storage_index.fqn} of the checkpoint is {place['dtype']}, the part of it {wanted.shape}; that of the state is "
                    f"{_tensors.torch_type(target)}, {tuple(target.shape)}"
                )
            self.bytes_needed += wanted.size * target.element_size()
            if wanted.size:
                reads.add(
                    shard,
                    place["offset"],
                    Box.whole(tuple(place["shape"])),
                    wanted,
                    Target(target.detach(), wanted),
                    place["dtype"],
                )
            tensors.append((item, target))
        reads.flush()
        for item, target in tensors:
            planner.commit_tensor(item, target)
        for item, data in pickles:
            planner.load_bytes(item, io.BytesIO(data.tobytes()))
        self.bytes_read += reads.bytes_read
        done: Future[None] = Future()
        done.set_result(None)
        return done

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return os.fspath(checkpoint_id).isdecimal()


# These are the claims of this process, which its writers share. Otherwise each writer would fence off the one before it, and a process that
# is believed dead would fence off its successor.
_writers: dict[tuple[int, str], _core.Checkpoints] = {}


def _writer_of(uri: str) -> _core.Checkpoints:
    made = _core.Checkpoints(uri)
    return _writers.setdefault((os.getpid(), made.uri), made)


def _step_of(checkpoint_id: str | os.PathLike[str]) -> int:
    text = os.fspath(checkpoint_id)
    if not text.isdecimal():
        raise InvalidArgumentError(
            f"checkpoint_id is {text!r}; it must be the step, such as '1200'. The URI is given to the StorageWriter or StorageReader"
        )
    return int(text)


def _stored(item: WriteItem, planner: SavePlanner) -> _tensors.Stored:
    data = planner.resolve_data(item)
    if item.type == WriteItemType.BYTE_IO:
        assert isinstance(data, io.BytesIO)
        array = np.frombuffer(data.getbuffer(), np.uint8)
        return _tensors.Stored(item.index.fqn, "U8", array.shape, array)
    assert isinstance(data, torch.Tensor)
    kind = _tensors.torch_type(data)
    if kind is None or data.layout is not torch.strided:
        raise InvalidArgumentError(
            f"{item.index.fqn} is a tensor of {data.dtype} ({data.layout}), which safetensors does not hold"
        )
    offset = tuple(item.index.offset or ())
    whole = item.tensor_data is None or tuple(item.tensor_data.size) == tuple(data.shape)
    name = item.index.fqn if whole else f"{item.index.fqn}@{','.join(map(str, offset))}"
    return _tensors.Stored(name, kind, tuple(data.shape), _tensors.torch_piece(data))


def _unique(stored: list[_tensors.Stored]) -> list[_tensors.Stored]:
    names = {"__metadata__"}
    for one in stored:
        while one.name in names:
            one.name += "'"
        names.add(one.name)
    return stored


def _to_json(metadata: Metadata, places: dict[MetadataIndex, dict[str, Any]]) -> dict[str, Any]:
    tensors: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for fqn, entry in metadata.state_dict_metadata.items():
        if isinstance(entry, BytesStorageMetadata):
            others[fqn] = places[MetadataIndex(fqn)]
            continue
        chunks = [
            {"begin": [*chunk.offsets], "shape": [*chunk.sizes], **places[MetadataIndex(fqn, chunk.offsets)]}
            for chunk in entry.chunks
        ]
        dtype = str(entry.properties.dtype).removeprefix("torch.")
        tensors[fqn] = {
            "dtype": dtype,
            "requires_grad": entry.properties.requires_grad,
            "shape": [*entry.size],
            "chunks": chunks,
        }
    made: dict[str, Any] = {"format": _FORMAT, "version": _VERSION, "tensors": tensors, "bytes": others}
    if metadata.planner_data is not None:
        if not isinstance(metadata.planner_data, dict):
            raise UnsupportedError(
                "the SavePlanner leaves planner_data that is not a dict of paths; use one that derives from DefaultSavePlanner"
            )
        made["paths"] = {fqn: [*path] for fqn, path in metadata.planner_data.items()}
    return made


def _from_json(found: Any) -> tuple[Metadata, dict[MetadataIndex, dict[str, Any]]]:
    entries: dict[str, Any] = {}
    places: dict[MetadataIndex, dict[str, Any]] = {}
    try:
        if (found["format"], found["version"]) != (_FORMAT, _VERSION):
            raise UnsupportedError(
                f"{NAME} is {found['format']} {found['version']}, which this Millrace does not know; use a newer one"
            )
        for fqn, entry in found["tensors"].items():
            dtype = getattr(torch, entry["dtype"])
            kind = _tensors.torch_type(torch.empty(0, dtype=dtype))
            chunks = []
            for number, chunk in enumerate(entry["chunks"]):
                offsets, sizes = torch.Size(chunk["begin"]), torch.Size(chunk["shape"])
                chunks.append(ChunkStorageMetadata(offsets, sizes))
                places[MetadataIndex(fqn, offsets, number)] = {**chunk, "dtype": kind}
            properties = TensorProperties(dtype=dtype, requires_grad=entry["requires_grad"])
            entries[fqn] = TensorStorageMetadata(properties, torch.Size(entry["shape"]), chunks)
        for fqn, place in found["bytes"].items():
            entries[fqn] = BytesStorageMetadata()
            places[MetadataIndex(fqn)] = place
        paths = {fqn: tuple(path) for fqn, path in found["paths"].items()} if "paths" in found else None
    except (KeyError, TypeError, AttributeError) as error:
        raise DamagedDataError(f"{NAME} does not describe the state: {error!r}") from None
    return Metadata(entries, planner_data=paths), places
