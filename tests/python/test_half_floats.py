"""Tests images of float16 and bfloat16: the float32 images of the same Loader, as torch's ``Tensor.to`` rounds them,
bit for bit."""

from __future__ import annotations

import sys
import types
from typing import Any

import millrace
import numpy as np
import pytest
import torch
from fake_cuda import FakeCuda
from millrace import _float_types
from millrace._device import CudaDevice, TorchDevice
from millrace.transforms import CutMix, MixUp, Normalize, RandomErasing, Resize
from support import HEIGHT, NORMALISED, WIDTH, Samples, loader_of
from test_device import FakeXla

HALVES = [torch.float16, torch.bfloat16]


def pair_of(samples: Samples, dtype: Any, image: dict[str, Any] | None = None, **options: Any) -> tuple[Any, Any]:
    """Returns a Loader of float32, and that of ``dtype``."""
    return tuple(
        loader_of(samples, **{"image": millrace.Image(dtype=kind, **(image or {})), **options})
        for kind in (torch.float32, dtype)
    )


def check_rounded(loaders: tuple[Any, Any], dtype: torch.dtype, names: tuple[str, ...] = ("image",)) -> None:
    """All else is the same."""
    plain, halves = loaders
    count = 0
    for wanted, batch in zip(plain, halves, strict=True):
        assert list(batch) == list(wanted)
        for name, value in wanted.items():
            if name in names:
                assert value.dtype == torch.float32 and batch[name].dtype == dtype
                assert batch[name].shape == value.shape and batch[name].is_contiguous()
                assert same_bits(batch[name], value.to(dtype)), name
            elif isinstance(value, torch.Tensor):
                assert torch.equal(batch[name], value)
            else:
                assert batch[name] == value
        assert halves.state_dict() == plain.state_dict()
        count += 1
    assert count == len(plain) > 1


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Returns whether the bits are the same: torch has several NaNs."""
    bits = [torch.where(half.isnan(), 0, half.contiguous().view(torch.int16)) for half in (one, other)]
    return torch.equal(*bits) and torch.equal(one.isnan(), other.isnan())


# ---- On the host


def doubled(sample: dict[str, Any]) -> dict[str, Any]:
    return {**sample, "image": sample["image"] * 2}


def seen(batch: dict[str, Any]) -> dict[str, Any]:
    return batch


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"normalize": "imagenet"},
        {"image": {"layout": "nhwc"}, "normalize": ((0.5, 0.4, 0.3), (0.1, 3.0, 1e-6))},
        {"image": {"channels": 1}, "last": "pad"},
        {"image": {"mean": 0.0, "std": 1e-9}, "augment": True, "digest": "decoded"},
        {"size": 300, "batch_size": 4, "normalize": "imagenet"},  # batches whose memory is used again
        {"device": "cpu", "normalize": "imagenet"},
        {"transform": doubled, "normalize": "imagenet"},
        {"transform": millrace.Map(doubled, processes=1), "normalize": "imagenet"},
        {"batch_transform": seen, "normalize": "imagenet", "last": "pad"},
        {"collate_fn": torch.utils.data.default_collate, "normalize": "imagenet"},
    ],
    ids=[
        "plain",
        "imagenet",
        "nhwc",
        "grey",
        "large",
        "used-again",
        "cpu",
        "transform",
        "processes",
        "batch-transform",
        "collate",
    ],
)
def test_rounded_as_torch_rounds(tar: Samples, dtype: torch.dtype, options: dict[str, Any]) -> None:
    with_it = pair_of(tar, dtype, **options)
    check_rounded(with_it, dtype)
    assert with_it[0].report()["digest"] == with_it[1].report()["digest"]
    for loader in with_it:
        loader.close()


@pytest.mark.parametrize(
    "name, dtype",
    [
        ("float16", torch.float16),
        ("f16", torch.float16),
        ("half", torch.float16),
        (torch.half, torch.float16),
        (np.float16, torch.float16),
        (np.dtype("float16"), torch.float16),
        ("bfloat16", torch.bfloat16),
        ("bf16", torch.bfloat16),
        (torch.bfloat16, torch.bfloat16),
    ],
)
def test_names_of_the_types(tar: Samples, name: Any, dtype: torch.dtype) -> None:
    assert next(iter(loader_of(tar, image=millrace.Image(dtype=name))))["image"].dtype == dtype


@pytest.mark.parametrize("dtype", HALVES)
def test_images_of_fields(tar: Samples, dtype: torch.dtype) -> None:
    def fields(kind: Any) -> dict[str, Any]:
        normalize = [Resize((HEIGHT, WIDTH)), Normalize(0.5, 0.5), RandomErasing(1.0, value="random")]
        return {
            "image": millrace.Image("png", dtype=kind),
            "grey": millrace.Image("png", channels=1, dtype=kind, layout="nhwc", mean=0.5, std=0.25),
            "erased": millrace.Image("png", dtype=kind, transforms=normalize),
            "floats": millrace.Image("png", dtype="f32"),
            "bytes": millrace.Image("png", dtype="u8"),
            "label": millrace.Label(),
        }

    for options in ({}, {"device": TorchDevice(torch.device("cpu"))}, {"batch_transform": seen}):
        plain, halves = (
            loader_of(tar, fields=fields(kind), normalize="imagenet", last="pad", **options) for kind in ("f32", dtype)
        )
        check_rounded((plain, halves), dtype, ("image", "grey", "erased"))


@pytest.mark.parametrize("dtype", HALVES)
def test_padding(tar: Samples, dtype: torch.dtype) -> None:
    *_, last = loader_of(tar, image=millrace.Image(dtype=dtype), last="pad", **NORMALISED)
    assert not last["valid"].all() and not last["image"][~last["valid"]].any() and last["image"][last["valid"]].any()
    for number in (-3.3, float("nan"), 7):
        options: dict[str, Any] = {"pad": {"image": number}, "last": "pad", **NORMALISED}
        check_rounded(pair_of(tar, dtype, **options), dtype)
        check_rounded(pair_of(tar, dtype, device=TorchDevice(torch.device("cpu")), **options), dtype)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("device", [None, TorchDevice(torch.device("cpu"))])
def test_shapes_and_rehearsal(tar: Samples, dtype: torch.dtype, device: Any) -> None:
    loader = loader_of(tar, image=millrace.Image(dtype=dtype), device=device, last="pad", **NORMALISED)
    (shapes,) = loader.shapes()
    (rehearsed,) = loader.rehearse()
    assert shapes["image"].dtype == str(dtype).removeprefix("torch.") and not rehearsed["image"].any()
    for batch in loader:
        for name, shape in shapes.items():
            for made in (batch, rehearsed):
                found = tuple(made[name].shape), str(made[name].dtype).removeprefix("torch.")
                assert found == (shape.shape, shape.dtype), name


def test_memory_is_that_of_bytes(raw: Samples) -> None:
    least: dict[str, int] = {}
    images = {name: millrace.Image(dtype=name) for name in ("u8", "bf16")}
    for name, image in images.items():
        with pytest.raises(millrace.ExhaustedError, match="MiB would do") as caught:
            loader_of(raw, batch_size=512, size=224, memory="64MiB", image=image)
        least[name] = int(str(caught.value).split(" MiB would do")[0].split()[-1])
    assert least["u8"] == least["bf16"]


def test_arrays_of_numpy(tar: Samples) -> None:
    plain, halves = pair_of(tar, np.float16, output="numpy", last="pad", **NORMALISED)
    (shapes,), (rehearsed,) = halves.shapes(), halves.rehearse()
    assert shapes["image"].dtype == "float16" and rehearsed["image"].dtype == np.float16
    for wanted, batch in zip(plain, halves, strict=True):
        assert batch["image"].dtype == np.float16
        np.testing.assert_array_equal(batch["image"], wanted["image"].astype(np.float16))


def test_numpy_without_bfloat16(tar: Samples, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(
        millrace.UnsupportedError, match="numpy has no bfloat16; install ml_dtypes, .*or choose output='torch'"
    ):
        loader_of(tar, image=millrace.Image(dtype="bfloat16"), output="numpy")


def test_numpy_with_a_bfloat16(tar: Samples, monkeypatch: pytest.MonkeyPatch) -> None:
    """A type of 16 bits stands for that of ml_dtypes, which tests/frameworks/cases_jax.py has."""
    monkeypatch.setitem(sys.modules, "ml_dtypes", types.SimpleNamespace(bfloat16=np.int16))
    wanted = loader_of(tar, image=millrace.Image(dtype="bfloat16"), **NORMALISED)
    layout = millrace.Image(dtype="bfloat16", layout="nchw")
    for options in ({}, {"batch_transform": seen}):
        loader = loader_of(tar, image=layout, output="numpy", **options, **NORMALISED)
        for batch, one in zip(loader, wanted, strict=True):
            np.testing.assert_array_equal(batch["image"], one["image"].view(torch.int16).numpy())
        wanted.reset()


@pytest.mark.parametrize("dtype", HALVES)
def test_functions_get_what_the_loop_would_get(tar: Samples, dtype: torch.dtype) -> None:
    kinds: set[Any] = set()

    def look(sample: dict[str, Any]) -> dict[str, Any]:
        kinds.add(sample["image"].dtype)
        return sample

    for _ in loader_of(tar, image=millrace.Image(dtype=dtype), transform=millrace.Map(look, threads=1)):
        pass
    assert kinds == {dtype}


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("mix", [MixUp(num_classes=10), CutMix(num_classes=10)])
def test_mixed_images_keep_their_type(tar: Samples, dtype: torch.dtype, mix: Any) -> None:
    plain, halves = pair_of(tar, dtype, batch_transform=mix, **NORMALISED)
    for wanted, batch in zip(plain, halves, strict=True):
        assert batch["image"].dtype == dtype and torch.equal(batch["label"], wanted["label"])
        assert torch.allclose(batch["image"].float(), wanted["image"], rtol=1e-2, atol=1e-2)
    *_, batch = loader_of(tar, image=millrace.Image(dtype="f16"), output="numpy", batch_transform=mix)
    assert batch["image"].dtype == np.float16


@pytest.mark.parametrize("dtype", HALVES)
def test_peeked_at_and_shown(tar: Samples, dtype: torch.dtype) -> None:
    loader = loader_of(tar, image=millrace.Image(dtype=dtype), shuffle=False, **NORMALISED)
    assert "<img" in loader._repr_html_()
    assert same_bits(loader.peek()["image"], next(iter(loader))["image"])
    assert "<img" in millrace.ContactSheet(next(iter(loader))).html


# ---- On a device


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("last", ["pad", "short"])
def test_rounded_on_the_device(tar: Samples, dtype: torch.dtype, last: str) -> None:
    check_rounded(pair_of(tar, dtype, device=TorchDevice(torch.device("cpu")), last=last, **NORMALISED), dtype)
    check_rounded(pair_of(tar, dtype, device=TorchDevice(torch.device("cpu")), last=last), dtype)


@pytest.mark.parametrize("dtype", HALVES)
def test_images_travel_to_a_gpu_as_bytes(tar: Samples, dtype: torch.dtype) -> None:
    one, other = FakeCuda(), FakeCuda()
    plain = loader_of(tar, device=CudaDevice(None, one), last="pad", **NORMALISED)
    halves = loader_of(tar, device=CudaDevice(None, other), last="pad", image=millrace.Image(dtype=dtype), **NORMALISED)
    assert len(plain) == len(halves)
    check_rounded((plain, halves), dtype)
    assert sorted(other.copied_bytes) == sorted(one.copied_bytes)
    assert max(other.copied_bytes) == 8 * 3 * HEIGHT * WIDTH
    halves.close()
    plain.close()


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("function", [{"transform": doubled}, {"batch_transform": seen}])
def test_functions_before_a_gpu(tar: Samples, dtype: torch.dtype, function: dict[str, Any]) -> None:
    loaders = [
        loader_of(tar, device=CudaDevice(None, FakeCuda()), image=millrace.Image(dtype=kind), **function, **NORMALISED)
        for kind in ("f32", dtype)
    ]
    check_rounded((loaders[0], loaders[1]), dtype)
    for loader in loaders:
        loader.close()


@pytest.mark.parametrize("dtype", HALVES)
def test_xla(tar: Samples, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    xla = FakeXla(monkeypatch, with_sync=True)
    check_rounded(pair_of(tar, dtype, device="xla", **NORMALISED), dtype)
    images = [tensor for tensor, _ in xla.transfers if tensor.ndim == 4 and tensor.shape[1:] == (3, HEIGHT, WIDTH)]
    assert images and all(image.dtype == torch.uint8 for image in images)


# ---- Workers, and what is refused


@pytest.mark.parametrize("dtype", HALVES)
def test_workers_send_bytes(tar: Samples, workers: Any, dtype: torch.dtype) -> None:
    address = workers().address
    local, remote = (
        loader_of(tar, image=millrace.Image(dtype=dtype), workers=them, **NORMALISED) for them in (None, [address])
    )
    for wanted, batch in zip(local, remote, strict=True):
        assert batch["image"].dtype == dtype and same_bits(batch["image"], wanted["image"])


def test_workers_run_functions_of_float32(tar: Samples) -> None:
    options: dict[str, Any] = {"transform": "worker_functions:of_tensors", "workers": ["127.0.0.1:1"]}
    with pytest.raises(millrace.UnsupportedError, match="let the transform return bfloat16"):
        loader_of(tar, image=millrace.Image(dtype="bfloat16"), **options)
    assert loader_of(tar, image=millrace.Image(dtype="float32"), **options)


@pytest.mark.parametrize(
    "options, text",
    [
        ({"raw": True, "image": millrace.Image(dtype="bf16")}, "leave dtype of image out"),
        ({"image": millrace.Image(dtype="f8")}, "choose one of 'u8', 'f32', 'f16', 'bf16'"),
        (
            {"fields": {"mask": millrace.Image("png", dtype="f16", interpolation="nearest")}},
            "a map of numbers .* has dtype='u8'",
        ),
        ({"normalize": "imagenet", "image": millrace.Image(dtype="u8")}, "leave dtype of image out"),
        (
            {"image": millrace.Image(dtype="u8", transforms=[Resize(8), Normalize(0.5, 0.5)])},
            "Normalize makes floats of pixels; leave dtype out",
        ),
    ],
)
def test_what_contradicts_it(tar: Samples, options: dict[str, Any], text: str) -> None:
    with pytest.raises(millrace.InvalidArgumentError, match=text):
        loader_of(tar, **options)


def test_what_torch_does_not_have_stays_an_array(tar: Samples) -> None:
    records = np.zeros(3, dtype=[("bfloat16", "<f4")])
    with pytest.raises(TypeError):
        _float_types.tensor_of(records, torch)
