"""Tests stores as an fsspec file system, by fsspec's own tests of file systems, and by what takes one."""

from __future__ import annotations

import os
from pathlib import Path

import boto3
import fsspec
import millrace
import numpy as np
import pytest
import torch
from fsspec.tests.abstract import (
    AbstractCopyTests,
    AbstractFixtures,
    AbstractGetTests,
    AbstractOpenTests,
    AbstractPipeTests,
    AbstractPutTests,
)
from millrace import filesystem
from millrace.filesystem import FileSystem


@pytest.fixture
def files(bucket: str) -> FileSystem:
    return FileSystem()


class Fixtures(AbstractFixtures):  # type: ignore[misc]
    @pytest.fixture
    def fs(self, bucket: str) -> FileSystem:
        return FileSystem()

    @pytest.fixture
    def fs_path(self) -> str:
        return "bucket/fsspec"

    @pytest.fixture
    def supports_empty_directories(self) -> bool:
        return False


class TestCopy(AbstractCopyTests, Fixtures):  # type: ignore[misc]
    pass


class TestGet(AbstractGetTests, Fixtures):  # type: ignore[misc]
    pass


class TestPut(AbstractPutTests, Fixtures):  # type: ignore[misc]
    pass


class TestPipe(AbstractPipeTests, Fixtures):  # type: ignore[misc]
    pass


class TestOpen(AbstractOpenTests, Fixtures):  # type: ignore[misc]
    pass


def test_what_is_there(files: FileSystem) -> None:
    files.pipe({f"bucket/look/{name}": name.encode() for name in ("a.txt", "b/c.txt", "b/d/e.bin", "b.txt")})
    assert files.ls("bucket/look", detail=False) == ["bucket/look/a.txt", "bucket/look/b", "bucket/look/b.txt"]
    assert [entry["type"] for entry in files.ls("s3://bucket/look/")] == ["file", "directory", "file"]
    assert files.find("bucket/look") == [f"bucket/look/{name}" for name in ("a.txt", "b.txt", "b/c.txt", "b/d/e.bin")]
    assert files.glob("bucket/look/**/*.txt") == [f"bucket/look/{name}" for name in ("a.txt", "b.txt", "b/c.txt")]
    assert files.du("bucket/look") == sum(len(name) for name in ("a.txt", "b/c.txt", "b/d/e.bin", "b.txt"))
    info = files.info("bucket/look/a.txt")
    assert (
        (info["size"], info["type"]) == (5, "file") and info["ETag"] and files.modified("bucket/look/a.txt") is not None
    )
    assert files.isdir("bucket/look/b") and files.isdir("bucket") and not files.isdir("bucket/look/a.txt")
    assert not files.exists("bucket/look/nothing") and not files.exists("bucket/loo")
    with pytest.raises(FileNotFoundError):
        files.ls("bucket/look/nothing")
    assert files.find("bucket/look/nothing") == []
    files.rm("bucket/look/b", recursive=True)
    assert files.find("bucket/look") == ["bucket/look/a.txt", "bucket/look/b.txt"]


def test_reading_and_writing(files: FileSystem, tmp_path: Path) -> None:
    data = os.urandom(3 << 20)
    files.pipe_file("bucket/rw/data", data)
    assert files.cat_file("bucket/rw/data", 10, 20) == data[10:20] and files.cat_file("bucket/rw/data", -5) == data[-5:]
    assert files.cat_ranges(["bucket/rw/data"] * 3, [0, 5, 1 << 20], [10, 5, None]) == [data[:10], b"", data[1 << 20 :]]
    found = files.cat_ranges(["bucket/rw/data", "bucket/rw/nothing"], 0, 4)
    assert found[0] == data[:4] and isinstance(found[1], FileNotFoundError)
    files.pipe({"bucket/rw/1": b"one", "bucket/rw/2": b"two"})
    assert files.cat(["bucket/rw/1", "bucket/rw/2"]) == {"bucket/rw/1": b"one", "bucket/rw/2": b"two"}
    assert files.cat("bucket/rw/[12]") == {"bucket/rw/1": b"one", "bucket/rw/2": b"two"}
    with pytest.raises(FileExistsError):
        files.pipe_file("bucket/rw/1", b"other", mode="create")
    files.get("bucket/rw/data", str(tmp_path / "new" / "data"))
    assert (tmp_path / "new" / "data").read_bytes() == data
    (tmp_path / "new" / "more").write_text("more")
    files.put(str(tmp_path / "new"), "bucket/rw/back", recursive=True)
    assert files.cat("bucket/rw/back/more") == b"more" and files.cat("bucket/rw/back/data") == data
    files.mv("bucket/rw/1", "bucket/rw/moved")
    assert files.cat("bucket/rw/moved") == b"one" and not files.exists("bucket/rw/1")
    with pytest.raises(NotImplementedError, match="written whole"):
        files.open("bucket/rw/2", "ab")
    with pytest.raises(IsADirectoryError):
        files.rm("bucket/rw")


