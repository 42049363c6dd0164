"""`millrace bench --rival`: loaders of others over the same data, beside Millrace. Those that the development environment has: PyTorch's DataLoader and WebDataset."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import types
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from cli_support import Millrace, needs_fuse

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests/shard"))

import mosaic  # noqa: E402

SHORT = [
    "--scenario",
    "d",
    "--quick",
    "--seconds",
    "0.1",
    "--repeats",
    "2",
    "--batch",
    "16",
    "--size",
    "64",
    "--memory",
    "64MiB",
    "--threads",
    "1",
]


def module(name: str) -> Any:
    folder = str(ROOT / "src/diagnose/rivals")
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module(name)


def loaders() -> Any:
    return module("rival_loaders")


def images() -> Any:
    return module("rival_images")


def test_the_names_of_the_program_and_of_the_command_are_the_same(millrace: Millrace) -> None:
    names = list(loaders().RIVALS)
    refused = millrace("bench", "--synthetic", "--rival", "nobody", code=2).stderr.decode()
    assert refused.rstrip().endswith("the names are " + ", ".join(names))
    help_text = " ".join(millrace("bench", "--help").stdout.decode().split())
    assert ", ".join(names) in help_text
    documented = (ROOT / "docs/bench.md").read_text()
    for name, rival in loaders().RIVALS.items():
        assert f"| `{name}` |" in documented and f"`{rival.packages}`" in documented


def test_all_can_be_installed_at_once() -> None:
    """By bench/setup_rivals: an environment for each name, with the packages that it needs."""
    (line,) = [
        line
        for line in (ROOT / "bench/setup_rivals").read_text().splitlines()
        if line.strip().startswith("for from in ")
    ]
    environments = dict(pair.split(":") for pair in line.split(" in ")[1].removesuffix("; do").split())
    assert sorted(",".join(environments.values()).split(",")) == sorted(loaders().RIVALS)
    for environment, names in environments.items():
        files = sorted((ROOT / "bench" / environment).glob("requirements*.txt"))
        there = {
            re.split(r"[=\[]", line)[0]
            for file in files
            for line in file.read_text().splitlines()
            if not line.startswith("#")
        }
        for name in names.split(","):
            assert {re.split(r"\[", package)[0] for package in loaders().RIVALS[name].packages.split()} <= there, name


def test_a_buffer_keeps_all_samples() -> None:
    for count in (0, 1, 999, 1000, 2500):
        came = list(images().shuffled(iter(range(count))))
        assert sorted(came) == list(range(count))
        assert count < 2 or came != list(range(count))


def test_errors_say_why_and_show_no_signature() -> None:
    assert (
        loaders().said(OSError("curl 'http://h/k?X-Amz-Signature=abc&x=1'\n failed")) == "curl 'http://h/k?...' failed"
    )
    long = loaders().said(OSError("x" * 1000 + " and why"))
    assert len(long) == 303 and long.endswith("and why")


def test_epochs_follow_one_another() -> None:
    begun = []

    def epoch() -> Any:
        begun.append(len(begun))
        return iter([f"{begun[-1]}{batch}" for batch in "ab"])

    stream = loaders().Stream(epoch)
    assert [stream.next() for _ in range(5)] == ["0a", "0b", "1a", "1b", "2a"] and stream.ended == 2
    with pytest.raises(RuntimeError, match="no samples"):
        loaders().Stream(lambda: iter([])).next()


# As PyTorch does with the workers of a DataLoader.
RAISES_IF_A_WORKER_IS_KILLED = """
import signal, subprocess, sys
import rival_loaders

def fail(*_):
    raise RuntimeError("a worker was killed")

signal.signal(signal.SIGCHLD, fail)
worker = subprocess.Popen(["sleep", "1000"])
try:
    rival_loaders.end_workers()
    sys.exit(0 if worker.wait() == -signal.SIGKILL else 1)
finally:
    worker.kill()
