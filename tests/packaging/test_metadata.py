"""Names and metadata of the distribution, as pip and PyPI see them: pyproject.toml, without compiling anything."""

from __future__ import annotations

import ast
import email.parser
import importlib.util
import re
import subprocess
import sys
from email.message import Message
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python/millrace"

# Imported for types alone, or where they are installed: no extra brings them.
OPTIONAL = {"typing_extensions", "torch_xla", "torchvision", "ml_dtypes"}
# The name that a program imports -> the distribution that brings it, where the two differ, or where another extra brings it along.
DISTRIBUTIONS = {"pytorch_lightning": "lightning", "keras": "tensorflow", "lightning_fabric": "lightning"}


@pytest.fixture(scope="module")
def info(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder *.dist-info, which the build backend writes."""
    folder = tmp_path_factory.mktemp("metadata")
    code = "import sys; from scikit_build_core import build; print(build.prepare_metadata_for_build_wheel(sys.argv[1]))"
    said = subprocess.run(
        [sys.executable, "-c", code, str(folder)], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    return folder / said.split()[-1]


@pytest.fixture(scope="module")
def metadata(info: Path) -> Message:
    return email.parser.Parser().parsestr((info / "METADATA").read_text())


def stated_version() -> str:
    stated = re.search(r"project\(millrace VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())
    assert stated is not None
    return stated[1]


def test_the_name_is_not_that_of_the_other_product(info: Path, metadata: Message) -> None:
    assert metadata["Name"] == "millrace-data"
    assert info.name == f"millrace_data-{stated_version()}.dist-info"
    # The package and the command keep their name.
    assert PACKAGE.joinpath("__init__.py").exists()
    assert "name = millrace" not in (info / "METADATA").read_text()


def test_the_version_is_in_one_place(metadata: Message, millrace_bin: Path) -> None:
    version = stated_version()
    assert metadata["Version"] == version
    said = subprocess.run([millrace_bin, "--version"], check=True, capture_output=True, text=True).stdout
    assert said.split() == ["millrace", version]
    # No other file that makes an artifact has a version of its own.
    for name in (
        "pyproject.toml",
        "debian/control",
        "debian/rules",
        "scripts/wheel",
        "scripts/deb",
        "python/CMakeLists.txt",
    ):
        assert version not in (ROOT / name).read_text(), name


def test_what_pypi_shows(metadata: Message) -> None:
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata.get_all("License-File") == ["LICENSE"]
    classifiers = metadata.get_all("Classifier") or []
    assert "Typing :: Typed" in classifiers and "Operating System :: POSIX :: Linux" in classifiers
    assert not any(name.startswith("License ::") for name in classifiers)  # PyPI refuses both
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert str(metadata.get_payload()).startswith("# Millrace")


def test_types_and_the_file_system_of_fsspec_come_along(info: Path) -> None:
    assert (PACKAGE / "py.typed").exists()
    assert "millrace = millrace.filesystem.FileSystem" in (info / "entry_points.txt").read_text()
    assert importlib.util.find_spec("millrace.filesystem") is not None


def imported(file: Path) -> set[str]:
    """The packages that a module imports, at its head or later."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in (
            "importlib.import_module",
            "_importlib.import_module",
        ):
            first = node.args[0]
            if isinstance(first, ast.Constant) and not str(first.value).startswith("."):
                names.add(str(first.value))
    return {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names) - {"millrace", "__future__"}


def required(metadata: Message) -> dict[str, set[str]]:
    """The distributions of each extra; "": those that every installation has."""
    found: dict[str, set[str]] = {"": set()}
    for line in metadata.get_all("Requires-Dist") or []:
        name = re.split(r"[\s;\[<>=!~]", line)[0]
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", line)
        found.setdefault(extra[1] if extra else "", set()).add(name)
    return found


def test_extras_bring_what_modules_import(metadata: Message) -> None:
    extras = required(metadata)
    assert extras[""] == {"numpy"}
    assert {"torch", "jax", "lightning", "huggingface", "ray", "parquet", "text"} <= set(extras)
    assert set(metadata.get_all("Provides-Extra") or []) == set(extras) - {""}
    brought = set().union(*extras.values())
    found: dict[str, set[str]] = {}
    for file in sorted(PACKAGE.glob("*.py")):
        for name in imported(file):
            found.setdefault(DISTRIBUTIONS.get(name, name), set()).add(file.name)
    assert {"numpy", "torch", "jax", "ray", "tensorflow", "transformers", "accelerate", "datasets"} <= set(found)
    missing = {name: files for name, files in found.items() if name not in brought | OPTIONAL}
    assert not missing
    # One module of one framework: its extra is enough.
    for file, extra in {"jax.py": "jax", "ray.py": "ray", "tf.py": "tensorflow", "lightning.py": "lightning"}.items():
        own = {DISTRIBUTIONS.get(name, name) for name in imported(PACKAGE / file)}
        assert own <= extras[extra] | extras[""] | {"torch"}, file


def test_the_table_of_extras_is_whole(metadata: Message) -> None:
    page = (ROOT / "docs/install.md").read_text()
    rows = dict(re.findall(r"^\| `\[(\w+)\]` \| ([^|]+) \|", page, re.MULTILINE))
    extras = required(metadata)
    extras.pop("")
    assert {name: set(re.findall(r"`([\w-]+)(?:\[\w+\])?`", text)) for name, text in rows.items()} == extras


def test_pages_name_the_distribution() -> None:
    page = (ROOT / "docs/install.md").read_text()
    assert "unrelated" in page and "same import name" in page
    for file in [ROOT / "README.md", *(ROOT / "docs").glob("**/*.md")]:
        text = file.read_text()
        assert not re.search(r"pip3? install (\S+ )*millrace(\[\w+\])?(?![\w*-])", text), file
        assert not re.search(r"\bmillrace-\*?\.whl|millrace-VERSION-cp", text), file
