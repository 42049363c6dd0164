"""Texts that become tokens when a Loader is made, once for each machine."""

from __future__ import annotations

import fcntl
import os
import pathlib
import sys
from typing import Any

from ._dataset import Dataset
from ._errors import InvalidArgumentError
from ._mix import Mix
from ._progress_line import ProgressLine
from ._tokens import Tokens


def tokenized(data: Any, tokens: Any) -> Any:
    """``data``, or the URI of the token files that are made of it."""
    if not isinstance(tokens, Tokens) or tokens.tokenizer is None:
        return data
    if isinstance(data, (Dataset, Mix)):
        raise InvalidArgumentError(
            "tokenizer is for the URI of texts (.jsonl, .txt, .parquet): give that in place of a Dataset; for a Mix, let millrace.pack() "
            "make token files of each part"
        )
    from ._text_corpus import Corpus

    corpus = Corpus(data, tokens.tokenizer, field=tokens.text_field, bos=tokens.bos, eos=tokens.eos)
    folder = _cache_folder() / "text" / corpus.id[:32]
    folder.parent.mkdir(parents=True, exist_ok=True)
    line = ProgressLine("texts") if sys.stderr.isatty() else None
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until another process of this machine has made them
        try:
            corpus.pack(
                f"{folder}/",
                False,
                None if line is None else lambda work, done, total: line.show(work, done, total, is_bytes=True),
            )
        finally:
            if line is not None:
                line.clear()
    return str(folder)


def _cache_folder() -> pathlib.Path:
    """As of indexes: src/transfer/artifact.h."""
    named = os.environ.get("MILLRACE_CACHE")
    if named:
        return pathlib.Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (pathlib.Path(base) if base else pathlib.Path.home() / ".cache") / "millrace"
