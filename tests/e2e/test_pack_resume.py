"""A pack that is ended, however, is continued by the same command; parts make what one makes; bad samples can be left out."""

from __future__ import annotations

import contextlib
import random
import re
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from thoroughness import repeats

from . import corpus, oracle
from .conftest import Photos
from .harness import MIB, Sandbox, as_root, devstore, small_disk

KILLS = repeats(50, least=4)
SIZE = ("--shard-size", "256KiB")


def shards(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(root.glob("shard-*"))}


def files(root: Path) -> set[str]:
    """All of them, hidden ones too."""
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def pack_until_done(
    sandbox: Sandbox,
    args: list[object],
    env: dict[str, str],
    rng: random.Random,
    usual: float,
    check: Callable[[], None],
) -> int:
    """Kills the command at a random moment, and again, until it ends by itself; later each time, so that it gets there on a machine that has
    become slower, too. How often it was killed."""
    kills = 0
    while True:
        process = sandbox.start("pack", *args, env=env, err=subprocess.PIPE)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(rng.uniform(0, usual * (1 + kills / 8)))
        if process.poll() is None:
            process.kill()
        _, err = process.communicate(timeout=300)
        if process.returncode == 0:
            return kills
        assert process.returncode == -signal.SIGKILL, err.decode()
        kills += 1
        check()


@pytest.mark.parametrize("place", ["folder", "s3"])
def test_killed_at_random_moments(photos: Photos, sandbox: Sandbox, tmp_path: Path, place: str) -> None:
    """Shards and index have the same bytes as those of a pack that nobody disturbed, and at no moment is a half shard seen. The
    ETags of files are new for each write, so there the index is held against one that is built again."""
    rng = random.Random(place)
    root = tmp_path / "root" / "out"
    root.mkdir(parents=True)
    source: object = photos.raw
    with contextlib.ExitStack() as stack:
        env: dict[str, str] = {}
        if place == "s3":
            corpus.copy_tree(photos.raw, tmp_path / "root" / "in" / "raw")
            server = stack.enter_context(devstore(sandbox, tmp_path / "root"))
            env, source = server.env(), "s3://in/raw"
        where = lambda name: f"s3://out/{name}" if env else root / name  # noqa: E731
        sandbox.ok("index", source, env=env)
        usual = sandbox.ok("pack", source, where("whole"), *SIZE, "--shuffle", "--seed", 3, env=env).seconds
        whole, index = shards(root / "whole"), (root / "whole/.millrace/index").read_bytes()
        assert len(whole) > 40

        kills = rounds = 0
        while kills < KILLS // 2:
            rounds += 1
            out = root / f"out{rounds}"

            def visible(out: Path = out) -> None:
                assert shards(out).items() <= whole.items(), "whole shards only"

            args = [source, where(out.name), *SIZE, "--shuffle", "--seed", 3]
            kills += pack_until_done(sandbox, args, env, rng, usual, visible)
            assert shards(out) == whole
            assert files(out) == {*whole, ".millrace/index", ".millrace/packed"}, "nothing is left behind"
            packed = (out / ".millrace/index").read_bytes()
            if env:
                assert packed == index
            else:
                sandbox.ok("index", out, "--full")
                assert (out / ".millrace/index").read_bytes() == packed
            shutil.rmtree(out)


@pytest.mark.parametrize("kind", ["mds", "recordio", "tfrecord"])
def test_other_formats_killed_at_random_moments(photos: Photos, sandbox: Sandbox, tmp_path: Path, kind: str) -> None:
    """As tar above, with what lies beside the shards."""
    rng = random.Random(kind)
    sandbox.ok("index", photos.raw)
    args = ["--format", kind, "--shard-size", "512KiB"]
    usual = sandbox.ok("pack", photos.raw, tmp_path / "whole", *args).seconds
    whole = shards(tmp_path / "whole")
    listed = {"mds": {"index.json"}}.get(kind, set())
    assert any(name.endswith(".idx") for name in whole) == (kind == "recordio")
    kills = rounds = 0
    while kills < repeats(5, least=2):
        rounds += 1
        out = tmp_path / f"out{rounds}"

        def visible(out: Path = out) -> None:
            assert shards(out).items() <= whole.items(), "whole shards only"

        kills += pack_until_done(sandbox, [photos.raw, out, *args], {}, rng, usual, visible)
        assert shards(out) == whole
        assert files(out) == {*whole, *listed, ".millrace/index", ".millrace/packed"}, "nothing is left behind"
        for name in listed:
            assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
        packed = (out / ".millrace/index").read_bytes()
        sandbox.ok("index", out, "--full")
        assert (out / ".millrace/index").read_bytes() == packed


