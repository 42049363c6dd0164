"""A manifest in place of a folder: `index`, `inspect` and `feed` of what it lists."""

from __future__ import annotations

import json
from pathlib import Path

from cli_support import Bucket, Millrace


def test_csv_in_a_folder(millrace: Millrace, tmp_path: Path) -> None:
    millrace("synth", tmp_path / "raw", "--count", "20", "--kb", "4", "--seed", "1")
    photos = sorted(path.relative_to(tmp_path / "raw") for path in (tmp_path / "raw").rglob("*.jpg"))
    listed = photos[:12]
    rows = [f'{name},{n % 3},"photo {n}, small"' for n, name in enumerate(listed)]
    (tmp_path / "raw" / "train.csv").write_text("file,label,caption\r\n" + "\r\n".join(reversed(rows)) + "\r\n")
    report = json.loads(millrace("index", tmp_path / "raw" / "train.csv", "--json").stdout)
    assert report["samples"] == 12 and Path(report["index"]) == tmp_path / "raw/.millrace/train.csv.index"
    found = json.loads(millrace("inspect", tmp_path / "raw" / "train.csv", "--json").stdout)
    assert found["classes"] == [{"name": str(n), "samples": 4} for n in range(3)]
    assert {field["name"]: field["type"] for field in found["fields"]} == {
        "caption": "text",
        "cls": "int",
        "jpg": "bytes",
    }
    fed = json.loads(
        millrace("feed", tmp_path / "raw" / "train.csv", "--balance", "--size", "16", "--batch", "4", "--json").stdout
    )
    assert fed["samples"] == 12
    packed = json.loads(millrace("pack", tmp_path / "raw" / "train.csv", tmp_path / "packed", "--json").stdout)
    assert packed["samples"] == 12
    again = json.loads(millrace("inspect", tmp_path / "packed", "--json").stdout)
    assert again["classes"] == found["classes"] and {field["name"] for field in again["fields"]} == {
        "caption",
        "cls",
        "jpg",
    }
    (tmp_path / "raw" / "train.csv").write_text("file\nnowhere.jpg\n")
    assert b"has changed" in millrace("inspect", tmp_path / "raw" / "train.csv", code=1).stderr
    assert b"train.csv: line 2: " in millrace("index", tmp_path / "raw" / "train.csv", code=1).stderr


def test_a_class_map_is_of_the_labels(millrace: Millrace, tmp_path: Path) -> None:
    for name in ("cat/1.jpg", "cat/2.jpg", "dog/3.jpg"):
        (tmp_path / "raw" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "raw" / name).write_bytes(b"x")
    (tmp_path / "raw" / "t.csv").write_text("path,label\ncat/1.jpg,dog\ncat/2.jpg,cat\ndog/3.jpg,dog\n")
    (tmp_path / "map.json").write_text('{"cat": 7, "dog": 3}')
    millrace("pack", tmp_path / "raw" / "t.csv", tmp_path / "packed", "--class-map", tmp_path / "map.json")
    found = json.loads(millrace("inspect", tmp_path / "packed", "--json").stdout)
    assert found["classes"] == [{"name": "3", "samples": 2}, {"name": "7", "samples": 1}]


def test_json_lines_in_a_bucket(millrace: Millrace, bucket: Bucket, tmp_path: Path) -> None:
    env = bucket.env | {"MILLRACE_CACHE": str(tmp_path / "cache")}
    bucket.put(**{f"photos/{n:03}.jpg": bytes(100 + n) for n in range(100)})
    lines = [
        json.dumps({"source-ref": f"s3://bkt/photos/{n:03}.jpg", "label": f"class {n % 2}", "n": n})
        for n in range(0, 100, 2)
    ]
    bucket.put(**{"lists/train.jsonl": "\n".join(lines).encode()})
    found = json.loads(millrace("inspect", "s3://bkt/lists/train.jsonl", "--json", env=env).stdout)
    assert found["samples"] == 50 and found["bytes"] == sum(100 + n for n in range(0, 100, 2))
    assert found["classes"] == [{"name": "class 0", "samples": 50}]
    assert "lists/.millrace/train.jsonl.index" in bucket.keys()
    other = json.loads(
        millrace("index", "s3://bkt/lists/train.jsonl", "--json", "--output", tmp_path / "x", env=env).stdout
    )
    assert other["samples"] == other["objects"] == found["objects"] == 50, "the manifest is not counted"
    assert json.loads(millrace("index", "s3://bkt/lists/train.jsonl", "--json", env=env).stdout)["objects"] == 50
    assert (tmp_path / "x").read_bytes() == bucket.objects()["lists/.millrace/train.jsonl.index"]


def test_a_manifest_without_a_label_says_so(millrace: Millrace, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for name in ("1.jpg", "2.jpg"):
        (tmp_path / "a" / name).write_bytes(b"x")
    (tmp_path / "t.csv").write_text("path,target,width\na/1.jpg,3,100\na/2.jpg,5,100\n")
    said = millrace("index", tmp_path / "t.csv").stderr.decode()
    assert "t.csv: none of 'target', 'width' is a label" in said and "--label-column X" in said, said
    (tmp_path / "u.csv").write_text("path,label,width\na/1.jpg,3,100\na/2.jpg,5,100\n")
    (tmp_path / "v.csv").write_text("path\na/1.jpg\na/2.jpg\n")
    for quiet in ("u.csv", "v.csv"):
        assert b"is a label" not in millrace("index", tmp_path / quiet).stderr
