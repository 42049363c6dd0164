"""What a Loader did, and what its program waited for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict


class QuarantinedSample(TypedDict):
    """A damaged sample that was replaced, or masked: then ``replacement`` is ``""`` (``bad_samples``)."""

    sample: str
    reason: str
    replacement: str
    epoch: int


class CacheForecast(TypedDict):
    """What share of the bytes of each of the first epochs, five at most, is likely to come from the cache, if it is empty before and shared by all ranks;
    and what it would be by LRU, and at best."""

    ours: list[float]
    lru: list[float]
    optimum: list[float]


class CacheReport(TypedDict):
    """What a Loader's cache did: bytes that came from it (``hit_bytes``) and from the store (``miss_bytes``), in so many GET ``requests``.

    Of what all Loaders of this process read from the store: ``written_bytes``; ``no_room_bytes``, which would have been removed before their
    next use; ``dropped_bytes``, since the disk did not keep up, or failed; and ``waiting_bytes``, which are yet to be written.
    ``memory_bytes``: what a cache in memory has of the process's budget, 0 on a disk.
    ``forecast``: what is to be expected, from the index alone; None if draws are independent.
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
    """Who holds the memory of a Loader now, in bytes. All but the first two are 0 while it does not read.

    ``budget``: its own, or the one that ``loaders`` share, those that read now.
    ``items``: what was fetched for samples or rows. ``landing``: runs of neighbours in flight.
    ``batches``: batches that are made, wait, or are the program's; ``kept``: the program's among these. Floats that were made of pixels are not part of them.
    ``accounts``, at most: the largest sample, keys and states of rows, texts and other values, tables of rows.
    ``cache``: what a cache in memory has reserved. ``process``: all that this process has of the machine, with the program itself.
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
    """What a worker did for a Loader; of the last one, this process, ``worker`` is ``"local"``.

    ``rows``: of the batches that were received, padding included. ``failures``: how often one of its streams had to go on elsewhere, or
    could not be opened; ``last_failure``: why, or that others were faster, ``""`` without any of these.
    """

    worker: str
    rows: int
    failures: int
    last_failure: str


class Report(TypedDict):
    """What :meth:`Loader.report` returns; it begins with the loader or its last ``load_state_dict``.

    ``samples``: received, without padding and repeats. ``tokens``: in these, where they are rows of tokens, and ``token_places``: in all rows of
    the batches; the difference is padding. ``digest``: of those, 32 hex digits, or None. ``position``: after them.
    ``parts``: ``samples`` by the part of the Mix that they are of.
    ``seconds``: from the first to the last request for a batch. ``waited``: seconds of those that the program waited.
    ``stalls``: ``waited`` by cause (queue, credentials, connect, first_byte, body, throttling, outage, budget, decode, consumer, worker, index; with a
    transform also transform, else with a device also device: the copy).
    ``conversion_cpu_seconds``: CPU time that threads of the program took to make floats of pixels, when batches were handed over; 0 with ``raw=True``, and where a
    device or a worker makes them.
    ``bottleneck``: the largest cause, or ``consumer`` when the program waited less than 5 % of the time.
    ``quarantined``: damaged samples that were replaced. ``quarantine``: the first 1,000 of them.
    ``odd_images``: images that are shown as Pillow shows them, though their codec warns (such as bytes before a marker).
    ``cache``: what came from it and what did not; None without one.
    ``memory``: who holds it.
    ``workers``: what each of the ``workers`` did, and this process; empty without workers.
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
    """The result of :meth:`Loader.stats`: totals of a report, and rates since the one ``before``."""
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
    """A report, which prints as a table."""

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
