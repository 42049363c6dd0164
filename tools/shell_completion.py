#!/usr/bin/env python3
"""Makes the completions of shells from what `millrace COMMAND --help` says, and man pages beside them.

usage: shell_completion.py MILLRACE bash|zsh|fish    to standard output
       shell_completion.py MILLRACE share FOLDER     as below /usr/share, the man pages, too
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import command_pages

DESCRIPTIONS = 30  # the column in which the help has them
PLACES = {
    "bash": "bash-completion/completions/millrace",
    "zsh": "zsh/site-functions/_millrace",
    "fish": "fish/vendor_completions.d/millrace.fish",
}


class Option(NamedTuple):
    names: tuple[str, ...]  # -h, --help
    value: str  # what the help calls it; "": none
    choices: tuple[str, ...]  # values that the help lists
    about: str

    @property
    def is_path(self) -> bool:
        """Another value than the choices may be a path."""
        return bool(self.value) and (not self.choices or re.search("[A-Z]", self.value.partition("=")[0]) is not None)


class Command(NamedTuple):
    words: tuple[str, ...]  # without "millrace"
    options: tuple[Option, ...]
    subcommands: tuple[tuple[str, str], ...]  # with their descriptions


def _entries(text: str) -> Iterable[tuple[str, str]]:
    """The lines of options and subcommands, each with its whole description."""
    head, about = "", ""
    for line in [*text.splitlines(), ""]:
        if head and line.startswith(" " * DESCRIPTIONS):
            about += " " + line.strip()
            continue
        if head:
            yield head, about.strip()
        head, about = "", ""
        if re.match(r"  [\w-]", line):
            head, _, about = line.strip().partition("  ")
            column = DESCRIPTIONS - 3  # of the blank before a description that begins right behind its head
            rest = head[column + 1 :]
            if not about and head[column : column + 1] == " " and not head[:column].endswith(":"):
                if not re.match(r"(Needs|Excludes):|REQUIRED|\.\.\.|--", rest):
                    head, about = head[:column], rest


def _option(head: str, about: str) -> Option:
    names, _, rest = head.partition(" ")
    value = rest.split(" ")[0]
    if value in ("Needs:", "Excludes:", "REQUIRED", "..."):
        value = ""
    listed = value.partition("=")[0].strip("[]").split("|")
    choices = tuple(word for word in listed if re.fullmatch(r"[a-z0-9][a-z0-9-]*", word))
    return Option(tuple(names.split(",")), value, choices, about)


def commands(binary: str) -> list[Command]:
    """The command itself first, then those below it."""
    found = []
    for words, text in command_pages.pages(binary):
        subcommands = set(command_pages.sub_commands(text))
        options, below = [], []
        for head, about in _entries(text):
            if head.startswith("-"):
                options.append(_option(head, about))
            elif head in subcommands:
                below.append((head, about))
        found.append(Command(words, tuple(options), tuple(below)))
    return found


def _quoted(text: str) -> str:
    """For all three shells."""
    return "'" + text.replace("'", "'\\''") + "'"


BASH = """# Completion of bash for millrace, made from its --help by tools/shell_completion.py.
_millrace() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} path=millrace word i taken='' options='' values='' below='' choices=''
  # `--option=value` is three words.
  if [[ $cur == '=' ]]; then
    cur=''
  elif [[ $prev == '=' ]]; then
    prev=${COMP_WORDS[COMP_CWORD-2]}
  fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    [[ $word == -- ]] && return
    if [[ -n $taken ]]; then
      [[ $word == '=' ]] || taken=''
      continue
    fi
    _millrace_words "$path"
    if [[ " $values " == *" $word "* ]]; then
      taken=1
    elif [[ " $below " == *" $word "* ]]; then
      path+=" $word"
    fi
  done
  _millrace_words "$path"
  if [[ " $values " == *" $prev "* ]]; then
    _millrace_choices "$path $prev"
    COMPREPLY=($(compgen -W "$choices" -- "$cur"))
  elif [[ $cur == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$cur"))
  else
    COMPREPLY=($(compgen -W "$below" -- "$cur"))
  fi
}
# Sets, of the command $1, `options`, those of them with a value (`values`), and `below`, the commands below it.
_millrace_words() {
  case $1 in
@words@  esac
}
# Sets `choices`, the values of an option that its help lists.
_millrace_choices() {
  case $1 in
@choices@  esac
}
complete -o bashdefault -o default -F _millrace millrace
"""


def bash(found: list[Command]) -> str:
    words, choices = [], []
    for command in found:
        path = " ".join(("millrace", *command.words))
        options = [name for option in command.options for name in option.names]
        values = [name for option in command.options if option.value for name in option.names]
        below = [name for name, _ in command.subcommands]
        words.append(
            f"    '{path}') options='{' '.join(options)}' values='{' '.join(values)}' below='{' '.join(below)}' ;;\n"
        )
        for option in command.options:
            if option.choices:
                places = "|".join(f"'{path} {name}'" for name in option.names)
                choices.append(f"    {places}) choices='{' '.join(option.choices)}' ;;\n")
    return BASH.replace("@words@", "".join(words)).replace("@choices@", "".join(choices))


def _zsh_option(option: Option) -> list[str]:
    about = re.sub(r"([\[\]:])", r"\\\1", option.about)
    value = ""
    if option.value:
        called = re.sub(r"([\[\]:])", r"\\\1", option.value.partition("=")[0])
        action = f"({' '.join(option.choices)})" if not option.is_path else "_files"
        value = f":{called}:{action}"
    # Each may come again: some options say more each time.
    return [_quoted(f"*{name}[{about}]{value}") for name in option.names]


def zsh(found: list[Command]) -> str:
    parts = [
        "#compdef millrace\n# Completion of zsh for millrace, made from its --help by tools/shell_completion.py.\n"
    ]
    for command in found:
        function = "_".join(("_millrace", *command.words)) if command.words else "_millrace_itself"
        specs = [spec for option in command.options for spec in _zsh_option(option)]
        if not command.subcommands:
            specs.append("'*:: :_default'")
            parts.append(f"{function}() {{\n  _arguments -s \\\n    " + " \\\n    ".join(specs) + "\n}\n")
            continue
        specs += ["'1: :->below'", "'*:: :->rest'"]
        below = [_quoted(name + ":" + about.replace(":", "\\:")) for name, about in command.subcommands]
        cases = "".join(
            f"        {name}) {'_'.join(('_millrace', *command.words, name))} ;;\n" for name, _ in command.subcommands
        )
        parts.append(
            f"{function}() {{\n  local curcontext=$curcontext state line\n  local -a below=(\n    "
            + "\n    ".join(below)
            + "\n  )\n  _arguments -C \\\n    "
            + " \\\n    ".join(specs)
            + "\n  case $state in\n    below) _describe command below ;;\n    rest)\n      case $line[1] in\n"
            + cases
            + "      esac ;;\n  esac\n}\n"
        )
    return "".join(parts) + '_millrace_itself "$@"\n'


FISH = """# Completion of fish for millrace, made from its --help by tools/shell_completion.py.
# Succeeds if the words before the cursor name the command "$argv", and no command below it.
function __millrace_at
    set -l words (commandline -opc)
    set -l path
    set -l taken no
    for word in $words[2..-1]
        if test $taken = yes
            set taken no
        else if test "$word" = --
            return 1
        else if contains -- "$path[-1] $word" $__millrace_values; or contains -- " $word" $__millrace_values
            set taken yes
        else if contains -- (string join ' ' $path $word) $__millrace_commands
            set path $path $word
        end
    end
    test (string join ' ' x $path) = (string join ' ' x $argv)
end
"""


def fish(found: list[Command]) -> str:
    paths = [_quoted(" ".join(command.words)) for command in found if command.words]
    values = sorted(
        {
            _quoted(f"{command.words[-1] if command.words else ''} {name}")
            for command in found
            for option in command.options
            if option.value
            for name in option.names
        }
    )
    parts = [FISH, f"set -g __millrace_commands {' '.join(paths)}\n", f"set -g __millrace_values {' '.join(values)}\n"]
    for command in found:
        at = f"-n '__millrace_at {' '.join(command.words)}'"
        for name, about in command.subcommands:
            parts.append(f"complete -c millrace {at} -f -a {name} -d {_quoted(about)}\n")
        for option in command.options:
            names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
            value = ""
            if option.value:
                value = " -r" if option.is_path else " -x"
                if option.choices:
                    value += f" -a {_quoted(' '.join(option.choices))}"
            parts.append(f"complete -c millrace {at} {names}{value} -d {_quoted(option.about)}\n")
    return "".join(parts)


SHELLS = {"bash": bash, "zsh": zsh, "fish": fish}


def write_share(binary: str, folder: Path) -> None:
    command_pages.write_man_pages(binary, folder / "man/man1")
    found = commands(binary)
    for shell, place in PLACES.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(SHELLS[shell](found))


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[2] == "share":
        write_share(sys.argv[1], Path(sys.argv[3]))
    elif len(sys.argv) == 3 and sys.argv[2] in SHELLS:
        sys.stdout.write(SHELLS[sys.argv[2]](commands(sys.argv[1])))
    else:
        sys.exit(__doc__)
