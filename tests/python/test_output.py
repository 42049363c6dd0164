"""Tests the form in which the loop gets batches: raw or normalized pixels, dicts or tuples."""

from __future__ import annotations

import functools
import signal
import threading
from typing import Any

import millrace
import numpy as np
import pytest
import torch
from millrace._padding import rows_of
from millrace.transforms import MixUp, Normalize, RandomErasing, Resize
from support import AT_SIZE, HEIGHT, WIDTH, Samples

MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])


def loader_of(data: Any, **options: Any) -> millrace.Loader:
    usual: dict[str, Any] = {"batch_size": 16, "shuffle": "none", "epochs": 1, "output": "numpy", **AT_SIZE}
    return millrace.Loader(data, **{**usual, **options})


def floats_of(pixels: Any) -> Any:
    """Returns ``[C, H, W]``."""
    return ((pixels / 255 - MEAN) / STD).astype(np.float32).transpose(2, 0, 1)


# ---- Pixels


@pytest.mark.parametrize("output", ["numpy", "torch"])
def test_normalized_for_imagenet(raw: Samples, output: str) -> None:
    for batch in loader_of(raw.uri, normalize="imagenet", image=millrace.Image(layout="nchw"), output=output):
        image = np.asarray(batch["image"])
        assert image.shape == (len(batch["key"]), 3, HEIGHT, WIDTH) and image.dtype == np.float32
        for row, key in zip(image, batch["key"]):
            np.testing.assert_allclose(row, floats_of(raw.pixels[key]), atol=1e-6)


def test_normalized_as_torchvision_does(raw: Samples) -> None:
    """The expected values come from the formulas of ToTensor and Normalize, in float32."""
    mean, std = torch.tensor(MEAN, dtype=torch.float32), torch.tensor(STD, dtype=torch.float32)
    for batch in loader_of(raw.uri, normalize="imagenet", image=millrace.Image(layout="nchw"), output="torch"):
        pixels = torch.stack([torch.from_numpy(raw.pixels[key].copy()) for key in batch["key"]])
        wanted = (pixels.permute(0, 3, 1, 2).to(torch.float32).div(255) - mean[:, None, None]) / std[:, None, None]
        torch.testing.assert_close(batch["image"], wanted, atol=2e-6, rtol=0)


@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
@pytest.mark.parametrize("device", [None, "cpu"])
def test_one_number_or_one_a_channel(raw: Samples, layout: str, device: str | None) -> None:
    options: dict[str, Any] = {"device": device, "digest": "decoded"}
    image = millrace.Image(layout=layout, mean=(0.5, 0.4, 0.3), std=2.0)
    wanted = list(loader_of(raw.uri, image=image, **options))
    loader = loader_of(raw.uri, normalize=((0.5, 0.4, 0.3), 2), image=millrace.Image(layout=layout), **options)
    for one, other in zip(loader, wanted, strict=True):
        np.testing.assert_array_equal(one["image"], other["image"])
    image = wanted[0]["image"][0] if layout == "nhwc" else wanted[0]["image"][0].transpose(1, 2, 0)
    pixels = raw.pixels[wanted[0]["key"][0]]
    np.testing.assert_allclose(image, (pixels / 255 - [0.5, 0.4, 0.3]) / 2, atol=1e-6)
    bytes_of = loader_of(raw.uri, raw=True, digest="decoded")
    for _ in bytes_of:
        pass
    assert loader.report()["digest"] == bytes_of.report()["digest"], (
        "the digest is one of pixels, whatever becomes of them"
    )


def test_raw(raw: Samples) -> None:
    for output, kind in (("numpy", np.uint8), ("torch", torch.uint8)):
        for batch in loader_of(raw.uri, raw=True, output=output):
            assert batch["image"].dtype == kind and batch["image"].shape[1:] == (HEIGHT, WIDTH, 3)
            for row, key in zip(batch["image"], batch["key"]):
                np.testing.assert_array_equal(np.asarray(row), raw.pixels[key])


