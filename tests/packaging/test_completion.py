"""Completion in bash, zsh and fish: the shells themselves are asked what they would offer."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools")]

import shell_completion  # noqa: E402


@pytest.fixture(scope="module")
def share(millrace_bin: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("share")
    tool = [sys.executable, ROOT / "tools/shell_completion.py"]
    subprocess.run([*tool, millrace_bin, "share", folder], check=True)
    return folder


@pytest.fixture(scope="module")
def commands(millrace_bin: Path) -> list[shell_completion.Command]:
    return shell_completion.commands(str(millrace_bin))


def by_words(commands: list[shell_completion.Command], *words: str) -> shell_completion.Command:
    (found,) = [command for command in commands if command.words == words]
    return found


def test_the_help_is_read_whole(millrace_bin: Path, commands: list[shell_completion.Command]) -> None:
    """Each option and each subcommand of each command, as a second reading of its help finds them."""
    assert len(commands) > 40
    for command in commands:
        text = subprocess.run([millrace_bin, *command.words, "--help"], capture_output=True, text=True).stdout
        named = {name for line in re.findall(r"^  (-\S+)", text, re.MULTILINE) for name in line.split(",")}
        assert {name for option in command.options for name in option.names} == named, command.words
        assert all(option.about for option in command.options), command.words
        headings = re.search(r"^(Subcommands|\w+ commands):$", text, re.MULTILINE)
        assert (headings is not None) == bool(command.subcommands)
        assert all(about for _, about in command.subcommands)


def test_values_are_told_from_flags(commands: list[shell_completion.Command]) -> None:
    options = {name: option for option in by_words(commands, "feed").options for name in option.names}
    assert not options["--pin"].value  # "Needs: --cache" is no value
    assert options["--draws"].choices == ("exact", "replacement", "independent") and not options["--draws"].is_path
    assert options["--cache"].choices == ("memory",) and options["--cache"].is_path  # DIR|memory
    assert options["--state"].is_path and not options["--state"].choices
    # Where the description begins right behind the value.
    assert options["--digest-of"].choices == ("raw", "decoded") and options["--digest-of"].about.startswith(
        "raw: stored"
    )


# A line before the cursor -> all that is offered.
OFFERS = {
    "millrace fee": {"feed"},
    "millrace doctor ": {"s3", "host"},
    "millrace feed --draws ": {"exact", "replacement", "independent"},
    "millrace feed --draws re": {"replacement"},
    "millrace feed --take-": set(),
    "millrace feed --digest-": {"--digest-of"},
    "millrace checkpoint diff --res": set(),
    # The value of an option is no command.
    "millrace --profile feed doct": {"doctor"},
    # Words of the job are its own.
    "millrace run --retries 3 -- millrace fee": set(),
}


def of_bash(share: Path, line: str) -> set[str]:
    words = line.split(" ")
    script = f"""
source {share}/bash-completion/completions/millrace
COMP_WORDS=({" ".join(f"'{word}'" for word in words)})
COMP_CWORD={len(words) - 1}
_millrace
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, text=True, check=True)
    assert not done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize("line", OFFERS)
def test_bash(share: Path, line: str) -> None:
    assert of_bash(share, line) == OFFERS[line]


def test_bash_offers_all_options(share: Path, commands: list[shell_completion.Command]) -> None:
    for words in ((), ("feed",), ("checkpoint", "gc")):
        wanted = {name for option in by_words(commands, *words).options for name in option.names}
        assert of_bash(share, " ".join(("millrace", *words, "-"))) == wanted


def test_bash_takes_an_equals_sign_apart(share: Path) -> None:
    assert of_bash(share, "millrace feed --draws = ex") == {"exact"}
    assert of_bash(share, "millrace feed --draws =") == {"exact", "replacement", "independent"}


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish(share: Path, tmp_path: Path) -> None:
    """In an empty folder, since fish offers files, too."""
    file = share / "fish/vendor_completions.d/millrace.fish"
    lines = [line for line in OFFERS if line != "millrace feed --take-"]
    script = f"set fish_complete_path\nsource {file}\n" + "".join(
        f"echo '== {line}'\ncomplete -C '{line}'\n" for line in lines
    )
    done = subprocess.run(
        ["fish", "--no-config", "-c", script],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env=os.environ | {"HOME": str(tmp_path)},
    )
    assert not done.stderr
    found: dict[str, set[str]] = {}
    for said in done.stdout.splitlines():
        if said.startswith("== "):
            offers = found.setdefault(said.removeprefix("== "), set())
        else:
            offers.add(said.split("\t")[0])
    # At the name of a command that may be, fish also knows millrace itself.
    assert found == {line: OFFERS[line] for line in lines}


ZSH = """
emulate zsh
zmodload zsh/zpty
export TERM=dumb PS1='' HOME=$2
cd $2
zpty inner zsh -f -i
say() { zpty -w inner $1; }
# Until the terminal has shown $1, which no line shows before it is done.
await() { local said; zpty -r -m inner said "*$1*" || exit 3; }
say "fpath=($1 \\$fpath); autoload -Uz compinit; compinit -u -D"
say "zstyle ':completion:*' list-colors ''; zstyle ':completion:*' verbose no; LISTMAX=10000; unsetopt beep"
# In place of a list on the terminal, the offers, one a line.
say 'offers() { compadd() { local -a found; if [[ ${@[(I)-[OAD]]} -gt 0 ]]; then builtin compadd "$@"; return; fi; builtin compadd -O found "$@"; print -rl -- "offer "${^found}; }; _main_complete; unfunction compadd; print "done""-$((6*7))"; }'
say 'zle -C offers list-choices offers; bindkey "^T" offers'
say 'print ready"-$((6*7))"'
await 'ready-42'
for line in ${@[3,-1]}; do
  zpty -w -n inner "$line"$'\\x14'
  zpty -r -m inner said '*done-42*' || exit 3
  print -r -- "== $line"
  print -r -- $said
  zpty -w -n inner $'\\x15'
done
zpty -d inner
"""


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh(share: Path, tmp_path: Path) -> None:
    """In an empty folder, since zsh offers files, too."""
    lines = [line for line in OFFERS if line != "millrace feed --take-"]
    done = subprocess.run(
        ["zsh", "-f", "-c", ZSH, "zsh", share / "zsh/site-functions", tmp_path, *lines],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, set[str]] = {}
    for said in done.stdout.replace("\r", "").splitlines():
        if said.startswith("== "):
            offers = found.setdefault(said.removeprefix("== "), set())
        elif match := re.match(r".*?offer (\S+)", said):
            offers.add(match[1])
    assert found == {line: OFFERS[line] for line in lines}
