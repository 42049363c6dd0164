"""Inputs as people have them: shards that `cat` has joined, leftovers of engines, missing shards, labels that are not all numbers, hashes
that do not fit. What is wrong is said, and nothing is lost without a word."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

from cli_support import Millrace


def tar(first: int, last: int, members: dict[str, bytes] | None = None) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        named = members or {
            f"{n:06}.{field}": f"{field}{n}".encode() for n in range(first, last) for field in ("txt", "x")
        }
        for name, data in named.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def write(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def indexed(millrace: Millrace, uri: Path, *options: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(millrace("index", uri, *options, "--json").stdout)
    return found


def test_a_name_among_numbers_is_no_label(millrace: Millrace, tmp_path: Path) -> None:
    for n in range(12):
        write(tmp_path / f"raw/{n}.txt", b"x")
    rows = "".join(f"{n},{n}\n" for n in range(11))
    labels = tmp_path / "labels.csv"
    command = ("pack", tmp_path / "raw", tmp_path / "out", "--labels", labels)
    for wrong, line in (("11,unknown", 13), ("11,N/A", 13), ("11,1.5.2", 13)):
        labels.write_text("key,label\n" + rows + wrong + "\n")
        failed = millrace(*command, code=1)
        assert f"line {line}: the label '{wrong[3:]}' is no number".encode() in failed.stderr
    labels.write_text("key,label\n" + rows + "11,11\n")
    millrace(*command)
