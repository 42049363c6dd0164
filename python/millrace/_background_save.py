"""This module has a save that runs beside the training."""

from __future__ import annotations

import atexit
import sys
import threading
from typing import Any

_untold: dict[object, str] = {}  # errors of saves in the background that no call has raised yet


def _tell_untold() -> None:
    for text in _untold.values():
        print(
            f"millrace: a save in the background failed, and the program ended without a call that would have raised it (wait()): {text}",
            file=sys.stderr,
        )


atexit.register(_tell_untold)  # which the interpreter calls when all such saves have ended


class BackgroundSave:
    """Represents a call that runs on a thread of its own. The interpreter waits for it before it ends."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._key = object()
        self._error: BaseException | None = None
        self._taken = threading.Lock()  # the thread that runs the call takes it and never releases it
        self._is_started = False
        self._thread = threading.Thread(target=self._run, name="millrace-save")

    def start(self) -> None:
        self._thread.start()
        self._is_started = True

    def cancel(self) -> bool:
        """Returns True if the call will never run. False: it runs, or it has run."""
        return self._taken.acquire(blocking=False)

    def _run(self) -> bool:
        """Runs the call. Returns False if another thread runs it or has run it."""
        if not self._taken.acquire(blocking=False):
            return False
        try:
            self._call()
        except BaseException as error:
            self._error = error
            _untold[self._key] = f"{type(error).__name__}: {error}"
        finally:
            self._call = None  # this also frees the copy
        return True

    def join(self) -> None:
        # The handler of a signal may run in the middle of start(). It would wait for a thread that starts only after it returns.
        if self._is_started or not self._run():
            self._thread.join()

    def raise_error(self) -> None:
        """Raises the error of the call, if it failed. Call it after :meth:`join`."""
        _untold.pop(self._key, None)
        if self._error is not None:
            raise self._error
