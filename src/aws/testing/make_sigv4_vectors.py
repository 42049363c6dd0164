#!/usr/bin/env python3
"""Prints sigv4_vectors.h: requests signed by botocore, an implementation of SigV4 that is not ours.

.venv/bin/python src/aws/testing/make_sigv4_vectors.py > src/aws/testing/sigv4_vectors.h
"""

import datetime
import json
import urllib.parse

import botocore
from botocore import auth, awsrequest, credentials

TIME = datetime.datetime(2026, 1, 31, 23, 59, 58, tzinfo=datetime.timezone.utc)
# These values are made up for these vectors.
ACCESS_KEY = "MILLRACEEXAMPLE"
SECRET_KEY = "made+up/secret=for&vectors"

CASES = [
    # method, key, query, headers, body, session token, region
    ("GET", "plain.txt", [], {"Range": "bytes=0-9"}, b"", None, "us-east-1"),
    ("GET", "a b+c%d/e&f=g?h#i", [], {}, b"", None, "us-east-1"),
    ("GET", "no/../normal//form/./", [], {}, b"", None, "eu-west-1"),
    ("GET", "Grüße/日本/🌊", [], {}, b"", None, "us-east-1"),
    ("GET", "~tilde-._!*'()@:,;$", [], {}, b"", None, "us-east-1"),
    ("HEAD", "token", [], {"If-Match": '"abc"'}, b"", "a/session+token==", "us-east-1"),
    (
        "GET",
        "",
        [("list-type", "2"), ("prefix", "a b/+~"), ("delimiter", "/"), ("max-keys", "2")],
        {},
        b"",
        None,
        "us-east-1",
    ),
    (
        "GET",
        "",
        [("continuation-token", "1/x+y=="), ("list-type", "2"), ("encoding-type", "url")],
        {},
        b"",
        None,
        "us-east-1",
    ),
    ("POST", "up", [("uploads", "")], {"Content-Type": "image/jpeg"}, b"", None, "us-east-1"),
    ("PUT", "up", [("partNumber", "10"), ("uploadId", "VX~p.x-_/+")], {}, b"part", None, "us-east-1"),
    (
        "PUT",
        "space",
        [],
        {"x-amz-meta-note": "  two  spaces   within  ", "Content-Type": "text/plain"},
        b"body",
        None,
        "us-west-2",
    ),
    ("DELETE", "gone", [], {}, b"", None, "cn-north-1"),
]


def sign(method, key, query, headers, body, token, region):
    path = "/bucket" + ("/" + urllib.parse.quote(key, safe="/~") if key else "")
    text = "&".join(f"{urllib.parse.quote(n, safe='~')}={urllib.parse.quote(v, safe='~')}" for n, v in query)
    target = path + ("?" + text if text else "")
    request = awsrequest.AWSRequest(
        method=method, url="http://127.0.0.1:9000" + target, headers=dict(headers), data=body
    )
    signer = auth.S3SigV4Auth(credentials.Credentials(ACCESS_KEY, SECRET_KEY, token), "s3", region)
    signer.add_auth(request)
    return target, request.headers["Authorization"]


def literal(value):
    return json.dumps(value, ensure_ascii=False)


def main():
    # botocore asks for the time in one of these ways, depending on its version.
    auth.get_current_datetime = lambda remove_tzinfo=True: TIME.replace(tzinfo=None) if remove_tzinfo else TIME
    print("#pragma once")
    print()
    print(f"// Made by make_sigv4_vectors.py with botocore {botocore.__version__}; do not edit.")
    print()
    print("#include <string>")
    print("#include <utility>")
    print("#include <vector>")
    print()
    print("namespace millrace {")
    print()
    print(f'inline constexpr char kVectorAccessKey[] = "{ACCESS_KEY}";')
    print(f'inline constexpr char kVectorSecretKey[] = "{SECRET_KEY}";')
    print(f'inline constexpr char kVectorTime[] = "{TIME.strftime("%Y-%m-%dT%H:%M:%SZ")}";')
    print()
    print("struct SigV4Vector {")
    print("  const char* method;")
    print("  const char* key;")
    print("  const char* target;")
    print("  std::vector<std::pair<std::string, std::string>> headers;")
    print("  const char* body;")
    print("  const char* token;")
    print("  const char* region;")
    print("  const char* authorization;")
    print("};")
    print()
    print("inline const std::vector<SigV4Vector> kSigV4Vectors = {")
    for method, key, query, headers, body, token, region in CASES:
        target, authorization = sign(method, key, query, headers, body, token, region)
        pairs = ", ".join(f"{{{literal(n)}, {literal(v)}}}" for n, v in headers.items())
        print(f"    {{{literal(method)}, {literal(key)}, {literal(target)},")
        print(f"     {{{pairs}}}, {literal(body.decode())}, {literal(token or '')}, {literal(region)},")
        print(f"     {literal(authorization)}}},")
    print("};")
    print()
    print("}  // namespace millrace")


main()
