"""Command lines that cannot be, and help: exit status 2, with the option or the word that is wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from . import corpus
from .conftest import Photos
from .harness import SECRET_KEY, Sandbox, Server


class TestUsage:
    @pytest.mark.parametrize("command", ["devstore", "synth", "pack", "index", "ls", "cat", "cp", "inspect", "feed"])
    def test_each_command_has_help_with_examples(self, sandbox: Sandbox, command: str) -> None:
        said = sandbox.ok(command, "--help").out
        assert re.search("example", said, re.IGNORECASE) and f"millrace {command}" in said
        assert command in sandbox.ok("--help").out

    @pytest.mark.parametrize("command", ["devstore", "synth", "pack", "index", "cat", "cp", "inspect", "feed"])
    def test_unknown_option_and_missing_argument(self, sandbox: Sandbox, command: str) -> None:
        needed = ("--count", 1) if command == "synth" else ()
        sandbox.run(command, "/x", "/y", *needed, "--no-such-option").failed(2, "no-such-option")
        sandbox.run(command).failed(2, "required|missing|uri|root|src|dst|argument|usage")

    def test_no_command_and_unknown_command(self, sandbox: Sandbox) -> None:
        assert sandbox.run().code == 2
        sandbox.run("fed", "/x").failed(2, "fed|command")

    @pytest.mark.parametrize(
        "option",
        [
            ("--shuffle", "some"),
            ("--batch", "0"),
            ("--batch", "-1"),
            ("--batch", "99999999999999999999"),
            ("--size", "0"),
            ("--size", "1000000000"),
            ("--memory", "lots"),
            ("--memory", "99999999999GiB"),
            ("--last", "first"),
            ("--rank", "1"),
            ("--rank", "-1"),
            ("--world", "0"),
            ("--epochs", "-1"),
            ("--dtype", "f64"),
            ("--layout", "chwn"),
            ("--digest-of", "all"),
            ("--seed", "x"),
            ("--stop-after", "-5"),
            ("--bad-samples", "ignore"),
        ],
    )
    def test_value_that_cannot_be(self, photos: Photos, sandbox: Sandbox, option: tuple[str, str]) -> None:
        result = sandbox.run("feed", photos.tar, "--json", *option)
        assert result.code == 2 or (result.code == 1 and option[1] in ("1000000000", "99999999999GiB")), str(result)
        assert option[0].strip("-") in result.err, str(result)

    @pytest.mark.parametrize(
        "option", [("--count", "-1"), ("--count", "x"), ("--kb", "0"), ("--kb", "-3"), ("--classes", "0")]
    )
    def test_synth(self, sandbox: Sandbox, tmp_path: Path, option: tuple[str, str]) -> None:
        sandbox.run("synth", tmp_path / "x", "--count", 3, *option).failed(2, option[0].strip("-"))

    @pytest.mark.parametrize("value", ["0", "-1", "x", "1XiB"])
    def test_pack(self, photos: Photos, sandbox: Sandbox, tmp_path: Path, value: str) -> None:
        sandbox.run("pack", photos.raw, tmp_path / "x", "--shard-size", value).failed(2, "shard-size")

    def test_secret_is_in_no_message(self, sandbox: Sandbox, server: Server, tmp_path: Path) -> None:
        """The harness looks at every run; this one makes sure that it would see it."""
        corpus.write(tmp_path / "x", SECRET_KEY.encode())
        with pytest.raises(AssertionError, match="prints the secret key"):
            sandbox.run("cat", tmp_path / "x", env=server.env())
