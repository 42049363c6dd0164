"""A server in place of the store that means harm: by redirects, lists, heads and bodies. Commands end with a message, and what they hold is bounded."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import resource
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator

import pytest

KEYS = {
    "AWS_ACCESS_KEY_ID": "AKIAHOSTILE",
    "AWS_SECRET_ACCESS_KEY": "canary-secret",
    "AWS_SESSION_TOKEN": "canary-token",
    "AWS_REGION": "us-east-1",
    "AWS_MAX_ATTEMPTS": "2",
}
SIZE = 1000
MEMORY = 1 << 30  # bytes of one process

Answer = Callable[[bytes], Iterator[bytes]]


def response(status: str, body: bytes = b"", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
    if "Content_Length" not in headers and "Transfer_Encoding" not in headers:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def listing(*keys: str, more: str = "") -> bytes:
    contents = "".join(f'<Contents><Key>{key}</Key><ETag>"e"</ETag><Size>{SIZE}</Size></Contents>' for key in keys)
    truncated = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{more}</NextContinuationToken>" if more else ""
    return response("200 OK", f"<ListBucketResult>{contents}{truncated}</ListBucketResult>".encode())


class Server:
    """Answers each request by `answer`, and keeps the heads that came."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.heads: list[bytes] = []
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            received = b""
            while True:
                while b"\r\n\r\n" not in received:
                    piece = client.recv(1 << 16)
                    if not piece:
                        return
                    received += piece
                head, _, received = received.partition(b"\r\n\r\n")
                self.heads.append(head)
                for piece in self.answer(head):
                    client.sendall(piece)


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], Server]]:
    servers: list[Server] = []

    def begin(answer: Answer) -> Server:
        servers.append(Server(answer))
        return servers[-1]

    yield begin
    for server in servers:
        server.listener.close()


