#!/usr/bin/env python3
"""Measures the data service: one trainer that takes rows from workers which have them ready, beside rivals, with and
without network delay.

    ```
    bench/service/run.py                        1, 2, 4 and 8 workers, three interleaved runs: about an hour on two cores
    bench/service/run.py --quick                2 workers, one run: within four minutes; shows that everything works
    bench/service/run.py --only millrace,grpc --workers 1,2 --delays none,10
    bench/service/run.py --scenario rate --runs 1 --seconds 3 --workers 4 --only millrace,tfdata,grpc-inline        within four minutes
    bench/service/run.py --scenario rate --delays none,0,10 --gbits 12.5 --only millrace      over a wire that carries less than the relay
    bench/service/run.py --scenario offload,faults --delays none        CPU, bytes and recovery: within three minutes
    bench/service/run.py --json result.json
    ```

Contestants: @CONTESTANTS@.

The trainer, with all that belongs to its host, has the first core. Worker i of each contestant has the i-th of the others, in turn. The relay and the
dispatcher of tf.data service have the remaining cores. If there are none, they share the last core with a worker. `ceiling` is the throughput of bare sockets
from the workers' cores to the trainer's, with the relay or without, with a connection from each worker.

The rivals are those of `bench/setup_rivals service` (run it first). Rivals that are not installed are reported as left out. Exits 1 if a target is missed
(never with --quick). bench/README.md explains columns and contestants.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "s3"))

from harness import (  # noqa: E402
    REPOSITORY,
    Result,
    Target,
    add_arguments,
    complete_arguments,
    devstore,
    enter_namespace,
    print_targets,
    run_client,
    say,
)

PYTHON = REPOSITORY / "build/bench-venv-service/bin/python"
CONTESTANTS = {
    "millrace": "u8 images, decoded batches kept by the worker",
    "millrace-npy": "u8 arrays, likewise",
    "millrace-read": "u8 images: uncompressed BMP, which the worker reads, turns over and shuffles in each epoch",
    "tfdata": "tf.data service, batches cached in the worker, no compression",
    "ray": "Ray Data, a node for each worker; without the relay only",
    "grpc": "a stream of batches each, below a DataLoader with a process for each worker",
    "grpc-inline": "the same in the trainer's process",
}
RIVALS = [name for name in CONTESTANTS if not name.startswith("millrace")]
SCENARIOS = ("rate", "faults", "offload")
NO_RELAY = "none"
STARTED_WITHIN = 90  # seconds, on a busy machine, too
ROW_BYTES = 224 * 224 * 3
READY = re.compile(r"listening on |ready|Ray runtime started")
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",
    "OMP_NUM_THREADS": "1",
}  # whatever the user's own Ray is told


@dataclass
class Outcome:
    runs: dict[tuple[str, int, str], list[Result]] = field(default_factory=dict)  # of contestant, workers, delay
    missing: dict[str, str] = field(default_factory=dict)
    ceilings: dict[tuple[int, str], float] = field(default_factory=dict)  # bytes a second, of workers and delay
    waits: dict[str, float] = field(default_factory=dict)  # by what happened to a worker
    offload: dict[str, float] = field(default_factory=dict)

    def median(self, name: str, workers: int, delay: str, key: str) -> float:
        """Returns NaN if there is none, so that no comparison with it holds."""
        runs = self.runs.get((name, workers, delay), [])
        return statistics.median(run[key] for run in runs) if runs else float("nan")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").replace("@CONTESTANTS@", ", ".join(CONTESTANTS)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="2 workers, short runs and one of each, unless told otherwise; ends within four minutes",
    )
    parser.add_argument("--only", metavar="NAME,...", help="only these contestants")
    parser.add_argument("--scenario", metavar="NAME,...", help=f"only these of {', '.join(SCENARIOS)}")
    parser.add_argument("--workers", metavar="N,...", help="how many worker processes (default 1,2,4,8)")
    parser.add_argument(
        "--delays",
        metavar="MS,...",
        help="network delay in each direction; none: without the relay (default none,0,10)",
    )
    parser.add_argument(
        "--gbits", type=float, help="gigabits a second that the relay carries in each direction (default: what it can)"
    )
    parser.add_argument("--seconds", type=float, help="time that is measured (default 5)")
    parser.add_argument("--runs", type=int, help="interleaved runs of which the median counts (default 3)")
    parser.add_argument(
        "--cache", type=Path, default=REPOSITORY / "build/bench-data/service", help="where the data are kept (1.2 GB)"
    )
    parser.add_argument("--python-path", type=Path, help="with the package millrace (default: build/release/python)")
    add_arguments(parser)
    options = parser.parse_args()
    options.runs = options.runs or (1 if options.quick else 3)
    options.seconds = options.seconds or (2 if options.quick else 5)
    options.workers = [int(count) for count in (options.workers or ("2" if options.quick else "1,2,4,8")).split(",")]
    options.delays = (options.delays or "none,0,10").split(",")
    options.only = options.only.split(",") if options.only else list(CONTESTANTS)
    options.scenario = options.scenario.split(",") if options.scenario else list(SCENARIOS)
    options.deadline = time.monotonic() + (210 if options.quick else float("inf"))
    for given, known in ((options.only, CONTESTANTS), (options.scenario, SCENARIOS)):
        if unknown := set(given) - set(known):
            parser.error(f"there is no {', '.join(sorted(unknown))}")
    cores = sorted(os.sched_getaffinity(0))
    options.client_cores = options.client_cores or str(cores[0])
    options.server_cores = options.server_cores or ",".join(map(str, cores[1:] or cores))
    complete_arguments(parser, options, ["millrace", "service_relay"])
    options.python_path = options.python_path or options.build.parent / "python"
    if not PYTHON.exists():
        parser.error("the rivals are not installed: bench/setup_rivals service")
    return options


def cores_of(text: str) -> list[str]:
    """Returns the cores in a list as taskset takes it."""
    cores: list[str] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        cores += map(str, range(int(first), int(last or first) + 1))
    return cores


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        return [stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for _ in range(count)]


def worker_core(options: argparse.Namespace, number: int) -> str:
    cores = cores_of(options.server_cores)
    return cores[number % len(cores)]


def other_cores(options: argparse.Namespace, workers: int) -> str:
    """Returns the cores that no worker has. If there are none, it returns the last one, which a worker has, too."""
    cores = cores_of(options.server_cores)
    return ",".join(cores[workers:] or cores[-1:])


class Servers:
    """Processes on cores of their own, which end with the block."""

    def __init__(self, environment: dict[str, str] | None = None) -> None:
        self._processes: list[subprocess.Popen[str]] = []
        self._environment = environment or {**os.environ, **QUIET}

    def __enter__(self) -> Servers:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            assert process.stdout is not None
            process.stdout.close()

    def begin(self, cores: str, *command: object) -> subprocess.Popen[str]:
        """Without waiting for it to be ready."""
        words = ["taskset", "-c", cores, *map(str, command)]
        process = subprocess.Popen(
            words,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self._processes.append(process)
        return process

    def wait_for(self, process: subprocess.Popen[str]) -> str:
        """Returns the last line that the process printed when it was ready. A process that takes too long is killed."""
        assert process.stdout is not None
        watchdog = threading.Timer(STARTED_WITHIN, os.killpg, (process.pid, signal.SIGKILL))
        watchdog.start()
        try:
            for line in process.stdout:
                if READY.search(line):
                    return line
        finally:
            watchdog.cancel()
        raise RuntimeError(f"{process.args[3]} ended before it was ready")  # type: ignore[index]

    def start(self, cores: str, *command: object) -> subprocess.Popen[str]:
        process = self.begin(cores, *command)
        self.wait_for(process)
        return process


def way_arguments(options: argparse.Namespace, delay: str) -> list[object]:
    """Returns the options of the relay."""
    return ["--delay-ms", delay, *(["--gbits", options.gbits] if options.gbits else [])]


def measure_ceiling(options: argparse.Namespace, workers: int, delay: str) -> float:
    """Returns the bytes a second that bare sockets carry, one from each worker's core to the trainer's."""
    command = [
        "taskset",
        "-c",
        other_cores(options, workers),
        options.build / "service_relay",
        "--measure",
        "1",
        "--connections",
        workers,
    ]
    command += ["--source-cpus", ",".join(worker_core(options, number) for number in range(workers))]
    command += ["--sink-cpu", cores_of(options.client_cores)[0]]
    command += ["--direct"] if delay == NO_RELAY else way_arguments(options, delay)
    return float(subprocess.run([*map(str, command)], check=True, capture_output=True, text=True, timeout=60).stdout)


@contextlib.contextmanager
def relayed(options: argparse.Namespace, delay: str, ports: list[int]) -> Iterator[dict[int, int]]:
    """Yields the address at which each of these ports is reached."""
    if delay == NO_RELAY:
        yield {port: port for port in ports}
        return
    command = [
        "taskset",
        "-c",
        other_cores(options, len(ports) - 1),
        options.build / "service_relay",
        *way_arguments(options, delay),
    ]
    process = subprocess.Popen([*map(str, command), *map(str, ports)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        lines = [process.stdout.readline().split() for _ in ports]
        yield {int(target): int(port) for target, port in lines}
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


@dataclass
class Pool:
    """Represents the workers of a contestant, and the arguments by which its trainer finds them."""

    addresses: list[str]
    arguments: list[str] = field(default_factory=list)
    pids: list[int] = field(default_factory=list)


@contextlib.contextmanager
def pool_of(options: argparse.Namespace, name: str, count: int, delay: str) -> Iterator[Pool]:
    data = options.data
    with contextlib.ExitStack() as stack:
        servers = stack.enter_context(Servers())
        if name == "ray":
            yield ray_pool(
                options, servers, count, Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mr-ray-")))
            )
            return
        dispatcher, *ports = free_ports(count + 1)
        at = stack.enter_context(relayed(options, delay, [dispatcher, *ports]))
        serve = [PYTHON, HERE / "serve.py"]
        if name.startswith("millrace"):
            command = [
                options.build / "millrace",
                "worker",
                "--threads",
                1,
                "--memory",
                "2GiB",
                "--keep-decoded",
                "1GiB",
                "--allow",
                data,
                "--listen",
            ]
            commands = [[*command, f"127.0.0.1:{port}"] for port in ports]
        elif name.startswith("grpc"):
            commands = [[*serve, "grpc", "--port", port, "--rows", data] for port in ports]
        else:
            servers.start(other_cores(options, count), *serve, "tfdata-dispatcher", "--port", dispatcher)
            common = [*serve, "tfdata", "--dispatcher", f"127.0.0.1:{dispatcher}"]
            commands = [[*common, "--port", port, "--address", f"127.0.0.1:{at[port]}"] for port in ports]
        processes = [servers.begin(worker_core(options, number), *words) for number, words in enumerate(commands)]
        for process in processes:
            servers.wait_for(process)
        reached = [dispatcher] if name == "tfdata" else ports
        yield Pool([f"127.0.0.1:{at[port]}" for port in reached], pids=[process.pid for process in processes])


def ray_pool(options: argparse.Namespace, servers: Servers, count: int, folder: Path) -> Pool:
    """Returns a cluster on this machine: the trainer's node, which runs no task, and one node for each worker."""
    (port,) = free_ports(1)
    common = [
        PYTHON.with_name("ray"),
        "start",
        "--block",
        "--node-ip-address",
        "127.0.0.1",
        "--object-store-memory",
        1 << 30,
    ]
    first = [*common, "--head", "--port", port, "--num-cpus", 0, "--temp-dir", folder, "--include-dashboard", "false"]
    head = servers.start(options.client_cores, *first)
    for number in range(count):
        servers.start(worker_core(options, number), *common, "--address", f"127.0.0.1:{port}", "--num-cpus", 1)
    return Pool([f"127.0.0.1:{port}"], ["--with-process", str(head.pid)])


