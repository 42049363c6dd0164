"""Names and folders as other programs leave them: what lies beside shards is passed over and counted; what is missing, mixed or doubled
is named."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path

import millrace
import numpy as np
import pytest
from wild_support import Command, command, encoded, index, npy, photo, tar, texts, write

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


def records(name: str) -> bytes:
    """Five samples."""
    if not name.endswith(".rec"):
        return tfrecord(5)
    head = struct.pack("<IfQQ", 0, 1.0, 7, 0) + b"text"  # a header of MXNet's IRHeader, and four bytes
    return b"".join(struct.pack("<II", 0xCED7230A, len(head)) + head for _ in range(5))


# Shards, and the pattern that takes all of them.
MIXED = [
    (["a.tar", "b.tar"], "**/*.tar"),
    (["a/1.tar", "b/c/2.tar"], "**/*.tar"),
    (["a.tar", "z/b.tar"], "**/*.tar"),
    (["a.tar", "B.TAR"], "**/{*.TAR,*.tar}"),
    (["x-train.tfrecord-00000-of-00002", "x-train.tfrecord-00001-of-00002"], "**/*-of-?????"),
    (["x/train-00000-of-00002", "y/train-00001-of-00002"], "**/*-of-?????"),
    (["train.tfrecords.0", "train.tfrecords.1"], "**/*.tfrecords.[0-9]*"),
    (["train.tfrecord", "val.tfrecord-00000-of-00001"], "**/{*-of-?????,*.tfrecord}"),
    (["a.TAR", "b.TAR"], "**/*.TAR"),
    (["a.rec", "b/c.rec"], "**/*.rec"),
]


@pytest.mark.parametrize(("names", "pattern"), MIXED)
def test_mixed_folders_name_a_pattern_that_works(
    command: Command, tmp_path: Path, names: list[str], pattern: str
) -> None:
    """So many images beside shards may be the samples."""
    root = tmp_path / "set"
    for number, name in enumerate(names):
        write(root / name, texts(5 * number, 5 * number + 5) if name.lower().endswith("tar") else records(name))
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
    write(tmp_path / "beside/0.tar", texts(0, 5))
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
    for number in range(20):
        write(tmp_path / f"raw/00000/{number:09}.jpg", encoded(photo(number)))
        write(tmp_path / f"raw/00000/{number:09}.json", "{}")
    found = index(command, tmp_path / "raw")
    assert [entry["object"] for entry in found["skipped"]["named"]] == ["00000.parquet"]
    assert any("00000.parquet" in warning and "beside images" in warning for warning in found["warnings"])
    packed = json.loads(command("pack", tmp_path / "raw", tmp_path / "out", "--json").stdout)
    assert packed["passed_over"] == found["skipped"]


# Files of many samples, and so many images beside them that say nothing.
FEW_IMAGES = [
    (["train.parquet"], 1),
    (["a.parquet", "data/b.parquet"], 30),
    (["all.h5"], 19),
    (["x.tar.1"], 3),
]


@pytest.mark.parametrize(("names", "images"), FEW_IMAGES)
def test_tables_beside_a_few_images_are_not_passed_over(
    command: Command, tmp_path: Path, names: list[str], images: int
) -> None:
    """A logo, or figures of the README."""
    root = tmp_path / "set"
    for name in names:
        write(root / name, b"PAR1" + bytes(100) + b"PAR1")
    for number in range(images):
        write(root / f"docs/{number:02}.png", encoded(photo(number), "PNG"))
    said = command("index", root, code=1).stderr
    ending = names[0].rsplit(".", 1)[1]
    for words in (names[0], "docs/00.png", f"'{root}/**/*.{ending}'", f"'{root}/**/*.png'"):
        assert words in said
    assert index(command, Path(f"{root}/**/*.png"))["samples"] == images
    assert names[0] in command("pack", root, tmp_path / "out", code=1).stderr
    with pytest.raises(millrace.Error, match=r"docs/00\.png"):
        millrace.Loader(str(root), batch_size=1)


@pytest.mark.parametrize("first", ["assets", "zoo"])
def test_pack_counts_all_shards_before_it_judges_the_others(command: Command, tmp_path: Path, first: str) -> None:
    """The images come before the shards, or behind them."""
    for number in range(12):
        write(tmp_path / f"set/{first}/{number:02}.png", encoded(photo(number), "PNG"))
    for number in range(4):
        write(tmp_path / f"set/data/{number}.tar.gz", gzip.compress(texts(5 * number, 5 * number + 5)))
    packed = json.loads(command("pack", tmp_path / "set", tmp_path / "out", "--json").stdout)
    assert packed["samples"] == 20 and packed["passed_over"]["objects"] == 12


# Endings that say it is a tar, whatever the rest of the name says.
TARS = ["train-00000-of-00010.tgz", "x.tfrecord.tgz", "x.tar.tgz", "a.tzst.tgz", "x.rec.TGZ"]


@pytest.mark.parametrize("name", TARS)
def test_tgz_is_a_compressed_tar(command: Command, tmp_path: Path, name: str) -> None:
    write(tmp_path / "set" / name, gzip.compress(texts(0, 5)))
    assert json.loads(command("pack", tmp_path / "set", tmp_path / "out", "--json").stdout)["samples"] == 5


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
    ("cat/favicon.ico", "browsers"),
    ("cat/logo.svg", "web pages"),
    ("dog/thumb.psd", "Photoshop"),
    ("cat/site.url", "browsers"),
    ("plan.pdf", "their authors"),
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
    found = index(command, root)
    is_field = found["samples"] == 3 and found["skipped"]["objects"] == 0  # of the image of that name
    assert is_field == (name in ("cat/1.png:Zone.Identifier", "cat/1.png.md5"))
    if not is_field and found["skipped"]["objects"] == 0:
        assert "1 of 4 samples without an image is left out" in fed.stderr and name.split("/")[-1][:3] in fed.stderr
    with millrace.Loader(str(root), batch_size=2, shuffle="none", size=8) as loader:
        assert [key for batch in loader for key in batch["key"]] == ["cat/0", "cat/1", "dog/2"]


@pytest.mark.parametrize(
    "ending", ["ppm", "PGM", "pnm", "jp2", "heic", "HEIF", "avif", "jxl", "dng", "cr2", "nef", "arw"]
)
def test_photos_that_are_not_decoded_are_not_left_out(command: Command, tmp_path: Path, ending: str) -> None:
    write(tmp_path / "x/0.jpg", encoded(photo(0)))
    write(tmp_path / f"x/1.{ending}", b"x")
    assert "1 of 2 samples have no image" in command("feed", tmp_path, "--batch", "1", code=1).stderr


# The folder of a class without an image, and what it holds.
EMPTY_CLASSES = [
    ("annotations/1.xml", "Pascal VOC"),
    ("notes/plan.pdf", "their authors"),
    ("labels/a/1.txt", "Ultralytics"),
    ("zip/all.zip", "Kaggle"),
]


@pytest.mark.parametrize(("name", "program"), EMPTY_CLASSES)
def test_a_folder_without_an_image_is_no_class(command: Command, tmp_path: Path, name: str, program: str) -> None:
    """ImageFolder refuses it, too: its number would be that of a class."""
    root = tmp_path / "set"
    for number, place in enumerate(("cat/0.png", "cat/1.PNG", "dog/2.jpeg")):
        write(root / place, encoded(photo(number), "PNG"))
    write(root / name, "x")
    with pytest.raises(millrace.InvalidArgumentError) as refused:
        millrace.Loader(str(root), batch_size=1)
    pattern = f"{root}/**/*.{{PNG,jpeg,png}}"
    assert f"the class folder '{name.split('/')[0]}'" in str(refused.value) and f"'{pattern}'" in str(refused.value)
    for said in (
        command("feed", root, code=1).stderr,
        command("pack", root, tmp_path / "out", code=1).stderr,
        command("inspect", root).stdout,
    ):
        assert f"the class folder '{name.split('/')[0]}'" in said, program
    dataset = millrace.Dataset(pattern)
    assert dataset.classes == ["cat", "dog"] and len(dataset) == 3
    with millrace.Loader(dataset, batch_size=3, size=8, shuffle="none") as loader:
        assert next(iter(loader))["label"].tolist() == [0, 0, 1]
    with millrace.Loader(str(root), batch_size=3, fields={"x": millrace.Image(size=8)}) as loader:
        assert len(list(loader)) == 1  # no classes are asked for


def test_an_image_beside_many_others_is_not_the_data(command: Command, tmp_path: Path) -> None:
    root = tmp_path / "set"
    write(root / "preview.png", encoded(photo(1), "PNG"))
    for number in range(21):
        write(root / f"{number:02}.npy", npy(np.arange(3)))
    with pytest.raises(millrace.InvalidArgumentError) as refused:
        millrace.Loader(str(root), batch_size=1, bad_samples="mask")
    for words in ("21 of 22 samples have no image: 21 npy, such as '00' (npy)", "fields=", f"'{root}/**/*.png'"):
        assert words in str(refused.value)
    assert "21 of 22 samples have no image" in command("feed", root, code=1).stderr
    with millrace.Loader(f"{root}/**/*.npy", batch_size=21, fields={"x": millrace.Array("npy")}) as loader:
        assert next(iter(loader))["x"].shape == (21, 3)
    packed = json.loads(command("pack", root, tmp_path / "out", "--json").stdout)
    assert packed["samples"] == 22 and packed["left_out"]["samples"] == 0
    (root / "20.npy").unlink()
    command("index", root)
    assert "20 of 21 samples without an image are left out" in command("feed", root, "--batch", "1").stderr


def test_pack_leaves_out_what_a_loader_leaves_out(command: Command, tmp_path: Path) -> None:
    root = tmp_path / "set"
    for number, folder in enumerate(("cat", "cat", "dog")):
        write(root / folder / f"{number}.png", encoded(photo(number), "PNG"))
    for name in ("archive.zip", "cat/info.json", "labels.csv"):
        write(root / name, "key,label\n")
    sentence = "3 of 6 samples without an image are left out: 1 csv, 1 json, 1 zip, such as 'archive' (zip)"
    for options, samples in ((), 3), (("--shuffle",), 3), (("--field", "png", "--field", "json"), 4):
        done = command("pack", root, tmp_path / f"out{len(options)}", *options, "--json")
        packed = json.loads(done.stdout)
        assert packed["samples"] == samples and packed["left_out"]["samples"] == 6 - samples
        if samples == 3:
            assert packed["left_out"]["why"].startswith(sentence) and sentence in done.stderr
    with millrace.Loader(str(tmp_path / "out0"), batch_size=3, size=8, shuffle="none") as loader:
        (batch,) = loader
    assert batch["key"] == ["cat/0", "cat/1", "dog/2"] and batch["label"].tolist() == [0, 0, 1]
    assert command("pack", root, tmp_path / "out0").stdout.startswith("already packed")


def test_explain_and_resume_are_of_the_images_alone(command: Command, tmp_path: Path) -> None:
    root = tmp_path / "set"
    for number in range(40):
        write(root / f"x/{number}.png", encoded(photo(number), "PNG"))
    write(root / "archive.zip", bytes(1000))
    command("index", root)
    position = json.loads(command("feed", root, "--batch", "4", "--stop-after", "8", "--json").stdout)["position"]
    cache = ("--cache", tmp_path / "cache", "--resume", position, "--batch", "4", "--explain")
    found = json.loads(command("feed", root, *cache, "--json").stdout)
    assert found["samples"] == 40 and found["bytes"] == sum(one.stat().st_size for one in (root / "x").iterdir())
    assert found["left_out"][0].startswith("1 of 41 samples without an image is left out: 1 zip")
    said = command("feed", root, *cache).stdout
    assert "40 of the 41 samples" in said and "1 of 41 samples without an image is left out: 1 zip" in said


def test_a_resume_with_other_fields_names_them(tmp_path: Path) -> None:
    root = tmp_path / "set"
    for number in range(8):
        write(root / f"x/{number}.png", encoded(photo(number), "PNG"))
        write(root / f"x/{number}.json", "{}")
    write(root / "x/info.json", "{}")
    fields = {"info": millrace.Json("json")}
    with millrace.Loader(str(root), batch_size=2, fields={"image": millrace.Image(size=8)}) as loader:
        next(iter(loader))
        state = loader.state_dict()
    with millrace.Loader(str(root), batch_size=2, fields=fields) as loader:
        with pytest.raises(millrace.Error, match="belongs to another order.*fields="):
            loader.load_state_dict(state)
            list(loader)


def labelled(tmp_path: Path, names: list[str], named: int) -> tuple[Path, Path]:
    """A folder, and a file that has labels of a cover and of the first files alone."""
    root = tmp_path / "set"
    write(root / "cover.jpg", encoded(photo(1)))
    for name in names:
        write(root / name, "x")
    rows = "".join(f"{name},{number}\n" for number, name in enumerate(["cover.jpg", *names[:named]]))
    return root, write(tmp_path / "labels.csv", "file_name,label\n" + rows)


def test_no_sample_without_a_label_vanishes_if_no_image_is_asked_for(command: Command, tmp_path: Path) -> None:
    root, table = labelled(tmp_path, [f"{number:02}.wav" for number in range(12)], 9)
    dataset = millrace.Dataset(str(root), labels=millrace.Labels(str(table)))
    with pytest.raises(millrace.InvalidArgumentError, match="no label for 3 of the 13 samples.*'09', '10', '11'"):
        millrace.Loader(dataset, batch_size=1, fields={"wav": millrace.Bytes("wav")})
    said = command(
        "pack", root, tmp_path / "out", "--labels", table, "--key-column", "file_name", "--field", "wav", code=1
    ).stderr
    assert "no label for 3 of the 13 samples" in said
    done = command("pack", root, tmp_path / "out", "--labels", table, "--key-column", "file_name", "--json")
    assert json.loads(done.stdout)["samples"] == 10
    assert "3 of 13 samples without an image are left out: 3 wav, such as '09' (wav)" in done.stderr
    dropped = millrace.Dataset(str(root), labels=millrace.Labels(str(table), missing="drop"))
    assert len(dropped) == 10


def test_a_photo_that_is_not_decoded_has_a_label(command: Command, tmp_path: Path) -> None:
    root, table = labelled(tmp_path, ["a.heic"], 0)
    with pytest.raises(millrace.InvalidArgumentError, match="no label for 1 of the 2 samples.*'a'"):
        millrace.Dataset(str(root), labels=millrace.Labels(str(table)))
    write(root / "a.heic", "x").rename(root / "a.txt")
    command("index", root)
    with millrace.Loader(
        millrace.Dataset(str(root), labels=millrace.Labels(str(table))), batch_size=1, size=8
    ) as loader:
        assert len(list(loader)) == 1


def test_pack_does_not_take_the_file_of_labels(command: Command, tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / f"set/{number}.bin", "x")
    table = write(tmp_path / "set/labels.csv", "file_name,label\n" + "".join(f"{n}.bin,{n}\n" for n in range(3)))
    done = command("pack", tmp_path / "set", tmp_path / "out", "--labels", table, "--json")
    assert json.loads(done.stdout)["samples"] == 3


def test_a_kind_that_is_asked_for_makes_samples(tmp_path: Path) -> None:
    root = tmp_path / "set"
    for number in range(3):
        write(root / f"x/{number}.png", encoded(photo(number), "PNG"))
        write(root / f"x/{number}.json", "{}")
    write(root / "x/info.json", "{}")
    image = millrace.Image(size=8)
    with millrace.Loader(str(root), batch_size=1, fields={"image": image}) as loader:
        assert len(list(loader)) == 3
    with pytest.raises(millrace.Error, match=r"1 of 4 samples have no image.*'x/info' \(cls, json\)"):
        millrace.Loader(str(root), batch_size=1, fields={"image": image, "info": millrace.Json("json")})
    with millrace.Loader(str(root), batch_size=1, fields={"info": millrace.Json("json")}) as loader:
        assert len(list(loader)) == 4


def test_the_file_of_labels_may_lie_among_the_samples(command: Command, tmp_path: Path) -> None:
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
    command("index", tmp_path / "png")
    with pytest.raises(millrace.Error, match="has no label for 1 of"):
        millrace.Dataset(str(tmp_path / "png"), labels=str(tmp_path / "png/metadata.csv"))


def test_copies_of_images_are_samples_of_their_own(tmp_path: Path) -> None:
    for name in ("1.jpg", "1.jpg.jpg", "2.png"):
        write(tmp_path / "set/x" / name, encoded(photo(1)))
    write(tmp_path / "set/x/2.sync-conflict-20240101-120000-ABCDEFG.png", encoded(photo(2), "PNG"))
    dataset = millrace.Dataset(str(tmp_path / "set"))
    assert len(dataset) == 3
    assert "sync-conflict" in str(dataset.skipped)
    with millrace.Loader(dataset, batch_size=3, size=8) as loader:
        assert len(list(loader)) == 1


def test_masks_that_are_called_after_their_images_are_fields(tmp_path: Path) -> None:
    for number in range(2):
        write(tmp_path / f"set/x/{number}.jpg", encoded(photo(number)))
        write(tmp_path / f"set/x/{number}.jpg.png", encoded(photo(number), "PNG"))
    dataset = millrace.Dataset(str(tmp_path / "set"))
    assert len(dataset) == 2 and {"jpg", "jpg.png"} <= set(dataset.fields)


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


# Names of nine files beside a tar shard, and whether they may be the samples.
MANY_BESIDE = [
    ("events.out.tfevents.{}.host", False),
    ("epoch_{}.pt", False),
    ("look{}.ipynb", False),
    ("{}.index", False),
    ("{}.tar.idx", False),
    ("{}.tar.sig", False),
    ("{}.tar.md5sum", False),
    ("x.tar.a{}", False),
    ("{}.zip", False),
    ("{}.parquet", False),
    ("{}.png", True),
    ("{}.heic", True),
    ("{}.npy", True),
    ("{}.wav", True),
    ("{}.dat", True),
]


@pytest.mark.parametrize(("name", "samples"), MANY_BESIDE)
def test_only_what_may_be_samples_counts_beside_shards(
    command: Command, tmp_path: Path, name: str, samples: bool
) -> None:
    """Eight of them beside one shard are passed over, four for each shard more."""
    root = tmp_path / "set"
    write(root / "all.tar", texts(0, 3))
    for letter in "abcdefgh":
        write(root / name.format(letter), "x")
    assert index(command, root)["samples"] == 3
    write(root / name.format("i"), "x")
    if samples:
        assert f"'{root}/**/*.tar'" in command("index", root, code=1).stderr
    else:
        assert index(command, root)["skipped"]["objects"] == 9


@pytest.mark.parametrize("ending", ["sh", "md", "py", "js"])
def test_names_with_two_letters_are_no_pieces(command: Command, tmp_path: Path, ending: str) -> None:
    write(tmp_path / "set/x.tar", texts(0, 3))
    write(tmp_path / f"set/x.tar.{ending}", "x")
    found = index(command, tmp_path / "set")
    assert found["skipped"]["objects"] == 1 and not any("piece" in warning for warning in found["warnings"])


def test_a_second_download_of_a_shard_is_named(command: Command, tmp_path: Path) -> None:
    for name in ("train.tfrecord", "train.tfrecord.1", "val.tfrecords.0"):
        write(tmp_path / "set" / name, tfrecord(3))
    warnings = index(command, tmp_path / "set")["warnings"]
    assert any("'train.tfrecord.1' lies beside" in warning and "twice" in warning for warning in warnings)
    assert not any("val.tfrecords.0" in warning and "twice" in warning for warning in warnings)


def test_damage_behind_samples_says_nothing_of_the_first_bytes(command: Command, tmp_path: Path) -> None:
    """The length of the first record, 35,615, is written as gzip's first bytes."""
    record = b"\x0a\x00" + b"\x12\x9a\x96\x02" + bytes(35_609)  # a field that readers pass over
    length = struct.pack("<Q", len(record))
    first = length + masked(length) + record + masked(record)
    assert first.startswith(b"\x1f\x8b")
    damaged = bytearray(tfrecord(1))
    damaged[-1] ^= 1
    write(tmp_path / "set/a.tfrecord", first + bytes(damaged))
    assert "gzip" not in command("index", tmp_path / "set", code=1).stderr
    write(tmp_path / "tar/a.tar", gzip.compress(texts(0, 3)))
    assert command("index", tmp_path / "tar", code=1).stderr.count("gzip") == 1


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
