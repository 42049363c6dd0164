"""Tests the fsspec file system under a loop, and under the libraries that take one; those that are not installed are
left out."""

from __future__ import annotations

import asyncio
import os
import pathlib
from typing import Any

import fsspec
import millrace
import numpy as np
import pytest
from millrace import filesystem
from millrace.filesystem import FileSystem
from support import check_script, devstore, run_script


@pytest.fixture(autouse=True)
def registered(bucket: str) -> None:
    filesystem.register(["millrace"])


def test_coroutines() -> None:
    data = os.urandom(300_000)

    async def work() -> None:
        files = FileSystem(asynchronous=True)
        assert files.async_impl and files.loop is None
        await files._pipe_file("bucket/async/data", data)
        await files._pipe({f"bucket/async/many/{n}": bytes([n]) for n in range(100)})
        assert await files._cat_file("bucket/async/data", 10, 20) == data[10:20]
        ranges = await files._cat_ranges(["bucket/async/data"] * 200, list(range(200)), list(range(1, 201)))
        assert b"".join(ranges) == data[:200]
        assert await files._cat("bucket/async/many", recursive=True) == {
            f"bucket/async/many/{n}": bytes([n]) for n in range(100)
        }
        assert (await files._info("bucket/async/data"))["size"] == len(data) and await files._exists(
            "bucket/async/many"
        )
        assert not await files._exists("bucket/async/none") and await files._isdir("bucket/async/many")
        assert sorted(await files._glob("bucket/async/many/9*")) == ["bucket/async/many/9"] + [
            f"bucket/async/many/{n}" for n in range(90, 100)
        ]
        assert len(await files._find("bucket/async")) == 101 and len(await files._ls("bucket/async", detail=False)) == 2
        await files._copy("bucket/async/data", "bucket/async/copy")
        async with await files.open_async("bucket/async/copy") as file:
            assert await file.read(100) == data[:100] and await file.read() == data[100:] and await file.read() == b""
        with pytest.raises(RuntimeError, match="the writer's own"):
            async with await files.open_async("bucket/async/none", "wb") as file:
                await file.write(b"half")
                raise RuntimeError("the writer's own")
        assert not await files._exists("bucket/async/none"), "what was not finished does not appear"
        async with await files.open_async("bucket/async/written", "wb") as file:
            await file.write(b"one ")
            await file.write(b"two")
        assert await files._cat_file("bucket/async/written") == b"one two"
        await files._rm("bucket/async", recursive=True)
        assert await files._find("bucket/async") == []
        with pytest.raises(FileNotFoundError):
            await files._cat_file("bucket/async/data")

    asyncio.run(work())


def test_blocking_methods_need_no_loop_and_work_after_a_fork(server: dict[str, str]) -> None:
    script = """
import os, sys
from millrace.filesystem import FileSystem
files = FileSystem()
files.pipe({"bucket/fork/a": b"a", "bucket/fork/b": b"b"})
def work():
    assert files.cat_ranges(["bucket/fork/a", "bucket/fork/b"] * 20, 0, 1) == [b"a", b"b"] * 20
    assert files.glob("bucket/fork/*") == ["bucket/fork/a", "bucket/fork/b"] and files.exists("bucket/fork/a")
work()
pid = os.fork()
if pid == 0:
    try:
        work()
        os._exit(0)
    except BaseException as error:
        print(repr(error), flush=True)
        os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
import threading
print(any(thread.name == "fsspecIO" for thread in threading.enumerate()))
"""
    assert check_script(script, **server) == "False\n"


WAITING = {
    "ranges": "FileSystem().cat_ranges(['b/one', 'b/two'], 0, 4)",
    "coroutine": "asyncio.run(FileSystem(asynchronous=True)._cat_ranges(['b/one', 'b/two'], 0, 4))",
}


@pytest.mark.parametrize("way", list(WAITING))
def test_ctrl_c_does_not_wait_for_the_store(tmp_path: pathlib.Path, way: str) -> None:
    (tmp_path / "b").mkdir()
    for name in ("one", "two"):
        (tmp_path / "b" / name).write_bytes(b"data")
    # Ctrl-C comes once a thread has asked for the bodies, which never come. Python's own threads would have to end
    # before the program does.
    script = f"""
import asyncio, os, signal, threading
from millrace import _core
from millrace.filesystem import FileSystem, _range_of
import millrace.filesystem
asked = threading.Barrier(3)
def interrupt():
    asked.wait()
    os.kill(os.getpid(), signal.SIGINT)
def read(file, start, end):
    asked.wait()
    return _range_of(file, start, end)
millrace.filesystem._range_of = read
threading.Thread(target=interrupt, daemon=True).start()
{WAITING[way]}
"""
    with devstore(tmp_path, "--fault", "GET b/* stall=0:3600000") as environment:
        result = run_script(script, timeout=300, **environment)
    assert "KeyboardInterrupt" in result.stderr.splitlines()[-1] and result.returncode == -2