"""


def test_workers_that_are_killed_at_the_end_are_no_failure() -> None:
    folder = str(Path(loaders().__file__).parent)
    subprocess.run(
        [sys.executable, "-c", RAISES_IF_A_WORKER_IS_KILLED],
        env={**os.environ, "PYTHONPATH": folder},
        check=True,
        timeout=600,
    )


@pytest.fixture
def photos(millrace: Millrace, tmp_path: Path) -> Path:
    """90 photographs as raw objects and in shards."""
    folder = tmp_path / "photos"
    millrace("synth", folder / "raw", "--count", "90", "--kb", "10")
    millrace("pack", folder / "raw", folder / "tar", "--shard-size", "256KiB")
    return folder


def task(folder: Path, **more: Any) -> Any:
    return images().Task(str(folder), "own", 16, 1, 32, folder, load=lambda data: data, **more)


def test_records_of_tfrecord_shards_are_found(millrace: Millrace, photos: Path) -> None:
    millrace("pack", photos / "raw", photos / "tfrecord", "--format", "tfrecord", "--shard-size", "256KiB")
    keys = images().keys_below(task(photos / "tfrecord"), (".tfrecord", ".tfrecords"))
    assert len(keys) > 1
    records = [record for key in keys for record in module("rival_frameworks").records(Path(key).read_bytes())]
    stored = [path.read_bytes() for path in (photos / "raw").rglob("*.jpg")]
    assert len(records) == len(stored) == 90
    assert all(any(data in record for record in records) for data in stored)


def copied(name: str, photos: Path, into: Path) -> subprocess.CompletedProcess[str]:
    program = [
        sys.executable,
        ROOT / "src/diagnose/rivals/rival_loaders.py",
        name,
        photos / "tar",
        "--kind",
        "tar",
        "--environment",
        "an env",
    ]
    return subprocess.run(
        [*program, "--copy-from", photos / "tar", "--copy-to", into, "--scratch", into.with_suffix(".scratch")],
        capture_output=True,
        text=True,
        check=False,
    )


def test_copies_have_the_same_images(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = sorted(path.read_bytes() for path in (photos / "raw").rglob("*.jpg"))
    found = {folder: module("rival_copies").images_below(photos / folder) for folder in ("raw", "tar")}
    for images in found.values():
        assert sorted(image.read() for image in images) == stored
    writer, reader = mosaic.load()
    monkeypatch.setattr(module("rival_torch"), "import_streaming", lambda: types.SimpleNamespace(MDSWriter=writer))
    module("rival_copies").WRITERS["mds"](found["tar"], tmp_path / "mds", 200_000)
    shards = [
        reader.from_json(str(tmp_path / "mds"), None, shard)
        for shard in json.loads((tmp_path / "mds/index.json").read_text())["shards"]
    ]
    assert len(shards) > 1 and sorted(shard[n]["image"] for shard in shards for n in range(len(shard))) == stored


def test_a_copy_is_made_only_for_those_that_need_one(photos: Path, tmp_path: Path) -> None:
    program = [sys.executable, ROOT / "src/diagnose/rivals/rival_loaders.py"]
    for name, needs in (("webdataset", "no"), ("huggingface", "yes"), ("dali", "yes")):
        question = [*program, name, photos / "tar", "--kind", "tar", "--needs-copy", "--scratch", tmp_path / "scratch"]
        assert subprocess.run(question, capture_output=True, text=True, check=True).stdout == f"{needs}\n"
    done = copied("webdataset", photos, tmp_path / "none")
    assert done.returncode == 0 and not (tmp_path / "none").exists()
    done = copied(
        "huggingface", photos, tmp_path / "parquet"
    )  # whose writer the environment of the tests does not have
    assert (
        done.returncode == loaders().MISSING and "python3 -m venv 'an env' && 'an env'/bin/pip install " in done.stderr
    )


def test_each_format_of_a_rival_has_a_writer() -> None:
    for name, rival in loaders().RIVALS.items():
        assert rival.copy in {"", *module("rival_copies").WRITERS}, name
        assert "tar" in rival.reads or rival.reads[0] in module("rival_copies").WRITERS, name


def readers_of_dali(task: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Those of its pipeline, with what they were given."""
    library = MagicMock()
    library.pipeline_def.return_value = lambda images: lambda: (images(), MagicMock())[1]
    monkeypatch.setitem(sys.modules, "nvidia", library)
    monkeypatch.setitem(sys.modules, "nvidia.dali", library)
    module("rival_frameworks").dali(task)
    return library.fn.readers


