"""Tests rows of tokens from MDS columns whose arrays have any length, as MosaicML's writers make them."""

from __future__ import annotations

import pathlib
import sys
from typing import Any

import millrace
import numpy as np
import pytest

sys.path.append(str(pathlib.Path(__file__).parents[1] / "shard"))
import mosaic


def writer(folder: pathlib.Path, columns: dict[str, str], **options: Any) -> Any:
    made, _ = mosaic.load()
    return made(out=str(folder), columns=columns, **options)


def write(folder: pathlib.Path, documents: list[np.ndarray], encoding: str) -> None:
    with writer(folder, {"tokens": encoding, "n": "int"}, size_limit=1 << 20) as out:
        for number, document in enumerate(documents):
            out.write({"tokens": document, "n": number})


@pytest.mark.parametrize("dtype", ["int32", "uint16", "uint8"])
def test_arrays_of_any_length_are_rows(tmp_path: pathlib.Path, dtype: str) -> None:
    """The lengths are around those at which the head grows, and some documents are read in part."""
    lengths = [1, 2, 100, 255, 256, 257, 300, 65535, 65536, 70_000, 3]
    rng = np.random.default_rng(0)
    documents = [rng.integers(1, 250, length).astype(dtype) for length in lengths]
    write(tmp_path / "data", documents, f"ndarray:{dtype}")
    found: dict[int, list[np.ndarray]] = {}
    options = {"batch_size": 4, "shuffle": "none", "epochs": 1, "output": "numpy", "memory": "64MiB"}
    tokens = millrace.Tokens(4096, "pad")
    with millrace.Loader(tmp_path / "data", tokens=tokens, **options) as loader:
        for batch in loader:
            for sample, row, mask, valid in zip(batch["sample"], batch["tokens"], batch["token_mask"], batch["valid"]):
                if valid:
                    found.setdefault(int(sample), []).append(row[mask])
    assert sorted(found) == list(range(len(lengths)))
    for number, document in enumerate(documents):
        np.testing.assert_array_equal(np.concatenate(found[number]), document)


def test_arrays_of_two_axes_are_none(tmp_path: pathlib.Path) -> None:
    write(tmp_path / "data", [np.ones((2, 50), np.int32)], "ndarray:int32")
    with pytest.raises(millrace.MismatchError, match="not one of one axis"):
        millrace.Loader(tmp_path / "data", tokens=millrace.Tokens(64), batch_size=1)


@pytest.mark.parametrize("dtype", ["int64", "uint16", "uint8"])
def test_bytes_are_rows_if_their_numbers_are_named(tmp_path: pathlib.Path, dtype: str, workers: Any) -> None:
    """LLM Foundry writes them so. A document that is longer than 64 KiB is read in parts."""
    documents = [np.arange(length) % 250 for length in (3, 70_000, 100, 1)]
    with writer(tmp_path / "data", {"tokens": "bytes"}) as out:
        for document in documents:
            out.write({"tokens": document.astype(dtype).tobytes()})
    tokens = millrace.Tokens(4096, "stream", stored=dtype)
    options = {"batch_size": 2, "shuffle": "none", "epochs": 1, "output": "numpy", "memory": "64MiB"}
    for place in ({}, {"workers": [workers().address]}):
        with millrace.Loader(tmp_path / "data", tokens=tokens, **options, **place) as loader:
            found = [batch["tokens"][batch["token_mask"]] for batch in loader]
        np.testing.assert_array_equal(np.concatenate(found), np.concatenate(documents))


def test_bytes_without_a_type_name_the_way_out(tmp_path: pathlib.Path) -> None:
    with writer(tmp_path / "data", {"tokens": "bytes", "typed": "ndarray:int32"}) as out:
        out.write({"tokens": np.arange(10).tobytes() + b"!", "typed": np.arange(10, dtype=np.int32)})
    for tokens, words in (
        (millrace.Tokens(64), r"say what the numbers in them are \(Tokens\(stored='int64'\)\), .*millrace.TokenWriter"),
        (millrace.Tokens(64, stored="int32"), "81 bytes, which is no whole number of int32"),
        (millrace.Tokens(64, field="typed", stored="int64"), "its numbers are int32; .* leave it out"),
    ):
        with pytest.raises((millrace.MismatchError, millrace.DamagedDataError), match=words):
            millrace.Loader(tmp_path / "data", tokens=tokens, batch_size=1)
