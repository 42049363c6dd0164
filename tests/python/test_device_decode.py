"""Tests decode="device" of a Loader: the crops, flips, order and labels of the host, whichever decoder has made the
pixels.

There is no GPU here: Pillow stands for nvJPEG behind the functions of torchvision that are called, and the CPU for the device.
"""

from __future__ import annotations

import io
import pathlib
import sys
import types
from collections.abc import Sequence
from typing import Any

import millrace
import numpy as np
import pytest
import torch
from millrace._device import TorchDevice
from PIL import Image
from support import NORMALISED

COUNT = 21


def picture(number: int) -> Image.Image:
    """Makes a smooth picture, so that a pixel says where it was; the sizes differ."""
    width, height = 90 + 7 * (number % 5), 70 + 5 * (number % 4)
    y, x = np.mgrid[0:height, 0:width]
    pixels = np.stack([x * 255 / width, y * 255 / height, 128 + 100 * np.sin((x + y) / 20 + number)], axis=-1)
    return Image.fromarray(pixels.astype(np.uint8))


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Makes JPEGs, color and gray, and one PNG, in two classes."""
    folder = tmp_path_factory.mktemp("photos")
    for number in range(COUNT):
        image = picture(number)
        (folder / f"class{number % 2}").mkdir(exist_ok=True)
        name = folder / f"class{number % 2}" / f"{number:03}"
        if number == 5:
            image.save(f"{name}.png")
        else:
            (image.convert("L") if number == 7 else image).save(f"{name}.jpg", quality=95)
    return str(folder)


def decoded(file: Any, colour: bool) -> torch.Tensor:
    image = Image.open(io.BytesIO(bytes(file.numpy()))).convert("RGB" if colour else "L")
    if image.info.get("comment") == b"damaged":  # its header is sound, so that the host does not find it
        raise RuntimeError("nvJPEG: bad code")
    return torch.from_numpy(np.atleast_3d(np.asarray(image)).copy()).permute(2, 0, 1)


@pytest.fixture
def nvjpeg(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Replaces torchvision by a module whose decoders are Pillow's. Returns for each call how many files it was asked
    for."""
    calls: list[int] = []

    def decode_jpeg(files: Sequence[Any], mode: str, device: Any) -> list[torch.Tensor]:
        calls.append(len(files))
        return [decoded(file, mode == "RGB").to(device) for file in files]

    module = types.ModuleType("torchvision.io")
    module.ImageReadMode = types.SimpleNamespace(RGB="RGB", GRAY="GRAY")  # type: ignore[attr-defined]
    module.decode_jpeg = decode_jpeg  # type: ignore[attr-defined]
    module.decode_image = lambda file, mode: decoded(file, mode == "RGB")  # type: ignore[attr-defined]
    package = types.ModuleType("torchvision")
    package.io = module  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torchvision", package)
    monkeypatch.setitem(sys.modules, "torchvision.io", module)
    return calls


def loaders(uri: str, **options: Any) -> tuple[millrace.Loader, millrace.Loader]:
    """Makes a loader that decodes on the host, and one that does not."""
    usual: dict[str, Any] = {
        "batch_size": 8,
        "size": (32, 40),
        "output": "torch",
        "epochs": 1,
        "seed": 5,
        "digest": "raw",
    }
    usual.update(options)
    return millrace.Loader(uri, **usual), millrace.Loader(
        uri, **usual, device=millrace.Transfer(TorchDevice(torch.device("cpu")), decode="device")
    )


def check_alike(host: Any, device: Any, image: str, unit: float) -> None:
    """`unit` is a step of u8 pixels."""
    assert device.keys() == host.keys()
    for name, value in host.items():
        if isinstance(value, torch.Tensor):
            assert device[name].shape == value.shape and device[name].dtype == value.dtype, name
            if name != image:
                assert torch.equal(device[name], value), name
        else:
            assert device[name] == value
    difference = (device[image].float() - host[image].float()).abs() / unit
    assert difference.mean() < 1 and difference.max() < 12


@pytest.mark.parametrize("augment", [False, True])
@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
def test_batches_show_what_those_of_the_host_show(photos: str, nvjpeg: list[int], augment: bool, layout: str) -> None:
    host, device = loaders(photos, augment=augment, image=millrace.Image(layout=layout), last="pad")
    assert device.shapes() == host.shapes()
    for one, other in zip(host, device, strict=True):
        check_alike(one, other, "image", 1)
        assert device.state_dict() == host.state_dict()
    assert host.report()["digest"] == device.report()["digest"]
    assert len(nvjpeg) == 3, "a batch is decoded in one call"
    assert not other["image"][~other["valid"]].any() and not other["valid"].all(), "padding is zeros"


