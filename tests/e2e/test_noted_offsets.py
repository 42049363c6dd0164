"""Shards without an index, of which other programs have noted where the samples lie: they are not read to be indexed, and the result is that of reading them."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy
import pytest

from . import corpus
from .harness import Sandbox, Server, logged_devstore

sys.path.append(str(Path(__file__).resolve().parents[1] / "shard"))

import mosaic  # noqa: E402

SAMPLES = 150  # of a shard


def samples(first: int) -> list[corpus.Sample]:
    """Enough of them for a shard: notes of a small one are worth nothing."""
    noise = numpy.random.default_rng(first)
    return [
        corpus.Sample(
            f"set/{n:06}",
            {"jpg": corpus.jpeg(n), "cls": b"%d" % (n % 10), "bin": noise.bytes(6000 + n % 100), "empty": b""},
        )
        for n in range(first, first + SAMPLES)
    ]


def wds_index(shard: Path) -> str:
    """The text that wds2idx of DALI makes of a shard: version and samples, and of each sample extension, offset, size and name of its files."""
    groups: dict[str, list[str]] = {}
    with tarfile.open(shard) as tar:
        for member in tar:
            if member.type == tarfile.REGTYPE:
                folder, _, name = member.name.rpartition("/")
                base, _, extension = name.partition(".")
                line = f"{extension} {member.offset_data} {member.size} {member.name}"
                groups.setdefault(f"{folder}/{base}", []).append(line)
    return f"v1.2 {len(groups)}\n" + "".join(" ".join(group) + "\n" for group in groups.values())


def write_shards(folder: Path, tar_format: int = tarfile.PAX_FORMAT, mtime: float = 1.5) -> list[Path]:
    """As webdataset writes them: a time that is no whole number takes an extended header for each file."""
    return [
        corpus.write_tar(folder / f"shard-{i:04}.tar", samples(i * SAMPLES), tar_format, mtime=mtime) for i in range(4)
    ]


def note(shards: list[Path]) -> None:
    for shard in shards:
        shard.with_suffix(".idx").write_text(wds_index(shard))


@dataclass
class Watched:
    server: Server
    log: Path

    def reads(self) -> list[tuple[str, int]]:
        """Path and bytes of each GET of data so far."""
        found = re.findall(r" GET (\S+) \S+ 20[06] (\d+)", self.log.read_text())
        return [(path, int(size)) for path, size in found if "." in path.rsplit("/", 1)[-1] and ".millrace" not in path]


@contextlib.contextmanager
def watched(sandbox: Sandbox, root: Path, *faults: str) -> Iterator[Watched]:
    log = root.parent / "log"
    with logged_devstore(sandbox, root, log, faults=faults) as server:
        yield Watched(server, log)


FEED = {"batch": 16, "digest-of": "decoded", "size": 32, "seed": 3}


def feed(sandbox: Sandbox, uri: str, server: Server, *more: str) -> dict:
    return sandbox.ok(
        "feed", uri, "--json", *(str(x) for k, v in FEED.items() for x in (f"--{k}", v)), *more, env=server.env()
    ).json()


@pytest.mark.parametrize("tar_format", [tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT])
def test_tar_shards_with_indexes_of_dali(sandbox: Sandbox, tmp_path: Path, tar_format: int) -> None:
    """Opened as they are: the same order, samples and positions, by less than a tenth of the bytes."""
    root = tmp_path / "root"
    write_shards(root / "b" / "read", tar_format)
    note(write_shards(root / "b" / "noted", tar_format))
    data_bytes = sum(path.stat().st_size for path in (root / "b" / "read").glob("*.tar"))
    with watched(sandbox, root) as store:
        read = sandbox.ok("index", "s3://b/read", "--json", env=store.server.env()).json()
        gets_of_reading = store.reads()
        assert sum(size for _, size in gets_of_reading) >= data_bytes
        noted = sandbox.ok("index", "s3://b/noted", "--json", env=store.server.env()).json()
        gets = store.reads()[len(gets_of_reading) :]
        assert (noted["outlined_objects"], noted["samples_without_checksum"]) == (4, 4 * SAMPLES)
        assert (read["outlined_objects"], read["samples_without_checksum"]) == (0, 0)
        for key in ("samples", "objects", "bytes", "fields", "warnings"):
            assert noted[key] == read[key], key
        assert len(gets) == 12, "of each shard its index, its beginning and its end"
        assert sum(size for _, size in gets) < data_bytes / 10

        first = feed(sandbox, "s3://b/noted", store.server, "--stop-after", "208")
        assert first == first | {
            key: value
            for key, value in feed(sandbox, "s3://b/read", store.server, "--stop-after", "208").items()
            if key in ("digest", "position", "samples")
        }
        # An epoch that was begun without checksums continues with them.
        sandbox.ok("index", "s3://b/noted", "--checksums", env=store.server.env())
        rest = [
            feed(sandbox, f"s3://b/{name}", store.server, "--resume", first["position"]) for name in ("read", "noted")
        ]
        assert rest[0]["samples"] == 4 * SAMPLES - 208
        assert rest[0]["digest"] == rest[1]["digest"]
        again = sandbox.ok("index", "s3://b/noted", "--json", env=store.server.env()).json()
        assert (again["samples_without_checksum"], again["reused_objects"]) == (0, 4)


def test_an_epoch_without_an_index(sandbox: Sandbox, tmp_path: Path) -> None:
    """Shuffled, through a cache as well; an index is made on the way."""
    root = tmp_path / "root"
    write_shards(root / "b" / "read")
    note(write_shards(root / "b" / "noted"))
    with watched(sandbox, root) as store:
        digests = [
            feed(sandbox, f"s3://b/{name}", store.server, "--shuffle", "global", *more)["digest"]
            for name in ("read", "noted")
            for more in ((), ("--cache", str(tmp_path / "cache")), ("--cache", str(tmp_path / "cache")))
        ]
        assert len(set(digests)) == 1
        # Classes are read from the shards if they are asked for.
        classes = sandbox.ok("inspect", "s3://b/noted", "--json", env=store.server.env()).json()
        assert [one["samples"] for one in classes["classes"]] == [60] * 10
        assert classes["samples_without_checksum"] == 0


def test_an_index_that_is_out_of_date_gives_no_wrong_sample(sandbox: Sandbox, tmp_path: Path) -> None:
    """The ends of the shard tell nothing: the first and the last sample are as they were."""
    root = tmp_path / "root"
    folder = root / "b" / "set"
    shards = write_shards(folder)
    note(shards)
    other = samples(0)
    other[50], other[51] = other[51], other[50]
    other[70] = corpus.Sample("set/another", other[70].fields)
    size = shards[0].stat().st_size
    corpus.write_tar(shards[0], other, mtime=1.5)
    assert shards[0].stat().st_size == size
    with watched(sandbox, root) as store:
        failed = sandbox.run("feed", "s3://b/set", "--json", "--batch", "16", "--size", "32", env=store.server.env())
        failed.failed(1, r"millrace index --full s3://b/set", r"set/0000")
        sandbox.ok("index", "--full", "s3://b/set", env=store.server.env())
        assert feed(sandbox, "s3://b/set", store.server)["samples"] == 4 * SAMPLES


def test_notes_that_do_not_fit_are_named_and_the_shard_is_read(sandbox: Sandbox, tmp_path: Path) -> None:
    root = tmp_path / "root"
    folder = root / "b" / "set"
    shards = write_shards(folder)
    note(shards)
    text = shards[1].with_suffix(".idx").read_text()
    shards[1].with_suffix(".idx").write_text(text[:-30])
    shards[2].with_suffix(".idx").write_text(wds_index(shards[0]))
    with watched(sandbox, root, "GET b/set/shard-0003.idx status=403") as store:
        done = sandbox.run("index", "s3://b/set", "--json", env=store.server.env())
        report = done.json()
    assert (report["outlined_objects"], report["samples_without_checksum"]) == (1, SAMPLES)
    warnings = done.err
    for number in (1, 2, 3):
        assert re.search(rf"shard-000{number}\.idx: .*'shard-000{number}\.tar' is read", warnings), warnings


def test_a_shard_that_is_replaced_meanwhile(sandbox: Sandbox, tmp_path: Path) -> None:
    root = tmp_path / "root"
    shards = write_shards(root / "b" / "set")
    note(shards)
    with watched(sandbox, root) as store:
        sandbox.ok("index", "s3://b/set", env=store.server.env())
        with tarfile.open(shards[0], "a") as tar:
            tar.addfile(tarfile.TarInfo("set/z.jpg"))
        sandbox.run("feed", "s3://b/set", "--json", "--size", "32", env=store.server.env()).failed(
            1, "millrace index s3://b/set"
        )


def test_real_mds(sandbox: Sandbox, tmp_path: Path) -> None:
    """As mosaicml-streaming writes them. The hashes in index.json are compared when the shards are read."""
    writer, _ = mosaic.load()
    root = tmp_path / "root"
    (root / "b").mkdir(parents=True)
    for name in ("read", "set"):
        folder = root / "b" / name
        columns = {"cls": "int", "jpg": "bytes", "weight": "float32"}
        with writer(out=str(folder), columns=columns, hashes=["sha1"], size_limit=600_000) as out:
            for n in range(2 * SAMPLES):
                picture = corpus.jpeg(n) + numpy.random.default_rng(n).bytes(5000 + n % 50)
                out.write({"cls": n % 10, "jpg": picture, "weight": numpy.float32(n / 2)})
    shards = sorted((root / "b" / "set").glob("*.mds"))
    assert len(shards) > 2
    with watched(sandbox, root) as store:
        env = store.server.env()
        read = sandbox.ok("index", "s3://b/read", "--full", "--json", env=env).json()
        before = len(store.reads())
        noted = sandbox.ok("index", "s3://b/set", "--json", env=env).json()
        gets = [path for path, _ in store.reads()[before:] if path.endswith(".mds")]
        assert noted["outlined_objects"] >= len(shards) - 1 and len(gets) == len(shards)
        for key in ("samples", "objects", "bytes", "fields"):
            assert noted[key] == read[key], key
        results = [feed(sandbox, f"s3://b/{name}", store.server) for name in ("read", "set")]
        assert results[0]["digest"] == results[1]["digest"]
        assert results[0]["position"] == results[1]["position"]
        with shards[1].open("r+b") as file:
            file.seek(300_000)
            file.write(b"damage")
        assert sandbox.ok("index", "s3://b/set", "--json", env=env).json()["outlined_objects"] == 1, (
            "the others are known"
        )
        sandbox.run("index", "s3://b/set", "--checksums", env=env).failed(1, "sha1", r"\.00001\.mds")


@pytest.mark.skipif(
    subprocess.run(["tar", "--version"], capture_output=True, check=False).returncode != 0, reason="no tar"
)
@pytest.mark.parametrize("tar_format", [tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT])
def test_block_numbers_of_gnu_tar(sandbox: Sandbox, tmp_path: Path, tar_format: int) -> None:
    """wds2idx takes places from GNU tar's listing by blocks: a file ends where the next entry begins. Where extended headers make that wrong, the shards are read."""
    folder = tmp_path / "set"
    shards = write_shards(folder, tar_format)
    for shard in shards:
        listing = subprocess.run(["tar", "-tRf", shard], capture_output=True, check=True, text=True).stdout
        blocks = [
            (int(number) * 512, name) for number, name in re.findall(r"^block (\d+): (.*)$", listing, re.MULTILINE)
        ]
        with tarfile.open(shard) as tar:
            sizes = {member.name: member.size for member in tar}
        text: dict[str, list[str]] = {}
        for (_, name), (end, _) in zip(blocks, blocks[1:], strict=False):
            offset = end - sizes[name]
            base, _, extension = name.partition(".")
            text.setdefault(base, []).append(f"{extension} {offset - offset % 512} {sizes[name]} {name}")
        lines = "".join(" ".join(group) + "\n" for group in text.values())
        shard.with_suffix(".idx").write_text(f"v1.2 {len(text)}\n{lines}")
    report = sandbox.ok("index", folder, "--json").json()
    assert report["samples"] == 4 * SAMPLES
    assert report["outlined_objects"] in (0, 4)
    assert tar_format == tarfile.PAX_FORMAT or report["outlined_objects"] == 4
    assert sandbox.feed(folder)["samples"] == 4 * SAMPLES