def make_data(options: argparse.Namespace) -> None:
    count = 1024 if options.quick else 2048
    options.data = options.cache / str(count)
    if not (options.data / "bmp").exists():
        say(f"Making {count:,} rows of 224 x 224 x 3 in {options.data}, once ...")
    subprocess.run([PYTHON, HERE / "rows.py", options.data, "--count", str(count)], check=True)
    for name in ("npy", "bmp"):
        subprocess.run(
            [options.build / "millrace", "index", options.data / name], check=True, stdout=subprocess.DEVNULL
        )
    for path in options.data.rglob("*"):  # into the page cache: no run is to wait for the disk
        if path.is_file():
            path.read_bytes()


def run_one(
    options: argparse.Namespace, name: str, count: int, delay: str, *arguments: str, kill: signal.Signals | None = None
) -> Result | str:
    left = options.deadline - time.monotonic()
    if left < 10:
        return "no time was left"
    environment = {**os.environ, **QUIET, "PYTHONPATH": str(options.python_path)}
    try:
        with pool_of(options, name, count, delay) as pool:
            command = [
                str(PYTHON),
                str(HERE / "trainer.py"),
                name,
                "--rows",
                str(options.data),
                "--workers",
                *pool.addresses,
            ]
            command += [*pool.arguments, "--seconds", str(options.seconds), *arguments]
            if kill is not None:
                command += ["--kill", str(pool.pids[0]), "--signal", str(int(kill))]
            return run_client(options, command, environment, min(STARTED_WITHIN + 3 * options.seconds, max(10.0, left)))
    except (OSError, RuntimeError) as error:
        return str(error)