def test_normalised_after_decoding(photos: str, nvjpeg: list[int]) -> None:
    host, device = loaders(photos, augment=True, **NORMALISED)
    for one, other in zip(host, device, strict=True):
        check_alike(one, other, "image", 1 / 255 / 0.225)
    for one, other in zip(host.rehearse(), device.rehearse(), strict=True):
        assert torch.equal(one["image"], other["image"])


def test_several_images_have_crops_of_their_own(photos: str, nvjpeg: list[int]) -> None:
    fields = {
        "image": millrace.Image(),
        "view": millrace.Image(size=24),
        "grey": millrace.Image(channels=1),
        "label": millrace.Label("cls"),
    }
    host, device = loaders(photos, augment=True, fields=fields)
    for one, other in zip(host, device, strict=True):
        for name in ("image", "view", "grey"):
            check_alike({name: one[name]}, {name: other[name]}, name, 1)
        assert torch.equal(one["label"], other["label"])


def test_masks_follow_the_crop(tmp_path: pathlib.Path, nvjpeg: list[int]) -> None:
    for number in range(6):
        picture(number).save(tmp_path / f"{number}.jpg", quality=95)
        Image.fromarray(np.asarray(picture(number))[..., 0] // 32).save(tmp_path / f"{number}.mask.png")
    fields = {"image": millrace.Image("jpg"), "mask": millrace.Image("mask.png", like="image", interpolation="nearest")}
    host, device = loaders(str(tmp_path), augment=True, fields=fields)
    for one, other in zip(host, device, strict=True):
        assert torch.equal(one["mask"], other["mask"])
        check_alike({"image": one["image"]}, {"image": other["image"]}, "image", 1)


def test_peeked_at_and_shown(photos: str, nvjpeg: list[int]) -> None:
    _, device = loaders(photos)
    assert torch.equal(device.peek()["image"], next(iter(device))["image"])
    assert "<img" in device._repr_html_()


def test_goes_on_where_another_stopped(photos: str, nvjpeg: list[int]) -> None:
    host, device = loaders(photos, augment=True)
    next(iter(host))
    device.load_state_dict(host.state_dict())
    for one, other in zip(host, device, strict=True):
        check_alike(one, other, "image", 1)


def test_a_damaged_file_is_named(tmp_path: pathlib.Path, nvjpeg: list[int]) -> None:
    for number in range(4):
        picture(number).save(tmp_path / f"{number}.jpg", comment=b"damaged" if number == 2 else b"")
    _, device = loaders(str(tmp_path), shuffle="none")
    with pytest.raises(
        millrace.DamagedDataError,
        match=r"sample '2', entry 'image': it cannot be decoded on cpu: nvJPEG: .*bad_samples=",
    ):
        list(device)


def test_without_torchvision(photos: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(millrace.UnsupportedError, match="decode='device' needs torchvision"):
        loaders(photos)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"device": millrace.Transfer(None, decode="device")}, "needs a device of torch"),
        ({"device": millrace.Transfer("cpu", decode="device")}, "needs a device of torch"),
        ({"transform": lambda sample: sample}, "goes with no transform"),
        ({"bad_samples": "replace"}, "give bad_samples='fail'"),
        ({"digest": "decoded"}, "give digest='raw'"),
        ({"workers": ["127.0.0.1:1"]}, "goes without workers"),
        ({"image": millrace.Image(orientation="exif")}, "leave orientation='exif' out"),
        ({"fields": {"key": millrace.Bytes("cls")}}, "no image in fields"),
        ({"device": millrace.Transfer("cpu", decode="gpu")}, "decode is 'gpu'"),
    ],
)
def test_what_does_not_go_together_is_refused(
    photos: str, nvjpeg: list[int], options: dict[str, Any], says: str
) -> None:
    usual = {"device": millrace.Transfer(TorchDevice(torch.device("cpu")), decode="device")}
    given: dict[str, Any] = {**usual, **options}
    with pytest.raises(millrace.InvalidArgumentError, match=says):
        millrace.Loader(photos, **given)
