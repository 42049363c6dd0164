"""Checkpoints that survive the death of their writer at any moment."""

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


class Checkpoints:
    """The checkpoints of a training, below one URI: S3, a folder, or a mounted file system.

        ckpt = millrace.Checkpoints("s3://bucket/run-7", keep=3)
        if ckpt.latest() is not None:
            state = ckpt.load()
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            loader.load_state_dict(state["loader"])
        ...
        ckpt.save(step, {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "loader": loader.state_dict()})

    A checkpoint is whole, verified by checksums, or not there: a process that is killed at any moment of :meth:`save` leaves the
    checkpoints that there were. A process that is believed dead and is not, such as one on a node that lost its network, cannot commit
    once its successor has claimed the checkpoints (docs/checkpoints.md).

    Tensors, of torch or numpy, are stored as safetensors, one file for each item at the top of the state (``model.safetensors``), which
    any tool reads. The rest is stored as JSON from which integer keys, tuples and None come back as they were. Nothing is pickled unless
    it is asked for.

    With several ranks (DDP), model and optimizer are the same on all of them, and so is the position of the loader: rank 0 saves them,
    and on other ranks :meth:`save` returns at once. All ranks load. Let rank 0 choose the step, so that all load the same::

        chosen = [ckpt.latest()]
        torch.distributed.broadcast_object_list(chosen)
        if chosen[0] is not None:
            state = ckpt.load(chosen[0])

    With ``all_ranks=True`` each rank writes a part of that, and what it alone has: shards of FSDP2 (DTensors), and ``per_rank=`` state. All
    ranks then call :meth:`save`, :meth:`latest` and :meth:`load` in the same order, and rank 0 chooses the step by itself.

    Only one process commits at a time: the one that claimed last. Rank 0 claims with its first :meth:`save`; with its first call of any
    kind if ``millrace run --checkpoint`` has started it with this URI; or by :meth:`claim`.

    Thread-safe; not to be used in a fork of its process.

    Args:
        uri: Where they are: ``s3://bucket/prefix`` or a folder. None: what ``millrace run --checkpoint`` was given, which is the
            environment variable ``MILLRACE_CHECKPOINT``.
        keep: How many of the newest remain; older ones are removed once a newer one is committed. None: all (10,000 at most).
        keep_every: Besides these, all remain whose step is a multiple of it.
        keep_best: Besides these, so many of those with the best ``metric`` of :meth:`save` remain. :meth:`best` is the step of the first.
        best_mode: ``"max"``: the largest metric is the best, as of accuracies; ``"min"``: the smallest, as of losses.
        save_interval_steps: Every how many steps :meth:`should_save` is true.
        rank: This process's number. None: that of ``torch.distributed`` when it is initialised, else of the environment (``RANK``),
            else 0. A process that is said to be rank 0 and is not, by these, claims only with its first :meth:`save`.
        all_ranks: Whether all ranks save. ``torch.distributed`` must be initialised, with any backend, if there are several.
        patience: For how many seconds a rank waits for another one in a save of all ranks, before it gives up with an error that names it.
        snapshot_memory: At most so many bytes of the host's memory for the copy that ``asynchronous=True`` makes. None: as many as the tensors have.
            Files of a state that has more are written before :meth:`save` returns; of ``all_ranks``, all that this rank writes.
        code: Whether to keep beside each checkpoint which code was run: ``code.json`` with the commit of the git repository of the
            program's main file, and the first 256 KiB of ``git diff``, which shows only files that git tracks.

    Raises:
        InvalidArgumentError: An argument makes no sense.
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
            raise InvalidArgumentError("keep_every says what remains besides the newest: give keep, too, or neither")
        self._keep_best = 0 if keep_best is None else _arguments.integer("keep_best", keep_best, least=1)
        if self._keep_best and not self._keep:
            raise InvalidArgumentError("keep_best says what remains besides the newest: give keep, too, or neither")
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
        """Where they are, ending with '/'."""
        return self._core.uri

    def latest(self) -> int | None:
        """The step of the newest checkpoint, which is the one that was committed last, whether or not another one has a larger step; None if
        there is none. With ``all_ranks`` that which rank 0 sees, on all ranks.

        Raises:
            NotFoundError: The bucket does not exist.
        """

        def newest() -> int | None:
            steps = self._core.steps()
            return steps[-1] if steps else None

        step: int | None = self._as_rank_0_says(newest)
        return step

    def steps(self) -> list[int]:
        """The steps of all checkpoints, in the order in which they were committed; the last one is the newest."""
        self._begin()
        return self._core.steps()

    def best(self) -> int | None:
        """The step of the checkpoint with the best metric (``best_mode``), the newest of equal ones; None if none has a metric. With ``all_ranks``
        that which rank 0 sees, on all ranks.
        """

        def found() -> int | None:
            steps = self._metrics.best(1)
            return steps[0] if steps else None

        step: int | None = self._as_rank_0_says(found)
        return step

    def should_save(self, step: int) -> bool:
        """Says if a checkpoint is due: the step is a multiple of ``save_interval_steps``, and not 0. Asks nothing but the step, so that all ranks
        are told the same::

            if ckpt.should_save(step):
                ckpt.save(step, {"model": model.state_dict(), "loader": loader.state_dict()})
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
        """The state of a checkpoint, the newest unless ``step`` is given. All bytes that are read are verified, and no others are read.

        Tensors of torch come back as such, on the CPU unless ``map_location`` says otherwise (as arrays if torch is not installed).
        With ``into`` they are read straight into tensors that exist::

            ckpt.load(into={"model": model.state_dict()}, only=["model"])

        Args:
            step: Which one. None: the newest.
            into: A state like the one that was saved, or items of its top. Its tensors and arrays are filled and returned; of DTensors each rank
                reads its own part, whatever world has saved them. Names, types and shapes must be those of the checkpoint. What is
                not in it at the top, and what is no tensor in it, is returned as without ``into``.
            only: The names of the items of the top that are wanted, such as ``["model"]``.
            map_location: A device of torch, such as ``"cuda"``: where tensors come that are not in ``into``.
            allow_pickle: Whether to read what was saved with ``allow_pickle=True``. Whoever can write the checkpoint can then run any
                code in this process.

        Raises:
            NotFoundError: There is no checkpoint (of this step).
            DamagedDataError: Bytes are not those that were saved; another step may be whole.
            InvalidArgumentError: The checkpoint holds pickles; ``into`` does not fit; or there is no item that ``only`` names. If an error
                comes, tensors of ``into`` may have been filled.
        """
        allow_pickle = _arguments.flag("allow_pickle", allow_pickle)
        wanted = None if only is None else _arguments.texts("only", only, "a list of names")

        def read(found: _core.Checkpoint) -> Any:
            restore = Restore(found, allow_pickle=allow_pickle, map_location=map_location)
            return restore.run(restore.json(), only=wanted, into=into)

        return self._read(step, read)

    def describe(self, step: int | None = None) -> Any:
        """The state of a checkpoint with the type (as safetensors names it) and shape of each tensor in its place: ``("F32", (4, 2))``. Nothing else
        is read, and nothing is unpickled.

        Args:
            step: Which checkpoint. None: the newest.
        """
        return self._read(step, lambda found: Restore(found, allow_pickle=False).describe())

    def load_per_rank(self, step: int | None = None, *, rank: int | None = None, allow_pickle: bool = False) -> Any:
        """What a rank has given as ``per_rank=`` of :meth:`save`; None if there is nothing, as if the world was smaller then.

        Args:
            step: Which checkpoint. None: the newest.
            rank: Which rank. None: this one.
            allow_pickle: As of :meth:`load`.
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
        """Saves a state, which is then the newest checkpoint, in place of an earlier one of the same step.

        Tensors that lie in the memory of the host are written from there, without a copy. Those on devices, and small ones, are copied a piece of 8 MiB at
        a time: 64 MiB at most, or a whole tensor of the host that is not contiguous.

        Args:
            step: 0 to 999,999,999,999; usually the steps done so far. It may be less than that of the newest.
            state: Dicts, lists, tuples, sets, strings, bytes, numbers, None, tensors of torch and arrays of numpy; usually a dict of
                what ``state_dict()`` returns. With ``all_ranks`` it has the same tensors on all ranks, which write a part each; DTensors are
                stored whole, each rank writing what it has. Of the rest, that of rank 0 is stored.
            metric: A number that tells how good the model is, such as its accuracy: for ``keep_best`` and :meth:`best`. That of rank 0 counts. One
                that is NaN or infinite counts as none.
            per_rank: Another state, of this rank alone, such as ``{"rng": millrace.rng_state()}``. :meth:`load_per_rank` returns it. Without
                ``all_ranks`` only that of rank 0 is stored.
            asynchronous: Copies all tensors, returns, and writes the copy while the training goes on. The next call of any method, or
                :meth:`wait`, raises what went wrong. A save waits for the one before, so that there is one copy at most, of at most ``snapshot_memory``
                bytes; its memory is kept for the next one.
            allow_pickle: Whether to pickle what is neither plain data nor a tensor.

        Raises:
            InvalidArgumentError: Something in the state cannot be stored; the message says where it is. Nothing was written.
            MismatchError: Another process has claimed the checkpoints: this one must stop. Or the tensors differ between ranks.
            UnavailableError: The store kept failing, or a rank did not come. The checkpoints are what they were, unless the message says that it
                is not known.
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
        """Once this step is committed, with that metric."""
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
        """``snapshot``: of an asynchronous save."""
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
        """Small files beside the state."""
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
        """``begun``: what is abandoned if the call does not come to run."""
        background = BackgroundSave(call)
        try:
            with self._lock:
                # For a save of the handler of a signal, which may come again and again. None comes between the last look and the assignment
                # (CPython looks for signals at calls and jumps back, since 3.10); one that comes later finds this save.
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
        """Returns when the last save is committed; raises what went wrong with it. Call it at the end of a training."""
        with self._lock:
            background = self._background
        if background is None:
            return
        background.join()  # if a signal interrupts it, the save goes on, and the next call waits for it
        with self._lock:
            if self._background is background:
                self._background = None
        background.raise_error()

    def claim(self) -> int:
        """Makes this process the only one that may commit, and removes what killed processes have left half written.

        For jobs that something else than ``millrace run`` restarts: call it at the start, on rank 0, before :meth:`latest`. On other
        ranks it does nothing.

        Returns:
            The number of the claim, which is greater than those of all before; 0 on other ranks.
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
        """What ``read`` makes of a checkpoint. A training that goes on elsewhere may remove it meanwhile: then of its successor."""
        for _ in range(_MOST_LOOKS - 1):
            found = self._found(step)
            try:
                return read(found)
            except NotFoundError:
                if self._meeting is not None or self._is_there(found):
                    raise
        return read(self._found(step))

    def _is_there(self, found: _core.Checkpoint) -> bool:
        try:
            return self._core.find(found.step).attempt == found.attempt
        except NotFoundError:
            return False

    def _as_rank_0_says(self, ask: Callable[[], Any]) -> Any:
        """What rank 0 is told; without a meeting each rank asks for itself."""
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
    """The files of one rank, of the state of all and of its own."""

    def __init__(
        self, state: Any, per_rank: Any, rank: int, world: int, beside: dict[str, bytes], allow_pickle: bool
    ) -> None:
        """``beside``: small files that are no part of the state."""
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
        """From then on the tensors of the caller may change, but for those of the files returned, which must be written before, and are no longer
        among the others."""
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
        """If there is one rank only."""
        return [*self._shards, *self.last_shards([self._chunks])]


def _rank_group(rank: int) -> str:
    return f"rank-{rank:05}"


_opened: dict[str, int] = {}  # how many Checkpoints with a meeting there were of a URI: their messages are apart


def _meeting(uri: str, rank: int, world: int, patience: float) -> Meeting:
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        raise InvalidArgumentError(
            f"all_ranks=True, and this is rank {rank} of {world}: the ranks find each other by torch.distributed; call "
            "torch.distributed.init_process_group first"
        )
    _opened[uri] = _opened.get(uri, 0) + 1
    return Meeting(TorchBoard(), f"{uri}#{_opened[uri]}", rank, world, patience)
