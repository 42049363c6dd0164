"""Tests that fields of data that webdataset and mosaicml-streaming have written equal what these read themselves: all
of them, through read() and a Loader."""

from __future__ import annotations

import io
import json
import pathlib
import sys
from typing import Any

import millrace
import numpy as np
import pytest
from PIL import Image

sys.path.append(str(pathlib.Path(__file__).parents[1] / "shard"))
import mosaic

HEIGHT, WIDTH, SAMPLES = 24, 40, 60
_TYPES = [np.uint8, np.int16, np.float16, np.float32, np.float64, np.int64]


def picture(number: int) -> Image.Image:
    """Makes a smooth picture, as JPEGs are."""
    rows, columns = np.mgrid[0:HEIGHT, 0:WIDTH]
    channels = [rows * 5 + number, columns * 4, (rows + columns) * 2 + 3 * number]
    return Image.fromarray(np.stack(channels, axis=-1).astype(np.uint8) // 2)


def jpeg(number: int) -> bytes:
    out = io.BytesIO()
    picture(number).save(out, "jpeg", quality=95)
    return out.getvalue()


def ragged(number: int) -> np.ndarray:
    shape = [(3,), (2, number % 5), (number % 4 + 1, 1, 2), ()][number % 4]
    return (np.random.default_rng(number).random(shape) * 100).astype(_TYPES[number % len(_TYPES)])


def meta(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "tags": ["größe", None, number / 3],
        "box": {"x": -number},
        "long": "é" * (300 if number % 7 == 0 else 1),
    }


def same(mine: Any, theirs: Any) -> None:
    if isinstance(theirs, np.ndarray):
        assert isinstance(mine, np.ndarray) and mine.dtype == theirs.dtype and mine.shape == theirs.shape
        assert mine.tobytes() == theirs.tobytes()
    else:
        assert type(mine) is type(theirs) and mine == theirs


def rows_of(uri: str, fields: dict[str, Any], **options: Any) -> dict[str, dict[str, Any]]:
    """Returns what a Loader makes of each sample, by key; in batches that fill and ones that do not, shuffled."""
    usual: dict[str, Any] = {"batch_size": 7, "size": (HEIGHT, WIDTH), "epochs": 1, "output": "numpy", "seed": 4}
    rows = {}
    for batch in millrace.Loader(uri, fields=fields, **{**usual, **options}):
        for row, key in enumerate(batch["key"]):
            if batch["valid"][row]:
                assert key not in rows
                rows[key] = {name: batch[name][row] for name in fields}
    return rows


def stacked(one: Any, theirs: Any) -> Any:
    """A row of a stacked array is an array, or of one without axes a number."""
    return np.asarray(one, theirs.dtype) if isinstance(theirs, np.ndarray) else one


@pytest.fixture(scope="module")
def pax(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, dict[str, Any]]]:
    """Makes shards of webdataset's ShardWriter, whose members have PAX headers, and what its reader makes of them."""
    webdataset = pytest.importorskip("webdataset")
    folder = tmp_path_factory.mktemp("pax")
    with webdataset.ShardWriter(str(folder / "train-%03d.tar"), maxcount=25, verbose=0) as writer:
        for number in range(SAMPLES):
            sample = {
                "__key__": f"dir/{number:05}",
                "jpg": jpeg(number),
                "json": meta(number),
                "txt": f"Bild {number}: größer\n" * (number % 3),
            }
            writer.write(
                {
                    **sample,
                    "npy": ragged(number),
                    "cls": number % 10,
                    "left.png": picture(number),
                    "emb.npy": np.full(4, number, np.float32),
                }
            )
    shards = sorted(map(str, folder.glob("*.tar")))
    assert len(shards) == 3 and b"mtime=" in pathlib.Path(shards[0]).read_bytes()[:1024], "PAX headers"
    read = webdataset.WebDataset(shards, shardshuffle=False).decode("rgb8")
    return str(folder), {
        sample["__key__"]: {name: value for name, value in sample.items() if name[0] != "_"} for sample in read
    }


def test_read_of_webdatasets_pax(pax: tuple[str, dict[str, dict[str, Any]]]) -> None:
    uri, theirs = pax
    dataset = millrace.Dataset(uri)
    assert len(dataset) == len(theirs) == SAMPLES
    for mine in dataset:
        expected = theirs[mine.pop("key")]
        assert mine.keys() == expected.keys() == {"jpg", "json", "txt", "npy", "cls", "left.png", "emb.npy"}
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(mine["left.png"]))), expected["left.png"])
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(mine["jpg"]))), expected["jpg"])
        for name in ("json", "txt", "npy", "cls"):
            same(mine[name], expected[name])
        # webdataset's decoder goes by the last extension, read() too.
        same(mine["emb.npy"], expected["emb.npy"])


