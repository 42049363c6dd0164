"""A strict fake of the instance metadata service of EC2, version 2: what tests of `millrace run` ask for notices."""

from __future__ import annotations

import contextlib
import datetime
import json
import re
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SPOT = "/latest/meta-data/spot/instance-action"
REBALANCE = "/latest/meta-data/events/recommendations/rebalance"
MAINTENANCE = "/latest/meta-data/events/maintenance/scheduled"
TARGET = "/latest/meta-data/autoscaling/target-lifecycle-state"
TTL_HEADER = "X-aws-ec2-metadata-token-ttl-seconds"
TOKEN_HEADER = "X-aws-ec2-metadata-token"


class FakeImds:
    """Gives tokens by PUT alone and answers 401 without a token that is known and has not expired, as the service does.

    Attributes:
        documents: The document at each path; 404 for others.
        refuses_tokens: True if PUT answers 403, as on an instance whose service is switched off.
        unauthorized: How many requests came without a good token.
    """

    def __init__(self) -> None:
        self.documents: dict[str, str] = {}
        self.refuses_tokens = False
        self.unauthorized = 0
        self.answers = 0
        self._tokens: dict[str, float] = {}
        self._changed = threading.Condition()

    def announce(self, action: str = "terminate", seconds: float = 120) -> None:
        """A spot interruption in so many seconds."""
        when = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)
        self.documents[SPOT] = json.dumps({"action": action, "time": when.strftime("%Y-%m-%dT%H:%M:%SZ")})

    def forget_tokens(self) -> None:
        with self._changed:
            self._tokens.clear()

    def wait_for_answers(self, count: int) -> None:
        """Until it has given so many from now on; a round of the watcher is four."""
        with self._changed:
            enough = self.answers + count
            assert self._changed.wait_for(lambda: self.answers >= enough, 300), "nobody asks"

    def answer(self, method: str, path: str, token: str | None, ttl: str | None) -> tuple[int, str, int | None]:
        """Status, body, and how long the token lives."""
        with self._changed:
            self.answers += 1
            self._changed.notify_all()
            if method == "PUT" and path == "/latest/api/token":
                if self.refuses_tokens:
                    return 403, "", None
                if ttl is None or not re.fullmatch(r"\d+", ttl) or not 1 <= int(ttl) <= 21600:
                    return 400, "", None
                given = f"token-{self.answers}=="
                self._tokens[given] = time.monotonic() + int(ttl)
                return 200, given, int(ttl)
            if method != "GET":
                return 405, "", None
            if token is None or self._tokens.get(token, 0) <= time.monotonic():
                self.unauthorized += 1
                return 401, "", None
            if path not in self.documents:
                return 404, "", None
            return 200, self.documents[path], None


@contextlib.contextmanager
def fake_imds() -> Iterator[tuple[FakeImds, str]]:
    """The fake, and its URL for AWS_EC2_METADATA_SERVICE_ENDPOINT."""
    fake = FakeImds()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            status, body, ttl = fake.answer(
                self.command, self.path, self.headers.get(TOKEN_HEADER), self.headers.get(TTL_HEADER)
            )
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            if ttl is not None:
                self.send_header(TTL_HEADER, str(ttl))
            self.end_headers()
            self.wfile.write(body.encode())

        do_GET = do_PUT = do_POST = _answer

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield fake, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
