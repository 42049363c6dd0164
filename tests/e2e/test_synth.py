from __future__ import annotations

import hashlib
import io
import re
from pathlib import Path

import numpy
import pytest
from PIL import Image

from .harness import Sandbox


def tree(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*.jpg"))}


def segments(data: bytes) -> list[tuple[int, bytes]]:
    """Markers of a JPEG up to the start of its scan, with their payloads."""
    assert data[:2] == b"\xff\xd8"
    at, found = 2, []
    while True:
        assert data[at] == 0xFF
        marker, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        found.append((marker, data[at + 4 : at + 2 + length]))
        at += 2 + length
        if marker == 0xDA:
            return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, session_sandbox: Sandbox) -> dict[str, bytes]:
    root = tmp_path_factory.mktemp("synth") / "images"
    session_sandbox.ok("synth", root, "--count", 25, "--kb", 115, "--seed", 1, "--classes", 4)
    return tree(root)


def test_count_classes_and_padded_names(made: dict[str, bytes]) -> None:
    assert len(made) == 25
    parts = [re.fullmatch(r"([^/]+)/(\d+)\.jpg", name) for name in made]
    assert all(parts), list(made)
    assert len({p[1] for p in parts}) == 4
    assert len({len(p[2]) for p in parts}) == 1, "file names are padded to one length"
    assert len({len(p[1]) for p in parts}) == 1, "folder names are padded to one length"
    by_class = [sum(p[1] == folder for p in parts) for folder in {p[1] for p in parts}]
    assert max(by_class) - min(by_class) <= 1, "classes are equally large"


def test_size_is_within_a_tenth(made: dict[str, bytes]) -> None:
    sizes = [len(data) for data in made.values()]
    assert any(all(0.9 * 115 * k <= size <= 1.1 * 115 * k for size in sizes) for k in (1000, 1024)), sizes


def test_baseline_420_640x480(made: dict[str, bytes]) -> None:
    for name, data in made.items():
        frames = [
            payload for marker, payload in segments(data) if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC)
        ]
        assert [
            marker for marker, _ in segments(data) if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC)
        ] == [0xC0], f"{name}: baseline"
        frame = frames[0]
        assert (frame[0], int.from_bytes(frame[1:3], "big"), int.from_bytes(frame[3:5], "big"), frame[5]) == (
            8,
            480,
            640,
            3,
        ), name
        assert [frame[6 + 3 * c + 1] for c in range(3)] == [0x22, 0x11, 0x11], f"{name}: 4:2:0"


def test_decodes_and_is_a_picture(made: dict[str, bytes]) -> None:
    for name, data in made.items():
        image = numpy.asarray(Image.open(io.BytesIO(data)).convert("RGB")).astype(float)
        assert image.std() > 10, f"{name}: flat"
        neighbours = numpy.corrcoef(image[:, :-1, 1].ravel(), image[:, 1:, 1].ravel())[0, 1]
        assert neighbours > 0.7, f"{name}: noise, not photo-like (neighbouring pixels correlate by {neighbours:.2f})"


def test_no_padding(made: dict[str, bytes]) -> None:
    for name, data in made.items():
        assert data.endswith(b"\xff\xd9") and data.count(b"\xff\xd9") == 1, (
            f"{name}: ends with its only end-of-image marker"
        )
        assert not [m for m, payload in segments(data) if m == 0xFE or (0xE1 <= m <= 0xEF)], (
            f"{name}: has comment or application segments"
        )


def test_images_differ(made: dict[str, bytes]) -> None:
    assert len({hashlib.sha256(data).digest() for data in made.values()}) == len(made)


def test_same_seed_same_bytes_other_seed_other_bytes(made: dict[str, bytes], sandbox: Sandbox, tmp_path: Path) -> None:
    for seed in (1, 2):
        sandbox.ok("synth", tmp_path / str(seed), "--count", 25, "--kb", 115, "--seed", seed, "--classes", 4)
    assert tree(tmp_path / "1") == made
    other = tree(tmp_path / "2")
    assert other.keys() == made.keys()
    assert not set(other.values()) & set(made.values())


@pytest.mark.parametrize("kb", [4, 20, 60])
def test_smaller_images_when_little_is_asked_for(sandbox: Sandbox, tmp_path: Path, kb: int) -> None:
    sandbox.ok("synth", tmp_path / "x", "--count", 12, "--kb", kb, "--seed", 3)
    sizes = [len(data) for data in tree(tmp_path / "x").values()]
    assert len(sizes) == 12
    assert any(all(0.9 * kb * k <= size <= 1.1 * kb * k for size in sizes) for k in (1000, 1024)), sizes
    for data in tree(tmp_path / "x").values():
        width, height = Image.open(io.BytesIO(data)).size
        assert width <= 640 and height <= 480
