"""HTML and SVG as text. Imports nothing of this package: tools/pictures.py draws with it, too."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

# name: for light pages, for dark pages
COLORS = {
    "ink": ("#1c2733", "#e6ebf0"),
    "soft": ("#5b6875", "#9aa7b4"),
    "paper": ("#ffffff", "#12181f"),
    "band": ("#f2f5f8", "#1b242e"),
    "grid": ("#dfe5ea", "#2c3947"),
    "main": ("#0b6e99", "#58b7e0"),
    "other": ("#b3541e", "#e59866"),
    "third": ("#4f6b1d", "#a3c25e"),
    "fourth": ("#7d2f6e", "#d48ac6"),
    "bar": ("#a9b4be", "#5b6875"),
    "glow": ("#fbe3d3", "#4a2d1a"),
}


def colors_style() -> str:
    """Returns the colors as variables of CSS, such as var(--ink)."""
    light, dark = (" ".join(f"--{name}: {pair[i]};" for name, pair in COLORS.items()) for i in (0, 1))
    return f":root {{ {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"


class Markup(str):
    """Represents text that is markup already."""


def element(tag: str, *content: str, **attributes: object) -> Markup:
    """Content and attributes are escaped, except Markup. ``text_anchor`` is the attribute text-anchor, and ``class_`` is class."""
    words = [tag]
    for name, value in attributes.items():
        text = f"{round(value, 1):g}" if isinstance(value, float) else str(value)
        words.append(f'{name.rstrip("_").replace("_", "-")}="{plain(text)}"')
    inside = "".join(one if isinstance(one, Markup) else plain(one) for one in content)
    return Markup(f"<{' '.join(words)}>{inside}</{tag}>" if inside else f"<{' '.join(words)}/>")


def plain(text: str) -> str:
    """Returns markup that shows the text. XML does not have control characters."""
    return escape(re.sub(r"[\x00-\x1f]", " ", text))


def join(pieces: Iterable[str]) -> Markup:
    return Markup("".join(pieces))
