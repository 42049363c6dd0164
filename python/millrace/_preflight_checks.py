"""This module has the results of ``millrace doctor host``, and the faulty nodes and pairs of nodes that follow from
them."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Union

Check = dict[str, str]
Pair = tuple[str, str]
Measured = Union[float, str]  # GB/s, or the reason why it was not measured

SLOW = 3  # a value below a third of the median is a fault
LEAST_TO_COMPARE = 3  # if two differ, it is not known which one is wrong
FIGURES = {  # the figures by which nodes are compared: their names and units
    "memory_gbps": ("memory", "GB/s"),
    "disk_write_mbps": ("disk, writing", "MB/s"),
    "disk_read_mbps": ("disk, reading", "MB/s"),
    "store_mbps": ("store", "MB/s"),
    "cpu_tflops": ("CPU", "TFLOP/s"),
    "cuda_tflops": ("device", "TFLOP/s"),
    "cuda_memory_gbps": ("memory of the device", "GB/s"),
}
MOST_TOLD = 20


def local_rank() -> int | None:
    """Returns the number of this process among the ranks of this machine, or None if it is not a rank."""
    for name in ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"):
        if os.environ.get(name, "").isdecimal():
            return int(os.environ[name])
    return None


def ok(name: str, text: str) -> Check:
    return {"name": name, "result": "ok", "text": text, "remedy": ""}


def failed(name: str, text: str, remedy: str) -> Check:
    return {"name": name, "result": "failed", "text": text, "remedy": remedy}


def skipped(name: str, why: str) -> Check:
    return {"name": name, "result": "skipped", "text": "not tried: " + why, "remedy": ""}


def compare_figures(figures: Mapping[str, Mapping[str, float]]) -> Iterator[Check]:
    """Yields the nodes whose figures are far below those of the others."""
    for name, (label, unit) in FIGURES.items():
        values = {node: of_node[name] for node, of_node in figures.items() if name in of_node}
        if len(values) < LEAST_TO_COMPARE:
            continue
        median = statistics.median(values.values())
        slow = {node: value for node, value in values.items() if value < median / SLOW}
        for node, value in slow.items():
            text = f"{node} has {value:.3g} {unit}; the median of {len(values)} nodes is {median:.3g} {unit}"
            yield failed(
                f"slow {label}", text, f"take {node} out of the job, and examine it alone: millrace doctor host"
            )


def usual_rate(pairs: Mapping[Pair, Measured]) -> float:
    """Returns the median of the faster half of pairs, or 0 if there is nothing to compare.

    With three nodes, one slow node makes two of three pairs slow, so the median of all pairs would be slow.
    """
    rates = sorted(rate for rate in pairs.values() if not isinstance(rate, str))
    return statistics.median(rates[len(rates) // 2 :]) if len(rates) >= LEAST_TO_COMPARE else 0.0


def slow_pairs(pairs: Mapping[Pair, Measured]) -> list[Pair]:
    usual = usual_rate(pairs)
    return [pair for pair, rate in pairs.items() if not isinstance(rate, str) and rate < usual / SLOW]


def judge_pairs(pairs: Mapping[Pair, Measured]) -> Iterator[Check]:
    """Yields the nodes with which most of the others cannot talk, or only slowly; else the pairs that cannot."""
    rates = [rate for rate in pairs.values() if not isinstance(rate, str)]
    usual = usual_rate(pairs)
    slow = set(slow_pairs(pairs))
    bad = {pair: rate for pair, rate in pairs.items() if isinstance(rate, str) or pair in slow}
    nodes = sorted({node for pair in pairs for node in pair})
    # The worst node comes first, since its pairs then no longer count against the others.
    guilty: list[str] = []
    while True:
        rest = {pair: rate for pair, rate in pairs.items() if not set(pair) & set(guilty)}
        shares = []
        for node in nodes:
            of_node = [pair for pair in rest if node in pair]
            broken = sum(pair in bad for pair in of_node)
            if len(of_node) >= 2 and broken * 2 > len(of_node):
                shares.append((broken / len(of_node), broken, node))
        if not shares:
            break
        worst = max(shares)
        if sum(share[:2] == worst[:2] for share in shares) == len({node for pair in rest for node in pair}):
            break  # all are alike: it is not the fault of one node
        guilty.append(worst[2])
    for node in guilty:
        broken_pairs = {pair: rate for pair, rate in bad.items() if node in pair}
        (first, other), rate = next(iter(broken_pairs.items()))
        met = sum(node in pair for pair in pairs)
        text = f"{node} talks badly with {len(broken_pairs)} of {met} nodes; with {other if first == node else first}: {told(rate, usual)}"
        yield failed("network", text, f"take {node} out of the job; examine its network card, cable and switch port")
    for (a, b), rate in bad.items():
        if a not in guilty and b not in guilty:
            yield failed(
                "network",
                f"{a} and {b}: {told(rate, usual)}",
                f"examine the path between {a} and {b}; keep one of them out of the job",
            )
    if rates and not bad:
        yield ok("network", f"{len(pairs)} pairs of nodes, {min(rates):.2f} to {max(rates):.2f} GB/s")


def told(rate: Measured, usual: float) -> str:
    return (
        rate
        if isinstance(rate, str)
        else f"{rate:.3g} GB/s; usual is {usual:.3g} GB/s, the median of the faster half of all pairs"
    )


def at_most(checks: Sequence[Check]) -> list[Check]:
    """Returns the first checks, as many as a person can read."""
    if len(checks) <= MOST_TOLD:
        return list(checks)
    more = failed("more", f"{len(checks) - MOST_TOLD} further findings", "begin with those above")
    return [*checks[:MOST_TOLD], more]


def pair_rounds(nodes: int, most: int) -> list[list[tuple[int, int]]]:
    """Returns rounds in which each node is in at most one pair. With up to `most` + 1 nodes they have all pairs, else some pairs of each node."""
    seats: list[int | None] = [*range(nodes), *([None] if nodes % 2 else [])]
    rounds = []
    for _ in range(len(seats) - 1):
        half = len(seats) // 2
        met = zip(seats[:half], reversed(seats[half:]))
        rounds.append([(min(a, b), max(a, b)) for a, b in met if a is not None and b is not None])
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return rounds[:most]
