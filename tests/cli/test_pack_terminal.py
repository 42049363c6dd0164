"""`millrace pack` shows its progress on a terminal, and nothing that a terminal would obey."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import tarfile
from pathlib import Path


def on_a_terminal(binary: Path, *arguments: str | Path, out: bool = False) -> tuple[int, bytes]:
    """Exit status, and what came on a terminal that is stderr, and with `out` stdout, too."""
    ours, theirs = pty.openpty()
    stdout = theirs if out else subprocess.DEVNULL
    process = subprocess.Popen(
        [str(binary), *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=stdout, stderr=theirs
    )
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
    except OSError:  # EIO: the other end is closed
        pass
    finally:
        os.close(ours)
    return process.wait(300), shown


def test_progress_with_the_time_left(millrace_bin: Path, tmp_path: Path) -> None:
    for n in range(250):
        path = tmp_path / "raw" / "a" / f"{n:03}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(1_000_000))
    code, shown = on_a_terminal(millrace_bin, "pack", tmp_path / "raw", tmp_path / "out", "--shard-size", "16MiB")
    assert code == 0, shown
    lines = shown.split(b"\r\x1b[K")
    amount = rb"[0-9.]+ ([KMGT]iB|B|bytes?)"
    told = [
        line
        for line in lines
        if re.fullmatch(rb"packing %b of %b, %b/s, [0-9.]+ (s|min|h) left" % (amount, amount, amount), line)
    ]
    assert told, lines
    assert {re.search(rb" of (.*?),", line)[1] for line in told} == {re.search(rb" of (.*?),", told[0])[1]}, (
        "of one total"
    )  # type: ignore[index]
    assert lines[-1] == b"", "the line is cleared at the end"


def test_names_are_not_obeyed(millrace_bin: Path, tmp_path: Path) -> None:
    folder = tmp_path / "raw" / "e\x1b[2Jvil\u009b31m"
    folder.mkdir(parents=True)
    (folder / "1.jpg").write_bytes(b"x")
    (tmp_path / "map.txt").write_text("good\n")
    arguments = ("pack", tmp_path / "raw", tmp_path / "out", "--class-map", tmp_path / "map.txt")
    code, shown = on_a_terminal(millrace_bin, *arguments)
    assert code == 1 and rb"e\x1b[2Jvil\u009b31m/1" in shown, shown
    assert b"\x1b" not in shown.replace(b"\r\x1b[K", b"") and b"\xc2\x9b" not in shown
    said = subprocess.run([millrace_bin, *arguments], capture_output=True, timeout=300, check=False).stderr
    assert rb"e\x1b[2Jvil\u009b31m/1" in said, "in a file, too"


def test_no_command_lets_a_terminal_obey(millrace_bin: Path, tmp_path: Path) -> None:
    """Names of objects, of fields, and of what tar shards pass over (a warning of the library)."""
    raw, tar = tmp_path / "raw", tmp_path / "tar"
    (raw / "a").mkdir(parents=True)
    tar.mkdir()
    for name in ("\x1b[2Jbad.jpg", "x\n1.jpg", "f.a\x1b[2J"):
        (raw / "a" / name).write_bytes(b"no image")
    with tarfile.open(tar / "\x1b[2J.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo("1.jpg"))
        link = tarfile.TarInfo("\x1b[2J.jpg")
        link.type, link.linkname = tarfile.LNKTYPE, "1.jpg"
        archive.addfile(link)
    for command in (
        ["index", raw],
        ["index", tar],
        ["inspect", raw, "--decode", "all"],
        ["feed", raw],
        ["feed", raw, "--explain"],
        ["ls", "--recursive", raw],
        ["pack", raw, tmp_path / "out", "--field", "jpg=\x1b[2J"],
    ):
        _, shown = on_a_terminal(millrace_bin, *command, out=True)
        assert shown and b"\x1b" not in shown.replace(b"\r\x1b[K", b""), (command, shown)
    assert b"1 link" in on_a_terminal(millrace_bin, "index", "--full", tar)[1], "the warning was among it"
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "x\n1.jpg").write_bytes(b"")  # no picture, so a line of its own tells it
    (tmp_path / "one" / "y.jpg").write_bytes(b"x")
    code, shown = on_a_terminal(millrace_bin, "inspect", tmp_path / "one", out=True)
    assert code == 0 and rb"x\n1" in shown
