"""-q, -v, --no-progress and --log-level, which mean the same for all commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli_support import Bucket, Millrace, on_terminal

COMMANDS = ["", "ls", "pack", "index", "feed", "run", "mount", "worker", "bench", "bench compare", "devstore", "top"]
COMMANDS += ["uploads abort", "checkpoint ls", "cache warm", "volume move", "doctor host", "compile-cache", "env"]
RUN_PROGRAMS = ("run", "compile-cache")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_them(millrace: Millrace, command: str) -> None:
    text = millrace(*command.split(), "--help").stdout.decode()
    short = not command.startswith(RUN_PROGRAMS)
    for option in (
        "-q,--quiet" if short else "--quiet",
        "-v,--verbose" if short else "--verbose",
        "--no-progress",
        "--log-level",
    ):
        assert text.count("\n  " + option + " ") == 1, option


@pytest.mark.parametrize("command", RUN_PROGRAMS)
@pytest.mark.parametrize("option", ["-q", "-v"])
def test_short_options_of_a_program_are_not_taken(millrace: Millrace, command: str, option: str) -> None:
    assert option.encode() in millrace(command, "echo", option, code=2).stderr


def levels(log: bytes) -> set[str]:
    return set(re.findall(r"^\S+T\S+ (\w+) ", log.decode(), re.MULTILINE))


@pytest.mark.parametrize("before", [True, False])
def test_the_level_of_the_log(millrace: Millrace, bucket: Bucket, before: bool) -> None:
    """Options win over MILLRACE_LOG, before and behind the name of the command."""

    def log(*options: str, env: str = "") -> set[str]:
        words = [*options, "ls", "s3://bkt"] if before else ["ls", *options, "s3://bkt"]
        return levels(millrace(*words, env=bucket.env | {"MILLRACE_LOG": env}).stderr)

    assert log() == log("-q", env="debug") == log("--log-level", "info", env="debug") == set()
    assert log("-v") == log("--verbose", env="off") == log("--log-level", "debug", env="off") == {"debug"}


def test_contradictions_are_refused(millrace: Millrace, tree: Path) -> None:
    for options in (["-q", "-v"], ["-q", "--log-level", "info"], ["-v", "--log-level", "debug"]):
        assert b"only one of --quiet, --verbose and --log-level" in millrace("ls", tree, *options, code=2).stderr
    assert b"only one of" in millrace("-q", "ls", "-v", tree, code=2).stderr
    assert b"must be one of debug" in millrace("ls", tree, "--log-level", "loud", code=2).stderr


def test_programs_that_run_starts_have_them(millrace: Millrace) -> None:
    shell = 'echo "$MILLRACE_LOG $MILLRACE_PROGRESS"'
    assert millrace("run", "--quiet", "--", "sh", "-c", shell).stdout == b"error off\n"


@pytest.mark.parametrize("option", ["-q", "--no-progress", ""])
def test_no_progress_on_a_terminal(millrace: Millrace, millrace_bin: Path, tmp_path: Path, option: str) -> None:
    millrace("synth", tmp_path / "in", "--count", "20", "--kb", "20")
    words = [*option.split(), "cp", "--recursive", tmp_path / "in", tmp_path / "out"]
    status, shown = on_terminal(millrace_bin, *words)
    assert status == 0
    assert (b"\x1b[K" in shown) == (option == "") and b"copied 20 objects" in shown
