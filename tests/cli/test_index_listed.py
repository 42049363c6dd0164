"""Raw objects are listed and not read; what their index lacks is added when it is asked for; indexes of version 4."""

from __future__ import annotations

import base64
import io
import json
import struct
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_support import Bucket, Millrace

# Files that version 4 has written, of the objects that `old_objects` makes.
TAR_OF_VERSION_4 = (
    "TVJJTkRFWAAEAAAAqzIrg67/KE8mAAAAAAAAATEBAwEAH/PvtwAAATIBAwEBIHpMLgIAAAEzAQUBAGzeXq2jcqaPNAAAAAAFYS50YXKAUACG/7"
    "fJ7mKxZyJHAt2mRx/aAAViLnRhcoBQAGgJQdfEHa8MFaRMPISNBow+AAAAAAAAABAAAAAAAAAAAgNqcGcDY2xzAAEFAQAABAACATMCATUBAwAA"
    "AAAAAAACAAAAAAAAAAMMAAAAAAAAAQQAAAAAAAAS4abnw+dHSwMAAAAAAAAAegAAAAAAAACCAAAAAAAAAIoAAAAAAAAAGAAAAAAAAAB8i9RdAQ"
    "AAAA4GRHVNUklOREVYGg=="
)
RAW_OF_VERSION_4 = (
    "TVJJTkRFWAAEAAAAqzIrg8uwwOMeAAAAAAAAATEAAwIBMwAwfLyPBgAAATIABgIxMAEolP16zMA0BNQAAAAAGDEuanBnADMAMS5qc29uLzIAMS"
    "5jbHMvMgfIAWY5N2M1ZDI5OTQxYmZiMWIyZmRhYjA4NzQ5MDZhYjgyADk5OTE0YjkzMmJkMzdhNTBiOTgzYzVlN2M5MGFlOTNiADZkN2ZjZTlm"
    "ZWU0NzExOTRhYThiNWI2ZTQ3MjY3ZjAzAA8yLmpwZwA2ADIuY2xzLzIIhgFhOWYwZTYxYTEzN2Q4NmFhOWRiNTM0NjVlMDgwMTYxMgBkM2Q5ND"
    "Q2ODAyYTQ0MjU5NzU1ZDM4ZTZkMTYzZTgyMDYAAAAAAAAAEAAAAAAAAAADA2pwZwRqc29uA2NscwEDaW50AgcAAAAEAAoBBQAAAAoBAgEzAQIx"
    "MAECAAAAAAAAAAIAAAAAAAAACwAAAAAAAAAGAAAAAAAAAAGGxchU7lmlAgAAAAAAAAASAQAAAAAAABoBAAAAAAAAIgEAAAAAAAAqAAAAAAAAAF"
    "1MvdoAAAAArk3NgU1SSU5ERVga"
)


