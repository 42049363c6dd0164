"""Tests writers that are killed at any moment, and writers that are believed dead and are not."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator

import millrace
import pytest
from support import binary, check_script, devstore, rgw
from thoroughness import repeats


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Returns a URI for checkpoints, and the environment of the programs that use it."""
    if request.param == "folder":
        yield str(tmp_path / "run"), {}
        return
    (tmp_path / "store" / "bkt").mkdir(parents=True)
    with devstore(tmp_path / "store") as environment:
        yield "s3://bkt/run", environment


# The program forks a writer for each kill, since starting Python takes longer than what is tested. The writer reports
# when it begins, and is killed some random milliseconds later. That is in the middle of a claim, a save, its retention
# or its sweeping; every other step is saved twice. Every fifth kill is that of `millrace checkpoint gc`, which may have
# ended by then. Then this process, which has no part in the writing, loads all checkpoints, which must hold what was
# saved as that step; steps never go back.
KILLER = """
import os, random, signal, sys, time
import numpy as np
import millrace

uri, kills, seed, command = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
KEEP = 2

def state_of(step, version=0):
    # Every eighth one is written in pieces.
    large = np.full((9 if step % 8 == 0 else 0) * (1 << 20) // 8, step + version)
    return {"model": {"w": np.arange(step, step + 1000) + version, "large": large}, "step": step, "version": version, ("a", 1): None}

def write(begun):
    ckpt = millrace.Checkpoints(uri, keep=KEEP)
    step = ckpt.latest() or 0
    os.write(begun, b"x")
    while True:
        step += 1
        ckpt.save(step, state_of(step))
        if step % 2 == 0:
            ckpt.save(step, state_of(step, version=1))

def collect(begun):
    os.write(begun, b"x")
    os.execv(command, [command, "checkpoint", "gc", "--keep", "1", "--claim", "--json", uri])

def check(least):
    found = reader.latest()
    assert found is not None or least == 0, "all checkpoints are gone"
    if found is None: return 0
    assert found >= least, (found, least)
    for step in reader.steps():
        state = reader.load(step)
        expected = state_of(step, state["version"])
        assert state["step"] == step and state[("a", 1)] is None
        assert all(np.array_equal(state["model"][name], expected["model"][name]) for name in expected["model"])
    return found

draw = random.Random(seed)
reader = millrace.Checkpoints(uri)
newest = 0
moved = 0
for kill in range(kills):
    told, begun = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            (collect if kill % 5 == 4 else write)(begun)
        finally:
            os._exit(1)
    os.close(begun)
    assert os.read(told, 1) == b"x", "the writer failed"
    os.close(told)
    # Longer each time until a save was finished: a machine that is slow gets there, too.
    time.sleep(draw.choice([0.01, 0.05, 0.25]) * draw.random() * (1 if moved else 1 + kill / 5))
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or (kill % 5 == 4 and status == 0), "the writer failed"
    before, newest = newest, check(newest)
    moved += newest > before
assert moved > 0, "no save was finished"
final = millrace.Checkpoints(uri, keep=KEEP)
final.claim()
final.save(newest + 1, state_of(newest + 1))
check(newest + 1)
print(newest)
"""


