"""One cache and several credentials (C6, C34): a key that may list a bucket, and not read it, gets no bytes and no index that others have cached."""

from __future__ import annotations

import http.client
import http.server
import json
import pathlib
import re
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from e2e.harness import Sandbox, binary, devstore
from e2e.mounting import mounted, needs_fuse
from room import with_room

READER, LISTER = "AKIAREADER", "AKIALISTER"
DENIED = b"<?xml version='1.0'?><Error><Code>AccessDenied</Code><Message>the key may only list</Message></Error>"


class Gate(http.server.BaseHTTPRequestHandler):
    """A devstore that one of two keys may not read from: as if it lacked the key of KMS."""

    protocol_version = "HTTP/1.1"
    store: tuple[str, int]
    denied: list[str]
    is_frozen = False  # nobody may write
    guards_index = False  # who may list only does not read the index beside the data either

    def pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        may_list_only = f"Credential={LISTER}/" in self.headers.get("Authorization", "")
        is_index = "/.millrace/" in self.path
        reads = self.command == "GET" and "?" not in self.path and (self.guards_index or not is_index)
        writes = self.command in ("PUT", "POST", "DELETE")
        if (reads and may_list_only) or (writes and self.is_frozen):
            self.denied.append(self.path)
            return self.answer(403, [("Content-Type", "application/xml")], DENIED)
        connection = http.client.HTTPConnection(*self.store, timeout=300)
        connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        reply = connection.getresponse()
        own = ("connection", "transfer-encoding", "content-length")
        headers = [(name, value) for name, value in reply.getheaders() if name.lower() not in own]
        text = reply.read()
        length = reply.headers.get("Content-Length") if self.command == "HEAD" else None
        self.answer(reply.status, headers, text, length)
        connection.close()

    def answer(self, status: int, headers: list[tuple[str, str]], body: bytes, length: str | None = None) -> None:
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", length or str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = pass_on

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def gate(tmp_path: pathlib.Path) -> Iterator[type[Gate]]:
    """In front of a store with a data set that the reader's key has made."""
    home = tmp_path / "home"
    home.mkdir()
    sandbox = Sandbox(home)
    with devstore(sandbox, "mem:", "--anonymous", "--bucket", "b") as store:
        host, port = re.fullmatch(r"http://(.*):(\d+)", store.url).groups()  # type: ignore[union-attr]

        class Ours(Gate):
            pass

        Ours.store, Ours.denied = (host, int(port)), []
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Ours)
        server.daemon_threads = True
        Ours.url = f"http://127.0.0.1:{server.server_port}"  # type: ignore[attr-defined]
        Ours.sandbox = sandbox  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        made = millrace(Ours, READER, "synth", "s3://b/train", "--count", "24", "--kb", "20")
        assert made.returncode == 0, made.stderr
        yield Ours
        server.shutdown()
        server.server_close()


@pytest.fixture
def cache(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    with with_room(tmp_path) as folder:
        yield folder / "cache"


def environment(gate: Any, key: str) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": gate.url,
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_MAX_ATTEMPTS": "2",
    }


def millrace(gate: Any, key: str, *words: Any) -> subprocess.CompletedProcess[str]:
    command = [str(word) for word in words]
    env = gate.sandbox.env(environment(gate, key))
    return subprocess.run([binary(), *command], env=env, capture_output=True, text=True, timeout=600, check=False)


def feed(gate: Any, key: str, cache: pathlib.Path, *more: str) -> subprocess.CompletedProcess[str]:
    return millrace(
        gate, key, "feed", "s3://b/train", "--json", "--batch", "4", "--size", "16", "--cache", cache, "--cache-size", "16MiB", *more
    )  # fmt: skip


