"""A single object or file is a data set: of every kind, in a folder and on S3, for every command that reads one."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest

from . import corpus
from .conftest import Photos
from .harness import Sandbox, Server, devstore


def shards_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name.startswith("shard") and path.suffix != ".idx")


@pytest.mark.parametrize("shape", ["tar", "tfrecord", "recordio", "mds"])
def test_shards_of_all_kinds(photos: Photos, sandbox: Sandbox, tmp_path: Path, shape: str) -> None:
    """Each holds what a folder with nothing else does."""
    root = tmp_path / "root"
    sandbox.ok("pack", photos.raw, root / "b" / "set", "--format", shape, "--shard-size", "6MiB")
    sandbox.ok("index", root / "b" / "set")
    names = [path.name for path in shards_of(root / "b" / "set")]
    assert len(names) > 1
    parts = [sandbox.feed(root / "b" / "set" / name) for name in names]
    assert sum(part["samples"] for part in parts) == 1005
    for name, part in zip(names, parts):
        corpus.write(tmp_path / name / name, (root / "b" / "set" / name).read_bytes())
        assert sandbox.feed(tmp_path / name)["digest"] == part["digest"]
    kept = {path.name for path in (root / "b" / "set" / ".millrace").glob("*index")}
    assert kept == {"index", *(f"{name}.index" for name in names)}
    shutil.rmtree(root / "b" / "set" / ".millrace")  # the index of the files is not that of the objects
    with devstore(sandbox, root) as server:
        there = [sandbox.feed(f"s3://b/set/{name}", env=server.env()) for name in names]
    assert [part["digest"] for part in there] == [part["digest"] for part in parts]


def test_a_pair_of_token_files(sandbox: Sandbox, tmp_path: Path) -> None:
    """Either name stands for both."""
    root = tmp_path / "root"
    for stem, tokens in (("a", [[1, 2, 3], [4]]), ("b", [[5]])):
        corpus.write(root / "b" / f"{stem}.bin", b"".join(bytes(sequence) for sequence in tokens))
        corpus.write(root / "b" / f"{stem}.idx", megatron_idx([len(sequence) for sequence in tokens]))
    with devstore(sandbox, root) as server:
        for place in (root / "b", "s3://b"):
            reports = [
                sandbox.ok("inspect", f"{place}/{name}", "--json", env=server.env()).json()
                for name in ("a.bin", "a.idx")
            ]
            assert [(report["samples"], report["kind"]) for report in reports] == [(2, "tokens")] * 2, place
    (root / "b" / "a.bin").unlink()
    sandbox.run("index", root / "b" / "a.idx").failed(1, r"a\.idx", r"no '.*a\.bin' beside it", "restore")


def megatron_idx(lengths: list[int]) -> bytes:
    """An index of tokens of one byte, each sequence a document."""
    head = b"MMIDIDX\0\0" + (1).to_bytes(8, "little") + b"\1"
    counts = len(lengths).to_bytes(8, "little") + (len(lengths) + 1).to_bytes(8, "little")
    offsets = [sum(lengths[:n]) for n in range(len(lengths))]
    numbers = [(lengths, 4), (offsets, 8), (range(len(lengths) + 1), 8)]
    return head + counts + b"".join(number.to_bytes(size, "little") for values, size in numbers for number in values)


class TestCommands:
    def test_index_and_inspect(self, photos: Photos, sandbox: Sandbox, server: Server) -> None:
        name = shards_of(photos.tar)[0].name
        for uri in (photos.tar / name, f"s3://b/tar/{name}"):
            built = sandbox.ok("index", uri, "--json", env=server.env()).json()
            assert built["objects"] == 1 and built["index"].endswith(f"tar/.millrace/{name}.index")
            seen = sandbox.ok("inspect", uri, "--json", "--decode", "all", env=server.env()).json()
            assert seen["samples"] == built["samples"] < 1005
        again = sandbox.ok("index", photos.tar / name, "--json").json()
        assert again["reused_objects"] == 1

    def test_the_index_of_one_object_is_not_that_of_another(self, sandbox: Sandbox, tmp_path: Path) -> None:
        """In the cache folder, too, to which what cannot lie beside the data goes."""
        for n in range(2):
            corpus.write(tmp_path / "d" / f"{n}.jpg", corpus.jpeg(n))
        corpus.write(tmp_path / "d" / ".millrace", b"in the way")
        for _ in range(2):
            assert [sandbox.feed(tmp_path / "d" / name)["samples"] for name in ("", "0.jpg", "1.jpg")] == [2, 1, 1]
            assert sandbox.feed(tmp_path / "d" / "0.jpg")["digest"] != sandbox.feed(tmp_path / "d" / "1.jpg")["digest"]

    def test_a_sheet_may_lie_beside_it(self, photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
        shard = shutil.copy(shards_of(photos.tar)[0], tmp_path / "shard.tar")
        sandbox.ok("inspect", shard, "--preview", tmp_path / "sheet.png")
        assert (tmp_path / "sheet.png").read_bytes().startswith(b"\x89PNG")

    def test_pack(self, photos: Photos, sandbox: Sandbox, server: Server, tmp_path: Path) -> None:
        shard = Path(shutil.copy(shards_of(photos.tar)[0], tmp_path / "shard.tar"))
        digest = sandbox.feed(shard)["digest"]
        sandbox.ok("pack", shard, tmp_path / "packed", "--format", "mds")  # into a folder beside it
        assert sandbox.feed(tmp_path / "packed")["digest"] == digest
        sandbox.ok("pack", f"s3://b/tar/{shards_of(photos.tar)[0].name}", tmp_path / "from-s3", env=server.env())
        assert sandbox.feed(tmp_path / "from-s3")["digest"] == digest
        sandbox.run("pack", shard, tmp_path).failed(2, "within the destination")
        assert shard.exists()

    def test_pack_of_a_compressed_shard(self, photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
        shard = shards_of(photos.tar)[0]
        corpus.write(tmp_path / "shard.tar.gz", gzip.compress(shard.read_bytes(), 1))
        corpus.write(tmp_path / "other.tar.gz", b"not looked at")
        sandbox.run("feed", tmp_path / "shard.tar.gz").failed(1, rf"millrace pack {tmp_path}/shard\.tar\.gz DST")
        sandbox.ok("pack", tmp_path / "shard.tar.gz", tmp_path / "packed")
        assert sandbox.feed(tmp_path / "packed")["digest"] == sandbox.feed(shard)["digest"]

    def test_what_is_not_there(self, sandbox: Sandbox, server: Server, tmp_path: Path) -> None:
        for uri in (tmp_path / "gone.tar", "s3://b/tar/gone.tar"):
            for command in ("index", "inspect", "feed"):
                sandbox.run(command, uri, env=server.env()).failed(1, r"gone\.tar")
        assert not list(tmp_path.rglob("*.index"))

    def test_a_name_that_tells_nothing(self, sandbox: Sandbox, tmp_path: Path) -> None:
        corpus.write(tmp_path / "README", json.dumps({}).encode())
        sandbox.run("feed", tmp_path / "README").failed(1, "README", "is a file; a folder is needed")
