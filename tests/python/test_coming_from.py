"""The code of docs/coming-from.md runs, each piece on small data in the place of the bucket."""

from __future__ import annotations

import io
import json
import re
import tarfile
from pathlib import Path
from typing import Any

import millrace
import millrace.torch
import numpy as np
import pytest
import torch
from PIL import Image

PAGE = Path(__file__).parents[2] / "docs" / "coming-from.md"
PIECES = re.findall(r"<!-- run -->\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def jpeg(number: int) -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.random.default_rng(number).integers(0, 255, (32, 40, 3), np.uint8)).save(out, "jpeg")
    return out.getvalue()


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("bucket")
    for number in range(600):
        folder = root / "photos" / f"class{number % 3}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:04}.jpg").write_bytes(jpeg(number))
    (root / "train").mkdir()
    with tarfile.open(root / "train" / "shard-000000.tar", "w") as archive:
        for number in range(600):
            fields = {
                "jpg": jpeg(number),
                "cls": str(number % 3).encode(),
                "txt": b"a photo",
                "json": json.dumps({"n": number}).encode(),
            }
            for field, data in fields.items():
                info = tarfile.TarInfo(f"{number:04}.{field}")
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    return root


def decode(encoded: bytes) -> torch.Tensor:
    return torch.tensor(np.asarray(Image.open(io.BytesIO(encoded))))


def tokenize(text: str) -> torch.Tensor:
    return torch.tensor(list(text.encode()))


def test_there_is_code_for_each() -> None:
    assert len(PIECES) == PAGE.read_text().count("<!-- run -->") >= 8


@pytest.mark.parametrize("number", range(len(PIECES)))
def test_the_code_runs(number: int, bucket: Path, tmp_path: Path) -> None:
    rows = []

    def train(images: Any, targets: Any) -> None:
        assert targets is None or len(images) == len(targets)
        rows.append(len(images))

    code = PIECES[number].replace("range(90)", "range(2)").replace("/nvme/cache", str(tmp_path / "cache"))
    for name in ("photos", "train"):
        code = code.replace(f"s3://bucket/{name}", str(bucket / name))
    code = code.replace("s3://bucket", str(tmp_path))
    model = torch.nn.Linear(2, 2)
    names: dict[str, Any] = {
        "millrace": millrace,
        "torch": torch,
        "train": train,
        "decode": decode,
        "tokenize": tokenize,
        "model": model,
    }
    if "loader =" not in code:  # it goes on from the piece before
        names["loader"] = millrace.Loader(bucket / "photos")
    exec(compile(code, f"{PAGE.name}, piece {number}", "exec"), names)
    if "train(" in code:
        epochs = 2 if "range(2)" in code else 1
        assert sum(rows) >= epochs * (512 if 'last="drop"' in code else 500)
    else:
        assert torch.equal(names["state"]["model"]["weight"], model.weight)
