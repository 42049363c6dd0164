"""Tests lifetimes, the budget, and that there are no copies."""

from __future__ import annotations

import gc
import json
import pathlib
import subprocess

import millrace
import numpy as np
import pytest
import torch
from PIL import Image
from support import AT_SIZE, Samples, add_digests, binary, check_script


def loader_of(samples: Samples, **options: object) -> millrace.Loader:
    options = {"batch_size": 8, "output": "numpy", **AT_SIZE, **options}
    return millrace.Loader(samples.uri, **options)  # type: ignore[arg-type]


def address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def test_arrays_are_views_of_one_block(tar: Samples) -> None:
    batch = next(iter(loader_of(tar)))
    arrays = [batch["image"], batch["label"], batch["valid"], batch["sample"]]
    assert all(not array.flags.owndata and array.flags.writeable and array.flags.c_contiguous for array in arrays)
    assert all(type(array.base).__name__ == "Memory" for array in arrays)
    start, image_bytes = address(batch["image"]), batch["image"].nbytes
    assert start % 64 == 0
    for array in arrays[1:]:
        assert start + image_bytes <= address(array) < start + image_bytes + 64 * 8 + 8 * 17 * 8


def test_tensors_share_the_memory(tar: Samples) -> None:
    loader = loader_of(tar, output="torch", shuffle="none")
    batch = next(iter(loader))
    image = batch["image"]
    array = image.numpy()
    assert image.data_ptr() == address(array) and image.data_ptr() % 64 == 0
    assert torch.from_dlpack(array).data_ptr() == image.data_ptr()  # type: ignore[attr-defined]
    array[0] = 7
    assert bool((image[0] == 7).all())


def test_slots_are_used_again_once_nothing_refers_to_them(tar: Samples) -> None:
    loader = loader_of(tar, batch_size=2, memory="2MiB")
    addresses = [address(batch["image"]) for _ in range(20) for batch in loader]
    assert len(addresses) == 500
    assert len(set(addresses)) < 100


@pytest.mark.parametrize("output", ["numpy", "torch"])
def test_a_view_keeps_its_batch_while_the_stream_goes_on(tar: Samples, output: str) -> None:
    loader = loader_of(tar, output=output, memory="2MiB", batch_size=4)
    batch = next(iter(loader))
    view = batch["image"][1, 2:5]
    before = np.asarray(view).copy()
    del batch
    gc.collect()
    for _ in range(10):
        for later in loader:
            later["image"][:] = 0
    np.testing.assert_array_equal(np.asarray(view), before)
    assert before.any()


@pytest.mark.parametrize("name", ["image", "label", "valid", "sample"])
def test_each_array_keeps_the_block(tar: Samples, name: str) -> None:
    loader = loader_of(tar, memory="2MiB", batch_size=4)
    batch = next(iter(loader))
    array, before = batch[name], batch[name].copy()
    block = range(address(batch["image"]), address(batch["sample"]) + batch["sample"].nbytes)
    del batch
    gc.collect()
    for _ in range(10):
        for later in loader:
            assert address(later["image"]) not in block and address(later["sample"]) not in block
            later[name][:] = 0
    np.testing.assert_array_equal(array, before)


@pytest.mark.parametrize("output", ["numpy", "torch"])
def test_arrays_outlive_the_loader_and_its_dataset(tar: Samples, output: str) -> None:
    loader = loader_of(tar, output=output)
    kept = []
    for batch in loader:
        kept += [(batch[name], np.asarray(batch[name]).copy()) for name in ("image", "label", "valid", "sample")]
    del batch
    loader.close()
    del loader
    gc.collect()
    assert len(kept) == 4 * 7
    for array, copy in kept:
        np.testing.assert_array_equal(np.asarray(array), copy)
        array[:] = 1


def test_list_within_the_budget(tar: Samples) -> None:
    batches = list(loader_of(tar))
    assert sum(int(batch["valid"].sum()) for batch in batches) == 50
    assert len({address(batch["image"]) for batch in batches}) == len(batches)


def test_list_over_the_budget_fails_and_then_goes_on(tar: Samples) -> None:
    whole = loader_of(tar, digest="raw", epochs=1)
    for _ in whole:
        pass
    options = {"batch_size": 1, "size": 224, "memory": "2MiB", "digest": "raw", "epochs": 1}
    loader = loader_of(tar, **options)
    kept = []
    batches = iter(loader)
    with pytest.raises(millrace.ExhaustedError, match="the program holds all .* batches .* 2.0 MiB") as error:
        for batch in batches:
            kept.append((batch, batch["image"].copy()))
    assert isinstance(error.value, MemoryError)
    assert 2 <= len(kept) < 50
    for batch, image in kept:
        np.testing.assert_array_equal(batch["image"], image)
    count = len(kept)
    del batch, image
    kept.clear()
    for _batch in batches:
        count += 1
    assert count == 50
    assert loader.report()["digest"] == whole.report()["digest"]


def test_budget_that_cannot_hold_two_batches(tar: Samples) -> None:
    with pytest.raises(millrace.ExhaustedError, match=r"cannot hold two batches of .* MiB would do"):
        loader_of(tar, batch_size=1000, size=224, memory="8MiB")


