"""Tests what `millrace doctor host` asks of Python: right products, faulty nodes and pairs, ranks that do not come."""

from __future__ import annotations

import itertools
import json
import os
import socket
import subprocess
import sys
import threading
from typing import Any

import pytest
from millrace import _preflight_checks as checks
from millrace import _preflight_nodes as nodes
from ports import free_port

torch = pytest.importorskip("torch")


def names(found: Any) -> list[str]:
    return [f"{check['result']} {check['name']}: {check['text']}" for check in found]


def pairs_of(count: int, rate: Any) -> dict[checks.Pair, checks.Measured]:
    return {(f"n{a}", f"n{b}"): rate(a, b) for a, b in itertools.combinations(range(count), 2)}


def test_nodes_are_compared_if_there_are_three() -> None:
    figures = {"a": {"memory_gbps": 10.0}, "b": {"memory_gbps": 9.0}, "c": {"memory_gbps": 3.4, "cpu_tflops": 1.0}}
    assert not list(checks.compare_figures(figures))
    figures["c"]["memory_gbps"] = 2.9
    (slow,) = checks.compare_figures(figures)
    assert slow["result"] == "failed" and slow["text"].startswith("c has 2.9 GB/s") and "c" in slow["remedy"]
    assert not list(checks.compare_figures({"a": {"memory_gbps": 10.0}, "b": {"memory_gbps": 1.0}}))


@pytest.mark.parametrize("count", [3, 4, 7])
@pytest.mark.parametrize("fault", ["no answer", 0.1])
def test_a_node_that_talks_badly_with_most_is_named(count: int, fault: checks.Measured) -> None:
    found = list(checks.judge_pairs(pairs_of(count, lambda a, b: fault if 1 in (a, b) else 1.0)))
    assert len(found) == 1 and found[0]["result"] == "failed" and found[0]["text"].startswith("n1 talks badly")


@pytest.mark.parametrize("fault", ["no answer", 0.1])
def test_a_pair_is_named_if_both_nodes_talk_well_with_others(fault: checks.Measured) -> None:
    found = list(checks.judge_pairs(pairs_of(5, lambda a, b: fault if (a, b) == (1, 3) else 1.0)))
    assert len(found) == 1 and found[0]["text"].startswith("n1 and n3: ")
    two = list(checks.judge_pairs({("a", "b"): "refused"}))
    assert names(two) == ["failed network: a and b: refused"]


def test_two_faults_at_once_are_both_named() -> None:
    found = list(checks.judge_pairs(pairs_of(8, lambda a, b: "down" if 2 in (a, b) or 5 in (a, b) else 1.0)))
    assert sorted(check["text"][:2] for check in found) == ["n2", "n5"]


def test_sound_networks_are_not_accused() -> None:
    for count in (2, 3, 8):
        (found,) = checks.judge_pairs(pairs_of(count, lambda a, b: 1.0 + (a + b) % 2))
        assert found["result"] == "ok"
    assert not list(checks.judge_pairs({}))
    assert names(checks.judge_pairs({("a", "b"): 0.001})) == ["ok network: 1 pairs of nodes, 0.00 to 0.00 GB/s"]


@pytest.mark.parametrize("count", range(1, 12))
def test_rounds_hold_each_pair_once_and_each_node_once_a_round(count: int) -> None:
    rounds = checks.pair_rounds(count, 99)
    assert sorted(itertools.chain(*rounds)) == list(itertools.combinations(range(count), 2))
    assert all(len(set(itertools.chain(*pairs))) == 2 * len(pairs) for pairs in rounds)
    assert len(checks.pair_rounds(count, 2)) <= 2


def test_people_are_told_a_few() -> None:
    many = [checks.failed("x", str(i), "r") for i in range(50)]
    assert len(checks.at_most(many)) == checks.MOST_TOLD + 1 and "30 further" in checks.at_most(many)[-1]["text"]


def test_pairs_are_measured_and_do_not_hang() -> None:
    server = nodes.PairServer()
    rate = nodes.measure_pair("127.0.0.1", server.port, seconds=100)
    assert isinstance(rate, float) and rate > 0
    server.close()
    assert "refused" in str(nodes.measure_pair("127.0.0.1", server.port)).lower()
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes the connection, and nothing else
        assert "no answer" in str(nodes.measure_pair("127.0.0.1", silent.getsockname()[1], seconds=0.05))

    with socket.create_server(("127.0.0.1", 0)) as cutting:
        thread = threading.Thread(target=lambda: cutting.accept()[0].close())
        thread.start()
        assert isinstance(nodes.measure_pair("127.0.0.1", cutting.getsockname()[1]), str)
        thread.join()


