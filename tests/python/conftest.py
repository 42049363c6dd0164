"""Has data for the tests of the Python package, and the place of that package."""

from __future__ import annotations

import contextlib
import gc
import os
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

import built_package
import pytest

# Programs that the tests start find the same package.
sys.path.insert(0, str(built_package.folder()))
os.environ["PYTHONPATH"] = os.pathsep.join([str(built_package.folder()), str(pathlib.Path(__file__).parent)])

from millrace import _ranks
from service_support import Worker
from support import Samples, devstore, write_raw, write_tar


@pytest.fixture(scope="session", autouse=True)
def private_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No index of a test goes to the user's cache folder, and no rank of a job reaches a test."""
    patch = pytest.MonkeyPatch()
    patch.setenv("MILLRACE_CACHE", str(tmp_path_factory.mktemp("cache")))
    for name in (name for pair in _ranks._VARIABLES for name in pair):
        patch.delenv(name, raising=False)
    yield
    patch.undo()


@pytest.fixture(scope="session")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Samples:
    """Makes 45 PNGs of 24 x 32 RGB pixels as raw objects, in the folders cat, dog and eel."""
    return write_raw(tmp_path_factory.mktemp("raw"), count=45)


@pytest.fixture(scope="session")
def tar(tmp_path_factory: pytest.TempPathFactory) -> Samples:
    """Makes 50 samples in three tar shards, with the fields cls, json, png and txt."""
    return write_tar(tmp_path_factory.mktemp("tar"), count=50)


@pytest.fixture(scope="session")
def server_folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Returns where the objects of `server` are files, below `bucket`."""
    root = tmp_path_factory.mktemp("s3")
    (root / "bucket").mkdir()
    return root


@pytest.fixture(scope="session")
def server(server_folder: pathlib.Path) -> Iterator[dict[str, str]]:
    """Starts the one S3 server that this process itself talks to, since its client is made once; with a bucket
    `bucket`."""
    with devstore(server_folder) as environment:
        yield environment


@pytest.fixture
def bucket(server: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    """Returns the URI of its bucket."""
    for name, value in server.items():
        monkeypatch.setenv(name, value)
    return "s3://bucket"


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> str:
    """Returns a folder for checkpoints, which does not exist yet."""
    return str(tmp_path / "run")


@pytest.fixture(params=["folder", "s3"])
def place(
    request: pytest.FixtureRequest, tmp_path: pathlib.Path, bucket: str, server_folder: pathlib.Path
) -> tuple[str, pathlib.Path]:
    """Returns a URI for checkpoints, on a disk or in the bucket, and the folder in which their objects are files."""
    if request.param == "folder":
        return str(tmp_path / "run"), tmp_path / "run"
    return f"{bucket}/{request.node.name}", server_folder / "bucket" / request.node.name


@pytest.fixture
def uri(place: tuple[str, pathlib.Path]) -> str:
    """Returns the URI of `place`."""
    return place[0]


@pytest.fixture
def workers() -> Iterator[Any]:
    """Starts workers of the data service, and ends them."""
    with contextlib.ExitStack() as stack:

        def start(*options: object, listen: str = "127.0.0.1:0", **env: str) -> Worker:
            worker = Worker(*options, listen=listen, env=env)
            stack.callback(worker.end)
            return worker

        yield start


@pytest.fixture
def cuda() -> Iterator[Any]:
    """Returns a FakeCuda, which has no fault at the end, whatever the test did."""
    from fake_cuda import FakeCuda

    fake = FakeCuda()
    yield fake
    gc.collect()
    fake.read(list(fake.copying))
    assert fake.faults == []
    assert fake.registered == {}, "a slot stays pinned"


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Samples:
    """Makes 400 samples in four tar shards."""
    return write_tar(tmp_path_factory.mktemp("many"), count=400, shards=4)
