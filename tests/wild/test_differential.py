"""Random edits of images: Millrace says of each file what Pillow says, and shows what Pillow shows.

Each edit is a function of its number alone, so that a failure can be repeated. DECIDED lists the kinds of difference that stay,
and why; the test counts them, so that a new one is noticed."""

from __future__ import annotations

import collections
import dataclasses
import io
import os
import pathlib
import subprocess
import warnings
from collections.abc import Iterator

import numpy as np
import pytest
import thoroughness
from PIL import Image

WIDTH, HEIGHT = 61, 43
TOO_LARGE = "an image that is too large for a test"


class Decoder:
    """A running decode_dump."""

    def __init__(self, program: pathlib.Path, file: pathlib.Path) -> None:
        self.file = file
        self.process = subprocess.Popen([str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def decode(self, data: bytes, size: tuple[int, int]) -> np.ndarray | str:
        """The whole image in RGB, or why there is none."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.file.write_bytes(data)
        width, height = size
        self.process.stdin.write(f"{self.file} {height} {width} 3 center-exact 0\n".encode())
        self.process.stdin.flush()
        kind, _, rest = self.process.stdout.readline().decode().partition(" ")
        if kind != "ok":
            assert kind == "error", "decode_dump has ended"
            return rest.strip()
        pixels = self.process.stdout.read(height * width * 3)
        return np.frombuffer(pixels, np.uint8).reshape(height, width, 3)


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Decoder]:
    program = pathlib.Path(os.environ["MILLRACE_BINARY_DIR"]) / "bin" / "decode_dump"
    running = Decoder(program, tmp_path_factory.mktemp("edits") / "image")
    yield running
    assert running.process.stdin is not None
    running.process.stdin.close()
    assert running.process.wait(timeout=300) == 0


def pillow(data: bytes) -> np.ndarray | str:
    """The first picture in RGB, or why there is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with Image.open(io.BytesIO(data)) as image:
                if max(image.size) > 4096:
                    return TOO_LARGE
                return np.asarray(image.convert("RGB"))
        except Exception as error:  # Pillow raises errors of many kinds
            return f"{type(error).__name__}: {error}"


def seeds() -> dict[str, list[bytes]]:
    """Sound files, by format."""
    rng = np.random.default_rng(43)
    small = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)).resize(
        (WIDTH, HEIGHT), Image.Resampling.BICUBIC
    )
    grey, palette = small.convert("L"), small.convert("P")
    alpha = small.copy()
    alpha.putalpha(grey)

    def saved(image: Image.Image, kind: str, **options: object) -> bytes:
        out = io.BytesIO()
        image.save(out, kind, **options)
        return out.getvalue()

    frames = [small.rotate(90 * turn) for turn in range(3)]
    return {
        "JPEG": [
            saved(small, "JPEG", quality=85),
            saved(small, "JPEG", quality=95, subsampling=0, restart_marker_blocks=3),
            saved(small, "JPEG", progressive=True),
            saved(grey, "JPEG", quality=50),
            saved(small.convert("CMYK"), "JPEG"),
        ],
        "PNG": [saved(image, "PNG") for image in (small, grey, palette, alpha, grey.convert("1"))],
        "WEBP": [
            saved(small, "WEBP", quality=80),
            saved(small, "WEBP", lossless=True),
            saved(alpha, "WEBP", quality=60),
            saved(frames[0], "WEBP", save_all=True, append_images=frames[1:]),
        ],
        "TIFF": [
            saved(small, "TIFF"),
            saved(small, "TIFF", compression="tiff_lzw"),
            saved(grey, "TIFF", compression="tiff_adobe_deflate"),
            saved(palette, "TIFF", compression="packbits"),
        ],
        "GIF": [
            saved(palette, "GIF"),
            saved(palette, "GIF", interlace=False),
            saved(frames[0], "GIF", save_all=True, append_images=frames[1:]),
        ],
    }


