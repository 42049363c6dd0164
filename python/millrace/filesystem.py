"""Stores as an fsspec file system.

    import millrace, pandas

    table = pandas.read_parquet("millrace://bucket/table.parquet")

Every program that takes fsspec's URLs, such as ``fsspec.open``, reads and writes ``millrace://bucket/key`` through Millrace. The package
registers itself for that protocol. :func:`register` does the same for ``s3://`` in this process.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import fsspec  # type: ignore[import-untyped]
from fsspec.asyn import AbstractAsyncStreamedFile, AsyncFileSystem, get_loop  # type: ignore[import-untyped]
from fsspec.callbacks import DEFAULT_CALLBACK  # type: ignore[import-untyped]
from fsspec.spec import AbstractFileSystem  # type: ignore[import-untyped]

from . import _core
from ._daemon_threads import DaemonThreads
from ._errors import NotFoundError
from ._files import open as open_file

_readers = DaemonThreads(16)  # of cat_ranges
_callers = DaemonThreads(64)  # of coroutines
# These options are taken or forwarded by fsspec itself.
_OF_FSSPEC = {
    "asynchronous",
    "batch_size",
    "dircache",
    "listings_expiry_time",
    "loop",
    "max_paths",
    "skip_instance_cache",
    "use_listings_cache",
}


def register(protocols: Iterable[str] = ("s3", "s3a")) -> None:
    """Makes fsspec open URLs of these protocols through Millrace in this process. It replaces other file systems for them.

        millrace.filesystem.register()
        table = pandas.read_parquet("s3://bucket/table.parquet")

    Args:
        protocols: The names of the protocols.
    """
    for protocol in protocols:
        fsspec.register_implementation(protocol, FileSystem, clobber=True)


def _joined(path: str, name: str) -> str:
    return "/".join(part for part in (path.rstrip("/"), name.rstrip("/")) if part)


class FileSystem(AsyncFileSystem):  # type: ignore[misc]
    """Shows buckets and their objects as fsspec's files and folders.

        files = millrace.filesystem.FileSystem()
        print(files.ls("bucket/train"))
        # Files are those of millrace.open.
        with files.open("bucket/train/0.jpg") as file:
            data = file.read()

    A path is ``bucket/key``. A folder is the part of a key before a slash. It appears with the first object below it, and disappears with
    the last one. Listings are not cached. An object appears when it is closed, with all of its bytes. Appending and transactions are not
    possible. Endpoint, region and credentials come from the usual AWS settings.

    Methods block, and work after a fork. Their coroutines (``_cat_file``, ``_info``, ``_glob`` and so on), which users of fsspec call with
    ``asynchronous=True``, do the same in up to 64 threads.

    Args:
        root: The prefix of all paths: ``"s3://"``, or the URI of a folder or prefix, to which the file system is then limited.

    Raises:
        ValueError: Other options, such as ``key`` and ``client_kwargs`` of other file systems.
    """

    protocol = ("millrace", "s3", "s3a")
    root_marker = ""
    mirror_sync_methods = False  # blocking methods do not take a detour through a loop

    def __init__(self, root: str = "s3://", **storage_options: Any) -> None:
        foreign = set(storage_options) - _OF_FSSPEC
        if foreign:
            raise ValueError(
                f"{', '.join(sorted(foreign))}: not known here; endpoint, region and keys come from AWS_ENDPOINT_URL, AWS_REGION, "
                "AWS_ACCESS_KEY_ID and the other usual AWS settings"
            )
        AbstractFileSystem.__init__(self, root=root, **storage_options)
        self.asynchronous = storage_options.get("asynchronous", False)
        self.batch_size = storage_options.get("batch_size")
        self._root = root if root.endswith("/") else root + "/"

    @property
    def loop(self) -> Any:
        """Returns the event loop of fsspec, in which programs that are not asynchronous run coroutines."""
        return None if self.asynchronous else get_loop()

    # ---- Names

    def _uri(self, path: str) -> str:
        return self._root + cast(str, self._strip_protocol(path))

    def _list(self, path: str, flat: bool, limit: int = 0) -> tuple[list[tuple[str, int, str, int]], list[str]]:
        """Returns the objects below a path, and its folders unless ``flat``. Names lack the path and the slash behind it."""
        if not path and self._root.endswith("://"):
            raise NotImplementedError(
                f"the buckets of {self._root} are not listed here; give a bucket, such as {self._root}bucket"
            )
        return _core.list_place(self._uri(path).rstrip("/") + "/", flat, limit)

    def _entry(self, path: str, found: tuple[str, int, str, int]) -> dict[str, Any]:
        name, size, etag, modified = found
        when = datetime.datetime.fromtimestamp(modified / 1000, datetime.timezone.utc) if modified else None
        return {"name": _joined(path, name), "size": size, "type": "file", "ETag": etag, "LastModified": when}

    def _folder(self, path: str) -> dict[str, Any]:
        return {"name": path.rstrip("/"), "size": 0, "type": "directory"}

    # ---- Looking

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        if "/" in path or not self._root.endswith("://"):
            try:
                _, size, etag, modified = _core.stat_object(self._uri(path))
                return self._entry(path, ("", size, etag, modified))
            except NotFoundError:
                pass
        objects, _ = self._list(path, True, 1) if path or not self._root.endswith("://") else ([], [])
        if objects or ("/" not in path and self._root.endswith("://")):  # a bucket may be empty
            return self._folder(path)
        raise FileNotFoundError(path)

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        path = self._strip_protocol(path)
        objects, folders = self._list(path, False)
        # A key that ends with a slash is the mark of an empty folder.
        entries = [self._entry(path, found) for found in objects if found[0] and not found[0].endswith("/")]
        entries += [self._folder(_joined(path, folder)) for folder in folders]
        if not entries:
            entry = self.info(path)
            entries = [entry] if entry["type"] == "file" else []
        entries.sort(key=lambda entry: cast(str, entry["name"]))
        return entries if detail else [entry["name"] for entry in entries]

    def find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **kwargs: Any
    ) -> Any:
        path = self._strip_protocol(path)
        if maxdepth is not None or withdirs or not path:
            return super().find(path, maxdepth=maxdepth, withdirs=withdirs, detail=detail, **kwargs)
        # One listing returns all, in place of one listing for each folder.
        objects, _ = self._list(path, True)
        entries = [self._entry(path, found) for found in objects if found[0] and not found[0].endswith("/")]
        if not entries:
            try:
                entry = self.info(path)
            except FileNotFoundError:
                entry = self._folder(path)
            entries = [entry] if entry["type"] == "file" else []
        return {entry["name"]: entry for entry in entries} if detail else [entry["name"] for entry in entries]

    def created(self, path: str) -> datetime.datetime | None:
        return self.modified(path)

    def modified(self, path: str) -> datetime.datetime | None:
        return cast("datetime.datetime | None", self.info(path).get("LastModified"))

    def ukey(self, path: str) -> str:
        return str(self.info(path).get("ETag"))

    def checksum(self, path: str) -> int:
        return hash(self.ukey(path))

    # ---- Reading

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        if mode not in ("rb", "wb", "xb"):
            raise NotImplementedError(f"mode {mode!r}: objects are read, or written whole; use 'rb', 'wb' or 'xb'")
        if not autocommit:
            raise NotImplementedError(
                "an object appears when its file is closed; there are no transactions over several"
            )
        if mode == "xb" and self.exists(path):  # which closing makes sure of
            raise FileExistsError(path)
        return open_file(self._uri(path), cast(Any, mode), buffering=-1 if block_size is None else block_size)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        file = _core.ReadFile(self._uri(path))
        try:
            return _range_of(file, start, end)
        finally:
            file.close()

    def cat(self, path: Any, recursive: bool = False, on_error: str = "raise", **kwargs: Any) -> Any:
        """Returns the bytes of one object, or a dict from paths to the bytes of several objects, which are read together.

        Args:
            path: A path, a pattern, or a list of paths.
            recursive: True: all objects below the path.
            on_error: ``"raise"``: an error is raised. ``"omit"``: the object is left out. ``"return"``: the exception takes the place of its
                bytes.
            kwargs: Options of fsspec.
        """
        paths = self.expand_path(path, recursive=recursive)
        if len(paths) == 1 and isinstance(path, str) and paths[0] == self._strip_protocol(path):
            return self.cat_file(paths[0])
        if on_error != "raise":
            return super().cat(path, recursive=recursive, on_error=on_error, **kwargs)
        paths = [name for name in paths if not recursive or self.isfile(name)]
        contents = _core.read_objects([(self._uri(name), -1, "") for name in paths])
        return dict(zip(paths, contents))

    def cat_ranges(
        self,
        paths: Sequence[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        on_error: str = "return",
        **kwargs: Any,
    ) -> list[Any]:
        """Returns the bytes of several ranges, which are read at the same time.

        Args:
            paths: The path of each range.
            starts, ends: The first byte of each range, and the byte after its last one. They are lists, or one number for all.
            max_gap: It has no effect.
            on_error: ``"return"``: an exception takes the place of the bytes. ``"raise"``: it is raised.
            kwargs: They have no effect.
        """
        starts = list(starts) if isinstance(starts, Iterable) else [starts] * len(paths)
        ends = list(ends) if isinstance(ends, Iterable) else [ends] * len(paths)
        if len(starts) != len(paths) or len(ends) != len(paths):
            raise ValueError("paths, starts and ends differ in length")

        names = list(dict.fromkeys(paths))
        files = dict(zip(names, _readers.map(lambda path: _core.ReadFile(self._uri(path)), names)))

        def read(at: int) -> bytes:
            file = files[paths[at]]
            if isinstance(file, BaseException):
                raise file
            return _range_of(file, starts[at], ends[at])

        found = _readers.map(read, list(range(len(paths))))
        for file in files.values():
            if not isinstance(file, BaseException):
                file.close()
        for each in found:
            if isinstance(each, BaseException) and (on_error != "return" or not isinstance(each, Exception)):
                raise each
        return found

    # ---- Writing

    def pipe_file(self, path: str, value: Any, mode: str = "overwrite", **kwargs: Any) -> None:
        file = _core.WriteFile(self._uri(path), mode == "create")
        try:
            file.write(value)
            file.commit()
        finally:
            file.discard()

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        if not self.isdir(path1):
            _core.copy_object(self._uri(path1), self._uri(path2))

    def get_file(
        self, rpath: str, lpath: Any, callback: Any = DEFAULT_CALLBACK, outfile: Any = None, **kwargs: Any
    ) -> None:
        if outfile is not None or hasattr(lpath, "write"):
            (outfile or lpath).write(self.cat_file(rpath))
        elif self.isdir(rpath):
            os.makedirs(lpath, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(os.path.abspath(lpath)), exist_ok=True)
            callback.relative_update(_core.copy_object(self._uri(rpath), os.path.abspath(lpath)))

    def put_file(
        self, lpath: str, rpath: str, callback: Any = DEFAULT_CALLBACK, mode: str = "overwrite", **kwargs: Any
    ) -> None:
        if os.path.isdir(lpath):
            return
        callback.relative_update(
            _core.copy_object(os.path.abspath(lpath), self._uri(rpath), only_if_absent=mode == "create")
        )

    def rm_file(self, path: str) -> None:
        self._remove([self._strip_protocol(path)])

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Removes objects, by requests for many objects at a time.

        Args:
            path: A path, a pattern, or a list of paths.
            recursive: True: remove all objects below a folder.
            maxdepth: The maximum depth of folders with ``recursive``. None: no limit.

        Raises:
            FileNotFoundError: A path does not exist.
            IsADirectoryError: A path is a folder, and ``recursive`` is False.
        """
        names = self.expand_path(path, recursive=recursive and maxdepth is not None, maxdepth=maxdepth)
        if recursive and maxdepth is None:
            self._remove([name for root in names for name in self._below(root)])
        elif recursive:
            self._remove([name for name in names if self.info(name)["type"] == "file"])
        else:
            for name in names:
                if self.info(name)["type"] != "file":  # info raises all other errors
                    raise IsADirectoryError(f"{name} is a folder; remove it with recursive=True")
            self._remove(names)

    def _below(self, path: str) -> list[str]:
        """Returns all objects below a folder, including the marks of empty folders, or the object of that name."""
        objects, _ = self._list(path, True)
        if objects:
            return [f"{path}/{found[0]}" if path else found[0] for found in objects]
        return [path] if self.info(path)["type"] == "file" else []

    def _remove(self, paths: Iterable[str]) -> None:
        _core.remove_objects([self._root + path for path in paths])  # the mark of a folder keeps its slash

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        """Does nothing: a folder appears with the first object in it. Use other tools to make buckets."""

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Does nothing, like :meth:`mkdir`."""

    def rmdir(self, path: str) -> None:
        """Does nothing: a folder disappears with the last object in it."""

    # ---- For loops

    async def _info(self, path: str, **kwargs: Any) -> Any:
        return await _callers.call(self.info, path, **kwargs)

    async def _ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
        return await _callers.call(self.ls, path, detail, **kwargs)

    async def _find(self, path: str, maxdepth: int | None = None, withdirs: bool = False, **kwargs: Any) -> Any:
        return await _callers.call(self.find, path, maxdepth, withdirs, **kwargs)

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> Any:
        return await _callers.call(self.cat_file, path, start, end, **kwargs)

    async def _cat(
        self, path: Any, recursive: bool = False, on_error: str = "raise", batch_size: int | None = None, **kwargs: Any
    ) -> Any:
        return await _callers.call(self.cat, path, recursive, on_error, **kwargs)

    async def _pipe_file(self, path: str, value: Any, mode: str = "overwrite", **kwargs: Any) -> None:
        await _callers.call(self.pipe_file, path, value, mode, **kwargs)

    async def _cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        await _callers.call(self.cp_file, path1, path2, **kwargs)

    async def _get_file(self, rpath: str, lpath: Any, **kwargs: Any) -> None:
        await _callers.call(self.get_file, rpath, lpath, **kwargs)

    async def _put_file(self, lpath: str, rpath: str, **kwargs: Any) -> None:
        await _callers.call(self.put_file, lpath, rpath, **kwargs)

    async def _rm_file(self, path: str, **kwargs: Any) -> None:
        await _callers.call(self.rm_file, path)

    async def _rm(
        self,
        path: Any,
        recursive: bool = False,
        batch_size: int | None = None,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> None:
        await _callers.call(self.rm, path, recursive, maxdepth)

    async def open_async(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        """Opens a file whose ``read``, ``write`` and ``close`` are coroutines. Written data appear when the file is closed."""
        if mode not in ("rb", "wb"):
            raise ValueError(f"mode {mode!r}: objects are read, or written whole; use 'rb' or 'wb'")
        path = self._strip_protocol(path)
        make = _core.ReadFile if mode == "rb" else _write_file
        return _StreamedFile(self, path, mode, await _callers.call(make, self._uri(path)))


class _StreamedFile(AbstractAsyncStreamedFile):  # type: ignore[misc]
    closed: bool

    def __init__(self, fs: FileSystem, path: str, mode: str, native: Any) -> None:
        super().__init__(fs, path, mode, size=native.size if mode == "rb" else None)
        self._native = native

    async def _fetch_range(self, start: int, end: int) -> Any:
        return await _callers.call(self._native.read, start, max(0, min(end, self.size) - start))

    async def write(self, data: Any) -> int:
        if self.closed:
            raise ValueError("I/O operation on closed file.")
        written = await _callers.call(self._native.write, data)
        self.loc += written
        return int(written)

    async def close(self) -> None:
        if not self.closed:
            self.closed = True
            await _callers.call(self._native.close if self.mode == "rb" else self._native.commit)

    async def __aexit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if kind is not None and self.mode == "wb":
            self.closed = True
            await _callers.call(self._native.discard)
        await self.close()


def _write_file(uri: str) -> _core.WriteFile:
    return _core.WriteFile(uri, False)


def _range_of(file: _core.ReadFile, start: int | None, end: int | None) -> bytes:
    first, last, _ = slice(start, end).indices(file.size)
    return file.read(first, max(0, last - first))
