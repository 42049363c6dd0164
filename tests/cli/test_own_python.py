"""Commands that start Python start that of the environment in which a wheel has put them, whether or not it is activated."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

COMMANDS = {
    "doctor": ["doctor"],
    "env": ["env"],
    "texts": ["pack", "texts.jsonl", "tokens", "--tokenizer", "tokenizer.json"],
    "Parquet": ["pack", "tables", "packed"],
    "import": ["checkpoint", "cp", "model.pt", "run"],
    "export": ["checkpoint", "export", "run", "out.pt"],
    "page": ["bench", "photos", "--quick", "--html", "page.html"],  # Python is asked before there have to be samples
}


def add_python(path: Path) -> Path:
    """It says that it was asked, and refuses."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('#!/bin/sh\necho "$0" >>"$ASKED"\nexit 3\n')
    path.chmod(0o755)
    return path


def add_program(path: Path, program: Path) -> Path:
    path.parent.mkdir(parents=True)
    shutil.copy(program, path)
    return path


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Returns a folder with what the commands read."""
    folder = tmp_path / "place"
    for name in ("tables", "photos", "run"):
        (folder / name).mkdir(parents=True)
    (folder / "texts.jsonl").write_text('{"text": "one"}\n')
    (folder / "tokenizer.json").write_text("{}")
    (folder / "tables/a.parquet").write_bytes(b"PAR1 and more PAR1")
    (folder / "model.pt").write_bytes(b"PK\x03\x04")
    return folder


def asked(program: Path, place: Path, *words: str, path: Path, **environment: str) -> list[Path]:
    """Returns the Pythons that were started."""
    log = place / "asked"
    log.unlink(missing_ok=True)
    unset = ("MILLRACE_PYTHON", "LOCAL_RANK", "SLURM_LOCALID", "AWS_ENDPOINT_URL")
    env = {name: value for name, value in os.environ.items() if name not in unset}
    env |= {"PATH": f"{path}:/nowhere", "ASKED": str(log), "MILLRACE_CACHE": str(place / "cache")} | environment
    subprocess.run([program, *words], cwd=place, env=env, capture_output=True, timeout=300)
    return [Path(line) for line in log.read_text().splitlines()] if log.exists() else []


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_the_python_of_the_wheel(millrace_bin: Path, tmp_path: Path, place: Path, words: list[str]) -> None:
    program = add_program(tmp_path / "v/lib/python3.11/site-packages/millrace/bin/millrace", millrace_bin)
    own = add_python(tmp_path / "v/bin/python3.11")
    other = add_python(tmp_path / "path/python3")
    add_python(tmp_path / "path/python3.11")
    assert asked(program, place, *words, path=other.parent)[:1] == [own]


def test_a_python_that_is_named_comes_first(millrace_bin: Path, tmp_path: Path, place: Path) -> None:
    program = add_program(tmp_path / "v/lib/python3.11/site-packages/millrace/bin/millrace", millrace_bin)
    add_python(tmp_path / "v/bin/python3.11")
    named = add_python(tmp_path / "named")
    for words in (["env"], ["checkpoint", "export", "run", "out.pt"]):
        assert asked(program, place, *words, path=tmp_path, MILLRACE_PYTHON=str(named)) == [named]


@pytest.mark.parametrize(
    ("installed", "pythons", "started"),
    [
        # pip as root installs beside the system: the folder says the version of the interpreter, not its place.
        ("local/lib64/python3.12/site-packages/millrace/bin", ["path/python3", "path/python3.12"], "path/python3.12"),
        ("local/lib/python3.11/dist-packages/millrace/bin", ["path/python3"], "path/python3"),
        # A folder of pip install --target.
        ("target/millrace/bin", ["path/python3", "bin/python3"], "path/python3"),
        # A command that is compiled in an environment, and one of the system.
        ("v/bin", ["v/bin/python3", "v/pyvenv.cfg", "path/python3"], "v/bin/python3"),
        ("usr/bin", ["usr/bin/python3", "path/python3"], "path/python3"),
    ],
)
def test_the_python_of_other_places(
    millrace_bin: Path, tmp_path: Path, place: Path, installed: str, pythons: list[str], started: str
) -> None:
    program = add_program(tmp_path / installed / "millrace", millrace_bin)
    for python in pythons:
        add_python(tmp_path / python)
    assert asked(program, place, "env", path=tmp_path / "path") == [tmp_path / started]
