"""A store as a folder: what programs see, the errors that they get, and that nothing stays behind."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import random
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from .conftest import Photos
from .harness import MIB, REPOSITORY, Sandbox, Server, devstore, freeze
from .mounting import is_mounted, mounted, needs_fuse, wait_until

pytestmark = needs_fuse


@pytest.fixture
def mount(sandbox: Sandbox, server: Server, tmp_path: Path) -> Iterator[Path]:
    """The bucket of photos."""
    with mounted(sandbox, "s3://b", tmp_path / "mnt", env=server.env()):
        yield tmp_path / "mnt"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A devstore's root with a bucket `b`: 40 MB, small files, an empty one, and folders."""
    root = tmp_path / "root"
    contents = {"large": 40_000_000, "a/empty": 0, "a/b/small": 100, "a/b.txt": 5000, "z": 1}
    for name, size in contents.items():
        (root / "b" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "b" / name).write_bytes(random.Random(name).randbytes(size))
    return root


def tree(folder: Path) -> dict[str, str]:
    """The digest of each file, by its path."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_programs_see_files(photos: Photos, mount: Path, tmp_path: Path) -> None:
    listed = subprocess.run(["ls", "-lR", mount / "raw"], check=True, capture_output=True, text=True).stdout
    assert listed.count(".jpg\n") == 1005
    found = subprocess.run(
        ["find", mount, "-type", "f", "-name", "*.jpg", "-size", "+0"], check=True, capture_output=True, text=True
    ).stdout
    assert len(found.splitlines()) == 1005
    subprocess.run(["cp", "-r", mount / "raw", tmp_path / "copy"], check=True)
    subprocess.run(["diff", "-r", "--exclude", "*.millrace*", photos.raw, tmp_path / "copy"], check=True)
    one = next(photos.raw.rglob("*.jpg"))
    there = mount / "raw" / one.relative_to(photos.raw)
    summed = subprocess.run(["sha256sum", there], check=True, capture_output=True, text=True).stdout
    assert summed.split()[0] == hashlib.sha256(one.read_bytes()).hexdigest()
    assert there.stat().st_size == one.stat().st_size and there.stat().st_mode & 0o222 == 0
    assert abs(there.stat().st_mtime - (photos.root / "b" / "raw" / one.relative_to(photos.raw)).stat().st_mtime) < 1


def test_reads_at_any_place_by_many_threads(sandbox: Sandbox, files: Path, tmp_path: Path) -> None:
    expected = (files / "b" / "large").read_bytes()
    with devstore(sandbox, files) as store, mounted(sandbox, "s3://b", tmp_path / "mnt", env=store.env()):
        fd = os.open(tmp_path / "mnt" / "large", os.O_RDONLY)

        def read_some(seed: int) -> None:
            rng = random.Random(seed)
            for _ in range(20):
                at, size = rng.randrange(len(expected) + 1000), rng.choice([1, 4096, 128 * 1024, 3 * MIB])
                assert os.pread(fd, size, at) == expected[at : at + size]

        with ThreadPoolExecutor(16) as pool:
            list(pool.map(read_some, range(16)))
        os.close(fd)
        assert (tmp_path / "mnt" / "large").read_bytes() == expected
        assert tree(tmp_path / "mnt") == tree(files / "b")


def test_a_local_folder_and_a_cache(sandbox: Sandbox, files: Path, tmp_path: Path, cache_folder: Path) -> None:
    with mounted(sandbox, files / "b", tmp_path / "local"):
        assert tree(tmp_path / "local") == tree(files / "b")
    with devstore(sandbox, files) as store:
        for _ in range(2):
            with mounted(sandbox, "s3://b", tmp_path / "mnt", "--cache", cache_folder, env=store.env()):
                assert tree(tmp_path / "mnt") == tree(files / "b")
    assert sum(path.stat().st_size for path in cache_folder.rglob("*") if path.is_file()) >= 40_000_000


def test_an_interrupted_pack_is_refused_through_a_mount(sandbox: Sandbox, files: Path, tmp_path: Path) -> None:
    """Its mark is not listed there, and found all the same."""
    half = files / "b/half"
    (half / ".millrace").mkdir(parents=True)
    (half / "1.jpg").write_bytes(b"x")
    (half / ".millrace/incomplete").write_text("{}")
    with mounted(sandbox, files / "b", tmp_path / "local"):
        assert ".millrace" not in os.listdir(tmp_path / "local/half")
        sandbox.run("index", tmp_path / "local/half").failed(1, "writing it was interrupted")


def test_a_dataset_of_pytorch(photos: Photos, mount: Path) -> None:
    script = """
