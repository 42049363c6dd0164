"""Tests raw objects that need no index but their listing: what is read before the first batch, and who notices what is
wrong."""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import millrace
import pytest
from support import binary, check_script, make_pixels, png, write_raw

DEADLINE = 300
KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test-secret", "AWS_REGION": "us-east-1"}
PIXELS: dict[str, Any] = {"size": 8, "epochs": 1, "output": "numpy", "shuffle": "none"}


def wait_until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


class Served:
    """Is a devstore over a folder, and the log of its requests."""

    def __init__(self, log: pathlib.Path, url: str) -> None:
        self._log = log
        self.environment = {**KEYS, "AWS_ENDPOINT_URL": url}

    def requests(self) -> list[tuple[str, str]]:
        """Returns method and path of each that was answered so far."""
        lines = [line.split() for line in self._log.read_text().splitlines()[1:]]
        return [(words[1], words[2]) for words in lines if len(words) > 2]

    def gets(self) -> list[str]:
        """Returns the names of the files of data that were read."""
        paths = [
            path for method, path in self.requests() if method == "GET" and not path.startswith("/b/raw/.millrace/")
        ]
        return sorted(path.rsplit("/", 1)[-1] for path in paths if "." in path)


@contextlib.contextmanager
def served(root: pathlib.Path, *arguments: str) -> Iterator[Served]:
    log = root / "access.log"
    command = [str(binary()), "devstore", str(root / "s3"), "--port", "0", "--access-log", *arguments]
    with log.open("wb") as out:
        server = subprocess.Popen([*command, "--access-key", "test", "--secret-key", "test-secret"], stdout=out)
    try:
        wait_until(lambda: server.poll() is not None or "\n" in log.read_text(), "devstore does not start")
        yield Served(log, log.read_text().split()[-1])
    finally:
        server.terminate()
        server.wait(timeout=DEADLINE)


@pytest.fixture
def data(tmp_path: pathlib.Path) -> pathlib.Path:
    """Returns the folder of s3://b/raw."""
    folder = tmp_path / "s3" / "b" / "raw"
    folder.mkdir(parents=True)
    return folder


FIRST_BATCH = """
import millrace
dataset = millrace.Dataset("s3://b/raw")
assert len(dataset) == 300 and dataset.classes == ["cat", "dog", "eel"] and dataset.class_counts["eel"] == 100
print("opened", flush=True)
input()
with millrace.Loader(dataset[:16], batch_size=16, size=8, epochs=1, output="numpy", shuffle="none") as loader:
    print(*next(iter(loader))["key"])
"""


