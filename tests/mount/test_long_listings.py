"""Folders of very many files: they are listed page by page, as a program proceeds, and no listing is held as a whole."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from e2e.harness import Sandbox
from e2e.mounting import mounted, needs_fuse
from thoroughness import repeats

pytestmark = needs_fuse

MAX_PAGE = 1000
# A request of the kernel, at most 1 MiB, holds fewer names than so many pages; and the program's library has as many.
PAGES_AHEAD = 15
KNOWN_TO_KERNEL = 500_000  # docs/mount.md: a listing is passed on without being remembered beyond so many
OBJECT = (
    "<Contents><Key>many/{0:08}</Key><Size>{0}</Size><ETag>&quot;etag-of-{0:08}&quot;</ETag>"
    "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
)


class Numbers:
    """A store whose bucket `b` has so many objects `many/00000000`, `many/00000001` ..., which exist only in its answers. Notes which pages it was asked for."""

    def __init__(self, count: int) -> None:
        self.pages: set[int] = set()  # by their first number: a late one may be asked for twice
        numbers = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
                body = numbers.list(count, **query) if "list-type" in query else ""
                self.answer(200 if body else 404, f"<ListBucketResult>{body}</ListBucketResult>".encode())

            def do_HEAD(self) -> None:
                self.answer(404, b"")

            def answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
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

    def list(self, count: int, **query: str) -> str:
        if query.get("prefix", "") == "":
            return "<CommonPrefixes><Prefix>many/</Prefix></CommonPrefixes>"
        if query["prefix"] != "many/":
            return "<IsTruncated>false</IsTruncated>"
        first, most = int(query.get("continuation-token", 0)), int(query["max-keys"])
        if most == MAX_PAGE:
            self.pages.add(first)
        end = min(count, first + most)
        objects = "".join(OBJECT.format(number) for number in range(first, end))
        more = (
            f"<IsTruncated>true</IsTruncated><NextContinuationToken>{end}</NextContinuationToken>"
            if end < count
            else ""
        )
        return objects + more


@contextlib.contextmanager
def store_of(count: int) -> Iterator[Numbers]:
    numbers = Numbers(count)
    thread = threading.Thread(target=numbers.server.serve_forever)
    thread.start()
    try:
        yield numbers
    finally:
        numbers.server.shutdown()
        thread.join()
        numbers.server.server_close()


def memory(pid: int, word: str) -> int:
    """Bytes: VmRSS, now; VmHWM, at most so far."""
    found = re.search(rf"^{word}:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def test_a_folder_of_millions_of_files(sandbox: Sandbox, tmp_path: Path) -> None:
    count = repeats(2_000_000)
    with (
        store_of(count) as store,
        mounted(sandbox, "s3://b", tmp_path / "mnt", "--metadata-ttl", "1h", env=store.env) as mount,
    ):
        before = memory(mount.pid, "VmRSS")
        seen = 0
        with os.scandir(tmp_path / "mnt" / "many") as entries:
            for entry in entries:
                assert entry.name == f"{seen:08}"
                if seen % 10_000 == 0:
                    assert len(store.pages) <= seen // MAX_PAGE + PAGES_AHEAD
                seen += 1
        assert seen == count
        assert store.pages == set(range(0, count, MAX_PAGE))
        # About 300 bytes for each name that the kernel holds, and nothing for others.
        assert memory(mount.pid, "VmHWM") - before < 450 * min(count, KNOWN_TO_KERNEL) + (96 << 20)
