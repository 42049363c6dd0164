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
    "over": ("--metadata-ttl", "minimal", "--writable", "--allow-overwrite"),
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
    for name in ("test_errnos", "test_mount_failures", "test_handled_signals"):  # which quote some of them
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
    # What is in the way of rmdir is seen, and can be removed.
    refused((place.at("write") / "old").rmdir, errno.ENOTEMPTY)
    refused(lambda: os.rename(place.at("write") / "old", place.at("write") / "new"), errno.EXDEV)
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
    "All files and folders have one owner, one group and one mode, which `-o uid=N,gid=N,umask=OCTAL` set.",
    "The number of links is always 1, also of folders.",
)
def test_owner_and_mode(place: Place, sandbox: Sandbox, tmp_path: Path) -> None:
    place.put("d/a")
    with mounted(
        sandbox, "s3://b", tmp_path / "mnt", "--writable", "-o", "uid=12,gid=34,umask=027", env=place.store.env()
    ):
        folder = tmp_path / "mnt" / place.prefix / "d"
        assert (folder / "a").stat().st_mode & 0o7777 == 0o640 and folder.stat().st_mode & 0o7777 == 0o750
        for path in (folder, folder / "a"):
            assert (path.stat().st_uid, path.stat().st_gid, path.stat().st_nlink) == (12, 34, 1)