def measure_rates(options: argparse.Namespace, outcome: Outcome) -> None:
    for number in range(options.runs):
        say(f"Run {number + 1} of {options.runs}, load {os.getloadavg()[0]:.1f} ...")
        for count in options.workers:
            for delay in options.delays:
                for name in options.only:
                    if name in outcome.missing or (name == "ray" and delay != NO_RELAY):
                        continue
                    result = run_one(options, name, count, delay)
                    if isinstance(result, str):
                        outcome.missing[name] = result
                        say(f"  {name} fails with {count} workers, delay {delay}: {result}")
                        continue
                    outcome.runs.setdefault((name, count, delay), []).append(result)
                    say(f"  {row_text(name, count, delay, [result])}")


def measure_faults(options: argparse.Namespace, outcome: Outcome) -> None:
    """The longest wait for a batch after one of two workers was killed, or stopped answering."""
    say("Faults: one of two workers, in the midst of it ...")
    for kill in (signal.SIGKILL, signal.SIGSTOP):
        result = run_one(options, "millrace", 2, NO_RELAY, "--seconds", str(max(6.0, options.seconds)), kill=kill)
        if isinstance(result, str):
            outcome.missing[kill.name] = result
        else:
            outcome.waits[kill.name] = result["longest_wait"]
        say(
            f"  {kill.name}: {result if isinstance(result, str) else f'''the longest wait for a batch {result['longest_wait']:.2f} s'''}"
        )


