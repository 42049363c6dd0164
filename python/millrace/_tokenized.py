"""Texts become tokens when a Loader is made, once for each machine."""

from __future__ import annotations

import fcntl
import os
import sys
from typing import Any

from . import _core
from ._dataset import Dataset
from ._errors import InvalidArgumentError
from ._mix import Mix
from ._progress_line import ProgressLine
from ._tokens import Tokens


def tokenized(data: Any, tokens: Any) -> Any:
    """Returns ``data``, or the URI of the token files that are made from it."""
    if not isinstance(tokens, Tokens) or tokens.tokenizer is None:
        return data
    if isinstance(data, (Dataset, Mix)):
        raise InvalidArgumentError(
            "tokenizer is for the URI of texts (.jsonl, .txt, .parquet): give that in place of a Dataset; for a Mix, let millrace.pack() "
            "make token files of each part"
        )
    from ._text_corpus import Corpus

    corpus = Corpus(data, tokens.tokenizer, field=tokens.text_field, bos=tokens.bos, eos=tokens.eos)
    folder = os.path.join(_core.own_cache_folder("text"), _core.artifact_stem(corpus.id[:32], corpus.uris))
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
    return folder
