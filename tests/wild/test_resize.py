"""`pack --resize` of every format, `--skip-bad`, and what it says."""

from __future__ import annotations

import io
import json
import tarfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from wild_support import Command, command, encoded, photo, write

__all__ = ["command"]


def packed(folder: Path) -> dict[str, bytes]:
    found = {}
    for shard in sorted(folder.glob("*.tar")):
        with tarfile.open(shard) as archive:
            for member in archive.getmembers():
                file = archive.extractfile(member)
                if file is not None:
                    found[member.name] = file.read()
    return found


LARGE = photo(1, 320, 240)
ALPHA = LARGE.copy()
ALPHA.putalpha(128)
DEPTH = Image.fromarray(np.random.default_rng(2).integers(0, 65536, (240, 320), dtype=np.uint16))
FRAMES = [photo(n, 320, 240) for n in range(3)]

# Ending, file, the size and the format that are right, the source of such files, and a public report.
FILES: list[tuple[str, bytes, tuple[int, int], str, str, str]] = [
    ("jpg", encoded(LARGE), (128, 96), "JPEG", "cameras", ""),
    ("jpg", encoded(LARGE, progressive=True), (128, 96), "JPEG", "web images", ""),
    ("jpg", encoded(LARGE.convert("L")), (128, 96), "JPEG", "scans", ""),
    ("jfif", encoded(LARGE), (128, 96), "JPEG", "browsers", "supervisely/supervisely#839"),
    ("png", encoded(LARGE, "PNG"), (128, 96), "PNG", "screenshots", "rom1504/img2dataset#457"),
    ("png", encoded(LARGE.convert("P"), "PNG"), (320, 240), "PNG", "masks", "ykamikawa/tf-keras-PSPNet#2"),
    ("webp", encoded(LARGE, "WEBP"), (128, 96), "WEBP", "web images", "rom1504/img2dataset#287"),
    ("webp", encoded(LARGE, "WEBP", lossless=True), (128, 96), "WEBP", "screenshots", ""),
    ("webp", encoded(ALPHA, "WEBP"), (128, 96), "WEBP", "stickers", ""),
    (
        "webp",
        encoded(FRAMES[0], "WEBP", save_all=True, append_images=FRAMES[1:]),
        (128, 96),
        "WEBP",
        "stickers",
        "thumbor/thumbor#1901",
    ),
    ("gif", encoded(LARGE.convert("P"), "GIF"), (128, 96), "PNG", "drawings", "mailru/FileAPI#367"),
    (
        "gif",
        encoded(FRAMES[0], "GIF", save_all=True, append_images=FRAMES[1:]),
        (128, 96),
        "PNG",
        "animations",
        "ErinCall/catsnap#37",
    ),
    ("tif", encoded(LARGE, "TIFF"), (128, 96), "PNG", "microscopes", ""),
    ("tiff", encoded(LARGE, "TIFF", compression="tiff_lzw"), (128, 96), "PNG", "scanners", "tlnagy/TiffImages.jl#8"),
    ("tif", encoded(LARGE.convert("L"), "TIFF"), (320, 240), "TIFF", "masks", "divamgupta/image-segmentation-keras#11"),
    ("bmp", encoded(LARGE, "BMP"), (128, 96), "PNG", "Windows", "mailru/FileAPI#367"),
    ("tif", encoded(DEPTH, "TIFF"), (320, 240), "TIFF", "depth in 16 bits", ""),
    ("tif", encoded(LARGE.convert("L"), "TIFF", tiffinfo={262: 0}), (320, 240), "TIFF", "masks whose 0 is white", ""),
    ("tif", encoded(LARGE.convert("P"), "TIFF"), (320, 240), "TIFF", "masks", ""),
    ("bmp", encoded(LARGE.convert("L"), "BMP"), (320, 240), "BMP", "masks", "ykamikawa/tf-keras-PSPNet#2"),
    ("bmp", encoded(LARGE.convert("P"), "BMP"), (320, 240), "BMP", "masks", ""),
    ("png", encoded(DEPTH, "PNG"), (320, 240), "PNG", "depth in 16 bits", ""),
    ("jpg", encoded(LARGE, "PNG"), (128, 96), "PNG", "wrong endings", "GT-Vision-Lab/VQA_LSTM_CNN#8"),
    ("jpg", encoded(LARGE, "WEBP"), (128, 96), "WEBP", "wrong endings of downloads", ""),
    ("webp", encoded(photo(3, 100, 80), "WEBP"), (100, 80), "WEBP", "small images", "rom1504/img2dataset#243"),
]


@pytest.mark.parametrize(("ending", "data", "size", "kind", "source", "report"), FILES)
def test_images_are_resized_whatever_their_format(
    command: Command,
    tmp_path: Path,
    ending: str,
    data: bytes,
    size: tuple[int, int],
    kind: str,
    source: str,
    report: str,
) -> None:
    write(tmp_path / f"raw/x/0.{ending}", data)
    done = command("pack", tmp_path / "raw", tmp_path / "out", "--resize", "96")
    assert "warning" not in done.stderr, (source, report)
    stored = next(value for name, value in packed(tmp_path / "out").items() if name.endswith(ending))
    with Image.open(io.BytesIO(stored)) as image:
        assert (image.size, image.format) == (size, kind), (source, report)
        image.load()


