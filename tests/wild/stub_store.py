"""A small S3 server with the manners of foreign stores and of strict policies, and what tests need to run `millrace` against it. Signatures are
not checked."""

from __future__ import annotations

import base64
import contextlib
import email.utils
import gzip
import hashlib
import os
import re
import subprocess
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from xml.sax.saxutils import escape, unescape

KEYS = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret-of-the-test", "AWS_REGION": "us-east-1"}
ENCRYPTION = "x-amz-server-side-encryption"

# Manners in which a store may differ from others.
MANNERS = {
    "fs-order": "lists folder by folder, so that cat/ comes before cat-2/",
    "files-first": "lists the files of a folder, then its folders",
    "skip-one": "the continuation token skips a key after a start that is no key",
    "no-start-after": "ignores start-after",
    "gunzip": "decompresses what begins like gzip, and ignores ranges of it",
    "virtual-only": "refuses the bucket in the path",
    "kms": "demands encryption with a key of KMS",
    "payer": "demands that the requester pays",
    "no-list": "neither lists nor tells whether an object exists",
    "odd-etags": "ETags are base64 texts with a slash",
    "late-error": "the first upload to be completed fails in the body of an answer 200",
    "md5": "demands Content-MD5 of DeleteObjects",
    "no-trailers": "takes no bodies in chunks",
    "weak-etags": "its proxy marks the ETags of objects as weak, and those of listings not",
    "no-truncated": "listings have a token, and do not say that there is more",
    "single-deletes": "takes DeleteObjects for another request",
    "pages": "its proxy sends a page with the status 200 in place of an object",
    "region": "takes signatures for eu-west-3 only",
}


@dataclass
class Asked:
    """A request as it came."""

    method: str
    path: str  # without the query
    query: dict[str, str]
    headers: dict[str, str]  # names in lower case


@dataclass
class Denial:
    """An answer that refuses."""

    status: int
    code: str
    message: str = ""
    page: str = ""  # in place of what S3 answers


@dataclass
class Stub:
    """Objects by bucket and key, the manners, and what came."""

    url: str = ""
    objects: dict[str, bytes] = field(default_factory=dict)  # by "bucket/key"
    manners: frozenset[str] = frozenset()
    deny: Callable[[Asked], Denial | None] = lambda _: None
    asked: list[Asked] = field(default_factory=list)
    completed: int = 0  # uploads
    lock: threading.Lock = field(default_factory=threading.Lock)

    def env(self, **more: str) -> dict[str, str]:
        return KEYS | {"AWS_ENDPOINT_URL": self.url} | more

    def refusal(self, asked: Asked) -> Denial | None:
        creates = (asked.method == "PUT" and "partNumber" not in asked.query) or (
            asked.method == "POST" and "uploads" in asked.query
        )
        if "virtual-only" in self.manners and not asked.headers["host"].split(":")[0].endswith(".localhost"):
            return Denial(403, "SecondLevelDomainForbidden", "Please use virtual hosted style to access.")
        if "payer" in self.manners and asked.headers.get("x-amz-request-payer") != "requester":
            return Denial(403, "AccessDenied", "Access Denied")
        if "kms" in self.manners and creates and asked.headers.get(ENCRYPTION) != "aws:kms":
            return Denial(403, "AccessDenied", "with an explicit deny in a resource-based policy")
        if "md5" in self.manners and "delete" in asked.query and "content-md5" not in asked.headers:
            return Denial(400, "MissingContentMD5", "Missing required header for this request: Content-Md5")
        chunked = asked.headers.get("content-encoding") == "aws-chunked" or "transfer-encoding" in asked.headers
        if "no-trailers" in self.manners and (chunked or "x-amz-trailer" in asked.headers):
            return Denial(501, "NotImplemented", "A header you provided implies functionality that is not implemented")
        if "single-deletes" in self.manners and "delete" in asked.query:
            return Denial(400, "InvalidArgument", "Invalid argument.")
        if "pages" in self.manners and asked.method == "GET" and not asked.query and asked.path.count("/") > 1:
            return Denial(200, "", page="<html><body>Please sign in to the network.</body></html>")
        if "region" in self.manners and "/eu-west-3/s3/" not in asked.headers.get("authorization", ""):
            return Denial(400, "AuthorizationHeaderMalformed", "the region is wrong; expecting 'eu-west-3'")
        return self.deny(asked)

    def etag(self, body: bytes) -> str:
        digest = hashlib.md5(body)
        return (
            base64.b64encode(b"\xff" + digest.digest()).decode() if "odd-etags" in self.manners else digest.hexdigest()
        )

    def listed(self, bucket: str) -> list[str]:
        keys = [name.partition("/")[2] for name in self.objects if name.startswith(bucket + "/")]
        if "fs-order" in self.manners:  # file-system gateways compare names
            return sorted(keys, key=lambda key: key.split("/"))
        if "files-first" in self.manners:
            return sorted(keys, key=lambda key: (key.count("/"), key))
        return sorted(keys)


