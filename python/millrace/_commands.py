"""This module has the commands that prepare data, as functions. Each runs the program ``millrace``, and returns the
output of its ``--json``."""

from __future__ import annotations

import json
import os
import pathlib
import selectors
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, Union

from . import _arguments
from ._errors import BY_CODE, Error, InternalError, InvalidArgumentError, UnavailableError
from ._labels import LabelsLike, to_labels
from ._progress_line import ProgressLine

Uri = Union[str, "os.PathLike[str]"]
Progress = Union[bool, Callable[[str, int, int], object], None]
"""The option ``progress``. None: a line on stderr if that is a terminal. True or False: a line, or no line.

Or a function of the kind of work, the amount done, and the total. The total is 0 as long as it is not known."""

_READ_BYTES = 65536


def program() -> str:
    """Returns the path of the command ``millrace``: the one of the package, or the one in PATH."""
    own = pathlib.Path(__file__).parent / "bin" / "millrace"
    found = os.environ.get("MILLRACE_BIN") or (str(own) if own.exists() else shutil.which("millrace"))
    if found is None:
        raise UnavailableError("there is no command millrace on this node; install the package there")
    return found


def pack(
    source: Uri | Sequence[Uri],
    destination: Uri,
    *,
    format: str = "tar",
    shard_size: int | str = "256MiB",
    shuffle: bool = False,
    seed: int | None = None,
    class_map: Uri | None = None,
    labels: LabelsLike | None = None,
    fields: Sequence[str] | Mapping[str, str] = (),
    resize: int | None = None,
    quality: int | None = None,
    jpeg_tiles: bool = False,
    part: str | None = None,
    skip_bad: bool = False,
    scratch: Uri | None = None,
    memory: int | str | None = None,
    force: bool = False,
    tokenizer: Any = None,
    text_field: str | None = None,
    bos: str | None = None,
    eos: str | None = None,
    dtype: Any = None,
    progress: Progress = None,
) -> dict[str, Any]:
    """Writes a data set as shards, as ``millrace pack`` does (docs/pack.md).

        result = millrace.pack("s3://bucket/raw", "s3://bucket/train", resize=256)
        print(result["samples"], result["shards"])

    After an interruption, the same call continues with the rest. Parquet is read by this Python, which needs pyarrow for it.

    Args:
        source: A data set of any kind, compressed shards, or Parquet files; or a list of these.
        destination: An empty folder or prefix.
        format: ``"tar"`` (WebDataset), ``"tfrecord"``, ``"recordio"`` (MXNet) or ``"mds"`` (MosaicML).
        shard_size: The maximum size of a shard, in bytes or as ``"256MiB"``. Only a larger single sample exceeds it.
        shuffle: True: shuffle the samples. False: keep their order.
        seed: The seed of the shuffle. Another seed gives another order. None: 0.
        class_map: A file with the numbers of the class folders. None: their places in bytewise order.
        labels: A file with the labels of the samples, as a :class:`Labels` or a URI. None: the labels of the source.
        fields: The fields to pack, or their new names: ``{"image": "jpg", "label": "cls"}``. Empty: all fields.
        resize: The maximum of an image's shorter side, in pixels. Larger images are resized to it. None: images are not resized.
        quality: The quality of the JPEGs that ``resize`` makes, 1 to 100. None: 90.
        jpeg_tiles: True: add restart markers to JPEGs, so that crops are decoded faster.
        part: ``"2/8"``: write only that part of the shards, for several machines. None: write all.
        skip_bad: True: leave out damaged samples, and name them in the result. False: a damaged sample is an error.
        scratch: A folder in which files are unpacked first. None: the cache folder.
        memory: A budget for buffers, in bytes or as ``"4GiB"``. None: half of the memory.
        force: True: begin from the start, and replace the shards at the destination.
        tokenizer: A ``tokenizer.json``, a tokenizer of the package ``tokenizers``, or a fast one of ``transformers``. The source then consists
            of texts (``.jsonl``, ``.txt``, ``.parquet``, also with ``.gz`` and ``.zst``). They become token files for ``Loader(tokens=...)``
            (docs/tokens.md). The options that follow belong to it, and also ``skip_bad`` and ``force``. None: the source has samples.
        text_field: The member or column with the text. ``"a.b"`` is a member of a member. None: ``"text"``.
        bos, eos: Tokens that begin and end each document, such as ``"<|endoftext|>"``. None: no such token.
        dtype: The type in which tokens are stored. None: ``"uint16"`` if the vocabulary has at most 65,536 tokens, else ``"int32"``.
        progress: None: show a line on stderr if that is a terminal. True or False: show a line, or no line. Or a function of the kind of
            work, the amount done and the total (0 if it is not known), in bytes or samples. It is called about ten times a second.

    Returns:
        The result of ``--json``: ``samples``, ``shards``, ``bytes``, ``skipped`` and others.

    Raises:
        InvalidArgumentError: An option has no valid value, or contradicts another one. Other errors are those of :class:`Dataset`.
    """
    if tokenizer is not None:
        return _pack_text(source, destination, tokenizer, text_field, bos, eos, dtype, skip_bad, force, progress)
    for name, value in (("text_field", text_field), ("bos", bos), ("eos", eos), ("dtype", dtype)):
        if value is not None:
            raise InvalidArgumentError(f"{name} is for texts that become tokens; give tokenizer, too, or leave it out")
    options: list[str] = ["--format", format, "--shard-size", str(shard_size)]
    for name in [f"{old}={new}" for old, new in fields.items()] if isinstance(fields, Mapping) else fields:
        options += ["--field", name]
    if labels is not None:
        given = to_labels(labels)
        uri, key, label, quotes = given._native()
        options += _options(labels=uri, key_column=key or None, label_column=label or None, no_csv_quotes=not quotes)
    options += _options(
        shuffle=shuffle,
        seed=seed,
        class_map=class_map,
        resize=resize,
        quality=quality,
        jpeg_tiles=jpeg_tiles,
        part=part,
        skip_bad=skip_bad,
        scratch=scratch,
        memory=memory,
        force=force,
    )
    return _run("pack", [_data(source), _arguments.uri("destination", destination)], options, progress)