def run(binary: pathlib.Path, address: str, work: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Asserts that no secret and no control character is shown, and that memory is bounded."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    env |= KEYS | {"AWS_ENDPOINT_URL": f"http://{address}", "HOME": str(work / "home")}
    process = subprocess.Popen(
        [str(binary), *arguments],
        cwd=work,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY)),
    )
    out, err = process.communicate(timeout=300)
    assert process.returncode in (0, 1), (process.returncode, err[-2000:])
    for shown in (b"canary", b"\x1b", b"\x07", b"bad_alloc", b"out of memory"):
        assert shown not in out + err, (shown, err[-2000:])
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def test_no_redirect_takes_credentials_elsewhere(
    millrace_bin: pathlib.Path, serve: Callable[[Answer], Server], tmp_path: pathlib.Path
) -> None:
    for status in ("301 Moved Permanently", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"):
        other = serve(lambda _: iter([listing("a")]))
        server = serve(lambda _, s=status, o=other: iter([response(s, Location=f"http://{o.address}/b/a")]))
        for command in (["ls", "s3://b/"], ["cat", "s3://b/a"], ["cp", "s3://b/a", "copied"]):
            assert run(millrace_bin, server.address, tmp_path, *command).returncode == 1, (status, command)
        assert server.heads and other.heads == [], status


def endless(begin: bytes, piece: bytes) -> Iterator[bytes]:
    yield begin
    while True:
        yield piece


BOMB = b"""<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a "aaaaaaaaaa">%s]><ListBucketResult>
<Contents><Key>&i;</Key><Size>1</Size></Contents></ListBucketResult>""" % b"".join(
    b'<!ENTITY %c "%s">' % (98 + i, b"&%c;" % (97 + i) * 20) for i in range(8)
)
FILE = b'<!DOCTYPE l [<!ENTITY f SYSTEM "file:///etc/passwd">]><ListBucketResult><Contents><Key>&f;</Key><Size>1</Size></Contents></ListBucketResult>'
DEEP = b"<ListBucketResult>" + b"<a>" * 200_000

# The answers of the server to a list, and a part of the message.
LISTS: dict[str, tuple[Answer, str]] = {
    "the same page for ever": (lambda _: iter([listing("a", "b", more="again")]), "again|same|order|token"),
    "a page without keys, and more of them": (lambda _: iter([listing(more="again")]), "again|same|token|pages"),
    "elements without an end": (lambda _: iter([response("200 OK", DEEP)]), "XML"),
    "a body without an end": (
        lambda _: endless(response("200 OK", Transfer_Encoding="chunked"), b"10000\r\n" + b"<" * 65536 + b"\r\n"),
        "b",
    ),
    "a head without an end": (lambda _: endless(b"HTTP/1.1 200 OK\r\n", b"X-A: " + b"a" * 1000 + b"\r\n"), "b"),
    "a line without an end": (lambda _: endless(b"HTTP/1.1 200 OK\r\nX-A: ", b"a" * 65536), "b"),
    "no HTTP": (lambda _: endless(b"", b"\x1b[31m\x07" * 1000), "b"),
    "a chunk of 2^64 bytes": (
        lambda _: iter([response("200 OK", Transfer_Encoding="chunked") + b"ffffffffffffffff\r\n", b"<" * 65536]),
        "b",
    ),
    "colors in an error": (
        lambda _: iter(
            [response("400 Bad", b"<Error><Code>\x1b[31mBad</Code><Message>\x1b]0;t\x07&#27;[31m</Message></Error>")]
        ),
        "400",
    ),
    "a size of 2^64": (
        lambda _: iter(
            [response("200 OK", listing("a").partition(b"\r\n\r\n")[2].replace(b">1000<", b">" + b"9" * 30 + b"<"))]
        ),
        "size|Size|XML",
    ),
}


@pytest.mark.parametrize("harm", list(LISTS))
def test_lists(
    millrace_bin: pathlib.Path, serve: Callable[[Answer], Server], tmp_path: pathlib.Path, harm: str
) -> None:
    answer, message = LISTS[harm]
    for command in (["ls", "--recursive", "s3://b"], ["cp", "--recursive", "s3://b/", "copied"], ["index", "s3://b"]):
        server = serve(answer)
        done = run(millrace_bin, server.address, tmp_path, *command)
        assert done.returncode == 1, (harm, command, done.stdout[-500:])
        assert re.search(message, done.stderr.decode()), (command, done.stderr[-1000:])


# Elements and characters alone are read. So the name of an entity is a part of the key.
@pytest.mark.parametrize(("body", "key"), [(BOMB, b"&i;"), (FILE, b"&f;")], ids=["growing", "a file of this machine"])
def test_no_entity_is_resolved(
    millrace_bin: pathlib.Path, serve: Callable[[Answer], Server], tmp_path: pathlib.Path, body: bytes, key: bytes
) -> None:
    server = serve(lambda _: iter([response("200 OK", body)]))
    done = run(millrace_bin, server.address, tmp_path, "ls", "--recursive", "s3://b")
    assert done.stdout.split() == [b"1", key]


def test_keys_that_nobody_asked_for_are_written_nowhere(
    millrace_bin: pathlib.Path, serve: Callable[[Answer], Server], tmp_path: pathlib.Path
) -> None:
    keys = ["../escaped", "/escaped", "raw/../../escaped", "other/escaped", "raw/fine"]

    def answer(head: bytes) -> Iterator[bytes]:
        if b"list-type" in head:
            yield listing(*keys)
        else:
            yield response("200 OK", b"x" * SIZE, ETag='"e"')

    work = tmp_path / "a" / "work"
    work.mkdir(parents=True)
    for command in ("cp", "sync"):
        options = ["--recursive"] if command == "cp" else []
        done = run(millrace_bin, serve(answer).address, work, command, *options, "s3://b/raw/", "copied")
        assert done.returncode == 1, (command, done.stderr)
    assert [path for path in tmp_path.rglob("*") if "escaped" in path.name] == []


WHOLE = b"x" * SIZE
# The answers of the server to a read of an object of 1,000 bytes.
READS: dict[str, Answer] = {
    "fewer bytes than it says": lambda _: iter(
        [response("200 OK", b"x" * 10, Content_Length="1000", ETag='"e"') + b"", b""]
    ),
    "a body of 2^60 bytes": lambda _: endless(
        response("200 OK", Content_Length=str(1 << 60), ETag='"e"'), b"x" * 65536
    ),
    "a body without an end": lambda _: endless(
        response("200 OK", Transfer_Encoding="chunked", ETag='"e"'), b"10000\r\n" + b"x" * 65536 + b"\r\n"
    ),
    "another range": lambda _: iter(
        [response("206 Partial Content", WHOLE[:500], Content_Range="bytes 500-999/1000", ETag='"e"')]
    ),
    "a range that is none": lambda _: iter(
        [response("206 Partial Content", WHOLE, Content_Range="bytes 0-18446744073709551615/1", ETag='"e"')]
    ),
    "two lengths": lambda _: iter(
        [response("200 OK", WHOLE, ETag='"e"').replace(b"\r\n\r\n", b"\r\nContent-Length: 5\r\n\r\n", 1)]
    ),
    "a checksum that is wrong": lambda _: iter(
        [response("200 OK", WHOLE, x_amz_checksum_crc32c="AAAAAA==", ETag='"e"')]
    ),
}


@pytest.mark.parametrize("harm", list(READS))
def test_objects(
    millrace_bin: pathlib.Path, serve: Callable[[Answer], Server], tmp_path: pathlib.Path, harm: str
) -> None:
    reading = READS[harm]

    def answer(head: bytes) -> Iterator[bytes]:
        if b"list-type" in head:
            yield listing("a")
        elif head.startswith(b"HEAD"):
            yield response("200 OK", Content_Length=str(SIZE), ETag='"e"')
        else:
            yield from reading(head)
            if harm.startswith("fewer"):
                raise OSError("the server closes the connection")

    for command in (["cp", "--recursive", "s3://b/", "copied"], ["cat", "s3://b/a"]):
        if command[0] == "cp" and "body" not in harm:
            continue  # both ask several times, and wait in between
        done = run(millrace_bin, serve(answer).address, tmp_path, *command)
        assert done.returncode == 1 and b"s3://b/a" in done.stderr, (command, done.returncode, done.stderr[-1000:])
        assert len(done.stdout) <= SIZE, command  # `cat` may have shown what came before the fault
    assert not (tmp_path / "copied" / "a").exists()
