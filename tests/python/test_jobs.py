"""Tests examples/jobs: each does its job on a little data, in at most 40 lines of code. Those of frameworks run in
tests/frameworks."""

from __future__ import annotations

import ast
import io
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tarfile

import millrace
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from PIL import Image
from support import binary
from test_text_corpus import WORDS, some_texts
from test_text_corpus import tokenizer as tokenizer  # a fixture

JOBS = pathlib.Path(__file__).resolve().parents[2] / "examples/jobs"
MOST_LINES = 40


def job(name: str, *arguments: object, ranks: int = 0, code: int = 0, **environment: str) -> str:
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--standalone"] if ranks else []
    done = subprocess.run(
        [sys.executable, *launcher, str(JOBS / name), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1", "MILLRACE_BIN": str(binary()), **environment},
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def photo(seed: int, kind: str = "jpeg") -> bytes:
    out = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(out, kind)
    return out.getvalue()


def photos(folder: pathlib.Path, count: int, classes: int = 3) -> pathlib.Path:
    for number in range(count):
        place = folder / f"class{number % classes}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number:03}.jpg").write_bytes(photo(number))
    return folder


def test_each_is_short() -> None:
    names = sorted(path.name for path in JOBS.glob("*.py"))
    assert len(names) == 10
    for name in names:
        text = (JOBS / name).read_text()
        docstring = ast.parse(text).body[0].end_lineno or 0
        code = [line for line in text.splitlines()[docstring:] if line.strip()]
        assert len(code) <= MOST_LINES, f"{name} has {len(code)} lines"
        assert name in (JOBS.parent / "README.md").read_text()


def test_classify_goes_on_in_another_world(tmp_path: pathlib.Path) -> None:
    data = photos(tmp_path / "photos", 60)
    first = job("classify.py", data, tmp_path / "run", ranks=2)
    assert "done after 12 steps" in first and "of 6 are right" in first
    checkpoints = millrace.Checkpoints(tmp_path / "run")
    assert checkpoints.steps() == [10, 12]
    state = checkpoints.load(10)
    checkpoints.save(10, state)  # as if it was killed after that step
    again = job("classify.py", data, tmp_path / "run", ranks=1)
    assert "continues after step 10" in again and "done after 12 steps" in again


def test_segment_voc(tmp_path: pathlib.Path) -> None:
    voc = tmp_path / "voc"
    for name in ("JPEGImages", "SegmentationClass", "ImageSets/Segmentation"):
        (voc / name).mkdir(parents=True)
    for number in range(30):
        (voc / f"JPEGImages/{number:04}.jpg").write_bytes(photo(number))
        if number < 24:
            mask = Image.fromarray(np.repeat(np.arange(40, dtype=np.uint8)[:, None] // 20, 40, axis=1), "P")
            mask.putpalette([0, 0, 0, 128, 0, 0])
            mask.save(voc / f"SegmentationClass/{number:04}.png")
    (voc / "ImageSets/Segmentation/train.txt").write_text("".join(f"{number:04}\n" for number in range(16)))
    (voc / "ImageSets/Segmentation/val.txt").write_text("".join(f"{number:04}\n" for number in range(16, 24)))
    assert re.search(r"[0-9.]+ % of the pixels of 8 images are right", job("segment_voc.py", voc))


def test_image_text(tmp_path: pathlib.Path) -> None:
    for name, count in (("web", 60), ("clean", 20)):
        (tmp_path / name).mkdir()
        with tarfile.open(tmp_path / name / "0.tar", "w") as archive:
            for number in range(count):
                for field, data in (("jpg", photo(number)), ("txt", f"{name} {number}".encode())):
                    member = tarfile.TarInfo(f"{name}{number:04}.{field}")
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))
    assert "64 samples, 48 of web; the last loss is" in job("image_text.py", tmp_path / "web", tmp_path / "clean")


def test_corpus(tokenizer: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tmp_path / "corpus").mkdir()
    texts = some_texts(1, 120)
    for part in range(2):
        lines = "".join(json.dumps({"text": text}) + "\n" for text in texts[part::2])
        (tmp_path / f"corpus/{part}.jsonl").write_text(lines)
    output = job("corpus.py", f"{tmp_path}/corpus/*.jsonl", tmp_path / "tokens", tokenizer)
    assert (
        f"120 documents, {sum(len(text.split()) + 1 for text in texts)} tokens of a vocabulary of {len(WORDS)}"
        in output
    )
    losses = [float(found) for found in re.findall(r"loss (\S+)", output)]
    assert len(losses) == 3 and losses[-1] < losses[0]


def test_parquet(tmp_path: pathlib.Path) -> None:
    (tmp_path / "in").mkdir()
    columns = {"image": [{"bytes": photo(n), "path": None} for n in range(40)], "label": [n % 2 for n in range(40)]}
    pq.write_table(pa.table(columns), tmp_path / "in/train.parquet")
    output = job("parquet.py", tmp_path / "in", tmp_path / "out")
    assert "40 samples, fields cls, jpg, classes {'0': 16, '1': 16}" in output and "of 8 are right" in output
    assert "of 8 are right" in job("parquet.py", tmp_path / "in", tmp_path / "out")


def test_infer_goes_on_after_a_kill(tmp_path: pathlib.Path) -> None:
    data = photos(tmp_path / "photos", 50)
    job("infer.py", data, tmp_path / "vectors", code=-signal.SIGKILL, STOP_AFTER="4")
    output = job("infer.py", data, tmp_path / "vectors")
    assert re.search(r"continues after [1-9]\d* samples", output) and "50 vectors" in output
    assert sorted(millrace.Dataset(tmp_path / "vectors").keys()) == sorted(millrace.Dataset(data).keys())


def test_slow(tmp_path: pathlib.Path) -> None:
    output = job("slow.py", photos(tmp_path / "photos", 40))
    assert (
        re.search(r"limited by +transform", output) and "'data/samples': 40" in output and "data/waited_share" in output
    )


def test_coco_boxes(tmp_path: pathlib.Path) -> None:
    data = photos(tmp_path / "photos", 40, classes=1)
    coco = {
        "images": [{"id": n, "file_name": f"class0/{n:03}.jpg"} for n in range(40)],
        "annotations": [
            {"id": n, "image_id": n % 40, "category_id": 1 + n % 3, "bbox": [5, 6, 20, 15], "area": 300, "iscrowd": 0}
            for n in range(70)
        ],
        "categories": [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}, {"id": 3, "name": "c"}],
    }
    (tmp_path / "instances.json").write_text(json.dumps(coco))
    output = job("coco_boxes.py", data, tmp_path / "instances.json")
    found = re.search(r"120 images with (\d+) boxes", output)
    assert found and 60 < int(found[1]) <= 210
