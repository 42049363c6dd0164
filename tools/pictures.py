#!/usr/bin/env python3
"""Draws the pictures of README and docs as SVG, in colors for light and dark pages. Rates are read from
bench/published.json, the published part of a report of `millrace bench --json`, and those of caches from docs/tuning.md.

usage: pictures.py            writes all pictures
       pictures.py --check    exits 1 if a picture is not what this program would write
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
sys.path.append(str(ROOT / "python/millrace/bench"))  # the page of `millrace bench` has the same colors

from _markup import Markup, colors_style, element  # noqa: E402

STYLE = (
    colors_style()
    + """
  text { font: 14px Helvetica, Arial, sans-serif; fill: var(--ink) }
  .paper { fill: var(--paper) } .small { font-size: 12px } .head { font-weight: bold } .middle { text-anchor: middle } .end { text-anchor: end }
  .box { fill: var(--band); stroke: var(--main); stroke-width: 1.5 } .ours { fill: var(--glow); stroke: var(--other); stroke-width: 1.5 }
  .open { fill: none; stroke: var(--main); stroke-width: 1.5; stroke-dasharray: 5 4 }
  .arrow { fill: none; stroke: var(--main); stroke-width: 2 } .tip { fill: var(--main) }
  .bar { fill: var(--bar) } .best { fill: var(--main) } .other { fill: var(--other) }
  .line { fill: none; stroke-width: 2.5 } .of-best { stroke: var(--main) } .of-other { stroke: var(--other) }