def test_memory_is_that_of_bytes(raw: Samples) -> None:
    """Floats are made when a batch is handed over: the memory that holds two batches is the same."""
    least: dict[str, int] = {}
    for name, options in {"raw": {"raw": True}, "floats": {"normalize": "imagenet"}}.items():
        with pytest.raises(millrace.ExhaustedError, match="MiB would do") as caught:
            loader_of(raw.uri, batch_size=512, size=224, memory="64MiB", **options)
        least[name] = int(str(caught.value).split(" MiB would do")[0].split()[-1])
    assert least["raw"] == least["floats"]


def test_padding_stays_zero(raw: Samples) -> None:
    *_, last = loader_of(raw.uri, normalize="imagenet", last="pad")
    assert not last["valid"].all() and last["image"][last["valid"]].any(axis=(1, 2, 3)).all()
    assert not last["image"][~last["valid"]].any()
    *_, last = loader_of(raw.uri, normalize="imagenet", last="pad", pad={"image": -3.5})
    assert (last["image"][~last["valid"]] == -3.5).all()


def test_shapes_and_rehearsal_are_those_of_floats(raw: Samples) -> None:
    loader = loader_of(raw.uri, normalize="imagenet", image=millrace.Image(layout="nchw"), last="pad")
    (shapes,) = loader.shapes()
    (rehearsed,) = loader.rehearse()
    for batch in loader:
        for name, shape in shapes.items():
            for made in (batch, rehearsed):
                assert (made[name].shape, made[name].dtype.name) == (shape.shape, shape.dtype), name  # type: ignore[literal-required]


def test_functions_get_the_same(raw: Samples) -> None:
    seen: list[Any] = []

    def noted(sample: dict[str, Any]) -> dict[str, Any]:
        seen.append((sample["key"], sample["image"]))
        return {"image": sample["image"], "label": sample["label"]}

    batches = list(
        loader_of(
            raw.uri, normalize="imagenet", image=millrace.Image(layout="nchw"), transform=millrace.Map(noted, threads=1)
        )
    )
    assert len(seen) == len(raw) and all(image.dtype == np.float32 for _, image in seen)
    for key, image in seen:
        np.testing.assert_allclose(image, floats_of(raw.pixels[key]), atol=1e-6)
    plain = list(loader_of(raw.uri, normalize="imagenet", image=millrace.Image(layout="nchw")))
    for one, other in zip(batches, plain, strict=True):
        np.testing.assert_array_equal(one["image"], other["image"])


def test_images_of_several_kinds(raw: Samples) -> None:
    fields = {
        "image": millrace.Image("png", layout="nchw"),
        "grey": millrace.Image("png", channels=1, dtype="f32", mean=0.5, std=0.25),
        "bytes": millrace.Image("png", dtype="u8"),
        "map": millrace.Image("png", channels=1, interpolation="nearest", dtype="u8"),
        "erased": millrace.Image(
            "png", transforms=[Resize((HEIGHT, WIDTH)), Normalize(0.5, 0.5), RandomErasing(1.0, value=0.0)]
        ),
    }
    batch = next(iter(loader_of(raw.uri, fields=fields, normalize="imagenet")))
    kinds = {name: batch[name].dtype.name for name in fields}  # type: ignore[literal-required]
    assert kinds == {"image": "float32", "grey": "float32", "bytes": "uint8", "map": "uint8", "erased": "float32"}
    pixels = raw.pixels[batch["key"][0]]
    np.testing.assert_allclose(batch["image"][0], floats_of(pixels), atol=1e-6)
    grey = next(iter(loader_of(raw.uri, fields={"grey": millrace.Image("png", channels=1)})))
    np.testing.assert_allclose(batch["grey"], (grey["grey"] / 255 - 0.5) / 0.25, atol=1e-6)  # type: ignore[typeddict-item]


