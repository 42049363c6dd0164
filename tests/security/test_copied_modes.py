"""A copy of a file is no more open to other users than the file is (C7)."""

from __future__ import annotations

import pathlib
import stat
import subprocess

MODES = {"private": 0o600, "group": 0o640, "open": 0o644, "all": 0o666}


def test_c7_copies_of_private_files_are_private(tmp_path: pathlib.Path, millrace_bin: pathlib.Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name, mode in MODES.items():
        (source / name).write_text("text")
        (source / name).chmod(mode)
    large = source / "large"  # is copied in pieces
    large.write_bytes(bytes(9 << 20))
    large.chmod(0o600)
    for words in (["cp", "-r"], ["sync"]):
        copies = tmp_path / words[0]
        subprocess.run([millrace_bin, *words, source, copies], check=True, umask=0o022, capture_output=True)
        found = {path.name: stat.S_IMODE(path.stat().st_mode) for path in copies.iterdir()}
        assert found == {"private": 0o600, "group": 0o640, "open": 0o644, "all": 0o644, "large": 0o600}
    # A file that is replaced keeps the mode that it has.
    (source / "private").write_text("more text")
    (tmp_path / "sync" / "private").chmod(0o640)
    subprocess.run([millrace_bin, "sync", source, tmp_path / "sync"], check=True, umask=0o022, capture_output=True)
    assert (tmp_path / "sync" / "private").read_text() == "more text"
    assert stat.S_IMODE((tmp_path / "sync" / "private").stat().st_mode) == 0o640
