"""The program of a process that transforms samples for a Loader."""

from __future__ import annotations

import os
import pickle
import random
import select
import signal
import socket
import struct
import sys
import threading
import traceback
from multiprocessing import parent_process
from typing import Any

import numpy as np

from ._blocks import Block, read
from ._errors import TransformError
from ._transform import SampleTransform

MESSAGE = struct.Struct("<qqqq")
"""A message has a kind, the number of a block, and a place in the block. Each message is one packet."""
TASK, FORGET, READY, UNREADABLE, DONE, DONE_AND_KEPT = range(6)


def serve(connection: socket.socket, transform: SampleTransform | bytes, parent: int) -> None:
    """Is the main function. ``transform`` is pickled, except in a process that was forked."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C, and ends this process
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    threading.Thread(target=end_with, args=(parent,), daemon=True).start()
    try:
        function: SampleTransform = pickle.loads(transform) if isinstance(transform, bytes) else transform
    except BaseException as error:
        connection.send(MESSAGE.pack(UNREADABLE, 0, 0, 0) + f"{type(error).__name__}: {error}".encode()[:4000])
        return
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)  # the processes run in parallel
    try:
        connection.send(MESSAGE.pack(READY, 0, 0, 0))
        _answer(connection, function)
    except (BrokenPipeError, ConnectionResetError):
        pass  # the parent has closed the loader


def end_with(parent: int) -> None:
    """Makes the process end at once when its parent has ended, even if the parent was killed, and in the middle of any work."""
    poll = select.poll()
    own = parent_process()
    if own is not None:
        poll.register(own.sentinel, select.POLLIN)
    try:  # copies of the sentinel may be kept open by others that the parent has forked
        poll.register(os.pidfd_open(parent), select.POLLIN)
    except ProcessLookupError:
        os._exit(0)
    except (AttributeError, OSError):  # an old kernel
        pass
    poll.poll()
    os._exit(0)


def _answer(connection: socket.socket, function: SampleTransform) -> None:
    blocks: dict[int, Block] = {}
    while True:
        message, files, _, _ = socket.recv_fds(connection, MESSAGE.size, 1)
        if not message:
            return
        kind, number, offset, size = MESSAGE.unpack(message)
        if files:
            blocks[number] = Block(number, files[0])
        if kind == FORGET:
            del blocks[number]
            continue
        block = blocks[number]
        block.remap()
        block.end = offset + size
        is_kept, place = _transform(block, offset, size, function)
        if is_kept:
            del blocks[number]  # the parent sends no other task in it
        connection.send(MESSAGE.pack(DONE_AND_KEPT if is_kept else DONE, number, *place))


def _transform(block: Block, offset: int, size: int, function: SampleTransform) -> tuple[bool, tuple[int, int]]:
    """Transforms the samples of a task. Returns True if the transform has kept some of its input, and the place of the results.

    If it has kept some, the block must not be used again.
    """
    memory, lease = block.lease()
    samples = [read(memory, written) for written in pickle.loads(memory[offset : offset + size])]
    results: list[Any] = []
    failure = None
    for at, (sample, seeds, name) in enumerate(samples):
        block.progress = at
        samples[at] = None
        try:
            _seed_globals(seeds)
            result = function(sample, seeds, name)
        except BaseException as error:
            failure = _packed(error)
        else:
            try:
                results.append(block.write(result))
            except Exception as error:
                failure = _packed(_unsendable(name, error))
            del result
        del sample
        if failure is not None:
            break
    place = block.put(pickle.dumps((results, failure)))
    del memory, samples
    return lease() is not None, place


def _seed_globals(seeds: list[int]) -> None:
    """Seeds the global generators, which torchvision's functions and many others use. This process has its own."""
    first, second = (int(state) for state in np.random.SeedSequence([*seeds, 2]).generate_state(2))
    random.seed(first << 32 | second)
    np.random.seed(first)
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.manual_seed(first << 31 | second >> 1)


def _unsendable(name: str, cause: Exception) -> TransformError:
    error = TransformError(
        f"{name}: the transform returned a value that its process cannot send: {type(cause).__name__}: {cause}. Return arrays, tensors, numbers, "
        "strings and what else pickle takes"
    )
    error.__cause__ = cause
    return error


def _packed(error: BaseException) -> tuple[list[bytes | None], str, str]:
    """Returns the error and the chain of its causes, as far as they can be pickled, the message, and the traceback as text."""
    text = "".join(
        traceback.format_exception(
            type(error.__cause__ or error), error.__cause__ or error, (error.__cause__ or error).__traceback__
        )
    )
    chain: list[bytes | None] = []
    link: BaseException | None = error
    while link is not None and len(chain) < 20:
        chain.append(_pickled(link))
        link = link.__cause__
    return chain, str(error), text


def _pickled(error: BaseException) -> bytes | None:
    try:
        data = pickle.dumps(error)
        pickle.loads(data)  # fails for classes whose constructors take more arguments than they pass to Exception
        return data
    except Exception:
        return None
