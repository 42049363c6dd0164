"""Tests a Loader's cache: the same stream, without the store, and whatever happens to the disk."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import millrace
import pytest
from millrace import _ranks
from room import with_room
from support import Samples, binary
from token_corpus import some_lengths, write_corpus


@pytest.fixture
def tmp_path(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Returns a folder in which a cache has room."""
    with with_room(tmp_path) as folder:
        yield folder


@pytest.fixture
def shards(bucket: str, server: dict[str, str], tar: Samples, request: pytest.FixtureRequest) -> str:
    """Returns the URI of the tar shards in the bucket."""
    uri = f"{bucket}/{request.node.name.replace('[', '-').replace(']', '')}"
    for shard in sorted(pathlib.Path(tar.uri).glob("*.tar")):
        with millrace.open(f"{uri}/{shard.name}", "wb") as file:
            file.write(shard.read_bytes())
    return uri


def feed(uri: str, **options: Any) -> dict[str, Any]:
    with millrace.Loader(uri, batch_size=8, size=16, digest="raw", epochs=1, memory="32MiB", **options) as loader:
        for _ in loader:
            pass
        return dict(loader.report())


@pytest.mark.parametrize("shuffle", ["none", "global", "window"])
def test_the_second_run_asks_for_no_sample(shards: str, tmp_path: pathlib.Path, shuffle: str) -> None:
    plain = feed(shards, shuffle=shuffle)
    assert plain["cache"] is None
    first = feed(shards, shuffle=shuffle, cache=tmp_path)
    second = feed(shards, shuffle=shuffle, cache=str(tmp_path), seed=1)
    again = feed(shards, shuffle=shuffle, cache=tmp_path)
    assert first["cache"]["miss_bytes"] > 0 and first["cache"]["requests"] > 0
    assert (second["cache"]["miss_bytes"], second["cache"]["requests"]) == (0, 0)
    assert second["cache"]["hit_bytes"] > 0 and second["samples"] == first["samples"]
    assert plain["digest"] == first["digest"] == again["digest"]
    assert second["digest"] == feed(shards, shuffle=shuffle, seed=1)["digest"]


def test_epochs_of_one_loader(shards: str, tmp_path: pathlib.Path) -> None:
    """The first epochs are read ahead together, as far as the memory goes, before anything is in the cache."""
    epochs = 80
    with millrace.Loader(shards, batch_size=8, size=16, epochs=epochs, cache=tmp_path, memory="3MiB") as loader:
        for _ in range(epochs):
            assert sum(int(batch["valid"].sum()) for batch in loader) == 50
        report = loader.report()["cache"]
    assert report is not None and report["hit_bytes"] > 0 and report["miss_bytes"] > 0


def test_of_a_folder(tar: Samples, tmp_path: pathlib.Path) -> None:
    """A mounted file system may be far away, too."""
    assert feed(tar.uri, cache=tmp_path)["digest"] == feed(tar.uri, cache=tmp_path)["digest"]
    assert feed(tar.uri, cache=tmp_path)["cache"]["miss_bytes"] == 0


def test_a_cache_that_is_too_small(shards: str, tmp_path: pathlib.Path) -> None:
    whole = feed(shards)["digest"]
    for _ in range(3):
        report = feed(shards, cache=millrace.Cache(tmp_path, size="200KiB"))
        assert report["digest"] == whole
        used = sum(path.stat().st_blocks * 512 for path in (tmp_path / "millrace-cache-1").rglob("*/*"))
        assert used <= 200 << 10
    assert report["cache"]["hit_bytes"] > 0 and report["cache"]["miss_bytes"] > 0


def test_flipped_bits(shards: str, tmp_path: pathlib.Path) -> None:
    whole = feed(shards, cache=tmp_path)["digest"]
    for path in (tmp_path / "millrace-cache-1").rglob("*/*"):
        data = bytearray(path.read_bytes())
        for at in range(100, len(data), 997):
            data[at] ^= 1 << at % 8
        path.write_bytes(data)
    report = feed(shards, cache=tmp_path)
    assert report["digest"] == whole and report["cache"]["miss_bytes"] > 0
    assert feed(shards, cache=tmp_path)["cache"]["miss_bytes"] == 0, "what was damaged was written again"


