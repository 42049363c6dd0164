"""Each mistake that a user makes, with the message that gets him further: object, operation, remedy. Never a crash."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from . import corpus, oracle
from .conftest import Photos
from .harness import MIB, Sandbox, Server, devstore, feed_args, small_disk


@pytest.fixture
def packed(sandbox: Sandbox, tmp_path: Path) -> Path:
    """A packed data set of the test's own, to be spoilt. Three shards, no index yet."""
    for shard in range(3):
        corpus.write_tar(tmp_path / "d" / f"{shard}.tar", corpus.tar_samples(12, first=20 * shard))
    return tmp_path / "d"


class TestPlaces:
    def test_missing_bucket(self, sandbox: Sandbox, server: Server) -> None:
        for command in (
            feed_args("s3://nowhere/tar"),
            ["index", "s3://nowhere/tar"],
            ["ls", "s3://nowhere/"],
            ["inspect", "s3://nowhere/x"],
        ):
            sandbox.run(*command, env=server.env()).failed(1, "nowhere", "bucket", "not exist|no such|not found")

    def test_missing_bucket_is_said_once_with_its_endpoint(
        self, photos: Photos, sandbox: Sandbox, server: Server, tmp_path: Path
    ) -> None:
        for command in (
            ["ls", "s3://nowhere/x"],
            ["cat", "s3://nowhere/x"],
            ["cp", "s3://nowhere/x", tmp_path],
            ["rm", "s3://nowhere/x"],
            ["index", "s3://nowhere/x"],
            feed_args("s3://nowhere/x"),
            ["pack", photos.raw, "s3://nowhere/x"],
        ):
            said = sandbox.run(*command, env=server.env()).failed(
                1, "s3://nowhere: ", "check its name and AWS_ENDPOINT_URL"
            )
            assert said.count("the bucket does not exist at " + server.url) == said.count("not exist") == 1, said
            assert ".millrace" not in said

    def test_missing_object(self, sandbox: Sandbox, server: Server) -> None:
        sandbox.run("cat", "s3://b/tar/none.bin", env=server.env()).failed(
            1, r"s3://b/tar/none\.bin", "not exist|no such|not found"
        )

    def test_missing_folder(self, sandbox: Sandbox, tmp_path: Path) -> None:
        for command in (
            feed_args(tmp_path / "none"),
            ["index", tmp_path / "none"],
            ["pack", tmp_path / "none", tmp_path / "out"],
        ):
            sandbox.run(*command).failed(1, re.escape(str(tmp_path / "none")), "not exist|no such|not found|no samples")
        assert not (tmp_path / "none").exists() and not list(tmp_path.glob("out/*.tar"))

    def test_empty_prefix(self, sandbox: Sandbox, server: Server, tmp_path: Path) -> None:
        (tmp_path / "empty").mkdir()
        for uri in ("s3://b/nothing/here", tmp_path / "empty"):
            for command in (feed_args(uri), ["index", uri]):
                sandbox.run(*command, env=server.env()).failed(1, re.escape(str(uri)), "no sample|no object|empty")

    def test_nothing_but_other_files(self, sandbox: Sandbox, tmp_path: Path) -> None:
        corpus.write(tmp_path / "d" / "README", b"hello")
        sandbox.run(*feed_args(tmp_path / "d")).failed(1, re.escape(str(tmp_path / "d")), "no sample|no object|image")

    @pytest.mark.parametrize("uri", ["gs://b/x", "http://b/x", "s3://", "s3:/b/x", "S3://"])
    def test_uri_of_no_known_kind(self, sandbox: Sandbox, server: Server, uri: str) -> None:
        result = sandbox.run(*feed_args(uri), env=server.env())
        assert result.code == 2, str(result)
        assert re.search("s3://|uri|scheme|bucket", result.err, re.IGNORECASE), str(result)

    def test_a_file_instead_of_a_folder(self, sandbox: Sandbox, tmp_path: Path) -> None:
        corpus.write(tmp_path / "x.bin", b"hello")
        sandbox.run(*feed_args(tmp_path / "x.bin")).failed(1, r"x\.bin")

    def test_data_without_images(self, sandbox: Sandbox, tmp_path: Path) -> None:
        corpus.write_tar(tmp_path / "d" / "0.tar", [oracle.Sample("k", {"txt": b"hello", "cls": b"1"})])
        sandbox.run(*feed_args(tmp_path / "d")).failed(1, "image|jpg|jpeg")


