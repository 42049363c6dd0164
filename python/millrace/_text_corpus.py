"""A corpus of texts as token files: ``millrace pack corpus/*.jsonl DST --tokenizer tokenizer.json``, and the function of that name.

Each file of the source becomes one pair of token files, so that an interrupted run
continues with the next file, and several runs make the same files.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import importlib
import io
import itertools
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, cast

from . import _arguments, _core
from ._errors import (
    AlreadyExistsError,
    DamagedDataError,
    Error,
    InvalidArgumentError,
    NotFoundError,
    UnsupportedError,
)
from ._files import open as open_object
from ._foreign_json import parse_json
from ._token_files import TokenFile, checked_dtype
from ._token_writer import MARK, SUMMARY, Place

_KIND = "millrace pack --tokenizer 1"
_TOGETHER = 512  # documents
_TOGETHER_CHARACTERS = 8 << 20
_BUFFER_BYTES = 128 << 10
_SHOWN_BAD = 100
# Texts do not shrink so much. The limit is that of compressed shards (unpack.cc).
_MOST_GROWTH, _ANY_GROWTH = 1000, 64 << 20
_FORMS = (".jsonl", ".ndjson", ".json", ".txt", ".parquet")
_COMPRESSIONS = (".gz", ".zst", ".zstd")

Progress = Callable[[str, int, int], object]


@dataclasses.dataclass(frozen=True)
class _File:
    uri: str
    size: int
    etag: str
    stem: str  # the stem of the names of its token files
    form: str
    compression: str


def pack_text(
    source: Any,
    destination: Any,
    tokenizer: Any,
    *,
    field: str = "text",
    bos: str | None = None,
    eos: str | None = None,
    dtype: Any = None,
    skip_bad: bool = False,
    force: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Packs texts, as :func:`millrace.pack` describes."""
    corpus = Corpus(source, tokenizer, field=field, bos=bos, eos=eos, dtype=dtype, skip_bad=skip_bad)
    return corpus.pack(_arguments.uri("destination", destination).rstrip("/") + "/", force, progress)


class Corpus:
    """Represents texts, and the options by which they become tokens. ``id`` identifies the texts and the options."""

    def __init__(
        self,
        source: Any,
        tokenizer: Any,
        *,
        field: str,
        bos: str | None,
        eos: str | None,
        dtype: Any = None,
        skip_bad: bool = False,
    ) -> None:
        names = [source] if isinstance(source, (str, os.PathLike)) else list(source)
        self.uris = [_arguments.uri("source", name) for name in names]
        self._words = _Words.load(tokenizer, bos, eos)
        self._dtype = checked_dtype(("uint16" if self._words.size <= 2**16 else "int32") if dtype is None else dtype)
        self._field, self._skip_bad = field, skip_bad
        self._files = _found(self.uris)
        job = {
            "files": [[file.stem, file.size, file.etag] for file in self._files],
            "field": field,
            "dtype": self._dtype.name,
            "skip_bad": skip_bad,
            **self._words.about,
        }
        self.id = hashlib.sha256(json.dumps(job, sort_keys=True).encode()).hexdigest()

    def pack(self, to: str, force: bool, progress: Progress | None) -> dict[str, Any]:
        """Continues at the place where an earlier run ended. ``to`` ends with '/'."""
        place = Place(to)
        if force:
            place.remove(place.names())
        done = place.read(SUMMARY)
        if done is not None and MARK not in place.names():
            if done.get("job") == self.id:
                return {**_told(done), "already_packed": True}
            raise AlreadyExistsError(f"{to} holds other tokens already; choose an empty place, or force")
        place.begin({"kind": _KIND, "job": self.id}, keep=True)
        there = set(place.names())
        counts: list[dict[str, Any]] = []
        total, read = sum(file.size for file in self._files), 0
        for file in self._files:
            note = _note(file)
            found = place.read(note) if f"{file.stem}.idx" in there else None
            if found is None:
                step = _Step(progress, read, total)
                found = _pack_file(file, to, self._words, self._field, self._dtype, self._skip_bad, step)
                place.put(note, found)
            counts.append(found)
            read += file.size
            if progress is not None:
                progress("tokenizing", read, total)
        summary = self._summary(counts)
        place.end(summary)
        place.remove([_note(file) for file in self._files])
        return {**_told(summary), "already_packed": False}

    def _summary(self, counts: list[dict[str, Any]]) -> dict[str, Any]:
        documents = sum(found["documents"] for found in counts)
        if documents == 0:
            raise InvalidArgumentError(f"{', '.join(self.uris)}: there is no document with a text in '{self._field}'")
        return {
            "kind": _KIND,
            "job": self.id,
            "dtype": self._dtype.name,
            "documents": documents,
            "tokens": sum(found["tokens"] for found in counts),
            "files": len(self._files),
            "field": self._field,
            "skipped": sum(found["skipped"] for found in counts),
            "first_skipped": [text for found in counts for text in found["bad"]][:_SHOWN_BAD],
            **self._words.about,
        }


