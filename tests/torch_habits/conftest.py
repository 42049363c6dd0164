"""Where the package under test is, and the samples of the programs."""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
import re
import subprocess
import sys
from typing import Any

# `build/frameworks/NAME/bin/python -m pytest tests/torch_habits/cases_NAME.py` finds these too.
TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "frameworks")]

import built_package  # noqa: E402

sys.path.insert(0, str(built_package.folder()))
FOUND = [str(built_package.folder()), str(pathlib.Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, FOUND))

import pytest  # noqa: E402
import torch  # noqa: E402
from samples import Inputs  # noqa: E402

RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE")


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Any:
    """Tiny matrices gain nothing by threads. No index goes to the user's cache folder, and no rank of a job reaches a test."""
    patch = pytest.MonkeyPatch()
    for name in (*RANKS, "SLURM_PROCID", "SLURM_NTASKS"):
        patch.delenv(name, raising=False)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    patch.undo()


STORES = {
    "one": {"profile": "first", "region": "eu-central-1"},
}


def binary() -> str:
    return os.environ.get("MILLRACE_BIN", str(built_package.folder().parent / "bin" / "millrace"))


@pytest.fixture(scope="session")
def session_inputs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    root = tmp_path_factory.mktemp("habits")
    with contextlib.ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("MILLRACE_CACHE", str(root / "cache"))
        inputs = Inputs(root)
        inputs.more["running"] = functools.cache(lambda: start_stores(inputs, stack))
        yield inputs


def start_stores(inputs: Inputs, stack: contextlib.ExitStack) -> dict[str, dict[str, str]]:
    """A server with a bucket of the samples."""
    stores = {}
    for bucket, store in STORES.items():
        root = inputs.root / f"server {bucket}"
        inputs.write("numbers", root / bucket / "numbers")
        keys = ["--access-key", store["profile"], "--secret-key", f"secret-of-{store['profile']}"]
        command = [binary(), "devstore", str(root), "--port", "0", "--region", store["region"], *keys]
        server = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        stack.callback(server.terminate)
        assert server.stdout is not None
        found = re.match(r"listening on (\S+)", server.stdout.readline())
        assert found
        stores[bucket] = {**store, "endpoint": found[1]}
    profiles = [
        f"[{store['profile']}]\naws_access_key_id = {store['profile']}\n"
        f"aws_secret_access_key = secret-of-{store['profile']}\n"
        for store in stores.values()
    ]
    (inputs.root / "credentials").write_text("\n".join(profiles))
    return stores


@pytest.fixture
def inputs(session_inputs: Inputs, monkeypatch: pytest.MonkeyPatch) -> Inputs:
    def stores() -> dict[str, dict[str, str]]:
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(session_inputs.root / "credentials"))
        return session_inputs("", "running")

    def store() -> dict[str, str]:
        """The environment in which a program finds it."""
        one = stores()["one"]
        return {"AWS_ENDPOINT_URL": one["endpoint"], "AWS_PROFILE": one["profile"], "AWS_REGION": one["region"]}

    session_inputs.more.update(stores=stores, store=store)
    return session_inputs
