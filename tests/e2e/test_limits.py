"""The costs: memory, bytes, and the causes of waiting."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from . import corpus, oracle
from .conftest import Photos
from .harness import MIB, Sandbox, Server, devstore, feed_args

NETWORK = {"list", "connect", "first byte", "body", "throttling", "credentials"}


def cause(name: str) -> str:
    return (
        name.replace("_", " ")
        .replace("-", " ")
        .replace("throttled", "throttling")
        .replace("throttle", "throttling")
        .lower()
    )


class TestMemory:
    @pytest.mark.all
    @pytest.mark.parametrize("place", ["tar", "one-shard", "small-shards", "raw"])
    @pytest.mark.parametrize("policy", ["none", "window", "global"])
    def test_stays_under_the_budget_and_64_mib(
        self, big: tuple[Path, int], sandbox: Sandbox, place: str, policy: str
    ) -> None:
        """And what is delivered does not depend on it."""
        root, _ = big
        digests = set()
        with devstore(sandbox, root, "--first-byte-ms", 30) as server:
            for budget in [64, 128, 512, 1024]:
                how = {"batch": 128, "size": 224, "shuffle": policy, "memory": f"{budget}MiB"}
                result = sandbox.run(
                    *feed_args(f"s3://b/{place}", **how), env=server.env(), timeout=300, watch_rss=True
                )
                assert result.code == 0, str(result)
                limit = (budget + 64) * MIB
                assert result.json()["samples"] == 3000
                assert 0 < result.peak_rss <= limit, f"{result.peak_rss / MIB:.0f} MiB seen from outside"
                assert result.json()["max_rss_bytes"] <= limit
                digests.add(result.json()["digest"])
        assert len(digests) == 1

    @pytest.mark.all
    @pytest.mark.parametrize(
        "latency", [[], ["--first-byte-ms", 200, "--first-byte-tail-ms", 1500, "--tail-fraction", 0.02]]
    )
    @pytest.mark.parametrize("place", ["tar", "raw"])
    def test_whatever_the_latency(
        self, big: tuple[Path, int], sandbox: Sandbox, place: str, latency: list[object]
    ) -> None:
        root, _ = big
        with devstore(sandbox, root, *latency) as server:
            how = {"batch": 128, "size": 224, "shuffle": "window", "memory": "64MiB"}
            result = sandbox.run(*feed_args(f"s3://b/{place}", **how), env=server.env(), timeout=300, watch_rss=True)
        assert result.code == 0, str(result)
        assert 0 < result.peak_rss <= 128 * MIB and result.json()["max_rss_bytes"] <= 128 * MIB

    @pytest.mark.all
    def test_faults_do_not_raise_it(self, big: tuple[Path, int], sandbox: Sandbox) -> None:
        root, _ = big
        faults = (
            "GET b/raw/*.jpg cut=50000 p=0.1",
            "GET b/raw/*.jpg stall=50000:800 p=0.02",
            "GET b/raw/*.jpg status=503 p=0.1",
            "GET b/raw/*.jpg flip=9 p=0.05",
        )
        with devstore(sandbox, root, "--first-byte-ms", 30, faults=faults) as server:
            how = {"batch": 128, "size": 224, "shuffle": "global", "memory": "64MiB"}
            result = sandbox.run(*feed_args("s3://b/raw", **how), env=server.env(), timeout=300, watch_rss=True)
        assert result.code == 0, str(result)
        assert 0 < result.peak_rss <= 128 * MIB

    def test_peak_is_the_programs_own(self, photos: Photos, sandbox: Sandbox) -> None:
        """A parent's memory is not charged to it: a forked child starts with that of its parent."""
        ballast = bytearray(400 * MIB)
        ballast[::4096] = b"x" * len(ballast[::4096])
        report = sandbox.feed(photos.tar, memory="64MiB", batch=128, size=224)
        assert report["max_rss_bytes"] <= 128 * MIB
        assert len(ballast) == 400 * MIB

    def test_many_readers_of_large_images(self, sandbox: Sandbox, tmp_path: Path) -> None:
        corpus.raw_tree(tmp_path / "d", ["x"], 12, width=1600, height=1200)
        result = sandbox.run(*feed_args(tmp_path / "d", memory="64MiB", threads=8, batch=4, size=224), watch_rss=True)
        assert result.code == 0, str(result)
        assert 0 < result.peak_rss <= 128 * MIB and result.json()["max_rss_bytes"] <= 128 * MIB