def _note(file: _File) -> str:
    """Returns the name of the note for a file that is done while others are not."""
    return f".millrace/text/{file.stem}.json"


def _told(summary: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in summary.items() if name not in ("kind", "job")}


@dataclasses.dataclass(frozen=True)
class _Step:
    """Represents the progress within a file."""

    progress: Progress | None
    before: int
    total: int

    def tell(self, read: int) -> None:
        if self.progress is not None:
            self.progress("tokenizing", self.before + read, self.total)


class _Words:
    """Represents a tokenizer, and the tokens before and behind each document."""

    def __init__(self, encode: Callable[[list[str]], list[list[int]]], size: int, about: dict[str, Any]) -> None:
        self._encode = encode
        self.size = size
        self.about = about
        self.before: list[int] = []
        self.behind: list[int] = []

    @staticmethod
    def load(given: Any, bos: str | None, eos: str | None) -> _Words:
        try:
            tokenizers = importlib.import_module("tokenizers")
        except ImportError:
            raise UnsupportedError(
                f"texts become tokens by the package tokenizers, which {sys.executable} does not have: pip install tokenizers"
            ) from None
        if isinstance(given, (str, os.PathLike)):
            with cast("IO[bytes]", open_object(_arguments.uri("tokenizer", given), "rb")) as file:
                text = file.read().decode()
            try:
                tokenizer = tokenizers.Tokenizer.from_str(text)
            except Exception as error:
                raise InvalidArgumentError(
                    f"{given}: it is not a tokenizer.json as the package tokenizers and Hugging Face write it: {error}"
                ) from None
        else:
            # A tokenizer of transformers contains one of the package tokenizers.
            tokenizer = getattr(given, "backend_tokenizer", given)
            if not hasattr(tokenizer, "encode_batch") or not hasattr(tokenizer, "to_str"):
                _arguments.refuse("tokenizer", "a tokenizer.json, or a tokenizer of the package tokenizers", given)
            text = tokenizer.to_str()

        def encode(texts: list[str]) -> list[list[int]]:
            return [found.ids for found in tokenizer.encode_batch(texts, add_special_tokens=False)]

        size = tokenizer.get_vocab_size(with_added_tokens=True)
        about = {
            "tokenizer_sha256": hashlib.sha256(text.encode()).hexdigest(),
            "vocabulary": size,
            "bos": bos,
            "eos": eos,
        }
        words = _Words(encode, size, about)
        for name, token, ids in (("bos", bos, words.before), ("eos", eos, words.behind)):
            if token is None:
                continue
            number = tokenizer.token_to_id(token)
            if number is None:
                raise InvalidArgumentError(f"{name} is {token!r}, which the tokenizer does not know")
            ids.append(number)
        return words

    def documents(self, texts: list[str]) -> Iterator[list[int]]:
        for ids in self._encode(texts):
            yield [*self.before, *ids, *self.behind]


