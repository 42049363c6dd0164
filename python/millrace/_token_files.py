"""Token files in Megatron's format: ``X.bin`` holds the tokens, and ``X.idx`` the ends of documents (src/shard/token_format.h)."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _arguments, _core
from ._errors import InvalidArgumentError

_CODES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint16": 8}  # of Megatron
_MAGIC = b"MMIDIDX\0\0"
_MOST_TOKENS = 2**31 - 1  # of a document
_BUFFER_BYTES = 1 << 20


def checked_dtype(dtype: Any) -> np.dtype[Any]:
    names = tuple(_CODES)
    name = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", str(dtype)).removeprefix("torch.")
    return np.dtype(_arguments.choice("dtype", name, names)).newbyteorder("<")


class TokenFile:
    """Represents one pair of files. They appear with :meth:`commit`, first the ``.bin`` and then the ``.idx``."""

    def __init__(self, stem: str, dtype: np.dtype[Any]) -> None:
        self._stem, self._dtype = stem, dtype
        self._limits = np.iinfo(dtype)
        self._bin = _core.WriteFile(stem + ".bin", False)
        self._lengths: list[int] = []
        self._waiting: list[npt.NDArray[Any]] = []
        self._waiting_bytes = 0
        self.tokens = 0

    @property
    def documents(self) -> int:
        return len(self._lengths)

    @property
    def bytes(self) -> int:
        return self.tokens * self._dtype.itemsize

    def add(self, tokens: Any) -> None:
        """Adds a document: whole numbers, in an array of one axis or a list."""
        given = np.asarray(tokens)
        if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
            _arguments.refuse("tokens", "whole numbers, in a list or an array of one axis", tokens)
        if given.size > _MOST_TOKENS:
            raise InvalidArgumentError(f"a document of {given.size:,} tokens; at most {_MOST_TOKENS:,} fit into one")
        if given.size and (int(given.min()) < self._limits.min or int(given.max()) > self._limits.max):
            worst = int(given.max()) if int(given.max()) > self._limits.max else int(given.min())
            raise InvalidArgumentError(f"token {worst} does not fit into {self._dtype.name}; choose another dtype")
        self._waiting.append(given.astype(self._dtype))
        self._waiting_bytes += self._waiting[-1].nbytes
        self._lengths.append(given.size)
        self.tokens += given.size
        if self._waiting_bytes >= _BUFFER_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            self._bin.write(np.concatenate(self._waiting).data)
        self._waiting, self._waiting_bytes = [], 0

    def commit(self) -> None:
        self._flush()
        self._bin.commit()
        lengths = np.array(self._lengths, "<i4")
        ends = np.cumsum(lengths, dtype=np.int64) * self._dtype.itemsize
        idx = _core.WriteFile(self._stem + ".idx", False)
        idx.write(_MAGIC + struct.pack("<QBQQ", 1, _CODES[self._dtype.name], len(lengths), len(lengths) + 1))
        idx.write(lengths.tobytes())
        idx.write((ends - lengths.astype(np.int64) * self._dtype.itemsize).astype("<i8").tobytes())
        idx.write(np.arange(len(lengths) + 1, dtype="<i8").tobytes())
        idx.commit()

    def discard(self) -> None:
        self._bin.discard()
