"""Small data sets of real images, always the same bytes for the same arguments."""

from __future__ import annotations

import io
import os
import re
import shutil
import tarfile
from pathlib import Path

import numpy
from PIL import Image

from .oracle import Sample


def pixels(number: int, width: int, height: int) -> numpy.ndarray:
    """A smooth ramp under noise, different for each number: neither empty nor a flat colour, so that mistakes show."""
    random = numpy.random.default_rng(number)
    corner = random.integers(0, 128, (2, 2, 3))
    ramp = numpy.asarray(Image.fromarray(corner.astype(numpy.uint8)).resize((width, height), Image.Resampling.BILINEAR))
    return ramp + random.integers(0, 100, (height, width, 3), dtype=numpy.uint8)


def jpeg(number: int, width: int = 96, height: int = 72, quality: int = 85) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels(number, width, height)).save(out, "JPEG", quality=quality)
    return out.getvalue()


def png(number: int, width: int = 32, height: int = 32) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels(number, width, height)).save(out, "PNG", compress_level=1)
    return out.getvalue()


def write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def raw_tree(root: Path, folders: list[str], each: int, **image: int) -> Path:
    for f, folder in enumerate(folders):
        for n in range(each):
            write(root / folder / f"{n:05d}.jpg", jpeg(f * 100_003 + n, **image))
    return root


def copy_tree(source: Path, target: Path) -> Path:
    """The same objects under another root, without the index: an index belongs to one place. No links, which would change the ETags of both."""
    for folder, folders, names in os.walk(source):
        folders[:] = [f for f in folders if f != ".millrace"]
        for name in names:
            path = Path(folder) / name
            copy = target / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    return target


def rot(root: Path, key: str, offset: int, data: bytes) -> None:
    """Changes bytes of an object of a devstore as a bad disk does: nothing tells but a checksum. The object was put there through devstore."""
    path = root / key
    state = path.stat()
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    for record in (root / ".devstore" / "meta").rglob("*"):
        if record.is_file():
            record.write_text(re.sub("changed-ns .*\n", "", record.read_text()))  # of any ctime


def tar_samples(count: int, first: int = 0) -> list[Sample]:
    """Samples with several fields, of names that are awkward but legal."""
    folders = ["", "train/", "train/v1.0/", "Z/"]
    return [
        Sample(
            f"{folders[n % len(folders)]}s{n:04d}",
            {
                "jpg": jpeg(first + n),
                "cls": str(n % 7).encode(),
                "json": b'{"n": %d}' % n,
                "meta.v1.txt": f"größe {n}\n".encode(),
                "empty": b"",
            },
        )
        for n in range(count)
    ]


def write_tar(
    path: Path, samples: list[Sample], tar_format: int = tarfile.PAX_FORMAT, prefix: str = "", mtime: float = 0
) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=tar_format) as tar:
        for sample in samples:
            for field, data in sample.fields.items():
                info = tarfile.TarInfo(f"{prefix}{sample.key}.{field}")
                info.size, info.mtime = len(data), mtime
                tar.addfile(info, io.BytesIO(data))
    return path
