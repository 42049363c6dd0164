"""Tests fields=: what batches hold, against what Pillow, NumPy and json read of the same bytes."""

from __future__ import annotations

import importlib.util
import io
import json
import pathlib
import tarfile
from typing import Any

import millrace
import numpy as np
import pytest
import torch
from PIL import Image
from support import add_digests, keys_of, png

HEIGHT, WIDTH = 40, 56
PALETTE = [value for color in range(256) for value in (color * 37 % 256, color * 101 % 256, 255 - color)]


def index_map(number: int, height: int = HEIGHT, width: int = WIDTH) -> np.ndarray:
    """Makes a map of classes 0 to 20, in blocks, with 255 at their borders, as in PASCAL VOC."""
    rows, columns = np.mgrid[0:height, 0:width]
    classes = ((rows // 8) * 3 + columns // 9 + number) % 21
    return np.where((rows % 8 == 0) | (columns % 9 == 0), 255, classes).astype(np.uint8)


def palette_png(indices: np.ndarray) -> bytes:
    image = Image.fromarray(indices, "L")
    image.putpalette(PALETTE)
    out = io.BytesIO()
    image.save(out, "png")
    return out.getvalue()


def npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def picture(number: int) -> np.ndarray:
    """Makes a picture whose red channel is its map: if both are cropped alike, they stay equal."""
    pixels = np.random.default_rng(number).integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)
    pixels[..., 0] = index_map(number)
    return pixels


def write(folder: pathlib.Path, samples: list[dict[str, bytes]]) -> str:
    with tarfile.open(folder / "shard-000.tar", "w") as archive:
        for number, fields in enumerate(samples):
            for name, data in fields.items():
                member = tarfile.TarInfo(f"{number:04}.{name}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    return str(folder)


def rich(number: int) -> dict[str, bytes]:
    return {
        "png": png(picture(number)),
        "seg.png": palette_png(index_map(number)),
        "depth.png": png(np.repeat(index_map(number)[::2, ::2, None], 3, axis=2)),
        "txt": f"Bild {number}: größer".encode(),
        "json": json.dumps(
            {"id": number, "score": float("nan") if number % 5 == 0 else number / 2, "tags": ["a"] * (number % 3)}
        ).encode(),
        "npy": npy(np.arange(6, dtype=np.float32).reshape(2, 3) * number),
        "ragged.npy": npy(np.arange(number % 4, dtype=np.int64)),
        "flac": bytes([number, 0, 255]) * (number % 7),
        "cls": str(number % 10).encode(),
    }


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("rich"), [rich(number) for number in range(45)])


FIELDS = {
    "image": millrace.Image("png"),
    "mask": millrace.Image("seg.png", like="image", interpolation="nearest"),
    "caption": millrace.Text("txt"),
    "meta": millrace.Json("json"),
    "emb": millrace.Array("npy"),
    "ragged": millrace.Array("ragged.npy"),
    "audio": millrace.Bytes("flac"),
    "target": millrace.Label("cls"),
}


def load(data: str, fields: Any = None, **options: Any) -> list[Any]:
    usual = {"batch_size": 16, "size": (HEIGHT, WIDTH), "output": "numpy", "epochs": 1, "last": "pad"}
    return list(millrace.Loader(data, fields=FIELDS if fields is None else fields, **{**usual, **options}))


def test_every_kind_of_field(data: str) -> None:
    batches = load(data)
    for batch in batches:
        assert set(batch) == {*FIELDS, "valid", "sample", "key"}
        assert batch["image"].shape == (16, HEIGHT, WIDTH, 3) and batch["mask"].shape == (16, HEIGHT, WIDTH)
        assert batch["emb"].shape == (16, 2, 3) and batch["emb"].dtype == np.float32
        assert isinstance(batch["ragged"], list)
        for row, key in enumerate(batch["key"]):
            if not batch["valid"][row]:
                assert (
                    not batch["image"][row].any() and (batch["mask"][row] == 255).all() and not batch["emb"][row].any()
                )
                empty = [batch[name][row] for name in ("caption", "meta", "ragged", "audio", "target")]
                assert empty == ["", None, None, b"", -100]
                continue
            number = int(key)
            fields = rich(number)
            np.testing.assert_array_equal(batch["image"][row], picture(number))
            np.testing.assert_array_equal(batch["mask"][row], np.asarray(Image.open(io.BytesIO(fields["seg.png"]))))
            assert batch["caption"][row] == fields["txt"].decode()
            assert repr(batch["meta"][row]) == repr(json.loads(fields["json"]))  # NaN is not equal to itself
            np.testing.assert_array_equal(batch["emb"][row], np.load(io.BytesIO(fields["npy"])))
            np.testing.assert_array_equal(batch["ragged"][row], np.arange(number % 4))
            assert batch["audio"][row] == fields["flac"] and batch["target"][row] == number % 10
    assert sorted(key for batch in batches for key in batch["key"] if key) == [f"{number:04}" for number in range(45)]


def test_tensors(data: str) -> None:
    batch = load(data, output="torch")[0]
    assert all(isinstance(batch[name], torch.Tensor) for name in ("image", "mask", "emb", "target", "valid"))
    assert all(isinstance(each, torch.Tensor) for each in batch["ragged"])


def test_the_short_form_is_a_form_of_fields(data: str) -> None:
    short = load(
        data, {"image": millrace.Image("png"), "label": millrace.Label()}, augment=True, size=24, digest="decoded"
    )
    loader = millrace.Loader(
        data,
        image=millrace.Image("png"),
        batch_size=16,
        augment=True,
        size=24,
        output="numpy",
        epochs=1,
        digest="decoded",
        last="pad",
    )
    for one, other in zip(short, loader, strict=True):
        assert set(one) == set(other)
        for name in ("image", "label", "valid", "sample"):
            np.testing.assert_array_equal(one[name], other[name])


@pytest.mark.parametrize("seed", range(3))
def test_a_mask_follows_crop_and_flip(data: str, seed: int) -> None:
    fields = {
        "image": millrace.Image("png", interpolation="nearest", channels=3),
        "mask": millrace.Image("seg.png", like="image", interpolation="nearest"),
        "depth": millrace.Image("depth.png", like="image", interpolation="nearest", channels=1, size=10),
    }
    rows = 0
    for batch in load(data, fields, augment=True, size=20, seed=seed):
        for row, key in enumerate(keys_of(batch)):
            np.testing.assert_array_equal(batch["image"][row, ..., 0], batch["mask"][row])
            # The depth is of half the size, and so is its output: pixel (y, x) shows what is at (2y + 1, 2x + 1), or a
            # pixel beside it.
            assert batch["depth"].shape[1:] == (10, 10, 1)
            whole = set(np.unique(index_map(int(key))[::2, ::2]))
            assert set(np.unique(batch["depth"][row])) <= whole
            rows += 1
    assert rows == 45


def test_masks_are_never_bilinear(data: str) -> None:
    for batch in load(data, {"mask": millrace.Image("seg.png", interpolation="nearest")}, size=13, augment=True):
        for row, key in enumerate(batch["key"]):
            if key:
                assert set(np.unique(batch["mask"][row])) <= set(np.unique(index_map(int(key))))


def test_images_of_a_sample_have_crops_of_their_own(data: str) -> None:
    fields = {
        "image": millrace.Image("png"),
        "other": millrace.Image("png"),
        "third": millrace.Image("png", crop="center"),
    }
    alone = load(data, {"other": millrace.Image("png")}, augment=True, size=24)
    together = load(data, fields, augment=True, size=24)
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one["other"], other["other"])  # whatever else is decoded
        assert not np.array_equal(other["image"], other["other"])
        assert not np.array_equal(other["third"], other["other"])


