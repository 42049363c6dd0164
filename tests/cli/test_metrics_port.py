"""`--metrics-port` and `millrace top`: what processes tell is what they did."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from cli_support import Millrace
from metrics_support import parse, read, url_of, values

PATIENCE = 300  # seconds; a test that waits so long fails


class Started:
    """A command that serves metrics, and where."""

    def __init__(self, binary: Path, arguments: tuple[str | Path, ...], env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [str(binary), str(arguments[0]), "--metrics-port", "0", *map(str, arguments[1:])],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | env,
        )
        assert self.process.stderr is not None
        self.url = url_of(self.process.stderr)
        self.port = self.url.split(":")[2].split("/")[0]

    def page(self) -> str:
        return read(self.url)

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.communicate(timeout=PATIENCE)
        finally:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def started(millrace_bin: Path) -> Iterator[Callable[..., Started]]:
    with ExitStack() as stack:

        def start(*arguments: str | Path, env: dict[str, str] | None = None) -> Started:
            one = Started(millrace_bin, arguments, env or {})
            stack.callback(one.end)
            return one

        yield start


def wait_for(what: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"there was no {what} within {PATIENCE} s"
        time.sleep(0.02)


@pytest.fixture
def shards(millrace: Millrace, tmp_path: Path) -> Path:
    """60 small images in tar shards, indexed."""
    millrace("synth", tmp_path / "raw", "--count", "60", "--kb", "4")
    millrace("pack", tmp_path / "raw", tmp_path / "bkt/shards", "--shard-size", "60KiB")
    return tmp_path / "bkt/shards"


def test_a_wait_shows_while_it_lasts(
    millrace: Millrace, started: Callable[..., Started], devstore: Callable[..., Any], shards: Path, tmp_path: Path
) -> None:
    uri = "s3://bkt/shards"
    millrace("index", uri, env=devstore(tmp_path).env())
    store = devstore(tmp_path, "--fault", "GET bkt/*.tar delay-ms=600000").env()
    feed = started("feed", uri, "--batch", "8", env=store)
    stalls = "millrace_loader_stall_seconds_total"
    wait_for("wait of the program", lambda: sum(values(feed.page(), stalls, "cause").values()) > 0)
    before = sum(values(feed.page(), stalls, "cause").values())
    wait_for("longer wait", lambda: sum(values(feed.page(), stalls, "cause").values()) > before)
    page = feed.page()
    assert values(page, "millrace_loader_samples_total", "data") == {uri: 0}
    assert values(page, "millrace_loader_open", "data") == {uri: 1}
    assert values(page, stalls, "cause")["decode"] == 0
    assert values(page, "millrace_store_requests_total", "method")["GET"] >= 1

    shown = json.loads(millrace("top", feed.port, "--once", "--json", "--interval", "1500ms").stdout)
    assert shown["loaders"][0]["data"] == uri and shown["loaders"][0]["samples_per_second"] == 0
    assert 0 < shown["loaders"][0]["waited_share"] <= 1
    text = millrace("top", f"127.0.0.1:{feed.port}", "1", "--interval", "1500ms").stdout.decode()
    assert f"{uri}: 0 samples/s, waits " in text and "% of the time: " in text
    assert "\n1: 127.0.0.1:1 does not answer" in text
    assert feed.process.poll() is None


def test_a_worker_tells_what_its_trainer_received(
    millrace: Millrace, started: Callable[..., Started], shards: Path, tmp_path: Path
) -> None:
    worker = started("worker", "--listen", "127.0.0.1:0", "--threads", "2")
    assert worker.process.stdout is not None
    address = worker.process.stdout.readline().split()[-1]
    fed = json.loads(millrace("feed", shards, "--workers", address, "--batch", "8", "--epochs", "2", "--json").stdout)
    rows = {one["worker"]: one["rows"] for one in fed["workers"]}
    assert sum(rows.values()) == 128  # 60 samples in batches of 8, twice
    page = worker.page()
    sent = values(page, "millrace_worker_rows_sent_total")[""]
    samples = values(page, "millrace_loader_samples_total", "data")
    assert sent >= rows[address]
    if not sum(one["failures"] for one in fed["workers"]):  # on a machine that is very busy, a worker may be given up
        assert sent == rows[address] == 128
        assert values(page, "millrace_worker_batches_sent_total") == {"": 16}
        assert samples == {str(shards): 120}
        assert values(page, "millrace_worker_sessions_total") == {"": 1}
    assert values(page, "millrace_worker_sent_bytes_total")[""] > sent * 3 * 224 * 224
    wait_for("end of the stream", lambda: values(worker.page(), "millrace_worker_sessions") == {"": 0})
    wait_for("end of the loader", lambda: values(worker.page(), "millrace_loader_open", "data") == {str(shards): 0})
    # The counts of a loader stay when it has ended.
    assert values(worker.page(), "millrace_loader_samples_total", "data")[str(shards)] >= samples[str(shards)]


def test_run_tells_its_attempts(started: Callable[..., Started], tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    script = f"if [ -e {mark} ]; then exec sleep 600; fi; touch {mark}; exit 3"
    run = started("run", "--retries", "5", "--delay", "100ms", "--on-notice", "none", "--", "sh", "-c", script)
    wait_for("second attempt", lambda: values(run.page(), "millrace_run_attempts_total") == {"": 2})
    page = run.page()
    assert values(page, "millrace_run_command_running") == {"": 1}
    assert values(page, "millrace_run_attempts_allowed") == {"": 6}
    assert values(page, "millrace_run_restarts_total") == {"": 1}
    assert sum(values(page, "millrace_run_attempt_ends_total", "reason").values()) == 1
    run.process.send_signal(signal.SIGUSR1)
    wait_for("notice", lambda: sum(values(run.page(), "millrace_run_notices_total", "kind").values()) == 1)


def test_devstore_tells_its_answers(
    millrace: Millrace, started: Callable[..., Started], shards: Path, tmp_path: Path
) -> None:
    server = started("devstore", tmp_path, "--port", "0", "--fault", "GET bkt/*.tar status=503 count=2")
    assert server.process.stdout is not None
    env = {
        "AWS_ENDPOINT_URL": server.process.stdout.readline().split()[-1],
        "AWS_ACCESS_KEY_ID": "millrace",
        "AWS_SECRET_ACCESS_KEY": "millrace-secret",
        "AWS_REGION": "us-east-1",
    }
    fed = json.loads(millrace("feed", "s3://bkt/shards", "--json", env=env).stdout)
    page = server.page()
    answers = {
        dict(labels)["method"]: 0.0
        for (name, labels), _ in parse(page).items()
        if name == "millrace_devstore_answers_total"
    }
    for (name, labels), value in parse(page).items():
        if name == "millrace_devstore_answers_total":
            answers[dict(labels)["method"]] += value
    # A second request beside a late one is counted by who sends it, and may be cut off before it is answered.
    assert -fed["hedges"] <= answers["GET"] - (fed["requests"]["GET"] + fed["requests"]["LIST"]) <= 0
    assert values(page, "millrace_devstore_faults_total", "fault") == {"GET bkt/*.tar status=503 count=2": 2}


def test_wrong_places(millrace: Millrace, shards: Path) -> None:
    for bad in ("x", "70000", "host:", "http://h:1"):
        done = millrace("feed", shards, "--metrics-port", bad, code=2)
        assert b"--metrics-port: " in done.stderr and b"HOST:PORT" in done.stderr
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = millrace("feed", shards, "--metrics-port", str(taken.getsockname()[1]), code=1)
        assert b"the port is in use" in done.stderr
        done = millrace("top", "nonsense:", code=2)
        assert b"is not an address for metrics" in done.stderr
    assert b"does not answer" in millrace("top", "1", "--once", "--interval", "100ms", code=1).stderr
    # Without a terminal it looks once, too, and says so by its exit status.
    assert b"does not answer" in millrace("top", "1", "--interval", "100ms", code=1).stderr
