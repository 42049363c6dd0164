"""Files that are read before they are opened, how many requests that takes, and what ends it."""

from __future__ import annotations

import os
import random
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from e2e.harness import Sandbox, logged_devstore, small_disk
from e2e.mounting import is_mounted, mounted, needs_fuse, wait_until

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
    """Of the requests of an operation: a late GET may be sent twice."""
    lines = (line.split() for line in log.read_text().splitlines())
    return {line[2] for line in lines if len(line) > 5 and line[3] == operation}


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
                    wait_until(lambda path=path: f"/b/train/{path}" in keys(tmp_path / "log", "GetObject"), f"{path} ahead")
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
    sandbox.run("mount", "s3://b/train", tmp_path / "mnt", "--order", tmp_path / "none", env=store.env()).failed(1, "none", "No such file")


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
            assert [reader.wait(120) for reader in readers] == [0] * 4
            assert requests(tmp_path / "log")["GetObject"] <= 60  # alone each would take 20 and more; late ones come twice


def test_a_full_cache_disk_is_no_error(sandbox: Sandbox, photos: Path, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "300k") as disk, logged_devstore(sandbox, photos, tmp_path / "log") as store:
        with mounted(sandbox, "s3://b/train", tmp_path / "mnt", "--cache", disk / "cache", env=store.env()):
            for _ in range(2):
                read_all(tmp_path / "mnt", in_order(photos))


def test_a_mount_that_was_killed_can_be_mounted_again(sandbox: Sandbox, photos: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mnt"
    folder.mkdir()
    with logged_devstore(sandbox, photos, tmp_path / "log") as store:
        process = sandbox.start("mount", "s3://b/train", folder, "--foreground", env=store.env())
        wait_until(lambda: is_mounted(folder), "mounting")
        process.kill()
        process.wait()
        with pytest.raises(OSError):
            os.listdir(folder)
        subprocess.run(["umount", "-l", folder], check=True)
        with mounted(sandbox, "s3://b/train", folder, env=store.env()):
            read_all(folder, in_order(photos)[:10])