def test_the_first_batch_asks_for_its_own_objects_only(tmp_path: pathlib.Path, data: pathlib.Path) -> None:
    """Nobody has indexed 300 objects: opening reads none of them, and a batch reads those of its samples."""
    write_raw(data, count=300)
    with served(tmp_path) as server:
        program = subprocess.Popen(
            [sys.executable, "-c", FIRST_BATCH],
            env={**os.environ, **server.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == "opened\n"
            assert server.gets() == []
            keys, _ = program.communicate("\n", timeout=DEADLINE)
        finally:
            program.kill()
            program.wait()
        expected = sorted(f"{key.rsplit('/', 1)[-1]}.png" for key in keys.split())
        assert len(expected) == 16
        wait_until(lambda: len(server.gets()) >= 16, "the requests of the batch are not in the log")
        assert server.gets() == expected
        assert ("PUT", "/b/raw/.millrace/index") in server.requests(), "the listing is kept as the index"


def test_the_checksum_of_the_store_finds_damage(tmp_path: pathlib.Path, data: pathlib.Path) -> None:
    """A bit that flips on the way is fetched again; bytes that stay wrong are damage. The index has no checksum."""
    for number in range(4):
        (data / f"{number}.png").write_bytes(png(make_pixels(number)))
    faults = ["--fault", "GET b/kept/1.png flip=60 count=1", "--fault", "GET b/kept/2.png flip=60"]
    read = """
import millrace
dataset = millrace.Dataset("s3://b/kept")
whole = millrace.Dataset("DATA")
for number in (0, 1, 3): assert dataset.read(number) == whole.read(number), number
try: dataset.read(2)
except millrace.DamagedDataError as error: print(error)
with millrace.Loader(dataset, batch_size=4, size=8, epochs=1, output="numpy", bad_samples="mask") as loader:
    print(sorted(next(iter(loader))["valid"].tolist()))
"""
    with served(tmp_path, *faults) as server:
        subprocess.run(
            [binary(), "cp", "--recursive", data, "s3://b/kept"],
            env={**os.environ, **server.environment},
            check=True,
            capture_output=True,
            timeout=DEADLINE,
        )
        told = check_script(read.replace("DATA", str(data)), **server.environment).splitlines()
    assert "2.png" in told[0] and "that the store keeps" in told[0]
    assert told[1] == "[False, True, True, True]"


CHANGED = """
import millrace, sys
dataset = millrace.Dataset(sys.argv[1])
print("opened", flush=True)
input()
try:
    with millrace.Loader(dataset, batch_size=4, size=8, epochs=1, output="numpy", shuffle="none") as loader: next(iter(loader))
except millrace.MismatchError as error: print("loader:", error)
try: dataset.read(2)
except millrace.MismatchError as error: print("read:", error)
"""


@pytest.mark.parametrize("place", ["s3", "folder"])
def test_what_changes_between_listing_and_reading_is_noticed(
    tmp_path: pathlib.Path, data: pathlib.Path, place: str
) -> None:
    """The key then has other bytes of the same length: the ETag shows it."""
    for number in range(4):
        (data / f"{number}.png").write_bytes(png(make_pixels(number)))
    with served(tmp_path) as server:
        uri = "s3://b/raw" if place == "s3" else str(data)
        program = subprocess.Popen(
            [sys.executable, "-c", CHANGED, uri],
            env={**os.environ, **server.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == "opened\n"
            before = (data / "2.png").read_bytes()
            changed = before[:-1] + bytes([before[-1] ^ 1])
            if place == "s3":
                (tmp_path / "other.png").write_bytes(changed)
                command = [binary(), "cp", tmp_path / "other.png", "s3://b/raw/2.png"]
                subprocess.run(
                    command, env={**os.environ, **server.environment}, check=True, capture_output=True, timeout=DEADLINE
                )
            else:
                (data / "2.png").write_bytes(changed)
            told, _ = program.communicate("\n", timeout=DEADLINE)
        finally:
            program.kill()
            program.wait()
    for line, who in zip(told.splitlines(), ("loader:", "read:")):
        assert line.startswith(who) and "2.png" in line and "has changed since it was indexed" in line
    assert len(told.splitlines()) == 2


def test_positions_labels_and_rows_outlive_checksums(tmp_path: pathlib.Path, data: pathlib.Path) -> None:
    """All that was saved or made with the index of the listing serves the index that has a CRC of each sample."""
    write_raw(data, count=40)
    (tmp_path / "labels.csv").write_text(
        "key,cls\n" + "".join(f"{key},{n}\n" for n, key in enumerate(sorted(keys_of(data))))
    )
    labels = tmp_path / "labels.csv"

    def stream(state: dict[str, Any] | None, batches: int) -> tuple[list[str], dict[str, Any]]:
        got: list[str] = []
        dataset = millrace.Dataset(data, labels=labels)
        with millrace.Loader(dataset, batch_size=4, size=8, epochs=2, output="numpy", seed=3) as loader:
            if state is not None:
                loader.load_state_dict(state)
            for _, batch in zip(range(batches), loader):
                got += [f"{key}={label}" for key, label in zip(batch["key"], batch["label"].tolist())]
            return got, loader.state_dict()

    whole, _ = stream(None, 20)
    first, state = stream(None, 7)
    made = {path.name for path in (data / ".millrace").iterdir()}
    assert any(name.startswith("labels-") for name in made)
    subprocess.run([binary(), "index", "--checksums", data], check=True, capture_output=True, timeout=DEADLINE)
    rest, _ = stream(state, 13)
    assert first + rest == whole
    assert {path.name for path in (data / ".millrace").iterdir()} == made, "the table of labels is not made again"


def keys_of(data: pathlib.Path) -> list[str]:
    return [str(path.relative_to(data).with_suffix("")) for path in data.rglob("*.png")]


def test_classes_in_files_are_read_with_the_samples(tmp_path: pathlib.Path, data: pathlib.Path) -> None:
    """They are, as long as nobody asks for them; what needs all of them says how they are read."""
    for number in range(8):
        (data / f"{number}.png").write_bytes(png(make_pixels(number)))
        (data / f"{number}.cls").write_text(f"{number % 3}\n")

    def labels() -> list[int]:
        with millrace.Loader(data, batch_size=8, **PIXELS) as loader:
            found: list[int] = next(iter(loader))["label"].tolist()
            return found

    expected = [number % 3 for number in range(8)]
    assert labels() == expected
    dataset = millrace.Dataset(data)
    for ask in (lambda: dataset.class_counts, lambda: dataset.where(label=1)):
        with pytest.raises(millrace.MismatchError, match="millrace index --classes"):
            ask()
    repr(dataset)
    dataset._repr_html_()
    subprocess.run([binary(), "index", "--classes", data], check=True, capture_output=True, timeout=DEADLINE)
    assert labels() == expected
    again = millrace.Dataset(data)
    assert again.class_counts == {"0": 3, "1": 3, "2": 2}
    assert len(again.where(label=1)) == 3 and again.fingerprint == dataset.fingerprint
