"""Defines the exceptions of Millrace.

All derive from :class:`Error`. They also derive from the built-in exception that Python programs expect in such a case, so that existing
``except`` clauses keep working. Messages name the object, the operation and the remedy.
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
    """Base class of all errors that Millrace raises.

        try:
            dataset = millrace.Dataset("s3://bucket/train")
        except millrace.Error as error:
            print(error)

    Each error below also has a built-in base class, such as ``ValueError``.
    """


class InvalidArgumentError(Error, ValueError):
    """An option or an input is not valid. Nothing was attempted."""


class NotFoundError(Error, FileNotFoundError):
    """The bucket, object or file does not exist, or there are no samples under the prefix."""


class AlreadyExistsError(Error, FileExistsError):
    """The object, file or bucket exists already, for example because another process wrote it first."""


class AccessDeniedError(Error, PermissionError):
    """The store refuses the credentials or does not know them, or there are no credentials."""


class MismatchError(Error, RuntimeError):
    """Two things do not belong together.

    An object is not the one that was indexed; a position belongs to another data set, seed or shuffle; or another process has claimed
    the checkpoints.
    """


class DamagedDataError(Error, OSError):
    """Bytes are damaged: a checksum differs, a shard is truncated, or a sample cannot be decoded."""


class ExhaustedError(Error, MemoryError):
    """A memory budget, a disk or a quota is too small. The message says what would be enough."""


class UnavailableError(Error, ConnectionError):
    """The store did not answer, or kept failing until the retries were used up. A later attempt may succeed."""


class CancelledError(Error, RuntimeError):
    """The operation was stopped by its owner."""


class UnsupportedError(Error, NotImplementedError):
    """The store or the format cannot do this."""


class InternalError(Error, RuntimeError):
    """Millrace itself has an error. Please report it with its message."""


class UsageError(Error, RuntimeError):
    """An object was used in a place or at a time in which it cannot work: after close(), after a fork, or too late."""


class TransformError(Error, RuntimeError):
    """A transform raised, or returned a value that cannot become part of a batch.

    The message names the sample, and ``__cause__`` is the exception that the transform raised.
    """


# This is every code of absl::Status but OK. The native module looks the class up here.
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
