"""This module has the report of a Loader: its work, and the time that its program waited."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict


class QuarantinedSample(TypedDict):
    """Represents a damaged sample that was replaced, or masked (``bad_samples``). If it was masked, ``replacement`` is
    ``""``."""

    sample: str
    reason: str
    replacement: str
    epoch: int


class CacheForecast(TypedDict):
    """The expected share of bytes that come from the cache, for each of the first epochs, at most five.

    The forecast assumes a cache that is empty at the start and shared by all ranks. ``lru``: the share with an LRU cache. ``optimum``: the
    best possible share.
    """

    ours: list[float]
    lru: list[float]
    optimum: list[float]


class CacheReport(TypedDict):
    """Represents the work of a Loader's cache.

    ``hit_bytes``: bytes that came from the cache. ``miss_bytes``: bytes that came from the store, in ``requests`` GET requests.

    The next members count bytes that all Loaders of this process read from the store. ``written_bytes``: they were written to the cache.
    ``no_room_bytes``: they were not, since they would have been removed before their next use. ``dropped_bytes``: they were not, since the
    disk was too slow, or failed. ``waiting_bytes``: they are still to be written.

    ``memory_bytes``: the part of the process's budget that a cache in memory takes; 0 for a cache on a disk.
    ``forecast``: the expected shares, computed from the index; None if draws are independent.
    """

    hit_bytes: int
    miss_bytes: int
    requests: int
    written_bytes: int
    no_room_bytes: int
    dropped_bytes: int
    waiting_bytes: int
    memory_bytes: int
    forecast: CacheForecast | None


class MemoryReport(TypedDict):
    """Represents the current use of a Loader's memory, in bytes. While it does not read, all members except the first
    two are 0.

    ``budget``: the budget of the Loader, or the budget that several Loaders share. ``loaders``: how many of them read now.
    ``items``: bytes that were fetched for samples or rows. ``landing``: requests in flight for several neighbors.
    ``batches``: batches in work, batches that wait, and batches that the program holds. ``kept``: the program's among these. Floats that
    were made from pixels are not included.
    ``accounts``: an upper bound for the largest sample, keys and states of rows, texts and other values, and tables of rows.
    ``cache``: the memory that a cache in memory has reserved. ``process``: all memory of this process, including the program itself.
    """

    budget: int
    loaders: int
    items: int
    landing: int
    batches: int
    kept: int
    accounts: int
    cache: int
    process: int


class WorkerReport(TypedDict):
    """Represents the work of one worker for a Loader. The last entry is this process, whose ``worker`` is ``"local"``.

    ``rows``: the rows of received batches that the worker decoded, including padding. ``failures``: how often one of its streams had to
    continue elsewhere, or could not be opened. ``last_failure``: the reason, or that others were faster; ``""`` if there is no reason.
    """

    worker: str
    rows: int
    failures: int
    last_failure: str


class Report(TypedDict):
    """Represents the result of :meth:`Loader.report`. It counts from the start of the loader, or from its last
    ``load_state_dict``.

        report = loader.report()
        print(report["bottleneck"], report["waited"] / report["seconds"])

    - ``samples``: samples that were received, without padding and repeats.
    - ``tokens``: the tokens in these samples, if they are rows of tokens. ``token_places``: the places in all rows of the batches; the difference is padding.
    - ``digest``: the digest of the samples, 32 hex digits; None without the option ``digest`` of the Loader.
    - ``position``: the position after the samples.
    - ``parts``: ``samples`` for each part of a Mix.
    - ``seconds``: the time from the first to the last request for a batch. ``waited``: the seconds of it in which the program waited.
    - ``stalls``: the seconds of ``waited`` by cause: queue, credentials, connect, first_byte, body, throttling, outage, budget, decode,
      consumer, worker, index. With a transform there is also ``transform``. Without one, a device has ``device``, which is the copy.
    - ``conversion_cpu_seconds``: CPU time that threads of the program took to convert pixels to floats, when they received batches. It is 0
      with ``raw=True``, and if a device or a worker converts them.
    - ``bottleneck``: the largest cause, or ``consumer`` if the program waited less than 5 % of the time.
    - ``quarantined``: the number of damaged samples that were replaced. ``quarantine``: the first 1,000 of them.
    - ``odd_images``: images that are decoded as Pillow decodes them, although their codec warns, for example of bytes before a marker.
    - ``cache``: the work of the cache; None without a cache.
    - ``memory``: the current use of memory.
    - ``workers``: the work of each of the ``workers``, and of this process; empty without workers.
    """

    samples: int
    tokens: int
    token_places: int
    digest: str | None
    position: str
    parts: list[int]
    seconds: float
    waited: float
    stalls: dict[str, float]
    conversion_cpu_seconds: float
    bottleneck: str
    quarantined: int
    quarantine: list[QuarantinedSample]
    odd_images: int
    cache: CacheReport | None
    memory: MemoryReport
    workers: list[WorkerReport]


def flat(report: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, float]:
    """Returns the result of :meth:`Loader.stats`: totals of a report, and rates since the report ``before``."""
    if report["samples"] < before.get("samples", 0) or report["seconds"] < before.get("seconds", 0):
        before = {}  # it has begun again

    def since(name: str) -> float:
        return float(report[name] - before.get(name, 0))

    seconds = since("seconds")

    def rate(amount: float) -> float:
        return amount / seconds if seconds > 0 else 0.0

    stats: dict[str, float] = {
        "samples": report["samples"],
        "samples_per_second": rate(since("samples")),
        "waited_seconds": report["waited"],
        "waited_share": rate(since("waited")),
        "conversion_cpu_seconds": report["conversion_cpu_seconds"],
        "conversion_cpu_share": rate(since("conversion_cpu_seconds")),
        "bad_samples": report["quarantined"],
        "odd_images": report["odd_images"],
    }
    earlier = before.get("stalls", {})
    for cause, spent in report["stalls"].items():
        stats[f"waited_share/{cause}"] = rate(spent - earlier.get(cause, 0.0))
    if report["token_places"]:
        stats["tokens"] = report["tokens"]
        stats["tokens_per_second"] = rate(since("tokens"))
        stats["padding_share"] = 1 - report["tokens"] / report["token_places"]
    if report["cache"]:
        read = report["cache"]["hit_bytes"] + report["cache"]["miss_bytes"]
        stats["cache_hit_share"] = report["cache"]["hit_bytes"] / read if read else 0.0
    return stats


class Table(dict[str, Any]):
    """Represents a report, which prints as a table."""

    def __str__(self) -> str:
        seconds, waited = self["seconds"], self["waited"]
        rate = f"{self['samples'] / seconds:,.0f} a second" if seconds else "in no time"
        lines = [("samples", f"{self['samples']:,} in {seconds:.1f} s ({rate})")]
        if self["token_places"]:
            padding = 1 - self["tokens"] / self["token_places"]
            lines.append(("tokens", f"{self['tokens']:,}, and {100 * padding:.1f} % padding"))
        if len(self["parts"]) > 1:
            lines.append(("of the parts", ", ".join(f"{samples:,}" for samples in self["parts"])))
        lines.append(("waited", f"{waited:.1f} s ({100 * waited / seconds if seconds else 0:.0f} %)"))
        causes = sorted(self["stalls"].items(), key=lambda cause: -cause[1])
        lines += [(f"  for {name.replace('_', ' ')}", f"{spent:.1f} s") for name, spent in causes if spent >= 0.05]
        if self["conversion_cpu_seconds"] >= 0.05:
            lines.append(("made floats", f"in {self['conversion_cpu_seconds']:.1f} s of CPU time"))
        lines.append(("limited by", self["bottleneck"].replace("_", " ")))
        if self["cache"]:
            cached, read = self["cache"]["hit_bytes"], self["cache"]["miss_bytes"]
            lines.append(("cache", f"{cached / 2**20:,.1f} MiB came from it, {read / 2**20:,.1f} MiB from the store"))
            if dropped := self["cache"]["dropped_bytes"]:
                lines.append(
                    ("", f"{dropped / 2**20:,.1f} MiB were not kept, since the disk did not keep up or failed")
                )
        if (memory := self["memory"])["items"] + memory["batches"]:
            fetched = memory["items"] + memory["landing"]
            others = f", shared by {memory['loaders']} Loaders" if memory["loaders"] > 1 else ""
            lines.append(
                (
                    "memory",
                    f"{fetched / 2**20:,.1f} MiB fetched, {memory['batches'] / 2**20:,.1f} MiB of batches; "
                    f"budget {memory['budget'] / 2**20:,.0f} MiB{others}",
                )
            )
        for worker in self["workers"]:
            last = worker["last_failure"]
            failures = (
                f", {worker['failures']} failures, the last: {last}"
                if worker["failures"]
                else f", but {last}"
                if last
                else ""
            )
            lines.append((f"worker {worker['worker']}", f"{worker['rows']:,} rows{failures}"))
        if self["quarantined"]:
            shown = self["quarantine"][:3]
            lines.append(("replaced", f"{self['quarantined']:,} damaged samples, such as"))
            lines += [("", f"{entry['sample']}: {entry['reason']}") for entry in shown]
        if self["odd_images"]:
            lines.append(("odd images", f"{self['odd_images']:,}, which are shown in spite of warnings of their codec"))
        lines.append(("position", self["position"]))
        if self["digest"]:
            lines.append(("digest", self["digest"]))
        width = max(len(name) for name, _ in lines)
        return "\n".join(f"{name.ljust(width)}  {value}" for name, value in lines)