def _pack_file(
    file: _File, to: str, words: _Words, field: str, dtype: Any, skip_bad: bool, step: _Step
) -> dict[str, Any]:
    out = TokenFile(to + file.stem, dtype)
    skipped = 0
    bad: list[str] = []
    try:
        raw = cast("IO[bytes]", open_object(file.uri, "rb"))
        with raw:
            texts = _texts(file, raw, field)
            for group in _groups(texts):
                good = []
                for found in group:
                    if isinstance(found, str):
                        good.append(found)
                    elif skip_bad:
                        skipped += 1
                        bad += [str(found)] if len(bad) < _SHOWN_BAD else []
                    else:
                        raise found
                for ids in words.documents(good):
                    out.add(ids)
                step.tell(min(raw.tell(), file.size) if not raw.closed else file.size)
        out.commit()
    except BaseException:
        out.discard()
        raise
    return {"documents": out.documents, "tokens": out.tokens, "skipped": skipped, "bad": bad}


def _groups(texts: Iterator[str | Error]) -> Iterator[list[str | Error]]:
    while True:
        group: list[str | Error] = []
        characters = 0
        for found in itertools.islice(texts, _TOGETHER):
            group.append(found)
            characters += len(found) if isinstance(found, str) else 0
            if characters >= _TOGETHER_CHARACTERS:
                break
        if not group:
            return
        yield group


def _texts(file: _File, raw: IO[bytes], field: str) -> Iterator[str | Error]:
    """Yields texts, and errors in place of damaged texts."""
    if file.form == ".parquet":
        yield from _texts_of_parquet(file, raw, field)
        return
    plain = _plain(file, raw)
    if file.form == ".txt":
        try:
            yield plain.read().decode()
        except UnicodeDecodeError as error:
            yield DamagedDataError(f"{file.uri}: it is not UTF-8: {error}")
        return
    try:
        for number, line in enumerate(plain, start=1):
            if line.strip():
                yield _text_of_line(file.uri, number, line, field)
    except (OSError, EOFError) as error:
        if isinstance(error, Error):
            raise
        raise DamagedDataError(f"{file.uri}: it cannot be decompressed: {error}") from None


def _text_of_line(uri: str, number: int, line: bytes, field: str) -> str | Error:
    try:
        value = parse_json(line)
    except ValueError as error:  # also for bytes that are not UTF-8
        hint = (
            "; an array of objects is not read: write each in a line"
            if number == 1 and line.lstrip()[:1] == b"["
            else ""
        )
        return DamagedDataError(f"{uri}: line {number} is no JSON: {error}{hint}")
    for name in field.split(".") if not (isinstance(value, dict) and field in value) else [field]:
        value = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, str):
        return value
    members = parse_json(line)
    names = ", ".join(map(str, members)) if isinstance(members, dict) else "none"
    return InvalidArgumentError(f"{uri}: line {number} has no text in '{field}'; its members are: {names}")


def _texts_of_parquet(file: _File, raw: IO[bytes], field: str) -> Iterator[str | Error]:
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise UnsupportedError(f"{file.uri}: Parquet is read by pyarrow: pip install pyarrow") from None
    table = parquet.ParquetFile(raw)
    if field not in table.schema_arrow.names:
        raise InvalidArgumentError(
            f"{file.uri}: no column '{field}'; its columns are: {', '.join(table.schema_arrow.names)}"
        )
    row, room = 0, _Room(file)
    for batch in table.iter_batches(batch_size=_TOGETHER, columns=[field]):
        for value in batch.column(0).to_pylist():
            if isinstance(value, str):
                room.take(len(value))
                yield value
            else:
                yield InvalidArgumentError(f"{file.uri}: row {row} has no text in '{field}'")
            row += 1


