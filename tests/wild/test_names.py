"""Names and folders as other programs leave them: what lies beside shards is passed over and counted; what is missing, mixed or doubled
is named."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path

import millrace
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
    ("00000.index", "webdataset's wids", ""),
    ("slurm-4711.out", "Slurm", ""),
    ("nohup.out", "nohup", ""),
    ("events.out.tfevents.1700000000.host", "TensorBoard", ""),
    ("look.ipynb", "Jupyter", ""),
    ("00000.feather", "img2dataset", ""),
    ("mean.npy", "their authors", ""),
    ("best.pt", "their authors", ""),
    ("code.zip", "their authors", ""),
    ("preview.png", "their authors", ""),
    ("00002.tar.download", "Safari", ""),
    ("00002.tar.!ut", "uTorrent", ""),
    ("00002.tar.incomplete", "download managers", ""),
    ("00000.tar.old", "their authors", ""),
    ("00000.tar.torrent", "Academic Torrents", ""),
    ("00000.tar.sig", "GnuPG", ""),
    ("00000.tar.asc", "GnuPG", ""),
    ("00000.tar.md5sum", "md5sum", ""),
    ("00000.tfindex", "DALI's tfrecord2idx", ""),
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
    for name in (
        "00-50.tfrec",
        "a.tfrecord",
        "b.tfrecords",
        "c-train.tfrecord-00000-of-00001",
        "train-00000-of-00001",
        "coco_train.record-00000-of-00100",
        "d.record",
        "e.tfr",
        "train.tfrecords.0",
        "F.TFRECORD",
    ):
        write(tmp_path / name / name, tfrecord(3))
        assert index(command, tmp_path / name)["samples"] == 3, name


# Shards, and the pattern that takes all of them.
MIXED = [
    (["a.tar", "b.tar"], "*.tar"),
    (["a/1.tar", "b/c/2.tar"], "**/*.tar"),
    (["x-train.tfrecord-00000-of-00002", "x-train.tfrecord-00001-of-00002"], "*-of-?????"),
    (["x/train-00000-of-00002", "y/train-00001-of-00002"], "**/*-of-?????"),
    (["a.TAR", "b.TAR"], "*.TAR"),
]


@pytest.mark.parametrize(("names", "pattern"), MIXED)
def test_mixed_folders_name_a_pattern_that_works(
    command: Command, tmp_path: Path, names: list[str], pattern: str
) -> None:
    """So many images beside shards may be the samples."""
    root = tmp_path / "set"
    for number, name in enumerate(names):
        write(root / name, texts(5 * number, 5 * number + 5) if name.lower().endswith("tar") else tfrecord(5))
    for number in range(13):
        write(root / f"z{number}.jpg", encoded(photo(1)))
    said = command("index", root, code=1).stderr
    assert "shards and other files" in said and f"'{root}/{pattern}'" in said
    assert index(command, Path(f"{root}/{pattern}"))["samples"] == 10


# The names of the only objects, and what the message says.
MISNAMED = [
    (["s.tar?download=true"], "ends with the query of a URL"),
    (["s.tar.1"], "ends with a number"),
    (["s.tar.part-00", "s.tar.part-01"], "a piece of a shard that was split; join the pieces"),
    (["s.tar.aa", "s.tar.ab"], "a piece of a shard"),
    (["s.tar.000", "s.tar.001"], "a piece of a shard"),
    (["a.tzst"], "a compressed shard"),
    (["a.txz"], "a compressed shard"),
    (["a.tbz2"], "a compressed shard"),
    (["a.tar.lzma"], "a compressed shard"),
    (["a.tar.lz4"], "a compressed shard"),
    (["a.tar.zip"], "a compressed shard"),
    (["A.TAR.GZ"], "a compressed shard"),
]


@pytest.mark.parametrize(("names", "words"), MISNAMED, ids=[row[0][0] for row in MISNAMED])
def test_shards_under_other_names_are_named(command: Command, tmp_path: Path, names: list[str], words: str) -> None:
    for name in names:
        write(tmp_path / "set" / name, texts(0, 5))
    said = command("index", tmp_path / "set", code=1).stderr
    assert words in said and names[0] in said
    write(tmp_path / "beside/a.tar", texts(0, 5))
    write(tmp_path / "beside" / names[0], texts(0, 5))
    if "compressed" in words:
        assert words in command("index", tmp_path / "beside", code=1).stderr
    else:
        found = index(command, tmp_path / "beside")
        assert found["samples"] == 5 and found["skipped"]["objects"] == 1
        assert any(names[0] in warning and "may be a shard" in warning for warning in found["warnings"])


def test_names_in_capitals_are_shards(command: Command, tmp_path: Path) -> None:
    write(tmp_path / "set/S.TAR", texts(0, 5))
    assert index(command, tmp_path / "set")["samples"] == 5
    write(tmp_path / "zipped/A.TAR.GZ", gzip.compress(texts(0, 5)))
    write(tmp_path / "zipped/b.tgz", gzip.compress(texts(5, 8)))
    packed = json.loads(command("pack", tmp_path / "zipped", tmp_path / "out", "--json").stdout)
    assert packed["samples"] == 8


def test_parquet_alone_and_beside_raw_objects(command: Command, tmp_path: Path) -> None:
    """img2dataset writes 00000.parquet beside the folder 00000 (its output "files")."""
    table = b"PAR1" + bytes(100) + b"PAR1"
    write(tmp_path / "alone/0.parquet", table)
    assert "a Parquet file; its rows cannot be read singly" in command("index", tmp_path / "alone", code=1).stderr
    write(tmp_path / "raw/00000.parquet", table)
    write(tmp_path / "raw/00000_stats.json", "{}")
    for number in range(3):
        write(tmp_path / f"raw/00000/{number:09}.jpg", encoded(photo(number)))
        write(tmp_path / f"raw/00000/{number:09}.json", "{}")
    found = index(command, tmp_path / "raw")
    assert [entry["object"] for entry in found["skipped"]["named"]] == ["00000.parquet"]
    assert any("00000.parquet" in warning and "beside images" in warning for warning in found["warnings"])
    packed = json.loads(command("pack", tmp_path / "raw", tmp_path / "out", "--json").stdout)
    assert packed["passed_over"] == found["skipped"]
    for number in range(3):
        write(tmp_path / f"tables/{number}.parquet", table)
    write(tmp_path / "tables/preview.png", encoded(photo(1), "PNG"))
    assert "Parquet" in command("index", tmp_path / "tables", code=1).stderr


# The name of a file beside three images in the folders of two classes, and the program that leaves it there.
BESIDE_IMAGES = [
    ("metadata.csv", "Hugging Face's imagefolder"),
    ("metadata.jsonl", "Hugging Face's imagefolder"),
    ("train.csv", "Kaggle"),
    ("sample_submission.csv", "Kaggle"),
    ("archive.zip", "Kaggle"),
    ("annotations.json", "annotation tools"),
    ("_annotations.coco.json", "Roboflow"),
    ("classes.txt", "LabelImg"),
    ("data.yaml", "Ultralytics"),
    ("dataset_info.json", "Hugging Face"),
    ("list_attr_celeba.txt", "CelebA"),
    ("cat/index.html", "wget"),
    ("cat.dvc", "DVC"),
    ("cat/1 - Shortcut.lnk", "Windows"),
    ("cat.md5", "md5sum"),
    ("nohup.out", "nohup"),
    ("train.log", "their authors"),
    ("look.ipynb", "Jupyter"),
    ("cat/1.png:Zone.Identifier", "Windows"),
    ("cat/1.png.md5", "md5sum"),
    ("labels.npy", "their authors"),
    ("notes/plan.pdf", "their authors"),
    ("00000.parquet", "img2dataset"),
]


@pytest.mark.parametrize(("name", "program"), BESIDE_IMAGES, ids=[row[0] for row in BESIDE_IMAGES])
def test_what_lies_beside_images_is_no_image(command: Command, tmp_path: Path, name: str, program: str) -> None:
    """torchvision's ImageFolder passes it over, too."""
    root = tmp_path / "set"
    for number, folder in enumerate(("cat", "cat", "dog")):
        write(root / folder / f"{number}.png", encoded(photo(number), "PNG"))
    write(root / name, "file_name,x\n")
    fed = command("feed", root, "--batch", "2", "--json")
    assert json.loads(fed.stdout)["samples"] == 3, program
    passed_over = index(command, root)["skipped"]["objects"]
    assert passed_over == 1 or (
        "1 of 4 samples without an image is left out" in fed.stderr and name.split("/")[-1][:3] in fed.stderr
    )
    with millrace.Loader(str(root), batch_size=2, shuffle="none", size=8) as loader:
        assert [key for batch in loader for key in batch["key"]] == ["cat/0", "cat/1", "dog/2"]


