"""Saves Lightning's checkpoints, stored like those of :class:`millrace.Checkpoints`: complete, verified, and without
pickles."""

from __future__ import annotations

import importlib
import importlib.util
import os
import pathlib
import shutil
import sys
from typing import TYPE_CHECKING, Any

from . import _arguments
from ._checkpoints import Checkpoints
from ._errors import InvalidArgumentError


def _find_base() -> Any:
    """Returns the base class of the package that the program has imported, or else of the one that is installed.

    The packages are ``lightning`` and ``pytorch_lightning``, whose classes differ.
    """
    names = ["lightning.pytorch", "pytorch_lightning"]
    for name in sorted(names, key=lambda name: name not in sys.modules):
        if importlib.util.find_spec(name.split(".")[0]) is not None:
            return importlib.import_module(f"{name}.plugins.io").CheckpointIO
    raise ImportError("millrace.lightning_checkpoints needs the package lightning or pytorch_lightning")


if TYPE_CHECKING:
    # These are the used parts of Lightning's class, so that type checks work without the package.
    class _Base:
        def teardown(self) -> None: ...
else:
    _Base = _find_base()

__all__ = ["CheckpointIO"]


class CheckpointIO(_Base):
    """A plugin of a Trainer that saves and loads through Millrace::

        trainer = Trainer(plugins=[millrace.lightning_checkpoints.CheckpointIO()], callbacks=[ModelCheckpoint("/data/run-7", save_last=True)])
        trainer.fit(model, ckpt_path="/data/run-7/last.ckpt")

    A name such as ``epoch=1-step=200.ckpt``, which is a file for Lightning, is then a folder with one checkpoint. If it is saved again, it is
    replaced as a whole. ``millrace checkpoint verify`` checks it, and all tools for safetensors read its ``state_dict.safetensors``.

    For paths that begin with ``s3://``, call ``millrace.filesystem.register()`` first, since Lightning uses fsspec to look for files.

    Args:
        allow_pickle: True: pickle values that are neither plain data nor tensors when they are saved, and unpickle them when they are
            loaded. An example is an object among hyperparameters. Everyone who can write a checkpoint can then run any code in the process
            that loads it.

    Raises:
        InvalidArgumentError: A state holds such a value, and ``allow_pickle`` is False.
    """

    def __init__(self, *, allow_pickle: bool = False) -> None:
        self._allow_pickle = _arguments.flag("allow_pickle", allow_pickle)

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any = None
    ) -> None:
        if storage_options is not None:
            raise InvalidArgumentError("storage_options are of other plugins; Millrace takes the usual AWS variables")
        ckpt = Checkpoints(path, rank=0, keep=1)  # Lightning calls it on one rank
        ckpt.save(int(checkpoint.get("global_step", 0)), _plain(checkpoint), allow_pickle=self._allow_pickle)

    def load_checkpoint(
        self, path: str | os.PathLike[str], map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        location = None if callable(map_location) or isinstance(map_location, dict) else map_location
        found = Checkpoints(path, rank=0).load(
            map_location=location, allow_pickle=self._allow_pickle and not weights_only
        )
        if not isinstance(found, dict):
            raise InvalidArgumentError(f"{os.fspath(path)} holds no checkpoint of Lightning")
        return found

    def remove_checkpoint(self, path: str | os.PathLike[str]) -> None:
        name = os.fspath(path)
        if "://" not in name:
            if os.path.isdir(name) and not os.path.islink(name):
                shutil.rmtree(name, ignore_errors=True)
            else:  # a file that another plugin has saved, or the link of save_last="link"
                pathlib.Path(name).unlink(missing_ok=True)
            return
        from .filesystem import FileSystem

        files = FileSystem()
        if files.exists(name):
            files.rm(name, recursive=True)


def _plain(value: Any) -> Any:
    """Converts Lightning's own kinds of dicts, such as AttributeDict of hyperparameters, to dicts. Other values stay the same."""
    if isinstance(value, dict):
        made = {key: _plain(item) for key, item in value.items()}
        return (
            made
            if type(value).__module__.split(".")[0] in ("lightning", "lightning_fabric", "pytorch_lightning")
            or type(value) is dict
            else value
        )
    return value
