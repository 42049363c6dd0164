"""This module has the nodes of a job, their network and their collectives, for ``millrace doctor host``.

The ranks find each other by a ``TCPStore`` at MASTER_ADDR and MASTER_PORT. Each operation that can hang has a deadline: a rank that does not
answer, a pair of nodes whose packets are lost, a collective. So the pairs are measured by sockets of our own, and collectives come last.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import re
import socket
import threading
import time
from dataclasses import asdict, dataclass, field
from typing import Any, Callable

from ._preflight_checks import (
    Check,
    Measured,
    Pair,
    at_most,
    compare_figures,
    failed,
    judge_pairs,
    local_rank,
    ok,
    pair_rounds,
    skipped,
    slow_pairs,
)

ROLL_SECONDS = 15.0  # from the start until all ranks have come
PAIR_SECONDS = 3.0  # for one pair of nodes: to connect, and to send
LATE_SECONDS = 15.0  # that rank 0 may begin later, since it also examines its machine
ROUNDS_SECONDS = 8.0  # for all pairs
COLLECTIVE_SECONDS = 5.0
ANSWER_SECONDS = 6.0  # for the results of the others, at the end
PAIR_BYTES = 16 << 20
MOST_ROUNDS = 64
TRIES = 3  # of a pair
REDUCED = 4 << 20  # numbers of an all-reduce: 16 MiB
CLOCK_SECONDS = 60.0  # the allowed difference of clocks
DEFAULT_PORT = "29511"


@dataclass
class Member:
    """A rank, as the others know it."""

    node: str
    figures: dict[str, float]
    broken: list[str]  # faults that the rank itself has found
    rank: int = 0
    address: str = ""
    port: int = 0
    time: float = 0.0


@dataclass
class Found:
    checks: list[Check] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)
    healthy: bool = True
    silent: bool = False


def master() -> tuple[str, int]:
    """Returns the address at which the ranks meet. With Slurm, the first node of the step has rank 0."""
    address = os.environ.get("MASTER_ADDR", "")
    if not address:
        address = first_of_nodes(os.environ.get("SLURM_STEP_NODELIST", ""))
    if not address:
        raise ValueError("MASTER_ADDR is not set")
    return address, int(os.environ.get("MASTER_PORT", DEFAULT_PORT))


def first_of_nodes(nodes: str) -> str:
    """ "a[03-05,9],b" is the list of a03, a04, a05, a9 and b."""
    found = re.match(r"([^,\[]+)(?:\[([^,\-\]]+)[^\]]*\]([^,\[]*))?", nodes)
    return "".join(part or "" for part in found.groups()) if found else ""


class PairServer:
    """Receives the bytes of one peer after the other, and answers when it has all."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("", 0), family=socket.AF_INET, backlog=16)
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            # A peer that stops in mid-stream must not keep the next one waiting.
            threading.Thread(target=self._take, args=(peer,), daemon=True).start()

    @staticmethod
    def _take(peer: socket.socket) -> None:
        buffer = bytearray(1 << 20)
        with contextlib.suppress(OSError), peer:
            peer.settimeout(PAIR_SECONDS)
            left = PAIR_BYTES
            while left > 0:
                got = peer.recv_into(buffer)
                if got == 0:
                    return
                left -= got
            peer.sendall(b"k")

    def close(self) -> None:
        # A thread that blocks in accept() does not wake when the socket is closed.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def measure_pair(address: str, port: int, seconds: float = PAIR_SECONDS) -> Measured:
    """Returns the GB/s to another node, or the reason why they could not be measured."""
    end = time.monotonic() + seconds
    payload = memoryview(bytes(1 << 20))
    try:
        with socket.create_connection((address, port), timeout=seconds) as peer:
            start = time.perf_counter()
            for _ in range(PAIR_BYTES // len(payload)):
                left = end - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                peer.settimeout(left)
                peer.sendall(payload)
            peer.settimeout(max(end - time.monotonic(), 0.001))
            if peer.recv(1) != b"k":
                return "the connection was cut"
            return PAIR_BYTES / (time.perf_counter() - start) / 1e9
    except TimeoutError:
        return f"no answer at {address}:{port} within {seconds:g} s"
    except OSError as error:
        return f"{address}:{port}: {error.strerror or error}"


class Meeting:
    """Represents the messages of the ranks to each other."""

    def __init__(self, torch: Any, rank: int, world: int) -> None:
        self.rank, self.world = rank, world
        self._begin = time.monotonic()
        host, port = master()
        # torchrun keeps a store at this address itself.
        own = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
        limit = datetime.timedelta(seconds=ROLL_SECONDS if rank == 0 else ROLL_SECONDS + LATE_SECONDS)
        self._dist: Any = torch.distributed
        base = self._dist.TCPStore(host, port, None, own, limit, wait_for_workers=False, multi_tenant=True)
        self.store: Any = self._dist.PrefixStore(
            f"millrace-preflight/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", base
        )
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:  # sends nothing
            probe.connect((host, port))
            self.address: str = probe.getsockname()[0]

    def tell(self, key: str, value: Any) -> None:
        self.store.set(key, json.dumps(value))

    def hear(self, key: str, until: float) -> Any:
        """Returns the message of another rank, or None. `until` counts from the start."""
        left = self._begin + until - time.monotonic()
        try:
            self.store.wait([key], datetime.timedelta(seconds=max(left, 0.01)))
            return json.loads(self.store.get(key))
        except Exception:  # torch.distributed.DistStoreError, RuntimeError and others, depending on the version
            return None

    def meet(self, key: str, count: int, until: float) -> bool:
        """Waits until `count` ranks have come here."""
        if self.store.add(key, 1) == count:
            self.tell(key + "/all", True)
        return self.hear(key + "/all", until) is not None

    def now(self) -> float:
        return time.monotonic() - self._begin


def leaders(members: list[Member]) -> list[Member]:
    """Returns the member with the lowest rank of each node."""
    first: dict[str, Member] = {}
    for member in members:
        first.setdefault(member.node, member)
    return list(first.values())


def measure_best(node: Member) -> Measured:
    """Returns the best of several measurements, since other data may be sent meanwhile."""
    rates = []
    for _ in range(TRIES):
        rate = measure_pair(node.address, node.port)
        if isinstance(rate, str):
            return rate
        rates.append(rate)
        if rate < PAIR_BYTES / 1e9:  # it takes more than a second
            break
    return max(rates)


def measure_pairs(meeting: Meeting, nodes: list[Member]) -> dict[Pair, Measured]:
    """Measures this node with the nodes to which it connects, in rounds, so that no two pairs share a node."""
    mine = next((index for index, member in enumerate(nodes) if member.rank == meeting.rank), None)
    measured: dict[Pair, Measured] = {}
    if mine is None:
        return measured
    until = meeting.now() + ROUNDS_SECONDS
    for number, pairs in enumerate(pair_rounds(len(nodes), MOST_ROUNDS)):
        # The others may have to wait for a pair that hangs. If they take too long, this node continues alone.
        if meeting.now() >= until:
            break
        meeting.meet(f"round/{number}", len(nodes), min(until, meeting.now() + 2 * PAIR_SECONDS))
        for a, b in pairs:
            if a == mine:
                measured[nodes[a].node, nodes[b].node] = measure_best(nodes[b])
    measure_again(meeting, nodes, measured)
    return measured


def measure_again(meeting: Meeting, nodes: list[Member], measured: dict[Pair, Measured]) -> None:
    """Measures slow pairs again, since a pair that was slow by chance is not slow a second time."""
    until = meeting.now() + 2 * PAIR_SECONDS
    meeting.tell(f"pairs/{meeting.rank}", [(*pair, rate) for pair, rate in measured.items()])
    if meeting.rank == nodes[0].rank:
        heard = [meeting.hear(f"pairs/{node.rank}", until) or [] for node in nodes]
        meeting.tell("slow", slow_pairs({(a, b): rate for one in heard for a, b, rate in one}))
    by_name = {node.node: node for node in nodes}
    for a, b in meeting.hear("slow", until) or []:
        first, again = measured.get((a, b)), measure_best(by_name[b]) if (a, b) in measured else None
        if isinstance(first, float) and isinstance(again, float):
            measured[a, b] = max(first, again)


def all_reduce(torch: Any, meeting: Meeting, backend: str, device: Any) -> dict[str, Any]:
    """Adds numbers over all ranks. The result has `gbps`, the bus bandwidth as nccl-tests count it, or `problem`, the reason of a failure."""
    dist = torch.distributed
    limit = datetime.timedelta(seconds=COLLECTIVE_SECONDS)
    try:
        store = dist.PrefixStore(backend, meeting.store)
        dist.init_process_group(backend, store=store, rank=meeting.rank, world_size=meeting.world, timeout=limit)
        numbers = torch.empty(REDUCED, dtype=torch.float32, device=device)
        best = float("inf")
        for _ in range(4):  # the first one connects
            numbers.fill_(meeting.rank + 1)
            dist.barrier()
            start = time.perf_counter()
            dist.all_reduce(numbers)
            wrong = int((numbers != meeting.world * (meeting.world + 1) // 2).sum())  # waits for the device
            best = min(best, time.perf_counter() - start)
            if wrong:
                return {"problem": f"{wrong} of {REDUCED} sums are wrong"}
        dist.destroy_process_group()
    except Exception as error:
        return {"problem": str(error).strip().splitlines()[0][:300]}
    return {"gbps": REDUCED * 4 * 2 * (meeting.world - 1) / meeting.world / best / 1e9}


def collectives(torch: Any, meeting: Meeting) -> dict[str, dict[str, Any]]:
    results = {}
    dist = torch.distributed
    if dist.is_gloo_available():
        results["gloo"] = all_reduce(torch, meeting, "gloo", torch.device("cpu"))
    # All ranks have to agree that each of them has a device.
    local, count = local_rank() or 0, torch.cuda.device_count()
    has_device = dist.is_nccl_available() and (local < count or count == 1)  # Slurm may show each rank its own alone
    meeting.store.add("devices", 1 if has_device else 0)
    met = meeting.meet("devices/told", meeting.world, meeting.now() + COLLECTIVE_SECONDS)
    if met and int(meeting.store.add("devices", 0)) == meeting.world and "problem" not in results.get("gloo", {}):
        torch.cuda.set_device(local % count)
        results["nccl"] = all_reduce(torch, meeting, "nccl", torch.device("cuda", local % count))
    return results


def judge_collectives(
    answers: dict[int, dict[str, dict[str, Any]]], members: dict[int, Member], least: float
) -> tuple[list[Check], dict[str, float]]:
    """Judges the collectives. `answers` has the answers by rank, then by backend."""
    checks: list[Check] = []
    figures: dict[str, float] = {}
    for backend in ("gloo", "nccl"):
        of_rank = {rank: answer[backend] for rank, answer in answers.items() if backend in answer}
        if not of_rank:
            continue
        name = f"all-reduce over {backend}"
        problems = {rank: answer["problem"] for rank, answer in of_rank.items() if "problem" in answer}
        remedy = "check that host names resolve to addresses of the network of the job; GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME names the card"
        for rank, problem in problems.items():
            checks.append(failed(name, f"rank {rank} on {members[rank].node}: {problem}", remedy))
        if problems:
            continue
        figures[f"{backend}_bus_gbps"] = slowest = min(answer["gbps"] for answer in of_rank.values())
        text = f"right on all {len(of_rank)} ranks, bus bandwidth {slowest:.3g} GB/s"
        # The training uses NCCL if it exists.
        if slowest >= least or (backend == "gloo" and any("nccl" in answer for answer in answers.values())):
            checks.append(ok(name, text))
        else:
            checks.append(
                failed(
                    name,
                    f"{text}; it must be {least:g} GB/s at least",
                    "examine the network of the job, and which card is used",
                )
            )
    return checks, figures


def judge(meeting: Meeting, members: list[Member], results: dict[int, dict[str, Any]], least: float) -> Found:
    """Judges all results, on rank 0."""
    by_rank = {member.rank: member for member in members}
    nodes = leaders(members)
    found = Found()
    found.checks.append(
        ok("nodes", f"{len(nodes)} with {len(members)} ranks: {', '.join(member.node for member in nodes)[:500]}")
    )
    for member in members:
        if member.rank != 0:  # rank 0 has reported them already
            found.checks += [
                failed(f"{member.node}, rank {member.rank}", text, f"take {member.node} out of the job")
                for text in member.broken
            ]
    for rank in sorted(set(by_rank) - set(results)):
        node = by_rank[rank].node
        found.checks.append(
            failed("nodes", f"rank {rank} on {node} has stopped answering", f"look into the log of {node}")
        )
    # A device of a node counts by its slowest rank.
    figures: dict[str, dict[str, float]] = {}
    for member in members:
        of_node = figures.setdefault(member.node, {})
        for name, value in member.figures.items():
            of_node[name] = min(value, of_node.get(name, value))
    found.checks += compare_figures(figures)
    latest = max(members, key=lambda member: member.time)
    earliest = min(members, key=lambda member: member.time)
    if latest.time - earliest.time > CLOCK_SECONDS:
        text = f"{latest.node} is {latest.time - earliest.time:.0f} s ahead of {earliest.node}"
        found.checks.append(failed("clocks", text, "set the clocks of both (NTP)"))
    pairs: dict[Pair, Measured] = {}
    for result in results.values():
        pairs.update({(a, b): rate for a, b, rate in result["pairs"]})
    found.checks += judge_pairs(pairs)
    checks, found.figures = judge_collectives(
        {rank: result["collectives"] for rank, result in results.items()}, by_rank, least
    )
    found.checks += checks
    return found


def call_roll(meeting: Meeting, member: Member) -> tuple[list[Member], list[int]]:
    """Returns the members that have come, and the ranks that have not."""
    meeting.tell(f"member/{meeting.rank}", asdict(member))
    if meeting.rank == 0:
        heard = [meeting.hear(f"member/{rank}", ROLL_SECONDS) for rank in range(meeting.world)]
        roll: Any = {
            "members": [one for one in heard if one],
            "missing": [rank for rank, one in enumerate(heard) if not one],
        }
        meeting.tell("roll", roll)
    else:
        roll = meeting.hear("roll", ROLL_SECONDS + LATE_SECONDS)
        if roll is None:
            raise TimeoutError("rank 0 has not called the roll")
    return [Member(**one) for one in roll["members"]], roll["missing"]


def examine_nodes(torch: Any, rank: int, world: int, member: Member, least_gbps: float) -> Found:
    if not torch.distributed.is_available():
        return Found([skipped("nodes", "this torch has no torch.distributed")])
    server = PairServer()
    try:
        meeting = Meeting(torch, rank, world)
        member.rank, member.address, member.port, member.time = rank, meeting.address, server.port, time.time()
        members, missing = call_roll(meeting, member)
    except Exception as error:
        remedy = "check MASTER_ADDR and MASTER_PORT, that rank 0 has started, and the firewall"
        return Found(
            [
                failed(
                    "nodes",
                    f"rank {rank} on {member.node} cannot reach rank 0: {str(error).strip().splitlines()[0][:300]}",
                    remedy,
                )
            ],
            healthy=False,
        )
    measured = measure_pairs(meeting, leaders(members))
    result: dict[str, Any] = {"pairs": [(*pair, rate) for pair, rate in measured.items()], "collectives": {}}
    if not missing:  # otherwise this would wait for them
        result["collectives"] = collectives(torch, meeting)
    meeting.tell(f"result/{rank}", result)
    until = meeting.now() + ANSWER_SECONDS
    if rank != 0:
        verdict = meeting.hear("verdict", until)
        with contextlib.suppress(Exception):
            meeting.store.add("left", 1)
        return Found(healthy=bool(verdict and verdict["healthy"]), silent=verdict is not None)
    heard = {one.rank: meeting.hear(f"result/{one.rank}", until) for one in members}
    found = judge(meeting, members, {one: said for one, said in heard.items() if said}, least_gbps)
    if missing:
        ranks = ", ".join(map(str, missing[:20])) + (" and more" if len(missing) > 20 else "")
        remedy = "look into the logs of the nodes that were to run them"
        found.checks.append(
            failed(
                "nodes",
                f"{len(missing)} of {world} ranks have not come: {ranks}; there are no collectives without them",
                remedy,
            )
        )
    found.checks = at_most(found.checks)
    found.healthy = not member.broken and all(check["result"] != "failed" for check in found.checks)
    meeting.tell("verdict", {"healthy": found.healthy})
    wait_until(lambda: int(meeting.store.add("left", 0)) >= len(members) - 1, 5.0)  # the store ends with this process
    return found


def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
