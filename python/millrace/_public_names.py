"""Public names: messages, pickles and help say ``millrace.Loader``, not ``millrace._loader.Loader``."""

from __future__ import annotations

import inspect
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
            value.__module__ = module


def _resolve_annotations(kind: Any) -> None:
    """Texts of annotations are read by names of the module of the class, which the public module does not have."""
    own = vars(kind).get("__annotations__", {})
    if any(isinstance(annotation, str) for annotation in own.values()):
        hints = typing.get_type_hints(kind, include_extras=True)
        kind.__annotations__ = {name: hints[name] for name in own}