def edited(data: bytes, rng: np.random.Generator) -> tuple[str, bytes]:
    """The edit in words, and the result."""
    at = int(rng.integers(0, len(data)))
    kind = int(rng.integers(0, 8))
    many = int(rng.integers(1, 40))
    filler = bytes(rng.integers(0, 256, many, dtype=np.uint8))
    if kind == 0:
        return f"bit {at}", data[:at] + bytes([data[at] ^ 1 << int(rng.integers(0, 8))]) + data[at + 1 :]
    if kind == 1:
        return f"byte {at}", data[:at] + filler[:1] + data[at + 1 :]
    if kind == 2:
        return f"cut at {at}", data[:at]
    if kind == 3:
        return f"{many} bytes from {at} left out", data[:at] + data[at + many :]
    if kind == 4:
        return f"{many} random bytes at {at}", data[:at] + filler + data[at:]
    if kind == 5:
        return f"{many} zeros at {at}", data[:at] + bytes(many) + data[at:]
    if kind == 6:
        return f"{many} bytes behind the end", data + filler
    return f"{min(many, len(data))} bytes off the end", data[: len(data) - many % len(data)]


@dataclasses.dataclass
class Difference:
    kind: str
    edit: str
    pillow: str
    millrace: str


def compare(decoder: Decoder, kind: str, edit: str, data: bytes) -> Difference | None:
    theirs = pillow(data)
    size = (theirs.shape[1], theirs.shape[0]) if isinstance(theirs, np.ndarray) else (WIDTH, HEIGHT)
    ours = decoder.decode(data, size)
    if isinstance(theirs, str):
        return None if isinstance(ours, str) or theirs == TOO_LARGE else Difference(kind, edit, theirs, "an image")
    if isinstance(ours, str):
        return Difference(kind, edit, "an image", ours)
    if np.array_equal(ours, theirs):
        return None
    apart = np.abs(ours.astype(int) - theirs.astype(int))
    return Difference(kind, edit, "an image", f"other pixels: {np.count_nonzero(apart)} values, by up to {apart.max()}")


def all_edits(count: int) -> Iterator[tuple[str, str, bytes]]:
    files = [(kind, number, data) for kind, each in seeds().items() for number, data in enumerate(each)]
    for number in range(count):
        rng = np.random.default_rng([43, number])
        kind, seed, data = files[number % len(files)]
        edit, data = edited(data, rng)
        yield kind, f"edit {number} of file {seed}: {edit}", data


def test_sound_files_are_those_of_pillow(decoder: Decoder) -> None:
    for kind, each in seeds().items():
        for number, data in enumerate(each):
            assert compare(decoder, kind, f"file {number}", data) is None


# Differences that stay, by format: what Pillow says, what Millrace says, and the largest share of edits that may differ so.
DECIDED: list[tuple[str, str, str, float]] = [
    # giflib takes codes that Pillow's decoder does not.
    ("GIF", "broken data stream", "an image", 0.03),
    # Behind the last pixel, giflib also reads the rest of the codes, and finds them cut off.
    ("GIF", "an image", "the GIF is damaged: Failed to read", 0.01),
    # Pillow reads the color map also where its type or count is not the right one.
    ("TIFF", "an image", "its color map is missing", 0.01),
    # An edit of the tag that says what numbers mean.
    ("TIFF", "an image", "in L*a*b*", 0.01),
    # Damaged PackBits data, after which versions of libtiff continue in different ways.
    ("TIFF", "an image", "other pixels", 0.04),
    ("TIFF", "decoder error -2", "an image", 0.02),
    # Pillow has a later libwebp, which also looks into the other frames of an animation.
    ("WEBP", "failed to read next frame", "an image", 0.08),
    ("WEBP", "could not create decoder object", "an image", 0.08),
    # A first frame without a picture, in place of which Pillow shows the second one.
    ("WEBP", "an image", "the WebP is damaged", 0.02),
]


def test_edits_are_those_of_pillow(decoder: Decoder) -> None:
    edits: collections.Counter[str] = collections.Counter()
    decided: collections.Counter[int] = collections.Counter()
    wrong: list[Difference] = []
    for kind, edit, data in all_edits(10_000 if thoroughness.ALL else 300):
        edits[kind] += 1
        found = compare(decoder, kind, edit, data)
        if found is None:
            continue
        known = [
            number
            for number, (of, theirs, ours, _) in enumerate(DECIDED)
            if of == kind and theirs in found.pillow and ours in found.millrace
        ]
        decided.update(known[:1])
        if not known:
            wrong.append(found)
    assert not wrong, wrong[:10]
    assert edits["JPEG"] > 0 and all(kind != "JPEG" for kind, *_ in DECIDED), "of JPEGs, nothing differs"
    for number, (kind, theirs, ours, share) in enumerate(DECIDED):
        assert decided[number] <= share * edits[kind] + 3, (kind, theirs, ours, decided[number], edits[kind])
