"""Interrupted anywhere, continued anywhere: each sample once."""

from __future__ import annotations

import itertools
import json
import random
import re
import subprocess
import time
from pathlib import Path

import pytest
from thoroughness import repeats

from . import corpus, oracle
from .conftest import Photos
from .harness import Sandbox, Server, devstore, feed_args

POLICIES = ["none", "global", "window"]


def read_state(path: Path) -> dict | None:
    """The state, which is whole JSON whenever it is there at all."""
    if not path.exists():
        return None
    state = json.loads(path.read_text())
    assert set(state) == {"position", "samples", "digest"}, state
    assert isinstance(state["samples"], int) and re.fullmatch(r"[0-9a-f]{32}", state["digest"])
    return state


def kill_after(sandbox: Sandbox, seconds: float, args: list[object], env: dict[str, str] | None = None) -> bool:
    """Starts `millrace` and sends SIGKILL after so long. False: it had ended by itself, successfully."""
    process = sandbox.start(*args, env=env, err=subprocess.PIPE)
    try:
        code = process.wait(seconds)
        assert code == 0, process.stderr.read().decode()
        return False
    except subprocess.TimeoutExpired:
        return True
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


class TestState:
    def test_at_the_end_it_says_what_the_report_says(self, photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
        report = sandbox.feed(photos.tar, state=tmp_path / "state")
        state = read_state(tmp_path / "state")
        assert state == {name: report[name] for name in ("position", "samples", "digest")}
        assert [path.name for path in tmp_path.iterdir() if path.name not in ("home", "state")] == [], (
            "no temporary file is left"
        )

    def test_is_written_while_it_runs(self, photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
        state = tmp_path / "state"
        process = sandbox.start(*feed_args(photos.tar, state=state, epochs=200, threads=1))
        try:
            seen, deadline = [], time.monotonic() + 300
            while len(seen) < 5 and time.monotonic() < deadline:
                now = read_state(state)
                if now and (not seen or now != seen[-1]):
                    seen.append(now)
            assert process.poll() is None, "the run is still in flight"
        finally:
            process.kill()
            process.wait()
        assert len(seen) == 5
        assert all(a["samples"] < b["samples"] for a, b in itertools.pairwise(seen))
        assert all(s["samples"] % 32 == 0 or s["samples"] % 1005 % 32 == 0 for s in seen), "between batches"


@pytest.mark.parametrize("policy", POLICIES)
class TestStopAndResume:
    def test_parts_add_up(self, photos: Photos, sandbox: Sandbox, policy: str) -> None:
        whole = sandbox.feed(photos.tar, shuffle=policy, epochs=2)
        for stop in (1, 500, 1005, 1100):
            first = sandbox.feed(photos.tar, shuffle=policy, epochs=2, stop_after=stop)
            rest = sandbox.feed(photos.tar, shuffle=policy, epochs=2, resume=first["position"])
            assert first["samples"] + rest["samples"] == whole["samples"] == 2010, stop
            assert oracle.add(first["digest"], rest["digest"]) == whole["digest"], stop
            assert rest["position"] == whole["position"], stop

    def test_stop_is_at_the_batch_boundary(self, photos: Photos, sandbox: Sandbox, policy: str) -> None:
        for stop, samples in ((0, 0), (1, 32), (32, 32), (33, 64), (1001, 1005), (5000, 1005)):
            assert sandbox.feed(photos.tar, shuffle=policy, stop_after=stop)["samples"] == samples, stop

    def test_stop_before_the_first_batch(self, photos: Photos, sandbox: Sandbox, policy: str) -> None:
        """Nothing is fed; the position is where a run would begin."""
        begin = sandbox.feed(photos.tar, "--explain", shuffle=policy)["order"]["position"]
        got = sandbox.feed(photos.tar, shuffle=policy, stop_after=0)
        assert (got["samples"], got["batches"], got["digest"], got["position"]) == (0, 0, oracle.ZERO, begin)
        later = sandbox.feed(photos.tar, shuffle=policy, stop_after=32)["position"]
        assert sandbox.feed(photos.tar, shuffle=policy, resume=later, stop_after=0)["position"] == later

    def test_at_the_end_nothing_is_left(self, photos: Photos, sandbox: Sandbox, policy: str) -> None:
        end = sandbox.feed(photos.tar, shuffle=policy)
        again = sandbox.feed(photos.tar, shuffle=policy, resume=end["position"])
        assert (again["samples"], again["digest"], again["position"]) == (0, oracle.ZERO, end["position"])

    def test_with_other_means(self, photos: Photos, sandbox: Sandbox, server: Server, policy: str) -> None:
        """Threads, memory, batch, size and the kind of samples' use are no part of a position."""
        whole = sandbox.feed(photos.tar, shuffle=policy)["digest"]
        first = sandbox.feed(photos.tar, shuffle=policy, stop_after=333, threads=1)
        rest = sandbox.feed(
            photos.tar,
            "--augment",
            shuffle=policy,
            resume=first["position"],
            threads=8,
            memory="64MiB",
            batch=50,
            size=99,
        )
        assert oracle.add(first["digest"], rest["digest"]) == whole

    def test_with_another_world(self, photos: Photos, sandbox: Sandbox, policy: str) -> None:
        """Two ranks, then three, then one."""
        whole = sandbox.feed(photos.tar, shuffle=policy)
        parts, position = [], None
        for world, stop in ((2, 96), (3, 150), (1, 100_000)):
            resume = {"resume": position} if position else {}
            reports = [
                sandbox.feed(photos.tar, shuffle=policy, world=world, rank=rank, stop_after=stop, **resume)
                for rank in range(world)
            ]
            assert len({r["position"] for r in reports}) == 1
            position = reports[0]["position"]
            parts += reports
        assert [p["samples"] for p in parts] == [96, 96, 160, 160, 160, 333]
        assert oracle.add(*(p["digest"] for p in parts)) == whole["digest"]


class TestKilled:
    def test_again_and_again(self, photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
        """Each part starts where the last state of the parts before it says, is killed, and leaves a state or none."""
        epochs = repeats(32, least=8)
        how = {"shuffle": "window", "epochs": epochs, "threads": 1, "size": 160}
        moments = random.Random(20)
        position, digests, samples, kills = None, [], 0, 0
        times = repeats(20, least=4)
        for part in range(times + 1):
            state = tmp_path / f"state-{part}"
            resume = {"resume": position} if position else {}
            args = feed_args(photos.tar, state=state, **how, **resume)
            killed = (
                kill_after(sandbox, moments.uniform(0.02, 0.5), args)
                if part < times
                else not sandbox.ok(*args, timeout=600)
            )
            kills += killed
            left = read_state(state)
            if left:
                position, samples = left["position"], samples + left["samples"]
                digests.append(left["digest"])
            if not killed:
                break
        assert kills >= times // 2, "the data are too small for this machine: raise `epochs`"
        whole = sandbox.feed(photos.tar, **how, timeout=600)
        assert samples == whole["samples"] == epochs * 1005
        assert oracle.add(*digests) == whole["digest"]

    @pytest.mark.slow
    @pytest.mark.parametrize("policy", POLICIES)
    @pytest.mark.parametrize("place", ["tar", "raw"])
    def test_at_random_moments(
        self, photos: Photos, sandbox: Sandbox, server: Server, tmp_path: Path, policy: str, place: str
    ) -> None:
        with devstore(sandbox, photos.root, "--first-byte-ms", 15) as slow:
            uri, how = f"s3://b/{place}", {"shuffle": policy, "epochs": 3, "threads": 1, "size": 96}
            began = time.monotonic()
            whole = sandbox.feed(uri, env=slow.env(), **how)
            length = time.monotonic() - began
            moments = random.Random(POLICIES.index(policy))
            with_state = 0
            times = repeats(20)
            for n in range(times):
                state = tmp_path / f"state-{n}"
                kill_after(
                    sandbox,
                    moments.uniform(0.1 * length, 0.95 * length),
                    feed_args(uri, state=state, **how),
                    env=slow.env(),
                )
                left = read_state(state)
                if not left:
                    continue
                with_state += 1
                rest = sandbox.feed(uri, resume=left["position"], env=slow.env(), **how)
                assert left["samples"] + rest["samples"] == whole["samples"]
                assert oracle.add(left["digest"], rest["digest"]) == whole["digest"]
            assert with_state >= times // 2


@pytest.fixture(scope="module")
def position(photos: Photos, session_sandbox: Sandbox) -> str:
    return session_sandbox.feed(photos.tar, shuffle="global", stop_after=100)["position"]


class TestRefused:
    """A position is good for one order of one data set. Anything else is refused, and the message says which."""

    @pytest.mark.parametrize("change", [{"seed": 2}, {"shuffle": "none"}, {"shuffle": "window"}])
    def test_other_seed_or_policy(
        self, photos: Photos, sandbox: Sandbox, position: str, change: dict[str, object]
    ) -> None:
        result = sandbox.run(*feed_args(photos.tar, **{"shuffle": "global", "resume": position} | change))
        result.failed(1, "position", "seed", "shuffle|policy|order")
        assert not result.out.strip()

    def test_other_data(self, sandbox: Sandbox, tmp_path: Path, position: str) -> None:
        corpus.raw_tree(tmp_path / "d", ["a"], 4)
        sandbox.run(*feed_args(tmp_path / "d", shuffle="global", resume=position)).failed(1, "position", "data")

    def test_data_that_grew(self, photos: Photos, sandbox: Sandbox, tmp_path: Path, position: str) -> None:
        corpus.copy_tree(photos.tar, tmp_path / "d")
        corpus.write_tar(tmp_path / "d" / "zz.tar", [oracle.Sample("zz", {"jpg": corpus.jpeg(1), "cls": b"0"})])
        sandbox.run(*feed_args(tmp_path / "d", shuffle="global", resume=position)).failed(1, "position", "data")

    @pytest.mark.parametrize(
        "text", ["", "abc", "0", "-1", "🦀", "1" * 5000, "v1:0:0", "{}", "../../etc/passwd", "%s%n"]
    )
    def test_text_that_is_no_position(self, photos: Photos, sandbox: Sandbox, text: str) -> None:
        sandbox.run(*feed_args(photos.tar, resume=text)).failed(2, "position")

    def test_a_position_with_a_tail_or_without_its_end(self, photos: Photos, sandbox: Sandbox, position: str) -> None:
        for text in (
            position + "0",
            position + " ",
            position[:-1],
            position[1:],
            position.replace(position[-4:], "zzzz"),
        ):
            result = sandbox.run(*feed_args(photos.tar, shuffle="global", resume=text))
            assert result.code == 2, f"{result}: accepts {text!r} for {position!r}"
