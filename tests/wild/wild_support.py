"""The command, and small files made by other programs than Millrace, for all tables of inputs."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def command(millrace_bin: Path, tmp_path: Path) -> Iterator[Command]:
    """Runs `millrace`; its cache folder is one of the test's."""

    def run(*arguments: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
        env = os.environ | {"MILLRACE_CACHE": str(tmp_path / "cache-folder")}
        done = subprocess.run(
            [str(millrace_bin), *map(str, arguments)], capture_output=True, text=True, env=env, timeout=800
        )
        assert done.returncode == code, (arguments, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
        return done

    yield run


def index(command: Command, uri: Path, *options: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(command("index", uri, *options, "--json").stdout)
    return found


def photo(seed: int, width: int = 64, height: int = 48) -> Image.Image:
    rng = np.random.default_rng(seed)
    small = rng.integers(0, 256, (max(2, height // 16), max(2, width // 16), 3), dtype=np.uint8)
    return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)


def encoded(image: Image.Image, kind: str = "JPEG", **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def write(path: Path, data: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def tar(members: Iterable[tuple[str, bytes]], format: int = tarfile.USTAR_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def texts(first: int, last: int) -> bytes:
    """A shard of samples of two texts."""
    return tar((f"{n:06}.{kind}", f"{kind}{n}".encode()) for n in range(first, last) for kind in ("txt", "out"))


def npy(array: Any, **options: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array, **options)
    return out.getvalue()
