"""Saves Checkpoints that survive the death of their writer at any moment."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from . import _arguments, _best_checkpoints, _code_version, _core, _state, _tensors
from ._background_save import BackgroundSave
from ._errors import InvalidArgumentError, NotFoundError, UsageError
from ._meeting import Meeting, Retention, TorchBoard, save_together
from ._ranks import rank_and_world
from ._restore import Restore
from ._snapshot import Snapshot

__all__ = ["Checkpoints"]

_MOST_LOOKS = 20  # for a checkpoint that is not removed before it was read


def read_found(
    core: _core.Checkpoints,
    find: Callable[[], _core.Checkpoint],
    read: Callable[[_core.Checkpoint], Any],
    *,
    looks: int = _MOST_LOOKS,
) -> Any:
    """Returns the result of ``read`` for the checkpoint that ``find`` returns.

    Another process that still trains may remove or replace the checkpoint meanwhile. Then its successor is read.
    """
    advice = "read it again, or name the step of a checkpoint that remains"
    for look in range(looks):
        try:
            found = find()
        except NotFoundError as error:
            if look == 0:
                raise
            raise NotFoundError(f"the checkpoint was removed while it was read; {advice}: {error}") from error
        try:
            return read(found)
        except NotFoundError as error:
            if _is_there(core, found):
                raise
            missing = error
    raise NotFoundError(f"{core.uri}: step {found.step} was replaced while it was read; {advice}") from missing


def _is_there(core: _core.Checkpoints, found: _core.Checkpoint) -> bool:
    try:
        return core.find(found.step).attempt == found.attempt
    except NotFoundError:
        return False


class Checkpoints:
    """The checkpoints of a training, below one URI: S3, a folder, or a mounted file system.

        ckpt = millrace.Checkpoints("s3://bucket/run-7", keep=3)
        # At the start: continue from the newest checkpoint.
        if ckpt.latest() is not None:
            state = ckpt.load()
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            loader.load_state_dict(state["loader"])
        # In the training loop: save the state.
        ckpt.save(step, {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "loader": loader.state_dict()})

    A checkpoint is complete and verified by checksums, or it does not exist. If a process is killed at any moment of :meth:`save`,
    the earlier checkpoints remain. A process may be believed dead while it still runs, for example on a node that lost its network.
    Such a process cannot commit once its successor has claimed the checkpoints (docs/checkpoints.md).

    Tensors of torch and arrays of numpy are stored as safetensors, one file for each item at the top of the state
    (``model.safetensors``). Every tool for safetensors reads these files. The rest is stored as JSON, from which integer keys, tuples
    and None are restored unchanged. Nothing is pickled unless the caller asks for it.

    With several ranks (DDP), the model, the optimizer and the position of the loader are the same on all ranks.
    Rank 0 saves them, and on other ranks :meth:`save` returns at once. All ranks load. Let rank 0 choose the step, so that all ranks
    load the same checkpoint::

        chosen = [ckpt.latest()]
        torch.distributed.broadcast_object_list(chosen)
        if chosen[0] is not None:
            state = ckpt.load(chosen[0])

    With ``all_ranks=True`` each rank writes a part of that state, and also its own state: shards of FSDP2 (DTensors), and ``per_rank=``.
    All ranks then call :meth:`save`, :meth:`latest` and :meth:`load` in the same order, and rank 0 chooses the step by itself.

    Only one process can commit: the one that claimed last. Rank 0 claims with its first :meth:`save`, or by :meth:`claim`.
    If ``millrace run --checkpoint`` has started it with this URI, it claims with its first call of any kind.

    The class is thread-safe. Do not use an object in a fork of its process.

    Args:
        uri: The place of the checkpoints: ``s3://bucket/prefix`` or a folder. None: the URI that was given to
            ``millrace run --checkpoint``, which is the environment variable ``MILLRACE_CHECKPOINT``.
        keep: How many of the newest checkpoints remain. Older ones are removed once a newer one is committed. None: all (10,000 at most).
        keep_every: Checkpoints whose step is a multiple of this number remain as well. None: no further checkpoints.
        keep_best: This many of the checkpoints with the best ``metric`` of :meth:`save` remain as well. :meth:`best` returns the step
            of the first. None: no further checkpoints.
        best_mode: ``"max"``: the largest metric is the best, as for accuracies. ``"min"``: the smallest one is, as for losses.
        save_interval_steps: The number of steps from one checkpoint to the next, for :meth:`should_save`. None: :meth:`should_save` raises.
        rank: The number of this process. None: the rank of ``torch.distributed`` if it is initialized, else that of the environment
            (``RANK``), else 0. If ``rank`` is 0 and these sources give another number, the process claims only with its first :meth:`save`.
        all_ranks: True: all ranks save. If there are several, ``torch.distributed`` must be initialized, with any backend.
        patience: The time, in seconds, that a rank waits for another rank in a save of all ranks. Then it raises an error that names
            the other rank.
        snapshot_memory: The bytes of host memory that the copy for ``asynchronous=True`` may take. None: as many as the tensors have.
            Files of a larger state are written before :meth:`save` returns. With ``all_ranks`` these are all files that this rank writes.
        code: True: each checkpoint records the code that ran. Its file ``code.json`` has the commit of the git repository of the
            program's main file, and the first 256 KiB of ``git diff``, which shows only files that git tracks.

    Raises:
        InvalidArgumentError: An argument has no valid value, or contradicts another one.
    """

    def __init__(
        self,
        uri: str | os.PathLike[str] | None = None,
        *,
        keep: int | None = None,
        keep_every: int | None = None,
        keep_best: int | None = None,
        best_mode: Literal["max", "min"] = "max",
        save_interval_steps: int | None = None,
        rank: int | None = None,
        all_ranks: bool = False,
        patience: float = 1800.0,
        snapshot_memory: int | None = None,
        code: bool = False,
    ) -> None:
        job_uri = os.environ.get("MILLRACE_CHECKPOINT")
        if uri is None and not job_uri:
            raise InvalidArgumentError(
                "uri is None and MILLRACE_CHECKPOINT is not set; give a URI, or start the program by `millrace run`"
            )
        given = _arguments.uri("uri", job_uri if uri is None else uri)
        self._keep = 0 if keep is None else _arguments.integer("keep", keep, least=1)
        self._keep_every = 0 if keep_every is None else _arguments.integer("keep_every", keep_every, least=1)
        if self._keep_every and not self._keep:
            raise InvalidArgumentError(
                "keep_every names checkpoints that remain besides the newest: give keep, too, or neither"
            )
        self._keep_best = 0 if keep_best is None else _arguments.integer("keep_best", keep_best, least=1)
        if self._keep_best and not self._keep:
            raise InvalidArgumentError(
                "keep_best names checkpoints that remain besides the newest: give keep, too, or neither"
            )
        self._interval = (
            None
            if save_interval_steps is None
            else _arguments.integer("save_interval_steps", save_interval_steps, least=1)
        )
        self._rank, world = rank_and_world(None, None)
        if rank is not None:
            self._rank = _arguments.integer("rank", rank, least=0)
        self._core = _core.Checkpoints(given)
        self._metrics = _best_checkpoints.Metrics(self._core, _arguments.choice("best_mode", best_mode, ("max", "min")))
        patience = _arguments.number("patience", patience)
        self._meeting = (
            _meeting(self._core.uri, self._rank, world, patience)
            if _arguments.flag("all_ranks", all_ranks) and world > 1
            else None
        )
        self._code = _code_version.code_version() if _arguments.flag("code", code) and self._rank == 0 else None
        self._claims_at_once = (
            bool(job_uri) and self._rank == 0 and _core.Checkpoints(str(job_uri)).uri == self._core.uri
        )
        self._snapshot_memory = (
            None if snapshot_memory is None else _arguments.integer("snapshot_memory", snapshot_memory, least=1)
        )
        self._snapshot = Snapshot(self._snapshot_memory)
        # Held by a save until it returns: there is one copy, which the one before must have written. The handler of a signal may save, too.
        self._saving = threading.RLock()
        self._is_saving = False
        self._lock = threading.RLock()  # of what follows
        self._background: BackgroundSave | None = None

    @property
    def uri(self) -> str:
        """Returns the place of the checkpoints, with a '/' at its end."""
        return self._core.uri

    def latest(self) -> int | None:
        """Returns the step of the newest checkpoint, or None if there is no checkpoint.

        The newest checkpoint is the one that was committed last, even if another one has a larger step. With ``all_ranks``, all
        ranks get the step that rank 0 sees.

        Raises:
            NotFoundError: The bucket does not exist.
        """

        def newest() -> int | None:
            steps = self._core.steps()
            return steps[-1] if steps else None

        step: int | None = self._as_rank_0_says(newest)
        return step

    def steps(self) -> list[int]:
        """Returns the steps of all checkpoints in the order in which they were committed. The last one is the newest."""
        self._begin()
        return self._core.steps()

    def best(self) -> int | None:
        """Returns the step of the checkpoint with the best metric (``best_mode``), or None if no checkpoint has a metric.

        If several metrics are equal, the newest checkpoint counts. With ``all_ranks``, all ranks get the step that rank 0 sees.
        """

        def found() -> int | None:
            steps = self._metrics.best(1)
            return steps[0] if steps else None

        step: int | None = self._as_rank_0_says(found)
        return step

    def should_save(self, step: int) -> bool:
        """Says if a checkpoint is due: the step is a multiple of ``save_interval_steps``, and not 0.

        The answer depends only on the step, so that all ranks get the same one::

            if ckpt.should_save(step):
                ckpt.save(step, {"model": model.state_dict(), "loader": loader.state_dict()})

        Args:
            step: The number of the step, from 0.

        Raises:
            UsageError: The object has no ``save_interval_steps``.
        """
        if self._interval is None:
            raise UsageError("should_save is for Checkpoints with save_interval_steps")
        step = _arguments.integer("step", step, least=0)
        return step > 0 and step % self._interval == 0

    def load(
        self,
        step: int | None = None,
        *,
        into: Any = None,
        only: list[str] | None = None,
        map_location: Any = None,
        allow_pickle: bool = False,
    ) -> Any:
        """Returns the state of a checkpoint. Only the needed bytes are read, and all of them are verified.

        Tensors of torch are returned as tensors, on the CPU unless ``map_location`` names another device. If torch is not installed,
        they are returned as arrays. With ``into`` they are read directly into existing tensors::

            ckpt.load(into={"model": model.state_dict()}, only=["model"])

        Args:
            step: The step of the checkpoint. None: the newest one.
            into: A state like the one that was saved, or items of its top. Its tensors and arrays are filled and returned. For DTensors,
                each rank reads its own part, for every number of ranks that saved. Names, types and shapes must be those of the
                checkpoint. Items that it lacks at the top, and values that are not tensors, are returned as without ``into``. None: no
                tensors are filled.
            only: The names of the items of the top to load, such as ``["model"]``. None: all.
            map_location: A device of torch, such as ``"cuda"``, for tensors that are not in ``into``. None: the CPU.
            allow_pickle: True: read values that were saved with ``allow_pickle=True``. Everyone who can write the checkpoint can then run
                any code in this process.

        Raises:
            NotFoundError: There is no checkpoint (of this step).
            DamagedDataError: Bytes are not those that were saved; another step may be whole.
            InvalidArgumentError: The checkpoint holds pickles; ``into`` does not fit; or there is no item that ``only`` names. After an
                error, tensors of ``into`` may have been filled.
        """
        allow_pickle = _arguments.flag("allow_pickle", allow_pickle)
        wanted = None if only is None else _arguments.texts("only", only, "a list of names")

        def read(found: _core.Checkpoint) -> Any:
            restore = Restore(found, allow_pickle=allow_pickle, map_location=map_location)
            return restore.run(restore.json(), only=wanted, into=into)

        return self._read(step, read)

    def describe(self, step: int | None = None) -> Any:
        """Returns the state of a checkpoint with a pair of type and shape in place of each tensor: ``("F32", (4, 2))``.

        Types have the names of safetensors. The tensors are not read, and nothing is unpickled.

        Args:
            step: The step of the checkpoint. None: the newest one.

        Raises:
            NotFoundError: There is no checkpoint (of this step).
        """
        return self._read(step, lambda found: Restore(found, allow_pickle=False).describe())

    def load_per_rank(self, step: int | None = None, *, rank: int | None = None, allow_pickle: bool = False) -> Any:
        """Returns the state that a rank gave as ``per_rank=`` of :meth:`save`::

            own = ckpt.load_per_rank()
            if own is not None:
                millrace.set_rng_state(own["rng"])

        The result is None if the rank gave no state, for example because fewer ranks saved.

        Args:
            step: The step of the checkpoint. None: the newest one.
            rank: The number of the rank. None: this one.
            allow_pickle: As for :meth:`load`.

        Raises:
            NotFoundError: There is no checkpoint (of this step).
            DamagedDataError: Bytes are not those that were saved.
        """
        allow_pickle = _arguments.flag("allow_pickle", allow_pickle)
        number = self._rank if rank is None else _arguments.integer("rank", rank, least=0)
        name = f"{_rank_group(number)}.json"

        def read(found: _core.Checkpoint) -> Any:
            if all(shard != name for shard, _ in found.shards):
                return None
            restore = Restore(found, allow_pickle=allow_pickle)
            return restore.run(restore.json(name))

        return self._read(step, read)

    def save(
        self,
        step: int,
        state: Any,
        *,
        metric: float | None = None,
        per_rank: Any = None,
        asynchronous: bool = False,
        allow_pickle: bool = False,
    ) -> None:
        """Saves a state as the newest checkpoint. It replaces an earlier checkpoint of the same step.

            ckpt.save(step, {"model": model.state_dict(), "loader": loader.state_dict()}, metric=accuracy)

        Tensors in the memory of the host are written from there, without a copy. Tensors on devices, and small ones, are copied in pieces
        of 8 MiB. These copies take at most 64 MiB, or the size of a tensor on the host that is not contiguous.

        Args:
            step: 0 to 999,999,999,999; usually the number of steps so far. It may be less than the step of the newest checkpoint.
            state: Dicts, lists, tuples, sets, strings, bytes, numbers, None, tensors of torch and arrays of numpy. Usually it is a dict of
                the results of ``state_dict()``. With ``all_ranks`` it has the same tensors on all ranks, and each rank writes a part of
                them. DTensors are stored whole: each rank writes its own shard. All other values are stored from rank 0.
            metric: A number that measures the quality of the model, such as its accuracy, for ``keep_best`` and :meth:`best`. The number of
                rank 0 counts. None, NaN and infinite numbers: the checkpoint has no metric.
            per_rank: Another state, which belongs to this rank alone, such as ``{"rng": millrace.rng_state()}``. :meth:`load_per_rank`
                returns it. Without ``all_ranks`` only the one of rank 0 is stored. None: no such state.
            asynchronous: True: copy all tensors, return, and write the copy while the training continues. The next call of any method, or
                :meth:`wait`, raises the error of a failed save. A save waits for the one before. So there is one copy at most, of at most
                ``snapshot_memory`` bytes, and its memory is kept for the next one.
            allow_pickle: True: pickle values that are neither plain data nor tensors. False: such a value raises InvalidArgumentError.

        Raises:
            InvalidArgumentError: Something in the state cannot be stored; the message names its place. Nothing was written.
            MismatchError: Another process has claimed the checkpoints, so that this one must stop. Or the tensors differ between ranks.
            UnavailableError: The store kept failing, or a rank did not answer. The checkpoints are unchanged, unless the message says
                that this is not known.
        """
        step = _arguments.integer("step", step, least=0)
        number = _best_checkpoints.checked(metric)
        asynchronous = _arguments.flag("asynchronous", asynchronous)
        allow_pickle = _arguments.flag("allow_pickle", allow_pickle)
        with self._saving:
            nested, self._is_saving = self._is_saving, True
            snapshot = Snapshot(self._snapshot_memory) if nested else self._snapshot
            try:
                self.wait()
                self._save(step, state, number, per_rank, snapshot if asynchronous else None, allow_pickle)
            finally:
                self._is_saving = nested

    def _retention(self, step: int, metric: float | None) -> Retention:
        """Returns the rules of retention that apply once this step is committed with that metric."""
        best = self._metrics.best(self._keep_best, (step, metric)) if self._keep_best else []
        return self._keep, self._keep_every, best

    def _save(
        self,
        step: int,
        state: Any,
        metric: float | None,
        per_rank: Any,
        snapshot: Snapshot | None,
        allow_pickle: bool,
    ) -> None:
        """Saves a state. An asynchronous save has a ``snapshot``."""
        if self._meeting is not None:
            self._save_together(self._meeting, step, state, metric, per_rank, snapshot, allow_pickle)
            return
        if self._rank != 0:
            return
        work = _Work(state, per_rank, 0, 1, self._beside(metric), allow_pickle)
        retention = self._retention(step, metric)
        if snapshot is None:
            self._core.save(step, work.all_shards(), *retention)
            return
        rest = work.copy(snapshot)
        if not rest:
            self._in_background(lambda: self._core.save(step, work.all_shards(), *retention))
            return
        begun = self._core.begin(step, *retention)
        uploaded = [self._upload(step, begun, rest)]

        def finish() -> None:
            uploaded.append(self._upload(step, begun, work.all_shards()))
            self._core.finish(begun, uploaded)

        self._in_background(finish, begun)

    def _upload(self, step: int, begun: _core.CheckpointSave, shards: _state.Shards) -> str:
        try:
            return self._core.upload(step, begun.attempt, shards)
        except BaseException:
            self._core.abandon(begun)
            raise

    def _beside(self, metric: float | None) -> dict[str, bytes]:
        """Returns the small files that are stored beside the state."""
        beside = {} if self._code is None else {_code_version.NAME: self._code}
        if metric is not None:
            beside[_best_checkpoints.NAME] = _best_checkpoints.as_file(metric)
        return beside

    def _save_together(
        self,
        meeting: Meeting,
        step: int,
        state: Any,
        metric: float | None,
        per_rank: Any,
        snapshot: Snapshot | None,
        allow_pickle: bool,
    ) -> None:
        saving = meeting.begin()
        work: _Work | BaseException
        retention: Retention = (self._keep, self._keep_every, [])
        try:
            work = _Work(state, per_rank, meeting.rank, meeting.world, self._beside(metric), allow_pickle)
            if meeting.rank == 0:
                retention = self._retention(step, metric)
            if snapshot is not None and not snapshot.holds(work.shards()):
                snapshot = None
            if snapshot is not None:
                work.copy(snapshot)
        except Exception as error:  # which all ranks must hear of
            work = error
        if snapshot is None:
            save_together(self._core, saving, step, work, retention)
            return
        self._in_background(lambda: save_together(self._core, saving, step, work, retention))

    def _in_background(self, call: Callable[[], None], begun: _core.CheckpointSave | None = None) -> None:
        """Runs the call in the background. If the call never runs, the save ``begun`` is abandoned."""
        background = BackgroundSave(call)
        try:
            with self._lock:
                # The handler of a signal may save, again and again. No signal comes between the last look and the assignment, since
                # CPython looks for signals at calls and jumps back (since 3.10). A signal that comes later finds this save.
                while self._background is not None:
                    self.wait()
                self._background = background
                background.start()
        except BaseException:
            if background.cancel():
                with self._lock:
                    if self._background is background:
                        self._background = None
                if begun is not None:
                    self._core.abandon(begun)
            raise

    def wait(self) -> None:
        """Returns when the last save is committed, or raises its error. Call it at the end of a training."""
        with self._lock:
            background = self._background
        if background is None:
            return
        background.join()  # if a signal interrupts it, the save continues, and the next call waits for it
        with self._lock:
            if self._background is background:
                self._background = None
        background.raise_error()

    def claim(self) -> int:
        """Makes this process the only one that may commit, and removes incomplete files that killed processes have left.

        A job that ``millrace run`` restarts does not need it. In other jobs, call it at the start, on rank 0, before :meth:`latest`.
        On other ranks it does nothing::

            ckpt.claim()
            step = ckpt.latest()

        Returns:
            The number of the claim, which is greater than the numbers of all earlier claims; 0 on other ranks.
        """
        self.wait()
        epoch = self._core.claim() if self._rank == 0 else 0
        self._claims_at_once = False  # unless it failed
        return epoch

    def _begin(self) -> None:
        self.wait()
        # `rank` may say 0 on each rank, for a caller that saves on one alone: a peer that only loads must not fence that one off.
        if self._claims_at_once and rank_and_world(None, None)[0] == 0:
            self.claim()

    def _found(self, step: int | None) -> _core.Checkpoint:
        if step is None and self._meeting is not None:
            step = self._as_rank_0_says(lambda: self._core.find(None).step)
        else:
            self._begin()
        return self._core.find(None if step is None else _arguments.integer("step", step, least=0))

    def _read(self, step: int | None, read: Callable[[_core.Checkpoint], Any]) -> Any:
        """Returns the result of ``read`` for a checkpoint. Ranks that meet all read the same one."""
        looks = _MOST_LOOKS if self._meeting is None else 1
        return read_found(self._core, lambda: self._found(step), read, looks=looks)

    def _as_rank_0_says(self, ask: Callable[[], Any]) -> Any:
        """Returns the answer that rank 0 gets. Without a meeting, each rank asks for itself."""
        if self._meeting is None:
            self._begin()
            return ask()
        self.wait()
        asking = self._meeting.begin()
        if self._rank != 0:
            return asking.hear("plan")
        try:
            self._begin()
            told = ask()
        except BaseException as error:
            asking.say_failed("plan", error)
            raise
        asking.say("plan", told)
        return told

    def __repr__(self) -> str:
        return f"millrace.Checkpoints({self.uri!r}, keep={self._keep or None})"


class _Work:
    """Represents the files that one rank writes: its part of the common state, and its own state."""

    def __init__(
        self, state: Any, per_rank: Any, rank: int, world: int, beside: dict[str, bytes], allow_pickle: bool
    ) -> None:
        """``beside`` holds small files that are not part of the state."""
        self._state = _state.Encoded(state, allow_pickle=allow_pickle)
        self._shards, self._chunks = self._state.files(rank, world)
        if per_rank is not None:
            own = _state.Encoded(per_rank, allow_pickle=allow_pickle, group=_rank_group(rank))
            shards, chunks = own.files()
            self._shards += [*shards, own.state_file([chunks])]
        self._beside = beside
        self.fingerprint = self._state.fingerprint()
        _tensors.finish_devices(piece for _, pieces in self._shards for piece in pieces)

    def copy(self, snapshot: Snapshot) -> _state.Shards:
        """Copies the tensors, so that the caller may change them.

        The returned files were not copied. They must be written before their tensors change, and they are no longer part of ``shards``.
        """
        self._shards, rest = snapshot.copy(self._shards)
        return rest

    def shards(self) -> _state.Shards:
        return self._shards

    def chunks(self) -> _state.Chunks:
        return self._chunks

    def last_shards(self, chunks: list[_state.Chunks]) -> _state.Shards:
        files: _state.Shards = [(name, [np.frombuffer(text, np.uint8)]) for name, text in self._beside.items()]
        return [*files, self._state.state_file(chunks)]

    def all_shards(self) -> _state.Shards:
        """Returns all files, if there is only one rank."""
        return [*self._shards, *self.last_shards([self._chunks])]


def _rank_group(rank: int) -> str:
    return f"rank-{rank:05}"


_opened: dict[str, int] = {}  # the Checkpoints with a meeting so far, by URI: it keeps their messages apart


def _meeting(uri: str, rank: int, world: int, patience: float) -> Meeting:
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        raise InvalidArgumentError(
            f"all_ranks=True, and this is rank {rank} of {world}: the ranks find each other by torch.distributed; call "
            "torch.distributed.init_process_group first"
        )
    _opened[uri] = _opened.get(uri, 0) + 1
    return Meeting(TorchBoard(), f"{uri}#{_opened[uri]}", rank, world, patience)
