"""Tests what a batch holds."""

from __future__ import annotations

import io
import pathlib
import tarfile

import millrace
import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from support import AT_SIZE, CLASSES, HEIGHT, WIDTH, Samples, make_pixels, png


def load(samples: Samples, **options: object) -> list[millrace.Batch]:
    options = {"batch_size": 16, "output": "numpy", "epochs": 1, "last": "pad", **AT_SIZE, **options}
    return list(millrace.Loader(samples.uri, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation(tmp_path: pathlib.Path, orientation: int) -> None:
    """The pixels are compared with Pillow's exif_transpose."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(make_pixels(5, 20, 36)).save(tmp_path / "1.jpg", exif=exif, quality=95, subsampling=0)
    with Image.open(tmp_path / "1.jpg") as stored:
        plain = np.asarray(stored.convert("RGB"))
        seen = np.asarray(ImageOps.exif_transpose(stored).convert("RGB"))
    for wanted, options in ((seen, {"image": millrace.Image(orientation="exif")}), (plain, {})):
        batch = next(
            iter(
                millrace.Loader(str(tmp_path), batch_size=1, epochs=1, output="numpy", size=wanted.shape[:2], **options)
            )
        )  # type: ignore[arg-type]
        np.testing.assert_array_equal(batch["image"][0], wanted)


def test_pixels_labels_keys_and_padding(raw: Samples) -> None:
    batches = load(raw)
    assert [set(batch) for batch in batches] == [{"image", "label", "valid", "sample", "key"}] * 3
    seen = []
    for batch in batches:
        assert batch["image"].shape == (16, HEIGHT, WIDTH, 3) and batch["image"].dtype == np.uint8
        assert batch["label"].shape == (16,) and batch["label"].dtype == np.int64
        assert batch["valid"].shape == (16,) and batch["valid"].dtype == np.bool_
        assert batch["sample"].shape == (16,) and batch["sample"].dtype == np.int64
        assert len(batch["key"]) == 16
        for row in range(16):
            key = batch["key"][row]
            if batch["valid"][row]:
                seen.append(key)
                np.testing.assert_array_equal(batch["image"][row], raw.pixels[key])
                assert batch["label"][row] == raw.labels[key]
                assert key == sorted(raw.pixels)[batch["sample"][row]]
            else:
                assert not batch["image"][row].any() and batch["label"][row] == -100 and key == ""
    assert sorted(seen) == sorted(raw.pixels)
    assert seen != sorted(seen)  # shuffled
    assert [int(batch["valid"].sum()) for batch in batches] == [16, 16, 13]


def test_float_channels_first(tar: Samples) -> None:
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.25, 2.0)
    batch = load(tar, image=millrace.Image(layout="nchw", mean=mean, std=std))[0]
    assert batch["image"].shape == (16, 3, HEIGHT, WIDTH) and batch["image"].dtype == np.float32
    for row in range(16):
        pixels = tar.pixels[batch["key"][row]].transpose(2, 0, 1) / np.float64(255)
        expected = (pixels - np.reshape(mean, (3, 1, 1))) / np.reshape(std, (3, 1, 1))
        np.testing.assert_allclose(batch["image"][row], expected, atol=1e-5)


def test_grey_with_one_mean_for_all(tar: Samples) -> None:
    batch = load(tar, image=millrace.Image(channels=1, mean=0.5, std=0.5), shuffle="none")[0]
    assert batch["image"].shape == (16, HEIGHT, WIDTH, 1)
    grey = np.asarray(Image.fromarray(tar.pixels[batch["key"][0]]).convert("L"), dtype=np.float64)
    np.testing.assert_allclose(batch["image"][0, :, :, 0], grey / 255 * 2 - 1, atol=2.5 / 255)


def test_square_size_resizes_and_crops(raw: Samples) -> None:
    batch = load(raw, size=12, batch_size=4)[0]
    assert batch["image"].shape == (4, 12, 12, 3)
    assert 60 < batch["image"].mean() < 190


def test_augmentation_depends_on_seed_and_epoch_only(raw: Samples) -> None:
    def images(**options: object) -> dict[str, np.ndarray]:
        batches = load(raw, augment=True, size=16, **options)
        return {key: batch["image"][row] for batch in batches for row, key in enumerate(batch["key"]) if key}

    first = images(seed=1)
    again = images(seed=1, batch_size=7)
    other = images(seed=2)
    assert all(np.array_equal(first[key], again[key]) for key in first)
    assert not all(np.array_equal(first[key], other[key]) for key in first)


def test_flip_probability(raw: Samples) -> None:
    always = millrace.Image(crop=((1.0, 1.0), (WIDTH / HEIGHT, WIDTH / HEIGHT)), flip=1.0)
    for batch in load(raw, image=always, batch_size=9):
        for row, key in enumerate(batch["key"]):
            np.testing.assert_array_equal(batch["image"][row], raw.pixels[key][:, ::-1])


def test_text_labels(tar: Samples) -> None:
    batches = load(tar, label=millrace.Label("txt", "text"))
    texts = {key: text for batch in batches for key, text in zip(batch["key"], batch["label"])}
    assert isinstance(batches[0]["label"], list)
    assert texts["0007"] == "Nummer 7 – größer"
    assert texts[""] == ""  # padding


def test_json_labels(tar: Samples) -> None:
    batch = load(tar, label=millrace.Label("json", path="meta.label"))[0]
    assert batch["label"].tolist() == [1000 * int(key) for key in batch["key"]]


def test_json_label_that_is_no_number(tar: Samples) -> None:
    with pytest.raises(millrace.DamagedDataError, match="(?s)field 'json'"):
        load(tar, label=millrace.Label("json", path="meta.name"))


def test_no_labels(tmp_path: pathlib.Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        data = png(make_pixels(0))
        member = tarfile.TarInfo("x.png")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    batch = next(iter(millrace.Loader(str(tmp_path), batch_size=2, output="numpy")))
    assert "label" not in batch and batch["key"] == ["x"]


def test_key_that_is_no_utf8(tmp_path: pathlib.Path) -> None:
    (tmp_path / "c").mkdir()
    path = bytes(tmp_path / "c") + b"/b\xff\xfe.png"
    with open(path, "wb") as file:
        file.write(png(make_pixels(0)))
    batch = next(iter(millrace.Loader(tmp_path, batch_size=1, output="numpy")))
    assert batch["key"][0].encode("utf-8", "surrogateescape") == b"c/b\xff\xfe"


def test_torch_tensors_and_numpy_arrays_are_equal(tar: Samples) -> None:
    arrays = load(tar)
    tensors = load(tar, output="torch", raw=True)
    for a, t in zip(arrays, tensors, strict=True):
        assert (
            isinstance(t["image"], torch.Tensor) and t["valid"].dtype == torch.bool and t["sample"].dtype == torch.int64
        )
        for name in ("image", "label", "valid", "sample"):
            np.testing.assert_array_equal(a[name], t[name].numpy())  # type: ignore[literal-required]
        assert a["key"] == t["key"]


def test_output_is_torch_when_torch_is_installed(tar: Samples) -> None:
    assert isinstance(load(tar, output=None)[0]["image"], torch.Tensor)


@pytest.mark.parametrize("shuffle", ["none", "global", "window"])
def test_order_is_that_of_the_plan(tar: Samples, shuffle: str) -> None:
    dataset = millrace.Dataset(tar.uri)
    loader = millrace.Loader(dataset, batch_size=8, shuffle=shuffle, seed=5, epochs=2, output="numpy")
    for epoch in range(2):
        received = np.concatenate([batch["sample"][batch["valid"]] for batch in loader])
        plan = millrace.Plan(dataset, shuffle=shuffle, seed=5, epoch=epoch)
        np.testing.assert_array_equal(received, plan[np.arange(len(tar))])


def test_dataset_describes_itself(raw: Samples, tar: Samples) -> None:
    dataset = millrace.Dataset(raw.uri)
    assert len(dataset) == 45 and dataset.uri == raw.uri and dataset.kind == "raw" and dataset.objects == 45
    assert dataset.fields == ["cls", "png"] and dataset.classes == CLASSES
    assert dataset.class_counts == {"cat": 15, "dog": 15, "eel": 15}
    assert dataset.class_to_idx == {"cat": 0, "dog": 1, "eel": 2}
    assert dataset.total_bytes == sum(path.stat().st_size for path in pathlib.Path(raw.uri).glob("*/*.png"))
    assert repr(dataset).startswith("<millrace.Dataset ") and "45 samples" in repr(dataset)
    shards = millrace.Dataset(tar.uri)
    assert len(shards) == 50 and shards.kind == "tar" and shards.objects == 3 and shards.classes == []
    assert shards.fields == ["cls", "json", "png", "txt"]
    assert shards.class_counts == {str(number): 5 for number in range(10)}
    assert len(shards.fingerprint) == 16 and shards.fingerprint != dataset.fingerprint
    assert shards.fingerprint == millrace.Dataset(tar.uri).fingerprint


@pytest.mark.parametrize("kind", ["raw", "tar"])
def test_targets_are_the_labels_of_batches(kind: str, request: pytest.FixtureRequest) -> None:
    samples: Samples = request.getfixturevalue(kind)
    whole = millrace.Dataset(samples.uri)
    wanted = [samples.labels[key] for key in sorted(samples.pixels)]
    assert whole.targets == wanted and len(set(wanted)) > 1
    assert whole[5:44:3].targets == wanted[5:44:3]
    one = whole.where(label=2)
    assert one.targets == [2] * wanted.count(2) and one.class_to_idx == whole.class_to_idx
    (batch,) = millrace.Loader(whole[7:19], batch_size=12, shuffle=False, epochs=1, **AT_SIZE)
    assert batch["label"].tolist() == whole[7:19].targets  # type: ignore[typeddict-item]


def test_samples_without_classes_have_no_targets(tmp_path: pathlib.Path) -> None:
    (tmp_path / "x.png").write_bytes(png(make_pixels(0)))
    dataset = millrace.Dataset(tmp_path)
    assert dataset.targets == [] and dataset.class_to_idx == {} and dataset.classes == []


def test_progress_goes_to_stderr_when_asked_for(tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "x.png").write_bytes(png(make_pixels(0)))
    millrace.Dataset(tmp_path)
    assert capfd.readouterr().err == ""  # not a terminal
    (tmp_path / ".millrace" / "index").unlink()
    millrace.Dataset(tmp_path, progress=False)
    assert capfd.readouterr().err == ""
    (tmp_path / ".millrace" / "index").unlink()
    millrace.Dataset(tmp_path, progress=True)
    shown = capfd.readouterr()
    assert shown.err.startswith(f"\rindexing {tmp_path}: ") and shown.err.endswith(" \r") and shown.out == ""
