"""Values of Python's library in a state (_state.py) that are one text or number: paths, times, complex numbers, bytearrays, members of an Enum.

Nothing is pickled. An Enum is named by its module and its name, as classes are in _containers.py, and its members are found without calling its code.
"""

from __future__ import annotations

import base64
import datetime
import enum
import pathlib
from typing import Any

from ._containers import class_of, lacking

__all__ = ["TAGS", "decoded", "encoded"]

TAGS = ("Path", "datetime", "date", "time", "timedelta", "complex", "bytearray", "Enum")

_PATHS: dict[str, Any] = {
    kind.__name__: kind for kind in (pathlib.PosixPath, pathlib.PurePosixPath, pathlib.PureWindowsPath)
}
_TIMES: dict[str, Any] = {
    kind.__name__: kind for kind in (datetime.datetime, datetime.date, datetime.time, datetime.timedelta)
}
_PLAIN = (int, float, bool, str, type(None))


def encoded(value: Any) -> dict[str, Any] | None:
    """Returns the members of the JSON object of such a value, without its tag's key: {"": tag, ...}. Returns None for other values."""
    kind = type(value)
    if _PATHS.get(kind.__name__) is kind:
        return {"": "Path", "kind": kind.__name__, "of": str(value)}
    if _TIMES.get(kind.__name__) is kind:
        return _time(value)
    if kind is complex:
        return {"": "complex", "of": [repr(value.real), repr(value.imag)]}
    if kind is bytearray:
        return {"": "bytearray", "of": base64.b64encode(value).decode()}
    return _enum(kind, value) if issubclass(kind, enum.Enum) else None


def _enum(kind: Any, member: Any) -> dict[str, Any] | None:
    made = {"": "Enum", "class": [kind.__module__, kind.__qualname__], "of": member.name}
    shown = _shown(member.value)
    if class_of(kind.__module__, kind.__qualname__) is not kind or _members(kind).get(member.name) is not member:
        return None  # a class of a function, or several flags at once
    return made if shown is None else {**made, "value": shown}


def _time(value: Any) -> dict[str, Any] | None:
    tag = type(value).__name__
    if tag == "timedelta":
        return {"": tag, "of": [value.days, value.seconds, value.microseconds]}
    if type(getattr(value, "tzinfo", None)) not in (type(None), datetime.timezone):
        return None  # a zone, whose rules are those of the machine
    return {"": tag, "of": value.isoformat(), "fold": getattr(value, "fold", 0)}


def _shown(value: Any) -> Any:
    """Returns the value of a member of an Enum for programs that lack the class, or None if JSON has no value of its kind."""
    if type(value) in _PLAIN:
        return value
    if type(value) is tuple and all(type(item) in _PLAIN for item in value):
        return list(value)
    return None


def decoded(tag: str, node: dict[str, Any], *, plain: bool, where: str) -> Any:
    """Returns the value that ``node`` describes. With ``plain``, returns a text or number instead, which all programs can read."""
    of = node["of"]
    if tag == "Path":
        return str(of) if plain else _PATHS[node["kind"]](of)
    if tag == "complex":
        return complex(*map(float, of))
    if tag == "bytearray":
        return bytearray(base64.b64decode(of))
    if tag == "timedelta":
        elapsed = datetime.timedelta(*of)
        return elapsed.total_seconds() if plain else elapsed
    if tag == "Enum":
        return _member(node, plain, where)
    if plain:
        return str(of)
    made = _TIMES[tag].fromisoformat(of)
    return made.replace(fold=1) if node["fold"] else made


def _member(node: dict[str, Any], plain: bool, where: str) -> Any:
    module, name = (str(part) for part in node["class"])
    if plain:
        value = node.get("value", node["of"])
        return tuple(value) if isinstance(value, list) else value
    kind = class_of(module, name)
    members = _members(kind) if isinstance(kind, type) and issubclass(kind, enum.Enum) else {}
    if node["of"] not in members:
        raise lacking(f"{where} is {name}.{node['of']} of {module}", "such member", module)
    return members[node["of"]]


def _members(kind: Any) -> dict[str, Any]:
    found: dict[str, Any] = vars(kind)["_member_map_"]
    return found
