"""Provides the bucket, and the names of the reader's own program, for which the pages of the documentation are
written."""

from __future__ import annotations

import csv
import io
import json
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

COUNT = 96
# The blocks of these pages run in their order, in one program.
PAGES = [
    "cache.md",
    "checkpoints.md",
    "decode.md",
    "metrics.md",
    "mount.md",
    "python.md",
    "run.md",
    "s3.md",
    "service.md",
    "tokens.md",
]
# The reader has these; see own_names.
NAMES = [
    "accuracy", "arguments", "augment", "books", "checkpoint", "ckpt", "criterion", "data", "dataset", "decode",
    "end_of_text", "loader", "mean", "mixup", "model", "normalize", "optimizer", "order", "parse", "posterize", "rank",
    "save", "saver", "state", "std", "step", "suspicious", "texts", "tokenize", "tokenizer", "train", "trainer",
    "transform", "uri", "web", "world",
]  # fmt: skip


def moved(code: str, folder: Path) -> str:
    """Returns the program with its folders inside of one that the test may write."""
    code = code.replace('token="token"', f'token="{folder}/token"')
    for place in ("/nvme", "/runs", "/run/order", "/run/secrets", "/mnt/train", "/data/train"):
        code = code.replace(f'"{place}', f'"{folder}{place}').replace(f"'{place}", f"'{folder}{place}")
    code = code.replace('init_process_group("nccl")', "get_rank()")  # the test has made the group
    for many in ("1_000_000", "10_000_000", "50_000_000"):
        code = code.replace(f"={many},", "=100,").replace(f"={many})", "=100)").replace(f"{{{many}:", "{200:")
    return code.replace("range(loader.epoch, 90)", "range(loader.epoch, 2)").replace("epochs=90", "epochs=2")


def _encoded(number: int, kind: str, pixels: Any) -> bytes:
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(pixels).save(out, kind)
    return out.getvalue()


def _photo(number: int) -> bytes:
    import numpy as np

    return _encoded(number, "jpeg", np.random.default_rng(number).integers(0, 255, (40, 56, 3), np.uint8))


def _mask(number: int) -> bytes:
    import numpy as np

    return _encoded(number, "png", np.full((40, 56), number % 5, np.uint8))


