"""Tests WebP, TIFF, BMP and GIF, and PNGs that no library writes, against Pillow."""

from __future__ import annotations

import io
import os
import pathlib
import struct
import subprocess
import tarfile
import zlib
from collections.abc import Iterator
from typing import Any

import millrace
import numpy as np
import pytest
from PIL import Image

HEIGHT, WIDTH = 37, 53
PALETTE = [value for color in range(256) for value in (color * 37 % 256, color * 101 % 256, 255 - color)]


def picture(seed: int = 0, height: int = HEIGHT, width: int = WIDTH) -> Image.Image:
    y, x = np.mgrid[0:height, 0:width]
    channels = [127 + 120 * np.sin(x * 0.11 * (c + 1) + y * 0.07 * (3 - c) + seed + c) for c in range(3)]
    return Image.fromarray(np.clip(np.stack(channels, axis=2), 0, 255).astype(np.uint8))


def indices(depth: int, height: int = HEIGHT, width: int = WIDTH, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**depth, (height, width), dtype=np.uint8)


def mapped(numbers: np.ndarray, depth: int = 8) -> Image.Image:
    image = Image.fromarray(numbers, "L")
    image.putpalette(PALETTE[: 3 * 2**depth])
    return image


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def tiff_by_hand(
    pixels: np.ndarray,
    order: str = "<",
    tile: tuple[int, int] | None = None,
    compression: int = 1,
    **tags: int | list[int],
) -> bytes:
    """Makes a TIFF, gray or RGB, 8 or 16 bits, in one strip or in tiles, either byte order."""
    height, width = pixels.shape[:2]
    samples = 1 if pixels.ndim == 2 else pixels.shape[2]
    stored = pixels.astype(pixels.dtype.newbyteorder(order))
    if tile:
        rows, columns = tile
        pad = [(0, -height % rows), (0, -width % columns), *[(0, 0)] * (pixels.ndim - 2)]
        full = np.pad(stored, pad)
        pieces = [
            full[y : y + rows, x : x + columns].tobytes()
            for y in range(0, full.shape[0], rows)
            for x in range(0, full.shape[1], columns)
        ]
    else:
        pieces = [stored.tobytes()]
    if compression == 8:
        pieces = [zlib.compress(piece) for piece in pieces]
    offsets, at = [], 8
    for piece in pieces:
        offsets.append(at)
        at += len(piece)
    entries: dict[int, tuple[int, list[int]]] = {
        256: (4, [width]),
        257: (4, [height]),
        258: (3, [pixels.dtype.itemsize * 8] * samples),
        259: (3, [compression]),
        262: (3, [2 if samples >= 3 else 1]),
        277: (3, [samples]),
    }
    if tile:
        entries |= {
            322: (4, [tile[1]]),
            323: (4, [tile[0]]),
            324: (4, offsets),
            325: (4, [len(piece) for piece in pieces]),
        }
    else:
        entries |= {273: (4, offsets), 278: (4, [height]), 279: (4, [len(pieces[0])])}
    for tag, value in tags.items():
        entries[int(tag[1:])] = (4 if int(tag[1:]) in (322, 323) else 3, value if isinstance(value, list) else [value])
    body = b"".join(pieces)
    directory_at = 8 + len(body)
    directory = struct.pack(order + "H", len(entries))
    behind, behind_at = b"", directory_at + 2 + 12 * len(entries) + 4
    for tag, (kind, values) in sorted(entries.items()):
        packed = struct.pack(order + ("H" if kind == 3 else "I") * len(values), *values)
        if len(packed) > 4:
            value, behind = struct.pack(order + "I", behind_at + len(behind)), behind + packed
        else:
            value = packed.ljust(4, b"\0")
        directory += struct.pack(order + "HHI", tag, kind, len(values)) + value
    magic = b"II*\0" if order == "<" else b"MM\0*"
    return magic + struct.pack(order + "I", directory_at) + body + directory + b"\0\0\0\0" + behind


