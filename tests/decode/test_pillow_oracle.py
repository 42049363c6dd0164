"""Millrace's decoder against Pillow, pixel by pixel.

`decode_dump` prints which rectangle of the source it showed and by what part libjpeg shrank the image. Pillow then does
the same: it decodes (with `draft` for the shrinking), cuts off the pixels that the filter must not see, and resizes
with its antialiased bilinear filter. Pillow rounds to bytes between its two passes and Millrace does not, so single values may
differ by one. Colours of a JPEG that is reduced are converted after resizing, unless they must be exact: this rounds less,
and more values differ.
"""

import io
import math
import os
import pathlib
import subprocess

import numpy as np
import pytest
from PIL import Image

MAX_MEAN_ERROR = 0.25
MAX_ERROR = 1
# These are for JPEGs in colour, if they need not be exact.
MAX_FAST_MEAN_ERROR = 0.4
MAX_FAST_ERROR = 3


class Decoder:
    """A running decode_dump."""

    def __init__(self, program):
        self._process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def decode(self, path, height, width, channels=3, mode="center", key=0):
        request = f"{path} {height} {width} {channels} {mode} {key}\n"
        self._process.stdin.write(request.encode())
        self._process.stdin.flush()
        answer = self._process.stdout.readline().decode()
        kind, _, rest = answer.partition(" ")
        if kind != "ok":
            raise ValueError(rest.strip())
        *box, left, top, right, bottom, part, flip = rest.split()
        pixels = self._process.stdout.read(height * width * channels)
        array = np.frombuffer(pixels, np.uint8).reshape(height, width, channels)
        return array, tuple(map(float, box)), tuple(map(int, (left, top, right, bottom))), int(part), flip == "1"

    def close(self):
        self._process.stdin.close()
        assert self._process.wait(timeout=300) == 0


@pytest.fixture(scope="module")
def decoder():
    folder = os.environ.get("MILLRACE_BINARY_DIR")
    assert folder, "set MILLRACE_BINARY_DIR to the build folder (ctest does)"
    program = pathlib.Path(folder) / "bin" / "decode_dump"
    assert program.exists(), f"{program} is not built: ninja decode_dump"
    running = Decoder(str(program))
    yield running
    running.close()


def photo(width, height, seed):
    """Smooth shapes with fractal noise, so that JPEG and filters meet what photographs have."""
    rng = np.random.default_rng(seed)
    image = np.zeros((height, width, 3))
    for octave in range(2, 8):
        cells = rng.normal(size=(2**octave, 2**octave, 3)) * 90 / 2 ** (octave * 0.8)
        layers = [Image.fromarray(cells[:, :, c].astype(np.float32)) for c in range(3)]
        image += np.stack([np.asarray(layer.resize((width, height), Image.BICUBIC)) for layer in layers], axis=2)
    y, x = np.mgrid[0:height, 0:width]
    image[(x - width * 0.4) ** 2 + (y - height * 0.5) ** 2 < (height * 0.3) ** 2] += 60
    return Image.fromarray(np.clip(image + 118, 0, 255).astype(np.uint8))


