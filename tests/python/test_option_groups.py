"""Tests options of a Loader in groups, and their short forms. An option that says a thing twice or has another place
now is refused."""

from __future__ import annotations

import dataclasses
import inspect
import pathlib
import pickle
import re
from typing import Any

import millrace
import numpy as np
import pytest
from millrace import _moved_options, transforms
from millrace._dataloader_names import _NO_EFFECT, _REFUSED
from millrace._loader_options import worker_options
from support import Samples


def batches(data: Any, **options: Any) -> list[dict[str, Any]]:
    usual: dict[str, Any] = {"batch_size": 8, "size": 16, "seed": 5, "epochs": 1, "output": "numpy", "memory": "16MiB"}
    with millrace.Loader(data, **{**usual, **options}) as loader:
        return [dict(batch) for batch in loader]  # type: ignore[call-overload]


def check_same(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    assert len(one) == len(other) > 0
    for left, right in zip(one, other):
        assert left.keys() == right.keys()
        for name, value in left.items():
            np.testing.assert_array_equal(value, right[name])


@pytest.mark.parametrize(
    "image, options",
    [
        (millrace.Image(crop="random"), {"augment": True}),
        (millrace.Image(crop="center", orientation="stored"), {}),
        (millrace.Image(size=9), {"size": 9}),
        (millrace.Image("png", dtype="f32", mean=0.5, std=0.25), {"normalize": (0.5, 0.25)}),
        (millrace.Image(mean=0.5), {"normalize": (0.5, 1)}),
        (millrace.Image(crop=((0.08, 1.0), (3 / 4, 4 / 3)), flip=0.5), {"augment": True}),
    ],
)
def test_image(tar: Samples, image: millrace.Image, options: dict[str, Any]) -> None:
    check_same(batches(tar.uri, image=image), batches(tar.uri, **options))


@pytest.mark.parametrize(
    "image",
    [
        millrace.Image(crop=(0.5, 0.6)),
        millrace.Image(crop=((0.5, 0.6), (1, 2)), flip=1.0),
        millrace.Image("png", orientation="exif", channels=1),
        millrace.Image(dtype="f32", layout="nchw", mean=0.5),
        millrace.Image(crop="random", flip=0.25, exact=True),
    ],
)
def test_an_image_of_fields_says_the_same(tar: Samples, image: millrace.Image) -> None:
    one, plain = batches(tar.uri, image=image), batches(tar.uri)
    check_same(one, batches(tar.uri, fields={"image": image, "label": millrace.Label()}))
    same = [np.array_equal(left["image"], right["image"]) for left, right in zip(one, plain)]
    assert not all(same), "or it says nothing"


def test_what_an_image_leaves_open_is_said_by_the_loader(tar: Samples) -> None:
    options: dict[str, Any] = {"augment": True, "normalize": "imagenet"}
    check_same(batches(tar.uri, image=millrace.Image(), **options), batches(tar.uri, **options))


def test_transforms_of_the_image(tar: Samples) -> None:
    image = millrace.Image(transforms=[transforms.Resize(12), transforms.CenterCrop(8), transforms.Normalize(0.5, 0.5)])
    fields = {"image": image, "label": millrace.Label()}
    check_same(batches(tar.uri, image=image), batches(tar.uri, fields=fields))


@pytest.mark.parametrize(
    "label, column",
    [
        ("cls", 7),
        (millrace.Label("cls", "float"), 7.0),
        (millrace.Label("json", path="meta.label"), 7000),
        (millrace.Label("json", "float", "meta.label"), 7000.0),
        (millrace.Label("json", "text", "meta.name"), "n7"),
    ],
)
def test_label(tar: Samples, label: Any, column: Any) -> None:
    (batch,) = batches(millrace.Dataset(tar.uri)[7:8], label=label)
    assert list(batch["label"]) == [column] and isinstance(batch["label"], list) == isinstance(column, str)


def test_padding_of_the_label(tar: Samples) -> None:
    *_, last = batches(tar.uri, label=millrace.Label(pad=-1), last="pad")
    assert last["label"][~last["valid"]].tolist() == [-1] * 6


@pytest.mark.parametrize("kind, path, column", [("int", "meta.label", 7000), ("text", "meta.name", "n7")])
def test_label_of_fields(tar: Samples, kind: str, path: str, column: Any) -> None:
    (batch,) = batches(millrace.Dataset(tar.uri)[7:8], fields={"it": millrace.Label("json", kind, path)})
    assert list(batch["it"]) == [column]


def test_shuffle(tar: Samples) -> None:
    one = batches(tar.uri, shuffle=millrace.Shuffle(window=4, extent=2, lanes=2))
    assert [batch["key"] for batch in one] != [batch["key"] for batch in batches(tar.uri)], "or the sizes say nothing"
    check_same(batches(tar.uri, shuffle=millrace.Shuffle()), batches(tar.uri, shuffle=True))


def test_shuffle_of_a_plan(tar: Samples) -> None:
    data, shuffle = millrace.Dataset(tar.uri), millrace.Shuffle(window=4, extent=2, lanes=2)
    plan = millrace.Plan(data, shuffle=shuffle, seed=5)
    received = [number for batch in batches(data, shuffle=shuffle) for number in batch["sample"]]
    assert plan[np.arange(50)].tolist() == received
    assert plan.of_epoch(1).options == plan.options
    with pytest.raises(TypeError, match="millrace.Plan takes no lanes; write shuffle=millrace.Shuffle"):
        millrace.Plan(data, shuffle=shuffle, lanes=2)  # type: ignore[call-arg]


def test_cache(tar: Samples, tmp_path: pathlib.Path) -> None:
    for cache in (tmp_path, millrace.Cache(tmp_path, size="1GiB", pin=True), millrace.Cache("memory", "16MiB")):
        with millrace.Loader(tar.uri, batch_size=8, size=16, epochs=1, memory="16MiB", cache=cache) as loader:
            assert sum(len(batch["key"]) for batch in loader) == 50
            report = loader.report()["cache"]
        assert report is not None and report["hit_bytes"] + report["miss_bytes"] > 0
    with pytest.raises(millrace.InvalidArgumentError, match="a cache in memory needs a bound"):
        millrace.Loader(tar.uri, cache=millrace.Cache("memory"))


def test_service(tar: Samples) -> None:
    """Tests the options of the native loader. Workers are tested in test_service.py."""
    service = millrace.Service(
        ["h:1", "dns:w:2"],
        token="t",
        tls="folder",
        tls_name="w",
        compression="zstd",
        streams=4,
        local_streams="auto",
    )
    assert worker_options(["h:1"]) == worker_options(millrace.Service(["h:1"]))
    assert worker_options(service) == (["h:1", "dns:w:2"], 4, None, "t", "folder", "w", True, None)
    with pytest.raises(millrace.InvalidArgumentError, match="tls_name is the name"):
        millrace.Loader(tar.uri, workers=millrace.Service(["127.0.0.1:1"], tls_name="w"))
    with pytest.raises(TypeError, match="workers must be a list of HOST:PORT, not None"):
        millrace.Loader(tar.uri, workers=millrace.Service(None, streams=2))  # type: ignore[arg-type]


def doubled(sample: dict[str, Any]) -> dict[str, Any]:
    return {"twice": 2 * int(sample["label"])}


def test_map(tar: Samples) -> None:
    one = batches(tar.uri, transform=doubled)
    for mapping in (millrace.Map(doubled), millrace.Map(doubled, threads=3), millrace.Map(doubled, processes=1)):
        check_same(batches(tar.uri, transform=mapping), one)
    loader = millrace.Loader(tar.uri, transform=millrace.Map(doubled, threads=3))
    assert loader._stream is not None and loader._stream._workers == 3
    with pytest.raises(millrace.InvalidArgumentError, match="processes of a Map are for a function"):
        millrace.Loader(tar.uri, transform=millrace.Map(None, processes=2))


def test_transfer(tar: Samples) -> None:
    calls: list[int] = []
    transfer = millrace.Transfer("cpu", ahead=3, on_batch=lambda: calls.append(1))
    check_same(batches(tar.uri, device=transfer), batches(tar.uri))
    assert len(calls) == 7
    loader = millrace.Loader(tar.uri, device=transfer)
    assert loader._stream is not None and loader._stream._ahead == 3
    with pytest.raises(millrace.InvalidArgumentError, match="needs a device of torch"):
        millrace.Loader(tar.uri, device=millrace.Transfer(None, decode="device"))


@pytest.mark.parametrize(
    "options, text",
    [
        ({"image": millrace.Image(), "fields": {"image": millrace.Image()}}, "fields names the entries of batches"),
        ({"label": "cls", "fields": {"image": millrace.Image()}}, "fields names the entries of batches"),
        ({"image": millrace.Image(like="other")}, "image: like names another image"),
        ({"image": millrace.Image(interpolation="nearest")}, "image: a map of numbers is not an image"),
        ({"image": millrace.Image(orientation="up")}, "image: orientation is 'up'; choose one of"),
        ({"image": millrace.Image(crop="middle")}, "image: crop is 'middle'; choose one of"),
        ({"image": millrace.Image(crop="random", transforms=[])}, "crop is given by transforms"),
        ({"fields": {"a": millrace.Image(), "b": millrace.Image(like="a", crop="center")}}, "crop says how to crop"),
        ({"label": millrace.Label("json", "real", "a.b")}, "kind is 'real'; choose one of 'int', 'float', 'text'"),
    ],
)
def test_what_is_said_twice_or_cannot_be(tar: Samples, options: dict[str, Any], text: str) -> None:
    with pytest.raises(millrace.InvalidArgumentError, match=text):
        millrace.Loader(tar.uri, **options)


@pytest.mark.parametrize(
    "options, text",
    [
        ({"image": "jpg"}, "image must be a millrace.Image, not 'jpg'"),
        ({"label": 3}, "label must be a millrace.Label, or the name of a field, not 3"),
        ({"image": millrace.Image(crop=0.5)}, "image: crop must be 'center', 'random'"),
    ],
)
def test_wrong_types(tar: Samples, options: dict[str, Any], text: str) -> None:
    with pytest.raises(TypeError, match=text):
        millrace.Loader(tar.uri, **options)


def test_few_options_are_of_the_loader_alone() -> None:
    """Those that DataLoader has, too, are not counted."""
    names = inspect.signature(millrace.Loader.__init__).parameters.keys() - {"self", "data"}
    of_torch = {"batch_size", "shuffle", "drop_last", "collate_fn", "multiprocessing_context", *_NO_EFFECT, *_REFUSED}
    assert len(of_torch) == 16 and of_torch < names
    assert len(names - of_torch - {"start"}) <= 24, sorted(names - of_torch)  # start= came with the staged first epoch
    assert not names & _moved_options.PLACES.keys()


@pytest.mark.parametrize(("name", "place"), sorted(_moved_options.PLACES.items()))
def test_an_option_that_has_moved(tar: Samples, name: str, place: str) -> None:
    with pytest.raises(TypeError, match=f"takes no {name}; write {re.escape(place)}"):
        millrace.Loader(tar.uri, **{name: None})


@pytest.mark.parametrize(("name", "place"), sorted(_moved_options.OF_IMAGES.items()))
def test_an_option_of_images_that_has_moved(name: str, place: str) -> None:
    with pytest.raises(TypeError, match=re.escape(f"millrace.Image takes no {name}; write {place}")):
        millrace.Image(**{name: None})  # type: ignore[arg-type]


def test_groups_are_values() -> None:
    assert millrace.Cache("/c", "1GiB") == millrace.Cache(path="/c", size="1GiB", pin=False)
    assert millrace.Map(doubled, 2) == millrace.Map(doubled, threads=2)
    assert pickle.loads(pickle.dumps(millrace.Image("jpg", crop=(0.2, 1)))) == millrace.Image("jpg", crop=(0.2, 1))
    with pytest.raises(dataclasses.FrozenInstanceError):
        millrace.Shuffle().window = 3  # type: ignore[misc]


@pytest.mark.parametrize("label", [millrace.Label(None, "float"), millrace.Label(None, path="a.b")])  # type: ignore[arg-type]
def test_a_label_needs_a_field(tar: Samples, label: millrace.Label) -> None:
    with pytest.raises(TypeError, match="the field of the label must be the name"):
        millrace.Loader(tar.uri, label=label)


@pytest.mark.parametrize(
    ("options", "said"), [({"raw": True}, "raw=True"), ({"normalize": "imagenet"}, "normalize says")]
)
def test_transforms_that_normalize_are_not_overruled(tar: Samples, options: dict[str, Any], said: str) -> None:
    image = millrace.Image(transforms=[transforms.Resize((8, 8)), transforms.Normalize(0.5, 0.5)])
    with pytest.raises(millrace.InvalidArgumentError, match=f"{said}.*leave Normalize out"):
        millrace.Loader(tar.uri, image=image, **options)
    plain = millrace.Image(transforms=[transforms.Resize((8, 8))])
    assert batches(tar.uri, image=plain, **options)[0]["image"].shape[1:] in ((8, 8, 3), (3, 8, 8))
