"""Tests blocks of Python in README.md and the pages: each shows its imports, and those of most pages run, in their
order.

Programs that others test: README and the pages for new users (test_readme.py), docs/coming-from.md
(test_coming_from.py), docs/launchers.md (test_launchers.py), docs/frameworks.md (tests/frameworks/page.py). Not run:
docs/devices.md, which needs accelerators, and docs/formats/shards.md, which needs lmdb and h5py.
"""

from __future__ import annotations

import builtins
import json
import os
import re
import symtable
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import doc_world
import pytest
from service_support import FunctionWorker
from support import check_script, devstore

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])

# The reader has these names, on all pages.
OWN_NAMES = set(doc_world.NAMES) | {"identity", "parse_and_decode", "compile_for", "train_step", "device"}


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def free_names(code: str) -> tuple[set[str], set[str]]:
    """Returns the names that a program uses and does not bind, and those that it binds, but not by imports."""
    used: set[str] = set()
    module = symtable.symtable(code, "block", "exec")

    def visit(table: symtable.SymbolTable) -> None:
        for symbol in table.get_symbols():
            if symbol.is_referenced() and (symbol.is_global() or table is module):
                used.add(symbol.get_name())
        for child in table.get_children():
            visit(child)

    visit(module)
    bound = {symbol.get_name() for symbol in module.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    imported = {symbol.get_name() for symbol in module.get_symbols() if symbol.is_imported()}
    return used - bound - set(dir(builtins)), bound - imported


def lacking(page: Path) -> list[tuple[int, set[str]]]:
    """Returns, by the number of the block, names that neither it nor the reader has; an earlier block of the page may
    bind them."""
    earlier: set[str] = set()
    found = []
    for number, code in enumerate(blocks(page)):
        free, bound = free_names(code)
        if missing := free - earlier - OWN_NAMES:
            found.append((number, missing))
        earlier |= bound
    return found


def test_free_names() -> None:
    code = "import a\nfor b in a.c(d):\n    print(b, [e for e in f])\ndef g(h):\n    return h + i\n"
    assert free_names(code) == ({"d", "f", "i"}, {"b", "g"})


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.stem)
def test_each_block_shows_its_imports(page: Path) -> None:
    assert lacking(page) == []


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    root = tmp_path_factory.mktemp("store")
    doc_world.fill(root)
    with devstore(root) as settings:
        yield settings


@pytest.fixture
def ends() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize("page", sorted(doc_world.PAGES))
def test_the_blocks_run(page: str, store: dict[str, str], tmp_path: Path, workers: Any, ends: ExitStack) -> None:
    programs = [doc_world.moved(code, tmp_path) for code in blocks(ROOT / "docs" / page)]
    assert programs
    doc_world.fill_folder(tmp_path)
    places = {"https://minio.lab:9000": store["AWS_ENDPOINT_URL"]}
    if page == "service.md":
        open_to = ["--allow", "s3://bucket/train"]
        places |= {f"127.0.0.1:{port}": workers(*open_to, **store).address for port in (7070, 7071)}
        path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
        guarded = FunctionWorker(
            *open_to, "--token-file", tmp_path / "token", functions="mytransforms", env={**store, "PYTHONPATH": path}
        )
        ends.callback(guarded.end)
        places["10.0.0.1:7070"] = guarded.address
    told = check_script(
        doc_world.RUNNER,
        json.dumps({"page": page, "blocks": programs, "places": places}),
        **store,
        PYTHONPATH=os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")])),
        OMP_NUM_THREADS="1",
        AWS_CONFIG_FILE=str(tmp_path / "config"),
        MILLRACE_CACHE=str(tmp_path / "cache"),
        MILLRACE_CHECKPOINT="s3://bucket/run-8",
        DOC_FOLDER=str(tmp_path),
    )
    said = [line for line in told.splitlines() if line.startswith(("ran ", "left out "))]
    assert len(said) == len(programs)
    # These frameworks have tests of their own, with environments of their own; so have GPUs.
    assert all(re.fullmatch(r"ran \d+|left out \d+( lightning| transformers| cuda)+", line) for line in said), said
