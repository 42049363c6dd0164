#!/usr/bin/env python3
"""How many instructions Millrace executes for an item of each of its hot paths: a figure that, unlike seconds, is the same on a busy machine.

    ```
    bench/instructions.py             counts them, beside those of bench/instructions.json (half a minute)
    bench/instructions.py --update    and writes that file: when a path was made to cost more on purpose, or costs less from now on
    ```

Exits 1 if a path takes more than 1.15 times the instructions that the file says. One that takes less than 0.85 of them is only named: with --update it cannot
become slow again unnoticed. Exits 77, and says why, where figures cannot be compared with those of the file: without valgrind, on other processors, or if another
compiler or no release build made the programs.

valgrind counts, on a processor that it simulates. It is the same one on all processors with the needed features: with AVX2 and without AVX-512. So libraries choose
the same code for it. Each program runs twice with different numbers of items; the difference is what items cost, without starting and preparing. The main thread
of a program with threads does not count if it only waits: it looks at the clock meanwhile, more often on a slow machine. The work that such threads do for each other
still differs from run to run, upwards. A path that seems to take too many instructions is counted again, and the lowest number counts.

Instructions do not show the kernel's work for a program. So system calls are counted for paths whose threads could wait for each other too often. Since valgrind runs one
thread at a time, their number is nearly the same each time. For paths that could use memory only once, first touches of pages are counted, without valgrind.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

REPOSITORY = Path(__file__).resolve().parents[1]
MORE = 1.15
FEWER = 0.85
TRIES = 3  # of a path that seems to take more
PHOTOS = 32
# glibc copies by one instruction that is counted for each byte, which would hide all that is not copied.
COPIES_IN_WORDS = {
    "GLIBC_TUNABLES": "glibc.cpu.x86_rep_movsb_threshold=1073741824:glibc.cpu.x86_rep_stosb_threshold=1073741824"
}
CANNOT = 77  # the exit status by which test runners know what was left out
# The simulated processor of valgrind has these features if the real one has AVX2. Otherwise some of them depend on the real one.
FEATURES = {"avx2", "fma", "f16c", "bmi1", "bmi2", "abm", "movbe"}


# These are the numbers that are counted.
MAIN = "instructions of main()"
THREADS = "instructions of all threads but that of main(), which waits for them"
ALL = "instructions of all threads"
CALLS = "system calls of all threads"
FAULTS = "page faults"


@dataclass(frozen=True)
class HotPath:
    item: str
    program: str
    arguments: str  # {n}: how often; {data}: the folder that prepare() fills; {out}: a new one for this run
    few: int
    many: int
    each: int = 1  # items that one time has
    counts: str = MAIN


def hot(name: str, item: str, few: int, many: int) -> HotPath:
    return HotPath(item, "hot_paths", f"{name} {{n}}", few, many)


def decode(case: str, images: str) -> HotPath:
    return HotPath(
        "image of 640 x 480 pixels and 115 KB",
        "decode_bench",
        f"--files {{data}}/{images} --cases {case} --json --rounds {{n}}",
        1,
        5,
    )


FEED = "feed {data}/photos --shuffle none --size 64 --batch 16 --threads 1 --memory 64MiB --json --epochs {n}"
# devstore serves objects of so many MiB, and folders of so many objects. The largest object is five times the 64 MiB that are in flight.
CAT = "cat s3://hot/mib/{n}"
READ_MIB = (8, 72)
TOUCHED_MIB = (1, 320)
CP = "cp --recursive s3://hot/objects/{n} {out}"
COPIED = (20, 140)
PATHS = {
    # A window has 3,072 samples.
    "plan-global": hot("plan-global", "sample of a shuffled order", 3072, 30720),
    "plan-window": hot("plan-window", "sample of an order that is shuffled within windows", 3072, 30720),
    "plan-position": hot("plan-position", "position of a sample in such an order", 1000, 5000),
    "index-write": hot("index-write", "sample that is written to an index", 2000, 6000),
    "index-lookup": hot("index-lookup", "sample that is looked up in an index", 4000, 12000),
    "index-scan": hot("index-scan", "sample of a walk through an index", 4000, 12000),
    "tar-scan": hot("tar-scan", "sample of 4 KB of a tar shard that is indexed", 640, 3200),
    "s3-get": hot("s3-get", "GET of 64 KiB that is verified, without the network", 100, 300),
    "s3-list": hot("s3-list", "object of a listing", 1000, 5000),
    "service-batch": hot(
        "service-batch",
        "batch of 64 images of 64 x 64, sent and taken by the data service, without the network",
        10,
        50,
    ),
    "decode": decode("center_u8", "plain"),
    "decode-augmented": decode("augment_f32", "plain"),
    "decode-tiles": decode("augment_f32", "tiles"),
    "feed": HotPath(
        "small image, from a folder to a batch, by `millrace feed`", "millrace", FEED, 2, 8, PHOTOS, THREADS
    ),
    "cat": HotPath("MiB that `millrace cat` reads from S3", "millrace", CAT, *READ_MIB, counts=ALL),
    "cat-faults": HotPath("the same: page faults", "millrace", CAT, *TOUCHED_MIB, counts=FAULTS),
    "cp": HotPath("object of 115 KB that `millrace cp` copies from S3", "millrace", CP, *COPIED, counts=ALL),
    "cp-calls": HotPath("the same: system calls", "millrace", CP, *COPIED, counts=CALLS),
}


def fail(why: str, status: int) -> NoReturn:
    print(f"instructions.py: {why}", file=sys.stderr)
    sys.exit(status)


def compiler(build: Path) -> str:
    """ "GNU 12", as CMake calls it."""
    found = [*build.glob("CMakeFiles/*/CMakeCXXCompiler.cmake")]
    text = found[-1].read_text() if found else ""
    name = re.search(r'set\(CMAKE_CXX_COMPILER_ID "([^"]+)"\)', text)
    version = re.search(r'set\(CMAKE_CXX_COMPILER_VERSION "(\d+)', text)
    return f"{name[1]} {version[1]}" if name and version else "unknown"


def obstacle(build: Path, wanted: str) -> str:
    """Why instructions cannot be counted here, or not compared with the file's; "" if they can."""
    if shutil.which("valgrind") is None:
        return "valgrind is not installed: apt-get install valgrind, or scripts/setup"
    flags = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    if platform.machine() != "x86_64" or not flags or not FEATURES <= set(flags[1].split()):
        return f"the figures are those of an x86-64 processor with {', '.join(sorted(FEATURES))}, which this one is not"
    tried = subprocess.run(
        ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode != 0 or "Collected : " not in tried.stderr:
        return f"valgrind does not work here: {' '.join(tried.stderr.split())[-300:]}"
    cache = build / "CMakeCache.txt"
    if not cache.exists() or "CMAKE_BUILD_TYPE:STRING=Release\n" not in cache.read_text():
        return f"{build} is not a release build: cmake --preset release && cmake --build --preset release, or name another one by --build"
    if "CMAKE_CXX_FLAGS:STRING=\n" not in cache.read_text():
        return f"{build} was made with flags of its own (CMAKE_CXX_FLAGS), and the figures are not"
    if compiler(build) != wanted:
        return f"the figures are those of {wanted}, and {build} was made by {compiler(build)}: with --update they become those of this compiler"
    return ""


def run(program: Path, *arguments: Any, environment: dict[str, str]) -> None:
    done = subprocess.run([program, *map(str, arguments)], env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        fail(f"{program.name} failed: {done.stderr.strip()}", 1)


def prepare(programs: Path, data: Path, environment: dict[str, str]) -> None:
    run(programs / "decode_bench", "--count", 1, "--save", data / "plain", environment=environment)
    run(programs / "decode_bench", "--count", 1, "--tiles", "--save", data / "tiles", environment=environment)
    run(programs / "millrace", "synth", data / "photos", "--count", PHOTOS, "--kb", 3, environment=environment)
    run(programs / "millrace", "index", data / "photos", environment=environment)


@contextmanager
def served(programs: Path, data: Path, environment: dict[str, str]) -> Iterator[dict[str, str]]:
    """Runs devstore with the objects that `cat` and `cp` read; gives the environment to reach it by."""
    large = data / "served/hot/mib"
    large.mkdir(parents=True)
    for mib in {*READ_MIB, *TOUCHED_MIB}:
        with (large / str(mib)).open("wb") as file:
            file.truncate(mib << 20)  # takes no place
    command = [str(programs / "millrace"), "devstore", str(data / "served")]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout
            address = server.stdout.readline().strip().rpartition(" ")[2]
            keys = {"AWS_ACCESS_KEY_ID": "millrace", "AWS_SECRET_ACCESS_KEY": "millrace-secret"}
            reached = {**environment, **keys, "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": address}
            for count in COPIED:  # so that devstore knows their checksums
                folder = data / f"objects-{count}"
                folder.mkdir()
                for i in range(count):
                    (folder / f"{i}.bin").write_bytes(i.to_bytes(4, "little") * 28_750)
                copy = ("cp", "--recursive", folder, f"s3://hot/objects/{count}")
                run(programs / "millrace", *copy, environment=reached)
            yield reached
        finally:
            server.terminate()


def counted(command: list[str], counts: str, environment: dict[str, str], folder: Path) -> int:
    """Counts main() alone, or another number of HotPath. Libraries that measure the clock while they are loaded take half a million instructions more or less."""
    folder.mkdir(parents=True)
    log = folder / "log"
    tool = ["valgrind", "--tool=callgrind", "--fair-sched=try", f"--log-file={log}"]
    options = {
        MAIN: ["--callgrind-out-file=/dev/null", "--toggle-collect=main"],
        THREADS: [f"--callgrind-out-file={folder}/figures", "--separate-threads=yes"],
        ALL: ["--callgrind-out-file=/dev/null"],
        CALLS: ["--callgrind-out-file=/dev/null", "--collect-systime=usec"],
    }
    done = subprocess.run(
        [*tool, *options[counts], *command],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    said = log.read_text() if log.exists() else ""
    collected = re.search(r"Collected : (\d+)(?: (\d+))?", said)
    found = int(collected[2 if counts == CALLS else 1] or 0) if done.returncode == 0 and collected else 0
    if found and counts == THREADS:  # a file for each of them; the first is that of main()
        totals = [
            re.search(r"^totals: (\d+)", path.read_text(), re.MULTILINE)
            for path in folder.glob("figures-*")
            if path.name != "figures-01"
        ]
        found = sum(int(total[1]) for total in totals if total)
    if not found:
        fail(
            f"{' '.join(command)} failed under valgrind: {done.stderr.strip() or said.strip()[-500:] or done.returncode}",
            1,
        )
    shutil.rmtree(folder)
    return found


def page_faults(command: list[str], environment: dict[str, str]) -> int:
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as program:
        _, status, used = os.wait4(program.pid, 0)
        program.returncode = os.waitstatus_to_exitcode(status)
    if program.returncode != 0:
        fail(f"{' '.join(command)} failed: {program.returncode}", 1)
    return used.ru_minflt


Runs = dict[str, tuple[int, int]]  # what few and many times take, by path


class Counter:
    """Runs paths, two at a time."""

    def __init__(self, programs: Path, data: Path, environment: dict[str, str]) -> None:
        self.programs = programs
        self.data = data
        self.environment = environment

    def count(self, names: Iterable[str]) -> Runs:
        with ThreadPoolExecutor(2) as pool:
            runs = {
                name: (pool.submit(self._run, name, PATHS[name].few), pool.submit(self._run, name, PATHS[name].many))
                for name in names
            }
            return {name: (few.result(), many.result()) for name, (few, many) in runs.items()}

    def _run(self, name: str, often: int) -> int:
        path = PATHS[name]
        folder = self.data / f"{name}-{often}"
        out = self.data / f"{name}-{often}-out"
        arguments = path.arguments.format(n=often, data=self.data, out=out).split()
        command = [str(self.programs / path.program), *arguments]
        try:
            if path.counts == FAULTS:
                return page_faults(command, self.environment)
            return counted(command, path.counts, self.environment, folder)
        finally:
            shutil.rmtree(out, ignore_errors=True)


def of_an_item(runs: Runs) -> dict[str, float]:
    return {
        name: (many - few) / (PATHS[name].each * (PATHS[name].many - PATHS[name].few))
        for name, (few, many) in runs.items()
    }


def count(programs: Path, known: dict[str, float]) -> dict[str, float]:
    """Returns the instructions of an item of each path."""
    with tempfile.TemporaryDirectory(prefix="instructions-") as folder:
        data = Path(folder)
        environment = {
            "PATH": os.environ["PATH"],
            "LC_ALL": "C",
            "MILLRACE_CACHE": f"{data}/cache",
            **COPIES_IN_WORDS,
        }
        prepare(programs, data, environment)
        with served(programs, data, environment) as reached:
            counter = Counter(programs, data, reached)
            runs = counter.count(PATHS)
            for _ in range(TRIES - 1):
                again = [name for name, number in of_an_item(runs).items() if number > MORE * known.get(name, number)]
                for name, (few, many) in counter.count(again).items():
                    runs[name] = (min(runs[name][0], few), min(runs[name][1], many))
    return of_an_item(runs)


def compare(counted: dict[str, float], known: dict[str, float]) -> list[str]:
    """Prints both, and returns what is wrong."""
    print(f"{'':18} {'counted':>14} {'in the file':>14} {'ratio':>6}  for each")
    wrong = []
    for name, now in counted.items():
        item = PATHS[name].item if name in PATHS else ""
        if name not in known:
            print(f"{name:18} {now:14,.1f} {'-':>14} {'':6}  {item}")
            wrong.append(f"{name} is not in the file")
            continue
        ratio = now / known[name]
        print(f"{name:18} {now:14,.1f} {known[name]:14,.1f} {ratio:6.2f}  {item}")
        if now <= 0:
            wrong.append(f"{name} was not counted")
        elif ratio > MORE:
            wrong.append(f"{name} takes {ratio:.2f} times the instructions that the file says")
        elif ratio < FEWER:
            print(f"{'':18} fewer than before: write them down by --update")
    return wrong + [f"{name} is in the file, but is not counted any more" for name in known if name not in counted]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--build",
        type=Path,
        default=REPOSITORY / "build/release",
        help="the build whose programs are run (default: build/release)",
    )
    parser.add_argument(
        "--table",
        type=Path,
        default=REPOSITORY / "bench/instructions.json",
        help="the file to compare with (default: bench/instructions.json)",
    )
    parser.add_argument("--update", action="store_true", help="write the table")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was counted there")
    parser.add_argument(
        "--figures", type=Path, metavar="FILE", help="count nothing, and compare these, which --json has written"
    )
    options = parser.parse_args()
    table: dict[str, Any] = json.loads(options.table.read_text()) if options.table.exists() else {"instructions": {}}
    made_by = compiler(options.build)
    if options.figures:
        counted = json.loads(options.figures.read_text())
    else:
        why = obstacle(options.build, made_by if options.update else table.get("compiler", ""))
        if why:
            fail(why, CANNOT)
        counted = count(options.build / "bin", table["instructions"])
    if options.json:
        options.json.write_text(json.dumps(counted, indent=1) + "\n")
    wrong = compare(counted, table["instructions"])
    if options.update:
        rounded = {name: float(f"{number:.4g}") for name, number in counted.items()}
        options.table.write_text(json.dumps({"compiler": made_by, "instructions": rounded}, indent=1) + "\n")
        print(f"written to {options.table}")
    elif wrong:
        fail(
            "; ".join(wrong)
            + ". If that is meant, run bench/instructions.py --update and commit bench/instructions.json",
            1,
        )


if __name__ == "__main__":
    main()
