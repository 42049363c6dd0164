"""The package is fully typed, its stub matches the module, and users' code is checked with it."""

from __future__ import annotations

import ast
import os
import pathlib
import re
import subprocess
import sys
from typing import Any

import millrace

PACKAGE = pathlib.Path(millrace.__file__).resolve().parent


GOOD = """
import millrace
from typing_extensions import assert_type
loader = millrace.Loader("s3://b/p", batch_size=4, image=millrace.Image(mean=(0.1, 0.2, 0.3)), memory="1GiB")
for batch in loader:
    assert_type(batch["key"], list[str])
assert_type(loader.report()["stalls"], dict[str, float])
assert_type(millrace.Plan(10)[3], int)
assert_type(len(loader), int)
millrace.Loader(
    "p", 8, False, bad_samples="mask", digest="raw", output="torch", last="pad", fields={"mask": millrace.Image("png", interpolation="nearest")}
)
"""

WRONG_CHOICES = [
    "millrace.Loader('p', shuffle='yes')",
    "millrace.Loader('p', bad_samples='skip')",
    "millrace.Loader('p', digest='crc')",
    "millrace.Loader('p', output='jax')",
    "millrace.Loader('p', last='keep')",
    "millrace.Loader('p', normalize='cifar')",
    "millrace.Plan(10, shuffle='yes')",
    "millrace.Image(layout='chw')",
    "millrace.Image(interpolation='linear')",
    "millrace.Label(kind='str')",
    "millrace.Boxes('boxes', format='yx')",
    "millrace.Tokens(8, 'packed')",
    "millrace.Transfer('cuda', decode='gpu')",
    "millrace.Dataset('p', index='none')",
]


def mypy(*arguments: str, cwd: pathlib.Path) -> subprocess.CompletedProcess[str]:
    # The sources beside the stub, not the built package: its files are links to these.
    environment = {**os.environ, "MYPYPATH": str(PACKAGE.parent)}
    return subprocess.run(
        [sys.executable, "-m", *arguments], cwd=cwd, env=environment, capture_output=True, text=True, timeout=800
    )


def functions_of_stub() -> dict[str, ast.FunctionDef]:
    """Returns all functions and methods of the stub by their names; properties are no functions of the module."""
    found = {}
    for node in ast.parse((PACKAGE / "_core.pyi").read_text()).body:
        members = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for member in members:
            if isinstance(member, ast.FunctionDef) and not member.decorator_list:
                found[prefix + member.name] = member
    return found


def functions_of_module() -> dict[str, ast.FunctionDef]:
    """Returns the same of the module, as nanobind writes their signatures."""

    def parsed(signature: str) -> ast.FunctionDef:
        # Neither its types of arrays nor its defaults are Python.
        text = re.sub(r"\\\d+", "...", re.sub(r"\bndarray\[[^]]*\]", "ndarray", signature))
        (function,) = ast.parse(f"{text}: ...").body
        assert isinstance(function, ast.FunctionDef)
        return function

    places: list[tuple[str, Any]] = [("", millrace._core)]
    places += [(f"{name}.", each) for name, each in vars(millrace._core).items() if isinstance(each, type)]
    return {
        prefix + name: parsed(each.__nb_signature__[0][0])
        for prefix, place in places
        for name, each in vars(place).items()
        if hasattr(each, "__nb_signature__")
    }


def arguments(function: ast.FunctionDef) -> tuple[list[tuple[str, bool]], list[tuple[str, bool]]]:
    """Returns those by position, and those by name alone: each with whether it has a default."""
    found = function.args
    positional = [each.arg for each in (*found.posonlyargs, *found.args)]
    first = len(positional) - len(found.defaults)
    return (
        [(name, index >= first) for index, name in enumerate(positional)],
        [(each.arg, default is not None) for each, default in zip(found.kwonlyargs, found.kw_defaults, strict=True)],
    )


def test_arguments_of_the_stub_are_those_of_the_module() -> None:
    stub, module = functions_of_stub(), functions_of_module()
    assert len(module) > 60 and sorted(stub) == sorted(module)
    assert {name: arguments(each) for name, each in stub.items()} == {
        name: arguments(each) for name, each in module.items()
    }


def test_stub_matches_the_module(tmp_path: pathlib.Path) -> None:
    # A stub can neither name the metaclass of nanobind's classes nor say that one has no constructor.
    allowed = ["Batches", "Batches.__init__", "Checkpoint", "Checkpoint.__init__", "Checkpoints"]
    allowed += ["Counts", "Counts.__init__", "CheckpointSave", "CheckpointSave.__init__", "Dataset", "Loader", "Plan"]
    allowed += ["ReadFile", "StagedDataset", "Worker", "WriteFile"]
    # stubtest knows no functions of another type than CPython's; the test above compares these.
    allowed += [name for name in functions_of_stub() if "." not in name]
    (tmp_path / "allowed").write_text("".join(f"millrace._core.{name}\n" for name in allowed))
    result = mypy("mypy.stubtest", "millrace._core", "--allowlist", "allowed", cwd=tmp_path)
    assert result.returncode == 0, result.stdout


def test_package_and_users_code_are_strictly_typed(tmp_path: pathlib.Path) -> None:
    """One test, since the package is analyzed once and then comes from mypy's cache."""

    def strict(path: str) -> subprocess.CompletedProcess[str]:
        return mypy("mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), path, cwd=tmp_path)

    result = strict(str(PACKAGE))
    assert result.returncode == 0, result.stdout

    (tmp_path / "good.py").write_text(GOOD)
    result = strict("good.py")
    assert result.returncode == 0, result.stdout

    (tmp_path / "bad.py").write_text("import millrace\nmillrace.Loader('p', batch=3)\n")
    result = strict("bad.py")
    assert result.returncode == 1 and 'Unexpected keyword argument "batch"' in result.stdout

    (tmp_path / "choices.py").write_text("\n".join(["import millrace", *WRONG_CHOICES]) + "\n")
    result = strict("choices.py")
    lines = {int(line.split(":")[1]) for line in result.stdout.splitlines() if line.startswith("choices.py:")}
    assert lines == set(range(2, 2 + len(WRONG_CHOICES))), result.stdout
