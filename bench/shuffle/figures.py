"""Draws pictures of shuffle_quality.py: charts as SVG, and batches as pixels of a PNG. The same numbers give the same
bytes."""

from __future__ import annotations

import colorsys
import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

COLOURS = ["#33658a", "#d1495b", "#e08e1d", "#5b8c5a", "#7d5ba6", "#777777"]


@dataclass
class Line:
    name: str
    points: Sequence[tuple[float, float]]


@dataclass
class Axis:
    label: str
    ticks: Sequence[tuple[float, str]]
    low: float
    high: float
    log: bool = False

    def place(self, value: float) -> float:
        """0 to 1."""
        if not self.log:
            return (value - self.low) / (self.high - self.low)
        return math.log(value / self.low) / math.log(self.high / self.low)


def chart(path: Path, title: str, x: Axis, y: Axis, lines: Sequence[Line]) -> None:
    left, top, width, height = 70, 44, 520, 300
    out = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 820 410" font-family="Helvetica, Arial, sans-serif" font-size="13">',
        '<rect width="820" height="410" fill="#ffffff"/>',
        f'<text x="{left}" y="24" font-size="15" font-weight="bold" fill="#1d2b36">{title}</text>',
    ]
    for value, text in x.ticks:
        at = left + width * x.place(value)
        out.append(f'<path d="M{at:.1f} {top}V{top + height}" stroke="#e3e8ec"/>')
        out.append(f'<text x="{at:.1f}" y="{top + height + 18}" text-anchor="middle" fill="#1d2b36">{text}</text>')
    for value, text in y.ticks:
        at = top + height * (1 - y.place(value))
        out.append(f'<path d="M{left} {at:.1f}H{left + width}" stroke="#e3e8ec"/>')
        out.append(f'<text x="{left - 8}" y="{at + 4:.1f}" text-anchor="end" fill="#1d2b36">{text}</text>')
    out.append(
        f'<text x="{left + width / 2}" y="{top + height + 42}" text-anchor="middle" fill="#1d2b36">{x.label}</text>'
    )
    middle = top + height / 2
    out.append(
        f'<text transform="translate(16 {middle}) rotate(-90)" text-anchor="middle" fill="#1d2b36">{y.label}</text>'
    )
    for number, line in enumerate(lines):
        colour = COLOURS[number % len(COLOURS)]
        places = [(left + width * x.place(a), top + height * (1 - y.place(b))) for a, b in line.points]
        path_data = "L".join(f"{a:.1f} {b:.1f}" for a, b in places)
        out.append(f'<path d="M{path_data}" fill="none" stroke="{colour}" stroke-width="2.2"/>')
        if len(places) <= 12:
            out += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3.4" fill="{colour}"/>' for a, b in places]
        row = top + 14 + 22 * number
        out.append(f'<path d="M{left + width + 14} {row - 4}h24" stroke="{colour}" stroke-width="2.6"/>')
        out.append(f'<text x="{left + width + 44}" y="{row}" fill="#1d2b36">{line.name}</text>')
    path.write_text("\n".join([*out, "</svg>", ""]), encoding="utf-8")


def batches(path: Path, labels: Sequence[npt.NDArray[np.int64]], classes: int, gap: int = 8, tall: int = 3) -> None:
    """Each array (batches x samples) becomes a panel with a row for each batch: its samples in order of their classes, coloured by class."""
    hues = [colorsys.hsv_to_rgb(c / classes * 0.85, 0.9, 0.55 + 0.45 * (c * 7 % 5) / 4) for c in range(classes)]
    palette = np.array([[int(255 * part) for part in hue] for hue in hues], np.uint8)
    panels = []
    for panel in labels:
        panels.append(palette[np.sort(panel, axis=1)])
        panels.append(np.full((panel.shape[0], gap, 3), 255, np.uint8))
    write_png(path, np.repeat(np.concatenate(panels[:-1], axis=1), tall, axis=0))


def write_png(path: Path, pixels: npt.NDArray[np.uint8]) -> None:
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")
    )
