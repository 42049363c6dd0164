"""A million samples: where a run begins must not matter, neither for the first batch nor for what is read."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from . import oracle
from .harness import Sandbox, Server, devstore
from .test_tokens import idx_of

SAMPLES = 1_000_000
BYTES = 128


def write_million(folder: Path) -> None:
    """One pair of Megatron's files."""
    folder.mkdir(parents=True)
    tokens = np.random.default_rng(1).integers(0, 2**31, (SAMPLES, BYTES // 4), dtype=np.int32)
    (folder / "a.bin").write_bytes(tokens.tobytes())
    empty = np.empty(0, dtype=np.int32)
    head = idx_of([empty], "int32")[: 9 + 8 + 1]
    counts = np.array([SAMPLES, SAMPLES + 1], dtype=np.uint64).tobytes()
    lengths = np.full(SAMPLES, BYTES // 4, dtype=np.int32).tobytes()
    offsets = (np.arange(SAMPLES, dtype=np.int64) * BYTES).tobytes()
    (folder / "a.idx").write_bytes(head + counts + lengths + offsets + np.arange(SAMPLES + 1, dtype=np.int64).tobytes())


@pytest.fixture(scope="module")
def million(tmp_path_factory: pytest.TempPathFactory, session_sandbox: Sandbox) -> Path:
    """The root of a devstore with `b/data`."""
    root = tmp_path_factory.mktemp("million")
    write_million(root / "b" / "data")
    with devstore(session_sandbox, root) as server:
        session_sandbox.ok("index", "s3://b/data", env=server.env())
    return root


@pytest.fixture(scope="module")
def slow_server(million: Path, session_sandbox: Sandbox):
    with devstore(session_sandbox, million, "--first-byte-ms", 30) as server:
        yield server


def explain(sandbox: Sandbox, server: Server, **options: object) -> dict:
    return sandbox.feed("s3://b/data", "--explain", env=server.env(), shuffle="window", memory="512MiB", **options)


def at(position: str, consumed: int) -> str:
    version, epoch, _, fingerprint = position.split("-")
    return f"{version}-{epoch}-{consumed}-{fingerprint}"


@pytest.mark.all
@pytest.mark.parametrize("world", [1, 2, 3])
def test_no_more_than_what_is_left_and_a_window(sandbox: Sandbox, slow_server: Server, world: int) -> None:
    """The bytes of a rank: those left for it if ranks share no extents, else those left for all. And each sample comes once."""
    expected = explain(sandbox, slow_server, world=world)
    whole = sandbox.feed("s3://b/data", env=slow_server.env(), shuffle="window", memory="512MiB", batch=512)["digest"]
    consumed = random.Random(world).randrange(1, SAMPLES)
    how = {"shuffle": "window", "memory": "512MiB", "batch": 512, "env": slow_server.env()}
    before = sandbox.feed("s3://b/data", resume=at(expected["order"]["position"], 0), stop_after=consumed, **how)
    position = before["position"]
    left = SAMPLES - before["samples"]
    ranks = [sandbox.feed("s3://b/data", resume=position, world=world, rank=rank, **how) for rank in range(world)]
    assert sum(rank["samples"] for rank in ranks) == left
    assert oracle.add(before["digest"], *(rank["digest"] for rank in ranks)) == whole
    window = expected["order"]["window_bytes"]
    shared = world & (world - 1) != 0
    for rank in ranks:
        assert rank["bytes_read"] <= (left if shared else rank["samples"]) * BYTES + window, f"{consumed=}"
        # Few: some for each extent, and up to one for each sample of the first batch. More where the machine is busy: what finds the
        # memory full goes without its neighbours.
        assert rank["requests"]["GET"] <= 512 + 6 * expected["order"]["extents"], f"{consumed=}"


@pytest.mark.all
@pytest.mark.parametrize("shuffle", ["none", "global", "window"])
@pytest.mark.parametrize("place", ["file", "s3"])
def test_the_first_batch_does_not_wait_for_the_look_ahead(
    sandbox: Sandbox, million: Path, slow_server: Server, shuffle: str, place: str
) -> None:
    """It takes a fraction of the time that the whole look-ahead does. (bench/resume_bench.py has the figures.)"""
    uri, env = (million / "b" / "data", None) if place == "file" else ("s3://b/data", slow_server.env())
    how = {"shuffle": shuffle, "memory": "512MiB", "batch": 128, "env": env}
    position = at(sandbox.feed(uri, "--explain", **how)["order"]["position"], 1)
    seconds = []
    for _ in range(3):  # other tests may run beside this one
        report = sandbox.feed(uri, resume=position, stop_after=1, **how)
        assert report["samples"] == 128
        seconds.append(report["first_batch_seconds"])
    assert min(seconds) < 3  # it was 3 to 15; bench/resume_bench.py holds the one second that is promised


@pytest.mark.all
@pytest.mark.parametrize(("world", "times"), [(2, 1), (8, 1), (3, 3), (6, 3)])
def test_what_ranks_that_share_extents_read(sandbox: Sandbox, slow_server: Server, world: int, times: int) -> None:
    """Small samples: each rank reads whole extents, and --explain says so and warns. If there are 6 ranks, three share each extent; 8 ranks share
    what makes no whole row of lanes, which is a fifth of these 82 extents."""
    how = {"rank": 1, "world": world}
    report = explain(sandbox, slow_server, **how)
    got = sandbox.feed("s3://b/data", env=slow_server.env(), shuffle="window", memory="512MiB", **how)
    expected = report["expected"]
    assert 0.99 * times <= expected["amplification"] <= 1.05 * times + 0.1
    assert expected["requests"] <= got["requests"]["GET"] <= 1.5 * expected["requests"] + 50
    assert expected["bytes"] <= got["bytes_read"] <= 1.2 * expected["bytes"]
    extents = report["order"]["extents"]
    assert expected["requests"] <= 64 + (2 * extents if times > 1 else 2 * extents / world + 20)
    said = sandbox.ok(
        "feed",
        "s3://b/data",
        "--explain",
        *(part for key, value in how.items() for part in (f"--{key}", value)),
        env=slow_server.env(),
    ).out
    assert ("warning" in report) == ("Warning" in said) == (times > 1)
    assert times == 1 or f"{world} ranks share nearly every extent" in report["warning"]