@says(
    "On the mount of a [folder](mount.md#a-folder-as-the-source), files and folders that are more private there are so here."
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


@says(
    "Modes, owners and times of objects cannot be changed: a program is told `EPERM`.",
    "Setting the mode or owner that a file has already succeeds.",
)
def test_attributes_stay(place: Place) -> None:
    path = place.at("write") / "there"
    refused(lambda: path.chmod(0o600), errno.EPERM)
    refused(lambda: os.utime(path, (1, 1)), errno.EPERM)
    refused(lambda: os.chown(path, 77, 77), errno.EPERM)
    path.chmod(path.stat().st_mode & 0o7777)
    os.chown(path, path.stat().st_uid, path.stat().st_gid)


# ---- Freshness


@says(
    "What was listed or looked up is believed for `--metadata-ttl`, and so is that there is nothing of a name.",
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
    "A new file is written from its beginning to its end; a write at another place is refused with `EINVAL`, and then nothing of the file appears."
)
def test_out_of_order(place: Place) -> None:
    fd = os.open(place.at("write") / "new", os.O_CREAT | os.O_WRONLY)
    os.write(fd, b"0123456789")
    refused(lambda: os.pwrite(fd, b"x", 3), errno.EINVAL)
    refused(lambda: os.close(fd), errno.EINVAL)
    assert set(place.objects()) == {"there"}


@says(
    "A file becomes an object when the process that created it closes it, or by `fsync`; until then the store shows nothing of it.",
    "While a file is being written, its mount shows it with its size so far, and to open it is refused with `EBUSY`.",
    "What is written after `fsync` has made a file an object is refused with `EIO`.",
)
def test_visible_at_close(place: Place) -> None:
    path = place.at("write") / "new"
    with open(path, "wb", buffering=0) as file:
        file.write(b"12345")
        subprocess.run(["true"], check=True, stdout=file)  # a child's end is not the end of the file
        assert set(place.objects()) == {"there"}
        assert path.stat().st_size == 5 and "new" in os.listdir(path.parent)
        refused(lambda: open(path, "rb"), errno.EBUSY)
    assert place.objects()["new"] == b"12345"
    with open(path.parent / "synced", "wb", buffering=0) as file:
        file.write(b"12345")
        os.fsync(file.fileno())
        assert place.objects()["synced"] == b"12345"
        refused(lambda: file.write(b"6"), errno.EIO)


@says("An object that was written appears whole or not at all.")
def test_whole_or_not(place: Place) -> None:
    body = random.Random(3).randbytes(20_000_000)
    sizes = set()
    with open(place.at("write") / "new", "wb", buffering=0) as file:
        for at in range(0, len(body), 1_000_000):
            file.write(body[at : at + 1_000_000])
            sizes.add(len(place.objects().get("new", b"")))
    assert sizes == {0} and place.objects()["new"] == body


@says("Errors of an upload are told by `write`, `fsync` or `close`.")
def test_errors_are_told(sandbox: Sandbox, store: Server, tmp_path: Path) -> None:
    with mounted(sandbox, "s3://b", tmp_path / "mnt", "--writable", "--timeout", "15s", env=store.env()):
        file = open(tmp_path / "mnt" / "new", "wb", buffering=0)
        file.write(b"1")
        freeze(store.process)
        try:
            refused(file.close, errno.EIO)
        finally:
            store.process.send_signal(signal.SIGCONT)


@says("If the process that writes a file is killed by a signal, nothing of the file appears.")
def test_killed(place: Place) -> None:
    script = "import sys, time; f = open(sys.argv[1], 'wb', buffering=0); f.write(bytes(3000)); print('written', flush=True); time.sleep(600)"
    with subprocess.Popen(
        [sys.executable, "-c", script, place.at("write") / "new"], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None and writer.stdout.readline() == "written\n"
        writer.kill()
    wait_until(lambda: not (place.at("write") / "new").exists(), "the end of the file")
    assert set(place.objects()) == {"there"}


@says(
    "Another process that shares the descriptor of a writer that was killed is told `EIO` by `write`, `fsync` and `close`."
)
def test_killed_with_a_child(place: Place) -> None:
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
    command = [sys.executable, "-c", script, place.at("write") / "new"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdin is not None and writer.stdout is not None and writer.stdout.readline() == "written\n"
        writer.kill()
        writer.wait()
        wait_until(lambda: not (place.at("write") / "new").exists(), "the end of the file")
        writer.stdin.write("go on\n")
        writer.stdin.close()
        assert [int(line) for line in writer.stdout] == [errno.EIO] * 3
    assert set(place.objects()) == {"there"}


@says("A new file never replaces an object that another program has made in the meantime: `close` is told `EEXIST`.")
def test_first_come(place: Place) -> None:
    file = open(place.at("write") / "new", "wb", buffering=0)
    file.write(b"mine")
    place.put("new", b"theirs")
    refused(file.close, errno.EEXIST)
    assert place.objects()["new"] == b"theirs"


@says(
    "Without `--allow-overwrite`, opening an object to be written is refused with `EEXIST`.",
    "With `--allow-overwrite`, a file that is opened with `O_TRUNC` replaces the object when it is closed, and others see the old one until then.",
    "Objects are not changed in part: with `--allow-overwrite`, opening one without `O_TRUNC` to be written, or to append to it, is refused with `EROFS`.",
    "Cutting or extending a file is refused with `EOPNOTSUPP`.",
)
def test_overwriting(place: Place) -> None:
    for mode in ("wb", "ab", "r+b"):
        refused(lambda mode=mode: open(place.at("write") / "there", mode), errno.EEXIST)
    with open(place.at("over") / "there", "wb", buffering=0) as file:
        file.write(b"new")
        assert place.objects()["there"] == b"text" and (place.at("read") / "there").read_bytes() == b"text"
    assert place.objects()["there"] == b"new" and (place.at("over") / "there").read_bytes() == b"new"
    for mode in ("ab", "r+b"):
        refused(lambda mode=mode: open(place.at("over") / "there", mode), errno.EROFS)
    for size in (0, 100):
        refused(lambda size=size: os.truncate(place.at("over") / "there", size), errno.EOPNOTSUPP)


# ---- Removing, folders, renaming


@says("A removed file is gone from the store when `unlink` returns.")
def test_unlink(place: Place) -> None:
    os.remove(place.at("write") / "there")
    assert place.objects() == {}


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
    "Renaming over an object needs `--allow-overwrite`; else it is refused with `EEXIST`.",
    "A folder that is not empty is not renamed: the program is told `EXDEV`, and `mv` copies it then.",
)
def test_renaming(place: Place) -> None:
    place.put("d/a", b"1")
    os.rename(place.at("write") / "d" / "a", place.at("write") / "d" / "b")
    assert place.objects() == {"d/b": b"1", "there": b"text"}
    refused(lambda: os.rename(place.at("write") / "d" / "b", place.at("write") / "there"), errno.EEXIST)
    os.rename(place.at("over") / "d" / "b", place.at("over") / "there")
    assert place.objects() == {"there": b"1"}
    place.put("e/a", b"2")
    refused(lambda: os.rename(place.at("write") / "e", place.at("write") / "f"), errno.EXDEV)
    subprocess.run(["mv", place.at("write") / "e", place.at("write") / "f"], check=True)
    assert place.objects() == {"f/a": b"2", "there": b"1"}


@says(
    "If another program replaces the source while it is renamed, the program is told `EBUSY`, and both files stay.",
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
                    looks = sum("HeadObject" in line and "b/from" in line for line in log.read_text().splitlines())
                    assert looks >= 2
            names = {path.name for path in (root / "b").iterdir()}
            assert names == ({"from", "to"} if replaced else {"to"})


@says(
    "If another program makes the target while a file is renamed, and the store knows the condition, that object stays, and the rename is refused.",
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
            with mounted(sandbox, "s3://b", folder, "--writable", "--metadata-ttl", "minimal", env=store.env()) as _:
                rename = functools.partial(os.rename, folder / "from", folder / "to")
                if not made:
                    rename()
                    looks = sum("HeadObject" in line and "b/to" in line for line in log.read_text().splitlines())
                    continue
                refused(rename, errno.EEXIST)
                refused(functools.partial(os.rename, folder / "kept", folder / "copy"), errno.EBUSY)
                refused(functools.partial(os.remove, folder / "replaced"), errno.EBUSY)
                there = {path.name: path.read_bytes() for path in (root / "b").iterdir()}
                assert there == {name: name.encode() for name in ("from", "to", "kept", "replaced")} | {"copy": b"kept"}
                os.remove(folder / "replaced")
                assert not (root / "b" / "replaced").exists()


@says("A file of a store that does not copy by itself is not renamed: the program is told `EXDEV`.")
def test_renaming_in_a_folder(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "a").write_bytes(b"1")
    with mounted(sandbox, tmp_path / "below", tmp_path / "mnt", "--writable"):
        refused(lambda: os.rename(tmp_path / "mnt" / "a", tmp_path / "mnt" / "b"), errno.EXDEV)
        assert (tmp_path / "mnt" / "a").read_bytes() == b"1"


# ---- What there is not


@says(
    "There are no hard links, symbolic links, devices or named pipes: making one is refused.",
    "There are no extended attributes: a program is told `EOPNOTSUPP`.",
    "Locks of `flock` and `fcntl` hold between the programs of one mount, and say nothing to other machines.",
)
def test_what_there_is_not(place: Place) -> None:
    folder = place.at("write")
    refused(lambda: os.symlink("there", folder / "link"), errno.EPERM, errno.ENOSYS)
    refused(lambda: os.link(folder / "there", folder / "link"), errno.EPERM, errno.ENOSYS)
    refused(lambda: os.mkfifo(folder / "fifo"), errno.EPERM, errno.ENOSYS)
    refused(lambda: os.getxattr(folder / "there", "user.x"), errno.EOPNOTSUPP)
    refused(lambda: os.setxattr(folder / "there", "user.x", b"1"), errno.EOPNOTSUPP)
    with (
        open(folder / "there", "rb") as one,
        open(folder / "there", "rb") as two,
        open(place.at("over") / "there", "rb") as other,
    ):
        fcntl.flock(one, fcntl.LOCK_EX)
        refused(lambda: fcntl.flock(two, fcntl.LOCK_EX | fcntl.LOCK_NB), errno.EWOULDBLOCK)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
