"""The folder of a cache on a machine with other users: they read nothing of it (C7), and change nothing through it (C24)."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest
from room import room_in

VICTIM, ATTACKER = 64_001, 64_002

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")

READS = """
import pathlib, sys
for path in [pathlib.Path(sys.argv[1]), *sorted(pathlib.Path(sys.argv[1]).rglob("*"))]:
    for attempt in (lambda: path.open("rb").close(), lambda: path.open("r+b").close()):
        try:
            attempt()
            print("opened", path)
        except OSError:
            pass
    try:
        (path / "planted").write_text("text")
        print("planted in", path)
    except OSError:
        pass
"""


def run_as(user: int, *command: Any, home: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """With the usual umask, under which files are for all to read."""
    words = [str(word) for word in command]
    env = {**os.environ, "HOME": str(home), "MILLRACE_CACHE": str(home / "state")}
    return subprocess.run(
        words, user=user, group=user, extra_groups=[], umask=0o022, env=env, capture_output=True, text=True, timeout=300, check=False
    )  # fmt: skip


@pytest.fixture
def place(tmp_path: pathlib.Path, millrace_bin: pathlib.Path) -> pathlib.Path:
    """A folder that all users reach."""
    if room_in(tmp_path) < 64 << 20:
        pytest.skip("the disk is too full for a cache")
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == 0 and str(folder).count("/") > 1:
            folder.chmod(folder.stat().st_mode | 0o711)
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    look = [sys.executable, "-c", "import os, sys; os.listdir(sys.argv[1])", shared]
    for user in (VICTIM, ATTACKER):
        for command in (look, [millrace_bin, "--version"]):
            try:
                done = run_as(user, *command, home=shared)
            except OSError as error:  # a container without these users, or a checkout that only root reads
                pytest.skip(f"user {user} runs nothing here: {error}")
            if done.returncode != 0:
                pytest.skip(f"user {user} runs nothing here: {done.stderr}")
    return shared


@pytest.fixture
def victim(place: pathlib.Path, millrace_bin: pathlib.Path) -> pathlib.Path:
    """The home of the victim, with data of its own."""
    home = place.parent / "victim"
    home.mkdir()
    os.chown(home, VICTIM, VICTIM)
    made = run_as(VICTIM, millrace_bin, "synth", home / "data", "--count", "40", "--kb", "20", home=home)
    assert made.returncode == 0, made.stderr
    return home


def feed(millrace_bin: pathlib.Path, victim: pathlib.Path, cache: pathlib.Path) -> tuple[str, str]:
    """The digest, and what was said."""
    words = [
        "feed",
        victim / "data",
        "--json",
        "--size",
        "16",
        "--batch",
        "4",
        "--epochs",
        "2",
        "--cache",
        cache,
        "--cache-size",
        "8MiB",
    ]
    done = run_as(VICTIM, millrace_bin, *words, home=victim)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])["digest"], done.stderr


def test_c7_others_read_nothing_of_a_cache(
    place: pathlib.Path, victim: pathlib.Path, millrace_bin: pathlib.Path
) -> None:
    cache = place / "cache"
    feed(millrace_bin, victim, cache)
    kept = [path for path in cache.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in kept) > 100_000, "the cache holds something"
    attack = run_as(ATTACKER, sys.executable, "-c", READS, cache, home=place)
    assert attack.stdout == "", attack.stdout


TRAPS = {
    # Each file of the cache leads to the victim's thesis.
    "links": "c.mkdir(); c.chmod(0o777); [(c / name).symlink_to(thesis) for name in names]",
    # The folder itself is one of the victim's.
    "link": "c.symlink_to(thesis.parent)",
    "nobody's": "c.mkdir(); c.chmod(0o777)",
}


@pytest.mark.parametrize("trap", TRAPS)
def test_c24_a_folder_of_another_user_changes_nothing(
    place: pathlib.Path, victim: pathlib.Path, millrace_bin: pathlib.Path, trap: str
) -> None:
    alone, _ = feed(millrace_bin, victim, victim / "cache")
    [folder] = (victim / "cache").iterdir()
    names = [path.name for path in folder.iterdir()]
    assert len(names) > 3, names
    thesis = victim / "papers" / "thesis"
    thesis.parent.mkdir()
    thesis.write_text("two years of work")
    for path in (thesis, thesis.parent):
        os.chown(path, VICTIM, VICTIM)
    cache = place / "cache"
    script = f"import pathlib, sys; c, thesis, *names = map(pathlib.Path, sys.argv[1:]); c.parent.mkdir(); c.parent.chmod(0o777); {TRAPS[trap]}"
    made = run_as(ATTACKER, sys.executable, "-c", script, cache / folder.name, thesis, *names, home=place)
    assert made.returncode == 0, made.stderr
    before = {path: path.lstat().st_size for path in cache.rglob("*")}
    digest, said = feed(millrace_bin, victim, cache)
    assert digest == alone
    assert thesis.read_text() == "two years of work" and len(list(thesis.parent.iterdir())) == 1
    assert str(cache) in said, "the folder is named"
    assert {path: path.lstat().st_size for path in cache.rglob("*")} == before, "nothing was written there"
