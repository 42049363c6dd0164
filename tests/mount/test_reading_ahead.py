"""Files that are read before they are opened, how many requests that takes, and what ends it."""

from __future__ import annotations

import contextlib
import mmap
import os
import random
import re
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from e2e.harness import REPOSITORY, Sandbox, devstore, logged_devstore
from e2e.mounting import mounted, needs_fuse, wait_until
from ports import free_port

pytestmark = needs_fuse

FILES = 300


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """300 files of 2 KB in ten folders, in bucket `b`."""
    root = tmp_path / "root"
    for i in range(FILES):
        path = root / "b" / "train" / f"class{i // 30}" / f"{i:04}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(random.Random(i).randbytes(2000))
    return root


def requests(log: Path) -> Counter[str]:
    """How many of each operation the store has answered."""
    return Counter(line.split()[3] for line in log.read_text().splitlines() if len(line.split()) > 5)


def keys(log: Path, operation: str) -> set[str]:
    """Returns the keys of the requests of an operation, each once: a late GET may be sent twice."""
    lines = (line.split() for line in log.read_text().splitlines())
    return {line[2] for line in lines if len(line) > 5 and line[3] == operation}


def sizes(log: Path) -> list[int]:
    """Bytes of the answers to GETs."""
    lines = (line.split() for line in log.read_text().splitlines())
    return [int(line[5]) for line in lines if len(line) > 5 and line[3] == "GetObject"]


def large_object(tmp_path: Path, mib: int) -> Path:
    """`large` in bucket `b`."""
    path = tmp_path / "root" / "b" / "large"
    path.parent.mkdir(parents=True)
    path.write_bytes(random.Random(mib).randbytes(mib << 20))
    return path


def read_all(folder: Path, order: list[Path]) -> None:
    for path in order:
        assert (folder / path).read_bytes() == random.Random(int(path.stem)).randbytes(2000), path


def in_order(root: Path) -> list[Path]:
    return sorted(path.relative_to(root / "b" / "train") for path in (root / "b" / "train").rglob("*.jpg"))


def test_files_in_order_cost_few_round_trips(sandbox: Sandbox, photos: Path, tmp_path: Path) -> None:
    with logged_devstore(sandbox, photos, tmp_path / "log", "--first-byte-ms", "20") as store:
        with mounted(sandbox, "s3://b/train", tmp_path / "mnt", "--metadata-ttl", "1h", env=store.env()):
            for i, path in enumerate(in_order(photos)):
                if i >= 16:  # by now what follows is read before it is opened, however slow the machine is
                    wait_until(
                        lambda path=path: f"/b/train/{path}" in keys(tmp_path / "log", "GetObject"), f"{path} ahead"
                    )
                read_all(tmp_path / "mnt", [path])
            # Lookups of the first files and of folders; all others were known.
            assert len(keys(tmp_path / "log", "HeadObject")) < 60
            assert len(keys(tmp_path / "log", "GetObject")) == FILES
            assert requests(tmp_path / "log")["ListObjectsV2"] < 60


@pytest.mark.parametrize("replaced", [False, True])
def test_files_in_the_order_of_a_file(sandbox: Sandbox, photos: Path, tmp_path: Path, replaced: bool) -> None:
    order = in_order(photos)
    random.Random(1).shuffle(order)
    listed = list(reversed(order)) if replaced else order
    (tmp_path / "order").write_text("".join(f"{path}\n" for path in listed))
    with logged_devstore(sandbox, photos, tmp_path / "log") as store:
        options = ("--order", tmp_path / "order", "--metadata-ttl", "1h")
        with mounted(sandbox, "s3://b/train", tmp_path / "mnt", *options, env=store.env()):
            # The first ones come without any open.
            wait_until(lambda: len(keys(tmp_path / "log", "GetObject")) >= 100, "reading ahead")
            if replaced:
                (tmp_path / "new").write_text("".join(f"{path}\n" for path in order))
                os.replace(tmp_path / "new", tmp_path / "order")
            read_all(tmp_path / "mnt", order)
            gets = requests(tmp_path / "log")["GetObject"]
            assert len(keys(tmp_path / "log", "GetObject")) == FILES
            assert gets <= 3 * FILES  # each once, and again if it came late
    sandbox.run("mount", "s3://b/train", tmp_path / "mnt", "--order", tmp_path / "none", env=store.env()).failed(
        1, "none", "No such file"
    )