def counts(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_c6_a_key_that_may_only_list_gets_no_cached_bytes(gate: Any, cache: pathlib.Path) -> None:
    first = counts(feed(gate, READER, cache))
    assert first["cache"]["miss_bytes"] > 0
    again = counts(feed(gate, READER, cache))
    assert again["cache"]["miss_bytes"] == 0 and again["cache"]["hit_bytes"] > 0, "its own bytes are there"
    stolen = feed(gate, LISTER, cache)
    assert stolen.returncode == 1 and "AccessDenied" in stolen.stderr, stolen.stdout + stolen.stderr
    assert gate.denied
    tenants = {json.loads(line)["tenant"] for line in millrace(gate, READER, "cache", "ls", cache, "--json").stdout.splitlines()}  # fmt: skip
    assert tenants == {f"key {READER}"}


def test_c6_the_operator_says_who_shares_a_tenant(gate: Any, cache: pathlib.Path) -> None:
    """Without which the test above could not fail."""
    digest = counts(feed(gate, READER, cache, "--cache-tenant", "team"))["digest"]
    shared = counts(feed(gate, LISTER, cache, "--cache-tenant", "team"))
    assert shared["cache"]["miss_bytes"] == 0 and shared["digest"] == digest
    assert not gate.denied
    for name in ("crew", f"key-{READER}"):
        assert feed(gate, LISTER, cache, "--cache-tenant", name).returncode == 1
    for name in ("a b", "a\nb", "x" * 300):
        refused = feed(gate, READER, cache, "--cache-tenant", name)
        assert refused.returncode == 2 and "--cache-tenant" in refused.stderr
    assert millrace(gate, READER, "feed", "s3://b/train", "--cache-tenant", "team").returncode == 2, "without a cache"


def test_c6_warmed_bytes_are_the_tenants(gate: Any, cache: pathlib.Path) -> None:
    warmed = millrace(gate, READER, "cache", "warm", "s3://b/train", "--cache", cache, "--cache-tenant", "team")
    assert warmed.returncode == 0, warmed.stderr
    assert feed(gate, LISTER, cache).returncode == 1
    assert counts(feed(gate, LISTER, cache, "--cache-tenant", "team"))["cache"]["miss_bytes"] == 0


def test_c34_the_index_that_a_key_has_built_is_no_other_keys(gate: Any, tmp_path: pathlib.Path) -> None:
    """Nobody may write to the bucket, so the index lies in the cache folder, which the programs of one user share."""
    raw, packed = tmp_path / "raw", tmp_path / "packed"
    for words in (["synth", raw, "--count", "24", "--kb", "20"], ["pack", raw, packed]):
        made = millrace(gate, READER, *words)
        assert made.returncode == 0, made.stderr
    for shard in packed.glob("*.tar"):
        assert millrace(gate, READER, "cp", shard, f"s3://b/shards/{shard.name}").returncode == 0
    gate.is_frozen = gate.guards_index = True
    folder = gate.sandbox.home / "cache" / "millrace" / "index"

    def kept() -> dict[str, int]:
        return {path.name: path.stat().st_ino for path in folder.glob("*.index")}

    built = millrace(gate, READER, "index", "s3://b/shards", "--json")
    assert built.returncode == 0, built.stderr
    place = pathlib.Path(json.loads(built.stdout)["index"])
    assert place.parent == folder and place.name in kept()
    before = kept()
    stolen = millrace(gate, LISTER, "index", "s3://b/shards", "--json")
    assert stolen.returncode == 1 and "AccessDenied" in stolen.stderr, stolen.stdout + stolen.stderr
    words = ["s3://b/shards", "--json", "--batch", "4", "--size", "16"]
    assert millrace(gate, LISTER, "feed", *words).returncode == 1
    again = millrace(gate, READER, "index", "s3://b/shards")  # it writes the copy each time
    assert again.returncode == 0, again.stderr
    assert set(kept()) == set(before)
    before = kept()
    for more in ([], ["--rank", "1", "--world", "2"]):
        fed = millrace(gate, READER, "feed", *words, *more)
        assert fed.returncode == 0, fed.stderr
        assert kept() == before, "the programs and ranks of one key share it"


@needs_fuse
def test_c6_on_a_mount(gate: Any, cache: pathlib.Path, tmp_path: pathlib.Path) -> None:
    def read(key: str, *words: Any) -> bytes:
        folder = tmp_path / "mnt"
        with mounted(gate.sandbox, "s3://b/train", folder, "--cache", cache, *words, env=environment(gate, key)):
            [path, *_] = sorted(path for path in folder.rglob("*") if path.is_file())
            return path.read_bytes()

    whole = read(READER)
    with pytest.raises(OSError):
        read(LISTER)
    assert gate.denied
    assert read(READER, "-o", "cache-tenant=team") == whole
    assert read(LISTER, "--cache-tenant", "team") == whole
