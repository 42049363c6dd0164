"""Common parts of the benchmarks of this folder: a namespace with reno on loopback, devstore and clients on cores of their own, targets."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
KEYS = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench-secret", "AWS_REGION": "us-east-1"}
INSIDE = "MILLRACE_BENCH_NAMESPACE"
SYSTEM_CAS = Path("/etc/ssl/certs/ca-certificates.crt")
RIVALS_PYTHON = REPOSITORY / "build/bench-venv/bin/python"
Result = dict[str, Any]


def say(text: str) -> None:
    print(text, flush=True)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--build", type=Path, default=REPOSITORY / "build/release/bin", help="the binaries (default: build/release/bin)"
    )
    parser.add_argument("--server-cores", metavar="LIST", help="for taskset -c (default: the first core)")
    parser.add_argument("--client-cores", metavar="LIST", help="for taskset -c (default: the second core)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all runs and targets there")


def complete_arguments(parser: argparse.ArgumentParser, options: argparse.Namespace, programs: list[str]) -> None:
    """The defaults that depend on the machine; ends the program when one of `programs` was not built."""
    cores = sorted(os.sched_getaffinity(0))
    options.server_cores = options.server_cores or str(cores[0])
    options.client_cores = options.client_cores or str(cores[min(1, len(cores) - 1)])
    for program in programs:
        if not (options.build / program).exists():
            parser.error(
                f"{options.build / program} is missing: cmake --preset release && "
                f"cmake --build --preset release --target {' '.join(programs)}"
            )


def enter_namespace() -> None:
    """Starts this program again where loopback is reno's and mounts are private (bench/without-bbr)."""
    if INSIDE not in os.environ:
        wrapper = str(REPOSITORY / "bench/without-bbr")
        os.execv(wrapper, [wrapper, sys.executable, *sys.argv])


@contextlib.contextmanager
def devstore(options: argparse.Namespace, root: Path | str, arguments: list[str]) -> Iterator[dict[str, str]]:
    """Yields the environment of its clients. Unsigned requests are served too, for recv and curl; signatures are not
    checked."""
    command = [
        "taskset",
        "-c",
        options.server_cores,
        options.build / "millrace",
        "devstore",
        root,
        "--port",
        "0",
        "--threads",
        "1",
    ]
    process = subprocess.Popen([*command, "--anonymous", *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        environment = {**os.environ, **KEYS}
        while True:
            line = process.stdout.readline()
            if found := re.match(r"CA file: (.+)", line):
                environment["AWS_CA_BUNDLE"] = found[1]
            elif found := re.match(r"listening on (https?://\S+)", line):
                environment["AWS_ENDPOINT_URL"] = found[1]
                break
            elif not line:
                raise RuntimeError("devstore does not start")
        with trusted(environment.get("AWS_CA_BUNDLE")):
            yield environment
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)
        process.stdout.close()


@contextlib.contextmanager
def trusted(ca_file: str | None) -> Iterator[None]:
    """The authority among the system's, in this namespace only: s3torchconnector has no setting for one."""
    if ca_file is None or os.environ.get(INSIDE) != "own" or not SYSTEM_CAS.exists():
        yield
        return
    with tempfile.NamedTemporaryFile("wb", suffix=".pem") as merged:
        merged.write(SYSTEM_CAS.read_bytes() + b"\n" + Path(ca_file).read_bytes())
        merged.flush()
        os.chmod(merged.name, 0o644)
        mounted = (
            subprocess.run(["mount", "--bind", merged.name, SYSTEM_CAS], capture_output=True, check=False).returncode
            == 0
        )
        try:
            yield
        finally:
            if mounted:
                subprocess.run(["umount", SYSTEM_CAS], check=False)


def connections(port: int) -> int:
    """Established ones, counted at the server's end."""
    wanted = f":{port:04X}"
    count = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        count += fields[1].endswith(wanted) and fields[3] == "01"
    return count


def proportional_bytes(pid: int) -> int:
    """Returns the memory of a process and of all its descendants. Pages that several share count once in all (PSS)."""
    kilobytes = 0
    pids = [str(pid)]
    for each in pids:
        with contextlib.suppress(OSError, IndexError):  # it has just ended
            for task in Path(f"/proc/{each}/task").iterdir():
                pids += (task / "children").read_text().split()
            rollup = Path(f"/proc/{each}/smaps_rollup").read_text()
            kilobytes += int(rollup.partition("\nPss:")[2].split()[0])
    return kilobytes * 1024


class Watch:
    """The most connections at a time, looked at four times a second; with `pid` also the most memory of that process and those below it."""

    def __init__(self, port: int) -> None:
        self.most = 0
        self.most_bytes = 0
        self.pid = 0
        self._port = port
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stop.wait(0.25):
            self.most = max(self.most, connections(self._port))
            if self.pid:
                self.most_bytes = max(self.most_bytes, proportional_bytes(self.pid))

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def run_client(
    options: argparse.Namespace, command: list[str], environment: dict[str, str], limit: float, memory: bool = False
) -> Result | str:
    """Returns the measurements of a command, or the reason why there are none.

    With `memory` they include its maximum of `pss_bytes`, measured from outside. Connections are those to the devstore of the environment,
    if it names one.
    """
    port = int(environment.get("AWS_ENDPOINT_URL", "http://none:0").rpartition(":")[2])
    full = ["taskset", "-c", options.client_cores, *command]
    with Watch(port) as watch:
        process = subprocess.Popen(
            full, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        watch.pid = process.pid if memory else 0
        try:
            output, errors = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return f"did not end within {limit:.0f} s"
    lines = [line for line in output.splitlines() if line.startswith("{")]
    if process.returncode or not lines:
        return (errors.strip().splitlines() or [f"ended with {process.returncode}"])[-1][:200]
    result: Result = json.loads(lines[-1])
    result["connections"] = result.get("connections") or watch.most or None
    if memory:
        result["pss_bytes"] = watch.most_bytes
    return result


@dataclass
class Target:
    scenario: str
    what: str
    value: float
    limit: float
    at_least: bool

    @property
    def met(self) -> bool:
        return self.value >= self.limit if self.at_least else self.value <= self.limit


def print_targets(targets: list[Target]) -> None:
    for target in targets:
        bound = f"at {'least' if target.at_least else 'most'} {target.limit:g}"
        unknown = target.value != target.value
        verdict = "not measured" if unknown else "met" if target.met else "MISSED"
        value = "-" if unknown else f"{target.value:.3f}"
        say(f"  {target.scenario:14}{target.what:56}{value:>9}   {bound:17}{verdict}")
