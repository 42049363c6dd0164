"""Where the Python package under test is."""

from __future__ import annotations

import os
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[1]


def folder() -> pathlib.Path:
    """MILLRACE_BINARY_DIR's, else the developer's build, else the newest build there is."""
    if "MILLRACE_BINARY_DIR" in os.environ:
        return pathlib.Path(os.environ["MILLRACE_BINARY_DIR"]) / "python"
    preferred = ROOT / "build/dev/python"
    if list(preferred.glob("millrace/_core*.so")):
        return preferred
    built = sorted(ROOT.glob("build/*/python/millrace/_core*.so"), key=lambda path: path.stat().st_mtime)
    if not built:
        raise FileNotFoundError("no Python module: build the target `millrace_python`, or set MILLRACE_BINARY_DIR")
    return built[-1].parents[1]
