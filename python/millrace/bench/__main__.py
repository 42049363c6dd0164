"""python -m millrace.bench FIGURES PAGE: reads what the command has measured, as JSON, and writes the page."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from ._page import draw_page

if __name__ == "__main__":
    figures, page = sys.argv[1:]
    Path(page).write_text(draw_page(json.loads(Path(figures).read_text(encoding="utf-8"))), encoding="utf-8")
