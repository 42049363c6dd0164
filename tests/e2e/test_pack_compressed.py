"""Shards that are compressed as a whole are packed: by gzip and zstd, from folders and S3, after kills, and damaged."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import os
import shutil
import signal
import subprocess
import tarfile
import time
from pathlib import Path

import pytest

from . import oracle
from .conftest import Photos
from .harness import MIB, Sandbox, devstore


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
    (tmp_path / "root").mkdir()
    with devstore(sandbox, tmp_path / "root") as server:
        args = ["pack", source, "s3://out/x", "--scratch", tmp_path / "scratch"]
        said = sandbox.run(*args, env=server.env()).failed(1, "bucket")
        (folder,) = (tmp_path / "scratch").iterdir()
        assert f"; unpacked files stay in {folder}: the same command uses it, and removes it at the end" in said
        before = {path.name: path.stat().st_mtime_ns for path in folder.glob("*.tar")}
        assert len(before) == len(list(source.iterdir()))
        (tmp_path / "root/out").mkdir()
        missing = sorted(folder.glob("*.tar"))[0]
        missing.unlink()
        held = {path.name: os.link(path, tmp_path / path.name) for path in folder.glob("*.tar")}
        sandbox.ok(*args, env=server.env())
    assert {name: (tmp_path / name).stat().st_mtime_ns for name in held} == {
        n: t for n, t in before.items() if n != missing.name
    }
    assert oracle.read_tar(tmp_path / "root/out/x") == photos.samples
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_destination_is_judged_before_anything_is_unpacked(photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
    """Where nothing is to be done, or the destination is refused: the scratch folder is not even made."""
    source, out, scratch = compressed(photos, tmp_path / "in", ".tar.gz"), tmp_path / "out", tmp_path / "scratch"
    args = ["pack", source, out, "--shard-size", "1MiB", "--scratch", scratch]
    out.mkdir()
    (out / "mine.txt").write_text("x")
    sandbox.run(*args).failed(1, "out/mine.txt: the destination is not empty")
    sandbox.run(*args, "--force").failed(1, "out/mine.txt: the destination is not empty")
    assert not scratch.exists() and [path.name for path in out.iterdir()] == ["mine.txt"]
    (out / "mine.txt").unlink()
    first = sandbox.ok(*args, "--json").json()
    scratch.rmdir()
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    again = sandbox.ok(*args, "--json").json()
    told = ("samples", "shards", "bytes", "index_bytes", "complete", "missing_shards", "skipped", "incomplete_objects")
    assert again["already_packed"] and again["kept_shards"] == first["shards"]
    assert {name: again[name] for name in told} == {name: first[name] for name in told}
    assert "already packed" in sandbox.ok(*args, "--part", "1/3").out
    for other in (["--shard-size", "2MiB"], ["--format", "mds"], ["--shuffle"]):
        sandbox.run("pack", source, out, "--scratch", scratch, *other).failed(
            1, "a data set is there already and is another", "--force"
        )
    assert not scratch.exists() and {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before
    (sorted(out.glob("*.tar"))[0]).unlink()
    sandbox.run(*args).failed(1, "a data set is there already and is another: its shards were changed since")
    sandbox.ok(*args, "--force")
    assert oracle.read_tar(out) == photos.samples
    # Without what the pack has recorded, and one that was begun.
    shutil.rmtree(out / ".millrace")
    scratch.rmdir()
    sandbox.run(*args).failed(1, "a data set is there already; --force")
    (out / ".millrace").mkdir()
    (out / ".millrace/index").write_bytes(b"")
    job = {
        "version": 1,
        "source_uri": "/elsewhere",
        "source": "x",
        "samples": 1,
        "format": "tar",
        "shard_bytes": 1,
        "order": "kept",
    }
    (out / ".millrace/incomplete").write_text(json.dumps(job | {"classes": "", "fields": "", "shards": 1}))
    sandbox.run(*args).failed(1, "another pack was begun there", "/elsewhere")
    assert not scratch.exists()


def test_what_a_kill_has_left_goes_when_all_is_packed(photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
    source, scratch = compressed(photos, tmp_path / "in", ".tar.gz"), tmp_path / "scratch"
    (tmp_path / "root/out").mkdir(parents=True)
    with devstore(sandbox, tmp_path / "root") as server:
        sandbox.run("pack", source, "s3://none/x", "--scratch", scratch, env=server.env()).failed(1, "stay in")
        (left,) = scratch.iterdir()
        left.rename(tmp_path / left.name)
        sandbox.ok("pack", source, "s3://out/x", "--scratch", scratch, env=server.env())
        (tmp_path / left.name).rename(left)  # as if it had been killed when all was packed
        assert "already packed" in sandbox.ok("pack", source, "s3://out/x", "--scratch", scratch, env=server.env()).out
    assert list(scratch.iterdir()) == []


def test_what_is_refused_leaves_nothing_unpacked(photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
    source = compressed(photos, tmp_path / "in", ".tar.gz")
    said = sandbox.run("pack", source, tmp_path / "out", "--field", "jpg=a/b").failed(1, "a/b")
    assert "unpacked" not in said and not scratch_of(sandbox)


def test_an_interrupt_says_what_it_leaves(photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
    source = compressed(photos, tmp_path / "root" / "in" / "x", ".tar.gz")
    last = sorted(source.iterdir())[-1].name
    args = ["pack", "s3://in/x", tmp_path / "out", "--scratch", tmp_path / "scratch"]
    with devstore(sandbox, tmp_path / "root", faults=(f"GET in/x/{last} delay-ms=600000",)) as server:
        process = sandbox.start(*args, env=server.env(), err=subprocess.PIPE)
        deadline = time.monotonic() + 300
        while not list(tmp_path.glob("scratch/*/*.tar")) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
    (folder,) = (tmp_path / "scratch").iterdir()
    assert process.returncode == 130 and b"run the same command again" in err
    assert f"; unpacked files stay in {folder}: the same command uses it".encode() in err
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
    path.write_bytes(
        {"cut": bytes(data[: len(data) // 2]), "damaged": bytes(data), "garbage": bytes(data) + b"more"}[how]
    )
    sandbox.run("pack", source, tmp_path / "out").failed(1, str(path), "cut short|damaged|other bytes|offset")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("skip", [False, True])
def test_a_stream_that_would_fill_the_disk(photos: Photos, sandbox: Sandbox, tmp_path: Path, skip: bool) -> None:
    source = compressed(photos, tmp_path / "in", ".tar.zst")
    with (tmp_path / "zeros").open("wb") as zeros:
        zeros.truncate(200 << 20)
    bomb = source / "bomb.tar.zst"
    subprocess.run(["zstd", "-q", "-o", bomb, tmp_path / "zeros"], check=True)
    assert bomb.stat().st_size < 64 << 10
    arguments = ["pack", source, tmp_path / "out", "--scratch", tmp_path / "scratch"]
    if not skip:
        sandbox.run(*arguments).failed(1, str(bomb), "1000 times its size", "by hand")
        assert not (tmp_path / "out").exists()
    else:
        assert "bomb.tar.zst" in str(sandbox.ok(*arguments, "--skip-bad", "--json").json())
        assert oracle.read_tar(tmp_path / "out") == photos.samples
    assert sum(file.stat().st_size for file in (tmp_path / "scratch").rglob("*") if file.is_file()) < 64 << 20


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
    beside = sandbox.ok("pack", source, tmp_path / "beside", "--json").json()
    assert beside["passed_over"]["objects"] == 1 and beside["samples"] == len(oracle.read_shard(shard))
    (source / "b.jpg").unlink()
    (source / "a.tgz").write_bytes(gzip.compress(shard.read_bytes(), 1))
    sandbox.run("pack", source, tmp_path / "out").failed(1, "twice")
    (source / "a.tgz").unlink()
    shutil.copy(shard, source / "b.tar")  # a plain one beside it
    assert sandbox.ok("pack", source, tmp_path / "out", "--json").json()["samples"] == 2 * len(oracle.read_shard(shard))


def test_two_at_a_time(photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
    """One scratch folder: the first to end takes nothing away from the other."""
    source = compressed(photos, tmp_path / "in", ".tar.gz")
    for attempt in range(4):
        outs = [tmp_path / f"out{attempt}-{number}" for number in range(3)]
        started = [
            sandbox.start("pack", source, out, "--scratch", tmp_path / "scratch", err=subprocess.PIPE) for out in outs
        ]
        for process, out in zip(started, outs):
            _, err = process.communicate(timeout=300)
            assert process.returncode == 0, err
            assert oracle.read_tar(out) == photos.samples
        assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.parametrize("ending", [".tar.gz", ".tar.zst"])
def test_skip_bad_keeps_what_can_be_trusted(photos: Photos, sandbox: Sandbox, tmp_path: Path, ending: str) -> None:
    """All bytes of a truncated stream before its end are kept. Nothing of a damaged one is kept, since only the checksum at its end could tell."""
    source = compressed(photos, tmp_path / "in", ".tgz" if ending == ".tar.gz" else ending)  # of one member
    paths = sorted(source.iterdir())
    whole = [oracle.read_shard(path) for path in sorted(photos.tar.glob("*.tar"))]
    cut, damaged = paths[0], paths[1]
    os.truncate(cut, cut.stat().st_size * 3 // 4)
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 4
    damaged.write_bytes(bytes(data))
    args = ["pack", source, tmp_path / "out", "--scratch", tmp_path / "scratch"]
    sandbox.run(*args).failed(1, "at offset [0-9]+", "--skip-bad")
    result = sandbox.ok(*args, "--skip-bad", "--json")
    for path in (cut, damaged):
        assert f"{path}: the compressed bytes are " in result.err and "at offset" in result.err, result.err
    assert result.json()["incomplete_objects"] == [cut.name, damaged.name]
    found = oracle.read_tar(tmp_path / "out")
    kept = len(found) - sum(map(len, whole[2:]))
    assert 0 < kept < len(whole[0]) and found == [*whole[0][:kept], *sum(whole[2:], [])]
    assert cut.name in (tmp_path / "out/.millrace/skipped").read_text()
    for memory in ("64MiB", "1GiB"):  # what is kept does not depend on how it was read
        sandbox.ok("pack", source, tmp_path / memory, "--skip-bad", "--memory", memory)
        assert (tmp_path / memory / "shard-000000.tar").read_bytes() == (tmp_path / "out/shard-000000.tar").read_bytes()
    (tmp_path / "root").mkdir()
    with devstore(sandbox, tmp_path / "root") as server:
        again = ["pack", source, "s3://none/x", "--scratch", tmp_path / "scratch"]
        said = sandbox.run(*again, "--skip-bad", env=server.env()).failed(1, "bucket")
        assert "unpacked files stay in" in said
        sandbox.run(*again, env=server.env()).failed(
            1, "the compressed bytes are", "--skip-bad"
        )  # and not with what the other run has kept


def test_whole_members_before_the_damage_are_kept(photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    shards = sorted(photos.tar.glob("*.tar"))
    first = shards[0].read_bytes().rstrip(b"\0")
    first += b"\0" * (-len(first) % 512)  # without its end, so that the next one continues it
    data = bytearray(gzip.compress(first, 1) + gzip.compress(shards[1].read_bytes(), 1))
    data[-6] ^= 1  # of the last checksum
    (source / "a.tar.gz").write_bytes(bytes(data))
    result = sandbox.ok("pack", source, tmp_path / "out", "--skip-bad", "--json")
    assert f"{len(first)} decompressed bytes of it were kept" in result.err
    samples = oracle.read_shard(shards[0])
    found = oracle.read_tar(tmp_path / "out")
    assert found == samples[: len(found)] and len(found) >= len(samples) - 1


def test_messages_name_the_source(photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
    """Messages name the given shard, and not its unpacked copy."""
    source = compressed(photos, tmp_path / "in", ".tar.gz")
    shard = bytearray(sorted(photos.tar.glob("*.tar"))[0].read_bytes())
    shard[100] ^= 255  # of the first head, whose checksum is another one then
    (source / "x.tar.gz").write_bytes(gzip.compress(bytes(shard), 1))
    said = sandbox.run("pack", source, tmp_path / "out", "--scratch", tmp_path / "scratch").failed(
        1, "x.tar.gz", "offset"
    )
    assert f"{source}/x.tar.gz (unpacked)" in said
    assert "unpacked-" not in said.split("; unpacked files stay in")[0]


def test_where_scratch_may_lie(photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
    source = compressed(photos, tmp_path / "in", ".tar.gz")
    before = sorted(source.iterdir())
    for scratch in (source, source / "below", tmp_path / "out"):
        sandbox.run("pack", source, tmp_path / "out", "--scratch", scratch).failed(2, "cannot unpack into", "--scratch")
    assert sorted(source.iterdir()) == before and not (tmp_path / "out").exists()
    sandbox.ok("pack", source, tmp_path / "out", "--scratch", tmp_path)  # they lie in it
    assert oracle.read_tar(tmp_path / "out") == photos.samples


def test_keys_that_no_folder_holds(photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
    data = gzip.compress(sorted(photos.tar.glob("*.tar"))[0].read_bytes(), 1)
    with devstore(sandbox, "mem:") as server:
        for number, key in enumerate(("/abs.tar.gz", "x/../../evil.tar.gz", "n" * 300 + ".tar.gz")):
            server.client().create_bucket(Bucket=f"gz{number}")
            server.client().put_object(Bucket=f"gz{number}", Key=f"in/{key}", Body=data)
            sandbox.run("pack", f"s3://gz{number}/in", tmp_path / "out", env=server.env()).failed(
                1,
                f"s3://gz{number}/in/" + key.replace(".", "[.]"),
                "a folder cannot hold this key",
                "rename the object",
            )
    assert not scratch_of(sandbox) and not (tmp_path / "out").exists()


def test_parts_share_the_work(photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
    """At one time, with one scratch folder, as on a home that machines share."""
    source = compressed(photos, tmp_path / "in", ".tar.zst")
    sandbox.ok("pack", source, tmp_path / "one", "--shard-size", "200KiB")
    started = [
        sandbox.start(
            "pack", source, tmp_path / "out", "--shard-size", "200KiB", "--part", f"{part}/3", err=subprocess.PIPE
        )
        for part in (1, 2, 3)
    ]
    for process in started:
        _, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
    assert oracle.read_tar(tmp_path / "out") == photos.samples
    shards = sorted((tmp_path / "one").glob("*.tar"))
    assert len(shards) > 3
    for path in shards:
        assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes()
    assert not scratch_of(sandbox)


@pytest.mark.parametrize("ending", [".tar.gz", ".tar.zst"])
def test_kills(photos: Photos, sandbox: Sandbox, tmp_path: Path, ending: str) -> None:
    """Killed at any moment of unpacking: the next run continues, and the shards are those of one run."""
    source = compressed(photos, tmp_path / "root/in/x", ending)
    sandbox.ok("pack", source, tmp_path / "whole", "--shard-size", "300KiB")
    args = ["pack", "s3://in/x", tmp_path / "out", "--shard-size", "300KiB", "--scratch", tmp_path / "scratch"]
    killed = 0
    with devstore(sandbox, tmp_path / "root", "--first-byte-ms", 100) as server:
        for number in range(12):
            process = sandbox.start(*args, env=server.env())
            time.sleep(0.03 + 0.02 * number)
            process.kill()
            killed += process.wait() == -signal.SIGKILL
        sandbox.ok(*args, env=server.env())
    assert killed >= 3
    assert oracle.read_tar(tmp_path / "out") == photos.samples
    for path in sorted((tmp_path / "whole").glob("*.tar")):
        assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes()
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.all
def test_memory_does_not_grow_with_the_source(sandbox: Sandbox, tmp_path: Path) -> None:
    """There is one shard of 256 MiB and one of 1 GiB; both come as a few KiB."""
    peaks = []
    for mib in (256, 1024):
        source = tmp_path / f"in{mib}"
        source.mkdir()
        with tarfile.open(source / "a.tar", "w") as tar:
            for number in range(mib):
                info = tarfile.TarInfo(f"{number:05d}.bin")
                info.size = 1 << 20
                tar.addfile(info, io.BytesIO(bytes([number % 256]) * info.size))
        subprocess.run(["zstd", "-q", "--rm", source / "a.tar"], check=True)
        result = sandbox.ok(
            "pack",
            source,
            tmp_path / f"out{mib}",
            "--memory",
            "64MiB",
            "--shard-size",
            "16MiB",
            "--json",
            watch_rss=True,
            timeout=300,
        )
        assert result.json()["samples"] == mib
        peaks.append(result.peak_rss)
        shutil.rmtree(tmp_path / f"out{mib}")
    assert 0 < peaks[1] < peaks[0] + 96 * MIB, peaks
