"""Common parts of the demos: commands and servers whose output is shown, checked claims, and an end that leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("MILLRACE_BINARY_DIR", ROOT / "build" / "release"))
MILLRACE = BUILD / "bin" / "millrace"
KEYS = {"AWS_ACCESS_KEY_ID": "demo", "AWS_SECRET_ACCESS_KEY": "demo-secret", "AWS_REGION": "us-east-1"}

started = time.monotonic()


class DemoFailed(Exception):
    """A claim does not hold, or a program failed. The message says which."""


def say(text: str) -> None:
    print(f"[{time.monotonic() - started:5.1f} s] {text}", flush=True)


def check(holds: bool, claim: str) -> None:
    print(f"          {'ok  ' if holds else 'NOT '} {claim}", flush=True)
    if not holds:
        raise DemoFailed(f"this does not hold: {claim}")


def millrace(*arguments: str | os.PathLike[str]) -> str:
    """Runs a command of millrace to its end, shows what it prints, and returns it."""
    command = [str(MILLRACE), *map(str, arguments)]
    print(f"          $ millrace {shlex.join(command[1:])}", flush=True)
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    for line in result.stdout.splitlines():
        for part in textwrap.wrap(
            line, 120, break_on_hyphens=False, replace_whitespace=False, drop_whitespace=False
        ) or [""]:
            print(f"          | {part}", flush=True)
    if result.returncode != 0:
        raise DemoFailed(f"`{shlex.join(command)}` failed with status {result.returncode}; see its message above")
    return result.stdout


@contextlib.contextmanager
def running(command: list[str | os.PathLike[str]], stderr: int | None = None) -> Iterator[subprocess.Popen[str]]:
    """Runs a program with its output as a pipe. It does not outlive the block."""
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=stderr, text=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        assert process.stdout is not None
        process.stdout.close()


@contextlib.contextmanager
def devstore(*arguments: str | os.PathLike[str]) -> Iterator[str]:
    """Runs `millrace devstore` on a free port, and yields its URL. The AWS variables name it."""
    command: list[str | os.PathLike[str]] = [MILLRACE, "devstore", *arguments, "--port", "0"]
    command += ["--access-key", KEYS["AWS_ACCESS_KEY_ID"], "--secret-key", KEYS["AWS_SECRET_ACCESS_KEY"]]
    with running(command) as server:
        assert server.stdout is not None
        found = None
        for line in server.stdout:
            found = re.match(r"listening on (\S+)", line)
            if found:
                break
        if not found:
            raise DemoFailed("devstore ended before it was ready; see its message above")
        os.environ.update(KEYS, AWS_ENDPOINT_URL=found[1], no_proxy="127.0.0.1")
        yield found[1]


def run(demo: Callable[[], None], *needed: tuple[pathlib.Path, str]) -> int:
    """Runs a demo, and returns its exit status. `needed` has further paths that must exist, each with the command that makes it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything is cleaned up
    sys.path.insert(0, str(BUILD / "python"))
    os.environ.update(PYTHONPATH=str(BUILD / "python"), PYTHONUNBUFFERED="1")
    for path, remedy in ((MILLRACE, "make build"), (BUILD / "python", "make build"), *needed):
        if not path.exists():
            print(f"demo: {path} is missing; run `{remedy}` first", file=sys.stderr)
            return 1
    try:
        demo()
    except DemoFailed as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo: interrupted; servers and temporary files are gone", file=sys.stderr)
        return 130
    return 0
