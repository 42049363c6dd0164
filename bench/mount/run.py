#!/usr/bin/env python3
"""Compares `millrace mount` with Debian's s3fs and rclone mount, and with a file system that has everything in memory (ceiling.cc).

The same programs read the same files of one devstore. An epoch also reads them from the local disk. Each row is printed as it is measured. At the end come the ratios of Millrace
to the best rival, to the ceiling and to local files.

    ```
    apt-get install s3fs rclone fio    # once; what is missing is left out, and said
    bench/mount/run.py --quick         # a few minutes: shows that everything works
    bench/mount/run.py --list          # the scenarios
    bench/mount/run.py --scenario random fio --latencies 30 --only millrace s3fs
    bench/mount/run.py --scenario write --repeats 9 --mib 256 --only millrace    # staging beside --no-staging, in turn
    bench/mount/run.py --json result.json
    ```

A cache leaves 5 % of its disk free: if there is no room for all files beside that, `millrace --cache` is left out, and said. TMPDIR names another disk.
The scenarios "fio ..." are the families of Mountpoint's benchmark: sequential and random, by the page cache and past it (direct), one job and four.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "s3"))
import harness
from rival_task import cpu_seconds

REPOSITORY = Path(__file__).resolve().parents[2]
PYTHON = REPOSITORY / ".venv/bin/python"  # it has PyTorch
MIB = 1 << 20
CACHE_LEAVES_FREE = 0.05  # of the disk: DiskCache's free_share

# A program that the mounts serve, in a process of its own: the client's CPU is not the mount's.
READER = """
import os, random, sys, time
kind, root, seed, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
block = random.Random(seed).randbytes(1 << 20) if kind == "write" else b""
def whole(path):
    total = 0
    with open(path, "rb", buffering=0) as file:
        while block := file.read(1 << 20): total += len(block)
    return total
def images():
    classes = sorted(entry.name for entry in os.scandir(root + "/small") if entry.is_dir())
    return [f"{root}/small/{name}/{file}" for name in classes for file in sorted(os.listdir(f"{root}/small/{name}"))]
began = time.monotonic()
if kind == "sequential":
    work, unit = whole(root + f"/large{seed}"), "MB"
elif kind == "write":
    with open(root + f"/written{seed}", "wb", buffering=0) as file:
        for _ in range(count): file.write(block)
    work, unit = count << 20, "MB"