import os, sys
import numpy as np, torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

class ImageFolder(Dataset):
    def __init__(self, root):
        self.classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir() and entry.name[0] != ".")
        self.samples = [(path.path, i) for i, name in enumerate(self.classes)
                        for path in sorted(os.scandir(os.path.join(root, name)), key=lambda e: e.name) if path.name.endswith(".jpg")]
    def __len__(self): return len(self.samples)
    def __getitem__(self, i):
        path, label = self.samples[i]
        return torch.from_numpy(np.asarray(Image.open(path).convert("RGB")).copy()), label

data = ImageFolder(sys.argv[1])
total = 0
for images, labels in DataLoader(data, batch_size=32, shuffle=True, num_workers=2):
    total += images.sum(dtype=torch.int64).item()
print(len(data), len(data.classes), total)
"""

    def run(folder: Path) -> str:
        return subprocess.run(
            [sys.executable, "-c", script, folder], check=True, capture_output=True, text=True, timeout=300
        ).stdout

    assert run(mount / "raw") == run(photos.raw)


def test_nothing_can_be_written(mount: Path) -> None:
    for attempt in (
        lambda: (mount / "new").write_text("x"),
        lambda: (mount / "new").mkdir(),
        lambda: os.remove(next((mount / "tar").glob("*.tar"))),
        lambda: os.truncate(next((mount / "tar").glob("*.tar")), 0),
        lambda: os.rename(mount / "tar", mount / "rat"),
    ):
        with pytest.raises(OSError) as refused:
            attempt()
        assert refused.value.errno == errno.EROFS


def test_what_is_not_there(mount: Path) -> None:
    for name in ("nothing", "tar/nothing", "raw/a/nothing/below", "n" * 255):
        with pytest.raises(FileNotFoundError):
            (mount / name).stat()


@pytest.mark.parametrize("how", ["umount", "fusermount3", "SIGTERM", "SIGINT"])
def test_the_end_leaves_nothing(sandbox: Sandbox, server: Server, tmp_path: Path, how: str) -> None:
    folder = tmp_path / "mnt"
    with mounted(sandbox, "s3://b/tar", folder, env=server.env()) as process:
        assert any(folder.iterdir())
        if how == "umount":
            subprocess.run(["umount", folder], check=True)
        elif how == "fusermount3":
            subprocess.run(["fusermount3", "-u", folder], check=True)
        else:
            process.send_signal(getattr(signal, how))
        assert process.wait(120) == 0, process.stderr and process.stderr.read()
        assert not is_mounted(folder) and not any(folder.iterdir())


def test_in_the_background(sandbox: Sandbox, server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "mnt"
    folder.mkdir()
    sandbox.ok("mount", "s3://b/tar", folder, env=server.env())
    try:
        assert any(folder.iterdir())  # at once: the command has waited
    finally:
        subprocess.run(["umount", folder], check=True)

    def is_served() -> bool:
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):  # it has ended meanwhile
                if str(folder).encode() in process.read_bytes():
                    return True
        return False

    wait_until(lambda: not is_served(), "the end of the process")


def test_what_cannot_be_mounted_is_said(sandbox: Sandbox, server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "mnt"
    sandbox.run("mount", "s3://b/tar", folder, env=server.env()).failed(1, "no such folder", f"mkdir -p {folder}$")
    folder.mkdir()
    sandbox.run("mount", "s3://no-such-bucket/x", folder, env=server.env()).failed(1, "no-such-bucket")
    sandbox.run("mount", "s3://b", folder, "--no-overwrite", env=server.env()).failed(2, "--writable")
    sandbox.run("mount", "s3://b", folder, "--writable", "--no-staging", "--staging", tmp_path).failed(2, "contradicts")
    sandbox.run("mount", "s3://b", env=server.env()).failed(2, "folder")
    sandbox.run("mount", "s3://b", folder, "-o", "wr", env=server.env()).failed(2, "wr", "writable")
    sandbox.run("mount", "s3://b", folder, "-o", "uid=x", env=server.env()).failed(2, "uid")
    sandbox.run("mount", "s3://b", folder, "--timeout", "soon", env=server.env()).failed(2, "--timeout", "30s")
    assert not is_mounted(folder)


def test_a_second_mount_on_a_folder_is_refused(sandbox: Sandbox, server: Server, tmp_path: Path) -> None:
    folder, link = tmp_path / "mnt", tmp_path / "link"
    with mounted(sandbox, "s3://b/tar", folder, env=server.env()):
        link.symlink_to(folder)
        seen = os.listdir(folder)
        for path in (str(folder), f"{folder}/", link):
            sandbox.run("mount", "s3://b/raw", path, env=server.env()).failed(
                1, f"{path}: .* already", f"fusermount3 -u {path}$"
            )
        assert os.listdir(folder) == seen
    folder = tmp_path / "dead"
    folder.mkdir()
    process = sandbox.start("mount", "s3://b/tar", folder, "--foreground", env=server.env())
    wait_until(lambda: is_mounted(folder), "mounting")
    process.kill()
    process.wait()
    try:
        for path in (str(folder), f"{folder}/"):
            sandbox.run("mount", "s3://b/tar", path, env=server.env()).failed(1, "already", f"fusermount3 -u {path}$")
    finally:
        subprocess.run(["fusermount3", "-u", folder], check=True)
    assert not is_mounted(folder)


def test_nothing_below_the_uri_is_said(sandbox: Sandbox, files: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mnt"
    folder.mkdir()
    (tmp_path / "empty").mkdir()
    (files / "b" / "indexed" / ".millrace").mkdir(parents=True)
    (files / "b" / "indexed" / ".millrace" / "index").write_bytes(b"of what was removed")
    with devstore(sandbox, files) as store:
        for uri, *options in (
            ("s3://b/no-such",),
            ("s3://b/indexed",),
            ("s3://b/large",),  # a file
            (tmp_path / "empty",),
            ("s3://b",),
            ("s3://b/a",),
            ("s3://b/new", "--writable"),
        ):
            said = sandbox.ok("mount", uri, folder, *options, env=store.env()).err
            subprocess.run(["umount", folder], check=True)
            if options or uri in ("s3://b", "s3://b/a"):
                assert said == ""
            else:
                assert f"warning: nothing lies below {uri}, so {folder} shows no files; check the URI" in said


def test_a_replaced_object_is_stale(sandbox: Sandbox, files: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mnt"
    before = (files / "b" / "large").read_bytes()
    after = random.Random(2).randbytes(len(before))
    with (
        devstore(sandbox, files) as store,
        mounted(sandbox, "s3://b", folder, "--metadata-ttl", "minimal", env=store.env()),
        open(folder / "large", "rb", buffering=0) as opened,
    ):
        assert opened.read(4096) == before[:4096]
        store.client().put_object(Bucket="b", Key="large", Body=after)
        with pytest.raises(OSError) as stale:
            for at in range(30_000_000, 40_000_000, MIB):  # beyond what was read ahead
                os.pread(opened.fileno(), 4096, at)
        assert stale.value.errno == errno.ESTALE
        # Another open gets the new version, and what is left of the first one nothing of it.
        assert (folder / "large").read_bytes() == after
        assert os.pread(opened.fileno(), 4096, 0) == before[:4096]


def test_new_and_removed_objects_are_seen(sandbox: Sandbox, files: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mnt"
    with (
        devstore(sandbox, files) as store,
        mounted(sandbox, "s3://b", folder, "--metadata-ttl", "minimal", env=store.env()),
    ):
        assert not (folder / "new" / "one").exists()
        store.client().put_object(Bucket="b", Key="new/one", Body=b"1")
        assert (folder / "new" / "one").read_bytes() == b"1"
        store.client().delete_object(Bucket="b", Key="new/one")
        assert not (folder / "new").exists()


def test_a_store_that_is_away_gives_eio(sandbox: Sandbox, files: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mnt"
    with devstore(sandbox, files) as store, mounted(sandbox, "s3://b", folder, "--timeout", "10s", env=store.env()):
        fd = os.open(folder / "large", os.O_RDONLY)
        os.pread(fd, 10, 0)
        freeze(store.process)  # takes connections, and answers nothing
        try:
            with pytest.raises(OSError) as away:
                os.pread(fd, 10, 35_000_000)
            assert away.value.errno == errno.EIO
            # Meanwhile a program that waits can be killed.
            reader = subprocess.Popen(["cat", folder / "z"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            reader.kill()
            reader.wait(120)
        finally:
            store.process.send_signal(signal.SIGCONT)

        def is_back() -> bool:
            with contextlib.suppress(OSError):
                return (folder / "z").exists()
            return False

        wait_until(is_back, "the store's return")
        assert os.pread(fd, 10, 35_000_000) == (files / "b" / "large").read_bytes()[35_000_000:35_000_010]
        os.close(fd)


def test_permissions_and_owners(sandbox: Sandbox, server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "mnt"
    with mounted(sandbox, "s3://b", folder, "-o", "uid=1234,gid=567,umask=077", env=server.env()):
        info = next((folder / "tar").glob("*.tar")).stat()
        assert (info.st_uid, info.st_gid, info.st_mode & 0o777) == (1234, 567, 0o400)


def test_a_folder_of_more_than_one_page(sandbox: Sandbox, tmp_path: Path) -> None:
    names = [f"{i:05}-{'é' if i % 7 == 0 else 'x'}" for i in range(2500)]
    root = tmp_path / "root"
    (root / "b" / "many").mkdir(parents=True)
    for name in names:
        (root / "b" / "many" / name).write_bytes(b"")
    with devstore(sandbox, root) as store, mounted(sandbox, "s3://b", tmp_path / "mnt", env=store.env()):
        assert sorted(os.listdir(tmp_path / "mnt" / "many")) == sorted(names)
        assert len(list(os.scandir(tmp_path / "mnt" / "many"))) == 2500


def test_the_example_of_the_documents_runs() -> None:
    text = (REPOSITORY / "docs" / "mount.md").read_text()
    for option in (
        "--foreground",
        "--writable",
        "--no-overwrite",
        "--links",
        "--staging",
        "--staging-size",
        "--no-staging",
        "--publish-on-fsync",
        "--recover",
        "--timeout",
        "--metadata-ttl",
        "--cache",
        "--cache-size",
        "--memory",
        "--log",
        "-o",
    ):
        assert f"`{option}" in text, option


def test_metrics(sandbox: Sandbox, server: Server, tmp_path: Path) -> None:
    """Bytes that were read came from the store once, and from the cache then."""
    place = tmp_path / "mnt"
    options = ["--metrics-port", "0", "--cache", tmp_path / "cache"]
    with mounted(sandbox, "s3://b", place, *options, env=server.env()) as process:
        assert process.stderr is not None
        said = re.match(rb"metrics: (http://\S+)\n", process.stderr.readline())
        assert said

        def value(name: str) -> float:
            with urllib.request.urlopen(said[1].decode(), timeout=120) as answer:
                return sum(
                    float(line.rsplit(" ", 1)[1])
                    for line in answer.read().decode().splitlines()
                    if re.match(rf"{name}[{{ ]", line)
                )

        path = next(path for path in sorted(place.rglob("*")) if path.is_file())
        size = len(path.read_bytes())
        assert size > 0 and value("millrace_cache_miss_bytes_total") >= size
        assert value("millrace_store_read_bytes_total") == value("millrace_cache_miss_bytes_total")
        assert value("millrace_store_requests_total") > 0
