"""The folder of a cache on a machine with other users: they read nothing of it (C7), and change nothing through it (C24)."""

from __future__ import annotations

import json
import os
import pathlib

import pytest
from two_users import READS, VICTIM, TwoUsers, cannot_be_others


def feed(users: TwoUsers, cache: pathlib.Path) -> tuple[str, str]:
    """The digest, and what was said."""
    words = ["--json", "--size", "16", "--batch", "4", "--epochs", "2", "--cache", cache, "--cache-size", "8MiB"]
    done = users.victim("feed", users.home / "data", *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])["digest"], done.stderr


def test_c7_others_read_nothing_of_a_cache(users: TwoUsers) -> None:
    cache = users.place / "cache"
    feed(users, cache)
    kept = [path for path in cache.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in kept) > 100_000, "the cache holds something"
    assert users.attacker(READS, cache) == ""


TRAPS = {
    # Each file of the cache leads to the victim's thesis.
    "links": "c.mkdir(); c.chmod(0o777); [(c / name).symlink_to(thesis) for name in names]",
    # The folder itself is one of the victim's.
    "link": "c.symlink_to(thesis.parent)",
    "nobody's": "c.mkdir(); c.chmod(0o777)",
}


@pytest.mark.parametrize("trap", TRAPS)
def test_c24_a_folder_of_another_user_changes_nothing(users: TwoUsers, trap: str) -> None:
    alone, _ = feed(users, users.home / "cache")
    [folder] = (users.home / "cache").iterdir()
    names = [path.name for path in folder.iterdir()]
    assert len(names) > 3, names
    thesis = users.home / "papers" / "thesis"
    thesis.parent.mkdir()
    thesis.write_text("two years of work")
    for path in (thesis, thesis.parent):
        os.chown(path, VICTIM, VICTIM)
    cache = users.place / "cache"
    script = f"import pathlib, sys; c, thesis, *names = map(pathlib.Path, sys.argv[1:]); c.parent.mkdir(); c.parent.chmod(0o777); {TRAPS[trap]}"
    users.attacker(script, cache / folder.name, thesis, *names)
    before = {path: path.lstat().st_size for path in cache.rglob("*")}
    digest, said = feed(users, cache)
    assert digest == alone
    assert thesis.read_text() == "two years of work" and len(list(thesis.parent.iterdir())) == 1
    assert str(cache) in said, "the folder is named"
    assert {path: path.lstat().st_size for path in cache.rglob("*")} == before, "nothing was written there"


def test_a_test_that_needs_other_users_is_not_left_out_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="user 1 is not there"):
        cannot_be_others("user 1 is not there")
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception, match="user 1 is not there"):
        cannot_be_others("user 1 is not there")
