"""`millrace index` whose work is divided between machines, or that was killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest
import thoroughness
from cli_support import Millrace
from test_index_update import tar


def parts_in(folder: Path) -> list[Path]:
    return sorted((folder / ".millrace").glob("index.part-*"))


def test_parts_in_any_order_make_the_index(millrace: Millrace, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for number in range(10):
        (data / f"{number:04}.tar").write_bytes(tar(f"{number}-a", f"{number}-b", size=50))
    millrace("index", data, "--full", "--output", tmp_path / "full")
    text = millrace("index", data, "--part", "3/3").stdout.decode()
    assert "6 samples in 3 objects" in text, text
    assert (
        "this was part 3/3; 7 shards of other parts are missing, and the last part to end completes the index" in text
    )
    assert not (data / ".millrace/index").exists() and len(parts_in(data)) == 1
    first = json.loads(millrace("index", data, "--part", "1/3", "--json").stdout)
    assert not first["complete"] and first["missing_objects"] == 3 and first["objects"] == 4 and first["index"] == ""
    last = json.loads(millrace("index", data, "--part", "2/3", "--json").stdout)
    assert last["complete"] and last["missing_objects"] == 0 and last["samples"] == 20
    assert last["reused_objects"] == 10 and last["index"] == str(data / ".millrace/index")
    assert (data / ".millrace/index").read_bytes() == (tmp_path / "full").read_bytes() and parts_in(data) == []
    again = json.loads(millrace("index", data, "--part", "2/3", "--json").stdout)
    assert again["complete"] and again["samples"] == 20


def test_a_run_without_parts_completes_what_some_have_done(millrace: Millrace, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for number in range(6):
        (data / f"{number:04}.tar").write_bytes(tar(f"{number}", size=50))
    millrace("index", data, "--part", "2/3")
    whole = json.loads(millrace("inspect", data, "--json").stdout)
    assert whole["samples"] == 6 and parts_in(data) == []
    (data / "0001.tar").write_bytes(tar("new", "newer", size=50))
    millrace("index", data, "--part", "2/3")  # the only shard that changed is in this part
    assert json.loads(millrace("index", data, "--json").stdout)["samples"] == 7


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--part", "0/2"], "--part: '0/2' is not I/N"),
        (["--part", "3/2"], "--part: '3/2' is not I/N"),
        (["--part", "1"], "--part: '1' is not I/N"),
        (["--part", "1/2", "--full"], "--full reads everything"),
        (["--part", "1/2", "--output", "x"], "leave out --output"),
        (["--part", "1/2", "--tokens", "8"], "--tokens cuts arrays"),
    ],
)
def test_wrong_parts_are_refused(millrace: Millrace, tmp_path: Path, arguments: list[str], says: str) -> None:
    assert says in millrace("index", tmp_path, *arguments, code=2).stderr.decode()


def test_raw_objects_and_manifests_have_no_parts(millrace: Millrace, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/1.jpg").write_bytes(b"x")
    (tmp_path / "list.csv").write_text("path,label\na/1.jpg,a\n")
    for uri in (tmp_path / "a", tmp_path / "list.csv"):
        assert b"without --part" in millrace("index", uri, "--part", "1/2", code=1).stderr


def sparse_tar(path: Path, key: str, size: int) -> None:
    info = tarfile.TarInfo(f"{key}.bin")
    info.size = size
    with path.open("wb") as file:
        file.write(info.tobuf(tarfile.USTAR_FORMAT))
        file.truncate((size + 1023) // 512 * 512 + 1024)


@pytest.mark.skipif(not thoroughness.ALL, reason="reads 2.4 GB")
def test_a_killed_run_goes_on_where_it_was(
    millrace: Millrace, millrace_bin: Path, devstore: Any, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    data = root / "bkt/set"
    data.mkdir(parents=True)
    for number in range(4):
        sparse_tar(data / f"{number}.tar", str(number), 600_000_000)
    (data / "9.tar").write_bytes(tar("last"))
    slow = devstore(str(root), "--fault", "GET bkt/set/9.tar delay-ms=3600000")
    indexing = subprocess.Popen([millrace_bin, "index", "s3://bkt/set"], env=os.environ | slow.env())
    deadline = time.monotonic() + 300
    while not parts_in(data):
        assert indexing.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    indexing.send_signal(signal.SIGKILL)
    indexing.wait()
    env = devstore(str(root)).env()
    done = json.loads(millrace("index", "s3://bkt/set", "--json", env=env).stdout)
    assert done["samples"] == 5 and 2 <= done["reused_objects"] <= 4
    millrace("index", "s3://bkt/set", "--full", "--output", tmp_path / "full", env=env)
    assert (data / ".millrace/index").read_bytes() == (tmp_path / "full").read_bytes() and parts_in(data) == []
