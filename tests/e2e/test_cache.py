"""`feed --cache`: the second run from disk, whatever happens to the first one and to the disk."""

from __future__ import annotations

import contextlib
import json
import random
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from room import with_room
from thoroughness import repeats

from .conftest import Photos
from .harness import Sandbox, Server, feed_args, logged_devstore, small_disk


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """Where a cache has room."""
    with with_room(tmp_path) as folder:
        yield folder


def disk_bytes(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*/*") if path.is_file())


def changes(folder: Path) -> dict[Path, int]:
    """When each file of the cache was last written."""
    found = {}
    for path in folder.rglob("*/*"):
        with contextlib.suppress(FileNotFoundError):
            found[path] = path.stat().st_mtime_ns
    return found


@pytest.mark.parametrize("place", ["tar", "raw"])
@pytest.mark.parametrize("shuffle", ["window", "global"])
def test_the_second_epoch_and_run_come_from_disk(
    photos: Photos, server: Server, sandbox: Sandbox, tmp_path: Path, place: str, shuffle: str
) -> None:
    options = {"shuffle": shuffle, "cache": tmp_path / "cache", "cache_size": "1GiB"}
    plain = sandbox.feed(f"s3://b/{place}", env=server.env(), shuffle=shuffle)
    assert "cache" not in plain
    first = sandbox.feed(f"s3://b/{place}", env=server.env(), **options)
    again = first["retries"] + first["hedges"]  # on a busy machine
    assert first["cache"]["requests"] == first["requests"]["GET"] - again > 0
    second = sandbox.feed(f"s3://b/{place}", env=server.env(), **options)
    assert (second["cache"]["miss_bytes"], second["cache"]["requests"]) == (0, 0)
    assert second["requests"]["GET"] == 0 and second["cache"]["hit_bytes"] > 0
    epochs = sandbox.feed(f"s3://b/{place}", env=server.env(), epochs=3, seed=5, **options)
    assert epochs["cache"]["miss_bytes"] == 0 and epochs["samples"] == 3 * len(photos.samples)
    assert plain["digest"] == first["digest"] == second["digest"]
    assert (
        epochs["digest"]
        == sandbox.feed(f"s3://b/{place}", env=server.env(), epochs=3, seed=5, shuffle=shuffle)["digest"]
    )


def test_kills(photos: Photos, server: Server, sandbox: Sandbox, tmp_path: Path) -> None:
    """Two writers, killed at any moment: what they leave is right, and what is missing is read."""
    rng = random.Random(19)
    cache = tmp_path / "cache"
    files = cache / "millrace-cache-1"
    for _ in range(repeats(200)):
        args = feed_args(
            "s3://b/tar", epochs=50, seed=rng.randrange(1000), cache=cache, cache_size="12MiB", shuffle="global"
        )
        before, deadline = changes(files), time.monotonic() + 300
        writers = [
            sandbox.start(*args, env=server.env(), out=subprocess.DEVNULL, err=subprocess.DEVNULL) for _ in range(2)
        ]
        # The kill hits the work, however long it takes to begin.
        while changes(files) == before and time.monotonic() < deadline:
            time.sleep(0.002)
        for writer in writers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                writer.wait(rng.uniform(0, 0.15))
            writer.kill()
            writer.wait()
        assert disk_bytes(files) <= 12 << 20
    report = sandbox.feed("s3://b/tar", env=server.env(), cache=cache, cache_size="12MiB")
    assert report["digest"] == photos.digest() and report["cache"]["hit_bytes"] > 0


@pytest.mark.parametrize("place", ["tar", "raw"])
def test_all_in_the_cache(photos: Photos, sandbox: Sandbox, tmp_path: Path, place: str) -> None:
    """After opening, the store is asked for nothing, neither HEADs nor listings: five epochs cost as many requests as one."""
    log = tmp_path / "log"
    with logged_devstore(sandbox, photos.root, log) as server:
        sandbox.ok("index", f"s3://b/{place}", env=server.env())

        def asked(epochs: int) -> tuple[list[str], int]:
            """The requests, and how many of them were repeated, as on a busy machine."""
            before = log.read_text()
            options = {"shuffle": "global", "epochs": epochs, "seed": epochs, "cache": tmp_path / "cache"}
            report = sandbox.feed(f"s3://b/{place}", env=server.env(), **options)
            assert report["samples"] == epochs * len(photos.samples)
            lines = re.findall(r"\b(?:GET|HEAD|PUT|POST|DELETE) /\S*", log.read_text()[len(before) :])
            return lines, report["retries"] + report["hedges"]

        assert any(re.search(r"\.(?:tar|jpg)$", line) for line in asked(1)[0])
        one, one_again = asked(1)
        five, five_again = asked(5)
    # A request that was repeated may not have reached the server.
    assert len(five) - five_again <= len(one) and len(one) - one_again <= len(five), (one, five)
    assert 0 < len(one) < 10 + one_again and 0 < len(five) < 10 + five_again, (one, five)
    assert not [line for line in five if re.search(r"\.(?:tar|jpg)\b", line)], five


@pytest.mark.parametrize("place", ["tar", "raw"])
def test_four_processes_fetch_what_one_does(
    photos: Photos, server: Server, sandbox: Sandbox, tmp_path: Path, place: str
) -> None:
    """At the same time, in the same order."""
    args = feed_args(f"s3://b/{place}", shuffle="global", cache=tmp_path / "cache")
    running = [sandbox.start(*args, env=server.env(), out=subprocess.PIPE, err=subprocess.PIPE) for _ in range(4)]
    ended = [(*process.communicate(timeout=600), process.returncode) for process in running]
    assert all(code == 0 and not err for _, err, code in ended), ended
    reports = [json.loads(out) for out, _, _ in ended]
    alone = sandbox.feed(f"s3://b/{place}", env=server.env(), shuffle="global", cache=tmp_path / "another")
    assert {report["digest"] for report in reports} == {alone["digest"]}
    for count in ("requests", "miss_bytes"):
        assert sum(report["cache"][count] for report in reports) == alone["cache"][count] > 0, count
    assert place == "tar" or alone["cache"]["requests"] == len(photos.samples)


def test_another_job_clears_it(photos: Photos, server: Server, sandbox: Sandbox, tmp_path: Path) -> None:
    """Again and again: the stream continues."""
    cache = tmp_path / "cache"
    args = feed_args("s3://b/tar", epochs=30, shuffle="global", cache=cache)
    feed = sandbox.start(*args, env=server.env(), out=subprocess.PIPE, err=subprocess.PIPE)
    cleared, deadline = 0, time.monotonic() + 300
    while not changes(cache / "millrace-cache-1") and time.monotonic() < deadline:
        time.sleep(0.002)
    while feed.poll() is None and time.monotonic() < deadline:
        cleared += sandbox.ok("cache", "clear", cache, "--json").json()["objects"]
    out, err = feed.communicate(timeout=600)
    assert feed.returncode == 0 and not err, err
    report = json.loads(out)
    assert report["samples"] == 30 * len(photos.samples) and cleared > 0
    plain = sandbox.feed("s3://b/tar", env=server.env(), epochs=30, shuffle="global", timeout=600)
    assert report["digest"] == plain["digest"] and report["cache"]["miss_bytes"] > 0


def test_a_full_disk(photos: Photos, server: Server, sandbox: Sandbox, tmp_path: Path) -> None:
    """There is one warning, or none if room is kept free. The stream continues, and uses the ranges that are there."""
    with small_disk(tmp_path / "disk", "4M") as disk:
        for _ in range(2):
            args = feed_args("s3://b/tar", "--json", cache=disk)
            done = sandbox.run(*args, env=server.env())
            assert done.code == 0, done
            report = done.json()
            assert report["digest"] == photos.digest() and done.err.count("warning") <= 1, done.err
        assert report["cache"]["hit_bytes"] > 1 << 20
        with (disk / "of another program").open("wb", buffering=0) as other, contextlib.suppress(OSError):
            while other.write(bytes(4096)):
                pass
        done = sandbox.run(*args, env=server.env())
        assert done.code == 0 and done.json()["digest"] == photos.digest() and done.err.count("warning") <= 1, done


@pytest.mark.parametrize(("place", "shuffle"), [("tar", "window"), ("tar", "global"), ("raw", "global")])
def test_in_memory(photos: Photos, server: Server, sandbox: Sandbox, place: str, shuffle: str) -> None:
    """Later epochs ask for little or nothing, and the batches are the same."""
    options = {"shuffle": shuffle, "epochs": 3, "seed": 3, "memory": "16MiB"}
    plain = sandbox.feed(f"s3://b/{place}", env=server.env(), **options)
    report = sandbox.feed(f"s3://b/{place}", env=server.env(), cache="memory", cache_size="64MiB", **options)
    assert report["digest"] == plain["digest"] and report["samples"] == 3 * len(photos.samples)
    assert report["cache"]["hit_bytes"] > report["cache"]["written_bytes"] > 0, (
        "what was missed is more, by the gaps between samples"
    )
    assert report["bytes_read"] < plain["bytes_read"] / 2
    assert report["cache"]["memory_bytes"] == 128 << 20, "with what may wait to be written"
    small = sandbox.feed(f"s3://b/{place}", env=server.env(), cache="memory", cache_size="4MiB", **options)
    assert small["digest"] == plain["digest"] and small["cache"]["memory_bytes"] == 8 << 20
    assert 0 < small["cache"]["hit_bytes"] < report["cache"]["hit_bytes"]
    assert (
        sandbox.feed(f"s3://b/{place}", "--pin", env=server.env(), cache="memory", cache_size="4MiB", **options)[
            "digest"
        ]
        == plain["digest"]
    )
    assert not (sandbox.home / "memory").exists(), "that is no folder"


def test_each_rank_has_its_own_memory(photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
    """All ranges come back from a cache on disk that all ranks share. In a cache of its own a rank finds the ranges that it has read: a quarter at first, if there are four ranks."""

    def rate(place: object) -> float:
        words = ("--shuffle", "global", "--epochs", 4, "--world", 4, "--cache", place, "--cache-size", "1GiB")
        return sandbox.ok("feed", photos.tar, "--explain", "--json", *words).json()["cache"]["all"]["hit_rate"]["ours"]

    assert 0.7 < rate(tmp_path / "cache") < 0.8
    assert 0.2 < rate("memory") < 0.45, "1/4, 7/16, 37/64"
    first = sandbox.feed(
        photos.tar, shuffle="global", epochs=4, world=4, rank=2, cache="memory", cache_size="64MiB", memory="8MiB"
    )
    hits, misses = first["cache"]["hit_bytes"], first["cache"]["miss_bytes"]
    assert 0.1 < hits / (hits + misses) < 0.45, first["cache"]


@pytest.mark.parametrize("left", range(4))
def test_a_disk_without_room_for_the_cache_itself(
    photos: Photos, server: Server, sandbox: Sandbox, tmp_path: Path, left: int
) -> None:
    """Another program has left so many pages of 4 KiB: the stream is the same, and that program's file, too."""
    with small_disk(tmp_path / "disk", "1M") as disk:
        with (disk / "of another program").open("wb", buffering=0) as other:
            with contextlib.suppress(OSError):
                while other.write(bytes(4096)):
                    pass
            size = other.tell() - left * 4096
            other.truncate(size)
        done = sandbox.run(*feed_args("s3://b/tar", cache=disk), env=server.env())
        assert done.code == 0 and done.json()["digest"] == photos.digest(), done
        assert done.err.count("warning") == (1 if left == 0 else 0), done.err
        assert (disk / "of another program").stat().st_size == size


def test_a_disk_that_is_full_at_each_new_file(photos: Photos, server: Server, sandbox: Sandbox, tmp_path: Path) -> None:
    """A file system of so few files that making one of the cache's fails, each of them once: one warning, the same stream, and nothing half-made."""
    warned = []
    for files in range(2, 31):
        with small_disk(tmp_path / f"disk-{files}", f"64M,nr_inodes={files}") as disk:
            done = sandbox.run(*feed_args("s3://b/tar", cache=disk), env=server.env())
            assert done.code == 0 and done.json()["digest"] == photos.digest(), done
            warned.append(done.err.count("warning"))
            assert not [path for path in disk.rglob("*") if path.name.startswith(".millrace-tmp-")]
            if not warned[-1]:
                assert sandbox.feed("s3://b/tar", env=server.env(), cache=disk)["cache"]["miss_bytes"] == 0
                break
    assert warned == [1] * (len(warned) - 1) + [0] and len(warned) > 6, warned


def test_usage(photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
    for words in (
        ("--cache-size", "1GiB"),
        ("--cache", tmp_path, "--cache-size", "much"),
        ("--cache", tmp_path, "--cache-size", "0"),
        ("--cache", "memory"),
    ):
        assert "--cache" in sandbox.run("feed", photos.tar, *words).failed(2)
    for command in (("cache", "warm", photos.tar), ("mount", photos.tar, tmp_path)):
        assert "name a folder" in sandbox.run(*command, "--cache", "memory", "--cache-size", "1GiB").failed(2)