@pytest.fixture(params=["folder", "s3"])
def place(
    request: pytest.FixtureRequest, sandbox: Sandbox, tmp_path: Path
) -> Iterator[tuple[Callable[[str], object], Path, dict[str, str]]]:
    """Where to pack to: its URIs, its folder, and the environment."""
    root = tmp_path / "root" / "out"
    root.mkdir(parents=True)
    if request.param == "folder":
        yield (lambda name: root / name), root, {}
        return
    with devstore(sandbox, tmp_path / "root") as server:
        yield (lambda name: f"s3://out/{name}"), root, server.env()


def test_parts_make_what_one_makes(photos: Photos, sandbox: Sandbox, place) -> None:
    where, root, env = place
    sandbox.ok("index", photos.raw)
    sandbox.ok("pack", photos.raw, where("one"), *SIZE, env=env)
    parts = [sandbox.start("pack", photos.raw, where("many"), *SIZE, "--part", f"{n}/3", env=env) for n in (3, 1, 2)]
    assert [part.wait(300) for part in parts] == [0, 0, 0]
    assert shards(root / "many") == shards(root / "one")
    assert files(root / "many") == files(root / "one")
    if env:
        assert (root / "many/.millrace/index").read_bytes() == (root / "one/.millrace/index").read_bytes()
    assert oracle.read_tar(root / "many") == photos.samples


def test_a_part_that_is_missing(photos: Photos, sandbox: Sandbox, place) -> None:
    """The others say so; the last one completes the data set, also the same command without --part."""
    where, root, env = place
    found = sandbox.ok("pack", photos.raw, where("x"), *SIZE, "--part", "1/2", "--json", env=env).json()
    assert found["complete"] is False and found["missing_shards"] > 0 and found["index_bytes"] == 0
    assert "part 1/2" in sandbox.ok("pack", photos.raw, where("x"), *SIZE, "--part", "1/2", env=env).out
    sandbox.run("inspect", where("x"), env=env).failed(1, "millrace pack")
    found = sandbox.ok("pack", photos.raw, where("x"), *SIZE, "--json", env=env).json()
    assert found["complete"] is True and found["kept_shards"] == (found["shards"] + 1) // 2
    assert oracle.read_tar(root / "x") == photos.samples


@pytest.mark.parametrize("part", ["0/2", "3/2", "1", "1/", "/2", "a/b", "1/2/3", "2/18446744073709551615", "1/1000001"])
def test_parts_that_make_no_sense(photos: Photos, sandbox: Sandbox, tmp_path: Path, part: str) -> None:
    sandbox.run("pack", photos.raw, tmp_path / "x", "--part", part).failed(2, "--part")


