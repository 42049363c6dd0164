"""This module has the protocol ``millrace://`` for fsspec. It is registered when both packages are imported, in either
order, without importing fsspec."""

from __future__ import annotations

import contextlib
import sys
from types import ModuleType
from typing import Any

_FSSPEC = "fsspec"


def register() -> None:
    """Registers the protocol now, or when the program imports fsspec.

    An installed package also has an entry point, by which fsspec finds it without ``import millrace``.
    """
    if _FSSPEC in sys.modules:
        _add(sys.modules[_FSSPEC])
    elif not any(isinstance(finder, _Waiting) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Waiting())


def _add(fsspec: ModuleType) -> None:
    with contextlib.suppress(AttributeError):  # a module of that name that is not fsspec, or half imported
        fsspec.register_implementation("millrace", "millrace.filesystem.FileSystem", clobber=True)


class _Waiting:
    """A finder that Python asks for each imported module, until the program imports fsspec."""

    _is_asking = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != _FSSPEC or self._is_asking:
            return None
        from importlib.util import find_spec

        self._is_asking = True  # this one is asked again
        try:
            spec = find_spec(name)
        finally:
            self._is_asking = False
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_add(module: ModuleType) -> None:
                run(module)
                with contextlib.suppress(ValueError):  # another thread has removed it
                    sys.meta_path.remove(self)
                _add(module)

            spec.loader.exec_module = run_and_add  # type: ignore[method-assign]
        return spec
