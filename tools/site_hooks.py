"""For mkdocs: adds the page of commands, which is made of their --help (scripts/docs names the program by MILLRACE_BIN).
The search prefers guides."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File  # type: ignore[import-not-found]

_spec = importlib.util.spec_from_file_location("command_pages", Path(__file__).with_name("command_pages.py"))
assert _spec is not None and _spec.loader is not None
_pages = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_pages)

GUIDES_BOOST = 4


def on_files(files: Any, config: Any) -> Any:
    text = _pages.markdown(os.environ["MILLRACE_BIN"])
    files.append(File.generated(config, "reference/commands.md", content=text))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Ranks the guides before pages that only mention the words of a question."""
    if any(section.title == "Guides" for section in page.ancestors):
        page.meta.setdefault("search", {})["boost"] = GUIDES_BOOST
    return markdown
