"""`--write-back`: files that programs have closed go to the store later."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from e2e.harness import Sandbox, Server, freeze
from e2e.mounting import mounted, needs_fuse, wait_until
from semantics import says
from test_mount_failures import contents, killable

pytestmark = needs_fuse


@says(
    "With `--write-back TIME`, `close` returns at once, and the file becomes an object so long after it was closed last. Until then, programs of this mount see it, and others do not."
)
def test_a_file_goes_to_the_store_later(sandbox: Sandbox, store: Server, bucket: Path, tmp_path: Path) -> None:
    before, place = contents(bucket), tmp_path / "mnt"
    made = {"new/1": b"1 and more", "new/2": b"2", "z": b"other", "both": random.Random(1).randbytes(20_000_000)}
    for delay in ("1h", "100ms"):
        with mounted(sandbox, "s3://b", place, "--writable", "--write-back", delay, env=store.env()):
            (place / "new").mkdir(exist_ok=True)
            for name in ("new/1", "new/2", "z", "both"):
                (place / name).write_bytes(made[name])
            (place / "new" / "1").write_bytes(b"1")
            with open(place / "new" / "1", "ab") as file:
                file.write(b" and more")
            assert contents(place) == before | made
            if delay == "1h":
                assert contents(bucket) == before
                for name in ("new/1", "new/2", "both"):
                    os.remove(place / name)
                (place / "z").write_bytes(before["z"])
            else:
                wait_until(lambda: contents(bucket) == before | made, "the objects")


WRITE_AND_HANG = """
import os, sys, time
file = open(sys.argv[1], "r+b", buffering=0)
file.write(b"X")
print("written", flush=True)
time.sleep(1000)
"""


@says(
    "If a program opens a file that `--write-back` still keeps, and a signal kills that program, the file is what it is on a disk."
)
def test_a_killed_program_takes_no_closed_file_with_it(
    sandbox: Sandbox, store: Server, bucket: Path, tmp_path: Path
) -> None:
    place = tmp_path / "mnt"
    with mounted(sandbox, "s3://b", place, "--writable", "--write-back", "1h", env=store.env()):
        (place / "new").write_bytes(b"closed")
        command = [sys.executable, "-c", WRITE_AND_HANG, place / "new"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
            assert program.stdout is not None and program.stdout.readline() == "written\n"
            program.kill()
        assert (place / "new").read_bytes() == b"Xlosed"
    assert contents(bucket)["new"] == b"Xlosed"


@says("The process of the mount ends after `umount` when all files that `--write-back` has kept are objects.")
@pytest.mark.parametrize("moved", [False, True])
def test_the_end_of_the_mount_waits_for_files(
    sandbox: Sandbox, store: Server, bucket: Path, tmp_path: Path, moved: bool
) -> None:
    before, made = contents(bucket), {}
    with mounted(sandbox, "s3://b", tmp_path / "mnt", "--writable", "--write-back", "1h", env=store.env()):
        for i in range(50):
            made[f"{i}"] = bytes([i]) * (1 + 1000 * i)
            (tmp_path / "mnt" / f"{i}").write_bytes(made[f"{i}"])
        (tmp_path / "mnt" / "a" / "b.txt").write_bytes(b"other")
        os.remove(tmp_path / "mnt" / "z")
        (tmp_path / "mnt" / "again").write_bytes(b"removed before the store has it")
        os.remove(tmp_path / "mnt" / "again")
        if moved:  # the store has a file before it is renamed
            os.rename(tmp_path / "mnt" / "7", tmp_path / "mnt" / "seven")
            made["seven"] = made.pop("7")
        assert "8" not in contents(bucket) and contents(bucket)["a/b.txt"] == before["a/b.txt"]
    del before["z"]
    assert contents(bucket) == before | made | {"a/b.txt": b"other"}
    assert sandbox.ok("mount", "--recover").out == ""


@says(
    "If the store does not take a file with `--write-back`, the mount tries again until the store answers. A file that it refuses is listed by `millrace mount --recover`."
)
def test_a_store_that_does_not_take_a_file(sandbox: Sandbox, store: Server, bucket: Path, tmp_path: Path) -> None:
    place, log = tmp_path / "mnt", tmp_path / "log"
    place.mkdir()
    options = ("--writable", "--write-back", "100ms", "--timeout", "1s", "--log", log)
    sandbox.ok("mount", "s3://b", place, *options, env=store.env())
    try:
        file = open(place / "new", "wb", buffering=0)
        file.write(b"waits")
        freeze(store.process)
        try:
            file.close()
            wait_until(lambda: "did not answer" in log.read_text(), "the first try")
            assert (place / "new").read_bytes() == b"waits"
        finally:
            store.process.send_signal(signal.SIGCONT)
        wait_until(lambda: contents(bucket).get("new") == b"waits", "the object")
        with open(place / "theirs", "wb", buffering=0) as file:
            file.write(b"ours")
            store.client().put_object(Bucket="b", Key="theirs", Body=b"of another machine")
        wait_until(lambda: "another program has made" in log.read_text(), "the refusal")
    finally:
        subprocess.run(["fusermount3", "-u", place], check=True)
    wait_until(lambda: "s3://b/theirs" in sandbox.ok("mount", "--recover").out, "the end of the mount")
    assert contents(bucket)["theirs"] == b"of another machine"
    assert sandbox.ok("mount", "--recover").out.count("millrace cp") == 1


@says(
    "If a mount with `--write-back` is killed, `millrace mount --recover` lists the files that were closed and are no objects yet."
)
def test_a_mount_with_write_back_that_was_killed(sandbox: Sandbox, store: Server, bucket: Path, tmp_path: Path) -> None:
    place, before = tmp_path / "mnt", contents(bucket)
    chance = random.Random(2)
    closed = {"1": b"1", "2": b"2", "small": chance.randbytes(1_000_000), "large": chance.randbytes(20_000_000)}
    with killable(sandbox, "s3://b", place, "--writable", "--write-back", "1h", env=store.env()) as process:
        for name, content in closed.items():
            with open(place / name, "wb", buffering=0) as file:
                for start in range(0, len(content), 65536):  # many writes, one soon after the other
                    file.write(content[start : start + 65536])
        process.kill()
        process.wait(300)
    assert contents(bucket) == before
    copies = [line.split() for line in sandbox.ok("mount", "--recover").out.splitlines() if "millrace cp" in line]
    assert {copy[3]: Path(copy[2]).read_bytes() for copy in copies} == {
        f"s3://b/{name}": content for name, content in closed.items()
    }


def test_write_back_needs_a_staging_folder(sandbox: Sandbox, store: Server, tmp_path: Path) -> None:
    (tmp_path / "mnt").mkdir()
    for options in (("--write-back", "5s"), ("--writable", "--no-staging", "--write-back", "5s")):
        sandbox.run("mount", "s3://b", tmp_path / "mnt", *options, env=store.env()).failed(2, "--write-back")
