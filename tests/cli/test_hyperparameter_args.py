"""Hyperparameters as arguments of a Python script: the words are those that SageMaker's own toolkit makes of the same configuration."""

from __future__ import annotations

import json
import math
import random
import sys
from pathlib import Path

import pytest
from cli_support import Millrace, lines

# A training script as SageMaker's documentation has it.
ARGPARSE = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=1.0)
parser.add_argument("--epochs", type=int, default=100)
parser.add_argument("--name", default="")
parser.add_argument("mode", nargs="?")
args = parser.parse_args()
print(args.lr, args.epochs, args.name, args.mode)
"""

# Prints its arguments and the variables of hyperparameters, and those that the toolkit would give it.
ORACLE = """
import json, os, sys
from sagemaker_training import environment
toolkit = environment.Environment()
for arguments, variables in ((sys.argv[1:], os.environ), (toolkit.to_cmd_args(), toolkit.to_env_vars())):
    some = {name: value for name, value in variables.items() if name.startswith(("SM_HP", "SM_USER_ARGS"))}
    print(json.dumps([arguments, some]))
"""

VALUES = [
    "0.1", "1e-05", "0.0001", "0.00001234", "1E5", "1e15", "1e16", "123456789.123", "1e22", "1e300", "5e-324", "-0.0", "-0",
    "3", "-7", "12345678901", "123456789012345678901234567890", "-123456789012345678901234567890", "007", " 3 ", "3.0", "0.30000000000000004",
    "true", "false", "null", "True", "NaN", "Infinity", "-Infinity", "inf", "",
    "two words", '"quoted"', "it's", '"it\'s"', "[1,", "{", "a=b", "--x", "-", "$HOME `x` \\ \"", "line\nbreak", "\u00fc", "\u4e2d\u6587",
    "[]", "{}", '[1, 2.5, "a", false, null]', '["it\'s", "say \\"x\\"", "both \' and \\"", "back\\\\slash", "tab\\tnl\\ncr\\r", "\\u0001\\u007f", "\\u00e9\\u00a0\\u200b\\ufeff"]',
    '[{"b": 1, "a": [2, {"d": 1, "c": null}]}]', '{"b": [1, null], "a": "x", "c": {"z": true, "d": 1e15}}', '{"k\'": "v\'", "n": null, "f": 1.0}',
    "18446744073709551615", "18446744073709551616", "-9223372036854775809", "1e400", "1e-400", "[NaN, -Infinity, 1e400]", '{"b": 18446744073709551616, "a": NaN}',
    "[1,]", "1 2", "01", "[" * 100 + "]" * 100, '{"b": 1, "a": {"d": 1e15, "c": "\\u4e2d"}, "b": 2}', "9" * 4301,
    '{"a": 1, "a": 2}', '[1e16, 1e-5, -0.0, 100000000000000000]', '"\\u00fc\\n"',
]  # fmt: skip


def script(folder: Path, text: str, name: str = "train.py") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def job(folder: Path, values: dict[str, str]) -> list[str | Path]:
    return [
        "run",
        "--root",
        folder / "ml",
        *(word for name, value in values.items() for word in ("--hyperparameter", f"{name}={value}")),
    ]


def test_a_script_with_argparse_trains_with_its_hyperparameters(millrace: Millrace, tmp_path: Path) -> None:
    start = job(tmp_path, {"lr": "0.5", "epochs": "2", "name": "two words"})
    program = script(tmp_path, ARGPARSE)
    for command in (
        [sys.executable, "-u", program],
        ["env", "A=b", sys.executable, program],
        ["sh", "-c", f"exec {sys.executable} {program}"],
    ):
        assert lines(millrace(*start, "--", *command)) == ["0.5 2 two words None"]
    assert lines(millrace(*start, "--", sys.executable, program, "fast")) == ["0.5 2 two words fast"]
    assert lines(millrace(*start, "--no-hyperparameter-args", "--", sys.executable, program)) == ["1.0 100  None"]


def test_the_words_are_those_of_the_toolkit(millrace: Millrace, tmp_path: Path) -> None:
    values = {f"v{i}": value for i, value in enumerate(VALUES)}
    values |= {
        "b": "1",
        "\u00fc": "1",
        "learning-rate": "1",
        "Z": "1",
        "with space": "1",
        "stra\u00dfe_\u0436\u4e2d": "NaN",
    }
    values |= {"sagemaker_program": "train.py", "sagemaker_region": "x", "_tuning_objective_metric": "m"}
    done = millrace(*job(tmp_path, values), "--", sys.executable, script(tmp_path, ORACLE))
    (ours, variables), (theirs, those_of_the_toolkit) = map(json.loads, lines(done))
    assert ours == theirs
    assert variables == those_of_the_toolkit and len(variables) > len(VALUES)


def test_numbers_are_spelled_as_python_does(millrace: Millrace, tmp_path: Path) -> None:
    rng = random.Random(1)
    values = {f"x{i}": repr(rng.choice([-1, 1]) * rng.random() * 10 ** rng.randint(-20, 25)) for i in range(90)}
    done = millrace(*job(tmp_path, values), "--", sys.executable, script(tmp_path, ORACLE))
    (ours, _), (theirs, _) = map(json.loads, lines(done))
    assert ours == theirs and ours[1::2] == [values[name[2:]] for name in ours[::2]]


def test_what_sagemaker_program_names(millrace: Millrace, tmp_path: Path) -> None:
    shell = script(tmp_path, 'printf "%s|" "$@"; echo', "train.sh")
    start = job(tmp_path, {"lr": "0.5", "text": "a b $HOME"})
    program = ["--hyperparameter", "sagemaker_program=train.sh"]
    assert lines(millrace(*start, *program, "--", "sh", shell)) == ["--lr|0.5|--text|a b $HOME|"]
    assert lines(millrace(*start, *program, "--", "sh", "-c", f"sh {shell}")) == ["--lr|0.5|--text|a b $HOME|"]
    done = millrace(*start, "--", "sh", shell)
    assert lines(done) == ["|"] and b"gets the hyperparameters in variables only" in done.stderr
    quiet = millrace(*start, "--no-hyperparameter-args", "--", "sh", shell)
    assert lines(quiet) == ["|"] and b"variables only" not in quiet.stderr


def test_a_request_gives_them_too(millrace: Millrace, tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text(json.dumps({"HyperParameters": {"lr": "0.25", "epochs": "3"}}))
    start = ["run", "--root", tmp_path / "ml", "--job", tmp_path / "job.json", "--hyperparameter", "epochs=4"]
    assert lines(millrace(*start, "--", sys.executable, script(tmp_path, ARGPARSE))) == ["0.25 4  None"]


def test_a_file_gives_them_too(millrace: Millrace, tmp_path: Path) -> None:
    """Each value is that of the JSON text; an option comes before the file, and the file before a request."""
    values = {"lr": 0.25, "epochs": "3", "name": "2**64", "big": 2**64, "nan": math.nan, "list": [1, {"b": None}]}
    (tmp_path / "hps.json").write_text(json.dumps(values))
    (tmp_path / "job.json").write_text(json.dumps({"HyperParameters": {"lr": "9", "more": "a"}}))
    start = [
        "run",
        "--root",
        tmp_path / "ml",
        "--hyperparameters",
        tmp_path / "hps.json",
        "--job",
        tmp_path / "job.json",
    ]
    done = millrace(*start, "--hyperparameter", "epochs=4", "--", sys.executable, script(tmp_path, ORACLE))
    (ours, variables), (theirs, those_of_the_toolkit) = map(json.loads, lines(done))
    assert ours == theirs and variables == those_of_the_toolkit
    hyperparameters = dict(zip(ours[::2], ours[1::2]))
    assert hyperparameters == {
        "--lr": "0.25", "--epochs": "4", "--name": "2**64", "--big": str(2**64), "--nan": "nan", "--list": "[1, {'b': None}]", "--more": "a",
    }  # fmt: skip


def test_a_secret_is_given_and_not_shown(millrace: Millrace, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("CANARY it's\n")
    journal = tmp_path / "journal"
    start = ["run", "--root", tmp_path / "ml", "--journal", journal, "--hyperparameter-file"]
    start += [f"name={tmp_path / 'secret'}"]
    program = script(tmp_path, ARGPARSE)
    for command in ([sys.executable, program], ["sh", "-c", f"exec {sys.executable} {program}"]):
        done = millrace(*start, "--", *command)
        assert lines(done) == ["1.0 100 CANARY it's None"] and b"CANARY" not in done.stderr
    assert "CANARY" not in journal.read_text() and "--name" in journal.read_text()


def test_a_secret_that_is_given_twice_is_not_shown(millrace: Millrace, tmp_path: Path) -> None:
    twice = ["--hyperparameter", "api_key=CANARY"] * 2
    said = millrace("run", "--root", tmp_path / "ml", *twice, "--", "true", code=2).stderr
    assert b"'api_key' stands there twice" in said and b"CANARY" not in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--hyperparameters", "missing"], "--hyperparameters: missing cannot be opened"),
        (["--hyperparameters", "list"], "it is not a JSON object"),
        (["--hyperparameter-file", "a=missing"], "--hyperparameter-file: missing cannot be opened"),
        (["--hyperparameter-file", "a"], "--hyperparameter-file takes NAME=FILE, each name once, not 'a'"),
        (["--hyperparameter", "a=1", "--hyperparameter-file", "a=list"], "each name once, not 'a=list'"),
        (["--hyperparameter-file", "a=large"], "large has more than 65536 bytes"),
    ],
)
def test_a_file_that_is_wrong(millrace: Millrace, tmp_path: Path, options: list[str], said: str) -> None:
    (tmp_path / "list").write_text("[1]")
    (tmp_path / "large").write_bytes(b"a" * 65537)
    done = millrace("run", "--root", tmp_path / "ml", *options, "--", "true", cwd=tmp_path, code=2)
    assert said in done.stderr.decode()


@pytest.mark.parametrize("code", ["print(1)", "import sys; print(len(sys.argv))"])
def test_text_on_the_command_line_is_no_script(millrace: Millrace, tmp_path: Path, code: str) -> None:
    assert lines(millrace(*job(tmp_path, {"lr": "0.5"}), "--", sys.executable, "-c", code)) == ["1"]