def test_urls(bucket: str) -> None:
    """The protocol is installed with the package; in a build without installing it is registered here, and s3 on request."""
    filesystem.register(["millrace"])
    with fsspec.open("millrace://bucket/urls/array.npy", "wb") as file:
        np.save(file, np.arange(5))
    with fsspec.open("millrace://bucket/urls/array.npy") as file:
        assert np.load(file).tolist() == [0, 1, 2, 3, 4]
    with fsspec.open("millrace://bucket/urls/text", "w") as file:
        file.write("Grüße\n")
    with millrace.open("s3://bucket/urls/text", "r") as text:
        assert text.read() == "Grüße\n"
    before = dict(fsspec.registry)
    assert "s3" not in before or before["s3"] is not FileSystem
    filesystem.register()
    try:
        with fsspec.open("s3://bucket/urls/model.pt", "wb") as file:
            torch.save({"weight": torch.ones(3)}, file)
        with fsspec.open("s3://bucket/urls/model.pt") as file:
            assert torch.load(file, weights_only=True)["weight"].tolist() == [1, 1, 1]
    finally:
        fsspec.register_implementation("s3", "s3fs.S3FileSystem", clobber=True)


def test_a_folder_may_be_the_root(tmp_path: Path) -> None:
    files = FileSystem(root=str(tmp_path), skip_instance_cache=True)
    files.pipe({"a/b": b"b", "c": b"c"})
    assert files.find("") == ["a/b", "c"] and (tmp_path / "a" / "b").read_bytes() == b"b"
    assert files.ls("", detail=False) == ["a", "c"] and files.isdir("a")


def test_the_entry_point_names_the_class() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert '[project.entry-points."fsspec.specs"]\nmillrace = "millrace.filesystem.FileSystem"' in text


@pytest.mark.parametrize("kind", ["plain", "uri", "relative", "link", "below a link"])
def test_folders_by_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Names are those below the root, whatever the root is called: rm removes just what its caller names."""
    real = tmp_path / "disk-with-a-long-name" / "sets"
    for name in ("run-old/LATEST", "run-old/a/b", "LATEST", "keep"):
        (real / name).parent.mkdir(parents=True, exist_ok=True)
        (real / name).write_bytes(name.encode())
    (tmp_path / "ln").symlink_to(real)
    (tmp_path / "up").symlink_to(real.parent)
    monkeypatch.chdir(tmp_path)
    root = {
        "plain": str(real),
        "uri": real.as_uri(),
        "relative": "disk-with-a-long-name/sets",
        "link": str(tmp_path / "ln"),
        "below a link": str(tmp_path / "up" / "sets"),
    }[kind]
    files = FileSystem(root)
    (real / "inner").symlink_to(real / "run-old")
    assert files.find("run-old") == ["run-old/LATEST", "run-old/a/b"] and files.ls("run-old", detail=False) == [
        "run-old/LATEST",
        "run-old/a",
    ]
    assert files.find("inner") == ["inner/LATEST", "inner/a/b"] and files.info("inner/LATEST")["name"] == "inner/LATEST"
    assert files.cat("run-old/a/b") == b"run-old/a/b"
    files.rm("run-old", recursive=True)
    left = {str(path.relative_to(real)) for path in real.rglob("*") if path.is_file()}
    assert left == {"LATEST", "keep"}


def test_many_folders_take_few_threads(tmp_path: Path) -> None:
    def threads() -> int:
        return len(os.listdir("/proc/self/task"))

    files = FileSystem(str(tmp_path))
    files.pipe("first/x", b"x")
    before = threads()
    for number in range(50):
        files.pipe(f"{number}/x", b"x")
        assert (
            files.cat(f"{number}/x") == b"x"
            and files.exists(f"{number}/x")
            and files.ls(f"{number}", detail=False) == [f"{number}/x"]
        )
        files.copy(f"{number}/x", f"copy/{number}/x")
    assert threads() <= before + 16


def test_what_is_removed_must_exist(files: FileSystem, tmp_path: Path) -> None:
    files.pipe("bucket/rm/a", b"a")
    with pytest.raises(FileNotFoundError):
        files.rm("bucket/rm/none")
    with pytest.raises(FileNotFoundError):
        files.rm("bucket/none", recursive=True)
    with pytest.raises(IsADirectoryError, match="recursive"):
        files.rm("bucket/rm")
    files.rm("bucket/rm/a")
    assert not files.exists("bucket/rm")


def test_marks_of_folders_go_with_them(files: FileSystem) -> None:
    s3 = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])
    for key in ("marked/", "marked/a", "marked/deep/"):
        s3.put_object(Bucket="bucket", Key=key, Body=b"")
    assert files.find("bucket/marked") == ["bucket/marked/a"] and files.ls("bucket/marked", detail=False) == [
        "bucket/marked/a",
        "bucket/marked/deep",
    ]
    files.rm("bucket/marked", recursive=True)
    assert not files.exists("bucket/marked")


def test_options_of_other_file_systems(files: FileSystem) -> None:
    with pytest.raises(ValueError, match="AWS_ENDPOINT_URL"):
        FileSystem(key="me", client_kwargs={"endpoint_url": "http://other"})
    with pytest.raises(NotImplementedError, match="give a bucket"):
        files.ls("")


def test_put_only_what_is_not_there(files: FileSystem, tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"one")
    files.put_file(str(tmp_path / "one"), "bucket/created", mode="create")
    (tmp_path / "one").write_bytes(b"two")
    with pytest.raises(FileExistsError):
        files.put_file(str(tmp_path / "one"), "bucket/created", mode="create")
    assert files.cat("bucket/created") == b"one"
