"""Tests that a module without an underscore is public, and that the reference has a section for it, so that neither
list drifts."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pathlib
import pickle
import re
import subprocess
import sys
import types
import typing

import millrace
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PUBLIC = sorted(
    path.stem for path in (ROOT / "python/millrace").glob("*.py") if not path.stem.startswith("_")
)  # of the sources: a build may hold links to files that are gone
REFERENCE = (ROOT / "docs/reference/python.md").read_text()
# The classes cannot exist without these bases.
NEEDS = {
    "filesystem": ["fsspec"],
    "huggingface_checkpoints": ["transformers"],
    "jax": ["jax"],
    "lightning": ["lightning"],
    "lightning_checkpoints": ["lightning"],
    "ray": ["ray"],
    "tf": ["tensorflow"],
    "torch": ["torch"],
}


def test_the_reference_has_all_public_modules_and_no_others() -> None:
    sections = re.findall(r"^::: millrace\.(\w+)$", REFERENCE, re.MULTILINE)
    table = re.findall(r"^\| `millrace\.(\w+)` \|", REFERENCE, re.MULTILINE)
    headings = re.findall(r"^## millrace\.(\w+)$", REFERENCE, re.MULTILINE)
    assert sections == table == headings == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_public_modules_come_by_their_names_alone(name: str) -> None:
    for needed in NEEDS.get(name, []):
        pytest.importorskip(needed)
    code = f"import millrace, sys; assert millrace.{name} is sys.modules['millrace.{name}']"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_the_package_shows_public_names_alone() -> None:
    code = "import millrace; print(*(name for name in vars(millrace) if not name.startswith('_')))"
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=300).stdout
    # `open` and `inspect` are not in __all__, since they would replace those of Python; `annotations` is Python's own.
    assert set(shown.split()) == {*millrace.__all__, "open", "inspect", "annotations"} - {"__version__"}
    modules = {name for name in millrace.__all__ if isinstance(getattr(millrace, name), types.ModuleType)}
    assert modules <= set(PUBLIC)


def test_former_modules_are_gone() -> None:
    for path in (ROOT / "python/millrace").glob("_*.py"):
        name = path.stem.lstrip("_")
        if name not in PUBLIC:
            assert importlib.util.find_spec(f"millrace.{name}") is None, name


def shown_by(name: str) -> list[tuple[str, object]]:
    """Returns the classes and functions of a public module, with their names there."""
    module = importlib.import_module(name)
    names = [*module.__all__, "open", "inspect"] if name == "millrace" else module.__all__
    values = [(each, getattr(module, each)) for each in names]
    return [(each, value) for each, value in values if isinstance(value, (type, types.FunctionType))]


@pytest.mark.parametrize("name", ["millrace", "millrace.torch"])
def test_names_are_those_that_programs_import(name: str) -> None:
    if name == "millrace.torch":
        pytest.importorskip("torch")
    for each, value in shown_by(name):
        assert (value.__module__, value.__qualname__) == (name, each)
        assert pickle.loads(pickle.dumps(value)) is value


def test_sources_are_found() -> None:
    for each, value in shown_by("millrace"):
        lines = [line for line in inspect.getsource(value).splitlines() if not line.startswith("@")]
        assert lines[0].startswith((f"class {each}", f"def {each}")), lines[0]
    assert "def __iter__" in inspect.getsource(millrace.Loader)

    class Derived(millrace.Loader):
        """Is a class of a program."""

    assert "class Derived(millrace.Loader)" in inspect.getsource(Derived), "and not that of the class below it"
    assert not hasattr(Derived, "__wrapped__")


def test_signatures_name_the_arguments() -> None:
    """They do, though an error for a former name comes from a __new__ that takes anything."""
    for kind, first in ((millrace.Loader, "data"), (millrace.Dataset, "uri"), (millrace.Image, "field")):
        assert next(iter(inspect.signature(kind).parameters)) == first

    class Derived(millrace.Dataset):
        def __init__(self, folder: str) -> None:
            super().__init__(folder)

    assert list(inspect.signature(Derived).parameters) == ["folder"]


def test_annotations_are_read_by_tools() -> None:
    for each, value in shown_by("millrace"):
        assert typing.get_type_hints(value) is not None, each
        if isinstance(value, type) and not typing.is_typeddict(value) and not issubclass(value, Exception):
            inspect.signature(value, eval_str=True)
    assert typing.get_type_hints(millrace.Shuffle)["window"] is not None


def test_pickles_of_the_private_module_still_load() -> None:
    written = pickle.dumps(millrace.Shuffle(window=100), protocol=0)
    assert b"cmillrace\nShuffle" in written
    former = written.replace(b"cmillrace\n", b"cmillrace._option_groups\n")
    assert pickle.loads(former) == millrace.Shuffle(window=100)


def test_errors_are_named_as_programs_name_them() -> None:
    with pytest.raises(millrace.NotFoundError) as raised:
        raise millrace.NotFoundError("gone")
    assert raised.type.__module__ == "millrace" and "millrace.NotFoundError" in repr(raised.type)
    assert type(pickle.loads(pickle.dumps(raised.value))) is millrace.NotFoundError
