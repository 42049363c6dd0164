"""docs/semantics.md on what happens when the store, the mount, the keys, a disk or an object are not what they were, and on many open files."""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import random
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from e2e.harness import Sandbox, Server, devstore, freeze, logged_devstore, small_disk
from e2e.mounting import is_mounted, mounted, needs_fuse, wait_until
from ports import free_port
from semantics import refused, says
from thoroughness import repeats

pytestmark = needs_fuse


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def reads(fd: int, at: int, expected: bytes) -> bool:
    with contextlib.suppress(OSError):
        return os.pread(fd, len(expected), at) == expected
    return False


READER = """
import os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
print("open", flush=True)
sys.stdin.readline()
try:
    os.pread(fd, 10, 9_000_000)
    print("read")
except OSError as error:
    print("failed")
"""
PREAD = {"x86_64": "17", "aarch64": "67"}


@contextlib.contextmanager
def reader_of(path: Path) -> Iterator[subprocess.Popen]:
    """A program that has the file open, and reads in it once `let_read` says so."""
    command = [sys.executable, "-c", READER, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
        try:
            assert reader.stdout is not None and reader.stdout.readline() == "open\n"
            yield reader
        finally:
            reader.kill()


def let_read(reader: subprocess.Popen) -> None:
    """Returns when it waits in the system call, or has ended, if this took longer than it waits."""
    assert reader.stdin is not None
    reader.stdin.write("\n")
    reader.stdin.flush()

    def waits() -> bool:
        return (
            reader.poll() is not None
            or Path(f"/proc/{reader.pid}/syscall").read_text().split()[0] == PREAD[platform.machine()]
        )

    wait_until(waits, "the read")


# ---- The store


@says("If the store does not answer within `--timeout`, a program gets `EIO`, and can be killed before that.")
def test_a_store_that_is_away(sandbox: Sandbox, bucket: Path, store: Server, tmp_path: Path) -> None:
    with mounted(sandbox, "s3://b", tmp_path / "mnt", "--timeout", "10s", env=store.env()):
        with (
            open(tmp_path / "mnt" / "large", "rb", buffering=0) as file,
            reader_of(tmp_path / "mnt" / "large") as reader,
        ):
            freeze(store.process)
            try:
                let_read(reader)
                reader.kill()
                reader.communicate(timeout=300)
                refused(lambda: os.pread(file.fileno(), 10, 9_000_000), errno.EIO)
            finally:
                store.process.send_signal(signal.SIGCONT)
            body = (bucket / "large").read_bytes()
            wait_until(lambda: reads(file.fileno(), 9_000_000, body[9_000_000:9_000_010]), "the store's return")


MANY_READERS = """
import os, sys, threading
fd = os.open(sys.argv[1], os.O_RDONLY)
begun = threading.Barrier(101)
def read(at):
    begun.wait()
    os.pread(fd, 10, at)
for number in range(100):
    threading.Thread(target=read, args=(number * 100_000,)).start()
begun.wait()
print("begun", flush=True)
"""


def test_however_many_wait_for_a_store_that_is_away_they_can_be_killed(
    sandbox: Sandbox, store: Server, tmp_path: Path
) -> None:
    with mounted(
        sandbox, "s3://b", tmp_path / "mnt", "--timeout", "300s", "--metadata-ttl", "indefinite", env=store.env()
    ):
        assert (tmp_path / "mnt" / "large").stat().st_size == 12_000_000
        freeze(store.process)
        try:
            command = [sys.executable, "-c", MANY_READERS, tmp_path / "mnt" / "large"]
            program = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            assert program.stdout is not None and program.stdout.readline() == "begun\n"
            program.kill()
            program.wait(120)
            program.stdout.close()
        finally:
            store.process.send_signal(signal.SIGCONT)


@says("If the store ends, a program gets `EIO`; once the store is back, it reads on in the file that it has open.")
def test_a_store_that_was_killed(sandbox: Sandbox, bucket: Path, tmp_path: Path) -> None:
    port, folder = free_port(), tmp_path / "mnt"
    body = (bucket / "large").read_bytes()
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(logged_devstore(sandbox, bucket.parent, tmp_path / "log1", port=port))
        stack.enter_context(
            mounted(sandbox, "s3://b", folder, "--timeout", "10s", "--metadata-ttl", "minimal", env=first.env())
        )
        file = stack.enter_context(open(folder / "large", "rb", buffering=0))
        assert os.pread(file.fileno(), 10, 0) == body[:10]
        first.process.kill()
        first.process.wait()
        attempts = (
            lambda: os.pread(file.fileno(), 10, 9_000_000),
            lambda: open(folder / "z", "rb"),
            lambda: os.listdir(folder / "a"),
        )
        with ThreadPoolExecutor(len(attempts)) as threads:
            for done in [threads.submit(refused, attempt, errno.EIO) for attempt in attempts]:
                done.result()
        stack.enter_context(logged_devstore(sandbox, bucket.parent, tmp_path / "log2", port=port))
        wait_until(lambda: reads(file.fileno(), 9_000_000, body[9_000_000:9_000_010]), "the store's return")

        def is_back() -> bool:
            with contextlib.suppress(OSError):
                return (folder / "z").exists()
            return False

        wait_until(is_back, "the store's return")
        assert contents(folder) == contents(bucket)


@says("If the store refuses the credentials, a program gets `EACCES`, also by a file that it has open.")
def test_revoked_credentials(sandbox: Sandbox, bucket: Path, tmp_path: Path) -> None:
    port, folder = free_port(), tmp_path / "mnt"
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(logged_devstore(sandbox, bucket.parent, tmp_path / "log", port=port))
        stack.enter_context(mounted(sandbox, "s3://b", folder, "--metadata-ttl", "minimal", env=first.env()))
        file = stack.enter_context(open(folder / "large", "rb", buffering=0))
        assert len(os.pread(file.fileno(), 10, 0)) == 10
        # The keys are revoked: the same place, but it knows other ones.
        first.process.kill()
        first.process.wait()
        other = sandbox.start(
            "devstore", bucket.parent, "--port", port, "--access-key", "other", "--secret-key", "other-secret"
        )
        stack.callback(other.wait, 120)
        stack.callback(other.terminate)
        for attempt in (lambda: (folder / "a" / "b.txt").read_bytes(), lambda: os.pread(file.fileno(), 10, 9_000_000)):
            codes: list[int] = []

            def is_refused(attempt=attempt, codes=codes) -> bool:  # type: ignore[no-untyped-def]
                try:
                    attempt()
                except OSError as error:
                    codes.append(error.errno or 0)
                return errno.EACCES in codes

            wait_until(is_refused, "the refusal")


# ---- The mount


@contextlib.contextmanager
def killable(
    sandbox: Sandbox, uri: str, folder: Path, *options: object, env: dict[str, str]
) -> Iterator[subprocess.Popen]:
    folder.mkdir(exist_ok=True)
    process = sandbox.start("mount", uri, folder, "--foreground", *options, env=env)
    try:
        wait_until(lambda: is_mounted(folder) or process.poll() is not None, "mounting")
        assert is_mounted(folder)
        yield process
    finally:
        process.kill()
        process.wait()
        subprocess.run(["fusermount3", "-u", "-z", folder], stderr=subprocess.DEVNULL, check=False)
    assert not is_mounted(folder)


@says(
    "If the process of the mount is killed, a program that opens, lists or writes gets `ENOTCONN` until the folder is unmounted, and a read that is waiting fails.",
    "If the mount is killed, nothing of a file that was being written appears, and `millrace mount --recover` lists what is left of it.",
)
def test_a_mount_that_was_killed(sandbox: Sandbox, bucket: Path, store: Server, tmp_path: Path) -> None:
    folder, before = tmp_path / "mnt", contents(bucket)
    with killable(sandbox, "s3://b", folder, "--writable", "--metadata-ttl", "minimal", env=store.env()) as process:
        large = os.open(folder / "large", os.O_RDONLY)
        assert os.pread(large, 10, 0) == before["large"][:10]
        written = {size: os.open(folder / f"new{size}", os.O_CREAT | os.O_WRONLY) for size in (3000, 20_000_000)}
        for size, fd in written.items():
            assert os.write(fd, bytes(size)) == size
        with reader_of(folder / "large") as reader:
            freeze(store.process)
            try:
                let_read(reader)
                process.kill()
                process.wait(300)
                assert reader.communicate(timeout=300)[0] == "failed\n"
            finally:
                store.process.send_signal(signal.SIGCONT)
        refused(lambda: os.listdir(folder), errno.ENOTCONN)
        refused(lambda: open(folder / "z", "rb"), errno.ENOTCONN)
        refused(lambda: open(folder / "other", "wb"), errno.ENOTCONN)
        for fd in written.values():
            refused(lambda fd=fd: os.write(fd, b"more"), errno.ENOTCONN)
            refused(lambda fd=fd: os.close(fd), errno.ENOTCONN)
        with contextlib.suppress(OSError):
            assert os.pread(large, 10, 9_000_000) == before["large"][9_000_000:9_000_010]  # what the kernel has kept
        os.close(large)
    assert contents(bucket) == before
    listed = sandbox.ok("mount", "--recover").out
    assert "s3://b/new3000  " in listed and "s3://b/new20000000  " in listed
    with mounted(sandbox, "s3://b", folder, "--writable", env=store.env()):
        assert contents(folder) == before
        (folder / "new3000").write_bytes(b"text")
    assert contents(bucket) == before | {"new3000": b"text"}


def test_a_program_that_pauses_has_written_all_of_it_to_the_staging_folder(
    sandbox: Sandbox, store: Server, tmp_path: Path
) -> None:
    body, staging = random.Random(8).randbytes(1_500_000), tmp_path / "staging"
    staging.mkdir()

    def staged() -> list[bytes]:
        return [path.read_bytes() for path in staging.rglob("*.bytes")]

    with killable(sandbox, "s3://b", tmp_path / "mnt", "--writable", "--staging", staging, env=store.env()) as process:
        fd = os.open(tmp_path / "mnt" / "new", os.O_CREAT | os.O_WRONLY)
        for at in range(0, len(body), 10_000):
            os.write(fd, body[at : at + 10_000])
        wait_until(lambda: staged() == [body], "the last bytes")  # the file stays open
        process.kill()
        process.wait(300)
        refused(lambda: os.close(fd), errno.ENOTCONN)
    assert "s3://b/new  " in sandbox.ok("mount", "--recover", "--staging", staging).out
    assert staged() == [body]


# ---- The cache


def fill(path: Path) -> None:
    with open(path, "ab", buffering=0) as file:
        while True:
            file.write(bytes(4096))


@says("If the disk of `--cache` is full, programs see no error: the bytes that the cache lacks come from the store.")
def test_a_full_cache_disk(sandbox: Sandbox, bucket: Path, store: Server, tmp_path: Path) -> None:
    for number in range(100):
        (bucket / f"small{number}").write_bytes(random.Random(number).randbytes(20_000))
    with small_disk(tmp_path / "disk", "4m") as disk:
        for name in ("first", "again"):  # another process, so that the kernel has nothing in memory
            with mounted(sandbox, "s3://b", tmp_path / name, "--cache", disk / "cache", env=store.env()):
                assert contents(tmp_path / name) == contents(bucket)
                if name == "first":
                    wait_until(lambda: any(disk.glob("cache/millrace-cache-1/??/[0-9a-f]*")), "the cache's first file")
                # By itself the cache leaves some room; and it gives way to what others write.
                refused(lambda: fill(disk / "other"), errno.ENOSPC)
                assert contents(tmp_path / name) == contents(bucket)


@says("`--cache` keeps each version for itself: an object that was replaced is read from the store again.")
def test_what_the_cache_has_of_another_version(sandbox: Sandbox, bucket: Path, store: Server, tmp_path: Path) -> None:
    options = ("--cache", tmp_path / "cache", "--metadata-ttl", "minimal")
    with mounted(sandbox, "s3://b", tmp_path / "mnt", *options, env=store.env()):
        assert contents(tmp_path / "mnt") == contents(bucket)
        new = {name: random.Random(f"new {name}").randbytes(len(body)) for name, body in contents(bucket).items()}
        for name, body in new.items():
            store.client().put_object(Bucket="b", Key=name, Body=body)
        assert contents(tmp_path / "mnt") == new
    with mounted(sandbox, "s3://b", tmp_path / "mnt", *options, env=store.env()):
        assert contents(tmp_path / "mnt") == new


# ---- Many files

OPEN_FILES = 10_000
OPENER = """
import os, resource, sys
folder, files, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
more = count + 100
resource.setrlimit(resource.RLIMIT_NOFILE, (more, max(more, resource.getrlimit(resource.RLIMIT_NOFILE)[1])))
opened = [os.open(f"{folder}/{i % files:05}", os.O_RDONLY) for i in range(count)]
for i, fd in enumerate(opened):
    if i < files or i % 100 == 0: assert os.pread(fd, 100, 0) == b"file %05d" % (i % files), i
"""


@says("Ten thousand files can be open at a time, also if the process of the mount may have fewer open itself.")
@pytest.mark.parametrize("with_cache", [False, True])
def test_many_open_files(sandbox: Sandbox, tmp_path: Path, with_cache: bool) -> None:
    if (
        subprocess.run(
            ["prlimit", f"--nofile={OPEN_FILES + 100}", "true"], stderr=subprocess.DEVNULL, check=False
        ).returncode
        != 0
    ):
        pytest.skip("programs of this user may not have so many files open")
    files = repeats(OPEN_FILES)  # each is opened once, or each of a twentieth of them twenty times
    folder = tmp_path / "root" / "b" / "many"
    folder.mkdir(parents=True)
    for number in range(files):
        (folder / f"{number:05}").write_bytes(b"file %05d" % number)
    options = ("--metadata-ttl", "indefinite", *(("--cache", tmp_path / "cache") if with_cache else ()))
    with (
        devstore(sandbox, tmp_path / "root") as store,
        mounted(sandbox, "s3://b", tmp_path / "mnt", *options, env=store.env(), most_files=1024) as mount,
    ):
        assert resource.prlimit(mount.pid, resource.RLIMIT_NOFILE) == (1024, 1024)
        program = [sys.executable, "-c", OPENER, tmp_path / "mnt" / "many", str(files), str(OPEN_FILES)]
        subprocess.run(program, check=True, timeout=600)
