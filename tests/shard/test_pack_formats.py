"""Other programs read what `millrace pack` makes of a data set: tarfile, tfrecord, mosaicml-streaming, the oracle of RecordIO."""

from __future__ import annotations

import io
import json
import os
import random
import struct
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import mosaic
import numpy as np
import pytest
import shards
import test_recordio_oracles as recordio
from PIL import Image

CLASSES = ("bird", "cat", "dog")
Sample = tuple[str, int, bytes]  # key, class, image


def millrace(*args: object) -> dict[str, Any]:
    done = subprocess.run(
        [shards.program("millrace"), *map(str, args)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if "--json" in args else {}


def jpeg(seed: int) -> bytes:
    rng = np.random.default_rng(seed)
    file = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (8 + seed % 40, 30, 3), np.uint8)).save(file, "JPEG")
    return file.getvalue()


@pytest.fixture(scope="module")
def samples() -> list[Sample]:
    return sorted((f"{CLASSES[n % 3]}/s{n:03}", n % 3, jpeg(n)) for n in range(60))


@pytest.fixture(scope="module")
def raw(samples: list[Sample], tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("raw")
    for key, _, image in samples:
        path = root / f"{key}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(image)
    return root


def pack(raw: Path, out: Path, kind: str, *more: object) -> list[Path]:
    report = millrace("pack", raw, out, "--format", kind, "--shard-size", "20KiB", "--json", *more)
    assert report["complete"] and report["samples"] == 60
    found = sorted(path for path in out.iterdir() if path.name.startswith("shard-") and path.suffix != ".idx")
    assert len(found) == report["shards"] > 2
    return found


def read_tar(paths: list[Path]) -> list[Sample]:
    found: list[Sample] = []
    for path in paths:
        with tarfile.open(path) as tar:
            members = [(m.name, tar.extractfile(m).read()) for m in tar]  # type: ignore[union-attr]
        for (label, number), (image, data) in zip(members[::2], members[1::2], strict=True):
            assert label.removesuffix(".cls") == image.removesuffix(".jpg")
            found.append((image.removesuffix(".jpg"), int(number), data))
    return found


def read_tfrecord(paths: list[Path]) -> list[Sample]:
    from tfrecord import example_pb2
    from tfrecord.reader import tfrecord_iterator

    found: list[Sample] = []
    for path in paths:
        for record in tfrecord_iterator(str(path)):
            features = example_pb2.Example.FromString(bytes(record)).features.feature
            assert set(features) == {"__key__", "cls", "jpg"}
            key, image = (features[name].bytes_list.value[0] for name in ("__key__", "jpg"))
            number = features["cls"]
            found.append((key.decode(), (number.int64_list.value or number.float_list.value)[0], image))
    return found


def read_mds(paths: list[Path]) -> list[Sample]:
    _, reader = mosaic.load()
    folder = paths[0].parent
    found: list[Sample] = []
    listed = json.loads((folder / "index.json").read_text())["shards"]
    assert [entry["raw_data"]["basename"] for entry in listed] == [path.name for path in paths]
    for entry in listed:
        theirs = reader.from_json(str(folder), "", entry)
        theirs.validate(allow_unsafe_types=False)
        assert (folder / entry["raw_data"]["basename"]).stat().st_size == entry["raw_data"]["bytes"]
        for n in range(entry["samples"]):
            sample = theirs.decode_sample(theirs.get_sample_data(n))
            raw_image = theirs.get_sample_data(n)
            assert isinstance(sample["jpg"], Image.Image)
            sizes = struct.unpack_from("<II", raw_image)  # of __key__ and jpg; cls has a fixed one
            image = raw_image[8 + sizes[0] + 8 :]
            assert len(image) == sizes[1]
            found.append((sample["__key__"], sample["cls"], image))
    return found


READERS = {"tar": read_tar, "tfrecord": read_tfrecord, "mds": read_mds}


@pytest.mark.parametrize("kind", READERS)
def test_others_read_the_same(raw: Path, samples: list[Sample], tmp_path: Path, kind: str) -> None:
    assert READERS[kind](pack(raw, tmp_path / "out", kind)) == samples


def test_recordio(raw: Path, samples: list[Sample], tmp_path: Path) -> None:
    found = []
    for path in pack(raw, tmp_path / "out", "recordio"):
        shard = path.read_bytes()
        records = recordio.records(shard)
        lines = [line.split("\t") for line in path.with_suffix(".idx").read_text().splitlines()]
        assert [int(number) for number, _ in lines] == list(range(len(records)))
        assert [recordio.records(shard[int(at) :])[0] for _, at in lines] == records
        for record in records:
            flag, label, _, _ = struct.unpack_from("<IfQQ", record)
            assert flag == 0
            found.append((int(label), record[24:]))
    assert found == [(label, image) for _, label, image in samples]


@pytest.mark.parametrize("kind", ["tar", "tfrecord", "mds"])
@pytest.mark.parametrize("back", ["tar", "tfrecord", "mds"])
def test_from_any_to_any(raw: Path, samples: list[Sample], tmp_path: Path, kind: str, back: str) -> None:
    pack(raw, tmp_path / "one", kind)
    assert READERS[back](pack(tmp_path / "one", tmp_path / "two", back)) == samples


@pytest.mark.parametrize("back", READERS)
def test_from_recordio(raw: Path, samples: list[Sample], tmp_path: Path, back: str) -> None:
    """Which keeps neither keys nor names: the keys are places, and the label is a number of 32 bits."""
    found = pack(raw, tmp_path / "rec", "recordio")
    counts = [len(recordio.records(path.read_bytes())) for path in found]
    places = [f"{path.name}/{n:08}" for path, count in zip(found, counts, strict=True) for n in range(count)]
    made = pack(tmp_path / "rec", tmp_path / "two", back)
    assert READERS[back](made) == [
        (place, label, image) for place, (_, label, image) in zip(places, samples, strict=True)
    ]


def test_records_of_others_survive_recordio_to_recordio(tmp_path: Path) -> None:
    """With a magic number in the data, so that records have parts."""
    rng = random.Random(2)
    payloads = [
        b"\xff\xd8\xff" + rng.randbytes(rng.randrange(2000)) + (b"x" * 3 + recordio.MAGIC) * (n % 3) for n in range(60)
    ]
    written = [struct.pack("<IfQQ", 0, n % 7, n, 0) + data for n, data in enumerate(payloads)]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.rec").write_bytes(b"".join(map(recordio.framed, written)))
    made = pack(tmp_path / "in", tmp_path / "out", "recordio")
    again = [record for path in made for record in recordio.records(path.read_bytes())]
    assert [(struct.unpack_from("<If", record), record[24:]) for record in again] == [
        ((0, n % 7), data) for n, data in enumerate(payloads)
    ]


def test_shuffled_alike_in_all_formats(raw: Path, samples: list[Sample], tmp_path: Path) -> None:
    found = [READERS[kind](pack(raw, tmp_path / kind, kind, "--shuffle", "--seed", 5)) for kind in READERS]
    assert found[0] == found[1] == found[2] != samples
    assert sorted(found[0]) == samples


def test_records_of_tensorflow_become_tar(tmp_path: Path) -> None:
    """Features as they are called there, lists of numbers, and a choice of them."""
    from tfrecord.writer import TFRecordWriter

    rng = random.Random(3)
    wanted = []
    (tmp_path / "in").mkdir()
    writer = TFRecordWriter(str(tmp_path / "in" / "train-00000-of-00001.tfrecord"))
    for n in range(40):
        boxes = [float(np.float32(rng.random())) for _ in range(4)]
        image, label = jpeg(n), rng.randrange(1000)
        writer.write(
            {
                "image/encoded": (image, "byte"),
                "image/class/label": (label, "int"),
                "image/boxes": (boxes, "float"),
                "image/filename": (b"x", "byte"),
            }
        )
        wanted.append((image, label, boxes))
    writer.close()
    choice = ("--field", "image/encoded=jpg", "--field", "image/class/label=cls", "--field", "image/boxes=boxes.npy")
    millrace("pack", tmp_path / "in", tmp_path / "out", *choice)
    with tarfile.open(tmp_path / "out" / "shard-000000.tar") as tar:
        files = {m.name: tar.extractfile(m).read() for m in tar}  # type: ignore[union-attr]
    by_key: dict[str, dict[str, bytes]] = {}
    for name, data in files.items():
        folder, _, base = name.rpartition("/")
        key, _, field = base.partition(".")
        by_key.setdefault(f"{folder}/{key}", {})[field] = data
    assert len(by_key) == 40
    for (image, label, boxes), fields in zip(wanted, by_key.values(), strict=True):
        assert set(fields) == {"jpg", "cls", "boxes.npy"}
        assert fields["jpg"] == image and fields["cls"] == b"%d" % label
        assert np.load(io.BytesIO(fields["boxes.npy"])).tolist() == boxes


def test_fields_that_a_format_cannot_hold(raw: Path, tmp_path: Path) -> None:
    def refused(*args: object) -> str:
        command = [shards.program("millrace"), "pack", *map(str, args)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode in (1, 2), done.stdout
        return done.stderr

    said = refused(raw, tmp_path / "out", "--format", "mds", "--field", "png")
    assert "no sample has a field 'png'" in said and "--field" in said
    assert "--format" in refused(raw, tmp_path / "out", "--format", "zip")
    assert "'jpg' twice" in refused(raw, tmp_path / "out", "--field", "jpg", "--field", "jpg=x")
    assert "NAME=NEW" in refused(raw, tmp_path / "out", "--field", "jpg=")
    assert "JPG" in refused(raw, tmp_path / "out", "--field", "jpg=JPG")
    assert not (tmp_path / "out").exists() or not os.listdir(tmp_path / "out")
