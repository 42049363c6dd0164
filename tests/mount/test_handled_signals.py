"""Signals that a program handles do not interrupt its calls on a mount; signals that end it do."""

from __future__ import annotations

import contextlib
import platform
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from e2e.harness import Sandbox, Server, devstore, freeze
from e2e.mounting import mounted, needs_fuse, wait_until
from semantics import says

pytestmark = needs_fuse

# By the system's own calls: Python itself repeats some of them after an EINTR.
CALLS = """
import ctypes, os, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.opendir.restype = ctypes.c_void_p
libc.opendir.argtypes = [ctypes.c_char_p]
buffer = ctypes.create_string_buffer(1 << 16)
failed, came = [], [0]

def handle(number, frame):
    came[0] += 1

def call(name, *args):
    result = getattr(libc, name)(*args)
    number = ctypes.get_errno()
    if result in (None, -1): failed.append((name, os.strerror(number)))
    return result

signal.signal(signal.SIGALRM, handle)
signal.siginterrupt(signal.SIGALRM, sys.argv[2] == "interrupts")
signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
os.chdir(sys.argv[1])
fd = call("open", b"large", os.O_RDONLY)
for at in range(3): call("pread", fd, buffer, 4096, ctypes.c_long(at * 5_000_000))
call("access", b"z", os.F_OK)
for attempt in (lambda: os.stat("a/b.txt"), lambda: os.listdir("a"), lambda: os.stat("a/b/small")):
    try: attempt()
    except OSError as error: failed.append(str(error))
call("opendir", b"a/b")
call("mkdir", b"made", 0o755)
new = call("open", b"made/new", os.O_CREAT | os.O_WRONLY, 0o644)
call("write", new, b"text", 4)
call("fsync", new)
call("close", new)
other = call("open", b"made/other", os.O_CREAT | os.O_WRONLY, 0o644)
call("write", other, b"text", 4)
call("close", other)
call("rename", b"made/new", b"made/renamed")
call("unlink", b"made/renamed")
signal.setitimer(signal.ITIMER_REAL, 0)
print(failed, came[0] > 0)
"""


@says("A signal that a program handles interrupts no call: the call ends with its own result.")
@pytest.mark.parametrize("way", ["interrupts", "restarts"])
def test_signals_that_are_handled(sandbox: Sandbox, bucket: Path, tmp_path: Path, way: str) -> None:
    options = ("--writable", "--metadata-ttl", "minimal")
    with (
        devstore(sandbox, bucket.parent, faults=("* * delay-ms=60",)) as store,
        mounted(sandbox, "s3://b", tmp_path / "mnt", *options, env=store.env()),
    ):
        command = [sys.executable, "-c", CALLS, tmp_path / "mnt", way]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.stdout == "[] True\n", done.stdout + done.stderr
    assert (bucket / "made" / "other").read_bytes() == b"text" and not (bucket / "made" / "renamed").exists()


WAITS = """
import os, resource, signal, sys
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
signal.signal(signal.SIGUSR1, lambda number, frame: None)
sys.stdin.readline()
os.stat(sys.argv[1])
"""
# The numbers of the system calls of os.stat. The line begins with such a number.
STAT = {"x86_64": {"4", "262"}, "aarch64": {"79"}}


def waits(program: subprocess.Popen) -> bool:
    return Path(f"/proc/{program.pid}/syscall").read_text().split()[0] in STAT[platform.machine()]


def has_pending(program: subprocess.Popen, number: int) -> bool:
    """The thread, or its process."""
    status = Path(f"/proc/{program.pid}/status").read_text().splitlines()
    masks = [int(line.split()[1], 16) for line in status if line.startswith(("SigPnd", "ShdPnd"))]
    return any(mask >> (number - 1) & 1 for mask in masks)


@says("A signal that ends the program ends a call that waits for the store, also after one that the program handles.")
@pytest.mark.skipif(platform.machine() not in STAT, reason="the number of the system call is not known")
def test_signals_that_end_a_program(sandbox: Sandbox, store: Server, tmp_path: Path) -> None:
    endings = (signal.SIGTERM, signal.SIGKILL, signal.SIGABRT, signal.SIGRTMIN)
    env = {**store.env(), "AWS_MAX_ATTEMPTS": "1000"}  # the usual ten end a call after two or three minutes
    with (
        mounted(sandbox, "s3://b", tmp_path / "mnt", "--timeout", "3000s", env=env),
        contextlib.ExitStack() as ends,
    ):
        freeze(store.process)
        ends.callback(store.process.send_signal, signal.SIGCONT)
        programs = []
        for ending in endings:
            command = [sys.executable, "-c", WAITS, tmp_path / "mnt" / f"nothing-{ending}"]
            programs.append(ends.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, text=True)))
            ends.callback(programs[-1].kill)
        for program in programs:
            assert program.stdin is not None
            print(file=program.stdin, flush=True)
            wait_until(lambda program=program: waits(program), "the call")
            program.send_signal(signal.SIGUSR1)
            # The call still waits, and so does the signal.
            wait_until(lambda program=program: has_pending(program, signal.SIGUSR1), "the signal")
        for program, ending in zip(programs, endings, strict=True):
            program.send_signal(ending)
            assert program.wait(300) == -ending
