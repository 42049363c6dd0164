"""Holds the MDS reader against the package mosaicml-streaming."""

from __future__ import annotations

import io
import json
import random
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import Any

import mosaic
import numpy as np
import pytest
import shards
from PIL import Image

MDSWriter, MDSReader = mosaic.load()


def write(folder: Path, columns: dict[str, str], samples: list[dict[str, Any]], **more: Any) -> list[Path]:
    with MDSWriter(out=str(folder), columns=columns, **more) as writer:
        for sample in samples:
            writer.write(sample)
    return sorted(folder.glob("*.mds"))


def png(array: np.ndarray[Any, Any]) -> bytes:
    file = io.BytesIO()
    Image.fromarray(array).save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize("chunk", [1, 7, 65536])
def test_reads_texts_and_bytes(tmp_path: Path, chunk: int) -> None:
    rng = random.Random(8)
    columns = {
        "b": "bytes",
        "s": "str",
        "j": "json",
        "img": "png",
        "n": "str_int",
        "f": "str_float",
        "d": "str_decimal",
    }
    samples = []
    for n in range(30):
        samples.append(
            {
                "b": rng.randbytes(rng.randrange(4000)),
                "s": rng.choice(["", "größe", "日本"]) * n,
                "j": {"n": n, "é": [1, None]},
                "img": png(np.full((4, 5 + n, 3), n, np.uint8)),
                "n": 10**n,
                "f": rng.random() * 1e-20,
                "d": Decimal("1.10"),
            }
        )
    paths = write(tmp_path / "d", columns, samples, size_limit=1 << 14, hashes=["sha1"])
    assert len(paths) > 1
    found = [sample for path in paths for sample in shards.values(path, chunk)]
    assert found == [
        {
            "b": shards.value("bytes", s["b"]),
            "s": shards.value("text", s["s"].encode()),
            "j": shards.value("json", json.dumps(s["j"]).encode()),
            "img": shards.value("bytes", s["img"]),
            "n": shards.value("int", str(s["n"]).encode()),
            "f": shards.value("float", str(s["f"]).encode()),
            "d": shards.value("text", b"1.10"),
        }
        for s in samples
    ]


INTEGERS = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]
FLOATS = ["float16", "float32", "float64"]


def test_reads_numbers(tmp_path: Path) -> None:
    rng = random.Random(9)
    columns = {name: name for name in [*INTEGERS, *FLOATS, "int"]}
    samples = []
    for n in range(40):
        sample: dict[str, Any] = {"int": rng.randrange(-(2**63), 2**63)}
        for name in INTEGERS:
            limits = np.iinfo(name)
            sample[name] = rng.choice([limits.min, limits.max, rng.randrange(int(limits.min), int(limits.max))])
        for name in FLOATS:
            values = [
                0.0,
                -0.0,
                float("nan"),
                float("inf"),
                float("-inf"),
                rng.uniform(-1, 1),
                rng.uniform(-6e4, 6e4),
                2.0**-24,
                1 / 3,
            ]
            sample[name] = values[n % len(values)]
        samples.append(sample)
    (path,) = write(tmp_path / "d", columns, samples)
    for ours, theirs in zip(shards.values(path), samples, strict=True):
        for name in [*INTEGERS, "int"]:
            assert ours[name] == shards.value("int", str(theirs[name]).encode())
        for name in ("float32", "float64"):
            assert ours[name] == shards.value("float", shards.shortest(np.dtype(name).type(theirs[name]))), theirs[name]
        # A half is printed as the float that it is.
        assert ours["float16"] == shards.value("float", shards.shortest(np.float32(np.float16(theirs["float16"]))))


def test_reads_arrays(tmp_path: Path) -> None:
    rng = np.random.default_rng(10)
    types = [name for name in [*INTEGERS, *FLOATS]]
    columns = {"any": "ndarray", "f4": "ndarray:float32", "fixed": "ndarray:int16:3,2", "image": "pil"}
    samples = []
    for n in range(33):
        shape = [(3,), (300, 2), (70000, 1), (1, 2, 3, 4)][n % 4]
        pixels = rng.integers(0, 255, (5, 4, 3), np.uint8)
        samples.append(
            {
                "any": rng.integers(0, 100, shape).astype(types[n % len(types)]),
                "f4": rng.random(shape, np.float32),
                "fixed": rng.integers(-9, 9, (3, 2), np.int16),
                "image": Image.fromarray([pixels, pixels[:, :, 0]][n % 2]),
            }
        )
    (path,) = write(tmp_path / "d", columns, samples)
    assert shards.values(path) == [{name: shards.array(value) for name, value in sample.items()} for sample in samples]


def test_lists_of_images_are_bytes(tmp_path: Path) -> None:
    columns = {"a": "jpegarray", "b": "list[png]", "c": "list[pil]"}
    picture = Image.fromarray(np.zeros((2, 3), np.uint8))
    (path,) = write(tmp_path / "d", columns, [{"a": [b"\xff\xd8\xff", b"x"], "b": [picture, picture], "c": []}])
    assert [field["type"] for field in shards.dump(path)[0]["fields"]] == ["bytes"] * 3


def test_keys_and_classes(tmp_path: Path) -> None:
    (path,) = write(
        tmp_path / "d",
        {"__key__": "str", "cls": "int", "x": "bytes"},
        [{"__key__": f"a/{n}", "cls": n, "x": b"x"} for n in range(3)],
    )
    found = shards.dump(path)
    assert [(s["key"], s["label"], [f["name"] for f in s["fields"]]) for s in found] == [
        (f"a/{n}", str(n), ["cls", "x"]) for n in range(3)
    ]


def test_pickles_are_refused(tmp_path: Path) -> None:
    (path,) = write(tmp_path / "d", {"x": "pkl"}, [{"x": {1, 2}}])
    done = shards.run_dump(path)
    assert done.returncode == 1 and b"INVALID_ARGUMENT" in done.stderr and b"pkl" in done.stderr


def test_columns_of_tokens_are_fed_as_rows(tmp_path: Path) -> None:
    rows = np.random.default_rng(5).integers(0, 50_000, (40, 32), dtype=np.int32)
    write(tmp_path / "d", {"tokens": "ndarray:int32:32"}, [{"tokens": row} for row in rows])
    command = [shards.program("millrace"), "feed", str(tmp_path / "d"), "--tokens", "64:stream", "--json"]
    fed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert fed.returncode == 0, fed.stderr
    result = json.loads(fed.stdout)
    assert result["samples"] == 20 and result["tokens"] == rows.size
