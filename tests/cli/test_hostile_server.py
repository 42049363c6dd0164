"""A server that lies: what it says of sizes and names is not believed, and nothing is written or removed because of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from cli_support import Millrace, contents

SIZES = ("70368744177665", str(2**62), str(2**63), str(2**64 - 1))
OBJECT = "<Contents><Key>{key}</Key><Size>{size}</Size><ETag>&quot;e&quot;</ETag></Contents>"


def written(root: Path) -> set[str]:
    return set(contents(root)) if root.exists() else set()


class Liar:
    """Lists the objects that the test sets, whatever the prefix is, says of each object that it has `size` bytes, and notes the requests."""

    def __init__(self) -> None:
        self.listed: list[tuple[str, str]] = []
        self.size = "3"
        self.requests: list[str] = []
        liar = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                liar.requests.append(f"{self.command} {self.path}")
                if self.command == "GET" and "list-type" in parse_qs(urlsplit(self.path).query):
                    body = "".join(OBJECT.format(key=key, size=size) for key, size in liar.listed)
                    return self.send(200, {}, f"<ListBucketResult>{body}</ListBucketResult>".encode())
                if "/.millrace/" in self.path or "%2A" in self.path:  # no index, and no object whose name is a pattern
                    return self.send(404, {}, b"")
                if self.command == "HEAD":
                    return self.send(200, {"Content-Length": liar.size, "ETag": '"e"'}, b"")
                if self.command == "GET":
                    first = (self.headers.get("Range") or "bytes=0-2").split("=")[1].split("-")[0]
                    last = int(first) + 2
                    ranged = {"Content-Range": f"bytes {first}-{last}/{liar.size}", "ETag": '"e"'}
                    return self.send(206, ranged, b"abc")
                return self.send(204, {}, b"")

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer

            def send(self, status: int, headers: dict[str, str], body: bytes) -> None:
                self.send_response(status)
                for name, value in ({"Content-Length": str(len(body))} | headers).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.env = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.server.server_address[1]}",
            "AWS_ACCESS_KEY_ID": "k",
            "AWS_SECRET_ACCESS_KEY": "s",
            "AWS_REGION": "us-east-1",
        }

    def changed(self) -> list[str]:
        return [request for request in self.requests if not request.startswith(("GET", "HEAD"))]


@pytest.fixture
def liar() -> Iterator[Liar]:
    server = Liar()
    thread = threading.Thread(target=server.server.serve_forever)
    thread.start()
    yield server
    server.server.shutdown()
    thread.join()
    server.server.server_close()


@pytest.mark.parametrize("size", SIZES)
def test_sizes_of_objects(millrace: Millrace, liar: Liar, tmp_path: Path, size: str) -> None:
    """Such a size once ended the program by std::bad_alloc, and left a temporary file."""
    liar.size = size
    done = millrace("cp", "s3://b/k", tmp_path / "out", code=1, env=liar.env)
    assert b"s3://b/k" in done.stderr and size.encode() in done.stderr, done.stderr
    millrace("cat", "s3://b/k", code=1, env=liar.env)
    millrace("cp", "s3://b/k", "s3://b/copy", code=1, env=liar.env)
    assert contents(tmp_path) == {} and liar.changed() == []


@pytest.mark.parametrize("size", SIZES)
def test_sizes_in_listings(millrace: Millrace, liar: Liar, tmp_path: Path, size: str) -> None:
    liar.listed = [("k/a", "3"), ("k/b.jpg", size)]
    for command in (
        ("ls", "s3://b/k/"),
        ("cp", "--recursive", "s3://b/k", tmp_path / "out"),
        ("sync", "s3://b/k", tmp_path / "out"),
        ("sync", "--dry-run", "s3://b/k", tmp_path / "out"),
        ("rm", "--recursive", "s3://b/k/"),
        ("rm", "--recursive", "--dry-run", "s3://b/k/"),
        ("index", "s3://b/k/"),
        ("feed", "s3://b/k/"),
    ):
        done = millrace(*command, code=1, env=liar.env | {"XDG_CACHE_HOME": str(tmp_path / "cache")})
        assert b"k/b.jpg" in done.stderr and size.encode() in done.stderr, (command, done.stderr)
    assert written(tmp_path / "out") == set() and liar.changed() == []


def test_keys_outside_the_prefix(millrace: Millrace, liar: Liar, tmp_path: Path) -> None:
    """`rm --recursive` once removed them, and `cp` wrote what it cut from them."""
    liar.listed = [("k/a", "3"), ("other/secret", "3")]
    commands: list[tuple[str | Path, ...]] = [
        ("rm", "--recursive", "s3://b/k/"),
        ("rm", "--recursive", "--dry-run", "s3://b/k/"),
        ("rm", "s3://b/k/*"),
        ("cp", "--recursive", "s3://b/k/", tmp_path / "out"),
        ("cp", "s3://b/k/*", f"{tmp_path}/out/"),
        ("cp", "--recursive", "s3://b/k/", "s3://b/copy"),
        ("sync", "s3://b/k/", tmp_path / "out"),
        ("sync", "--dry-run", "s3://b/k/", tmp_path / "out"),
        ("ls", "s3://b/k/"),
        ("index", "s3://b/k/"),
    ]
    for command in commands:
        done = millrace(*command, code=1, env=liar.env | {"XDG_CACHE_HOME": str(tmp_path / "cache")})
        assert b'"other/secret"' in done.stderr and b'"k/"' in done.stderr, (command, done.stderr)
    assert written(tmp_path / "out") == set() and liar.changed() == []


def test_keys_that_would_leave_the_target(millrace: Millrace, liar: Liar, tmp_path: Path) -> None:
    """Each command names them and refuses them alone; `sync --dry-run` says what the run will."""
    bad = ["k/../out-of-it", "k//absolute", "k/a/../../b", "k/./c"]
    liar.listed = sorted((key, "3") for key in [*bad, "k/good"])
    for command in ("cp", "sync"):
        out = tmp_path / command / "in"
        options = ("--recursive",) if command == "cp" else ()
        done = millrace(command, *options, "s3://b/k/", out, code=1, env=liar.env)
        for key in bad:
            assert f"{out}/{key.removeprefix('k/')}: a folder cannot hold this key".encode() in done.stderr, (
                command,
                key,
                done.stderr,
            )
        assert written(tmp_path / command) == {"in/good"}, command
    done = millrace("sync", "--dry-run", "s3://b/k/", tmp_path / "new", code=1, env=liar.env)
    assert b"would copy s3://b/k/good" in done.stdout and done.stdout.count(b"would copy s3") == 1
    for key in bad:
        assert f"{tmp_path}/new/{key.removeprefix('k/')}: a folder cannot hold this key".encode() in done.stderr


@pytest.mark.parametrize("size", [2**33, 2**40, 2**46])
def test_sizes_that_are_possible_but_untrue(millrace: Millrace, liar: Liar, tmp_path: Path, size: int) -> None:
    """Memory is taken for bytes that come, within the budget, and not for those that are announced."""
    liar.size = str(size)
    liar.listed = [("k/b.jpg", liar.size)]
    few = {"AWS_MAX_ATTEMPTS": "1", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    for command in (
        ("cp", "s3://b/k/b.jpg", tmp_path / "out" / "one"),
        ("cp", "--recursive", "s3://b/k", tmp_path / "out"),
        ("cat", "s3://b/k/b.jpg"),
        ("feed", "s3://b/k/", "--memory", "256MiB"),
    ):
        done = millrace(*command, code=1, env=liar.env | few)
        assert b"k/b.jpg" in done.stderr or b"memory" in done.stderr, (command, done.stderr)
        assert b"bad_alloc" not in done.stderr, (command, done.stderr)
    assert not (tmp_path / "out").exists() or contents(tmp_path / "out") == {}


def test_a_dry_run_sees_what_lies_behind_links(millrace: Millrace, tmp_path: Path) -> None:
    """As the run does: it is not removed, and that is said."""
    for folder in ("far", "a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x").write_bytes(b"1")
    (tmp_path / "b" / "link").symlink_to(tmp_path / "far")
    for command in (("sync", "--delete", tmp_path / "a", tmp_path / "b"), ("rm", "--recursive", tmp_path / "b")):
        for dry in (("--dry-run",), ()):
            done = millrace(*command, *dry, code=1)
            assert b"is behind the link" in done.stderr and b"link/x" not in done.stdout, (command, done)
    assert contents(tmp_path) == {"far/x": b"1", "a/x": b"1"}