def test_what_cannot_be_a_cache(shards: str, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]) -> None:
    """There is one warning, and the stream continues."""
    whole = feed(shards)["digest"]
    (tmp_path / "file").write_bytes(b"mine")
    capfd.readouterr()
    report = feed(shards, cache=tmp_path / "file")
    assert report["digest"] == whole and report["cache"] is None
    said = capfd.readouterr().err
    assert said.count("warning") == 1 and str(tmp_path / "file") in said
    assert (tmp_path / "file").read_bytes() == b"mine"


def test_a_cache_that_vanishes(shards: str, tmp_path: pathlib.Path) -> None:
    whole = feed(shards)["digest"]
    with millrace.Loader(
        shards, batch_size=8, size=16, digest="raw", epochs=1, memory="32MiB", cache=tmp_path / "c"
    ) as loader:
        for number, _ in enumerate(loader):
            if number == 2:
                (tmp_path / "c").rename(tmp_path / "gone")  # it is made again meanwhile
                shutil.rmtree(tmp_path / "gone")
        assert loader.report()["digest"] == whole


@pytest.mark.parametrize("shuffle", ["none", "global", "window"])
@pytest.mark.parametrize("layout", ["pack", "stream"])
def test_rows_of_tokens(tmp_path: pathlib.Path, shuffle: str, layout: str) -> None:
    """Some pieces have checksums, with others between them."""
    corpus = write_corpus(tmp_path / "corpus", some_lengths(seed=3, count=300, most=200))

    def rows(**options: Any) -> tuple[str, Any]:
        tokens = millrace.Tokens(96, layout)
        with millrace.Loader(
            corpus.uri, tokens=tokens, batch_size=4, shuffle=shuffle, digest="raw", epochs=1, memory="16MiB", **options
        ) as loader:
            for _ in loader:
                pass
            return str(loader.report()["digest"]), loader.report()["cache"]

    plain, _ = rows()
    first, wrote = rows(cache=tmp_path / "cache")
    second, found = rows(cache=tmp_path / "cache")
    assert plain == first == second
    assert wrote["miss_bytes"] > 0 and (found["miss_bytes"], found["requests"]) == (0, 0)


def test_pin(shards: str, tmp_path: pathlib.Path) -> None:
    """Pinned bytes are there after others have read more than fits."""
    cache, pinning = (millrace.Cache(tmp_path, size="200KiB", pin=pin) for pin in (False, True))
    feed(shards, cache=pinning, shuffle="global")
    stat = subprocess.run([binary(), "cache", "stat", tmp_path, "--json"], check=True, capture_output=True)
    kept = json.loads(stat.stdout)["pinned_bytes"]
    assert kept > 0
    for seed in (1, 2):
        feed(shards, seed=seed, cache=cache, shuffle="global")
    assert feed(shards, cache=pinning, shuffle="global")["cache"]["hit_bytes"] >= kept


def test_in_memory(shards: str, tmp_path: pathlib.Path) -> None:
    """The Loaders of a process have one cache, as long as one of them lives."""
    options: dict[str, Any] = {"cache": millrace.Cache("memory", size="32MiB"), "shuffle": "global"}
    whole = feed(shards, shuffle="global")["digest"]
    with millrace.Loader(shards, batch_size=8, size=16, epochs=1, memory="32MiB", **options) as holder:
        first = feed(shards, **options)
        second = feed(shards, **{**options, "cache": millrace.Cache("memory", size="32MiB", pin=True)})
        other = feed(shards, seed=1, **options)
        assert first["digest"] == second["digest"] == whole and other["samples"] == first["samples"]
        for report in (second["cache"], other["cache"]):
            assert (report["miss_bytes"], report["requests"]) == (0, 0) and report["hit_bytes"] > 0
            assert report["memory_bytes"] == 64 << 20 and report["forecast"] is not None
        for _ in holder:
            pass
    assert feed(shards, cache=tmp_path)["cache"]["memory_bytes"] == 0
    small = feed(shards, cache=millrace.Cache("memory", size="200KiB"), shuffle="global")
    assert small["digest"] == whole and small["cache"]["memory_bytes"] == 400 << 10


