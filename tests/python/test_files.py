"""Tests millrace.open, which opens objects as Python files."""

from __future__ import annotations

import csv
import gc
import io
import os
import pathlib
import pickle
import warnings

import millrace
import numpy as np
import pytest
from support import check_script, devstore

PAYLOAD = np.random.default_rng(1).integers(0, 256, 5_000_003, dtype=np.uint8).tobytes()


@pytest.fixture(params=["folder", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: pathlib.Path, bucket: str) -> str:
    """Returns where objects of a test go."""
    return str(tmp_path) if request.param == "folder" else f"{bucket}/{request.node.name}"


def exists(uri: str) -> bool:
    try:
        with millrace.open(uri):
            return True
    except FileNotFoundError:
        return False


def test_what_is_written_is_read(place: str) -> None:
    with millrace.open(f"{place}/a.bin", "wb") as file:
        assert isinstance(file, io.BufferedWriter) and file.writable() and not file.seekable()
        assert file.write(PAYLOAD[:10]) == 10 and file.write(memoryview(PAYLOAD)[10:]) == len(PAYLOAD) - 10
        assert file.tell() == len(PAYLOAD)
        assert not exists(f"{place}/a.bin"), "it appears when it is closed"
    with millrace.open(f"{place}/a.bin") as file:
        assert isinstance(file, io.BufferedReader) and file.seekable()
        assert file.read() == PAYLOAD and file.read(1) == b""
    assert file.closed
    with pytest.raises(ValueError, match="closed"):
        file.read()


def test_any_sequence_of_reads_and_seeks(place: str) -> None:
    with millrace.open(f"{place}/b.bin", "wb") as out:
        out.write(PAYLOAD)
    rng, model = np.random.default_rng(2), io.BytesIO(PAYLOAD)
    for buffering in (-1, 0, 1000):
        model.seek(0)
        with millrace.open(f"{place}/b.bin", buffering=buffering) as file:
            for _ in range(100):
                at, size = int(rng.integers(0, len(PAYLOAD) + 10)), int(rng.integers(0, 200_000))
                if rng.random() < 0.5:
                    assert file.seek(at) == model.seek(at)
                elif rng.random() < 0.2:
                    assert file.seek(-at // 2, os.SEEK_END) == model.seek(-at // 2, os.SEEK_END)
                mine, models = bytearray(size), bytearray(size)
                got, expected = file.readinto(mine), model.readinto(models)  # type: ignore[attr-defined]
                assert got == expected and mine == models and file.tell() == model.tell()


def test_text(place: str) -> None:
    rows = [["name", "größe"], ["a", "1"], ["b,c", "2"]]
    with millrace.open(f"{place}/t.csv", "w", newline="") as file:
        csv.writer(file).writerows(rows)
    with millrace.open(f"{place}/t.csv", "r", newline="") as file:
        assert isinstance(file, io.TextIOWrapper)
        assert list(csv.reader(file)) == rows
    with millrace.open(f"{place}/t.csv", "rt", encoding="latin-1") as file:
        assert file.readline() == "name,grÃ¶Ã\x9fe\n"


def test_nothing_appears_after_an_exception(place: str) -> None:
    for mode, data in (("wb", PAYLOAD), ("wb", b"short"), ("w", "text")):
        with pytest.raises(ZeroDivisionError), millrace.open(f"{place}/never", mode) as file:  # type: ignore[call-overload]
            file.write(data)
            1 / 0  # noqa: B018
        assert file.closed and not exists(f"{place}/never")
    with millrace.open(f"{place}/never", "wb") as file:
        file.write(PAYLOAD)
        file.discard()  # type: ignore[attr-defined]
    assert not exists(f"{place}/never")


def test_a_file_that_is_never_closed_stores_nothing(place: str) -> None:
    for mode, data in (("wb", PAYLOAD), ("w", "text")):
        file = millrace.open(f"{place}/never", mode)  # type: ignore[call-overload]
        file.write(data)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del file
            gc.collect()
        assert [each.category for each in caught][:1] == [ResourceWarning] and "never closed" in str(caught[0].message)
        assert not exists(f"{place}/never")


def test_an_older_object_stays_until_then(place: str) -> None:
    with millrace.open(f"{place}/o", "wb") as file:
        file.write(b"old")
    with millrace.open(f"{place}/o", "wb") as file:
        file.write(b"new")
        file.flush()
        with millrace.open(f"{place}/o") as old:
            assert old.read() == b"old"
    with pytest.raises(FileExistsError), millrace.open(f"{place}/o", "xb") as file:
        file.write(b"newer")
    with millrace.open(f"{place}/o") as new:
        assert new.read() == b"new"


def test_an_object_that_is_replaced_while_it_is_read(place: str) -> None:
    with millrace.open(f"{place}/r", "wb") as file:
        file.write(PAYLOAD)
    with millrace.open(f"{place}/r", buffering=0) as reader:
        assert reader.read(10) == PAYLOAD[:10]
        with millrace.open(f"{place}/r", "wb") as file:
            file.write(PAYLOAD[::-1])
        reader.seek(4_000_000)
        with pytest.raises(millrace.MismatchError):
            reader.read(10)


def test_torch(place: str) -> None:
    torch = pytest.importorskip("torch")
    state = {"weight": torch.arange(400_000.0).reshape(4, -1), "step": 7}
    with millrace.open(f"{place}/model.pt", "wb") as file:
        torch.save(state, file)
    with millrace.open(f"{place}/model.pt") as file:
        loaded = torch.load(file, weights_only=True)
    assert loaded["step"] == 7 and torch.equal(loaded["weight"], state["weight"])


def test_pyarrow_numpy_and_pickle(place: str) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = arrow.table({"x": list(range(100_000)), "name": [f"n{i}" for i in range(100_000)]})
    with millrace.open(f"{place}/t.parquet", "wb") as file:
        parquet.write_table(table, file, row_group_size=10_000)
    with millrace.open(f"{place}/t.parquet") as file:
        assert parquet.read_table(file, columns=["name"]).equals(table.select(["name"]))
    with millrace.open(f"{place}/a.npy", "wb") as file:
        np.save(file, np.arange(10))
        pickle.dump({"a": 1}, file)
    with millrace.open(f"{place}/a.npy") as file:
        assert np.load(file).tolist() == list(range(10)) and pickle.load(file) == {"a": 1}


def test_pandas(place: str) -> None:
    pandas = pytest.importorskip("pandas")
    with millrace.open(f"{place}/p.csv", "w") as file:
        pandas.DataFrame({"a": [1, 2], "b": ["x", "y"]}).to_csv(file, index=False)
    with millrace.open(f"{place}/p.csv") as file:
        assert pandas.read_csv(file)["b"].tolist() == ["x", "y"]


def test_what_cannot_be_opened(tmp_path: pathlib.Path) -> None:
    with pytest.raises(millrace.NotFoundError, match="none.bin"):
        millrace.open(tmp_path / "none.bin")
    with pytest.raises(millrace.InvalidArgumentError, match="mode is 'ab'; choose one of 'rb'"):
        millrace.open(tmp_path / "x", "ab")  # type: ignore[call-overload]
    with pytest.raises(millrace.InvalidArgumentError, match="only binary files"):
        millrace.open(tmp_path / "x", "r", buffering=0)
    with pytest.raises(TypeError, match="uri must be the URI of an object"):
        millrace.open(3)  # type: ignore[call-overload]
    with millrace.open(tmp_path / "x", "wb"):
        pass
    assert (tmp_path / "x").read_bytes() == b""
    with millrace.open(tmp_path / "x") as file, pytest.raises(io.UnsupportedOperation):
        file.write(b"1")


def test_a_file_belongs_to_its_process(tmp_path: pathlib.Path) -> None:
    script = """
import os, sys, millrace
path = sys.argv[1]
out = millrace.open(path, "wb"); out.write(b"whole")
pid = os.fork()
if pid == 0:
    try:
        out.flush()
    except millrace.UsageError as error:
        os._exit(0 if "made in process" in str(error) else 2)
    os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
out.close()
print(millrace.open(path).read())
"""
    assert check_script(script, str(tmp_path / "f")) == "b'whole'\n"


def test_ctrl_c_ends_a_read_and_leaves_no_object(tmp_path: pathlib.Path) -> None:
    (tmp_path / "s3/bucket").mkdir(parents=True)
    (tmp_path / "s3/bucket/big").write_bytes(PAYLOAD)
    script = """
import os, signal, threading, millrace
def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
file = millrace.open("s3://bucket/big")
try:
    threading.Timer(0.5, interrupt).start()
    file.read()
except KeyboardInterrupt:
    print("interrupted")
"""
    # The server would let it wait for an hour.
    with devstore(tmp_path / "s3", "--fault", "GET bucket/big delay-ms=3600000") as environment:
        assert check_script(script, **environment) == "interrupted\n"
