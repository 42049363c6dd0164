"""This module has the writer of token files, from which a Loader makes rows."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from . import _arguments, _core
from ._errors import AlreadyExistsError, InvalidArgumentError, MismatchError, NotFoundError, UsageError
from ._foreign_json import parse_json
from ._token_files import TokenFile, checked_dtype

MARK = ".millrace/incomplete"
SUMMARY = "tokens.json"
_KIND = "millrace.TokenWriter 1"


class TokenWriter:
    """Writes documents as token files. ``Loader(uri, tokens=millrace.Tokens(2048, "pack"))`` makes rows from them.

        with millrace.TokenWriter("s3://bucket/corpus", dtype="uint16", about={"tokenizer": "gpt2"}) as writer:
            for text in texts:
                writer.write([*tokenizer.encode(text), end_of_text])

    The files are pairs of ``.bin`` and ``.idx``, which Megatron also reads, and ``tokens.json``, which has the numbers of documents and tokens,
    and ``about``. Until the body of ``with`` has ended, a mark keeps readers away. If it raises, or the program is killed, the next writer of
    the place begins from the start. One process writes to a place. Several processes write to folders of their own below one folder, which
    then is the data set.

    Args:
        uri: An empty folder or prefix, or one that a writer has left incomplete.
        dtype: The type in which tokens are stored. ``"uint16"`` is enough for vocabularies of up to 65,536 tokens. All others need
            ``"int32"`` or ``"int64"``.
        file_size: The size of a file, in bytes or as ``"1GiB"``. A file ends with the document at which it has this size.
        about: Further members of ``tokens.json``, such as the tokenizer. None: no further members.

    Raises:
        AlreadyExistsError: The place holds something else.
    """

    def __init__(
        self,
        uri: str | os.PathLike[str],
        *,
        dtype: Any = "int32",
        file_size: int | str = "1GiB",
        about: Mapping[str, Any] | None = None,
    ) -> None:
        self.uri = _arguments.uri("uri", uri).rstrip("/") + "/"
        self._dtype = checked_dtype(dtype)
        self._file_bytes = _core.to_bytes("file_size", _arguments.memory(file_size, "file_size"))
        self._about = json.loads(json.dumps(dict(about or {})))  # a copy, and what JSON cannot hold is said now
        self._file: TokenFile | None = None
        self._files = 0
        self.documents = 0
        self.tokens = 0
        self._closed = False
        Place(self.uri).begin({"kind": _KIND})

    def write(self, tokens: Any) -> None:
        """Writes one document.

        Args:
            tokens: Whole numbers, in a list or an array of one axis. A document may be empty.

        Raises:
            InvalidArgumentError: A number does not fit into ``dtype``. The document is not written.
        """
        if self._closed:
            raise UsageError(f"{self.uri}: this writer was closed")
        if self._file is None:
            self._file = TokenFile(f"{self.uri}tokens-{self._files:05d}", self._dtype)
        before = self._file.tokens
        self._file.add(tokens)
        self.documents += 1
        self.tokens += self._file.tokens - before
        if self._file.bytes >= self._file_bytes:
            self._end_file()

    def _end_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.commit()
            self._files += 1

    def close(self) -> None:
        """Writes the rest. From now on, the data set can be read."""
        if self._closed:
            return
        if self.documents == 0:
            raise InvalidArgumentError(f"{self.uri}: no document was written")
        self._end_file()
        self._closed = True
        summary = {
            "kind": _KIND,
            "dtype": self._dtype.name,
            "documents": self.documents,
            "tokens": self.tokens,
            "files": self._files,
        }
        Place(self.uri).end({**summary, **self._about})

    def discard(self) -> None:
        """Ends without the rest. The place stays incomplete until another writer begins there."""
        self._closed = True
        if self._file is not None:
            self._file.discard()

    def __enter__(self) -> TokenWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()


class Place:
    """Represents a place for token files. A mark keeps readers away until the place is complete."""

    def __init__(self, uri: str) -> None:
        self._uri = uri

    def names(self) -> list[str]:
        try:
            objects, _ = _core.list_place(self._uri, True, 0)
        except NotFoundError:
            return []
        return [name for name, *_ in objects if name]

    def read(self, name: str) -> dict[str, Any] | None:
        """Returns a JSON object, or None if the file does not exist."""
        try:
            file = _core.ReadFile(self._uri + name)
        except NotFoundError:
            return None
        try:
            value = parse_json(file.read(0, file.size))
        except ValueError:
            value = None
        finally:
            file.close()
        if not isinstance(value, dict):
            raise MismatchError(f"{self._uri}{name} was not written by Millrace; choose an empty place")
        return value

    def begin(self, mark: dict[str, Any], keep: bool = False) -> None:
        """Writes the mark. With ``keep``, files of an earlier run with the same mark stay."""
        names, found = self.names(), self.read(MARK)
        if found is None and names:
            raise AlreadyExistsError(
                f"{self._uri} holds {names[0]!r} already; tokens need an empty place: choose another, or remove its contents"
            )
        if found is not None and (found != mark if keep else found.get("kind") != mark["kind"]):
            raise AlreadyExistsError(f"{self._uri}: something else was begun there; end that, or choose an empty place")
        if found is None:
            self.put(MARK, mark)
        elif not keep:
            self.remove([name for name in names if name.endswith((".bin", ".idx"))])

    def end(self, summary: dict[str, Any]) -> None:
        self.put(SUMMARY, summary)
        self.remove([MARK])

    def remove(self, names: list[str]) -> None:
        _core.remove_objects([self._uri + name for name in names])

    def put(self, name: str, value: dict[str, Any]) -> None:
        file = _core.WriteFile(self._uri + name, False)
        file.write(json.dumps(value, indent=1).encode())
        file.commit()
