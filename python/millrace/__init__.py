"""Millrace streams machine-learning samples from object storage to the training loop.

    import millrace

    loader = millrace.Loader("s3://bucket/train", batch_size=256, size=224, augment=True, seed=1)
    for epoch in range(10):
        for batch in loader:
            train(batch["image"], batch["label"])

:class:`Loader` describes the contents of a batch, and how to resume. :class:`Checkpoints` stores the state of a training. The command
``millrace`` prepares data (``millrace --help``).
S3 settings come from the usual AWS variables and profile files. ``AWS_ENDPOINT_URL`` selects any S3-compatible store.
"""

from __future__ import annotations

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from . import _core, transforms
from ._batch import Batch, State
from ._checkpoints import Checkpoints
from ._commands import index, pack, sync
from ._commands import inspect as inspect  # not in __all__: `import *` leaves Python's own module alone
from ._contact_sheet import ContactSheet
from ._dataset import Dataset
from ._errors import (
    AccessDeniedError,
    AlreadyExistsError,
    CancelledError,
    DamagedDataError,
    Error,
    ExhaustedError,
    InternalError,
    InvalidArgumentError,
    MismatchError,
    NotFoundError,
    TransformError,
    UnavailableError,
    UnsupportedError,
    UsageError,
)
from ._fields import Array, Boxes, Bytes, Image, Json, Label, Text
from ._file_protocol import register as _register_protocol
from ._files import open as open  # not in __all__: `import *` leaves Python's own alone
from ._job import Notice, heartbeat, notice
from ._labels import Labels
from ._loader import Loader
from ._mix import Mix
from ._option_groups import Cache, Map, Service, Shuffle, Transfer
from ._plan import Plan
from ._public_names import publish as _publish
from ._report import Report
from ._rng import rng_state, set_rng_state
from ._runtime import configure, metrics_url
from ._shard_writer import ShardWriter
from ._token_writer import TokenWriter
from ._tokens import Rows, Shape, Tokens

__version__: str = _core.__version__

# These are modules that need further packages, or that few programs use. They are imported when a program first names
# them.
_LATER = (
    "checkpoint_export",
    "checkpoint_import",
    "filesystem",
    "huggingface",
    "huggingface_checkpoints",
    "jax",
    "lightning",
    "lightning_checkpoints",
    "preflight",
    "ray",
    "tf",
    "torch",
    "worker",
)

if _TYPE_CHECKING:
    from . import (  # noqa: F401
        checkpoint_export,
        checkpoint_import,
        filesystem,
        huggingface,
        huggingface_checkpoints,
        jax,
        lightning,
        lightning_checkpoints,
        preflight,
        ray,
        tf,
        torch,
        worker,
    )
else:

    def __getattr__(name: str) -> _Any:
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return _importlib.import_module(f"{__name__}.{name}")


_register_protocol()

__all__ = [
    "AccessDeniedError",
    "AlreadyExistsError",
    "Array",
    "Batch",
    "Boxes",
    "Bytes",
    "Cache",
    "CancelledError",
    "Checkpoints",
    "ContactSheet",
    "DamagedDataError",
    "Dataset",
    "Error",
    "ExhaustedError",
    "Image",
    "InternalError",
    "InvalidArgumentError",
    "Json",
    "Label",
    "Labels",
    "Loader",
    "Map",
    "MismatchError",
    "Mix",
    "NotFoundError",
    "Notice",
    "Plan",
    "Report",
    "Rows",
    "Service",
    "Shape",
    "ShardWriter",
    "Shuffle",
    "State",
    "Text",
    "TokenWriter",
    "Tokens",
    "Transfer",
    "TransformError",
    "UnavailableError",
    "UnsupportedError",
    "UsageError",
    "__version__",
    "configure",
    "heartbeat",
    "index",
    "metrics_url",
    "notice",
    "pack",
    "rng_state",
    "set_rng_state",
    "sync",
    "transforms",
]

_publish(__name__, [*__all__, "open", "inspect"], globals())