"""
)


class Picture:
    def __init__(self, width: int, height: int, title: str) -> None:
        shape = {"id": "tip", "viewBox": "0 0 10 10", "refX": 9, "refY": 5, "markerWidth": 7, "markerHeight": 7}
        tip = element("marker", element("path", class_="tip", d="M0 0 10 5 0 10z"), orient="auto", **shape)
        self.size = f"0 0 {width} {height}"
        self.parts = [element("title", title) + element("style", Markup(STYLE)), element("defs", tip)]
        # A page may be dark while the reader's system is light, or the reverse. Without a background, letters would vanish there.
        self.rect(0, 0, width, height, "paper", 0)

    def text(self, x: float, y: float, text: str, kind: str = "") -> None:
        self.parts.append(element("text", text, x=float(x), y=float(y), class_=kind))

    def rect(self, x: float, y: float, width: float, height: float, kind: str, round: int = 6) -> None:
        shape = {"x": float(x), "y": float(y), "width": float(width), "height": float(height)}
        self.parts.append(element("rect", **shape, rx=round, class_=kind))

    def box(self, x: float, y: float, width: float, height: float, lines: list[str], kind: str = "box") -> None:
        """The first line is the head."""
        self.rect(x, y, width, height, kind)
        top = y + height / 2 - 8.5 * (len(lines) - 1) + 5
        for number, line in enumerate(lines):
            self.text(
                x + width / 2,
                top + 17 * number,
                line,
                "middle head" if number == 0 and len(lines) > 1 else "middle small",
            )

    def arrow(self, path: str, label: str = "", at: tuple[float, float] = (0, 0)) -> None:
        self.parts.append(element("path", class_="arrow", d=path, marker_end="url(#tip)"))
        if label:
            self.text(*at, label, "small middle")

    def line(self, points: list[tuple[float, float]], kind: str) -> None:
        self.parts.append(
            element("polyline", points=" ".join(f"{x:g},{y:g}" for x, y in points), class_=f"line of-{kind}")
        )

    def svg(self) -> str:
        lines = Markup("\n" + "\n".join(self.parts) + "\n")
        return element("svg", lines, xmlns="http://www.w3.org/2000/svg", viewBox=self.size, role="img") + "\n"


def rates() -> str:
    """Draws the loaders of the full report; `pictures.py` draws another report if its JSON is put in that place."""
    report = json.loads((ROOT / "bench/published.json").read_text())
    loaders = [report["scenarios"]["d"]["points"][0], *report["rivals"]]
    rows = [(loader["name"], loader["samples_per_second"]["median"]) for loader in loaders]
    assert rows[0][0] == "Millrace" and len(rows) >= 8, rows
    picture = Picture(760, 26 * len(rows) + 66, "Decoded images a second on two vCPUs")
    picture.text(0, 18, "Decoded images a second on two vCPUs, from S3 at 30 ms to first byte", "head")
    for number, (name, rate) in enumerate(rows):
        y = 34 + 26 * number
        picture.text(262, y + 15, name, "end head" if number == 0 else "end")
        picture.rect(270, y, 420 * rate / rows[0][1], 20, "best" if number == 0 else "bar", 2)
        picture.text(276 + 420 * rate / rows[0][1], y + 15, f"{rate:,}", "head" if number == 0 else "")
    picture.text(
        0, 26 * len(rows) + 56, "docs/benchmarks.md: conditions, repeats, CPU time, and where Millrace loses", "small"
    )
    return picture.svg()


def cache() -> str:
    """Draws the table of docs/tuning.md."""
    page = (DOCS / "tuning.md").read_text().partition("## How large a cache?")[2]
    rows = [
        [float(cell) for cell in row]
        for row in re.findall(r"^\| ([\d.]+) % \| ([\d.]+) % \| ([\d.]+) % \| ([\d.]+) % \|", page, re.MULTILINE)
    ]
    assert len(rows) >= 4, rows
    picture = Picture(760, 330, "Share of an epoch's bytes that come from the cache")
    picture.text(0, 18, "Share of an epoch's bytes that come from the cache, by its size", "head")
    left, bottom, width, height = 60, 270, 560, 230
    for share in (0, 25, 50, 75, 100):
        y = bottom - height * share / 100
        picture.text(left - 8, y + 5, f"{share} %", "small end")
        picture.rect(left, y, width, 1, "bar", 0)
    for size, *_ in rows:
        picture.text(left + width * size / 100, bottom + 20, f"{size:.0f} %", "small middle")
    for column, name, kind in [(1, "Millrace, and the optimum", "best"), (2, "LRU", "other")]:
        points = [(left + width * row[0] / 100, bottom - height * row[column] / 100) for row in rows]
        for x, y in points:
            picture.rect(x - 5, y - 5, 10, 10, kind, 5)
        picture.line([(left, bottom), *points], kind)
        picture.text(points[-1][0] + 14, points[-1][1] + 5, name, "small")
    picture.text(left + width / 2, bottom + 44, "Size of the cache, of the data", "small middle")
    return picture.svg()


def data_flow() -> str:
    picture = Picture(940, 300, "From the store to the training loop")
    for x, lines in [
        (20, ["Store", "S3, files, memory", "shards or objects"]),
        (210, ["Fetch", "ahead, in order,", "verified"]),
        (400, ["Decode", "JPEG, PNG; crop,", "resize, normalize"]),
        (590, ["Batches", "on the host", "or on the device"]),
    ]:
        picture.box(x, 110, 130, 80, lines)
    picture.box(774, 110, 156, 80, ["Your training loop", "PyTorch, JAX,", "NumPy"], "ours")
    picture.box(210, 20, 130, 50, ["Index", "where samples are"])
    picture.box(400, 20, 320, 50, ["Plan", "order = f(index, seed, epoch)"])
    picture.rect(210, 230, 510, 50, "open")
    picture.text(465, 252, "One memory budget, few threads, one process", "middle head")
    picture.text(
        465,
        269,
        "each second of waiting has a cause: first byte, body, decode ...",
        "middle small",
    )
    for path in ["M150 150H208", "M340 150H398", "M530 150H588", "M720 150H772", "M85 110V45H208", "M340 45H398"]:
        picture.arrow(path)
    picture.arrow("M500 70C470 95 340 85 300 108")
    return picture.svg()


def window() -> str:
    """The example of docs/plan.md: 27 samples, b = 4, K = 4, L = 2, window 1."""
    picture = Picture(900, 300, "A window of the shuffle")
    picture.text(0, 18, "Extents in the order of the index (4 samples each)", "head")
    for extent in range(7):
        last = min(27, 4 * extent + 4) - 1
        kind = "ours" if extent in (4, 5, 0, 2) else "box"
        picture.box(20 + 122 * extent, 30, 112, 44, [f"extent {extent}", f"{4 * extent} - {last}"], kind)
    picture.text(0, 112, "A window: four extents, drawn by seed and epoch, dealt to two lanes", "head")
    for number, extent in enumerate([4, 5, 0, 2]):
        picture.box(20 + 122 * number, 124, 112, 44, [f"extent {extent}", f"lane {number % 2}"], "ours")
    picture.text(0, 206, "Its samples: each lane is permuted by itself, and the lanes take turns", "head")
    for number, sample in enumerate([16, 21, 17, 8, 1, 23, 19, 11, 0, 20, 2, 9, 18, 22, 3, 10]):
        lane = int(sample // 4 in (5, 2))
        picture.box(20 + 53 * number, 218, 47, 30, [str(sample)], "open" if lane else "ours")
    picture.text(
        0,
        282,
        "Filled: lane 0. Dashed: lane 1. With two ranks, each lane has one reader, and so does each of these extents.",
        "small",
    )
    return picture.svg()


def checkpoint() -> str:
    picture = Picture(900, 250, "How a checkpoint is committed")
    for number, lines in enumerate(
        [
            ["1  read LATEST", "another writer: end"],
            ["2  upload files", "to a new folder"],
            ["3  MANIFEST.json", "if it is not there"],
            ["4  replace LATEST", "if it is unchanged"],
            ["5  remove", "older checkpoints"],
        ]
    ):
        picture.box(20 + 175 * number, 40, 150, 56, lines, "ours" if number == 3 else "box")
        if number:
            picture.arrow(f"M{175 * number - 5} 68H{18 + 175 * number}")
    picture.text(0, 18, "save(): a kill at any moment leaves the newest checkpoint whole", "head")
    picture.arrow("M620 140V100")
    picture.text(620, 158, "This request is the commit.", "middle small")
    picture.text(0, 196, "A process that is believed dead", "head")
    picture.text(
        20,
        218,
        "Its successor has claimed the checkpoints, so LATEST has changed. Step 1 or step 4 of the old process fails: MismatchError.",
        "small",
    )
    picture.text(20, 238, "Files that LATEST does not name are removed by the next claim.", "small")
    return picture.svg()


def run_states() -> str:
    picture = Picture(860, 260, "The states of a job under millrace run")
    picture.box(20, 90, 130, 60, ["Attempt", "the command runs"], "ours")
    picture.box(330, 20, 170, 50, ["Success", "exit status 0"])
    picture.box(330, 95, 170, 50, ["Restart", "after a delay"])
    picture.box(330, 180, 170, 50, ["Elsewhere", "exit status 75"])
    picture.box(670, 95, 170, 50, ["Failure", "the command's status"])
    picture.arrow("M150 105C220 60 260 45 328 45", "status 0", (220, 50))
    picture.arrow("M150 115H328", "crash, hang, kill", (240, 108))
    picture.arrow("M330 135H152")
    picture.arrow("M150 140C220 190 260 205 328 205", "the machine goes away", (210, 212))
    picture.arrow("M500 120H668", "no retries are left", (584, 112))
    return picture.svg()


def tokens() -> str:
    """Documents of 5, 3, 7 and 2 tokens in rows of 8."""
    picture = Picture(820, 290, "Layouts of rows of tokens")
    documents = {"A": 5, "B": 3, "C": 7, "D": 2}
    layouts = {
        "pad: one document a row": ["AAAAA...", "BBB.....", "CCCCCCC.", "DD......"],
        "pack: whole documents, fitted together": ["AAAAABBB", "CCCCCCC.", "DD......"],
        "stream: one line of tokens, cut": ["AAAAABBB", "CCCCCCCD"],
    }
    picture.text(
        0,
        18,
        "Documents: "
        + ", ".join(f"{name} has {length} tokens" for name, length in documents.items())
        + ". Rows have 8.",
        "head",
    )
    for column, (head, rows) in enumerate(layouts.items()):
        x = 270 * column
        picture.text(x, 56, head, "small head")
        for number, row in enumerate(rows):
            for place, name in enumerate(row):
                picture.box(
                    x + 30 * place,
                    70 + 38 * number,
                    28,
                    30,
                    [name if name != "." else ""],
                    "open" if name == "." else "ours" if name in "AC" else "box",
                )
    picture.text(
        0,
        252,
        "Dashed places are padding. With bucket, a row has one document, and the shortest of several lengths that holds it.",
        "small",
    )
    return picture.svg()


def service() -> str:
    picture = Picture(860, 270, "The data service, and a worker that fails")
    picture.box(20, 95, 110, 60, ["Store", "S3"])
    for number, y in enumerate([20, 100, 180]):
        picture.box(
            260,
            y,
            150,
            50,
            [f"Worker {number + 1}", "fetch and decode" if number != 1 else "it has failed"],
            "open" if number == 1 else "box",
        )
        if number != 1:
            picture.arrow(f"M130 {115 + 10 * number}L258 {y + 25}")
            picture.arrow(f"M410 {y + 25}L608 {110 + 15 * number}")
    picture.box(610, 90, 220, 70, ["Trainer", "has all positions,", "joins rows to batches"], "ours")
    picture.arrow("M640 160C600 240 480 235 412 215", "the stream is opened again at the last row received", (600, 252))
    return picture.svg()


PICTURES = {
    "data-flow.svg": data_flow,
    "pictures/cache.svg": cache,
    "pictures/checkpoint.svg": checkpoint,
    "pictures/rates.svg": rates,
    "pictures/run.svg": run_states,
    "pictures/service.svg": service,
    "pictures/tokens.svg": tokens,
    "pictures/window.svg": window,
}


def main() -> int:
    different = []
    for name, draw in PICTURES.items():
        path, svg = DOCS / name, draw()
        if "--check" in sys.argv[1:]:
            if not path.exists() or path.read_text() != svg:
                different.append(name)
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(svg)
    for name in different:
        print(f"docs/{name} is not what tools/pictures.py draws: run it", file=sys.stderr)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