class TestBytes:
    @pytest.mark.all
    @pytest.mark.parametrize("memory", ["64MiB", "512MiB"])
    @pytest.mark.parametrize("world", [1, 2, 8])
    def test_windowed_shuffle_reads_each_byte_once(
        self, big: tuple[Path, int], sandbox: Sandbox, world: int, memory: str
    ) -> None:
        root, image_bytes = big
        data = sum(path.stat().st_size for path in (root / "b" / "tar").glob("*.tar"))
        with devstore(sandbox, root) as server:
            how = {"batch": 64, "size": 224, "shuffle": "window", "memory": memory, "env": server.env(), "timeout": 120}
            reports = [sandbox.feed("s3://b/tar", rank=rank, world=world, **how) for rank in range(world)]
        read = sum(r["bytes_read"] for r in reports)
        assert sum(r["samples"] for r in reports) == 3000
        assert image_bytes <= read <= 1.05 * data, f"{read / data:.3f} times the data"

    @pytest.mark.parametrize("policy", ["none", "window"])
    def test_each_byte_once_over_two_ranks(self, large: Path, sandbox: Sandbox, tmp_path: Path, policy: str) -> None:
        """The samples are larger than the bytes that a request costs."""
        sandbox.ok("pack", large, tmp_path / "tar", "--shard-size", "16MiB")
        data = sum(path.stat().st_size for path in (tmp_path / "tar").glob("*.tar"))
        assert data / 120 > 65536
        reports = [sandbox.feed(tmp_path / "tar", shuffle=policy, rank=rank, world=2) for rank in range(2)]
        assert sum(r["bytes_read"] for r in reports) <= 1.05 * data

    @pytest.mark.parametrize("policy", ["none", "window"])
    def test_small_samples_of_other_ranks_are_read_over(
        self, photos: Photos, sandbox: Sandbox, server: Server, policy: str
    ) -> None:
        """The samples have 14 KB: that costs less than a request for each."""
        data = sum(path.stat().st_size for path in photos.tar.glob("*.tar"))
        reports = [
            sandbox.feed("s3://b/tar", shuffle=policy, rank=rank, world=2, env=server.env()) for rank in range(2)
        ]
        again = sum(r["hedges"] + r["retries"] for r in reports)  # on a busy machine; each is of some MiB
        assert sum(r["bytes_read"] for r in reports) <= 2 * data + again * (8 << 20)
        assert sum(r["requests"]["GET"] for r in reports) - again <= 150

    @pytest.mark.parametrize("policy", ["none", "global", "window"])
    def test_raw_objects_are_read_once(self, photos: Photos, sandbox: Sandbox, server: Server, policy: str) -> None:
        report = sandbox.feed("s3://b/raw", shuffle=policy, env=server.env())
        images = sum(len(s.fields["jpg"]) for s in photos.samples)
        again = report["hedges"] + report["retries"]  # on a busy machine some are asked for twice
        largest = max(len(s.fields["jpg"]) for s in photos.samples)
        assert images <= report["bytes_read"] <= 1.05 * images + again * largest
        assert report["requests"]["GET"] - again <= 1.05 * 1005

    def test_neighbours_are_fetched_together(self, photos: Photos, sandbox: Sandbox, server: Server) -> None:
        """Not one request a sample: in order, requests of megabytes."""
        report = sandbox.feed("s3://b/tar", shuffle="none", env=server.env())
        assert report["requests"]["GET"] - report["hedges"] - report["retries"] <= 100


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """120 images of 1280x960, five different ones."""
    root, images = tmp_path_factory.mktemp("large"), [corpus.jpeg(n, 1280, 960) for n in range(5)]
    for n in range(120):
        corpus.write(root / "x" / f"{n:03d}.jpg", images[n % 5])
    return root


