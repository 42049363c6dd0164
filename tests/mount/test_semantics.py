"""docs/semantics.md: each of its sentences is quoted by a test, which fails if it is not true."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import hashlib
import importlib
import mmap
import os
import random
import re
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from e2e.harness import REPOSITORY, Sandbox, Server, devstore, freeze, logged_devstore
from e2e.mounting import mounted, needs_fuse, wait_until
from semantics import quoted, refused, says

pytestmark = needs_fuse


@dataclass
class Place:
    """A folder `prefix` of a bucket of the store, as each of the mounts shows it."""

    store: Server
    mounts: Path
    prefix: str

    def at(self, mount: str) -> Path:
        return self.mounts / mount / self.prefix

    def put(self, name: str, body: bytes = b"text") -> None:
        self.store.client().put_object(Bucket="b", Key=f"{self.prefix}/{name}", Body=body)

    def delete(self, name: str) -> None:
        self.store.client().delete_object(Bucket="b", Key=f"{self.prefix}/{name}")

    def objects(self) -> dict[str, bytes]:
        client = self.store.client()
        listed = client.list_objects_v2(Bucket="b", Prefix=f"{self.prefix}/").get("Contents", [])
        return {
            entry["Key"].partition("/")[2]: client.get_object(Bucket="b", Key=entry["Key"])["Body"].read()
            for entry in listed
        }


MOUNTS = {
    "read": ("--metadata-ttl", "minimal"),
    "write": ("--metadata-ttl", "minimal", "--writable"),
    "keep": ("--metadata-ttl", "minimal", "--writable", "--no-overwrite"),
    "stream": ("--metadata-ttl", "minimal", "--writable", "--no-staging"),
    "once": ("--metadata-ttl", "indefinite"),
}


@pytest.fixture(scope="module")
def mounts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    folder = tmp_path_factory.mktemp("semantics")
    (folder / "home").mkdir()
    sandbox = Sandbox(folder / "home")
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(devstore(sandbox, "mem:"))
        store.client().create_bucket(Bucket="b")
        (folder / "mnt").mkdir()
        for name, options in MOUNTS.items():
            stack.enter_context(mounted(sandbox, "s3://b", folder / "mnt" / name, *options, env=store.env()))
        yield store, folder / "mnt"


@pytest.fixture
def place(mounts: tuple[Server, Path], request: pytest.FixtureRequest) -> Place:
    made = Place(*mounts, hashlib.sha256(request.node.name.encode()).hexdigest()[:12])
    made.put("there")
    return made


def test_every_sentence_is_tested() -> None:
    for name in (
        "test_errnos",
        "test_mount_failures",
        "test_handled_signals",
        "test_write_back",
    ):  # which quote some of them
        importlib.import_module(name)
    text = (REPOSITORY / "docs" / "semantics.md").read_text()
    sentences = [" ".join(item.split()) for item in re.findall(r"^- (.*(?:\n  .*)*)", text, re.MULTILINE)]
    assert len(sentences) > 40
    assert sorted(sentences) == sorted(quoted)


# ---- Names


@says("A `/` in a key separates folders, and a folder exists as long as a key lies below it.")
def test_folders_are_prefixes(place: Place) -> None:
    place.put("a/b/c")
    assert sorted(os.listdir(place.at("read"))) == ["a", "there"]
    assert (place.at("read") / "a" / "b" / "c").read_bytes() == b"text"
    place.delete("a/b/c")
    assert not (place.at("read") / "a").exists() and os.listdir(place.at("read")) == ["there"]


@says("If an object and a folder have the same name, the folder is seen and the object is not.")
def test_folder_hides_file(place: Place) -> None:
    place.put("a", b"hidden")
    place.put("a-1")
    place.put("a/b")
    assert (place.at("read") / "a").is_dir() and os.listdir(place.at("read") / "a") == ["b"]
    assert sorted(os.listdir(place.at("read"))) == ["a", "a-1", "there"]


@says("An object whose key ends with `/` makes a folder, and is no file in it.")
def test_marker(place: Place) -> None:
    place.put("marked/", b"")
    assert (place.at("read") / "marked").is_dir() and os.listdir(place.at("read") / "marked") == []
    os.rmdir(place.at("write") / "marked")
    assert "marked/" not in place.objects()


@says(
    "Keys with an empty part, `.` or `..` between their slashes are not seen, and neither are those with a part of more than 255 bytes."
)
def test_names_that_no_file_has(place: Place) -> None:
    for name in ("a//b", "a/./b", "a/../b", f"a/{'n' * 256}", f"a/{'n' * 255}"):
        place.put(name)
    assert os.listdir(place.at("read") / "a") == ["n" * 255]


@says(
    "Without `--writable`, the folder `.millrace`, in which Millrace keeps its index beside data, is not listed, but found by its name; with it, it is a folder like others."
)
def test_own_files(place: Place) -> None:
    place.put("cats/1.jpg")
    place.put("cats/.millrace/index")
    place.put("old/.millrace/index")
    assert (
        os.listdir(place.at("read") / "cats") == ["1.jpg"]
        and (place.at("read") / "cats" / ".millrace" / "index").is_file()
    )
    assert os.listdir(place.at("read") / "old") == []
    # The files that keep rmdir from its work are visible, and can be removed.
    refused((place.at("write") / "old").rmdir, errno.ENOTEMPTY)
    assert os.listdir(place.at("write") / "old") == [".millrace"]
    shutil.rmtree(place.at("write") / "old")
    assert set(place.objects()) == {"there", "cats/1.jpg", "cats/.millrace/index"}


@says("Names are bytes: they are neither normalised nor folded, and upper and lower case differ.")
def test_names_are_bytes(place: Place) -> None:
    names = ["\u00e9", "e\u0301", "A", "a", "with space", "new\nline", "quo'te\""]
    for name in names:
        place.put(f"d/{name}", name.encode())
    assert sorted(os.listdir(place.at("read") / "d")) == sorted(names)
    for name in names:
        assert (place.at("read") / "d" / name).read_bytes() == name.encode()


@says("A folder of more keys than a page of the store's listing is listed whole, each name once.")
def test_pages(place: Place) -> None:
    names = [f"{i:04}{'-' if i % 3 else '.'}" for i in range(1100)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda name: (place.at("write") / name).write_bytes(b"x"), names))
    assert sorted(os.listdir(place.at("read"))) == sorted([*names, "there"])


# ---- Attributes


@says("The size of a file is that of its object, and its time of change is that of the object.")
def test_size_and_time(place: Place) -> None:
    place.put("a", b"x" * 12345)
    told = place.store.client().head_object(Bucket="b", Key=f"{place.prefix}/a")
    info = (place.at("read") / "a").stat()
    assert info.st_size == 12345 and abs(info.st_mtime - told["LastModified"].timestamp()) < 1


@says(
    "Owner, group and mode are the same for all files and folders, as `-o uid=N,gid=N,umask=OCTAL` says, unless a program sets them.",
    "The number of links is always 1, also of folders.",
)
def test_owner_and_mode(place: Place, sandbox: Sandbox, tmp_path: Path) -> None:
    place.put("d/a")
    with mounted(
        sandbox, "s3://b", tmp_path / "mnt", "--writable", "-o", "uid=12,gid=34,umask=027", env=place.store.env()
    ):
        folder = tmp_path / "mnt" / place.prefix / "d"
        assert (folder / "a").stat().st_mode & 0o7777 == 0o640 and folder.stat().st_mode & 0o7777 == 0o750
        (folder / "made").write_text("text")
        for path in (folder, folder / "a", folder / "made"):
            assert (path.stat().st_uid, path.stat().st_gid, path.stat().st_nlink) == (12, 34, 1)


@says(
    "On the mount of a [folder](mount.md#a-folder-as-the-source), files and folders that are more private there are so here. A file that is made here with a more private mode than the usual one has it there, too."
)
def test_modes_of_a_folder(sandbox: Sandbox, tmp_path: Path) -> None:  # more of it: tests/security/test_mount_modes.py
    source = tmp_path / "source"
    (source / "closed").mkdir(parents=True)
    for name in ("private", "closed/inside"):
        (source / name).write_text("text")
    (source / "closed").chmod(0o700)
    (source / "private").chmod(0o600)
    with mounted(sandbox, source, tmp_path / "mnt"):
        assert (tmp_path / "mnt" / "closed").stat().st_mode & 0o7777 == 0o500
        assert (tmp_path / "mnt" / "private").stat().st_mode & 0o7777 == 0o400
    with mounted(sandbox, source, tmp_path / "mnt", "--writable"):
        for name, size in (("key", 10), ("large", 20_000_000)):
            with open(os.open(tmp_path / "mnt" / name, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as file:
                file.write(bytes(size))
            assert (source / name).stat().st_mode & 0o7777 == 0o600


@says(
    "With `--writable`, programs set modes, owners and times; the mount keeps them until it ends, and no other machine sees them.",
    "A file or folder belongs to the user who makes it. If root makes it, it belongs to the owner of the mount, unless its mode is another one than the usual.",
    "A file or folder that is made with another mode than the usual one has that mode, and the group of the process that makes it.",
    "A file that was written by way of the mount has the time of its last write, as on a disk, until the mount ends.",
    "A folder has the time when a program of the mount has made it, or has made, removed or renamed something in it; else it has that of the mount.",
)
def test_attributes_are_kept(place: Place) -> None:
    path = place.at("write") / "there"
    mounted_at = path.parent.stat().st_mtime_ns
    os.mkdir(path.parent / "later")
    assert mounted_at <= (path.parent / "later").stat().st_mtime_ns <= path.parent.stat().st_mtime_ns
    path.chmod(0o640)
    os.chown(path, 77, 78)
    os.utime(path, ns=(1_000_000_001, 2_000_000_002))
    info = path.stat()
    assert (info.st_mode & 0o7777, info.st_uid, info.st_gid) == (0o640, 77, 78)
    assert (info.st_atime_ns, info.st_mtime_ns) == (1_000_000_001, 2_000_000_002)
    assert (place.at("read") / "there").stat().st_mode & 0o7777 == 0o444
    os.close(os.open(place.at("write") / "private", os.O_CREAT | os.O_WRONLY, 0o600))
    os.mkdir(place.at("write") / "folder", 0o700)
    for name in ("private", "folder"):
        info = (place.at("write") / name).stat()
        assert info.st_mode & 0o077 == 0 and info.st_uid == os.geteuid()
    # The time of a file that is moved, or whose mode is set, is not that of the copy.
    with open(path.parent / "new", "wb", buffering=0) as file:
        file.write(b"1")
        written = os.fstat(file.fileno()).st_mtime_ns
    os.rename(path.parent / "new", path.parent / "moved")
    (path.parent / "moved").chmod(0o755)
    assert (path.parent / "moved").stat().st_mtime_ns == written
    os.utime(path.parent / "moved", (5, 5))
    with open(path.parent / "moved", "ab") as file:
        file.write(b"2")
    assert (path.parent / "moved").stat().st_mtime_ns >= written


@says(
    "With `--writable`, programs also set extended attributes, up to 4 KiB of each file or folder, and more is refused with `ENOSPC`; the mount keeps them until it ends.",
)
def test_extended_attributes_are_kept(place: Place) -> None:
    file, folder = place.at("write") / "there", place.at("write")
    for path in (file, folder):
        refused(lambda path=path: os.getxattr(path, "user.x"), errno.ENODATA)
        os.setxattr(path, "user.x", b"1")
        os.setxattr(path, "user.empty", b"", os.XATTR_CREATE)
        assert sorted(os.listxattr(path)) == ["user.empty", "user.x"] and os.getxattr(path, "user.x") == b"1"
        refused(lambda path=path: os.setxattr(path, "user.x", b"2", os.XATTR_CREATE), errno.EEXIST)
        refused(lambda path=path: os.setxattr(path, "user.y", b"2", os.XATTR_REPLACE), errno.ENODATA)
        os.setxattr(path, "user.x", b"22", os.XATTR_REPLACE)
        os.removexattr(path, "user.empty")
        refused(lambda path=path: os.removexattr(path, "user.empty"), errno.ENODATA)
        refused(lambda path=path: os.setxattr(path, "user.large", bytes(5000)), errno.ENOSPC)
        assert os.listxattr(path) == ["user.x"] and os.getxattr(path, "user.x") == b"22"
    os.rename(file, folder / "moved")
    assert os.getxattr(folder / "moved", "user.x") == b"22"
    os.remove(folder / "moved")
    (folder / "moved").write_bytes(b"another")
    assert os.listxattr(folder / "moved") == []


# ---- Freshness


@says(
    "Listings and lookups are valid for `--metadata-ttl`, also those that found nothing of a name.",
    "With `--metadata-ttl indefinite`, what was looked up is never asked for again.",
    "With `--metadata-ttl minimal`, what another program writes to the store is seen by the next open or look.",
)
def test_freshness(place: Place) -> None:
    assert not (place.at("once") / "late").exists() and (place.at("once") / "there").stat().st_size == 4
    assert not (place.at("read") / "late").exists() and (place.at("read") / "there").stat().st_size == 4
    place.put("late", b"1")
    place.put("there", b"longer")
    requests = 20
    for _ in range(requests):
        assert not (place.at("once") / "late").exists() and (place.at("once") / "there").stat().st_size == 4
    assert (place.at("read") / "late").read_bytes() == b"1" and (place.at("read") / "there").read_bytes() == b"longer"


# ---- Reading


@says(
    "A file that is open stays the version that was opened: a read gives its bytes or fails with `ESTALE`, never those of another version.",
    "After an object was replaced, another open gets the new version.",
)
def test_versions(place: Place) -> None:
    old, new = b"o" * 8_000_000, b"n" * 8_000_000
    place.put("large", old)
    with open(place.at("read") / "large", "rb", buffering=0) as file:
        assert os.pread(file.fileno(), 10, 0) == old[:10]
        place.put("large", new)
        stale = 0
        for at in range(0, len(old), 500_000):
            try:
                assert os.pread(file.fileno(), 1000, at) == old[at : at + 1000]
            except OSError as error:
                assert error.errno == errno.ESTALE
                stale += 1
        assert stale > 0
        assert (place.at("read") / "large").read_bytes() == new


@says("Reading a removed object that is still open fails with `ESTALE`, apart from what was read before.")
def test_removed(place: Place) -> None:
    body = random.Random(1).randbytes(40_000_000)
    place.put("large", body)
    with open(place.at("read") / "large", "rb", buffering=0) as file:
        assert os.pread(file.fileno(), 10, 0) == body[:10]
        place.delete("large")
        refused(lambda: os.pread(file.fileno(), 10, 39_000_000), errno.ESTALE)
        assert os.pread(file.fileno(), 10, 0) == body[:10]


@says(
    "Reading past the end gives no bytes.",
    "Any number of threads and processes read at any places at once.",
    "A file can be mapped into memory to be read.",
)
def test_reads(place: Place) -> None:
    body = random.Random(2).randbytes(5_000_001)
    place.put("large", body)
    path = place.at("read") / "large"
    with open(path, "rb", buffering=0) as file:
        assert os.pread(file.fileno(), 10, len(body)) == b"" and os.pread(file.fileno(), 10, len(body) + 10**9) == b""
        assert os.pread(file.fileno(), 10, len(body) - 3) == body[-3:]

        def read_some(seed: int) -> None:
            rng = random.Random(seed)
            for _ in range(20):
                at = rng.randrange(len(body))
                assert os.pread(file.fileno(), 5000, at) == body[at : at + 5000]

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(read_some, range(8)))
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
            assert mapped[4_000_000:4_000_100] == body[4_000_000:4_000_100]
    readers = [subprocess.Popen(["sha256sum", path], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert {reader.communicate()[0].split()[0] for reader in readers} == {hashlib.sha256(body).hexdigest()}


# ---- Writing


@says("Without `--writable`, whatever would change something is refused with `EROFS`.")
def test_read_only(place: Place) -> None:
    folder = place.at("read")
    for attempt in (
        lambda: (folder / "new").write_bytes(b"x"),
        lambda: open(folder / "there", "ab"),
        lambda: (folder / "new").mkdir(),
        lambda: os.remove(folder / "there"),
        lambda: os.rename(folder / "there", folder / "x"),
        lambda: os.truncate(folder / "there", 0),
        lambda: os.utime(folder / "there", (1, 1)),
        lambda: os.chmod(folder / "there", 0o777),
    ):
        refused(attempt, errno.EROFS)


@says(
    "A file becomes an object when the last program that writes it closes it; until then the store shows nothing of what was written.",
    "`close` returns when the store has the object. An empty file becomes one a moment later.",
    "The close of a process that has inherited the file is not the end of it, as long as the process that opened it has not closed it.",
)
def test_visible_at_close(place: Place) -> None:
    path = place.at("write") / "new"
    with open(path, "wb", buffering=0) as file, open(path, "r+b", buffering=0) as other:
        file.write(b"12345")
        subprocess.run(["true"], check=True, stdout=file)
        assert set(place.objects()) == {"there"} and path.stat().st_size == 5 and "new" in os.listdir(path.parent)
        file.close()
        assert set(place.objects()) == {"there"}
        other.write(b"67")
    assert place.objects()["new"] == b"67345"
    (place.at("write") / "empty").write_bytes(b"")
    wait_until(lambda: place.objects().get("empty") == b"", "the object")


@says("An object that was written appears whole or not at all.")
def test_whole_or_not(place: Place) -> None:
    body = random.Random(3).randbytes(20_000_000)
    sizes = set()
    with open(place.at("write") / "new", "wb", buffering=0) as file:
        for at in range(0, len(body), 1_000_000):
            file.write(body[at : at + 1_000_000])
            sizes.add(len(place.objects().get("new", b"")))
    assert sizes == {0} and place.objects()["new"] == body


@says(
    "Programs read, change, cut, extend and append to files in any order, also several programs one file, and see what the others have written at once.",
    "Gaps that no program has written read as zeros.",
)
def test_any_order(place: Place) -> None:
    path = place.at("write") / "there"
    with open(path, "r+b", buffering=0) as file, open(path, "ab", buffering=0) as other:
        other.write(b" and more")
        file.seek(5)
        assert file.read() == b"and more"
        os.pwrite(file.fileno(), b"T", 0)
        assert path.read_bytes() == b"Text and more"
        os.truncate(path, 8)
        other.write(b"!")
        os.pwrite(file.fileno(), b"end", 20)
        assert path.read_bytes() == b"Text and!" + bytes(11) + b"end"
    assert place.objects()["there"] == b"Text and!" + bytes(11) + b"end"
    os.truncate(path, 2)  # no program has it open: it is a new version at once
    assert place.objects()["there"] == b"Te"
    path.write_bytes(b"")
    path.write_bytes(b"again")
    assert place.objects()["there"] == b"again" and path.read_bytes() == b"again"


@says(
    "A file can be mapped into memory to be changed. Changes that are made there after the file was closed become an object when the mapping ends."
)
def test_mapped(place: Place) -> None:
    path = place.at("write") / "there"
    with open(path, "r+b") as file:
        mapped = mmap.mmap(file.fileno(), 4)
        mapped[0:1] = b"T"
    assert place.objects()["there"] == b"Text"
    mapped[3:4] = b"T"
    assert path.read_bytes() == b"TexT"
    mapped.close()
    wait_until(lambda: place.objects()["there"] == b"TexT", "the object")


@says(
    "`fsync` puts what was written on the disk of this machine. If the file was opened to be appended to, it also makes an object of it, at most each second. With `--publish-on-fsync TIME` it does so for all files, at most once in that time. To publish takes no more than a twentieth of the time.",
)
def test_fsync(place: Place, sandbox: Sandbox, tmp_path: Path) -> None:
    with open(place.at("write") / "new", "wb", buffering=0) as file:
        file.write(b"12345")
        os.fsync(file.fileno())
        assert set(place.objects()) == {"there"}
    with open(place.at("write") / "log", "ab", buffering=0) as file:
        file.write(b"1\n")
        os.fsync(file.fileno())
        assert place.objects()["log"] == b"1\n"
        file.write(b"2\n")
        os.fsync(file.fileno())
    assert place.objects()["log"] == b"1\n2\n"
    options = ("--writable", "--publish-on-fsync", "1h")
    with mounted(sandbox, "s3://b", tmp_path / "mnt", *options, env=place.store.env()):
        with open(tmp_path / "mnt" / place.prefix / "other", "wb", buffering=0) as file:
            file.write(b"1")
            os.fsync(file.fileno())
            assert place.objects()["other"] == b"1"
            file.write(b"2")
            os.fsync(file.fileno())
            assert place.objects()["other"] == b"1"
        assert place.objects()["other"] == b"12"


@says("An upload that fails makes `close` fail, or `write` or `fsync` before that.")
def test_errors_are_told(sandbox: Sandbox, store: Server, tmp_path: Path) -> None:
    with mounted(sandbox, "s3://b", tmp_path / "mnt", "--writable", "--timeout", "15s", env=store.env()):
        file = open(tmp_path / "mnt" / "new", "wb", buffering=0)
        file.write(b"1")
        freeze(store.process)
        try:
            refused(file.close, errno.EIO)
        finally:
            store.process.send_signal(signal.SIGCONT)


def left_files(sandbox: Sandbox) -> str:
    return sandbox.ok("mount", "--recover").out


@says(
    "A file never replaces an object that another machine has made, or has put in the place of the one that was opened: `close` fails with `ESTALE`. The other object stays, and once the mount has ended, `millrace mount --recover` lists what was written."
)
def test_first_come(place: Place, sandbox: Sandbox, tmp_path: Path) -> None:
    with mounted(sandbox, "s3://b", tmp_path / "mnt", "--writable", env=place.store.env()):
        folder = tmp_path / "mnt" / place.prefix
        new, old = open(folder / "new", "wb", buffering=0), open(folder / "there", "ab", buffering=0)
        for file in (new, old):
            file.write(b"mine")
        place.put("new", b"theirs")
        place.put("there", b"theirs")
        for file in (new, old):
            refused(file.close, errno.ESTALE)
        assert place.objects() == {"new": b"theirs", "there": b"theirs"}
        assert (folder / "new").read_bytes() == b"theirs" == (folder / "there").read_bytes()
        assert left_files(sandbox) == ""
    listed = left_files(sandbox)
    assert f"s3://b/{place.prefix}/new" in listed and f"s3://b/{place.prefix}/there" in listed
    copy = next(line for line in listed.splitlines() if "millrace cp" in line and "/new" in line).split()
    assert Path(copy[2]).read_bytes() == b"mine"


@says(
    "If a signal kills the process that writes a file, nothing of what it has written appears. A file that was synced, or opened to be appended to, is what it is on a disk.",
)
def test_killed(place: Place) -> None:
    script = """if True:
        import os, sys, time
        files = [open(f"{sys.argv[1]}/{name}", mode, buffering=0) for name, mode in (("new", "wb"), ("there", "r+b"), ("synced", "wb"), ("log", "ab"))]
        for file in files:
            file.write(b"written")
        os.fsync(files[2].fileno())
        print("written", flush=True)
        time.sleep(600)
    """
    folder = place.at("write")
    with subprocess.Popen([sys.executable, "-c", script, folder], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None and writer.stdout.readline() == "written\n"
        writer.kill()
    kept = {"there": b"text", "synced": b"written", "log": b"written"}
    wait_until(lambda: place.objects() == kept and not (folder / "new").exists(), "the end of the files")
    assert {name: (folder / name).read_bytes() for name in kept} == kept


WRITES_AND_HANGS = """
import sys, time
with open(sys.argv[1], "wb", buffering=0) as file:
    file.write(b"line of a log\\n" * int(sys.argv[2]))
    print("written", flush=True)
    time.sleep(600)
