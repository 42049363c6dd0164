"""Draws plots as inline SVG. Colors and fonts come from the style of the page: classes axis, grid, line-0 to line-3,
reference, bar, ours (a bar), spread, share, and share-0 to share-8."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ._markup import Markup, element, join

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 72, WIDTH - 20, 16, HEIGHT - 48  # of the frame
NAME_ROW = 18  # of the names of lines, two in a row


@dataclass
class Point:
    x: float
    y: float
    least: float  # of the repeats; the same as most: no bar is drawn
    most: float
    text: str  # how x is written below the axis; "": it is not written


@dataclass
class Line:
    name: str = ""  # of some thirty characters; shown if there are several lines
    points: list[Point] = field(default_factory=list)  # ascending in x


@dataclass
class Plot:
    title: str  # read out in place of the plot
    x_name: str
    y_name: str
    lines: list[Line]  # over the x of the first line, or over some of them; at most four
    references: list[tuple[float, str]] = field(default_factory=list)  # horizontal lines to compare with
    log_x: bool = False  # then all x are greater than 0


@dataclass
class Bar:
    name: str  # of some twenty characters
    value: float
    least: float
    most: float
    text: str  # of the value
    is_ours: bool = False


def tick_step(most: float) -> float:
    """Returns a round step of which two to five make up the range."""
    power = 10.0 ** math.floor(math.log10(most / 5))
    return next((factor * power for factor in (1, 2, 5) if most / 5 <= factor * power), 10 * power)


def tick_text(value: float) -> str:
    return f"{value:.3g}" if value != math.floor(value) or value >= 1e15 else f"{value:,.0f}"


class Scale:
    """Converts values to places in the drawing. The vertical axis begins at zero."""

    def __init__(self, plot: Plot) -> None:
        self._log = plot.log_x
        values = [value for line in plot.lines for point in line.points for value in (point.y, point.most)]
        most = max([*values, *(y for y, _ in plot.references)])
        most = most if most > 0 else 1
        self.step = tick_step(most)
        self.top = math.ceil(most * 1.02 / self.step) * self.step
        points = plot.lines[0].points
        self._first, self._last = self._place(points[0].x), self._place(points[-1].x)

    def _place(self, x: float) -> float:
        return math.log2(max(x, 1e-9)) if self._log else x

    def x(self, value: float) -> float:
        if self._last <= self._first:
            return (LEFT + RIGHT) / 2
        margin = 0.06  # points do not touch the axes
        share = (self._place(value) - self._first) / (self._last - self._first)
        return LEFT + (RIGHT - LEFT) * (margin + (1 - 2 * margin) * share)

    def y(self, value: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * value / self.top


def _picture(title: str, left: float, top: float, width: float, height: float, *content: str) -> Markup:
    view = f"{left:g} {top:g} {width:g} {height:g}"
    return join([element("svg", *content, viewBox=view, role="img", aria_label=title), "\n"])


def _frame(plot: Plot, scale: Scale) -> list[str]:
    parts: list[str] = []
    for number in range(math.floor(scale.top * 1.0001 / scale.step) + 1):
        y = scale.y(number * scale.step)
        parts.append(element("line", class_="grid", x1=LEFT, x2=RIGHT, y1=y, y2=y))
        text = tick_text(number * scale.step)
        parts.append(element("text", text, class_="axis", x=LEFT - 8, y=y + 4, text_anchor="end"))
    for point in plot.lines[0].points:
        if point.text:
            x = scale.x(point.x)
            parts.append(element("text", point.text, class_="axis", x=x, y=BOTTOM + 18, text_anchor="middle"))
    middle = (LEFT + RIGHT) / 2
    parts.append(element("text", plot.x_name, class_="axis", x=middle, y=HEIGHT - 8, text_anchor="middle"))
    middle = (TOP + BOTTOM) / 2
    turned = {"text_anchor": "middle", "transform": f"rotate(-90 14 {middle:g})"}
    parts.append(element("text", plot.y_name, class_="axis", x=14, y=middle, **turned))
    return parts


def _line(line: Line, scale: Scale, number: int) -> Markup:
    parts: list[str] = []
    if len(line.points) > 1:
        path = " ".join(f"{scale.x(point.x):.1f},{scale.y(point.y):.1f}" for point in line.points)
        parts.append(element("polyline", points=path))
    for point in line.points:
        x = scale.x(point.x)
        if point.most > point.least:
            parts.append(element("line", x1=x, x2=x, y1=scale.y(point.least), y2=scale.y(point.most)))
        if point.text or len(line.points) <= 20:  # a dense curve needs no marks
            title = element("title", f"{point.text}: {point.y:.4g}")
            parts.append(element("circle", title, cx=x, cy=scale.y(point.y), r=4.5))
    return element("g", *parts, class_=f"line-{number}")


def _name(line: Line, number: int, height: float) -> list[str]:
    """Draws the name of a line above the frame, where no line is."""
    x = LEFT if number % 2 == 0 else (LEFT + RIGHT) / 2
    y = NAME_ROW * (number // 2 + 0.5) - height
    return [
        element("g", element("line", x1=x, x2=x + 22, y1=y, y2=y), class_=f"line-{number}"),
        element("text", line.name, class_=f"line-{number}", x=x + 30, y=y + 4),
    ]


def draw_lines(plot: Plot) -> Markup:
    scale = Scale(plot)
    named = plot.lines if len(plot.lines) > 1 else []
    height = NAME_ROW * ((len(named) + 1) // 2)
    parts = _frame(plot, scale)
    for value, text in plot.references:
        y = scale.y(value)
        parts.append(element("line", class_="reference", x1=LEFT, x2=RIGHT, y1=y, y2=y))
        parts.append(element("text", text, class_="reference", x=LEFT + 6, y=y - 5))
    parts += [_line(line, scale, number) for number, line in enumerate(plot.lines)]
    for number, line in enumerate(named):
        parts += _name(line, number, height)
    return _picture(plot.title, 0, -height, WIDTH, HEIGHT + height, *parts)


def draw_bars(title: str, bars: list[Bar]) -> Markup:
    """Draws bars, top down, each with its name before it and its value behind it."""
    left, room, row = 140, 70, 22  # the names to the left, the values to the right, and the height
    most = max(max(bar.value, bar.most) for bar in bars)
    scale = (WIDTH - left - room) / most if most > 0 else 0
    parts: list[str] = []
    for number, bar in enumerate(bars):
        y = row * number
        parts.append(element("text", bar.name, class_="axis", x=left - 8, y=y + row / 2 + 4, text_anchor="end"))
        shape = {"x": left, "y": y + 3, "width": scale * bar.value, "height": row - 6}
        kind = "ours" if bar.is_ours else "bar"
        parts.append(element("rect", element("title", f"{bar.name}: {bar.text}"), class_=kind, **shape))
        if bar.most > bar.least:
            ends = {"x1": left + scale * bar.least, "x2": left + scale * bar.most}
            parts.append(element("line", class_="spread", y1=y + row / 2, y2=y + row / 2, **ends))
        end = left + scale * max(bar.value, bar.most) + 6
        parts.append(element("text", bar.text, class_="axis", x=end, y=y + row / 2 + 4))
    return _picture(title, 0, 0, WIDTH, row * len(bars), *parts)


def draw_shares(title: str, shares: dict[str, float]) -> Markup:
    """Draws one bar that is divided by shares. Shares with enough room have their names."""
    whole = sum(shares.values())
    parts: list[str] = []
    x = 0.0
    for number, (name, value) in enumerate(shares.items() if whole > 0 else ()):
        width = WIDTH * value / whole
        shape = {"x": x, "y": 0, "width": max(0.0, width - 1), "height": 44}
        parts.append(element("rect", element("title", name), class_=f"share-{number % 9}", **shape))
        text = f"{name} {100 * value / whole:.0f} %"
        if len(text) <= (width - 12) / 7:
            parts.append(element("text", text, class_="share", x=x + 8, y=27))
        x += width
    return _picture(title, 0, 0, WIDTH, 44, *parts)
