"""Training state as JSON and tensors, so that nothing has to be unpickled, and all comes back as it was.

What JSON has is written as such: strings, integers, finite floats, True, False, None, lists, dicts with strings for keys. The rest
becomes an object with the key "$", which says what it is: {"$": "tuple", "of": [...]}, {"$": "dict", "of": [[key, value], ...]}, and so
on. Tensors go to a safetensors file for each item at the top: {"$": "tensor", "shard": "model.safetensors", "name": "0.weight"}.
"""

from __future__ import annotations

import base64
import collections
import json
import math
import pickle
import re
from typing import Any, Callable, Iterable

import numpy as np

from . import _tensors
from .errors import DamagedDataError, Error, InvalidArgumentError

Shards = list[tuple[str, list[_tensors.Bytes]]]

STATE_NAME = "state.json"
_TAG = "$"
_WHOLE = "state"  # how the state itself is called in messages and names


def encode(state: Any, *, allow_pickle: bool) -> Shards:
    """The files of a state. Their pieces are the memory of its tensors where that is possible: it must not change meanwhile."""
    return _Encoder(allow_pickle).run(state)


def decode(shards: dict[str, _tensors.Bytes], *, allow_pickle: bool) -> Any:
    """The state of files that :func:`encode` has made. Tensors are views of them."""
    return _Decoder(shards, allow_pickle).run()


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


class _Encoder:
    def __init__(self, allow_pickle: bool) -> None:
        self._allow_pickle = allow_pickle
        self._torch = _tensors.torch_if_imported()
        self._shard = ""
        self._shards: dict[str, dict[str, _tensors.Stored]] = {}  # by name: their tensors by name
        self._of_torch: set[str] = set()  # shards
        self._places: dict[Any, dict[str, str]] = {}  # of tensors, by their memory: what is there twice is written once
        self._kept: list[Any] = []  # so that no memory is used again while its address is in _places

    def run(self, state: Any) -> Shards:
        try:
            json_state = self._top(state)
        except RecursionError:
            raise InvalidArgumentError("the state is nested too deeply, or contains itself") from None
        text = json.dumps(json_state, allow_nan=False, separators=(",", ":")).encode()
        files: Shards = [
            (name, _tensors.encode(list(tensors.values()), name in self._of_torch)) for name, tensors in self._shards.items()
        ]
        return [*files, (STATE_NAME, [np.frombuffer(text, np.uint8)])]

    def _top(self, state: Any) -> Any:
        if type(state) not in (dict, collections.OrderedDict):
            self._shard = f"{_WHOLE}.safetensors"
            return self._value(state, (_WHOLE,))
        return self._mapping(state, (), at_top=True)

    def _enter_shard(self, key: Any) -> None:
        plain = isinstance(key, str) and re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,99}", key)
        name = f"{key}.safetensors" if plain else f"tensors-{len(self._shards)}.safetensors"
        while name.lower() in {other.lower() for other in self._shards}:
            name = f"{name.removesuffix('.safetensors')}-.safetensors"
        self._shard = name

    def _mapping(self, value: Any, path: tuple[Any, ...], at_top: bool = False) -> Any:
        items = []
        for key, item in value.items():
            if at_top:
                self._enter_shard(key)
            items.append((key, self._value(item, (*path, key))))
        if type(value) is dict and all(type(key) is str and key != _TAG for key in value):
            return dict(items)
        pairs = [[self._value(key, (*path, "a key")), item] for key, item in items]
        if type(value) is dict:
            return {_TAG: "dict", "of": pairs}
        made = {_TAG: "OrderedDict", "of": pairs}
        metadata = getattr(value, "_metadata", None)  # of a torch module's state: the versions of its layers
        return made if metadata is None else {**made, "metadata": self._value(metadata, (*path, "_metadata"))}

    def _value(self, value: Any, path: tuple[Any, ...]) -> Any:
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if math.isfinite(value) else {_TAG: "float", "of": repr(value)}
        if kind in (dict, collections.OrderedDict):
            return self._mapping(value, path)
        if kind in (list, tuple, set, frozenset):
            items = [self._value(item, (*path, number)) for number, item in enumerate(value)]
            return items if kind is list else {_TAG: kind.__name__, "of": items}
        if kind is bytes:
            return {_TAG: "bytes", "of": _text(value)}
        made = self._array(value, path) if isinstance(value, (np.ndarray, np.generic)) else self._torch_value(value, path)
        if made is not None:
            return made
        if self._allow_pickle:
            return {_TAG: "pickle", "of": _text(pickle.dumps(value))}
        raise InvalidArgumentError(
            f"{_shown(path)} is a {kind.__module__}.{kind.__qualname__}, which is neither plain data nor a tensor that safetensors holds; "
            "convert it, leave it out, or save with allow_pickle=True"
        )

    def _array(self, value: Any, path: tuple[Any, ...]) -> Any:
        name = _tensors.numpy_type(value)
        if name is None or isinstance(value, np.ma.MaskedArray):
            return None
        if isinstance(value, np.generic):
            return {_TAG: "scalar", "dtype": value.dtype.name, "of": _text(value.tobytes())}
        address = (value.__array_interface__["data"][0], value.strides, value.shape, name, "numpy")
        return self._tensor("array", value, address, name, value.shape, _tensors.numpy_bytes, path)

    def _torch_value(self, value: Any, path: tuple[Any, ...]) -> Any:
        torch = self._torch
        if torch is None:
            return None
        if isinstance(value, torch.Size):
            return {_TAG: "torch.Size", "of": list(value)}
        if isinstance(value, torch.dtype):
            return {_TAG: "torch.dtype", "of": str(value).removeprefix("torch.")}
        if isinstance(value, torch.device):
            return {_TAG: "torch.device", "of": str(value)}
        if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout is not torch.strided or value.is_meta:
            return None
        name = _tensors.torch_type(value)
        if name is None or value.is_quantized:
            return None
        address = (str(value.device), value.data_ptr(), value.stride(), tuple(value.shape), name, value.is_conj(), value.is_neg())
        made = self._tensor("tensor", value, address, name, tuple(value.shape), _tensors.torch_bytes, path)
        self._of_torch.add(made["shard"])
        return made

    def _tensor(
        self,
        tag: str,
        value: Any,
        address: Any,
        kind: str,
        shape: tuple[int, ...],
        to_bytes: Callable[[Any], _tensors.Bytes],
        path: tuple[Any, ...],
    ) -> dict[str, str]:
        empty = 0 in shape
        place = None if empty else self._places.get(address)
        if place is None:
            tensors = self._shards.setdefault(self._shard, {})
            name = ".".join(map(str, path[1:] or path)) or _WHOLE
            while name in tensors or name == "__metadata__":
                name += "'"
            tensors[name] = _tensors.Stored(name, kind, shape, to_bytes(value))
            place = self._places[address] = {"shard": self._shard, "name": name}
            self._kept.append(value)
        return {_TAG: tag, **place}


