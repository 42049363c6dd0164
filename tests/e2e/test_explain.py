"""`feed --explain`: what it foretells is what a feed then does."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from . import corpus, oracle
from .conftest import Photos
from .harness import Sandbox, Server, devstore, feed_args
from .test_tokens import write_pair


def explain(sandbox: Sandbox, uri: object, **options: object) -> dict:
    return sandbox.feed(uri, "--explain", **options)


@pytest.mark.parametrize("shuffle", ["none", "global", "window"])
@pytest.mark.parametrize("world", [1, 2, 3, 8])
def test_requests_bytes_and_samples_come_true(photos: Photos, sandbox: Sandbox, shuffle: str, world: int) -> None:
    for rank in {0, world - 1}:
        options = {"shuffle": shuffle, "rank": rank, "world": world, "seed": 3}
        expected = explain(sandbox, photos.tar, **options)
        got = sandbox.feed(photos.tar, **options)
        assert expected["expected"]["requests"] == got["requests"]["GET"]
        assert expected["expected"]["bytes"] == got["bytes_read"]
        assert expected["batches"]["samples"] == got["samples"]
        assert expected["batches"]["steps"] == got["batches"]


@pytest.mark.parametrize("last", ["drop", "wrap"])
def test_the_last_batch_is_foretold(photos: Photos, sandbox: Sandbox, last: str) -> None:
    options = {"shuffle": "window", "last": last, "batch": 100, "world": 3, "rank": 2}
    expected = explain(sandbox, photos.tar, **options)
    got = sandbox.feed(photos.tar, **options)
    assert expected["batches"] == {
        "batch": 100,
        "rank": 2,
        "world": 3,
        "last": last,
        "steps": got["batches"],
        "samples": got["samples"],
    }
    # A repeat is fetched again unless its sample happens to be in memory still.
    assert 0 <= expected["expected"]["requests"] - got["requests"]["GET"] <= (100 if last == "wrap" else 0)


def large_pairs(folder: Path, shards: int) -> Path:
    """Samples of 115 KB, 250 in a shard: feeding them decodes nothing. The shards are links of one."""
    tokens = np.arange(250 * 28_750, dtype=np.int32).reshape(250, -1)
    write_pair(folder / "0", list(tokens), "int32")
    for shard in range(1, shards):
        for suffix in (".bin", ".idx"):
            os.link(folder / f"0{suffix}", folder / f"{shard}{suffix}")
    return folder


@pytest.mark.parametrize("place", ["file", "s3"])
def test_a_fresh_run_of_one_rank_comes_true(sandbox: Sandbox, tmp_path: Path, place: str) -> None:
    """Its first batch has samples in more extents than runs in flight fit into the memory at once. The bytes that one run may
    bring must not depend on when another one ends."""
    data = large_pairs(tmp_path / "b" / "data", 8)
    with devstore(sandbox, tmp_path, "--first-byte-ms", 30) as server:
        how = {"shuffle": "window", "memory": "512MiB", "batch": 128, "env": server.env() if place == "s3" else None}
        uri = "s3://b/data" if place == "s3" else data
        expected = explain(sandbox, uri, **how)["expected"]
        for _ in range(2):
            got = sandbox.feed(uri, **how)
            # Requests that are repeated or hedged come on top.
            again = got["retries"] + got["hedges"]
            assert expected["requests"] <= got["requests"]["GET"] <= 1.03 * expected["requests"] + again
            assert expected["bytes"] <= got["bytes_read"] <= 1.01 * expected["bytes"] + again * (8 << 20)


def test_the_first_batch_takes_few_neighbours_along(sandbox: Sandbox, tmp_path: Path) -> None:
    """Half an extent with each of its samples: it does not wait for the whole data set, and no extent costs more than two runs."""
    data = large_pairs(tmp_path / "data", 8)
    report = explain(sandbox, data, shuffle="window", memory="512MiB", batch=128)
    extents, shards = report["order"]["extents"], 8
    assert report["expected"]["requests"] <= 2 * extents + shards


@pytest.mark.parametrize("shuffle", ["none", "global", "window"])
def test_the_first_samples_are_the_first(photos: Photos, sandbox: Sandbox, shuffle: str) -> None:
    options = {"shuffle": shuffle, "rank": 1, "world": 3, "seed": 9}
    first = explain(sandbox, photos.tar, **options)["first"]
    assert [sample["position"] for sample in first] == list(range(1, 30, 3))
    told = oracle.ZERO
    for sample in first:
        known = photos.samples[sample["sample"]]
        assert known.key == sample["key"]
        assert sample["object"].endswith(".tar") and sample["bytes"] > len(known.fields["jpg"])
        told = oracle.add(told, oracle.as_hex(oracle.sample_hash(known, 0, sample["position"])))
    got = sandbox.feed(photos.tar, batch=10, stop_after=10, **options)
    assert got["samples"] == 10 and got["digest"] == told


def test_from_a_position_on(photos: Photos, sandbox: Sandbox) -> None:
    options = {"shuffle": "window", "batch": 50, "world": 2}
    position = sandbox.feed(photos.tar, stop_after=200, rank=0, **options)["position"]
    expected = explain(sandbox, photos.tar, resume=position, rank=1, **options)
    assert expected["order"]["position"] == position
    assert expected["first"][0]["position"] == 401
    got = sandbox.feed(photos.tar, resume=position, rank=1, **options)
    assert (expected["batches"]["samples"], expected["batches"]["steps"]) == (got["samples"], got["batches"])
    assert expected["expected"]["requests"] == got["requests"]["GET"]
    sandbox.run(*feed_args(photos.tar, "--explain", resume=position, **options | {"seed": 2})).failed(
        1, "belongs to another order"
    )


def test_little_memory_costs_requests_and_it_says_so(photos: Photos, sandbox: Sandbox) -> None:
    options = {"shuffle": "window", "batch": 4, "threads": 1}
    small = explain(sandbox, photos.tar, memory="5MiB", **options)
    large = explain(sandbox, photos.tar, memory="256MiB", **options)
    assert small["memory"]["reach_positions"] < small["samples"] <= large["memory"]["reach_positions"]
    assert small["expected"]["requests"] > large["expected"]["requests"]
    assert small["first"] == large["first"] and small["order"] == large["order"]
    got = sandbox.feed(photos.tar, memory="5MiB", **options)
    assert got["requests"]["GET"] >= 0.9 * small["expected"]["requests"]


def test_it_reads_no_data(photos: Photos, server: Server, sandbox: Sandbox) -> None:
    with devstore(sandbox, photos.root, faults=("GET b/tar/*.tar status=403",)) as refusing:
        sandbox.run(*feed_args("s3://b/tar"), env=refusing.env()).failed(1, "403|denied")
        report = explain(sandbox, "s3://b/tar", env=refusing.env(), shuffle="window", world=8)
    assert report["samples"] == 1005 and report["expected"]["requests"] > 0


def test_what_all_ranks_need_is_about_this_rank_times_the_world(photos: Photos, sandbox: Sandbox) -> None:
    ranks = [
        explain(sandbox, photos.tar, shuffle="window", extent=7, window=64, world=8, rank=rank)["expected"]
        for rank in range(8)
    ]
    for what in ("requests", "bytes"):
        for rank in ranks:
            assert rank[f"{what}_times_world"] == pytest.approx(sum(each[what] for each in ranks), rel=0.3)


def test_raw_objects_are_a_request_each(photos: Photos, sandbox: Sandbox) -> None:
    report = explain(sandbox, photos.raw, shuffle="window")
    assert report["order"]["extent"] == 1 and report["expected"]["requests"] == 1005
    assert report["expected"]["amplification"] == 1.0 and report["expected"]["readers_per_extent"] == 1.0
    assert report["bytes"] == report["expected"]["bytes"] == report["expected"]["sample_bytes"]


def test_the_text(photos: Photos, sandbox: Sandbox) -> None:
    said = sandbox.ok("feed", photos.tar, "--explain", "--rank", 5, "--world", 8).out
    report = sandbox.feed(
        photos.tar, "--explain", rank=5, world=8, batch=128, size=224, memory="512MiB", shuffle="window", seed=0
    )
    for words in (
        "1005 samples in 3 tar shards",
        f"Order: window, seed 0, epoch 0, from position {report['order']['position']}",
        "rank 5 of 8 gets 125 samples",
        f"Expected of rank 5: {report['expected']['requests']} requests",
        "all 8 ranks: about",
        ": a whole window\n",
        "First samples of this rank",
        report["first"][9]["key"],
    ):
        assert words in said, said
    assert "--explain" in sandbox.ok("feed", "--help").out


def test_what_a_feed_would_refuse_is_refused(photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
    corpus.raw_tree(tmp_path / "d", ["x"], 3)
    sandbox.run("feed", tmp_path / "d", "--explain", "--last", "drop", "--batch", 4).failed(1, "no full step")
    sandbox.run("feed", tmp_path / "d", "--explain", "--memory", "2MiB").failed(1, "cannot hold two batches")
    sandbox.run("feed", tmp_path / "d", "--explain", "--rank", 3, "--world", 3).failed(2, "ranks are 0 to 2")
    ranks = [explain(sandbox, tmp_path / "d", rank=rank, world=8, batch=1, last="wrap") for rank in range(8)]
    assert [len(report["first"]) for report in ranks] == [1, 1, 1, 0, 0, 0, 0, 0]
    assert [report["expected"]["requests"] for report in ranks] == [1] * 8
