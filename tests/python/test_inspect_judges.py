"""Tests that `inspect --decode all` finds the samples that a Loader finds damaged, and no others."""

from __future__ import annotations

import io
import pathlib
import tarfile
from typing import Any

import millrace
import numpy as np
import pytest
from support import make_pixels, png


def npy(array: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array, allow_pickle=True)
    return out.getvalue()


TEXTS = {
    "plain": b"a caption",
    "empty": b"",
    "accents": "Größe \u65e5\u672c \U0001f600".encode(),
    "mark": b"\xef\xbb\xbfa caption",
    "latin": "Größe".encode("latin-1"),
    "cut": "Größe".encode()[:3],
    "surrogate": b"\xed\xa0\x80",
    "overlong": b"\xc0\xaf",
    "zero": b"a\0b",
    "utf16": "text".encode("utf-16"),
}
JSONS = {
    "object": b'{"a": [1, 2.5, null, true, "x"]}',
    "number": b"7",
    "blanks": b" \n{}\n ",
    "nan": b'{"a": NaN}',
    "infinite": b"[Infinity, -Infinity]",
    "twice": b'{"a": 1, "a": 2}',
    "escape": rb'"\ud83d\ude00"',
    "half": rb'"\ud83d"',
    "control": b'"a\x01b"',
    "mark": b'\xef\xbb\xbf{"a": 1}',
    "utf16": '{"a": 1}'.encode("utf-16"),
    "latin": '"Größe"'.encode("latin-1"),
    "empty": b"",
    "cut": b'{"a": 1',
    "more": b'{"a": 1} x',
    "comma": b'{"a": 1,}',
    "single": b"{'a': 1}",
    "comment": b"{} // none",
    "large": b"1" * 400,
    "digits": b"1" * 5000,
    "exponent": b"1e999",
    "octal": b"007",
    "deep": b"[" * 900 + b"]" * 900,
    "deeper": b"[" * 100_000 + b"]" * 100_000,
}
ARRAYS = {
    "floats": npy(np.ones((2, 3), np.float32)),
    "empty": npy(np.ones((0,), np.float32)),
    "cut": npy(np.ones((2, 3), np.float32))[:-1],
    "nothing": b"",
    "other": b"not an array",
}


@pytest.mark.parametrize(
    "name,field,values",
    [("txt", millrace.Text("txt"), TEXTS), ("json", millrace.Json("json"), JSONS), ("npy", millrace.Bytes("npy"), {})],
)
def test_they_agree(name: str, field: Any, values: dict[str, bytes], tmp_path: pathlib.Path) -> None:
    values = values or ARRAYS
    field = millrace.Array("npy") if name == "npy" else field
    judged: dict[str, bool] = {}
    for key, value in values.items():
        with tarfile.open(tmp_path / f"{key}.tar", "w") as archive:
            for member, data in ((f"whole.{name}", next(iter(values.values()))), (f"{key}.{name}", value)):
                info = tarfile.TarInfo(member)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
        options: dict[str, Any] = {"batch_size": 2, "epochs": 1, "shuffle": False, "output": "numpy"}
        try:
            with millrace.Loader(tmp_path / f"{key}.tar", fields={"x": field}, **options) as loader:
                for _ in loader:
                    pass
            judged[key] = True
        except millrace.DamagedDataError:
            judged[key] = False
        except millrace.InvalidArgumentError:  # arrays of two shapes make no batch, damaged or not
            assert name == "npy"
            judged[key] = True
    of_inspect = {
        key: millrace.inspect(tmp_path / f"{key}.tar", decode="all")["decode"]["failed"] == 0 for key in values
    }
    assert of_inspect == judged
    assert set(judged.values()) == {True, False}


def test_images_and_what_stands_beside_them(tmp_path: pathlib.Path) -> None:
    whole = png(make_pixels(1))
    samples: dict[str, dict[str, bytes]] = {
        "whole": {"png": whole, "txt": b"a", "json": b"{}"},
        "image": {"png": whole[:-40], "txt": b"a", "json": b"{}"},
        "text": {"png": whole, "txt": b"\xff", "json": b"{}"},
        "json": {"png": whole, "txt": b"a", "json": b"{"},
    }
    with tarfile.open(tmp_path / "0.tar", "w") as archive:
        for key, members in samples.items():
            for field, data in members.items():
                info = tarfile.TarInfo(f"{key}.{field}")
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    told = millrace.inspect(tmp_path, decode="all")["decode"]
    assert told["failed"] == 3 and {each["key"] for each in told["examples"]} == {"image", "text", "json"}
    fields: dict[str, Any] = {"i": millrace.Image("png"), "t": millrace.Text("txt"), "j": millrace.Json("json")}
    with millrace.Loader(tmp_path, fields=fields, size=8, batch_size=4, epochs=1, bad_samples="mask") as loader:
        for _ in loader:
            pass
        bad = {entry["sample"].split(": ")[-1].strip("'") for entry in loader.report()["quarantine"]}
    assert len(bad) == 3 and all(any(key in sample for sample in bad) for key in ("image", "text", "json"))