def test_force_and_part(photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
    sandbox.run("pack", photos.raw, tmp_path / "x", "--part", "1/2", "--force").failed(2, "--force", "other parts")


def test_another_pack_is_not_continued(photos: Photos, sandbox: Sandbox, place) -> None:
    where, root, env = place
    sandbox.ok("pack", photos.raw, where("x"), *SIZE, "--part", "1/2", env=env)
    before = files(root / "x")
    for options, words in (
        (["--shard-size", "1MiB"], ["--shard-size is 256.0 KiB there and 1.0 MiB now"]),
        ([*SIZE, "--shuffle"], ["order is kept there and shuffled by seed 0 now"]),
    ):
        sandbox.run("pack", photos.raw, where("x"), *options, env=env).failed(1, *words, "--force")
    sandbox.run("pack", photos.tar, where("x"), *SIZE, env=env).failed(1, str(photos.raw), str(photos.tar), "--force")
    assert files(root / "x") == before
    sandbox.ok("pack", photos.raw, where("x"), "--shard-size", "4MiB", "--force", env=env)
    assert oracle.read_tar(root / "x") == photos.samples
    assert all("pack-" not in name for name in files(root / "x"))


def test_a_disk_that_was_full_and_is_not(photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
    with small_disk(tmp_path / "full", "8m") as full:
        sandbox.run("pack", photos.raw, full / "tar", *SIZE).failed(1, str(full), "space|full")
        done = shards(full / "tar")
        assert done, "what was written whole stays"
        as_root("mount", "-o", "remount,size=64m", full)
        # Those that were under way when the disk was full may be there without a note of it, and are written again.
        assert sandbox.ok("pack", photos.raw, full / "tar", *SIZE, "--json").json()["kept_shards"] >= len(done) // 2
        assert oracle.read_tar(full / "tar") == photos.samples
        assert done.items() <= shards(full / "tar").items()


@pytest.mark.parametrize("to", ["folder", "s3"])
def test_an_interrupt_is_continued(photos: Photos, sandbox: Sandbox, tmp_path: Path, to: str) -> None:
    """The last class never comes, so that the pack cannot end before it is interrupted."""
    root = tmp_path / "root"
    corpus.copy_tree(photos.raw, root / "in" / "raw")
    (root / "out").mkdir()
    out = root / "out" / "x" if to == "s3" else tmp_path / "x"
    args = ["pack", "s3://in/raw", "s3://out/x" if to == "s3" else out, *SIZE]
    with devstore(sandbox, root, faults=("GET in/raw/a0/* delay-ms=600000",)) as server:
        process = sandbox.start(*args, env=server.env(), err=subprocess.PIPE)
        deadline = time.monotonic() + 300
        while not list(out.glob(".millrace/pack-*")) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 130 and b"run the same command again" in err
    with devstore(sandbox, root) as server:
        assert sandbox.ok(*args, "--json", env=server.env()).json()["kept_shards"] >= 1
    assert oracle.read_tar(out) == photos.samples


def rot(root: Path, path: Path, offset: int) -> None:
    corpus.rot(root, str(path.relative_to(root)), offset, bytes([path.read_bytes()[offset] ^ 1]))


@pytest.mark.parametrize("layout", ["raw", "tar"])
@pytest.mark.parametrize("order", [[], ["--shuffle", "--seed", 5]])
def test_bad_samples_are_left_out_and_reported(
    photos: Photos, sandbox: Sandbox, tmp_path: Path, layout: str, order: list[object]
) -> None:
    root, source = tmp_path / "root", f"s3://b/{layout}"
    bad = [photos.samples[number].key for number in (0, 400, 401, 1004)]
    out = tmp_path / "out"
    (root / "b").mkdir(parents=True)
    with devstore(sandbox, root) as server:
        env = server.env() | {"AWS_MAX_ATTEMPTS": "1"}  # it stays as it is
        sandbox.ok("cp", "--recursive", getattr(photos, layout), source, env=env)
        sandbox.ok("index", source, "--checksums", env=env)
        if layout == "raw":
            for key in bad:
                rot(root, root / "b" / layout / f"{key}.jpg", 5000)
        else:
            for path in sorted((root / "b" / layout).glob("*.tar")):
                with tarfile.open(path) as tar:
                    offsets = [m.offset_data for m in tar if m.name.removesuffix(".jpg") in bad]
                for offset in offsets:
                    rot(root, path, offset + 5000)
        sandbox.run("pack", source, out, *SIZE, *order, env=env).failed(
            1,
            re.escape(source),
            "do not match their checksum",
            "not those that were indexed",
            "restore the object from a copy",
            "millrace index",
        )
        result = sandbox.ok("pack", source, out, *SIZE, *order, "--skip-bad", "--json", env=env)
    assert "4 samples were left out" in result.err and bad[0] in result.err
    found = result.json()
    assert found["complete"] is True and found["samples"] == len(photos.samples) - 4
    assert sorted(s["key"] for s in found["skipped"]) == sorted(bad)
    assert all(source in s["why"] for s in found["skipped"])
    packed = oracle.read_tar(out)
    assert sorted(s.key for s in packed) == sorted(s.key for s in photos.samples if s.key not in bad)
    # The plan does not depend on what is bad: the other shards are those of the whole data set.
    sandbox.ok("pack", photos.raw, tmp_path / "whole", *SIZE, *order)
    whole = shards(tmp_path / "whole")
    differ = [name for name, data in shards(out).items() if data != whole[name]]
    assert len(shards(out)) == len(whole) and 1 <= len(differ) <= 4


class TestClassMap:
    def labels(self, root: Path) -> dict[str, bytes]:
        return {s.key.split("/")[0]: s.fields["cls"] for s in oracle.read_tar(root)}

    def test_names_and_json(self, photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
        (tmp_path / "names.txt").write_text("B\na.b\na\na-b\na0\n")
        (tmp_path / "map.json").write_text('{"a": 7, "a-b": 7, "a.b": 0, "a0": 1000, "B": 3, "unused": 4}')
        sandbox.ok("pack", photos.raw, tmp_path / "x", "--class-map", tmp_path / "names.txt")
        assert self.labels(tmp_path / "x") == {"B": b"0", "a.b": b"1", "a": b"2", "a-b": b"3", "a0": b"4"}
        sandbox.ok("pack", photos.raw, tmp_path / "y", "--class-map", tmp_path / "map.json")
        assert self.labels(tmp_path / "y") == {"a": b"7", "a-b": b"7", "a.b": b"0", "a0": b"1000", "B": b"3"}

    def test_refused(self, photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
        names = tmp_path / "names.txt"
        names.write_text("B\na.b\na\na-b\n")
        sandbox.run("pack", photos.raw, tmp_path / "x", "--class-map", names).failed(1, "class map has no class 'a0'")
        assert not (tmp_path / "x").exists()
        names.write_text("a\na\n")
        sandbox.run("pack", photos.raw, tmp_path / "x", "--class-map", names).failed(1, "names.txt", "line 2", "twice")
        sandbox.run("pack", photos.raw, tmp_path / "x", "--class-map", tmp_path / "none").failed(
            1, str(tmp_path / "none")
        )
        names.write_text("a\n")
        sandbox.run("pack", photos.tar, tmp_path / "x", "--class-map", names).failed(1, "class folders")


def test_seed_without_shuffle(photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
    sandbox.run("pack", photos.raw, tmp_path / "x", "--seed", 1).failed(2, "--seed", "--shuffle")


@pytest.mark.parametrize(
    "fault", ["GET in/raw/* flip=1000 count=1", "GET in/raw/* flip=1000", "GET in/raw/* cut=1000 p=0.2"]
)
def test_large_objects_that_were_never_read(sandbox: Sandbox, tmp_path: Path, fault: str) -> None:
    """They are read once, in pieces, and held against the checksum that the store keeps: damage is repaired or told."""
    data = random.Random(1).randbytes(20 * MIB)
    corpus.write(tmp_path / "raw" / "a" / "1.jpg", data)
    (tmp_path / "root" / "in").mkdir(parents=True)
    (tmp_path / "root" / "out").mkdir()
    with devstore(sandbox, tmp_path / "root") as server:
        sandbox.ok("cp", "--recursive", tmp_path / "raw", "s3://in/raw", env=server.env())
    with devstore(sandbox, tmp_path / "root", faults=(fault,)) as server:
        result = sandbox.run("pack", "s3://in/raw", "s3://out/x", env=server.env())
    with devstore(sandbox, tmp_path / "root") as server:
        listed = sandbox.ok("inspect", "s3://in/raw", "--json", env=server.env()).json()
    assert listed["samples_without_checksum"] == listed["samples"] == 1, "listed, not read"
    if result.code:
        result.failed(1, "s3://in/raw/a/1.jpg", "damaged|checksum")
        assert not list((tmp_path / "root/out").rglob("*.tar")), "what is damaged is not committed"
        with devstore(sandbox, tmp_path / "root") as server:
            sandbox.ok("pack", "s3://in/raw", "s3://out/x", env=server.env())
    (sample,) = oracle.read_tar(tmp_path / "root/out/x")
    assert sample.fields["jpg"] == data


@pytest.mark.all
def test_memory(big: tuple[Path, int], sandbox: Sandbox, tmp_path: Path) -> None:
    """The budget and what the program itself needs, whatever the shards' size, the source and the destination."""
    root, _ = big
    (tmp_path / "root" / "out").mkdir(parents=True)
    with devstore(sandbox, tmp_path / "root") as server:
        for place, size, to in (
            ("raw", "256MiB", tmp_path / "a"),
            ("one-shard", "32MiB", tmp_path / "b"),
            ("raw", "256MiB", "s3://out/c"),
            ("one-shard", "256MiB", "s3://out/d"),
        ):
            source = corpus.copy_tree(
                root / "b" / place, tmp_path / "in" / Path(str(to)).name
            )  # without the index of S3
            if place != "raw":
                sandbox.ok("index", source)  # what that takes is not packing's
            args = ["pack", source, to, "--shard-size", size, "--memory", "64MiB"]
            result = sandbox.run(*args, env=server.env(), watch_rss=True)
            assert result.code == 0, str(result)
            assert 0 < result.peak_rss <= (64 + 64) * MIB, f"{result.peak_rss / MIB:.0f} MiB: {result}"


@pytest.mark.all
@pytest.mark.parametrize("kind", ["mds", "recordio", "tfrecord"])
def test_memory_of_other_formats(big: tuple[Path, int], sandbox: Sandbox, tmp_path: Path, kind: str) -> None:
    """The bound holds for these, too, although they hold whole samples, and MDS whole shards: 330 MiB go through a budget of 64."""
    root, data = big
    assert data > 300 * MIB
    source = corpus.copy_tree(root / "b" / "raw", tmp_path / "in")
    (tmp_path / "root" / "out").mkdir(parents=True)
    with devstore(sandbox, tmp_path / "root") as server:
        for to in (tmp_path / "a", "s3://out/b"):
            args = [
                "pack",
                source,
                to,
                "--format",
                kind,
                "--shard-size",
                "4MiB" if kind == "mds" else "256MiB",
                "--memory",
                "64MiB",
            ]
            result = sandbox.run(*args, env=server.env(), watch_rss=True)
            assert result.code == 0, str(result)
            assert 0 < result.peak_rss <= (64 + 64) * MIB, f"{result.peak_rss / MIB:.0f} MiB: {result}"
    args = ["pack", source, tmp_path / "c", "--format", kind, "--shard-size", "4GiB", "--memory", "64MiB"]
    if kind == "mds":
        sandbox.run(*args).failed(1, "--memory", "lower --shard-size")
        assert not (tmp_path / "c").exists()
