#!/usr/bin/env python3
"""Measures the time from a spot notice to a durable checkpoint, and from the kill of a worker to its next step. It counts steps lost or made twice.

    bench/checkpoint/notice.py               10 notices and 10 kills, 256 MiB of tensors, steps of 0.2 s: some minutes
    bench/checkpoint/notice.py --quick       3 of each, 8 MiB, steps of 0.02 s: shows that it works

A training below `millrace run --checkpoint` counts steps and saves every tenth to `millrace devstore`. Notices come from a metadata service of this program
(IMDSv2, two minutes ahead, asked every two seconds as on EC2). Then the training saves its present step and ends, and the next start must continue with the step
after it. A kill is a SIGKILL of the training alone, one for each `millrace run`, which starts it again. (It doubles its wait of a second with each failure within a
minute of the one before.) The start of the training itself (imports, reading the checkpoint) is measured separately.

Targets for a notice: the state is durable within 120 s, at most one step is lost, and no step is made twice or left out afterwards. Target for a kill: at most 5 s to
the next step (95 of 100), without the training's own start. The program exits with 1 if a target is missed.
"""

from __future__ import annotations

import time

BEGAN = time.time()  # before the imports, which belong to the start of the training

import argparse  # noqa: E402
import datetime  # noqa: E402
import http.server  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import random  # noqa: E402
import signal  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import threading  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "s3"))

MIB = 1 << 20
EVERY = 10  # steps between checkpoints
AHEAD = 120  # seconds between a notice and the end of the machine


def tell(**what: Any) -> None:
    print(json.dumps({**what, "at": time.time()}), flush=True)


