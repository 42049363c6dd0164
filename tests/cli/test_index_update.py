"""`millrace index` of data that have changed: only what is new is read, and the index is that of `--full`."""

from __future__ import annotations

import io
import json
import os
import tarfile
from pathlib import Path

from cli_support import Bucket, Millrace


def tar(*names: str, size: int = 2000) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for number, name in enumerate(names):
            for field, data in (("jpg", os.urandom(size)), ("cls", str(len(names) - number).encode())):
                info = tarfile.TarInfo(f"{name}.{field}")
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def test_a_folder_is_brought_up_to_date(millrace: Millrace, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for number in range(1204):
        (data / f"{number:04}.tar").write_bytes(tar(f"{number}", size=10))
    assert json.loads(millrace("index", data, "--json").stdout)["reused_objects"] == 0
    (data / "0700.tar").write_bytes(tar("new", "newer", size=10))
    text = millrace("index", data).stdout.decode()
    assert "1205 samples in 1204 objects" in text and "1203 of 1204 objects were unchanged and not read again" in text
    millrace("index", data, "--full", "--output", tmp_path / "full")
    assert (data / ".millrace/index").read_bytes() == (tmp_path / "full").read_bytes()
    again = json.loads(millrace("index", data, "--json", "--output", tmp_path / "other").stdout)
    assert again["reused_objects"] == 1204 and (tmp_path / "other").read_bytes() == (tmp_path / "full").read_bytes()
    full = millrace("index", data, "--full")
    assert b"unchanged" not in full.stdout
    assert json.loads(millrace("index", data, "--json", "--full").stdout)["reused_objects"] == 0


def test_skip_bad_leaves_out_what_is_damaged_and_says_so(millrace: Millrace, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    shards = {f"{n}.tar": tar(*(f"{n}-{i}" for i in range(10))) for n in range(4)}
    for name, shard in shards.items():
        (data / name).write_bytes(shard)
    (data / "1.tar").write_bytes(shards["1.tar"][:12_000])
    (data / "3.tar").write_bytes(b"x" * 2000)
    millrace("index", data, code=1)
    done = millrace("index", data, "--skip-bad", "--json")
    report = json.loads(done.stdout)
    assert report["samples"] == 20 + report["damaged"][0]["samples"] and report["objects"] == 4
    assert [shard["object"] for shard in report["damaged"]] == ["1.tar", "3.tar"]
    assert report["damaged"][0]["samples"] == 3 and report["damaged"][0]["offset"] == 12_000
    assert "truncated" in report["damaged"][0]["why"] and report["damaged"][1]["samples"] == 0
    warning = done.stderr.decode()
    assert (
        "2 shards are damaged" in warning
        and "1.tar: offset 12000: " in warning
        and "(3 samples before that)" in warning
    )
    # It is opened as any other, and says what it is.
    found = json.loads(millrace("inspect", data, "--json").stdout)
    assert found["samples"] == 23 and found["incomplete_objects"] == ["1.tar", "3.tar"]
    assert "2 of the shards were damaged" in millrace("inspect", data).stdout.decode()
    # Damage stays an error without the flag, though nothing has changed. A repaired shard is whole.
    assert b"1.tar" in millrace("index", data, code=1).stderr
    for name in ("1.tar", "3.tar"):
        (data / name).write_bytes(shards[name])
    report = json.loads(millrace("index", data, "--skip-bad", "--json").stdout)
    assert report["samples"] == 40 and report["reused_objects"] == 2 and report["damaged"] == []
    for name in shards:
        (data / name).write_bytes(b"x" * 2000)
    assert b"4 damaged shards" in millrace("index", data, "--skip-bad", code=1).stderr


def test_a_bucket_is_brought_up_to_date(millrace: Millrace, bucket: Bucket, tmp_path: Path) -> None:
    env = bucket.env | {"MILLRACE_CACHE": str(tmp_path / "cache")}
    bucket.put(**{f"set/{n:02}.tar": tar(f"{n}a", f"{n}b") for n in range(10)})
    assert json.loads(millrace("index", "s3://bkt/set", "--json", env=env).stdout)["reused_objects"] == 0
    bucket.put(**{"set/00.tar": tar("zero"), "set/045.tar": tar("between"), "set/99.tar": tar("last")})
    bucket.s3.delete_object(Bucket="bkt", Key="set/07.tar")
    report = json.loads(millrace("index", "s3://bkt/set", "--json", env=env).stdout)
    assert report["reused_objects"] == 8 and report["objects"] == 11
    millrace("index", "s3://bkt/set", "--full", "--output", tmp_path / "full", env=env)
    assert bucket.objects()["set/.millrace/index"] == (tmp_path / "full").read_bytes()
    # The copy in the cache folder is not needed for it.
    env["MILLRACE_CACHE"] = str(tmp_path / "another")
    assert json.loads(millrace("index", "s3://bkt/set", "--json", env=env).stdout)["reused_objects"] == 11