@pytest.mark.parametrize(
    ("nodelist", "first"),
    [
        ("a", "a"),
        ("a,b", "a"),
        ("n[03-05,9],b", "n03"),
        ("n[7]", "n7"),
        ("r1-n[1,3]", "r1-n1"),
        ("n[1-2]-ib", "n1-ib"),
        ("", ""),
    ],
)
def test_the_first_node_of_slurm(nodelist: str, first: str) -> None:
    assert nodes.first_of_nodes(nodelist) == first


def test_wrong_products_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from millrace import preflight

    monkeypatch.setattr(preflight, "SIZE", 64)
    monkeypatch.setattr(preflight, "SECONDS", 0.01)
    sound, figures = preflight.check_device(torch, torch.device("cpu"))
    assert sound["result"] == "ok" and figures["cpu_tflops"] > 0
    multiply = torch.Tensor.__matmul__

    def wrong(self: Any, other: Any) -> Any:
        product = multiply(self, other)
        if product.dtype == torch.float32:
            product[3, 5] += 1
        return product

    monkeypatch.setattr(torch.Tensor, "__matmul__", wrong)
    found, _ = preflight.check_device(torch, torch.device("cpu"))
    assert found["result"] == "failed" and found["text"].startswith("1 elements")


# The module as `millrace doctor host` runs it, but for its patience, which is that of nodes with nothing else to do.
PATIENT = """
from millrace import _preflight_nodes as nodes, preflight
nodes.ROLL_SECONDS = nodes.LATE_SECONDS = nodes.ROUNDS_SECONDS = nodes.COLLECTIVE_SECONDS = nodes.ANSWER_SECONDS = 120.0
preflight.main()
"""


def answers(world: int, present: list[int], memory: list[float]) -> dict[int, dict[str, Any]]:
    """Returns the answers of these ranks, each a node of its own. If all are there, each is waited for."""
    port = free_port()
    processes = {}
    for rank in present:
        env = os.environ | {
            "RANK": str(rank),
            "WORLD_SIZE": str(world),
            "LOCAL_RANK": "0",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        question = {"node": f"node-{rank}", "figures": {"memory_gbps": memory[rank]}, "failed": [], "min_bus_gbps": 0}
        command = [sys.executable, *(["-c", PATIENT] if len(present) == world else ["-m", "millrace.preflight"])]
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(command, env=env | {"OMP_NUM_THREADS": "1"}, text=True, **pipes)
        assert process.stdin is not None
        process.stdin.write(json.dumps(question))
        process.stdin.close()
        processes[rank] = process
    said = {}
    for rank, process in processes.items():
        assert process.stdout is not None
        said[rank] = json.loads(process.stdout.read())
        assert process.wait(300) == 0
    return said


@pytest.mark.slow
def test_a_slow_node_of_three_is_named_by_rank_0() -> None:
    said = answers(3, [0, 1, 2], [10, 11, 1])
    found = {check["name"]: check for check in said[0]["checks"]}
    assert found["nodes"]["text"] == "3 with 3 ranks: node-0, node-1, node-2"
    assert found["slow memory"]["text"].startswith("node-2 has 1 GB/s")
    assert "3 pairs of nodes" in found["network"]["text"] or found["network"]["result"] == "failed"
    assert found["all-reduce over gloo"]["text"].startswith("right on all 3 ranks")
    assert said[0]["figures"]["gloo_bus_gbps"] > 0
    assert [said[rank].get("silent", False) for rank in range(3)] == [False, True, True]
    assert not any(said[rank]["healthy"] for rank in range(3))


@pytest.mark.all
def test_a_rank_that_does_not_come_is_named() -> None:
    said = answers(4, [0, 1, 3], [10, 10, 10, 10])
    (missing,) = (check for check in said[0]["checks"] if "not come" in check["text"])
    assert missing["result"] == "failed" and "1 of 4 ranks have not come: 2;" in missing["text"]
    assert not said[0]["healthy"] and not said[1]["healthy"]