def test_large_batches_stay_what_they_are(raw: Samples) -> None:
    """Their memory is used again only when nothing refers to it."""
    kept = [
        (batch["image"][-1], batch["key"][-1])
        for batch in loader_of(
            raw.uri, normalize="imagenet", image=millrace.Image(layout="nchw"), batch_size=5, size=200
        )
    ]
    assert len(kept) == 9
    again = {
        key: image
        for batch in loader_of(
            raw.uri, normalize="imagenet", image=millrace.Image(layout="nchw"), batch_size=5, size=200
        )
        for key, image in zip(batch["key"], batch["image"])
    }
    for image, key in kept:
        np.testing.assert_array_equal(image, again[key])


def test_floats_are_aligned_as_all_arrays_are(raw: Samples) -> None:
    for size in (16, 300):
        for batch in loader_of(raw.uri, normalize="imagenet", batch_size=7, size=size):
            assert batch["image"].__array_interface__["data"][0] % 64 == 0 and batch["image"].flags.writeable


# ---- Tuples


@pytest.mark.parametrize("options", [{}, {"device": "cpu"}, {"transform": dict}])
def test_batches_are_tuples(raw: Samples, options: dict[str, Any]) -> None:
    plain = list(loader_of(raw.uri, **options))
    loader = loader_of(raw.uri, as_tuple=("image", "label", "key"), **options)
    counts = []
    for (image, label, key), batch in zip(loader, plain, strict=True):
        np.testing.assert_array_equal(image, batch["image"])
        np.testing.assert_array_equal(label, batch["label"])
        assert key == batch["key"]
        counts.append(len(image))
    assert counts == [16, 16, 13]
    assert isinstance(next(iter(loader_of(raw.uri, as_tuple=["label"], **options))), tuple)
    assert loader.report()["samples"] == len(raw)


def test_a_loop_of_torch(raw: Samples) -> None:
    loader = loader_of(
        raw.uri, as_tuple=("image", "label"), normalize="imagenet", image=millrace.Image(layout="nchw"), output="torch"
    )
    net = torch.nn.Conv2d(3, 3, 3)
    for image, label in loader:
        loss = torch.nn.functional.cross_entropy(net(image).mean((2, 3)), label)
        loss.backward()
    assert len(label) == 13 and torch.isfinite(loss)


def test_peek_rehearsal_and_rows_of_tuples(raw: Samples) -> None:
    loader = loader_of(raw.uri, as_tuple=("image", "key"), last="pad")
    peeked: Any = loader.peek()
    (rehearsed,) = loader.rehearse()
    assert len(peeked) == len(rehearsed) == 2 and peeked[1] == sorted(raw.pixels)[:16] and rehearsed[1] == [""] * 16
    assert set(loader.shapes()[0]) >= {"image", "label"} and "<img" in loader._repr_html_()
    for last in ("pad", "short"):
        keys = [
            key
            for batch, rows in rows_of(loader_of(raw.uri, as_tuple=("image", "key"), last=last))
            for key in rows.of(batch)[1]
        ]
        assert keys == sorted(raw.pixels)


def test_entries_that_no_batch_has_are_refused(raw: Samples) -> None:
    with pytest.raises(millrace.InvalidArgumentError, match="as_tuple names 'row'"):
        loader_of(raw.uri, as_tuple=("image", "row"))
    with pytest.raises(millrace.InvalidArgumentError, match="leave as_tuple out"):
        loader_of(raw.uri, as_tuple=("image", "valid"), bad_samples="mask")


def test_a_batch_transform_makes_the_entries(raw: Samples) -> None:
    loader = loader_of(raw.uri, as_tuple=("image", "label"), batch_transform=MixUp(num_classes=3), normalize="imagenet")
    for image, label in loader:
        assert image.shape[1:] == (HEIGHT, WIDTH, 3) and label.shape == (len(image), 3)
    with pytest.raises(millrace.TransformError, match="as_tuple names 'label', and the batch has image"):
        next(iter(loader_of(raw.uri, as_tuple=("label",), transform=lambda sample: {"image": sample["image"]})))
    with pytest.raises(millrace.TransformError, match="returned list; as_tuple needs a dict"):
        next(iter(loader_of(raw.uri, as_tuple=("label",), batch_transform=list)))


