"""A first epoch that begins before there is an index: each sample once, although processes are killed and others index meanwhile."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from .conftest import Photos
from .harness import Sandbox, feed_args, logged_devstore

SHARDS = 200  # stages of 64 shards, of some 128, and of the rest


@pytest.fixture
def shards(photos: Photos, sandbox: Sandbox, tmp_path: Path) -> Path:
    """Small shards: those of a pack of some photos, and links to them."""
    folder = tmp_path / "shards"
    source = tmp_path / "few"
    pictures = sorted((photos.raw).rglob("*.jpg"))[:12]
    for number, picture in enumerate(pictures):
        (source / str(number % 3)).mkdir(parents=True, exist_ok=True)
        shutil.copy(picture, source / str(number % 3) / f"{number}.jpg")
    sandbox.ok("pack", source, tmp_path / "packed", "--shard-size", "64KiB")
    folder.mkdir()
    packed = sorted((tmp_path / "packed").glob("*.tar"))
    for number in range(SHARDS):
        os.link(packed[number % len(packed)], folder / f"{number:03}.tar")
    return folder


def staged(sandbox: Sandbox, shards: Path, **options: object) -> dict:
    return sandbox.feed(shards, start="staged", **options)


def forget(sandbox: Sandbox, shards: Path) -> None:
    shutil.rmtree(shards / ".millrace", ignore_errors=True)
    shutil.rmtree(sandbox.home / "cache", ignore_errors=True)


def test_an_index_changes_nothing(shards: Path, sandbox: Sandbox) -> None:
    without = staged(sandbox, shards)
    assert without["position"].startswith("mr3-1-0-0-0-")
    assert (shards / ".millrace/index").exists(), "it is whole at the end"
    assert not list((shards / ".millrace").glob("index.part-*"))
    forget(sandbox, shards)
    sandbox.ok("index", shards)
    with_index = staged(sandbox, shards)
    assert [with_index[name] for name in ("samples", "digest", "position")] == [
        without[name] for name in ("samples", "digest", "position")
    ]
    indexed = sandbox.feed(shards)
    assert indexed["samples"] == without["samples"] and indexed["digest"] != without["digest"], "another order"


@pytest.mark.parametrize("world", [1, 2, 3, 8])
def test_ranks_add_up(shards: Path, sandbox: Sandbox, world: int) -> None:
    whole = staged(sandbox, shards, epochs=2)
    total = 0
    samples = 0
    for rank in range(world):
        if rank == world - 1:  # the others have made the index whole; it begins without
            forget(sandbox, shards)
        part = staged(sandbox, shards, epochs=2, rank=rank, world=world)
        total += int(part["digest"], 16)
        samples += part["samples"]
    assert (samples, f"{total % 2**128:032x}") == (whole["samples"], whole["digest"])


@pytest.mark.parametrize("last", ["pad", "short", "drop", "wrap"])
def test_steps_span_stages(shards: Path, sandbox: Sandbox, last: str) -> None:
    whole, step = sandbox.feed(shards)["samples"], 3 * 32
    for rank in range(3):
        options = {"rank": rank, "world": 3, "last": last, "batch": 32}
        reports = [sandbox.feed(shards, start=start, **options) for start in ("staged", "indexed")]
        assert [report["batches"] for report in reports] == [whole // step if last == "drop" else -(-whole // step)] * 2
        assert reports[0]["samples"] == reports[1]["samples"]


def test_what_is_killed_goes_on(shards: Path, sandbox: Sandbox, tmp_path: Path) -> None:
    whole = staged(sandbox, shards)
    state = tmp_path / "state"
    total, samples, resume = 0, 0, {}
    for stop in (40, 150, 300, 1000):
        if stop != 150:  # there what was indexed before stays
            forget(sandbox, shards)
        if stop == 1000:
            sandbox.ok("index", shards)
        part = staged(sandbox, shards, stop_after=stop, state=state, **resume)
        total += int(part["digest"], 16)
        samples += part["samples"]
        resume = {"resume": part["position"]}
    assert (samples, f"{total % 2**128:032x}") == (whole["samples"], whole["digest"])


def test_a_kill_in_the_middle_leaves_nothing_wrong(shards: Path, sandbox: Sandbox) -> None:
    whole = staged(sandbox, shards)
    for seconds in (0.05, 0.1, 0.2):
        forget(sandbox, shards)
        process = sandbox.start(*feed_args(shards, start="staged"), err=subprocess.DEVNULL)
        time.sleep(seconds)
        process.kill()
        process.wait()
        assert staged(sandbox, shards)["digest"] == whole["digest"]


@pytest.mark.parametrize(
    "options",
    [
        {"where": "bytes=1-"},
        {"split": "a=0.5,b=0.5", "take": "a"},
        {"tokens": "128:pack"},
        {"workers": "127.0.0.1:1"},
    ],
)
def test_what_needs_all_samples_is_refused(shards: Path, sandbox: Sandbox, options: dict[str, object]) -> None:
    sandbox.run(*feed_args(shards, start="staged", **options)).failed(2, "--start indexed")
    assert not (shards / ".millrace").exists(), "nothing was read"


def test_raw_objects_need_no_stages(photos: Photos, sandbox: Sandbox) -> None:
    sandbox.run(*feed_args(photos.raw, start="staged")).failed(1, "is not staged", "--start indexed")


def test_a_position_belongs_to_its_start(shards: Path, sandbox: Sandbox) -> None:
    first = staged(sandbox, shards, stop_after=32)
    indexed = sandbox.feed(shards, stop_after=32)
    sandbox.run(*feed_args(shards, start="staged", resume=indexed["position"])).failed(1, "another order")
    sandbox.run(*feed_args(shards, start="indexed", resume=first["position"])).failed(1, "another order")


def test_a_run_that_may_choose_goes_on_in_the_order_of_its_position(shards: Path, sandbox: Sandbox) -> None:
    for start in ("staged", "indexed"):
        whole = sandbox.feed(shards, start=start)
        first = sandbox.feed(shards, start=start, stop_after=300)
        rest = sandbox.feed(shards, resume=first["position"])
        digest = (int(first["digest"], 16) + int(rest["digest"], 16)) % 2**128
        assert (first["samples"] + rest["samples"], f"{digest:032x}") == (whole["samples"], whole["digest"]), start
    mr3 = staged(sandbox, shards, stop_after=32)["position"]
    sandbox.run(*feed_args(shards, resume=mr3, where="bytes=1-")).failed(2, "--where", "--start indexed")


# ---- The default


@pytest.fixture
def large(shards: Path, tmp_path: Path) -> Path:
    """More than 1 GiB of shards: holes behind the ends of some archives, which nobody reads."""
    folder = tmp_path / "large"
    folder.mkdir()
    for number in range(3):
        shutil.copy(shards / f"{number:03}.tar", folder)
        os.truncate(folder / f"{number:03}.tar", 400 << 20)
    return folder


def test_a_position_says_how_its_run_began(large: Path, sandbox: Sandbox) -> None:
    staged = sandbox.feed(large, start="staged", stop_after=1, batch=2)
    assert staged["position"].startswith("mr3-0-")
    assert sandbox.feed(large, resume=staged["position"])["position"].startswith("mr3-1-")
    indexed = sandbox.feed(large, stop_after=1, batch=2)
    assert indexed["position"].startswith("mr2-0-")
    assert sandbox.feed(large, resume=indexed["position"])["position"].startswith("mr2-1-")


# ---- Bytes


def test_a_cache_saves_reading_twice(shards: Path, sandbox: Sandbox, tmp_path: Path) -> None:
    """By the bytes that the server has sent: 1.05 of the data at most with a cache, else 2.05."""
    root = tmp_path / "root"
    (root / "b").mkdir(parents=True)
    shutil.copytree(shards, root / "b" / "set")
    total = sum(path.stat().st_size for path in (root / "b/set").iterdir())
    log = tmp_path / "log"
    with logged_devstore(sandbox, root, log) as server:
        digests = set()
        for options, most in (
            ({}, 2.05),
            ({"cache": tmp_path / "cache"}, 1.05),
            ({"cache": "memory", "cache_size": "64MiB"}, 1.05),
        ):
            shutil.rmtree(root / "b/set/.millrace", ignore_errors=True)
            shutil.rmtree(sandbox.home / "cache", ignore_errors=True)
            before = len(log.read_text())
            report = sandbox.feed("s3://b/set", env=server.env(), start="staged", **options)
            digests.add(report["digest"])
            sent = sum(map(int, re.findall(r" GET \S+\.tar\S* \S+ 20[06] (\d+)", log.read_text()[before:])))
            assert total * 0.9 < sent <= most * total, (options, sent / total)
        assert len(digests) == 1
