"""Folders of the program's own on a disk that others share. They hold indexes and programs (C32), unpacked shards (C33), and files that are
being written through a mount (C35)."""

from __future__ import annotations

import gzip
import io
import json
import os
import pathlib
import tarfile
from typing import Any

import pytest
from millrace import _core
from two_users import ATTACKER, READS, VICTIM, TwoUsers

# Each name of a file leads to the thesis, or is a file of the attacker's.
LINKS = "[(folder / name).symlink_to(thesis) for name in names]"
PLANTED = "[(folder / name).write_bytes(pathlib.Path(planted).read_bytes()) for name in names]"


@pytest.fixture
def thesis(users: TwoUsers) -> pathlib.Path:
    path = users.home / "thesis"
    path.write_text("two years of work")
    os.chown(path, VICTIM, VICTIM)
    return path


def trap(users: TwoUsers, folder: pathlib.Path, what: str, thesis: Any, planted: Any, *names: str) -> None:
    """The attacker makes the folder, open to all, before the victim does."""
    script = (
        "import pathlib, sys; folder, thesis, planted, *names = sys.argv[1:]; folder = pathlib.Path(folder); "
        f"folder.mkdir(parents=True); folder.chmod(0o777); folder.parent.chmod(0o777); {what}"
    )
    users.attacker(script, folder, thesis, planted, *names)


def modes(folder: pathlib.Path) -> set[int]:
    return {path.lstat().st_mode & 0o077 for path in (folder, *folder.rglob("*"))}


def index_in_cache(users: TwoUsers, cache: pathlib.Path) -> pathlib.Path:
    """The index of data beside which the victim may write nothing."""
    done = users.victim("index", users.home / "data", "--json", env={"MILLRACE_CACHE": cache})
    assert done.returncode == 0, done.stderr
    return pathlib.Path(json.loads(done.stdout)["index"])


def make_data_read_only(users: TwoUsers) -> None:
    os.chown(users.home / "data", 0, 0)
    for made in (users.home / "data").glob(".millrace/*"):
        made.unlink()
    for folder in (users.home / "data").glob(".millrace"):
        folder.rmdir()


def test_c32_others_read_no_index_of_the_cache_folder(users: TwoUsers) -> None:
    make_data_read_only(users)
    cache = users.place / "mc"
    index = index_in_cache(users, cache)
    assert index.parent == cache / "index" and modes(index.parent) == {0}
    assert users.attacker(READS, index.parent) == ""


@pytest.mark.parametrize("what", [LINKS, PLANTED, "None"], ids=["links", "planted", "empty"])
def test_c32_an_index_of_another_user_is_not_used(users: TwoUsers, thesis: pathlib.Path, what: str) -> None:
    make_data_read_only(users)
    usual = index_in_cache(users, users.home / "state")
    names = [path.name for path in usual.parent.iterdir()]
    names += [f"{usual.stem}.unpublished", f"{usual.stem}.lock"]
    cache = users.place / "mc"
    planted = users.place / "planted.index"
    planted.write_bytes(usual.read_bytes())  # sound, for example with other labels
    planted.chmod(0o644)
    trap(users, cache / "index", what, thesis, planted, *dict.fromkeys(names))
    before = {path: path.lstat().st_ctime_ns for path in (cache / "index").rglob("*")}
    index = index_in_cache(users, cache)
    assert index.parent == cache / f"index-{VICTIM}" and index.name == usual.name
    assert modes(index.parent) == {0}
    assert thesis.read_text() == "two years of work"
    assert {path: path.lstat().st_ctime_ns for path in (cache / "index").rglob("*")} == before, "nothing changed there"
    # Both names are the attacker's: the victim gets an error that says what to do.
    users.attacker("import pathlib, sys; pathlib.Path(sys.argv[1]).mkdir(parents=True)", users.place / "mc2" / "index")
    os.chown(users.place / "mc2", VICTIM, VICTIM)
    (users.place / "mc2" / f"index-{VICTIM}").mkdir()
    refused = users.victim("index", users.home / "data", env={"MILLRACE_CACHE": users.place / "mc2"})
    assert refused.returncode == 1 and "MILLRACE_CACHE" in refused.stderr and "another user" in refused.stderr


def test_c32_planted_programs_are_not_run(users: TwoUsers) -> None:
    cache = users.place / "mc"
    words = ["compile-cache", users.home / "store", "--", users.python, "-c", "import os; print(os.environ['TRITON_CACHE_DIR'])"]  # fmt: skip

    def folder_of_kernels() -> pathlib.Path:
        done = users.victim(*words, env={"MILLRACE_CACHE": cache})
        assert done.returncode == 0, done.stderr
        return pathlib.Path(done.stdout.strip())

    trap(users, cache / "compile", "None", "", "")
    assert folder_of_kernels().is_relative_to(cache / f"compile-{VICTIM}")
    assert (cache / f"compile-{VICTIM}").stat().st_mode & 0o077 == 0
    assert not list((cache / "compile").iterdir())