@pytest.mark.parametrize(("mode", "depth"), [("P", 1), ("P", 2), ("P", 4), ("P", 8), ("L", 8), ("1", 1)])
def test_numbers_of_all_depths(tmp_path: pathlib.Path, mode: str, depth: int) -> None:
    numbers = (np.arange(31 * 17).reshape(17, 31) % 2**depth).astype(np.uint8)
    image = Image.fromarray(numbers * 255).convert("1") if mode == "1" else Image.fromarray(numbers, "L")
    if mode == "P":
        image.putpalette(PALETTE[: 3 * 2**depth])
    out = io.BytesIO()
    image.save(out, "png", **({"bits": depth} if mode == "P" else {}))
    data = write(tmp_path, [{"png": out.getvalue()}])
    batch = load(data, {"mask": millrace.Image(interpolation="nearest")}, size=(17, 31), batch_size=1)[0]
    np.testing.assert_array_equal(batch["mask"][0], numbers)


def test_what_holds_no_numbers_is_refused(tmp_path: pathlib.Path) -> None:
    data = write(tmp_path, [{"png": png(picture(0))}])
    with pytest.raises(millrace.Error, match="a map of numbers is wanted"):
        load(data, {"mask": millrace.Image(interpolation="nearest")})


def test_a_mask_of_another_shape_is_damage(tmp_path: pathlib.Path) -> None:
    turned = palette_png(index_map(1, WIDTH, HEIGHT))
    data = write(
        tmp_path,
        [{"png": png(picture(0)), "seg.png": palette_png(index_map(0))}, {"png": png(picture(1)), "seg.png": turned}],
    )
    fields = {"image": FIELDS["image"], "mask": FIELDS["mask"]}
    with pytest.raises(millrace.DamagedDataError, match="sample '0001'.*field 'seg.png'.*do not show the same"):
        load(data, fields)
    loader = millrace.Loader(data, fields=fields, batch_size=2, epochs=1, output="numpy", bad_samples="replace")
    assert [batch["key"] for batch in loader] == [["0000", "0000"]] and loader.report()["quarantined"] == 1


