"""Messages of all commands about a wrong command line, and their behavior at a terminal and before a closed pipe."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
from pathlib import Path

import pytest
from cli_support import Bucket, Millrace, on_terminal

LARGEST = 2**64 - 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("feed x --batch -5", "--batch: must be a whole number, 1 or more, not -5"),
        ("feed x --batch 1e6", "--batch: must be a whole number, 1 or more, not 1e6"),
        ("feed x --epochs 0", "--epochs: must be a whole number, 1 or more, not 0"),
        ("feed x --seed -1", "--seed: must be a whole number, 0 or more, not -1"),
        (f"feed x --seed {LARGEST + 1}", f"--seed: must be a whole number from 0 to {LARGEST}, not {LARGEST + 1}"),
        (f"feed x --seed {10**30}", f"--seed: must be a whole number from 0 to {LARGEST}, not {10**30}"),
        (f"synth x --count 1 --seed {LARGEST + 1}", f"--seed: must be a whole number from 0 to {LARGEST}"),
        ("feed x --size 20000", "--size: must be a whole number from 1 to 16384, not 20000"),
        ("synth x --count 0", "--count: must be a whole number from 1 to 100000000, not 0"),
        ("devstore mem: --port 99999", "--port: must be a whole number from 0 to 65535, not 99999"),
        ("devstore mem: --port http", "--port: must be a whole number from 0 to 65535, not http"),
        ("devstore mem: --bandwidth fast", "--bandwidth"),
        ("feed x --dtype f16", "--dtype: must be one of u8, f32, not f16"),
        ("feed x --shuffle nonee", "--shuffle: must be one of window, global, none, not nonee"),
        ("feed x --last first", "--last: must be one of pad, short, drop, wrap, not first"),
        ("feed x --channels 2", "--channels: must be one of 3, 1, not 2"),
        ("feed x --resume zero", "--resume"),
        ("feed x --label-field cls --label-kind double", "--label-kind"),
        ("feed --shufle none x", "millrace feed: there is no option --shufle; did you mean --shuffle?"),
        ("feed x --lable-kind=int", "there is no option --lable-kind; did you mean --label-kind?"),
        ("synth x --cuont 3", "there is no option --cuont; did you mean --count?"),
        ("doctor s3 s3://b --jsn", "millrace doctor s3: there is no option --jsn; did you mean --json?"),
        ("feed x --frobnicate", "there is no option --frobnicate\n"),
        ("ls x y", "'y' is one argument too many"),
        ("run --retries x -- true", "millrace run: --retries: must be a whole number from 0 to 1000000, not x"),
        ("fed x", "there is no command 'fed'; did you mean feed?"),
        ("fed x --shuffle none", "there is no command 'fed'; did you mean feed?"),
        ("--region x fed", "there is no command 'fed'; did you mean feed?"),
        ("frobnicate x", "there is no command 'frobnicate'; the commands are ls, cat, cp, "),
        (
            "checkpoint foo",
            "millrace checkpoint: there is no command 'foo'; the commands are ls, show, verify, diff, cp, export, gc\n",
        ),
        ("checkpoint verfy s3://b/run --all", "millrace checkpoint: there is no command 'verfy'; did you mean verify?"),
        ("cache foo", "millrace cache: there is no command 'foo'; the commands are "),
        ("volume foo", "millrace volume: there is no command 'foo'; the commands are "),
        ("uploads foo", "millrace uploads: there is no command 'foo'; the commands are "),
    ],
)
def test_wrong_usage_is_said_in_plain_words(millrace: Millrace, arguments: str, message: str) -> None:
    assert message in millrace(*arguments.split(), code=2).stderr.decode()


def test_numbers_are_decimal(millrace: Millrace, tmp_path: Path) -> None:
    millrace("synth", tmp_path, "--count", "010", "--kb", "20")
    assert len(list(tmp_path.rglob("*.jpg"))) == 10


def test_help_shows_choices(millrace: Millrace) -> None:
    text = millrace("feed", "--help").stdout.decode()
    for choices in ("window|global|none", "pad|short|drop|wrap", "u8|f32", "nhwc|nchw", "fail|replace", "raw|decoded"):
        assert choices in text


COMMANDS = [
    "",
    "help",
    "env",
    "devstore",
    "synth",
    "ls",
    "cat",
    "cp",
    "sync",
    "rm",
    "pack",
    "index",
    "inspect",
    "feed",
    "doctor",
    "doctor s3",
]
COMMANDS += [
    "bench",
    "bench compare",
    "advise",
    "top",
    "worker",
    "run",
    "uploads",
    "uploads ls",
    "uploads abort",
    "checkpoint",
    "checkpoint ls",
    "checkpoint show",
    "checkpoint verify",
    "volume",
    "volume move",
    "volume ls",
    "volume rm",
    "volume detach",
]


def at_terminal(arguments: list[str], columns: int) -> str:
    main, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(arguments, stdout=terminal, stderr=terminal)
    os.close(terminal)
    shown = b""
    with contextlib.suppress(OSError):  # the end, of a terminal
        while piece := os.read(main, 65536):
            shown += piece
    os.close(main)
    assert process.wait(timeout=300) == 0
    return shown.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_the_terminal(millrace: Millrace, millrace_bin: Path, command: str) -> None:
    """Prose does; examples, tables and the names of options are what they are."""
    words = [*command.split(), "--help"]
    for columns, text in ((100, millrace(*words).stdout.decode()), (80, at_terminal([str(millrace_bin), *words], 80))):
        assert "Usage" in text
        for line in text.splitlines():
            prose = not line.startswith(" ") or line.startswith(" " * 30)
            assert not prose or len(line) <= columns, line


@pytest.mark.parametrize(
    "command",
    ["ls", "ls --recursive --json", "cat", "cp", "cp --dry-run -r", "rm --recursive --dry-run", "sync --dry-run"],
)
def test_a_closed_pipe_ends_quietly(millrace_bin: Path, tmp_path: Path, command: str) -> None:
    """As with other programs: by SIGPIPE, and no message."""
    (tmp_path / "in").mkdir()
    for i in range(100):
        (tmp_path / "in" / f"{i:03}").write_bytes(b"x" * 100)
    name, *options = command.split()
    where = {"cat": ["in/000"], "cp": ["in", "out"] if options else ["in/000", "-"], "sync": ["in", "out"]}.get(
        name, ["in"]
    )
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [millrace_bin, name, *options, *where], cwd=tmp_path, stdout=writer, stderr=subprocess.PIPE, timeout=300
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (-signal.SIGPIPE, b"")


@pytest.mark.parametrize(
    "command",
    ["cp --recursive SRC DST", "sync SRC DST", "rm --recursive SRC", "pack SRC DST", "rm SRC/x/1.jpg SRC/none"],
)
def test_the_progress_is_gone_before_the_result(
    millrace_bin: Path, millrace: Millrace, bucket: Bucket, tmp_path: Path, command: str
) -> None:
    images = tmp_path / "images"
    millrace("synth", images, "--count", "20", "--kb", "20")
    (images / "x").mkdir()
    (images / "x" / "1.jpg").write_bytes(next(images.rglob("*.jpg")).read_bytes())
    millrace("cp", "--recursive", images, "s3://bkt/src", env=bucket.env)
    words = command.replace("SRC", "s3://bkt/src").replace("DST", str(tmp_path / "dst")).split()
    status, shown = on_terminal(millrace_bin, *words, env=bucket.env)
    assert status == (1 if "none" in command else 0)
    *progress, result = shown.split(b"\r\x1b[K")
    assert progress, "there was some to be erased"
    assert result.endswith(b"\r\n") and result.startswith((b"copied", b"removed", b"packed")), shown
    assert not any(line.count(b"millrace rm") > 0 and not line.startswith(b"millrace rm") for line in progress), shown