def _shown(path: Iterable[Any]) -> str:
    return _WHOLE + "".join(f"[{key!r}]" for key in path)


class _Decoder:
    def __init__(self, shards: dict[str, _tensors.Bytes], allow_pickle: bool) -> None:
        self._shards = shards
        self._allow_pickle = allow_pickle
        self._files: dict[str, _tensors.File] = {}
        self._made: dict[tuple[str, str, str], Any] = {}  # what was there twice is one object again

    def run(self) -> Any:
        if STATE_NAME not in self._shards:
            raise DamagedDataError(f"the checkpoint has no {STATE_NAME}; millrace.Checkpoints did not save it")
        try:
            return self._value(json.loads(self._shards[STATE_NAME].tobytes()))
        except Error:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise DamagedDataError(f"{STATE_NAME} does not say what the state is: {error!r}") from error

    def _value(self, value: Any) -> Any:
        if type(value) is list:
            return [self._value(item) for item in value]
        if type(value) is not dict:
            return value
        if _TAG not in value:
            return {key: self._value(item) for key, item in value.items()}
        return self._tagged(value[_TAG], value)

    def _tagged(self, tag: str, value: dict[str, Any]) -> Any:
        if tag in ("tensor", "array"):
            return self._tensor(tag, value["shard"], value["name"])
        if tag in ("dict", "OrderedDict"):
            pairs = [(self._value(key), self._value(item)) for key, item in value["of"]]
            if tag == "dict":
                return dict(pairs)
            ordered = collections.OrderedDict(pairs)
            if "metadata" in value:
                ordered._metadata = self._value(value["metadata"])  # type: ignore[attr-defined]
            return ordered
        if tag in ("tuple", "set", "frozenset"):
            return {"tuple": tuple, "set": set, "frozenset": frozenset}[tag](self._value(item) for item in value["of"])
        if tag == "float":
            return float(value["of"])
        if tag == "bytes":
            return base64.b64decode(value["of"])
        if tag == "scalar":
            return np.frombuffer(base64.b64decode(value["of"]), np.dtype(value["dtype"]))[0]
        if tag == "pickle":
            return self._unpickled(value["of"])
        return self._torch_value(tag, value["of"])

    def _unpickled(self, text: str) -> Any:
        if not self._allow_pickle:
            raise InvalidArgumentError(
                "the checkpoint holds pickles, which can run any code when they are read; load it with allow_pickle=True if you trust it"
            )
        return pickle.loads(base64.b64decode(text))

    def _tensor(self, tag: str, shard: str, name: str) -> Any:
        key = (tag, shard, name)
        if key not in self._made:
            if shard not in self._files:
                self._files[shard] = _tensors.File(shard, self._shards[shard])
            file = self._files[shard]
            torch = _torch_or_none() if tag == "tensor" else None
            self._made[key] = file.array(name) if torch is None else file.tensor(name, torch)
        return self._made[key]

    def _torch_value(self, tag: str, of: Any) -> Any:
        torch = _torch_or_none()
        if tag == "torch.Size":
            return tuple(of) if torch is None else torch.Size(of)
        if tag in ("torch.dtype", "torch.device"):
            if torch is None:
                return of
            return getattr(torch, of) if tag == "torch.dtype" else torch.device(of)
        raise DamagedDataError(f"{STATE_NAME} has a value of the kind {tag!r}, which this Millrace does not know; use a newer one")


def _torch_or_none() -> Any:
    try:
        import torch
    except ImportError:
        return None
    return torch