def test_objects_of_one_sample(tmp_path: pathlib.Path) -> None:
    """Image, mask, JSON and text of a sample are files of one folder."""
    for number in range(5):
        (tmp_path / f"{number:03}.png").write_bytes(png(picture(number)))
        (tmp_path / f"{number:03}.mask.png").write_bytes(palette_png(index_map(number)))
        (tmp_path / f"{number:03}.json").write_text(json.dumps({"id": number}))
        (tmp_path / f"{number:03}.txt").write_text(f"picture {number}")
    (tmp_path / "scan.2024.1.png").write_bytes(png(picture(7)))
    data = millrace.Dataset(tmp_path)
    assert [sample["key"] for sample in data] == ["000", "001", "002", "003", "004", "scan.2024.1"]
    fields = {
        "image": millrace.Image("png"),
        "mask": millrace.Image("mask.png", like="image", interpolation="nearest"),
        "meta": millrace.Json("json"),
        "text": millrace.Text("txt"),
    }
    rows = 0
    for batch in millrace.Loader(
        data[:5], fields=fields, batch_size=2, epochs=1, size=24, augment=True, output="numpy"
    ):
        for row in np.flatnonzero(batch["valid"]):
            assert (
                batch["meta"][row] == {"id": int(batch["key"][row])}
                and batch["text"][row] == f"picture {int(batch['key'][row])}"
            )
            assert set(np.unique(batch["mask"][row])) <= {*range(21), 255}
            rows += 1
    assert rows == 5


@pytest.mark.parametrize(
    ("name", "field", "bytes_", "reason"),
    [
        ("txt", millrace.Text("txt"), b"\xff", "not UTF-8"),
        ("json", millrace.Json("json"), b"{'id': 1}", "not JSON"),
        ("npy", millrace.Array("npy"), b"\x93NUMPY", "no array"),
        ("npy", millrace.Array("npy"), npy(np.array([1, "x"], dtype=object)), "Python objects"),
    ],
)
def test_a_value_that_is_none_names_the_sample(
    tmp_path: pathlib.Path, name: str, field: Any, bytes_: bytes, reason: str
) -> None:
    data = write(tmp_path, [rich(0), {**rich(1), name: bytes_}])
    with pytest.raises(millrace.DamagedDataError, match=f"sample '0001'.*field '{name}'.*{reason}"):
        load(data, {"it": field})
    loader = millrace.Loader(data, fields={"it": field}, batch_size=2, epochs=1, output="numpy", bad_samples="replace")
    assert [batch["key"] for batch in loader] == [["0000", "0000"]]


