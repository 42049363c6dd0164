"""Names and folders as other programs leave them: what lies beside shards is passed over and counted; what is missing, mixed or doubled
is named."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path

import pytest
from wild_support import Command, command, encoded, index, photo, tar, texts, write

__all__ = ["command"]


def masked(data: bytes) -> bytes:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def tfrecord(count: int) -> bytes:
    """Records without features."""
    out = b""
    for _ in range(count):
        record = b"\x0a\x00"  # an Example with empty Features
        length = struct.pack("<Q", len(record))
        out += length + masked(length) + record + masked(record)
    return out


# The file beside two tar shards of five samples, the program that leaves it there, and a public report.
BESIDE = [
    ("00000.parquet", "img2dataset", "rom1504/img2dataset#31"),
    ("00000_stats.json", "img2dataset", "rom1504/img2dataset#358"),
    ("_tmp/00001.parquet", "img2dataset", ""),
    ("index.json", "MosaicML", ""),
    ("sizes.json", "open_clip", "FacePerceiver/LAION-Face#11"),
    ("wids-meta.json", "webdataset's wids", "webdataset/webdataset#331"),
    ("meta.jsonl", "Hugging Face", ""),
    ("dataset_infos.json", "Hugging Face", "huggingface/datasets#904"),
    (".gitattributes", "Hugging Face", ""),
    ("README.md", "Hugging Face", "huggingface/datasets#3221"),
    ("LICENSE", "GitHub", ""),
    ("_SUCCESS", "Spark", "cldellow/datasette-parquet#15"),
    ("00000.tar.md5", "md5sum", ""),
    ("checksums.sha256", "sha256sum", ""),
    ("00000.tar.idx", "DALI's wds2idx", "NVIDIA/DALI#3749"),
    ("00002.tar.part", "browsers, curl", ""),
    ("00002.tar.crdownload", "Chrome", ""),
    ("00002.tar.aria2", "aria2", ""),
    ("download.log", "wget", ""),
    ("classes.txt", "Kaggle", ""),
    ("train.csv", "Kaggle", ""),
    ("00000.json", "metadata by shard", ""),
    ("convert.py", "their authors", ""),
    (".DS_Store", "macOS", "pytorch/vision#109"),
    ("._00000.tar", "macOS", "Project-MONAI/MONAI#8305"),
    ("Thumbs.db", "Windows", "meetps/pytorch-semseg#83"),
    (".00000.tar.crc", "Hadoop", "NVIDIA-NeMo/Curator#261"),
    (".nfs000000000001", "NFS", ""),
    (".ipynb_checkpoints/00000.tar", "Jupyter", "pytorch/vision#2831"),
    ("00000.tar.temp123", "webdataset's cache", "webdataset/webdataset#503"),
]


@pytest.mark.parametrize(("name", "program", "report"), BESIDE, ids=[row[0] for row in BESIDE])
def test_what_lies_beside_shards_is_passed_over(
    command: Command, tmp_path: Path, name: str, program: str, report: str
) -> None:
    root = tmp_path / "set"
    for n in range(2):
        write(root / f"{n:05}.tar", texts(5 * n, 5 * n + 5))
    write(root / name, b"PAR1" + bytes(100) + b"PAR1")
    found = index(command, root)
    assert found["samples"] == 10, (program, report)
    assert [entry["object"] for entry in found["skipped"]["named"]] == [name], (program, report)
    assert all(entry["why"] for entry in found["skipped"]["named"])
    packed = json.loads(command("pack", root, tmp_path / "out", "--json").stdout)
    assert packed["samples"] == 10, (program, report)
    assert packed["passed_over"] == found["skipped"], (program, report)
    compressed = tmp_path / "compressed"
    write(compressed / name, b"PAR1" + bytes(100) + b"PAR1")
    write(compressed / "00000.tar.gz", gzip.compress(texts(0, 5)))
    packed = json.loads(command("pack", compressed, tmp_path / "out2", "--json").stdout)
    assert packed["samples"] == 5, (program, report)
    assert [entry["object"] for entry in packed["passed_over"]["named"]] == [name], (program, report)


def test_names_of_tfrecords(command: Command, tmp_path: Path) -> None:
    """Kaggle's, TensorFlow's, TFDS's and Spark's."""
    for name in ("00-50.tfrec", "a.tfrecord", "b.tfrecords", "c-train.tfrecord-00000-of-00001", "train-00000-of-00001"):
        write(tmp_path / name / name, tfrecord(3))
        assert index(command, tmp_path / name)["samples"] == 3, name


def test_mixed_folders_name_a_pattern_that_works(command: Command, tmp_path: Path) -> None:
    root = tmp_path / "set"
    write(root / "a.tar", texts(0, 5))
    write(root / "b.jpg", encoded(photo(1)))
    said = command("index", root, code=1).stderr
    pattern = f"{root}/*.tar"
    assert "both tar shards and other files" in said and pattern in said
    assert index(command, Path(pattern))["samples"] == 5


def test_parquet_alone_and_beside_raw_objects(command: Command, tmp_path: Path) -> None:
    write(tmp_path / "alone/0.parquet", b"PAR1" + bytes(100) + b"PAR1")
    assert "a Parquet file; its rows cannot be read singly" in command("index", tmp_path / "alone", code=1).stderr
    write(tmp_path / "raw/0.parquet", b"PAR1" + bytes(100) + b"PAR1")
    write(tmp_path / "raw/1.jpg", encoded(photo(1)))
    assert "Parquet" in command("index", tmp_path / "raw", code=1).stderr


# The name of an object, the format that the warning names, and the program that writes it.
OTHER_FORMATS = [
    ("0.heic", "HEIF", "phones"),
    ("0.HEIF", "HEIF", "cameras"),
    ("0.avif", "AVIF", "browsers"),
    ("0.jxl", "JPEG XL", "photo editors"),
    ("0.jp2", "JPEG 2000", "satellites, archives"),
    ("0.dng", "camera raw", "cameras"),
    ("0.svg", "SVG", "web sites"),
    ("0.ppm", "Netpbm", "research code"),
    ("0.dcm", "DICOM", "scanners in hospitals"),
    ("0.exr", "OpenEXR", "renderers"),
]


@pytest.mark.parametrize(("name", "kind", "program"), OTHER_FORMATS)
def test_formats_that_are_not_decoded_are_named(
    command: Command, tmp_path: Path, name: str, kind: str, program: str
) -> None:
    write(tmp_path / "raw/x" / name, b"x")
    write(tmp_path / "shards/0.tar", tar([(name, b"x")]))
    for folder in ("raw", "shards"):
        found = index(command, tmp_path / folder)
        assert found["samples"] == 1
        assert any(f"not decoded ({kind})" in warning for warning in found["warnings"]), program


def test_many_side_files_may_be_the_samples(command: Command, tmp_path: Path) -> None:
    write(tmp_path / "set/all.tar", texts(0, 3))
    for number in range(20):
        write(tmp_path / f"set/{number}.json", "{}")
    found = index(command, tmp_path / "set")
    assert found["skipped"]["objects"] == 20
    assert any("20 files lie beside 1 shard" in warning for warning in found["warnings"])


def test_an_image_called_licence_is_an_image(command: Command, tmp_path: Path) -> None:
    for name in ("a", "licence", "z"):
        write(tmp_path / f"set/x/{name}.jpg", encoded(photo(1)))
    assert index(command, tmp_path / "set")["samples"] == 3


def test_several_splits_in_one_folder(command: Command, tmp_path: Path) -> None:
    for name in ("train-000.tar", "train-001.tar", "val-000.tar"):
        write(tmp_path / "set" / name, texts(ord(name[0]) * 100, ord(name[0]) * 100 + 3))
    warnings = index(command, tmp_path / "set")["warnings"]
    assert any("train-*.tar (2)" in warning and "val-*.tar (1)" in warning for warning in warnings)


@pytest.mark.parametrize("name", ["x-{:05}-of-00008.tar", "x-train.tfrecord-{:05}-of-00008"])
def test_missing_shards_are_named(command: Command, tmp_path: Path, name: str) -> None:
    for n in range(8):
        if n != 5:
            shard = texts(n, n + 1) if name.endswith(".tar") else tfrecord(1)
            write(tmp_path / "set" / name.format(n), shard)
    assert any(name.format(5) in warning for warning in index(command, tmp_path / "set")["warnings"])


def test_dots_in_names_of_members(command: Command, tmp_path: Path) -> None:
    """WebDataset's rule: the field begins at the first dot."""
    members = [("a.b.jpg", b"x"), ("a.b.txt", b"x"), ("c/d.left.png", b"x"), ("c/d.json", b"{}")]
    write(tmp_path / "set/0.tar", tar(members))
    found = index(command, tmp_path / "set")
    assert found["samples"] == 2
    assert {"b.jpg", "b.txt", "left.png", "json"} <= set(found["fields"])


