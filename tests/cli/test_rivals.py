"""`millrace bench --rival`: loaders of others over the same data, beside Millrace. Those that the development environment has: PyTorch's DataLoader and WebDataset."""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from cli_support import Millrace

ROOT = Path(__file__).resolve().parents[2]
SHORT = ["--scenario", "d", "--quick", "--seconds", "0.1", "--repeats", "2", "--batch", "16", "--size", "64", "--memory", "64MiB", "--threads", "1"]


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


def test_a_buffer_keeps_all_samples() -> None:
    for count in (0, 1, 999, 1000, 2500):
        came = list(images().shuffled(iter(range(count))))
        assert sorted(came) == list(range(count))
        assert count < 2 or came != list(range(count))


def test_errors_say_why_and_show_no_signature() -> None:
    assert loaders().said(OSError("curl 'http://h/k?X-Amz-Signature=abc&x=1'\n failed")) == "curl 'http://h/k?...' failed"
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


def test_what_cannot_be_read_is_said(photos: Path) -> None:
    for name in ("s3fs", "rclone"):
        with pytest.raises(images().Refused, match="mounts buckets of S3"):
            getattr(module("rival_mounts"), name)(task(photos / "raw"))
    tar = images().Task("s3://b/tar", "tar", 16, 1, 32, photos, load=lambda data: data)
    with pytest.raises(images().Refused, match="it reads tfrecord, and these data are tar: give it a copy of its own by --rival tfdata=URI"):
        tar.check("tfdata", loaders().RIVALS["tfdata"].reads)


def test_they_stand_beside_millrace(millrace: Millrace, photos: Path, tmp_path: Path) -> None:
    page, figures = tmp_path / "report.html", tmp_path / "report.json"
    rivals = ["--rival", f"dataloader={photos}/raw", "--rival", "webdataset,mosaicml"]
    # The workers of a DataLoader hand over tensors by sockets there, whose paths have at most 108 characters; else they lose them in silence.
    with tempfile.TemporaryDirectory(prefix="rivals-") as temporary:
        env = {"MILLRACE_PYTHON": sys.executable, "TMPDIR": temporary, "MILLRACE_CACHE": str(tmp_path / "cache")}
        text = millrace("bench", photos / "tar", *SHORT, *rivals, "--html", page, "--json", figures, env=env).stdout.decode()
        assert not os.listdir(temporary)
    report = json.loads(figures.read_text())
    assert [rival["name"] for rival in report["rivals"]] == ["dataloader", "webdataset", "mosaicml"]
    for rival in report["rivals"][:2]:
        assert "left_out" not in rival, rival
        assert rival["checked_images"] == 90  # each image of an epoch, once
        assert 0 < rival["mean_pixel"] < 255
        assert rival["samples_per_second"]["median"] > 0 and rival["cpu_seconds_per_1000_samples"]["median"] > 0
        assert rival["first_batch_seconds"] > 0 and "torch" in rival["versions"]
        assert re.search(rf"^  {rival['name']} +[0-9]", text, re.MULTILINE)
    assert report["rivals"][0]["uri"] == f"{photos}/raw"
    # What it reads are MDS shards, and these are not.
    assert "it reads mds, and these data are tar" in report["rivals"][2]["left_out"]
    assert re.search(r"^  mosaicml +left out: it reads mds", text, re.MULTILINE)
    body = "".join(ET.parse(page).getroot().itertext())
    for said in ("Other loaders over the same data", "webdataset", "left out", report["rivals"][2]["left_out"]):
        assert said in body


def test_a_package_that_is_missing_is_named(millrace: Millrace, photos: Path, tmp_path: Path) -> None:
    """By an interpreter of its own, in the folder of environments."""
    python = tmp_path / "rivals/spdl/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E -s "$@"\n')
    python.chmod(0o755)
    env = {"MILLRACE_CACHE": str(tmp_path)}
    report = json.loads(millrace("bench", photos / "tar", *SHORT, "--rival", "spdl", "--json", "-", env=env).stdout)
    [spdl] = report["rivals"]
    assert spdl["left_out"].startswith("Python's package 'torch' is missing in ") and spdl["left_out"].endswith("spdl-core spdl-io obstore")
