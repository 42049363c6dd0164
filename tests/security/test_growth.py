"""Small files whose contents would fill the disk or the memory (C27). Streams that are compressed as a whole are C23."""

from __future__ import annotations

import gzip
import os
import pathlib
import subprocess
import sys
from typing import Any

import millrace
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from millrace import _text_corpus

MIB = 1 << 20
PYTHON = {"MILLRACE_PYTHON": sys.executable}
FULL = """
import collections, os
Disk = collections.namedtuple("Disk", "f_bavail f_blocks")
os.statvfs = lambda folder: Disk(49, 1000)
"""


def of_one_word(path: pathlib.Path, rows: int, **more: Any) -> pathlib.Path:
    """A word of 1 MiB stands in all rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    words = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["a" * MIB]))
    pq.write_table(pa.table({"text": words}), path, compression="zstd", **more)
    assert path.stat().st_size < 32 << 10
    return path


def pack(binary: pathlib.Path, folder: pathlib.Path, **environment: str) -> subprocess.CompletedProcess[str]:
    words = [str(binary), "pack", "in", "out", "--scratch", "scratch"]
    env = {**os.environ, **PYTHON, **environment}
    return subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("store_schema", [True, False], ids=["dictionary", "text"])
def test_c27_a_word_in_all_rows_fills_no_disk(
    millrace_bin: pathlib.Path, tmp_path: pathlib.Path, store_schema: bool
) -> None:
    of_one_word(tmp_path / "in" / "a.parquet", 400, store_schema=store_schema)
    done = pack(millrace_bin, tmp_path)
    assert done.returncode == 1 and "1000 times its size" in done.stderr and "a.parquet" in done.stderr, done.stderr
    assert not (tmp_path / "out").exists()
    assert sum(path.stat().st_size for path in (tmp_path / "scratch").rglob("*") if path.is_file()) < MIB


def test_c27_a_disk_that_is_nearly_full_stays_so(millrace_bin: pathlib.Path, tmp_path: pathlib.Path) -> None:
    of_one_word(tmp_path / "in" / "a.parquet", 2)
    (tmp_path / "sitecustomize.py").write_text(FULL)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = pack(millrace_bin, tmp_path, PYTHONPATH=path)
    assert done.returncode == 1 and "less than 5 % of the disk" in done.stderr and "--scratch" in done.stderr
    assert pack(millrace_bin, tmp_path).returncode == 0


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.txt.gz", "a.jsonl.zst", "a.parquet"])
def test_c27_a_text_takes_no_more_than_its_file_may(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = tmp_path / name
    text = b'{"text": "' + b"a" * (4 * MIB) + b'"}\n'
    if name.endswith(".parquet"):
        of_one_word(path, 8)
    elif name.endswith(".gz"):
        path.write_bytes(gzip.compress(text, 9))
    else:
        path.write_bytes(pa.Codec("zstd").compress(text, asbytes=True))
    (file,) = _text_corpus._listed(f"{tmp_path}/")

    def read() -> list[Any]:
        with path.open("rb") as raw:
            return list(_text_corpus._texts(file, raw, "text"))

    assert all(isinstance(found, str) for found in read())
    monkeypatch.setattr(_text_corpus, "_ANY_GROWTH", MIB)
    monkeypatch.setattr(_text_corpus, "_MOST_GROWTH", 10)
    with pytest.raises(millrace.DamagedDataError, match="10 times its size"):
        read()
