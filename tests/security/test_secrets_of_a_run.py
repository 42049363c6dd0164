"""A whole job with a secret in each place where people have one: it appears in no output, file, command line or environment (C21)."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import Any

from e2e.mounting import can_mount
from support import write_tar

KEY, ENV, ARG, URL, TOKEN, PROXY = ("CANARYKEY", "CANARYENV", "CANARYARG", "CANARYURL", "CANARYTOKEN" * 3, "CANARYPROXY")  # fmt: skip
SECRETS = (KEY, ENV, ARG, URL, TOKEN, PROXY)

# A secret may stand where the user has put it. Git has a password in its environment for the time of a command.
VARIABLES = {KEY: "AWS_SECRET_ACCESS_KEY", ENV: "WANDB_API_KEY", ARG: "GIVEN", URL: "MILLRACE_GIT_PASSWORD", PROXY: "HTTP_PROXY"}  # fmt: skip
MARK = "MILLRACE_TEST_OF_SECRETS"

# The job: a worker, a trainer that reads from it, and a mount. It says what it has, and keeps what others see of its children.
JOB = """
import os, pathlib, signal, subprocess, sys, time
millrace, token, seen, mount = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3]), sys.argv[4]
print("has", os.environ["WANDB_API_KEY"] == "CANARY" + "ENV", os.environ["GIVEN"] == "CANARY" + "ARG", flush=True)

def start(*words, **more):
    child = subprocess.Popen([millrace, *words], text=True, **more)  # returns when the program has its words
    for name in ("cmdline", "environ"):
        (seen / f"{child.pid}.{name}").write_bytes(pathlib.Path(f"/proc/{child.pid}/{name}").read_bytes())
    return child

worker = start("worker", "--listen", "127.0.0.1:0", "--threads", "1", "--memory", "1GiB", "--token-file", token, stdout=subprocess.PIPE)
address = worker.stdout.readline().split()[2]
feed = start("feed", "s3://bkt/train", "--size", "16", "--batch", "4", "--workers", address, "--worker-token-file", token)
print("fed", feed.wait(300), flush=True)
worker.terminate()
worker.wait(60)
if mount:
    folder = pathlib.Path(mount)
    folder.mkdir(exist_ok=True)
    mounted = start("mount", "s3://bkt/train", str(folder), "--foreground")
    while mounted.poll() is None and not os.path.ismount(folder):
        time.sleep(0.01)
    print("mounted", len(next(folder.glob("*.tar")).read_bytes()) > 1000, flush=True)
    mounted.terminate()
    mounted.wait(60)
