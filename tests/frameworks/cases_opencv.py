"""Tests JPEGs to which `millrace pack --jpeg-tiles` has added tiles. OpenCV, Pillow and libjpeg-turbo's djpeg read the
pixels of the originals."""

from __future__ import annotations

import io
import os
import pathlib
import subprocess
import tarfile

import cv2  # type: ignore[import-not-found, unused-ignore]
import numpy as np
import pytest
from PIL import Image

COUNT = 60


@pytest.fixture(scope="module")
def djpeg(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Fetches Debian's djpeg and does not install it."""
    folder = tmp_path_factory.mktemp("djpeg")
    subprocess.run(["apt-get", "download", "-qq", "libjpeg-turbo-progs"], cwd=folder, check=True)
    (archive,) = folder.glob("*.deb")
    subprocess.run(["dpkg-deb", "-x", archive, folder], check=True)
    return folder / "usr" / "bin" / "djpeg"


def picture(number: int) -> bytes:
    """Makes a JPEG of any size, subsampling and quality; some grey, some progressive, some with restart markers of their own."""
    rng = np.random.default_rng(number)
    height, width = (int(side) for side in rng.integers(17, 700, 2))
    y, x = np.mgrid[0:height, 0:width]
    waves = [127 + 90 * np.sin(x * rng.uniform(0.01, 0.4) + y * rng.uniform(0.01, 0.4)) for _ in range(3)]
    pixels = np.clip(np.stack(waves, axis=2) + rng.normal(0, 12, (height, width, 3)), 0, 255).astype(np.uint8)
    image = Image.fromarray(pixels)
    options = {"quality": int(rng.integers(50, 99)), "progressive": number % 4 == 0, "optimize": number % 3 == 0}
    if number % 5 == 0:
        options["restart_marker_rows"] = 2
    out = io.BytesIO()
    if number % 7 == 0:
        image.convert("L").save(out, "JPEG", **options)
    else:
        image.save(out, "JPEG", subsampling=number % 3, **options)
    return out.getvalue()


def test_tiles_change_no_pixel_for_anybody(djpeg: pathlib.Path, tmp_path: pathlib.Path) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    for number in range(COUNT):
        (raw / f"{number:03}.jpg").write_bytes(picture(number))
    subprocess.run([os.environ["MILLRACE_BIN"], "pack", raw, tmp_path / "tiled", "--jpeg-tiles"], check=True)
    seen = 0
    for shard in (tmp_path / "tiled").glob("*.tar"):
        with tarfile.open(shard) as tar:
            for member in tar:
                file = tar.extractfile(member)
                if file is None or not member.name.endswith(".jpg"):
                    continue
                before, after = (raw / pathlib.Path(member.name).name).read_bytes(), file.read()
                assert before != after, member.name
                for read in (pillow, opencv, lambda data: by_program(djpeg, data)):
                    assert np.array_equal(read(before), read(after)), member.name
                seen += 1
    assert seen == COUNT


def pillow(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)))


def opencv(data: bytes) -> np.ndarray:
    image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    assert image is not None
    return np.asarray(image)


def by_program(program: pathlib.Path, data: bytes) -> np.ndarray:
    return np.frombuffer(subprocess.run([program], input=data, check=True, capture_output=True).stdout, np.uint8)
