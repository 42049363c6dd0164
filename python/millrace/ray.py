"""Runs workers of the data service as actors, one in each bundle of a placement group. Ray chooses the nodes.

    pool = millrace.ray.Workers(4, cpus=16, allow=["s3://bucket/train"])
    # Addresses and secret of the workers, which can be pickled:
    access = pool.access()

    # TorchTrainer runs this on any node:
    def train():
        loader = millrace.Loader("s3://bucket/train", batch_size=256, **access.options())

    # At the end of the program:
    pool.close()

Each actor runs ``millrace worker`` on its node, or ``python -m millrace.worker`` with ``functions``, and starts it again if it ends. Trainers
continue without a worker that is lost (docs/service.md). The secret is made for this pool. Rows are not encrypted.
"""

from __future__ import annotations

import atexit
import ctypes
import dataclasses
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import ray  # type: ignore[import-not-found,unused-ignore]
from ray.util.placement_group import placement_group, remove_placement_group  # type: ignore[import-not-found,unused-ignore]
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy  # type: ignore[import-not-found,unused-ignore]

from . import _arguments, _commands, _moved_options
from ._errors import InvalidArgumentError, UnavailableError
from ._loader_options import cache_of_worker
from ._option_groups import Cache, Service

__all__ = ["Access", "Workers"]

_files: dict[tuple[int, str], str] = {}  # of secrets, by process
_files_lock = threading.Lock()


@dataclasses.dataclass(frozen=True)
class Access:
    """The data with which a trainer reaches the workers of a pool. :meth:`Workers.access` returns it. It can be pickled.

        loader = millrace.Loader("s3://bucket/train", **access.options())

    It has the addresses of the workers, and their secret.
    """

    addresses: tuple[str, ...]
    token: str = dataclasses.field(repr=False)

    def options(self) -> dict[str, Any]:
        """Returns the options for :class:`millrace.Loader`: ``workers``, which is a :class:`millrace.Service`.

        The secret is in a file of this process that disappears when the process ends.
        """
        return {"workers": Service(list(self.addresses), token=_file_with(self.token))}