def index(
    uri: Uri | Sequence[Uri],
    *,
    tokens: str | None = None,
    path_column: str | Mapping[str, str] | None = None,
    label_column: str | None = None,
    csv_quotes: bool = True,
    classes: bool = False,
    checksums: bool = False,
    full: bool = False,
    skip_bad: bool = False,
    part: str | None = None,
    output: Uri | None = None,
    memory: int | str | None = None,
    progress: Progress = None,
) -> dict[str, Any]:
    """Builds the index of a data set, or updates it, as ``millrace index`` does. Only new and changed objects are read.

        result = millrace.index("s3://bucket/train")
        print(result["samples"], result["index"])

    Args:
        uri: The URI of the data set, or a list of URIs.
        tokens: ``"LENGTH"`` or ``"LENGTH:TYPE"``: ``.npy`` and ``.bin`` files are arrays of tokens. None: they are not.
        path_column, label_column, csv_quotes: As for :class:`Dataset`.
        classes: True: read the files that hold the classes of raw objects (``1.cls`` beside ``1.jpg``).
        checksums: True: read raw objects as a whole, so that the index has a checksum of each sample.
        full: True: read everything again.
        skip_bad: True: leave out the samples of a corrupt shard from the damaged place on. False: such a shard is an error.
        part: ``"2/8"``: read only every 8th shard, for 8 machines that share the work. The part that ends last completes the index. None:
            read all shards.
        output: The object to which the index is written. None: the place where Millrace looks for it.
        memory, progress: As for :func:`pack`.

    Returns:
        The result of ``--json``: ``samples``, ``objects``, ``fields``, ``index``, ``warnings``, ``damaged`` and others.

    Raises:
        InvalidArgumentError: An option has no valid value. Other errors are those of :class:`Dataset`.
    """
    options = _options(
        tokens=tokens,
        path_column=_arguments.path_columns(path_column) or None,
        label_column=label_column,
        no_csv_quotes=not csv_quotes,
        classes=classes,
        checksums=checksums,
        full=full,
        skip_bad=skip_bad,
        part=part,
        output=output,
        memory=memory,
    )
    return _run("index", [_data(uri)], options, progress)


def inspect(
    uri: Uri | Sequence[Uri],
    *,
    decode: int | str | None = None,
    preview: Uri | None = None,
    samples: int | None = None,
    progress: Progress = None,
) -> dict[str, Any]:
    """Returns a description of a data set, as ``millrace inspect`` does: counts, fields, sizes, classes, suspicious samples.

        found = millrace.inspect("s3://bucket/train", decode=1000)

    Args:
        uri: The URI of the data set, or a list of URIs.
        decode: The number of samples to read and decode, or ``"all"``, to find damaged ones. None: only the index is read.
        preview: A PNG file for a contact sheet of samples. None: no contact sheet.
        samples: The number of samples on the contact sheet. None: 24.
        progress: As for :func:`pack`.

    Returns:
        The result of ``--json`` (docs/inspect.md).

    Raises:
        InvalidArgumentError: An option has no valid value. Other errors are those of :class:`Dataset`.
    """
    options = _options(preview=preview, samples=samples)
    if decode is not None:
        options.append(f"--decode={decode}")
    return _run("inspect", [_data(uri)], options, progress)


def sync(
    source: Uri,
    target: Uri,
    *,
    delete: bool = False,
    exclude: Sequence[str] = (),
    include: Sequence[str] = (),
    progress: Progress = None,
) -> dict[str, Any]:
    """Copies objects from one place to another, as ``millrace sync`` does, and copies their indexes, too.

        millrace.sync("s3://bucket/train", "/data/train", exclude=["*.tmp"])

    An object is copied if the target does not have it, or if the source's is newer or has another size.

    Args:
        source, target: Prefixes or folders.
        delete: True: remove objects from the target that the source does not have.
        exclude, include: Patterns of paths below the source. If several match, the last one counts; ``include`` comes after ``exclude``.
        progress: As for :func:`pack`.

    Returns:
        The result of ``--json``: ``copied``, ``bytes``, ``removed``, ``failed`` and others.

    Raises:
        NotFoundError: The source does not exist.
        AccessDeniedError: The store refuses these credentials.
    """
    options = _options(delete=delete)
    for name, patterns in (("--exclude", exclude), ("--include", include)):
        for pattern in [patterns] if isinstance(patterns, str) else patterns:
            options += [name, pattern]
    places = [_arguments.uri("source", source), _arguments.uri("target", target)]
    return _run("sync", places, options, progress)


