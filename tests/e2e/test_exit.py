"""How a run ends: its exit status, an interrupt, and output that cannot be written."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from . import corpus, oracle
from .conftest import Photos
from .harness import Result, Sandbox, binary, devstore, feed_args, logged_devstore
from .test_resume import read_state


def interrupt(
    sandbox: Sandbox, args: list[object], env: dict[str, str], ready, *, with_signal: int = signal.SIGINT
) -> Result:
    """Runs `millrace`, sends the signal once `ready()` is true, and waits for the end."""
    process = sandbox.start(*args, env=env, out=subprocess.PIPE, err=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 300
        while not ready() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        assert process.poll() is None, f"{args}: ended too soon: {process.stderr.read()!r}"
        process.send_signal(with_signal)
        out, err = process.communicate(timeout=50)  # far less than what the store lets it wait for
        return Result(list(map(str, args)), process.returncode, out.decode(), err.decode(), 0, 0)
    finally:
        process.kill()
        process.wait()


class TestInterrupts:
    @pytest.mark.parametrize(
        "fault",
        ["PUT out/tar/*.tar retry-after=60", "PUT out/tar/*.tar delay-ms=3600000", "GET in/raw/*.jpg delay-ms=3600000"],
    )
    def test_pack_leaves_no_upload(self, photos: Photos, sandbox: Sandbox, tmp_path: Path, fault: str) -> None:
        """Interrupted while the store lets it wait for a part or for a sample."""
        (tmp_path / "root" / "out").mkdir(parents=True)
        corpus.copy_tree(photos.raw, tmp_path / "root" / "in" / "raw")
        with devstore(sandbox, tmp_path / "root") as server:
            sandbox.ok("index", "s3://in/raw", env=server.env())
        with devstore(sandbox, tmp_path / "root", faults=(fault,)) as server:
            client = server.client()
            uploads = lambda: client.list_multipart_uploads(Bucket="out").get("Uploads", [])  # noqa: E731
            marker = tmp_path / "root" / "out" / "tar" / ".millrace" / "incomplete"
            ready = uploads if fault.startswith("PUT") else marker.exists
            result = interrupt(
                sandbox, ["pack", "s3://in/raw", "s3://out/tar", "--shard-size", "100MiB"], server.env(), ready
            )
            result.failed(130, "interrupted", "run the same command again")
            assert not uploads()
            sandbox.run("inspect", "s3://out/tar", env=server.env()).failed(1, "run the same")
        with devstore(sandbox, tmp_path / "root") as server:
            sandbox.ok("pack", "s3://in/raw", "s3://out/tar", "--shard-size", "100MiB", env=server.env())

    def test_pack_to_a_folder_leaves_no_temporary_file(self, photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
        corpus.copy_tree(photos.raw, tmp_path / "root" / "in" / "raw")
        with devstore(sandbox, tmp_path / "root") as server:
            sandbox.ok("index", "s3://in/raw", env=server.env())
        last = f"in/raw/{photos.samples[-1].key}.jpg"
        with devstore(sandbox, tmp_path / "root", faults=(f"GET {last} delay-ms=3600000",)) as server:
            target = tmp_path / "tar"
            args = ["pack", "s3://in/raw", target, "--shard-size", "4MiB"]
            interrupt(sandbox, args, server.env(), (target / "shard-000001.tar").exists).failed(130, "interrupted")
        left = {path.name for path in target.rglob("*") if path.is_file()}
        kept = ("shard-", "pack-", "incomplete")  # whole shards, their pieces of the index, and what is being packed
        assert all(name.startswith(kept) for name in left), left

    @pytest.mark.parametrize("command", [["index"], ["inspect"], ["feed"], ["index", "--output"]])
    def test_while_an_index_is_built(
        self, photos: Photos, sandbox: Sandbox, tmp_path: Path, command: list[str]
    ) -> None:
        # Shards are read for an index; raw objects are only listed.
        corpus.copy_tree(photos.tar, tmp_path / "root" / "b" / "tar")
        (tmp_path / "root" / "b" / "tar" / ".millrace" / "index").unlink(missing_ok=True)
        last = max(path.name for path in photos.tar.glob("*.tar"))
        slow = f"GET b/tar/{last} stall=0:3600000"
        seen = tmp_path / "log"
        with logged_devstore(sandbox, tmp_path / "root", seen, faults=(slow,)) as server:
            args = [command[0], "s3://b/tar", *(["--output", tmp_path / "x.index"] if len(command) > 1 else [])]
            ready = lambda: f"GET /b/tar/{last}".encode() in seen.read_bytes()  # noqa: E731
            result = interrupt(sandbox, args, server.env(), ready, with_signal=signal.SIGTERM)
        result.failed(143, "s3://b/tar", "interrupted", "nothing was changed", "run it again")
        assert result.out == ""
        left = [path for path in tmp_path.rglob("*") if "index" in path.name and path.is_file()]
        assert not left, left

    @pytest.mark.parametrize("way", ["between", "waiting"])
    def test_feed_keeps_its_state_and_prints_what_it_did(
        self, photos: Photos, sandbox: Sandbox, tmp_path: Path, way: str
    ) -> None:
        """Goes on afterwards to the digest of a run that was not interrupted."""
        state = tmp_path / "state"
        fault = f"GET b/raw/{photos.samples[500].key}.jpg delay-ms=3600000"
        corpus.copy_tree(photos.raw, tmp_path / "root" / "b" / "raw")
        with devstore(sandbox, tmp_path / "root") as server:
            sandbox.ok("index", "s3://b/raw", env=server.env())
        epochs = 400 if way == "between" else 1
        with devstore(sandbox, tmp_path / "root", faults=() if way == "between" else (fault,)) as server:
            ready = lambda: read_state(state) is not None  # noqa: E731
            uri = photos.tar if way == "between" else "s3://b/raw"
            result = interrupt(sandbox, feed_args(uri, state=state, epochs=epochs), server.env(), ready)
        left = read_state(state)
        result.failed(130, "interrupted", "--resume")
        assert left["position"] in result.err
        report = json.loads(result.out)
        assert {name: report[name] for name in left} == left
        if way == "waiting":
            rest = sandbox.feed(photos.raw)  # other ETags: another index, but the same samples
            assert rest["digest"] == photos.digest() != left["digest"]
            with devstore(sandbox, tmp_path / "root") as server:
                rest = sandbox.feed("s3://b/raw", resume=left["position"], env=server.env())
            assert left["samples"] + rest["samples"] == 1005
            assert oracle.add(left["digest"], rest["digest"]) == photos.digest()


class TestStatus:
    """2 is for the command line; whatever is wrong with data or machine is 1."""

    def test_bad_data(self, sandbox: Sandbox, tmp_path: Path) -> None:
        corpus.write(tmp_path / "zipped" / "a.tar.gz", b"x")
        corpus.write(tmp_path / "mixed" / "a.tar", b"x")
        for number in range(9):
            corpus.write(tmp_path / "mixed" / f"b{number}.jpg", b"x")
        for command in (["index", tmp_path / "zipped"], ["inspect", tmp_path / "mixed"], feed_args(tmp_path / "mixed")):
            sandbox.run(*command).failed(1, "compressed|both tar shards")

    def test_samples_that_cannot_be_packed(self, sandbox: Sandbox, tmp_path: Path) -> None:
        for name in ("x.JPG", "x.jpg"):
            corpus.write(tmp_path / "d" / name, b"x")
        sandbox.run("pack", tmp_path / "d", tmp_path / "out").failed(1, "key 'x'")

    def test_fields_that_the_data_lack(self, photos: Photos, sandbox: Sandbox) -> None:
        sandbox.run(*feed_args(photos.tar, "--image-field", "webp")).failed(1, "webp")
        sandbox.run(*feed_args(photos.tar, "--label-field", "txt")).failed(1, "txt")

    def test_settings_of_s3(self, sandbox: Sandbox) -> None:
        sandbox.run("ls", "s3://b/", env={"AWS_PROFILE": "nobody"}).failed(1, "nobody")

    @pytest.mark.parametrize(
        "options",
        [
            ["--label-kind", "text"],
            ["--label-field", "cls", "--label-kind", "x"],
            ["--rank", 3, "--world", 2],
            ["--batch", 0],
            ["--memory", "lots"],
            ["--shuffle", "x"],
            ["--last", "x"],
            ["--resume", "x"],
        ],
    )
    def test_options_are_refused_before_the_data_are_looked_at(self, sandbox: Sandbox, options: list[object]) -> None:
        said = sandbox.run("feed", "/nowhere", *options).failed(2)
        assert "/nowhere" not in said

    def test_uris_are_part_of_the_command_line(self, sandbox: Sandbox, tmp_path: Path) -> None:
        for command in ("ls", "cat", "index", "inspect", "feed"):
            sandbox.run(command, "gs://b/x").failed(2, "gs")
        for command in ("cp", "pack"):
            sandbox.run(command, "gs://b/x", tmp_path / "y").failed(2, "gs")
            sandbox.run(command, tmp_path, "gs://b/x").failed(2, "gs")
        sandbox.run("synth", "gs://b/x", "--count", 1).failed(2, "gs")
        sandbox.run("index", tmp_path, "--output", "s3://b").failed(2, "names no object")

    def test_pack_into_itself(self, photos: Photos, sandbox: Sandbox) -> None:
        sandbox.run("pack", photos.raw, photos.raw / "packed").failed(2, "within the other")


class TestOutput:
    def test_a_full_device_is_a_failure(self, photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
        commands = {
            "ls": ["ls", photos.tar],
            "cat": ["cat", next(photos.tar.glob("*.tar"))],
            "inspect": ["inspect", photos.tar],
            "inspect --json": ["inspect", photos.tar, "--json"],
            "index": ["index", photos.tar, "--output", tmp_path / "i"],
            "pack": ["pack", photos.raw, tmp_path / "packed"],
            "synth": ["synth", tmp_path / "synth", "--count", 2],
            "cp": ["cp", "--recursive", photos.tar, tmp_path / "copy"],
            "feed": ["feed", photos.tar, "--size", 16],
            "feed --json": feed_args(photos.tar),
            "--help": ["--help"],
            "feed --help": ["feed", "--help"],
            "--version": ["--version"],
        }
        for name, command in commands.items():
            with open("/dev/full", "wb") as full:
                process = sandbox.start(*command, out=full, err=subprocess.PIPE)
                _, said = process.communicate(timeout=300)
            assert process.returncode == 1 and b"No space left" in said, (name, process.returncode, said)

    def test_a_report_of_names_that_are_no_text(self, sandbox: Sandbox, tmp_path: Path) -> None:
        for n in range(8):
            corpus.write(
                tmp_path / "d" / "x" / os.fsdecode(b"\xff%d.jpg" % n), corpus.jpeg(n) if n != 3 else b"no image"
            )
        report = sandbox.feed(tmp_path / "d", "--bad-samples", "replace", batch=4)
        assert report["quarantined"] == 1
        assert "\ufffd" in report["quarantine"][0]["replacement"]

    def test_a_limit_on_file_sizes_is_an_error_with_a_remedy(
        self, photos: Photos, sandbox: Sandbox, tmp_path: Path
    ) -> None:
        source = max(photos.tar.glob("*.tar"), key=lambda path: path.stat().st_size)
        done = subprocess.run(
            ["bash", "-c", 'ulimit -f 100; exec "$0" cp "$1" "$2"', binary(), source, tmp_path / "copy.tar"],
            env=sandbox.env(), capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 1, (done.returncode, done.stderr)
        assert "File too large" in done.stderr and "copy.tar" in done.stderr
        assert not list(tmp_path.glob("copy*"))