class Workers:
    """Represents a pool of workers. It ends with :meth:`close`, at the end of ``with``, or with the program.

        with millrace.ray.Workers(4, cpus=16, allow=["s3://bucket/train"]) as pool:
            access = pool.access()

    Args:
        count: The number of workers.
        cpus: The number of CPUs that Ray reserves for each worker, and of its threads that decode.
        allow: URIs. The workers read at and below these, with the credentials of their nodes.
        memory: The budget of each worker, as ``"8GiB"``. None: half of the memory of its node.
        cache: A folder on each node that keeps the bytes that are read, for later epochs and other trainers. Or a :class:`millrace.Cache`
            with the size of each worker's cache. A cache in memory is a part of ``memory``. Caches are not pinned. None: no cache.
        keep_decoded: Memory of each worker for decoded batches that come again in each epoch, such as those of an evaluation. It is not
            part of ``memory``, and cannot be used with ``functions``. None: no such memory.
        functions: Names of modules. Trainers may run their functions on the workers by ``Loader(transform="module:function")``, and each node
            must be able to import them. None: workers do not run functions.
        strategy: The strategy of the placement group: ``"SPREAD"``, ``"PACK"``, ``"STRICT_SPREAD"`` or ``"STRICT_PACK"``.
        environment: Further environment variables for the workers, such as credentials. None: no further variables.
        timeout: The time, in seconds, in which Ray must find room for the workers.

    Raises:
        InvalidArgumentError: An argument has no valid value.
        UnavailableError: Ray did not find room for the workers in time.
    """

    def __new__(cls, *args: Any, **options: Any) -> Workers:
        _moved_options.check(options, "millrace.ray.Workers", _moved_options.OF_WORKERS)
        return super().__new__(cls)

    def __init__(
        self,
        count: int,
        *,
        cpus: int = 1,
        allow: Sequence[str],
        memory: str | None = None,
        cache: str | os.PathLike[str] | Cache | None = None,
        keep_decoded: int | str | None = None,
        functions: Sequence[str] | None = None,
        strategy: str = "SPREAD",
        environment: Mapping[str, str] | None = None,
        timeout: float = 300,
    ) -> None:
        if count < 1 or cpus < 1:
            raise InvalidArgumentError("a pool has one worker at least, and a worker one CPU")
        if isinstance(allow, str) or not allow:
            raise InvalidArgumentError("allow is a list of URIs, at and below which the workers read")
        words = ["--threads", str(cpus)]
        for uri in allow:
            words += ["--allow", uri]
        words += [] if memory is None else ["--memory", memory]
        place, size, tenant = cache_of_worker(cache)
        words += ["--cache", place] if place else []
        words += ["--cache-size", size] if size else []
        words += ["--cache-tenant", tenant] if tenant else []
        if keep_decoded is not None:
            if functions:
                raise InvalidArgumentError(
                    "keep_decoded keeps batches as they are decoded, and functions make others of them; leave one of the two out"
                )
            words += ["--keep-decoded", _arguments.memory(keep_decoded, "keep_decoded")]
        for module in functions or ():
            words += ["--allow-functions", module]
        self._token = secrets.token_hex(32)
        self._actors: list[Any] = []
        self._group = placement_group([{"CPU": cpus}] * count, strategy=strategy)
        try:
            if not self._group.wait(timeout):
                raise UnavailableError(
                    f"Ray has had no room for {count} workers of {cpus} CPUs within {timeout:g} seconds"
                )
            actor = ray.remote(_Worker)
            for bundle in range(count):
                place = PlacementGroupSchedulingStrategy(
                    placement_group=self._group, placement_group_bundle_index=bundle
                )
                self._actors.append(
                    actor.options(num_cpus=cpus, scheduling_strategy=place).remote(
                        words, self._token, dict(environment or {})
                    )
                )
            self._addresses = tuple(ray.get([actor.address.remote() for actor in self._actors], timeout=timeout))
        except BaseException:
            self.close()
            raise

    def access(self) -> Access:
        """Returns the data with which trainers on all nodes reach the workers."""
        return Access(self._addresses, self._token)

    def close(self) -> None:
        """Ends the workers. It may be called more than once."""
        for actor in self._actors:
            try:
                ray.get(actor.close.remote(), timeout=30)
            except Exception:  # it is gone, with its worker
                pass
            ray.kill(actor)
        self._actors = []
        if self._group is not None:
            remove_placement_group(self._group)
            self._group = None

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Worker:
    """The actor. It runs ``millrace worker`` on its node, at an address that does not change."""

    def __init__(self, words: list[str], token: str, environment: dict[str, str]) -> None:
        self._words = [*words, "--token-file", _file_with(token)]
        self._environment = {**os.environ, **environment}
        self._ends = threading.Event()
        self._lock = threading.Lock()  # over the process, which is not started again once it is closed
        self._process, self._address = self._start(f"{ray.util.get_node_ip_address()}:0")
        threading.Thread(target=self._watch, daemon=True).start()
        atexit.register(self.close)

    def address(self) -> str:
        return self._address

    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        self._ends.set()
        with self._lock:
            self._process.kill()
        self._process.wait()

    def _start(self, listen: str) -> tuple[subprocess.Popen[str], str]:
        program = (
            [sys.executable, "-m", "millrace.worker"]
            if "--allow-functions" in self._words
            else [_commands.program(), "worker"]
        )
        command = [*program, "--listen", listen, *self._words]
        # The worker ends with the actor's process, for every kind of its end.
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            env=self._environment,
            preexec_fn=_end_with_parent,
        )
        assert process.stdout is not None
        said = process.stdout.readline().split()
        if said[:2] != ["listening", "on"]:
            process.kill()
            process.wait()
            raise UnavailableError("millrace worker does not start on this node; its log says why")
        return process, said[2]

    def _watch(self) -> None:
        while not self._ends.is_set():
            self._process.wait()
            while not self._ends.wait(1):
                try:
                    with self._lock:
                        if not self._ends.is_set():
                            self._process, _ = self._start(self._address)
                    break
                except (OSError, UnavailableError):
                    continue


_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def _end_with_parent() -> None:
    # This runs between fork and exec, where an import could wait for a lock that no thread releases.
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _file_with(token: str) -> str:
    """Returns a file in the memory of this process that holds the secret. It disappears for every kind of end of the process."""
    with _files_lock:
        path = _files.get((os.getpid(), token))
        if path is None:
            handle = os.memfd_create("millrace-token")
            os.write(handle, token.encode())
            path = _files[os.getpid(), token] = f"/proc/{os.getpid()}/fd/{handle}"
        return path