def expected(path, mode, height, width, box, fence, part, flip):
    with Image.open(path) as image:
        if part > 1:
            size = (math.ceil(image.width / part), math.ceil(image.height / part))
            image.draft(mode, (image.width // part, image.height // part))
            image.load()
            assert image.size == size, "draft chose another scale"
        image = image.convert(mode)
    left, top, right, bottom = (fence[0] // part, fence[1] // part, -(-fence[2] // part), -(-fence[3] // part))
    image = image.crop((left, top, right, bottom))
    x, y, w, h = (value / part for value in box)
    source = (
        max(x - left, 0),
        max(y - top, 0),
        min(x + w - left, image.width),
        min(y + h - top, image.height),
    )
    array = np.asarray(image.resize((width, height), Image.BILINEAR, box=source)).reshape(height, width, -1)
    return array[:, ::-1] if flip else array


def check(decoder, path, height, width, mode="RGB", how="center", key=0, fast=False):
    got, box, fence, part, flip = decoder.decode(path, height, width, len(mode), how, key)
    want = expected(path, mode, height, width, box, fence, part, flip)
    error = np.abs(got.astype(int) - want.astype(int))
    assert error.mean() <= (MAX_FAST_MEAN_ERROR if fast else MAX_MEAN_ERROR), (
        f"mean error {error.mean():.3f}, part {part}"
    )
    assert error.max() <= (MAX_FAST_ERROR if fast else MAX_ERROR), f"largest error {error.max()}, part {part}"
    return part


SIZES = [(640, 480), (500, 375), (333, 517), (1600, 1201)]
OPTIONS = {
    "baseline": {},
    "progressive": {"progressive": True},
    "444": {"subsampling": 0},
    "422": {"subsampling": 1},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_jpeg(decoder, tmp_path, options, mode):
    parts = set()
    for seed, (width, height) in enumerate(SIZES):
        path = tmp_path / f"{seed}.jpg"
        photo(width, height, seed).save(path, quality=90, **options)
        fast = mode == "RGB"
        parts.add(check(decoder, path, 224, 224, mode, fast=fast))
        parts.add(check(decoder, path, 96, 160, mode, fast=fast))
        check(decoder, path, 96, 160, mode, "center-exact")
        for key in range(12):
            parts.add(check(decoder, path, 128, 100, mode, "augment", key, fast=fast))
            check(decoder, path, 128, 100, mode, "augment-exact", key)
    assert {1, 2, 4} <= parts, "not all scales took part"


def test_grey_jpeg(decoder, tmp_path):
    path = tmp_path / "grey.jpg"
    photo(300, 200, 5).convert("L").save(path, quality=90)
    for mode in ("RGB", "L"):
        check(decoder, path, 64, 64, mode)
        check(decoder, path, 64, 64, mode, "augment", 3)


def test_cmyk_jpeg(decoder, tmp_path):
    path = tmp_path / "cmyk.jpg"
    photo(300, 200, 6).convert("CMYK").save(path, quality=95)
    check(decoder, path, 120, 110, "RGB")
    check(decoder, path, 120, 110, "RGB", "augment", 1)


@pytest.mark.parametrize("kind", ["RGB", "RGBA", "L", "LA", "P", "1"])
def test_png(decoder, tmp_path, kind):
    path = tmp_path / f"{kind}.png"
    image = photo(311, 207, 7)
    if kind.endswith("A"):
        image.putalpha(Image.linear_gradient("L").resize(image.size))
    image.convert(kind).save(path)
    for key in range(6):
        check(decoder, path, 100, 90, "RGB", "augment", key)
        check(decoder, path, 300, 280, "RGB", "augment", key)
    check(decoder, path, 207, 311, "RGB")
    check(decoder, path, 64, 80, "L")


def test_sixteen_bits_keep_the_high_byte(decoder, tmp_path):
    # Pillow clips 16-bit grey to 255, so the oracle is the definition.
    path = tmp_path / "16.png"
    values = np.arange(64 * 48, dtype=np.uint16).reshape(48, 64) * 21
    Image.fromarray(values).save(path)
    got, *_ = decoder.decode(path, 48, 64, 1)
    assert np.array_equal(got[:, :, 0], (values >> 8).astype(np.uint8))


def torchvision_center(image, size):
    """Resize and CenterCrop as torchvision defines them, on the whole image without any shrinking in the codec."""
    short, long = sorted(image.size)
    resized = (size, int(size * long / short)) if image.width <= image.height else (int(size * long / short), size)
    image = image.resize(resized, Image.BILINEAR)
    left = int(round((image.width - size) / 2.0))
    top = int(round((image.height - size) / 2.0))
    return np.asarray(image.crop((left, top, left + size, top + size)))


def test_center_crop_is_that_of_torchvision(decoder, tmp_path):
    for seed, (width, height) in enumerate([(640, 480), (333, 517), (451, 447), (224, 224), (100, 90)]):
        path = tmp_path / f"{seed}.png"
        image = photo(width, height, seed)
        image.save(path)
        got, *_ = decoder.decode(path, 224, 224)
        error = np.abs(got.astype(int) - torchvision_center(image, 224).astype(int))
        assert error.mean() <= MAX_MEAN_ERROR
        assert error.max() <= MAX_ERROR


def edges(width, height, seed):
    """Rectangles of single colours: harder for a reduction in two steps than any photograph."""
    rng = np.random.default_rng(seed)
    image = np.zeros((height, width, 3), np.uint8)
    for _ in range(400):
        x, y, w, h = rng.integers(0, width), rng.integers(0, height), rng.integers(1, 60), rng.integers(1, 60)
        image[y : y + h, x : x + w] = rng.integers(0, 256, 3)
    return Image.fromarray(image)


@pytest.mark.parametrize(("make", "mean", "largest"), [(photo, 0.3, 3), (edges, 1.5, 40)])
def test_the_fast_mode_stays_close_to_the_whole_image(decoder, tmp_path, make, mean, largest):
    """The fast mode differs as little as docs/decode.md states."""
    path = tmp_path / "image.jpg"
    parts = set()
    for seed in range(2):
        for width, height, size in ((640, 480, 224), (1000, 960, 224), (1600, 1201, 128), (1600, 1201, 70)):
            make(width, height, seed).save(path, quality=90)
            got, _, _, part, _ = decoder.decode(path, size, size)
            with Image.open(path) as image:
                want = torchvision_center(image, size)
            error = np.abs(got.astype(int) - want.astype(int))
            assert error.mean() <= mean
            assert error.max() <= largest
            parts.add(part)
    assert parts == {1, 2, 4, 8}


def test_errors_name_the_reason(decoder, tmp_path):
    path = tmp_path / "image"
    buffer = io.BytesIO()
    photo(64, 64, 1).save(buffer, "JPEG")
    for data, reason in [
        (buffer.getvalue()[:-100], "DATA_LOSS the JPEG is damaged"),
        (b"\0\0\0\x20ftypavif", "INVALID_ARGUMENT cannot decode an image of type AVIF"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "DATA_LOSS the WebP is damaged"),
        (b"", "DATA_LOSS the image is empty"),
    ]:
        path.write_bytes(data)
        with pytest.raises(ValueError, match=reason):
            decoder.decode(path, 8, 8)


def test_the_oracle_notices_a_shift_of_half_a_pixel(decoder, tmp_path):
    """The canary: these limits are tight enough to see the smallest mistake in geometry."""
    path = tmp_path / "photo.jpg"
    photo(640, 480, 12).save(path, quality=90)
    got, box, fence, part, flip = decoder.decode(path, 224, 224, mode="center-exact")
    shifted = (box[0] + 0.5, *box[1:])
    error = np.abs(got.astype(int) - expected(path, "RGB", 224, 224, shifted, fence, part, flip).astype(int))
    assert error.mean() > MAX_MEAN_ERROR or error.max() > MAX_ERROR