def test_two_loaders_share_the_budget_of_the_process(tar: Samples) -> None:
    script = f"""
import millrace
millrace.configure(io_threads=1, cpu_threads=2, memory="6MiB")
first = millrace.Loader({tar.uri!r}, batch_size=4, size=16, memory="4MiB", output="numpy")
batches = iter(first)
other = millrace.Loader({tar.uri!r}, batch_size=4, size=16, memory="4MiB", output="numpy")
try:
    iter(other)
except millrace.ExhaustedError as error:
    print(error)
kept = next(batches)
first.close()
# The batch that is kept holds the memory of its loader's batches, a quarter.
try:
    iter(millrace.Loader({tar.uri!r}, batch_size=4, size=16, memory="6MiB", output="numpy"))
except millrace.ExhaustedError as error:
    print(error)
del kept
second = millrace.Loader({tar.uri!r}, batch_size=4, size=16, memory="6MiB", output="numpy")
print(sum(int(batch["valid"].sum()) for batch in second))
try:
    millrace.configure(memory="1GiB")
except millrace.UsageError as error:
    print(error)
"""
    lines = check_script(script).splitlines()
    assert "a loader of 4.0 MiB does not fit into the process's budget of 6.0 MiB" in lines[0]
    assert "a loader of 6.0 MiB does not fit into the process's budget of 6.0 MiB" in lines[1]
    assert lines[2] == "50"
    assert "too late" in lines[3]


def test_a_loader_waits_for_the_threads_of_one_that_is_gone(tar: Samples) -> None:
    """They hold its memory until they end, which takes a while if a transform is slow or the machine is busy."""
    script = f"""
import threading
import millrace
millrace.configure(memory="6MiB")
runs, may_end = threading.Event(), threading.Event()

def slow(sample):
    runs.set()
    may_end.wait()
    return sample

options = dict(batch_size=4, size=16, memory="6MiB", output="numpy")
first = iter(millrace.Loader({tar.uri!r}, transform=slow, **options))
runs.wait()
del first
threading.Timer(1, may_end.set).start()
print(sum(int(batch["valid"].sum()) for batch in millrace.Loader({tar.uri!r}, **options)))
"""
    assert check_script(script) == "50\n"


def test_a_loader_in_a_reference_cycle_gives_its_memory_to_the_next(tar: Samples) -> None:
    """An exception that is kept refers to its traceback, whose frames refer to the loader and to the exception."""
    script = f"""
import gc
import millrace
gc.disable()
millrace.configure(io_threads=1, cpu_threads=2, memory="6MiB")

def fails():
    loader = millrace.Loader({tar.uri!r}, batch_size=4, size=16, memory="4MiB", output="numpy")
    next(iter(loader))
    try:
        raise ValueError
    except ValueError as error:
        kept = error

fails()
loader = millrace.Loader({tar.uri!r}, batch_size=4, size=16, memory="4MiB", output="numpy")
print(sum(int(batch["valid"].sum()) for batch in loader))
"""
    assert check_script(script).split() == ["50"]


def test_close_gives_the_memory_back_and_keeps_the_report(tar: Samples) -> None:
    with loader_of(tar, digest="raw") as loader:
        batches = iter(loader)
        first = next(batches)
        state = loader.state_dict()
    loader.close()
    assert loader.state_dict() == state and loader.report()["samples"] == 8
    assert first["valid"].all()
    with pytest.raises(millrace.UsageError, match="closed"):
        next(iter(loader))
    with pytest.raises(millrace.UsageError, match="closed"):
        loader.load_state_dict(state)
    with loader_of(tar, digest="raw", epochs=1) as rest:
        rest.load_state_dict(state)
        for _ in rest:
            pass
        assert rest.report()["samples"] == 42
    with loader_of(tar, digest="raw", epochs=1) as whole:
        for _ in whole:
            pass
    assert add_digests(state["digest"], rest.report()["digest"]) == whole.report()["digest"]


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Makes images of 5 megapixels that are not decoded row by row."""
    folder = tmp_path_factory.mktemp("held") / "x"
    folder.mkdir()
    rows, columns = np.mgrid[:2000, :2500]
    image = Image.fromarray(np.stack([rows % 256, columns % 256, (rows + columns) // 18], axis=2).astype(np.uint8))
    for number in range(3):
        image.save(folder / f"progressive-{number}.jpg", progressive=True, subsampling=0)
        image.resize((2500 - number, 2000)).save(folder / f"lossy-{number}.webp", method=0)
    image.save(folder / "lossless.webp", lossless=True, method=0, quality=0)
    image.save(folder / "palette.gif")
    return folder.parent


def test_images_that_are_held_have_room_beside_the_budgets_of_loaders(held: pathlib.Path) -> None:
    check_script(
        """
import sys, millrace
millrace.configure(memory="64MiB", cpu_threads=4)
data = millrace.Dataset(sys.argv[1])
options = {"batch_size": 1, "size": 64, "memory": "32MiB", "epochs": 1}

def loader(name):
    return millrace.Loader(data.where(has=name), image=millrace.Image(name), **options)

loaders = [loader("jpg"), loader("webp")]
for _ in zip(*loaders):
    pass
assert [loader.report()["samples"] for loader in loaders] == [3, 3]
""",
        str(held),
    )


@pytest.mark.parametrize("options", [[], ["--memory", "8MiB"]], ids=str)
def test_feed_has_room_for_images_that_are_held(options: list[str], held: pathlib.Path) -> None:
    for field, samples in (("jpg", 3), ("webp", 4), ("gif", 1)):
        command = [
            str(binary()),
            "feed",
            str(held),
            "--where",
            f"has={field}",
            "--image-field",
            field,
            "--json",
            *options,
        ]
        done = subprocess.run([*command, "--batch", "4", "--size", "64"], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["samples"] == samples
