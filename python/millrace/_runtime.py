"""The threads and memory that all data sets and loaders of a process share."""

from __future__ import annotations

from . import _arguments, _core


def configure(
    *,
    io_threads: int = 1,
    cpu_threads: int | None = None,
    cpu_nice: int = 10,
    memory: int | str | None = None,
    outage_limit: float = 600,
    metrics_port: int | str | None = None,
) -> None:
    """Sets what this process gives to Millrace. Call it before the first :class:`Dataset` or :class:`Loader`.

    Threads are made when first needed; a child made by ``fork`` gets threads of its own, with the same settings.

    Args:
        io_threads: Network threads. One moves several gigabytes a second.
        cpu_threads: Threads that decode. ``None``: one for each CPU that the process may use.
        cpu_nice: How far these give way to the program's own threads, which train on the same cores: 0 (not at all) to 19. They decode ahead
            in the time that the training leaves, and while it waits for a batch they have all of it. With 0 they take as large a share of
            busy cores as the training's threads do.
        memory: Bound on the buffers of all loaders together, in bytes or as ``"4GiB"``. ``None``: half of the memory that
            the process may use (its cgroup's or the machine's). Decoders hold large progressive JPEGs, WebPs and the like beside it, in an
            eighth as much, but at least 256 MiB.
        outage_limit: Seconds to wait for S3 if it has answered before and stops, with a warning when the wait begins. Beyond it, and with 0
            after some attempts, what needs S3 raises :class:`UnavailableError`.
        metrics_port: Serve metrics for Prometheus and ``millrace top`` on this port of this machine, or on ``"HOST:PORT"``; 0: on any
            free one, which :func:`metrics_url` tells. This process alone serves them, not its forks; each rank of a machine needs a port of
            its own. ``None``: they are not served.

    Raises:
        UsageError: Millrace is in use already.
        InvalidArgumentError: A number, size or address makes no sense, or ``memory`` can hold no loader (it is below 2 MiB).
        AlreadyExistsError: The port of ``metrics_port`` is in use.
    """
    _core.configure(
        _arguments.integer("io_threads", io_threads, least=1, most=64),
        0 if cpu_threads is None else _arguments.integer("cpu_threads", cpu_threads, least=1, most=1024),
        _arguments.integer("cpu_nice", cpu_nice, least=0, most=19),
        "" if memory is None else _arguments.memory(memory),
        _arguments.number("outage_limit", outage_limit, "a number of seconds"),
        _metrics_address(metrics_port),
    )


def _metrics_address(port: int | str | None) -> str:
    if port is None or isinstance(port, str):
        return port or ""
    return str(_arguments.integer("metrics_port", port, least=0, most=65535))


def metrics_url() -> str | None:
    """Where the metrics of this process are, ``"http://127.0.0.1:9400/metrics"``. ``None`` if ``configure(metrics_port=)`` was not called."""
    return _core.metrics_url()