def test_pandas_and_pyarrow() -> None:
    pytest.importorskip("pyarrow")
    import pyarrow
    import pyarrow.dataset
    import pyarrow.parquet

    table = pyarrow.table({"a": np.arange(1000), "b": [str(n) for n in range(1000)]})
    files = FileSystem()
    pyarrow.parquet.write_table(table, "bucket/tables/one.parquet", filesystem=files, row_group_size=100)
    assert pyarrow.parquet.read_table("bucket/tables/one.parquet", filesystem=files, columns=["a"])[
        "a"
    ].to_pylist() == list(range(1000))
    pyarrow.dataset.write_dataset(
        table, "bucket/tables/parts", format="parquet", filesystem=files, existing_data_behavior="overwrite_or_ignore"
    )
    assert pyarrow.dataset.dataset("bucket/tables/parts", filesystem=files).to_table().num_rows == 1000
    pandas = pytest.importorskip("pandas")
    frame = table.to_pandas()
    frame.to_parquet("millrace://bucket/tables/frame.parquet")
    assert pandas.read_parquet("millrace://bucket/tables/frame.parquet").equals(frame)
    frame.to_csv("millrace://bucket/tables/frame.csv.gz", index=False)
    assert (
        pandas.read_csv("millrace://bucket/tables/frame.csv.gz", dtype={"b": str})
        .astype({"b": frame["b"].dtype})
        .equals(frame)
    )


def test_zarr() -> None:
    zarr = pytest.importorskip("zarr")
    data = np.arange(60 * 70).reshape(60, 70)
    group = zarr.open_group("millrace://bucket/zarr/group.zarr", mode="w")
    array = group.create_array("numbers", shape=data.shape, chunks=(20, 20), dtype=data.dtype)
    array[:] = data
    again = zarr.open_group("millrace://bucket/zarr/group.zarr", mode="r")
    assert np.array_equal(again["numbers"][5:45, 13:], data[5:45, 13:]) and list(again.array_keys()) == ["numbers"]
    store = zarr.storage.FsspecStore(FileSystem(asynchronous=True), path="bucket/zarr/group.zarr")
    assert np.array_equal(zarr.open_group(store, mode="r")["numbers"][:], data)


def test_h5py() -> None:
    h5py = pytest.importorskip("h5py")
    data = np.random.default_rng(0).normal(size=(200, 300))
    with millrace.open("s3://bucket/h5/file.h5", "wb") as out:  # HDF5 seeks while it writes: whole, then
        import io

        memory = io.BytesIO()
        with h5py.File(memory, "w") as file:
            file.create_dataset("numbers", data=data, chunks=(50, 50), compression="gzip")
            file.attrs["name"] = "größer"
        out.write(memory.getvalue())
    for opened in (millrace.open("s3://bucket/h5/file.h5"), fsspec.open("millrace://bucket/h5/file.h5").open()):
        with opened, h5py.File(opened, "r") as file:
            assert (
                np.array_equal(file["numbers"][60:70, 100:290], data[60:70, 100:290]) and file.attrs["name"] == "größer"
            )


def test_safetensors_and_torch() -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    torch = pytest.importorskip("torch")
    tensors: dict[str, Any] = {"weight": torch.arange(12.0).reshape(3, 4), "half": torch.ones(5, dtype=torch.bfloat16)}
    with millrace.open("s3://bucket/tensors/model.safetensors", "wb") as file:
        file.write(safetensors.save(tensors))
    loaded = safetensors.load(FileSystem().cat("bucket/tensors/model.safetensors"))
    assert all(torch.equal(loaded[name], tensor) for name, tensor in tensors.items())
    with fsspec.open("millrace://bucket/tensors/model.pt", "wb") as file:
        torch.save(tensors, file)
    for opened in (
        millrace.open("s3://bucket/tensors/model.pt"),
        fsspec.open("millrace://bucket/tensors/model.pt").open(),
    ):
        with opened as file:
            assert torch.equal(torch.load(file, weights_only=True)["weight"], tensors["weight"])
    np.save(files := fsspec.open("millrace://bucket/tensors/array.npy", "wb").open(), np.arange(9))
    files.close()
    with millrace.open("s3://bucket/tensors/array.npy") as file:
        assert np.load(file).tolist() == list(range(9))
