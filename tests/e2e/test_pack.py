from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from . import corpus, oracle
from .conftest import FOLDERS, Photos
from .harness import MIB, Sandbox, devstore


def shards(root: Path) -> list[Path]:
    return sorted(root.rglob("*.tar"), key=lambda path: path.name.encode())


def test_packed_shards_hold_the_raw_objects_in_their_order(photos: Photos) -> None:
    assert oracle.read_tar(photos.tar) == photos.samples


def test_class_folder_becomes_the_field_cls(photos: Photos) -> None:
    classes = {s.key.split("/")[0]: s.fields["cls"] for s in oracle.read_tar(photos.tar)}
    assert classes == {folder: str(n).encode() for n, folder in enumerate(sorted(FOLDERS, key=str.encode))}


def test_shard_sizes_and_names(photos: Photos) -> None:
    found = shards(photos.tar)
    sizes = [path.stat().st_size for path in found]
    assert len(found) >= 3
    assert all(size <= 6 * MIB + 64 * 1024 for size in sizes), (
        "about the size that was asked for, and never a sample too many"
    )
    assert all(size >= 5 * MIB for size in sizes[:-1]), "filled"
    assert len({len(path.name) for path in found}) == 1, "padded names sort in order"


def test_packed_shards_are_read_by_tarfile_and_webdataset(photos: Photos) -> None:
    import webdataset

    path = shards(photos.tar)[0]
    with tarfile.open(path) as tar:
        assert all(member.isreg() for member in tar.getmembers())
    theirs = list(webdataset.WebDataset(str(path), shardshuffle=False, empty_check=False))
    ours = oracle.read_shard(path)
    assert [(t["__key__"], t["jpg"], t["cls"]) for t in theirs] == [
        (s.key, s.fields["jpg"], s.fields["cls"]) for s in ours
    ]


def test_packing_twice_gives_the_same_bytes(photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
    sandbox.ok("pack", photos.raw, tmp_path / "again", "--shard-size", "6MiB")
    assert [p.read_bytes() for p in shards(tmp_path / "again")] == [p.read_bytes() for p in shards(photos.tar)]


def test_shard_size_does_not_change_the_digest(photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
    sandbox.ok("pack", photos.raw, tmp_path / "small", "--shard-size", "1MiB")
    assert len(shards(tmp_path / "small")) > 2 * len(shards(photos.tar))
    assert sandbox.feed(tmp_path / "small")["digest"] == photos.digest()


def test_long_and_unicode_names(sandbox: Sandbox, tmp_path: Path) -> None:
    names = [
        "x" * 90 + "/" + "y" * 150 + ".jpg",
        "größe/日本.jpg",
        "a b+c%20/é.jpg",
        "d" * 60 + "/" + "e" * 60 + "/" + "f" * 60 + ".JPG",
    ]
    for n, name in enumerate(names):
        corpus.write(tmp_path / "raw" / name, corpus.jpeg(n))
    sandbox.ok("pack", tmp_path / "raw", tmp_path / "tar", "--shard-size", "1MiB")
    expected = oracle.read_raw(tmp_path / "raw")
    assert oracle.read_tar(tmp_path / "tar") == expected
    raw, packed = sandbox.feed(tmp_path / "raw"), sandbox.feed(tmp_path / "tar")
    assert raw["digest"] == packed["digest"] == oracle.digest(expected)


def test_pack_from_and_to_s3(photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "root" / "out").mkdir(parents=True)
    corpus.copy_tree(photos.raw, tmp_path / "root" / "in" / "raw")
    with devstore(sandbox, tmp_path / "root", "--first-byte-ms", 2) as server:
        sandbox.ok("pack", "s3://in/raw", "s3://out/tar", "--shard-size", "9MiB", env=server.env())
        assert sandbox.feed("s3://out/tar", env=server.env())["digest"] == photos.digest()
    assert oracle.read_tar(tmp_path / "root" / "out" / "tar") == photos.samples


def test_pack_in_memory_store(photos: Photos, sandbox: Sandbox) -> None:
    with devstore(sandbox, "mem:") as server:
        server.client().create_bucket(Bucket="made")
        sandbox.ok("pack", photos.raw, "s3://made/tar", "--shard-size", "9MiB", env=server.env())
        assert sandbox.feed("s3://made/tar", env=server.env())["digest"] == photos.digest()


@pytest.mark.parametrize(
    "fault",
    [
        "PUT out/* status=503 p=0.2",
        "PUT out/* reset=head p=0.2",
        "PUT out/* cut=head p=0.2",
        "POST out/* status=500 count=1",
        "POST out/* error-in-200 count=2",
        "GET in/* flip=100 p=0.1",
        "GET in/* cut=1000 p=0.1",
        "GET in/raw/* status=503 p=0.3",
    ],
)
def test_pack_survives_faults(photos: Photos, sandbox: Sandbox, tmp_path: Path, fault: str) -> None:
    """Neither the store nor an index that only lists them could tell a flipped bit of these objects, so they are read before."""
    (tmp_path / "root" / "out").mkdir(parents=True)
    corpus.copy_tree(photos.raw, tmp_path / "root" / "in" / "raw")
    with devstore(sandbox, tmp_path / "root") as server:
        sandbox.ok("index", "s3://in/raw", "--checksums", env=server.env())
    with devstore(sandbox, tmp_path / "root", "--seed", 5, faults=(fault,)) as server:
        sandbox.ok("pack", "s3://in/raw", "s3://out/tar", "--shard-size", "9MiB", env=server.env(), timeout=300)
    assert oracle.read_tar(tmp_path / "root" / "out" / "tar") == photos.samples


def test_a_shard_that_cannot_be_written_is_not_left_behind(photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
    """The second shard's upload is refused for good: its name in the message, and no half shard to be seen."""
    (tmp_path / "root" / "out").mkdir(parents=True)
    fault = "* out/tar/*1.tar status=403"
    with devstore(sandbox, tmp_path / "root", faults=(fault,)) as server:
        sandbox.run("pack", photos.raw, "s3://out/tar", "--shard-size", "6MiB", env=server.env()).failed(
            1, r"1\.tar", "denied|permission|403"
        )
    whole = [p.read_bytes() for p in shards(photos.tar)]
    for path in shards(tmp_path / "root" / "out"):
        assert path.read_bytes() in whole
