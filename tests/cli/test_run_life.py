"""Signs of life for `millrace run --hang-after`, besides output and heartbeats: the work that Millrace does for the job."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cli_support import needs_fuse
from e2e.harness import Sandbox, Server, devstore
from e2e.mounting import mounted

# Longer than a test machine stands still, and less than the transfers take.
HANG_AFTER = 8
SLOW = HANG_AFTER + 4
RATE = 60_000
LARGE = SLOW * RATE

# Output is a sign of life. Python may take long to start and to import modules, and then removes the file $0.
UNTIL_IT_HAS_STARTED = ': > "$0"; while [ -e "$0" ]; do echo starts; sleep 1; done & exec "$@"'
SAVES_AND_LOADS = """if True:
    import os, sys
    import millrace, numpy
    os.remove(sys.argv[2])
    state = {"w": numpy.zeros(int(os.environ["LARGE"]), numpy.uint8)}
    checkpoints = millrace.Checkpoints(sys.argv[1])
    checkpoints.save(1, state)
    assert len(checkpoints.load()["w"]) == len(state["w"])
"""


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Server]:
    """Serves `large` slowly and refuses `later` for SLOW seconds."""
    (tmp_path / "home").mkdir()
    (tmp_path / "root" / "b").mkdir(parents=True)
    for name, size in {"large": LARGE, "later": 10, "small": 10}.items():
        (tmp_path / "root" / "b" / name).write_bytes(bytes(size))
    faults = (
        f"GET b/large rate={RATE}",
        f"GET b/saved/* rate={RATE}",
        f"GET b/later status=503 until={SLOW}",
        f"HEAD b/later status=503 until={SLOW}",
    )
    with devstore(Sandbox(tmp_path / "home"), tmp_path / "root", faults=faults) as store:
        yield store


def run(store: Server, root: Path, *words: object, hang_after: int = HANG_AFTER) -> subprocess.CompletedProcess[bytes]:
    binary = os.environ["MILLRACE_BIN"]
    options = ["--hang-after", f"{hang_after}s", "--grace", "100ms", "--root", str(root)]
    return subprocess.run(
        [binary, "run", *options, *map(str, words)],
        capture_output=True,
        env=os.environ | store.env() | {"MILLRACE": binary, "LARGE": str(LARGE), "AWS_MAX_ATTEMPTS": "100"},
        timeout=300,
        check=False,
    )


@needs_fuse
def test_what_millrace_moves_and_waits_for(slow: Server, tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    load = ("sh", "-c", UNTIL_IT_HAS_STARTED, starts, sys.executable, "-c", SAVES_AND_LOADS, "s3://b/saved", starts)
    with (
        mounted(Sandbox(tmp_path / "home"), "s3://b", tmp_path / "mnt", env=slow.env()),
        ThreadPoolExecutor(8) as threads,
    ):
        jobs = {
            "a command": ("--", "sh", "-c", '"$MILLRACE" cat s3://b/large > /dev/null'),
            "an outage": ("--", "sh", "-c", '"$MILLRACE" cat s3://b/small s3://b/later > /dev/null'),
            "a mount": ("--", "sh", "-c", f"cat {tmp_path}/mnt/large > /dev/null"),
            "a load": ("--", *load),
            "a pipe": ("--channel", "train=s3://b/large,mode=Pipe", "--", "sh", "-c", 'cat < "$SM_CHANNEL_TRAIN"_0'),
        }
        running = {
            name: threads.submit(run, slow, tmp_path / name.replace(" ", "-"), *words) for name, words in jobs.items()
        }
        for name, job in running.items():
            done = job.result()
            assert done.returncode == 0 and b"hangs" not in done.stderr, (name, done)


def test_a_program_that_hangs_is_ended_whatever_millrace_has_open(slow: Server, tmp_path: Path) -> None:
    """It has read from a pipe, and reads no more; and it has copied something."""
    hangs = '"$MILLRACE" cat s3://b/small > /dev/null; exec 3< "$SM_CHANNEL_TRAIN"_0; exec sleep 600'
    done = run(
        slow, tmp_path / "job", "--channel", "train=s3://b/small,mode=Pipe", "--", "sh", "-c", hangs, hang_after=2
    )
    assert done.returncode != 0 and b"the command hangs: no output and no heartbeat" in done.stderr, done
