"""A place of samples and its index."""

from __future__ import annotations

import os
import sys
from typing import Callable

from . import _arguments, _core


class Dataset:
    """The samples under a URI: shards (WebDataset tar, TFRecord, RecordIO, MDS) or raw objects, one a sample.

    Opening reads the index; when there is none yet, it is built, which reads all data once, and stored beside the data or in the cache
    folder (``$MILLRACE_CACHE``, ``~/.cache/millrace``). ``millrace index URI`` does the same ahead of time.
    Immutable and thread-safe. Pickling keeps the URI: the copy opens it again, so a data set may be sent to spawned workers.

    Args:
        uri: ``s3://bucket/prefix``, ``file:///folder`` or a plain path.
        progress: Whether to show progress on stderr while an index is built. ``None``: when stderr is a terminal.

    Raises:
        NotFoundError: No such bucket or folder, or no samples in it.
        AccessDeniedError: The store refuses these credentials.
        DamagedDataError: A shard is truncated or corrupt; the message names object and offset.
        MismatchError: The index no longer matches its objects; the message says what to do.
    """

    def __init__(self, uri: str | os.PathLike[str], *, progress: bool | None = None) -> None:
        uri = _arguments.uri("uri", uri)
        self._progress = progress
        show = sys.stderr.isatty() if progress is None else progress
        line = _ProgressLine(uri) if show else None
        try:
            self._native = _core.Dataset(uri, line.update if line else None)
        finally:
            if line:
                line.clear()

    def __len__(self) -> int:
        """Samples."""
        return len(self._native)

    def __repr__(self) -> str:
        return f"<millrace.Dataset {self.uri}: {len(self):,} samples, fields {', '.join(self.fields)}>"

    def __reduce__(self) -> tuple[Callable[[str, bool | None], Dataset], tuple[str, bool | None]]:
        return _open, (self.uri, self._progress)

    @property
    def uri(self) -> str:
        """As it was given."""
        return self._native.uri

    @property
    def kind(self) -> str:
        """``"tar"``, ``"tfrecord"``, ``"recordio"``, ``"mds"`` or ``"raw"``."""
        return self._native.kind

    @property
    def fields(self) -> list[str]:
        """Names of all fields that occur, sorted: ``["cls", "jpg"]``. A raw object's folder is its field ``cls``."""
        return self._native.fields

    @property
    def classes(self) -> list[str]:
        """Folders of raw objects, sorted: label i is ``classes[i]``. Empty for shards, which hold numbers only."""
        return self._native.classes

    @property
    def class_counts(self) -> dict[str, int]:
        """Samples of each class: by folder (raw objects) or by number (shards); empty without numeric ``cls``."""
        return self._native.class_counts

    @property
    def objects(self) -> int:
        """Objects in the store that hold the samples."""
        return self._native.objects

    @property
    def total_bytes(self) -> int:
        """Bytes that one epoch reads."""
        return self._native.total_bytes

    @property
    def fingerprint(self) -> str:
        """Identifies the samples and their order, as 16 hex digits; equal for equal data, wherever they lie."""
        return f"{self._native.fingerprint:016x}"


def _open(uri: str, progress: bool | None) -> Dataset:
    return Dataset(uri, progress=progress)


class _ProgressLine:
    """One line on stderr, redrawn in place."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._width = 0

    def update(self, done: int, total: int) -> None:
        share = f", {100 * done // total} %" if total else ""
        text = f"indexing {self._uri}: {done / 2**20:,.1f} MiB{share}"
        sys.stderr.write("\r" + text.ljust(self._width))
        sys.stderr.flush()
        self._width = len(text)

    def clear(self) -> None:
        if self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()