def test_images_that_are_not_decoded_are_not_left_out(command: Command, tmp_path: Path) -> None:
    write(tmp_path / "x/0.jpg", encoded(photo(0)))
    write(tmp_path / "x/1.heic", b"x")
    assert "1 of 2 samples have no image" in command("feed", tmp_path, "--batch", "1", code=1).stderr


def test_a_kind_that_is_asked_for_makes_samples(tmp_path: Path) -> None:
    root = tmp_path / "set"
    for number in range(3):
        write(root / f"x/{number}.png", encoded(photo(number), "PNG"))
        write(root / f"x/{number}.json", "{}")
    write(root / "x/info.json", "{}")
    image = millrace.Image(size=8)
    with millrace.Loader(str(root), batch_size=1, fields={"image": image}) as loader:
        assert len(list(loader)) == 3
    with pytest.raises(millrace.Error, match=r"1 of 4 samples have no image.*'x/info' \(json\)"):
        millrace.Loader(str(root), batch_size=1, fields={"image": image, "info": millrace.Json("json")})
    with millrace.Loader(str(root), batch_size=1, fields={"info": millrace.Json("json")}) as loader:
        assert len(list(loader)) == 4


def test_the_file_of_labels_may_lie_among_the_samples(tmp_path: Path) -> None:
    for ending in ("png", "bin"):
        root = tmp_path / ending
        for number in range(3):
            write(root / f"{number}.{ending}", encoded(photo(number), "PNG"))
        write(root / "metadata.csv", "file_name,label\n" + "".join(f"{n}.{ending},{n}\n" for n in range(3)))
        write(root / "notes.txt", "x") if ending == "png" else None
        fields = {"x": millrace.Image(size=8) if ending == "png" else millrace.Bytes("bin"), "label": millrace.Label()}
        dataset = millrace.Dataset(str(root), labels=str(root / "metadata.csv"))
        with millrace.Loader(dataset, batch_size=3, fields=fields, shuffle="none") as loader:
            (batch,) = loader
        assert [int(label) for label in batch["label"]] == [0, 1, 2]
    write(tmp_path / "png/4.png", encoded(photo(4), "PNG"))
    dataset = millrace.Dataset(str(tmp_path / "png"), labels=str(tmp_path / "png/metadata.csv"))
    with pytest.raises(millrace.Error, match="has no label for 1 of"):
        millrace.Loader(dataset, batch_size=3)


