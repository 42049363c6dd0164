"""Exceptions of Millrace.

All derive from :class:`Error` and, so that existing ``except`` clauses keep working, from the built-in exception that Python programs
expect in such a case. Messages name the object, the operation and the remedy.
"""

from __future__ import annotations

__all__ = [
    "AccessDeniedError",
    "AlreadyExistsError",
    "CancelledError",
    "DamagedDataError",
    "Error",
    "ExhaustedError",
    "InternalError",
    "InvalidArgumentError",
    "MismatchError",
    "NotFoundError",
    "TransformError",
    "UnavailableError",
    "UnsupportedError",
    "UsageError",
]


class Error(Exception):
    """Base class of all errors that Millrace raises."""


class InvalidArgumentError(Error, ValueError):
    """Options or input make no sense; nothing was attempted."""


class NotFoundError(Error, FileNotFoundError):
    """The bucket, object or file does not exist, or there are no samples under the prefix."""


class AlreadyExistsError(Error, FileExistsError):
    """A conditional write lost, or a bucket exists."""


class AccessDeniedError(Error, PermissionError):
    """The store refuses these credentials, does not know them, or there are none."""


class MismatchError(Error, RuntimeError):
    """An object is not the one that was indexed, a position belongs to another data set, seed or shuffle, or another
    process has claimed the checkpoints."""


class DamagedDataError(Error, OSError):
    """Bytes are damaged: a checksum, a truncated shard, a sample that cannot be decoded."""


class ExhaustedError(Error, MemoryError):
    """A memory budget, a disk or a quota is too small; the message says what would do."""


class UnavailableError(Error, ConnectionError):
    """The store did not answer, or kept failing until the retries were used up; trying later may help."""


class CancelledError(Error, RuntimeError):
    """The operation was stopped by its owner."""


class UnsupportedError(Error, NotImplementedError):
    """The store or the format cannot do this."""


class InternalError(Error, RuntimeError):
    """A fault of Millrace itself; please report it with its message."""


class UsageError(Error, RuntimeError):
    """An object was used where or when it cannot work: after close(), after a fork, or too late."""


class TransformError(Error, RuntimeError):
    """A transform raised, or returned what no batch can be made of. The message names the sample; ``__cause__`` is what it raised."""


# Every code of absl::Status but OK. The native module looks the class up here.
BY_CODE: dict[str, type[Error]] = {
    "CANCELLED": CancelledError,
    "UNKNOWN": InternalError,
    "INVALID_ARGUMENT": InvalidArgumentError,
    "DEADLINE_EXCEEDED": UnavailableError,
    "NOT_FOUND": NotFoundError,
    "ALREADY_EXISTS": AlreadyExistsError,
    "PERMISSION_DENIED": AccessDeniedError,
    "UNAUTHENTICATED": AccessDeniedError,
    "RESOURCE_EXHAUSTED": ExhaustedError,
    "FAILED_PRECONDITION": MismatchError,
    "ABORTED": UnavailableError,
    "OUT_OF_RANGE": DamagedDataError,  # an object ends before the range that its index names
    "UNIMPLEMENTED": UnsupportedError,
    "INTERNAL": InternalError,
    "UNAVAILABLE": UnavailableError,
    "DATA_LOSS": DamagedDataError,
}