def _pack_text(
    source: Any,
    destination: Any,
    tokenizer: Any,
    field: str | None,
    bos: str | None,
    eos: str | None,
    dtype: Any,
    skip_bad: bool,
    force: bool,
    progress: Progress,
) -> dict[str, Any]:
    from ._text_corpus import pack_text

    show = sys.stderr.isatty() if progress is None else progress is True
    line = ProgressLine("texts") if show else None
    tell = progress if callable(progress) else None
    if line is not None:
        tell = lambda work, done, total: line.show(work, done, total, is_bytes=True)  # noqa: E731
    try:
        return pack_text(
            source,
            destination,
            tokenizer,
            field=field or "text",
            bos=bos,
            eos=eos,
            dtype=dtype,
            skip_bad=skip_bad,
            force=force,
            progress=tell,
        )
    finally:
        if line is not None:
            line.clear()


def _data(uri: Any) -> str:
    return _arguments.uri_of_data("uri", uri, "a URI, a path, or a list of them")


def _options(**values: Any) -> list[str]:
    options = []
    for name, value in values.items():
        if value is None or value is False:
            continue
        options.append("--" + name.replace("_", "-"))
        if value is not True:
            options.append(os.fspath(value) if isinstance(value, os.PathLike) else str(value))
    return options


class _Told:
    """Receives the reports of a running command: progress, which it forwards, and errors."""

    def __init__(self, command: str, progress: Progress) -> None:
        self._progress = progress if callable(progress) else None
        show = sys.stderr.isatty() if progress is None else progress is True
        self._line = ProgressLine(command) if show else None
        self._rest = b""
        self.errors: list[tuple[str, str]] = []

    def take(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            told = json.loads(line)
            if "error" in told:
                self.errors.append((told["code"], told["error"]))
            elif self._progress is not None:
                self._progress(told["work"], told["done"], told["total"])
            elif self._line is not None:
                self._line.show(told["work"], told["done"], told["total"], told["unit"] == "bytes")

    def end(self) -> None:
        if self._line is not None:
            self._line.clear()


def _run(command: str, places: list[str], options: list[str], progress: Progress) -> dict[str, Any]:
    if progress is not None and not isinstance(progress, bool) and not callable(progress):
        _arguments.refuse("progress", "True, False, None or a function", progress)
    read, write = os.pipe()
    environment = {"MILLRACE_PYTHON": sys.executable, **os.environ, "MILLRACE_REPORT_FD": str(write)}
    try:
        process = subprocess.Popen(
            [program(), command, *options, "--json", "--", *places],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(write,),
            env=environment,
        )
    except BaseException:
        os.close(read)
        raise
    finally:
        os.close(write)
    told = _Told(command, progress)
    with process, open(read, "rb", buffering=0) as report:
        try:
            out, error = _listen(process, report, told)
        except BaseException:  # KeyboardInterrupt, or what a function of progress raises
            process.send_signal(signal.SIGINT)
            raise
        finally:
            told.end()
    status = process.returncode
    for line in error.decode(errors="replace").splitlines():
        if ": warning: " in line or status == 0:
            print(line, file=sys.stderr)
    if status == 0:
        return _last_object(command, out)
    raise _error(command, told.errors, status, error)


def _listen(process: subprocess.Popen[bytes], report: IO[bytes], told: _Told) -> tuple[bytes, bytes]:
    """Returns all that the process writes on stdout and stderr."""
    assert process.stdout is not None and process.stderr is not None
    written: dict[IO[bytes], list[bytes]] = {process.stdout: [], process.stderr: []}
    with selectors.DefaultSelector() as selector:
        for file in (process.stdout, process.stderr, report):
            selector.register(file, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select():
                data = os.read(key.fd, _READ_BYTES)
                if not data:
                    selector.unregister(key.fileobj)
                elif key.fileobj is report:
                    told.take(data)
                else:
                    written[key.fileobj].append(data)  # type: ignore[index]
    return b"".join(written[process.stdout]), b"".join(written[process.stderr])


def _last_object(command: str, out: bytes) -> dict[str, Any]:
    lines = out.splitlines()
    if not lines:
        raise InternalError(f"millrace {command} has printed no result")
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def _error(command: str, errors: list[tuple[str, str]], status: int, text: bytes) -> Error:
    if errors:
        code, message = errors[0]
        return BY_CODE.get(code, InternalError)(message)
    said = text.decode(errors="replace").strip() or f"it ended with status {status}"
    # Wrong usage has no error of its own: the command line says it.
    return (InvalidArgumentError if status == 2 else InternalError)(f"millrace {command}: {said}")
