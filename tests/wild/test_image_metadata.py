"""Image files say how pixels are to be shown: the orientation in EXIF and XMP data, and the meaning of the samples of a TIFF."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import millrace
import numpy as np
import pytest
from PIL import Image, ImageOps
from wild_support import Command, command, encoded, photo, write

__all__ = ["command"]

PHOTO = photo(1, 61, 45)
JPEG = encoded(PHOTO, quality=90)
PNG = encoded(PHOTO, "PNG")


def exif(orientation: int, kind: int = 3, count: int = 1, order: str = "<", before: bytes = b"", cut: int = 0) -> bytes:
    """A TIFF of one tag, and those in `before`."""
    value = struct.pack(order + "HH", orientation, 0) if kind == 3 else struct.pack(order + "I", orientation)
    entry = before + struct.pack(order + "HHI", 0x0112, kind, count) + value
    head = (b"II" if order == "<" else b"MM") + struct.pack(order + "HIH", 42, 8, len(entry) // 12)
    return (head + entry)[: -cut or None] + (b"" if cut else bytes(4))


def xmp(orientation: int, form: str = 'tiff:Orientation="{}"') -> bytes:
    return f"<x:xmpmeta><rdf:Description {form.format(orientation)}/></x:xmpmeta>".encode()


ELEMENT = "><tiff:Orientation>{}</tiff:Orientation></rdf:Description"


def jpeg(*segments: bytes) -> bytes:
    return JPEG[:20] + b"".join(b"\xff\xe1" + struct.pack(">H", len(s) + 2) + s for s in segments) + JPEG[20:]


def of_exif(data: bytes) -> bytes:
    return b"Exif\0\0" + data


def of_xmp(data: bytes) -> bytes:
    return b"http://ns.adobe.com/xap/1.0/\0" + data


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(*chunks: bytes) -> bytes:
    return PNG[:33] + b"".join(chunks) + PNG[33:]


def raw_profile(data: bytes, name: str = "exif") -> bytes:
    digits = of_exif(data).hex()
    lines = "\n".join(digits[at : at + 72] for at in range(0, len(digits), 72))
    return f"\n{name}\n{len(digits) // 2:8}\n{lines}\n".encode()


def webp(**options: Any) -> bytes:
    return encoded(PHOTO, "WEBP", lossless=True, **options)


def without_flags(data: bytes) -> bytes:
    """The head says that there are no EXIF and no XMP data."""
    return data[:20] + b"\0" + data[21:]


ITXT = b"XML:com.adobe.xmp\0\0\0\0\0"
ITXT_COMPRESSED = b"XML:com.adobe.xmp\0\1\0\0\0"
RAW = b"Raw profile type exif\0"

# Name, file, where such files come from, and a public report of one. Pillow's exif_transpose says what is right.
TURNED: list[tuple[str, bytes, str, str]] = [
    ("EXIF", jpeg(of_exif(exif(6))), "phones", "python-pillow/Pillow#4053"),
    ("big-endian EXIF", jpeg(of_exif(exif(8, order=">"))), "cameras", ""),
    ("a long", jpeg(of_exif(exif(6, kind=4))), "image libraries", ""),
    ("a byte", jpeg(of_exif(exif(6, kind=1))), "image libraries", ""),
    ("two values", jpeg(of_exif(exif(6, count=2))), "image libraries", ""),
    ("no value", jpeg(of_exif(exif(6, count=0))), "image libraries", ""),
    ("a tag cut off", jpeg(of_exif(exif(6, cut=2))), "editors that cut EXIF data", ""),
    (
        "a tag before it that lies beyond the data",
        jpeg(of_exif(exif(6, before=struct.pack("<HHII", 271, 2, 20, 40)))),
        "",
        "",
    ),
    ("XMP in a JPEG", jpeg(of_xmp(xmp(6))), "Lightroom", "python-pillow/Pillow#7269"),
    ("an element of XMP", jpeg(of_xmp(xmp(6, ELEMENT))), "Lightroom", ""),
    ("XMP in single quotes", jpeg(of_xmp(xmp(6, "tiff:Orientation='{}'"))), "", ""),
    ("EXIF and XMP", jpeg(of_xmp(xmp(6)), of_exif(exif(3))), "editors", ""),
    ("EXIF that says 1, and XMP", jpeg(of_exif(exif(1)), of_xmp(xmp(6))), "editors", ""),
    ("EXIF without it, and XMP", jpeg(of_exif(b"II*\0\x08\0\0\0\0\0\0\0\0\0"), of_xmp(xmp(6))), "editors", ""),
    ("eXIf in a PNG", png(chunk(b"eXIf", exif(6))), "screenshots", ""),
    ("eXIf behind the pixels", PNG[:-12] + chunk(b"eXIf", exif(6)) + PNG[-12:], "exiftool", ""),
    ("XMP in a PNG", png(chunk(b"iTXt", ITXT + xmp(6))), "Photoshop", ""),
    ("compressed XMP in a PNG", png(chunk(b"iTXt", ITXT_COMPRESSED + zlib.compress(xmp(6)))), "exiftool", ""),
    ("XMP behind the pixels", PNG[:-12] + chunk(b"iTXt", ITXT + xmp(8)) + PNG[-12:], "exiftool", ""),
    ("a raw profile", png(chunk(b"zTXt", RAW + b"\0" + zlib.compress(raw_profile(exif(6))))), "ImageMagick", ""),
    ("a raw profile as text", png(chunk(b"tEXt", RAW + raw_profile(exif(6)))), "ImageMagick", ""),
    (
        "a raw profile and eXIf",
        png(chunk(b"tEXt", RAW + raw_profile(exif(6))), chunk(b"eXIf", exif(3))),
        "ImageMagick",
        "",
    ),
    (
        "a profile of another name",
        png(chunk(b"tEXt", b"Raw profile type APP1\0" + raw_profile(exif(6), "APP1"))),
        "",
        "",
    ),
    ("a text called orientation", png(chunk(b"tEXt", b"Orientation\x006")), "", ""),
    ("EXIF in a WebP", webp(exif=exif(6)), "cwebp", ""),
    ("EXIF in a WebP whose head denies it", without_flags(webp(exif=exif(6))), "", ""),
    ("XMP in a WebP", webp(xmp=xmp(6)), "cwebp", ""),
    ("XMP in a WebP whose head denies it", without_flags(webp(xmp=xmp(6))), "", ""),
    ("XMP in a TIFF", encoded(PHOTO, "TIFF", tiffinfo={700: xmp(6)}), "photo editors", ""),
]


def shown(folder: Path, data: bytes, size: tuple[int, int], **options: Any) -> np.ndarray:
    write(folder / "x/0.png", data)
    fields = {"image": millrace.Image(size=size, exact=True, **options)}
    with millrace.Loader(str(folder), batch_size=1, fields=fields, raw=True) as loader:
        return np.asarray(next(iter(loader))["image"][0]).astype(int)


@pytest.mark.parametrize(("name", "data", "source", "report"), TURNED, ids=[row[0] for row in TURNED])
def test_orientations_are_those_of_exif_transpose(
    tmp_path: Path, name: str, data: bytes, source: str, report: str
) -> None:
    with Image.open(io.BytesIO(data)) as image:
        right = np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
    height, width = right.shape[:2]
    found = shown(tmp_path / "raw", data, (height, width), orientation="exif")
    assert np.array_equal(found, right), (source, report)


KEPT: list[tuple[str, str, Callable[..., bytes]]] = [
    ("jpg", "JPEG", lambda **options: encoded(photo(2, 320, 240), quality=95, **options)),
    ("png", "PNG", lambda **options: encoded(photo(2, 320, 240), "PNG", **options)),
    ("webp", "WEBP", lambda **options: encoded(photo(2, 320, 240), "WEBP", **options)),
    ("webp", "WEBP", lambda **options: encoded(photo(2, 320, 240), "WEBP", lossless=True, **options)),
]


@pytest.mark.parametrize("kind", range(len(KEPT)))
@pytest.mark.parametrize("by", ["exif", "xmp"])
def test_resized_images_keep_orientation_and_profile(command: Command, tmp_path: Path, kind: int, by: str) -> None:
    ending, form, make = KEPT[kind]
    said = {"exif": of_exif(exif(6))} if by == "exif" else {"xmp": xmp(6)}
    profile = bytes(range(200))
    if form == "PNG" and by == "xmp":
        data = make(icc_profile=profile)
        data = data[:33] + chunk(b"iTXt", ITXT + xmp(6)) + data[33:]
    else:
        data = make(icc_profile=profile, **said)
    write(tmp_path / f"raw/x/0.{ending}", data)
    command("pack", tmp_path / "raw", tmp_path / "out", "--resize", "96")
    stored = millrace.Dataset(str(tmp_path / "out"))[0][ending]
    with Image.open(io.BytesIO(stored)) as image:
        image.load()
        assert (image.format, image.size, image.info.get("icc_profile")) == (form, (128, 96), profile)
        assert ImageOps.exif_transpose(image).size == (96, 128)
    fields = {"image": millrace.Image(size=(128, 96), orientation="exif")}
    shown_of = []
    for folder in ("raw", "out"):
        with millrace.Loader(str(tmp_path / folder), batch_size=1, fields=fields, raw=True) as loader:
            shown_of.append(np.asarray(next(iter(loader))["image"][0]).astype(int))
    assert np.abs(shown_of[0] - shown_of[1]).mean() < 6


def tiff(samples: np.ndarray, photometric: int | None = 2, planes: bool = False, **options: Any) -> bytes:
    """A little-endian TIFF of whole numbers. Options: `extra` (ExtraSamples), `deflate`, `tile` (its side)."""
    height, width, count = samples.shape
    blocks = []
    for part in [samples[..., c : c + 1] for c in range(count)] if planes else [samples]:
        side = options.get("tile")
        if side is None:
            blocks.append(part)
            continue
        padded = np.pad(part, ((0, -height % side), (0, -width % side), (0, 0)))
        for y in range(0, height, side):
            blocks += [padded[y : y + side, x : x + side] for x in range(0, width, side)]
    coded = [zlib.compress(b.tobytes()) if options.get("deflate") else b.tobytes() for b in blocks]
    tags: dict[int, tuple[int, list[int]]] = {
        256: (4, [width]),
        257: (4, [height]),
        258: (3, [8 * samples.itemsize] * count),
        259: (3, [8 if options.get("deflate") else 1]),
        277: (3, [count]),
        284: (3, [2 if planes else 1]),
    }
    if photometric is not None:
        tags[262] = (3, [photometric])
    if "extra" in options:
        tags[338] = (3, options["extra"])
    out = bytearray(b"II*\0\0\0\0\0")
    places = []
    for block in coded:
        places.append(len(out))
        out += block + b"\0" * (len(block) % 2)
    sizes = [len(block) for block in coded]
    if side := options.get("tile"):
        tags |= {322: (3, [side]), 323: (3, [side]), 324: (4, places), 325: (4, sizes)}
    else:
        tags |= {273: (4, places), 278: (4, [height]), 279: (4, sizes)}
    directory = len(out)
    behind = directory + 2 + 12 * len(tags) + 4
    entries, values = b"", b""
    for tag, (kind, numbers) in sorted(tags.items()):
        value = b"".join(struct.pack("<H" if kind == 3 else "<I", number) for number in numbers)
        place = value.ljust(4, b"\0")
        if len(value) > 4:
            place = struct.pack("<I", behind + len(values))
            values += value
        entries += struct.pack("<HHI", tag, kind, len(numbers)) + place
    out += struct.pack("<H", len(tags)) + entries + bytes(4) + values
    out[4:8] = struct.pack("<I", directory)
    return bytes(out)


def numbers(count: int, dtype: Any = np.uint8) -> np.ndarray:
    return np.random.default_rng(count).integers(0, np.iinfo(dtype).max + 1, (45, 61, count)).astype(dtype)


# Name, file, and where such files come from. Pillow says what is right.
SAMPLES: list[tuple[str, bytes, str]] = [
    ("planes", tiff(numbers(3), planes=True), "microscopes"),
    ("planes of Deflate", tiff(numbers(3), planes=True, deflate=True), "microscopes"),
    ("planes with alpha", tiff(numbers(4), planes=True, extra=[2]), "GIMP, GDAL"),
    ("planes with alpha, of Deflate", tiff(numbers(4), planes=True, extra=[2], deflate=True), "GDAL"),
    ("planes with alpha in tiles", tiff(numbers(4), planes=True, extra=[2], tile=16), "GDAL"),
    ("planes with a mask", tiff(numbers(4), planes=True, extra=[0], deflate=True), "GDAL"),
    ("planes of 16 bits", tiff(numbers(3, np.uint16), planes=True, deflate=True), "microscopes"),
    ("multiplied by alpha", tiff(numbers(4), extra=[1]), "Photoshop, macOS"),
    ("multiplied by alpha, of Deflate", tiff(numbers(4), extra=[1], deflate=True), "Photoshop"),
    ("multiplied by alpha, in planes", tiff(numbers(4), extra=[1], planes=True, deflate=True), ""),
    ("multiplied by alpha, in tiles", tiff(numbers(4), extra=[1], tile=32), ""),
    ("multiplied by alpha of 16 bits", tiff(numbers(4, np.uint16), extra=[1], deflate=True), ""),
    ("not multiplied by alpha", tiff(numbers(4), extra=[2]), "ImageMagick"),
    ("CMYK", tiff(numbers(4), 5), "pre-press"),
    ("CMYK of Deflate in tiles", tiff(numbers(4), 5, tile=16, deflate=True), "pre-press"),
    ("CMYK in planes", tiff(numbers(4), 5, planes=True, deflate=True), "pre-press"),
    ("CMYK of 16 bits", tiff(numbers(4, np.uint16), 5), "pre-press"),
    ("CMYK of 16 bits, of Deflate", tiff(numbers(4, np.uint16), 5, deflate=True), "pre-press"),
    ("CMYK and another ink", tiff(numbers(5), 5, extra=[0]), "pre-press"),
    ("no photometric interpretation", tiff(numbers(1), None), "scripts"),
    ("no photometric interpretation, of Deflate", tiff(numbers(1), None, deflate=True), "scripts"),
]


@pytest.mark.parametrize(("name", "data", "source"), SAMPLES, ids=[row[0] for row in SAMPLES])
def test_samples_of_tiffs_mean_what_they_mean_to_pillow(tmp_path: Path, name: str, data: bytes, source: str) -> None:
    with Image.open(io.BytesIO(data)) as image:
        right = np.asarray(image.convert("RGB"))
    assert np.array_equal(shown(tmp_path / "raw", data, (45, 61)), right), source


def test_planes_of_16_bits_without_compression_are_shown(tmp_path: Path) -> None:
    """Pillow shows noise (docs/wild.md)."""
    samples = numbers(3, np.uint16)
    assert np.array_equal(shown(tmp_path / "raw", tiff(samples, planes=True), (45, 61)), samples >> 8)


REFUSED: list[tuple[bytes, dict[str, Any], str]] = [
    (tiff(numbers(3), None), {}, "does not say what its samples stand for"),
    (tiff(numbers(1), 0), {"interpolation": "nearest"}, "0 is white"),
]


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_what_cannot_be_known_is_said(tmp_path: Path, case: int) -> None:
    data, options, words = REFUSED[case]
    write(tmp_path / "raw/x/0.png", data)
    fields = {"image": millrace.Image(size=(45, 61), **options)}
    with pytest.raises(millrace.Error, match=words):
        with millrace.Loader(str(tmp_path / "raw"), batch_size=1, fields=fields, raw=True) as loader:
            next(iter(loader))