class _Room:
    """The bytes that the texts of a file may take. A small file made to do harm would fill the memory or the disk."""

    def __init__(self, file: _File) -> None:
        self._uri = file.uri
        self._left = max(_ANY_GROWTH, _MOST_GROWTH * file.size)

    def take(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise DamagedDataError(
                f"{self._uri}: its texts take more than {_MOST_GROWTH} times its size, as those of a file made to fill the disk would; write them "
                "to a plain file if they are meant to"
            )


def _plain(file: _File, raw: IO[bytes]) -> IO[bytes]:
    if not file.compression:
        return raw
    return io.BufferedReader(cast(Any, _Raw(_decompressed(file, raw), _Room(file))), _BUFFER_BYTES)


def _decompressed(file: _File, raw: IO[bytes]) -> Any:
    if file.compression == ".gz":
        return gzip.GzipFile(fileobj=raw)
    for module, function in (("compression.zstd", "open"), ("zstandard", "open")):
        try:
            return getattr(importlib.import_module(module), function)(raw, "rb")
        except ImportError:
            continue
    try:
        pyarrow = importlib.import_module("pyarrow")
    except ImportError:
        raise UnsupportedError(f"{file.uri}: zstd is read by the package zstandard: pip install zstandard") from None
    return pyarrow.CompressedInputStream(pyarrow.PythonFile(raw, "r"), "zstd")


class _Raw(io.RawIOBase):
    """Represents a decompressed stream, which ends with an error when there is no more room. Arrow's own streams have
    no lines."""

    def __init__(self, stream: Any, room: _Room) -> None:
        self._stream = stream
        self._room = room

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        data = self._stream.read(len(into))
        self._room.take(len(data))
        into[: len(data)] = data
        return len(data)


# ---- Which files


def _found(uris: Sequence[str]) -> list[_File]:
    files = [file for uri in uris for file in _files_of(uri)]
    if not files:
        raise NotFoundError(f"{', '.join(uris)}: there are no texts: {', '.join(_FORMS)}, also with .gz and .zst")
    stems: dict[str, str] = {}
    for file in files:
        other = stems.setdefault(file.stem, file.uri)
        if other != file.uri:
            raise InvalidArgumentError(
                f"{other} and {file.uri} would become the same token files, '{file.stem}'; rename one"
            )
    return sorted(files, key=lambda file: file.stem)


def _files_of(uri: str) -> list[_File]:
    if re.search(r"[*?\[]", uri):
        folder = re.split(r"[*?\[]", uri)[0].rpartition("/")[0] + "/" if "/" in re.split(r"[*?\[]", uri)[0] else ""
        wanted = _pattern(uri[len(folder) :])
        return [file for file in _listed(folder or "./") if wanted.fullmatch(file.uri[len(folder or "./") :])]
    form, _ = _form_of(uri)
    if form:
        try:
            name, size, etag, _ = _core.stat_object(uri)
        except (NotFoundError, IsADirectoryError, InvalidArgumentError):
            pass
        else:
            return [_file(uri, uri.rpartition("/")[2], size, etag)]
    return _listed(uri.rstrip("/") + "/")


def _listed(folder: str) -> list[_File]:
    objects, _ = _core.list_place(folder, True, 0)
    return [
        _file(folder + name, name, size, etag)
        for name, size, etag, _ in objects
        if _form_of(name)[0] and not any(part.startswith(".") for part in name.split("/"))
    ]


def _file(uri: str, name: str, size: int, etag: str) -> _File:
    form, compression = _form_of(name)
    return _File(uri, size, etag, name[: len(name) - len(form) - len(compression)], form, compression)


def _form_of(name: str) -> tuple[str, str]:
    """Returns the extensions of a file's form and compression, or "" if it is not a text."""
    lower = name.lower()
    compression = next((end for end in _COMPRESSIONS if lower.endswith(end)), "")
    plain = lower[: len(lower) - len(compression)]
    form = next((end for end in _FORMS if plain.endswith(end)), "")
    if form == ".parquet" and compression:
        form = ""
    return (form, compression) if form else ("", "")


def _pattern(glob: str) -> re.Pattern[str]:
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[[^\]]+\])", glob)
    meanings = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(meanings.get(part) or (part if part[:1] == "[" else re.escape(part)) for part in parts))
