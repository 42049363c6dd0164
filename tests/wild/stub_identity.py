"""A server that gives credentials: the metadata service of an instance, the endpoint of a container, STS and SSO, whose answers a test
writes down beforehand."""

from __future__ import annotations

import contextlib
import json
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from xml.sax.saxutils import escape

from stub_store import Server

FAR = 6 * 3600.0
PATIENCE = {"AWS_METADATA_SERVICE_TIMEOUT": "60", "AWS_METADATA_SERVICE_NUM_ATTEMPTS": "4"}  # on a busy machine


@dataclass
class Grant:
    """An answer to the question for keys."""

    access_key: str = ""
    life: float = FAR  # seconds from the answer on
    status: int = 200
    body: str | None = None  # in place of the keys
    also: Callable[[], object] = lambda: None  # happens before the answer


@dataclass
class Source:
    """The server, and what it was asked. The last grant is given again and again."""

    grants: list[Grant]
    token_status: int = 200
    url: str = ""
    asked: list[str] = field(default_factory=list)  # method and path
    tokens: list[str] = field(default_factory=list)  # Authorization of requests for keys

    def take(self) -> Grant:
        return self.grants.pop(0) if len(self.grants) > 1 else self.grants[0]


def named(kind: str, name: str) -> str:
    """An access key that tells how it was got."""
    return "".join(c for c in f"{kind}{name}".upper() if c.isalnum())


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    source: Source

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, status: int, body: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def handle_any(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        self.source.asked.append(f"{self.command} {url.path}")
        query = dict(urllib.parse.parse_qsl(url.query))
        if url.path == "/latest/api/token":
            return self.answer(self.source.token_status, "TOKEN" if self.source.token_status == 200 else "")
        if url.path == "/latest/meta-data/iam/security-credentials/":
            return self.answer(200, "role")
        if self.command == "POST" and url.path == "/":
            return self.assume(dict(urllib.parse.parse_qsl(sent)))
        if url.path == "/federation/credentials":
            token = self.headers.get("x-amz-sso_bearer_token", "")
            keys = self.keys(named("SSO", query["account_id"] + query["role_name"] + token))
            keys["expiration"] = int(datetime.now(UTC).timestamp() + FAR) * 1000
            return self.answer(200, json.dumps({"roleCredentials": keys}))
        grant = self.source.take()
        grant.also()
        self.source.tokens.append(self.headers.get("Authorization", ""))
        end = (datetime.now(UTC) + timedelta(seconds=grant.life)).strftime("%Y-%m-%dT%H:%M:%SZ")
        keys = {"Code": "Success", "Type": "AWS-HMAC", "LastUpdated": "2026-01-01T00:00:00Z", "Expiration": end}
        keys |= {"AccessKeyId": grant.access_key, "SecretAccessKey": "secret", "Token": "token"}
        self.answer(grant.status, json.dumps(keys) if grant.body is None else grant.body)

    do_GET = do_PUT = do_POST = handle_any

    def keys(self, access_key: str) -> dict[str, object]:
        return {"accessKeyId": access_key, "secretAccessKey": "secret", "sessionToken": "token"}

    def assume(self, form: dict[str, str]) -> None:
        grant = self.source.take()
        grant.also()
        if grant.body is not None or grant.status != 200:
            return self.answer(grant.status, grant.body or "")
        role = form["RoleArn"].rpartition("/")[2]
        if form["Action"] == "AssumeRole":
            signer = self.headers["Authorization"].split("Credential=")[1].split("/")[0]
            access_key = named("ROLE", role + form.get("ExternalId", "") + "BY" + signer)
        else:
            access_key = named("WEB", role + form["WebIdentityToken"])
        end = (datetime.now(UTC) + timedelta(seconds=grant.life)).strftime("%Y-%m-%dT%H:%M:%SZ")
        keys = f"<AccessKeyId>{escape(access_key)}</AccessKeyId><SecretAccessKey>secret</SecretAccessKey>"
        keys += f"<SessionToken>token</SessionToken><Expiration>{end}</Expiration>"
        user = "<AssumedRoleUser><AssumedRoleId>A:B</AssumedRoleId><Arn>arn:aws:sts::1:assumed-role/a/b</Arn></AssumedRoleUser>"
        name = form["Action"]
        self.answer(
            200,
            f'<{name}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><{name}Result><Credentials>{keys}</Credentials>'
            f"{user}</{name}Result></{name}Response>",
        )


@contextlib.contextmanager
def giving(*grants: Grant, token_status: int = 200) -> Iterator[Source]:
    source = Source(list(grants) or [Grant("AKGRANTED")], token_status)
    server = Server(("127.0.0.1", 0), type("OfSource", (Handler,), {"source": source}))
    source.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield source
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
