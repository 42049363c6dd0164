"""`millrace run --print` keeps each option of the command, or refuses it by name: all that --help lists, also those that come later."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from cli_support import Millrace

# Options that take only certain values; of all others any text will do.
VALUES = {
    "--price": "1.5", "--grace": "90s",
    "--retries": "7", "--fast-failures": "3", "--requeue-exit": "76", "--main-hosts": "2", "--host-index": "1",
    "--volume": "run-7=/data,create=5GiB", "--checkpoint": "s3://b/run-7", "--group-size": "train=3", "--group-port": "7777",
    "--endpoint-url": "http://127.0.0.1:9", "--region": "eu-west-1", "--ec2": "image=x", "--job-name": "other", "--image": "me/train:2", "--log-level": "debug",
}  # fmt: skip
KINDS = {
    "slurm-script": ["--group", "data=serve", "--group", "train=train"],
    "jobset": ["--group", "data=serve", "--group", "train=train"],
    "user-data": [],
}
# They cannot be given together with --log-level.
CONTRADICTIONS = ("--quiet", "--verbose")
# Options that a kind says in its own way, with the words that show that it does.
SAID = {
    "slurm-script": {"--group-size": "--nodes=3", "--group-port": "7777", "--job-name": "--job-name=other", "--print-secrets": ""},
    "jobset": {"--group-size": '"parallelism": 3', "--group-port": ":7777", "--job-name": "other-train-0-0", "--image": "me/train:2", "--print-secrets": ""},
    "user-data": {"--checkpoint": "s3://b/run-7", "--journal": "--journal 'it'", "--log-dir": "--log-dir 'it'", "--ec2": "", "--print-secrets": "", "--on-end": "\nit's 5\n"},
}  # fmt: skip


def options(binary: Path) -> dict[str, bool]:
    """By name, whether it takes a value."""
    text = subprocess.run([str(binary), "run", "--help"], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^  (?:-\w, ?)?(--[\w-]+)( \S+)?", text, re.MULTILINE)
    listed = {
        name: bool(value) for name, value in found if name not in ("--help", "--print", "--group", *CONTRADICTIONS)
    }
    assert {"--retries", "--journal", "--hang-after", "--no-hyperparameter-args"} <= listed.keys()
    return listed


def printed(text: str, kind: str) -> list[str]:
    """The words that `millrace run` gets."""
    if kind == "jobset":
        manifest = json.loads(text.split("\n", 1)[1])
        commands = [
            job["template"]["spec"]["template"]["spec"]["containers"][0]["command"]
            for job in manifest["spec"]["replicatedJobs"]
        ]
        return list(commands[-1])
    begin = text.rindex("millrace run")
    end = text.index("\n}" if kind == "slurm-script" else '-- "${COMMAND', begin)
    return shlex.split(text[begin:end].replace("\\\n", " "))


@pytest.mark.parametrize("kind", KINDS)
def test_each_option_is_kept_or_refused(millrace_bin: Path, kind: str) -> None:
    """All are given at once; one that is refused is left out, and the others are tried again."""
    given, refused = options(millrace_bin), set()
    while True:
        words = [
            word
            for name, takes_value in given.items()
            for word in ([name, VALUES.get(name, "it's 5")] if takes_value else [name])
        ]
        command = [
            str(millrace_bin),
            "run",
            "--print",
            kind,
            *KINDS[kind],
            *words,
            *(["--", "true"] * (not KINDS[kind])),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if done.returncode == 0:
            break
        named = re.search(r"--print \S* ?(?:does not take|knows nothing of what the file of) (--[\w-]+)", done.stderr)
        assert done.returncode == 2 and named is not None and named[1] in given, done.stderr
        refused.add(named[1])
        del given[named[1]]
    shown = printed(done.stdout, kind)
    pairs = list(zip(shown, [*shown[1:], ""]))
    for name, takes_value in given.items():
        if name in SAID[kind]:
            assert SAID[kind][name] in done.stdout, name
        else:
            assert (name, VALUES.get(name, "it's 5")) in pairs if takes_value else name in shown, name
    assert {"--retries", "--hang-after", "--metrics-port", "--no-hyperparameter-args", *SAID[kind]} <= given.keys()
    assert len(refused) < len(given) / 2, refused


def test_words_that_a_shell_would_take_apart(millrace: Millrace) -> None:
    """Also an option that is repeated, and a value like an option."""
    given = ["--retries", "7", "--on-exit", "code=2:exit", "--on-exit", "reason=Hang*:retry", "--on-end", 'echo "$HOME" > \'x\'', "--journal=-x", "--no-hyperparameter-args"]  # fmt: skip
    text = millrace("run", "--print", "slurm-script", *KINDS["slurm-script"], *given).stdout.decode()
    shown = printed(text, "slurm-script")
    assert sorted(shown[2 : shown.index("--group-token-file")]) == sorted(given)
    text = millrace("run", "--print", "jobset", "--image", "i", *KINDS["jobset"], *given).stdout.decode()
    shown = printed(text, "jobset")
    assert set(given) <= set(shown)


@pytest.mark.parametrize("kind", ["slurm-script", "jobset"])
def test_what_is_refused_says_why(millrace: Millrace, kind: str) -> None:
    for option, value, why in (
        ("--current-host", "a", "host to host"),
        ("--main-hosts", "2", "--group-size"),
        ("--group-token-file", "t", "secret of its own"),
        ("--ec2", "image=x", "spot-fleet"),
    ):
        image = ["--image", "i"] if kind == "jobset" else []
        said = millrace("run", "--print", kind, *KINDS[kind], *image, option, value, code=2).stderr.decode()
        assert f"--print {kind} does not take {option}: " in said and why in said
