"""The progress of long work, on a terminal."""

from __future__ import annotations

import sys


class ProgressLine:
    """One line on stderr, redrawn in place."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._width = 0

    def update(self, done: int, total: int) -> None:
        """Shows the progress of an index that is built."""
        self.show(f"indexing {self._name}", done, total, is_bytes=True)

    def show(self, work: str, done: int, total: int, is_bytes: bool) -> None:
        share = f", {100 * done // total} %" if total else ""
        text = f"{work}: " + (f"{done / 2**20:,.1f} MiB" if is_bytes else f"{done:,}") + share
        sys.stderr.write("\r" + text.ljust(self._width))
        sys.stderr.flush()
        self._width = len(text)

    def clear(self) -> None:
        if self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()