def old_shard(*members: tuple[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def old_objects() -> dict[str, bytes]:
    first = old_shard(("1.jpg", b"one"), ("1.cls", b"3"), ("2.jpg", b"two"), ("2.cls", b"5"))
    second = old_shard(("3.jpg", b"three"), ("3.cls", b"3"))
    raw = {"1.jpg": b"one", "1.json": b"{}", "1.cls": b"3\n", "2.jpg": b"second", "2.cls": b"10"}
    return {"tar/a.tar": first, "tar/b.tar": second} | {f"raw/{name}": data for name, data in raw.items()}


def index(millrace: Millrace, uri: str | Path, *flags: str, env: dict[str, str] | None = None) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(millrace("index", uri, "--json", *flags, env=env).stdout)
    return report


def inspect(millrace: Millrace, uri: str | Path, env: dict[str, str] | None = None) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(millrace("inspect", uri, "--json", env=env).stdout)
    return report


def test_an_index_of_version_4_is_taken_over(millrace: Millrace, bucket: Bucket) -> None:
    """Nothing is read again: the ETags are those of the objects. It happens when the data set is opened."""
    for key, data in old_objects().items():
        bucket.put(**{key: data})
    bucket.put(**{"tar/.millrace/index": base64.b64decode(TAR_OF_VERSION_4)})
    bucket.put(**{"raw/.millrace/index": base64.b64decode(RAW_OF_VERSION_4)})
    fresh = inspect(millrace, "s3://bkt/tar/a.tar", env=bucket.env)
    opened = millrace("inspect", "s3://bkt/tar", "--json", env=bucket.env)
    assert b"its index is of an older version" in opened.stderr
    tar = json.loads(opened.stdout)
    assert (tar["samples"], tar["samples_without_checksum"], tar["kind"]) == (3, 0, "tar")
    assert tar["classes"] == [{"name": "3", "samples": 2}, {"name": "5", "samples": 1}]
    assert fresh["samples"] == 2
    assert b"older version" not in millrace("inspect", "s3://bkt/tar", env=bucket.env).stderr, "it was done once"
    assert index(millrace, "s3://bkt/tar", env=bucket.env)["reused_objects"] == 2

    # All of the old index is kept, and the result is that of reading everything.
    report = index(millrace, "s3://bkt/raw", "--checksums", env=bucket.env)
    assert (report["reused_objects"], report["samples_without_checksum"]) == (2, 0)
    classes = inspect(millrace, "s3://bkt/raw", env=bucket.env)["classes"]
    assert classes == [{"name": "3", "samples": 1}, {"name": "10", "samples": 1}]
    for name, flags in (("tar", []), ("raw", ["--checksums"])):
        updated = bucket.objects()[f"{name}/.millrace/index"]
        assert index(millrace, f"s3://bkt/{name}", "--full", *flags, env=bucket.env)["reused_objects"] == 0
        assert bucket.objects()[f"{name}/.millrace/index"] == updated


def picture(number: int) -> bytes:
    """A PNG of one pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">2I5B", 1, 1, 8, 2, 0, 0, 0)
    pixel = zlib.compress(bytes([0, number, number, number]))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixel) + chunk(b"IEND", b"")


def test_a_position_outlives_what_is_added_to_the_index(millrace: Millrace, bucket: Bucket) -> None:
    """Checksums, and classes from files, change neither the order nor the fingerprint."""
    for number in range(40):
        bucket.put(**{f"raw/{number:02}.png": picture(number), f"raw/{number:02}.cls": b"%d" % (number % 3)})
    uri = "s3://bkt/raw"
    listed = index(millrace, uri, env=bucket.env)
    assert (listed["samples"], listed["samples_without_checksum"], listed["fields"]) == (40, 40, ["cls", "png"])
    text = millrace("index", uri, env=bucket.env).stdout.decode()
    assert "40 samples were not read, and have no checksum in the index" in text
    feed = ["feed", uri, "--batch", "4", "--json", "--digest-of", "decoded", "--size", "1", "--seed", "7"]
    first = json.loads(millrace(*feed, "--stop-after", "12", env=bucket.env).stdout)
    rest = json.loads(millrace(*feed, "--resume", first["position"], env=bucket.env).stdout)
    assert rest["samples"] == 28
    for flags in (["--classes"], ["--checksums"]):
        added = index(millrace, uri, *flags, env=bucket.env)
        assert added["samples_without_checksum"] == (0 if flags == ["--checksums"] else 40)
        again = json.loads(millrace(*feed, "--resume", first["position"], env=bucket.env).stdout)
        assert (again["samples"], again["digest"], again["position"]) == (28, rest["digest"], rest["position"]), flags
    assert index(millrace, uri, env=bucket.env)["reused_objects"] == 40, "what is known is kept"
    assert inspect(millrace, uri, env=bucket.env)["samples_without_checksum"] == 0


@pytest.mark.parametrize("algorithm", ["CRC32C", "CRC32"])
def test_the_checksum_that_the_store_keeps_finds_damage(
    millrace: Millrace, devstore: Callable[..., Any], tmp_path: Path, algorithm: str
) -> None:
    """Once on the way, it is read again; for good, it is damage. The ETags are no MD5s. Uploads of Millrace have a CRC32C."""
    faults = ["--fault", "GET bkt/raw/1.png flip=60 count=1", "--fault", "GET bkt/raw/2.png flip=60"]
    server = devstore("mem:", "--opaque-etags", *faults)
    s3 = server.client()
    s3.create_bucket(Bucket="bkt")
    for number in range(3):
        if algorithm == "CRC32C":
            (tmp_path / f"{number}.png").write_bytes(picture(number))
            millrace("cp", tmp_path / f"{number}.png", f"s3://bkt/raw/{number}.png", env=server.env())
        else:
            s3.put_object(Bucket="bkt", Key=f"raw/{number}.png", Body=picture(number), ChecksumAlgorithm=algorithm)
    feed = ["feed", "s3://bkt/raw", "--batch", "1", "--size", "1", "--shuffle", "none"]
    failed = millrace(*feed, code=1, env=server.env()).stderr.decode()
    assert "raw/2.png, sample '2': " in failed
    assert f"the object does not match the {algorithm} that the store keeps" in failed
    report = json.loads(millrace(*feed, "--json", "--bad-samples", "replace", env=server.env()).stdout)
    assert [bad["sample"] for bad in report["quarantine"]] == ["s3://bkt/raw/2.png, sample '2'"]
    assert report["samples"] == 3


def test_classes_in_files_are_read_when_they_decide(millrace: Millrace, bucket: Bucket) -> None:
    for number in range(9):
        bucket.put(**{f"raw/{number}.png": picture(number), f"raw/{number}.cls": b"%d" % (number % 3)})
    feed = ["feed", "s3://bkt/raw", "--batch", "3", "--json", "--size", "1"]
    millrace(*feed, env=bucket.env)
    listed = bucket.objects()["raw/.millrace/index"]
    fed = json.loads(millrace(*feed, "--where", "class=1", env=bucket.env).stdout)
    assert fed["samples"] == 3
    assert bucket.objects()["raw/.millrace/index"] != listed
    assert json.loads(millrace(*feed, "--balance", env=bucket.env).stdout)["samples"] == 9
