"""The writer and the reader of the package mosaicml-streaming, without what they need for clouds and clusters.

The package depends on the clients of five clouds and more, for parts that are not used here. It is installed without its
dependencies, and modules of these names stand in for them.
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

STANDING_IN = {
    "brotli": [],
    "snappy": [],
    "zstd": ["compress", "decompress"],
    "streaming.base.storage": [],
    "streaming.base.storage.upload": ["CloudUploader"],
    "streaming.base.util": ["bytes_to_int"],
}


class _Uploader:
    """Stands in for streaming.base.storage.upload: all is kept where it is written."""

    def __init__(self, out: str) -> None:
        Path(out).mkdir(parents=True)
        self.local, self.remote = out, None

    @classmethod
    def get(cls, out: str, *_: Any, **__: Any) -> _Uploader:
        return cls(out)

    def upload_file(self, *_: Any) -> None:
        pass


@functools.cache
def load() -> tuple[type, type]:
    """MDSWriter and MDSReader."""
    found = importlib.util.find_spec("streaming")
    if found is None or found.submodule_search_locations is None:
        raise ModuleNotFoundError("mosaicml-streaming is not installed: run scripts/setup")
    root = list(found.submodule_search_locations)[0]
    for name in ("streaming", "streaming.base", "streaming.base.format"):  # whose __init__ would load all of it
        package = types.ModuleType(name)
        package.__path__ = [root + name.removeprefix("streaming").replace(".", "/")]
        package.__spec__ = importlib.machinery.ModuleSpec(
            name, None, is_package=True
        )  # for another copy of this module
        package.__spec__.submodule_search_locations = package.__path__
        sys.modules[name] = package
    for name, members in STANDING_IN.items():
        module = types.ModuleType(name)
        for member in members:
            setattr(module, member, _Uploader if member == "CloudUploader" else int)
        sys.modules[name] = module
    from streaming.base.format.mds.reader import MDSReader
    from streaming.base.format.mds.writer import MDSWriter

    for name in STANDING_IN:  # others shall not take them for the real ones
        del sys.modules[name]
    return MDSWriter, MDSReader
