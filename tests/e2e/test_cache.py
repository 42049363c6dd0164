"""`feed --cache`: the second run from disk, whatever happens to the first one and to the disk."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest
from thoroughness import repeats

from .conftest import Photos
from .harness import Sandbox, Server, feed_args, small_disk


def disk_bytes(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*/*") if path.is_file())


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
    assert epochs["digest"] == sandbox.feed(f"s3://b/{place}", env=server.env(), epochs=3, seed=5, shuffle=shuffle)["digest"]


def test_kills(photos: Photos, server: Server, sandbox: Sandbox, tmp_path: Path) -> None:
    """Two writers, killed at any moment: what they leave is right, and what is missing is read."""
    rng = random.Random(19)
    cache = tmp_path / "cache"
    for _ in range(repeats(6, 200)):
        args = feed_args("s3://b/tar", epochs=50, seed=rng.randrange(1000), cache=cache, cache_size="12MiB", shuffle="global")
        writers = [sandbox.start(*args, env=server.env(), out=subprocess.DEVNULL, err=subprocess.DEVNULL) for _ in range(2)]
        for writer in writers:
            try:
                writer.wait(rng.uniform(0.05, 0.6))
            except subprocess.TimeoutExpired:
                pass
            writer.kill()
            writer.wait()
        assert disk_bytes(cache / "millrace-cache-1") <= 12 << 20 if cache.exists() else True
    report = sandbox.feed("s3://b/tar", env=server.env(), cache=cache, cache_size="12MiB")
    assert report["digest"] == photos.digest() and report["cache"]["hit_bytes"] > 0


def test_a_full_disk(photos: Photos, server: Server, sandbox: Sandbox, tmp_path: Path) -> None:
    """One warning, or none where room is kept free, and the stream goes on; what is there is used."""
    with small_disk(tmp_path / "disk", "4M") as disk:
        for _ in range(2):
            args = feed_args("s3://b/tar", "--json", cache=disk)
            done = sandbox.run(*args, env=server.env())
            assert done.code == 0, done
            report = done.json()
            assert report["digest"] == photos.digest() and done.err.count("warning") <= 1, done.err
        assert report["cache"]["hit_bytes"] > 1 << 20


def test_usage(photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
    for words in (("--cache-size", "1GiB"), ("--cache", tmp_path, "--cache-size", "much"), ("--cache", tmp_path, "--cache-size", "0")):
        assert "--cache" in sandbox.run("feed", photos.tar, *words).failed(2)
