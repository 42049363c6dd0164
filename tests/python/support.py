"""Has helpers of the tests: data sets of small images, loaders of them, comparisons, running scripts, a devstore."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import math
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
from PIL import Image

CLASSES = ["cat", "dog", "eel"]
HEIGHT, WIDTH = 24, 32
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
NORMALISED: dict[str, Any] = {"normalize": (MEAN, STD)}
AT_SIZE = {"size": (HEIGHT, WIDTH)}  # no resizing: pixels arrive as they were made


@dataclasses.dataclass
class Samples:
    """Is a data set and what it holds, by key."""

    uri: str
    pixels: dict[str, np.ndarray]
    labels: dict[str, int]

    def __len__(self) -> int:
        return len(self.pixels)


def make_pixels(number: int, height: int = HEIGHT, width: int = WIDTH) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 256, (height, width, 3), dtype=np.uint8)


def png(pixels: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "png")
    return out.getvalue()


def write_raw(folder: pathlib.Path, count: int) -> Samples:
    samples = Samples(str(folder), {}, {})
    for number in range(count):
        name = CLASSES[number % len(CLASSES)]
        (folder / name).mkdir(exist_ok=True)
        key = f"{name}/{number:04}"
        samples.pixels[key] = make_pixels(number)
        samples.labels[key] = CLASSES.index(name)
        (folder / f"{key}.png").write_bytes(png(samples.pixels[key]))
    return samples


def write_tar(folder: pathlib.Path, count: int, shards: int = 3) -> Samples:
    samples = Samples(str(folder), {}, {})
    for shard in range(shards):
        with tarfile.open(folder / f"shard-{shard:03}.tar", "w") as archive:
            for number in range(shard * count // shards, (shard + 1) * count // shards):
                key = f"{number:04}"
                samples.pixels[key] = make_pixels(number)
                samples.labels[key] = number % 10
                fields = {
                    "png": png(samples.pixels[key]),
                    "cls": str(number % 10).encode(),
                    "txt": f"Nummer {number} – größer".encode(),
                    "json": json.dumps({"meta": {"label": number * 1000, "name": f"n{number}"}}).encode(),
                }
                for name, data in fields.items():
                    member = tarfile.TarInfo(f"{key}.{name}")
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))
    return samples


def add_digests(*digests: str | None) -> str:
    assert None not in digests
    return f"{sum(int(digest, 16) for digest in digests if digest) % 2**128:032x}"


def keys_of(batch: Any) -> list[str]:
    """Returns the keys without padding."""
    return [key for key, real in zip(batch["key"], batch["valid"]) if real]


def loader_of(samples: Samples, **options: Any) -> Any:
    """Makes a loader of their images in their own size: one epoch, as tensors."""
    import millrace

    usual: dict[str, Any] = {"batch_size": 8, **AT_SIZE, "output": "torch", "epochs": 1, "seed": 2}
    return millrace.Loader(samples.uri, **{**usual, **options})


def check_equal(got: Any, wanted: Any, exact: bool = True) -> None:
    """Compares two batches. If `exact` is False, values that were normalized elsewhere may differ as docs/devices.md
    says."""
    import torch

    assert list(got) == list(wanted)
    for name, value in wanted.items():
        if not isinstance(value, torch.Tensor):
            assert got[name] == value
            continue
        assert got[name].dtype == value.dtype and got[name].shape == value.shape, name
        tolerance = 0.0 if exact or value.dtype != torch.float32 else 1e-6 / min(STD)
        assert torch.allclose(got[name], value, rtol=0, atol=tolerance), name


def same(a: Any, b: Any) -> bool:
    """Returns whether both are equal, and of the same types all the way down: states of checkpoints."""
    import torch

    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return [*a] == [*b] and all(type(x) is type(y) for x, y in zip(a, b)) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, torch.Tensor):
        return (
            a.dtype == b.dtype
            and a.shape == b.shape
            and bool(torch.equal(a.nan_to_num(), b.nan_to_num()) if a.numel() else True)
        )
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, float):
        return a == b and math.copysign(1, a) == math.copysign(1, b) or (math.isnan(a) and math.isnan(b))
    return bool(a == b)


def run_script(
    script: str, *arguments: str, timeout: float = 300, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs Python source in a fresh interpreter. A hang fails the test."""
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, **environment},
    )


def check_script(script: str, *arguments: str, **options: Any) -> str:
    """Does what run_script does; the script must succeed and print no trace of a crash, nor of a leak. Returns what it
    printed."""
    result = run_script(script, *arguments, **options)
    assert result.returncode == 0, f"exit status {result.returncode}\n{result.stdout}\n{result.stderr}"
    traces = ("Traceback", "terminate called", "nanobind: leaked")
    assert not any(trace in result.stderr for trace in traces), result.stderr
    return result.stdout


def binary() -> pathlib.Path:
    """Returns the `millrace` command beside the package under test."""
    if "MILLRACE_BIN" in os.environ:
        return pathlib.Path(os.environ["MILLRACE_BIN"])
    import millrace

    return pathlib.Path(millrace.__file__).parents[2] / "bin" / "millrace"


@contextlib.contextmanager
def devstore(root: pathlib.Path, *arguments: str) -> Iterator[dict[str, str]]:
    """Runs an S3 server over `root`; gives the environment in which it is found."""
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test-secret", "AWS_REGION": "us-east-1"}
    command = [
        str(binary()),
        "devstore",
        str(root),
        "--port",
        "0",
        "--access-key",
        "test",
        "--secret-key",
        "test-secret",
    ]
    server = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        found = re.match(r"listening on (\S+)", line)
        assert found, f"devstore said {line!r}"
        yield {**keys, "AWS_ENDPOINT_URL": found[1]}
    finally:
        server.terminate()
        server.wait(timeout=120)
        assert server.stdout is not None
        server.stdout.close()


@contextlib.contextmanager
def rgw(*buckets: str) -> Iterator[dict[str, str]]:
    """Runs a Ceph RADOS Gateway, a real S3 server that ignores the conditions of writes; gives the environment in which
    it is found."""
    import boto3  # type: ignore[import-untyped]

    script = pathlib.Path(__file__).resolve().parents[1] / "servers/rgw.sh"
    # This is not pytest's tmp_path: Ceph does not take paths of any length.
    with tempfile.TemporaryDirectory(prefix="millrace-rgw-") as folder:
        started = subprocess.run([script, "start", folder], capture_output=True, text=True, timeout=400)
        try:
            assert started.returncode == 0, started.stderr
            exports = dict(shlex.split(line)[1].split("=", 1) for line in started.stdout.splitlines())
            environment = {name: value for name, value in exports.items() if name.startswith("AWS_")}
            keys = {
                "aws_access_key_id": exports["AWS_ACCESS_KEY_ID"],
                "aws_secret_access_key": exports["AWS_SECRET_ACCESS_KEY"],
            }
            client = boto3.client("s3", endpoint_url=exports["AWS_ENDPOINT_URL"], region_name="us-east-1", **keys)
            for bucket in buckets:
                client.create_bucket(Bucket=bucket)
            yield environment
        finally:
            subprocess.run([script, "stop", folder], check=True, timeout=120)
