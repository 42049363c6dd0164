"""This module has a worker of the data service that also runs the functions of Python that Loaders name by
``transform="module:function"``.

    python -m millrace.worker --listen 0.0.0.0:7070 --token-file token --allow s3://bucket/train --allow-functions mytransforms

    loader = millrace.Loader("s3://bucket/train", transform="mytransforms:crop", workers=millrace.Service(["10.0.0.1:7070"], token="token"))

The functions run in this process without a sandbox: they may do everything that the process may do. They share its GIL, so that a host
needs one such worker for each CPU. In all other respects it is a worker like ``millrace worker`` (docs/service.md).
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from types import ModuleType, TracebackType
from typing import Any

from . import _arguments, _core, _moved_options
from ._errors import Error, InvalidArgumentError, TransformError
from ._loader_options import cache_of_worker
from ._option_groups import Cache
from ._padding import filled
from ._remote_rows import PADDING, encode, encode_error
from ._runtime import configure
from ._transform import Seeds, Work, imported

__all__ = ["Worker"]

_Function = Any  # what _core.Worker tells of a function: see _core.pyi


class Worker:
    """Represents a worker within this process, until :meth:`close`. Threads and memory are those of
    :func:`millrace.configure`.

        worker = millrace.worker.Worker("127.0.0.1:0", functions=["mytransforms"])
        print(worker.address)

    Args:
        listen: The address ``"HOST:PORT"``. Port 0 is any free port.
        functions: Names of modules. Trainers may run any function of these modules, but not of modules below them.
        allow: URIs at and below which the worker reads. Empty: all URIs, if only this machine can reach HOST.
        token_file: A file with the secret that trainers must have. None: no secret.
        tls: A folder with ``ca.crt``, ``tls.crt`` and ``tls.key``. None: connections are not encrypted.
        cache: A folder that keeps the bytes that are read. Or a :class:`millrace.Cache`, which also gives a size, and which is required for
            a cache in memory. Caches are not pinned. None: no cache.

    Raises:
        InvalidArgumentError: An argument has no valid value.
        AlreadyExistsError: The port is in use.
    """

    def __new__(cls, *args: Any, **options: Any) -> Worker:
        _moved_options.check(options, "millrace.worker.Worker", _moved_options.OF_WORKERS)
        return super().__new__(cls)

    def __init__(
        self,
        listen: str = "127.0.0.1:7070",
        *,
        functions: Sequence[str],
        allow: Sequence[str] = (),
        token_file: str | os.PathLike[str] | None = None,
        tls: str | os.PathLike[str] | None = None,
        cache: str | os.PathLike[str] | Cache | None = None,
    ) -> None:
        modules = _arguments.texts("functions", functions, "a list of modules")
        place, size, tenant = cache_of_worker(cache)
        self._functions = _Functions(modules)
        self._native = _core.Worker(
            listen=listen,
            allow=_arguments.texts("allow", allow, "a list of URIs") if allow else [],
            token_file="" if token_file is None else os.fspath(token_file),
            tls="" if tls is None else os.fspath(tls),
            cache=place,
            cache_size=size,
            cache_tenant=tenant,
            check=self._functions.check,
            apply=self._functions.apply,
        )

    @property
    def address(self) -> str:
        """Returns the address of the worker, ``HOST:PORT``."""
        return self._native.address

    def close(self) -> None:
        """Ends the worker, after running functions have ended. Trainers continue without it. It may be called more than once."""
        self._native.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Functions:
    """Represents the functions that trainers name. The worker's threads call it."""

    has_process = False  # True if this process does nothing else

    def __init__(self, modules: Sequence[str]) -> None:
        self._modules = modules

    def _is_allowed(self, name: str) -> bool:
        module = name.partition(":")[0]
        return module in self._modules

    def check(self, function: _Function) -> None:
        """Imports the function's module, after it has checked that the operator has named that module."""
        name = function[0]
        if not self._is_allowed(name):
            raise InvalidArgumentError(
                f"the trainer wants '{name}', and this worker runs functions of {', '.join(self._modules)} only (--allow-functions)"
            )
        imported(name)
        self._check_origin(name)
        if self.has_process and "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(1)  # other workers have the other CPUs

    def _check_origin(self, name: str) -> None:
        """Checks that a name is defined in the module itself, since a module also has the names that it imports."""
        module, _, path = name.partition(":")
        found: Any = sys.modules[module]
        for part in path.split("."):
            found = getattr(found, part)
            if isinstance(found, ModuleType):
                raise InvalidArgumentError(
                    f"'{name}' leads through the module {found.__name__}; name functions by their own module (--allow-functions)"
                )
        origin = getattr(found, "__module__", None)
        if not isinstance(origin, str) or not self._is_allowed(origin):
            raise InvalidArgumentError(
                f"'{name}' is one of {origin or 'no module'}, and this worker runs functions of {', '.join(self._modules)} only; "
                "define one there that calls it"
            )

    def apply(self, function: _Function, batch: dict[str, Any], epoch: int, consumed: int) -> list[bytes]:
        name, uri, wants_tensors, most, (seed, rank, world, is_mix, streams, stream) = function
        work = Work(imported(name), None, None, wants_tensors, uri, Seeds(seed, rank, world, is_mix, streams, stream))
        rows: list[bytes] = []
        size = 0
        for row, is_real in enumerate(filled(batch)):
            rows.append(_made(work, batch, row, epoch, consumed) if is_real else PADDING)
            size += len(rows[-1])
            if size > most:
                raise InvalidArgumentError(
                    f"'{name}' has made {size:,} bytes of {len(rows)} samples, and the trainer takes {most:,} of a batch; "
                    "give its Loader more memory, or smaller batches"
                )
        return rows


