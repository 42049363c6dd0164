"""Reads a folder of torch.distributed.checkpoint as a state to save (checkpoint_import.py). It imports torch."""

from __future__ import annotations

import enum
import io
import pathlib
import pickle
import warnings
from typing import Any

import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load

from . import _tensors
from ._errors import DamagedDataError, InvalidArgumentError
from ._torch_version import require_safe_loading

# These names are allowed in .metadata when it is unpickled. They are plain descriptions without side effects.
_MODULES = ("torch.distributed.checkpoint.metadata", "torch.distributed.checkpoint.planner")
_NAMES = {
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    ("torch.serialization", "_get_layout"),
    ("torch._C", "_get_layout"),
    ("torch", "Size"),
    ("torch", "device"),
    ("collections", "OrderedDict"),
    ("collections", "defaultdict"),
    ("builtins", "set"),
    ("builtins", "dict"),
    ("builtins", "list"),
    ("pathlib", "PosixPath"),
    ("pathlib", "PurePosixPath"),
    ("pathlib._local", "PosixPath"),
}


def state_of(path: pathlib.Path, source: str, allow_pickle: bool) -> Any:
    """Returns the state of a folder. Its tensors are read when they are needed, one at a time."""
    if not allow_pickle:
        require_safe_loading(source)
    reader = _Reader(path, source, allow_pickle)
    metadata = reader.read_metadata()
    paths = metadata.planner_data if isinstance(metadata.planner_data, dict) else {}
    state: dict[Any, Any] = {}
    for name, entry in metadata.state_dict_metadata.items():
        value = reader.tensor(name, entry) if isinstance(entry, TensorStorageMetadata) else reader.value(name)
        _put(state, paths.get(name, (name,)), value)
    return _with_lists(state)


class _Reader(FileSystemReader):
    """Reads a folder. From .metadata it unpickles only the descriptions of tensors, and only once."""

    def __init__(self, path: pathlib.Path, source: str, allow_pickle: bool) -> None:
        super().__init__(path)
        self._source = source
        self._allow_pickle = allow_pickle
        with open(path / ".metadata", "rb") as file:
            try:
                found = _Unpickler(file, source, allow_pickle).load()
            except (
                EOFError,
                IndexError,
                KeyError,
                AttributeError,
                TypeError,
                ValueError,
                pickle.UnpicklingError,
            ) as error:
                if isinstance(error, InvalidArgumentError):
                    raise
                raise DamagedDataError(f"{source}: .metadata cannot be read: {error!r}") from error
            if not isinstance(found, Metadata):
                raise DamagedDataError(f"{source}: .metadata is not of torch.distributed.checkpoint")
        self._metadata: Metadata = found

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        return self._metadata

    def tensor(self, name: str, entry: TensorStorageMetadata) -> _tensors.Later:
        dtype = entry.properties.dtype
        kind = _tensors.torch_type(torch.empty(0, dtype=dtype))
        if kind is None:
            raise InvalidArgumentError(
                f"{self._source}: {name} is a tensor of {dtype}, which safetensors does not hold"
            )
        shape = tuple(entry.size)
        size = torch.Size(shape).numel() * dtype.itemsize

        def make() -> Any:
            made = {name: torch.empty(shape, dtype=dtype)}
            self._load(made)
            return made[name]

        return _tensors.Later(
            kind,
            shape,
            _tensors.Deferred(make, size) if size else _tensors.torch_bytes(torch.empty(shape, dtype=dtype)),
        )

    def value(self, name: str) -> Any:
        """Returns a value that is not a tensor."""
        made: dict[str, Any] = {name: None}
        self._load(made)
        return made[name]

    def _load(self, state: dict[str, Any]) -> None:
        try:
            with warnings.catch_warnings():  # of a process alone, without torch.distributed
                warnings.simplefilter("ignore")
                load(state, storage_reader=self, planner=_Planner(self._source, self._allow_pickle), no_dist=True)
        except CheckpointException as error:
            cause = next(iter(error.failures.values()))[0]
            raise (
                cause
                if isinstance(cause, InvalidArgumentError)
                else DamagedDataError(f"{self._source}: {next(iter(state))}: {cause!r}")
            ) from error


class _Planner(DefaultLoadPlanner):
    def __init__(self, source: str, allow_pickle: bool) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self._source = source
        self._allow_pickle = allow_pickle

    def load_bytes(self, read_item: Any, value: io.BytesIO) -> None:
        name = read_item.dest_index.fqn
        try:
            self.state_dict[name] = torch.load(value, map_location="cpu", weights_only=not self._allow_pickle)
        except pickle.UnpicklingError as error:
            raise InvalidArgumentError(
                f"{self._source}: {name} is neither a tensor nor plain data, and pickles can run any code when they are read: give allow_pickle=True "
                "(--allow-pickle) if you trust it"
            ) from error


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: Any, source: str, allow_pickle: bool) -> None:
        super().__init__(file)
        self._source = source
        self._allow_pickle = allow_pickle

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("builtins", "getattr") and not self._allow_pickle:
            return _enum_member  # Python 3.11 pickles members of enums so
        if (
            self._allow_pickle
            or (module, name) in _NAMES
            or (module == "torch" and isinstance(getattr(torch, name, None), torch.dtype))
        ):
            return super().find_class(module, name)
        if module in _MODULES and "." not in name:
            found = super().find_class(module, name)
            if isinstance(found, type) and found.__module__ == module:  # not a name that the module imports
                return found
        raise InvalidArgumentError(
            f"{self._source}: .metadata names {module}.{name}, which does not describe tensors; give allow_pickle=True (--allow-pickle) if you trust it"
        )


def _enum_member(kind: Any, name: str) -> Any:
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind[name]
    raise InvalidArgumentError(
        f".metadata takes {name} of what is no enum; give allow_pickle=True (--allow-pickle) if you trust it"
    )


class _Items(dict[int, Any]):
    """Represents the items of a list, by their numbers."""


def _put(state: dict[Any, Any], path: tuple[Any, ...], value: Any) -> None:
    """Puts a value into the state. Numbers in a path are items of lists, and texts are keys of dicts."""
    for key, following in zip(path[:-1], path[1:]):
        state = state.setdefault(key, _Items() if isinstance(following, int) else {})
    state[path[-1]] = value


def _with_lists(value: Any) -> Any:
    if isinstance(value, _Items):
        return [_with_lists(value[number]) for number in sorted(value)]
    return {key: _with_lists(item) for key, item in value.items()} if type(value) is dict else value
