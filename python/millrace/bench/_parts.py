"""Parts of the sections of the page: numbers as text, and tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ._markup import Markup, element, join

Figures = dict[str, Any]  # a part of what the command has measured


def short(value: float) -> str:
    """Returns a number with three digits, or with all digits before the point: ``12.3`` or ``1,234``."""
    return f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}"


def size(count: float) -> str:
    """Returns a size such as ``1.5 KiB``."""
    if count < 1024:
        return f"{count} B"
    unit = 0
    while count >= 1024 and unit < 4:
        count /= 1024
        unit += 1
    return f"{count:.1f} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[unit]}"


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def spread(figure: Figures) -> str:
    if figure["least"] == figure["most"]:
        return short(figure["median"])
    return f"{short(figure['median'])} ({short(figure['least'])} to {short(figure['most'])})"


def row(cells: Iterable[object], kind: str = "td") -> Markup:
    return join([element("tr", *(element(kind, str(cell)) for cell in cells)), "\n"])


def note_row(name: str, text: str, columns: int = 1) -> Markup:
    """Returns a row whose second cell is a sentence."""
    wide = {"colspan": columns} if columns > 1 else {}
    return join([element("tr", element("td", name), element("td", text, class_="note", **wide)), "\n"])


def table(head: Iterable[object], rows: Iterable[Markup], wide: bool = False) -> Markup:
    """Returns a table. A ``wide`` table is scrolled to the side on a narrow screen."""
    whole = element("table", row(head, "th") if head else Markup(), *rows)
    return join([element("div", whole, class_="wide") if wide else whole, "\n"])


def note(*text: str) -> Markup:
    return join([element("p", *text, class_="note"), "\n"])


def heading(text: str, level: int = 2) -> Markup:
    return join([element(f"h{level}", text), "\n"])


def rate_table(points: Iterable[Figures]) -> Markup:
    names = ["", "samples/s", "per vCPU", "MB/s", "CPU-s per 1,000", "busy CPUs (others)", "GETs per 1,000"]
    return table([*names, "batch p50, ms", "batch p99, ms", "peak RSS"], map(_rate_row, points), wide=True)


def _rate_row(point: Figures) -> Markup:
    middle = {
        name: figure["median"] for name, figure in point.items() if isinstance(figure, dict) and "median" in figure
    }
    return row(
        [
            point["name"],
            spread(point["samples_per_second"]),
            short(point["samples_per_second_per_vcpu"]),
            short(middle["bytes_per_second"] / 1e6),
            short(middle["cpu_seconds_per_1000_samples"]),
            f"{middle['busy_cpus']:.2f} ({middle['other_busy_cpus']:.2f})",
            short(middle["gets_per_1000_samples"]),
            short(middle["batch_p50_ms"]),
            short(middle["batch_p99_ms"]),
            size(point["peak_rss_bytes"]),
        ]
    )


def rate(point: Figures) -> float:
    median: float = point["samples_per_second"]["median"]
    return median


def fastest(points: Iterable[Figures]) -> Figures | None:
    """Returns the first of the fastest points."""
    return max(points, key=rate, default=None)
