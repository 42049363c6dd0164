"""Checkpoints that other programs have written, as checkpoints of Millrace: ``millrace checkpoint cp`` runs ``python -m millrace.checkpoint_import``.

It reads files of ``torch.save``, folders of ``torch.distributed.checkpoint`` (FileSystemWriter, S3StorageWriter), and safetensors (a file, or a
folder of files, as Hugging Face writes them). Files on S3 are first copied to a temporary folder (``TMPDIR``), since torch reads files. From
there, tensors are mapped or read one at a time. So an import takes as much memory as the largest tensor, and 64 MiB.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import pickle
import re
import struct
import sys
import tempfile
from typing import Any

import numpy as np

from . import _arguments, _core, _tensors
from ._checkpoints import Checkpoints
from ._errors import DamagedDataError, Error, InvalidArgumentError, NotFoundError
from ._foreign_json import parse_json
from .checkpoint_export import missing_module

__all__ = ["import_checkpoint"]

# src/cli/checkpoint_change.cc has these endings and names, too (IsForeignFile, IsForeignFolder).
_PICKLES = (".pt", ".pth", ".bin", ".ckpt", ".pkl")
_METADATA = ".metadata"  # of torch.distributed.checkpoint
_ENDING = ".safetensors"
_MAX_HEADER_BYTES = 100 << 20  # that of safetensors itself


def import_checkpoint(
    source: str | os.PathLike[str],
    uri: str | os.PathLike[str],
    *,
    step: int = 0,
    keep: int | None = None,
    name: str = "model",
    allow_pickle: bool = False,
) -> None:
    """Saves a checkpoint of another program as a checkpoint of Millrace. It appears only when it is complete.

        from millrace.checkpoint_import import import_checkpoint

        import_checkpoint("model.pt", "s3://bucket/run-7", step=1200)
        state = millrace.Checkpoints("s3://bucket/run-7").load(1200)

    The import claims the destination, so that a training that saves there cannot commit any more. If an import is killed, the earlier
    checkpoints remain, and you can call it again.

    Args:
        source: A file of ``torch.save`` (``.pt``, ``.pth``, ``.bin``, ``.ckpt``, ``.pkl``) or ``.safetensors``; or a folder that
            ``torch.distributed.checkpoint`` has written, or a folder of files of safetensors. It is on S3 or a file system.
        uri: The place where the checkpoint is saved.
        step: The step of the checkpoint.
        keep: The number of checkpoints that remain there. None: all.
        name: The name of the item that gets the tensors, if the source has only tensors at its top. ``torch.save(model.state_dict(), file)``
            writes such a file.
        allow_pickle: True: unpickle values that are neither plain data nor tensors. Everyone who can write the source can then run any code
            in this process. These values are pickled again.

    Raises:
        NotFoundError: There is no such source.
        InvalidArgumentError: The source has another format; or it holds pickles, and ``allow_pickle`` is False.
        DamagedDataError: The source is truncated or damaged.
    """
    given = _arguments.uri("source", source)
    step = _arguments.integer("step", step, least=0)
    name = str(_arguments.text("name", name))
    allow_pickle = _arguments.flag("allow_pickle", allow_pickle)
    ckpt = Checkpoints(uri, keep=keep, rank=0)
    with tempfile.TemporaryDirectory(prefix="millrace-import-") as scratch:
        path = _local(given, pathlib.Path(scratch))
        state = _state_of(path, given, allow_pickle)
        if not isinstance(state, dict) or all(map(_is_tensor, state.values())):
            state = {name: state}
        ckpt.save(step, state, allow_pickle=allow_pickle)


def _is_tensor(value: Any) -> bool:
    torch = _tensors.torch_if_imported()
    return isinstance(value, (_tensors.Later, np.ndarray)) or (torch is not None and isinstance(value, torch.Tensor))


def _local(source: str, scratch: pathlib.Path) -> pathlib.Path:
    """Returns the source as a file or folder of this machine."""
    if "://" not in source or source.startswith("file://"):
        return pathlib.Path(source.removeprefix("file://"))
    if source.endswith((*_PICKLES, _ENDING)):
        path = scratch / source.rsplit("/", 1)[1]
        _core.copy_object(source, str(path))
        return path
    folder = source.rstrip("/") + "/"
    found, _ = _core.list_place(folder, True, 0)
    for key, *_ in found:
        path = scratch / key
        if not path.resolve().is_relative_to(scratch.resolve()):
            raise InvalidArgumentError(f"{folder}{key} is not the name of a file")
        path.parent.mkdir(parents=True, exist_ok=True)
        _core.copy_object(folder + key, str(path))
    return scratch


def _state_of(path: pathlib.Path, source: str, allow_pickle: bool) -> Any:
    if path.is_dir():
        if (path / _METADATA).is_file():
            return _of_dcp(path, source, allow_pickle)
        files = sorted(path.glob("*" + _ENDING))
        if files:
            return _of_safetensors(files)
        raise InvalidArgumentError(
            f"{source} is a folder with neither {_METADATA} of torch.distributed.checkpoint nor files of safetensors"
        )
    if not path.exists():
        raise NotFoundError(f"{source}: there is no such file or folder")
    return _of_safetensors([path]) if path.suffix == _ENDING else _of_torch(path, source, allow_pickle)


# ---- safetensors


def _of_safetensors(files: list[pathlib.Path]) -> dict[str, _tensors.Later]:
    """Returns tensors whose bytes are in the mapped files."""
    state: dict[str, _tensors.Later] = {}
    for file in files:
        for name, tensor in _tensors_of(file):
            if name in state:
                raise InvalidArgumentError(
                    f"{file.name} has a tensor {name!r}, and another file of the folder has it, too; import one file"
                )
            state[name] = tensor
    return state


def _tensors_of(file: pathlib.Path) -> list[tuple[str, _tensors.Later]]:
    size = file.stat().st_size
    with file.open("rb") as opened:
        (length,) = struct.unpack("<Q", opened.read(8).ljust(8, b"\xff"))
        if length > min(size - 8, _MAX_HEADER_BYTES):
            raise DamagedDataError(
                f"{file} is not a complete file of safetensors: its header would have {length} bytes"
            )
        text = opened.read(length)
    begin = 8 + length
    data = np.memmap(file, np.uint8, "r", begin) if size > begin else np.empty(0, np.uint8)
    found = []
    try:
        for name, entry in parse_json(text).items():
            if name == "__metadata__":
                continue
            first, end = entry["data_offsets"]
            tensor = _tensors.Later(str(entry["dtype"]), tuple(int(side) for side in entry["shape"]), data[first:end])
            needed = _tensors.item_bytes(tensor.type) * int(np.prod(tensor.shape, dtype=object))
            if not 0 <= first <= end <= data.size or end - first != needed:
                raise DamagedDataError(
                    f"{file}: the tensor {name!r} has {needed} bytes, which are not in the file; it is cut off or damaged"
                )
            found.append((str(name), tensor))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedDataError(f"{file}: the header is not that of safetensors: {error!r}") from None
    return found


# ---- torch.save


def _of_torch(path: pathlib.Path, source: str, allow_pickle: bool) -> Any:
    import zipfile

    import torch

    from ._torch_version import require_safe_loading

    if not allow_pickle:
        require_safe_loading(source)
    try:
        # The older format is not a zip archive, and its tensors are read into memory.
        return torch.load(path, map_location="cpu", mmap=zipfile.is_zipfile(path), weights_only=not allow_pickle)
    except pickle.UnpicklingError as error:
        if allow_pickle:
            raise DamagedDataError(f"{source}: torch.load cannot read it: {_first_line(error)}") from error
        named = re.search(r"GLOBAL (\S+)", str(error))
        raise InvalidArgumentError(
            f"{source} holds {named[1] if named else 'something'}, which is neither a tensor nor plain data, or it is damaged. Pickles can run any code when "
            "they are read: give allow_pickle=True (--allow-pickle) if you trust it"
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
        raise DamagedDataError(f"{source}: torch.load cannot read it: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


# ---- torch.distributed.checkpoint


def _of_dcp(path: pathlib.Path, source: str, allow_pickle: bool) -> Any:
    from ._import_dcp import state_of

    return state_of(path, source, allow_pickle)


# ---- command


def main(arguments: list[str] | None = None) -> int:
    """Runs ``millrace checkpoint cp``, and prints its output."""
    parser = argparse.ArgumentParser(
        prog="python -m millrace.checkpoint_import",
        description="Saves a checkpoint of another program as a checkpoint of Millrace.",
    )
    parser.add_argument(
        "source",
        help="a file of torch.save or safetensors, or a folder of torch.distributed.checkpoint or of files of safetensors",
    )
    parser.add_argument("uri", help="the place where the checkpoint is saved")
    parser.add_argument("--step", type=int, default=0, help="the step of the checkpoint (default 0)")
    parser.add_argument("--keep", type=int, default=0, help="how many checkpoints remain there; 0: all")
    parser.add_argument(
        "--name", default="model", help="which item of the state they become if there are only tensors (default model)"
    )
    parser.add_argument(
        "--allow-pickle",
        action="store_true",
        help="unpickle values that are neither plain data nor tensors; they can run any code",
    )
    parser.add_argument("--json", action="store_true", help='one JSON object: {"step", "bytes", "uri"}')
    options = parser.parse_args(arguments)
    try:
        import_checkpoint(
            options.source,
            options.uri,
            step=options.step,
            keep=options.keep or None,
            name=options.name,
            allow_pickle=options.allow_pickle,
        )
        ckpt = _core.Checkpoints(options.uri)
        found = ckpt.find(options.step)
    except ImportError as error:
        print(f"millrace checkpoint: {missing_module(error)}", file=sys.stderr)
        return 1
    except Error as error:
        print(f"millrace checkpoint: {error}", file=sys.stderr)
        return 1
    size = sum(bytes_ for _, bytes_ in found.shards)
    uri = f"{ckpt.uri}{options.step:012}/{found.attempt}/"
    said = {"schema": "millrace.checkpoint.cp/1", "step": options.step, "bytes": size, "uri": uri}
    print(json.dumps(said) if options.json else f"step {options.step} is copied: {size / (1 << 20):.1f} MiB to {uri}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