def bmp_by_hand(bits: int, masks: tuple[int, int, int] | None, top_down: bool, core: bool = False) -> bytes:
    rng = np.random.default_rng(bits)
    row = (WIDTH * bits + 31) // 32 * 4
    pixels = rng.integers(0, 256, row * HEIGHT, dtype=np.uint8).tobytes()
    palette = b"" if bits > 8 else rng.integers(0, 256, (3 if core else 4) * 2**bits, dtype=np.uint8).tobytes()
    if core:
        head = struct.pack("<IHHHH", 12, WIDTH, HEIGHT, 1, bits)
    else:
        head = struct.pack(
            "<IiiHHIIiiII", 40, WIDTH, -HEIGHT if top_down else HEIGHT, 1, bits, 3 if masks else 0, 0, 0, 0, 0, 0
        )
    fields = struct.pack("<III", *masks) if masks else b""
    offset = 14 + len(head) + len(fields) + len(palette)
    return b"BM" + struct.pack("<IHHI", offset + len(pixels), 0, 0, offset) + head + fields + palette + pixels


def interlaced_png(numbers: np.ndarray, depth: int) -> bytes:
    """Makes a PNG with a palette, by Adam7, with packed pixels, which libspng and Pillow do not write."""
    height, width = numbers.shape
    raw = b""
    for top, left, down, right in (
        (0, 0, 8, 8),
        (0, 4, 8, 8),
        (4, 0, 8, 4),
        (0, 2, 4, 4),
        (2, 0, 4, 2),
        (0, 1, 2, 2),
        (1, 0, 2, 1),
    ):
        part = numbers[top::down, left::right]
        if part.size:
            bits = np.unpackbits(part[..., None], axis=2)[..., 8 - depth :].reshape(part.shape[0], -1)
            raw += b"".join(b"\0" + np.packbits(line).tobytes() for line in bits)

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", width, height, depth, 3, 0, 0, 1)
    palette = bytes(PALETTE[: 3 * 2**depth])
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"PLTE", palette)
        + chunk(b"IDAT", zlib.compress(raw))
        + chunk(b"IEND", b"")
    )


def transparent(image: Image.Image) -> Image.Image:
    image = image.copy()
    image.putalpha(Image.linear_gradient("L").resize(image.size))
    return image


def offset_gif() -> bytes:
    """Its first picture covers a part of the canvas only."""
    whole = bytearray(saved(mapped(indices(4, 16, 20), 4), "gif"))
    whole[6:10] = struct.pack("<HH", WIDTH, HEIGHT)
    at = whole.index(b",")
    whole[at + 1 : at + 5] = struct.pack("<HH", 7, 11)
    return bytes(whole)


