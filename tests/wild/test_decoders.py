"""Images as cameras, browsers and broken downloads leave them. Millrace shows what Pillow shows, with a count where the codec warns, and
calls damage what Pillow calls damage. Neither depends on the crop, on an index or on the command."""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import millrace
import numpy as np
import pytest
from PIL import Image
from wild_support import Command, command, encoded, index, photo, write

__all__ = ["command"]

SOUND = encoded(photo(1), quality=90)
SCAN = SOUND.index(b"\xff\xda")
CODES = SCAN + 2 + int.from_bytes(SOUND[SCAN + 2 : SCAN + 4], "big")
RESTARTS = encoded(photo(2), quality=90, restart_marker_blocks=4)
PROGRESSIVE = encoded(photo(3), progressive=True)
PNG = encoded(photo(4), "PNG")
IDAT = PNG.index(b"IDAT")
PROFILE = encoded(photo(4), "PNG", icc_profile=bytes(range(200)))


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]


def thumbnail_and_cut() -> bytes:
    """The end marker of the thumbnail is not that of the image."""
    exif = b"Exif\0\0" + SOUND[:600] + b"\xff\xd9"
    return SOUND[:2] + b"\xff\xe1" + (len(exif) + 2).to_bytes(2, "big") + exif + SOUND[2:-200]


def animated(kind: str) -> bytes:
    frames = [photo(n) for n in range(3)]
    return encoded(frames[0], kind, save_all=True, append_images=frames[1:], duration=100)


def bytes_before_the_picture(gif: bytes) -> bytes:
    """They belong to no block."""
    palette = 3 << (gif[10] & 7) + 1 if gif[10] & 0x80 else 0
    return gif[: 13 + palette] + b"\0\0odd" + gif[13 + palette :]


STILL = encoded(photo(6).convert("P"), "GIF")
REPORT_TURNED = "python-pillow/Pillow#4053"
PALETTE = encoded(photo(6).convert("P"), "TIFF", compression="packbits")


