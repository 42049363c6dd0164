"""This module has the version of a program's code: the commit of its git repository, and the changes since."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

NAME = "code.json"
_MOST_DIFF_BYTES = 256 << 10
_SECONDS = 20


def code_version(folder: str | None = None) -> bytes:
    """Returns JSON with ``commit``, ``diff`` and ``truncated``.

    The diff has only files that git tracks. So it has no data, and no keys in ignored files.

    Args:
        folder: A folder in the repository. None: the folder of the program's main file, or the working directory.
    """
    if folder is None:
        main = getattr(sys.modules.get("__main__"), "__file__", None)
        folder = os.path.dirname(os.path.abspath(main)) if main else os.getcwd()
    commit = _git(folder, "rev-parse", "HEAD")
    found: dict[str, Any] = {"commit": None if commit is None else commit.decode().strip(), "arguments": sys.argv[:1]}
    diff = None if commit is None else _git(folder, "diff", "HEAD", "--no-ext-diff", "--no-textconv", "--no-color")
    if diff is not None:
        found["diff"] = diff[:_MOST_DIFF_BYTES].decode(errors="replace")
        found["truncated"] = len(diff) > _MOST_DIFF_BYTES
    return json.dumps(found, indent=1).encode()


def _git(folder: str, *arguments: str) -> bytes | None:
    command = ["git", "-C", folder, *arguments]
    try:
        made = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return made.stdout if made.returncode == 0 else None
