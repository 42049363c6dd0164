#!/usr/bin/env python3
"""Reading from S3: Millrace beside its rivals and the ceiling, from the same devstore, in one run.

    ```
    bench/s3/run.py                            all scenarios, five interleaved runs each (about two hours on two cores)
    bench/s3/run.py --quick                    small data, one run: shows that everything works; the figures mean little
    bench/s3/run.py --scenario large           one scenario; --scenario may be repeated
    bench/s3/run.py --scenario small30 --only millrace,awscrt --runs 3
    bench/s3/run.py --json result.json
    ```

Scenarios:
@SCENARIOS@

Server and client are pinned to one core each, in a network namespace of their own whose loopback uses reno. The rivals are those of
bench/setup_rivals s3 (run it first); what is not installed is reported as missing. Exits 1 when a target is missed (never with --quick).
See bench/README.md for columns and traps.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from harness import (
    KEYS,
    REPOSITORY,
    RIVALS_PYTHON,
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

RIVALS = ("awscrt", "s3torchconnector", "boto3", "obstore", "s3fs", "curl")
RATE_LIMIT = 5500  # GETs a second of a prefix of S3
SMALL = 115_000
MIB = 1 << 20


@dataclass(frozen=True)
class Data:
    name: str
    objects: int
    size: int


@dataclass(frozen=True)
class Storm:
    """Represents seconds since the first GET."""

    begin: int
    end: int
    over: int


@dataclass(frozen=True)
class Scenario:
    name: str
    what: str
    data: str  # "large", "8mib" or "small"
    calls: int
    count: int = 0
    quick_count: int = 0
    seconds: int = 0  # instead of a count
    quick_seconds: int = 0
    part: int = 0
    io_threads: int = 1  # of Millrace, whose default it is, and of awscrt: the client has one core
    tls: bool = False
    server: tuple[str, ...] = ()
    fault: str = ""  # with {begin} and {end}
    rivals: tuple[str, ...] = RIVALS
    slow_rivals: tuple[str, ...] = ()  # read a tenth of the count
    ceiling: tuple[int, ...] = ()  # connections


LATENCY = ("--first-byte-ms", "30", "--first-byte-sigma", "0.3")
LIMIT = ("--rate-per-prefix", str(RATE_LIMIT))
PATIENT = ("awscrt", "s3torchconnector", "obstore")  # the rivals that can have so many requests in flight
SCENARIOS = (
    Scenario("large", "1 GiB object, in parts", "large", 16, 8, 2, part=8 * MIB, ceiling=(1, 2, 4, 8)),
    Scenario("8mib", "8 MiB objects", "8mib", 16, 512, 32, ceiling=(1, 2, 4, 8)),
    Scenario("large-tls", "1 GiB object over TLS", "large", 16, 4, 1, part=8 * MIB, tls=True, ceiling=(1, 2, 4, 8)),
    Scenario("8mib-tls", "8 MiB objects over TLS", "8mib", 16, 256, 32, tls=True, ceiling=(1, 2, 4, 8)),
    Scenario(
        "small0",
        "115 KB objects",
        "small",
        256,
        10_000,
        1000,
        io_threads=2,
        slow_rivals=("s3fs", "boto3"),
        ceiling=(1, 2, 4, 8),
    ),
    Scenario(
        "small0-tls",
        "115 KB objects over TLS",
        "small",
        256,
        10_000,
        1000,
        io_threads=2,
        tls=True,
        slow_rivals=("s3fs", "boto3"),
    ),
    Scenario(
        "small30",
        "115 KB objects, 30 ms",
        "small",
        256,
        10_000,
        1000,
        io_threads=2,
        server=LATENCY,
        slow_rivals=("s3fs", "boto3"),
    ),
    Scenario(
        "limit",
        f"115 KB objects, 30 ms, at most {RATE_LIMIT}/s",
        "small",
        256,
        seconds=20,
        quick_seconds=3,
        io_threads=2,
        server=(*LATENCY, *LIMIT),
        rivals=PATIENT,
    ),
    Scenario(
        "storm-limit",
        "1,000 GETs in flight, capacity falls to half",
        "small",
        1000,
        seconds=60,
        quick_seconds=12,
        io_threads=2,
        server=(*LATENCY, *LIMIT),
        fault=f"GET b/small* limit={RATE_LIMIT // 2} from={{begin}} until={{end}}",
        rivals=PATIENT,
    ),
    Scenario(
        "storm-random",
        "1,000 GETs in flight, 30 % answer 503",
        "small",
        1000,
        seconds=60,
        quick_seconds=12,
        io_threads=2,
        server=LATENCY,
        fault="GET b/small* status=503 p=0.3 from={begin} until={end}",
        rivals=PATIENT,
    ),
    Scenario(
        "tail",
        "30 ms, 1 % stalled for 5 s",
        "small",
        64,
        20_000,
        3000,
        io_threads=2,
        server=(*LATENCY, "--first-byte-tail-ms", "5000", "--tail-fraction", "0.01"),
        rivals=("awscrt", "obstore"),
    ),
)


@dataclass
class Outcome:
    scenario: Scenario
    runs: dict[str, list[Result]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def median(self, name: str, key: str) -> float:
        """Returns NaN when there is none, so that no comparison with it holds."""
        values = [run[key] for run in self.runs.get(name, []) if run.get(key) is not None]
        return statistics.median(values) if values else float("nan")

    def best_ceiling(self) -> str:
        names = [name for name in self.runs if re.fullmatch(r"recv x\d+", name)]
        return max(names, key=lambda name: self.median(name, "gb_per_second"), default="")


def parse_arguments() -> argparse.Namespace:
    listed = "\n".join(f"  {scenario.name:14}{scenario.what}" for scenario in SCENARIOS)
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").replace("@SCENARIOS@", listed), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small data and one run, unless told otherwise")
    parser.add_argument(
        "--scenario", action="append", choices=[scenario.name for scenario in SCENARIOS], metavar="NAME"
    )
    parser.add_argument("--only", metavar="NAME,...", help="only these of: recv, millrace, " + ", ".join(RIVALS))
    parser.add_argument("--runs", type=int, help="interleaved runs of which the median counts (default 5)")
    parser.add_argument(
        "--cache", type=Path, default=REPOSITORY / "build/bench-data/s3", help="where the data are kept (2 GB)"
    )
    add_arguments(parser)
    options = parser.parse_args()
    options.runs = options.runs or (1 if options.quick else 5)
    options.only = options.only.split(",") if options.only else ["recv", "millrace", *RIVALS]
    if unknown := set(options.only) - {"recv", "millrace", *RIVALS}:
        parser.error(f"--only does not know {', '.join(sorted(unknown))}")
    complete_arguments(parser, options, ["millrace", "get_bench", "ceiling"])
    return options


def make_data(cache: Path, quick: bool) -> tuple[Path, dict[str, Data]]:
    """Makes the objects, served as bucket `b`. Each set is made in a temporary folder that is renamed when it is
    whole."""
    every = {
        "large": Data("large", 1, 256 * MIB) if quick else Data("large", 1, 1024 * MIB),
        "8mib": Data("8mib", 16, 8 * MIB) if quick else Data("8mib", 64, 8 * MIB),
        "small": Data("small", 500, SMALL) if quick else Data("small", 2000, SMALL),
    }
    root = cache / ("quick" if quick else "full")
    for data in every.values():
        folder = root / "b" / data.name
        if not folder.exists():
            say(f"Making {data.objects} objects of {data.size:,} bytes in {folder}, once ...")
            making = root / f".{data.name}.{os.getpid()}"
            making.mkdir(parents=True)
            for number in range(data.objects):
                with (making / f"{number:06d}").open("wb") as file:
                    for begin in range(0, data.size, MIB):
                        file.write(os.urandom(min(MIB, data.size - begin)))
            folder.parent.mkdir(parents=True, exist_ok=True)
            making.rename(folder)
        # Into the page cache: no run is to wait for the disk. Piece by piece: ru_maxrss of a program contains the peak of the one
        # that started it.
        for path in folder.iterdir():
            with path.open("rb", buffering=0) as file:
                while file.read(MIB):
                    pass
    return root, every


def contestants(
    options: argparse.Namespace, scenario: Scenario, data: Data, environment: dict[str, str]
) -> dict[str, list[str]]:
    uri = f"s3://b/{data.name}/"
    count = scenario.quick_count if options.quick else scenario.count
    seconds = scenario.quick_seconds if options.quick else scenario.seconds
    amount = ["--seconds", str(seconds)] if seconds else ["--count", str(count)]
    calls = ["--calls", str(scenario.calls), *(["--part", f"{scenario.part // MIB}MiB"] if scenario.part else [])]
    commands: dict[str, list[str]] = {}

    if "recv" in options.only:
        url = f"{environment['AWS_ENDPOINT_URL']}/b/{data.name}/"
        for number in scenario.ceiling:
            # Equal buffers: the whole object where the others read it in parts, one a GET where they read whole objects.
            shape = ["--part", str(-(-data.size // number))] if scenario.part else ["--slots", str(scenario.calls)]
            base = [str(options.build / "ceiling"), url, "--objects", str(data.objects), "--count", str(count), *shape]
            base += ["--connections", str(number)]
            base += ["--ca", environment["AWS_CA_BUNDLE"]] if scenario.tls else []
            commands[f"recv x{number}"] = base
            commands[f"recv+crc x{number}"] = [*base, "--crc"]
    if "millrace" in options.only:
        commands["millrace"] = [
            str(options.build / "get_bench"),
            uri,
            *amount,
            *calls,
            "--io-threads",
            str(scenario.io_threads),
        ]
        if scenario.ceiling:
            commands["millrace+crc"] = [*commands["millrace"], "--verify"]
    for rival in scenario.rivals:
        if rival not in options.only:
            continue
        mine = ["--count", str(max(100, count // 10))] if rival in scenario.slow_rivals and not seconds else amount
        shape = ["--objects", str(data.objects), "--size", str(data.size), "--io-threads", str(scenario.io_threads)]
        commands[rival] = [
            str(RIVALS_PYTHON),
            str(REPOSITORY / "bench/s3/rivals.py"),
            rival,
            uri,
            *shape,
            *mine,
            *calls,
        ]
    return commands


def storm_of(options: argparse.Namespace) -> Storm:
    return Storm(3, 8, 12) if options.quick else Storm(10, 40, 60)


def measure(options: argparse.Namespace, scenario: Scenario, root: Path, data: Data) -> Outcome:
    outcome = Outcome(scenario)
    storm = storm_of(options)
    arguments = [*scenario.server, *(["--tls"] if scenario.tls else [])]
    if scenario.fault:
        arguments += ["--fault", scenario.fault.format(begin=storm.begin, end=storm.end)]
    seconds = scenario.quick_seconds if options.quick else scenario.seconds
    limit = 60 + 3 * seconds + (0 if options.quick else 240)
    # A server a contestant where it has faults or a pace: their clocks begin with the first GET.
    own = bool(scenario.fault) or bool(scenario.server)
    for number in range(options.runs):
        with contextlib.ExitStack() as stack:
            environment = KEYS if own else stack.enter_context(devstore(options, root, arguments))
            names = contestants(options, scenario, data, {"AWS_ENDPOINT_URL": "", "AWS_CA_BUNDLE": "", **environment})
            for name, command in names.items():
                if name in outcome.missing:
                    continue
                if own:
                    with devstore(options, root, arguments) as fresh:
                        result = run_client(options, contestants(options, scenario, data, fresh)[name], fresh, limit)
                else:
                    result = run_client(options, command, dict(environment), limit)
                if isinstance(result, str):
                    outcome.missing[name] = result
                    say(f"  run {number + 1}: {name} is left out: {result}")
                else:
                    outcome.runs.setdefault(name, []).append(result)
    return outcome


def print_outcome(outcome: Outcome) -> None:
    ceiling = outcome.best_ceiling()
    say(
        f"\n{'':18}{'GB/s':>7}{'spread':>8}{'obj/s':>8}{'CPU-s/GB':>10}{'obj/CPU-s':>11}{'RSS MiB':>9}{'conns':>7}"
        f"{'p50':>9}{'p99':>9}{'p99.9 ms':>10}{'errors':>8}{'/ recv':>8}{'ours /':>8}"
    )
    for name, runs in outcome.runs.items():
        rates = [run["gb_per_second"] for run in runs]
        rate = statistics.median(rates)
        text = f"{name:18}{rate:7.2f}{(max(rates) - min(rates)) / rate if rate else 0:8.0%}{outcome.median(name, 'objects_per_second'):8.0f}"
        text += (
            f"{outcome.median(name, 'cpu_seconds_per_gb'):10.3f}{outcome.median(name, 'objects_per_cpu_second'):11.0f}"
        )
        text += f"{max(run['max_rss_bytes'] for run in runs) / MIB:9.0f}"
        known = [run["connections"] for run in runs if run.get("connections")]
        text += f"{max(known):7}" if known else f"{'-':>7}"
        for quantile, width in (("p50", 9), ("p99", 9), ("p99.9", 10)):
            values = [run["ms"][quantile] for run in runs if "ms" in run]
            text += f"{statistics.median(values):{width}.1f}" if values else f"{'-':>{width}}"
        text += f"{sum(run['errors'] for run in runs):8}"
        text += f"{rate / outcome.median(ceiling, 'gb_per_second'):8.2f}" if ceiling else f"{'-':>8}"
        text += (
            f"{outcome.median('millrace', 'gb_per_second') / rate:8.2f}"
            if rate and "millrace" in outcome.runs
            else f"{'-':>8}"
        )
        say(text)
        first = next((run["first_error"] for run in runs if run.get("first_error")), "")
        if first:
            say(f"{'':18}first error: {first}")
    for name, why in outcome.missing.items():
        say(f"{name:18}left out: {why}")


def large_targets(outcome: Outcome) -> list[Target]:
    """Checks the targets of large objects, against the fastest recv loop of the same run and against the CRT."""
    name, best = outcome.scenario.name, outcome.best_ceiling()
    if not best:
        return []

    def cost(who: str) -> float:
        return outcome.median(who, "cpu_seconds_per_gb")

    rate = outcome.median("millrace", "gb_per_second") / outcome.median(best, "gb_per_second")
    loop = "SSL_read" if outcome.scenario.tls else "recv"
    targets = [Target(name, f"GB/s, against {best} ({loop})", rate, 0.9, True)]
    if not outcome.scenario.tls:
        with_crc = best.replace("recv", "recv+crc")
        above = cost("millrace") - cost(best)
        targets += [
            Target(name, f"CPU-s/GB, against {best}", cost("millrace") / cost(best), 1.25, False),
            Target(
                name, f"CPU-s/GB with CRC32C, against {with_crc}", cost("millrace+crc") / cost(with_crc), 1.25, False
            ),
            Target(name, "CPU-s/GB above recv, against the CRT's", above / (cost("awscrt") - cost(best)), 0.3, False),
        ]
    return targets


def small_targets(outcome: Outcome) -> list[Target]:
    name = outcome.scenario.name
    ours, crt, torch = (
        outcome.median(who, "objects_per_cpu_second") for who in ("millrace", "awscrt", "s3torchconnector")
    )
    return [
        Target(name, "objects/CPU-s, against the CRT", ours / crt, 3, True),
        Target(name, "objects/CPU-s, against s3torchconnector", ours / torch, 10, True),
    ]


def limit_targets(outcome: Outcome) -> list[Target]:
    name, runs = outcome.scenario.name, outcome.runs["millrace"]
    throttled = statistics.median(run["retries"] / max(1, run["requests"]) for run in runs)
    return [
        Target(
            name,
            f"objects/s, against {RATE_LIMIT}",
            outcome.median("millrace", "objects_per_second") / RATE_LIMIT,
            0.9,
            True,
        ),
        Target(name, "share of requests that were sent again", throttled, 0.01, False),
        Target(name, "errors", sum(run["errors"] for run in runs), 0, False),
    ]


def phases(run: Result, storm: Storm) -> tuple[float, float, float]:
    """Returns objects a second before, during and after the storm. `after` begins 10 s after its end (in a quick run:
    half the rest)."""
    seconds = run["each_second"] + [0] * storm.over
    settled = storm.end + min(10, (storm.over - storm.end) // 2)
    spans = ((storm.begin // 2, storm.begin), (storm.begin, storm.end), (settled, storm.over - 1))
    before, during, after = (statistics.mean(seconds[begin:end]) for begin, end in spans)
    return before, during, after


def storm_targets(outcome: Outcome, storm: Storm) -> list[Target]:
    name, runs = outcome.scenario.name, outcome.runs["millrace"]
    for who, every in outcome.runs.items():
        before, during, after = (statistics.median(values) for values in zip(*(phases(run, storm) for run in every)))
        say(f"{who:18}objects/s before {before:.0f}, in the storm {during:.0f}, after {after:.0f}")
    measured = [phases(run, storm) for run in runs]
    again = statistics.median(after / before for before, _, after in measured)
    targets = [Target(name, "errors", sum(run["errors"] for run in runs), 0, False)]
    if "limit" in name:
        goodput = statistics.median(during for _, during, _ in measured)
        targets.append(Target(name, f"goodput, against {RATE_LIMIT // 2}/s", goodput / (RATE_LIMIT // 2), 0.9, True))
    else:
        goodput = statistics.median(during / before for before, during, _ in measured)
        in_storm = [sum(run["each_second"][storm.begin : storm.end]) for run in runs]
        requests = statistics.median(
            1 + (run["retries"] + run["hedges"]) / max(1, good) for run, good in zip(runs, in_storm)
        )
        targets.append(Target(name, "goodput, against the rate before", goodput, 0.6, True))
        targets.append(Target(name, "requests for each object", requests, 1.5, False))
    return [*targets, Target(name, "rate 10 s after, against before", again, 0.95, True)]


def tail_targets(outcome: Outcome) -> list[Target]:
    name, runs = outcome.scenario.name, outcome.runs["millrace"]
    say(f"{'millrace':18}second requests for {max(run['hedges'] / run['objects'] for run in runs):.1%} of the objects")
    return [
        Target(
            name,
            "p99.9, against p50",
            statistics.median(run["ms"]["p99.9"] / run["ms"]["p50"] for run in runs),
            3,
            False,
        ),
        Target(
            name,
            "bytes received beyond those asked for",
            max(run["bytes_read"] / run["bytes"] - 1 for run in runs),
            0.03,
            False,
        ),
        Target(name, "errors", sum(run["errors"] for run in runs), 0, False),
    ]


def targets_of(options: argparse.Namespace, outcome: Outcome) -> list[Target]:
    if "millrace" not in outcome.runs:
        return []
    name = outcome.scenario.name
    judges: dict[str, Callable[[], list[Target]]] = {
        "large": lambda: large_targets(outcome),
        "8mib": lambda: large_targets(outcome),
        "large-tls": lambda: large_targets(outcome),
        "8mib-tls": lambda: large_targets(outcome),
        "small30": lambda: small_targets(outcome),
        "limit": lambda: limit_targets(outcome),
        "storm-limit": lambda: storm_targets(outcome, storm_of(options)),
        "storm-random": lambda: storm_targets(outcome, storm_of(options)),
        "tail": lambda: tail_targets(outcome),
    }
    return judges[name]() if name in judges else []


def main() -> int:
    options = parse_arguments()
    enter_namespace()
    for tool in ("taskset", "curl"):
        if shutil.which(tool) is None:
            say(f"{tool} is not installed")
    root, every = make_data(options.cache, options.quick)
    congestion = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    say(
        f"devstore on CPU {options.server_cores}, clients on CPU {options.client_cores}, loopback with {congestion}, load "
        f"{os.getloadavg()[0]:.1f}; median of {options.runs} interleaved runs; RSS, connections and errors are the worst of them."
    )
    if options.server_cores == options.client_cores:
        say("Server and clients share a core: what the server burns is missing to the clients.")
    outcomes, targets = [], []
    for scenario in SCENARIOS:
        if options.scenario and scenario.name not in options.scenario:
            continue
        say(f"\n== {scenario.name}: {scenario.what}")
        outcome = measure(options, scenario, root, every[scenario.data])
        print_outcome(outcome)
        found = targets_of(options, outcome)
        print_targets(found)
        outcomes.append(outcome)
        targets += found
    say("\nTargets:" if targets else "\nNo targets were measured.")
    print_targets(targets)
    if options.quick:
        say("(a quick run: the figures show that everything works, no more)")
    if options.json:
        record = {
            "settings": {
                name: str(value) if isinstance(value, Path) else value for name, value in vars(options).items()
            },
            "congestion": congestion,
            "scenarios": {o.scenario.name: {"runs": o.runs, "left_out": o.missing} for o in outcomes},
            "targets": [{**vars(target), "met": target.met} for target in targets],
        }
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    return 0 if options.quick or all(target.met for target in targets) else 1


if __name__ == "__main__":
    sys.exit(main())
