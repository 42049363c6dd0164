"""The samples of the programs: small images in folders, and torch's data sets of the same ones."""

from __future__ import annotations

import io
import json
import pathlib
import tarfile
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from PIL import Image

COUNT = 37  # of batches of 8: the last one has 5; of two ranks with batches of 8: 3 each, of which one is repeated
SIZE = 16
CLASSES = ["cat", "dog", "eel"]


def pixels(number: int, size: tuple[int, int] = (SIZE, SIZE)) -> np.ndarray:
    """Some are dark, and some are bright, so that a batch's statistics depend on which samples are in it."""
    random = np.random.default_rng(number)
    return random.integers(0, 64 + 48 * (number % 5), (*size, 3), dtype=np.uint8)


def encode(array: np.ndarray, format: str = "png", **options: Any) -> bytes:
    out = io.BytesIO()
    Image.fromarray(array).save(out, format, **options)
    return out.getvalue()


def mask(number: int) -> np.ndarray:
    """Classes 0 to 2 of pixels."""
    return np.random.default_rng(1000 + number).integers(0, 3, (SIZE, SIZE), dtype=np.uint8)


def score(number: int) -> float:
    return round(float(np.random.default_rng(2000 + number).normal()), 4)


def to_tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array).permute(2, 0, 1).contiguous().float() / 255


class Samples(torch.utils.data.Dataset[Any]):
    """A map-style data set, as a program of torch has it."""

    def __init__(self, count: int, sample: Callable[[int], Any]) -> None:
        self.count, self.sample = count, sample

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> Any:
        if not 0 <= number < self.count:
            raise IndexError(number)
        return self.sample(number)


def _write_numbers(folder: pathlib.Path, count: int = COUNT) -> None:
    """A shard whose label is the number of the sample, so that labels tell which samples came."""
    with tarfile.open(folder / "shard-000.tar", "w") as archive:
        for number in range(count):
            for field, data in {"png": encode(pixels(number)), "cls": str(number).encode()}.items():
                member = tarfile.TarInfo(f"{number:04}.{field}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))


def _write_photos(folder: pathlib.Path) -> None:
    """Folders of classes, as ImageFolder reads them."""
    for number in range(COUNT):
        name = CLASSES[number % 3]
        (folder / name).mkdir(exist_ok=True)
        (folder / name / f"{number:04}.png").write_bytes(encode(pixels(number)))


def _write_fields(folder: pathlib.Path) -> None:
    for number in range(COUNT):
        (folder / f"{number:04}.png").write_bytes(encode(pixels(number)))
        (folder / f"{number:04}.mask.png").write_bytes(encode(mask(number)))
        (folder / f"{number:04}.score").write_text(str(score(number)))
        (folder / f"{number:04}.txt").write_text(f"Nummer {number} – größer")
        (folder / f"{number:04}.json").write_text(json.dumps({"meta": {"number": 10 * number}}))


def _write_wide(folder: pathlib.Path) -> None:
    """Photos of 24 x 40 pixels, of which one lies on its side, as its EXIF data say."""
    (folder / "all").mkdir()
    for number in range(COUNT):
        smooth = np.asarray(Image.fromarray(pixels(number, (6, 10))).resize((40, 24), Image.Resampling.BICUBIC))
        exif = Image.Exif()
        exif[0x0112] = 3 if number % 2 else 1
        (folder / "all" / f"{number:04}.jpg").write_bytes(encode(smooth, "jpeg", quality=95, exif=exif))


def _write_corrupt(folder: pathlib.Path) -> None:
    _write_photos(folder)
    (folder / "dog" / "0004.png").write_bytes(b"This is no image.")


def _pair(number: int) -> Any:
    return to_tensor(pixels(number)), number


# By name: how the folder is written, and the data set of the same samples.
KINDS: dict[str, tuple[Callable[[pathlib.Path], None], Callable[[], Any]]] = {
    "numbers": (_write_numbers, lambda: Samples(COUNT, _pair)),
    "few": (lambda folder: _write_numbers(folder, 3), lambda: Samples(3, _pair)),
    "dicts": (
        _write_numbers,
        lambda: Samples(COUNT, lambda number: {"image": _pair(number)[0], "label": number, "key": f"{number:04}"}),
    ),
    "huggingface": (
        _write_numbers,
        lambda: Samples(COUNT, lambda number: {"pixel_values": _pair(number)[0], "labels": number}),
    ),
    "masks": (
        _write_fields,
        lambda: Samples(COUNT, lambda number: (_pair(number)[0], torch.from_numpy(mask(number)))),
    ),
    "scores": (
        _write_fields,
        lambda: Samples(COUNT, lambda number: (_pair(number)[0], torch.tensor(score(number)))),
    ),
    "captions": (
        _write_fields,
        lambda: Samples(COUNT, lambda number: (_pair(number)[0], f"Nummer {number} – größer", 10 * number)),
    ),
    "photos": (_write_photos, lambda: None),
    "wide": (_write_wide, lambda: None),
    "corrupt": (_write_corrupt, lambda: None),
    "empty": (lambda folder: None, lambda: None),
}


class Inputs:
    """Gives what the parameters of programs name. Folders are written when a program first asks for them."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.more: dict[str, Callable[[], Any]] = {}

    def __call__(self, data: str, name: str) -> Any:
        if name in ("uri", "folder", "copy"):  # torchvision gets a folder of its own, in which Millrace keeps no index
            return str(self.write(data, self.root / (data if name == "uri" else f"{name} of {data}")))
        if name == "dataset":
            return KINDS[data][1]()
        if name == "scratch":
            (self.root / "scratch").mkdir(exist_ok=True)
            return str(self.root / "scratch")
        return self.more[name]()

    def write(self, data: str, folder: pathlib.Path) -> pathlib.Path:
        if not folder.exists():
            folder.mkdir(parents=True)
            KINDS[data][0](folder)
        return folder