def _array(number: int) -> bytes:
    import numpy as np

    out = io.BytesIO()
    np.save(out, np.full(4, number, np.float32))
    return out.getvalue()


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _write_shards(folder: Path, all_fields: bool) -> None:
    folder.mkdir(parents=True)
    with tarfile.open(folder / "shard-000000.tar", "w") as archive:
        for number in range(COUNT):
            fields = {
                "jpg": _photo(number),
                "cls": str(number % 10).encode(),
                "txt": f"photo {number}".encode(),
                "json": json.dumps({"annotation": {"label": number % 10}}).encode(),
            }
            if all_fields:
                fields |= {
                    "seg.png": _mask(number),
                    "npy": _array(number),
                    "flac": bytes(100),
                    "boxes.json": json.dumps([[1, 2, 10, 10]]).encode(),
                }
            for field, data in fields.items():
                member = tarfile.TarInfo(f"{number:04}.{field}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))


def _write_coco(folder: Path) -> None:
    images = [{"id": n, "file_name": f"{n:04}.jpg", "width": 56, "height": 40} for n in range(COUNT)]
    boxes = [{"id": n, "image_id": n, "category_id": 1, "bbox": [1, 2, 10, 10]} for n in range(COUNT)]
    for number in range(COUNT):
        _write(folder / "train2017" / f"{number:04}.jpg", _photo(number))
    text = json.dumps({"images": images, "annotations": boxes, "categories": [{"id": 1, "name": "cat"}]})
    _write(folder / "annotations" / "instances_train2017.json", text.encode())


def fill(root: Path) -> None:
    """Makes all data sets that the pages name, below `root`."""
    bucket = root / "bucket"
    _write_shards(bucket / "train", all_fields=False)
    _write_shards(root / "archive" / "train", all_fields=False)
    _write_shards(bucket / "scenes", all_fields=True)
    for number in range(COUNT):
        _write(bucket / "photos" / f"class{number % 3}" / f"{number:04}.jpg", _photo(number))
        _write(bucket / "images" / f"{number:04}.jpg", _photo(number))
        _write(bucket / "raw" / f"class{number % 3}" / f"{number:04}.jpg", _photo(number))
        _write(bucket / "voc" / "JPEGImages" / f"{number:04}.jpg", _photo(number))
        _write(bucket / "voc" / "SegmentationClass" / f"{number:04}.png", _mask(number))
        _write(bucket / "scans" / f"{number:04}.bin", bytes(10))
    _write_coco(bucket / "coco")
    out = io.StringIO()
    csv.writer(out).writerows([["key", "label"], *([f"{n:04}", str(n % 10)] for n in range(COUNT))])
    _write(bucket / "labels.csv", out.getvalue().encode())
    rows = [[f"photos/class{n % 3}/{n:04}.jpg", str(n % 3), "train" if n % 4 else "valid"] for n in range(COUNT)]
    out = io.StringIO()
    csv.writer(out).writerows([["path", "label", "split"], *rows])
    _write(bucket / "list.csv", out.getvalue().encode())


def fill_folder(folder: Path) -> None:
    """Makes the reader's files on the machine."""
    for name in ("nvme", "runs", "run", "mnt/train", "data/train", "out"):
        (folder / name).mkdir(parents=True)
    for number in range(4):
        _write(folder / "mnt/train" / f"{number}.jpg", _photo(number))
        _write(folder / "data/train" / f"{number}.jpg", _photo(number))
    _write(folder / "out/a.txt", b"a")
    _write(folder / "token", b"an-example-of-a-token")
    _write(folder / "val.txt", b"class0/0000 class1/0001")
    rows = [json.dumps({"image_id": f"{n:04}", "target": n % 10}) for n in range(COUNT)]
    _write(folder / "labels.jsonl", "\n".join(rows).encode())
    _write(folder / "mytransforms.py", b"def augment(sample, rng):\n    return sample\n\n\ncrop = augment\n")
    _write(folder / "config", b"[profile lab]\naws_access_key_id = test\naws_secret_access_key = test-secret\n")


def own_names(page: str, folder: Path) -> dict[str, Any]:
    """Returns the names that the reader has before the first block of a page."""
    import millrace
    import numpy as np
    import torch

    uri = "s3://bucket/train"
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LazyLinear(10))
    model(torch.zeros(1, 3, 224, 224))
    names: dict[str, Any] = {
        "uri": uri,
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "train": lambda *values: None,
        "train_step": lambda *values: None,
        "compile_for": lambda batch: None,
        "step": (lambda batch: None) if page == "python.md" else 500,
        "accuracy": 0.5,
        "arguments": SimpleNamespace(output_dir=str(folder)),
        "saver": SimpleNamespace(restore=lambda place: None),
        "trainer": SimpleNamespace(train=lambda resume_from_checkpoint: None),
        "mean": (0.5, 0.5, 0.5),
        "std": (0.25, 0.25, 0.25),
        "checkpoint": None,
        "device": "cpu",
        "save": lambda state: None,
        "suspicious": np.zeros(COUNT, bool),
        "order": [2, 0, 1],
        "texts": ["one", "two"],
        "tokenizer": Tokenizer(),
        "end_of_text": 0,
        "decode": lambda data: torch.tensor(list(data[:4])),
        "parse": lambda key, data: len(data),
        "posterize": lambda image, bits: image,
        "mixup": lambda batch, rng: batch,
        "state": (lambda: {"step": 1}) if page == "run.md" else {"model": model.state_dict()},
        "data": Files([(str(path), 0) for path in sorted((folder / "mnt/train").iterdir())]),
    }
    if page in ("python.md", "tokens.md"):
        with millrace.TokenWriter(f"s3://bucket/{page}/corpus", dtype="uint16") as writer:
            for length in range(100, 4000, 100):
                writer.write([1] * length)
    if page == "python.md":
        from mytransforms import augment  # processes import it

        names["augment"] = augment
    if page != "metrics.md":  # configure() comes first there
        names["loader"] = millrace.Loader(uri, batch_size=8, size=32)
        names["web"] = millrace.Dataset("s3://bucket/photos")
        names["books"] = millrace.Dataset("s3://bucket/images")
    if page in ("checkpoints.md", "run.md"):
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    return names


class Tokenizer:
    """Works as those of the package tokenizers."""

    ids = (1, 2, 3)

    def encode(self, text: str) -> Tokenizer:
        return self


class Files:
    """Works as torchvision's ImageFolder."""

    def __init__(self, samples: list[tuple[str, int]]) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, number: int) -> int:
        return self.samples[number][1]


RUNNER = r"""
import importlib.util, json, os, re, sys
from pathlib import Path
import doc_world

job = json.loads(sys.argv[1])
folder = Path(os.environ["DOC_FOLDER"])
os.chdir(folder)
sys.path.insert(0, str(folder))
own = doc_world.own_names(job["page"], folder)
names = {**own, "__name__": "block"}
for number, code in enumerate(job["blocks"]):
    needed = re.findall(r"^(?:import|from) (\w+)", code, re.MULTILINE)
    lacking = [name for name in needed if importlib.util.find_spec(name) is None]
    if "cuda" in code:
        lacking.append("cuda")
    if lacking:
        print("left out", number, *lacking)
        continue
    for theirs, ours in job["places"].items():
        code = code.replace(theirs, ours)
    if "TokenWriter" not in code:  # the pages write to the place that they read
        code = code.replace("s3://bucket/corpus", f"s3://bucket/{job['page']}/corpus")
    names |= {name: value for name, value in own.items() if name != "loader"}  # a block may bind them
    exec(compile(code, f"{job['page']}, block {number}", "exec"), names)
    print("ran", number)
"""
