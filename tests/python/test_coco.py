"""Tests the annotations of COCO as labels of a folder of images."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import millrace
import numpy as np
import pytest
from support import make_pixels, png


def write(folder: pathlib.Path, images: int = 9) -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]:
    """Writes COCO's file, and the annotations of each key."""
    (folder / "val2017").mkdir(parents=True)
    coco: dict[str, Any] = {
        "info": {"description": "x"},
        "licenses": [{"id": 1, "name": "none"}],
        "images": [],
        "annotations": [],
        "categories": [{"id": 3, "name": "car"}, {"id": 18, "name": "dog"}],
    }
    expected: dict[str, list[dict[str, Any]]] = {}
    rng = np.random.default_rng(1)
    for number in range(images):
        name = f"{number * 101:012}"
        (folder / f"val2017/{name}.png").write_bytes(png(make_pixels(number)))
        coco["images"].append({"id": 1000 + number, "file_name": f"{name}.png", "height": 24, "width": 32})
        expected[name] = []
        for _ in range(number % 4):
            left, top = rng.uniform(0, 10, 2).round(2).tolist()
            one = {
                "id": len(coco["annotations"]) + 1,
                "image_id": 1000 + number,
                "category_id": int(rng.choice([3, 18])),
                "bbox": [left, top, 12.5, 8],
                "area": 100.0,
                "iscrowd": 0,
                "segmentation": [[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]],
            }
            expected[name].append(one)
            coco["annotations"].append(one)
    rng.shuffle(coco["annotations"])
    for name in expected:
        image = next(image["id"] for image in coco["images"] if image["file_name"] == f"{name}.png")
        expected[name] = [one for one in coco["annotations"] if one["image_id"] == image]
    return coco, expected


FIELDS = {
    "image": millrace.Image("png"),
    "boxes": millrace.Boxes("boxes", format="xywh"),
    "labels": millrace.Json("labels"),
    "image_id": millrace.Label("image_id"),
}


def test_boxes_and_labels_of_instances(tmp_path: pathlib.Path) -> None:
    coco, expected = write(tmp_path)
    (tmp_path / "instances.json").write_text(json.dumps(coco))
    dataset = millrace.Dataset(tmp_path / "val2017", labels=tmp_path / "instances.json")
    assert dataset.keys() == sorted(expected)
    assert set(dataset.fields) == {"area", "boxes", "height", "image_id", "iscrowd", "labels", "png", "width"}
    assert dataset.column("image_id") == [1000 + number for number in range(9)]
    seen = []
    with millrace.Loader(
        dataset, batch_size=4, size=(24, 32), fields=FIELDS, epochs=1, shuffle="none", output="numpy"
    ) as loader:
        for batch in loader:
            for key, boxes, labels in zip(batch["key"], batch["boxes"], batch["labels"]):
                wanted = [one["bbox"] for one in expected[key]]
                corners = [[left, top, left + width, top + height] for left, top, width, height in wanted]
                np.testing.assert_allclose(boxes, np.array(corners, np.float32).reshape(-1, 4), atol=1e-4)
                assert labels == [one["category_id"] for one in expected[key]]
                seen.append(key)
    assert seen == sorted(expected)


def test_a_list_of_images_is_a_data_set_by_itself(tmp_path: pathlib.Path) -> None:
    """Exporters write it so: beside the images."""
    coco, expected = write(tmp_path)
    (tmp_path / "val2017/_annotations.coco.json").write_text(json.dumps(coco, indent=1))
    dataset = millrace.Dataset(tmp_path / "val2017/_annotations.coco.json")
    assert dataset.keys() == sorted(expected)
    assert dataset.read(3)["labels"] == [one["category_id"] for one in expected[dataset.keys()[3]]]


def test_captions(tmp_path: pathlib.Path) -> None:
    coco, expected = write(tmp_path)
    coco["annotations"] = [
        {"id": number, "image_id": image["id"], "caption": f"Größe {number}"}
        for number, image in enumerate([*coco["images"], *coco["images"]])
    ]
    (tmp_path / "captions.json").write_text(json.dumps(coco))
    dataset = millrace.Dataset(tmp_path / "val2017", labels=tmp_path / "captions.json")
    assert dataset.read(2)["captions"] == ["Größe 2", "Größe 11"]


def test_an_empty_caption(tmp_path: pathlib.Path) -> None:
    coco, _ = write(tmp_path, 2)
    coco["annotations"] = [{"id": n, "image_id": 1000 + n, "caption": text} for n, text in enumerate(["", "a dog"])]
    (tmp_path / "captions.json").write_text(json.dumps(coco))
    dataset = millrace.Dataset(tmp_path / "val2017", labels=tmp_path / "captions.json")
    assert dataset.column("captions") == [[""], ["a dog"]]


def test_an_empty_caption_beside_a_box(tmp_path: pathlib.Path) -> None:
    """Tools that give each annotation all members write it so: the boxes count."""
    coco, expected = write(tmp_path, 4)
    coco["annotations"][0]["caption"] = ""
    (tmp_path / "instances.json").write_text(json.dumps(coco))
    dataset = millrace.Dataset(tmp_path / "val2017", labels=tmp_path / "instances.json")
    assert [len(boxes) for boxes in dataset.column("boxes")] == [len(expected[key]) for key in dataset.keys()]


def test_a_list_of_test_images_has_no_annotations(tmp_path: pathlib.Path) -> None:
    """image_info_test2017.json is such a list."""
    coco, _ = write(tmp_path, 3)
    del coco["annotations"]
    (tmp_path / "image_info.json").write_text(json.dumps(coco))
    dataset = millrace.Dataset(tmp_path / "val2017", labels=tmp_path / "image_info.json")
    assert dataset.column("image_id") == [1000, 1001, 1002]
    assert dataset.read(0)["labels"] == [] and list(dataset.read(0)["boxes"]) == []


def test_what_is_wrong_is_said(tmp_path: pathlib.Path) -> None:
    coco, _ = write(tmp_path)
    coco["annotations"][0]["bbox"] = [1, 2, 3]
    (tmp_path / "instances.json").write_text(json.dumps(coco))
    with pytest.raises(millrace.InvalidArgumentError, match="annotation 1: its bbox is not four numbers"):
        millrace.Dataset(tmp_path / "val2017", labels=tmp_path / "instances.json")


def test_names_that_do_not_fit_say_why(tmp_path: pathlib.Path) -> None:
    coco, _ = write(tmp_path)
    for image in coco["images"]:
        image["file_name"] = f"images/{image['file_name']}"
    (tmp_path / "instances.json").write_text(json.dumps(coco))
    with pytest.raises(millrace.InvalidArgumentError, match="its keys have folders that the samples do not have: open"):
        millrace.Dataset(tmp_path / "val2017", labels=tmp_path / "instances.json")
    coco["images"][0]["id"] = "a1"
    (tmp_path / "instances.json").write_text(json.dumps(coco))
    with pytest.raises(millrace.InvalidArgumentError, match="image 1: it has no file_name, or no id that is a whole"):
        millrace.Dataset(tmp_path / "val2017", labels=tmp_path / "instances.json")