class TestCredentials:
    def test_wrong_secret(self, sandbox: Sandbox, server: Server) -> None:
        env = server.env(AWS_SECRET_ACCESS_KEY="not-the-right-one-0123456789")
        for command in (feed_args("s3://b/tar"), ["ls", "s3://b/"], ["index", "s3://b/tar"]):
            result = sandbox.run(*command, env=env)
            result.failed(
                1, "s3://b|bucket b|'b'|b/", "signature|credential|secret", "AWS_SECRET_ACCESS_KEY|credential"
            )
            assert "not-the-right-one" not in result.err + result.out

    def test_unknown_access_key(self, sandbox: Sandbox, server: Server) -> None:
        sandbox.run("ls", "s3://b/", env=server.env(AWS_ACCESS_KEY_ID="nobody-knows-me")).failed(
            1, "access key|credential", "AWS_ACCESS_KEY_ID|credential"
        )

    def test_no_credentials(self, sandbox: Sandbox, server: Server) -> None:
        env = {"AWS_ENDPOINT_URL": server.url, "AWS_REGION": "us-east-1"}
        sandbox.run("ls", "s3://b/", env=env, timeout=300).failed(1, "credential", "AWS_ACCESS_KEY_ID")

    def test_no_permission(self, photos: Photos, sandbox: Sandbox, server: Server) -> None:
        with devstore(sandbox, photos.root, faults=("GET b/tar/*1.tar status=403",)) as strict:
            sandbox.run(*feed_args("s3://b/tar"), env=strict.env()).failed(
                1, r"b/tar/.*1\.tar", "denied|permission|forbidden"
            )
        with devstore(sandbox, photos.root, faults=("GET b/raw* status=403",)) as strict:
            sandbox.run("ls", "s3://b/raw/", env=strict.env()).failed(1, "s3://b|b/raw", "denied|permission|forbidden")
        with devstore(sandbox, photos.root, faults=("PUT b/* status=403",)) as strict:
            sandbox.run("cp", photos.tar, "s3://b/new", "--recursive", env=strict.env()).failed(
                1, "b/new", "denied|permission|forbidden"
            )

    def test_untrusted_certificate(self, photos: Photos, sandbox: Sandbox) -> None:
        with devstore(sandbox, photos.root, "--tls") as tls:
            assert tls.url.startswith("https://")
            assert "raw" in sandbox.ok("ls", "s3://b/", env=tls.env()).out
            env = {name: value for name, value in tls.env().items() if name != "AWS_CA_BUNDLE"}
            sandbox.run("ls", "s3://b/", env=env, timeout=300).failed(1, "certificate", "127.0.0.1")


