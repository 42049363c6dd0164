"""The epoch's digest is what an independent reader says, and nothing but data, order and epochs changes it."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from . import corpus, oracle
from .conftest import FOLDERS, Photos
from .harness import Sandbox, Server, devstore, feed_args

POLICIES = ["none", "global", "window"]


@pytest.fixture(scope="module")
def shuffled(photos: Photos, session_sandbox: Sandbox) -> dict[str, str]:
    """Digest of epoch 0 for each policy, of the packed data, in the plainest way."""
    found = {policy: session_sandbox.feed(photos.tar, shuffle=policy, threads=1)["digest"] for policy in POLICIES}
    assert len(set(found.values())) == 3, "a shuffle is an order of its own"
    assert found["none"] == photos.digest()
    return found


def test_raw(photos: Photos, sandbox: Sandbox) -> None:
    report = sandbox.feed(photos.raw)
    assert (report["samples"], report["digest"]) == (len(photos.samples), photos.digest())


def test_packed(photos: Photos, sandbox: Sandbox) -> None:
    report = sandbox.feed(photos.tar)
    assert (report["samples"], report["digest"]) == (len(photos.samples), photos.digest())


def test_global_shuffle_of_raw_and_packed_agree(photos: Photos, sandbox: Sandbox, shuffled: dict[str, str]) -> None:
    assert sandbox.feed(photos.raw, shuffle="global")["digest"] == shuffled["global"]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("threads", [1, 2, 8])
def test_threads(photos: Photos, sandbox: Sandbox, shuffled: dict[str, str], policy: str, threads: int) -> None:
    assert sandbox.feed(photos.tar, shuffle=policy, threads=threads)["digest"] == shuffled[policy]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("memory", ["64MiB", "1GiB"])
def test_budgets(
    photos: Photos, sandbox: Sandbox, server: Server, shuffled: dict[str, str], policy: str, memory: str
) -> None:
    for uri in (photos.tar, "s3://b/tar"):
        found = sandbox.feed(uri, shuffle=policy, memory=memory, batch=128, size=224, env=server.env())
        assert found["digest"] == shuffled[policy]


@pytest.mark.parametrize("policy", POLICIES)
def test_s3_without_latency(sandbox: Sandbox, server: Server, shuffled: dict[str, str], policy: str) -> None:
    assert sandbox.feed("s3://b/tar", shuffle=policy, env=server.env())["digest"] == shuffled[policy]
    if policy != "window":  # its extents depend on the format
        assert sandbox.feed("s3://b/raw", shuffle=policy, env=server.env())["digest"] == shuffled[policy]


@pytest.mark.parametrize("policy", POLICIES)
def test_s3_with_latency(
    photos: Photos, sandbox: Sandbox, server: Server, shuffled: dict[str, str], policy: str
) -> None:
    latency = ("--first-byte-ms", 20, "--first-byte-sigma", 0.5, "--first-byte-tail-ms", 200, "--tail-fraction", 0.02)
    with devstore(sandbox, photos.root, *latency) as slow:
        assert sandbox.feed("s3://b/tar", shuffle=policy, env=slow.env())["digest"] == shuffled[policy]


def test_windowed_raw_is_the_same_on_file_and_s3(photos: Photos, sandbox: Sandbox, server: Server) -> None:
    of_file = sandbox.feed(photos.raw, shuffle="window")
    assert sandbox.feed("s3://b/raw", shuffle="window", env=server.env())["digest"] == of_file["digest"]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("world", [2, 3, 8])
def test_ranks_add_up(photos: Photos, sandbox: Sandbox, shuffled: dict[str, str], policy: str, world: int) -> None:
    reports = [sandbox.feed(photos.tar, shuffle=policy, rank=rank, world=world) for rank in range(world)]
    assert sum(r["samples"] for r in reports) == len(photos.samples)
    assert oracle.add(*(r["digest"] for r in reports)) == shuffled[policy]
    assert len({r["position"] for r in reports}) == 1, (
        "ranks that received equally many batches are at the same position"
    )


def test_a_rank_takes_every_nth_position(photos: Photos, sandbox: Sandbox) -> None:
    for rank in range(3):
        mine = [(p, s) for p, s in enumerate(photos.samples) if p % 3 == rank]
        report = sandbox.feed(photos.tar, rank=rank, world=3)
        assert report["samples"] == len(mine)
        assert report["digest"] == oracle.as_hex(sum(oracle.sample_hash(s, 0, p) for p, s in mine))


def test_batch_size_and_shape_do_not_matter(photos: Photos, sandbox: Sandbox, shuffled: dict[str, str]) -> None:
    for options in ({"batch": 1000}, {"batch": 7}, {"size": 33, "dtype": "f32"}, {"layout": "nchw"}):
        assert sandbox.feed(photos.tar, shuffle="global", **options)["digest"] == shuffled["global"], options


@pytest.mark.parametrize("policy", POLICIES)
def test_two_epochs_are_the_sum_of_both(
    photos: Photos, sandbox: Sandbox, shuffled: dict[str, str], policy: str
) -> None:
    """Where the first epoch ends, its position starts the second one."""
    first = sandbox.feed(photos.tar, shuffle=policy, epochs=1)
    both = sandbox.feed(photos.tar, shuffle=policy, epochs=2)
    second = sandbox.feed(photos.tar, shuffle=policy, epochs=2, resume=first["position"])
    assert both["samples"] == 2 * len(photos.samples) and second["samples"] == len(photos.samples)
    assert oracle.add(first["digest"], second["digest"]) == both["digest"]
    if policy == "none":
        assert both["digest"] == photos.digest(0, 1)


def test_seed_sets_the_order_of_a_shuffle_and_of_nothing_else(photos: Photos, sandbox: Sandbox) -> None:
    for policy in POLICIES:
        found = {sandbox.feed(photos.tar, shuffle=policy, seed=seed)["digest"] for seed in (1, 2, 3)}
        assert len(found) == (1 if policy == "none" else 3), policy


@pytest.fixture(scope="module")
def six(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return corpus.raw_tree(tmp_path_factory.mktemp("six"), ["cat", "dog"], 3)


class TestOrder:
    """With six samples the order behind a digest can be found by trying all 720."""

    def test_global_shuffle_delivers_each_sample_once(self, six: Path, sandbox: Sandbox) -> None:
        samples = oracle.read_raw(six)
        orders = {
            oracle.find_order(samples, sandbox.feed(six, shuffle="global", seed=seed)["digest"]) for seed in range(8)
        }
        assert None not in orders
        assert len(orders) >= 6, "seeds give different orders"

    def test_windowed_shuffle_delivers_each_sample_once(self, six: Path, sandbox: Sandbox) -> None:
        orders = {
            oracle.find_order(oracle.read_raw(six), sandbox.feed(six, shuffle="window", seed=seed)["digest"])
            for seed in range(8)
        }
        assert None not in orders
        assert len(orders) >= 6, "raw objects are shuffled one by one"

    def test_epochs_have_orders_of_their_own(self, six: Path, sandbox: Sandbox) -> None:
        samples = oracle.read_raw(six)
        orders, before = [], oracle.ZERO
        for epochs in range(1, 6):
            total = sandbox.feed(six, shuffle="global", epochs=epochs)["digest"]
            orders.append(oracle.find_order(samples, oracle.as_hex(int(total, 16) - int(before, 16)), epoch=epochs - 1))
            before = total
        assert None not in orders
        assert len(set(orders)) >= 4

    def test_ranks_follow_the_same_order(self, six: Path, sandbox: Sandbox) -> None:
        samples = oracle.read_raw(six)
        order = oracle.find_order(samples, sandbox.feed(six, shuffle="global")["digest"])
        assert order is not None
        for rank in range(2):
            expected = sum(oracle.sample_hash(samples[s], 0, p) for p, s in enumerate(order) if p % 2 == rank)
            assert sandbox.feed(six, shuffle="global", rank=rank, world=2, batch=2)["digest"] == oracle.as_hex(expected)


class TestTar:
    """Shards that others wrote."""

    @pytest.mark.parametrize("tar_format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
    @pytest.mark.parametrize("prefix", ["", "./"])
    def test_tarfile(self, sandbox: Sandbox, tmp_path: Path, tar_format: int, prefix: str) -> None:
        corpus.write_tar(tmp_path / "d" / "0.tar", corpus.tar_samples(10), tar_format, prefix, mtime=1.5)
        corpus.write_tar(tmp_path / "d" / "1.tar", corpus.tar_samples(7, first=10), tar_format, prefix)
        expected = oracle.read_tar(tmp_path / "d")
        assert len(expected) == 17
        assert sandbox.feed(tmp_path / "d")["digest"] == oracle.digest(expected)

    @pytest.mark.parametrize("tar_format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
    def test_long_names(self, sandbox: Sandbox, tmp_path: Path, tar_format: int) -> None:
        keys = ["k" * 101, "d" * 120 + "/" + "k" * 130, "größe/" + "日" * 60, "a/" * 200 + "x"]
        samples = [oracle.Sample(key, {"jpg": corpus.jpeg(n), "cls": b"1"}) for n, key in enumerate(keys)]
        corpus.write_tar(tmp_path / "d" / "0.tar", samples, tar_format)
        assert sandbox.feed(tmp_path / "d")["digest"] == oracle.digest(samples)

    @pytest.mark.parametrize("flavour", ["v7", "ustar", "gnu", "posix"])
    def test_gnu_tar(self, sandbox: Sandbox, tmp_path: Path, flavour: str) -> None:
        """Folders are members too; the order is that of the archive, not of the names."""
        if not shutil.which("tar"):
            pytest.skip("no tar command")
        corpus.raw_tree(tmp_path / "src", ["z", "a"], 3)
        (tmp_path / "d").mkdir()
        shard = tmp_path / "d" / "0.tar"
        subprocess.run(["tar", f"--format={flavour}", "-cf", shard, "-C", tmp_path / "src", "./z", "./a"], check=True)
        expected = oracle.read_tar(tmp_path / "d")
        assert len(expected) == 6 and expected[0].key.startswith("z/")
        assert sandbox.feed(tmp_path / "d")["digest"] == oracle.digest(expected)

    def test_webdataset_writer(self, sandbox: Sandbox, tmp_path: Path) -> None:
        import webdataset

        for shard in range(3):
            (tmp_path / "d" / "sub").mkdir(parents=True, exist_ok=True)
            with webdataset.TarWriter(str(tmp_path / "d" / "sub" / f"x-{shard:06d}.tar")) as sink:
                for n in range(8):
                    key = f"train/{shard}/{n:06d}"
                    sink.write(
                        {
                            "__key__": key,
                            "jpg": corpus.jpeg(100 * shard + n),
                            "cls": n % 3,
                            "json": {"n": n},
                            "txt": "héllo",
                        }
                    )
        expected = oracle.read_tar(tmp_path / "d")
        assert len(expected) == 24
        assert set(expected[0].fields) == {"jpg", "cls", "json", "txt"}
        assert sandbox.feed(tmp_path / "d")["digest"] == oracle.digest(expected)

    def test_members_that_are_no_samples_are_left_out(self, sandbox: Sandbox, tmp_path: Path) -> None:
        shard = tmp_path / "d" / "0.tar"
        shard.parent.mkdir()
        with tarfile.open(shard, "w") as tar:
            for n, name in enumerate(
                [
                    "__meta__/x.jpg",
                    "__index__",
                    "README",
                    "a/.hidden",
                    "a/one.jpg",
                    "dir/",
                    "a/one.cls",
                    "link.jpg",
                    "two.JPG",
                    "two.cls",
                ]
            ):
                info = tarfile.TarInfo(name)
                data = b""
                if name == "dir/":
                    info.type = tarfile.DIRTYPE
                elif name == "link.jpg":
                    info.type, info.linkname = tarfile.SYMTYPE, "a/one.jpg"
                else:
                    data = b"3" if name.endswith(".cls") else corpus.jpeg(n)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        expected = oracle.read_tar(tmp_path / "d")
        assert [s.key for s in expected] == ["a/one", "two"]
        assert sandbox.feed(tmp_path / "d")["digest"] == oracle.digest(expected)

    def test_shards_in_bytewise_order_of_their_names(self, sandbox: Sandbox, tmp_path: Path) -> None:
        for n, name in enumerate(["b/0.tar", "a.tar", "a/0.tar", "a-1.tar", "B.tar", "a/10.tar", "a/9.tar"]):
            corpus.write_tar(tmp_path / "d" / name, corpus.tar_samples(3, first=10 * n))
        assert sandbox.feed(tmp_path / "d")["digest"] == oracle.digest(oracle.read_tar(tmp_path / "d"))


class TestRaw:
    def test_nested_folders_dots_and_upper_case(self, sandbox: Sandbox, tmp_path: Path) -> None:
        names = ["v1.0/deep/er/x.JPG", "v1.0/x-1.jpg", "v1.0/x.jpg", "cat/y.jpg", "a/A.jpg", "A/a.jpg"]
        for n, name in enumerate(names):
            corpus.write(tmp_path / "d" / name, corpus.jpeg(n))
        assert sandbox.feed(tmp_path / "d")["digest"] == oracle.digest(oracle.read_raw(tmp_path / "d"))

    def test_jpeg_and_png_side_by_side(self, sandbox: Sandbox, tmp_path: Path) -> None:
        for n, name in enumerate(["a/0.jpg", "a/1.JPEG", "b/2.png"]):
            corpus.write(tmp_path / "d" / name, corpus.png(n) if name.endswith("png") else corpus.jpeg(n))
        assert sandbox.feed(tmp_path / "d")["digest"] == oracle.digest(oracle.read_raw(tmp_path / "d"))

    def test_without_folders_there_is_no_class(self, sandbox: Sandbox, tmp_path: Path) -> None:
        for n in range(5):
            corpus.write(tmp_path / "d" / f"{n}.jpg", corpus.jpeg(n))
        samples = oracle.read_raw(tmp_path / "d")
        assert set(samples[0].fields) == {"jpg"}
        assert sandbox.feed(tmp_path / "d")["digest"] == oracle.digest(samples)

    def test_hundred_folders_are_numbered_in_bytewise_order(self, sandbox: Sandbox, tmp_path: Path) -> None:
        corpus.raw_tree(tmp_path / "d", [str(n) for n in range(12)] + FOLDERS, 1, width=16, height=16)
        samples = oracle.read_raw(tmp_path / "d")
        assert samples[2].fields["cls"] == b"2" and samples[2].key == "10/00000"
        assert sandbox.feed(tmp_path / "d")["digest"] == oracle.digest(samples)

    def test_uri_forms_name_the_same_data(self, photos: Photos, sandbox: Sandbox) -> None:
        for uri in (f"file://{photos.raw}", f"{photos.raw}/", f"file://{photos.raw}/"):
            assert sandbox.feed(uri)["digest"] == photos.digest(), uri

    def test_the_key_is_the_path_below_the_uri(self, sandbox: Sandbox, tmp_path: Path) -> None:
        corpus.raw_tree(tmp_path / "d" / "e", ["x", "y"], 2)
        assert sandbox.feed(tmp_path / "d" / "e")["digest"] == oracle.digest(oracle.read_raw(tmp_path / "d" / "e"))
        assert sandbox.feed(tmp_path / "d")["digest"] == oracle.digest(oracle.read_raw(tmp_path / "d"))


class TestDecoded:
    def test_png_of_the_asked_size_comes_out_bit_exact(self, sandbox: Sandbox, tmp_path: Path) -> None:
        samples = []
        for n in range(9):
            corpus.write(tmp_path / "d" / "c" / f"{n}.png", corpus.png(n, 32, 32))
            samples.append(oracle.Sample(f"c/{n}", {"png": corpus.pixels(n, 32, 32).tobytes(), "cls": b"0"}))
        for options in ({}, {"dtype": "f32"}, {"layout": "nchw"}, {"dtype": "f32", "layout": "nchw"}):
            found = sandbox.feed(tmp_path / "d", "--digest-of", "decoded", size=32, **options)
            assert found["digest"] == oracle.digest(samples), options

    @pytest.mark.parametrize("augment", [(), ("--augment",)])
    def test_threads_budgets_and_stores_do_not_matter(
        self, photos: Photos, sandbox: Sandbox, server: Server, augment: tuple[str, ...]
    ) -> None:
        how = {"shuffle": "global", "batch": 128, "size": 48}
        more = (*augment, "--digest-of", "decoded")
        found = {
            sandbox.feed(photos.tar, *more, threads=1, **how)["digest"],
            sandbox.feed(photos.tar, *more, threads=8, memory="1GiB", **how)["digest"],
            sandbox.feed(photos.raw, *more, threads=2, memory="64MiB", **how)["digest"],
            sandbox.feed("s3://b/tar", *more, threads=3, env=server.env(), **how)["digest"],
            oracle.add(*(sandbox.feed(photos.tar, *more, rank=rank, world=2, **how)["digest"] for rank in range(2))),
        }
        assert len(found) == 1

    def test_augmentation_depends_on_seed_and_epoch_and_shows_in_decoded_only(
        self, photos: Photos, sandbox: Sandbox
    ) -> None:
        def decoded(*more: str, **how: object) -> str:
            return sandbox.feed(photos.tar, "--digest-of", "decoded", *more, size=32, **how)["digest"]

        assert len({decoded(), decoded("--augment"), decoded("--augment", seed=2)}) == 3
        assert sandbox.feed(photos.tar, "--augment", size=32)["digest"] == photos.digest()


def test_report_has_what_scripts_rely_on(photos: Photos, sandbox: Sandbox, server: Server) -> None:
    result = sandbox.ok(
        "feed",
        "s3://b/tar",
        "--json",
        "--batch",
        64,
        "--size",
        64,
        "--shuffle",
        "window",
        "--seed",
        3,
        env=server.env(),
    )
    report = json.loads(result.out)
    numbers = [
        "samples",
        "seconds",
        "open_seconds",
        "first_batch_seconds",
        "samples_per_second",
        "cpu_seconds",
        "max_rss_bytes",
        "bytes_read",
    ]
    assert all(isinstance(report[name], (int, float)) and report[name] > 0 for name in numbers), report
    assert (
        isinstance(report["samples"], int)
        and isinstance(report["bytes_read"], int)
        and isinstance(report["max_rss_bytes"], int)
    )
    assert len(report["digest"]) == 32 and report["digest"] == report["digest"].lower() and int(report["digest"], 16)
    assert report["position"].isascii() and report["position"].isprintable() and 0 < len(report["position"]) < 200
    assert all(isinstance(seconds, (int, float)) and seconds >= 0 for seconds in report["stalls"].values())
    assert isinstance(report["bottleneck"], str)
    assert report["requests"]["GET"] > 0 and all(isinstance(count, int) for count in report["requests"].values())
    assert report["first_batch_seconds"] <= report["seconds"] + 0.01
    assert report["samples"] / report["seconds"] == pytest.approx(report["samples_per_second"], rel=0.02)
    assert report["seconds"] + report["open_seconds"] <= result.seconds + 0.1
    data = sum(path.stat().st_size for path in photos.tar.glob("*.tar"))
    assert sum(len(d) for s in photos.samples for d in s.fields.values()) <= report["bytes_read"] <= 1.05 * data + 65536


class TestLastBatch:
    """1,005 samples in batches of 64 on two ranks: seven full global batches, and 109 samples left over."""

    def reports(self, sandbox: Sandbox, photos: Photos, last: str, **more: object) -> list[dict]:
        return [sandbox.feed(photos.tar, batch=64, world=2, rank=rank, last=last, **more) for rank in range(2)]

    @pytest.mark.parametrize("last", ["pad", "wrap"])
    def test_pad_and_wrap_deliver_everything_once(self, photos: Photos, sandbox: Sandbox, last: str) -> None:
        reports = self.reports(sandbox, photos, last)
        assert [r["samples"] for r in reports] == [503, 502]
        assert oracle.add(*(r["digest"] for r in reports)) == photos.digest()

    def test_drop_leaves_the_incomplete_global_batch_out(self, photos: Photos, sandbox: Sandbox) -> None:
        reports = self.reports(sandbox, photos, "drop")
        assert [r["samples"] for r in reports] == [448, 448]
        assert oracle.add(*(r["digest"] for r in reports)) == oracle.digest(photos.samples[:896])

    def test_pad_is_the_default(self, photos: Photos, sandbox: Sandbox) -> None:
        assert sandbox.feed(photos.tar, batch=1000)["samples"] == 1005

    @pytest.mark.parametrize("last", ["pad", "wrap", "drop"])
    def test_the_next_epoch_starts_at_its_beginning(self, photos: Photos, sandbox: Sandbox, last: str) -> None:
        reports = self.reports(sandbox, photos, last, epochs=2)
        count = 896 if last == "drop" else 1005
        assert sum(r["samples"] for r in reports) == 2 * count
        assert oracle.add(*(r["digest"] for r in reports)) == oracle.add(
            *(oracle.digest(photos.samples[:count], epoch) for epoch in (0, 1))
        )

    def test_a_world_larger_than_the_data(self, sandbox: Sandbox, tmp_path: Path) -> None:
        corpus.raw_tree(tmp_path / "d", ["a"], 3)
        samples = oracle.read_raw(tmp_path / "d")
        for last in ("pad", "wrap"):
            reports = [sandbox.feed(tmp_path / "d", batch=2, rank=rank, world=5, last=last) for rank in range(5)]
            assert sum(r["samples"] for r in reports) == 3, last
            assert oracle.add(*(r["digest"] for r in reports)) == oracle.digest(samples), last
            assert len({r["position"] for r in reports}) == 1

    def test_nothing_is_left_when_all_would_be_dropped(self, sandbox: Sandbox, tmp_path: Path) -> None:
        """An epoch without a batch is refused: many of them would be an endless loop."""
        corpus.raw_tree(tmp_path / "d", ["a"], 3)
        result = sandbox.run(*feed_args(tmp_path / "d", batch=4, last="drop"))
        result.failed(1, "drop", "batch", "pad")
