"""The table of docs/semantics.md: it has each errno of the mount, and libraries handle them as it says."""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
from pathlib import Path

import pytest
from e2e.harness import REPOSITORY, Sandbox, Server, devstore
from e2e.mounting import mounted, needs_fuse
from semantics import refused, says

pytestmark = needs_fuse


def test_the_table_has_each_errno_of_the_mount() -> None:
    sources = [path.read_text() for path in (REPOSITORY / "src" / "mount").glob("*.cc") if "test" not in path.name]
    told = {
        name
        for text in sources
        for name in re.findall(r"(?:RefusedWith\(|return |\? |: |request, )(E[A-Z]{2,})\b", text)
    }
    told |= {"ENOTCONN"}  # by the kernel
    table = (REPOSITORY / "docs" / "semantics.md").read_text().partition("## Each `errno`")[2]
    rows = re.findall(r"^\| (`E[^|]*) \|", table, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"E[A-Z]+", row)} == told
    assert all(hasattr(errno, name) for name in told)


def save_by_fsspec(path: Path) -> None:
    """As Lightning writes last.ckpt: elsewhere, then by one move."""
    fsspec = pytest.importorskip("fsspec")
    file = fsspec.filesystem("file").open(str(path), "wb", autocommit=False)
    file.write(b"new")
    file.close()
    file.commit()


def save_by_safetensors(path: Path) -> None:
    numpy, safetensors = pytest.importorskip("numpy"), pytest.importorskip("safetensors.numpy")
    try:
        safetensors.save_file({"w": numpy.arange(3)}, str(path))
    except Exception as error:
        number = re.search(r"os error (\d+)", str(error))
        raise OSError(int(number[1]) if number else 0, str(error)) from error


def save_by_rename(path: Path) -> None:
    (path.parent / "aside").write_bytes(b"new")
    os.replace(path.parent / "aside", path)


def save_by_shutil(path: Path) -> None:
    with tempfile.NamedTemporaryFile() as source:
        source.write(b"new")
        source.flush()
        shutil.copy2(source.name, path)


SAVES = [save_by_fsspec, save_by_safetensors, save_by_rename, save_by_shutil, lambda path: path.write_bytes(b"new")]


def test_no_library_takes_an_object_in_the_way_for_a_success(
    sandbox: Sandbox, store: Server, bucket: Path, tmp_path: Path
) -> None:
    before = (bucket / "z").read_bytes()
    with mounted(sandbox, "s3://b", tmp_path / "mnt", "--writable", "--no-overwrite", env=store.env()):
        for save in SAVES:
            refused(lambda save=save: save(tmp_path / "mnt" / "z"), errno.EEXIST)
        assert (bucket / "z").read_bytes() == before == (tmp_path / "mnt" / "z").read_bytes()


def test_libraries_save(writable: Path, bucket: Path) -> None:
    for number, save in enumerate(SAVES):
        for name in ("z", f"new{number}"):  # in place of an object, and a new one
            save(writable / name)
            assert (bucket / name).read_bytes() == (writable / name).read_bytes()
            if save is not save_by_safetensors:
                assert (bucket / name).read_bytes() == b"new"


@says("If the store refuses to write, to rename or to remove something, the call fails with `EROFS`.")
def test_no_library_takes_a_store_that_refuses_for_a_success(sandbox: Sandbox, bucket: Path, tmp_path: Path) -> None:
    """Credentials without s3:PutObject and s3:DeleteObject."""
    before = (bucket / "z").read_bytes()
    faults = ("PUT b/* error=403:AccessDenied", "DELETE b/* error=403:AccessDenied", "POST b/* error=403:AccessDenied")
    with (
        devstore(sandbox, bucket.parent, faults=faults) as store,
        mounted(sandbox, "s3://b", tmp_path / "mnt", "--writable", env=store.env()),
    ):
        path = tmp_path / "mnt" / "z"
        for attempt in (
            lambda: save_by_fsspec(path),
            lambda: path.write_bytes(b"new"),
            lambda: (path.parent / "new").write_bytes(b"new"),
            lambda: os.rename(path, path.parent / "large"),
            lambda: os.remove(path),
        ):
            refused(attempt, errno.EROFS)
        assert path.read_bytes() == before


def test_trees_are_copied_with_modes_and_times(writable: Path, bucket: Path, tmp_path: Path) -> None:
    (tmp_path / "local" / "d").mkdir(parents=True)
    (tmp_path / "local" / "d" / "f").write_bytes(b"new")
    (tmp_path / "local" / "d" / "f").chmod(0o640)
    os.utime(tmp_path / "local" / "d" / "f", (5, 7))
    shutil.copytree(tmp_path / "local", writable / "tree")
    info = (writable / "tree" / "d" / "f").stat()
    assert (bucket / "tree" / "d" / "f").read_bytes() == b"new"
    assert (info.st_mode & 0o777, info.st_mtime) == (0o640, 7)


def test_locks_as_files(writable: Path) -> None:
    filelock = pytest.importorskip("filelock")
    for kind in (filelock.SoftFileLock, filelock.FileLock):
        with kind(writable / "its.lock", timeout=60):
            with pytest.raises(filelock.Timeout):
                kind(writable / "its.lock", timeout=0).acquire()
        kind(writable / "its.lock", timeout=60).acquire().lock.release()
