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
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src/diagnose/rivals"))

from rival_copies import WRITERS, images_below

FORMATS = ("mds", "litdata", "parquet")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shard-size", type=int, required=True, help="bytes of a shard, about")
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS), help="only these")
    options = parser.parse_args()
    failed = 0
    for name in options.formats:
        into = options.folder / name
        if into.exists():
            continue
        making = options.folder / f".{name}.{os.getpid()}"
        try:
            WRITERS[name](images_below(options.folder / "raw"), making, options.shard_size)
            making.rename(into)
        except Exception as error:  # the contestant will be left out
            shutil.rmtree(making, ignore_errors=True)
            print(f"data.py: {name} cannot be made: {type(error).__name__}: {error}", file=sys.stderr)
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
