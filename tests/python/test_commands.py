"""Tests millrace.pack(), index(), inspect() and sync(), the commands as functions."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
from typing import Any

import millrace
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from millrace import _commands
from support import Samples, binary, make_pixels, png


@pytest.fixture(autouse=True)
def the_command_under_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_BIN", str(binary()))


def test_pack_index_and_inspect(raw: Samples, tmp_path: pathlib.Path) -> None:
    told: list[tuple[str, int, int]] = []
    report = millrace.pack(
        raw.uri, tmp_path / "out", shard_size="30KiB", shuffle=True, seed=3, progress=lambda *work: told.append(work)
    )
    assert report["samples"] == 45 and report["complete"] and report["shards"] > 1
    packed = millrace.Dataset(tmp_path / "out")
    assert sorted(packed.keys()) == sorted(raw.pixels)
    assert told and {work for work, _, _ in told} <= {"indexing", "packing"}
    assert all(done <= total or total == 0 for _, done, total in told)
    assert millrace.pack(raw.uri, tmp_path / "out", shard_size="30KiB", shuffle=True, seed=3)["already_packed"]

    found = millrace.inspect(tmp_path / "out", decode="all")
    command = [binary(), "inspect", tmp_path / "out", "--decode=all", "--json"]
    wanted = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert found.keys() == wanted.keys() and found["samples"] == 45

    assert millrace.index(raw.uri, full=True)["objects"] == 45
    assert millrace.index(raw.uri)["reused_objects"] == 45
    assert millrace.index(raw.uri, classes=True, checksums=True)["samples_without_checksum"] == 0
    assert millrace.index(tmp_path / "out", part="1/2")["missing_objects"] == 0  # it is indexed already


def test_fields_labels_and_parts(raw: Samples, tmp_path: pathlib.Path) -> None:
    keys = sorted(raw.pixels)
    (tmp_path / "labels.csv").write_text("name,y\n" + "".join(f"{key},{n}\n" for n, key in enumerate(keys)))
    labels = millrace.Labels(tmp_path / "labels.csv", key_column="name", label_column="y")
    first = millrace.pack(
        raw.uri,
        tmp_path / "out",
        labels=labels,
        fields={"png": "photo.png", "cls": "cls"},
        part="1/2",
        shard_size=40_000,
    )
    assert not first["complete"] and first["missing_shards"] > 0
    last = millrace.pack(
        raw.uri,
        tmp_path / "out",
        labels=labels,
        fields={"png": "photo.png", "cls": "cls"},
        part="2/2",
        shard_size=40_000,
    )
    assert last["complete"]
    packed = millrace.Dataset(tmp_path / "out")
    assert packed.fields == ["cls", "photo.png"]
    assert dict(zip(packed.keys(), packed.column("cls"))) == {key: number for number, key in enumerate(keys)}


def test_parquet_is_read_by_this_python(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MILLRACE_PYTHON", raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    (tmp_path / "in").mkdir()
    pq.write_table(
        pa.table({"png": [png(make_pixels(n)) for n in range(5)], "n": list(range(5))}), tmp_path / "in/a.parquet"
    )
    assert millrace.pack(tmp_path / "in", tmp_path / "out")["samples"] == 5
    assert millrace.Dataset(tmp_path / "out").column("n") == [b"0", b"1", b"2", b"3", b"4"]


def test_sync(raw: Samples, tmp_path: pathlib.Path) -> None:
    report = millrace.sync(raw.uri, tmp_path / "copy", exclude="*", include=["cat/*"])
    assert report["copied"] == 15
    assert sorted(os.listdir(tmp_path / "copy/cat")) == [f"{number:04}.png" for number in range(0, 45, 3)]
    millrace.sync(raw.uri, tmp_path / "copy")
    (tmp_path / "copy/more.txt").write_text("x")
    assert millrace.sync(raw.uri, tmp_path / "copy", delete=True)["removed"] == 1


def test_errors_are_those_of_the_package(raw: Samples, tmp_path: pathlib.Path) -> None:
    with pytest.raises(millrace.NotFoundError, match="no samples under"):
        (tmp_path / "empty").mkdir()
        millrace.index(tmp_path / "empty")
    with pytest.raises(millrace.InvalidArgumentError, match="--shard-size"):
        millrace.pack(raw.uri, tmp_path / "out", shard_size="much")
    with pytest.raises(millrace.InvalidArgumentError, match="--format"):
        millrace.pack(raw.uri, tmp_path / "out", format="zip")
    with pytest.raises(millrace.InvalidArgumentError, match="hf download"):
        millrace.index("hf://datasets/x")
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "a.tar").write_bytes(b"x" * 1024)
    with pytest.raises(millrace.DamagedDataError, match="a.tar"):
        millrace.index(damaged)
    for call in (lambda: millrace.pack(3, "x"), lambda: millrace.index(raw.uri, progress="yes")):
        with pytest.raises(TypeError):
            call()  # type: ignore[no-untyped-call]


def test_what_a_function_of_progress_raises_ends_the_command(raw: Samples, tmp_path: pathlib.Path) -> None:
    def stop(*work: Any) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        millrace.pack(raw.uri, tmp_path / "out", progress=stop)
    # The same call continues.
    assert millrace.pack(raw.uri, tmp_path / "out")["samples"] == 45


def test_options_are_those_of_the_commands() -> None:
    """Each option of a function is one of its command; the others are named here."""
    import inspect as python_inspect

    left_out = {"--help", "--json", "--outage-limit", "--endpoint-url", "--profile", "--region", "--no-sign-request"}
    left_out |= {"--quiet", "--verbose", "--no-progress", "--log-level"}
    renamed = {"fields": "--field", "csv_quotes": "--no-csv-quotes"}
    extra = {"pack": {"--key-column", "--label-column", "--no-csv-quotes"}, "sync": {"--dry-run", "--dryrun"}}
    for name in ("pack", "index", "inspect", "sync"):
        text = subprocess.run([binary(), name, "--help"], capture_output=True, text=True, check=True).stdout
        of_command = {
            word.split("=")[0].split("[")[0] for word in text.replace(",", " ").split() if word.startswith("--")
        }
        listed = {
            line.split()[0].split(",")[-1].split("=")[0].split("[")[0]
            for line in text.splitlines()
            if line.startswith("  --")
        }
        parameters = python_inspect.signature(getattr(millrace, name)).parameters
        own = {
            renamed.get(parameter, "--" + parameter.replace("_", "-"))
            for parameter, of in parameters.items()
            if of.kind is of.KEYWORD_ONLY and parameter != "progress"
        }
        assert own <= of_command, name
        assert listed - own - left_out - extra.get(name, set()) == set(), name


def test_without_the_command_it_says_so(raw: Samples, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.delenv("MILLRACE_BIN")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(_commands, "__file__", str(tmp_path / "_commands.py"))
    with pytest.raises(millrace.UnavailableError, match="there is no command millrace"):
        millrace.index(raw.uri)
