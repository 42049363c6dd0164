"""`millrace run --code`: the commit with which a job began, on every machine."""

from __future__ import annotations

import base64
import functools
import http.server
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_support import Bucket, Millrace, lines


class Repository:
    """Whose file `train.sh` says what each commit is called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.git("init", "--quiet", "--initial-branch", "main")
        self.commit("one")

    def git(self, *words: str) -> str:
        identity = ["-c", "user.name=me", "-c", "user.email=me@example.com", "-c", "commit.gpgsign=false"]
        return subprocess.run(
            ["git", *identity, *words], cwd=self.folder, check=True, capture_output=True, text=True, timeout=300
        ).stdout.strip()

    def commit(self, name: str) -> str:
        (self.folder / "train.sh").write_text(f"echo {name} $MILLRACE_CODE_COMMIT in $(basename $PWD)\n")
        self.git("add", "train.sh")
        self.git("commit", "--quiet", "-m", name)
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repository")


TRAIN = ["--", "sh", "train.sh"]


def test_a_notice_while_the_code_is_cloned_is_not_lost(
    millrace: Millrace, repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is for the job, which ends as if the notice had come in its first attempt."""
    git = tmp_path / "bin" / "git"
    git.parent.mkdir()
    git.write_text(f'#!/bin/sh\nkill -USR1 $PPID\nexec {shutil.which("git")} "$@"\n')
    git.chmod(0o755)
    (repository.folder / "train.sh").write_text("echo begun\nsleep 600\n")
    repository.git("commit", "--quiet", "-am", "sleeps")
    monkeypatch.setenv("PATH", str(git.parent), prepend=os.pathsep)
    run = ["run", "--code", repository.folder, "--on-end", "echo $MILLRACE_OUTCOME $MILLRACE_STATUS"]
    done = millrace(*run, *TRAIN, cwd=tmp_path, code=75)
    assert lines(done)[-1] == "elsewhere 75"


def test_a_job_keeps_its_commit(millrace: Millrace, repository: Repository, tmp_path: Path) -> None:
    first = repository.git("rev-parse", "HEAD")
    journal = tmp_path / "journal"
    run = ["run", "--code", repository.folder, "--checkpoint", "ckpt", "--journal", journal]
    assert lines(millrace(*run, *TRAIN, cwd=tmp_path)) == [f"one {first} in code"]
    assert (tmp_path / "ckpt" / "CODE").read_text() == f"{first}\n{repository.folder}\n"
    second = repository.commit("two")
    # On the same disk, on another one, and for another job.
    assert lines(millrace(*run, *TRAIN, cwd=tmp_path)) == [f"one {first} in code"]
    assert lines(millrace(*run, "--code-dir", "elsewhere", *TRAIN, cwd=tmp_path)) == [f"one {first} in elsewhere"]
    assert lines(millrace("run", "--code", repository.folder, *TRAIN, cwd=tmp_path)) == [f"two {second} in code"]
    starts = [json.loads(line) for line in journal.read_text().splitlines()]
    assert {line["code"] for line in starts if line["event"] == "start"} == {first}
    told = ["--", "sh", "-c", "echo $MILLRACE_CHECKPOINT"]
    assert lines(millrace(*run, *told, cwd=tmp_path)) == [str(tmp_path / "ckpt")]  # the command runs in another folder


def test_the_record_is_in_the_store(millrace: Millrace, repository: Repository, bucket: Bucket, tmp_path: Path) -> None:
    first = repository.git("rev-parse", "HEAD")
    run = ["run", "--code", repository.folder, "--checkpoint", "s3://bkt/run-7"]
    millrace(*run, *TRAIN, cwd=tmp_path, env=bucket.env)
    repository.commit("two")
    done = millrace(*run, "--code-dir", tmp_path / "b", *TRAIN, cwd=tmp_path, env=bucket.env)
    assert lines(done) == [f"one {first} in b"] and bucket.keys() == ["run-7/CODE"]


def test_branches_tags_and_commits(millrace: Millrace, repository: Repository, tmp_path: Path) -> None:
    first = repository.git("rev-parse", "HEAD")
    repository.git("tag", "-a", "-m", "first", "v1")
    repository.git("checkout", "--quiet", "-b", "feature/x")
    branch = repository.commit("branch")
    repository.git("checkout", "--quiet", "main")
    repository.commit("two")
    for ref, commit in {"v1": first, first: first, "feature/x": branch, branch: branch}.items():
        done = millrace("run", "--code", f"{repository.folder}@{ref}", *TRAIN, cwd=tmp_path)
        assert lines(done)[0].split()[1] == commit


def test_a_commit_that_no_branch_has_any_more(millrace: Millrace, repository: Repository, tmp_path: Path) -> None:
    repository.git("config", "uploadpack.allowAnySHA1InWant", "true")
    run = ["run", "--code", f"file://{repository.folder}", "--checkpoint", "ckpt", "--code-dir"]
    millrace(*run, "a", *TRAIN, cwd=tmp_path)
    repository.git("commit", "--quiet", "--amend", "-m", "another")
    assert lines(millrace(*run, "b", *TRAIN, cwd=tmp_path))[0].startswith("one ")


