"""Folders with more than objects: files that were not finished, pipes, sockets, links that lead nowhere; and permissions."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_support import Bucket, Millrace, contents, lines

LARGE = bytes(range(256)) * 40960  # 10 MiB: written in pieces
DEADLINE_S = 300


def temporary(folder: Path) -> list[Path]:
    return sorted(folder.rglob(".millrace-tmp-*"))


@pytest.fixture
def slow(devstore: Callable[..., Any]) -> Bucket:
    """The answers to reads of `d/large` do not come."""
    server = devstore("mem:", "--fault", "GET bkt/d/large delay-ms=600000")
    s3 = server.client()
    s3.create_bucket(Bucket="bkt")
    bucket = Bucket(s3, server.env())
    bucket.put(**{"d/large": LARGE, "d/small": b"small"})
    return bucket


Begin = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def begin(millrace_bin: Path, slow: Bucket) -> Any:
    """Starts a command, and waits until it writes a file in `folder`."""
    running: list[subprocess.Popen[bytes]] = []

    def start(folder: Path, *arguments: str | Path) -> subprocess.Popen[bytes]:
        running.append(
            subprocess.Popen(
                [millrace_bin, *arguments],
                env=os.environ | slow.env,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )
        end = time.monotonic() + DEADLINE_S
        while not temporary(folder):
            assert time.monotonic() < end and running[-1].poll() is None
            time.sleep(0.01)
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.wait()


@pytest.mark.parametrize("command", [["cp", "--recursive"], ["sync"], ["cp"]])
def test_the_next_run_removes_what_a_killed_one_has_left(
    millrace: Millrace, slow: Bucket, begin: Begin, tmp_path: Path, command: list[str]
) -> None:
    out = tmp_path / "out" / "d"
    source, target = ("s3://bkt/d/large", f"{out}/") if command == ["cp"] else ("s3://bkt", str(tmp_path / "out"))
    out.mkdir(parents=True)
    killed = begin(out, *command, source, target)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert temporary(out)
    # Another object of the same folder: the next run must not need the same one.
    millrace("cp", "s3://bkt/d/small", f"{out}/", env=slow.env)
    assert contents(tmp_path / "out") == {"d/small": b"small"}


def test_standard_input_does_so_too(millrace: Millrace, millrace_bin: Path, begin: Begin, tmp_path: Path) -> None:
    killed = begin(tmp_path, "cp", "s3://bkt/d/large", f"{tmp_path}/x")
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert len(temporary(tmp_path)) == 1
    subprocess.run(
        [millrace_bin, "cp", "-", tmp_path / "y"], input=b"y", check=True, timeout=300, stdout=subprocess.DEVNULL
    )
    assert not temporary(tmp_path)


def test_what_a_writer_holds_stays(millrace: Millrace, slow: Bucket, begin: Begin, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    begin(out, "cp", "s3://bkt/d/large", f"{out}/")
    held = temporary(out)
    millrace("cp", "s3://bkt/d/small", f"{out}/", env=slow.env)
    assert temporary(out) == held
    for command in (["rm", held[0]], ["rm", "--recursive", out]):
        assert b"another process is writing it" in millrace(*command, code=1).stderr
    assert temporary(out) == held and list(contents(out)) == [held[0].name], "the other one is removed"


def leave(path: Path, data: bytes = b"half") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def test_ls_all(millrace: Millrace, tree: Path) -> None:
    leave(tree / ".millrace-tmp-1")
    leave(tree / "a" / ".millrace-tmp-2", b"halves")
    assert b"tmp" not in millrace("ls", tree).stdout + millrace("ls", "--recursive", tree).stdout
    shown = lines(millrace("ls", "--all", tree))
    assert [line[31:] for line in shown] == ["a-", "a/", "a0", "big", ".millrace-tmp-1"]
    assert shown[-1][20:30] == "4".rjust(10)
    assert [line[31:] for line in lines(millrace("ls", "--all", "--recursive", tree))][-2:] == [
        ".millrace-tmp-1",
        "a/.millrace-tmp-2",
    ]
    last = json.loads(lines(millrace("ls", "--all", "--json", f"{tree}/a/"))[-1])
    assert (last["key"], last["size"], last["temporary"]) == (".millrace-tmp-2", 6, True)


def test_rm_sees_them(millrace: Millrace, tree: Path) -> None:
    """Also where there is nothing else."""
    one, two = leave(tree / "a" / ".millrace-tmp-1"), leave(tree / "a" / "empty" / ".millrace-tmp-2")
    dry = lines(millrace("rm", "--recursive", "--dry-run", tree / "a"))
    assert dry == [
        f"would remove {tree}/a/{name}" for name in ("x", "y/z", ".millrace-tmp-1", "empty/.millrace-tmp-2")
    ] + ["would remove 4 objects, 13 B"]
    assert one.exists() and two.exists()
    assert millrace("rm", one).stdout == b"removed 1 object, 4 B\n"
    assert millrace("rm", "--recursive", tree / "a" / "empty").stdout == b"removed 1 object, 4 B\n"
    assert not one.exists() and not two.exists()
    leave(one)
    assert json.loads(millrace("rm", "--recursive", "--json", tree / "a").stdout)["objects"] == 3
    assert sorted(contents(tree)) == ["a-", "a0", "big"]


def test_rm_of_one_that_is_locked(millrace: Millrace, tmp_path: Path) -> None:
    held, free = leave(tmp_path / ".millrace-tmp-1"), leave(tmp_path / ".millrace-tmp-2")
    with held.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        done = millrace("rm", "--recursive", "--json", tmp_path, code=1)
    report = json.loads(done.stdout)
    assert (report["objects"], report["failed"]) == (1, 1)
    assert f"{held}: another process is writing it".encode() in done.stderr
    assert held.exists() and not free.exists()


# what is neither a file nor a folder


@pytest.fixture
def odd(tree: Path) -> Path:
    os.mkfifo(tree / "a" / "pipe")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(tree / "a" / "socket"))
    (tree / "broken").symlink_to("nowhere")
    (tree / "a" / "up").symlink_to("..")
    return tree


ODD = {
    "a/pipe": "a pipe",
    "a/socket": "a socket",
    "a/up": "a link to a folder that it is in",
    "broken": "a link that leads nowhere",
}


@pytest.mark.parametrize("command", [["cp", "--recursive"], ["sync"], ["sync", "--dry-run"]])
def test_what_is_not_copied_is_named(millrace: Millrace, odd: Path, tmp_path: Path, command: list[str]) -> None:
    done = millrace(*command, "--json", odd, tmp_path / "out")
    said = "".join(
        f"millrace {command[0]}: {odd}/{name} is {what}, which is not copied\n" for name, what in ODD.items()
    )
    assert done.stderr.decode() == said
    report = json.loads(lines(done)[-1])
    assert (report["skipped"], report["failed"]) == (4, 0)
    if "--dry-run" not in command:
        assert sorted(contents(tmp_path / "out")) == ["a-", "a/x", "a/y/z", "a0", "big"]


def test_what_is_excluded_is_not_named(millrace: Millrace, odd: Path, tmp_path: Path) -> None:
    done = millrace("sync", odd, tmp_path / "out", "--exclude", "a/*", "--exclude", "big")
    assert done.stderr.decode() == f"millrace sync: {odd}/broken is a link that leads nowhere, which is not copied\n"


def test_rm_names_what_it_leaves(millrace: Millrace, odd: Path) -> None:
    os.unlink(odd / "a" / "up")
    done = millrace("rm", "--recursive", "--dry-run", odd / "a")
    assert f"millrace rm: {odd}/a/pipe is a pipe, which is not removed\n" in done.stderr.decode()
    done = millrace("rm", "--recursive", odd / "a")
    assert done.stderr.count(b"not removed") == 2 and done.stdout == b"removed 2 objects, 5 B\n"
    assert sorted(path.name for path in (odd / "a").iterdir()) == ["pipe", "socket", "y"]


def test_of_many_the_first_are_named(millrace: Millrace, tree: Path, tmp_path: Path) -> None:
    for number in range(13):
        os.mkfifo(tree / f"pipe-{number:02}")
    done = millrace("cp", "--recursive", tree, tmp_path / "out")
    said = done.stderr.decode().splitlines()
    assert len(said) == 11 and "pipe-09" in said[9]
    assert said[10] == "millrace cp: 3 more files of these kinds are not copied"


# permissions


@pytest.mark.parametrize("mode", [0o600, 0o755, 0o444])
def test_a_file_that_is_replaced_keeps_its_permissions(millrace: Millrace, tmp_path: Path, mode: int) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    for name, data in {"small": b"new", "large": LARGE}.items():
        leave(source / name, data)
        leave(target / name).chmod(mode)
    umask = os.umask(0o022)
    try:
        millrace("cp", "--recursive", source, target)
        leave(source / "small", b"newer")
        millrace("sync", source, target)
        leave(source / "fresh")
        millrace("cp", source / "fresh", f"{target}/")
    finally:
        os.umask(umask)
    assert (target / "small").read_bytes() == b"newer" and (target / "large").read_bytes() == LARGE
    assert {(target / name).stat().st_mode & 0o777 for name in ("small", "large")} == {mode}
    assert (target / "fresh").stat().st_mode & 0o777 == 0o644


# names


EVIL = "e\x1b[2Jvil\u009b31m\nremoved 5 objects"
SHOWN = r"e\x1b[2Jvil\u009b31m\nremoved 5 objects"


def test_names_are_escaped_in_text(millrace: Millrace, bucket: Bucket, tmp_path: Path) -> None:
    """Not only on terminals: text of a pipe may end there, and a name is one line."""
    root = tmp_path / "root"
    leave(root / f"{EVIL}.jpg")
    leave(root / "dir\x07" / ".millrace-tmp-\r")
    os.mkfifo(root / "pipe\t")
    bucket.put(**{EVIL: b"x"})
    assert f"{SHOWN}.jpg" in lines(millrace("ls", root))[0]
    assert r"dir\x07/.millrace-tmp-\r" in lines(millrace("ls", "--recursive", "--all", root))[-1]
    assert rf"{SHOWN}" in lines(millrace("ls", "s3://bkt", env=bucket.env))[0]
    assert (
        lines(millrace("rm", "--dry-run", "--recursive", "s3://bkt", env=bucket.env))[0]
        == f"would remove s3://bkt/{SHOWN}"
    )
    assert SHOWN in lines(millrace("sync", "--dry-run", root, "s3://bkt", env=bucket.env))[0]
    done = millrace("cp", "--recursive", root, tmp_path / "out")
    assert rb"root/pipe\t is a pipe" in done.stderr and b"\t" not in done.stderr
    missing = millrace("cat", f"s3://bkt/no{EVIL}", code=1, env=bucket.env).stderr
    assert f"s3://bkt/no{SHOWN}".encode() in missing and missing.count(b"\n") == 1
    assert json.loads(millrace("ls", "--json", "s3://bkt", env=bucket.env).stdout)["key"] == EVIL, (
        "JSON has its own escapes"
    )
