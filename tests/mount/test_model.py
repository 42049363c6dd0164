"""Random operations on a mount, against a model of what they do: a tree in memory."""

from __future__ import annotations

import errno
import os
import random
import stat
from pathlib import Path

import pytest
import thoroughness
from e2e.harness import Sandbox, Server, devstore
from e2e.mounting import mounted, needs_fuse

pytestmark = needs_fuse

NAMES = ["a", "b", "a-1", "a.b", "é", "Z"]


class Model:
    """Files and folders by their path, and what the mount may do: docs/semantics.md in forty lines."""

    def __init__(self, overwrite: bool) -> None:
        self.overwrite = overwrite
        self.files: dict[str, bytes] = {}
        self.folders = {""}

    def _check_parent(self, path: str) -> None:
        parent = path.rpartition("/")[0]
        if parent in self.files:
            raise OSError(errno.ENOTDIR, parent)
        if parent not in self.folders:
            raise OSError(
                errno.ENOTDIR if any(parent.startswith(f"{file}/") for file in self.files) else errno.ENOENT, parent
            )

    def write(self, path: str, body: bytes) -> None:
        self._check_parent(path)
        if path in self.folders:
            raise OSError(errno.EISDIR, path)
        if path in self.files and not self.overwrite:
            raise OSError(errno.EEXIST, path)
        self.files[path] = body

    def mkdir(self, path: str) -> None:
        self._check_parent(path)
        if path in self.files or path in self.folders:
            raise OSError(errno.EEXIST, path)
        self.folders.add(path)

    def rmdir(self, path: str) -> None:
        self._check_parent(path)
        if path in self.files:
            raise OSError(errno.ENOTDIR, path)
        if path not in self.folders:
            raise OSError(errno.ENOENT, path)
        if any(other.startswith(f"{path}/") for other in [*self.files, *self.folders]):
            raise OSError(errno.ENOTEMPTY, path)
        self.folders.remove(path)

    def remove(self, path: str) -> None:
        self._check_parent(path)
        if path in self.folders:
            raise OSError(errno.EISDIR, path)
        if path not in self.files:
            raise OSError(errno.ENOENT, path)
        del self.files[path]

    def rename(self, source: str, target: str) -> None:
        self._check_parent(source)
        self._check_parent(target)
        if source in self.folders:
            if target.startswith(f"{source}/"):
                raise OSError(errno.EINVAL, target)
            if target in self.files:
                raise OSError(errno.ENOTDIR, target)
            if source == target:
                return
            if source.startswith(f"{target}/"):
                raise OSError(errno.ENOTEMPTY, target)
            if target in self.folders and any(other.startswith(f"{target}/") for other in [*self.files, *self.folders]):
                raise OSError(errno.ENOTEMPTY, target)
            self.folders = {self._moved(folder, source, target) for folder in self.folders}
            self.files = {self._moved(path, source, target): body for path, body in self.files.items()}
            return
        if source not in self.files:
            raise OSError(errno.ENOENT, source)
        if target in self.folders:
            raise OSError(errno.EISDIR if not source.startswith(f"{target}/") else errno.ENOTEMPTY, target)
        if source == target:
            return
        if target in self.files and not self.overwrite:
            raise OSError(errno.EEXIST, target)
        self.files[target] = self.files.pop(source)

    @staticmethod
    def _moved(path: str, source: str, target: str) -> str:
        return target + path[len(source) :] if path == source or path.startswith(f"{source}/") else path

    def append(self, path: str, body: bytes) -> None:
        self._check_parent(path)
        if path in self.folders:
            raise OSError(errno.EISDIR, path)
        if path in self.files and not self.overwrite:
            raise OSError(errno.EEXIST, path)
        self.files[path] = self.files.get(path, b"") + body

    def change(self, path: str, at: int, body: bytes) -> None:
        self._check_change(path)
        before = self.files[path].ljust(at, b"\0")
        self.files[path] = before[:at] + body + before[at + len(body) :]

    def truncate(self, path: str, size: int) -> None:
        self._check_change(path, size)
        self.files[path] = self.files[path][:size].ljust(size, b"\0")

    def _check_change(self, path: str, size: int | None = None) -> None:
        self._check_parent(path)
        if path in self.folders:
            raise OSError(errno.EISDIR, path)
        if path not in self.files:
            raise OSError(errno.ENOENT, path)
        if not self.overwrite and len(self.files[path]) != size:
            raise OSError(errno.EEXIST, path)

    def read(self, path: str) -> bytes:
        self._check_parent(path)
        if path in self.folders:
            raise OSError(errno.EISDIR, path)
        if path not in self.files:
            raise OSError(errno.ENOENT, path)
        return self.files[path]

    def listing(self, path: str) -> list[str]:
        if path in self.files:
            raise OSError(errno.ENOTDIR, path)
        if path not in self.folders:
            self._check_parent(path)
            raise OSError(errno.ENOENT, path)
        prefix = f"{path}/" if path else ""
        return sorted(
            other[len(prefix) :]
            for other in [*self.files, *self.folders]
            if other and other.startswith(prefix) and "/" not in other[len(prefix) :]
        )