def test_what_is_refused(millrace: Millrace, repository: Repository, tmp_path: Path) -> None:
    run = ["run", "--checkpoint", "ckpt"]
    millrace(*run, "--code", repository.folder, *TRAIN, cwd=tmp_path)
    other = Repository(tmp_path / "other")
    done = millrace(*run, "--code", other.folder, "--code-dir", "b", *TRAIN, cwd=tmp_path, code=1)
    assert f"runs the code of {repository.folder}, not of {other.folder}".encode() in done.stderr
    done = millrace("run", "--code", other.folder, *TRAIN, cwd=tmp_path, code=1)
    assert b"name another one by --code-dir" in done.stderr
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    assert (
        b"has other files"
        in millrace("run", "--code", other.folder, "--code-dir", "full", *TRAIN, cwd=tmp_path, code=1).stderr
    )
    assert (
        b"no branch, tag or commit 'v9'"
        in millrace("run", "--code", f"{other.folder}@v9", "--code-dir", "c", *TRAIN, cwd=tmp_path, code=1).stderr
    )
    # Changes of the user are not overwritten.
    (tmp_path / "code" / "train.sh").write_text("mine")
    repository.commit("two")
    assert b"git says" in millrace("run", "--code", repository.folder, *TRAIN, cwd=tmp_path, code=1).stderr
    assert (tmp_path / "code" / "train.sh").read_text() == "mine"
    for text in ("@v1", "-x", "u@", "u@-x"):
        millrace("run", f"--code={text}", *TRAIN, code=2)


class Guarded(http.server.SimpleHTTPRequestHandler):
    """Serves files to a client that has the password, and the header of git's configuration."""

    def do_GET(self) -> None:
        password = "Basic " + base64.b64encode(b"me:CANARY").decode()
        if self.headers["Authorization"] == password and self.headers["X-Site"] == "a":
            return super().do_GET()
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="code"')
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def guarded_host(repository: Repository) -> Iterator[str]:
    repository.git("update-server-info")
    handler = functools.partial(Guarded, directory=repository.folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_passwords_are_not_kept(
    millrace: Millrace, repository: Repository, guarded_host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither in the clone nor in a record; git has the password for each request all the same."""
    rule = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "http.extraHeader", "GIT_CONFIG_VALUE_0": "X-Site: a"}
    for name, value in rule.items():
        monkeypatch.setenv(name, value)
    first = repository.git("rev-parse", "HEAD")
    run = ["run", "--code", f"http://me:CANARY@{guarded_host}/.git", "--checkpoint", "ckpt", "--journal", "journal"]
    # Nor in the words of a command, which other users of the machine see, nor by a helper of the user.
    (tmp_path / "gitconfig").write_text(f"[credential]\n\thelper = store --file {tmp_path / 'stored'}\n")
    trace = tmp_path / "trace"
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    monkeypatch.setenv("GIT_TRACE", str(trace))
    done = millrace(*run, *TRAIN, cwd=tmp_path)
    assert lines(done) == [f"one {first} in code"] and b"CANARY" not in done.stderr
    assert f"http://{guarded_host}/.git" in trace.read_text() and "CANARY" not in trace.read_text()
    assert not (tmp_path / "stored").exists()
    kept = [tmp_path / "journal", *(tmp_path / "code").rglob("*"), *(tmp_path / "ckpt").rglob("*")]
    assert not [path for path in kept if path.is_file() and b"CANARY" in path.read_bytes()]
    config = tmp_path / "code" / ".git" / "config"
    assert f"url = http://{guarded_host}/.git\n" in config.read_text()
    # A clone of an earlier version is fetched, and loses the password.
    config.write_text(config.read_text().replace("http://", "http://me:CANARY@"))
    assert lines(millrace(*run, *TRAIN, cwd=tmp_path)) == [f"one {first} in code"]
    assert "CANARY" not in config.read_text()


@pytest.mark.parametrize("user", ["me:C%41NARY", "me"])
def test_users_are_decoded_and_helpers_know_their_passwords(
    millrace: Millrace,
    repository: Repository,
    guarded_host: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    user: str,
) -> None:
    rule = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "http.extraHeader", "GIT_CONFIG_VALUE_0": "X-Site: a"}
    for name, value in rule.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "stored").write_text(f"http://other:x@{guarded_host}\nhttp://me:CANARY@{guarded_host}\n")
    (tmp_path / "gitconfig").write_text(f"[credential]\n\thelper = store --file {tmp_path / 'stored'}\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    first = repository.git("rev-parse", "HEAD")
    done = millrace("run", "--code", f"http://{user}@{guarded_host}/.git", *TRAIN, cwd=tmp_path)
    assert lines(done) == [f"one {first} in code"]


def test_passwords_are_not_shown(millrace: Millrace, tmp_path: Path) -> None:
    done = millrace("run", "--code", "http://me:CANARY@127.0.0.1:1/repository", *TRAIN, cwd=tmp_path, code=1)
    assert b"CANARY" not in done.stderr + done.stdout and b"http://127.0.0.1:1/repository" in done.stderr