def _made(work: Work, batch: dict[str, Any], row: int, epoch: int, consumed: int) -> bytes:
    try:
        return encode(work.row(batch, row, epoch, consumed))
    except TransformError as error:
        return encode_error(error, _trace_of(error))
    except TypeError as error:  # of encode
        unsendable = TransformError(f"{work.name_of(batch, row)}: {error}")
        return encode_error(unsendable, str(error))


def _trace_of(error: TransformError) -> str:
    # This is not in _made, whose frame is part of the traceback. A local there would be a cycle that holds the memory of the batch.
    cause = error.__cause__ or error
    return "".join(traceback.format_exception(type(cause), cause, cause.__traceback__))


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m millrace.worker", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--listen", default="127.0.0.1:7070", metavar="HOST:PORT", help="port 0: any free one (default: 127.0.0.1:7070)"
    )
    parser.add_argument(
        "--allow-functions",
        action="append",
        required=True,
        metavar="MODULE",
        help="run functions of this module, not of those below it; may be repeated",
    )
    parser.add_argument(
        "--allow", action="append", default=[], metavar="URI", help="read only below this URI; may be repeated"
    )
    parser.add_argument("--token-file", metavar="FILE", help="a file with the secret that trainers must have")
    parser.add_argument("--tls", metavar="DIR", help="a folder with ca.crt, tls.crt and tls.key")
    parser.add_argument(
        "--cache",
        metavar="DIR|memory",
        help="keep the bytes that are read in this folder, or in memory (part of --memory)",
    )
    parser.add_argument(
        "--cache-size",
        metavar="SIZE",
        help="the space that the cache may take on the disk (default: all but 5 %%), or in memory",
    )
    parser.add_argument(
        "--cache-tenant",
        metavar="NAME",
        help="share the cache with programs that give the same name (default: programs with the same credentials)",
    )
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="CPU threads that decode (default: 1)")
    parser.add_argument(
        "--memory", metavar="SIZE", help="budget of all streams together (default: half of the machine's)"
    )
    options = parser.parse_args(words)
    told, tell = os.pipe()
    os.set_blocking(tell, False)
    signal.set_wakeup_fd(tell)  # a signal may meet any thread, and this one waits
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    try:
        configure(cpu_threads=options.threads, cpu_nice=0, io_threads=2, memory=options.memory)
        _Functions.has_process = True
        own = {name: getattr(options, name) for name in ("allow", "token_file", "tls")}
        worker = Worker(options.listen, functions=options.allow_functions, cache=_cache_of(options), **own)
    except Error as error:
        print(f"millrace.worker: {error}", file=sys.stderr)
        return 2 if isinstance(error, InvalidArgumentError) else 1
    print(f"listening on {worker.address}", flush=True)
    os.read(told, 1)
    closing = threading.Thread(target=worker.close, daemon=True)
    closing.start()
    closing.join(5)  # a function may run for ever; a worker has nothing to lose
    os._exit(0)


def _cache_of(options: argparse.Namespace) -> Cache | None:
    if options.cache is not None:
        return Cache(options.cache, options.cache_size, tenant=options.cache_tenant)
    for name, value in (("--cache-size", options.cache_size), ("--cache-tenant", options.cache_tenant)):
        if value is not None:
            raise InvalidArgumentError(f"{name} is for a cache; name its folder with --cache")
    return None


if __name__ == "__main__":
    sys.exit(main())