class TestShards:
    @pytest.mark.parametrize("where", ["first header", "after a header", "first data", "middle", "last data"])
    def test_truncated_before_indexing(self, sandbox: Sandbox, packed: Path, where: str) -> None:
        shard = packed / "1.tar"
        with tarfile.open(shard) as tar:
            members = [member for member in tar if member.size > 1000]
        size = {
            "first header": 100,
            "after a header": members[0].offset_data,
            "first data": members[0].offset_data + 1,
            "middle": members[6].offset_data + members[6].size // 2,
            "last data": members[-1].offset_data + members[-1].size - 1,
        }[where]
        os.truncate(shard, size)
        for command in (["index", packed], feed_args(packed)):
            sandbox.run(*command).failed(1, r"1\.tar", "truncated|cut|ends|incomplete|short")

    def test_truncated_after_indexing(self, sandbox: Sandbox, packed: Path) -> None:
        sandbox.ok("index", packed)
        os.truncate(packed / "1.tar", (packed / "1.tar").stat().st_size // 2)
        sandbox.run(*feed_args(packed)).failed(1, r"1\.tar", "millrace index")

    def test_not_a_tar_at_all(self, sandbox: Sandbox, packed: Path) -> None:
        (packed / "1.tar").write_bytes(b"This is not a tar archive. " * 100)
        for command in (["index", packed], feed_args(packed)):
            sandbox.run(*command).failed(1, r"1\.tar", "tar|header|checksum")

    def test_a_flipped_bit_in_a_header(self, sandbox: Sandbox, packed: Path) -> None:
        data = bytearray((packed / "1.tar").read_bytes())
        data[3] ^= 1
        (packed / "1.tar").write_bytes(data)
        sandbox.run("index", packed).failed(1, r"1\.tar", "checksum|header", "offset|byte")

    def test_duplicate_field(self, sandbox: Sandbox, tmp_path: Path) -> None:
        sample = oracle.Sample("k", {"jpg": corpus.jpeg(1), "JPG": corpus.jpeg(2)})
        corpus.write_tar(tmp_path / "d" / "0.tar", [sample])
        sandbox.run("index", tmp_path / "d").failed(1, r"0\.tar", "jpg", "twice|duplicate|again|two")


class TestImages:
    @pytest.fixture
    def spoilt(self, tmp_path: Path) -> Path:
        root = corpus.raw_tree(tmp_path / "d", ["x", "y"], 30)
        (root / "x" / "00007.jpg").write_bytes(corpus.jpeg(7)[:900])
        (root / "y" / "00011.jpg").write_bytes(b"GIF89a is no JPEG" * 20)
        (root / "y" / "00012.jpg").write_bytes(b"")
        return root

    def test_fails_with_the_name_of_the_sample(self, sandbox: Sandbox, spoilt: Path) -> None:
        sandbox.run(*feed_args(spoilt)).failed(1, "x/00007", "jpeg", "corrupt|damaged|truncated", "replace")

    def test_the_samples_before_it_are_in_the_state(self, sandbox: Sandbox, spoilt: Path, tmp_path: Path) -> None:
        """It fails at the batch that needs it, not before, whatever was decoded ahead."""
        for threads in (1, 8):
            state = tmp_path / f"state-{threads}"
            sandbox.run(*feed_args(spoilt, batch=4, threads=threads, state=state)).failed(1, "x/00007")
            samples = oracle.read_raw(spoilt)[:4]
            assert f'"{oracle.digest(samples)}"' in state.read_text()

    def test_replaced_and_reported(self, sandbox: Sandbox, spoilt: Path) -> None:
        """A replaced sample hashes as its replacement: all but the three hash as themselves."""
        samples = oracle.read_raw(spoilt)
        bad = [p for p, s in enumerate(samples) if s.key in ("x/00007", "y/00011", "y/00012")]
        results = [sandbox.ok(*feed_args(spoilt, "--bad-samples", "replace", threads=threads)) for threads in (1, 2, 8)]
        reports = [result.json() for result in results]
        assert len({r["digest"] for r in reports}) == 1
        assert reports[0]["samples"] == 60
        good = sum(oracle.sample_hash(s, 0, p) for p, s in enumerate(samples) if p not in bad)
        rest = (int(reports[0]["digest"], 16) - good) % oracle.MODULUS
        choices = [[oracle.sample_hash(s, 0, p) for n, s in enumerate(samples) if n not in bad] for p in bad]
        assert rest in {(a + b + c) % oracle.MODULUS for a in choices[0] for b in choices[1] for c in choices[2]}
        for key in ("x/00007", "y/00011", "y/00012"):
            assert key in results[0].out + results[0].err, f"{key} is in the report"

    def test_replacement_is_the_same_on_every_rank_and_after_resume(self, sandbox: Sandbox, spoilt: Path) -> None:
        how = {"shuffle": "global", "batch": 8}
        replace = ("--bad-samples", "replace")
        whole = sandbox.feed(spoilt, *replace, **how)["digest"]
        ranks = [sandbox.feed(spoilt, *replace, rank=r, world=2, **how)["digest"] for r in range(2)]
        assert oracle.add(*ranks) == whole
        first = sandbox.feed(spoilt, *replace, stop_after=24, **how)
        rest = sandbox.feed(spoilt, *replace, resume=first["position"], **how)
        assert oracle.add(first["digest"], rest["digest"]) == whole

    def test_an_error_of_the_store_is_no_bad_sample(self, sandbox: Sandbox, spoilt: Path, tmp_path: Path) -> None:
        """Replacing would hide that, say, a key for decryption is disabled."""
        corpus.copy_tree(spoilt, tmp_path / "root" / "b" / "d")
        with devstore(sandbox, tmp_path / "root", faults=("GET b/d/x/00003.jpg status=400",)) as server:
            result = sandbox.run(*feed_args("s3://b/d", "--bad-samples", "replace"), env=server.env())
        assert "damaged" not in result.failed(1, "b/d/x/00003.jpg", "400")

    def test_the_report_names_a_sample_once(self, sandbox: Sandbox, spoilt: Path, tmp_path: Path) -> None:
        corpus.copy_tree(spoilt, tmp_path / "root" / "b" / "d")
        with devstore(sandbox, tmp_path / "root") as server:
            sandbox.ok("index", "s3://b/d", "--checksums", env=server.env())
        with devstore(sandbox, tmp_path / "root", faults=("GET b/d/x/00003.jpg flip=500",)) as server:
            env = {**server.env(), "AWS_MAX_ATTEMPTS": "2"}
            report = sandbox.run(*feed_args("s3://b/d", "--bad-samples", "replace"), env=env).json()
        names = [bad["sample"] for bad in report["quarantine"]]
        assert names == [f"s3://b/d/{key}.jpg, sample '{key}'" for key in ("x/00003", "x/00007", "y/00011", "y/00012")]
        for bad in report["quarantine"]:
            assert bad["reason"] and not re.search("0000|0001|s3:", bad["reason"]), bad

    def test_samples_without_an_image(self, sandbox: Sandbox, tmp_path: Path) -> None:
        """Pack and feed leave them out, and say how many there are. Those of shards are an error that says what to do."""
        root = corpus.raw_tree(tmp_path / "d", ["x", "y"], 4)
        for name in ("x/notes.txt", "y/notes.txt"):
            corpus.write(root / name, b"no image")
        said = sandbox.ok("pack", root, tmp_path / "tar").err
        assert "2 of 10 samples without an image are left out: 2 txt, such as 'x/notes' (txt)" in said
        fed = sandbox.ok(*feed_args(root))
        assert fed.json()["samples"] == 8
        assert "2 of 10 samples without an image are left out: 2 txt, such as 'x/notes' (txt)" in fed.err
        shard = tmp_path / "shards" / "a.tar"
        shard.parent.mkdir()
        subprocess.run(["tar", "-C", root, "-cf", shard, "x", "y"], check=True)
        sandbox.run(*feed_args(shard.parent)).failed(
            1, "x/notes", "2 of 10 samples have no image", "--where has=jpg", "replace"
        )
        for name in ("x/notes.txt", "y/notes.txt"):
            (root / name).unlink()
        sandbox.ok("index", root)
        assert not sandbox.ok("pack", root, tmp_path / "tar2").err

    def test_nothing_but_bad_samples(self, sandbox: Sandbox, tmp_path: Path) -> None:
        for n in range(4):
            corpus.write(tmp_path / "d" / "x" / f"{n}.jpg", b"no image")
        sandbox.run(*feed_args(tmp_path / "d", "--bad-samples", "replace")).failed(1, "x/")


class TestIndex:
    @pytest.fixture
    def index(self, sandbox: Sandbox, packed: Path) -> Path:
        before = set(packed.rglob("*"))
        sandbox.ok("index", packed)
        made = [path for path in packed.rglob("*") if path.is_file() and path not in before]
        assert len(made) == 1, "one file, beside the data"
        return made[0]

    def test_damaged_anywhere(self, sandbox: Sandbox, packed: Path, index: Path) -> None:
        """Whatever bit is flipped: a message that says to rebuild, or the right answer; never a wrong one."""
        right = sandbox.feed(packed)["digest"]
        whole = index.read_bytes()
        refused = 0
        for at in [0, 1, 9, len(whole) - 1, *range(16, len(whole), max(1, len(whole) // 12))]:
            index.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
            result = sandbox.run(*feed_args(packed))
            if result.code:
                result.failed(1, "index", "millrace index")
                refused += 1
            else:
                assert result.json()["digest"] == right, f"bit flipped in byte {at} of {len(whole)}"
        assert refused >= 8

    @pytest.mark.parametrize("keep", [0, 1, 100, 0.5, -1])
    def test_truncated(self, sandbox: Sandbox, packed: Path, index: Path, keep: float) -> None:
        data = index.read_bytes()
        index.write_bytes(data[: int(len(data) * keep) if 0 < keep < 1 else int(keep)])
        sandbox.run(*feed_args(packed)).failed(1, "index", "millrace index")

    def test_not_an_index(self, sandbox: Sandbox, packed: Path, index: Path) -> None:
        index.write_bytes(b"\0" * 4096)
        sandbox.run(*feed_args(packed)).failed(1, "index", "millrace index")

    def test_not_readable(self, sandbox: Sandbox, packed: Path, index: Path) -> None:
        """It is somebody's: neither passed over in silence nor replaced."""
        before = index.stat()
        index.chmod(0)
        result = sandbox.run(*feed_args(packed), unprivileged=True)
        result.failed(1, "index", "permission", "millrace index")
        assert (index.stat().st_ino, index.stat().st_size) == (before.st_ino, before.st_size)

    def test_not_readable_in_s3(self, sandbox: Sandbox, packed: Path, tmp_path: Path) -> None:
        corpus.copy_tree(packed, tmp_path / "root" / "b" / "d")
        with devstore(sandbox, tmp_path / "root") as server:
            sandbox.ok("index", "s3://b/d", env=server.env())
        (index,) = [path for path in (tmp_path / "root").rglob(".millrace/*") if path.is_file()]
        before = index.stat()
        with devstore(sandbox, tmp_path / "root", faults=("GET b/d/.millrace/* status=403",)) as server:
            other = {**server.env(), "MILLRACE_CACHE": str(tmp_path / "cache")}  # without its copy
            sandbox.run(*feed_args("s3://b/d"), env=other).failed(1, "index", "permission|denied", "millrace index")
        assert (index.stat().st_ino, index.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)

    def test_damaged_on_its_way_from_s3(self, sandbox: Sandbox, packed: Path, tmp_path: Path) -> None:
        corpus.copy_tree(packed, tmp_path / "root" / "b" / "d")
        with devstore(sandbox, tmp_path / "root") as server:
            right = sandbox.feed("s3://b/d", env=server.env())["digest"]
        with devstore(sandbox, tmp_path / "root", faults=("GET b/d/.millrace/* flip=100 count=1",)) as server:
            other = {**server.env(), "MILLRACE_CACHE": str(tmp_path / "cache")}
            report = sandbox.feed("s3://b/d", env=other)
            assert report["digest"] == right and report["requests"]["PUT"] == 0

    def test_rebuilding_heals(self, sandbox: Sandbox, packed: Path, index: Path) -> None:
        right = sandbox.feed(packed)["digest"]
        index.write_bytes(b"junk")
        sandbox.ok("index", packed)
        assert sandbox.feed(packed)["digest"] == right

    @pytest.mark.parametrize("change", ["replaced", "longer", "removed"])
    def test_objects_that_changed(self, sandbox: Sandbox, packed: Path, index: Path, change: str) -> None:
        shard = packed / "1.tar"
        if change == "replaced":  # of the same size, as a shard written again often is
            data = bytearray(shard.read_bytes())
            data[1500] ^= 1
            shard.unlink()
            shard.write_bytes(data)
        elif change == "longer":
            corpus.write_tar(shard, corpus.tar_samples(15, first=20))
        else:
            shard.unlink()
        sandbox.run(*feed_args(packed)).failed(1, r"1\.tar", "millrace index")

    def test_changed_in_s3(self, sandbox: Sandbox, packed: Path, tmp_path: Path) -> None:
        corpus.copy_tree(packed, tmp_path / "root" / "b" / "d")
        with devstore(sandbox, tmp_path / "root") as server:
            sandbox.ok("index", "s3://b/d", env=server.env())
            sandbox.feed("s3://b/d", env=server.env())
            server.client().put_object(Bucket="b", Key="d/1.tar", Body=(packed / "0.tar").read_bytes())
            sandbox.run(*feed_args("s3://b/d"), env=server.env()).failed(1, r"d/1\.tar", "millrace index")
            sandbox.ok("index", "s3://b/d", env=server.env())
            samples = [s for shard in ("0", "0", "2") for s in oracle.read_shard(packed / f"{shard}.tar")]
            assert sandbox.feed("s3://b/d", env=server.env())["digest"] == oracle.digest(samples)


class TestMachine:
    def test_port_in_use(self, sandbox: Sandbox, tmp_path: Path) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            sandbox.run("devstore", tmp_path, "--port", port).failed(1, str(port), "in use", "another|--port")

    def test_no_folder_for_temporary_files(self, sandbox: Sandbox, tmp_path: Path) -> None:
        env = {"TMPDIR": str(tmp_path / "none")}
        sandbox.run("devstore", "mem:", "--port", 0, "--tls", env=env, timeout=300).failed(1, "CA file", "set TMPDIR")

    def test_missing_root(self, sandbox: Sandbox, tmp_path: Path) -> None:
        result = sandbox.run("devstore", tmp_path / "none", "--port", 0, timeout=300)
        result.failed(1, "none", "not exist|no such|not found|not a (folder|directory)")

    @pytest.mark.parametrize(
        "spec",
        [
            "",
            "GET",
            "GET b/*",
            "GET b/* explode",
            "GET b/* status=x",
            "GET b/* status=503 p=2",
            "GET b/* status=503 q=1",
            "GET b/* cut=-1",
            "GET b/* stall=5",
        ],
    )
    def test_fault_that_cannot_be_read(self, sandbox: Sandbox, tmp_path: Path, spec: str) -> None:
        sandbox.run("devstore", tmp_path, "--port", 0, "--fault", spec, timeout=300).failed(2, "fault")

    @pytest.fixture
    def full(self, tmp_path: Path) -> Iterator[Path]:
        """A file system of 1 MiB."""
        with small_disk(tmp_path / "full", "1m") as folder:
            yield folder

    def test_full_disk_while_packing(self, photos: Photos, sandbox: Sandbox, full: Path) -> None:
        result = sandbox.run("pack", photos.raw, full / "tar", "--shard-size", "4MiB")
        result.failed(1, re.escape(str(full)), "space|full")
        left = [path for path in full.rglob("*") if path.is_file()]
        assert all(path.suffix != ".tar" and path.stat().st_size < 1000 for path in left), (
            "no half shard, seen or hidden"
        )

    def test_full_disk_while_copying(self, photos: Photos, sandbox: Sandbox, server: Server, full: Path) -> None:
        (shard, *_) = sorted(photos.tar.glob("*.tar"))
        for source in (shard, f"s3://b/tar/{shard.name}"):
            sandbox.run("cp", source, full / "x.tar", env=server.env()).failed(1, re.escape(str(full)), "space|full")
            assert not [p for p in full.rglob("*") if p.is_file()]

    def test_full_disk_while_synthesizing(self, sandbox: Sandbox, full: Path) -> None:
        sandbox.run("synth", full / "x", "--count", 30, "--kb", 115, "--seed", 1).failed(
            1, re.escape(str(full)), "space|full"
        )

    def test_full_disk_under_the_state(self, photos: Photos, sandbox: Sandbox, full: Path) -> None:
        filler = os.open(full / "filler", os.O_WRONLY | os.O_CREAT)
        with pytest.raises(OSError, match="No space"):
            for _ in range(MIB):
                os.write(filler, b"x" * 512)
        os.close(filler)
        sandbox.run(*feed_args(photos.tar, state=full / "state")).failed(
            1, re.escape(str(full / "state")), "space|full"
        )

    @pytest.mark.all
    def test_full_disk_under_devstore(self, photos: Photos, sandbox: Sandbox, full: Path) -> None:
        (full / "b").mkdir()
        with devstore(sandbox, full) as server:
            sandbox.run("pack", photos.raw, "s3://b/tar", "--shard-size", "4MiB", env=server.env(), timeout=300).failed(
                1, "b/tar"
            )

    def test_state_in_a_missing_folder(self, photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
        sandbox.run(*feed_args(photos.tar, state=tmp_path / "none" / "state")).failed(1, "none/state")


class TestBudget:
    @pytest.mark.parametrize(
        ("batch", "size", "memory"), [(128, 224, "16MiB"), (1000, 224, "128MiB"), (128, 224, "1MiB"), (32, 64, "1KiB")]
    )
    def test_too_small_names_the_figure_that_would_do(
        self, photos: Photos, sandbox: Sandbox, batch: int, size: int, memory: str
    ) -> None:
        how = {"batch": batch, "size": size}
        message = sandbox.run(*feed_args(photos.tar, memory=memory, **how)).failed(1, "memory", "batch")
        figures = re.findall(r"\b\d+(?:\.\d+)?\s?(?:KiB|MiB|GiB)\b", message)
        units = {"K": 1, "M": 1024, "G": 1 << 20}
        largest = max(figures, key=lambda text: float(re.match(r"[\d.]+", text)[0]) * units[text[-3]])
        found = sandbox.feed(photos.tar, memory=largest.replace(" ", ""), **how)
        assert found["digest"] == photos.digest(), f"{largest} does"

    def test_64_mib_do_for_the_default_batch(self, photos: Photos, sandbox: Sandbox) -> None:
        assert sandbox.feed(photos.tar, memory="64MiB", batch=128, size=224)["digest"] == photos.digest()