def test_loader_of_webdatasets_pax(pax: tuple[str, dict[str, dict[str, Any]]]) -> None:
    uri, theirs = pax
    fields = {
        "image": millrace.Image("jpg"),
        "left": millrace.Image("left.png"),
        "file": millrace.Bytes("jpg"),
        "meta": millrace.Json("json"),
        "caption": millrace.Text("txt"),
        "array": millrace.Array("npy"),
        "emb": millrace.Array("emb.npy"),
        "label": millrace.Label("cls"),
    }
    rows = rows_of(uri, fields)
    assert rows.keys() == theirs.keys()
    for key, mine in rows.items():
        expected = theirs[key]
        assert np.array_equal(mine["left"], expected["left.png"])
        assert np.abs(mine["image"].astype(int) - expected["jpg"]).max() <= 2, "another libjpeg decodes it"
        assert mine["file"] == jpeg(int(key[-5:]))
        same(mine["meta"], expected["json"])
        same(mine["caption"], expected["txt"])
        same(stacked(mine["array"], expected["npy"]), expected["npy"])
        same(mine["emb"], expected["emb.npy"])
        assert mine["label"] == expected["cls"]


COLUMNS = {
    **{"any": "ndarray", "typed": "ndarray:float32", "fixed": "ndarray:int16:3,2", "half": "ndarray:float16:5"},
    **{
        "text": "str",
        "meta": "json",
        "raw": "bytes",
        "image": "jpeg",
        "map": "png",
        "cls": "int",
        "score": "float64",
        "small": "uint8",
    },
}


@pytest.fixture(scope="module")
def mds(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[dict[str, Any]]]:
    """Makes shards of mosaicml-streaming's MDSWriter, and what its MDSReader makes of them, in their order."""
    writer_class, reader_class = mosaic.load()
    folder = tmp_path_factory.mktemp("mds") / "train"
    with writer_class(out=str(folder), columns=COLUMNS, size_limit=1 << 16) as writer:
        for number in range(SAMPLES):
            random = np.random.default_rng(number)
            writer.write(
                {
                    "any": ragged(number)
                    if ragged(number).size and ragged(number).ndim
                    else np.arange(number + 1, dtype=np.int32),  # no others are taken
                    "typed": random.random((number % 6 + 1, 2), np.float32),
                    "fixed": random.integers(-9, 9, (3, 2), np.int16),
                    "half": random.random(5).astype(np.float16),
                    "text": "größe" * number,
                    "meta": meta(number),
                    "raw": bytes([number]) * number,
                    "image": picture(number),
                    "map": Image.fromarray(np.asarray(picture(number))[..., 0]),
                    "cls": number % 10,
                    "score": number / 7,
                    "small": number,
                }
            )
    index = json.loads((folder / "index.json").read_text())
    assert len(index["shards"]) > 1
    theirs = []
    for shard in index["shards"]:
        reader = reader_class.from_json(str(folder.parent), folder.name, shard)
        theirs += [reader[number] for number in range(reader.size)]
    return str(folder), theirs


def test_read_of_mosaics_mds(mds: tuple[str, list[dict[str, Any]]]) -> None:
    uri, theirs = mds
    dataset = millrace.Dataset(uri)
    assert len(dataset) == len(theirs) == SAMPLES
    for mine, expected in zip(dataset, theirs, strict=True):
        del mine["key"]
        assert mine.keys() == expected.keys() == COLUMNS.keys()
        for name in ("image", "map"):
            assert np.array_equal(np.asarray(Image.open(io.BytesIO(mine[name]))), np.asarray(expected[name]))
        for name in ("any", "typed", "fixed", "half", "text", "meta", "raw"):
            same(mine[name], expected[name])
        for name in ("cls", "score", "small"):
            assert mine[name] == expected[name]


def test_loader_of_mosaics_mds(mds: tuple[str, list[dict[str, Any]]]) -> None:
    uri, theirs = mds
    fields: dict[str, Any] = {name: millrace.Array(name) for name in ("any", "typed", "fixed", "half")}
    fields |= {
        "text": millrace.Text("text"),
        "meta": millrace.Json("meta"),
        "raw": millrace.Bytes("raw"),
        "small": millrace.Label("small"),
    }
    fields |= {
        "cls": millrace.Label("cls"),
        "score": millrace.Label("score", "float"),
        "image": millrace.Image("image"),
    }
    fields |= {"map": millrace.Image("map", channels=1)}
    rows = rows_of(uri, fields)
    assert len(rows) == SAMPLES
    # The reader has no keys: those of Millrace say the place, in whose order the samples are.
    for key, expected in zip(sorted(rows), theirs, strict=True):
        mine = rows[key]
        for name in ("any", "typed", "fixed", "half"):
            same(stacked(mine[name], expected[name]), expected[name])
        for name in ("text", "meta", "raw"):
            same(mine[name], expected[name])
        assert (
            mine["cls"] == expected["cls"]
            and mine["small"] == expected["small"]
            and mine["score"] == np.float32(expected["score"])
        )
        assert np.abs(mine["image"].astype(int) - np.asarray(expected["image"])).max() <= 2
        assert np.array_equal(mine["map"][..., 0], np.asarray(expected["map"]))