"""


@says(
    "The bytes of a file whose writer was killed stay in the staging folder, and `--log` names them. Once the mount has ended, `millrace mount --recover` lists them.",
)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("lines", [3, 1_000_000])
def test_bytes_of_a_killed_writer(
    place: Place, sandbox: Sandbox, tmp_path: Path, number: signal.Signals, lines: int
) -> None:
    log, folder = tmp_path / "log", tmp_path / "mnt" / place.prefix
    with mounted(sandbox, "s3://b", tmp_path / "mnt", "--writable", env=place.store.env(), log=log):
        command = [sys.executable, "-c", WRITES_AND_HANGS, folder / "train.log", str(lines)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None and writer.stdout.readline() == "written\n"
            writer.send_signal(number)
        wait_until(lambda: not (folder / "train.log").exists(), "the end of the file")
        assert f"{place.prefix}/train.log: its writer was killed" in log.read_text()
        (folder / "train.log").write_bytes(b"another one")
    assert place.objects() == {"there": b"text", "train.log": b"another one"}
    listed = left_files(sandbox)
    assert f"s3://b/{place.prefix}/train.log  " in listed
    assert "its writer was killed before it closed it, so it is no object, and may not be whole" in listed
    (copy,) = (line.split() for line in listed.splitlines() if "millrace cp" in line)
    assert Path(copy[2]).read_bytes() == b"line of a log\n" * lines and copy[2] in log.read_text()


@says(
    "If more than half of `--staging-size` is used, or it has no room for all of a file, the bytes of a file whose writer was killed do not stay. Files that earlier mounts have left in the staging folder count as used for this."
)
def test_killed_writers_leave_room(place: Place, sandbox: Sandbox, tmp_path: Path) -> None:
    log, folder = tmp_path / "log", tmp_path / "mnt" / place.prefix
    options = ("--writable", "--staging-size", "40MiB")
    with mounted(sandbox, "s3://b", tmp_path / "mnt", *options, env=place.store.env(), log=log):
        for name in "abc":  # 14 MB each
            command = [sys.executable, "-c", WRITES_AND_HANGS, folder / name, "1000000"]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
                assert writer.stdout is not None and writer.stdout.readline() == "written\n"
                writer.kill()
            wait_until(lambda name=name: not (folder / name).exists(), "the end of the file")
    assert "more than half of --staging-size is used" in log.read_text()
    for name, lines in (("larger", "5000000"), ("next", "1000000")):
        with mounted(sandbox, "s3://b", tmp_path / "mnt", *options, env=place.store.env(), log=log):
            command = [sys.executable, "-c", WRITES_AND_HANGS, folder / name, lines]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
                assert writer.stdout is not None and writer.stdout.readline() == "written\n"
                writer.kill()
            wait_until(lambda name=name: not (folder / name).exists(), "the end of the file")
    assert "more than half of --staging-size is used" in log.read_text()
    listed = left_files(sandbox)
    assert [name for name in ("a", "b", "c", "larger", "next") if f"{place.prefix}/{name}  " in listed] == ["a"]


@says(
    "A program was not killed if it ends because the reader of its pipe is gone (`SIGPIPE`), or its file is too large (`SIGXFSZ`). Its files become objects.",
)
def test_ended_by_its_own_signal(place: Place) -> None:
    folder = place.at("write")
    commands = ("yes | tee tee | head -1", "ulimit -f 1; exec dd if=/dev/zero of=dd bs=1024 count=1000")
    for command in commands:
        subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, check=False)
    wait_until(lambda: place.objects().keys() >= {"tee", "dd"}, "the files")
    assert place.objects()["tee"].startswith(b"y\ny\n") and place.objects()["dd"] == bytes(1024)


@says(
    "If another process shares the descriptor of a writer that was killed, its calls of `write`, `fsync` and `close` fail with `EIO`."
)
@pytest.mark.parametrize("mount", ["write", "stream"])
def test_killed_with_a_child(place: Place, mount: str) -> None:
    script = """if True:
        import os, sys, time
        fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
        os.write(fd, bytes(3000))
        if os.fork() > 0:
            print("written", flush=True)
            time.sleep(600)
        sys.stdin.readline()
        for attempt in (lambda: os.write(fd, b"more"), lambda: os.fsync(fd), lambda: os.close(fd)):
            try:
                attempt()
                print(0)
            except OSError as error:
                print(error.errno)
    """
    command = [sys.executable, "-c", script, place.at(mount) / "new"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdin is not None and writer.stdout is not None and writer.stdout.readline() == "written\n"
        writer.kill()
        writer.wait()
        wait_until(lambda: not (place.at(mount) / "new").exists(), "the end of the file")
        writer.stdin.write("go on\n")
        writer.stdin.close()
        assert [int(line) for line in writer.stdout] == [errno.EIO] * 3
    assert set(place.objects()) == {"there"}


@says(
    "A file for which `--staging-size` has no room is written from its beginning to its end, and its first part may be written again. Reads and other writes fail with `ENOSPC`.",
)
def test_no_room(place: Place, sandbox: Sandbox, tmp_path: Path) -> None:
    body = random.Random(4).randbytes(70_000_000)
    options = ("--writable", "--staging-size", "24MiB", "--log", tmp_path / "log")
    with mounted(sandbox, "s3://b", tmp_path / "mnt", *options, env=place.store.env()):
        path = tmp_path / "mnt" / place.prefix / "new"
        with open(path, "wb", buffering=0) as file:
            for at in range(0, len(body), 1_000_000):
                file.write(body[at : at + 1_000_000])
            refused(lambda: os.pwrite(file.fileno(), b"x", 40_000_000), errno.ENOSPC)
            os.pwrite(file.fileno(), b"header", 0)
        assert place.objects()["new"] == b"header" + body[6:]
        with open(path, "r+b", buffering=0) as file:
            os.pwrite(file.fileno(), b"x", 40_000_000)
            assert (
                os.pread(file.fileno(), 3, 39_999_999)
                == body[39_999_999:40_000_000] + b"x" + body[40_000_001:40_000_002]
            )


@says(
    "With `--no-overwrite`, the contents of objects stay: to open one to be written, to cut one and to rename a file over one is refused with `EEXIST`."
)
def test_no_overwriting(place: Place) -> None:
    for mode in ("wb", "ab", "r+b"):
        refused(lambda mode=mode: open(place.at("keep") / "there", mode), errno.EEXIST)
    refused(lambda: os.truncate(place.at("keep") / "there", 0), errno.EEXIST)
    with open(place.at("keep") / "new", "wb", buffering=0) as file:
        file.write(b"mine")
        os.pwrite(file.fileno(), b"M", 0)
    refused(lambda: os.rename(place.at("keep") / "new", place.at("keep") / "there"), errno.EEXIST)
    assert place.objects() == {"new": b"Mine", "there": b"text"}


# ---- Without a staging folder


@says(
    "A file is written from its beginning to its end, by one program; a write at another place is refused with `EINVAL`, and then nothing of the file appears.",
    "While it is written, a file cannot be read: to open it is refused with `EBUSY`, and so is to remove or to rename it.",
    "A file becomes an object by `close` or `fsync`; what is written after that is refused with `EIO`.",
    "A file that is opened with `O_TRUNC` replaces the object when it is closed, and others see the old one until then.",
    "To open an object without `O_TRUNC`, or to append to it, is refused with `EROFS`. To cut or extend one is refused with `EOPNOTSUPP`, and to rename a folder that is not empty with `EXDEV`.",
)
def test_streams(place: Place) -> None:
    folder = place.at("stream")
    fd = os.open(folder / "new", os.O_CREAT | os.O_WRONLY)
    os.write(fd, b"0123456789")
    refused(lambda: os.pwrite(fd, b"x", 3), errno.EINVAL)
    refused(lambda: os.close(fd), errno.EINVAL)
    assert set(place.objects()) == {"there"}
    with open(folder / "synced", "wb", buffering=0) as file:
        file.write(b"12345")
        assert (folder / "synced").stat().st_size == 5
        for attempt in (
            lambda: open(folder / "synced", "rb"),
            lambda: os.remove(folder / "synced"),
            lambda: os.rename(folder / "synced", folder / "x"),
        ):
            refused(attempt, errno.EBUSY)
        os.fsync(file.fileno())
        assert place.objects()["synced"] == b"12345"
        refused(lambda: file.write(b"6"), errno.EIO)
    with open(folder / "there", "wb", buffering=0) as file:
        file.write(b"new")
        assert place.objects()["there"] == b"text" and (place.at("read") / "there").read_bytes() == b"text"
    assert place.objects()["there"] == b"new" and (folder / "there").read_bytes() == b"new"
    for mode in ("ab", "r+b"):
        refused(lambda mode=mode: open(folder / "there", mode), errno.EROFS)
    for size in (0, 100):
        refused(lambda size=size: os.truncate(folder / "there", size), errno.EOPNOTSUPP)
    place.put("d/a")
    refused(lambda: os.rename(folder / "d", folder / "e"), errno.EXDEV)


# ---- Removing, folders, renaming


@says(
    "A removed file is gone from the store when `unlink` returns. Programs that have it open read and write it as before; so they do with a file in whose place another one was renamed.",
)
def test_unlink(place: Place) -> None:
    folder = place.at("write")
    os.remove(folder / "there")
    assert place.objects() == {}
    body = random.Random(5).randbytes(3_000_000)
    for name in ("read", "replaced"):
        place.put(name, body)
    with (
        open(folder / "read", "rb", buffering=0) as reader,
        open(folder / "replaced", "rb", buffering=0) as replaced,
        open(folder / "new", "w+b", buffering=0) as new,
    ):
        new.write(b"1")
        os.remove(folder / "new")
        os.remove(folder / "read")
        (folder / "other").write_bytes(b"other")
        os.rename(folder / "other", folder / "replaced")
        assert os.listdir(folder) == ["replaced"] and place.objects() == {"replaced": b"other"}
        assert reader.read(len(body)) == body and replaced.read(len(body)) == body
        new.write(b"2")
        assert os.pread(new.fileno(), 10, 0) == b"12" and os.fstat(new.fileno()).st_nlink == 0
    assert place.objects() == {"replaced": b"other"}


@says(
    "A folder that `mkdir` makes is known to this mount alone until a file lies in it.",
    "A folder stays in this mount when its last file is removed by it, until `rmdir` or the end of the mount.",
    "Only an empty folder can be removed: others are refused with `ENOTEMPTY`.",
)
def test_folders(place: Place) -> None:
    (place.at("write") / "d").mkdir()
    assert set(place.objects()) == {"there"} and not (place.at("read") / "d").exists()
    (place.at("write") / "d" / "f").write_bytes(b"1")
    assert (place.at("read") / "d" / "f").read_bytes() == b"1"
    refused((place.at("write") / "d").rmdir, errno.ENOTEMPTY)
    os.remove(place.at("write") / "d" / "f")
    assert (place.at("write") / "d").is_dir() and not (place.at("read") / "d").exists()
    (place.at("write") / "d").rmdir()
    assert not (place.at("write") / "d").exists()


@says(
    "A file is renamed by a copy that the store makes and the removal of the source, so another program may see both for a moment.",
    "If a file is renamed while it is written, the bytes so far become an object then, and the rest when it is closed, under its new name.",
    "A folder is renamed file by file: another program may see some of them here and some there, and an error leaves them so.",
)
def test_renaming(place: Place) -> None:
    folder = place.at("write")
    place.put("d/a", b"1")
    os.rename(folder / "d" / "a", folder / "d" / "b")
    assert place.objects() == {"d/b": b"1", "there": b"text"}
    os.rename(folder / "d" / "b", folder / "there")
    assert place.objects() == {"there": b"1"}
    place.put("e/a", b"2")
    place.put("e/f/b", b"3")
    (folder / "e" / "empty").mkdir()
    with open(folder / "e" / "open", "wb", buffering=0) as file, open(folder / "e" / "a", "rb", buffering=0) as reader:
        file.write(b"4")
        os.rename(folder / "e", folder / "g")
        assert reader.read(10) == b"2"
        file.write(b"5")
    assert place.objects() == {"g/a": b"2", "g/f/b": b"3", "g/open": b"45", "there": b"1"}
    assert sorted(os.listdir(folder)) == ["d", "g", "there"] and sorted(os.listdir(folder / "g")) == [
        "a",
        "empty",
        "f",
        "open",
    ]
    assert (folder / "g" / "f" / "b").read_bytes() == b"3"


@says(
    "If another program replaces the source while it is renamed, the program gets `EBUSY`, and both files stay.",
)
def test_renaming_what_is_replaced(sandbox: Sandbox, tmp_path: Path) -> None:
    # The same rename twice: the first tells how often it looks at the source, the last time before its removal.
    looks = 0
    for replaced in (False, True):
        root, log = tmp_path / f"root{replaced}", tmp_path / f"log{replaced}"
        (root / "b").mkdir(parents=True)
        (root / "b" / "from").write_bytes(b"1")
        faults = (f"HEAD b/from new-etag after={looks - 1}",) if replaced else ()
        with logged_devstore(sandbox, root, log, faults=faults) as store:
            options = ("--writable", "--metadata-ttl", "minimal")
            with mounted(sandbox, "s3://b", tmp_path / f"mnt{replaced}", *options, env=store.env()) as _:
                rename = functools.partial(
                    os.rename, tmp_path / f"mnt{replaced}" / "from", tmp_path / f"mnt{replaced}" / "to"
                )
                if replaced:
                    refused(rename, errno.EBUSY)
                else:
                    rename()
                    looks = sum(
                        "HeadObject" in line and "b/from" in line and "rclonelink" not in line
                        for line in log.read_text().splitlines()
                    )
                    assert looks >= 2
            names = {path.name for path in (root / "b").iterdir()}
            assert names == ({"from", "to"} if replaced else {"to"})


@says(
    "With `--no-overwrite`, if another program makes the target while a file is renamed, and the store knows the condition, that object stays, and the rename is refused.",
    "If another program has replaced a file since this mount looked, and the store knows the condition, `unlink` is refused with `EBUSY` once, and the new object stays.",
)
def test_what_others_make_meanwhile(sandbox: Sandbox, tmp_path: Path) -> None:
    # The same rename twice: the first tells how often it looks at the target before it copies.
    looks = 0
    for made in (False, True):
        root, log, folder = tmp_path / f"root{made}", tmp_path / f"log{made}", tmp_path / f"mnt{made}"
        (root / "b").mkdir(parents=True)
        for name in ("from", "kept", "replaced", *(("to",) if made else ())):
            (root / "b" / name).write_bytes(name.encode())
        faults = (
            "DELETE b/kept new-etag count=1",  # as if it was replaced after the look
            "DELETE b/replaced new-etag count=1",
            *((f"HEAD b/to status=404 count={looks}",) if made else ()),  # as if it came right after the look
        )
        with logged_devstore(sandbox, root, log, faults=faults) as store:
            options = ("--writable", "--no-overwrite", "--metadata-ttl", "minimal")
            with mounted(sandbox, "s3://b", folder, *options, env=store.env()) as _:
                rename = functools.partial(os.rename, folder / "from", folder / "to")
                if not made:
                    rename()
                    looks = sum(
                        "HeadObject" in line and "b/to" in line and "rclonelink" not in line
                        for line in log.read_text().splitlines()
                    )
                    continue
                refused(rename, errno.EEXIST)
                refused(functools.partial(os.rename, folder / "kept", folder / "copy"), errno.EBUSY)
                refused(functools.partial(os.remove, folder / "replaced"), errno.EBUSY)
                there = {path.name: path.read_bytes() for path in (root / "b").iterdir()}
                assert there == {name: name.encode() for name in ("from", "to", "kept", "replaced")} | {"copy": b"kept"}
                os.remove(folder / "replaced")
                assert not (root / "b" / "replaced").exists()


@says("If the store does not copy by itself, a file that is renamed comes through this machine.")
def test_renaming_in_a_folder(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "a").write_bytes(b"1")
    with mounted(sandbox, tmp_path / "below", tmp_path / "mnt", "--writable"):
        os.rename(tmp_path / "mnt" / "a", tmp_path / "mnt" / "b")
        assert (tmp_path / "mnt" / "b").read_bytes() == b"1" and os.listdir(tmp_path / "below") == ["b"]


# ---- Symbolic links


@says(
    "With `--writable`, a program makes symbolic links. A link is an object `NAME.rclonelink` whose bytes are its target, as rclone writes it with `--links`.",
    "With `--writable` or `--links`, objects `NAME.rclonelink` of 1 to 4,095 bytes are links, also those of other machines; else they are files of that name.",
)
def test_links(place: Place, sandbox: Sandbox, tmp_path: Path) -> None:
    folder = place.at("write")
    os.mkdir(folder / "d")
    os.symlink("../there", folder / "d" / "link")
    os.symlink("d", folder / "to-folder")
    os.symlink("nothing/\u00e9 ", folder / "dangling")
    assert place.objects() == {
        "there": b"text",
        "d/link.rclonelink": b"../there",
        "to-folder.rclonelink": b"d",
        "dangling.rclonelink": "nothing/\u00e9 ".encode(),
    }
    place.put("theirs.rclonelink", b"other")
    assert os.readlink(folder / "theirs") == "other"
    place.put("theirs.rclonelink", b"there")
    place.put("empty.rclonelink", b"")
    place.put("long.rclonelink", b"x" * 4096)
    names = ["d", "dangling", "empty.rclonelink", "long.rclonelink", "theirs", "there", "to-folder"]
    with mounted(sandbox, "s3://b", tmp_path / "mnt", "--links", env=place.store.env()):
        for root in (folder, tmp_path / "mnt" / place.prefix):
            assert sorted(os.listdir(root)) == names
            links = sorted(entry.name for entry in os.scandir(root) if entry.is_symlink())
            assert links == ["dangling", "theirs", "to-folder"]
            info = os.lstat(root / "theirs")
            assert (stat.S_ISLNK(info.st_mode), stat.S_IMODE(info.st_mode), info.st_size) == (True, 0o777, 5)
            assert (root / "theirs").read_bytes() == b"text" == (root / "to-folder" / "link").read_bytes()
            assert os.readlink(root / "dangling") == "nothing/\u00e9 " and not (root / "dangling").exists()
            refused(lambda root=root: os.lstat(root / "theirs.rclonelink"), errno.ENOENT)
        refused(lambda: os.symlink("x", tmp_path / "mnt" / place.prefix / "link"), errno.EROFS)
    assert (place.at("read") / "theirs.rclonelink").read_bytes() == b"there"
    assert not os.path.lexists(place.at("read") / "theirs")


@says(
    "A link is renamed and removed like a file, and a link in whose place a file is renamed is gone. So is a file in whose place a link is renamed."
)
@pytest.mark.parametrize("mount", ["write", "stream"])
def test_links_are_names(place: Place, mount: str) -> None:
    folder = place.at(mount)
    os.symlink("there", folder / "a")
    os.rename(folder / "a", folder / "b")
    assert os.readlink(folder / "b") == "there" and sorted(os.listdir(folder)) == ["b", "there"]
    refused(lambda: os.symlink("x", folder / "b"), errno.EEXIST)
    refused(lambda: os.symlink("x", folder / "there"), errno.EEXIST)
    refused(lambda: os.mkdir(folder / "b"), errno.EEXIST)
    refused(lambda: os.rmdir(folder / "b"), errno.ENOTDIR)
    os.symlink("b", folder / "new")
    os.replace(folder / "new", folder / "b")
    assert os.readlink(folder / "b") == "b"
    (folder / "file").write_bytes(b"file")
    os.replace(folder / "file", folder / "b")
    assert not (folder / "b").is_symlink() and (folder / "b").read_bytes() == b"file"
    assert place.objects() == {"there": b"text", "b": b"file"}
    os.symlink("there", folder / "new")
    with open(folder / "b", "rb") as file:
        os.replace(folder / "new", folder / "b")
        assert mount == "stream" or file.read() == b"file"
    assert os.readlink(folder / "b") == "there" and place.objects() == {"there": b"text", "b.rclonelink": b"there"}
    os.remove(folder / "b")
    assert os.listdir(folder) == ["there"] and place.objects() == {"there": b"text"}


@says("A folder is renamed with the links in it, and it is not empty while a link lies in it.")
def test_links_in_a_folder(place: Place) -> None:
    folder = place.at("write")
    os.mkdir(folder / "a")
    os.symlink("x", folder / "a" / "link")
    refused(lambda: os.rmdir(folder / "a"), errno.ENOTEMPTY)
    os.rename(folder / "a", folder / "b")
    assert os.readlink(folder / "b" / "link") == "x" and not (folder / "a").exists()
    shutil.rmtree(folder / "b")
    assert place.objects() == {"there": b"text"}


@says("With `--writable --no-links`, programs see such objects as files, and make no symbolic links: `EPERM`.")
@pytest.mark.parametrize("staging", [(), ("--no-staging",)], ids=["staging", "stream"])
def test_a_mount_without_links(place: Place, sandbox: Sandbox, tmp_path: Path, staging: tuple[str, ...]) -> None:
    place.put("link.rclonelink", b"there")
    options = ("--writable", "--no-links", *staging)
    with mounted(sandbox, "s3://b", tmp_path / "mnt", *options, env=place.store.env()):
        folder = tmp_path / "mnt" / place.prefix
        assert (folder / "link.rclonelink").read_bytes() == b"there"
        refused(lambda: os.symlink("there", folder / "new"), errno.EPERM)
        (folder / "other.rclonelink").write_bytes(b"other")
        os.rename(folder / "other.rclonelink", folder / "link.rclonelink")
        assert sorted(os.listdir(folder)) == ["link.rclonelink", "there"]
    assert place.objects() == {"there": b"text", "link.rclonelink": b"other"}


@says("If a file or folder has the name of a link, it is seen and the link is not, until it is removed.")
def test_links_give_way(place: Place) -> None:
    for name in ("file.rclonelink", "folder.rclonelink", "file", "folder/a"):
        place.put(name)
    folder = place.at("write")
    assert sorted(os.listdir(folder)) == ["file", "folder", "there"]
    assert not (folder / "file").is_symlink() and (folder / "file").is_file()
    assert not (folder / "folder").is_symlink() and (folder / "folder").is_dir()
    os.remove(folder / "file")
    assert os.readlink(folder / "file") == "text"
    place.put("file")
    os.symlink("new", folder / "link")
    os.rename(folder / "link", folder / "file")  # which replaces both
    assert os.readlink(folder / "file") == "new" and "file" not in place.objects()
    with open(folder / "new", "wb") as file:
        place.put("new.rclonelink")  # by another machine
        files = [entry.name for entry in os.scandir(folder) if entry.is_file(follow_symlinks=False)]
        assert sorted(files) == ["new", "there"]
        file.write(b"1")
    assert (folder / "new").read_bytes() == b"1" and sorted(os.listdir(folder)) == ["file", "folder", "new", "there"]


@says("The kernel follows a link as on a disk, so a link may lead out of the mount, to nothing, or to itself: `ELOOP`.")
@pytest.mark.parametrize("mount", ["write", "stream"])
def test_where_links_lead(place: Place, tmp_path: Path, mount: str) -> None:
    folder = place.at(mount)
    (tmp_path / "outside").write_bytes(b"outside")
    os.symlink(tmp_path / "outside", folder / "absolute")
    os.symlink(os.path.relpath(tmp_path / "outside", folder), folder / "relative")
    assert (folder / "absolute").read_bytes() == b"outside" == (folder / "relative").read_bytes()
    os.symlink("itself", folder / "itself")
    refused(lambda: (folder / "itself").read_bytes(), errno.ELOOP)
    os.symlink("other", folder / "one")
    os.symlink("one", folder / "other")
    refused(lambda: os.stat(folder / "one"), errno.ELOOP)
    os.symlink("nothing", folder / "dangling")
    refused(lambda: (folder / "dangling").read_bytes(), errno.ENOENT)
    longest = "x/" * 2047 + "y"
    os.symlink(longest, folder / "longest")
    assert os.readlink(folder / "longest") == longest and os.lstat(folder / "longest").st_size == 4095
    refused(lambda: os.symlink(longest + "z", folder / "longer"), errno.ENAMETOOLONG)


@says("If the bytes of such an object are no path, since one of them is zero, `readlink` fails with `EIO`.")
def test_what_no_link_holds(place: Place) -> None:
    place.put("zero.rclonelink", b"there\0nothing")
    refused(lambda: os.readlink(place.at("write") / "zero"), errno.EIO)
    os.remove(place.at("write") / "zero")
    assert place.objects() == {"there": b"text"}


@says("With `--no-overwrite`, links are made and removed, and neither a link nor a file replaces anything: `EEXIST`.")
def test_links_that_stay(place: Place) -> None:
    folder = place.at("keep")
    os.symlink("there", folder / "a")
    os.symlink("a", folder / "b")
    for source, target in (("b", "a"), ("b", "there"), ("there", "a")):
        refused(lambda source=source, target=target: os.replace(folder / source, folder / target), errno.EEXIST)
    os.rename(folder / "b", folder / "c")
    os.remove(folder / "c")
    assert place.objects() == {"there": b"text", "a.rclonelink": b"there"}


@says(
    "Where there are links, no file whose name ends with `.rclonelink` is made or changed: `EINVAL`. A link has a name of up to 244 bytes: `ENAMETOOLONG`.",
    "If there is a file `NAME.rclonelink`, it stays: to make a link `NAME`, or to rename one to it, is refused with `EEXIST`.",
)
@pytest.mark.parametrize("mount", ["write", "stream"])
def test_names_of_links(place: Place, mount: str) -> None:
    folder = place.at(mount)
    refused(lambda: (folder / "a.rclonelink").write_bytes(b"x"), errno.EINVAL)
    refused(lambda: os.symlink("x", folder / "a.rclonelink"), errno.EINVAL)
    refused(lambda: os.rename(folder / "there", folder / "a.rclonelink"), errno.EINVAL)
    os.symlink("x", folder / ("n" * 244))
    refused(lambda: os.symlink("x", folder / ("n" * 245)), errno.ENAMETOOLONG)
    assert sorted(os.listdir(folder)) == ["n" * 244, "there"]
    place.put("empty.rclonelink", b"")
    place.put("long.rclonelink", b"x" * 4096)
    for name in ("empty", "long"):
        refused(lambda name=name: (folder / f"{name}.rclonelink").write_bytes(b"x"), errno.EINVAL)
        refused(lambda name=name: os.symlink("x", folder / name), errno.EEXIST)
        refused(lambda name=name: os.rename(folder / ("n" * 244), folder / name), errno.EEXIST)
        place.put(name)  # a file of the name that the link would get
        refused(lambda name=name: os.rename(folder / ("n" * 244), folder / name), errno.EEXIST)
        os.remove(folder / name)
    assert {name: len(data) for name, data in place.objects().items()} == {
        "there": 4,
        "n" * 244 + ".rclonelink": 1,
        "empty.rclonelink": 0,
        "long.rclonelink": 4096,
    }
    if mount == "write":
        refused(lambda: os.truncate(folder / "long.rclonelink", 10), errno.EINVAL)
        refused(lambda: os.truncate(folder / "empty.rclonelink", 10), errno.EINVAL)
    os.rename(folder / "long.rclonelink", folder / "long")
    assert (folder / "long").read_bytes() == b"x" * 4096
    os.remove(folder / "empty.rclonelink")
    (folder / "d").mkdir()
    os.rename(folder / "d", folder / "d.rclonelink")
    assert sorted(os.listdir(folder)) == ["d.rclonelink", "long", "n" * 244, "there"]


@says("A link belongs to the user who makes it, and its owner and times can be set until the mount ends.")
def test_owners_of_links(place: Place) -> None:
    link = place.at("write") / "link"
    os.symlink("nothing", link)
    os.utime(link, (1_000_000_000, 1_100_000_000), follow_symlinks=False)
    assert (os.lstat(link).st_mtime, os.lstat(link).st_uid) == (1_100_000_000, os.getuid())
    if os.geteuid() == 0:
        os.lchown(link, 5, 6)
        assert (os.lstat(link).st_uid, os.lstat(link).st_gid) == (5, 6)
    assert os.lstat(link).st_mtime == 1_100_000_000


# ---- What there is not


@says(
    "There are no hard links, devices or named pipes: making one is refused.",
    "Without `--writable` there are no extended attributes, and no mount has access lists (ACLs): a program gets `EOPNOTSUPP`.",
    "Locks of `flock` and `fcntl` hold between the programs of one mount, and say nothing to other machines.",
)
def test_what_there_is_not(place: Place) -> None:
    folder = place.at("write")
    refused(lambda: os.link(folder / "there", folder / "link"), errno.EPERM)
    refused(lambda: os.mkfifo(folder / "fifo"), errno.EPERM)
    refused(lambda: os.getxattr(place.at("read") / "there", "user.x"), errno.EOPNOTSUPP)
    refused(lambda: os.getxattr(folder / "there", "system.posix_acl_access"), errno.EOPNOTSUPP)
    with (
        open(folder / "there", "rb") as one,
        open(folder / "there", "rb") as two,
        open(place.at("keep") / "there", "rb") as other,
    ):
        fcntl.flock(one, fcntl.LOCK_EX)
        refused(lambda: fcntl.flock(two, fcntl.LOCK_EX | fcntl.LOCK_NB), errno.EWOULDBLOCK)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
