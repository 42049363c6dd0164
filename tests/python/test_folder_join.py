"""Tests Dataset(join=): files of one name in folders beside each other are one sample."""

from __future__ import annotations

import io
import json
import pathlib
import pickle
import subprocess
from typing import Any

import millrace
import numpy as np
import pytest
from PIL import Image
from support import binary, make_pixels, png

VOC = {"image": "JPEGImages/{}.png", "mask": "SegmentationClass/{}.png"}
FIELDS: dict[str, Any] = {
    "image": millrace.Image("image"),
    "mask": millrace.Image("mask", like="image", interpolation="nearest"),
}


def palette(numbers: np.ndarray) -> bytes:
    out = io.BytesIO()
    image = Image.fromarray(numbers, "P")
    image.putpalette([value for color in range(256) for value in (color, 255 - color, color // 2)])
    image.save(out, "png")
    return out.getvalue()


def write(folder: pathlib.Path, masks: int = 12, images: int = 30) -> dict[str, np.ndarray]:
    """Writes a folder as VOC has it: more images than masks."""
    for name in ("JPEGImages", "SegmentationClass", "Annotations"):
        (folder / name).mkdir(parents=True)
    found = {}
    for number in range(images):
        key = f"2007_{number * 37 % 1000:06}"
        (folder / f"JPEGImages/{key}.png").write_bytes(png(make_pixels(number)))
        (folder / f"Annotations/{key}.xml").write_text("<annotation/>")
        if number < masks:
            found[key] = np.random.default_rng(number).integers(0, 21, (24, 32), dtype=np.uint8)
            (folder / f"SegmentationClass/{key}.png").write_bytes(palette(found[key]))
    return found


def check(dataset: millrace.Dataset, masks: dict[str, np.ndarray]) -> None:
    assert dataset.keys() == sorted(masks) and dataset.fields == ["image", "mask"]
    with millrace.Loader(
        dataset, batch_size=5, size=(24, 32), fields=FIELDS, raw=True, shuffle="none", epochs=1, output="numpy"
    ) as loader:
        seen = []
        for batch in loader:
            for key, mask in zip(batch["key"], batch["mask"]):
                np.testing.assert_array_equal(mask, masks[key])
                seen.append(key)
    assert seen == sorted(masks)


def test_folders_of_voc(tmp_path: pathlib.Path) -> None:
    masks = write(tmp_path / "voc")
    dataset = millrace.Dataset(tmp_path / "voc", join=VOC)
    check(dataset, masks)
    assert len(dataset.skipped) == 18 and set(dataset.skipped.values()) == {"a field of its sample has no file"}
    check(millrace.Dataset(tmp_path / "voc", join=VOC, index="require"), masks)  # it is there by now
    copy = pickle.loads(pickle.dumps(dataset.where(samples=range(4))))
    assert copy.keys() == sorted(masks)[:4]
    whole = {**VOC, "xml": "Annotations/{}.xml"}
    assert millrace.Dataset(f"{tmp_path / 'voc'}/", join=whole).read(0)["xml"] == b"<annotation/>"


def test_folders_in_a_bucket(bucket: str, server_folder: pathlib.Path) -> None:
    masks = write(server_folder / "bucket/voc")
    dataset = millrace.Dataset(f"{bucket}/voc", join=VOC)
    check(dataset, masks)
    assert dataset.uri == f"{bucket}/voc/{{image=JPEGImages/{{}}.png,mask=SegmentationClass/{{}}.png}}"
    check(millrace.Dataset(dataset.uri), masks)


def test_a_manifest_names_images_and_masks(tmp_path: pathlib.Path, workers: Any) -> None:
    masks = write(tmp_path / "voc")
    lines = [
        f"JPEGImages/{key}.png,SegmentationClass/{key}.png,{'val' if number % 3 == 0 else 'train'}\n"
        for number, key in enumerate(sorted(masks))
    ]
    (tmp_path / "voc/list.csv").write_text("photo,annotation,split\n" + "".join(lines))
    dataset = millrace.Dataset(
        tmp_path / "voc/list.csv", path_column={"image": "photo", "mask": "annotation"}, label_column="split"
    )
    assert dataset.keys() == [f"JPEGImages/{key}" for key in sorted(masks)]
    assert dataset.fields == ["cls", "image", "mask"] and dataset.class_counts == {"train": 8, "val": 4}
    address = workers().address
    some = pickle.loads(pickle.dumps(dataset.where(label="val")))
    for place in ({}, {"workers": [address]}):
        with millrace.Loader(
            some, batch_size=2, size=(24, 32), fields=FIELDS, raw=True, epochs=1, output="numpy", **place
        ) as loader:
            found = {key: mask for batch in loader for key, mask in zip(batch["key"], batch["mask"])}
        assert sorted(found) == some.keys() and len(found) == 4
        for key, mask in found.items():
            np.testing.assert_array_equal(mask, masks[key.removeprefix("JPEGImages/")])
    report = millrace.pack(tmp_path / "voc/list.csv", tmp_path / "out", fields={"image": "png", "mask": "mask.png"})
    assert report["samples"] == 12
    packed = millrace.Dataset(tmp_path / "out")
    assert packed.fields == ["mask.png", "png"] and packed.read(3)["mask.png"] == dataset.read(3)["mask"]
    for wrong in ({"image": "photo"}, {"image": "photo", "mask": 3}, {"a=b": "photo", "mask": "annotation"}, 7):
        with pytest.raises((TypeError, millrace.InvalidArgumentError), match="path_column"):
            millrace.Dataset(tmp_path / "voc/list.csv", path_column=wrong)  # type: ignore[arg-type]


PATHS = {"image": "photo", "mask": "annotation"}


def listed(folder: pathlib.Path, kind: str = "csv") -> tuple[pathlib.Path, dict[str, np.ndarray]]:
    masks = write(folder)
    rows = [
        {"photo": f"JPEGImages/{key}.png", "annotation": f"SegmentationClass/{key}.png", "split": "train", "n": number}
        for number, key in enumerate(sorted(masks))
    ]
    path = folder / f"list.{kind}"
    if kind == "csv":
        path.write_text("\n".join([",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]) + "\n")
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path, masks


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_index_and_the_command_take_several_columns_of_paths(tmp_path: pathlib.Path, kind: str) -> None:
    path, masks = listed(tmp_path / "voc", kind)
    report = millrace.index(path, path_column=PATHS, label_column="split")
    assert report["samples"] == 12 and report["fields"] == ["cls", "image", "mask", "n"]
    of_python = pathlib.Path(report["index"]).read_bytes()
    command = [binary(), "index", path, "--full", "--path-column", "image=photo,mask=annotation"]
    done = subprocess.run([*command, "--label-column", "split", "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert {name: told[name] for name in ("samples", "fields", "index")} == {
        name: report[name] for name in ("samples", "fields", "index")
    }
    assert pathlib.Path(report["index"]).read_bytes() == of_python
    # All that open it know the columns from now on.
    for dataset in (millrace.Dataset(path), millrace.Dataset(path, path_column=PATHS, label_column="split")):
        assert dataset.keys() == [f"JPEGImages/{key}" for key in sorted(masks)]
        assert dataset.fields == ["cls", "image", "mask", "n"] and dataset.classes == ["train"]
        assert dataset.read(3)["n"] == 3
    assert millrace.inspect(path)["samples"] == 12
    fed = subprocess.run([binary(), "feed", path, "--image-field", "image", "--json"], capture_output=True, text=True)
    assert fed.returncode == 0 and json.loads(fed.stdout)["samples"] == 12, fed.stderr
    # The columns are given as text, as the command takes it; and the order of the columns says which one names the
    # samples.
    assert millrace.index(path, full=True, path_column="image=photo,mask=annotation")["samples"] == 12
    millrace.index(path, full=True, path_column=dict(reversed(PATHS.items())))
    assert millrace.Dataset(path).keys() == [f"SegmentationClass/{key}" for key in sorted(masks)]


def test_columns_of_paths_that_are_none_say_so(tmp_path: pathlib.Path) -> None:
    path, _ = listed(tmp_path / "voc")
    for columns, why in (
        ({"image": "photo", "mask": "nothing"}, "nothing"),
        ({"image": "photo", "cls": "annotation"}, "cls"),
        ({"image": "photo", "mask": "photo"}, "photo"),
    ):
        text = ",".join(f"{field}={column}" for field, column in columns.items())
        with pytest.raises(millrace.InvalidArgumentError, match=why) as of_python:
            millrace.index(path, path_column=columns)
        done = subprocess.run([binary(), "index", path, "--path-column", text], capture_output=True, text=True)
        assert done.returncode != 0 and str(of_python.value) in done.stderr
        with pytest.raises(millrace.InvalidArgumentError, match=why):
            millrace.Dataset(path, path_column=columns)
    for wrong in ({"image": "photo"}, {"image": "photo", "mask": 3}, {"a=b": "photo", "mask": "annotation"}, 7):
        with pytest.raises((TypeError, millrace.InvalidArgumentError), match="path_column"):
            millrace.index(path, path_column=wrong)  # type: ignore[arg-type]


def test_cityscapes_has_folders_and_endings(tmp_path: pathlib.Path) -> None:
    for city in ("aachen", "bochum"):
        for folder, ending in (("leftImg8bit", "leftImg8bit.png"), ("gtFine", "gtFine_labelIds.png")):
            place = tmp_path / folder / "train" / city
            place.mkdir(parents=True)
            for number in range(3):
                (place / f"{city}_{number:06}_{ending}").write_bytes(png(make_pixels(number)))
    (tmp_path / "gtFine/train/aachen/aachen_000000_gtFine_color.png").write_bytes(b"x")
    join = {"image": "leftImg8bit/train/{}_leftImg8bit.png", "mask": "gtFine/train/{}_gtFine_labelIds.png"}
    dataset = millrace.Dataset(tmp_path, join=join)
    assert dataset.keys() == [f"{city}/{city}_{number:06}" for city in ("aachen", "bochum") for number in range(3)]
    assert dataset.classes == ["aachen", "bochum"]


def test_workers_and_commands_read_them_too(tmp_path: pathlib.Path, workers: Any) -> None:
    masks = write(tmp_path / "voc")
    dataset = millrace.Dataset(tmp_path / "voc", join=VOC)
    address = workers().address
    options: dict[str, Any] = {
        "batch_size": 4,
        "size": (24, 32),
        "fields": FIELDS,
        "raw": True,
        "shuffle": "none",
        "epochs": 1,
        "output": "numpy",
    }
    with millrace.Loader(dataset, **options, workers=[address]) as loader:
        for batch in loader:
            for key, mask in zip(batch["key"], batch["mask"]):
                np.testing.assert_array_equal(mask, masks[key])
    rows = {worker["worker"]: worker["rows"] for worker in loader.report()["workers"]}
    assert rows[address] == 12 and rows["local"] == 0
    packed = subprocess.run(
        [binary(), "pack", dataset.uri, tmp_path / "out", "--field", "image=png", "--field", "mask=mask.png"],
        capture_output=True,
        text=True,
    )
    assert packed.returncode == 0, packed.stderr
    out = millrace.Dataset(tmp_path / "out")
    assert out.keys() == sorted(masks) and out.fields == ["mask.png", "png"]


def test_changes_are_noticed(tmp_path: pathlib.Path) -> None:
    masks = write(tmp_path / "voc")
    millrace.Dataset(tmp_path / "voc", join=VOC)
    key = sorted(masks)[3]
    (tmp_path / f"voc/SegmentationClass/{key}.png").write_bytes(b"another")
    with pytest.raises(millrace.MismatchError, match="millrace index"):
        millrace.Dataset(tmp_path / "voc", join=VOC)


def test_what_is_wrong_is_said(tmp_path: pathlib.Path) -> None:
    write(tmp_path / "voc")
    with pytest.raises(millrace.NotFoundError, match="there is no file for the field 'mask'.*Masks/{}.png"):
        millrace.Dataset(tmp_path / "voc", join={**VOC, "mask": "Masks/{}.png"})
    for pattern in ("SegmentationClass/x.png", "SegmentationClass/{}/{}.png", "Seg*/{}.png", "a,b/{}.png"):
        with pytest.raises(millrace.InvalidArgumentError, match="is not a pattern"):
            millrace.Dataset(tmp_path / "voc", join={**VOC, "mask": pattern})
    with pytest.raises(millrace.InvalidArgumentError, match="2 to 32 are joined"):
        millrace.Dataset(tmp_path / "voc", join={"image": "JPEGImages/{}.png"})
    with pytest.raises(TypeError, match="a dict of fields and patterns"):
        millrace.Dataset(tmp_path / "voc", join=["JPEGImages"])