IMAGE_FOLDER = """
import os, sys, torch
class ImageFolder(torch.utils.data.Dataset):
    def __init__(self, root):
        self.samples = [(os.path.join(base, name), base) for base, _, names in sorted(os.walk(root)) for name in sorted(names)]
    def __len__(self): return len(self.samples)
    def __getitem__(self, i):
        with open(self.samples[i][0], "rb") as file: return len(file.read()) * 1000 + i
data = ImageFolder(sys.argv[1])
seen = []
"""


def test_the_order_of_a_data_loader_as_the_document_has_it(sandbox: Sandbox, photos: Path, tmp_path: Path) -> None:
    text = (REPOSITORY / "docs" / "mount.md").read_text()
    (example,) = (block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "DataLoader" in block)
    for there, here in (
        ("/mnt/train", tmp_path / "mnt"),
        ("/run/order", tmp_path / "order"),
        ("...", "seen += batch.tolist()"),
    ):
        assert there in example
        example = example.replace(there, str(here))
    script = f"{IMAGE_FOLDER}{example}print(*seen)"
    (tmp_path / "order").touch()
    with logged_devstore(sandbox, photos, tmp_path / "log") as store:
        options = ("--order", tmp_path / "order", "--metadata-ttl", "1h")
        with mounted(sandbox, "s3://b/train", tmp_path / "mnt", *options, env=store.env()):
            done = subprocess.run(
                [sys.executable, "-W", "ignore", "-c", script, tmp_path / "mnt"],
                capture_output=True,
                text=True,
                timeout=600,
            )
            assert done.returncode == 0, done.stderr
            seen = [int(number) for number in done.stdout.split()]
            assert {number // 1000 for number in seen} == {2000}
            names = [str(path) for path in in_order(photos)]
            assert [names[number % 1000] for number in seen] == (tmp_path / "order").read_text().splitlines()
            assert sorted(number % 1000 for number in seen) == list(range(FILES))


def test_what_the_kernel_still_has_is_not_read_ahead(sandbox: Sandbox, tmp_path: Path) -> None:
    names = [f"{number:02}" for number in random.Random(9).sample(range(96), 96)]
    folder = tmp_path / "root" / "b"
    folder.mkdir(parents=True)
    for name in names:  # together more than the mount keeps of what programs have read
        (folder / name).write_bytes(random.Random(name).randbytes(1 << 20))
    (tmp_path / "order").write_text("".join(f"{name}\n" for name in names))

    def epoch() -> int:
        """How many requests the store answered meanwhile."""
        before = len(sizes(tmp_path / "log"))
        for name in names:
            assert (tmp_path / "mnt" / name).read_bytes() == (folder / name).read_bytes(), name
        return len(sizes(tmp_path / "log")) - before

    options = ("--order", tmp_path / "order", "--memory", "128MiB", "--metadata-ttl", "1h")
    with logged_devstore(sandbox, tmp_path / "root", tmp_path / "log") as store:
        with mounted(sandbox, "s3://b", tmp_path / "mnt", *options, env=store.env()):
            wait_until(lambda: epoch() == 0, "an epoch without requests")
            assert len(keys(tmp_path / "log", "GetObject")) == len(names)


def test_what_was_warmed_is_not_read_from_the_store(sandbox: Sandbox, photos: Path, tmp_path: Path) -> None:
    order = in_order(photos)
    random.Random(3).shuffle(order)
    cache, port = (
        ("--cache", tmp_path / "cache"),
        free_port(),
    )  # the same place, so that it is the same store for the cache
    with logged_devstore(sandbox, photos, tmp_path / "warm", port=port) as store:
        sandbox.ok("cache", "warm", "s3://b/train", *cache, env=store.env())
    with logged_devstore(sandbox, photos, tmp_path / "log", port=port) as store:
        with mounted(sandbox, "s3://b/train", tmp_path / "mnt", *cache, env=store.env()):
            read_all(tmp_path / "mnt", order)
    assert len(keys(tmp_path / "log", "HeadObject")) > 0  # the log is of these reads
    assert keys(tmp_path / "log", "GetObject") == set()


def test_files_at_random_cost_nothing_more(sandbox: Sandbox, photos: Path, tmp_path: Path) -> None:
    order = in_order(photos)
    random.Random(2).shuffle(order)
    with logged_devstore(sandbox, photos, tmp_path / "log") as store:
        with mounted(sandbox, "s3://b/train", tmp_path / "mnt", env=store.env()):
            read_all(tmp_path / "mnt", order)
            assert len(keys(tmp_path / "log", "GetObject")) == FILES
            assert requests(tmp_path / "log")["GetObject"] <= 3 * FILES  # each once, and again if it came late


def test_programs_that_read_one_file_share_its_requests(sandbox: Sandbox, tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "b").mkdir(parents=True)
    body = random.Random(3).randbytes(20 << 20)
    (root / "b" / "large").write_bytes(body)
    with logged_devstore(sandbox, root, tmp_path / "log") as store:
        with mounted(sandbox, "s3://b", tmp_path / "mnt", env=store.env()):
            readers = [subprocess.Popen(["cmp", tmp_path / "mnt" / "large", root / "b" / "large"]) for _ in range(4)]
            assert [reader.wait(300) for reader in readers] == [0] * 4
            assert (
                requests(tmp_path / "log")["GetObject"] <= 60
            )  # alone each would take 20 and more; late ones come twice


def test_random_reads_of_a_large_file_cost_what_they_read(sandbox: Sandbox, tmp_path: Path) -> None:
    path = large_object(tmp_path, 64)
    body = path.read_bytes()
    rng = random.Random(4)
    offsets = [rng.randrange(1, len(body) // 4096) * 4096 for _ in range(240)]  # less than 1 MiB
    with logged_devstore(sandbox, tmp_path / "root", tmp_path / "log") as store:
        # Larger than what is kept of surplus, three eighths.
        with mounted(sandbox, "s3://b", tmp_path / "mnt", "--memory", "128MiB", env=store.env()):
            fd = os.open(tmp_path / "mnt" / "large", os.O_RDONLY)
            try:
                with ThreadPoolExecutor(16) as threads:
                    for offset, read in zip(
                        offsets, threads.map(lambda at: os.pread(fd, 4096, at), offsets), strict=True
                    ):
                        assert read == body[offset : offset + 4096], offset
            finally:
                os.close(fd)
            # A late one may be sent twice. Blocks of 1 MiB would be all of the file, and more.
            assert len(sizes(tmp_path / "log")) <= 2 * len(offsets)
            assert sum(sizes(tmp_path / "log")) <= 2 * len(offsets) * 4096 + (2 << 20)


def test_random_reads_of_a_file_that_can_be_kept_soon_cost_nothing(sandbox: Sandbox, tmp_path: Path) -> None:
    path = large_object(tmp_path, 16)
    body = path.read_bytes()
    rng = random.Random(8)
    page = mmap.mmap(-1, 4096)  # past the kernel's cache

    def read_some(fd: int) -> int:
        """How many requests the store answered meanwhile."""
        before = len(sizes(tmp_path / "log"))
        for _ in range(50):
            offset = rng.randrange(len(body) // 4096) * 4096
            assert os.preadv(fd, [page], offset) == 4096 and page[:] == body[offset : offset + 4096], offset
        return len(sizes(tmp_path / "log")) - before

    with logged_devstore(sandbox, tmp_path / "root", tmp_path / "log", "--first-byte-ms", "20") as store:
        with mounted(sandbox, "s3://b", tmp_path / "mnt", env=store.env()):
            fd = os.open(tmp_path / "mnt" / "large", os.O_RDONLY | os.O_DIRECT)
            try:
                wait_until(lambda: read_some(fd) == 0, "reading all of the file")
            finally:
                os.close(fd)
            assert max(sizes(tmp_path / "log")) >= 1 << 20


def test_what_is_read_past_the_kernels_cache_is_kept(sandbox: Sandbox, tmp_path: Path) -> None:
    path = tmp_path / "root" / "b" / "large"
    path.parent.mkdir(parents=True)
    size = 272 << 20  # more than what is kept of other files that are read forward
    with open(path, "wb") as file:
        file.truncate(size)
    page = mmap.mmap(-1, 1 << 20)

    def read_forward(fd: int) -> int:
        offset = 0
        while read := os.preadv(fd, [page], offset):
            offset += read
        return offset

    with contextlib.ExitStack() as store_ends:
        store = store_ends.enter_context(devstore(sandbox, tmp_path / "root"))
        with mounted(sandbox, "s3://b", tmp_path / "mnt", "--memory", "3GiB", "--metadata-ttl", "1h", env=store.env()):
            fd = os.open(tmp_path / "mnt" / "large", os.O_RDONLY | os.O_DIRECT)
            try:
                assert read_forward(fd) == size
                store_ends.close()
                assert read_forward(fd) == size  # without the store
            finally:
                os.close(fd)


def test_a_file_is_read_forward_by_few_large_requests(sandbox: Sandbox, tmp_path: Path) -> None:
    path = large_object(tmp_path, 100)
    with logged_devstore(sandbox, tmp_path / "root", tmp_path / "log") as store:
        with mounted(sandbox, "s3://b", tmp_path / "mnt", env=store.env()):
            subprocess.run(["cmp", tmp_path / "mnt" / "large", path], check=True)
            got = sizes(tmp_path / "log")
            assert len(got) < 80 and max(got) == 8 << 20, got  # a late one may be sent twice
            assert 100 << 20 <= sum(got) <= 200 << 20


def test_what_the_cache_has_is_read_in_any_piece(sandbox: Sandbox, tmp_path: Path, cache_folder: Path) -> None:
    path = large_object(tmp_path, 20)
    body = path.read_bytes()
    rng = random.Random(6)
    with logged_devstore(sandbox, tmp_path / "root", tmp_path / "log") as store:
        with mounted(sandbox, "s3://b", tmp_path / "mnt", "--cache", cache_folder, env=store.env()):
            assert (tmp_path / "mnt" / "large").read_bytes() == body
        before = len(sizes(tmp_path / "log"))
        assert before > 0
        # Another process, so that neither the kernel nor the mount has anything in memory.
        with mounted(sandbox, "s3://b", tmp_path / "mnt", "--cache", cache_folder, env=store.env()):
            with open(tmp_path / "mnt" / "large", "rb", buffering=0) as file:
                for _ in range(50):
                    offset, size = rng.randrange(1, len(body)), rng.randrange(1, 200_000)
                    assert os.pread(file.fileno(), size, offset) == body[offset : offset + size], offset
            assert (tmp_path / "mnt" / "large").read_bytes() == body
        assert len(sizes(tmp_path / "log")) < before + 10  # some of before may have been told late


def test_the_kernel_asks_for_more_at_a_time(sandbox: Sandbox, photos: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mnt"
    with logged_devstore(sandbox, photos, tmp_path / "log") as store:
        with mounted(sandbox, "s3://b/train", folder, env=store.env()):
            line = next(
                line.split()
                for line in Path("/proc/self/mountinfo").read_text().splitlines()
                if line.split()[4] == str(folder)
            )
            setting = Path(f"/sys/class/bdi/{line[2]}/read_ahead_kb")
            read_all(folder, in_order(photos)[:1])
            # Only root may set it, where /sys can be written to; elsewhere the mount reads all the same.
            assert int(setting.read_text()) >= 512 or not os.access(setting, os.W_OK)


def test_programs_make_buffers_as_large_as_files(sandbox: Sandbox, photos: Path, tmp_path: Path) -> None:
    (photos / "b" / "train" / "large").write_bytes(bytes(3 << 20))
    (photos / "b" / "train" / "middle").write_bytes(bytes(70_000))
    with logged_devstore(sandbox, photos, tmp_path / "log") as store:
        with mounted(sandbox, "s3://b/train", tmp_path / "mnt", env=store.env()):
            found = {
                name: os.stat(tmp_path / "mnt" / name).st_blksize for name in ("class0/0001.jpg", "middle", "large")
            }
        assert found == {"class0/0001.jpg": 4096, "middle": 128 << 10, "large": 1 << 20}
        with mounted(sandbox, "s3://b/train", tmp_path / "mnt", "--writable", env=store.env()):
            with open(tmp_path / "mnt" / "new", "wb") as file:
                assert os.fstat(file.fileno()).st_blksize == 1 << 20