def test_digest_order_and_resume_are_those_without_fields(data: str) -> None:
    options: dict[str, Any] = {"batch_size": 4, "seed": 3, "epochs": 2, "output": "numpy", "digest": "raw"}
    plain = millrace.Loader(data, image=millrace.Image("png"), size=8, **options)
    samples = [batch["sample"].tolist() for _ in range(2) for batch in plain]
    first = millrace.Loader(data, fields=FIELDS, size=8, **options)
    seen = [batch["sample"].tolist() for _, batch in zip(range(5), first)]
    state = first.state_dict()
    rest = millrace.Loader(data, fields=FIELDS, size=8, **options)
    rest.load_state_dict(state)
    seen += [batch["sample"].tolist() for _ in range(2) for batch in rest]
    assert seen == samples
    assert add_digests(first.report()["digest"], rest.report()["digest"]) == plain.report()["digest"]


def test_values_stay_within_the_budget(tmp_path: pathlib.Path) -> None:
    # 64 values of 256 KiB, 16 MiB in all, with 8 MiB: what is ahead waits until the program takes a batch.
    data = write(tmp_path, [{"bin": bytes([number]) * 2**18} for number in range(64)])
    loader = millrace.Loader(
        data, fields={"raw": millrace.Bytes("bin")}, batch_size=4, epochs=1, memory="8MiB", output="numpy"
    )
    kept = list(loader)  # the program's from then on
    assert sorted(value[0] for batch in kept for value in batch["raw"]) == list(range(64))
    with pytest.raises(millrace.ExhaustedError, match="values of a batch .* take about 16.0 MiB"):
        load(data, {"raw": millrace.Bytes("bin")}, batch_size=64, memory="8MiB")


def test_labels_of_other_kinds_are_no_damage(tmp_path: pathlib.Path) -> None:
    data = write(
        tmp_path,
        [
            {"png": png(picture(number)), "cls": f"{number}.5".encode(), "json": b'{"box": [1, 2]}'}
            for number in range(3)
        ],
    )
    for options, message in (
        ({}, "sample '0000'.*\"0.5\" is a number with a fraction.*float"),
        ({"label": "json"}, "is JSON; say which member"),
        ({"label": millrace.Label("json", "float")}, "is JSON; say which member"),
    ):
        loader = millrace.Loader(data, batch_size=3, shuffle="none", output="numpy", bad_samples="replace", **options)  # type: ignore[arg-type]
        with pytest.raises(millrace.InvalidArgumentError, match=message):
            next(iter(loader))
    batch = next(
        iter(
            millrace.Loader(
                data, batch_size=4, shuffle="none", output="numpy", last="pad", label=millrace.Label("cls", "float")
            )
        )
    )
    np.testing.assert_array_equal(batch["label"], [0.5, 1.5, 2.5, np.nan])
    assert batch["label"].dtype == np.float32


def test_labels_that_a_format_types_otherwise_are_refused_at_once(tmp_path: pathlib.Path) -> None:
    spec = importlib.util.spec_from_file_location("mosaic", pathlib.Path(__file__).parents[1] / "shard" / "mosaic.py")
    assert spec is not None and spec.loader is not None
    mosaic = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(mosaic)
    with mosaic.load()[0](
        out=str(tmp_path / "mds"), columns={"jpg": "jpeg", "cls": "float32", "emb": "ndarray"}
    ) as writer:
        for number in range(3):
            writer.write({"jpg": Image.fromarray(picture(number)), "cls": np.float32(number / 2), "emb": np.zeros(3)})
    with pytest.raises(millrace.InvalidArgumentError, match="'cls'.* fraction; ask for labels of the kind float"):
        next(iter(millrace.Loader(tmp_path / "mds", batch_size=3, shuffle="none")))  # floats may be whole numbers
    with pytest.raises(millrace.InvalidArgumentError, match="holds arrays"):
        millrace.Loader(tmp_path / "mds", label="emb")
    fields: Any = {"target": millrace.Label("cls", "float"), "emb": millrace.Array("emb")}
    batch = next(iter(millrace.Loader(tmp_path / "mds", fields=fields, batch_size=3, shuffle="none", output="numpy")))
    assert batch["target"].tolist() == [0, 0.5, 1] and batch["emb"].shape == (3, 3)  # type: ignore[typeddict-item]


