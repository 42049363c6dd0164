#!/usr/bin/env python3
"""Several epochs through a cache that does not hold all data: what is downloaded in epochs 2 to 5, how long they take and what they cost.

    ```
    bench/cache/run.py                        4,000 JPEGs of 115 KB, caches of a quarter of that, S3 at 30 ms (a quarter of an hour)
    bench/cache/run.py --quick                300 JPEGs: shows that everything works, within three minutes
    bench/cache/run.py --only millrace,litdata
    bench/cache/run.py --capacity 0.5 --json result.json
    ```

Contestants: @CONTESTANTS@. Each reads every sample once an epoch from a format of its own, in an order of its own that changes from
epoch to epoch. The filecache of fsspec has no limit, and keeps all. "optimum" is the best possible result with Millrace's windowed order and this capacity,
as `millrace cache simulate` computes it. Each row is printed as it is measured. The rivals are those of `bench/setup_rivals cache` (run it first); what is
not installed is reported as left out.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "s3"))

from harness import KEYS, REPOSITORY, add_arguments, complete_arguments, enter_namespace, say

EPOCHS = 5
KB = 115
CONTESTANTS = {
    "millrace": "Loader, windowed shuffle, tar shards",
    "millrace-global": "Loader, global shuffle, tar shards",
    "mosaicml": "StreamingDataset(cache_limit=), MDS",
    "litdata": "StreamingDataset(max_cache_size=), its chunks",
    "filecache": "s3fs with fsspec's filecache, without a bound; raw objects",
}


def parse_arguments() -> argparse.Namespace:
    text = (__doc__ or "").replace("@CONTESTANTS@", ", ".join(CONTESTANTS))
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="300 images, at 5 ms")
    parser.add_argument("--only", metavar="NAME,...", help="only these contestants")
    parser.add_argument(
        "--capacity", type=float, default=0.25, help="of the caches, as a share of the data (default 0.25)"
    )
    parser.add_argument("--limit", type=float, help="seconds for a contestant (default 600; 45 with --quick)")
    parser.add_argument(
        "--data", type=Path, default=REPOSITORY / "build/bench-data/cache", help="where the data are kept (2 GB)"
    )
    parser.add_argument(
        "--python", type=Path, default=REPOSITORY / "build/bench-venv-cache/bin/python", help="with the rivals"
    )
    parser.add_argument("--python-path", type=Path, help="with the package millrace (default: build/release/python)")
    add_arguments(parser)
    options = parser.parse_args()
    options.only = options.only.split(",") if options.only else list(CONTESTANTS)
    if unknown := set(options.only) - set(CONTESTANTS):
        parser.error(f"--only does not know {', '.join(sorted(unknown))}")
    options.count = 300 if options.quick else 4000
    options.limit = options.limit or (45 if options.quick else 600)
    options.shard_bytes = (1 << 20) if options.quick else (8 << 20)
    options.first_byte_ms = 5 if options.quick else 30
    cores = sorted(os.sched_getaffinity(0))
    options.client_cores = options.client_cores or ",".join(map(str, cores[1:] if len(cores) > 2 else cores))
    complete_arguments(parser, options, ["millrace"])
    options.python_path = options.python_path or options.build.parent / "python"
    if not options.python.exists():
        parser.error(f"{options.python} is missing: bench/setup_rivals cache")
    return options


def make_data(options: argparse.Namespace) -> Path:
    """Makes the data, served as bucket `b`, in the format of each contestant. Each format appears when it is whole."""
    root = options.data / f"{options.count}-{options.shard_bytes >> 20}"
    served = root / "b"
    served.mkdir(parents=True, exist_ok=True)

    def run(*words):
        return subprocess.run([options.build / "millrace", *map(str, words)], check=True, stdout=subprocess.DEVNULL)

    if not (served / "raw").exists():
        say(f"Making {options.count:,} JPEGs of {KB} KB in {served}, once ...")
        making = root / f".raw.{os.getpid()}"
        run("synth", making, "--count", options.count, "--kb", KB, "--seed", 1)
        making.rename(served / "raw")
    if not (served / "tar").exists():
        making = root / f".tar.{os.getpid()}"
        run("pack", served / "raw", making, "--shard-size", options.shard_bytes)
        making.rename(served / "tar")
    if not (served / "objects").exists():  # for those that list a prefix, which must not find an index there
        making = root / f".objects.{os.getpid()}"
        shutil.copytree(served / "raw", making, copy_function=os.link, ignore=shutil.ignore_patterns(".millrace"))
        making.rename(served / "objects")
    # An index that was made through the file system does not describe the objects as the server shows them.
    for name in ("raw", "tar"):
        shutil.rmtree(served / name / ".millrace", ignore_errors=True)
    script = Path(__file__).resolve().parents[1] / "torch/data.py"
    formats = [name for name, of in (("mds", "mosaicml"), ("litdata", "litdata")) if of in options.only]
    if formats:
        command = [options.python, script, served, "--shard-size", options.shard_bytes, "--formats", *formats]
        subprocess.run([str(word) for word in command], check=False, stdout=subprocess.DEVNULL, timeout=600)
    return root


class Server:
    """A devstore with its access log."""

    def __init__(self, url: str, log: Path) -> None:
        self.environment = {**os.environ, **KEYS, "AWS_ENDPOINT_URL": url}
        self._log = log
        self._read = 0

    def sent(self) -> tuple[int, int]:
        """Bytes of objects and requests since this was asked last."""
        with self._log.open() as file:
            file.seek(self._read)
            text = file.read()
        text = text[: text.rfind("\n") + 1]
        self._read += len(text.encode())
        lines = [line.split() for line in text.splitlines()]
        sizes = [
            int(line[5])
            for line in lines
            if len(line) > 5 and line[1] == "GET" and line[4] in ("200", "206") and line[2].count("/") > 1
        ]
        return sum(sizes), len(lines)


@contextlib.contextmanager
def serve(options: argparse.Namespace, root: Path, log: Path) -> Iterator[Server]:
    command = [
        "taskset",
        "-c",
        options.server_cores,
        options.build / "millrace",
        "devstore",
        root,
        "--port",
        "0",
        "--anonymous",
        "--access-log",
    ]
    with log.open("wb") as file:
        process = subprocess.Popen(
            [str(word) for word in [*command, "--first-byte-ms", options.first_byte_ms]], stdout=file
        )
    try:
        deadline = time.monotonic() + 30
        while not (found := re.search(r"^listening on (\S+)\n", log.read_text(), re.MULTILINE)):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("devstore does not start")
            time.sleep(0.01)
        yield Server(found[1], log)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def disk_bytes(folder: Path) -> int:
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def measure(options: argparse.Namespace, server: Server, name: str, capacity: int) -> dict[str, Any] | str:
    """Returns the measurements of each epoch, or the reason why there are none."""
    script = Path(__file__).with_name("contestants.py")
    environment = {**server.environment, "PYTHONPATH": str(options.python_path)}
    epochs: list[dict[str, Any]] = []
    # The home is fresh, since LitData stores its knowledge of a data set there.
    with (
        tempfile.TemporaryDirectory(dir=options.data, prefix=".scratch-") as scratch,
        tempfile.TemporaryFile() as errors,
    ):
        cache = Path(scratch) / "cache"
        cache.mkdir()
        environment |= {"HOME": scratch, "MILLRACE_CACHE": f"{scratch}/indexes"}
        command = [
            "timeout",
            "--kill-after=5",
            options.limit,
            "taskset",
            "-c",
            options.client_cores,
            options.python,
            script,
            name,
        ]
        # A tenth of the data at most, as what lies in memory is not downloaded either.
        memory = max(10 << 20, int(0.1 * capacity / options.capacity))
        command += ["--epochs", EPOCHS, "--capacity", capacity, "--memory", memory, "--scratch", cache]
        server.sent()
        process = subprocess.Popen(
            [str(word) for word in command],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        assert process.stdin is not None and process.stdout is not None
        for line in process.stdout:
            if not line.startswith("{"):
                continue
            downloaded, requests = server.sent()
            epochs.append(
                {**json.loads(line), "downloaded": downloaded, "requests": requests, "disk_bytes": disk_bytes(cache)}
            )
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write("\n")
                process.stdin.flush()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        code = process.wait()
        errors.seek(0)
        said = errors.read().decode(errors="replace").strip().splitlines()
    if len(epochs) < EPOCHS:
        return f"after {len(epochs)} epochs: exit status {code}{' (it took too long)' if code == 124 else ''}: {said[-1] if said else 'says nothing'}"
    wrong = [epoch["samples"] for epoch in epochs if epoch["samples"] != options.count]
    later = epochs[1:]
    return {
        "epochs": epochs,
        "samples_wrong": wrong,
        "data_bytes": later[0]["bytes"],
        **{key: sum(epoch[key] for epoch in later) for key in ("downloaded", "requests", "seconds", "cpu_seconds")},
        "disk_bytes": max(epoch["disk_bytes"] for epoch in epochs),
    }


def optimum(options: argparse.Namespace, server: Server, capacity: int) -> int:
    """Returns bytes that epochs 2 to 5 must download at least."""
    words = ["cache", "simulate", "s3://b/tar", "--seed", 1, "--epochs", EPOCHS, "--capacity", capacity, "--json"]
    words += ["--extent", 2, "--window", 8, "--lanes", 8]  # as contestants.py
    done = subprocess.run(
        [str(word) for word in (options.build / "millrace", *words)],
        env=server.environment,
        capture_output=True,
        check=True,
    )
    return int(sum(epoch["store_bytes"]["optimum"] for epoch in json.loads(done.stdout)["epochs"][1:]))


def main() -> int:
    options = parse_arguments()
    enter_namespace()
    root = make_data(options)
    data = sum(path.stat().st_size for path in (root / "b/raw").rglob("*.jpg"))
    capacity = int(options.capacity * data)
    say(
        f"{options.count:,} JPEGs, {data / 1e6:.0f} MB; caches of {capacity / 1e6:.0f} MB; {options.first_byte_ms} ms; epochs 2 to {EPOCHS} together. devstore on CPU "
        f"{options.server_cores}, clients on CPU {options.client_cores}, load {os.getloadavg()[0]:.1f}."
    )
    found: dict[str, Any] = {}
    with (
        tempfile.TemporaryDirectory(prefix="millrace-cache-bench-") as folder,
        serve(options, root, Path(folder) / "log") as server,
    ):
        subprocess.run(
            [str(options.build / "millrace"), "index", "s3://b/tar"],
            check=True,
            stdout=subprocess.DEVNULL,
            env=server.environment,
        )
        least = optimum(options, server, capacity)
        say(f"{'':17}{'downloaded':>13}{'of the data':>13}{'requests':>10}{'seconds':>9}{'CPU-s':>8}{'disk':>10}")
        say(f"{'optimum':17}{least / 1e6:10,.0f} MB{least / data / (EPOCHS - 1):13.1%}")
        for name in options.only:
            found[name] = result = measure(options, server, name, capacity)
            if isinstance(result, str):
                say(f"{name:17}left out: {result}")
                continue
            share = result["downloaded"] / result["data_bytes"] / (EPOCHS - 1)
            wrong = f", and epochs of {result['samples_wrong']} samples" if result["samples_wrong"] else ""
            say(
                f"{name:17}{result['downloaded'] / 1e6:10,.0f} MB{share:13.1%}{result['requests']:10,}{result['seconds']:9.1f}{result['cpu_seconds']:8.1f}"
                f"{result['disk_bytes'] / 1e6:7,.0f} MB  {CONTESTANTS[name]}{wrong}"
            )
    if options.quick:
        say("(a quick run: the figures show that everything works, no more)")
    if options.json:
        options.json.write_text(
            json.dumps(
                {"data_bytes": data, "capacity_bytes": capacity, "optimum_bytes": least, "contestants": found}, indent=1
            )
            + "\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
