"""The oracle itself: it must be able to say no."""

from __future__ import annotations

import struct
import tarfile
from pathlib import Path

import pytest
import xxhash

from . import corpus, oracle
from .oracle import Sample


def test_digest_of_one_sample_by_hand() -> None:
    text = (
        struct.pack("<QQ", 2, 5)
        + b"\x03\0\0\0\0\0\0\0a/b"
        + b"\x03\0\0\0\0\0\0\0cls\x01\0\0\0\0\0\0\x007"
        + b"\x03\0\0\0\0\0\0\0jpg\x02\0\0\0\0\0\0\0\xff\xd8"
    )
    high_first = xxhash.xxh3_128(text).digest()
    assert oracle.as_hex(oracle.sample_hash(Sample("a/b", {"jpg": b"\xff\xd8", "cls": b"7"}), 2, 5)) == high_first.hex()


def test_digest_sees_every_part() -> None:
    base = [Sample("k", {"jpg": b"x"}), Sample("l", {"jpg": b"y"})]
    others = [
        base[::-1],
        base[:1],
        [Sample("k", {"png": b"x"}), base[1]],
        [Sample("k", {"jpg": b"X"}), base[1]],
        [Sample("k", {"jpg": b"x", "cls": b"0"}), base[1]],
        [Sample("kj", {"pg": b"x"}), base[1]],
    ]
    assert len({oracle.digest(base), oracle.digest(base, epoch=1), *map(oracle.digest, others)}) == 8


def test_digests_add_up_modulo_2_128() -> None:
    samples = corpus.tar_samples(4)
    parts = [oracle.as_hex(oracle.sample_hash(s, 0, p)) for p, s in enumerate(samples)]
    assert oracle.add(*parts) == oracle.digest(samples)
    assert oracle.add("f" * 32, "0" * 31 + "2") == "0" * 31 + "1"


def test_order_is_found_and_a_wrong_digest_has_none() -> None:
    samples = corpus.tar_samples(5)
    order = (3, 0, 4, 1, 2)
    wanted = oracle.digest([samples[s] for s in order])
    assert oracle.find_order(samples, wanted) == order
    assert oracle.find_order(samples, oracle.add(wanted, "0" * 31 + "1")) is None


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("a/b.jpg", ("a/b", "jpg")),
        ("./a/b.JPG", ("a/b", "jpg")),
        ("v1.0/b.seg.PNG", ("v1.0/b", "seg.png")),
        ("b.tar.gz", ("b", "tar.gz")),
        ("README", None),
        ("a/.hidden", None),
    ],
)
def test_names(name: str, parts: tuple[str, str] | None) -> None:
    assert oracle.split_name(name) == parts


def test_raw_objects_are_in_bytewise_order_of_their_paths(tmp_path: Path) -> None:
    for name in ("a/x.jpg", "a-b/x.jpg", "a.b/x.jpg", "B/x.jpg", "a/x-1.jpg"):
        corpus.write(tmp_path / name, name.encode())
    samples = oracle.read_raw(tmp_path)
    assert [(s.key, s.fields["cls"]) for s in samples] == [
        ("B/x", b"0"),
        ("a-b/x", b"2"),
        ("a.b/x", b"3"),
        ("a/x-1", b"1"),
        ("a/x", b"1"),
    ]


def test_shards_are_read_as_webdataset_does(tmp_path: Path) -> None:
    import webdataset

    samples = corpus.tar_samples(5)
    corpus.write_tar(tmp_path / "x.tar", samples, tarfile.GNU_FORMAT, prefix="./")
    assert oracle.read_tar(tmp_path) == samples
    theirs = list(webdataset.WebDataset(str(tmp_path / "x.tar"), shardshuffle=False, empty_check=False))
    assert [(t["__key__"].removeprefix("./"), t["jpg"]) for t in theirs] == [(s.key, s.fields["jpg"]) for s in samples]
