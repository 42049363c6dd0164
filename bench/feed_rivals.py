#!/usr/bin/env python3
"""Other loaders over the files of feed_bench.py: JPEG to 224x224 u8 in batches of 128, by PyTorch's DataLoader or webdataset.

Prints one JSON object. The clock starts with the first batch: neither imports nor the start of workers count against them.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy
import torch
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parent / "s3"))

from rival_task import cpu_seconds

SIZE = 224
BATCH = 128


def prepare(data: bytes, draft: bool) -> torch.Tensor:
    """Shorter side to 224 with antialiasing, centre crop: what torchvision's Resize and CenterCrop do, with PIL as they do."""
    image = Image.open(io.BytesIO(data))
    if draft:  # let libjpeg scale by 1/2, 1/4 or 1/8 while it decodes
        image.draft("RGB", (SIZE, SIZE))
    image = image.convert("RGB")
    scale = SIZE / min(image.size)
    width, height = (max(SIZE, round(side * scale)) for side in image.size)
    image = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = (width - SIZE) // 2, (height - SIZE) // 2
    return torch.from_numpy(numpy.array(image.crop((left, top, left + SIZE, top + SIZE))))


class Files(torch.utils.data.Dataset):
    def __init__(self, folder: Path, count: int, draft: bool) -> None:
        paths = sorted(folder.rglob("*.jpg"))
        self.paths = random.Random(1).sample(paths, min(count, len(paths)))
        self.draft = draft

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> torch.Tensor:
        return prepare(self.paths[number].read_bytes(), self.draft)


def prepare_whole(sample: dict) -> torch.Tensor:
    return prepare(sample["jpg"], draft=False)


def one_thread(_: int) -> None:
    torch.set_num_threads(1)


def shards(folder: Path, workers: int) -> Iterator[torch.Tensor]:
    import webdataset

    urls = [str(path) for path in sorted(folder.glob("*.tar"))]
    data = webdataset.WebDataset(urls, shardshuffle=False).repeat().shuffle(1000).map(prepare_whole)
    return iter(
        torch.utils.data.DataLoader(data, BATCH, num_workers=min(workers, len(urls)), worker_init_fn=one_thread)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=("dataloader", "dataloader-draft", "webdataset"))
    parser.add_argument("folder", type=Path, help="with `raw` and `tar`")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--count", type=int, default=5000)
    options = parser.parse_args()
    if options.count <= BATCH:
        parser.error(f"--count: more than {BATCH}, since the first batch is not measured")
    if options.name == "webdataset":
        batches = shards(options.folder / "tar", options.workers)
        what = "webdataset over the shards, PIL"
    else:
        files = Files(options.folder / "raw", options.count, options.name == "dataloader-draft")
        batches = iter(
            torch.utils.data.DataLoader(files, BATCH, num_workers=options.workers, worker_init_fn=one_thread)
        )
        what = "PyTorch DataLoader over the files, PIL" + (" with draft mode" if files.draft else "")

    next(batches)
    began, burnt, samples = time.perf_counter(), cpu_seconds(), 0
    for batch in itertools.islice(batches, (options.count + BATCH - 1) // BATCH - 1):
        samples += len(batch)
        burnt_now = cpu_seconds()  # while the workers live: they end with the last batch
    seconds = time.perf_counter() - began
    print(
        json.dumps(
            {
                "what": what,
                "samples_per_second": samples / seconds,
                "cpu_per_1000": (burnt_now - burnt) / samples * 1000,
            }
        )
    )


if __name__ == "__main__":
    main()
