"""The table of POSIX file semantics in docs/mount.md: each line of it is a test. A rule that holds on a mount is also tried on a local disk."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from e2e.harness import Sandbox, devstore
from e2e.mounting import mounted, needs_fuse
from semantics import refused

pytestmark = needs_fuse

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "mount.md"
YES = "yes"
STRANGER = 54_321  # a user


@dataclass(frozen=True)
class Line:
    rule: str
    here: str
    check: Callable[[Path], None]


LINES: list[Line] = []


def posix(rule: str, here: str = YES) -> Callable[[Callable[[Path], None]], None]:
    def add(check: Callable[[Path], None]) -> None:
        LINES.append(Line(rule, here, check))

    return add


def made(path: Path, body: bytes = b"0123456789") -> Path:
    path.write_bytes(body)
    return path


def as_stranger(folder: Path, *command: str) -> bool:
    """True if the command succeeds as another user, in the folder."""
    if os.geteuid() != 0:
        pytest.skip("only root can be two users")
    done = subprocess.run(
        command, cwd=folder, user=STRANGER, group=STRANGER, extra_groups=[], capture_output=True, check=False
    )
    return done.returncode == 0


def rename_with(source: Path, target: Path, flags: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    here = -100  # AT_FDCWD
    if libc.renameat2(here, os.fsencode(source), here, os.fsencode(target), flags) != 0:
        raise OSError(ctypes.get_errno(), "renameat2")


# ---- open


@posix("`open` with `O_CREAT` makes a file whose mode is the given one less the umask")
def _(folder: Path) -> None:
    before = os.umask(0o027)
    try:
        os.close(os.open(folder / "f", os.O_CREAT | os.O_WRONLY, 0o666))
    finally:
        os.umask(before)
    assert stat.S_IMODE((folder / "f").stat().st_mode) == 0o640


@posix("`O_CREAT` with `O_EXCL` of a name that exists is `EEXIST`")
def _(folder: Path) -> None:
    made(folder / "f")
    refused(lambda: os.open(folder / "f", os.O_CREAT | os.O_EXCL | os.O_WRONLY), errno.EEXIST)


@posix("`O_TRUNC` makes a file empty")
def _(folder: Path) -> None:
    fd = os.open(made(folder / "f"), os.O_WRONLY | os.O_TRUNC)
    assert os.fstat(fd).st_size == 0
    os.close(fd)
    assert (folder / "f").read_bytes() == b""


@posix("`O_APPEND` writes at the end, wherever the offset is, also by several programs")
def _(folder: Path) -> None:
    one = os.open(made(folder / "f", b"1"), os.O_WRONLY | os.O_APPEND)
    other = os.open(folder / "f", os.O_RDWR | os.O_APPEND)
    for fd, text in ((one, b"2"), (other, b"3"), (one, b"4")):
        os.lseek(fd, 0, os.SEEK_SET)
        os.write(fd, text)
    assert os.pread(other, 10, 0) == b"1234"
    os.close(one)
    os.close(other)
    assert (folder / "f").read_bytes() == b"1234"


@posix("a part of the path that is not there is `ENOENT`, and one that is a file is `ENOTDIR`")
def _(folder: Path) -> None:
    made(folder / "f")
    refused(lambda: os.open(folder / "none" / "f", os.O_CREAT | os.O_WRONLY), errno.ENOENT)
    refused(lambda: os.open(folder / "none", os.O_RDONLY), errno.ENOENT)
    refused(lambda: os.open(folder / "f" / "g", os.O_RDONLY), errno.ENOTDIR)
    refused(lambda: os.stat(f"{folder}/f/"), errno.ENOTDIR)


@posix("a folder is opened to be read only, else `EISDIR`; `O_DIRECTORY` of a file is `ENOTDIR`")
def _(folder: Path) -> None:
    (folder / "d").mkdir()
    made(folder / "f")
    refused(lambda: os.open(folder / "d", os.O_WRONLY), errno.EISDIR)
    refused(lambda: os.open(folder / "f", os.O_RDONLY | os.O_DIRECTORY), errno.ENOTDIR)
    os.close(os.open(folder / "d", os.O_RDONLY | os.O_DIRECTORY))


@posix("a name of more than 255 bytes is `ENAMETOOLONG`")
def _(folder: Path) -> None:
    made(folder / ("n" * 255))
    refused(lambda: (folder / ("n" * 256)).write_bytes(b""), errno.ENAMETOOLONG)
    assert os.statvfs(folder).f_namemax == 255


@posix(
    "a path may have up to 4,096 bytes",
    "no: a key of more than 1,024 bytes is `ENAMETOOLONG`, since no store has such keys",
)
def _(folder: Path) -> None:
    deep = folder
    with pytest.raises(OSError, match="File name too long") as error:
        for _ in range(20):
            deep = deep / ("n" * 100)
            deep.mkdir()
    assert error.value.errno == errno.ENAMETOOLONG


@posix("a descriptor that was opened to read is not written, and the other way around: `EBADF`")
def _(folder: Path) -> None:
    for flags, call in ((os.O_RDONLY, lambda fd: os.write(fd, b"1")), (os.O_WRONLY, lambda fd: os.read(fd, 1))):
        fd = os.open(made(folder / "f"), flags)
        refused(lambda fd=fd, call=call: call(fd), errno.EBADF)
        os.close(fd)


@posix(
    "`O_TMPFILE`, of Linux, makes a file without a name",
    "no, `EOPNOTSUPP`: the kernel's interface has it since 6.1 only; programs make a file and remove it",
)
def _(folder: Path) -> None:
    refused(lambda: os.open(folder, os.O_TMPFILE | os.O_RDWR), errno.EOPNOTSUPP)


# ---- read and write


@posix("what was never written reads as zeros")
def _(folder: Path) -> None:
    with open(folder / "f", "w+b", buffering=0) as file:
        file.seek(100_000)
        file.write(b"end")
        assert os.pread(file.fileno(), 100_003, 0) == bytes(100_000) + b"end"
    assert (folder / "f").read_bytes() == bytes(100_000) + b"end"


@posix("`pread` and `pwrite` leave the offset; descriptors of `dup` share it")
def _(folder: Path) -> None:
    fd = os.open(made(folder / "f"), os.O_RDWR)
    other = os.dup(fd)
    os.pwrite(fd, b"x", 5)
    assert os.pread(fd, 2, 5) == b"x6" and os.read(fd, 2) == b"01" and os.read(other, 2) == b"23"
    os.close(fd)
    os.close(other)


@posix("what one program writes, others read at once, also by descriptors that they have open")
def _(folder: Path) -> None:
    with open(folder / "f", "wb", buffering=0) as writer:
        writer.write(b"1")
        with open(folder / "f", "rb", buffering=0) as reader:
            assert reader.read() == b"1"
            for number in range(20):
                writer.write(b"%d" % (number % 10) * 5000)
                assert reader.read() == b"%d" % (number % 10) * 5000
            writer.seek(0)
            writer.write(b"first")
            assert os.pread(reader.fileno(), 6, 0) == b"first0"
        assert subprocess.run(["head", "-c5", folder / "f"], capture_output=True, check=True).stdout == b"first"


@posix("a read at the end gives nothing, and one across it what is there")
def _(folder: Path) -> None:
    with open(made(folder / "f"), "rb", buffering=0) as file:
        assert os.pread(file.fileno(), 5, 10) == b"" and os.pread(file.fileno(), 5, 8) == b"89"


@posix("`lseek` finds data and holes: `SEEK_HOLE` of a file without holes is its end")
def _(folder: Path) -> None:
    with open(made(folder / "f"), "rb") as file:
        assert os.lseek(file.fileno(), 0, os.SEEK_DATA) == 0 and os.lseek(file.fileno(), 0, os.SEEK_HOLE) == 10
        refused(lambda: os.lseek(file.fileno(), 11, os.SEEK_DATA), errno.ENXIO)


@posix("holes take no room", "no: an object has all its bytes, and `st_blocks` says so")
def _(folder: Path) -> None:
    made(folder / "f", b"")
    os.truncate(folder / "f", 1 << 20)
    assert (folder / "f").stat().st_blocks == (1 << 20) // 512


@posix("a file is mapped into memory; with `MAP_SHARED`, others read what is changed there")
def _(folder: Path) -> None:
    with open(made(folder / "f", bytes(10_000)), "r+b") as file:
        with mmap.mmap(file.fileno(), 10_000) as memory:
            memory[5000:5003] = b"abc"
            memory.flush()
            assert os.pread(file.fileno(), 5, 4999) == b"\0abc\0"
            os.pwrite(file.fileno(), b"xyz", 100)
            assert memory[99:104] == b"\0xyz\0"
    assert (folder / "f").read_bytes()[5000:5003] == b"abc"


@posix("`fsync` and `fdatasync` succeed, also of a folder")
def _(folder: Path) -> None:
    with open(folder / "f", "wb", buffering=0) as file:
        file.write(b"1")
        os.fsync(file.fileno())
        os.fdatasync(file.fileno())
    fd = os.open(folder, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


# ---- truncate


@posix("`truncate` and `ftruncate` cut a file, and extend it by zeros")
def _(folder: Path) -> None:
    os.truncate(made(folder / "f"), 4)
    assert (folder / "f").read_bytes() == b"0123"
    with open(folder / "f", "r+b") as file:
        os.ftruncate(file.fileno(), 8)
    assert (folder / "f").read_bytes() == b"0123\0\0\0\0"


@posix("a folder is not cut, `EISDIR`, nor what is not there, `ENOENT`, nor by a descriptor that reads, `EINVAL`")
def _(folder: Path) -> None:
    (folder / "d").mkdir()
    refused(lambda: os.truncate(folder / "d", 0), errno.EISDIR)
    refused(lambda: os.truncate(folder / "none", 0), errno.ENOENT)
    with open(made(folder / "f"), "rb") as file:
        refused(lambda: os.ftruncate(file.fileno(), 0), errno.EINVAL)


@posix("`posix_fallocate` extends a file, and leaves its bytes")
def _(folder: Path) -> None:
    with open(made(folder / "f"), "r+b") as file:
        os.posix_fallocate(file.fileno(), 5, 15)
    assert (folder / "f").read_bytes() == b"0123456789" + bytes(10)


def fallocate_with(file: Path, mode: int, offset: int, length: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    with open(file, "r+b") as opened:
        if libc.fallocate(opened.fileno(), mode, ctypes.c_long(offset), ctypes.c_long(length)) != 0:
            raise OSError(ctypes.get_errno(), "fallocate")


@posix("`fallocate`, of Linux, makes a hole (`FALLOC_FL_PUNCH_HOLE`) and clears a range (`FALLOC_FL_ZERO_RANGE`)")
def _(folder: Path) -> None:
    keep_size, punch_hole, zero_range = 1, 2, 16
    fallocate_with(made(folder / "f"), keep_size | punch_hole, 2, 3)
    assert (folder / "f").read_bytes() == b"01\0\0\x0056789"
    fallocate_with(folder / "f", zero_range, 8, 4)
    assert (folder / "f").read_bytes() == b"01\0\0\x00567" + bytes(4)
    fallocate_with(folder / "f", keep_size | zero_range, 7, 40)
    assert (folder / "f").read_bytes() == b"01\0\0\x0056" + bytes(5)


@posix(
    "`fallocate`, of Linux, takes a range out of a file, or puts one in (`FALLOC_FL_COLLAPSE_RANGE`, `FALLOC_FL_INSERT_RANGE`)",
    "no, `EOPNOTSUPP`, as on most file systems: the kernel's interface does not have it",
)
def _(folder: Path) -> None:
    for mode in (8, 32):
        refused(lambda mode=mode: fallocate_with(made(folder / "f", bytes(12288)), mode, 0, 4096), errno.EOPNOTSUPP)


# ---- stat and times


@posix("the number of a file (`st_ino`) stays while it is changed and renamed, and no other file has it")
def _(folder: Path) -> None:
    number = made(folder / "f").stat().st_ino
    with open(folder / "f", "ab") as file:
        file.write(b"1")
    os.rename(folder / "f", folder / "g")
    assert (folder / "g").stat().st_ino == number != made(folder / "f").stat().st_ino


@posix("a folder has as many links as it has folders, and two more", "no, one: a store would have to list all of them")
def _(folder: Path) -> None:
    (folder / "d" / "e").mkdir(parents=True)
    assert (folder / "d").stat().st_nlink == 1


@posix("a write, and a change of the size, set the time of the last change")
def _(folder: Path) -> None:
    for change in (lambda path: path.write_bytes(b"1"), lambda path: os.truncate(path, 5)):
        os.utime(made(folder / "f"), (1000, 1000))
        change(folder / "f")
        assert (folder / "f").stat().st_mtime > 1_000_000


@posix(
    "a name that is made, removed or renamed sets the time of the last change of its folder",
    "yes, if it is done by way of this mount",
)
def _(folder: Path) -> None:
    d, e = folder / "d", folder / "e"
    for path in (d, e):
        path.mkdir()
        assert path.stat().st_mtime >= folder.stat().st_mtime - 1
    for change, changed in (
        (lambda: made(d / "f"), [d]),
        (lambda: (d / "g").mkdir(), [d]),
        (lambda: os.rename(d / "f", e / "f"), [d, e]),
        (lambda: (d / "g").rmdir(), [d]),
        (lambda: (e / "f").unlink(), [e]),
        (lambda: e.rename(folder / "z"), [folder]),
    ):
        for path in (folder, d, e):
            os.utime(path, (1000, 1000))
        change()
        for path in filter(Path.exists, (folder, d, e)):
            assert (path.stat().st_mtime > 1_000_000) == (path in changed), path
    assert (folder / "z").stat().st_mtime == 1000


@posix("a folder keeps modes, owners, times and attributes, its own and those below it, when it is renamed")
def _(folder: Path) -> None:
    (folder / "d" / "e").mkdir(parents=True)
    made(folder / "d" / "e" / "f").chmod(0o640)
    (folder / "d" / "e").chmod(0o700)
    os.utime(folder / "d" / "e", (1000, 2000))
    os.setxattr(folder / "d" / "e" / "f", "user.a", b"1")
    os.rename(folder / "d", folder / "z")
    info = (folder / "z" / "e").stat()
    assert (stat.S_IMODE(info.st_mode), info.st_mtime) == (0o700, 2000)
    assert stat.S_IMODE((folder / "z" / "e" / "f").stat().st_mode) == 0o640
    assert os.getxattr(folder / "z" / "e" / "f", "user.a") == b"1"


@posix("`utimensat` sets both times, to the nanosecond, and either of them")
def _(folder: Path) -> None:
    os.utime(made(folder / "f"), ns=(1_000_000_001, 2_000_000_002))
    info = (folder / "f").stat()
    assert (info.st_atime_ns, info.st_mtime_ns) == (1_000_000_001, 2_000_000_002)
    subprocess.run(["touch", "-m", "-d", "@3", folder / "f"], check=True)
    info = (folder / "f").stat()
    assert (info.st_atime_ns, info.st_mtime_ns) == (1_000_000_001, 3_000_000_000)


@posix("a read sets the time of the last access", "no, as on a disk that is mounted with `noatime`")
def _(folder: Path) -> None:
    os.utime(made(folder / "f"), (1000, 1000))
    (folder / "f").read_bytes()
    assert (folder / "f").stat().st_atime == 1000


@posix(
    "`chmod` and the like set the time of the last change of status",
    "no: that time is always the one of the last write",
)
def _(folder: Path) -> None:
    os.utime(made(folder / "f"), (1000, 1000))
    (folder / "f").chmod(0o600)
    info = (folder / "f").stat()
    assert info.st_mtime == 1000 and info.st_ctime != 1000 or info.st_ctime == info.st_mtime


# ---- modes and owners


@posix("`chmod` and `chown` set modes and owners, and -1 leaves one")
def _(folder: Path) -> None:
    made(folder / "f").chmod(0o751)
    before = (folder / "f").stat()
    os.chown(folder / "f", -1, before.st_gid)
    info = (folder / "f").stat()
    assert (stat.S_IMODE(info.st_mode), info.st_uid, info.st_gid) == (0o751, before.st_uid, before.st_gid)


@posix("others do not open, change or remove what the mode denies: `EACCES`, and `EPERM` for `chmod`")
def _(folder: Path) -> None:
    made(folder / "f").chmod(0o640)
    made(folder / "open").chmod(0o644)
    folder.chmod(0o755)
    assert as_stranger(folder, "cat", "open")
    for command in (("cat", "f"), ("chmod", "666", "f"), ("rm", "-f", "open"), ("touch", "new")):
        assert not as_stranger(folder, *command), command


@posix("in a folder with the sticky bit, only the owner removes a file")
def _(folder: Path) -> None:
    folder.chmod(0o1777)
    made(folder / "f")
    assert as_stranger(folder, "sh", "-c", "umask 077; : > theirs")
    assert not as_stranger(folder, "rm", "-f", "f") and as_stranger(folder, "rm", "theirs")


@posix("a new file belongs to the user who makes it, who can open it again; and so does a new folder")
def _(folder: Path) -> None:
    folder.chmod(0o777)
    script = "umask 022; : > usual; mkdir folder; echo 1 >> usual; echo 1 > folder/in; umask 077; : > private"
    assert as_stranger(folder, "sh", "-c", script)
    for name in ("usual", "private", "folder", "folder/in"):
        assert (folder / name).stat().st_uid == STRANGER, name


@posix(
    "a new file has the group of the process that makes it",
    "the mount's (`-o gid=N`), as in a folder with the setgid bit, unless it is made with another mode than files usually are",
)
def _(folder: Path) -> None:
    folder.chmod(0o777)
    assert as_stranger(folder, "sh", "-c", "umask 022; : > usual; umask 077; : > private")
    assert (folder / "usual").stat().st_gid == os.getegid() and (folder / "private").stat().st_gid == STRANGER


@posix(
    "a file that root makes belongs to root",
    "to the owner of the mount (`-o uid=N`), unless it is made with another mode than files usually are",
)
def _(folder: Path) -> None:
    assert made(folder / "f").stat().st_uid == os.geteuid()  # test_semantics.py has a mount with -o uid=


@posix("a program runs if its mode has `x`, and else does not: `EACCES`")
def _(folder: Path) -> None:
    program = made(folder / "program", b"#!/bin/sh\nexit 7\n")
    program.chmod(0o644)
    refused(lambda: subprocess.run([program], check=False), errno.EACCES)
    assert not os.access(program, os.X_OK)
    program.chmod(0o755)
    assert subprocess.run([program], check=False).returncode == 7


# ---- folders


@posix("`mkdir` of a name that exists is `EEXIST`, and without its parent `ENOENT`")
def _(folder: Path) -> None:
    (folder / "d").mkdir()
    made(folder / "f")
    for name in ("d", "f"):
        refused(lambda name=name: os.mkdir(folder / name), errno.EEXIST)
    refused(lambda: os.mkdir(folder / "none" / "d"), errno.ENOENT)


@posix("`rmdir` of what is not empty is `ENOTEMPTY`, of a file `ENOTDIR`, and of `.` `EINVAL`")
def _(folder: Path) -> None:
    (folder / "d").mkdir()
    made(folder / "d" / "f")
    refused(lambda: os.rmdir(folder / "d"), errno.ENOTEMPTY)
    refused(lambda: os.rmdir(folder / "d" / "f"), errno.ENOTDIR)
    refused(lambda: os.rmdir(f"{folder}/d/."), errno.EINVAL)
    os.remove(folder / "d" / "f")
    os.rmdir(folder / "d")
    assert not (folder / "d").exists()


@posix("a listing has each name once, and `.` and `..`")
def _(folder: Path) -> None:
    for number in range(50):
        made(folder / f"{number}")
    (folder / "d").mkdir()
    names = subprocess.run(["ls", "-a", folder], capture_output=True, text=True, check=True).stdout.split()
    assert sorted(names) == sorted([".", "..", "d", *map(str, range(50))])
    refused(lambda: os.listdir(folder / "1"), errno.ENOTDIR)


# ---- unlink


@posix("a removed file stays for those who have it open, with no link (`st_nlink` 0)")
def _(folder: Path) -> None:
    with open(made(folder / "f"), "r+b", buffering=0) as file:
        os.remove(folder / "f")
        file.write(b"new")
        assert os.pread(file.fileno(), 20, 0) == b"new3456789" and os.fstat(file.fileno()).st_nlink == 0
    assert not (folder / "f").exists()


@posix("a name that was removed can be made again, and is another file")
def _(folder: Path) -> None:
    with open(made(folder / "f"), "rb") as file:
        os.remove(folder / "f")
        assert made(folder / "f", b"new").stat().st_ino != os.fstat(file.fileno()).st_ino
        assert file.read() == b"0123456789" and (folder / "f").read_bytes() == b"new"


@posix("`unlink` of a folder is `EISDIR`, and of what is not there `ENOENT`")
def _(folder: Path) -> None:
    (folder / "d").mkdir()
    refused(lambda: os.unlink(folder / "d"), errno.EISDIR)
    refused(lambda: os.unlink(folder / "none"), errno.ENOENT)


# ---- rename


@posix("`rename` replaces a file; who has the replaced one open reads it as before")
def _(folder: Path) -> None:
    made(folder / "f", b"new")
    with open(made(folder / "g"), "rb") as file:
        os.rename(folder / "f", folder / "g")
        assert file.read() == b"0123456789"
    assert (folder / "g").read_bytes() == b"new" and not (folder / "f").exists()


@posix(
    "`rename` replaces a file in one step",
    "for the programs of this mount; for other machines it is a copy and a removal, since no store renames",
)
def _(folder: Path) -> None:
    made(folder / "g", b"old")
    for _ in range(20):
        made(folder / "f", b"new")
        with subprocess.Popen(["mv", folder / "f", folder / "g"]) as mover:
            while mover.poll() is None:
                assert (folder / "g").read_bytes() in (b"old", b"new")


@posix("a descriptor stays with its file when that is renamed")
def _(folder: Path) -> None:
    with open(folder / "f", "wb", buffering=0) as file:
        file.write(b"1")
        os.rename(folder / "f", folder / "g")
        file.write(b"2")
    assert (folder / "g").read_bytes() == b"12" and not (folder / "f").exists()


@posix(
    "`rename` of a file onto a folder is `EISDIR`, the other way around `ENOTDIR`, onto a folder with something in it `ENOTEMPTY`, and of a folder into itself `EINVAL`"
)
def _(folder: Path) -> None:
    (folder / "d" / "e").mkdir(parents=True)
    (folder / "x").mkdir()
    made(folder / "f")
    refused(lambda: os.rename(folder / "f", folder / "d"), errno.EISDIR)
    refused(lambda: os.rename(folder / "d", folder / "f"), errno.ENOTDIR)
    refused(lambda: os.rename(folder / "x", folder / "d"), errno.ENOTEMPTY)
    refused(lambda: os.rename(folder / "d", folder / "d" / "e" / "f"), errno.EINVAL)
    os.rename(folder / "d", folder / "x")
    assert os.listdir(folder / "x") == ["e"]


@posix("`rename` to the same name changes nothing")
def _(folder: Path) -> None:
    os.rename(made(folder / "f"), folder / "f")
    assert (folder / "f").read_bytes() == b"0123456789"


@posix("`RENAME_NOREPLACE`, of Linux, is `EEXIST` if the name exists")
def _(folder: Path) -> None:
    made(folder / "f")
    made(folder / "g", b"old")
    with pytest.raises(OSError, match="renameat2") as error:
        rename_with(folder / "f", folder / "g", 1)
    assert error.value.errno == errno.EEXIST and (folder / "g").read_bytes() == b"old"
    rename_with(folder / "f", folder / "h", 1)


@posix("`RENAME_EXCHANGE`, of Linux, exchanges two files", "no, `EINVAL`: it would be three copies")
def _(folder: Path) -> None:
    made(folder / "f")
    made(folder / "g")
    with pytest.raises(OSError, match="renameat2") as error:
        rename_with(folder / "f", folder / "g", 2)
    assert error.value.errno == errno.EINVAL


# ---- links and others


@posix("`link` gives a file a second name", "no, `EPERM`: an object has one key")
def _(folder: Path) -> None:
    refused(lambda: os.link(made(folder / "f"), folder / "g"), errno.EPERM)


@posix("`symlink` makes a name that stands for a path, whether there is such a path or not")
def _(folder: Path) -> None:
    os.symlink("f", folder / "g")
    assert os.readlink(folder / "g") == "f" and not (folder / "g").exists()
    (folder / "g").write_bytes(b"1")
    assert (folder / "f").read_bytes() == b"1" and (folder / "g").is_symlink()
    (folder / "d").mkdir()
    os.symlink("../g", folder / "d" / "up")
    assert (folder / "d" / "up").read_bytes() == b"1"


@posix("`symlink` of a name that exists is `EEXIST`, also if that is a link to nothing")
def _(folder: Path) -> None:
    os.symlink("nothing", folder / "g")
    made(folder / "f")
    (folder / "d").mkdir()
    for name in "fgd":
        refused(lambda name=name: os.symlink("x", folder / name), errno.EEXIST)
    assert os.readlink(folder / "g") == "nothing"


@posix("`open` follows links, more than 40 in a row are `ELOOP`, and so is a link with `O_NOFOLLOW`")
def _(folder: Path) -> None:
    made(folder / "f")
    for number in range(41):
        os.symlink(f"l{number - 1}" if number else "f", folder / f"l{number}")
    assert (folder / "l39").read_bytes() == b"0123456789"
    refused(lambda: (folder / "l40").read_bytes(), errno.ELOOP)
    refused(lambda: os.open(folder / "l0", os.O_RDONLY | os.O_NOFOLLOW), errno.ELOOP)
    os.symlink("new", folder / "n")
    refused(lambda: os.open(folder / "n", os.O_CREAT | os.O_EXCL | os.O_WRONLY), errno.EEXIST)


@posix("`unlink`, `rename` and `lstat` are of a link itself, whose size is the length of its path")
def _(folder: Path) -> None:
    os.symlink("f", made(folder / "f").parent / "g")
    assert os.lstat(folder / "g").st_size == 1 and stat.S_ISLNK(os.lstat(folder / "g").st_mode)
    os.rename(folder / "g", folder / "h")
    assert os.readlink(folder / "h") == "f"
    os.remove(folder / "h")
    assert os.listdir(folder) == ["f"]


@posix("a link has a name of up to 255 bytes", "244 bytes: the store has it under a name that says what it is")
def _(folder: Path) -> None:
    os.symlink("f", folder / ("n" * 244))
    refused(lambda: os.symlink("f", folder / ("n" * 245)), errno.ENAMETOOLONG)


@posix("`readlink` of a file is `EINVAL`")
def _(folder: Path) -> None:
    refused(lambda: os.readlink(made(folder / "f")), errno.EINVAL)


@posix("`mkfifo` and `mknod` make pipes, sockets and devices", "no, `EPERM`: an object is bytes")
def _(folder: Path) -> None:
    refused(lambda: os.mkfifo(folder / "pipe"), errno.EPERM)


@posix("locks of `fcntl` keep other processes out")
def _(folder: Path) -> None:
    tries = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+b'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    with open(made(folder / "f"), "r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        command = [sys.executable, "-c", tries, str(folder / "f")]
        assert subprocess.run(command, capture_output=True, check=False).returncode != 0
        fcntl.lockf(file, fcntl.LOCK_UN)
        assert subprocess.run(command, capture_output=True, check=False).returncode == 0


@posix(
    "extended attributes (`user.`), of Linux, stay with their file", "until the mount ends, up to 4 KiB of each file"
)
def _(folder: Path) -> None:
    os.setxattr(made(folder / "f"), "user.x", b"1")
    os.rename(folder / "f", folder / "g")
    assert os.getxattr(folder / "g", "user.x") == b"1"


# ---- The tests


@pytest.fixture(scope="module")
def mount(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("posix")
    (root / "home").mkdir()
    sandbox = Sandbox(root / "home")
    options = ["--writable", *(["-o", "allow_other"] if os.geteuid() == 0 else [])]
    with (
        devstore(sandbox, "mem:", "--bucket", "b") as store,
        mounted(sandbox, "s3://b", root / "mnt", *options, env=store.env()),
    ):
        yield root / "mnt"


@pytest.mark.parametrize("number", range(len(LINES)))
def test_a_line_holds(mount: Path, tmp_path: Path, number: int) -> None:
    line = LINES[number]
    (mount / f"{number}").mkdir()
    line.check(mount / f"{number}")
    if line.here == YES:
        (tmp_path / "disk").mkdir()
        line.check(tmp_path / "disk")  # the test itself is right


def test_the_document_has_these_lines() -> None:
    section = DOCUMENT.read_text().split("### POSIX\n", 1)[1].split("\n## ", 1)[0]
    table = re.findall(r"^\| (.*) \| (.*) \|$", section, re.MULTILINE)[1:]
    assert table == [(line.rule, line.here) for line in LINES]


if __name__ == "__main__":
    print("| Rule | Here |\n|---|---|")
    print("\n".join(f"| {line.rule} | {line.here} |" for line in LINES))