def feed(options: argparse.Namespace, environment: dict[str, str], *arguments: object) -> tuple[dict[str, Any], float]:
    """Returns its report, and the CPU-seconds of the whole process."""
    command = [
        "taskset",
        "-c",
        options.client_cores,
        options.build / "millrace",
        "feed",
        "s3://b/jpeg",
        "--json",
        "--augment",
        "--epochs",
        1,
    ]
    process = subprocess.Popen(
        [*map(str, command), *map(str, arguments)], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout:
        text = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"millrace feed ends with {process.returncode}")
    report: dict[str, Any] = json.loads(text)
    return report, usage.ru_utime + usage.ru_stime


def read_bytes(port: int) -> int:
    """Returns the bytes that a worker has read from its store."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as page:
        found = re.search(r"^millrace_store_read_bytes_total (\S+)$", page.read().decode(), re.MULTILINE)
    return int(float(found[1])) if found else 0


def measure_offload(options: argparse.Namespace, outcome: Outcome) -> None:
    """Reads one epoch of JPEGs from S3, decoded here and by two workers. It compares the trainer's CPU, the bytes that all have read, and the digest."""
    count = 600 if options.quick else 3000
    root = options.cache / f"jpeg-{count}"
    millrace = options.build / "millrace"
    say(f"Offloading: an epoch of {count:,} JPEGs of 115 KB, decoded by the trainer and by two workers ...")
    (root / "b").mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        caches = stack.enter_context(tempfile.TemporaryDirectory())
        environment = {**stack.enter_context(devstore(options, root, [])), "MILLRACE_CACHE": caches}
        servers = stack.enter_context(Servers(environment))
        quiet: dict[str, Any] = {"check": True, "stdout": subprocess.DEVNULL, "env": environment}
        if not any((root / "b" / "jpeg").glob("*.tar")):
            raw = Path(caches) / "raw"
            subprocess.run([millrace, "synth", raw, "--count", str(count), "--kb", "115", "--seed", "1"], **quiet)
            subprocess.run([millrace, "pack", raw, "s3://b/jpeg", "--shard-size", "8MiB"], **quiet)
            shutil.rmtree(raw)
        subprocess.run([millrace, "index", "s3://b/jpeg"], **quiet)
        local, local_cpu = feed(options, environment)
        ports = free_ports(4)
        for number, (port, metrics) in enumerate((ports[:2], ports[2:])):
            servers.start(
                worker_core(options, number),
                millrace,
                "worker",
                "--listen",
                f"127.0.0.1:{port}",
                "--metrics-port",
                metrics,
                "--threads",
                1,
            )
        remote, remote_cpu = feed(
            options, environment, "--workers", ",".join(f"127.0.0.1:{port}" for port in ports[::2])
        )
        read = remote["bytes_read"] + sum(read_bytes(port) for port in ports[1::2])
    if remote["digest"] != local["digest"]:
        raise RuntimeError(f"another digest: {remote['digest']}, not {local['digest']}")
    outcome.offload = {"cpu": remote_cpu / local_cpu, "bytes": read / local["bytes_read"]}
    say(f"  CPU of the trainer {1000 * local_cpu / count:.2f} s for 1,000 samples, with workers {1000 * remote_cpu / count:.2f} s; "
        f"read {local['bytes_read'] / 1e6:.1f} MB, with workers {read / 1e6:.1f} MB; digests equal")  # fmt: skip