def test_shapes_and_rehearsal(data: str) -> None:
    loader = millrace.Loader(data, fields=FIELDS, batch_size=4, size=8, output="numpy")
    assert set(loader.shapes()[0]) == {"image", "mask", "target", "valid", "sample"}
    rehearsed = next(iter(loader.rehearse()))
    assert rehearsed["caption"] == [""] * 4 and rehearsed["audio"] == [b""] * 4  # type: ignore[typeddict-item]
    assert set(rehearsed) == {*FIELDS, "valid", "sample", "key"} and rehearsed["mask"].shape == (4, 8, 8)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "fields is empty"),
        ({"key": millrace.Text("txt")}, "'key'"),
        ({"valid": millrace.Text("txt")}, "'valid'"),
        ({"a": millrace.Text("nothing")}, "no field 'nothing' for the text 'a'; its fields are: cls, depth.png"),
        ({"a": millrace.Image("png", size=0)}, "fields\\['a'\\]: size is 0"),
        ({"a": millrace.Image("png", like="b")}, "'b'"),
        ({"a": millrace.Image("png", like="a")}, "'a'"),
        ({"a": millrace.Image("png"), "b": millrace.Image("png", like="a", flip=0.1)}, "flip says how to crop"),
        ({"a": millrace.Image("png", interpolation="nearest", dtype="f32")}, "channels=1"),
        ({"a": millrace.Label("cls", "number")}, "kind is 'number'; choose one of 'int', 'float', 'text'"),
    ],
)
def test_fields_that_make_no_sense(data: str, fields: Any, message: str) -> None:
    with pytest.raises(millrace.InvalidArgumentError, match=message):
        millrace.Loader(data, fields=fields)


def test_fields_of_a_wrong_type(data: str) -> None:
    for fields, message in (
        (["png"], "fields must be a dict"),
        ({"a": "png"}, "fields\\['a'\\] must be a millrace.Image"),
        ({"a": millrace.Text(3)}, "must be a string"),  # type: ignore[arg-type]
    ):
        with pytest.raises(TypeError, match=message):
            millrace.Loader(data, fields=fields)  # type: ignore[arg-type]
    with pytest.raises(millrace.InvalidArgumentError, match="fields names the entries of batches"):
        millrace.Loader(data, fields=FIELDS, label="cls")


def boxes_of(number: int) -> np.ndarray:
    """Returns left, top, right, bottom of some boxes within the picture, and of one outside of it."""
    rng = np.random.default_rng(number)
    corners = rng.uniform(0, [WIDTH - 12, HEIGHT - 12], (number % 6, 2))
    return np.concatenate(
        [np.hstack([corners, corners + rng.uniform(4, 12, corners.shape)]), [[WIDTH + 1, 0, WIDTH + 9, 9]]]
    )


def painted(boxes: np.ndarray) -> np.ndarray:
    """Makes a map, eight times as large, of the pixels within boxes: 1, 2 and so on."""
    image = np.zeros((HEIGHT * 8, WIDTH * 8), np.uint8)
    for i, (left, top, right, bottom) in enumerate(boxes * 8):
        image[round(top) : round(bottom), round(left) : round(right)] = i + 1
    return image


