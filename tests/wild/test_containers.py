"""Containers that were joined, cut, reordered, or compressed under a plain name: all samples, or an error; never fewer without a word."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import tarfile
import zipfile
from pathlib import Path

import pytest
from wild_support import Command, command, index, tar, texts, write

__all__ = ["command"]


def zipped() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("0.txt", "x")
    return out.getvalue()


def attributes(size: int) -> bytes:
    """Two files, of which one has an extended attribute of that size."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for number, headers in enumerate(({"SCHILY.xattr.user.x": "y" * size}, {})):
            info = tarfile.TarInfo(f"{number}.txt")
            info.size, info.pax_headers = 1, headers
            archive.addfile(info, io.BytesIO(b"x"))
    return out.getvalue()


WHOLE = texts(0, 10)
GNU = tar([(f"{'long/' * 30}{n}.txt", b"x") for n in range(10)], tarfile.GNU_FORMAT)
PAX = tar([(f"{'ü' * 80}{n}.txt", b"x") for n in range(10)], tarfile.PAX_FORMAT)
ATTRIBUTES = attributes(3_000_000)
LISTED = tar([(name, name.encode()) for kind in ("txt", "out") for name in (f"{n}.{kind}" for n in range(10))])

# Name, bytes of 0.tar, the samples that are right (None: an error), words of the message, where such files come from, and a public
# report.
SHARDS: list[tuple[str, bytes, int | None, str, str, str]] = [
    ("joined", texts(0, 5) + texts(5, 10), 10, "", "cat a.tar b.tar", "borgbackup/borg#7432"),
    (
        "joined, padded",
        texts(0, 5) + bytes(10240) + texts(5, 10),
        10,
        "",
        "cat of archives with blocking factors",
        "libarchive/libarchive#457",
    ),
    (
        "without end blocks",
        WHOLE[: 20 * 1024],
        None,
        "--skip-bad",
        "writers that were killed after a sample",
        "firedancer-io/firedancer#9632",
    ),
    ("cut in a member", WHOLE[: 20 * 1024 - 300], None, "", "interrupted uploads", "webdataset/webdataset#142"),
    ("cut in a head", WHOLE[: 18 * 1024 + 200], None, "", "interrupted uploads", "zpbao/Discovery_Obj_Move#7"),
    ("long names of GNU", GNU, 10, "", "GNU tar", "composefs/tar-rs#389"),
    ("long names of PAX", PAX, 10, "", "Python's tarfile", "adamhathcock/sharpcompress#836"),
    ("large attributes", ATTRIBUTES, 2, "", "tar --xattrs", "libarchive/libarchive#3188"),
    ("empty", b"", None, "", "writers that were killed at once", "webdataset/webdataset#32"),
    ("no members", tar([]), 0, "", "tar of nothing", ""),
    ("gzip under a plain name", gzip.compress(WHOLE), None, "gzip", "tar czf x.tar", "webdataset/webdataset#331"),
    ("a small gzip under a plain name", gzip.compress(bytes(10240)), None, "gzip", "tar czf x.tar", ""),
    ("bzip2 under a plain name", bz2.compress(WHOLE), None, "", "tar cjf x.tar", ""),
    ("xz under a plain name", lzma.compress(WHOLE), None, "", "tar cJf x.tar", ""),
    ("zip under a plain name", zipped(), None, "", "renamed downloads", ""),
    (
        "HTML under a plain name",
        b"<!DOCTYPE html><html>sign in</html>" * 40,
        None,
        "",
        "log-in pages",
        "mttgdd/RobotCarDataset-Scraper#5",
    ),
    (
        "a pointer of Git LFS",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
        None,
        "",
        "git clone",
        "InertExpert2911/Mutual_Fund_Data#1",
    ),
    ("garbage behind the end", WHOLE + b"garbage", None, "", "appended bytes", "NVlabs/dex-ycb-toolkit#13"),
]


@pytest.mark.parametrize(
    ("name", "data", "samples", "words", "source", "report"), SHARDS, ids=[shard[0] for shard in SHARDS]
)
def test_shards(
    command: Command, tmp_path: Path, name: str, data: bytes, samples: int | None, words: str, source: str, report: str
) -> None:
    shard = write(tmp_path / "set/0.tar", data)
    write(tmp_path / "set/1.tar", texts(100, 103))
    if samples is None:
        said = command("index", shard.parent, code=1).stderr
        assert "0.tar" in said and words in said, (source, report)
        assert words != "gzip" or "skip-bad" not in said, "decompressing helps, leaving it out does not"
        kept = index(command, shard.parent, "--skip-bad")
        assert kept["damaged"][0]["object"] == "0.tar", (source, report)
        return
    found = index(command, shard.parent)
    assert found["samples"] == samples + 3, (source, report)
    packed = json.loads(command("pack", shard.parent, tmp_path / "out", "--json").stdout)
    assert packed["samples"] == samples + 3, (source, report)


def test_members_that_are_not_adjacent(command: Command, tmp_path: Path) -> None:
    """`tar --sort=name` of a folder a kind: all texts first. WebDataset would make two samples of each
    (webdataset/webdataset#140, ray-project/ray#63407)."""
    write(tmp_path / "set/0.tar", LISTED)
    found = index(command, tmp_path / "set")
    assert found["samples"] == 10 or any(
        "adjacent" in text or "come again" in text or "key of a sample before" in text for text in found["warnings"]
    )


@pytest.mark.parametrize("ending", ["tar.gz", "tgz"])
def test_compressed_shards(command: Command, tmp_path: Path, ending: str) -> None:
    write(tmp_path / f"set/0.{ending}", gzip.compress(WHOLE))
    assert "millrace pack" in command("index", tmp_path / "set", code=1).stderr
    assert json.loads(command("pack", tmp_path / "set", tmp_path / "out", "--json").stdout)["samples"] == 10


@pytest.mark.parametrize("options", [(), ("--skip-bad",)])
def test_a_plain_tar_under_the_name_of_a_compressed_one(
    command: Command, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """Browsers and proxies decompress what they download, and keep the name."""
    write(tmp_path / "set/0.tar.gz", WHOLE)
    said = command("pack", tmp_path / "set", tmp_path / "out", *options, code=1).stderr
    assert "a plain tar archive under the name of a compressed one; rename it" in said
    assert "--skip-bad" not in said