def all_kinds() -> dict[str, tuple[bytes, int]]:
    """Returns files, and by how much their pixels may differ from Pillow's."""
    rgb = picture()
    array = np.asarray(rgb)
    wide = array.astype(np.uint16) * 257
    kinds = {
        "lossy.webp": (saved(rgb, "webp", quality=80), 0),
        "lossless.webp": (saved(rgb, "webp", lossless=True), 0),
        "alpha-lossy.webp": (saved(transparent(rgb), "webp", quality=70), 0),
        "alpha-lossless.webp": (saved(transparent(rgb), "webp", lossless=True, exact=True), 0),
        "rgb.bmp": (saved(rgb, "bmp"), 0),
        "grey.bmp": (saved(rgb.convert("L"), "bmp"), 0),
        "palette.bmp": (saved(rgb.convert("P"), "bmp"), 0),
        "bits.bmp": (saved(rgb.convert("1"), "bmp"), 0),
        "rgba.bmp": (saved(transparent(rgb), "bmp"), 0),
        "four.bmp": (bmp_by_hand(4, None, False), 0),
        "555.bmp": (bmp_by_hand(16, None, False), 0),
        "565.bmp": (bmp_by_hand(16, (0xF800, 0x7E0, 0x1F), False), 0),
        "32.bmp": (bmp_by_hand(32, None, True), 0),
        "fields.bmp": (bmp_by_hand(32, (0xFF0000, 0xFF00, 0xFF), False), 0),
        "down.bmp": (bmp_by_hand(24, None, True), 0),
        "core.bmp": (bmp_by_hand(8, None, False, core=True), 0),
        "colours.gif": (saved(rgb.convert("P"), "gif"), 0),
        "plain.gif": (saved(rgb.convert("P"), "gif", interlace=0), 0),
        "interlaced.gif": (saved(rgb.convert("P"), "gif", interlace=1), 0),
        "shades.gif": (saved(rgb.convert("L"), "gif"), 0),
        "small.gif": (saved(mapped(indices(2), 2), "gif", transparency=1), 0),
        "animated.gif": (
            saved(rgb.convert("P"), "gif", save_all=True, append_images=[picture(i).convert("P") for i in range(3)]),
            0,
        ),
        "offset.gif": (offset_gif(), 0),
        "tiled.tif": (tiff_by_hand(array, "<", (16, 32)), 0),
        "tiled-deflate.tif": (tiff_by_hand(array, ">", (32, 16), compression=8), 0),
        "one-tile.tif": (tiff_by_hand(array[..., 0].copy(), "<", (64, 64)), 0),
        "big-endian.tif": (tiff_by_hand(array, ">"), 0),
        "alpha.tif": (tiff_by_hand(np.asarray(transparent(rgb)), "<", t338=2), 0),
        "cmyk.tif": (saved(rgb.convert("CMYK"), "tiff"), 1),
        "16-bit.tif": (tiff_by_hand(wide, "<"), 0),
        "fax.tif": (saved(rgb.convert("1"), "tiff", compression="group4"), 0),
        "jpeg.tif": (saved(rgb, "tiff", compression="jpeg", quality=90), 0),
    }
    for mode in ("RGB", "L", "P", "1", "RGBA", "LA"):
        image = transparent(rgb).convert(mode) if mode.endswith("A") else rgb.convert(mode)
        for compression in ("raw", "tiff_lzw", "tiff_adobe_deflate", "packbits", "zstd"):
            kinds[f"{mode}-{compression}.tif"] = (saved(image, "tiff", compression=compression), 0)
    return kinds


def write(folder: pathlib.Path, files: dict[str, bytes]) -> str:
    folder.mkdir(exist_ok=True)
    with tarfile.open(folder / "shard-000.tar", "w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return str(folder)


def decoded(data: str, **image: Any) -> dict[str, np.ndarray]:
    fields = {"image": millrace.Image(size=(HEIGHT, WIDTH), **image)}
    found = {}
    for batch in millrace.Loader(data, fields=fields, batch_size=16, epochs=1, output="numpy"):
        for row in np.flatnonzero(batch["valid"]):
            found[batch["key"][row]] = batch["image"][row]
    return found


def test_pixels_are_pillows(tmp_path: pathlib.Path) -> None:
    kinds = all_kinds()
    data = write(tmp_path / "all", {name: file for name, (file, _) in kinds.items()})
    for channels, mode in ((3, "RGB"), (1, "L")):
        found = decoded(data, channels=channels)
        assert len(found) == len(kinds)
        for name, (file, most) in kinds.items():
            with Image.open(io.BytesIO(file)) as image:
                expected = np.asarray(image.convert("RGB").convert(mode)).reshape(HEIGHT, WIDTH, channels).astype(int)
            difference = np.abs(found[name.rpartition(".")[0]].astype(int) - expected).max()
            assert difference <= most + (channels == 1), f"{name} as {mode}: {difference}"


def test_crops_of_all_kinds(tmp_path: pathlib.Path) -> None:
    """A part that is decoded alone is the same part of the decoded whole."""
    kinds = all_kinds()
    data = write(tmp_path / "all", {name: file for name, (file, _) in kinds.items()})
    whole = decoded(data)
    fields = {"image": millrace.Image(transforms=[millrace.transforms.CenterCrop((12, 15))])}
    for batch in millrace.Loader(data, fields=fields, batch_size=16, epochs=1, output="numpy"):
        for row in np.flatnonzero(batch["valid"]):
            top, left = 12, 19  # round(12.5), 19
            np.testing.assert_array_equal(
                batch["image"][row], whole[batch["key"][row]][top : top + 12, left : left + 15], batch["key"][row]
            )


@pytest.mark.parametrize("depth", [1, 2, 4, 8])
def test_maps_of_numbers(tmp_path: pathlib.Path, depth: int) -> None:
    numbers = {name: indices(depth, seed=seed) for seed, name in enumerate(("a", "b", "c", "d", "e", "f"))}
    files = {
        "a.png": interlaced_png(numbers["a"], depth),
        "b.png": interlaced_png(numbers["b"], depth),  # the second one of a decoder
        "c.gif": saved(mapped(numbers["c"], depth), "gif"),
        "d.tif": saved(mapped(numbers["d"], depth), "tiff"),
        "e.bmp": saved(mapped(numbers["e"]), "bmp"),
        "f.tif": tiff_by_hand(numbers["f"], tile=(16, 16)),
    }
    for name in ("a.png", "b.png", "d.tif", "f.tif"):
        np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(files[name]))), numbers[name[0]])
    found = decoded(write(tmp_path / "maps", files), interpolation="nearest")
    for name in ("a", "b", "d", "e", "f"):
        np.testing.assert_array_equal(found[name], numbers[name], name)
    # Pillow reorders the palette of a GIF: the numbers that it reads are those that are stored.
    np.testing.assert_array_equal(found["c"], np.asarray(Image.open(io.BytesIO(files["c.gif"]))))


