"""This module has the checkpoints of Hugging Face's Trainer, stored on S3 or in a shared folder like those of
:class:`millrace.Checkpoints`."""

from __future__ import annotations

import contextlib
import errno
import filecmp
import os
import pathlib
import shutil
import time
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _arguments, _tensors
from ._checkpoints import Checkpoints
from ._errors import DamagedDataError, InvalidArgumentError
from ._ranks import rank_and_world

if TYPE_CHECKING:
    # These are the used parts of transformers' class, so that type checks work without the package.
    class _Base: ...
else:
    from transformers import TrainerCallback as _Base

__all__ = ["CheckpointCallback"]

_ABANDONED_SECONDS = 24 * 3600  # no restore takes that long


class CheckpointCallback(_Base):
    """Copies each checkpoint that a Trainer writes to its local ``output_dir`` to S3 or a shared folder, and restores it::

        saver = millrace.huggingface_checkpoints.CheckpointCallback("s3://bucket/run-7", keep=3)
        trainer = Trainer(model, arguments, train_dataset=data, callbacks=[saver])
        trainer.train(resume_from_checkpoint=saver.restore(arguments.output_dir))

    There, a checkpoint is complete and verified, or it does not exist, and a process that is believed dead cannot commit one
    (docs/checkpoints.md). The files are stored unchanged, in ``files.safetensors``. Rank 0 saves when all ranks have written their files, so
    all ranks must use the same folder.

    Args:
        uri, keep, keep_every: As for :class:`millrace.Checkpoints`.

    Raises:
        InvalidArgumentError: An argument has no valid value.
    """

    def __init__(
        self, uri: str | os.PathLike[str] | None = None, *, keep: int | None = None, keep_every: int | None = None
    ) -> None:
        self._checkpoints = Checkpoints(uri, keep=keep, keep_every=keep_every, rank=0)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Saves a checkpoint. The Trainer calls this method on all ranks when it has written one."""
        _barrier()
        if rank_and_world(None, None)[0] == 0:
            self._checkpoints.save(
                state.global_step, {"files": _mapped(pathlib.Path(args.output_dir) / f"checkpoint-{state.global_step}")}
            )

    def restore(self, output_dir: str | os.PathLike[str], step: int | None = None) -> str | None:
        """Copies a checkpoint into ``output_dir``. Its folder appears only when it is complete.

        With several ranks, call it on rank 0 of the ranks that share the folder. Then all ranks meet at a barrier, and rank 0 broadcasts the
        path (docs/checkpoints.md). If a folder of that checkpoint exists already, it stays if its files are equal. Otherwise it is
        replaced. Several restores may run at the same time.

        Args:
            output_dir: The ``output_dir`` of the TrainingArguments.
            step: The step of the checkpoint. None: the newest one.

        Returns:
            Its folder, for ``train(resume_from_checkpoint=...)``; None if there is no checkpoint.

        Raises:
            NotFoundError: There is no checkpoint of this step.
            DamagedDataError: Bytes are not those that were saved.
        """
        step = self._checkpoints.latest() if step is None else _arguments.integer("step", step, least=0)
        if step is None:
            return None
        target = pathlib.Path(output_dir) / f"checkpoint-{step}"
        _remove_abandoned(target.parent)
        partial = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
        try:
            # Each file gets its size first, so that it is read directly into its place.
            sizes = _sizes(self._checkpoints, step)
            files = {name: _new_file(partial / _checked(name), size) for name, size in sizes.items()}
            self._checkpoints.load(step, into={"files": files})
            for made in files.values():
                if isinstance(made, np.memmap):
                    made.flush()
            _put_in_place(partial, target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return str(target)


def _remove_abandoned(folder: pathlib.Path) -> None:
    """Removes folders that killed restores have left."""
    for partial in folder.glob(".checkpoint-*.part"):
        with contextlib.suppress(FileNotFoundError):  # another process removes it
            if time.time() - partial.stat().st_mtime > _ABANDONED_SECONDS:
                shutil.rmtree(partial, ignore_errors=True)


def _put_in_place(partial: pathlib.Path, target: pathlib.Path) -> None:
    """Moves a restored folder to its place. Other processes may do the same at the same time."""
    replaced = partial.with_name(f".replaced{partial.name}")
    while True:
        try:
            partial.rename(target)
            break
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
        if _same_files(partial, target):
            break
        with contextlib.suppress(FileNotFoundError):
            target.rename(replaced)
    shutil.rmtree(replaced, ignore_errors=True)


def _same_files(one: pathlib.Path, other: pathlib.Path) -> bool:
    try:
        names = [name for name, _ in _files(one)]
        return names == [name for name, _ in _files(other)] and all(
            filecmp.cmp(one / name, other / name, shallow=False) for name in names
        )
    except OSError:  # it is being replaced
        return False


def _barrier() -> None:
    torch = _tensors.torch_if_imported()
    if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.barrier()


def _files(folder: pathlib.Path) -> Iterator[tuple[str, pathlib.Path]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield path.relative_to(folder).as_posix(), path


def _mapped(folder: pathlib.Path) -> dict[str, Any]:
    """Returns the contents of the files of a folder. They are mapped, so that they are read only when they are sent."""
    if not folder.is_dir():
        raise InvalidArgumentError(
            f"{folder} is not there, although the Trainer has saved it; give all ranks one output_dir"
        )
    return {
        name: np.asarray(np.memmap(path, np.uint8, "r")) if path.stat().st_size else np.empty(0, np.uint8)
        for name, path in _files(folder)
    }


def _sizes(checkpoints: Checkpoints, step: int) -> dict[str, int]:
    """Returns the sizes of the files of a checkpoint, by name."""
    found = checkpoints.describe(step)
    if not isinstance(found, dict) or not isinstance(found.get("files"), dict):
        raise InvalidArgumentError(f"{checkpoints.uri}: step {step} was not saved by a CheckpointCallback")
    return {name: shape[0] for name, (_, shape) in found["files"].items()}


def _checked(name: str) -> str:
    parts = pathlib.PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts:
        raise DamagedDataError(f"the checkpoint names a file {name!r}, which would be elsewhere")
    return name


def _new_file(path: pathlib.Path, size: int) -> Any:
    path.parent.mkdir(parents=True, exist_ok=True)
    if size == 0:
        path.touch()
        return np.empty(0, np.uint8)
    return np.memmap(path, np.uint8, "w+", shape=(size,))
