"""Checkpoints that survive the death of their writer at any moment."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np

from . import _arguments, _core, _state
from .errors import InvalidArgumentError
from .ranks import rank_and_world

__all__ = ["Checkpoints"]


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

    Only one process commits at a time: the one that claimed last. Rank 0 claims with its first :meth:`save`; with its first call of any
    kind if ``millrace run --checkpoint`` has started it with this URI; or by :meth:`claim`.

    Thread-safe; not to be used in a fork of its process.

    Args:
        uri: Where they are: ``s3://bucket/prefix`` or a folder. None: what ``millrace run --checkpoint`` was given, which is the
            environment variable ``MILLRACE_CHECKPOINT``.
        keep: How many of the newest remain; older ones are removed once a newer one is committed. None: all (10,000 at most).
        rank: This process's number. None: that of ``torch.distributed`` when it is initialised, else of the environment (``RANK``),
            else 0.

    Raises:
        InvalidArgumentError: An argument makes no sense.
    """

    def __init__(self, uri: str | os.PathLike[str] | None = None, *, keep: int | None = None, rank: int | None = None) -> None:
        job_uri = os.environ.get("MILLRACE_CHECKPOINT")
        if uri is None and not job_uri:
            raise InvalidArgumentError("uri is None and MILLRACE_CHECKPOINT is not set; give a URI, or start the program by `millrace run`")
        given = _arguments.uri("uri", job_uri if uri is None else uri)
        self._keep = 0 if keep is None else _arguments.integer("keep", keep, least=1)
        self._rank = rank_and_world(None, None)[0] if rank is None else _arguments.integer("rank", rank, least=0)
        self._core = _core.Checkpoints(given)
        self._claims_at_once = bool(job_uri) and self._rank == 0 and _core.Checkpoints(str(job_uri)).uri == self._core.uri
        self._lock = threading.Lock()  # of what follows
        self._background: _Background | None = None

    @property
    def uri(self) -> str:
        """Where they are, ending with '/'."""
        return self._core.uri

    def latest(self) -> int | None:
        """The step of the newest checkpoint; None if there is none."""
        self._begin()
        steps = self._core.steps()
        return steps[-1] if steps else None

    def steps(self) -> list[int]:
        """The steps of all checkpoints, in the order in which they were saved."""
        self._begin()
        return self._core.steps()

    def load(self, step: int | None = None, *, allow_pickle: bool = False) -> Any:
        """The state of a checkpoint, the newest unless ``step`` is given. All bytes are verified.

        Tensors of torch come back as such, on the CPU (as arrays if torch is not installed); those of one file share its memory.

        Args:
            step: Which one. None: the newest.
            allow_pickle: Whether to read what was saved with ``allow_pickle=True``. Whoever can write the checkpoint can then run any
                code in this process.

        Raises:
            NotFoundError: There is no checkpoint (of this step).
            DamagedDataError: Bytes are not those that were saved; another step may be whole.
            InvalidArgumentError: The checkpoint holds pickles.
        """
        self._begin()
        found = self._core.find(None if step is None else _arguments.integer("step", step, least=0))
        shards = {name: np.empty(size, np.uint8) for name, size in found.shards}
        found.read(list(shards.values()))
        return _state.decode(shards, allow_pickle=_arguments.flag("allow_pickle", allow_pickle))

    def save(self, step: int, state: Any, *, asynchronous: bool = False, allow_pickle: bool = False) -> None:
        """Saves a state, which is then the newest checkpoint, in place of an earlier one of the same step.

        Tensors that lie in the memory of the host are written from there, without a copy; those on devices are copied to the host first.

        Args:
            step: 0 to 999,999,999,999; usually the steps done so far. It may be less than that of the newest.
            state: Dicts, lists, tuples, sets, strings, bytes, numbers, None, tensors of torch and arrays of numpy; usually a dict of
                what ``state_dict()`` returns.
            asynchronous: Copies all tensors, returns, and writes the copy while the training goes on. The next call of any method, or
                :meth:`wait`, raises what went wrong. A save waits for the one before, so that there is one copy at most.
            allow_pickle: Whether to pickle what is neither plain data nor a tensor.

        Raises:
            InvalidArgumentError: Something in the state cannot be stored; the message says where it is. Nothing was written.
            MismatchError: Another process has claimed the checkpoints: this one must stop.
            UnavailableError: The store kept failing. The checkpoints are what they were, unless the message says that it is not known.
        """
        step = _arguments.integer("step", step, least=0)
        asynchronous = _arguments.flag("asynchronous", asynchronous)
        self.wait()
        if self._rank != 0:
            return
        shards = _state.encode(state, allow_pickle=_arguments.flag("allow_pickle", allow_pickle))
        if not asynchronous:
            self._core.save(step, shards, self._keep)
            return
        copies = [(name, [piece.copy() for piece in pieces]) for name, pieces in shards]
        with self._lock:
            self._background = _Background(lambda: self._core.save(step, copies, self._keep))

    def wait(self) -> None:
        """Returns when the last save is committed; raises what went wrong with it. Call it at the end of a training."""
        with self._lock:
            background, self._background = self._background, None
        if background is not None:
            background.join()

    def claim(self) -> int:
        """Makes this process the only one that may commit, and removes what killed processes have left half written.

        For jobs that something else than ``millrace run`` restarts: call it at the start, on rank 0, before :meth:`latest`. On other
        ranks it does nothing.

        Returns:
            The number of the claim, which is greater than those of all before; 0 on other ranks.
        """
        self.wait()
        self._claims_at_once = False
        return self._core.claim() if self._rank == 0 else 0

    def _begin(self) -> None:
        self.wait()
        if self._claims_at_once:
            self.claim()

    def __repr__(self) -> str:
        return f"millrace.Checkpoints({self.uri!r}, keep={self._keep or None})"


class _Background:
    """A call on a thread of its own. The interpreter waits for it before it ends."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="millrace-save")
        self._thread.start()

    def _run(self) -> None:
        try:
            self._call()
        except BaseException as error:
            self._error = error
        finally:
            self._call = None  # and with it the copy

    def join(self) -> None:
        self._thread.join()
        if self._error is not None:
            raise self._error