def test_copies_of_images_are_samples_of_their_own(tmp_path: Path) -> None:
    for name in ("1.jpg", "1.jpg.jpg", "2.png"):
        write(tmp_path / "set/x" / name, encoded(photo(1)))
    write(tmp_path / "set/x/2.sync-conflict-20240101-120000-ABCDEFG.png", encoded(photo(2), "PNG"))
    dataset = millrace.Dataset(str(tmp_path / "set"))
    assert len(dataset) == 3
    assert "sync-conflict" in str(dataset.skipped)
    with millrace.Loader(dataset, batch_size=3, size=8) as loader:
        assert len(list(loader)) == 1


# The first bytes of a file, and the words of the message about it.
FOREIGN = [
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n", "git lfs pull"),
    (b"<!DOCTYPE html><html><body>404</body></html>", "a web page"),
    (b'<?xml version="1.0"?><Error><Code>NoSuchKey</Code></Error>', "XML, such as the error of a store"),
    (b'{"error": "rate limit"}', "JSON, such as the error of a server"),
    (gzip.compress(b"x" * 100), "compressed by gzip"),
    (b"/9j/4AAQSkZJRgABAQAAAQABAAD", "base64"),
]


@pytest.mark.parametrize(("data", "words"), FOREIGN, ids=[row[1] for row in FOREIGN])
def test_what_is_under_the_name_of_an_image_or_a_shard_is_named(
    command: Command, tmp_path: Path, data: bytes, words: str
) -> None:
    write(tmp_path / "set/x/1.jpg", data)
    assert words in command("feed", tmp_path / "set", "--batch", "1", code=1).stderr
    for shard in ("s.tar", "s.tfrecord", "s.rec", "s.mds"):
        write(tmp_path / shard / shard, data)
        assert words.split()[-1] in command("index", tmp_path / shard, code=1).stderr


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
    ("0.ico", "ICO", "web sites"),
    ("0.dds", "DDS", "games"),
    ("0.pcx", "PCX", "old programs"),
    ("0.sgi", "SGI", "old programs"),
    ("0.qoi", "QOI", "games"),
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
    """Members of a shard without an image."""
    root = tmp_path / "set"
    for n in range(8):
        write(root / f"x/{n}.jpg", encoded(photo(n)))
    assert "no suspicious samples" in command("inspect", root).stdout
    assert json.loads(command("inspect", root, "--json").stdout)["refused"] == ""
    root = tmp_path / "shards"
    members = [(f"{n}.jpg", encoded(photo(n))) for n in range(8)]
    write(root / "a.tar", tar([*members, ("labels.csv", b"a,b\n"), ("notes.txt", b"x")]))
    command("index", root)
    refused = command("feed", root, "--batch", "2", code=1).stderr
    said = command("inspect", root).stdout
    assert "no suspicious samples" not in said
    assert "a Loader of images refuses to start" in said
    for words in ("2 of 10 samples have no image (jpg)", "'labels' (csv)"):
        assert words in refused and words in said
        assert words in json.loads(command("inspect", root, "--json").stdout)["refused"]
