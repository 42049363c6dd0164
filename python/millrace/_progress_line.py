"""The progress of long work, on a terminal."""

from __future__ import annotations

import sys
import time

_STAGED_FROM = 1 << 30  # bytes
_LONG_SECONDS = 60


class ProgressLine:
    """Represents one line on stderr, redrawn in place. ``is_data``: it may be an index that a Loader with
    ``start="staged"`` need not wait for."""

    def __init__(self, name: str, is_data: bool = False) -> None:
        self._name = name
        self._width = 0
        self._begin: float | None = None
        self._may_advise = is_data

    def update(self, done: int, total: int) -> None:
        """Shows the progress of an index that is built."""
        self._advise(done, total, time.monotonic())
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

    def _advise(self, done: int, total: int, now: float) -> None:
        """Prints the line once, when a hundredth of the work shows that the rest takes long."""
        if self._begin is None:
            self._begin = now
        if not self._may_advise or total < _STAGED_FROM or done < total // 100 or done == 0:
            return
        self._may_advise = False
        left = (now - self._begin) * (total - done) / done
        if left < _LONG_SECONDS:
            return
        self.clear()
        sys.stderr.write(
            f"indexing {self._name} takes about {left / 60:,.0f} minutes more; millrace.Loader(..., start='staged') begins after 256 MiB, and "
            "indexes the rest meanwhile\n"
        )
        self._width = 0
