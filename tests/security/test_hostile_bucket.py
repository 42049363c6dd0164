"""A bucket that somebody else fills: names, archives, checkpoints and images made to do harm. Commands end with a message, and write where they should."""

from __future__ import annotations

import io
import json
import os
import pathlib
import pickle
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from support import check_script

NAMES = [
    "raw/../../../escaped",
    "raw/..",
    "raw//../escaped",
    "raw/a/../../escaped",
    "raw/\x1b[31mred\x1b]0;title\x07.jpg",
    "raw/line\nbreak.jpg",
    "raw/" + "long" * 200 + ".jpg",
    "raw/-rf.jpg",
    "raw/$(touch escaped).jpg",
    "raw/.millrace/index",
    "raw/fine.jpg",
]


class Harm:
    """A program that unpickles it is harmed."""

    def __init__(self, place: pathlib.Path) -> None:
        self.place = place

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.place}",)


def hostile_tar() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in ("../../escaped.jpg", "/escaped.jpg", "a/../../escaped.jpg", "fine.jpg", "\x1b[31mred.jpg"):
            member = tarfile.TarInfo(name)
            member.size = 4
            tar.addfile(member, io.BytesIO(b"text"))
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE):
            member = tarfile.TarInfo(f"link{kind!r}.jpg")
            member.type, member.linkname = kind, "/etc/passwd"
            tar.addfile(member)
        member = tarfile.TarInfo("large.jpg")
        member.pax_headers = {"size": str(2**62), "path": "x" * 100_000}
        tar.addfile(member)
    return out.getvalue()


def features() -> bytes:
    """A description of columns as datasets of Hugging Face has it, too deep for a parser."""
    out = io.BytesIO()
    pq.write_table(pa.table({"label": [1, 2]}).replace_schema_metadata({"huggingface": "[" * 200_000}), out)
    return out.getvalue()


def latest(attempt: str) -> bytes:
    entry = {"step": 1, "attempt": attempt, "bytes": 2**63, "saved_ms": 1, "manifest_bytes": 2**63, "manifest_crc32c": "00000000"}  # fmt: skip
    record = {"format": "millrace-checkpoints", "version": 1, "epoch": 1, "writer": "w", "conditional_writes": True}
    return json.dumps({**record, "checkpoints": [entry]}).encode()


@pytest.fixture
def bucket(devstore: Callable[..., Any], tmp_path: pathlib.Path) -> Iterator[dict[str, str]]:
    server = devstore("mem:", "--bucket", "bkt")
    client = server.client()
    objects = {name: b"text" for name in NAMES}
    objects["tars/a.tar"] = hostile_tar()
    objects["arrays/a.npy"] = b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + (
        b"{'descr': '<i8', 'fortran_order': False, 'shape': (%d, %d), }" % (2**40, 2**40)
    ).ljust(117) + b"\n"  # fmt: skip
    pickled = io.BytesIO()
    np.save(pickled, np.array([Harm(tmp_path / "harmed")], dtype=object), allow_pickle=True)
    objects["arrays/b.npy"] = pickled.getvalue()
    objects["model.pt"] = pickle.dumps(Harm(tmp_path / "harmed"))
    words = pa.DictionaryArray.from_arrays(pa.array([0] * 400, pa.int32()), pa.array(["a" * (1 << 20)]))
    parquet = io.BytesIO()
    pq.write_table(pa.table({"text": words}), parquet, compression="zstd")  # 400 MiB in some hundred bytes
    objects["parquet/a.parquet"] = parquet.getvalue()
    objects["features/a.parquet"] = features()
    objects["deep-checkpoint/LATEST"] = b"[" * 200_000
    objects["names-checkpoint/LATEST"] = latest("../../../escaped")
    objects["huge-checkpoint/LATEST"] = latest("e1-0123456789abcdef")
    objects["labels/labels.json"] = b"[" * 200_000
    objects["labels/a.jpg"] = b"text"
    for key, body in objects.items():
        client.put_object(Bucket="bkt", Key=key, Body=body)
    yield server.env()