elif kind.startswith("random"):
    size, rng, fd = int(kind[6:]), random.Random(seed), os.open(root + "/large0", os.O_RDONLY)
    length = os.fstat(fd).st_size
    work, unit = sum(len(os.pread(fd, size, rng.randrange(length // size) * size)) > 0 for _ in range(count)), "reads"
elif kind == "cat":
    work, unit = sum(whole(path) >= 0 for path in images()[:count]), "files"
elif kind == "find":
    work, unit = sum(len(files) for _, _, files in os.walk(root + "/small")), "files"
elif kind == "epoch":
    from torch.utils.data import DataLoader, Dataset
    class Images(Dataset):
        def __init__(self):
            self.paths = images()
            random.Random(seed).shuffle(self.paths)
            if len(sys.argv) > 5: self.paths = [root + "/" + line.strip() for line in open(sys.argv[5])]
        def __len__(self): return min(count, len(self.paths))
        def __getitem__(self, i): return whole(self.paths[i])
    data = Images()
    began = time.monotonic()
    work, unit = sum(len(batch) for batch in DataLoader(data, batch_size=32, num_workers=4)), "files"
elif kind == "pictures":
    import numpy, torch
    from PIL import Image
    from torch.utils.data import DataLoader, Dataset
    class Pictures(Dataset):
        def __init__(self):  # it lists the folder first, as torchvision's ImageFolder does
            classes = [entry.path for entry in os.scandir(root + "/pictures") if entry.is_dir()]
            found = {f"{folder}/{file}" for folder in classes for file in os.listdir(folder)}
            self.paths = [path for line in open(sys.argv[5]) if (path := root + "/" + line.strip()) in found][:count]
        def __len__(self): return len(self.paths)
        def __getitem__(self, i):
            with open(self.paths[i], "rb") as file: picture = Image.open(file).convert("RGB").resize((224, 224))
            return torch.from_numpy(numpy.array(picture)).permute(2, 0, 1).float().div_(255)
    data = Pictures()
    began = time.monotonic()
    work, unit = sum(len(batch) for batch in DataLoader(data, batch_size=32, num_workers=4)), "files"
print(work, time.monotonic() - began, unit)
"""


PICTURES = """
import sys
import numpy
from PIL import Image
rng = numpy.random.default_rng(1)
for i in range(16):
    coarse = Image.fromarray(rng.integers(0, 256, (24, 32, 3), dtype=numpy.uint8)).resize((500, 375), Image.Resampling.BICUBIC)
    pixels = numpy.asarray(coarse, dtype=numpy.int16) + rng.integers(-20, 21, (375, 500, 3), dtype=numpy.int16)
    Image.fromarray(pixels.clip(0, 255).astype(numpy.uint8)).save(f"{sys.argv[1]}/{i:02}.jpg", quality=85)
"""


@dataclass
class Workload:
    name: str
    kind: str  # of READER, whose "write" writes `count` MiB; or "fio read", "fio randread"
    readers: int = 1
    count: int = 0
    warm: bool = False  # measured when everything was read once
    order: str = ""  # the files are opened in the order of this file, which Millrace is told
    direct: bool = False
    seconds: int = 0  # at most, of fio
    bytes: int = 0  # of a read of fio


@dataclass
class Contestant:
    name: str
    command: Callable[[Path, dict[str, str]], list[str]]  # of the mount, given the folder and the settings of S3
    missing: str = ""


def python() -> str:
    return str(PYTHON if PYTHON.exists() else sys.executable)


def make_pictures(folder: Path, files: int) -> list[str]:
    """Returns JPEGs of about 100 KB; their names. The same few, since it takes long to make one."""
    with tempfile.TemporaryDirectory() as few:
        subprocess.run([python(), "-c", PICTURES, few], check=True)
        pictures = [path.read_bytes() for path in sorted(Path(few).iterdir())]
    names = [f"class{i % 100:03}/{i:06}.jpg" for i in range(files)]
    for i, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(pictures[i % len(pictures)])
    return names


def make_corpus(root: Path, large_mib: int, files: int) -> None:
    bucket = root / "b"
    bucket.mkdir(parents=True)
    rng = random.Random(1)
    for number in range(4):
        (bucket / f"large{number}").write_bytes(rng.randbytes(MIB) * large_mib)
    per_class = max(10, files // 100)
    for i in range(files):
        path = bucket / "small" / f"class{i // per_class:03}" / f"{i:06}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(rng.randbytes(10_000))
    names = [str(path.relative_to(bucket / "small")) for path in sorted((bucket / "small").rglob("*.jpg"))]
    pictures = make_pictures(bucket / "pictures", max(20, files // 20))
    for folder, listed in (("small", names), ("pictures", pictures)):
        random.Random(7).shuffle(listed)
        (root / f"order-of-{folder}").write_text("".join(f"{folder}/{name}\n" for name in listed))


def no_room(root: Path, corpus: int) -> str:
    """Why a cache of all files would refuse some of them; "" if it would not."""
    disk = shutil.disk_usage(root)
    needed = corpus + CACHE_LEAVES_FREE * disk.total
    if disk.free >= needed:
        return ""
    return f"the disk has {disk.free / 1e9:.1f} GB free, and the cache needs {needed / 1e9:.1f} GB, with the 5 % that it leaves free: set TMPDIR"


def contestants(
    options: argparse.Namespace, root: Path, workload: Workload, cache: Path, corpus: int
) -> list[Contestant]:
    writes = workload.kind == "write"
    reads_bytes = workload.kind.startswith(("sequential", "random"))

    def millrace(*more: str) -> Callable[[Path, dict[str, str]], list[str]]:
        common = [str(options.build / "millrace"), "mount", "s3://b"]
        return lambda folder, _: [*common, str(folder), "--foreground", "--metadata-ttl", "indefinite", *more]

    def s3fs(folder: Path, settings: dict[str, str]) -> list[str]:
        more = f"url={settings['AWS_ENDPOINT_URL']},use_path_request_style,endpoint=us-east-1,stat_cache_expire=3600"
        more += "" if writes else ",ro"
        return ["s3fs", "b", str(folder), "-f", "-o", more]

    def rclone(folder: Path, settings: dict[str, str]) -> list[str]:
        s3 = [
            "--s3-provider=Other",
            f"--s3-endpoint={settings['AWS_ENDPOINT_URL']}",
            "--s3-env-auth",
            "--s3-force-path-style",
        ]
        return [
            "rclone",
            "mount",
            ":s3:b",
            str(folder),
            *s3,
            *(["--vfs-cache-mode=writes", f"--cache-dir={cache}"] if writes else ["--read-only"]),
            "--dir-cache-time=1h",
            "--config=/dev/null",
        ]

    def local(folder: Path, _: dict[str, str]) -> list[str]:
        return ["sh", "-c", 'mount --bind "$1" "$2" && exec sleep 86400', "sh", str(root / "b"), str(folder)]

    def missing(program: str) -> str:
        return "" if shutil.which(program) else f"{program} is not installed: apt-get install {program}"

    order = ["--order", str(root / workload.order)] if workload.order else []
    if writes:
        return [
            Contestant("millrace", millrace("--writable", "--staging", str(cache))),
            Contestant("millrace --no-staging", millrace("--writable", "--no-staging")),
            Contestant("s3fs", s3fs, missing("s3fs")),
            Contestant("rclone", rclone, missing("rclone")),
        ]
    mounts = [
        Contestant("millrace", millrace(*order)),
        *([Contestant("millrace --writable", millrace("--writable", "--staging", str(cache)))] if reads_bytes else []),
        Contestant("millrace --cache", millrace("--cache", str(cache), *order), no_room(root, corpus)),
        Contestant("s3fs", s3fs, missing("s3fs")),
        Contestant("rclone", rclone, missing("rclone")),
        Contestant("ceiling", lambda folder, _: [str(options.build / "mount_ceiling"), str(root / "b"), str(folder)]),
    ]
    return [*mounts, Contestant("local files", local)] if workload.kind in ("epoch", "pictures") else mounts


def is_mounted(folder: Path) -> bool:
    return any(line.split(" ")[4] == str(folder) for line in Path("/proc/self/mountinfo").read_text().splitlines())


@contextlib.contextmanager
def mounted(contestant: Contestant, folder: Path, settings: dict[str, str]) -> Iterator[int]:
    """Yields the pid of the file system."""
    # s3fs takes no session-wide AWS variables but these.
    env = {
        **os.environ,
        **settings,
        "AWSACCESSKEYID": settings["AWS_ACCESS_KEY_ID"],
        "AWSSECRETACCESSKEY": settings["AWS_SECRET_ACCESS_KEY"],
    }
    env.pop("AWS_CA_BUNDLE", None)  # rclone refuses to start with one; the store speaks http
    with tempfile.TemporaryFile() as errors:  # not a pipe, which would be full some day
        process = subprocess.Popen(
            contestant.command(folder, settings), env=env, stderr=errors, stdout=subprocess.DEVNULL
        )
        try:
            deadline = time.monotonic() + 60
            while not is_mounted(folder):
                if process.poll() is not None or time.monotonic() > deadline:
                    errors.seek(0)
                    raise RuntimeError(
                        f"{contestant.name} does not mount: {errors.read().decode(errors='replace')[-500:]}"
                    )
                time.sleep(0.02)
            yield process.pid
        finally:
            subprocess.run(["umount", "-l", folder], stderr=subprocess.DEVNULL, check=False)
            process.terminate()
            process.wait()


def run_fio(workload: Workload, folder: Path) -> tuple[float, float]:
    """Returns the amount of work, in MB or reads, and its seconds."""
    rw = workload.kind.removeprefix("fio ")
    jobs = f"""[global]
ioengine=psync
rw={rw}
bs={workload.bytes}
direct={int(workload.direct)}
runtime={workload.seconds}
group_reporting
"""
    jobs += "".join(f"[job{number}]\nfilename={folder}/large{number}\n" for number in range(workload.readers))
    with tempfile.NamedTemporaryFile("w", suffix=".fio") as file:
        file.write(jobs)
        file.flush()
        done = subprocess.run(
            ["fio", "--readonly", "--output-format=json", file.name],
            capture_output=True,
            text=True,
            check=False,
            timeout=workload.seconds + 300,
        )
    if done.returncode:
        raise RuntimeError(f"fio: {done.stderr.strip() or done.stdout[-300:]}")
    read = json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]["read"]
    seconds = read["runtime"] / 1000
    return (read["io_bytes"] / 1e6 if rw == "read" else read["total_ios"]), seconds


def measure(workload: Workload, folder: Path, pid: int, root: Path) -> dict[str, Any]:
    if workload.kind.startswith("fio "):
        cpu, began = cpu_seconds(pid), time.monotonic()
        amount, seconds = run_fio(workload, folder)
        unit = "MB" if workload.kind == "fio read" else "reads"
        return {
            "work": amount,
            "unit": unit,
            "seconds": seconds,
            "rate": amount / seconds,
            "cpu": cpu_seconds(pid) - cpu,
            "all": time.monotonic() - began,
        }
    order = [str(root / workload.order)] if workload.order else []
    command = [python(), "-W", "ignore", "-c", READER, workload.kind, str(folder)]
    cpu, began = cpu_seconds(str(pid)), time.monotonic()
    readers = [
        subprocess.Popen([*command, str(seed), str(workload.count), *order], stdout=subprocess.PIPE, text=True)
        for seed in range(workload.readers)
    ]
    answers = [reader.communicate()[0].split() for reader in readers]
    if any(reader.returncode for reader in readers):
        raise RuntimeError(f"{workload.name}: a reader failed")
    work, unit = sum(int(answer[0]) for answer in answers), answers[0][2]
    seconds = max(float(answer[1]) for answer in answers)
    if unit == "MB":
        work //= 1_000_000
    return {
        "work": work,
        "unit": unit,
        "seconds": seconds,
        "rate": work / seconds,
        "cpu": cpu_seconds(str(pid)) - cpu,
        "all": time.monotonic() - began,
    }


def workloads(quick: bool, mib: int) -> list[Workload]:
    few = 200 if quick else 1
    seconds = 1 if quick else 15
    fio = [
        Workload(
            f"fio {name}{', direct' if direct else ''}, {jobs} job{'s' if jobs > 1 else ''}",
            f"fio {rw}",
            jobs,
            direct=direct,
            seconds=seconds,
            bytes=size,
        )
        for name, rw, size in (
            ("sequential", "read", 262144),
            ("random", "randread", 262144),
            ("random 4 KiB", "randread", 4096),
        )
        for direct in (False, True)
        for jobs in (1, 4)
        if not quick or jobs == 1
    ]
    fio.append(
        Workload("fio sequential, direct, warm", "fio read", direct=True, warm=True, seconds=seconds, bytes=262144)
    )
    return [
        Workload("sequential, 1 reader", "sequential"),
        Workload("sequential, 4 readers", "sequential", readers=4),
        Workload("sequential, 1 reader, warm", "sequential", warm=True),
        Workload("random 4 KiB", "random4096", count=2000 // (40 if quick else 1)),
        Workload("random 128 KiB", "random131072", count=2000 // (40 if quick else 1)),
        Workload("write, 1 writer", "write", count=mib),
        Workload("write, 4 writers", "write", readers=4, count=mib // 4),
        Workload("find", "find"),
        Workload("small files in order", "cat", count=20_000 // few),
        Workload("epoch, shuffled", "epoch", count=20_000 // few),
        Workload("epoch, in the order of a file", "epoch", count=20_000 // few, order="order-of-small"),
        Workload("pictures, in the order of a file", "pictures", count=5000 // few, order="order-of-pictures"),
        *fio,
    ]


def chosen(options: argparse.Namespace) -> list[Workload]:
    return [
        workload
        for workload in workloads(options.quick, options.mib)
        if not options.scenario or any(word in workload.name for word in options.scenario)
    ]


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="millrace-mount-bench-") as name:
        root = Path(name)
        kinds = {workload.kind for workload in chosen(options)}
        has_few = options.quick or all(kind.startswith(("write", "sequential", "random")) for kind in kinds)
        make_corpus(root, 1 if kinds == {"write"} else options.mib, 200 if has_few else 100_000)
        corpus = sum(path.stat().st_size for path in (root / "b").rglob("*") if path.is_file())
        (root / "mnt").mkdir()
        for latency in options.latencies:
            # A store that shares the disk with the staging folder would halve what that takes.
            place = ("mem:", ["--bucket", "b"]) if kinds == {"write"} else (root, [])
            with harness.devstore(
                options, place[0], [*place[1], "--first-byte-ms", str(latency), "--first-byte-sigma", "0"]
            ) as settings:
                for turn, workload in enumerate([one for one in chosen(options) for _ in range(options.repeats)]):
                    cache = root / f"cache{len(rows)}"
                    in_turn = contestants(options, root, workload, cache, corpus)
                    for contestant in reversed(in_turn) if turn % 2 else in_turn:  # none is always the first
                        if options.only and not any(contestant.name.startswith(name) for name in options.only):
                            continue
                        row: dict[str, Any] = {
                            "latency_ms": latency,
                            "workload": workload.name,
                            "contestant": contestant.name,
                        }
                        needed = "fio" if workload.kind.startswith("fio ") else ""
                        if contestant.missing:
                            row["missing"] = contestant.missing
                        elif needed and not shutil.which(needed):
                            row["missing"] = f"{needed} is not installed: apt-get install {needed}"
                        else:
                            try:
                                if workload.kind == "write":
                                    os.sync()  # what the store has left in memory in the run before
                                with mounted(contestant, root / "mnt", settings) as pid:
                                    if workload.warm:
                                        measure(workload, root / "mnt", pid, root)
                                    row |= measure(workload, root / "mnt", pid, root)
                            except RuntimeError as error:
                                row["missing"] = str(error)
                        rows.append(row)
                        show(row)
                    # Many small files stay to the end: for minutes after many were removed, ext4 makes new ones several times slower.
                    if workload.kind not in ("cat", "find", "epoch", "pictures"):
                        shutil.rmtree(cache, ignore_errors=True)
    return rows


def show(row: dict[str, Any]) -> None:
    head = f"{row['latency_ms']:>4} ms  {row['workload']:<40} {row['contestant']:<18}"
    if "missing" in row:
        print(f"{head} - {row['missing'].strip().splitlines()[-1]}", flush=True)
    else:
        print(
            f"{head} {row['rate']:>10.1f} {row['unit']:<6}/s  {row['seconds']:>8.2f} s  {row['cpu']:>7.2f} CPU-s",
            flush=True,
        )


def show_pairs(rows: list[dict[str, Any]]) -> None:
    """Prints the two that differ in staging alone, as medians over the pairs that ran one after the other."""
    for plain, staged in (("millrace --no-staging", "millrace"), ("millrace", "millrace --writable")):
        for latency, name in dict.fromkeys((row["latency_ms"], row["workload"]) for row in rows):
            mine = [row for row in rows if (row["latency_ms"], row["workload"]) == (latency, name) and "rate" in row]
            of = {who: [row for row in mine if row["contestant"] == who] for who in (plain, staged)}
            if not (pairs := list(zip(of[plain], of[staged], strict=False))):
                continue
            rates = [two["rate"] / one["rate"] for one, two in pairs]
            work = [two["cpu"] / one["cpu"] for one, two in pairs if one["cpu"]]
            print(
                f"{latency:>4} ms  {name:<28} {staged} / {plain}: rate {statistics.median(rates):.2f} "
                f"({min(rates):.2f} to {max(rates):.2f}), CPU-s {statistics.median(work or [0]):.2f}, {len(pairs)} pairs"
            )


def show_ratios(rows: list[dict[str, Any]]) -> None:
    """Compares Millrace, the better of the two, against the best rival, the ceiling, and local files."""
    measured: dict[tuple[int, str], dict[str, list[float]]] = {}
    for row in rows:
        if "rate" in row:
            of_all = measured.setdefault((row["latency_ms"], row["workload"]), {})
            of_all.setdefault(row["contestant"], []).append(row["rate"])
    print(
        "\nMillrace to the best rival, to the ceiling, and to local files; writing also with staging to that without:"
    )
    for (latency, name), repeats in measured.items():
        rates = {who: statistics.median(each) for who, each in repeats.items()}
        own = max((rate for who, rate in rates.items() if who.startswith("millrace")), default=0.0)
        rival = max((rates[who] for who in ("s3fs", "rclone") if who in rates), default=0.0)
        others = (rival, rates.get("ceiling", 0.0), rates.get("local files", 0.0))
        ratios = [f"{own / other:>8.2f}" if own and other else f"{'-':>8}" for other in others]
        if "millrace" in rates and "millrace --no-staging" in rates:
            ratios.append(f"{rates['millrace'] / rates['millrace --no-staging']:>8.2f}")
        print(f"{latency:>4} ms  {name:<40} {' '.join(ratios)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="little data: shows that everything works, measures nothing"
    )
    parser.add_argument(
        "--latencies",
        type=int,
        nargs="+",
        metavar="MS",
        help="of the store's first byte (default: 0 30; with --quick 30)",
    )
    parser.add_argument("--scenario", nargs="+", metavar="WORD", help="only scenarios with one of these in their name")
    parser.add_argument(
        "--repeats",
        type=int,
        default=1,
        metavar="N",
        help="measure all contestants so often, in turn: medians (default: 1)",
    )
    parser.add_argument(
        "--mib",
        type=int,
        metavar="N",
        help="the size of large files, and of what is written (default: 1024; --quick 32)",
    )
    parser.add_argument("--list", action="store_true", help="name the scenarios, and measure nothing")
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", help="only contestants whose names begin so: millrace s3fs rclone ceiling"
    )
    harness.add_arguments(parser)
    options = parser.parse_args()
    options.mib = options.mib or (32 if options.quick else 1024)
    options.latencies = options.latencies or ([30] if options.quick else [0, 30])
    if not chosen(options):
        parser.error(f"no scenario has {' or '.join(options.scenario)} in its name; --list names them")
    if options.list:
        print("\n".join(workload.name for workload in chosen(options)))
        return
    harness.complete_arguments(parser, options, ["millrace", "mount_ceiling"])
    harness.enter_namespace()
    rows = run(options)
    show_ratios(rows)
    show_pairs(rows)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
