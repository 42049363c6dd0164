"""Two users of one machine, a victim and an attacker: what tests start as them. Only root can be both."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any, NoReturn

import pytest

VICTIM, ATTACKER = 64_001, 64_002

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


def cannot_be_others(why: str) -> NoReturn:
    """Skips a test that needs other users. Where the tests guard a change (CI is set), root can be made to have them: there it fails."""
    if os.environ.get("CI") and os.geteuid() == 0:
        pytest.fail(f"a test as another user cannot run: {why}")
    pytest.skip(why)


def open_folders_above(folder: pathlib.Path) -> None:
    """Lets all users pass through the folders of the tests."""
    for above in (folder, *folder.parents):
        if above.stat().st_uid == 0 and str(above).count("/") > 1:
            above.chmod(above.stat().st_mode | 0o711)


def run_as(
    user: int, *command: Any, home: pathlib.Path, env: dict[str, Any] | None = None
) -> subprocess.CompletedProcess[str]:
    """With the usual umask, under which files are for all to read."""
    words = [str(word) for word in command]
    own = {"HOME": str(home), "MILLRACE_CACHE": str(home / "state"), "TMPDIR": "/tmp"}
    whole = {**os.environ, **own, **{name: str(value) for name, value in (env or {}).items()}}
    return subprocess.run(
        words, user=user, group=user, extra_groups=[], umask=0o022, env=whole, cwd=home, capture_output=True, text=True, timeout=300, check=False
    )  # fmt: skip


def runs(user: int, *command: Any, home: pathlib.Path) -> str:
    """Why the user cannot run this here; "": it can."""
    try:
        done = run_as(user, *command, home=home)
    except OSError as error:  # a container without these users, or a checkout that only root reads
        return str(error)
    return done.stderr if done.returncode != 0 else ""


@dataclasses.dataclass(frozen=True)
class TwoUsers:
    place: pathlib.Path  # a folder that both may write to
    home: pathlib.Path  # of the victim
    millrace: pathlib.Path
    python: str

    def victim(self, *words: Any, env: dict[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
        """`millrace` as the victim."""
        return run_as(VICTIM, self.millrace, *words, home=self.home, env=env)

    def attacker(self, script: str, *words: Any) -> str:
        """Returns the output of the attacker's Python."""
        done = run_as(ATTACKER, self.python, "-c", script, *words, home=self.place)
        assert done.returncode == 0, done.stderr
        return done.stdout


def two_users(folder: pathlib.Path, binary: pathlib.Path) -> TwoUsers:
    """The victim has data of its own in its home."""
    open_folders_above(folder)
    shared = folder / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    look = ("-c", "import os, sys; os.listdir(sys.argv[1])", shared)
    python = next(
        (path for path in (sys.executable, "/usr/bin/python3") if not runs(VICTIM, path, *look, home=shared)), None
    )
    if python is None:
        cannot_be_others(f"user {VICTIM} runs no Python here: {runs(VICTIM, sys.executable, *look, home=shared)}")
    if runs(VICTIM, binary, "--version", home=shared):  # it lies where only root may go
        binary = pathlib.Path(shutil.copy2(binary, folder / "millrace"))
        binary.chmod(0o755)
    for user in (VICTIM, ATTACKER):
        for command in ((python, *look), (binary, "--version")):
            if why := runs(user, *command, home=shared):
                cannot_be_others(f"user {user} runs nothing here: {why}")
    home = folder / "victim"
    home.mkdir()
    os.chown(home, VICTIM, VICTIM)
    users = TwoUsers(shared, home, binary, python)
    made = users.victim("synth", home / "data", "--count", "40", "--kb", "20")
    assert made.returncode == 0, made.stderr
    return users
