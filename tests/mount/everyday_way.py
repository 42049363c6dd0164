"""A way to copy or to make files, for everyday.py."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Way:
    name: str
    script: str  # of bash, or, if `is_python`, of Python; $SRC has a folder of files on a local disk
    is_python: bool = False
    needs: tuple[str, ...] = ()  # programs, and modules of Python
    compares: bool = True  # the trees must be the same, byte for byte
    group: str = field(default="", compare=False)


def shell(name: str, *needs: str, script: str, compares: bool = True) -> Way:
    return Way(name, script, False, needs, compares)


def python(name: str, *needs: str, script: str, compares: bool = True) -> Way:
    return Way(name, script, True, needs, compares)