def source_name(header: str) -> str:
    """The object of x-amz-copy-source. That behind an access point is kept below NAME-ACCOUNT."""
    name = urllib.parse.unquote(header).lstrip("/")
    if arn := re.fullmatch(r"arn:aws:s3:[^:]+:(\d+):accesspoint/([^/]+)/object/(.*)", name):
        return f"{arn[2]}-{arn[1]}/{arn[3]}"
    return name


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    stub: Stub

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        self.send_header("x-amz-request-id", "STUB")
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers and "Transfer_Encoding" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, denial: Denial) -> None:
        region = "<Region>eu-west-3</Region>" if "region" in self.stub.manners else ""
        text = f"<Error><Code>{denial.code}</Code><Message>{escape(denial.message)}</Message>{region}</Error>"
        self.answer(denial.status, denial.page.encode() or (text.encode() if denial.code else b""))

    def handle_any(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        headers = {name.lower(): value for name, value in self.headers.items()}
        sent = self.rfile.read(int(headers.get("content-length") or 0))
        asked = Asked(self.command, urllib.parse.unquote(url.path), query, headers)
        self.stub.asked.append(asked)
        if denial := self.stub.refusal(asked):
            return self.refuse(denial)
        if self.command == "CONNECT":
            return self.refuse(Denial(501, ""))
        host = headers["host"].split(":")[0]
        name = asked.path[1:]
        for domain in (".localhost", ".store.test"):
            if host.endswith(domain):
                name = f"{host.removesuffix(domain)}/{name}"
        bucket, _, key = name.partition("/")
        if "delete" in query:
            for found in re.findall(r"<Key>(.*?)</Key>", sent.decode()):
                self.stub.objects.pop(bucket + "/" + unescape(found), None)
            return self.answer(200, b"<DeleteResult></DeleteResult>")
        if self.command == "POST" or "partNumber" in query:
            return self.upload(name, query, sent)
        if self.command == "PUT":
            return self.put(name, sent)
        if self.command == "GET" and not key:
            return self.list(bucket, query)
        body = self.stub.objects.get(name)
        if body is None:
            return self.refuse(
                Denial(403, "AccessDenied") if "no-list" in self.stub.manners else Denial(404, "NoSuchKey")
            )
        if self.command == "DELETE":
            del self.stub.objects[name]
            return self.answer(204)
        weak = "W/" if "weak-etags" in self.stub.manners else ""
        etag, modified = f'{weak}"{self.stub.etag(body)}"', email.utils.formatdate(1e9, usegmt=True)
        if self.command == "HEAD":
            return self.answer(200, ETag=etag, Last_Modified=modified, Content_Length=str(len(body)))
        if "gunzip" in self.stub.manners and body.startswith(b"\x1f\x8b"):
            text = gzip.decompress(body)
            chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(text), text)
            return self.answer(200, chunks, ETag=etag, Last_Modified=modified, Transfer_Encoding="chunked")
        if not (ranged := re.match(r"bytes=(\d+)-(\d*)", headers.get("range", ""))):
            return self.answer(200, body, ETag=etag, Last_Modified=modified)
        first, last = int(ranged[1]), min(int(ranged[2] or len(body) - 1), len(body) - 1)
        if first >= len(body):
            return self.refuse(Denial(416, "InvalidRange"))
        part = body[first : last + 1]
        self.answer(206, part, ETag=etag, Last_Modified=modified, Content_Range=f"bytes {first}-{last}/{len(body)}")

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_CONNECT = handle_any

    def put(self, name: str, sent: bytes) -> None:
        source = self.headers.get("x-amz-copy-source")
        self.stub.objects[name] = self.stub.objects[source_name(source)] if source else sent
        etag = f'"{self.stub.etag(self.stub.objects[name])}"'
        body = f"<CopyObjectResult><ETag>{escape(etag)}</ETag></CopyObjectResult>".encode() if source else b""
        self.answer(200, body, ETag=etag)

    def upload(self, name: str, query: dict[str, str], sent: bytes) -> None:
        if "uploads" in query:
            return self.answer(
                200, b"<InitiateMultipartUploadResult><UploadId>U</UploadId></InitiateMultipartUploadResult>"
            )
        if "partNumber" in query:
            with self.stub.lock:  # parts come at a time
                self.stub.objects[name] = self.stub.objects.get(name, b"") + sent
            return self.answer(200, ETag=f'"{self.stub.etag(sent)}"')
        self.stub.completed += 1
        if "late-error" in self.stub.manners and self.stub.completed == 1:
            return self.refuse(Denial(200, "InternalError", "We encountered an internal error. Please try again."))
        etag = self.stub.etag(self.stub.objects[name]) + "-2"
        self.answer(
            200, f'<CompleteMultipartUploadResult><ETag>"{etag}"</ETag></CompleteMultipartUploadResult>'.encode()
        )

    def list(self, bucket: str, query: dict[str, str]) -> None:
        if "no-list" in self.stub.manners:
            return self.refuse(Denial(403, "AccessDenied", "not authorized to perform: s3:ListBucket"))
        prefix, delimiter, size = query.get("prefix", ""), query.get("delimiter", ""), int(query.get("max-keys", 1000))
        keys = [key for key in self.stub.listed(bucket) if key.startswith(prefix)]
        after, token, at = query.get("start-after", ""), query.get("continuation-token"), 0
        if token:
            at = int(base64.b64decode(token))
        elif after and "no-start-after" not in self.stub.manners:
            at = next((index for index, key in enumerate(keys) if key > after), len(keys))
        rows: list[str] = []
        folders: list[str] = []
        while at < len(keys) and len(rows) + len(folders) < size:
            rest = keys[at][len(prefix) :]
            if delimiter and delimiter in rest:
                folder = prefix + rest[: rest.index(delimiter) + 1]
                folders += [folder] if folder not in folders else []
            else:
                rows.append(keys[at])
            at += 1
        more = at < len(keys)
        if "skip-one" in self.stub.manners and not token and after and after not in keys:
            at += 1

        def shown(text: str) -> str:
            return escape(urllib.parse.quote(text, safe="/") if query.get("encoding-type") == "url" else text)

        out = f"<ListBucketResult><Name>{bucket}</Name>"
        out += f"<IsTruncated>{str(more).lower()}</IsTruncated>" if "no-truncated" not in self.stub.manners else ""
        out += "<EncodingType>url</EncodingType>" if query.get("encoding-type") else ""
        if more:
            out += f"<NextContinuationToken>{base64.b64encode(str(at).encode()).decode()}</NextContinuationToken>"
        for key in rows:
            body = self.stub.objects[f"{bucket}/{key}"]
            out += f"<Contents><Key>{shown(key)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            out += f'<ETag>"{self.stub.etag(body)}"</ETag><Size>{len(body)}</Size></Contents>'
        out += "".join(f"<CommonPrefixes><Prefix>{shown(folder)}</Prefix></CommonPrefixes>" for folder in folders)
        self.answer(200, (out + "</ListBucketResult>").encode())


class Server(ThreadingHTTPServer):
    request_queue_size = 128


@contextlib.contextmanager
def serving(*manners: str, **objects: bytes) -> Iterator[Stub]:
    """A server with these manners and these objects of the bucket b."""
    assert set(manners) <= MANNERS.keys()
    stub = Stub(objects={f"b/{key}": body for key, body in objects.items()}, manners=frozenset(manners))
    server = Server(("127.0.0.1", 0), type("OfStub", (Handler,), {"stub": stub}))
    stub.url = f"http://localhost:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield stub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def run(binary: Path, *arguments: str | Path, env: dict[str, str], code: int | None = 0) -> str:
    """Runs the command, and returns its text on both streams. Without a code, any exit status is fine."""
    done = subprocess.run(
        [str(binary), *map(str, arguments)], capture_output=True, env=os.environ | env, timeout=300, text=True
    )
    assert code is None or done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
    assert KEYS["AWS_SECRET_ACCESS_KEY"] not in done.stdout + done.stderr
    return done.stdout + done.stderr
