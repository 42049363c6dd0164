"""Shards that are compressed as a whole are packed: by gzip and zstd, from folders and S3, after kills, and damaged."""

from __future__ import annotations

import gzip
import lzma
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from . import oracle
from .conftest import Photos
from .harness import Sandbox, devstore


def compressed(photos: Photos, folder: Path, ending: str) -> Path:
    folder.mkdir(parents=True)
    for path in sorted(photos.tar.glob("*.tar")):
        data = path.read_bytes()
        if ending == ".tar.gz":
            half = len(data) // 2  # two members, as `cat` of two files gives
            packed = gzip.compress(data[:half], 1) + gzip.compress(data[half:], 1)
        elif ending == ".tgz":
            packed = gzip.compress(data, 1)
        else:
            packed = subprocess.run(["zstd", "-q", "-c", path], capture_output=True, check=True).stdout
        (folder / (path.stem + ending)).write_bytes(packed)
    return folder


def scratch_of(sandbox: Sandbox) -> list[Path]:
    return [path for path in sandbox.home.rglob("unpacked-*") if path.is_dir()]


@pytest.mark.parametrize("ending", [".tar.gz", ".tgz", ".tar.zst"])
def test_folder(photos: Photos, sandbox: Sandbox, tmp_path: Path, ending: str) -> None:
    source = compressed(photos, tmp_path / "in", ending)
    found = sandbox.ok("pack", source, tmp_path / "out", "--shard-size", "1MiB", "--json").json()
    assert found["samples"] == len(photos.samples)
    assert oracle.read_tar(tmp_path / "out") == photos.samples
    assert not scratch_of(sandbox), "the scratch folder is cleared"
    sandbox.ok("pack", photos.tar, tmp_path / "plain", "--shard-size", "1MiB")
    for path in (tmp_path / "plain").glob("*.tar"):
        assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes()


def test_s3_and_scratch(photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
    compressed(photos, tmp_path / "root" / "in" / "x", ".tar.zst")
    (tmp_path / "root" / "out").mkdir()
    scratch = tmp_path / "scratch"
    with devstore(sandbox, tmp_path / "root") as server:
        args = ["pack", "s3://in/x", "s3://out/x", "--shard-size", "1MiB", "--scratch", scratch]
        sandbox.ok(*args, env=server.env())
        assert list(scratch.iterdir()) == []
        again = sandbox.ok(*args, "--json", env=server.env()).json()
    assert oracle.read_tar(tmp_path / "root" / "out" / "x") == photos.samples
    assert again["kept_shards"] == again["shards"] > 0, "it is the same job, wherever it was decompressed"


def test_what_was_decompressed_is_kept(photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
    source = compressed(photos, tmp_path / "in", ".tar.gz")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("x")
    args = ["pack", source, tmp_path / "out", "--scratch", tmp_path / "scratch"]
    said = sandbox.run(*args).failed(1, "mine.txt")
    (folder,) = (tmp_path / "scratch").iterdir()
    assert f"; what was unpacked stays in {folder}: the same command uses it, and removes it at the end" in said
    before = {path.name: path.stat().st_mtime_ns for path in folder.glob("*.tar")}
    assert len(before) == len(list(source.iterdir()))
    (tmp_path / "out" / "mine.txt").unlink()
    missing = sorted(folder.glob("*.tar"))[0]
    missing.unlink()
    held = {path.name: os.link(path, tmp_path / path.name) for path in folder.glob("*.tar")}
    sandbox.ok(*args)
    assert {name: (tmp_path / name).stat().st_mtime_ns for name in held} == {n: t for n, t in before.items() if n != missing.name}
    assert oracle.read_tar(tmp_path / "out") == photos.samples
    assert list((tmp_path / "scratch").iterdir()) == []


def test_an_interrupt_says_what_it_leaves(photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
    source = compressed(photos, tmp_path / "root" / "in" / "x", ".tar.gz")
    last = sorted(source.iterdir())[-1].name
    args = ["pack", "s3://in/x", tmp_path / "out", "--scratch", tmp_path / "scratch"]
    with devstore(sandbox, tmp_path / "root", faults=(f"GET in/x/{last} delay-ms=600000",)) as server:
        process = sandbox.start(*args, env=server.env(), err=subprocess.PIPE)
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob("scratch/*/*.tar")) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    (folder,) = (tmp_path / "scratch").iterdir()
    assert process.returncode == 1 and b"run the same command again" in err
    assert f"; what was unpacked stays in {folder}: the same command uses it".encode() in err
    with devstore(sandbox, tmp_path / "root") as server:
        sandbox.ok(*args, env=server.env())
    assert list((tmp_path / "scratch").iterdir()) == [] and oracle.read_tar(tmp_path / "out") == photos.samples


@pytest.mark.parametrize("ending", [".tar.gz", ".tar.zst"])
@pytest.mark.parametrize("how", ["cut", "damaged", "garbage"])
def test_damage(photos: Photos, sandbox: Sandbox, tmp_path: Path, ending: str, how: str) -> None:
    source = compressed(photos, tmp_path / "in", ending)
    path = sorted(source.iterdir())[1]
    data = bytearray(path.read_bytes())
    if how == "damaged":
        data[len(data) // 2] ^= 4
    path.write_bytes({"cut": bytes(data[: len(data) // 2]), "damaged": bytes(data), "garbage": bytes(data) + b"more"}[how])
    sandbox.run("pack", source, tmp_path / "out").failed(1, str(path), "cut short|damaged|other bytes|offset")
    assert not (tmp_path / "out").exists()


def test_refused(photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    shard = sorted(photos.tar.glob("*.tar"))[0]
    (source / "a.tar.xz").write_bytes(lzma.compress(shard.read_bytes(), preset=0))
    sandbox.run("pack", source, tmp_path / "out").failed(1, "a.tar.xz", "gzip and zstd")
    (source / "a.tar.xz").unlink()
    (source / "a.tar.gz").write_bytes(gzip.compress(shard.read_bytes(), 1))
    sandbox.run("index", source).failed(1, "a.tar.gz", f"`millrace pack {source}/ DST`", "`--scratch DIR`")
    sandbox.run("pack", source, tmp_path / "out", env={"HOME": "", "XDG_CACHE_HOME": ""}).failed(
        1, "no cache folder", f"`millrace pack {source} {tmp_path / 'out'} --scratch DIR`"
    )
    (source / "b.jpg").write_bytes(b"x")
    sandbox.run("pack", source, tmp_path / "out").failed(1, "b.jpg", "a.tar.gz")
    (source / "b.jpg").unlink()
    (source / "a.tgz").write_bytes(gzip.compress(shard.read_bytes(), 1))
    sandbox.run("pack", source, tmp_path / "out").failed(1, "twice")
    (source / "a.tgz").unlink()
    shutil.copy(shard, source / "b.tar")  # a plain one beside it
    assert sandbox.ok("pack", source, tmp_path / "out", "--json").json()["samples"] == 2 * len(oracle.read_shard(shard))
