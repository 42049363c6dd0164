"""Values of samples that Python's parsers do not stand: they are damage that names the sample (C29)."""

from __future__ import annotations

import io
import json
import pathlib
import struct
import types

import millrace
import numpy as np
import pytest
from millrace import _sample_values, _subsets, checkpoint_import
from millrace._foreign_json import parse_json

DEEP = b"[" * 200_000
HUGE = b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + (
    b"{'descr': '<i8', 'fortran_order': False, 'shape': (%d,), }" % 2**45
).ljust(117) + b"\n"  # fmt: skip


def archive() -> bytes:
    out = io.BytesIO()
    np.savez(out, a=np.ones(2))
    return out.getvalue()


def test_c29_deep_json_is_no_json() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json(DEEP)
    assert parse_json(b"[1]") == [1]


@pytest.mark.parametrize(
    "kind, value",
    [("json", DEEP), ("ndarray", HUGE), ("ndarray", HUGE[:40]), ("ndarray", archive()), ("ndarray", b"")],
    ids=["deep", "huge", "cut", "archive", "empty"],
)
def test_c29_a_value_that_is_damaged_is_named(kind: str, value: bytes) -> None:
    with pytest.raises(millrace.DamagedDataError, match=r"sample 'k', field 'f' is no " + kind):
        _sample_values.sample_of("s3://bkt/data", "k", [("f", kind, value)])
    column = types.SimpleNamespace(uri="s3://bkt/data", fields=["f"], column=lambda _: [(kind, value)])
    with pytest.raises(millrace.DamagedDataError, match="sample 0, field 'f'"):
        _subsets.column_of(column, "f")  # type: ignore[arg-type]


@pytest.mark.parametrize("name, value", [("a.json", DEEP), ("a.npy", HUGE), ("a.npy", archive())])
def test_c29_a_file_that_is_no_value_stays_bytes(name: str, value: bytes) -> None:
    assert _sample_values.to_python(name, "", value) == value


def test_c29_a_data_set_names_the_sample(tmp_path: pathlib.Path) -> None:
    columns = {"column_names": ["about"], "column_encodings": ["json"], "column_sizes": [None]}
    about = json.dumps({**columns, "compression": None, "format": "mds", "hashes": [], "version": 2}).encode()
    value = struct.pack("<I", len(DEEP)) + DEEP
    begin = 4 * 3 + len(about)
    head = struct.pack("<3I", 1, begin, begin + len(value))
    (tmp_path / "shard.00000.mds").write_bytes(head + about + value)
    with pytest.raises(
        millrace.DamagedDataError, match="sample '.*', field 'about' is no json: it is nested too deeply"
    ):
        millrace.Dataset(tmp_path).read(0)


def test_c29_headers_of_safetensors(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(DEEP)) + DEEP)
    with pytest.raises(millrace.DamagedDataError, match="nested too deeply"):
        checkpoint_import.import_checkpoint(path, tmp_path / "run")