raise SystemExit(3)
"""

GIT = """#!/bin/sh
# In place of git: keeps the words that it gets.
echo "$@" >> {words}
exec {git} "$@"
"""


class Watch:
    """Command lines and environments of all processes with a mark in their environment, as often as it can look."""

    def __init__(self) -> None:
        self.seen: set[tuple[bytes, bytes]] = set()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def _look(self) -> None:
        while not self._ends.is_set():
            for folder in pathlib.Path("/proc").iterdir():
                if not folder.name.isdigit():
                    continue
                with contextlib.suppress(OSError):  # it has ended, or is another user's
                    environment = (folder / "environ").read_bytes()
                    if MARK.encode() in environment:
                        self.seen.add(((folder / "cmdline").read_bytes(), environment))
            self._ends.wait(0.01)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._ends.set()
            self._thread.join()


def check_process(words: list[str], environment: list[str]) -> None:
    """The words of `millrace run` and of the job are those that the user has written."""
    is_run = words[1:2] == ["run"] and "--journal" in words
    is_job = any(word.endswith("/job.py") for word in words)
    for secret in SECRETS:
        own = (secret == ARG and (is_run or is_job)) or (secret == URL and is_run)
        assert own or not any(secret in word for word in words), words
        for variable in environment:
            assert secret not in variable or variable.split("=")[0] == VARIABLES.get(secret), (words, variable)


def text_of(binary: pathlib.Path, env: dict[str, str], *words: str) -> bytes:
    done = subprocess.run([str(binary), *words], capture_output=True, env=env, timeout=300, check=False)
    return done.stdout + done.stderr


def test_c21_secrets_of_a_whole_run(
    millrace_bin: pathlib.Path, devstore: Callable[..., Any], tmp_path: pathlib.Path
) -> None:
    server = devstore("mem:", "--bucket", "bkt", "--access-key", "id", "--secret-key", KEY)
    client = server.client(access_key="id", secret_key=KEY)
    (tmp_path / "train").mkdir()
    write_tar(tmp_path / "train", count=12)
    for path in (tmp_path / "train").iterdir():
        client.put_object(Bucket="bkt", Key=f"train/{path.name}", Body=path.read_bytes())
    home, seen = tmp_path / "home", tmp_path / "seen"
    seen.mkdir()
    (home / "bin").mkdir(parents=True)
    git = shutil.which("git")
    assert git is not None
    (home / "bin" / "git").write_text(GIT.format(words=home / "git-words", git=git))
    (home / "bin" / "git").chmod(0o755)
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o600)
    env = {
        **os.environ,
        MARK: "1",
        "HOME": str(home),
        "MILLRACE_CACHE": str(home / "cache"),
        "PATH": f"{home / 'bin'}:{os.environ['PATH']}",
        "MILLRACE_LOG": "debug",
        "AWS_ENDPOINT_URL": server.env()["AWS_ENDPOINT_URL"],
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": KEY,
        "WANDB_API_KEY": ENV,
        "HTTP_PROXY": f"http://me:{PROXY}@127.0.0.1:1",
        "NO_PROXY": "127.0.0.1",
    }
    options: list[Any] = ["--journal", "journal", "--log-dir", "logs", "--failure-file", "failure"]
    options += ["--retries", "1", "--delay", "0", "--checkpoint", "s3://bkt/ckpt"]
    mount = str(tmp_path / "mount") if can_mount() else ""
    job = ["--", "env", f"GIVEN={ARG}", "python3", tmp_path / "job.py", millrace_bin, tmp_path / "token", seen, mount, f"--api-key={ARG}"]  # fmt: skip
    clone = ["--code", f"http://me:{URL}@127.0.0.1:1/repository"]
    outputs = []
    watch = Watch()
    with watch.watching():
        for words in ([*options, *job], [*options, *clone, *job]):
            command = [str(word) for word in (millrace_bin, "run", *words)]
            done = subprocess.run(command, capture_output=True, cwd=home, env=env, timeout=300, check=False)
            outputs.append(done.stdout + done.stderr)
            assert done.returncode != 0
        # Through the proxy, which is not there.
        outputs.append(text_of(millrace_bin, {**env, "NO_PROXY": "", "no_proxy": ""}, "ls", "s3://bkt"))
        assert b"HTTP_PROXY" in outputs[-1] or b"proxy" in outputs[-1].lower(), outputs[-1]
    assert b"has True True" in outputs[0] and b"fed 0" in outputs[0], outputs[0][-2000:]
    assert not mount or b"mounted True" in outputs[0], outputs[0][-2000:]

    left = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    names = {path.relative_to(home).parts[0] for path in left}
    assert {"journal", "logs", "failure", "git-words"} <= names, names
    for path in [home / "journal", *(home / "logs").iterdir()]:
        assert path.stat().st_mode & 0o777 == 0o600, "C7: it holds the output of the job"
    kept = text_of(millrace_bin, env, "ls", "--recursive", "s3://bkt")
    for text in [*outputs, *left.values(), kept]:
        for secret in SECRETS:
            assert secret.encode() not in text, (secret, text[-2000:])

    kinds = set()
    children = [(path.read_bytes(), path.with_suffix(".environ").read_bytes()) for path in seen.glob("*.cmdline")]
    for cmdline, environ in [*watch.seen, *children]:
        given = [word for word in cmdline.decode(errors="replace").split("\0") if word]
        check_process(given, environ.decode(errors="replace").split("\0"))
        kinds |= {re.sub(r".*/", "", given[0])} | ({given[1]} if len(given) > 1 else set()) if given else set()
    assert {"run", "worker", "feed", "python3"} <= kinds and (not mount or "mount" in kinds), kinds
