"""SIGINT, SIGTERM and SIGHUP end a command also while a store does not answer, or answers without an end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

BEGIN_S = 300  # until a command has begun, however busy the machine is
# Far less than a command that cannot be interrupted would wait for an answer, and far more than one that can needs.
DEADLINE_S = 60


class Waster:
    """Lists without an end, answers requests of the other `methods`, and leaves those of any other without an answer."""

    def __init__(self, *methods: str) -> None:
        self.asked = threading.Event()  # what is left without an answer, or a tenth page
        ended = self.ended = threading.Event()
        asked, pages = self.asked, [0]

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                query = parse_qs(urlsplit(self.path).query)
                kind = "LIST" if "list-type" in query else self.command
                if kind not in methods:
                    asked.set()
                    ended.wait()
                    self.close_connection = True
                    return
                body = b""
                if kind == "LIST":
                    pages[0] += 1
                    if pages[0] == 10:
                        asked.set()
                    begin = max(
                        re.findall(r"\d{9}", query.get("continuation-token", query.get("start-after", [""]))[0]),
                        default="0",
                    )
                    keys = "".join(
                        f"<Contents><Key>k/{int(begin) + i:09}</Key><Size>3</Size><ETag>&quot;e&quot;</ETag></Contents>"
                        for i in range(1, 500)
                    )
                    more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{int(begin) + 499:09}</NextContinuationToken>"
                    body = f"<ListBucketResult>{more}{keys}</ListBucketResult>".encode()
                self.send_response(404 if kind == "HEAD" and "%2A" in self.path else 200)
                self.send_header("Content-Length", "3" if kind == "HEAD" else str(len(body)))
                self.send_header("ETag", '"e"')
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer

            def log_message(self, format: str, *args: object) -> None: ...

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None: ...  # the command is gone

        self.server = Server(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()
        self.env = os.environ | {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.server.server_address[1]}",
            "AWS_ACCESS_KEY_ID": "k",
            "AWS_SECRET_ACCESS_KEY": "s",
            "AWS_REGION": "us-east-1",
        }

    def close(self) -> None:
        self.ended.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def waster() -> Iterator[Callable[..., Waster]]:
    made: list[Waster] = []

    def make(*methods: str) -> Waster:
        made.append(Waster(*methods))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(
    ("answered", "command"),
    [
        # Listings without an end.
        ("LIST", "rm --recursive --dry-run s3://b/k/"),
        ("LIST HEAD", "rm --dry-run s3://b/k/*"),
        ("LIST", "ls --recursive s3://b/k/"),
        ("LIST", "sync --dry-run s3://b/k/ OUT"),
        ("LIST", "cp --recursive s3://b/k/ OUT"),
        ("LIST", "cp --recursive --dry-run s3://b/k/ OUT"),
        # No answer to the first request, or to a later one.
        ("", "rm s3://b/k/*"),
        ("", "rm --recursive s3://b/k/"),
        ("", "rm s3://b/k/1"),
        ("HEAD", "rm s3://b/k/1"),
        ("LIST", "rm --recursive s3://b/k/"),
        ("", "cp s3://b/k/1 OUT"),
        ("", "cp s3://b/k/* OUT/"),
        ("HEAD", "cp s3://b/k/1 OUT"),
        ("", "cp FILE s3://b/k/1"),
        ("", "sync s3://b/k/ OUT"),
        ("", "cat s3://b/k/1"),
        ("", "advise s3://b/k/"),
        ("", "bench s3://b/k/ --quick"),
    ],
)
def test_an_interrupt_ends_it(
    millrace_bin: Path,
    waster: Callable[..., Waster],
    tmp_path: Path,
    number: signal.Signals,
    answered: str,
    command: str,
) -> None:
    store = waster(*answered.split())
    (tmp_path / "file").write_bytes(b"x")
    words = [word.replace("OUT", f"{tmp_path}/out").replace("FILE", f"{tmp_path}/file") for word in command.split()]
    process = subprocess.Popen([millrace_bin, *words], env=store.env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        assert store.asked.wait(BEGIN_S) and process.poll() is None
        process.send_signal(number)
        _, said = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
        process.wait()
    # Those that have nothing to clean up end as the signal ends programs.
    assert process.returncode == -number or (process.returncode == 128 + number and b"interrupted" in said), said
    assert b"cancel" not in said and said.count(b"\n") <= 1, said
    assert "--dry-run" not in command or not said or b"interrupted; nothing was" in said, said
    assert not [path for path in tmp_path.rglob(".millrace-tmp-*")]
