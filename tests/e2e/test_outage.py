"""A store that goes away in the middle, and comes back: runs continue, with the same samples."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ports import free_port
from thoroughness import ALL

from . import corpus
from .conftest import Photos
from .harness import Sandbox, Server, devstore, feed_args

# Longer than what is put down to a hiccup; by `make test-all`, long.
AWAY_SECONDS = 300 if ALL else 12
# So that there is a middle, and that it takes requests to the end.
SLOW = ("GET b/tar/*.tar delay-ms=20",)
FEED = {"memory": "16MiB", "shuffle": "global", "epochs": 8, "threads": 1}


@pytest.fixture
def store(photos: Photos, sandbox: Sandbox, server: Server) -> Iterator[Server]:
    with devstore(sandbox, photos.root, faults=SLOW) as running:
        yield running


def begin(sandbox: Sandbox, store: Server, state: Path, *more: object) -> subprocess.Popen:
    """A feed that has delivered something."""
    args = feed_args("s3://b/tar", "--state", state, *more, **FEED)
    feed = sandbox.start(*args, env=store.env(), out=subprocess.PIPE, err=subprocess.PIPE)
    deadline = time.monotonic() + 300
    while not state.exists() or json.loads(state.read_text())["samples"] == 0:
        assert feed.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    return feed


def count_connections(port: int, seconds: float) -> list[float]:
    """When somebody connected while nothing but this was there, which hangs up at once."""
    began = time.monotonic()
    came = []
    with socket.create_server(("127.0.0.1", port), backlog=256) as listener:
        while (left := began + seconds - time.monotonic()) > 0:
            listener.settimeout(left)
            with contextlib.suppress(TimeoutError):
                listener.accept()[0].close()
                came.append(time.monotonic() - began)
    return came


def test_a_feed_waits_for_its_store(photos: Photos, sandbox: Sandbox, server: Server, tmp_path: Path) -> None:
    expected, port = sandbox.feed("s3://b/tar", env=server.env(), **FEED), free_port()
    with devstore(sandbox, photos.root, faults=SLOW, port=port) as store:
        feed = begin(sandbox, store, tmp_path / "state")
        store.process.send_signal(signal.SIGTERM)
        store.process.wait(120)
        probes = count_connections(port, AWAY_SECONDS)
        with devstore(sandbox, photos.root, faults=SLOW, port=port):
            out, err = feed.communicate(timeout=600)
    assert feed.returncode == 0, err
    # Before it counts as away, every request that is in flight may be tried a few times; then there is one a second.
    assert len([at for at in probes if at > 8]) <= AWAY_SECONDS, probes
    report = json.loads(out)
    assert report["digest"] == expected["digest"] and report["samples"] == expected["samples"]
    assert report["stalls"]["outage"] > 0, report["stalls"]
    # Once each, however many requests were in flight.
    assert err.count(b"is away since") == 1 and err.count(b"is back, and was away since") == 1, err


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_a_pack_waits_for_its_store(photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
    """Its result is the same as that of an undisturbed pack, index included."""
    root = tmp_path / "root"
    corpus.copy_tree(photos.raw, root / "in" / "raw")
    (root / "out").mkdir()
    unending = (
        "GET in/raw/*.jpg delay-ms=600000 after=500",
    )  # half of it, so that it is in the middle until the store goes away
    port = free_port()
    options = ("--shard-size", "512KiB", "--shuffle", "--seed", 3)
    with devstore(sandbox, root) as undisturbed:
        sandbox.ok("pack", "s3://in/raw", "s3://out/whole", *options, env=undisturbed.env())
    with devstore(sandbox, root, faults=unending, port=port) as store:
        pack = sandbox.start("pack", "s3://in/raw", "s3://out/packed", *options, env=store.env(), err=subprocess.PIPE)
        deadline = time.monotonic() + 300
        while len(list((root / "out" / "packed").glob("shard-*"))) < 3:
            assert pack.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
        store.process.send_signal(signal.SIGTERM)
        store.process.wait(120)
        assert pack.poll() is None  # it is in the middle
        time.sleep(AWAY_SECONDS)
        with devstore(sandbox, root, port=port):
            _, err = pack.communicate(timeout=600)
    assert pack.returncode == 0, err
    assert err.count(b"is away since") == 1 and err.count(b"is back, and was away since") == 1, err
    assert files(root / "out" / "packed") == files(root / "out" / "whole")


def test_a_shard_that_is_deleted_is_a_change(photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
    """As one that is replaced: the index is behind."""
    root = tmp_path / "root"
    shutil.copytree(photos.tar, root / "b" / "tar")
    with devstore(sandbox, root, faults=SLOW) as store:
        sandbox.ok("index", "s3://b/tar", env=store.env())
        feed = begin(sandbox, store, tmp_path / "state")
        for shard in (root / "b" / "tar").glob("*.tar"):
            shard.unlink()
        _, err = feed.communicate(timeout=300)
    assert (
        feed.returncode == 1 and b"s3://b/tar has changed since it was indexed; run: millrace index s3://b/tar" in err
    ), err


def test_a_server_of_the_other_protocol_is_said(sandbox: Sandbox, tmp_path: Path) -> None:
    with devstore(sandbox, "mem:", "--tls", "--bucket", "b") as store:
        plain = store.url.replace("https:", "http:")
        done = sandbox.run("ls", "s3://b", env=store.env() | {"AWS_ENDPOINT_URL": plain})
        done.failed(1, f"AWS_ENDPOINT_URL={store.url}")
        assert "the server says that it speaks https" in done.err
    with devstore(sandbox, "mem:", "--bucket", "b") as store:
        secure = store.url.replace("http:", "https:")
        sandbox.run("ls", "s3://b", env=store.env() | {"AWS_ENDPOINT_URL": secure}).failed(1, "use http://")


def test_a_feed_does_not_wait_for_ever(sandbox: Sandbox, store: Server, tmp_path: Path) -> None:
    feed = begin(sandbox, store, tmp_path / "state", "--outage-limit", "4")
    store.process.send_signal(signal.SIGTERM)
    store.process.wait(120)
    _, err = feed.communicate(timeout=300)
    assert feed.returncode == 1 and b"for longer than the limit for outages" in err, err


def test_a_store_that_never_was_there_is_not_waited_for(sandbox: Sandbox) -> None:
    env = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_REGION": "us-east-1",
    }
    sandbox.run(*feed_args("s3://b/tar"), env=env).failed(1, "AWS_ENDPOINT_URL")


def test_the_limit_is_checked(sandbox: Sandbox, tmp_path: Path) -> None:
    for command in (["feed", "x"], ["pack", "x", tmp_path / "to"], ["index", "x"], ["sync", "x", tmp_path / "to"]):
        sandbox.run(*command, "--outage-limit", "-1").failed(2, "--outage-limit must be")
