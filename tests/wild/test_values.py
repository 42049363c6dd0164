"""Labels and values as pandas, NumPy, spreadsheets and annotation tools write them."""

from __future__ import annotations

import csv
import io
import json
import pickle
from pathlib import Path
from typing import Any

import millrace
import numpy as np
import pytest
from wild_support import Command, command, encoded, npy, photo, tar, write

__all__ = ["command"]

RNG = np.random.default_rng(1)

# Every kind of array that numpy.load(allow_pickle=False) reads, where it comes from, and a public report.
ARRAYS: list[tuple[str, Any, str, str]] = [
    ("bool", np.eye(3, dtype=bool), "masks", ""),
    ("int8", np.arange(6, dtype="i1").reshape(2, 3), "class maps", ""),
    ("uint16", np.arange(6, dtype="u2"), "depth", ""),
    ("int64", np.arange(6), "ids", ""),
    ("float16", np.arange(6, dtype="f2"), "embeddings", ""),
    ("float64", RNG.random((2, 3)), "pandas' to_numpy", ""),
    ("Fortran order", RNG.random((4, 3)).astype("f4").T, "transposed arrays", "rogersce/cnpy#7"),
    ("big-endian", np.arange(6, dtype=">f4"), "FITS and IDL", ""),
    ("big-endian integers", np.arange(6, dtype=">i2"), "MNIST's idx files", ""),
    ("complex", np.arange(4).astype("c8"), "spectra", ""),
    ("texts", np.array(["a", "bcd"]), "lists of names", ""),
    ("bytes", np.array([b"a", b"bcd"]), "lists of names", ""),
    ("dates", np.array(["2024-01-01", "2024-02-01"], dtype="M8[D]"), "pandas", ""),
    ("scalar", np.float32(7), "scores", ""),
    ("empty", np.zeros((0, 4), "f4"), "images without boxes", ""),
    (
        "two bytes without a type",
        np.array([b"\x80\x3f", b"\0\x40"], dtype="V2"),
        "ml_dtypes' bfloat16",
        "jax-ml/ml_dtypes#41",
    ),
    ("records", np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f4")]), "structured arrays", ""),
    (
        "records whose fields have names of the head",
        np.zeros(2, dtype=[("shape", "i4"), ("FOO", "f4")]),
        "databases",
        "",
    ),
]


@pytest.mark.parametrize(("name", "array", "source", "report"), ARRAYS, ids=[row[0] for row in ARRAYS])
def test_arrays_are_those_of_numpy(tmp_path: Path, name: str, array: Any, source: str, report: str) -> None:
    write(tmp_path / "set/0.tar", tar((f"{n}.m.npy", npy(array)) for n in range(2)))
    fields = {"m": millrace.Array("m.npy")}
    with millrace.Loader(str(tmp_path / "set"), batch_size=2, shuffle="none", fields=fields) as loader:
        batch = next(iter(loader))["m"]
    right = np.stack([np.load(io.BytesIO(npy(array)), allow_pickle=False)] * 2)
    assert np.array_equal(np.asarray(batch), right), (source, report)


def test_arrays_of_several_shapes(tmp_path: Path) -> None:
    """Without padding of one shape: a list of what NumPy reads, in the byte order of this machine."""
    arrays = [np.arange(2, dtype=">f4"), np.arange(3, dtype=">f4"), np.eye(2, dtype=bool), np.array(["a", "b"])]
    write(tmp_path / "set/0.tar", tar((f"{n}.m.npy", npy(array)) for n, array in enumerate(arrays)))
    fields = {"m": millrace.Array("m.npy")}
    with millrace.Loader(str(tmp_path / "set"), batch_size=4, shuffle="none", fields=fields) as loader:
        batch = next(iter(loader))["m"]
    assert [np.asarray(value).tolist() for value in batch] == [array.tolist() for array in arrays]


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_versions_of_npy(tmp_path: Path, version: tuple[int, int]) -> None:
    out = io.BytesIO()
    np.lib.format.write_array(out, np.arange(5), version=version)
    write(tmp_path / "set/0.tar", tar([("0.m.npy", out.getvalue())]))
    fields = {"m": millrace.Array("m.npy")}
    with millrace.Loader(str(tmp_path / "set"), batch_size=1, fields=fields) as loader:
        assert next(iter(loader))["m"][0].tolist() == [0, 1, 2, 3, 4]


def test_heads_as_python_2_writes_them(tmp_path: Path) -> None:
    """On Windows, shapes have long integers (JetBrains-Research/npy#6)."""
    head = b"{'descr': '>f8', 'fortran_order': False, 'shape': (2L, 3L), }"
    head += b" " * (118 - len(head) - 1) + b"\n"
    right = np.arange(6, dtype=">f8").reshape(2, 3)
    data = b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + right.tobytes()
    with pytest.warns(UserWarning, match="Python 2"):
        assert np.array_equal(np.load(io.BytesIO(data)), right)
    write(tmp_path / "set/0.tar", tar([("0.m.npy", data)]))
    fields = {"m": millrace.Array("m.npy")}
    with (
        pytest.warns(UserWarning, match="Python 2"),
        millrace.Loader(str(tmp_path / "set"), batch_size=1, fields=fields) as loader,
    ):
        assert np.array_equal(np.asarray(next(iter(loader))["m"])[0], right)


def test_arrays_that_are_refused(tmp_path: Path) -> None:
    objects = io.BytesIO()
    np.save(objects, np.array([{}, None], dtype=object), allow_pickle=True)
    for data, words in (
        (objects.getvalue(), "Python objects"),
        (npy(np.arange(50))[:-8], "cut off"),
        (b"x", "no array"),
    ):
        write(tmp_path / words / "0.tar", tar([("0.m.npy", data)]))
        fields = {"m": millrace.Array("m.npy")}
        with pytest.raises(Exception, match=words):
            with millrace.Loader(str(tmp_path / words), batch_size=1, fields=fields) as loader:
                list(loader)


@pytest.mark.parametrize(
    ("array", "dtype", "order"),
    [
        (np.array([{}, None], dtype=object), "|O", "C"),
        (np.array([[None, 1], [2, 3]], dtype=object).T.copy(order="F"), "|O", "Fortran"),
        (np.array([(1, None)], dtype=[("a", "i4"), ("b", object)]), "('b', '|O')", "C"),
    ],
)
def test_arrays_of_objects_are_refused_when_the_loader_is_made(
    tmp_path: Path, array: Any, dtype: str, order: str
) -> None:
    """Not in the middle of an epoch (ZZUTK/SRNTT#9, TUW-GEO/ismn#10)."""
    objects = io.BytesIO()
    np.save(objects, array, allow_pickle=True)
    write(tmp_path / "set/0.tar", tar([("0.m.npy", objects.getvalue()), ("1.m.npy", npy(np.arange(3)))]))
    uri, fields = str(tmp_path / "set"), {"m": millrace.Array("m.npy")}
    with pytest.raises(millrace.InvalidArgumentError, match="sample '0', field 'm.npy'") as refused:
        millrace.Loader(uri, batch_size=1, fields=fields)
    assert dtype in str(refused.value) and f"{order} order" in str(refused.value)
    with millrace.Loader(uri, batch_size=1, fields={"m": millrace.Bytes("m.npy")}, epochs=1) as loader:
        assert len(list(loader)) == 2
    with millrace.Loader(uri, batch_size=1, fields=fields, bad_samples="mask", epochs=1) as loader:
        assert sum(int(batch["valid"].sum()) for batch in loader) == 1


# A table whose quotes are text (rewicks/ersatz#1, common-voice/CorporaCreator#61): a cell that begins with a quote and never ends.
QUOTES = {"csv": ',"', "tsv": '\t"'}


@pytest.mark.parametrize("kind", QUOTES)
def test_quotes_may_be_text(command: Command, tmp_path: Path, kind: str) -> None:
    between = QUOTES[kind][0]
    rows = [["path", "label", "note"], ["0.jpg", "3", 'c"'], ["1.jpg", "4", '"a" b'], ["2.jpg", "5", '"so']]
    text = "".join(between.join(row) + "\n" for row in rows)
    assert rows == list(csv.reader(io.StringIO(text), delimiter=between, quoting=csv.QUOTE_NONE))
    for n in range(3):
        write(tmp_path / f"raw/{n}.jpg", b"x")
    manifest = write(tmp_path / f"raw/list.{kind}", text)
    assert "--no-csv-quotes" in command("index", manifest, code=1).stderr
    command("index", manifest, "--no-csv-quotes")
    right = [row[2] for row in rows[1:]]
    for quotes in (False, None):  # None: as the index has it
        dataset = millrace.Dataset(str(manifest), csv_quotes=quotes)
        assert [dataset[n]["note"] for n in range(3)] == right
        copy = pickle.loads(pickle.dumps(dataset))
        assert copy[0]["note"] == right[0]
    with pytest.raises(millrace.InvalidArgumentError, match="csv_quotes=False"):
        millrace.Dataset(str(manifest), csv_quotes=True)
    table = write(tmp_path / f"labels.{kind}", text)
    labelled = millrace.Dataset(str(tmp_path / "raw/*.jpg"), labels=millrace.Labels(table, csv_quotes=False))
    assert [labelled[n]["note"] for n in range(3)] == right
    assert pickle.loads(pickle.dumps(labelled))[0]["note"] == right[0]
    command("pack", f"{tmp_path}/raw/*.jpg", tmp_path / "out", "--labels", table, "--no-csv-quotes")
    packed = millrace.Dataset(str(tmp_path / "out"))
    assert [packed[n]["note"].decode() for n in range(3)] == right


def test_an_index_with_other_quotes_is_built_again(tmp_path: Path) -> None:
    write(tmp_path / "raw/0.jpg", b"x")
    manifest = str(write(tmp_path / "raw/list.csv", 'path,note\n0.jpg,"a"\n'))
    assert [millrace.Dataset(manifest, csv_quotes=quotes)[0]["note"] for quotes in (None, False, None, True, None)] == [
        "a",
        '"a"',
        '"a"',
        "a",
        "a",
    ]
    with pytest.raises(millrace.InvalidArgumentError, match="only in a manifest"):
        millrace.Dataset(str(tmp_path / "raw/*.jpg"), csv_quotes=False)


# Files of labels of three samples "0", "1", "2", the labels that are right, the program that writes them so, and a public report.
TABLES: list[tuple[str, str | bytes, list[str], str, str]] = [
    ("csv", "key,label\n0,3\n1,4\n2,5\n", ["3", "4", "5"], "by hand", ""),
    (
        "csv",
        ",key,label\n0,0,3\n1,1,4\n2,2,5\n",
        ["3", "4", "5"],
        "pandas' to_csv with its index",
        "huggingface/datasets#5490",
    ),
    ("csv", "key,label,,\n0,3,,\n1,4,,\n2,5,,\n", ["3", "4", "5"], "spreadsheets with empty columns", ""),
    ("csv", "\ufeffkey,label\r\n0,3\r\n1,4\r\n2,5\r\n", ["3", "4", "5"], "Excel's CSV UTF-8", "pandas-dev/pandas#6563"),
    ("csv", "key;label\n0;3\n1;4\n2;5\n", ["3", "4", "5"], "Excel in Europe", "asafdav/ng-csv#28"),
    ("csv", '"key","label"\n"0","3"\n"1","4"\n"2","5"\n', ["3", "4", "5"], "csv.QUOTE_ALL", ""),
    (
        "csv",
        'key,label,note\n0,3,5" nail\n1,4,"a"b\n2,5,a "b"\n',
        ["3", "4", "5"],
        "notes with inches and quotes",
        "pola-rs/polars#22312",
    ),
    ("csv", "key,label\r0,3\r1,4\r2,5\r", ["3", "4", "5"], "old spreadsheets on the Macintosh", ""),
    (
        "csv",
        'key,label,note\n0,3,"a\nb,""c"""\n1,4,\n2,5,\n',
        ["3", "4", "5"],
        "cells of several lines",
        "apple/turicreate#907",
    ),
    (
        "tsv",
        'key\tlabel\tcaption\n0\t3\tso-called "art"\n1\t4\t\n2\t5\t\n',
        ["3", "4", "5"],
        "captions of the web",
        "facebookresearch/pytext#777",
    ),
    (
        "csv",
        "key,label\n0,3.0\n1,4.0\n2,5.0\n",
        ["3.0", "4.0", "5.0"],
        "pandas after a missing value",
        "tensorflow/tfx#819",
    ),
    ("tsv", "key\tlabel\n0\t3\n1\t4\n2\t5\n", ["3", "4", "5"], "Kaggle", ""),
    ("csv", "label,key\n3,0.jpg\n4,1.jpg\n5,2.jpg\n", ["3", "4", "5"], "names of files", ""),
    (
        "jsonl",
        '{"key": "0", "label": 3}\n{"key": "1", "label": 4}\n{"key": "2", "label": 5}\n',
        ["3", "4", "5"],
        "jsonlines",
        "",
    ),
    (
        "jsonl",
        '{"key": 0, "label": 3, "w": NaN}\n{"key": 1, "label": 4}\n{"key": 2, "label": 5, "w": -Infinity}\n',
        ["3", "4", "5"],
        "json.dumps of missing values",
        "aqlaboratory/openfold-3#167",
    ),
]


@pytest.mark.parametrize(("kind", "text", "labels", "program", "report"), TABLES, ids=[row[3] for row in TABLES])
def test_tables_of_labels(
    command: Command, tmp_path: Path, kind: str, text: str | bytes, labels: list[str], program: str, report: str
) -> None:
    for n in range(3):
        write(tmp_path / f"raw/{n}.jpg", b"x")
    table = write(tmp_path / f"labels.{kind}", text)
    command("pack", tmp_path / "raw", tmp_path / "out", "--labels", table)
    dataset = millrace.Dataset(str(tmp_path / "out"))
    stored = [float(dataset[n]["cls"]) for n in range(3)]
    assert stored == [float(label) for label in labels], (program, report)
    if kind == "csv":  # the same by Python's module
        rows = list(
            csv.reader(
                io.StringIO(str(text).removeprefix("\ufeff"), newline=""), delimiter=";" if ";" in str(text) else ","
            )
        )
        assert len(rows) == 4


def test_a_name_among_numbers_names_its_line(command: Command, tmp_path: Path) -> None:
    for n in range(3):
        write(tmp_path / f"raw/{n}.jpg", b"x")
    for wrong in ("unknown", "N/A", "nan?"):
        table = write(tmp_path / "labels.csv", f"key,label\n0,1\n1,2\n2,{wrong}\n")
        assert "line 4" in command("pack", tmp_path / "raw", tmp_path / "out", "--labels", table, code=1).stderr


@pytest.mark.parametrize(
    "text",
    [
        '{"a": NaN}',
        '{"a": -Infinity}',
        "3",
        '"x"',
        "null",
        '{"a": 1e5, "b": [1, 2]}',
        '\ufeff{"a": 1}',
        '{"a": 123456789012345678901234567890}',
    ],
)
def test_json_is_what_json_loads_takes(tmp_path: Path, text: str) -> None:
    write(tmp_path / "set/0.tar", tar([("0.json", text.encode())]))
    fields = {"j": millrace.Json("json")}
    with millrace.Loader(str(tmp_path / "set"), batch_size=1, fields=fields) as loader:
        value = next(iter(loader))["j"][0]
    right = json.loads(text.removeprefix("\ufeff"))
    assert value == right or value != value or str(value) == str(right)


def raw_images(tmp_path: Path, count: int = 3) -> str:
    for n in range(count):
        write(tmp_path / f"raw/{n}.jpg", b"x")
    return str(tmp_path / "raw")


def table_of(column: str, cells: list[str]) -> str:
    return f"key,{column}\n" + "".join(f"{n},{cell}\n" for n, cell in enumerate(cells))


# Labels among which one is NaN, the labels that are right, the line of the NaN, and a public report.
NAN_LABELS = [
    (["1.5", "0.0", "nan"], [1.5, 0.0], 4, "chanzuckerberg/cellxgene#1115"),
    (["NaN", "2.5", "1"], [2.5, 1.0], 2, ""),
    (["1", "-nan", "0"], [1, 0], 3, ""),
]


@pytest.mark.parametrize(("cells", "labels", "line", "report"), NAN_LABELS)
def test_nan_among_numbers_is_no_label(
    command: Command, tmp_path: Path, cells: list[str], labels: list[float], line: int, report: str
) -> None:
    uri = raw_images(tmp_path)
    table = write(tmp_path / "labels.csv", table_of("label", cells))
    said = command("pack", uri, tmp_path / "out", "--labels", table, code=1).stderr
    assert f"line {line}: the label '{cells[line - 2]}' is no number" in said and "missing" in said, report
    with pytest.raises(millrace.InvalidArgumentError, match="no label for 1 of the 3 samples.*drop"):
        millrace.Dataset(uri, labels=millrace.Labels(table))
    dataset = millrace.Dataset(uri, labels=millrace.Labels(table, missing="drop"))
    assert [dataset[n]["cls"] for n in range(len(dataset))] == labels


# Bytes that json.loads takes, and others that it refuses.
JSON_BYTES = [
    '{"a": "\u00e9"}'.encode("utf-16"),
    '{"a": "\U0001f600"}'.encode("utf-16-be"),
    '{"a": 1}'.encode("utf-16-le"),
    '{"a": 1}'.encode("utf-32"),
    '{"a": 1}'.encode("utf-32-be"),
    b'{"a": "\\ud800 x"}',
    b'{"a": "\xed\xa0\x80"}',
    b'{"a": 1e400, "b": -1E999, "c": 1e-400}',
    b'{"a": 123456789012345678901234567890}',
    b"[" * 200 + b"]" * 200,
    b"[" * 500 + b"]" * 500,
    '"\u00e9\ud800"'.encode("utf-16", "surrogatepass"),
    ' \n{"a": 1}'.encode("utf-16-le"),
    "\ufeff 1".encode(),
    '"\u00e9"'.encode(),
    b'"\xed\xb0\x80\xed\xa0\x80"',
    "7".encode("utf-16-be"),
]
NO_JSON = [
    b'{"a": "\xe9"}',
    '{"a": 1}'.encode("utf-16")[:-1],
    b'\x0b{"a":1}',
    b'{"a": 1} x',
    b'{"a": "x\ty"}',
    b"1" * 4301,
]


@pytest.mark.parametrize("data", JSON_BYTES + NO_JSON, ids=range(len(JSON_BYTES + NO_JSON)))
def test_json_in_other_encodings(tmp_path: Path, data: bytes) -> None:
    write(tmp_path / "set/0.tar", tar([("0.json", data), ("0.txt", b"x")]))
    with millrace.Loader(str(tmp_path / "set"), batch_size=1, fields={"j": millrace.Json("json")}) as loader:
        if data in NO_JSON:
            with pytest.raises(ValueError):
                json.loads(data)
            with pytest.raises(millrace.Error, match="not JSON"):
                list(loader)
        else:
            assert next(iter(loader))["j"][0] == json.loads(data)


@pytest.mark.parametrize("levels", [501, 900, 1_100, 100_000])
def test_json_that_is_nested_too_deeply_is_a_bad_sample(tmp_path: Path, levels: int) -> None:
    """Python's recursion ends somewhere below 1,000 levels; the loop does not."""
    members = [("0.json", b"[" * levels + b"]" * levels), ("1.json", '{"a": 1}'.encode("utf-16"))]
    write(tmp_path / "set/0.tar", tar(members))
    fields = {"j": millrace.Json("json")}
    with millrace.Loader(
        str(tmp_path / "set"), batch_size=2, fields=fields, bad_samples="mask", shuffle="none"
    ) as loader:
        (batch,) = loader
    assert batch["valid"].tolist() == [False, True] and batch["j"][1] == {"a": 1}


@pytest.mark.parametrize("data", [b'{"a": 3, "w": NaN}', '{"a": 3}'.encode("utf-16"), b'{"a": 3, "w": 1e400}'])
def test_labels_within_json_are_of_standard_json(tmp_path: Path, data: bytes) -> None:
    write(tmp_path / "set/0.tar", tar([("0.json", data)]))
    fields = {"label": millrace.Label("json", path="a")}
    with millrace.Loader(str(tmp_path / "set"), batch_size=1, fields=fields) as loader:
        with pytest.raises(millrace.Error, match="is not JSON"):
            list(loader)


def test_what_json_has_and_labels_have_not(tmp_path: Path) -> None:
    rows = [
        '{"key": "0", "label": true, "t": "\\ud83d\\ude00 \\ud800"}',
        '{"key": "1", "label": false, "t": "x", "w": 1e400}',
    ]
    table = write(tmp_path / "l.jsonl", "\n".join([*rows, '{"key": "2", "label": true, "w": 0.5}']))
    dataset = millrace.Dataset(raw_images(tmp_path), labels=millrace.Labels(table))
    assert dataset.classes == ["false", "true"]
    assert [dataset[n]["cls"] for n in range(3)] == [1, 0, 1]
    assert dataset[0]["t"] == "\U0001f600 \ufffd"
    assert [dataset[n].get("w") for n in range(3)] == [None, None, 0.5]


@pytest.mark.parametrize(
    ("text", "words"), [("cat", 'Label(field, "text")'), ("", "without a label"), ("1.0", '"float"')]
)
def test_a_class_that_is_no_number_is_said_before_the_epoch(tmp_path: Path, text: str, words: str) -> None:
    """The index knows which classes are no numbers."""
    picture = encoded(photo(1), "PNG")
    members = [
        (f"{n:03}.{kind}", value)
        for n in range(60)
        for kind, value in (("png", picture), ("cls", text.encode() if n == 50 else b"3"))
    ]
    write(tmp_path / "set/0.tar", tar(members))
    uri = str(tmp_path / "set")
    with pytest.raises(millrace.Error, match="sample '050': field 'cls'") as refused:
        millrace.Loader(uri, batch_size=10, size=8)
    assert words in str(refused.value)
    with millrace.Loader(uri, batch_size=10, size=8, bad_samples="mask") as loader:
        assert len(list(loader)) == 6
    fields = {"label": millrace.Label("cls", "text")}
    with millrace.Loader(uri, batch_size=60, fields=fields, shuffle="none") as loader:
        assert next(iter(loader))["label"][50] == text
    minus = [(name, b"-1" if name.endswith("cls") else value) for name, value in members]
    write(tmp_path / "minus/0.tar", tar(minus))
    with millrace.Loader(str(tmp_path / "minus"), batch_size=60, size=8) as loader:
        assert set(np.asarray(next(iter(loader))["label"]).tolist()) == {-1}


# Labels that are refused, their line, and what is said of it.
REFUSED_LABELS = [
    ("csv", table_of("label", ['"3,5"', '"4,25"', '"5,0"']), "line 2: the label '3,5' has a comma"),
    ("csv", table_of("label", ['"1,000"', '"2,000"', "3"]), "line 2: the label '1,000' has a comma"),
    ("csv", "key;label\n0;3,5\n1;4,25\n2;5\n", "line 2: the label '3,5' has a comma"),
    ("csv", table_of("label", ["001", "+3", "2.5"]), "write it without a plus and without zeros in front"),
    ("csv", table_of("label", ["1", str(2**70), "3"]), f"line 3: the label '{2**70}' is a number, but it has more"),
    ("csv", table_of("label", ["1.5", "0.5", str(2**70)]), f"line 4: the label '{2**70}'"),
    ("csv", table_of("label", ["1.5", "inf", "2"]), "line 3: the label 'inf' is a number, but not a finite one"),
    ("csv", table_of("label", ["nan", "nan", "nan"]), "line 2: the label 'nan'"),
    (
        "jsonl",
        "".join(f'{{"key": "{n}", "label": {2**70 if n == 1 else n}}}\n' for n in range(3)),
        "line 2: the label '118",
    ),
    ("json", json.dumps([{"key": "0", "label": 1}, {"key": "1", "label": "cat"}]), "entry 2: the label 'cat'"),
]


@pytest.mark.parametrize(("kind", "text", "words"), REFUSED_LABELS)
def test_labels_that_are_refused_are_named(tmp_path: Path, kind: str, text: str, words: str) -> None:
    table = write(tmp_path / f"labels.{kind}", text)
    with pytest.raises(millrace.InvalidArgumentError) as refused:
        millrace.Dataset(raw_images(tmp_path), labels=millrace.Labels(table, missing="drop"))
    assert words in str(refused.value)


# Cells of a column, and the values that pandas' read_csv has; None: no value.
COLUMNS: list[tuple[list[str], list[Any]]] = [
    (["0.5", "NaN", "3"], [0.5, float("nan"), 3.0]),
    (["1", "nan", "3"], [1.0, float("nan"), 3.0]),
    (["1", "inf", "-Infinity"], [1.0, float("inf"), -float("inf")]),
    (["1", "N/A", "3"], [1, None, 3]),
    (["0.5", "<NA>", ""], [0.5, None, None]),
    (["NULL", "nan", "None"], [None, float("nan"), None]),
    (["+1.5", "-2", ".5"], [1.5, -2.0, 0.5]),
    (["a", "N/A", "3"], ["a", "N/A", "3"]),  # Python's csv: the column is of text
    (["N/A", "NA", "N/A"], ["N/A", "NA", "N/A"]),
    (["infinite", "1", "2"], ["infinite", "1", "2"]),
]


@pytest.mark.parametrize(("cells", "values"), COLUMNS)
@pytest.mark.parametrize("place", ["manifest", "labels"])
def test_numbers_of_columns(tmp_path: Path, cells: list[str], values: list[Any], place: str) -> None:
    """NaN and inf are numbers (pandas-dev/pandas#10065); words for what is missing are no values among numbers."""
    uri = raw_images(tmp_path)
    if place == "labels":
        dataset = millrace.Dataset(
            uri, labels=millrace.Labels(write(tmp_path / "l.csv", table_of("a,b", [f"{c},1" for c in cells])))
        )
    else:
        rows = "".join(f"{n}.jpg,{cell}\n" for n, cell in enumerate(cells))
        dataset = millrace.Dataset(str(write(tmp_path / "raw/list.csv", "path,a\n" + rows)))
    found = [dataset[n].get("a") for n in range(3)]
    assert [type(value) for value in found] == [type(value) for value in values]
    assert repr(found) == repr(values)


KEYED = [{"key": str(n), "label": n + 3, "w": n / 2} for n in range(3)]


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_arrays_of_records(tmp_path: Path, indent: int | None, mark: str) -> None:
    """pandas' to_json(orient="records"), and json.dump of a list."""
    text = mark + json.dumps(KEYED, indent=indent)
    dataset = millrace.Dataset(raw_images(tmp_path), labels=millrace.Labels(write(tmp_path / "l.json", text)))
    assert [(dataset[n]["cls"], dataset[n]["w"]) for n in range(3)] == [(row["label"], row["w"]) for row in KEYED]
    listed = [{"path": f"{n}.jpg", "label": n + 3} for n in range(3)]
    manifest = millrace.Dataset(str(write(tmp_path / "raw/list.json", mark + json.dumps(listed, indent=indent))))
    assert [manifest[n]["cls"] for n in range(3)] == [3, 4, 5]


# Other forms of pandas' to_json.
FORMS: dict[str, Any] = {
    "columns": {"key": {"0": "0", "1": "1"}, "label": {"0": 3, "1": 4}},
    "index": {"0": {"key": "0", "label": 3}, "1": {"key": "1", "label": 4}},
    "split": {"columns": ["key", "label"], "index": [0, 1], "data": [["0", 3], ["1", 4]]},
    "table": {"schema": {"fields": []}, "data": [{"key": "0", "label": 3}]},
    "values": [["0", 3], ["1", 4]],
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("indent", [None, 2])
def test_other_forms_of_tables_name_the_one_that_is_read(tmp_path: Path, form: str, indent: int | None) -> None:
    table = write(tmp_path / "l.json", json.dumps(FORMS[form], indent=indent))
    with pytest.raises(millrace.InvalidArgumentError, match=r'to_json\(orient="records"'):
        millrace.Dataset(raw_images(tmp_path), labels=millrace.Labels(table))


def test_one_object_over_several_lines(tmp_path: Path) -> None:
    table = write(tmp_path / "l.json", json.dumps(KEYED[0], indent=2))
    with pytest.raises(millrace.InvalidArgumentError, match="one JSON object over several lines.*lines=True"):
        millrace.Dataset(raw_images(tmp_path), labels=millrace.Labels(table))


# Files of labels, and what is said of them.
TOLD: list[tuple[str, bytes, str, str]] = [
    ("csv", table_of("label", ["1", "2", "3"]).encode("utf-16"), "it is UTF-16", "PowerShell"),
    ("csv", b"\xfe\xff" + table_of("label", ["1"]).encode("utf-16-be"), "it is UTF-16", ""),
    ("jsonl", '{"key": "0", "label": 1}'.encode("utf-16"), "it is UTF-16", ""),
    ("csv", b"key,label\nraw\\0.jpg,1\nraw\\1.jpg,2\n", "the path has backslashes, as on Windows", "Windows"),
    ("csv", b"sep=;\nkey;label\n0;1\n1;2\n2;3\n", "it says the delimiter to Excel", "Excel"),
    ("json", b'{"0.jpg": 3, "1.jpg": 4, "2.jpg": 5}', '{"key": "0.jpg", "label": 3}', "scripts"),
    ("json", b'{"labels": [["0.jpg", 3], ["1.jpg", 4]]}', "the dataset.json of StyleGAN", "StyleGAN"),
    ("csv", "key,label\ne\u0301,1\n".encode(), "Unicode's form NFD", "macOS"),
    ("csv", b"key,label\n", "it has no rows", "pandas of an empty selection"),
    ("csv", b"key|label\n0|1\n", "delimited by |", "databases"),
    ("tsv", b"key,label\n0,1\n", "delimited by ,", "spreadsheets"),
    ("tsv", b"key;label\n0;1\n", "delimited by ;", "spreadsheets"),
    ("csv", b"0.jpg,1\n1.jpg,2\n", "put the names of the columns before it", "scripts"),
    ("csv", b"# by a tool\nkey,label\n0,1\n", "remove comments", "numpy.savetxt"),
    ("csv", b"PK\x03\x04" + bytes(60), "a workbook of Excel", "Excel"),
    ("csv", b"\xd0\xcf\x11\xe0\xa1\xb1" + bytes(60), "a workbook of an early Excel", "Excel"),
    ("csv", b"PAR1" + bytes(60) + b"PAR1", "a Parquet file", "pandas"),
    ("csv", b"\x1f\x8b\x08" + bytes(20), "compressed by gzip", "pandas"),
    ("csv", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull", "git clone"),
    ("csv", b"<!DOCTYPE html><html>sign in</html>\n", "a web page", "downloads"),
    ("csv", "key,label\n0,1\n".encode("utf-16-le"), "it may be UTF-16 without a mark", "Windows"),
    ("csv", b"label, key\n1, 0.jpg\n2, 1.jpg\n", "begins with a blank", "by hand"),
]


@pytest.mark.parametrize(("kind", "data", "words", "program"), TOLD)
def test_files_of_labels_that_other_programs_write_otherwise(
    tmp_path: Path, kind: str, data: bytes, words: str, program: str
) -> None:
    with pytest.raises(millrace.InvalidArgumentError) as refused:
        millrace.Dataset(raw_images(tmp_path), labels=millrace.Labels(write(tmp_path / f"l.{kind}", data)))
    assert words in str(refused.value), program


# Keys of the samples 000000 to 000002 whose zeros are lost.
ZEROS = [
    ("csv", "key,label\n0,3\n1,4\n2,5\n", "sdv-dev/SDV#2780"),
    ("csv", "file_name,label\n0.jpg,3\n1.jpg,4\n2.jpg,5\n", "EducationalTestingService/rsmtool#88"),
    ("jsonl", "".join(f'{{"key": {n}, "label": 3}}\n' for n in range(3)), ""),
]


@pytest.mark.parametrize(("kind", "text", "report"), ZEROS)
def test_zeros_that_a_spreadsheet_has_taken_off(tmp_path: Path, kind: str, text: str, report: str) -> None:
    for n in range(3):
        write(tmp_path / f"raw/{n:06}.jpg", b"x")
    with pytest.raises(millrace.InvalidArgumentError, match=r"zeros in front are lost.*dtype=str"):
        millrace.Dataset(str(tmp_path / "raw"), labels=millrace.Labels(write(tmp_path / f"l.{kind}", text)))


@pytest.mark.parametrize("tail", [",\n", ",\r\n,\r\n", " , \n", "\n\n,\n"])
def test_rows_that_were_cleared_in_a_spreadsheet(tmp_path: Path, tail: str) -> None:
    table = write(tmp_path / "l.csv", table_of("label", ["3", "4", "5"]) + tail)
    dataset = millrace.Dataset(raw_images(tmp_path), labels=millrace.Labels(table))
    assert [dataset[n]["cls"] for n in range(3)] == [3, 4, 5]


@pytest.mark.parametrize("text", ["\ufeff5", "\ufeff5\r\n", "\ufeff 5 "])
def test_numbers_with_a_byte_order_mark(tmp_path: Path, text: str) -> None:
    """Editors on Windows write it (pandas-dev/pandas#6563)."""
    for place in ("raw", "tar"):
        if place == "raw":
            write(tmp_path / "raw/x.png", encoded(photo(1), "PNG"))
            write(tmp_path / "raw/x.cls", text)
        else:
            write(tmp_path / "tar/0.tar", tar([("x.png", encoded(photo(1), "PNG")), ("x.cls", text.encode())]))
        with millrace.Loader(str(tmp_path / place), batch_size=1, size=8) as loader:
            assert np.asarray(next(iter(loader))["label"]).tolist() == [5], place
        assert millrace.Dataset(str(tmp_path / place))[0]["cls"] == 5, place


def zipped() -> bytes:
    out = io.BytesIO()
    np.savez(out, a=np.arange(3))
    return out.getvalue()


def objects() -> bytes:
    out = io.BytesIO()
    np.save(out, np.array([{1: 2}], dtype=object), allow_pickle=True)
    return out.getvalue()


# Files that are not as their names say, and what a Loader says of them.
MISNAMED: list[tuple[str, bytes, str]] = [
    ("npy", zipped(), "no array but an archive of arrays"),
    ("npz", zipped(), "numpy.load"),
    ("npy", objects(), "Python objects"),
    ("npy", npy(np.arange(100.0))[:300], "cut off"),
    ("npy", npy(np.arange(100.0))[:20], "array"),
    ("npy", b"", "array"),
    ("json", b"{'a': 1}", "not JSON"),
    ("json", b'{"a": 01}', "not JSON"),
    ("json", b"[" * 100_000, "not JSON"),
    ("json", b"", "not JSON"),
]


@pytest.mark.parametrize(("kind", "data", "words"), MISNAMED)
def test_values_that_are_not_as_their_names_say(tmp_path: Path, kind: str, data: bytes, words: str) -> None:
    """Dataset.read() gives the bytes; a Loader with a field for it refuses them."""
    write(tmp_path / "set/0.tar", tar([(f"0.{kind}", data), ("0.txt", b"x")]))
    uri = str(tmp_path / "set")
    assert millrace.Dataset(uri).read(0)[kind] == data
    field = millrace.Json(kind) if kind == "json" else millrace.Array(kind)
    with pytest.raises(millrace.Error, match=words):
        with millrace.Loader(uri, batch_size=1, fields={"v": field}) as loader:
            list(loader)
