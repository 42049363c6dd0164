"""A whole job with a secret in each place where people have one: it appears in no output, file, or command line (C21)."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

SECRETS = ("CANARYKEY", "CANARYENV", "CANARYARG", "CANARYURL")

# The job. It looks at what other programs see, and says what it has.
JOB = """
import os, pathlib, sys
print("has", os.environ["WANDB_API_KEY"] == "CANARY" + "ENV", os.environ["GIVEN"] == "CANARY" + "ARG")
own = {os.getpid(), os.getppid()}  # `millrace run` has the words that the user gave it
for folder in pathlib.Path("/proc").iterdir():
    if folder.name.isdigit() and int(folder.name) not in own:
        try:
            words = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1]) if (folder / "stat").exists() else 0
        if b"CANARY" in words and parent in own:
            print("seen", words)
raise SystemExit(3)
"""

GIT = """#!/bin/sh
# In place of git: keeps the words that it gets.
echo "$@" >> {words}
exec {git} "$@"
"""


def test_c21_secrets_of_a_whole_run(
    millrace_bin: pathlib.Path, devstore: Callable[..., Any], tmp_path: pathlib.Path
) -> None:
    server = devstore("mem:", "--bucket", "bkt", "--access-key", "id", "--secret-key", SECRETS[0])
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    git = shutil.which("git")
    assert git is not None
    (home / "bin" / "git").write_text(GIT.format(words=home / "git-words", git=git))
    (home / "bin" / "git").chmod(0o755)
    (tmp_path / "job.py").write_text(JOB)
    env = {
        **os.environ,
        "HOME": str(home),
        "PATH": f"{home / 'bin'}:{os.environ['PATH']}",
        "MILLRACE_LOG": "debug",
        "AWS_ENDPOINT_URL": server.env()["AWS_ENDPOINT_URL"],
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": SECRETS[0],
        "WANDB_API_KEY": SECRETS[1],
    }
    options: list[Any] = [
        "--journal",
        "journal",
        "--log-dir",
        "logs",
        "--failure-file",
        "failure",
        "--retries",
        "1",
        "--delay",
        "0",
    ]
    options += ["--checkpoint", "s3://bkt/ckpt"]
    job = ["--", "env", f"GIVEN={SECRETS[2]}", "python3", tmp_path / "job.py", f"--api-key={SECRETS[2]}"]
    clone = ["--code", f"http://me:{SECRETS[3]}@127.0.0.1:1/repository"]
    outputs = []
    for words in ([*options, *job], [*options, *clone, *job]):
        command = [millrace_bin, "run", *words]
        done = subprocess.run(
            [str(word) for word in command], capture_output=True, cwd=home, env=env, timeout=300, check=False
        )
        outputs.append(done.stdout + done.stderr)
        assert done.returncode != 0
    assert b"has True True" in outputs[0], outputs[0][-2000:]
    assert b"seen" not in outputs[0]
    left = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    names = {path.relative_to(home).parts[0] for path in left}
    assert {"journal", "logs", "failure", "git-words"} <= names, names
    for path in [home / "journal", *(home / "logs").iterdir()]:
        assert path.stat().st_mode & 0o777 == 0o600, "C7: it holds the output of the job"
    kept = subprocess.run(
        [str(millrace_bin), "ls", "--recursive", "s3://bkt"], capture_output=True, env=env, check=True, timeout=300
    )
    for text in [*outputs, *left.values(), kept.stdout]:
        for secret in SECRETS:
            assert secret.encode() not in text, (secret, text[-2000:])
