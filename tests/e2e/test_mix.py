"""`feed` of subsets and mixes: what --explain foretells comes true, interrupted and shared runs add up."""

from __future__ import annotations

import pytest

from . import oracle
from .conftest import Photos
from .harness import Sandbox

SUBSET = ("--split", "train=0.7,valid=0.3", "--take", "train", "--where", "bytes=100-")


def mixes(photos: Photos) -> dict[str, tuple[object, tuple[object, ...]]]:
    """First URI and further arguments."""
    return {
        "subset": (photos.tar, SUBSET),
        "mix": (photos.tar, (photos.raw, "--weights", "3,1", "--weights", "500:1,1", "--epoch-samples", "800")),
        "balance": (photos.raw, ("--balance", "--epoch-samples", "700")),
        "balance-shards": (photos.tar, ("--balance", "--epoch-samples", "700")),
        "independent": (photos.raw, (photos.tar, "--draws", "independent", "--epoch-samples", "400")),
    }


@pytest.mark.parametrize("name", ["subset", "mix", "balance", "balance-shards", "independent"])
@pytest.mark.parametrize("world", [1, 3])
def test_ranks_add_up_and_explain_comes_true(photos: Photos, sandbox: Sandbox, name: str, world: int) -> None:
    uri, arguments = mixes(photos)[name]
    whole = sandbox.feed(uri, *arguments, seed=3)
    sums, samples = oracle.ZERO, 0
    for rank in range(world):
        options = {"seed": 3, "rank": rank, "world": world, "batch": 50}
        expected = sandbox.feed(uri, *arguments, "--explain", **options)
        got = sandbox.feed(uri, *arguments, **options)
        assert expected["batches"]["samples"] == got["samples"] and expected["batches"]["steps"] == got["batches"]
        assert expected["expected"]["requests"] == got["requests"]["GET"]
        sums, samples = oracle.add(sums, got["digest"]), samples + got["samples"]
    assert samples == whole["samples"] == expected["samples"] and sums == whole["digest"]
    if name in ("mix", "balance", "balance-shards"):
        assert [part["drawn"] for part in expected["mix"]["parts"]] == whole["parts"]


@pytest.mark.parametrize("name", ["subset", "mix", "balance", "balance-shards", "independent"])
def test_an_interrupted_run_goes_on_with_another_world(photos: Photos, sandbox: Sandbox, name: str) -> None:
    uri, arguments = mixes(photos)[name]
    whole = sandbox.feed(uri, *arguments, epochs=2)
    first = sandbox.feed(uri, *arguments, epochs=2, stop_after=130, batch=13)
    rest = [
        sandbox.feed(uri, *arguments, epochs=2, resume=first["position"], rank=rank, world=2, batch=9)
        for rank in range(2)
    ]
    digest = first["digest"]
    for run in rest:
        digest = oracle.add(digest, run["digest"])
    assert digest == whole["digest"] and {run["position"] for run in rest} == {whole["position"]}
    sandbox.run("feed", uri, *arguments, "--resume", first["position"], "--seed", 5).failed(1, "another order")


def test_balanced_classes_have_their_names(photos: Photos, sandbox: Sandbox) -> None:
    for uri in (photos.raw, photos.tar):
        parts = sandbox.feed(uri, "--balance", "--explain")["mix"]["parts"]
        names = [part["class"] for part in parts]
        assert len(set(names)) == len(names) > 1 and all(names)
        explained, fed = (sandbox.ok("feed", uri, "--balance", "--size", 8, *more).out for more in (["--explain"], []))
        assert f"{uri}, class {names[0]}\n" in explained and f"Part 0 ({uri}, class {names[0]}): " in fed
    assert [part["class"] for part in sandbox.feed(photos.raw, photos.tar, "--explain")["mix"]["parts"]] == ["", ""]


def test_wrong_usage(photos: Photos, sandbox: Sandbox) -> None:
    for arguments, words in (
        (("--split", "train=0.9", "--take", "valid"), "is not one of them"),
        (("--split", "train=x", "--take", "train"), "NAME=FRACTION"),
        (("--split", "a=0.9,b=0.9", "--take", "a"), "sum to"),
        (("--where", "colour=red"), "conditions are"),
        (("--where", "samples=9-3"), "ascending"),
        (("--where", "bytes=200-100"), "at least LEAST and at most MOST"),
        (("--weights", "1,2"), "several URIs, or --balance"),
    ):
        sandbox.run("feed", photos.raw, *arguments).failed(2, words)
    sandbox.run("feed", photos.raw, "--where", "class=nobody").failed(1, "no class 'nobody'")
    sandbox.run("feed", photos.raw, "--where", "samples=0-99999").failed(1, "no sample 99999")
    sandbox.run("feed", photos.tar, "--where", "class=nobody").failed(1, "no class 'nobody'")
    split = ("--split", "a=0.5,b=0.5", "--take", "a")
    sandbox.run("feed", photos.tar, "--where", "bytes=1GiB-").failed(1, "the conditions of --where$")
    sandbox.run("feed", photos.tar, "--where", "bytes=1GiB-", *split).failed(
        1, "the conditions of --where and --split$"
    )
    sandbox.run("feed", photos.tar, photos.raw, "--weights", "1").failed(2, "1 weights for 2 data sets")