def train(size: int, seconds: float) -> None:
    """The training. It says each thing that it does."""
    import millrace
    import numpy as np

    ckpt = millrace.Checkpoints(keep=2)
    millrace.notice()
    step, weights = 0, np.zeros(size // 4, np.float32)
    if ckpt.latest() is not None:
        step = ckpt.load(into={"w": weights})["step"]
    if not np.all(weights == step):
        raise SystemExit("the weights are not those of the step")
    tell(what="ready", step=step, pid=os.getpid(), began=BEGAN)
    while True:
        step += 1
        time.sleep(seconds)
        weights += 1
        tell(what="step", step=step)
        leaves = millrace.notice()
        if leaves:
            tell(what="told", step=step)
        if leaves or step % EVERY == 0:
            ckpt.save(step, {"w": weights, "step": step})
            tell(what="saved", step=step)
        if leaves:
            raise SystemExit(75)


class Metadata(http.server.BaseHTTPRequestHandler):
    """IMDSv2: tokens, and the notice once there is one."""

    notice: str | None = None

    def do_PUT(self) -> None:
        self._answer(200, "token", {"X-aws-ec2-metadata-token-ttl-seconds": "21600"})

    def do_GET(self) -> None:
        if self.headers.get("X-aws-ec2-metadata-token") != "token":
            self._answer(401, "")
        elif self.path == "/latest/meta-data/spot/instance-action" and Metadata.notice:
            self._answer(200, json.dumps({"action": "terminate", "time": Metadata.notice}))
        else:
            self._answer(404, "")

    def _answer(self, status: int, body: str, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *arguments: Any) -> None:
        pass


class Job:
    """Represents a training below `millrace run`, and what it says."""

    def __init__(self, options: argparse.Namespace, environment: dict[str, str]) -> None:
        training = [sys.executable, __file__, "--train", "--bytes", str(options.bytes), "--step", str(options.step)]
        command = [
            str(options.build / "millrace"),
            "run",
            "--retries",
            "100000",
            "--checkpoint",
            "s3://bucket/run",
            "--",
            *training,
        ]
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._errors: list[str] = []
        self._reader = threading.Thread(target=lambda: self._errors.extend(self.process.stderr or ()))
        self._reader.start()

    def hear(self, what: str) -> dict[str, Any]:
        """Returns the next line of that kind."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said: dict[str, Any] = json.loads(line)
            if said["what"] == what:
                return said
        self.process.wait()
        self._reader.join()
        raise SystemExit(
            f"the training ended ({self.process.returncode}) before it said {what!r}:\n{''.join(self._errors)}"
        )

    def end(self) -> int:
        self.process.communicate(timeout=300)
        self._reader.join()
        return self.process.returncode

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.end()


def notices(options: argparse.Namespace, environment: dict[str, str], draw: random.Random) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {"told": [], "durable": [], "lost": [], "wrong": []}
    last = 0
    for _ in range(options.runs):
        Metadata.notice = None
        job = Job(options, environment)
        found["wrong"].append(abs(job.hear("ready")["step"] - last))
        for _ in range(draw.randint(1, 2 * EVERY)):
            job.hear("step")
        begins = time.time()
        Metadata.notice = datetime.datetime.fromtimestamp(begins + AHEAD, datetime.timezone.utc).strftime(
            "%Y-%m-%dT%H:%M:%SZ"
        )
        told = job.hear("told")
        saved = job.hear("saved")
        if job.end() != 75:
            raise SystemExit("millrace run did not end as after a notice")
        last = saved["step"]
        found["told"].append(told["at"] - begins)
        found["durable"].append(saved["at"] - begins)
        found["lost"].append(told["step"] - saved["step"])
    return found


def kills(options: argparse.Namespace, environment: dict[str, str], draw: random.Random) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {"own start": [], "next step": [], "lost": []}
    Metadata.notice = None
    for _ in range(options.runs):
        job = Job(options, environment)
        try:
            ready = job.hear("ready")
            for _ in range(draw.randint(1, 2 * EVERY)):
                step = job.hear("step")["step"]
            killed = time.time()
            os.kill(ready["pid"], signal.SIGKILL)
            ready = job.hear("ready")
            following = job.hear("step")
        finally:
            job.stop()
        own = ready["at"] - ready["began"]
        found["own start"].append(own)
        found["next step"].append(following["at"] - killed - own)
        found["lost"].append(step - ready["step"])  # those since the last checkpoint
    return found


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="3 notices and kills, 8 MiB of tensors")
    parser.add_argument("--runs", type=int, help="notices, and kills (default 10)")
    parser.add_argument("--bytes", type=int, help="of tensors (default 256 MiB)")
    parser.add_argument("--step", type=float, help="seconds a step (default 0.2)")
    parser.add_argument("--train", action="store_true", help=argparse.SUPPRESS)
    from harness import add_arguments

    add_arguments(parser)
    options = parser.parse_args()
    options.runs = options.runs or (3 if options.quick else 10)
    options.bytes = options.bytes or (8 if options.quick else 256) * MIB
    options.step = options.step or (0.02 if options.quick else 0.2)
    if options.train:
        train(options.bytes, options.step)
        return 0
    from harness import complete_arguments, devstore

    complete_arguments(parser, options, ["millrace"])
    metadata = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metadata)
    threading.Thread(target=metadata.serve_forever, daemon=True).start()
    draw = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "bucket").mkdir()
        with devstore(options, folder, []) as environment:
            endpoint = f"http://127.0.0.1:{metadata.server_address[1]}"
            environment = {
                **environment,
                "AWS_EC2_METADATA_SERVICE_ENDPOINT": endpoint,
                "PYTHONPATH": str(options.build.parent / "python"),
            }
            told = notices(options, environment, draw)
            killed = kills(options, environment, draw)
    metadata.shutdown()
    for title, found in (("notice", told), ("kill", killed)):
        for name, values in found.items():
            print(
                f"{title}: {name:12} median {quantile(values, 0.5):8.3f}   p95 {quantile(values, 0.95):8.3f}   most {max(values):8.3f}"
            )
    if options.json:
        options.json.write_text(json.dumps({"notice": told, "kill": killed}, indent=1))
    met = max(told["durable"]) <= AHEAD and max(told["lost"]) <= 1 and max(told["wrong"]) == 0
    met = met and quantile(killed["next step"], 0.95) <= 5 and max(killed["lost"]) <= EVERY
    print(f"targets: {'met' if met else 'MISSED'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