@pytest.mark.parametrize("options", [{}, {"device": "cpu"}])
def test_a_signal_loses_no_tuple(raw: Samples, options: dict[str, Any]) -> None:
    """Tuples are like batches that are dicts: what was received is what the position says."""
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals reach the main thread")
    loader = loader_of(
        raw.uri,
        as_tuple=("key", "image"),
        normalize="imagenet",
        image=millrace.Image(layout="nchw"),
        batch_size=1,
        epochs=None,
        size=64,
        **options,
    )
    received: list[list[str]] = []  # the keys of each batch

    class Stop(Exception):
        pass

    def handler(number: int, frame: Any) -> None:
        raise Stop

    batch: Any = None

    def note(batch: Any) -> None:
        if batch is not None and not (received and received[-1] is batch[0]):
            received.append(batch[0])

    before = signal.signal(signal.SIGALRM, handler)
    delay = 0.002
    try:
        while len(received) < 150:  # the delays grow, so that it comes to an end on a slow machine, too
            delay += 0.001
            batches = iter(loader)
            try:
                signal.setitimer(signal.ITIMER_REAL, delay)
                for batch in batches:
                    note(batch)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Stop:
                pass
            note(batch)
            loader.load_state_dict(loader.state_dict())
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    wanted = sorted(raw.pixels)
    assert [key for (key,) in received] == [wanted[at % len(wanted)] for at in range(len(received))]


@pytest.mark.parametrize(
    "options, error, text",
    [
        (
            {"raw": True, "image": millrace.Image(dtype="f32")},
            millrace.InvalidArgumentError,
            "leave dtype of image out",
        ),
        ({"raw": True, "normalize": "imagenet"}, millrace.InvalidArgumentError, "leave normalize out"),
        (
            {"raw": True, "image": millrace.Image(layout="nchw")},
            millrace.InvalidArgumentError,
            "leave layout of image out",
        ),
        ({"raw": 1}, TypeError, "raw must be True or False"),
        ({"normalize": "imagenets"}, millrace.InvalidArgumentError, "'imagenet'"),
        ({"normalize": 0.5}, TypeError, "normalize must be 'imagenet' or \\(mean, std\\)"),
        (
            {"normalize": "imagenet", "image": millrace.Image(mean=0.5)},
            millrace.InvalidArgumentError,
            "leave mean of image out",
        ),
        (
            {"normalize": "imagenet", "image": millrace.Image(dtype="u8")},
            millrace.InvalidArgumentError,
            "leave dtype of image out",
        ),
        (
            {"normalize": "imagenet", "image": millrace.Image(channels=1)},
            millrace.InvalidArgumentError,
            "3 numbers for 1 channels",
        ),
        ({"as_tuple": "image"}, TypeError, "as_tuple must be names"),
        ({"as_tuple": ()}, millrace.InvalidArgumentError, "as_tuple is empty"),
        (
            {"as_tuple": ("image", "labels")},
            millrace.InvalidArgumentError,
            "as_tuple names 'labels', and batches have image, label",
        ),
        ({"as_tuple": ("image",), "collate_fn": list}, millrace.InvalidArgumentError, "collate_fn makes the batch"),
    ],
)
def test_words_that_contradict_each_other(raw: Samples, options: dict[str, Any], error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        loader_of(raw.uri, **options)


def test_workers_send_bytes(raw: Samples) -> None:
    """The trainer makes floats of what a worker of the data service sends."""
    from millrace.worker import Worker

    with Worker("127.0.0.1:0", functions=["worker_functions"]) as worker:
        loader = functools.partial(
            loader_of, raw.uri, normalize="imagenet", image=millrace.Image(layout="nchw"), last="short"
        )
        wanted = list(loader())
        for one, other in zip(loader(workers=[worker.address]), wanted, strict=True):
            np.testing.assert_array_equal(one["image"], other["image"])
        (spec,) = [shape["image"] for shape in loader(workers=[worker.address]).shapes()]
        assert spec.dtype == "float32"