def test_names_do_not_matter(tmp_path: pathlib.Path) -> None:
    rgb = picture()
    files = {
        "a.jpg": saved(rgb, "webp", lossless=True),
        "b.png": saved(rgb, "bmp"),
        "c.webp": saved(rgb, "png"),
        "d.gif": saved(rgb, "tiff"),
    }
    found = decoded(write(tmp_path / "named", files))
    assert len(found) == 4
    for pixels in found.values():
        np.testing.assert_array_equal(pixels, np.asarray(rgb))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation(tmp_path: pathlib.Path, orientation: int) -> None:
    rgb = picture(height=WIDTH, width=HEIGHT) if orientation >= 5 else picture()
    exif = Image.Exif()
    exif[0x0112] = orientation
    upright = {
        2: "FLIP_LEFT_RIGHT",
        3: "ROTATE_180",
        4: "FLIP_TOP_BOTTOM",
        5: "TRANSPOSE",
        6: "ROTATE_270",
        7: "TRANSVERSE",
        8: "ROTATE_90",
    }
    expected = rgb.transpose(getattr(Image.Transpose, upright[orientation])) if orientation > 1 else rgb
    files = {
        "a.webp": saved(rgb, "webp", lossless=True, exif=exif),
        "b.png": saved(rgb, "png", exif=exif),
        "c.tif": tiff_by_hand(np.asarray(rgb), "<", t274=orientation),
        "d.tif": tiff_by_hand(np.asarray(rgb), ">", (16, 16), t274=orientation),
    }
    found = decoded(write(tmp_path / "turned", files), orientation="exif")
    for name, pixels in found.items():
        np.testing.assert_array_equal(pixels, np.asarray(expected), name)