class Real:
    """The same calls on the mount."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, body: bytes) -> None:
        with open(self.root / path, "wb", buffering=0) as file:
            for at in range(0, len(body), 700_000):
                file.write(body[at : at + 700_000])

    def append(self, path: str, body: bytes) -> None:
        with open(self.root / path, "ab", buffering=0) as file:
            file.write(body)

    def change(self, path: str, at: int, body: bytes) -> None:
        fd = os.open(self.root / path, os.O_RDWR)
        try:
            os.pwrite(fd, body, at)
        finally:
            os.close(fd)

    def truncate(self, path: str, size: int) -> None:
        os.truncate(self.root / path, size)

    def mkdir(self, path: str) -> None:
        os.mkdir(self.root / path)

    def rmdir(self, path: str) -> None:
        os.rmdir(self.root / path)

    def remove(self, path: str) -> None:
        os.unlink(self.root / path)

    def rename(self, source: str, target: str) -> None:
        os.rename(self.root / source, self.root / target)

    def read(self, path: str) -> bytes:
        return (self.root / path).read_bytes()

    def listing(self, path: str) -> list[str]:
        return sorted(os.listdir(self.root / path))


def random_path(rng: random.Random) -> str:
    return "/".join(rng.choice(NAMES) for _ in range(rng.choice([1, 1, 2, 2, 3])))


def random_call(rng: random.Random) -> tuple[str, tuple[object, ...]]:
    path = random_path(rng)
    call = rng.choice(
        [
            *("write", "write", "write", "append", "change", "truncate"),
            *("mkdir", "mkdir", "rmdir", "remove", "rename", "read", "read", "listing"),
        ]
    )
    if call == "append":
        return call, (path, rng.randbytes(rng.choice([1, 5000])))
    if call == "change":
        return call, (path, rng.randrange(10_000), rng.randbytes(rng.choice([1, 5000])))
    if call == "truncate":
        return call, (path, rng.choice([0, 3, 7000]))
    if call == "write":
        return call, (path, rng.randbytes(rng.choice([0, 1, 5000, 200_000]) if rng.random() < 0.98 else 9_000_000))
    if call == "rename":
        return call, (path, random_path(rng))
    return call, (path,)


def outcome(target: Model | Real, call: str, arguments: tuple[object, ...]) -> tuple[str, object]:
    try:
        return "ok", getattr(target, call)(*arguments)
    except OSError as error:
        return "refused", errno.errorcode[error.errno or 0]


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("ttl", ["minimal", "1h"])
def test_a_mount_does_what_the_model_does(sandbox: Sandbox, tmp_path: Path, overwrite: bool, ttl: str) -> None:
    options = ["--writable", "--metadata-ttl", ttl, *([] if overwrite else ["--no-overwrite"])]
    with devstore(sandbox, "mem:", "--bucket", "b") as store:
        walk(sandbox, store, tmp_path, options, overwrite, seed=f"{overwrite} {ttl}")


def walk(sandbox: Sandbox, store: Server, tmp_path: Path, options: list[str], overwrite: bool, seed: str) -> None:
    with mounted(sandbox, "s3://b/model", tmp_path / "mnt", *options, env=store.env()):
        model, real = Model(overwrite), Real(tmp_path / "mnt")
        rng = random.Random(seed)
        refused = 0
        for step in range(thoroughness.repeats(4000)):
            call, arguments = random_call(rng)
            shown = f"step {step}: {call} {[len(a) if isinstance(a, bytes) else a for a in arguments]}"  # type: ignore[arg-type]
            expected = outcome(model, call, arguments)
            got = outcome(real, call, arguments)
            assert got == expected, shown
            refused += expected[0] == "refused"
        assert 0 < refused < thoroughness.repeats(4000)
        for path in sorted(model.folders):
            assert real.listing(path) == model.listing(path), path
        for path, body in model.files.items():
            assert real.read(path) == body, path
            assert (tmp_path / "mnt" / path).stat().st_size == len(body)
    # And it is what the store has.
    client = store.client()
    listed = client.list_objects_v2(Bucket="b", Prefix="model/").get("Contents", [])
    assert {entry["Key"].removeprefix("model/"): entry["Size"] for entry in listed} == {
        path: len(body) for path, body in model.files.items()
    }
    assert not client.list_multipart_uploads(Bucket="b").get("Uploads")


# ---- Links, against a folder of a local disk

TARGETS = ["a", "b", "a/b", "../a", "../a-1", "nothing", "./b/../a"]


class Linked(Real):
    """The calls that concern links, too."""

    def symlink(self, path: str, target: str) -> None:
        os.symlink(target, self.root / path)

    def readlink(self, path: str) -> str:
        return os.readlink(self.root / path)

    def replace(self, path: str, target: str) -> None:
        """As `ln -sfn` does."""
        os.symlink(target, self.root / "new")
        try:
            os.replace(self.root / "new", self.root / path)
        except OSError:
            os.remove(self.root / "new")
            raise

    def lstat(self, path: str) -> tuple[int, int]:
        info = os.lstat(self.root / path)
        return stat.S_IFMT(info.st_mode), 0 if stat.S_ISDIR(info.st_mode) else info.st_size

    def resolve(self, path: str) -> str:
        return os.path.relpath(os.path.realpath(self.root / path), self.root)

    def entries(self, path: str) -> list[tuple[str, bool, bool]]:
        found = os.scandir(self.root / path)
        return sorted((entry.name, entry.is_symlink(), entry.is_dir(follow_symlinks=False)) for entry in found)


def call_of_links(rng: random.Random) -> tuple[str, tuple[object, ...]]:
    call = rng.choice(
        [
            *("symlink", "symlink", "symlink", "replace", "readlink", "lstat", "resolve", "entries"),
            *("write", "append", "read", "mkdir", "rmdir", "remove", "rename", "rename"),
        ]
    )
    path = "/".join(rng.choice(NAMES[:3]) for _ in range(rng.choice([1, 1, 2, 2, 3])))
    if call in ("symlink", "replace"):
        return call, (path, rng.choice(TARGETS))
    if call in ("write", "append"):
        return call, (path, rng.randbytes(rng.choice([0, 1, 5000])))
    if call == "rename":
        return call, (path, "/".join(rng.choice(NAMES[:3]) for _ in range(rng.choice([1, 1, 2]))))
    return call, (path,)


@pytest.mark.parametrize("ttl", ["minimal", "1h"])
def test_links_of_a_mount_are_those_of_a_disk(sandbox: Sandbox, tmp_path: Path, ttl: str) -> None:
    disk, mount = tmp_path / "one" / "root", tmp_path / "two" / "root"
    disk.mkdir(parents=True)
    mount.parent.mkdir()
    rng = random.Random(ttl)
    steps, refused = thoroughness.repeats(4000, 400), 0
    with (
        devstore(sandbox, "mem:", "--bucket", "b") as store,
        mounted(sandbox, "s3://b/model", mount, "--writable", "--metadata-ttl", ttl, env=store.env()),
    ):
        for step in range(steps):
            call, arguments = call_of_links(rng)
            shown = f"step {step}: {call} {[len(a) if isinstance(a, bytes) else a for a in arguments]}"  # type: ignore[arg-type]
            expected = outcome(Linked(disk), call, arguments)
            assert outcome(Linked(mount), call, arguments) == expected, shown
            refused += expected[0] == "refused"
        assert 0 < refused < steps
        client = store.client()
        listed = client.list_objects_v2(Bucket="b", Prefix="model/").get("Contents", [])
    there = [path.relative_to(disk) for path in disk.rglob("*") if path.is_symlink() or path.is_file()]
    names = [f"{path}.rclonelink" if (disk / path).is_symlink() else str(path) for path in there]
    assert sorted(entry["Key"].removeprefix("model/") for entry in listed) == sorted(names)