def test_killed_at_any_moment(store: tuple[str, dict[str, str]]) -> None:
    uri, environment = store
    newest = check_script(KILLER, uri, str(repeats(1000)), "1", str(binary()), timeout=850, **environment)
    command = [str(binary()), "checkpoint", "verify", "--all", uri]
    assert subprocess.run(command, env={**os.environ, **environment}).returncode == 0
    # Nothing is left of killed writers but the checkpoints that remain: two with three objects each, and LATEST. Beside
    # it a store has the object by which it is asked for conditions.
    listed = subprocess.run(
        [str(binary()), "ls", "--recursive", "--json", uri + "/"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    names = [json.loads(line)["key"].rsplit("/", 1)[-1] for line in listed.stdout.splitlines()]
    assert sorted(name.split(".0")[0] for name in names) == [
        "LATEST",
        *(["LATEST.conditions"] if environment else []),
        *["MANIFEST.json"] * 2,
        *["model.safetensors"] * 2,
        *["state.json"] * 2,
    ], newest
    if not environment:
        # A kill between the removal of a file and that of its folder leaves an empty folder, which no listing shows.
        assert not list(pathlib.Path(uri).rglob(".millrace-tmp-*"))


# A zombie saves while its successor claims, at any moment of the save. Either it has committed before the claim, and
# the successor sees that, or it is refused, and nothing of it remains.
ZOMBIES = """
import random, sys, threading, time
import numpy as np
import millrace

uri, count, at_once = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "at once"
draw = random.Random(3)
refused = 0
following = millrace.Checkpoints(uri, keep=3)
following.save(0, {"x": 0})
for number in range(1, count + 1):
    zombie, following = following, millrace.Checkpoints(uri, keep=3)
    errors = []
    def save():
        try:
            zombie.save(2 * number, {"x": np.full(100, number)})
        except millrace.MismatchError as error:
            errors.append(error)
    thread = threading.Thread(target=save)
    delay = draw.random() * 0.03
    if at_once:
        thread.start()
        time.sleep(delay)
    following.claim()
    seen = following.steps()
    if not at_once:  # it was paused, and wakes up when its successor has claimed
        thread.start()
    thread.join()
    assert (2 * number in seen) == (not errors), (number, seen, errors)
    assert following.steps() == seen
    refused += bool(errors)
    for _ in range(2):
        try:
            zombie.save(2 * number + 1, {"x": 0})
            raise SystemExit("a commit of an older epoch was accepted")
        except millrace.MismatchError:
            pass
    following.save(2 * number + 1, {"x": np.full(100, number)})
    assert following.latest() == 2 * number + 1 and following.load()["x"][0] == number
print(refused)
"""


def test_zombies_commit_nothing(store: tuple[str, dict[str, str]]) -> None:
    uri, environment = store
    refused = int(check_script(ZOMBIES, uri, str(repeats(1000, least=100)), "at once", timeout=850, **environment))
    assert refused > 0


@pytest.fixture(scope="module")
def gateway() -> Iterator[dict[str, str]]:
    with rgw("killed", "zombies") as environment:
        yield environment


def test_killed_at_any_moment_on_ceph(gateway: dict[str, str]) -> None:
    """Ceph ignores the conditions of writes: what is left of killed writers stays, and the checkpoints are whole all
    the same."""
    uri = "s3://killed/run"
    check_script(KILLER, uri, str(repeats(1000, least=30)), "2", str(binary()), timeout=850, **gateway)
    command = [str(binary()), "checkpoint", "verify", "--all", uri]
    assert subprocess.run(command, env={**os.environ, **gateway}).returncode == 0


def test_zombies_on_ceph_commit_nothing(gateway: dict[str, str]) -> None:
    """These zombies wake up when their successor has claimed. If two commit in the same moment, both may succeed on
    Ceph."""
    count = repeats(1000, least=30)
    assert int(check_script(ZOMBIES, "s3://zombies/run", str(count), "later", timeout=850, **gateway)) == count


SLEEPER = """
import sys, millrace
ckpt = millrace.Checkpoints(sys.argv[1])
step = 0
while True:
    step += 1
    try:
        ckpt.save(step, {"by": "zombie"})
    except millrace.MismatchError as error:
        print(error)
        break
    print("saved", flush=True)
"""


def test_a_process_that_slept(tmp_path: pathlib.Path) -> None:
    """It is stopped, replaced, and let run again, as on a node that a scheduler believes to be dead."""
    uri = str(tmp_path / "run")
    for _ in range(repeats(100)):
        ckpt = millrace.Checkpoints(uri, keep=2)
        zombie = subprocess.Popen([sys.executable, "-c", SLEEPER, uri], stdout=subprocess.PIPE, text=True)
        try:
            assert zombie.stdout is not None and zombie.stdout.readline() == "saved\n"
            zombie.send_signal(signal.SIGSTOP)  # at whatever it is doing
            ckpt.claim()
            before = ckpt.steps()
            ckpt.save(10_000, {"by": "its successor"})
            zombie.send_signal(signal.SIGCONT)
            said = zombie.communicate(timeout=300)[0]
        finally:
            zombie.kill()
        assert "another process has taken over" in said
        assert ckpt.steps() == [*before, 10_000][-2:] and ckpt.load() == {"by": "its successor"}
