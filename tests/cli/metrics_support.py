"""Reading metrics in tests, without the code that `millrace top` uses."""

from __future__ import annotations

import re
import urllib.request
from typing import IO

Labels = tuple[tuple[str, str], ...]
_SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')


def url_of(stderr: IO[str]) -> str:
    """Where a process serves its metrics, as it says on stderr."""
    for line in stderr:
        if found := re.match(r"metrics: (http://\S+)$", line):
            return found[1]
    raise AssertionError("it has not said where its metrics are")


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=120) as answer:
        text: str = answer.read().decode()
        return text


def parse(text: str) -> dict[tuple[str, Labels], float]:
    values = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        found = _SAMPLE.match(line)
        assert found, line
        values[found[1], tuple(sorted(_LABEL.findall(found[2] or "")))] = float(found[3])
    return values


def values(text: str, name: str, label: str | None = None) -> dict[str, float]:
    """All values of a metric, by one of its labels."""
    return {dict(labels).get(label or "", ""): value for (each, labels), value in parse(text).items() if each == name}
