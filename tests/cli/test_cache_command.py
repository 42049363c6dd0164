"""`millrace cache`: each of its commands, on a cache that a feed has filled or that nobody uses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_support import Bucket, Millrace, contents, lines
from room import with_room

ORDER = ["--shuffle", "global", "--seed", "3"]


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """Where a cache has room."""
    with with_room(tmp_path) as folder:
        yield folder


@pytest.fixture
def photos(millrace: Millrace, bucket: Bucket) -> str:
    """40 photos of about 20 KB in shards in the bucket."""
    millrace("synth", "s3://bkt/raw", "--count", "40", "--kb", "20", env=bucket.env)
    millrace("pack", "s3://bkt/raw", "s3://bkt/tar", "--shard-size", "200KiB", env=bucket.env)
    return "s3://bkt/tar"


@pytest.fixture
def said(millrace: Millrace, bucket: Bucket, tmp_path: Path) -> Any:
    """Runs a command, and returns the JSON that it prints."""
    env = bucket.env | {"MILLRACE_CACHE": str(tmp_path / "indexes")}

    def run(*words: object, code: int = 0) -> Any:
        return json.loads(millrace(*map(str, words), "--json", env=env, code=code).stdout)

    run.env = env  # type: ignore[attr-defined]
    return run


def feed(said: Any, uri: str, cache: Path) -> dict[str, Any]:
    report: dict[str, Any] = said("feed", uri, "--cache", cache, "--batch", 8, "--size", 32, *ORDER)
    return report


def test_warm(said: Any, photos: str, tmp_path: Path) -> None:
    """A feed finds all of it; what is there is not read again; of too much, what comes first is kept."""
    cache = tmp_path / "cache"
    warmed = said("cache", "warm", photos, "--cache", cache, *ORDER)
    assert (
        warmed["there_bytes"] == 0
        and warmed["read_bytes"] >= warmed["written_bytes"] == warmed["sample_bytes"] > 40 * 10_000
    )
    assert warmed["requests"] > 0 and (warmed["no_room_bytes"], warmed["dropped_bytes"]) == (0, 0)
    again = said("cache", "warm", photos, "--cache", cache, *ORDER)
    assert (again["read_bytes"], again["requests"], again["written_bytes"]) == (0, 0, 0) and again["there_bytes"] > 0
    fed = feed(said, photos, cache)
    assert fed["cache"]["miss_bytes"] == 0 and fed["requests"]["GET"] == 0 and fed["samples"] == 40
    small = said("cache", "warm", photos, "--cache", tmp_path / "small", "--cache-size", "300KiB", *ORDER)
    assert small["no_room_bytes"] > 0 and small["written_bytes"] > 0
    assert said("cache", "stat", tmp_path / "small")["disk_bytes"] <= 300 << 10


def test_ls_and_stat(millrace: Millrace, said: Any, photos: str, bucket: Bucket, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    feed(said, photos, cache)
    listed = [json.loads(line) for line in lines(millrace("cache", "ls", cache, "--json"))]
    shards = {f"s3://bkt/{key}" for key in bucket.keys() if key.endswith(".tar")}
    assert {one["uri"] for one in listed} == shards and len(listed) == len(shards) > 1
    assert all(0 < one["cached_bytes"] <= one["bytes"] and one["ranges"] > 0 and one["etag"] for one in listed)
    one = sorted(shards)[0]
    assert len(lines(millrace("cache", "ls", cache, "--uri", one))) == 1
    assert one in millrace("cache", "ls", cache).stdout.decode()
    stat = said("cache", "stat", cache)
    assert stat["objects"] == len(shards) and stat["cached_bytes"] == sum(one["cached_bytes"] for one in listed)
    assert stat["ranges"] == sum(one["ranges"] for one in listed) and stat["unsound_files"] == 0
    assert stat["disk_bytes"] >= stat["cached_bytes"] and stat["free_bytes"] < stat["file_system_bytes"]
    assert [job["alive"] for job in stat["jobs"]] == [False] and stat["jobs"][0]["bytes"] == stat["cached_bytes"]
    assert "of jobs that have ended" in millrace("cache", "stat", cache).stdout.decode()


def test_verify(said: Any, photos: str, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    feed(said, photos, cache)
    whole = said("cache", "verify", cache)
    assert whole["ranges"] > 0 and (whole["damaged_ranges"], whole["unsound_files"]) == (0, 0)
    damaged, unsound, *_ = sorted(path for path in (cache / "millrace-cache-1").rglob("*/*") if path.is_file())
    for path, at in ((damaged, 4096 + 6000), (unsound, 100)):
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        path.write_bytes(data)
    found = said("cache", "verify", cache, code=1)
    assert (found["damaged_ranges"], found["unsound_files"]) == (1, 1) and not unsound.exists()
    healed = feed(said, photos, cache)
    assert 0 < healed["cache"]["miss_bytes"] < healed["cache"]["hit_bytes"]
    assert said("cache", "verify", cache)["bytes"] == whole["bytes"]


def test_clear(said: Any, photos: str, bucket: Bucket, tmp_path: Path) -> None:
    """Removes the ranges of one object, and of all objects, and nothing else."""
    cache = tmp_path / "cache"
    feed(said, photos, cache)
    folder = cache / "millrace-cache-1"
    own = {name for name in contents(folder) if "/" in name}
    foreign = {"mine": b"1", "millrace-cache-1/mine": b"2", f"millrace-cache-1/{sorted(own)[0][:2]}/mine": b"3"}
    for name, data in foreign.items():
        (cache / name).write_bytes(data)
    objects = said("cache", "stat", cache)["objects"]
    one = next(f"s3://bkt/{key}" for key in bucket.keys() if key.endswith(".tar"))
    cleared = said("cache", "clear", cache, "--uri", one)
    assert (
        cleared["objects"] == 1 and cleared["disk_bytes"] > 0 and said("cache", "stat", cache)["objects"] == objects - 1
    )
    assert said("cache", "clear", cache)["objects"] == objects - 1
    assert said("cache", "stat", cache)["objects"] == 0 and not own & set(contents(folder))
    assert foreign.items() <= contents(cache).items()
    assert feed(said, photos, cache)["cache"]["hit_bytes"] == 0


def test_pin(said: Any, photos: str, tmp_path: Path) -> None:
    """Pinned ranges stay while another order of the same data, and another data set, go through a cache that is too small."""
    cache = tmp_path / "cache"
    pinned = said("cache", "warm", photos, "--cache", cache, "--cache-size", "300KiB", "--pin", *ORDER)["written_bytes"]
    assert said("cache", "stat", cache)["pinned_bytes"] == pinned > 0
    for seed in (4, 5):
        said(
            "feed",
            photos,
            "--cache",
            cache,
            "--cache-size",
            "300KiB",
            "--batch",
            8,
            "--size",
            32,
            "--shuffle",
            "global",
            "--seed",
            seed,
        )
    assert said("cache", "stat", cache)["pinned_bytes"] == pinned
    said("cache", "clear", cache)
    assert said("cache", "stat", cache)["pinned_bytes"] == 0
    said("feed", photos, "--cache", cache, "--pin", "--batch", 8, "--size", 32)
    stat = said("cache", "stat", cache)
    assert stat["pinned_bytes"] == stat["cached_bytes"] > 0


def test_simulate(millrace: Millrace, said: Any, photos: str) -> None:
    """From the index alone: nothing is read and no folder is needed. The optimum is at least ours, and that at least LRU's."""
    words = ["cache", "simulate", photos, "--capacity", "25%,50%,1GiB", "--epochs", "4", *ORDER]
    done = millrace(*words, "--json", env=said.env)
    quarter, half, all_of_it = (json.loads(line) for line in lines(done))
    for found in (quarter, half, all_of_it):
        assert found["units"] == 40 and not found["sampled"] and len(found["epochs"]) == 4
        rates = found["all"]["hit_rate"]
        assert rates["lru"] <= rates["ours"] <= rates["optimum"] + 0.02
        assert abs(found["all"]["store_bytes"]["ours"] - found["all"]["bytes"] * (1 - rates["ours"])) <= 1
    assert quarter["all"]["hit_rate"]["ours"] < half["all"]["hit_rate"]["ours"] < 0.75
    assert [epoch["hit_rate"]["ours"] for epoch in all_of_it["epochs"]] == [0, 1, 1, 1]
    text = millrace(*words, env=said.env).stdout.decode()
    assert text.count("optimum") == 3 and "100.0" in text
    # The share of a machine that runs half of the ranks.
    part = said(*words[:3], "--capacity", "1GiB", "--world", "4", "--local-ranks", "2", *ORDER)
    assert 0.3 < part["epochs"][0]["bytes"] / all_of_it["epochs"][0]["bytes"] < 0.7


@pytest.mark.parametrize("command", ["ls", "stat", "verify", "clear"])
def test_a_folder_without_a_cache(millrace: Millrace, tmp_path: Path, command: str) -> None:
    """Is left as it is, and named."""
    assert str(tmp_path) in millrace("cache", command, tmp_path, code=1).stderr.decode()
    assert not list(tmp_path.iterdir())


def test_usage(millrace: Millrace, tmp_path: Path) -> None:
    for words in (
        ["warm", tmp_path],
        ["simulate", tmp_path, "--capacity", "0%"],
        ["simulate", tmp_path, "--capacity", "much"],
        ["simulate", tmp_path, "--local-ranks", "2"],
        ["ls"],
    ):
        millrace("cache", *words, code=2)
