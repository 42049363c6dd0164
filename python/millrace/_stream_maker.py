"""The stream of a loader whose batches go through Python: their destination, and the threads or processes that work on them."""

from __future__ import annotations

import os
from typing import Any, Callable

from . import _arguments, _core
from ._device import Device, Payload
from ._errors import InvalidArgumentError
from ._hand_over import Destination, HandOver
from ._option_groups import Map, Transfer
from ._stream import Stream
from ._transform import Work


def destination_of(device: Device | None, work: Work | None, transfer: Transfer, payload: Payload) -> Destination:
    """Returns the destination of the batches of ``work``. None: the batches of the native loader go to the program unchanged."""
    on_batch = transfer.on_batch
    if on_batch is not None and not callable(on_batch):
        _arguments.refuse("on_batch", "a function without arguments", on_batch)
    ahead = None if transfer.ahead is None else _arguments.integer("ahead", transfer.ahead, least=1, most=1024)
    for name, value in (("on_batch", on_batch), ("ahead", ahead)):
        if work is None and value is not None:
            raise InvalidArgumentError(
                f"{name} of a Transfer goes with a device or a transform; give a device, be it 'cpu', or leave {name} out"
            )
    device = device or Device()
    return Destination(device, payload, on_batch or device.after_batch(), ahead)


def stream_maker(
    work: Work | None, mapping: Map, destination: Destination, hand_over: HandOver, batch_size: int, is_remote: bool
) -> Callable[[_core.Loader], Stream] | None:
    """Makes the stream over a native loader, or returns None if there is no work. With ``is_remote``, workers run the transform."""
    threads, processes, context = mapping.threads, mapping.processes, mapping.context
    usual = len(os.sched_getaffinity(0)) if work is not None and work.has_functions else 1
    workers = usual if threads is None else _arguments.integer("threads", threads, least=1, most=1024)
    new_processes: Callable[[], list[Any]] = list
    if processes is None and context is not None:
        raise InvalidArgumentError(
            "multiprocessing_context says how processes are started; say how many with Map(function, processes=)"
        )
    if processes is not None:
        workers = _arguments.integer("processes", processes, least=1, most=1024)
        if threads is not None:
            raise InvalidArgumentError(
                "threads and processes of a Map: the function runs in the ones or the others; leave one out"
            )
        if is_remote:
            raise InvalidArgumentError(
                "processes of a Map: workers run the function that has a name; leave the processes out, or give the function itself"
            )
        if work is None or work.transform is None:
            raise InvalidArgumentError(
                "processes of a Map are for a function of samples; give a function, or leave them out"
            )
        from ._processes import Launcher, TransformProcess

        launcher, count = Launcher(work.transform, context), workers

        def new_processes() -> list[Any]:
            return [TransformProcess(launcher) for _ in range(count)]

    if work is None:
        return None
    return lambda native: Stream(native, work, workers, batch_size, new_processes(), destination, hand_over)
