"""Files that programs write become objects: when, which, and the errors that programs get for those that cannot."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from e2e.harness import Sandbox, Server, freeze, logged_devstore
from e2e.mounting import mounted, needs_fuse, wait_until

pytestmark = needs_fuse


def refused(attempt: Callable[[], object], *codes: int) -> None:
    with pytest.raises(OSError) as error:
        attempt()
    assert error.value.errno in codes, error.value


def objects(store: Server) -> dict[str, bytes]:
    client = store.client()
    listed = client.list_objects_v2(Bucket="b").get("Contents", [])
    return {entry["Key"]: client.get_object(Bucket="b", Key=entry["Key"])["Body"].read() for entry in listed}


def keys(log: Path, operation: str) -> set[str]:
    """The keys of the requests of an operation, each once: a late one may be sent twice."""
    lines = (line.split() for line in log.read_text().splitlines())
    return {line[2].lstrip("/") for line in lines if len(line) > 5 and line[3] == operation}


def is_there(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return path.exists()
    return False


@pytest.mark.parametrize("size", [0, 1, 100_000, 9_000_000, 20_000_000])
def test_a_file_is_an_object_once_it_is_closed(store: Server, writable: Path, size: int) -> None:
    body = random.Random(size).randbytes(size)
    before = objects(store)
    with open(writable / "new", "wb", buffering=0) as file:
        for at in range(0, size, 300_000):
            file.write(body[at : at + 300_000])
        assert (writable / "new").stat().st_size == size  # this mount shows it, the store does not
        assert "new" in os.listdir(writable)
        assert objects(store) == before
    if size == 0:  # nobody waits for the end of an empty file
        wait_until(lambda: "new" in objects(store), "the object")
    assert objects(store) == before | {"new": body}
    assert (writable / "new").read_bytes() == body
    assert (writable / "new").stat().st_size == size


def test_programs_write_as_they_do(store: Server, writable: Path, tmp_path: Path) -> None:
    subprocess.run(
        [
            "sh",
            "-ec",
            "echo one > a/1; (echo two; echo three | cat) > a/2; touch a/3; cp a/1 a/4; mv a/4 a/5; rm a/1; cat a/3",
        ],
        cwd=writable,
        check=True,
    )
    local = tmp_path / "local"
    (local / "deep" / "er").mkdir(parents=True)
    for i in range(20):
        (local / "deep" / "er" / f"{i}").write_bytes(bytes([i]) * (1 + i * 1000))
    subprocess.run(["cp", "-r", local, writable / "copied"], check=True)
    subprocess.run(["diff", "-r", local, writable / "copied"], check=True)
    subprocess.run(["tar", "cf", writable / "one.tar", "-C", tmp_path, "local"], check=True)
    script = "import sys, torch; torch.save({'w': torch.arange(10)}, sys.argv[1]); print(torch.load(sys.argv[1])['w'].sum().item())"
    saved = subprocess.run(
        [sys.executable, "-c", script, writable / "model.pt"], check=True, capture_output=True, text=True
    )
    assert saved.stdout == "45\n"
    there = objects(store)
    assert there["a/2"] == b"two\nthree\n" and there["a/3"] == b"" and there["a/5"] == b"one\n"
    assert "a/1" not in there and "a/4" not in there
    assert {key for key in there if key.startswith("copied/")} == {f"copied/deep/er/{i}" for i in range(20)}
    listed = subprocess.run(["tar", "tf", "-"], input=there["one.tar"], check=True, capture_output=True)
    assert len(listed.stdout.splitlines()) == 23


def test_another_machine_was_first(sandbox: Sandbox, store: Server, tmp_path: Path) -> None:
    for staging in ((), ("--no-staging",)):
        with mounted(sandbox, "s3://b", tmp_path / "mnt", "--writable", *staging, env=store.env()):
            path = tmp_path / "mnt" / f"new{len(staging)}"
            file = open(path, "wb", buffering=0)
            file.write(b"mine")
            store.client().put_object(Bucket="b", Key=path.name, Body=b"theirs")
            refused(file.close, errno.ESTALE)
            assert objects(store)[path.name] == b"theirs" == path.read_bytes()


def test_readers_see_what_is_written_by_way_of_the_mount(store: Server, writable: Path) -> None:
    """The inode stays, and its versions change: in the page cache, and past it."""
    path = writable / "large"
    body = bytearray(path.read_bytes())
    reader = open(path, "rb", buffering=0)
    for at in (5, 11_000_000, 3_000_000):
        with open(path, "r+b", buffering=0) as file:
            os.pwrite(file.fileno(), b"changed", at)
        body[at : at + 7] = b"changed"
        assert os.pread(reader.fileno(), 20, at) == body[at : at + 20]
        fresh = os.open(path, os.O_RDONLY | os.O_DIRECT)  # past the page cache
        page = mmap.mmap(-1, 8192)
        assert os.preadv(fresh, [page], at // 4096 * 4096) == 8192
        os.close(fresh)
        assert bytes(page) == body[at // 4096 * 4096 :][:8192]
    os.posix_fadvise(reader.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    assert reader.read(len(body)) == body
    reader.close()
    assert objects(store)["large"] == body


def test_a_program_that_locks_appends_and_syncs(store: Server, writable: Path) -> None:
    script = """if True:
        import fcntl, os, sys
        for i in range(40):
            with open(sys.argv[1], "ab", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                file.write(f"{sys.argv[2]} {i}\\n".encode())
                if i % 8 == 0: os.fsync(file.fileno())
    """
    programs = [subprocess.Popen([sys.executable, "-c", script, writable / "log", str(n)]) for n in range(4)]
    assert [program.wait(300) for program in programs] == [0] * 4
    lines = objects(store)["log"].decode().splitlines()
    assert sorted(lines) == sorted(f"{n} {i}" for n in range(4) for i in range(40))
    for n in range(4):
        assert [line for line in lines if line.startswith(f"{n} ")] == [f"{n} {i}" for i in range(40)]


def test_a_file_that_is_closed_before_the_mount_ends_is_an_object(
    sandbox: Sandbox, store: Server, tmp_path: Path
) -> None:
    for number in range(5):
        with mounted(sandbox, "s3://b", tmp_path / "mnt", "--writable", env=store.env()):
            (tmp_path / "mnt" / f"empty{number}").write_bytes(b"")  # nobody waits for its object
        assert objects(store)[f"empty{number}"] == b""
    assert sandbox.ok("mount", "--recover").out == ""


def test_what_a_mount_leaves_is_listed(sandbox: Sandbox, store: Server, tmp_path: Path) -> None:
    body = random.Random(6).randbytes(100_000)
    with mounted(sandbox, "s3://b", tmp_path / "mnt", "--writable", env=store.env()) as mount:
        file = open(tmp_path / "mnt" / "half", "wb", buffering=0)
        file.write(body)
        (tmp_path / "mnt" / "closed").write_bytes(b"closed")
        mount.send_signal(signal.SIGTERM)
        mount.wait(300)
        with contextlib.suppress(OSError):
            file.close()
    assert "half" not in objects(store) and objects(store)["closed"] == b"closed"
    listed = sandbox.ok("mount", "--recover").out
    copy = next(line for line in listed.splitlines() if "millrace cp" in line).split()
    assert copy[3] == "s3://b/half" and Path(copy[2]).read_bytes() == body and listed.count("millrace cp") == 1
    sandbox.ok("cp", copy[2], copy[3], env=store.env())
    os.remove(copy[2])
    assert objects(store)["half"] == body and sandbox.ok("mount", "--recover").out == ""


def test_an_append_to_a_large_object_sends_what_is_appended(sandbox: Sandbox, bucket: Path, tmp_path: Path) -> None:
    def operations() -> list[str]:
        lines = (line.split() for line in (tmp_path / "log").read_text().splitlines())
        return [line[3] for line in lines if len(line) > 5]

    body = (bucket / "large").read_bytes()
    with logged_devstore(sandbox, bucket.parent, tmp_path / "log") as store:
        with mounted(sandbox, "s3://b", tmp_path / "mnt", "--writable", env=store.env()):
            with open(tmp_path / "mnt" / "large", "ab") as file:
                file.write(b"tail")
            wait_until(lambda: "CompleteMultipartUpload" in operations(), "the log")
            assert (operations().count("UploadPartCopy"), operations().count("UploadPart")) == (1, 1)
            assert "GetObject" not in operations()
            with open(tmp_path / "mnt" / "large", "r+b") as file:  # what follows the first part is copied
                file.write(b"head")
        wait_until(lambda: operations().count("CompleteMultipartUpload") == 2, "the log")
        assert (operations().count("UploadPartCopy"), operations().count("UploadPart")) == (2, 2)
        assert store.client().get_object(Bucket="b", Key="large")["Body"].read() == b"head" + body[4:] + b"tail"


def test_allocating(store: Server, writable: Path) -> None:
    with open(writable / "new", "w+b", buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, 1000)
        assert os.fstat(file.fileno()).st_size == 1000
        file.write(b"12345")
        assert os.lseek(file.fileno(), 0, os.SEEK_END) == 1000
    assert objects(store)["new"] == b"12345" + bytes(995)


def test_what_there_is_not(writable: Path) -> None:
    refused(lambda: os.link(writable / "z", writable / "link"), errno.EPERM)
    refused(lambda: os.mkfifo(writable / "fifo"), errno.EPERM)


@pytest.mark.parametrize("options", [(), ("--links",), ("--writable",)], ids=["read-only", "links", "writable"])
def test_what_links_cost(sandbox: Sandbox, tmp_path: Path, options: tuple[str, ...]) -> None:
    """A listing costs no request for each file, and a look at a name one more only where there may be links."""
    (tmp_path / "root" / "b" / "d").mkdir(parents=True)
    for number in range(100):
        (tmp_path / "root" / "b" / "d" / f"small{number}").write_bytes(b"small")
    (tmp_path / "root" / "b" / "d" / "link.rclonelink").write_bytes(b"small1")
    log = tmp_path / "log"
    with (
        logged_devstore(sandbox, tmp_path / "root", log) as store,
        mounted(sandbox, "s3://b", tmp_path / "mnt", *options, "--metadata-ttl", "indefinite", env=store.env()),
    ):
        assert (tmp_path / "mnt" / "d").is_dir()
        assert os.path.lexists(tmp_path / "mnt" / "nothing") is False
        looked_at = {"b/d", "b/nothing"} | ({"b/d.rclonelink", "b/nothing.rclonelink"} if options else set())
        assert keys(log, "HeadObject") == looked_at
        for entry in os.scandir(tmp_path / "mnt" / "d"):
            entry.stat(follow_symlinks=False)
        subprocess.run(["ls", "-l", tmp_path / "mnt" / "d"], stdout=subprocess.DEVNULL, check=True)
        assert keys(log, "HeadObject") == looked_at
        if options:
            assert os.readlink(tmp_path / "mnt" / "d" / "link") == "small1"
            assert keys(log, "GetObject") == {"b/d/link.rclonelink"}


def test_an_empty_file_in_place_of_another_is_read_at_once(writable: Path) -> None:
    """The kernel reports its end only after the close that the program has waited for."""
    file = writable / "emptied"
    for _ in range(100):
        file.write_bytes(b"full")
        file.write_bytes(b"")
        assert file.read_bytes() == b""


def test_folders(store: Server, writable: Path) -> None:
    (writable / "d" / "e").mkdir(parents=True)
    assert os.listdir(writable / "d") == ["e"] and "d" in os.listdir(writable)
    assert not any(key.startswith("d/") for key in objects(store))
    refused(lambda: (writable / "d").mkdir(), errno.EEXIST)
    refused(lambda: (writable / "z").mkdir(), errno.EEXIST)
    refused(lambda: (writable / "d").rmdir(), errno.ENOTEMPTY)
    refused(lambda: (writable / "a").rmdir(), errno.ENOTEMPTY)
    refused(lambda: (writable / "z").rmdir(), errno.ENOTDIR)
    refused(lambda: (writable / "none").rmdir(), errno.ENOENT)
    refused(lambda: os.remove(writable / "d"), errno.EISDIR, errno.EPERM)
    (writable / "d" / "e" / "f").write_bytes(b"1")
    assert objects(store)["d/e/f"] == b"1"
    os.remove(writable / "d" / "e" / "f")
    assert os.listdir(writable / "d" / "e") == []  # stays until it is removed
    os.rename(writable / "d" / "e", writable / "g")
    assert "g" in os.listdir(writable) and os.listdir(writable / "d") == []
    (writable / "g" / "h").write_bytes(b"2")
    (writable / "d").rmdir()
    assert "d" not in os.listdir(writable)
    shutil.rmtree(writable / "a")
    assert {key for key in objects(store)} == {"large", "z", "g/h"}


def test_renaming(store: Server, writable: Path) -> None:
    body = (writable / "large").read_bytes()
    os.rename(writable / "large", writable / "a" / "renamed")
    assert not (writable / "large").exists()
    assert (writable / "a" / "renamed").read_bytes() == body
    assert objects(store)["a/renamed"] == body and "large" not in objects(store)
    os.rename(writable / "z", writable / "a" / "b.txt")
    assert (writable / "a" / "b.txt").stat().st_size == 1 and not (writable / "z").exists()
    refused(lambda: os.rename(writable / "none", writable / "x"), errno.ENOENT)
    refused(lambda: os.rename(writable / "a" / "b.txt", writable / "a"), errno.EISDIR, errno.ENOTEMPTY)
    os.rename(writable / "a", writable / "x")
    assert (writable / "x" / "renamed").read_bytes() == body and not (writable / "a").exists()


@pytest.mark.parametrize("staging", [(), ("--no-staging",)])
def test_errors_of_the_store_come_at_close(
    sandbox: Sandbox, store: Server, tmp_path: Path, staging: tuple[str, ...]
) -> None:
    folder = tmp_path / "mnt"
    with mounted(sandbox, "s3://b", folder, "--writable", "--timeout", "15s", *staging, env=store.env()):
        file = open(folder / "new", "wb", buffering=0)
        file.write(b"text")
        freeze(store.process)  # takes connections, and answers nothing
        try:
            # Without a staging folder, to sync is to make the object.
            refused(lambda: os.fsync(file.fileno()) if staging else file.close(), errno.EIO)
        finally:
            store.process.send_signal(signal.SIGCONT)
        if not file.closed:
            file.close()

        # The store may have got it all the same; the next one is whole.
        def is_written() -> bool:
            with contextlib.suppress(OSError):
                (folder / "other").write_bytes(b"whole")
                return True
            with contextlib.suppress(OSError):  # an upload that was told to have failed may be there all the same
                os.remove(folder / "other")
            return False

        wait_until(lambda: is_there(folder / "z"), "the store's return")
        wait_until(is_written, "a file")
        assert (folder / "other").read_bytes() == b"whole"


def test_a_writer_that_is_killed_leaves_nothing(store: Server, writable: Path) -> None:
    script = "import sys, time; f = open(sys.argv[1], 'wb', buffering=0); f.write(bytes(3000)); print('written', flush=True); time.sleep(600)"
    before = objects(store)
    with subprocess.Popen(
        [sys.executable, "-c", script, writable / "new"], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None and writer.stdout.readline() == "written\n"
        writer.kill()
    wait_until(lambda: not (writable / "new").exists(), "the end of the file")
    assert objects(store) == before


def test_a_local_folder_can_be_written_to(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "there").write_bytes(b"1")
    with mounted(sandbox, tmp_path / "below", tmp_path / "mnt", "--writable"):
        (tmp_path / "mnt" / "d").mkdir()
        (tmp_path / "mnt" / "d" / "new").write_bytes(b"2" * 3_000_000)
        os.utime(tmp_path / "mnt")  # of a folder it means nothing
        assert (tmp_path / "below" / "d" / "new").read_bytes() == b"2" * 3_000_000
        os.rename(tmp_path / "mnt" / "there", tmp_path / "mnt" / "x")
        with open(tmp_path / "mnt" / "x", "ab") as file:
            file.write(b"2")
        assert (tmp_path / "below" / "x").read_bytes() == b"12" and not (tmp_path / "below" / "there").exists()


def test_what_was_read_makes_room_for_what_is_written(
    sandbox: Sandbox, store: Server, bucket: Path, tmp_path: Path
) -> None:
    """Past the kernel's cache a file is kept in three eighths of the memory; the parts of those that are written take three quarters."""
    folder, page = tmp_path / "mnt", mmap.mmap(-1, 1 << 20)
    with open(bucket / "read", "wb") as file:
        file.truncate(22 << 20)
    with mounted(sandbox, "s3://b", folder, "--writable", "--memory", "64MiB", env=store.env()):
        fd = os.open(folder / "read", os.O_RDONLY | os.O_DIRECT)
        for offset in range(0, 22 << 20, 1 << 20):
            assert os.preadv(fd, [page], offset) == 1 << 20
        os.close(fd)
        with contextlib.ExitStack() as open_files:
            for i in range(6):
                file = open_files.enter_context(open(folder / f"new-{i}", "wb", buffering=0))
                for _ in range(7):
                    assert file.write(bytes([i]) * (1 << 20)) == 1 << 20
    written = objects(store)
    for i in range(6):
        assert written[f"new-{i}"] == bytes([i]) * (7 << 20)


def test_many_files_at_once(store: Server, writable: Path) -> None:
    files = [open(writable / "a" / f"{i:03}", "wb") for i in range(200)]
    for i, file in enumerate(files):
        file.write(bytes([i]) * 1000)
    for file in files:
        file.close()
    assert {key: len(body) for key, body in objects(store).items() if key.startswith("a/") and key[2].isdigit()} == {
        f"a/{i:03}": 1000 for i in range(200)
    }