class Dump:
    """Is a running decode_dump: the decoder, without what is known of the bytes."""

    def __init__(self, program: str) -> None:
        self._process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def decode(self, path: pathlib.Path) -> str:
        """Returns "" or the error."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        stdin.write(f"{path} 8 8 3 center 0\n".encode())
        stdin.flush()
        answer = stdout.readline().decode()
        if answer.startswith("ok "):
            stdout.read(8 * 8 * 3)
            return ""
        return answer.removeprefix("error ").strip()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(timeout=300) == 0


@pytest.fixture(scope="module")
def dump() -> Iterator[Dump]:
    program = pathlib.Path(os.environ["MILLRACE_BINARY_DIR"]) / "bin" / "decode_dump"
    running = Dump(str(program))
    yield running
    running.close()


def test_every_truncation_is_damage(tmp_path: pathlib.Path, dump: Dump) -> None:
    path = tmp_path / "image"
    rgb = picture()
    files = {
        "webp": saved(rgb, "webp", quality=60),
        "lossless": saved(rgb, "webp", lossless=True),
        "bmp": saved(rgb.convert("P"), "bmp"),
        "gif": saved(rgb.convert("P"), "gif"),
        "tiff": saved(rgb, "tiff"),
        "lzw": saved(rgb, "tiff", compression="tiff_lzw"),
        "deflate": saved(rgb, "tiff", compression="tiff_adobe_deflate"),
        "tiles": tiff_by_hand(np.asarray(rgb), ">", (16, 16)),
    }
    for name, file in files.items():
        path.write_bytes(file)
        assert dump.decode(path) == "", name
        for length in (*range(0, len(file), max(1, len(file) // 60)), len(file) - 1):
            path.write_bytes(file[:length])
            # The end mark of a GIF, and the padding of the last row of a BMP: Pillow does not need them either.
            if name in ("gif", "bmp") and length == len(file) - 1:
                assert dump.decode(path) == ""
                continue
            assert dump.decode(path).startswith("DATA_LOSS"), (name, length, len(file))


def test_flipped_bytes_never_crash(tmp_path: pathlib.Path, dump: Dump) -> None:
    path = tmp_path / "image"
    damaged = 0
    for name, (file, _) in all_kinds().items():
        rng = np.random.default_rng(len(file))
        for _ in range(25):
            bad = bytearray(file)
            for at in rng.integers(0, len(file), 3):
                bad[at] ^= int(rng.integers(1, 256))
            path.write_bytes(bad)
            error = dump.decode(path)
            damaged += bool(error)
            assert not error or error.startswith(("DATA_LOSS", "INVALID_ARGUMENT")), (name, error)
    assert damaged > 100


@pytest.mark.parametrize("bits", [9, 12, 16])
def test_palettes_of_more_than_256_colours_are_refused(tmp_path: pathlib.Path, dump: Dump, bits: int) -> None:
    path = tmp_path / "image"
    path.write_bytes(
        tiff_by_hand(
            np.zeros((8, 8), np.uint16),
            t258=bits,
            t262=3,
            t320=list(range(1 << bits)) * 3 if bits < 16 else [7] * (3 << bits),
        )
    )
    error = dump.decode(path)
    assert error and ("INVALID_ARGUMENT" in error or "DATA_LOSS" in error), error


def test_bombs_are_refused(tmp_path: pathlib.Path, dump: Dump) -> None:
    small = np.zeros((16, 16), np.uint8)
    rgb = picture()
    lzma = bytearray(tiff_by_hand(small))
    at = lzma.index(struct.pack("<HHI", 259, 3, 1)) + 8
    lzma[at : at + 2] = struct.pack("<H", 34925)
    bmp = bytearray(saved(rgb, "bmp"))
    bmp[18:26] = struct.pack("<ii", 60_000, 60_000)
    rle = bytearray(saved(rgb.convert("L"), "bmp"))
    rle[30:34] = struct.pack("<I", 4)  # a JPEG within
    gif = bytearray(saved(rgb.convert("P"), "gif"))
    gif[6:10] = struct.pack("<HH", 65_535, 65_535)
    path = tmp_path / "image"
    for file, why in [
        (
            tiff_by_hand(small, tile=(16, 16), t322=1 << 20, t323=1 << 20),
            "1048576 MiB to decode and the limit is 4096 MiB",
        ),
        (tiff_by_hand(small, t277=60_000), ""),
        (bytes(lzma), "INVALID_ARGUMENT cannot decode a TIFF compressed by LZMA"),
        (bytes(bmp), "60000 x 60000 pixels is refused"),
        (bytes(rle), "INVALID_ARGUMENT cannot decode a compressed BMP"),
        (bytes(gif), "65535 x 65535 pixels is refused"),
        (
            saved(Image.new("RGB", (6_000, 6_000)), "webp", lossless=True, quality=0, method=0),
            "MiB to decode and the budget is 256 MiB",
        ),
    ]:
        path.write_bytes(file)
        error = dump.decode(path)
        assert error and why in error, (why, error)