def test_c32_planted_tokens_and_environments_are_not_used(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root gives folders away")
    monkeypatch.setenv("MILLRACE_CACHE", str(tmp_path))
    assert _core.own_cache_folder("text") == str(tmp_path / "text")
    os.chown(tmp_path / "text", ATTACKER, ATTACKER)
    assert _core.own_cache_folder("text") == str(tmp_path / "text-0")


def write_shard(path: pathlib.Path, text: bytes) -> None:
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as shard:
        for number in range(3):
            member = tarfile.TarInfo(f"{number}.txt")
            member.size = len(text)
            shard.addfile(member, io.BytesIO(text))


@pytest.fixture
def compressed(users: TwoUsers) -> pathlib.Path:
    """A shard, and one that is cut short, so that a pack ends when both are unpacked, and leaves them."""
    folder = users.home / "compressed"
    folder.mkdir()
    write_shard(folder / "a.tar.gz", b"text of the victim")
    plain = gzip.decompress((folder / "a.tar.gz").read_bytes())
    (folder / "b.tar.gz").write_bytes(gzip.compress(plain[:520]))
    for path in (folder, *folder.iterdir()):
        os.chown(path, VICTIM, VICTIM)
    return folder


def unpacked_for(users: TwoUsers, compressed: pathlib.Path, scratch: pathlib.Path) -> pathlib.Path:
    """The folder that a pack has left, which ended early."""
    before = set(scratch.glob("unpacked-*")) if scratch.exists() else set()
    ended = users.victim("pack", compressed, users.home / f"packed-{scratch.name}", "--scratch", scratch)
    assert ended.returncode != 0, ended.stdout
    [left] = [path for path in scratch.glob("unpacked-*") if path not in before and path.is_dir()]
    return left


def test_c33_others_read_nothing_of_what_is_unpacked(users: TwoUsers, compressed: pathlib.Path) -> None:
    left = unpacked_for(users, compressed, users.place)
    assert (left / "a.tar").stat().st_size > 1000
    assert left.stat().st_mode & 0o077 == 0
    assert users.attacker(READS, left) == ""


def test_c33_planted_shards_are_not_packed(users: TwoUsers, thesis: pathlib.Path, compressed: pathlib.Path) -> None:
    left = unpacked_for(users, compressed, users.home / "scratch")
    write_shard(users.place / "planted.tar", b"text of the attacker")
    scratch = users.place / "scratch"
    trap(users, scratch / left.name, PLANTED, thesis, users.place / "planted.tar", "a.tar")
    users.attacker("import os, sys; os.symlink(*sys.argv[1:])", thesis, scratch / f"{left.name}.2.lock")
    before = (scratch / left.name / "a.tar").lstat().st_ctime_ns
    done = users.victim("pack", compressed, users.home / "packed", "--scratch", scratch, "--skip-bad")
    assert done.returncode == 0, done.stderr
    texts = [path.read_bytes() for path in (users.home / "packed").glob("*.tar")]
    assert any(b"text of the victim" in text for text in texts)
    assert not any(b"text of the attacker" in text for text in texts)
    assert thesis.read_text() == "two years of work"
    assert (scratch / left.name / "a.tar").lstat().st_ctime_ns == before
    assert {path.name for path in scratch.iterdir()} == {left.name, f"{left.name}.2.lock"}, "its own is gone"


LEFT = """
import json, pathlib, sys
place = pathlib.Path(sys.argv[1]) / "m-aaaaaa"
place.mkdir(parents=True)
note = {"uri": "s3://victim/model", "base": "", "size": 7, "local": [[0, 7]], "why": "the disk was full"}
(place / "0.json").write_text(json.dumps(note))
(place / "0.bytes").write_text("planted")
place.parent.chmod(0o777)
place.chmod(0o777)
"""


def test_c35_recover_lists_nothing_of_another_user(users: TwoUsers) -> None:
    users.place.joinpath("staging").mkdir(mode=0o777)
    users.place.joinpath("staging").chmod(0o777)
    users.attacker(LEFT, users.place / "staging" / "millrace-staging-1")
    listed = users.victim("mount", "--recover", "--staging", users.place / "staging")
    assert "millrace cp" not in listed.stdout and "s3://victim" not in listed.stdout
    assert listed.returncode == 1 and "another user" in listed.stderr, listed.stderr
    own = users.victim("mount", "--recover", "--staging", users.home)
    assert own.returncode == 0, own.stderr