def test_dali_gets_files_since_it_reads_shards_one_sample_at_a_time(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = copied("dali", photos, tmp_path / "files")
    assert copy.returncode == 0, copy.stderr
    assert [path.name for path in (tmp_path / "files").iterdir()] == [
        "images"
    ]  # a class, of which its reader takes all files
    stored = sorted(path.read_bytes() for path in (photos / "raw").rglob("*.jpg"))
    assert sorted(path.read_bytes() for path in (tmp_path / "files/images").iterdir()) == stored
    readers = readers_of_dali(task(tmp_path / "files"), monkeypatch)
    assert readers.file.call_args.kwargs["file_root"] == str(tmp_path / "files") and not readers.webdataset.called
    readers = readers_of_dali(task(photos / "tar"), monkeypatch)  # data of the user
    assert (
        sorted(readers.webdataset.call_args.kwargs["paths"]) == sorted(map(str, (photos / "tar").glob("*.tar")))
        and not readers.file.called
    )


def test_dali_reads_from_s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", MagicMock())
    keys: list[str] = []
    monkeypatch.setattr(module("rival_frameworks"), "keys_below", lambda task, names: keys)
    on_s3 = images().Task("s3://b/copies/dali", "own", 16, 1, 32, tmp_path, load=lambda data: data)
    given = readers_of_dali(on_s3, monkeypatch).file.call_args.kwargs
    assert given["file_root"] == "s3://b/copies/dali" and given["dont_use_mmap"]
    keys.append("copies/dali/1.tar")
    given = readers_of_dali(on_s3, monkeypatch).webdataset.call_args.kwargs
    assert given["paths"] == ["s3://b/copies/dali/1.tar"] and given["dont_use_mmap"]


def test_workers_of_mosaicml_have_connections_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = MagicMock()

    class Streaming:
        def __init__(self, **options: Any) -> None:
            self.streams, self._shm_prefix_int = [stream], 0

    monkeypatch.setattr(
        module("rival_torch"), "import_streaming", lambda: types.SimpleNamespace(StreamingDataset=Streaming)
    )
    for name in ("streaming", "streaming.base", "streaming.base.util"):
        monkeypatch.setitem(sys.modules, name, MagicMock())
    monkeypatch.setattr(module("rival_torch"), "data_loader", lambda dataset, task: dataset)
    module("rival_torch").mosaicml(task(tmp_path))
    assert stream._downloader.clean_up.called


def test_what_is_kept_is_not_read_again(photos: Path, tmp_path: Path) -> None:
    raw = images().Task(
        str(photos / "raw"), "raw", 16, 0, 32, tmp_path, load=lambda data: data, cache=tmp_path / "kept"
    )
    epochs = module("rival_torch").dataloader(raw)
    first = sorted(data for batch in epochs() for data in batch)
    stored = sorted(path.read_bytes() for path in (photos / "raw").rglob("*.jpg"))
    assert first == stored and len(list((tmp_path / "kept").iterdir())) == 90
    shutil.rmtree(photos / "raw")
    took = loaders().measure_epochs(epochs, 2)["epochs"]
    assert [epoch["samples"] for epoch in took] == [90, 90] and all(epoch["seconds"] > 0 for epoch in took)


def test_what_cannot_be_read_is_said(photos: Path) -> None:
    for name in ("s3fs", "rclone"):
        with pytest.raises(images().Refused, match="mounts buckets of S3"):
            getattr(module("rival_mounts"), name)(task(photos / "raw"))
    tar = images().Task("s3://b/tar", "tar", 16, 1, 32, photos, load=lambda data: data)
    with pytest.raises(
        images().Refused,
        match="it reads tfrecord, and these data are tar: give it a copy of its own by --rival tfdata=URI",
    ):
        tar.check("tfdata", loaders().RIVALS["tfdata"].reads)


def test_they_stand_beside_millrace(millrace: Millrace, photos: Path, tmp_path: Path) -> None:
    page, figures = tmp_path / "report.html", tmp_path / "report.json"
    rivals = ["--rival", f"dataloader={photos}/raw", "--rival", "webdataset,mosaicml"]
    # The workers of a DataLoader hand over tensors by sockets there, whose paths have at most 108 characters; else they lose them in silence.
    with tempfile.TemporaryDirectory(prefix="rivals-") as temporary:
        env = {"MILLRACE_PYTHON": sys.executable, "TMPDIR": temporary, "MILLRACE_CACHE": str(tmp_path / "cache")}
        text = millrace(
            "bench", photos / "tar", *SHORT, *rivals, "--html", page, "--json", figures, env=env
        ).stdout.decode()
        assert not os.listdir(temporary)
    report = json.loads(figures.read_text())
    assert [rival["name"] for rival in report["rivals"]] == ["dataloader", "webdataset", "mosaicml"]
    for rival in report["rivals"][:2]:
        assert "left_out" not in rival, rival
        assert rival["checked_images"] == 90  # each image of an epoch, once
        assert 0 < rival["mean_pixel"] < 255
        assert rival["samples_per_second"]["median"] > 0 and rival["cpu_seconds_per_1000_samples"]["median"] > 0
        assert rival["first_batch_seconds"] > 0 and "torch" in rival["versions"]
        assert re.search(rf"^  {rival['name']}, {rival['workers']} workers? +[0-9]", text, re.MULTILINE)
    assert report["rivals"][0]["uri"] == f"{photos}/raw"
    # It reads MDS shards, and these are not MDS shards.
    assert "it reads mds, and these data are tar" in report["rivals"][2]["left_out"]
    assert re.search("^  mosaicml, [0-9]+ workers? +left out: it reads mds", text, re.MULTILINE)
    body = "".join(ET.parse(page).getroot().itertext())
    for said in ("Other loaders over the same data", "webdataset", "left out: " + report["rivals"][2]["left_out"]):
        assert said in body
    fastest = max(report["rivals"][:2], key=lambda rival: rival["samples_per_second"]["median"])
    for told in (text, body):
        assert f"The fastest of 2 other loaders over the same data was {fastest['name']} with" in told
    plots = [plot.get("aria-label") for plot in ET.parse(page).getroot().iter("{http://www.w3.org/1999/xhtml}svg")]
    assert {
        "Samples per second of Millrace and of other loaders",
        "CPU-seconds of Millrace and of other loaders",
    } <= set(plots)


# In the place of Python: a hundred samples a second of each worker. Means that may be any are those of the images.
HUNDRED_EACH = """#!/bin/sh
for word in "$@"; do [ "$last" = --workers ] && workers=$word; last=$word; done
echo '{"first_batch_seconds": 1, "pixels": {"samples": 90, "mean": 100, "deviation": 10000, "whole_epoch": true},' \
  '"windows": [{"seconds": 1, "samples":' $((100 * workers)) ', "cpu_seconds": 1}]}'
"""


def test_numbers_of_workers_make_a_curve(millrace: Millrace, photos: Path, tmp_path: Path) -> None:
    python = tmp_path / "rivals/spdl/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(HUNDRED_EACH)
    python.chmod(0o755)
    page, figures = tmp_path / "report.html", tmp_path / "report.json"
    arguments = ["--rival", "spdl", "--rival-workers", "4,1", "--html", page, "--json", figures]
    text = millrace("bench", photos / "tar", *SHORT, *arguments, env={"MILLRACE_CACHE": str(tmp_path)}).stdout.decode()
    rivals = json.loads(figures.read_text())["rivals"]
    assert [(rival["name"], rival["workers"], rival["samples_per_second"]["median"]) for rival in rivals] == [
        ("spdl", 1, 100),
        ("spdl", 4, 400),
    ]
    assert "  spdl, 1 worker " in text and "  spdl, 4 workers " in text
    plots = [plot.get("aria-label") for plot in ET.parse(page).getroot().iter("{http://www.w3.org/1999/xhtml}svg")]
    assert "Samples per second of other loaders against their workers" in plots
    assert "Samples per second of Millrace and of other loaders" not in plots
    assert b"--rival-workers" in millrace("bench", photos / "tar", "--rival-workers", "0", code=2).stderr


def test_a_curve_ends_where_a_rival_is_left_out(millrace: Millrace, photos: Path, tmp_path: Path) -> None:
    few = HUNDRED_EACH.replace("echo '{", "[ $workers = 4 ] && { echo 'too many' >&2; exit 1; }\necho '{")
    for name, script in (("dataloader", few), ("spdl", HUNDRED_EACH)):
        python = tmp_path / "rivals" / name / "bin/python"
        python.parent.mkdir(parents=True)
        python.write_text(script)
        python.chmod(0o755)
    page = tmp_path / "report.html"
    arguments = ["--rival", "dataloader,spdl", "--rival-workers", "1,4", "--html", page]
    text = millrace("bench", photos / "tar", *SHORT, *arguments, env={"MILLRACE_CACHE": str(tmp_path)}).stdout.decode()
    assert re.search("^  dataloader, 1 worker +100", text, re.MULTILINE)
    assert re.search("^  dataloader, 4 workers +left out: too many", text, re.MULTILINE)
    plots = {
        plot.get("aria-label"): "".join(plot.itertext())
        for plot in ET.parse(page).getroot().iter("{http://www.w3.org/1999/xhtml}svg")
    }
    curves = plots["Samples per second of other loaders against their workers"]
    assert "dataloader" in curves and "spdl" in curves and "4: 400" in curves


# In the place of Python: the same, and notes what it was asked for.
NOTES_WHAT_IT_READS = """#!/bin/sh
for word in "$@"; do
  case "$last" in --workers) workers=$word ;; --kind) kind=$word ;; --batch) batch=$word ;; --check) check=$word ;; --epochs) epochs=$word ;; esac
  last=$word
done
if [ -n "$epochs" ]; then
  [ "$last" = --keep ] && later=1 || later=9
  echo '{"epochs": [{"seconds": 9, "samples": 80, "cpu_seconds": 1},' \
    '{"seconds": '$later', "samples": 80, "cpu_seconds": 1}, {"seconds": '$later', "samples": 80, "cpu_seconds": 1}]}'
  exit
fi
[ "$last" = --needs-copy ] || echo "$2 $kind $workers $batch $check" >>"$NOTES"
echo '{"first_batch_seconds": 1, "pixels": {"samples": 80, "mean": 100, "deviation": 10000, "whole_epoch": true},' \
  '"windows": [{"seconds": 1, "samples":' $((100 * workers)) ', "cpu_seconds": 1}]}'
"""


def test_curves_of_others_stand_beside_those_of_millrace(millrace: Millrace, tmp_path: Path) -> None:
    """Over raw objects by workers and by epochs, and over shards by their size."""
    names = ["dataloader", "s3torchconnector", "webdataset", "s3fs"]
    for name in names:
        python = tmp_path / "rivals" / name / "bin/python"
        python.parent.mkdir(parents=True)
        python.write_text(NOTES_WHAT_IT_READS)
        python.chmod(0o755)
    page, figures, notes = tmp_path / "report.html", tmp_path / "report.json", tmp_path / "notes"
    short = [
        "--seconds",
        "0.1",
        "--repeats",
        "2",
        "--batch",
        "16",
        "--size",
        "64",
        "--memory",
        "64MiB",
        "--threads",
        "1",
    ]
    data = [
        "--synthetic",
        "--samples",
        "80",
        "--first-byte-ms",
        "0",
        "--scenario",
        "a",
        "--scenario",
        "b",
        "--scenario",
        "c",
    ]
    rivals = ["--rival", ",".join(names), "--rival-workers", "4,1", "--html", page, "--json", figures]
    text = millrace(
        "bench", *data, *short, *rivals, env={"MILLRACE_CACHE": str(tmp_path), "NOTES": str(notes)}
    ).stdout.decode()
    report = json.loads(figures.read_text())

    objects = [
        (rival["name"], rival["workers"], rival["samples_per_second"]["median"])
        for rival in report["scenarios"]["a"]["rivals"]
    ]
    assert objects == [
        (name, workers, 100 * workers) for name in ("dataloader", "s3torchconnector", "s3fs") for workers in (1, 4)
    ]
    shards = [(rival["shard_bytes"], rival["name"], rival["workers"]) for rival in report["scenarios"]["c"]["rivals"]]
    sizes = [point["shard_bytes"] for point in report["scenarios"]["c"]["points"]]
    assert len(sizes) == 4 and shards == [(size, name, 4) for size in sizes for name in names[:3]]
    assert [(rival["name"], rival["workers"]) for rival in report["rivals"]] == [
        (name, workers) for name in names for workers in (1, 4)
    ]
    # Few images of a batch, so that each of four workers has several batches of an epoch of 80; and their pixels are compared.
    raw = [line for line in notes.read_text().splitlines() if " raw " in line]
    assert raw == [
        f"{name} raw {workers} 5 80" for name in ("dataloader", "s3torchconnector", "s3fs") for workers in (1, 4)
    ]

    epochs = report["scenarios"]["b"]["raw_objects"]
    assert [(one["name"], one["with_cache"]) for one in epochs] == [
        (name, kept) for name in ("millrace", "dataloader", "s3fs") for kept in (False, True)
    ]
    assert [epoch["samples"] for one in epochs for epoch in one["epochs"]] == [80] * 18
    for one in epochs[2:]:
        assert [epoch["seconds"] for epoch in one["epochs"]] == ([9, 1, 1] if one["with_cache"] else [9, 9, 9]) and one[
            "workers"
        ] == 4
    assert all(sum(epoch["GET"] for epoch in one["epochs"]) > 0 for one in epochs[:2])

    body = "".join(ET.parse(page).getroot().itertext())
    for said in ("dataloader, 4 workers", "webdataset, 16.0 MiB shards", "s3fs, with a cache"):
        assert said in text and said in body
    assert re.search(r"^Other loaders over the same raw objects at random \(a\)", text, re.MULTILINE)
    assert re.search(r"^Other loaders over the same shards \(c\)", text, re.MULTILINE)
    plots = {
        plot.get("aria-label"): "".join(plot.itertext())
        for plot in ET.parse(page).getroot().iter("{http://www.w3.org/1999/xhtml}svg")
    }
    curves = plots["Samples per second of other loaders over raw objects against their workers"]
    assert all(name in curves for name in ("dataloader", "s3torchconnector", "s3fs", "millrace, one process"))
    curves = plots["Seconds of each epoch over raw objects, without and with a cache"]
    assert all(name in curves for name in ("millrace, with a cache", "dataloader, with a cache"))
    curves = plots["Samples per second against the size of a shard"]
    assert all(name in curves for name in ("dataloader", "s3torchconnector", "webdataset", "millrace"))


# In the place of Python: mounts a folder where a rival mounts its bucket, and is killed, as is the program below the mount, which then is dead.
DIES_WITH_ITS_MOUNT = """#!/bin/sh
for word in "$@"; do scratch=$word; done
mkdir -p "$scratch/mount"
"$MILLRACE_TO_MOUNT" mount "$DATA_TO_MOUNT" "$scratch/mount" --foreground &
until grep -q " $scratch/mount " /proc/self/mountinfo; do kill -0 $! || exit 7; sleep 0.05; done
kill -9 $!
wait $!
grep -q " $scratch/mount " /proc/self/mountinfo && touch "$DATA_TO_MOUNT/was-dead"
kill -9 $$
"""


@needs_fuse
def test_a_dead_mount_is_taken_away(millrace: Millrace, millrace_bin: Path, photos: Path, tmp_path: Path) -> None:
    python = tmp_path / "rivals/s3fs/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(DIES_WITH_ITS_MOUNT)
    python.chmod(0o755)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    env = {
        "MILLRACE_CACHE": str(tmp_path),
        "TMPDIR": str(temporary),
        "MILLRACE_TO_MOUNT": str(millrace_bin),
        "DATA_TO_MOUNT": str(photos / "raw"),
    }
    report = json.loads(millrace("bench", photos / "tar", *SHORT, "--rival", "s3fs", "--json", "-", env=env).stdout)
    left = [
        line.split(" ")[4] for line in Path("/proc/self/mountinfo").read_text().splitlines() if f" {tmp_path}" in line
    ]
    for folder in left:
        subprocess.run(["umount", "-l", folder], check=False)
    assert "killed" in report["rivals"][0]["left_out"]
    assert (photos / "raw/was-dead").exists()
    assert not left and not list(temporary.iterdir())


def test_a_package_that_is_missing_is_named(millrace: Millrace, photos: Path, tmp_path: Path) -> None:
    """By an interpreter of its own, in the folder of environments."""
    python = tmp_path / "rivals/spdl/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E -s "$@"\n')
    python.chmod(0o755)
    env = {"MILLRACE_CACHE": str(tmp_path)}
    report = json.loads(millrace("bench", photos / "tar", *SHORT, "--rival", "spdl", "--json", "-", env=env).stdout)
    [spdl] = report["rivals"]
    environment = tmp_path / "rivals/spdl"
    install = f"python3 -m venv {environment} && {environment}/bin/pip install torch numpy spdl-core spdl-io obstore"
    assert spdl["left_out"] == f"Python's package 'torch' is missing in {sys.executable}; this installs it: {install}"
