"""Settings of the threads and memory that all data sets and loaders of a process share."""

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
    """Sets the threads and the memory of Millrace in this process. Call it before the first :class:`Dataset` or :class:`Loader`.

        millrace.configure(cpu_threads=8, memory="4GiB", metrics_port=9400)

    Threads are started when they are first needed. A forked child starts its own threads, with the same settings.

    Args:
        io_threads: The number of network threads, 1 to 64. One thread transfers several gigabytes a second.
        cpu_threads: The number of threads that decode, 1 to 1024. None: one for each CPU that the process may use.
        cpu_nice: The nice value of these threads, 0 to 19. The program's own threads train on the same cores, and a larger value gives
            them more time. While the training waits for a batch, the decoding threads get all of it. With 0 they get as large a share of
            busy cores as the threads of the training.
        memory: A limit for the buffers of all loaders together, in bytes or as ``"4GiB"``. None: half of the memory that the process may
            use (the limit of its cgroup, or the memory of the machine). Decoders take further memory for large progressive JPEGs, WebPs
            and similar images: an eighth of ``memory``, but at least 256 MiB.
        outage_limit: The time, in seconds, to wait for S3 if it has answered before and stops. A warning is logged when the wait begins.
            After that time, calls that need S3 raise :class:`UnavailableError`. 0: they raise it after some attempts.
        metrics_port: The port of this machine, or the address ``"HOST:PORT"``, for the metrics for Prometheus and ``millrace top``. 0: any
            free port, which :func:`metrics_url` returns. Only this process serves them, not its forks. Each rank of a machine needs a port
            of its own. None: metrics are not served.

    Raises:
        UsageError: Millrace is in use already.
        InvalidArgumentError: A number, size or address is not valid, or ``memory`` is too small for a loader (below 2 MiB).
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
    """Returns the URL of the metrics of this process, or None if ``configure(metrics_port=)`` was not called.

        print(millrace.metrics_url())  # http://127.0.0.1:9400/metrics

    The port is that of ``configure(metrics_port=)``, or the chosen one if that was 0.
    """
    return _core.metrics_url()
