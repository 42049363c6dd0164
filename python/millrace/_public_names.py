"""Public names: messages, pickles and help say ``millrace.Loader``, not ``millrace._loader.Loader``.

Python's ``inspect`` looks for the source of a class in the module that the class names. It first follows ``__wrapped__``, which leads it to the private module.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any


def publish(module: str, names: Iterable[str], namespace: Mapping[str, Any]) -> None:
    """Names the classes and functions of private modules by the public module that programs import them from."""
    for name in names:
        value = namespace.get(name)
        is_named = inspect.isclass(value) or inspect.isfunction(value)
        if is_named and value.__module__ != module and value.__module__.startswith("millrace._"):
            if inspect.isclass(value):
                _resolve_annotations(value)
                _keep_source(value)
            value.__module__ = module


def _resolve_annotations(kind: Any) -> None:
    """Resolves annotations that are texts. They use names of the private module, which the public module does not have."""
    own = vars(kind).get("__annotations__", {})
    if any(isinstance(annotation, str) for annotation in own.values()):
        hints = typing.get_type_hints(kind, include_extras=True)
        kind.__annotations__ = {name: hints[name] for name in own}


class _OfOneClass:
    """An attribute of a class that its objects and the classes derived from it do not have."""

    def __init__(self, owner: type, value: Any) -> None:
        self._owner = owner
        self._value = value

    def __get__(self, instance: object, owner: type) -> Any:
        if instance is not None or owner is not self._owner:
            raise AttributeError
        return self._value


def _keep_source(kind: Any) -> None:
    """Makes ``inspect.getsource`` find the class, which still names its private module."""
    line = {name: value for name, value in vars(kind).items() if name == "__firstlineno__"}  # Python 3.13 reads it
    place = type(kind.__name__, (), {"__module__": kind.__module__, "__qualname__": kind.__qualname__, **line})
    kind.__wrapped__ = _OfOneClass(kind, place)
    kind.__signature__ = _OfOneClass(kind, _signature(kind))  # else inspect.signature would follow __wrapped__, too


def _signature(kind: Any) -> inspect.Signature | None:
    """Returns the signature of ``__init__`` if there is a ``__new__`` with any arguments. None: Python finds it itself."""
    if not isinstance(kind.__new__, types.FunctionType) or not isinstance(kind.__init__, types.FunctionType):
        return None
    whole = inspect.signature(kind.__init__)
    return whole.replace(parameters=list(whole.parameters.values())[1:], return_annotation=inspect.Signature.empty)