def print_medians(options: argparse.Namespace, outcome: Outcome) -> None:
    """Prints ours and theirs below each other, with what bare sockets carry."""
    say("\nMedians:")
    for count, delay in itertools.product(options.workers, options.delays):
        there = [name for name in CONTESTANTS if (name, count, delay) in outcome.runs]
        if not there:
            continue
        ceiling = outcome.ceilings[count, delay]
        say(f"  {'ceiling':14}{count:3} workers  delay {delay:>5}{ceiling / ROW_BYTES:9.0f}/s{ceiling / 1e9:7.2f} GB/s")
        for name in there:
            say(f"  {row_text(name, count, delay, outcome.runs[name, count, delay])}  {CONTESTANTS[name]}")


def row_text(name: str, count: int, delay: str, runs: list[Result]) -> str:
    rates = [run["samples_per_second"] for run in runs]
    rate = statistics.median(rates)
    text = f"{name:14}{count:3} workers  delay {delay:>5}{rate:9.0f}/s{statistics.median(run['bytes_per_second'] for run in runs) / 1e9:7.2f} GB/s"
    return f"{text}{statistics.median(run['cpu_per_1000'] for run in runs):9.4f} CPU-s/1000{(max(rates) - min(rates)) / rate:7.0%}"


def targets_of(options: argparse.Namespace, outcome: Outcome) -> list[Target]:
    targets = []
    undelayed = options.delays[0]
    counts = options.workers if "rate" in options.scenario else []
    for count in counts:
        ours = max_of(outcome, [name for name in CONTESTANTS if name not in RIVALS], count, undelayed)
        best = max_of(outcome, RIVALS, count, undelayed)
        targets.append(Target("rate", f"samples/s, {count} workers, against the best rival", ours / best, 2, True))
    if {"0", "10"} <= set(options.delays):
        for count in counts:
            ratio = outcome.median("millrace", count, "10", "samples_per_second") / outcome.median(
                "millrace", count, "0", "samples_per_second"
            )
            bare = outcome.ceilings.get((count, "10"), float("nan")) / outcome.ceilings.get((count, "0"), float("nan"))
            targets.append(
                Target(
                    "delay", f"samples/s, {count} workers, 10 ms against 0 ms (sockets {bare:.2f})", ratio, 0.9, True
                )
            )
    nan = float("nan")
    if "offload" in options.scenario:
        targets.append(
            Target(
                "offload", "CPU of the trainer, against decoding there", outcome.offload.get("cpu", nan), 0.25, False
            )
        )
        targets.append(
            Target(
                "offload", "bytes from the store, against one local run", outcome.offload.get("bytes", nan), 1.05, False
            )
        )
    targets += [
        Target("faults", f"seconds without a batch after {name}", wait, 2, False)
        for name, wait in outcome.waits.items()
    ]
    return targets


