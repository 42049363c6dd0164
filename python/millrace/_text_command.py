"""The program that ``millrace pack --tokenizer`` starts (src/cli/pack_text.cc)."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from ._errors import BY_CODE, Error
from ._progress_line import ProgressLine
from ._text_corpus import pack_text


class _Progress:
    """Represents progress on a terminal, or for the program that reads MILLRACE_REPORT_FD."""

    def __init__(self) -> None:
        self._told_at = 0.0
        self._report = _report_descriptor()
        self._line = ProgressLine("texts") if self._report is None and sys.stderr.isatty() else None

    def __call__(self, work: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._told_at < 0.1:
            return
        self._told_at = now
        if self._report is not None:
            tell(self._report, {"work": work, "done": done, "total": total, "unit": "bytes"})
        elif self._line is not None:
            self._line.show(work, done, total, is_bytes=True)

    def end(self) -> None:
        if self._line is not None:
            self._line.clear()

    def tell_error(self, error: Error) -> None:
        if self._report is not None:
            code = next((code for code, kind in BY_CODE.items() if type(error) is kind), "UNKNOWN")
            tell(self._report, {"code": code, "error": str(error)})


def _report_descriptor() -> int | None:
    text = os.environ.get("MILLRACE_REPORT_FD", "")
    return int(text) if text.isdecimal() and int(text) > 2 else None


def tell(descriptor: int, line: dict[str, Any]) -> None:
    try:
        os.write(descriptor, json.dumps(line).encode() + b"\n")
    except OSError:  # the reader is gone
        pass


def main(options: str) -> None:
    """Packs texts. ``options`` is JSON."""
    given = json.loads(options)
    as_json = given.pop("json")
    progress = _Progress()
    start = time.monotonic()
    try:
        report = pack_text(
            given.pop("source"), given.pop("destination"), given.pop("tokenizer"), **given, progress=progress
        )
    except Error as error:
        progress.end()
        progress.tell_error(error)
        print(f"millrace pack: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        progress.end()
        print("millrace pack: interrupted; run the same command again to continue", file=sys.stderr)
        sys.exit(130)
    progress.end()
    report["seconds"] = round(time.monotonic() - start, 3)
    for text in report["first_skipped"][:10]:
        print(f"millrace pack: warning: left out: {text}", file=sys.stderr)
    if as_json:
        print(json.dumps(report))
        return
    rate = report["tokens"] / max(report["seconds"], 1e-3)
    done = "already packed: " if report["already_packed"] else ""
    print(
        f"{done}{report['tokens']:,} tokens of {report['documents']:,} documents in {report['files']} files, as {report['dtype']}"
        + ("" if report["already_packed"] else f", in {report['seconds']:.1f} s ({rate:,.0f}/s)")
    )