@pytest.fixture(scope="module")
def boxed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Makes pictures, the boxes of each in all forms, and a map of the first one."""
    samples = []
    for number in range(24):
        boxes = boxes_of(number)
        centred = np.hstack([(boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]])
        coco = {"annotations": [{"bbox": [*box[:2], *(box[2:] - box[:2])], "id": i} for i, box in enumerate(boxes)]}
        fields = {"png": png(picture(number)), "npy": npy(boxes), "coco.json": json.dumps(coco, default=float).encode()}
        fields["yolo.npy"] = npy((centred / [WIDTH, HEIGHT, WIDTH, HEIGHT]).astype(np.float32))
        samples.append(
            {**fields, "json": json.dumps(boxes.tolist()).encode(), "map.png": png_of_map(painted(boxes[:1]))}
        )
    return write(tmp_path_factory.mktemp("boxed"), samples)


def png_of_map(pixels: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels, "L").save(out, "png")
    return out.getvalue()


BOXES = {
    "image": millrace.Image("png"),
    "boxes": millrace.Boxes("npy"),
    "of_json": millrace.Boxes("json", like="image"),
    "coco": millrace.Boxes("coco.json", format="xywh", path="annotations.bbox"),
    "yolo": millrace.Boxes("yolo.npy", format="cxcywh", normalized=True),
    "first": millrace.Image("map.png", like="image", interpolation="nearest"),
}


def test_boxes_without_a_crop_stay(boxed: str) -> None:
    for batch in load(boxed, BOXES, batch_size=7):
        for row, key in enumerate(batch["key"]):
            assert batch["boxes"][row].dtype == np.float32 and batch["boxes"][row].shape[1:] == (4,)
            expected = boxes_of(int(key)).astype(np.float32) if batch["valid"][row] else np.zeros((0, 4), np.float32)
            expected[-1:] = 0
            assert np.array_equal(batch["boxes"][row], expected), "all are there; the one outside is zeros"


@pytest.mark.parametrize("seed", [1, 2])
def test_boxes_follow_crop_flip_and_size(boxed: str, seed: int) -> None:
    """The boxes are compared with a map of the first box, which is cropped as the image is: the pixels whose centers
    are within it."""
    seen = 0
    for batch in load(boxed, BOXES, augment=True, size=(64, 48), seed=seed, epochs=2):
        for row in np.flatnonzero(batch["valid"]):
            for name in ("of_json", "coco", "yolo"):
                assert np.allclose(batch[name][row], batch["boxes"][row], atol=1e-3), name
            boxes = batch["boxes"][row]
            assert (boxes >= 0).all() and (boxes <= [48, 64, 48, 64]).all() and not boxes[-1].any()
            if len(boxes) == 1:
                continue
            left, top, right, bottom = boxes[0]
            rows, columns = np.mgrid[0:64, 0:48] + 0.5
            inside = (columns > left) & (columns < right) & (rows > top) & (rows < bottom)
            near = (np.minimum(abs(columns - left), abs(columns - right)) < 0.7) | (
                np.minimum(abs(rows - top), abs(rows - bottom)) < 0.7
            )
            assert np.array_equal(inside[~near], batch["first"][row][~near] == 1)
            seen += int(inside.sum() > 20)
    assert seen > 5


def test_boxes_that_are_none(boxed: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises(millrace.DamagedDataError, match=r"field 'txt': no boxes.*it is neither"):
        load(
            write(tmp_path, [{"png": png(picture(1)), "txt": b"x"}]),
            {"image": millrace.Image("png"), "b": millrace.Boxes("txt")},
        )
    for fields, error, message in [
        ({"b": millrace.Boxes("npy")}, millrace.InvalidArgumentError, "no image with a crop of its own"),
        (
            {"image": millrace.Image("png"), "b": millrace.Boxes("npy", format="yxyx")},
            millrace.InvalidArgumentError,
            "format",
        ),
        (
            {"image": millrace.Image("png"), "b": millrace.Boxes("npy", like="")},
            millrace.InvalidArgumentError,
            "name no image",
        ),
    ]:
        with pytest.raises(error, match=message):
            load(boxed, fields)


def test_boxes_of_padding_and_rehearsal(boxed: str) -> None:
    loader = millrace.Loader(boxed, fields=BOXES, batch_size=5, size=32, output="torch")
    (batch,) = loader.rehearse()
    assert [tuple(boxes.shape) for boxes in batch["boxes"]] == [(0, 4)] * 5
    assert all(boxes.dtype == torch.float32 for boxes in next(iter(loader))["boxes"])