class TestStalls:
    def test_causes_sum_to_no_more_than_the_time(self, photos: Photos, sandbox: Sandbox, server: Server) -> None:
        for policy in ("none", "global"):
            report = sandbox.feed("s3://b/raw", shuffle=policy, env=server.env())
            assert 0 <= sum(report["stalls"].values()) <= report["seconds"] + 0.05

    def test_causes_sum_to_the_time_where_there_is_nothing_but_waiting(
        self, photos: Photos, sandbox: Sandbox, server: Server
    ) -> None:
        with devstore(sandbox, photos.root, faults=("GET b/raw/*.jpg delay-ms=4000",)) as slow:
            for policy in ("none", "global"):
                report = sandbox.feed("s3://b/raw", shuffle=policy, env=slow.env(), stop_after=100)
                waited = sum(report["stalls"].values())
                assert report["seconds"] > 4, report
                assert 0.75 * report["seconds"] <= waited <= report["seconds"] + 0.05, (
                    report
                )  # a busy machine keeps it from its CPU, too

    def test_slow_decoding_is_named(self, large: Path, sandbox: Sandbox) -> None:
        report = sandbox.feed(large, threads=1, size=600, batch=16)
        assert cause(report["bottleneck"]) == "decode", report
        assert sum(report["stalls"].values()) >= 0.5 * report["seconds"], "the feed has nothing to do but wait"
        assert sum(report["stalls"].values()) <= report["seconds"] + 0.05
        assert max(report["stalls"], key=report["stalls"].get) == report["bottleneck"]

    def test_slow_first_bytes_are_named(self, photos: Photos, sandbox: Sandbox, server: Server) -> None:
        with devstore(
            sandbox, photos.root, "--first-byte-ms", 1500
        ) as slow:  # many times what decoding takes, on a busy machine, too
            report = sandbox.feed(
                "s3://b/raw", shuffle="global", memory="40MiB", batch=128, size=224, env=slow.env(), stop_after=300
            )
        assert cause(report["bottleneck"]) in ("first byte", "connect", "body"), report
        waited = {cause(name): seconds for name, seconds in report["stalls"].items()}
        assert sum(waited.values()) <= report["seconds"] + 0.05
        assert sum(seconds for name, seconds in waited.items() if name in NETWORK) >= 0.5 * sum(waited.values()), report

    def test_the_first_unfinished_sample_is_charged(self, photos: Photos, sandbox: Sandbox, server: Server) -> None:
        """The body of the first sample takes 2 s or more, the first byte of the second 8 s, however often it is asked for. To the first byte
        is charged what is left of these when the body has come."""
        first, second = (f"b/raw/{s.key}.jpg" for s in photos.samples[:2])
        rate = len(photos.samples[0].fields["jpg"]) // 2
        faults = (f"GET {first} rate={rate}", f"GET {second} delay-ms=8000")
        with devstore(sandbox, photos.root, faults=faults) as slow:
            report = sandbox.feed("s3://b/raw", shuffle="none", env=slow.env(), stop_after=32)
        stalls = report["stalls"]
        assert stalls["body"] > 1.5 and stalls["first_byte"] > 1, report
        assert 6 < stalls["body"] + stalls["first_byte"] <= report["seconds"] + 0.05, report

    def test_throttling_is_named(self, photos: Photos, sandbox: Sandbox, server: Server) -> None:
        with devstore(sandbox, photos.root, "--rate-per-prefix", 40) as slow:
            report = sandbox.feed("s3://b/raw", shuffle="global", env=slow.env(), stop_after=300, timeout=120)
        assert cause(report["bottleneck"]) == "throttling", report

    def test_a_slow_body_is_named(self, photos: Photos, sandbox: Sandbox, server: Server) -> None:
        with devstore(sandbox, photos.root, faults=("GET b/raw/*.jpg rate=5000",)) as slow:
            report = sandbox.feed(
                "s3://b/raw",
                shuffle="global",
                memory="40MiB",
                batch=128,
                size=224,
                env=slow.env(),
                stop_after=300,
                timeout=120,
            )
        assert cause(report["bottleneck"]) == "body", report["stalls"]


def test_the_summary_for_people(photos: Photos, sandbox: Sandbox, server: Server) -> None:
    text = sandbox.ok("feed", "s3://b/tar", "--size", 64, "--shuffle", "none", env=server.env()).out
    for line in (
        r"^1005 samples in [\d.]+ s: \d+ samples/s, first batch after [\d.]+ s, opening took [\d.]+ s$",
        r"^CPU: [\d.]+ s, [\d.]+ s per 1,000 samples; peak memory [\d.]+ MiB of a budget of 512MiB",
        r"^Read: [\d.]+ MiB in \d+ GET requests, \d+ of them repeated$",
        r"^The consumer waited [\d.]+ s of [\d.]+ s:",
        r"^Bottleneck: \w+$",
        f"^Digest: {photos.digest()}$",
        r"^Position: mr2-1-0-[0-9a-f]{16}$",
    ):
        assert re.search(line, text, re.MULTILINE), f"{line}\n{text}"


def test_latency_is_hidden(photos: Photos, sandbox: Sandbox, server: Server) -> None:
    """A coarse guard (bench/feed_bench.py measures it): 1,005 raw objects at 300 ms take 300 s one after the other, and a hundredth of that."""
    with devstore(sandbox, photos.root, "--first-byte-ms", 300) as slow:
        report = sandbox.feed("s3://b/raw", shuffle="global", env=slow.env())
    assert report["digest"] == sandbox.feed(photos.tar, shuffle="global")["digest"]
    assert report["seconds"] < 100
    assert oracle.ZERO != report["digest"]