def max_of(outcome: Outcome, names: list[str], count: int, delay: str) -> float:
    """Returns the best rate of these that there is, or NaN."""
    rates = [outcome.median(name, count, delay, "samples_per_second") for name in names]
    return max((rate for rate in rates if rate == rate), default=float("nan"))


def main() -> int:
    options = parse_arguments()
    enter_namespace()
    make_data(options)
    congestion = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    say(
        f"Batches of 128 rows of u8 [224, 224, 3] (19 MB). The trainer on CPU {options.client_cores}, workers, relay and dispatcher on CPU "
        f"{options.server_cores}, loopback with {congestion}, load {os.getloadavg()[0]:.1f}. Median of {options.runs} interleaved runs of {options.seconds:g} s."
    )
    outcome = Outcome()
    if "rate" in options.scenario:
        outcome.ceilings = {
            (count, delay): measure_ceiling(options, count, delay)
            for count in options.workers
            for delay in options.delays
        }
        measure_rates(options, outcome)
    for scenario, measure in (("faults", measure_faults), ("offload", measure_offload)):
        if scenario in options.scenario and options.deadline - time.monotonic() > 30:
            measure(options, outcome)
        elif scenario in options.scenario:
            outcome.missing[scenario] = "no time was left"
    print_medians(options, outcome)
    for name, why in outcome.missing.items():
        say(f"  {name:14}{'failed in a run' if any(key[0] == name for key in outcome.runs) else 'left out'}: {why}")
    targets = targets_of(options, outcome)
    say("\nTargets:")
    print_targets(targets)
    if options.quick:
        say("(a quick run: the figures show that everything works, no more)")
    if options.json:
        record = {
            "settings": {
                name: str(value) if isinstance(value, Path) else value
                for name, value in vars(options).items()
                if name != "deadline"
            },
            "congestion": congestion,
            "ceilings": [
                {"workers": count, "delay": delay, "bytes_per_second": rate}
                for (count, delay), rate in outcome.ceilings.items()
            ],
            "runs": [
                {"contestant": name, "workers": count, "delay": delay, "runs": runs}
                for (name, count, delay), runs in outcome.runs.items()
            ],
            "faults": outcome.waits,
            "offload": outcome.offload,
            "left_out": outcome.missing,
            "targets": [{**vars(target), "met": target.met} for target in targets],
        }
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    return 0 if options.quick or all(target.met for target in targets) else 1


if __name__ == "__main__":
    sys.exit(main())
