"""What people do with a data set or loader because other libraries let them: look at samples, print reports, write what torch calls things."""

from __future__ import annotations

import millrace
import numpy as np
import pytest
from support import HEIGHT, WIDTH, Samples, png


def test_samples_by_number_and_slice(tar: Samples) -> None:
    dataset = millrace.Dataset(tar.uri)
    keys = sorted(tar.pixels)
    assert dataset[7]["__key__"] == keys[7] and dataset[np.int64(-1)]["png"] == png(tar.pixels[keys[-1]])
    assert [sample["__key__"] for sample in dataset.head(3)] == keys[:3] and len(dataset.head(1000)) == len(tar)
    assert [sample["__key__"] for sample in dataset] == keys
    for part in (slice(5, 20), slice(-4, None), slice(None, None, 7), slice(40, 10)):
        assert [sample["__key__"] for sample in dataset[part]] == keys[part]
    part = dataset[10:30]
    assert part[0]["__key__"] == keys[10] and [sample["__key__"] for sample in part[2:4]] == keys[12:14]
    with pytest.raises(IndexError, match="there is no sample 50"):
        dataset[50]
    with pytest.raises(millrace.InvalidArgumentError, match="take the slice forwards"):
        dataset[::-1]
    with pytest.raises(TypeError, match="index must be a number or a slice, not 'a'"):
        dataset["a"]  # type: ignore[call-overload]


def test_a_report_prints_as_a_table(tar: Samples) -> None:
    loader = millrace.Loader(tar.uri, batch_size=8, size=(HEIGHT, WIDTH), epochs=1, digest="raw")
    for _ in loader:
        pass
    report = loader.report()
    rows = dict(line.split("  ", 1) for line in str(report).splitlines() if not line.startswith(" "))
    assert rows["samples"].strip().startswith("50 in ") and rows["position"].strip() == report["position"]
    assert rows["digest"].strip() == report["digest"] and "limited by" in rows
    assert isinstance(report, dict) and report["samples"] == 50


def test_epochs_are_chosen(tar: Samples) -> None:
    def keys(loader: millrace.Loader) -> list[str]:
        return [key for batch in loader for key in batch["key"] if key]

    loader = millrace.Loader(tar.uri, batch_size=8, size=(HEIGHT, WIDTH), seed=5)
    assert loader.batch_size == 8
    epochs = [keys(loader) for _ in range(3)]
    assert epochs[0] != epochs[1]
    loader.set_epoch(1)
    assert loader.epoch == 1 and keys(loader) == epochs[1]
    next(iter(loader))
    loader.set_epoch(2)
    assert keys(loader) == epochs[2]
    loader.reset()
    assert keys(loader) == epochs[0]
    # As samplers of torch are told before each loop, which changes nothing.
    loader.set_epoch(1)
    assert loader.report()["samples"] == 50
    with pytest.raises(millrace.InvalidArgumentError, match="epoch is -1"):
        loader.set_epoch(-1)


def test_words_of_torch_and_numpy(tar: Samples) -> None:
    torch = pytest.importorskip("torch")
    for dtype in ("float32", torch.float32, np.float32, np.dtype("float32")):
        loader = millrace.Loader(tar.uri, size=32, dtype=dtype, layout="NCHW", shuffle=True, output="numpy", epochs=1)
        batch = next(iter(loader))
        assert batch["image"].dtype == np.float32 and batch["image"].shape[1:] == (3, 32, 32)
    with pytest.raises(TypeError, match="dtype must be one of 'u8', 'f32'"):
        millrace.Loader(tar.uri, dtype=torch.float16)