def turned(orientation: int, **options: Any) -> bytes:
    """A TIFF that is 64 pixels wide when it is seen."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = photo(8, 48, 64) if orientation >= 5 else photo(8)
    return encoded(image.convert(options.pop("mode", "RGB")), "TIFF", exif=exif, **options)


def turned_by_xmp(orientation: int) -> bytes:
    """Its TIFF tags do not say the orientation."""
    xmp = f'<x:xmpmeta><rdf:Description tiff:Orientation="{orientation}"/></x:xmpmeta>'.encode()
    return encoded(photo(8, 48, 64), "TIFF", tiffinfo={700: xmp})


# Name, file, where such files come from, and a public report of one. Pillow says what is right.
FILES: list[tuple[str, bytes, str, str]] = [
    (
        "zeros before the end marker",
        SOUND[:-2] + bytes(228) + SOUND[-2:],
        "libjpeg: extraneous bytes before 0xd9",
        "tensorflow/models#2194",
    ),
    (
        "zeros before the scan",
        SOUND[:SCAN] + b"\0\0" + SOUND[SCAN:],
        "libjpeg: extraneous bytes before 0xda",
        "opencv/opencv#9477",
    ),
    (
        "bytes before a restart marker",
        RESTARTS.replace(b"\xff\xd0", b"\0\0\xff\xd0"),
        "libjpeg: before 0xd0",
        "image-rs/jpeg-decoder#100",
    ),
    (
        "bytes behind the end",
        SOUND + b"\0" * 5000 + b"camera",
        "cameras append previews",
        "digital-preservation/pronom-research-week#13",
    ),
    ("a second image behind the end", SOUND + SOUND, "multi-picture files of phones", "libjxl/libjxl#3110"),
    ("no end marker", SOUND[:-2], "webcams leave out the last two bytes", "intel/libyami#801"),
    ("cut in its head", SOUND[: SCAN - 100], "interrupted downloads", "ianare/exif-py#261"),
    ("cut in the middle", SOUND[: (CODES + len(SOUND)) // 2], "interrupted downloads", "pytorch/vision#138"),
    (
        "cut, with an end marker",
        SOUND[: (CODES + len(SOUND)) // 2] + b"\xff\xd9",
        "uploaders close what they have",
        "AcademySoftwareFoundation/OpenImageIO#951",
    ),
    ("cut, and with a thumbnail", thumbnail_and_cut(), "interrupted downloads of photographs", ""),
    (
        "codes that are none",
        SOUND[:-60] + b"\xfe" * 58 + SOUND[-2:],
        "libjpeg: bad Huffman code",
        "Megvii-BaseDetection/YOLOX#373",
    ),
    (
        "a lost restart marker",
        RESTARTS.replace(b"\xff\xd1", b"", 1),
        "libjpeg: resync to restart",
        "SixLabors/ImageSharp#481",
    ),
    ("an unknown marker within", SOUND[:-80] + b"\xff\x02" + SOUND[-78:], "bit rot", ""),
    ("a marker behind the codes without an end", SOUND[:-2] + b"\xff\xdc\x9c\xe5" + SOUND[-2:], "bit rot", ""),
    ("progressive and cut", PROGRESSIVE[: len(PROGRESSIVE) // 2], "interrupted downloads", "SixLabors/ImageSharp#18"),
    (
        "progressive, cut, closed",
        PROGRESSIVE[: len(PROGRESSIVE) // 2] + b"\xff\xd9",
        "partial progressive images",
        "imazen/zenjpeg#63",
    ),
    (
        "text",
        b"<html><body>404 Not Found</body></html>",
        "error pages saved under the name of an image",
        "python-pillow/Pillow#9094",
    ),
    ("nothing", b"", "failed downloads", ""),
    ("an animated WebP", animated("WEBP"), "stickers", "uploadcare/pillow-simd#29"),
    ("an animated GIF", animated("GIF"), "GIF data sets", "fastai/fastai_dev#194"),
    ("an animated PNG", animated("PNG"), "APNG", "scratchfoundation/scratch-gui#8097"),
    ("a GIF without its end", animated("GIF")[:-1], "GIFs cut behind the first picture", "image-rs/image-gif#138"),
    ("a GIF cut in later pictures", animated("GIF")[:-500], "GIFs cut behind the first picture", "deanm/omggif#39"),
    ("a GIF cut in its first picture", animated("GIF")[:900], "interrupted downloads", "libvips/libvips#3134"),
    ("a GIF with bytes before its picture", bytes_before_the_picture(STILL), "bit rot", ""),
    ("a GIF without the end of its codes", STILL[:-2], "interrupted downloads", ""),
    ("a TIFF with a color map", PALETTE, "scanners", ""),
    *((f"a TIFF of orientation {n}", turned(n), "scanners and cameras", REPORT_TURNED) for n in range(9)),
    ("a turned TIFF of LZW", turned(6, compression="tiff_lzw"), "scanners", REPORT_TURNED),
    ("a turned TIFF of JPEG", turned(8, compression="jpeg"), "scanners", REPORT_TURNED),
    ("a turned TIFF in grey", turned(5, mode="L"), "scanners", REPORT_TURNED),
    ("a turned TIFF with a color map", turned(7, mode="P"), "scanners", REPORT_TURNED),
    ("a turned TIFF in CMYK", turned(6, mode="CMYK"), "printers", REPORT_TURNED),
    ("a TIFF that XMP data turn", turned_by_xmp(6), "photo editors", ""),
    ("a TIFF whose color map is cut off", PALETTE[:-40], "interrupted downloads", ""),
    ("a WebP cut", encoded(photo(5), "WEBP")[:-30], "interrupted downloads", ""),
    ("a PNG without its end", PNG[:-12], "PNGs without IEND", ""),
    ("a PNG with bytes behind", PNG + b"trailer", "steganography, appended archives", ""),
    (
        "a PNG with a bad checksum of pixels",
        PNG[:-16] + b"\0\0\0\0" + PNG[-12:],
        "writers of wrong CRCs",
        "python-pillow/Pillow#5800",
    ),
    (
        "a PNG with a bad checksum of its profile",
        flipped(PROFILE, PROFILE.index(b"iCCP") + 20),
        "rewritten profiles",
        "python-pillow/Pillow#5631",
    ),
    ("a PNG with a bad bit of pixels", flipped(PNG, IDAT + 200), "bit rot", ""),
    ("a PNG with a bad head", flipped(PNG, 18), "bit rot", ""),
    ("a PNG cut", PNG[: len(PNG) // 2], "interrupted downloads", ""),
]

# libjpeg makes up for scans that a progressive file lacks. Versions of libjpeg-turbo differ in that: Pillow's is a later one.
APART = {"progressive, cut, closed": 3}


def pillow(data: bytes) -> np.ndarray | None:
    try:
        with Image.open(io.BytesIO(data)) as image:
            return np.asarray(image.convert("RGB"))
    except (OSError, SyntaxError):
        return None


@pytest.mark.parametrize(("name", "data", "source", "report"), FILES, ids=[row[0] for row in FILES])
def test_the_verdict_and_the_pixels_are_those_of_pillow(
    command: Command, tmp_path: Path, name: str, data: bytes, source: str, report: str
) -> None:
    right = pillow(data)
    write(tmp_path / "raw/x/0.jpg", data)
    spec = {"image": millrace.Image(size=(48, 64), exact=True)}
    for _ in range(2):  # without an index, and with it
        with millrace.Loader(
            str(tmp_path / "raw"), batch_size=1, shuffle="none", bad_samples="mask", fields=spec, raw=True
        ) as loader:
            batches = list(loader)
            quarantined = loader.report()["quarantined"]
        assert quarantined == (right is None), (source, report)
        if right is not None:
            apart = np.abs(np.asarray(batches[0]["image"][0]).astype(int) - right)
            assert apart.max() <= APART.get(name, 0), (source, report)
    for options in ((), ("--augment",), ("--augment", "--seed", "7", "--size", "16"), ("--exact",)):
        command("feed", tmp_path / "raw", "--batch", "1", *options, code=0 if right is not None else 1)
    found = json.loads(command("inspect", tmp_path / "raw", "--decode", "all", "--json").stdout)
    assert found["decode"]["failed"] == (right is None), (source, report)
    both = tmp_path / "both"
    write(both / "x/0.jpg", data)
    write(both / "x/1.jpg", SOUND)
    packed = json.loads(command("pack", both, tmp_path / "out", "--resize", "32", "--skip-bad", "--json").stdout)
    assert packed["samples"] == 1 + (right is not None), (source, report)


@pytest.mark.parametrize("orientation", range(2, 9))
def test_crops_and_sizes_of_turned_tiffs_are_those_of_the_picture_that_is_seen(
    command: Command, tmp_path: Path, orientation: int
) -> None:
    """The right picture is a PNG of what Pillow shows; rows are resized before columns, so that a rounding may differ."""
    stored = {"turned": turned(orientation), "masks-turned": turned(orientation, mode="L")}
    for name, data in stored.items():
        write(tmp_path / name / "x/0.tif", data)
        with Image.open(io.BytesIO(data)) as image:
            image.load()
            assert image.size == (64, 48)
            write(tmp_path / name.replace("turned", "seen") / "x/0.png", encoded(image, "PNG"))

    def shown(folder: str, size: tuple[int, int] = (23, 31), **options: Any) -> np.ndarray:
        fields = {"image": millrace.Image(size=size, **options)}
        with millrace.Loader(str(tmp_path / folder), batch_size=1, fields=fields, raw=True) as loader:
            return np.asarray(next(iter(loader))["image"]).astype(int)

    for options in ({}, {"crop": "random"}, {"crop": "random", "orientation": "exif"}, {"channels": 1}):
        assert np.abs(shown("turned", **options) - shown("seen", **options)).max() <= 1, options
    # Twice the size, so that no centre lies on the border of two pixels, of which a mirrored picture shows the other one.
    masks = [shown(f"masks-{kind}", (96, 128), interpolation="nearest") for kind in ("turned", "seen")]
    assert np.array_equal(*masks)
    packed = {}
    for folder in ("turned", "seen"):
        command("pack", tmp_path / folder, tmp_path / f"{folder}-out", "--resize", "24")
        dataset = millrace.Dataset(str(tmp_path / f"{folder}-out"))
        (value,) = (value for name, value in dataset[0].items() if name in ("tif", "png"))
        with Image.open(io.BytesIO(value)) as image:
            packed[folder] = np.asarray(image.convert("RGB")).astype(int)
    assert packed["turned"].shape == (24, 32, 3)
    assert np.abs(packed["turned"] - packed["seen"]).max() <= 1


def shown_of(folder: Path, data: bytes, **options: Any) -> np.ndarray:
    write(folder / "x/0.png", data)
    fields = {"image": millrace.Image(size=(48, 64), exact=True, **options)}
    with millrace.Loader(str(folder), batch_size=1, fields=fields, raw=True) as loader:
        return np.asarray(next(iter(loader))["image"][0]).astype(int)


WIDE = np.random.default_rng(5).integers(0, 65536, (48, 64), dtype=np.uint16)


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_grey_of_16_bits_is_its_high_byte(tmp_path: Path, kind: str) -> None:
    """Pillow cuts it off at 255 (python-pillow/Pillow#3011); docs/wild.md lists the difference."""
    data = encoded(Image.fromarray(WIDE), kind)
    assert np.array_equal(shown_of(tmp_path, data)[..., 0], WIDE >> 8)
    right = pillow(data)
    assert right is not None and np.array_equal(right[..., 0], np.minimum(WIDE, 255))


def lab() -> bytes:
    return encoded(Image.frombytes("LAB", (64, 48), photo(1).tobytes()), "TIFF")


REFUSED: list[tuple[str, bytes, str, str]] = [
    ("a TIFF in L*a*b*", lab(), r"L\*a\*b\*", "pre-press"),
    (
        "floats",
        encoded(Image.fromarray(WIDE.astype(np.float32)), "TIFF"),
        "floating-point numbers of 32",
        "microscopes",
    ),
    ("signed numbers", encoded(Image.fromarray(WIDE.astype(np.int32)), "TIFF"), "signed numbers of 32", "elevations"),
]


@pytest.mark.parametrize(("name", "data", "words", "source"), REFUSED, ids=[row[0] for row in REFUSED])
def test_tiffs_of_other_meanings_are_refused_by_name(
    command: Command, tmp_path: Path, name: str, data: bytes, words: str, source: str
) -> None:
    with pytest.raises(millrace.Error, match=words):
        shown_of(tmp_path / "raw", data)
    found = json.loads(command("inspect", tmp_path / "raw", "--decode", "all", "--json").stdout)
    assert found["decode"]["failed"] == 1, source


def test_ycbcr_without_compression_differs_by_roundings(tmp_path: Path) -> None:
    data = encoded(photo(1).convert("YCbCr"), "TIFF")
    right = pillow(data)
    assert right is not None and np.abs(shown_of(tmp_path, data) - right).max() <= 2


def test_warnings_are_counted(command: Command, tmp_path: Path) -> None:
    for number, data in enumerate((SOUND, FILES[0][1], FILES[1][1])):
        write(tmp_path / f"raw/x/{number}.jpg", data)
    fed = json.loads(command("feed", tmp_path / "raw", "--batch", "1", "--json").stdout)
    assert fed["odd_images"] >= 1 and fed["quarantined"] == 0
    found = json.loads(command("inspect", tmp_path / "raw", "--decode", "all", "--json").stdout)
    assert found["decode"]["odd"] == 2 and found["decode"]["failed"] == 0
    assert "2 images shown in spite of warnings" in command("inspect", tmp_path / "raw", "--decode", "all").stdout


@pytest.mark.parametrize("behind", [b"<html></html>", SOUND, bytes(5000)], ids=["text", "an image", "zeros"])
def test_bytes_behind_the_end_are_not_counted(command: Command, tmp_path: Path, behind: bytes) -> None:
    """No codec reads them, so none warns."""
    write(tmp_path / "raw/x/0.jpg", SOUND + behind)
    fed = json.loads(command("feed", tmp_path / "raw", "--batch", "1", "--json").stdout)
    found = json.loads(command("inspect", tmp_path / "raw", "--decode", "all", "--json").stdout)
    assert fed["odd_images"] == found["decode"]["odd"] == found["decode"]["failed"] == 0


def test_pixels_with_warnings_are_those_without(command: Command, tmp_path: Path) -> None:
    """Also where images are shrunk by the codec and cropped."""
    large = encoded(photo(9, 640, 480), quality=90)
    scan = large.index(b"\xff\xda")
    digests = set()
    for number, data in enumerate((large, large[:-2] + bytes(228) + large[-2:], large[:scan] + b"\0\0" + large[scan:])):
        write(tmp_path / str(number) / "x/0.jpg", data)
        for options in ((), ("--augment",), ("--exact",)):
            with_options = ("--batch", "1", "--size", "64", *options, "--json")
            uri = str(tmp_path / str(number))
            image = millrace.Image(exact="--exact" in options)
            with millrace.Loader(
                uri, batch_size=1, size=(64, 64), augment="--augment" in options, image=image, raw=True
            ) as loader:
                digests.add((options, np.asarray(next(iter(loader))["image"]).tobytes()))
            command("feed", uri, *with_options)
    assert len(digests) == 3


def test_names_of_images(command: Command, tmp_path: Path) -> None:
    """Browsers, phones and old programs have other endings for the same formats."""
    for number, ending in enumerate(("jpg", "jfif", "jpe", "pjpeg", "JPG", "JFIF", "jpeg", "pjp", "jif")):
        write(tmp_path / f"raw/x/{number}.{ending}", SOUND)
    found = json.loads(command("inspect", tmp_path / "raw", "--decode", "all", "--json").stdout)
    assert found["decode"]["images"] == 9 and found["decode"]["failed"] == 0
    command("feed", tmp_path / "raw", "--batch", "3")


def test_large_progressive_images_need_the_budget_alone(millrace_bin: Path, tmp_path: Path, command: Command) -> None:
    large = encoded(photo(9, 9000, 6000), progressive=True, quality=20, subsampling=0)  # 309 MiB of coefficients
    write(tmp_path / "raw/x/0.jpg", large)
    failed = command("feed", tmp_path / "raw", "--batch", "1", "--memory", "128MiB", code=1)
    assert "--memory" in failed.stderr and "MiB to decode" in failed.stderr
    command("feed", tmp_path / "raw", "--batch", "1", "--memory", "512MiB")


Use = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize(
    ("magic", "name"),
    [
        (b"\0\0\0\x20ftypavif", "AVIF"),
        (b"\0\0\0\x20ftypheic", "HEIF"),
        (b"\0\0\0\x20ftypmif1", "HEIF"),
        (b"\xff\x0a", "JPEG XL"),
        (b"II+\0", "BigTIFF"),
        (encoded(photo(1), "PPM"), "Netpbm"),
        (encoded(photo(1).convert("L"), "PPM"), "Netpbm"),
        (encoded(photo(1), "ICO", sizes=[(32, 32)]), "ICO"),
        (b"8BPS\0\1", "PSD"),
        (b"DDS \x7c\0", "DDS"),
        (b'<svg xmlns="', "SVG"),
        (bytes(128) + b"DICM", "DICOM"),
    ],
)
def test_formats_that_are_not_decoded_are_named(command: Command, tmp_path: Path, magic: bytes, name: str) -> None:
    write(tmp_path / "raw/x/0.jpg", magic + bytes(100))
    assert index(command, tmp_path / "raw")["samples"] == 1
    assert name in command("feed", tmp_path / "raw", "--batch", "1", code=1).stderr