# The name of a file beside two images, and the program that leaves it there while it downloads.
PARTS = [
    ("x/3.jpg.part", "Firefox, curl"),
    ("x/3.JPG.crdownload", "Chrome"),
    ("x/Unconfirmed 4711.crdownload", "Chrome"),
    ("x/3.png.partial", "Internet Explorer, rclone"),
    ("x/3.jpeg.download", "Safari"),
    ("x/3.jpg.aria2", "aria2"),
    ("x/3.jpg.!qB", "qBittorrent"),
    ("x/3.jpg.filepart", "WinSCP"),
    ("x/3.webp.tmp", "rsync's --temp-dir, scripts"),
]


@pytest.mark.parametrize(("name", "program"), PARTS, ids=[row[0] for row in PARTS])
def test_parts_of_downloads_beside_images_are_passed_over(
    command: Command, tmp_path: Path, name: str, program: str
) -> None:
    root = tmp_path / "set"
    for n in range(2):
        write(root / f"x/{n}.jpg", encoded(photo(n)))
    write(root / name, encoded(photo(3))[:100])
    found = index(command, root)
    assert found["samples"] == 2, program
    assert [entry["object"] for entry in found["skipped"]["named"]] == [name], program
    assert "part of a download" in found["skipped"]["named"][0]["why"]
    command("feed", root, "--batch", "2")
    packed = json.loads(command("pack", root, tmp_path / "out", "--json").stdout)
    assert packed["samples"] == 2 and packed["passed_over"] == found["skipped"]


def test_inspect_says_that_no_loader_starts(command: Command, tmp_path: Path) -> None:
    """Notes and tables beside class folders are samples without an image."""
    root = tmp_path / "set"
    for n in range(8):
        write(root / f"x/{n}.jpg", encoded(photo(n)))
    assert "no suspicious samples" in command("inspect", root).stdout
    assert json.loads(command("inspect", root, "--json").stdout)["refused"] == ""
    write(root / "notes.txt", "x")
    write(root / "labels.csv", "a,b\n")
    command("index", root)
    refused = command("feed", root, "--batch", "2", code=1).stderr
    said = command("inspect", root).stdout
    assert "no suspicious samples" not in said
    assert "a Loader of images refuses to start" in said
    for words in ("2 of 10 samples have no image (jpg)", "'labels' (csv)"):
        assert words in refused and words in said
        assert words in json.loads(command("inspect", root, "--json").stdout)["refused"]