def test_what_cannot_be_in_memory(tar: Samples, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(millrace.InvalidArgumentError, match=r"Cache\('memory', size='4GiB'\)"):
        millrace.Loader(tar.uri, cache="memory")
    with pytest.raises(millrace.ExhaustedError, match="budget"):
        millrace.Loader(tar.uri, cache=millrace.Cache("memory", size="1000TiB"))
    monkeypatch.chdir(tmp_path)
    assert feed(tar.uri, cache=pathlib.Path("memory"))["cache"]["memory_bytes"] == 0
    assert os.listdir(tmp_path / "memory") == ["millrace-cache-1"], "a path is a folder"


@pytest.mark.parametrize(
    ("environment", "rank", "world", "expected"),
    [
        ({}, 3, 8, 0),
        ({"LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "4"}, 7, 8, 4),
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, 5, 6, 2),
        ({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}, 7, 8, 0),  # the ranks of a machine do not follow each other
        ({"LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "4"}, 7, 10, 0),
        ({"LOCAL_RANK": "x", "LOCAL_WORLD_SIZE": "4"}, 0, 4, 0),
    ],
)
def test_ranks_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], rank: int, world: int, expected: int
) -> None:
    for names in _ranks._LOCAL_VARIABLES:
        for name in names:
            monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert _ranks.local_ranks(rank, world) == expected


def test_tenants_share_nothing(shards: str, tmp_path: pathlib.Path) -> None:
    """Loaders of one process share nothing, either."""
    digest = feed(shards, cache=tmp_path)["digest"]
    for name in ("vision", "speech"):
        report = feed(shards, cache=millrace.Cache(tmp_path, tenant=name))
        assert report["cache"]["hit_bytes"] == 0 and report["digest"] == digest
    for cache in (tmp_path, *(millrace.Cache(tmp_path, tenant=name) for name in ("vision", "speech"))):
        assert feed(shards, cache=cache)["cache"]["miss_bytes"] == 0
    for wrong in (
        millrace.Cache(tmp_path, tenant=""),
        millrace.Cache(tmp_path, tenant="a b"),
        millrace.Cache(tmp_path, tenant="x" * 300),
    ):
        with pytest.raises(millrace.InvalidArgumentError, match="tenant"):
            millrace.Loader(shards, cache=wrong)


def test_options(tar: Samples, tmp_path: pathlib.Path) -> None:
    wrong: list[tuple[Any, str]] = [
        (millrace.Cache(None, size="1GiB"), "the path of a cache"),  # type: ignore[arg-type]
        (millrace.Cache(tmp_path, pin=1), "pin of the cache"),  # type: ignore[arg-type]
        (3, "cache must be"),
        (millrace.Cache(tmp_path, size="much"), "the size of a cache"),
        (millrace.Cache(tmp_path, size=-1), "the size of a cache"),
    ]
    for cache, message in wrong:
        with pytest.raises((millrace.InvalidArgumentError, TypeError), match=message):
            millrace.Loader(tar.uri, cache=cache)
    assert not os.listdir(tmp_path)


def test_loaders_of_a_process_share_one_cache(shards: str, tmp_path: pathlib.Path) -> None:
    def writers() -> set[str]:
        found = set()
        for task in pathlib.Path("/proc/self/task").iterdir():
            with contextlib.suppress(OSError):  # it has just ended
                if (task / "comm").read_text().strip() == "cache-write":
                    found.add(task.name)
        return found

    options: dict[str, Any] = {"batch_size": 8, "size": 16, "digest": "raw", "epochs": 1, "memory": "32MiB"}
    before = writers()
    with (
        millrace.Loader(shards, cache=tmp_path / "c", **options) as one,
        millrace.Loader(shards, cache=f"{tmp_path}/./c", **options) as two,
        millrace.Loader(shards, cache=millrace.Cache(tmp_path / "c", size="1GiB"), **options) as other,
    ):
        for batches in zip(one, two, other):
            assert len({batch["key"][0] for batch in batches}) == 1
        assert len(writers() - before) == 2, "one of each size"
        assert one.report()["digest"] == two.report()["digest"] == other.report()["digest"]
        reports = [loader.report()["cache"] for loader in (one, two, other)]
        assert sum(report["miss_bytes"] for report in reports if report) > 0
