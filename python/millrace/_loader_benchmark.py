"""This module has a diagnosis of the bottleneck of a torch ``DataLoader``. It runs the loader unchanged, and then once
more with measurements in one worker.

The data need not be readable by Millrace. The verdict is a pure function of the measurements.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import pickle
import time
from collections.abc import Iterable, Iterator
from typing import Any, Callable, Union

import torch
import torch.utils.data

from . import _arguments, _core
from ._errors import InvalidArgumentError

_LEAST_BATCHES = 20
_INSIDE = 6  # batches of the second run; the first one does not count

Step = Union[Callable[[Any], Any], None]


@dataclasses.dataclass(frozen=True)
class Costs:
    """Represents the measurements of a diagnosis. Times are seconds for each batch, if nothing else is said.

    ``first``: the time until the first batch came. ``wait``: the time that the program waited for a later batch. ``step``: the time that it
    used the batch. ``storage``, ``transform``: the time in which the data set's ``__getitem__`` waited and computed. ``collate``: the time of
    ``collate_fn``. ``send``, ``receive``: the time of the transfer between worker and program.

    ``batch_bytes``: the bytes of a batch. ``workers``: the number of processes, or 0. ``cores``: the CPUs that the process may use.
    ``epoch_batches``: the batches of an epoch; None if the number is not known.
    """

    first: float
    wait: float
    step: float
    storage: float
    transform: float
    collate: float
    send: float
    receive: float
    batch_bytes: int
    workers: int
    cores: int
    epoch_batches: int | None

    @property
    def in_worker(self) -> float:
        return self.storage + self.transform + self.collate + self.send

    @property
    def bottleneck(self) -> str:
        """The bottleneck: ``"step"``, ``"startup"``, ``"storage"``, ``"transform"``, ``"collate"``, ``"transfer"`` or ``"workers"`` (too few)."""
        if _core.consumer_limits(self.wait, self.wait + self.step):
            return "startup" if self._waits_mostly_for_the_first else "step"
        if self._waits_mostly_for_the_first:
            return "startup"
        computing = {"transform": self.transform, "collate": self.collate, "transfer": self.send + self.receive}
        waits = self.storage > max(computing.values())
        # Workers that wait leave their cores to others, until there are enough of them.
        cores_are_busy = sum(computing.values()) / self.cores >= 0.9 * self.in_worker / max(1, self.workers)
        if waits and not cores_are_busy:
            return "storage"
        most = max(computing, key=lambda name: computing[name])
        return "workers" if most == "transform" and max(1, self.workers) < self.cores else most

    @property
    def _waits_mostly_for_the_first(self) -> bool:
        if self.epoch_batches is None:
            return False
        usual = self.in_worker + self.receive  # a first batch takes as long as any does
        return self.first - usual > max(usual, (self.wait + self.step) * max(1, self.epoch_batches - 1))


class Diagnosis:
    """The result of :func:`benchmark`: ``bottleneck`` (a word), ``verdict`` (a sentence), ``advice`` (lines), ``costs``. It prints as a table."""

    def __init__(self, costs: Costs, loader_options: str) -> None:
        self.costs = costs
        self.bottleneck = costs.bottleneck
        self.verdict = _VERDICTS[self.bottleneck].format(**_words(costs))
        self.advice = [line.format(options=loader_options, cores=costs.cores) for line in _ADVICE[self.bottleneck]]

    def __str__(self) -> str:
        costs = self.costs
        inside = costs.in_worker + costs.receive
        parts = [
            ("waits for storage", costs.storage),
            ("computes samples", costs.transform),
            ("collates", costs.collate),
        ]
        if costs.workers:
            parts += [("sends it to the program", costs.send), ("the program receives it", costs.receive)]
        lines = [
            ("first batch", _seconds(costs.first)),
            ("wait for each batch", _seconds(costs.wait)),
            ("step", _seconds(costs.step)),
        ]
        lines += [
            ("workers", f"{costs.workers}, of {costs.cores} cores"),
            ("bytes of a batch", f"{costs.batch_bytes:,}"),
        ]
        lines.append(("making one batch", _seconds(inside)))
        lines += [
            (f"  {name}", f"{_seconds(spent)}  {100 * spent / inside if inside else 0:3.0f} %") for name, spent in parts
        ]
        width = max(len(name) for name, _ in lines)
        table = [f"{name.ljust(width)}  {value}" for name, value in lines]
        return "\n".join([*table, "", f"bottleneck: {self.bottleneck}. {self.verdict}", *self.advice])

    __repr__ = __str__


def benchmark(loader: torch.utils.data.DataLoader[Any], *, batches: int | None = None, step: Step = None) -> Diagnosis:
    """Finds the bottleneck of a ``DataLoader``, with any data set.

        print(millrace.torch.benchmark(loader, step=train_step))

    The loader runs twice. The first run is unchanged, with ``step`` after each batch. The second run has one worker, or no worker if the
    loader has no workers, and it measures each part of the work for a batch. A process that neither computes nor waits for a CPU waits for
    storage. The loader's sampler and the random numbers advance as in any loop.

    Args:
        loader: The loader.
        batches: The number of batches of the first run. None: 20, but at least four for each worker; fewer if the loader ends earlier.
        step: A function of a batch with the work of the training. On a GPU it must end with a synchronization. None: the verdict is about
            the loader alone.

    Returns:
        A diagnosis: ``bottleneck`` (a word), ``verdict`` (a sentence), ``advice`` (lines), ``costs``. It prints as a table.

    Raises:
        InvalidArgumentError: The loader gives fewer than two batches.
    """
    if not isinstance(loader, torch.utils.data.DataLoader):
        _arguments.refuse("loader", "a torch DataLoader (a millrace.Loader shows it in loader.report())", loader)
    workers = loader.num_workers
    wanted = max(_LEAST_BATCHES, 4 * workers) if batches is None else _arguments.integer("batches", batches, least=2)
    first, wait, stepped, came = _run(loader, wanted, workers, step)
    if came < 2:
        raise InvalidArgumentError(f"the loader gave {came} batches; two are the least to measure")
    inside = _look_inside(loader, wanted)
    try:
        epoch_batches = len(loader)
    except TypeError:
        epoch_batches = None
    costs = Costs(
        first, wait, stepped, **inside, workers=workers, cores=len(os.sched_getaffinity(0)), epoch_batches=epoch_batches
    )
    return Diagnosis(costs, _options_of(loader))


def _run(loader: Iterable[Any], wanted: int, workers: int, step: Step) -> tuple[float, float, float, int]:
    """Returns the seconds until the first batch, the seconds of waiting and of the step for each later batch, and the number of batches."""
    began = time.monotonic()
    batches = iter(loader)
    waits: list[float] = []
    steps: list[float] = []
    while len(waits) < wanted:
        asked = time.monotonic() if waits else began
        try:
            batch = next(batches)
        except StopIteration:
            break
        got = time.monotonic()
        if step is not None:
            step(batch)
        waits.append(got - asked)
        steps.append(time.monotonic() - got)
    # The workers' first batches come together. Only the batches after them show the rate.
    skipped = max(1, workers if len(waits) > 2 * workers else 1)
    counted = max(1, len(waits) - skipped)
    return (waits or [0.0])[0], sum(waits[skipped:]) / counted, sum(steps[skipped:]) / counted, len(waits)


# ---- In a worker


class _Clock:
    """Represents the seconds that passed, the seconds of computing, and the seconds in which a thread was ready and had
    no CPU."""

    def __init__(self) -> None:
        self._last = self._now()

    def _now(self) -> tuple[float, float, float]:
        try:
            with open("/proc/thread-self/schedstat") as file:
                delayed = int(file.read().split()[1]) / 1e9
        except (OSError, IndexError, ValueError):
            delayed = 0.0
        return time.monotonic(), time.process_time(), delayed

    def lap(self) -> tuple[float, float]:
        """Returns the seconds since the last lap in which the process waited for something other than a CPU, and all other seconds."""
        before, self._last = self._last, self._now()
        passed, computed, delayed = (now - then for now, then in zip(self._last, before))
        waited = max(0.0, passed - computed - delayed)
        return waited, min(computed, passed - waited)


def _probe(clock: _Clock, samples: Any, collate: Callable[[Any], Any]) -> dict[str, Any]:
    """Returns the measurements of a batch since the last lap. Its samples have just been fetched."""
    storage, transform = clock.lap()
    batch = collate(samples)
    collating = sum(clock.lap())
    tensors: list[torch.Tensor] = []
    rest = _without_tensors(batch, tensors)
    for tensor in tensors:
        shared = torch.empty_like(tensor, device="cpu").share_memory_()  # type: ignore[no-untyped-call]
        shared.copy_(tensor)
    pickled = pickle.dumps(rest)
    sending = sum(clock.lap())
    pickle.loads(pickled)
    receiving = sum(clock.lap())
    size = len(pickled) + sum(tensor.nbytes for tensor in tensors)
    return {
        "storage": storage,
        "transform": transform,
        "collate": collating,
        "send": sending,
        "receive": receiving,
        "batch_bytes": size,
    }


def _without_tensors(value: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return None
    if isinstance(value, dict):
        return {name: _without_tensors(each, tensors) for name, each in value.items()}
    return [_without_tensors(each, tensors) for each in value] if isinstance(value, (list, tuple)) else value


class _MapProbe(torch.utils.data.Dataset):  # type: ignore[type-arg]
    def __init__(self, dataset: Any, collate: Callable[[Any], Any], batched: bool) -> None:
        self._dataset, self._collate, self._batched = dataset, collate, batched

    def __getitem__(self, numbers: Any) -> dict[str, Any]:
        clock = _Clock()
        if not self._batched:
            samples = self._dataset[numbers]
        elif callable(getattr(self._dataset, "__getitems__", None)):
            samples = self._dataset.__getitems__(numbers)
        else:
            samples = [self._dataset[number] for number in numbers]
        return _probe(clock, samples, self._collate)


class _IterableProbe(torch.utils.data.IterableDataset):  # type: ignore[type-arg]
    def __init__(self, dataset: Any, collate: Callable[[Any], Any], batch_size: int | None) -> None:
        self._dataset, self._collate, self._batch_size = dataset, collate, batch_size

    def __iter__(self) -> Iterator[dict[str, Any]]:
        samples = iter(self._dataset)
        while True:
            clock = _Clock()
            taken = list(itertools.islice(samples, self._batch_size or 1))
            if not taken:
                return
            yield _probe(clock, taken if self._batch_size else taken[0], self._collate)


def _look_inside(loader: torch.utils.data.DataLoader[Any], past: int) -> dict[str, Any]:
    """Returns the average costs of the parts of a batch, in a worker that runs alone."""
    options: dict[str, Any] = {"batch_size": None, "collate_fn": _as_it_is}
    if loader.num_workers:
        options.update(
            num_workers=1, multiprocessing_context=loader.multiprocessing_context, worker_init_fn=loader.worker_init_fn
        )
    if isinstance(loader.dataset, torch.utils.data.IterableDataset):
        probe: Any = _IterableProbe(loader.dataset, loader.collate_fn, loader.batch_size)
    else:
        batched = loader.batch_sampler is not None
        order = itertools.islice(iter(loader.batch_sampler if batched else loader.sampler), past + _INSIDE)  # type: ignore[arg-type]
        options["sampler"] = list(order)[-_INSIDE:]  # what has not just been read, as far as there is such
        probe = _MapProbe(loader.dataset, loader.collate_fn, batched)
    seen: list[dict[str, Any]] = []
    threads = torch.get_num_threads()
    try:
        for costs in torch.utils.data.DataLoader(probe, **options):
            seen.append(costs)
            if len(seen) == _INSIDE:
                break
    finally:
        torch.set_num_threads(threads)
    counted = (
        seen[1:] or seen or [dict.fromkeys(("storage", "transform", "collate", "send", "receive", "batch_bytes"), 0)]
    )
    mean = {name: sum(each[name] for each in counted) / len(counted) for name in counted[0]}
    if not loader.num_workers:
        mean["send"] = mean["receive"] = 0.0
    return {**mean, "batch_bytes": int(mean["batch_bytes"])}


def _as_it_is(value: Any) -> Any:
    return value


# ---- Words


def _options_of(loader: torch.utils.data.DataLoader[Any]) -> str:
    shuffles = isinstance(loader.sampler, torch.utils.data.RandomSampler)
    said = [f"batch_size={loader.batch_size}"] if loader.batch_size else []
    said += [f"shuffle={shuffles}"] + (['last="drop"'] if loader.drop_last else [])
    return ", ".join(said)


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.1f} ms"


def _words(costs: Costs) -> dict[str, str]:
    period = costs.wait + costs.step
    spent = {
        name: _seconds(getattr(costs, name)) for name in ("first", "wait", "step", "storage", "transform", "collate")
    }
    of_all = 100 / costs.in_worker if costs.in_worker else 0.0
    shares = {f"{name}_share": f"{of_all * getattr(costs, name):.0f} %" for name in ("storage", "transform", "collate")}
    return {
        **spent,
        **shares,
        "transfer": _seconds(costs.send + costs.receive),
        "size": f"{costs.batch_bytes / 2**20:,.1f} MiB",
        "share": f"{100 * costs.wait / period if period else 0:.0f} %",
        "workers": "the program itself"
        if not costs.workers
        else "1 worker"
        if costs.workers == 1
        else f"{costs.workers} workers",
        "cores": str(costs.cores),
    }


_VERDICTS = {
    "step": "The program waits {share} of its time; its own step of {step} is the limit. A faster loader would gain next to nothing.",
    "startup": "The first batch took {first}, longer than all that follows in an epoch: processes are started, modules imported, files opened.",
    "storage": "A batch waits {storage} for storage, {storage_share} of its making. The program waits {share} of its time.",
    "transform": "A batch takes {transform} of computing in __getitem__ (decoding, transforms), {transform_share} of its making, and all {cores} cores do it.",
    "collate": "A batch takes {collate} in collate_fn, {collate_share} of its making.",
    "transfer": "A batch of {size} takes {transfer} on its way from the worker to the program, more than any other part of its making.",
    "workers": "A batch takes {transform} of computing in __getitem__, done by {workers}, and there are {cores} cores.",
}

_LOADER = '    loader = millrace.Loader("s3://bucket/train", {options})'

_ADVICE = {
    "step": ["Look at the model: compilation, precision, batch size."],
    "startup": [
        "Keep workers from epoch to epoch with persistent_workers=True. Millrace needs no processes, and its first batch is a matter of milliseconds:",
        _LOADER,
    ],
    "storage": [
        "More workers, or more samples in flight. Millrace knows the order ahead and reads many samples at once, with your transform as it is:",
        '    dataset = millrace.torch.MapDataset("s3://bucket/train", transform=your_transform)',
        '    loader = DataLoader(dataset, sampler=millrace.torch.Sampler("s3://bucket/train"), ...)',
        "or, without workers and decoded natively:",
        _LOADER,
    ],
    "transform": [
        "More workers do not help. Millrace decodes, crops and normalizes images natively, for a fraction of the CPU time; functions of your own remain:",
        _LOADER[:-1] + ", transform=your_transform)",
    ],
    "collate": ["Millrace decodes into the memory of the batch, so that there is nothing to collate:", _LOADER],
    "transfer": [
        "Send less (uint8 in place of float32, normalized on the device). Millrace makes batches in threads of the program, which send nothing:",
        _LOADER,
    ],
    "workers": [
        "Set num_workers={cores}. Millrace uses all cores without worker processes, and needs less of them:",
        _LOADER,
    ],
}
