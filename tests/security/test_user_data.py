"""Files that `millrace run --print` makes, which others can read (C28), and what user data write on the instance (C30)."""

from __future__ import annotations

import os
import pathlib
import subprocess
from typing import Any

import pytest

SECRET = "CANARY"
CHECKPOINT = ["--checkpoint", "s3://bkt/run-7"]
EC2 = [word for text in ("image=i", "type=t", "subnet=s", "profile=p", "fleet-role=f") for word in ("--ec2", text)]
GROUPS = ["--group", "data=serve"]
IMAGE = ["--image", "me/train:1"]

CANNED = """#!/bin/sh
# In place of curl and of millrace: says something.
echo "said by the job"
"""


def printed(binary: pathlib.Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(binary), "run", "--print", *words], capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(
    "words",
    [
        ["user-data", *CHECKPOINT, "--", "train", f"--api-key={SECRET}"],
        ["user-data", *CHECKPOINT, "--", "train", "--api-key", SECRET],
        ["user-data", *CHECKPOINT, "--", "env", f"HF_TOKEN={SECRET}", "train"],
        ["user-data", *CHECKPOINT, "--", "sh", "-c", f"HF_TOKEN={SECRET} train"],
        ["user-data", *CHECKPOINT, "--on-end", f"curl --token {SECRET} http://host", "--", "train"],
        ["user-data", *CHECKPOINT, "--code", f"https://me:{SECRET}@host/repository", "--", "train"],
        ["spot-fleet", *CHECKPOINT, *EC2, "--", "train", f"--db-password={SECRET}"],
        ["jobset", *IMAGE, *GROUPS, "--group", f"train=train --api-key {SECRET}"],
        ["slurm-script", *GROUPS, "--group", f"train=train --api-key {SECRET}"],
    ],
    ids=lambda words: " ".join(words)[:60],
)
def test_c28_no_secret_is_printed_for_others(millrace_bin: pathlib.Path, words: list[str]) -> None:
    done = printed(millrace_bin, *words)
    assert done.returncode == 2 and done.stdout == "", done.stderr
    assert SECRET not in done.stderr and ("***" in done.stderr or "https://host" in done.stderr)
    assert "SSM" in done.stderr and "--print-secrets" in done.stderr
    meant = printed(millrace_bin, words[0], "--print-secrets", *words[1:])
    assert meant.returncode == 0 and "--print-secrets" not in meant.stdout, meant.stderr


def test_c28_what_is_no_secret_is_printed(millrace_bin: pathlib.Path) -> None:
    for words in (
        ["env", "OMP_NUM_THREADS=8", "train", "--max-tokens", "5"],
        ["sh", "-c", 'HF_TOKEN=$(aws ssm get-parameter --name hf) train --api-key "$KEY"'],
        ["train", "--remote", "ssh://git@host/repository"],
    ):
        assert printed(millrace_bin, "user-data", *CHECKPOINT, "--", *words).returncode == 0
    assert printed(millrace_bin, "iam-policy", *CHECKPOINT, "--", "train", "--api-key=x").returncode == 0


def test_c30_others_read_no_log_of_an_instance(millrace_bin: pathlib.Path, tmp_path: pathlib.Path) -> None:
    script = tmp_path / "user-data.sh"
    script.write_text(printed(millrace_bin, "user-data", *CHECKPOINT, "--", "train").stdout)
    for name in ("curl", "millrace"):
        (tmp_path / name).write_text(CANNED)
        (tmp_path / name).chmod(0o755)
    env: dict[str, Any] = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "WORK": str(tmp_path / "var/work")}
    subprocess.run(["sh", "-c", f"umask 022 && exec bash {script}"], env=env, check=True, timeout=300)
    log = tmp_path / "var" / "work" / "logs" / "user-data.log"
    assert "said by the job" in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600
    assert log.parent.stat().st_mode & 0o777 == 0o700
