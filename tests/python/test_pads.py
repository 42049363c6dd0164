"""Tests the padding of each kind of array: no loss takes it for data."""

from __future__ import annotations

import io
import math
import pathlib
from typing import Any

import millrace
import numpy as np
import pytest
import torch
from millrace._pads import Pads
from support import AT_SIZE, Samples, png

FIELDS: dict[str, Any] = {
    "image": millrace.Image("png", size=(6, 5)),
    "pixels": millrace.Image("png", size=(6, 5), dtype="f32", mean=0.5, std=0.5),
    "mask": millrace.Image("seg.png", like="image", interpolation="nearest"),
    "label": millrace.Label("cls"),
    "target": millrace.Label("score", "float"),
    "classes": millrace.Array("npy"),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Makes three samples with every kind of field."""
    folder = tmp_path_factory.mktemp("pads")
    for number in range(3):
        pixels = np.full((12, 10, 3), 40 * number + 7, np.uint8)
        (folder / f"{number}.png").write_bytes(png(pixels))
        (folder / f"{number}.seg.png").write_bytes(png(pixels[..., 0] * 0 + number + 1))
        (folder / f"{number}.cls").write_text(str(number))
        (folder / f"{number}.score").write_text(str(number / 2))
        array = io.BytesIO()
        np.save(array, np.full(2, number + 1, np.int16))
        (folder / f"{number}.npy").write_bytes(array.getvalue())
    return str(folder)


def batch_of(data: Any, **options: Any) -> Any:
    usual: dict[str, Any] = {"batch_size": 5, "shuffle": "none", "epochs": 1, "output": "numpy", "fields": FIELDS}
    (batch,) = millrace.Loader(data, **{**usual, "last": "pad", **options})
    assert batch["valid"].tolist() == [True] * 3 + [False] * 2
    return batch


def columns_of(batch: Any) -> dict[str, Any]:
    return {name: np.asarray(batch[name])[3:] for name in FIELDS}


def assert_usual(padding: dict[str, Any], missing: float = math.nan) -> None:
    assert not padding["image"].any() and not padding["pixels"].any() and not padding["classes"].any()
    assert (padding["mask"] == 255).all() and (padding["label"] == -100).all()
    np.testing.assert_array_equal(padding["target"], np.float32([missing] * 2))


def test_labels_masks_and_targets_are_no_data(data: str) -> None:
    loader = millrace.Loader(data, batch_size=5, fields=FIELDS, output="numpy")
    (made,) = loader.rehearse()
    assert (made["mask"] == 255).all() and (made["label"] == -100).all() and np.isnan(made["target"]).all()
    assert not made["image"].any() and not made["sample"].any() and not made["valid"].any()
    batch = batch_of(data, digest="decoded")
    assert_usual(columns_of(batch))
    assert batch["target"][:3].tolist() == [0, 0.5, 1] and batch["label"][:3].tolist() == [0, 1, 2]
    assert (batch["mask"][:3] == np.arange(1, 4)[:, None, None]).all()


def test_padding_is_chosen_by_name(data: str) -> None:
    pad = {"image": 9, "pixels": -0.5, "mask": 0, "label": -1, "target": math.inf, "classes": -7}
    for output in ("numpy", "torch"):
        padding = columns_of(batch_of(data, pad=pad, output=output))
        for name, value in pad.items():
            assert (padding[name] == value).all(), name
    (made,) = millrace.Loader(data, batch_size=2, fields=FIELDS, output="numpy", pad=pad).rehearse()
    assert (made["label"] == -1).all() and (made["mask"] == 0).all() and (made["pixels"] == -0.5).all()


def test_integers_hold_no_infinity(data: str) -> None:
    with pytest.raises(millrace.InvalidArgumentError, match="cannot hold"):
        batch_of(data, pad={"classes": math.inf})


def test_padding_is_chosen_by_fields(data: str) -> None:
    fields = {
        **FIELDS,
        "image": millrace.Image("png", size=(6, 5), pad=9),
        "mask": millrace.Image("seg.png", like="image", interpolation="nearest", pad=0),
        "label": millrace.Label(pad=-1),
        "classes": millrace.Array("npy", pad=-7),
    }
    padding = columns_of(batch_of(data, fields=fields, pad={"target": 0.5}))
    for name, value in {"image": 9, "mask": 0, "label": -1, "classes": -7, "target": 0.5}.items():
        assert (padding[name] == value).all(), name
    with pytest.raises(millrace.InvalidArgumentError, match="by the Loader and by its field"):
        batch_of(data, fields=fields, pad={"label": 0})
    with pytest.raises(TypeError, match="the pad of fields\\['label'\\] must be a number"):
        batch_of(data, fields={"label": millrace.Label(pad="no")})  # type: ignore[arg-type]


def test_padding_counts_in_no_digest(data: str) -> None:
    digests = set()
    for options in ({}, {"pad": {"label": 5, "image": 200, "mask": 3}}, {"last": "short"}, {"batch_size": 3}):
        loader = millrace.Loader(
            data, **{"batch_size": 5, "fields": FIELDS, "epochs": 1, "last": "pad", "digest": "decoded", **options}
        )
        for _ in loader:
            pass
        digests.add((loader.report()["digest"], loader.report()["samples"]))
    assert len(digests) == 1 and digests.pop()[1] == 3


def test_rows_of_damaged_samples_are_padding(data: str, tmp_path: pathlib.Path) -> None:
    for path in pathlib.Path(data).iterdir():
        if path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "1.score").write_text("no number")
    (batch,) = millrace.Loader(
        tmp_path, batch_size=3, shuffle="none", epochs=1, fields=FIELDS, output="numpy", bad_samples="mask"
    )
    assert batch["valid"].tolist() == [True, False, True]
    assert batch["label"].tolist() == [0, -100, 2] and (batch["mask"][1] == 255).all() and np.isnan(batch["target"][1])  # type: ignore[index]


def test_what_a_transform_makes_is_padded_by_its_type(data: str) -> None:
    def made(sample: dict[str, Any]) -> dict[str, Any]:
        return {
            "number": 7,
            "ids": np.arange(3, dtype=np.int32),
            "score": 1.5,
            "corners": np.zeros((4, 2), np.float32),
            "pixel_values": np.ones((3, 2, 2), np.float32),
            "classes": sample["classes"].astype(np.float32),
            "flag": True,
            "label": np.uint8(sample["label"]),
            "mask": sample["mask"].astype(np.int64),
            "target": np.float16(sample["target"]),
            "image": sample["image"],
        }

    for output in ("numpy", "torch"):
        function = (
            made if output == "numpy" else lambda sample: tensors(made({k: np.asarray(v) for k, v in sample.items()}))
        )
        batch = batch_of(data, transform=function, output=output)
        padding = {name: np.asarray(column)[3:] for name, column in batch.items()}
        assert (padding["number"] == -100).all() and (padding["ids"] == -100).all()
        assert np.isnan(padding["score"]).all() and np.isnan(padding["corners"]).all(), "targets, perhaps"
        assert not padding["pixel_values"].any() and not padding["image"].any() and not padding["classes"].any()
        assert not padding["flag"].any()
        assert (padding["label"] == 255).all() and (padding["mask"] == 255).all() and np.isnan(padding["target"]).all()
        padding = {
            name: np.asarray(column)[3:]
            for name, column in batch_of(data, transform=function, output=output, pad={"ids": 0, "target": 2}).items()
        }
        assert not padding["ids"].any() and (padding["target"] == 2).all() and (padding["number"] == -100).all()


def tensors(sample: dict[str, Any]) -> dict[str, Any]:
    return {
        name: torch.from_numpy(value) if isinstance(value, np.ndarray) and value.ndim else value
        for name, value in sample.items()
    }


def test_a_batch_of_padding_alone_is_like_the_others(data: str) -> None:
    options: dict[str, Any] = {"batch_size": 1, "shuffle": "none", "epochs": 1, "output": "torch", "fields": FIELDS}
    made = {"n": 1, "score": 0.5}
    loader = millrace.Loader(data, rank=1, world=2, last="pad", transform=lambda sample: {**sample, **made}, **options)
    first, last = loader
    assert first["valid"].tolist() == [True] and last["valid"].tolist() == [False]
    assert {name: value.dtype for name, value in last.items() if hasattr(value, "dtype")} == {
        name: value.dtype for name, value in first.items() if hasattr(value, "dtype")
    }
    assert bool(last["score"].isnan().all()) and not last["image"].any()  # type: ignore[typeddict-item]
    assert last["n"].tolist() == [-100] and last["label"].tolist() == [-100] and bool((last["mask"] == 255).all())  # type: ignore[typeddict-item]


def test_torch_ignores_the_padding_by_itself(raw: Samples) -> None:
    """The loss of a padded batch is that of its samples, without a word about it."""
    torch.manual_seed(3)
    network = torch.nn.Linear(3, 3)

    def loss(last: str) -> Any:
        total, count = 0.0, 0
        for batch in millrace.Loader(
            raw.uri, batch_size=20, shuffle="none", epochs=1, output="torch", raw=True, last=last, **AT_SIZE
        ):
            value = torch.nn.functional.cross_entropy(
                network(batch["image"].float().mean((1, 2)) / 255), batch["label"], reduction="sum"
            )
            total, count = total + value.item(), count + int(batch["valid"].sum())
        return total / count

    assert loss("pad") == pytest.approx(loss("short"), rel=1e-6)


@pytest.mark.parametrize(
    "pad, options, error, text",
    [
        ({"label": 0.5}, {}, millrace.InvalidArgumentError, "'label' of a batch is int64, and padding of 0.5"),
        ({"image": 256}, {}, millrace.InvalidArgumentError, "0 to 255"),
        ({"mask": -1}, {}, millrace.InvalidArgumentError, "'mask' of a batch is uint8"),
        (
            {"labels": 0},
            {},
            millrace.InvalidArgumentError,
            "pad names 'labels', and the arrays of batches are classes, image",
        ),
        ({"valid": 0}, {}, millrace.InvalidArgumentError, "pad names 'valid'"),
        ({"label": 1 << 60}, {}, millrace.InvalidArgumentError, "at most 2\\^53"),
        ({"label": "none"}, {}, TypeError, "pad\\['label'\\] must be a number"),
        (-1, {}, TypeError, "pad must be a dict of names"),
        ({"tokens": 1}, {"tokens": millrace.Tokens(8), "fields": None}, millrace.InvalidArgumentError, "Tokens\\(pad="),
    ],
)
def test_padding_that_cannot_be(data: str, pad: Any, options: dict[str, Any], error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        millrace.Loader(data, **{"batch_size": 5, "fields": FIELDS, "pad": pad, "output": "numpy", **options})


def test_arrays_that_cannot_hold_the_padding(data: str) -> None:
    with pytest.raises(millrace.InvalidArgumentError, match="'classes' of a batch cannot hold the padding"):
        batch_of(data, pad={"classes": math.nan})
    with pytest.raises(millrace.InvalidArgumentError, match="pad\\['n'\\] is 0.5, and 'n' of the batches is int64"):
        batch_of(data, pad={"n": 0.5}, transform=lambda sample: {"n": 1})


def test_finite_padding_is_for_compiled_programs() -> None:
    pads = Pads(None, {"label"}, {"mask"}, finite=True)
    assert pads.of("label", np.float32) == 0 and pads.of("mask", np.float32) == 0 and pads.of("label", np.int32) == -100
    assert math.isnan(Pads().of("label", np.float64)) and Pads().of("image", np.float32) == 0
    assert pads.of("made", np.float32) == 0 and math.isnan(Pads().of("made", np.float32))
    assert Pads(None, (), {"mask"}).of("mask", np.int8) == -100, "which cannot hold 255"
    assert math.isnan(Pads().of_tensor("label", torch.bfloat16)) and Pads().of_tensor("x", torch.bool) == 0
    assert math.isnan(Pads().of_tensor("x", torch.float16, 2)) and Pads().of_tensor("x", torch.float16, 3) == 0
