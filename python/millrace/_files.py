"""Provides Python files for objects of a store."""

from __future__ import annotations

import io
import os
import warnings
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Literal, TextIO, cast, overload

from . import _arguments, _core
from ._errors import InvalidArgumentError

if TYPE_CHECKING:
    from typing_extensions import Buffer

_MODES = ("rb", "wb", "xb", "r", "w", "x", "rt", "wt", "xt")
_BUFFER_BYTES = 256 << 10
_WRITE_BUFFER_BYTES = 1 << 20


@overload
def open(uri: str | os.PathLike[str], mode: Literal["rb", "wb", "xb"] = "rb", *, buffering: int = -1) -> BinaryIO: ...


@overload
def open(
    uri: str | os.PathLike[str],
    mode: Literal["r", "w", "x", "rt", "wt", "xt"],
    *,
    buffering: int = -1,
    encoding: str = "utf-8",
    errors: str | None = None,
    newline: str | None = None,
) -> TextIO: ...


def open(
    uri: str | os.PathLike[str],
    mode: str = "rb",
    *,
    buffering: int = -1,
    encoding: str = "utf-8",
    errors: str | None = None,
    newline: str | None = None,
) -> IO[Any]:
    """Opens an object of a store, or a file, as a Python file: for ``torch.load`` and ``torch.save``, pandas, pyarrow and others.

        with millrace.open("s3://bucket/model.pt") as file:
            state = torch.load(file, weights_only=True)

    **Reading** is seekable. The size and the version are requested at once. If the object is replaced later, reads raise MismatchError.
    Sequential reads are read ahead, with many requests in flight and at most 128 MiB. A read elsewhere requests only its own bytes; in a
    buffered file, as many as the buffer holds. The GIL is released meanwhile, and Ctrl-C interrupts a read.

    **Writing** cannot seek. The object appears when the file is closed, with all of its bytes, and replaces an older one. If the body of
    ``with`` raises, or the file is never closed, nothing appears. :meth:`discard` on the file has the same effect.

    Args:
        uri: ``s3://bucket/key``, ``file:///path``, ``mem://name/key`` or a plain path.
        mode: ``"rb"``, ``"wb"``, ``"r"`` or ``"w"``. ``"xb"`` and ``"x"`` write an object that must not exist yet.
        buffering: The size of the buffer in front of the store, in bytes. 0: no buffer, for binary files only. -1: 256 KiB for reading,
            1 MiB for writing.
        encoding, errors, newline: Options of text files, as for :func:`io.open`.

    Returns:
        An ``io.BufferedReader`` or ``BufferedWriter`` (``io.RawIOBase`` without buffering), or an ``io.TextIOWrapper`` around it.

    Raises:
        NotFoundError: There is no such bucket or object.
        AccessDeniedError: The store refuses these credentials.
        AlreadyExistsError: With mode ``"x"``, the object exists. It is raised when the file is closed.
        MismatchError, UnavailableError, ExhaustedError: A read or a write failed.
    """
    name = _arguments.uri("uri", uri, "the URI of an object or a path")
    mode = _arguments.choice("mode", mode, _MODES)
    binary = mode.endswith("b")
    size = _arguments.integer("buffering", buffering, least=-1)
    if size == 0 and not binary:
        raise InvalidArgumentError("buffering is 0, which only binary files can have; leave it out")
    if mode[0] == "r":
        source = RawReader(_core.ReadFile(name), name)
        if size == 0:
            return cast(BinaryIO, source)
        reader = io.BufferedReader(source, _BUFFER_BYTES if size < 0 else size)
        return cast(BinaryIO, reader) if binary else io.TextIOWrapper(reader, encoding, errors, newline)
    sink = RawWriter(_core.WriteFile(name, mode[0] == "x"), name, mode[0] + "b")
    if size == 0:
        return cast(BinaryIO, sink)
    writer = _Writer(sink, _WRITE_BUFFER_BYTES if size < 0 else size)
    return cast(BinaryIO, writer) if binary else _TextWriter(writer, encoding, errors, newline)


class RawReader(io.RawIOBase):
    """Represents an object without a buffer. ``name`` is its URI, and ``size`` is its size in bytes."""

    mode = "rb"

    def __init__(self, native: _core.ReadFile, name: str) -> None:
        super().__init__()
        self._native = native
        self.name = name
        self.size = native.size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._check_open()
        bases = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}
        if whence not in bases:
            raise InvalidArgumentError(f"whence is {whence}; it must be 0, 1 or 2")
        at = bases[whence] + _arguments.integer("offset", offset)
        if at < 0:
            raise InvalidArgumentError(f"{self.name}: seek to {at}, before the first byte")
        self._at = at
        return at

    def tell(self) -> int:
        self._check_open()
        return self._at

    def readinto(self, into: Buffer) -> int:
        self._check_open()
        count = self._native.read_into(self._at, into)
        self._at += count
        return count

    def read(self, size: int | None = -1) -> bytes:
        self._check_open()
        data = self._native.read(self._at, self.size if size is None or size < 0 else size)
        self._at += len(data)
        return data

    def readall(self) -> bytes:
        return self.read()

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._native.close()

    def __repr__(self) -> str:
        return f"<millrace.open {self.name!r} mode='rb' size={self.size}>"

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on a closed file")


class RawWriter(io.RawIOBase):
    """Represents an object that appears when it is closed; without a buffer. ``name`` is its URI."""

    def __init__(self, native: _core.WriteFile, name: str, mode: str) -> None:
        super().__init__()
        self._native = native
        self.name = name
        self.mode = mode
        self._written = 0
        self._discarded = False

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._written

    def write(self, data: Buffer) -> int:
        if self.closed:
            raise ValueError("I/O operation on a closed file")
        if self._discarded:  # buffers still hold these bytes
            return memoryview(data).nbytes
        try:
            count = self._native.write(data)
        except BaseException:
            self.discard()  # with a part of it missing, it must never appear
            raise
        self._written += count
        return count

    def discard(self) -> None:
        """Nothing that was written will appear. The file is still to be closed."""
        if not self._discarded and not self.closed:
            self._discarded = True
            self._native.discard()

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        if not self._discarded:
            self._discarded = True
            self._native.commit()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.discard()
        self.close()

    def __del__(self) -> None:
        _drop(self)

    def __repr__(self) -> str:
        return f"<millrace.open {self.name!r} mode={self.mode!r} written={self._written}>"


class _Writer(io.BufferedWriter):
    """Represents a buffer before a RawWriter that knows what an exception means."""

    def discard(self) -> None:
        """Nothing that was written will appear. The file is still to be closed."""
        cast(RawWriter, self.raw).discard()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.discard()
        self.close()

    def __del__(self) -> None:
        _drop(self)


class _TextWriter(io.TextIOWrapper):
    def discard(self) -> None:
        """Nothing that was written will appear. The file is still to be closed."""
        cast(_Writer, self.buffer).discard()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.discard()
        self.close()

    def __del__(self) -> None:
        _drop(self)


def _drop(file: Any) -> None:
    """Ends a file that was never closed, perhaps because of an exception. An incomplete object must not appear."""
    if getattr(file, "closed", True):
        return
    warnings.warn(
        f"{file.name} was written to and never closed: nothing was stored; close it, or use `with`",
        ResourceWarning,
        stacklevel=2,
    )
    file.discard()
    file.close()