COMMANDS = [
    ["ls", "--recursive", "s3://bkt"],
    ["cp", "--recursive", "s3://bkt/raw", "copied/raw"],
    ["sync", "s3://bkt/raw", "copied/synced"],
    ["cp", "--recursive", "s3://bkt/tars", "copied/tars"],
    ["index", "s3://bkt/raw"],
    ["index", "s3://bkt/tars"],
    ["index", "s3://bkt/arrays"],
    ["feed", "s3://bkt/labels", "--labels", "s3://bkt/labels/labels.json", "--size", "16", "--batch", "1"],
    ["inspect", "s3://bkt/tars/a.tar"],
    ["inspect", "s3://bkt/raw"],
    ["feed", "s3://bkt/tars", "--size", "16", "--batch", "1"],
    ["feed", "s3://bkt/raw", "--size", "16", "--batch", "1"],
    ["pack", "s3://bkt/raw", "copied/packed"],
    ["pack", "--skip-bad", "s3://bkt/tars", "copied/repacked"],
    ["pack", "s3://bkt/parquet", "copied/parquet", "--scratch", "copied/scratch"],
    ["pack", "s3://bkt/features", "copied/features"],
    *(
        ["checkpoint", *words]
        for name in ("deep", "names", "huge")
        for uri in [f"s3://bkt/{name}-checkpoint"]
        for words in (
            ["ls", uri],
            ["show", uri],
            ["verify", uri],
            ["cp", uri, f"copied/{name}"],
            ["gc", uri, "--keep", "1"],
        )
    ),
]


def written(folder: pathlib.Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_names_and_archives_write_nothing_elsewhere(
    millrace_bin: pathlib.Path, bucket: dict[str, str], tmp_path: pathlib.Path
) -> None:
    work = tmp_path / "a" / "b" / "work"
    work.mkdir(parents=True)
    env = {**os.environ, **bucket, "HOME": str(tmp_path / "home"), "MILLRACE_CACHE": str(tmp_path / "home")}
    env["MILLRACE_PYTHON"] = sys.executable
    for command in COMMANDS:
        done = subprocess.run(
            [str(millrace_bin), *command], cwd=work, env=env, capture_output=True, timeout=300, check=False
        )
        said = done.stdout + done.stderr
        assert done.returncode in (0, 1), (command, done.returncode, said[-2000:])
        assert done.returncode == 0 or b"millrace" in done.stderr, (command, said[-2000:])
        assert b"\x1b" not in said and b"\x07" not in said, (command, said[-2000:])
    assert {name for name in written(tmp_path) if "escaped" in name and "$" not in name} == set()
    assert {name.split("/")[0] for name in written(work)} <= {"copied"}
    assert {name.split("/")[0] for name in written(tmp_path)} <= {"a", "home", "devstore-0.err"}
    assert not [path for path in work.rglob("*") if path.is_symlink()]
    assert (work / "copied" / "raw" / "fine.jpg").read_bytes() == b"text"
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < 64 << 20


READS = """
import millrace

def read_arrays():
    for _ in millrace.Loader("s3://bkt/arrays", batch_size=1, output="numpy"):
        pass

def read_checkpoint():
    millrace.checkpoint_import.import_checkpoint("s3://bkt/model.pt", "s3://bkt/ckpt")

for read in (read_checkpoint, read_arrays):
    try:
        read()
    except millrace.Error:
        print("refused")
"""


def test_checkpoints_and_arrays_run_nothing(bucket: dict[str, str], tmp_path: pathlib.Path) -> None:
    # In a process of its own: a process has one client of S3, which stays with the server of its first bucket.
    assert check_script(READS, **bucket) == "refused\nrefused\n"
    assert not (tmp_path / "harmed").exists()
