"""Chunks of PNG, segments of JPEG, heads of GIF and BMP as other programs write them: the verdict and the pixels are those of Pillow. Files that
cannot be decoded are named."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import millrace
import numpy as np
import pytest
from PIL import Image, ImageOps
from wild_support import encoded, photo, write

WIDTH, HEIGHT = 61, 45
SIGNATURE = b"\x89PNG\r\n\x1a\n"
RNG = np.random.default_rng(11)
COLOURS = RNG.integers(0, 256, 768, dtype=np.uint8).tobytes()
SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by the kind of colors


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(kind: int, depth: int = 8, *chunks: bytes, raw_deflate: bool = False) -> bytes:
    row = (WIDTH * SAMPLES[kind] * depth + 7) // 8
    rows = b"".join(b"\0" + RNG.integers(0, 256, row, dtype=np.uint8).tobytes() for _ in range(HEIGHT))
    deflate = zlib.compressobj(wbits=-15 if raw_deflate else 15)
    pixels = deflate.compress(rows) + deflate.flush()
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", WIDTH, HEIGHT, depth, kind, 0, 0, 0))
    return SIGNATURE + head + b"".join(chunks) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def palette(entries: int, more: bytes = b"") -> bytes:
    return chunk(b"PLTE", COLOURS[: 3 * entries] + more)


def gif(width: int, height: int) -> bytes:
    """A picture of 61 x 45 pixels on a canvas of another size."""
    plain = encoded(Image.fromarray(RNG.integers(0, 256, (HEIGHT, WIDTH), dtype=np.uint8)).convert("P"), "GIF")
    return plain[:6] + struct.pack("<HH", width, height) + plain[10:]


def bmp(bits: int, offset: int | None = None, masks: tuple[int, ...] = (), entries: int = 0) -> bytes:
    """Its head has 40 bytes. `offset`: where it says that pixels begin."""
    rows = RNG.integers(0, 256, (WIDTH * bits + 31) // 32 * 4 * HEIGHT, dtype=np.uint8).tobytes()
    behind = struct.pack(f"<{len(masks)}I", *masks)
    behind += b"".join(COLOURS[3 * n : 3 * n + 3] + b"\0" for n in range(entries))
    method = 3 if masks else 0
    head = struct.pack("<IiiHHIIiiII", 40, WIDTH, HEIGHT, 1, bits, method, len(rows), 0, 0, entries, 0)
    begin = 54 + len(behind) if offset is None else offset
    return b"BM" + struct.pack("<IHHI", 54 + len(behind) + len(rows), 0, 0, begin) + head + behind + rows


def exif(kind: int = 3, value: bytes = struct.pack("<HH", 6, 0), head: bytes = b"II", behind: bytes = b"") -> bytes:
    """A TIFF of one tag, the orientation 6."""
    return head + struct.pack("<HIHHHI", 42, 8, 1, 0x0112, kind, 1) + value + bytes(4) + behind


PHOTO = photo(1, WIDTH, HEIGHT)
JPEG = encoded(PHOTO, quality=90)
XMP = b'http://ns.adobe.com/xap/1.0/\0<x:xmpmeta><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'
PNG = encoded(PHOTO, "PNG")


def jpeg(*segments: bytes) -> bytes:
    return JPEG[:20] + b"".join(b"\xff\xe1" + struct.pack(">H", len(one) + 2) + one for one in segments) + JPEG[20:]


# Name, file, where such files come from, and a public report of one.
FILES: list[tuple[str, bytes, str, str]] = [
    ("a palette of 64 colors, for numbers of 4 bits", png(3, 4, palette(64)), "games", "pret/pokeruby#456"),
    ("a palette of 256 colors, for numbers of 1 bit", png(3, 1, palette(256)), "", ""),
    ("a palette with part of a color", png(3, 8, palette(33, b"x")), "", "image-rs/image-png#695"),
    ("a palette that is too large", png(3, 8, palette(256, b"abc")), "", "image-rs/image-png#584"),
    ("an unknown chunk that claims to be critical", png(2, 8, chunk(b"QUXY", b"x")), "", "treeform/pixie#387"),
    ("tRNS of one byte", png(0, 8, chunk(b"tRNS", b"\1")), "", "python-pillow/Pillow#9934"),
    ("tRNS of two bytes for RGB", png(2, 8, chunk(b"tRNS", b"\0\1")), "", "python-pillow/Pillow#9934"),
    ("tRNS of whole length", png(2, 8, chunk(b"tRNS", bytes(6))), "", ""),
    ("gAMA of one byte", png(2, 8, chunk(b"gAMA", b"\0")), "", "python-pillow/Pillow#9934"),
    ("sRGB without a byte", png(2, 8, chunk(b"sRGB", b"")), "", "python-pillow/Pillow#9934"),
    ("pHYs of one byte", png(2, 8, chunk(b"pHYs", b"\0")), "", "python-pillow/Pillow#9934"),
    ("cHRM of one byte", png(2, 8, chunk(b"cHRM", b"\0")), "", "python-pillow/Pillow#9934"),
    ("acTL of one byte", png(2, 8, chunk(b"acTL", b"\0")), "", ""),
    ("a profile of an unknown method", png(2, 8, chunk(b"iCCP", b"x\0\5abc")), "", ""),
    ("a profile without its name", png(2, 8, chunk(b"iCCP", b"xxxx")), "", ""),
    ("a text of an unknown method", png(2, 8, chunk(b"zTXt", b"abc\0\7abc")), "", ""),
    ("a text that is none of zlib's", png(2, 8, chunk(b"zTXt", b"abc\0\0abc")), "", ""),
    ("a chunk whose name has a hyphen", png(2, 8, chunk(b"te-t", b"x")), "", ""),
    ("a GIF whose canvas has no pixels", gif(0, 0), "GIF writers that leave it to the picture", "libvips/libvips#2577"),
    ("a GIF whose canvas has no height", gif(WIDTH, 0), "", ""),
    ("a GIF whose canvas is smaller", gif(7, 5), "", "image-rs/image-gif#82"),
    ("a BMP that does not say where its pixels begin", bmp(24, offset=0), "scripts", "python-pillow/Pillow#1125"),
    ("such a BMP with a palette", bmp(8, offset=0, entries=256), "", ""),
    ("a BMP that says its palette's place", bmp(8, offset=54, entries=256), "", ""),
    ("such a BMP of 4 bits", bmp(4, offset=54, entries=16), "", ""),
    ("a BMP of 24 bits with masks", bmp(24, masks=(0xFF0000, 0xFF00, 0xFF)), "", ""),
    ("a BMP of 32 bits with masks of 0", bmp(32, masks=(0, 0, 0)), "", "libsdl-org/SDL_image#64"),
    ("a BMP of 16 bits with masks", bmp(16, masks=(0xF800, 0x7E0, 0x1F)), "", ""),
    ("EXIF in two segments", jpeg(b"Exif\0\0" + exif()[:15], b"Exif\0\0" + exif()[15:]), "cameras with long notes", ""),
    ("two EXIF", jpeg(b"Exif\0\0" + exif(), b"Exif\0\0" + exif(value=struct.pack("<HH", 3, 0))), "", ""),
    ("an orientation of one signed byte", jpeg(b"Exif\0\0" + exif(6, b"\6\0\0\0")), "", ""),
    ("an orientation that is a float", jpeg(b"Exif\0\0" + exif(11, struct.pack("<f", 6))), "", ""),
    (
        "an orientation that is a double",
        jpeg(b"Exif\0\0" + exif(12, struct.pack("<I", 26), behind=struct.pack("<d", 6))),
        "",
        "",
    ),
    ("an orientation that is a place", jpeg(b"Exif\0\0" + exif(13)), "", ""),
    ("EXIF of neither order", jpeg(b"Exif\0\0" + exif(head=b"XX")), "", ""),
    ("EXIF of neither order, and XMP", jpeg(b"Exif\0\0" + exif(head=b"XX"), XMP), "editors", ""),
    ("eXIf behind the end", PNG + chunk(b"eXIf", exif()), "appended chunks", ""),
    ("eXIf before the end", PNG[:-12] + chunk(b"eXIf", exif()) + PNG[-12:], "exiftool", ""),
]


def pillow(data: bytes) -> np.ndarray | None:
    try:
        with Image.open(io.BytesIO(data)) as image:
            return np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
    except (OSError, SyntaxError, ValueError):
        return None


def load(folder: Path, data: bytes, size: tuple[int, int]) -> np.ndarray:
    write(folder / "x/0.png", data)
    fields = {"image": millrace.Image(size=size, exact=True, orientation="exif")}
    with millrace.Loader(str(folder), batch_size=1, fields=fields, raw=True) as loader:
        return np.asarray(next(iter(loader))["image"][0])


@pytest.mark.parametrize(("name", "data", "source", "report"), FILES, ids=[row[0] for row in FILES])
def test_the_verdict_and_the_pixels_are_those_of_pillow(
    tmp_path: Path, name: str, data: bytes, source: str, report: str
) -> None:
    right = pillow(data)
    if right is None:
        with pytest.raises(millrace.DamagedDataError):
            load(tmp_path, data, (HEIGHT, WIDTH))
    else:
        assert np.array_equal(load(tmp_path, data, (right.shape[0], right.shape[1])), right), (source, report)


def lossless_jpeg() -> bytes:
    """Only its head counts."""
    frame = JPEG.index(b"\xff\xc0")
    return JPEG[:frame] + b"\xff\xc3" + JPEG[frame + 2 :]


NAMED: list[tuple[bytes, str, str]] = [
    (lossless_jpeg(), "a lossless JPEG", "cgohlke/imagecodecs#27"),
    (
        SIGNATURE + chunk(b"CgBI", b"P\0 \2") + png(2, 8, raw_deflate=True)[8:],
        "Xcode has changed for iOS",
        "treeform/pixie#387",
    ),
]


@pytest.mark.parametrize(("data", "words", "report"), NAMED, ids=[row[1] for row in NAMED])
def test_what_is_not_decoded_is_named(tmp_path: Path, data: bytes, words: str, report: str) -> None:
    with pytest.raises(millrace.Error, match=words):
        load(tmp_path, data, (HEIGHT, WIDTH))


def test_a_palette_without_a_color_is_damage(tmp_path: Path) -> None:
    """Pillow shows it black (SixLabors/ImageSharp#2020)."""
    for number, data in enumerate((png(3, 8), png(3, 8, palette(0)))):
        right = pillow(data)
        assert right is not None and not right.any()
        with pytest.raises(millrace.DamagedDataError):
            load(tmp_path / str(number), data, (HEIGHT, WIDTH))
