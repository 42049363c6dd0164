"""Files that programs write become objects: when, which, and what programs are told of those that cannot."""

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
from functools import partial
from pathlib import Path

import pytest
from e2e.harness import Sandbox, Server, freeze
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


def test_only_sequential_writing_of_new_files(store: Server, writable: Path) -> None:
    before = objects(store)
    refused(lambda: open(writable / "z", "ab"), errno.EEXIST)
    refused(lambda: open(writable / "z", "r+b"), errno.EEXIST)
    refused(lambda: open(writable / "z", "wb"), errno.EEXIST)
    refused(lambda: os.truncate(writable / "z", 0), errno.EOPNOTSUPP)
    refused(lambda: os.chmod(writable / "z", 0o600), errno.EPERM)
    refused(lambda: os.utime(writable / "z", (1, 1)), errno.EPERM)
    refused(lambda: os.symlink("z", writable / "link"), errno.EPERM, errno.ENOSYS)
    refused(lambda: os.link(writable / "z", writable / "link"), errno.EPERM, errno.ENOSYS)
    refused(lambda: os.mkfifo(writable / "fifo"), errno.EPERM, errno.ENOSYS)
    fd = os.open(writable / "new", os.O_CREAT | os.O_RDWR)
    os.write(fd, b"0123456789")
    refused(lambda: os.pread(fd, 1, 0), errno.EBADF)
    refused(lambda: os.pwrite(fd, b"x", 4), errno.EINVAL)
    refused(lambda: os.close(fd), errno.EINVAL)  # nothing appears of what went wrong
    assert objects(store) == before
    assert not (writable / "new").exists()


def test_one_writer_at_a_time(store: Server, writable: Path) -> None:
    with open(writable / "new", "wb") as file:
        refused(lambda: open(writable / "new", "rb"), errno.EBUSY)
        refused(lambda: open(writable / "new", "wb"), errno.EBUSY)
        refused(lambda: open(writable / "new", "xb"), errno.EEXIST)
        refused(lambda: os.remove(writable / "new"), errno.EBUSY)
        refused(lambda: os.rename(writable / "new", writable / "other"), errno.EBUSY)
        file.write(b"text")
    assert (writable / "new").read_bytes() == b"text"
    refused(lambda: open(writable / "new", "xb"), errno.EEXIST)


def test_another_machine_was_first(store: Server, writable: Path) -> None:
    file = open(writable / "new", "wb", buffering=0)
    file.write(b"mine")
    store.client().put_object(Bucket="b", Key="new", Body=b"theirs")
    refused(file.close, errno.EEXIST)
    assert objects(store)["new"] == b"theirs"
    assert (writable / "new").read_bytes() == b"theirs"


def test_overwriting(store: Server, overwritable: Path) -> None:
    old = (overwritable / "a" / "b.txt").read_bytes()
    reader = open(overwritable / "a" / "b.txt", "rb", buffering=0)
    with open(overwritable / "a" / "b.txt", "wb", buffering=0) as file:
        file.write(b"new")
        assert objects(store)["a/b.txt"] == old  # the old one, until it is closed
    assert objects(store)["a/b.txt"] == b"new"
    assert (overwritable / "a" / "b.txt").read_bytes() == b"new"
    assert (overwritable / "a" / "b.txt").stat().st_size == 3
    assert reader.read(10) in (old[:10], b"")  # what was opened before is not mixed with it
    reader.close()
    os.replace(overwritable / "z", overwritable / "a" / "b.txt")
    assert (overwritable / "a" / "b.txt").stat().st_size == 1 and not (overwritable / "z").exists()
    refused(lambda: open(overwritable / "a" / "b.txt", "ab"), errno.EROFS)


def test_an_empty_file_in_place_of_another_is_read_at_once(overwritable: Path) -> None:
    """The kernel tells of its end only after the close that the program has waited for."""
    file = overwritable / "emptied"
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
    refused(lambda: os.rename(writable / "z", writable / "a" / "renamed"), errno.EEXIST)  # needs --allow-overwrite
    refused(lambda: os.rename(writable / "none", writable / "x"), errno.ENOENT)
    refused(lambda: os.rename(writable / "z", writable / "a"), errno.EISDIR)
    refused(lambda: os.rename(writable / "a", writable / "x"), errno.EXDEV)
    subprocess.run(["mv", writable / "a", writable / "x"], check=True)  # copies
    assert (writable / "x" / "renamed").read_bytes() == body and not (writable / "a").exists()


def test_errors_of_the_store_come_at_close(sandbox: Sandbox, store: Server, tmp_path: Path) -> None:
    folder = tmp_path / "mnt"
    with mounted(sandbox, "s3://b", folder, "--writable", "--timeout", "15s", env=store.env()):
        for finish in (lambda file: file.close(), lambda file: os.fsync(file.fileno())):
            file = open(folder / "new", "wb", buffering=0)
            file.write(b"text")
            freeze(store.process)  # takes connections, and answers nothing
            try:
                refused(partial(finish, file), errno.EIO)
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
            os.remove(folder / "other")
            if (folder / "new").exists():
                os.remove(folder / "new")


def test_fsync_makes_it_visible(store: Server, writable: Path) -> None:
    with open(writable / "new", "wb", buffering=0) as file:
        file.write(b"text")
        os.fsync(file.fileno())
        assert objects(store)["new"] == b"text"
        refused(lambda: file.write(b"more"), errno.EIO)
    assert objects(store)["new"] == b"text"


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
        refused(lambda: os.rename(tmp_path / "mnt" / "there", tmp_path / "mnt" / "x"), errno.EXDEV)
        subprocess.run(["mv", tmp_path / "mnt" / "there", tmp_path / "mnt" / "x"], check=True)
        assert (tmp_path / "below" / "x").read_bytes() == b"1" and not (tmp_path / "below" / "there").exists()


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
