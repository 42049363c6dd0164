"""The page of `millrace bench` as a browser draws it: headless Chromium, if it is installed."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cli_support import Millrace

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
SHORT = [
    "--seconds",
    "0.1",
    "--repeats",
    "2",
    "--batch",
    "16",
    "--size",
    "64",
    "--memory",
    "64MiB",
    "--threads",
    "1,2",
    "--samples",
    "80",
]

# In the place of Python: what any other loader might say of the images, whose means may be any.
RIVAL = """#!/bin/sh
echo '{"first_batch_seconds": 1, "pixels": {"samples": 80, "mean": 100, "deviation": 10000, "whole_epoch": true},' \\
  '"versions": {"torch": "2.13.0", "s3torchconnector": "1.5.0"}, "windows": [{"seconds": 1, "samples": 1234, "cpu_seconds": 5.67},' \\
  '{"seconds": 1, "samples": 1357, "cpu_seconds": 5.67}]}'
"""

# The script finds the place of each thing. Texts of a plot are compared with its frame, and with each other.
LOOK = """<script>
const box = one => { const r = one.getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom]; };
const found = {
  width: document.documentElement.scrollWidth, window: [innerWidth, innerHeight], limit: box(document.querySelector(".limit")),
  tiles: [...document.querySelectorAll(".tile")].map(box),
  plots: [...document.querySelectorAll("svg")].map(svg => ({
    frame: box(svg), texts: [...svg.querySelectorAll("text")].map(text => ({ text: text.textContent, box: box(text), kind: text.getAttribute("class"), color: getComputedStyle(text).fill })),
    paper: getComputedStyle(document.body).backgroundColor })),
};
document.body.setAttribute("data-found", JSON.stringify(found));
</script></body>"""


def look(page: Path, folder: Path, width: int) -> dict[str, Any]:
    shown = folder / f"shown-{width}.html"
    shown.write_text(page.read_text().replace("</body>", LOOK))
    assert CHROMIUM is not None
    command = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        f"--user-data-dir={folder / f'profile-{width}'}",
    ]
    done = subprocess.run(
        [*command, f"--window-size={width},900", "--dump-dom", shown.as_uri()],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    said = re.search(r'data-found="([^"]*)"', done.stdout)
    assert said, (done.stdout[-500:], done.stderr[-500:])
    found: dict[str, Any] = json.loads(html.unescape(said[1]))
    return found


def overlap(one: list[float], other: list[float]) -> bool:
    """By more than a pixel in both directions."""
    return min(one[2], other[2]) - max(one[0], other[0]) > 1 and min(one[3], other[3]) - max(one[1], other[1]) > 1


@pytest.mark.all
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
@pytest.mark.parametrize("width", [1000, 500])
def test_a_browser_shows_all_of_it(millrace: Millrace, tmp_path: Path, width: int) -> None:
    page, rivals = tmp_path / "report.html", tmp_path / "rivals"
    for name in (
        "dataloader",
        "s3torchconnector",
        "webdataset",
        "mosaicml",
        "litdata",
        "spdl",
        "huggingface",
        "tfdata",
    ):
        python = rivals / name / "bin/python"
        python.parent.mkdir(parents=True)
        python.write_text(RIVAL)
        python.chmod(0o755)
    beside = ["--rival", "all", "--rival-environments", rivals]  # the other ones are left out
    millrace(
        "bench",
        "--synthetic",
        "--first-byte-ms",
        "5",
        "--scenario",
        "all",
        *SHORT,
        *beside,
        "--html",
        page,
        env={"MILLRACE_CACHE": str(tmp_path / "cache"), "MILLRACE_PYTHON": "/bin/false"},
    )
    found = look(page, tmp_path, width)
    assert found["window"][0] == width and found["width"] <= width  # nothing is cut off, nor to be scrolled to the side
    assert 0 <= found["limit"][1] < found["limit"][3] < found["window"][1]  # what limits is seen at once
    assert all(right > left and bottom > top for left, top, right, bottom in found["tiles"])
    assert len(found["plots"]) == 11
    for plot in found["plots"]:
        left, top, right, bottom = plot["frame"]
        assert right - left > width / 2 and bottom - top > 20
        for text in plot["texts"]:
            x0, y0, x1, y1 = text["box"]
            assert left - 1 <= x0 < x1 <= right + 1 and top - 1 <= y0 < y1 <= bottom + 1, text
            assert text["color"] != plot["paper"] or text["kind"] == "share", text  # these stand on bars
        boxes = [(text["text"], text["box"]) for text in plot["texts"]]
        for number, (said, box) in enumerate(boxes):
            for other, beside in boxes[number + 1 :]:
                assert not overlap(box, beside), (said, other)
