#!/usr/bin/env python3
"""The same JPEGs in the format of each contestant, from a folder of raw ones: MDS, LitData's chunks and Parquet as `datasets` writes it.

    build/bench-venv-torch/bin/python bench/torch/data.py FOLDER --shard-size 33554432

FOLDER has `raw`; `mds`, `litdata` and `parquet` come beside it, each with the writer of its own library. Those that are there stay.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src/diagnose/rivals"))

from rival_torch import import_streaming  # noqa: E402


def images(raw: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(raw.glob("class-*/*.jpg"), key=lambda path: path.name):
        yield path.stem, path.read_bytes()


def write_mds(raw: Path, into: Path, shard_size: int) -> None:
    base = import_streaming()
    with base.MDSWriter(out=str(into), columns={"image": "bytes"}, size_limit=shard_size) as writer:
        for _, data in images(raw):
            writer.write({"image": data})


def read(path: str) -> dict[str, bytes]:
    return {"image": Path(path).read_bytes()}


def write_litdata(raw: Path, into: Path, shard_size: int) -> None:
    import litdata

    paths = [str(path) for path in sorted(raw.glob("class-*/*.jpg"), key=lambda path: path.name)]
    litdata.optimize(fn=read, inputs=paths, output_dir=str(into), chunk_bytes=shard_size, num_workers=1, verbose=False)


def write_parquet(raw: Path, into: Path, shard_size: int) -> None:
    import datasets

    datasets.disable_progress_bars()
    features = datasets.Features({"image": datasets.Image()})
    into.mkdir()
    rows: list[dict[str, Any]] = []
    size = shards = 0

    def flush() -> None:
        nonlocal rows, size, shards
        columns = {"image": rows}
        datasets.Dataset.from_dict(columns, features=features).to_parquet(into / f"train-{shards:05d}.parquet")
        rows, size, shards = [], 0, shards + 1

    for key, data in images(raw):
        if rows and size + len(data) > shard_size:
            flush()
        rows.append({"bytes": data, "path": f"{key}.jpg"})
        size += len(data)
    if rows:
        flush()


FORMATS: dict[str, Callable[[Path, Path, int], None]] = {"mds": write_mds, "litdata": write_litdata, "parquet": write_parquet}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shard-size", type=int, required=True, help="bytes of a shard, about")
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS), help="only these")
    options = parser.parse_args()
    failed = 0
    for name in options.formats:
        write = FORMATS[name]
        into = options.folder / name
        if into.exists():
            continue
        making = options.folder / f".{name}.{os.getpid()}"
        try:
            write(options.folder / "raw", making, options.shard_size)
            making.rename(into)
        except Exception as error:  # the contestant will be left out
            shutil.rmtree(making, ignore_errors=True)
            print(f"data.py: {name} cannot be made: {type(error).__name__}: {error}", file=sys.stderr)
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
