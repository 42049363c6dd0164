"""Containers of Python's library in a state (_state.py): Counter, defaultdict, deque, Namespace, namedtuples, dataclasses of numbers. Nothing is pickled.

A class is named by its module and its name. Reading looks for it among the modules that the program has imported, and imports no others. A
dataclass is made without calling its code. So a checkpoint can only choose between classes with the same fields, and runs no code.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import inspect
import sys
import types
from typing import Any, Callable

from ._errors import InvalidArgumentError

__all__ = ["TAGS", "class_of", "decoded", "encoded", "lacking"]

_FACTORIES: dict[str, Any] = {kind.__name__: kind for kind in (int, float, str, bool, list, dict, set, tuple, bytes)}
_NUMBERS = (int, float, bool, str, type(None))

TAGS = ("Counter", "defaultdict", "deque", "Namespace", "namedtuple", "dataclass")

Encode = Callable[[Any, Any], Any]  # a value and its key or number below this one


def encoded(value: Any, encode: Encode) -> dict[str, Any] | None:
    """Returns the members of the JSON object of a container, without its tag's key: {"": tag, ...}. Returns None for other values."""
    kind = type(value)
    if kind in (collections.Counter, collections.defaultdict):
        factory = getattr(value, "default_factory", None)
        if factory is not None and _FACTORIES.get(getattr(factory, "__name__", "")) is not factory:
            return None
        pairs = [[encode(key, "a key"), encode(item, key)] for key, item in value.items()]
        if kind is collections.Counter:
            return {"": "Counter", "of": pairs}
        return {"": "defaultdict", "factory": factory and factory.__name__, "of": pairs}
    if kind is collections.deque:
        return {"": "deque", "maxlen": value.maxlen, "of": [encode(item, number) for number, item in enumerate(value)]}
    if kind is argparse.Namespace:
        return {"": "Namespace", "of": [[name, encode(item, name)] for name, item in vars(value).items()]}
    if class_of(kind.__module__, kind.__qualname__) is not kind:
        return None
    if _is_namedtuple(kind) and not getattr(value, "__dict__", None):
        items = [encode(item, number) for number, item in enumerate(value)]
        return {
            "": "namedtuple",
            "class": [kind.__module__, kind.__qualname__],
            "fields": list(kind._fields),
            "of": items,
        }
    if _is_plain_dataclass(kind):
        values = {field.name: getattr(value, field.name, _MISSING) for field in dataclasses.fields(value)}
        plain = all(type(item) in _NUMBERS for item in values.values())
        if not plain or (hasattr(value, "__dict__") and vars(value).keys() - values.keys()):
            return None
        of = [encode(item, name) for name, item in values.items()]
        return {"": "dataclass", "class": [kind.__module__, kind.__qualname__], "fields": list(values), "of": of}
    return None


def decoded(tag: str, node: dict[str, Any], decode: Encode, *, plain: bool, where: str) -> Any:
    """Returns the container that ``node`` describes. With ``plain``, returns a dict or tuple instead, which all programs can read."""
    if tag in ("Counter", "defaultdict"):
        keys = [decode(key, None) for key, _ in node["of"]]
        items = {key: decode(item, key) for key, (_, item) in zip(keys, node["of"])}
        if plain:
            return items
        if tag == "Counter":
            return collections.Counter(items)
        name = node["factory"]
        return collections.defaultdict(None if name is None else _FACTORIES[name], items)
    if tag == "deque":
        in_order = [decode(item, number) for number, item in enumerate(node["of"])]
        return in_order if plain else collections.deque(in_order, node["maxlen"])
    if tag == "Namespace":
        named = {str(name): decode(item, name) for name, item in node["of"]}
        if plain:
            return named
        namespace = argparse.Namespace()
        vars(namespace).update(named)
        return namespace
    module, name = (str(part) for part in node["class"])
    fields = [str(field) for field in node["fields"]]
    if len(fields) != len(node["of"]):
        raise ValueError(f"{name} has {len(node['of'])} values for {len(fields)} fields")
    if tag == "namedtuple":
        items_in_order = [decode(item, number) for number, item in enumerate(node["of"])]
        if plain:
            return tuple(items_in_order)
        kind = class_of(module, name)
        if not _is_namedtuple(kind) or list(kind._fields) != fields:
            raise _unknown(where, tag, module, name, fields)
        return tuple.__new__(kind, items_in_order)
    values = {field: decode(item, field) for field, item in zip(fields, node["of"])}
    if plain:
        return values
    kind = class_of(module, name)
    if not _is_plain_dataclass(kind) or [field.name for field in dataclasses.fields(kind)] != fields:
        raise _unknown(where, tag, module, name, fields)
    made = object.__new__(kind)
    for field, item in values.items():
        object.__setattr__(made, field, item)
    return made


_MISSING = object()


def _unknown(where: str, tag: str, module: str, name: str, fields: list[str]) -> InvalidArgumentError:
    return lacking(f"{where} is a {tag} {module}.{name} with the fields {', '.join(fields)}", "such class", module)


def lacking(found: str, what: str, module: str) -> InvalidArgumentError:
    """Returns the error for a value whose class the program has not imported, or has in another version."""
    return InvalidArgumentError(
        f"{found}, and the program has no {what}; import {module} in the version that saved it, or load the rest by only=[...]"
    )


def class_of(module: str, name: str) -> Any:
    """Returns a class of an imported module, or None if it does not exist."""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = vars(found).get(part) if hasattr(found, "__dict__") else None
    return found if isinstance(found, type) else None


def _is_namedtuple(kind: Any) -> bool:
    return (
        isinstance(kind, type)
        and issubclass(kind, tuple)
        and isinstance(getattr(kind, "_fields", None), tuple)
        and hasattr(kind, "_make")
    )


def _is_plain_dataclass(kind: Any) -> bool:
    """Returns True for a dataclass whose objects are their fields and nothing else."""
    if not isinstance(kind, type) or not dataclasses.is_dataclass(kind):
        return False
    if any(base.__module__ != "builtins" and not dataclasses.is_dataclass(base) for base in kind.__mro__):
        return False
    own = ("__reduce__", "__reduce_ex__", "__setstate__", "__new__", "__del__")
    if not all(_is_of_library(kind, name) for name in own):
        return False
    # If a field is a property, for example, code of the class would set it.
    places = [inspect.getattr_static(kind, field.name, None) for field in dataclasses.fields(kind)]
    return all(isinstance(place, types.MemberDescriptorType) or not hasattr(type(place), "__set__") for place in places)


def _is_of_library(kind: type, name: str) -> bool:
    """Returns True for a method that all objects have, or that dataclass(frozen=True, slots=True) makes."""
    method = getattr(kind, name, None)
    return method is getattr(object, name, None) or (
        name == "__setstate__" and getattr(method, "__module__", None) == dataclasses.__name__
    )