@pytest.mark.parametrize("options", [(), ("--jpeg-tiles",)])
def test_a_resized_file_of_several_pictures_has_one(command: Command, tmp_path: Path, options: tuple[str, ...]) -> None:
    """The places of the other ones would be wrong (element-hq/synapse#20024)."""
    several = encoded(LARGE, "MPO", save_all=True, append_images=[FRAMES[1]])
    write(tmp_path / "raw/x/0.jpg", several)
    command("pack", tmp_path / "raw", tmp_path / "out", "--resize", "96", *options)
    (stored,) = (value for name, value in packed(tmp_path / "out").items() if name.endswith("jpg"))
    with Image.open(io.BytesIO(stored)) as image:
        assert (image.format, image.size) == ("JPEG", (128, 96)) and getattr(image, "n_frames", 1) == 1
        image.load()


def chunks(data: bytes) -> set[str]:
    found, at = set(), 8
    while at < len(data):
        found.add(data[at + 4 : at + 8].decode())
        at += 12 + int.from_bytes(data[at : at + 4], "big")
    return found


# A chunk of a PNG in RGB, and whether it stays: docs/pack.md.
CHUNKS = [
    ("gAMA", (100000).to_bytes(4, "big"), True),
    ("sRGB", b"\0", True),
    ("cICP", b"\x09\x10\0\1", True),
    ("eXIf", b"II*\0\x08\0\0\0" + bytes(6), True),
    ("tEXt", b"Title\0hi", False),
    ("iTXt", b"Title\0\0\0\0\0hi", False),
    ("tIME", b"\x07\xe8\1\1\0\0\0", False),
    ("pHYs", bytes(9), False),
    ("bKGD", bytes(6), False),
    ("sBIT", b"\5\6\5", False),
    ("tRNS", bytes(6), False),
]


@pytest.mark.parametrize(("name", "value", "stays"), CHUNKS, ids=[row[0] for row in CHUNKS])
def test_chunks_of_a_resized_png(command: Command, tmp_path: Path, name: str, value: bytes, stays: bool) -> None:
    large = encoded(LARGE, "PNG")
    block = name.encode() + value
    added = len(value).to_bytes(4, "big") + block + zlib.crc32(block).to_bytes(4, "big")
    write(tmp_path / "raw/x/0.png", large[:33] + added + large[33:])
    command("pack", tmp_path / "raw", tmp_path / "out", "--resize", "96")
    (stored,) = (data for member, data in packed(tmp_path / "out").items() if member.endswith("png"))
    assert chunks(stored) == {"IHDR", "IDAT", "IEND"} | ({name} if stays else set())


def test_what_is_no_image_is_left_out(command: Command, tmp_path: Path) -> None:
    write(tmp_path / "raw/x/0.jpg", encoded(LARGE))
    for number, (name, data) in enumerate(
        [
            ("jpg", b"<html>404</html>"),
            ("jpg", b""),
            ("webp", encoded(LARGE, "WEBP")[:900]),
            ("gif", encoded(LARGE, "GIF")[:900]),
        ]
    ):
        write(tmp_path / f"raw/x/{number + 1}.{name}", data)
    done = json.loads(
        command("pack", tmp_path / "raw", tmp_path / "out", "--resize", "96", "--skip-bad", "--json").stdout
    )
    assert done["samples"] == 1
    assert "x/1" in command("pack", tmp_path / "raw", tmp_path / "none", "--resize", "96", code=1).stderr


def test_what_begins_as_no_image_is_left_out_also_where_images_are_kept(command: Command, tmp_path: Path) -> None:
    """A web page that was saved under the name of an image (python-pillow/Pillow#9094)."""
    good = {
        "jpg": encoded(LARGE),
        "webp": encoded(LARGE, "WEBP"),
        "gif": encoded(FRAMES[0], "GIF"),
        "png": b"BM" + bytes(9),
    }
    bad = {"a.jpg": b"<html>404</html>", "b.jpg": b"", "c.png": b"\x89PN", "d.jpeg": b"error code: 502"}
    for ending, data in good.items():
        write(tmp_path / f"raw/x/{ending}.{ending}", data)
    for name, data in bad.items():
        write(tmp_path / "raw/x" / name, data)
    write(tmp_path / "raw/x/other.heic.jpg", b"\0\0\0\x20ftypheic" + bytes(100))  # others may decode it
    for form in ("tar", "tfrecord"):
        out = tmp_path / f"out-{form}"
        done = json.loads(command("pack", tmp_path / "raw", out, "--skip-bad", "--format", form, "--json").stdout)
        assert done["samples"] == len(good) + 1
        assert [sample["key"] for sample in done["skipped"]] == ["x/a", "x/b", "x/c", "x/d"]
        assert all("not an image" in sample["why"] for sample in done["skipped"])
    # Without --skip-bad, and for fields of other names, nothing is looked at.
    done = json.loads(command("pack", tmp_path / "raw", tmp_path / "all", "--json").stdout)
    assert done["samples"] == len(good) + len(bad) + 1 and done["skipped"] == []
