"""Tests tables of rows of tokens: where they are kept, that they are made once, and again if they are damaged."""

from __future__ import annotations

import concurrent.futures
import contextlib
import ctypes
import fcntl
import os
import pathlib
import shutil
import struct
import time

import millrace
import numpy as np
import pytest
from crc32c import crc32c
from support import check_script, devstore
from token_corpus import GROUP, check_rows, loader, packed, some_lengths, write_corpus

LENGTH = 32


def packs(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(folder.glob("packs-*[0-9a-f]"))


def with_foot(table: bytes, number: int, value: int) -> bytes:
    """A number of the foot is another, and its checksum right again."""
    foot = bytearray(table[-100:-12])
    foot[number * 8 : number * 8 + 8] = value.to_bytes(8, "little")
    return table[:-100] + foot + crc32c(bytes(foot)).to_bytes(4, "little") + table[-8:]


def test_rows_are_kept_beside_the_data(tmp_path: pathlib.Path) -> None:
    data = write_corpus(tmp_path / "d", some_lengths(3, 50, 60))
    first = [batch["tokens"].copy() for batch in loader(data, millrace.Tokens(LENGTH))]
    (file,) = packs(tmp_path / "d" / ".millrace")
    assert file.name.startswith("packs-32-")
    before = file.stat().st_mtime_ns, file.read_bytes()
    again = [batch["tokens"].copy() for batch in loader(data, millrace.Tokens(LENGTH))]
    np.testing.assert_array_equal(first, again)
    assert (file.stat().st_mtime_ns, file.read_bytes()) == before
    file.write_bytes(before[1][:-9])  # damaged: made again
    loader(data, millrace.Tokens(LENGTH)).close()
    assert file.read_bytes() == before[1]
    for number, value in ((1, 10**6), (2, 1 << 24), (3, 1)):  # more samples, longer rows, other groups
        file.write_bytes(with_foot(before[1], number, value))
        loader(data, millrace.Tokens(LENGTH)).close()
        assert file.read_bytes() == before[1], number
    file.write_bytes(before[1][:20] + b"\xff\xff" + before[1][22:])  # damaged where only reading shows it
    with pytest.raises(millrace.DamagedDataError, match="packs-32-.*remove it, and it is made again"):
        list(loader(data, millrace.Tokens(LENGTH)))


def test_rows_go_to_the_cache_folder_where_the_data_cannot_be_written_to(tmp_path: pathlib.Path) -> None:
    data = write_corpus(tmp_path / "d", some_lengths(4, 50, 60))
    millrace.Dataset(data.uri)
    folder = tmp_path / "d" / ".millrace"
    cache = pathlib.Path(os.environ["MILLRACE_CACHE"]) / "index"
    kept = set(packs(cache))
    shutil.move(folder, tmp_path / "away")
    folder.write_text("no folder")  # this stops root, too
    made = loader(data, millrace.Tokens(LENGTH))
    (new,) = set(packs(cache)) - kept
    before = new.stat().st_mtime_ns
    loader(data, millrace.Tokens(LENGTH)).close()
    assert new.stat().st_mtime_ns == before
    check_rows(data, made, packed(data, LENGTH, GROUP), LENGTH, segments=True)


def test_on_s3(tmp_path: pathlib.Path) -> None:
    lengths = some_lengths(5, 80, 60)
    write_corpus(tmp_path / "root" / "b" / "d", lengths)
    script = """
import sys, millrace
made = millrace.Loader("s3://b/d", tokens=millrace.Tokens(32), batch_size=8, epochs=1, digest="raw", output="numpy", memory="8MiB")
for batch in made: pass
print(made.report()["digest"])
"""
    with devstore(tmp_path / "root") as server:
        first = check_script(script, **server, MILLRACE_CACHE=str(tmp_path / "cache1"))
        (published,) = packs(tmp_path / "root" / "b" / "d" / ".millrace")
        assert published.read_bytes() == packs(tmp_path / "cache1" / "index")[0].read_bytes()
        made = published.stat().st_mtime_ns
        assert check_script(script, **server, MILLRACE_CACHE=str(tmp_path / "cache2")) == first
        assert published.stat().st_mtime_ns == made  # downloaded: whoever makes it publishes it again
        (kept,) = packs(tmp_path / "cache2" / "index")
        assert kept.name.partition("+")[0] == published.name  # and what tells whose credentials read the data
        sound = published.read_bytes()
        published.write_bytes(sound[:20] + b"\xff\xff" + sound[22:])  # found out when it is copied, and made again
        assert check_script(script, **server, MILLRACE_CACHE=str(tmp_path / "cache3")) == first
        assert published.read_bytes() == sound
    local = write_corpus(tmp_path / "local", lengths)
    made = loader(local, millrace.Tokens(32), shuffle="window", batch_size=8, epochs=1, digest="raw")
    for _ in made:
        pass
    assert made.report()["digest"] == first.strip()


class Arrivals:
    """Records names that appear in a folder: files that are made there, or moved or linked to there (inotify)."""

    CREATE, MOVED_TO = 0x100, 0x80

    def __init__(self, folder: pathlib.Path) -> None:
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.queue = self.libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert (
            self.queue >= 0
            and self.libc.inotify_add_watch(self.queue, os.fsencode(folder), self.CREATE | self.MOVED_TO) >= 0
        )

    def names(self) -> list[str]:
        found = []
        try:
            while events := os.read(self.queue, 1 << 16):
                while events:
                    _, _, _, length = struct.unpack_from("iIII", events)
                    found.append(events[16 : 16 + length].rstrip(b"\0").decode())
                    events = events[16 + length :]
        except BlockingIOError:
            os.close(self.queue)
        return found


def others_with_open(path: pathlib.Path) -> set[int]:
    found = set()
    for link in pathlib.Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):  # the process or the file is gone
            if link.readlink() == path and int(link.parts[2]) != os.getpid():
                found.add(int(link.parts[2]))
    return found


def test_many_processes_make_rows_once(tmp_path: pathlib.Path) -> None:
    """The lock of the folder is held here until all of them have found no rows and wait for it: then one makes rows. Any
    other that did would leave the same file behind, but not unseen: it comes into the folder once more."""
    folder = tmp_path / "d"
    data = write_corpus(folder, some_lengths(6, 500, 90))
    millrace.Dataset(data.uri)  # makes the index
    arrivals = Arrivals(folder / ".millrace")
    script = f"""
import millrace, multiprocessing
def run(rank):
    made = millrace.Loader({data.uri!r}, tokens=millrace.Tokens(32), batch_size=8, epochs=1, rank=rank, world=4, output="numpy", memory="8MiB")
    return sum(int(batch["valid"].sum()) for batch in made)
if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(4) as pool:
        print(sum(pool.map(run, range(4), chunksize=1)))
"""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            rows = pool.submit(check_script, script)
            end = time.monotonic() + 250
            while len(others_with_open(folder)) < 4 and not rows.done() and time.monotonic() < end:
                time.sleep(0.02)
            assert len(others_with_open(folder)) == 4 and not packs(folder / ".millrace")
        finally:
            os.close(lock)
        assert int(rows.result()) == len(packed(data, LENGTH, GROUP))
    kept = packs(folder / ".millrace")
    assert len(kept) == 1
    made = [name for name in arrivals.names() if "packs-" in name]
    assert made == [kept[0].name]
