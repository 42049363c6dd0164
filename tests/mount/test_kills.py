"""A mount that is killed at any moment has lost nothing that `close` has reported as written."""

from __future__ import annotations

import contextlib
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from e2e.harness import Sandbox, Server, devstore
from e2e.mounting import needs_fuse
from test_mount_failures import killable
from thoroughness import ALL

pytestmark = needs_fuse

NAMES = [f"{folder}{name}" for folder in ("", "folder/") for name in "abcd"]
# As many tests, which may run in parallel, share the operations: one after another they take half an hour and more.
SEEDS = range(1, 11) if ALL else range(1, 2)
OPERATIONS = 100_000 // len(SEEDS) if ALL else 120
OF_A_MOUNT = 1000 if ALL else 60  # fewer than that, and it is killed in the middle of the last one
Bodies = set[bytes | None]  # that a file may have; None: it is not there


class Files:
    """The bodies that each file may have. After a call that failed, there are two: as before it, and as after it."""

    def __init__(self) -> None:
        self.may_be: dict[str, Bodies] = {name: {None} for name in NAMES}

    def settle(self, store: Server) -> None:
        client = store.client()
        listed = client.list_objects_v2(Bucket="b").get("Contents", [])
        there = {entry["Key"]: client.get_object(Bucket="b", Key=entry["Key"])["Body"].read() for entry in listed}
        for name, bodies in self.may_be.items():
            assert there.get(name) in bodies, f"{name}: {len(there.get(name) or b'')} bytes, none of {len(bodies)}"
            self.may_be[name] = {there.get(name)}
        assert set(there) <= set(NAMES)

    def now(self, name: str) -> bytes | None:
        (body,) = self.may_be[name]
        return body

    def do(self, changes: dict[str, bytes | None], call: Callable[[], object]) -> None:
        before = {name: self.may_be[name] for name in changes}
        for name, body in changes.items():
            self.may_be[name] = before[name] | {body}
        with contextlib.suppress(OSError):
            call()
            for name, body in changes.items():
                self.may_be[name] = {body}


def save(path: Path, mode: str, at: int, body: bytes, sync: bool) -> None:
    with open(path, mode, buffering=0) as file:
        file.seek(at, os.SEEK_END if mode == "ab" else os.SEEK_SET)
        for begin in range(0, len(body), 700_000):
            file.write(body[begin : begin + 700_000])
        if sync:
            os.fsync(file.fileno())


def one_call(rng: random.Random, files: Files, root: Path) -> Callable[[], None]:
    name, other = rng.sample(NAMES, 2)
    before, sync = files.now(name), rng.random() < 0.2
    body = rng.randbytes(rng.choice([1, 5000, 300_000]) if rng.random() < 0.99 else 9_000_000)
    kind = rng.choice(["write", "write", "append", "change", "remove", "rename"])
    if kind == "write" or before is None:
        return lambda: files.do({name: body}, lambda: save(root / name, "wb", 0, body, sync))
    if kind == "append":
        # Not synced: fsync would publish a version in between.
        return lambda: files.do({name: before + body}, lambda: save(root / name, "ab", 0, body, False))
    if kind == "change":
        at = rng.randrange(len(before))
        after = before[:at] + body + before[at + len(body) :]
        return lambda: files.do({name: after}, lambda: save(root / name, "r+b", at, body, sync))
    if kind == "remove":
        return lambda: files.do({name: None}, lambda: os.remove(root / name))
    return lambda: files.do({name: None, other: before}, lambda: os.rename(root / name, root / other))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_that_was_closed_is_lost(sandbox: Sandbox, tmp_path: Path, seed: int) -> None:
    rng, files, done = random.Random(seed), Files(), 0
    with devstore(sandbox, "mem:", "--bucket", "b") as store:
        while done < OPERATIONS:
            root = tmp_path / f"mnt{done}"
            with killable(sandbox, "s3://b", root, "--writable", "--metadata-ttl", "minimal", env=store.env()) as mount:
                with contextlib.suppress(FileExistsError):
                    (root / "folder").mkdir()
                operations = rng.randrange(OF_A_MOUNT)
                for _ in range(operations):
                    one_call(rng, files, root)()
                for name in NAMES:
                    there = (root / name).read_bytes() if (root / name).exists() else None
                    assert files.may_be[name] == {there}, name
                last = threading.Thread(target=one_call(rng, files, root))
                last.start()
                mount.kill()
                last.join()
            files.settle(store)
            done += operations + 1
        assert any(files.now(name) for name in NAMES)
