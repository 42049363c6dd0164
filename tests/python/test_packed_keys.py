"""Tests that keys, and results that depend on them, are the same before and after packing, in every format."""

from __future__ import annotations

import io
import pathlib
import subprocess
import tarfile
from typing import Any

import millrace
import pytest
from support import CLASSES, binary, make_pixels, png

KEYS = [f"{CLASSES[n % 3]}/photo.v0.{n:04}" for n in range(60)]
KEYS += [
    "cat/plain",
    "dog.d/a%2Eb",
    "dog.d/a%252E.b",
    "eel/50%.",
    "eel/%2e.x",
    "eel/größe.1",
    "__background__/1.a",
    "__background__/2",
]


def pack(source: object, target: object, *options: str) -> str:
    command = [str(binary()), "pack", str(source), str(target), *options]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return str(target)


def keys(data: Any) -> list[str]:
    return sorted(sample["key"] for sample in data)


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("dots")
    for number, key in enumerate(KEYS):
        path = folder / f"{key}.png"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(png(make_pixels(number, 4, 4)))
    return str(folder)


def check_same(packed: str, raw: str) -> None:
    ours, theirs = millrace.Dataset(packed), millrace.Dataset(raw)
    assert keys(ours) == keys(theirs) == sorted(KEYS)
    parts, wanted = (data.split(train=0.6, valid=0.4) for data in (ours, theirs))
    for name in ("train", "valid"):
        assert 0 < len(parts[name]) < len(KEYS) and keys(parts[name]) == keys(wanted[name])


@pytest.mark.parametrize("ways", [("tar",), ("tfrecord",), ("mds",), ("tar", "tar"), ("tar", "tfrecord", "tar", "mds")])
def test_keys_and_splits_stay(ways: tuple[str, ...], raw: str, tmp_path: pathlib.Path) -> None:
    place = raw
    for number, way in enumerate(ways):
        place = pack(place, tmp_path / str(number), "--format", way, "--shard-size", "16KiB")
    check_same(place, raw)
    ours, theirs = ({s["key"]: s["cls"] for s in millrace.Dataset(data)} for data in (place, raw))
    assert ours == theirs


def test_a_writer_keeps_keys(raw: str, tmp_path: pathlib.Path) -> None:
    with millrace.ShardWriter(tmp_path / "out", shard_size="16KiB") as writer:
        for sample in millrace.Dataset(raw):
            writer.write({"key": sample["key"], "png": sample["png"]})
    assert len(list((tmp_path / "out").glob("*.tar"))) > 2
    check_same(str(tmp_path / "out"), raw)
    (tmp_path / "out" / ".millrace" / "written").unlink()
    pack(tmp_path / "out", tmp_path / "packed", "--format", "mds")
    check_same(str(tmp_path / "packed"), raw)


@pytest.mark.parametrize("ending", ["", ".png"])
def test_labels_of_the_raw_data_fit(ending: str, raw: str, tmp_path: pathlib.Path) -> None:
    labels = tmp_path / "labels.csv"
    labels.write_text("".join(["key,label\n", *(f"{key}{ending},{n}\n" for n, key in enumerate(KEYS))]))
    data = millrace.Dataset(pack(raw, tmp_path / "packed"), labels=labels)
    assert {sample["key"]: sample["cls"] for sample in data} == {key: n for n, key in enumerate(KEYS)}


def test_others_find_the_escaped_names_and_tar_does_not_complain(raw: str, tmp_path: pathlib.Path) -> None:
    (shard,) = pathlib.Path(pack(raw, tmp_path / "packed")).glob("*.tar")
    with tarfile.open(shard) as archive:
        names = archive.getnames()
        assert "%2E in a name is a dot" in archive.pax_headers["comment"]
    assert "cat/photo%2Ev0%2E0000.png" in names and all(name.count(".") == 1 for name in names if "dog.d" not in name)
    listed = subprocess.run(["tar", "-tf", shard], check=True, capture_output=True, text=True)
    assert len(listed.stdout.splitlines()) == len(names) and not listed.stderr


def write_tar(path: pathlib.Path, names: list[str]) -> None:
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = 4
            archive.addfile(member, io.BytesIO(b"data"))


def test_names_of_other_writers_stay(tmp_path: pathlib.Path) -> None:
    """Those of shards that Millrace packed before it could say that it had escaped keys stay, too."""
    write_tar(tmp_path / "theirs" / "a.tar", ["a%2Eb.txt", "a%252Eb.txt", "c.txt"])
    wanted = ["a%252Eb", "a%2Eb", "c"]
    assert keys(millrace.Dataset(tmp_path / "theirs")) == wanted
    assert keys(millrace.Dataset(pack(tmp_path / "theirs", tmp_path / "ours"))) == wanted
    write_tar(tmp_path / "both" / "a.tar", ["d%2Ee.txt"])
    next((tmp_path / "ours").glob("*.tar")).rename(tmp_path / "both" / "b.tar")
    write_tar(tmp_path / "both" / "c.tar", ["f%2Eg.txt"])
    assert keys(millrace.Dataset(tmp_path / "both")) == sorted(["d%2Ee", *wanted, "f%2Eg"]), "each shard by itself"
