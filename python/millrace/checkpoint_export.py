"""A checkpoint as one file that other programs read: ``millrace checkpoint export`` runs ``python -m millrace.checkpoint_export``.

A file ``out.pt`` has the format of ``torch.save``, and ``torch.load(file, weights_only=True)`` reads it. A file ``out.safetensors`` has only
the tensors.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pathlib
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from . import _arguments, _core
from ._checkpoints import read_found
from ._errors import Error, InvalidArgumentError, NotFoundError
from ._restore import Restore

__all__ = ["export_checkpoint"]


def export_checkpoint(
    uri: str | os.PathLike[str],
    file: str | os.PathLike[str],
    *,
    step: int | None = None,
    only: list[str] | None = None,
) -> int:
    """Writes a checkpoint to a local file, which appears only when it is complete.

        from millrace.checkpoint_export import export_checkpoint

        export_checkpoint("s3://bucket/run-7", "model.pt", only=["model"])
        model.load_state_dict(torch.load("model.pt", weights_only=True)["model"])

    All bytes that are read are verified. The state must fit into memory.

    Args:
        uri: The place where :class:`millrace.Checkpoints` has saved it.
        file: A name that ends with ``.pt``, ``.pth`` or ``.safetensors``. A file of safetensors names tensors by their keys, joined by dots
            (``model.0.weight``; ``0.weight`` if ``only`` has one name), and leaves out all other values.
        step: The step of the checkpoint. None: the newest one.
        only: The names of the items of the top to write. None: all.

    Returns:
        The step of the checkpoint.

    Raises:
        NotFoundError: There is no checkpoint (of this step), or it was removed while it was read.
        DamagedDataError: Bytes are not those that were saved; another step may be whole.
        InvalidArgumentError: The file has another extension; the checkpoint holds pickles; there is no item that ``only`` names; or two
            tensors would have the same name.
        ImportError: torch is missing, or for a file of safetensors the package safetensors.
    """
    path = pathlib.Path(file)
    if path.suffix not in (".pt", ".pth", ".safetensors"):
        raise InvalidArgumentError(f"{path}: the name must end with .pt, .pth or .safetensors")
    if not path.parent.is_dir():
        raise NotFoundError(f"{path.parent}: there is no such folder")
    # Without it, all would be read for nothing.
    importlib.import_module("safetensors.torch" if path.suffix == ".safetensors" else "torch")
    wanted = None if only is None else _arguments.texts("only", only, "a list of names")
    core = _core.Checkpoints(_arguments.uri("uri", uri))

    def read(found: _core.Checkpoint) -> tuple[int, Any]:
        restore = Restore(found, allow_pickle=False, plain=True)
        return found.step, restore.run(restore.json(), only=wanted)

    of_step: int
    of_step, state = read_found(core, lambda: core.find(step), read)
    write = _write_tensors if path.suffix == ".safetensors" else _write_torch
    if wanted is not None and len(wanted) == 1 and path.suffix == ".safetensors":
        state = state[wanted[0]]
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(descriptor)
    try:
        write(state, temporary)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    finally:
        pathlib.Path(temporary).unlink(missing_ok=True)
    return of_step


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _write_torch(state: Any, file: str) -> None:
    import torch

    torch.save(_as_torch(state, torch), file)


def _as_torch(value: Any, torch: Any) -> Any:
    """Converts arrays and scalars of numpy to tensors and numbers, and frozensets to sets, so that ``torch.load(weights_only=True)`` reads them."""
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value)
    if isinstance(value, np.generic):
        return value.item()
    if type(value) in (list, tuple):
        return type(value)(_as_torch(item, torch) for item in value)
    if isinstance(value, (set, frozenset)):
        return {_as_key(item) for item in value}
    if isinstance(value, dict):
        items = {_as_key(key): _as_torch(item, torch) for key, item in value.items()}
        return type(value)(items)
    return value


def _as_key(value: Any) -> Any:
    """Converts a value that must stay hashable: a frozenset becomes a tuple."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (tuple, frozenset)):
        return tuple(_as_key(item) for item in value)
    return value


def _write_tensors(state: Any, file: str) -> None:
    from safetensors.torch import save_file

    tensors: dict[str, Any] = {}
    for name, tensor in _tensors_of(state, ()):
        if name in tensors:
            raise InvalidArgumentError(
                f"two tensors would be called {name!r}; export one item by --only, or a .pt file"
            )
        # A tensor under two names is written twice, since safetensors knows no shared memory.
        tensors[name] = tensor.contiguous().clone()
    if not tensors:
        raise InvalidArgumentError("the exported state has no tensors; a .pt file holds other values, too")
    save_file(tensors, file, metadata={"format": "pt"})


def _tensors_of(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    import torch

    if isinstance(value, np.ndarray):
        value = torch.from_numpy(value)
    if isinstance(value, torch.Tensor):
        yield ".".join(path) or "state", value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _tensors_of(item, (*path, str(key)))
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            yield from _tensors_of(item, (*path, str(number)))


def missing_module(error: ImportError) -> str:
    """Returns what the user of ``millrace checkpoint`` can do about a module that is missing."""
    return f"{sys.executable}: {error}; install it, or name a Python that has it by --python"


def main(arguments: list[str] | None = None) -> int:
    """Runs ``millrace checkpoint export``, and prints its output."""
    parser = argparse.ArgumentParser(
        prog="python -m millrace.checkpoint_export",
        description="Writes a checkpoint to one file of torch.save (.pt, .pth) or of safetensors (.safetensors).",
    )
    parser.add_argument("uri", help="the place of the checkpoints")
    parser.add_argument("file", help="the file that is written: FILE.pt, FILE.pth or FILE.safetensors")
    parser.add_argument("--step", type=int, help="the checkpoint of this step, instead of the newest")
    parser.add_argument("--only", action="append", help="an item of the state that is wanted; may be given again")
    parser.add_argument("--json", action="store_true", help='one JSON object: {"step", "bytes", "file"}')
    options = parser.parse_args(arguments)
    try:
        step = export_checkpoint(options.uri, options.file, step=options.step, only=options.only)
        size = os.stat(options.file).st_size
    except ImportError as error:
        print(f"millrace checkpoint: {missing_module(error)}", file=sys.stderr)
        return 1
    except (Error, OSError) as error:
        print(f"millrace checkpoint: {error}", file=sys.stderr)
        return 1
    said = {"schema": "millrace.checkpoint.export/1", "step": step, "bytes": size, "file": options.file}
    print(
        json.dumps(said) if options.json else f"step {step} is exported: {size / (1 << 20):.1f} MiB to {options.file}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
