#!/usr/bin/env python3
"""Listing a million keys of S3 of which nothing is known, 50 ms a page: Millrace beside its rivals, from the same devstore, in one run.

    ```
    bench/s3/list.py                     five shapes of keys, three interleaved runs each (about a quarter of an hour on two cores)
    bench/s3/list.py --quick             50,000 keys, one run: shows that everything works; the figures mean little
    bench/s3/list.py --shape flat --only millrace,boto3
    ```

Shapes: flat (00000000.jpg, ...), hashed (16 hex digits), deep (date and host folders), hot (95 % below one prefix), classes (1,000
folders of very different size). Server and client are pinned to one core each. The rivals are those of bench/setup_rivals s3; they list
page by page, so that 20,000 keys/s is the most that the latency leaves them. `ls` is `millrace ls --recursive` with its output dropped.
The ceiling is 32 requests at once: 640,000 keys/s, or what one core of devstore can write. Exits 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from harness import (
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

SHAPES = ("flat", "hashed", "deep", "hot", "classes")
RIVALS = ("boto3", "obstore")
PAGE_MS = 50


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few keys and one run, unless told otherwise")
    parser.add_argument("--shape", action="append", choices=SHAPES)
    parser.add_argument("--only", metavar="NAME,...", help="only these of: millrace, ls, " + ", ".join(RIVALS))
    parser.add_argument("--keys", type=int, help="default 1,000,000")
    parser.add_argument("--runs", type=int, help="interleaved runs of which the median counts (default 3)")
    add_arguments(parser)
    options = parser.parse_args()
    options.keys = options.keys or (50_000 if options.quick else 1_000_000)
    options.runs = options.runs or (1 if options.quick else 3)
    options.only = options.only.split(",") if options.only else ["millrace", "ls", *RIVALS]
    if unknown := set(options.only) - {"millrace", "ls", *RIVALS}:
        parser.error(f"--only does not know {', '.join(sorted(unknown))}")
    complete_arguments(parser, options, ["millrace", "list_bench"])
    return options


def list_boto3(prefix: str) -> int:
    import boto3
    import botocore.config

    config = botocore.config.Config(s3={"addressing_style": "path"})
    client = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"], config=config)
    return sum(page["KeyCount"] for page in client.get_paginator("list_objects_v2").paginate(Bucket="b", Prefix=prefix))


def list_obstore(prefix: str) -> int:
    import obstore
    import obstore.store

    store = obstore.store.S3Store(
        "b",
        endpoint=os.environ["AWS_ENDPOINT_URL"],
        region=os.environ["AWS_REGION"],
        access_key_id=os.environ["AWS_ACCESS_KEY_ID"],
        secret_access_key=os.environ["AWS_SECRET_ACCESS_KEY"],
        client_options={"allow_http": True},
    )
    return sum(len(batch) for batch in obstore.list(store, prefix, chunk_size=1000, return_arrow=False))


def run_rival(name: str, prefix: str) -> None:
    """Runs a rival in a process of its own: `list.py --rival NAME PREFIX`."""
    import resource
    import time

    begin = time.perf_counter()
    keys = {"boto3": list_boto3, "obstore": list_obstore}[name](prefix)
    seconds = time.perf_counter() - begin
    usage = resource.getrusage(resource.RUSAGE_SELF)
    report = {
        "keys": keys,
        "seconds": seconds,
        "keys_per_second": keys / seconds,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
    }
    print(json.dumps({**report, "max_rss_bytes": usage.ru_maxrss * 1024}))


def run_ls(options: argparse.Namespace, prefix: str) -> None:
    """Runs `list.py --ls PREFIX` in a process of its own, to time the command with the cost of its start."""
    import resource
    import time

    begin = time.perf_counter()
    command = [options.build / "millrace", "ls", "--recursive", f"s3://b/{prefix}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    keys = 0
    while block := process.stdout.read(1 << 20):
        keys += block.count(b"\n")
    if process.wait():
        sys.exit("millrace ls failed")
    seconds = time.perf_counter() - begin
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    report = {
        "keys": keys,
        "seconds": seconds,
        "keys_per_second": keys / seconds,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
    }
    print(json.dumps({**report, "max_rss_bytes": usage.ru_maxrss * 1024}))


def measure(options: argparse.Namespace, shape: str, environment: dict[str, str]) -> dict[str, list[Result]]:
    say(f"\n== {shape}: putting {options.keys:,} keys ...")
    fill = [options.build / "list_bench", f"s3://b/{shape}/", "--fill", shape, "--keys", str(options.keys)]
    subprocess.run(fill, env=environment, check=True)
    script = str(Path(__file__).resolve())
    commands = {
        "millrace": [str(options.build / "list_bench"), f"s3://b/{shape}/"],
        "ls": [sys.executable, script, "--build", str(options.build), "--ls", f"{shape}/"],
        **{rival: [str(RIVALS_PYTHON), script, "--rival", rival, f"{shape}/"] for rival in RIVALS},
    }
    runs: dict[str, list[Result]] = {}
    failed: set[str] = set()
    for _ in range(options.runs):
        for name in options.only:
            result = "failed before" if name in failed else run_client(options, commands[name], environment, 600)
            if isinstance(result, str):
                if name not in failed:
                    say(f"  {name} is left out: {result}")
                failed.add(name)
            elif result["keys"] != options.keys:
                sys.exit(f"{name} listed {result['keys']} keys, not {options.keys}")
            else:
                runs.setdefault(name, []).append(result)
    return runs


def print_runs(runs: dict[str, list[Result]]) -> None:
    say(f"{'':12}{'keys/s':>10}{'spread':>8}{'CPU-s/million':>15}{'RSS MiB':>9}{'requests':>10}{'conns':>7}")
    for name, every in runs.items():
        rates = [run["keys_per_second"] for run in every]
        rate = statistics.median(rates)
        cpu = statistics.median(run["cpu_seconds"] / run["keys"] * 1e6 for run in every)
        text = f"{name:12}{rate:10,.0f}{(max(rates) - min(rates)) / rate:8.0%}{cpu:15.2f}"
        text += f"{max(run['max_rss_bytes'] for run in every) / (1 << 20):9.0f}"
        text += f"{every[0].get('requests', '-'):>10}{max(run['connections'] or 0 for run in every):>7}"
        say(text)


def main() -> int:
    if "--rival" in sys.argv:
        run_rival(*sys.argv[-2:])
        return 0
    if "--ls" in sys.argv:
        run_ls(argparse.Namespace(build=Path(sys.argv[-3])), sys.argv[-1])
        return 0
    options = parse_arguments()
    enter_namespace()
    say(
        f"devstore on CPU {options.server_cores}, clients on CPU {options.client_cores}, {PAGE_MS} ms a page, load "
        f"{os.getloadavg()[0]:.1f}; median of {options.runs} interleaved runs; RSS and connections are the worst of them."
    )
    targets = []
    results = {}
    for shape in options.shape or SHAPES:
        with devstore(options, "mem:", ["--bucket", "b", "--fault", f"GET b/* delay-ms={PAGE_MS}"]) as environment:
            runs = results[shape] = measure(options, shape, environment)
        print_runs(runs)
        if "millrace" in runs:
            rate = statistics.median(run["keys_per_second"] for run in runs["millrace"])
            targets.append(Target(shape, "keys/s", rate, 100_000 if shape == "flat" else 50_000, True))
    say("\nTargets:")
    print_targets(targets)
    if options.quick:
        say("(a quick run: the figures show that everything works, no more)")
    if options.json:
        options.json.write_text(json.dumps({"keys": options.keys, "shapes": results}, indent=1) + "\n")
    return 0 if options.quick or all(target.met for target in targets) else 1


if __name__ == "__main__":
    sys.exit(main())
