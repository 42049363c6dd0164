#!/usr/bin/env python3
"""Writes the licences of nanobind, which is compiled into the Python module, and of robin-map, which nanobind brings, into a folder.

usage: nanobind_licences.py FOLDER        by the Python that has nanobind
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
from pathlib import Path


def main(arguments: list[str]) -> None:
    if len(arguments) != 1 or arguments[0].startswith("-"):
        sys.exit(__doc__)
    folder = Path(arguments[0])
    files = {file.name: file for file in importlib.metadata.files("nanobind") or []}
    (folder / "nanobind.copyright").write_text(files["LICENSE"].read_text())
    # The licence of robin-map is the comment at the head of its files.
    head = re.match(r"/\*\*\n(.*?)\n \*/", files["robin_map.h"].read_text(), re.DOTALL)
    if head is None:
        sys.exit("nanobind_licences: robin_map.h does not begin with its licence")
    (folder / "robin-map.copyright").write_text(re.sub(r"^ \* ?", "", head[1], flags=re.MULTILINE) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
