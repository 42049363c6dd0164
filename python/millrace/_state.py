"""Writes training state as JSON and tensors, so that nothing has to be unpickled, and all values are restored unchanged. _restore.py reads it.

Values that JSON has are written as such: strings, integers, finite floats, True, False, None, lists, dicts with strings for keys. Other values
become an object whose key "$" names the kind: {"$": "tuple", "of": [...]}, {"$": "dict", "of": [[key, value], ...]}, and so on.

Tensors are stored in safetensors files, at least one for each item at the top: {"$": "tensor", "dtype": "F32", "shape": [4, 2], "chunks":
[{"shard": "model.safetensors", "name": "0.weight", "offset": 128}]}. The offset counts within the shard. If several ranks have saved, a chunk
may be a part of the tensor, which "begin" and "shape" describe.
"""

from __future__ import annotations

import base64
import collections
import dataclasses
import hashlib
import json
import math
import pickle
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from . import _containers, _library_values, _tensors
from ._boxes import Box
from ._errors import InvalidArgumentError, MismatchError

Shards = list[tuple[str, list[_tensors.Piece]]]
Chunks = list[list[dict[str, Any]]]  # for each tensor of a state, the chunks that one rank has written

STATE_NAME = "state.json"
TAG = "$"
_WHOLE = "state"  # the name of the state itself in messages and names
_SPLIT_BYTES = 4 << 20  # tensors below this are not split between ranks


@dataclasses.dataclass
class Tensor:
    """Represents a tensor of a state: its object in the JSON, which gets its chunks at the end, and the part that this
    rank has."""

    group: str  # the item at the top of the state, as a part of a name of a file
    name: str
    type: str
    shape: tuple[int, ...]
    of_torch: bool
    value: Any
    node: dict[str, Any]
    parts: list[Box] | None = (
        None  # the part that this rank writes of a tensor that is spread over ranks; None: all ranks have all of it
    )

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * _tensors.item_bytes(self.type)

    def stored(self, box: Box) -> _tensors.Stored:
        if isinstance(self.value, _tensors.Later):
            return _tensors.Stored(self.name, self.type, self.shape, self.value.data)
        whole = box == Box.whole(self.shape)
        name = self.name if whole else f"{self.name}@{','.join(map(str, box.begin))}"
        value = (
            self.value.to_local()
            if self.parts is not None
            else self.value
            if whole
            else self.value[box.begin[0] : box.begin[0] + box.shape[0]]
        )
        return _tensors.Stored(
            name, self.type, box.shape, _tensors.torch_piece(value) if self.of_torch else _tensors.numpy_bytes(value)
        )


class Encoded:
    """Represents a state as JSON and tensors. The tensors belong to the caller, and must not change until their files
    are written."""

    def __init__(self, state: Any, *, allow_pickle: bool, group: str | None = None) -> None:
        """Encodes a state. ``group`` begins the names of all files, for a state of one rank alone."""
        encoder = _Encoder(allow_pickle, group)
        self._name = STATE_NAME if group is None else f"{group}.json"
        self._json = encoder.run(state)
        self.tensors = encoder.tensors

    def fingerprint(self) -> str:
        """Returns a fingerprint of the tensors without their contents. It is equal on all ranks that save together."""
        said = [[tensor.group, tensor.name, tensor.type, tensor.shape, tensor.parts is None] for tensor in self.tensors]
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()

    def files(self, rank: int = 0, world: int = 1) -> tuple[Shards, Chunks]:
        """Returns the files of tensors that a rank writes, and the chunks in them."""
        ending = ".safetensors" if world == 1 else f"-{rank + 1:05}-of-{world:05}.safetensors"
        shares = _shares(self.tensors, rank, world)
        names: dict[str, set[str]] = {}
        by_group: dict[str, list[tuple[int, Box, _tensors.Stored]]] = {}
        for number, (tensor, boxes) in enumerate(zip(self.tensors, shares)):
            for box in boxes:
                members = by_group.setdefault(tensor.group, [])
                stored = tensor.stored(box)
                while stored.name in names.setdefault(tensor.group, {"__metadata__"}):
                    stored.name += "'"
                names[tensor.group].add(stored.name)
                members.append((number, box, stored))
        shards: Shards = []
        chunks: Chunks = [[] for _ in self.tensors]
        for group, members in by_group.items():
            of_torch = any(self.tensors[number].of_torch for number, _, _ in members)
            pieces, places = _tensors.encode([stored for _, _, stored in members], of_torch)
            shards.append((group + ending, pieces))
            for number, box, stored in members:
                chunk: dict[str, Any] = {"shard": group + ending, "name": stored.name, "offset": places[stored.name]}
                if box != Box.whole(self.tensors[number].shape):
                    chunk.update(begin=box.begin, shape=box.shape)
                chunks[number].append(chunk)
        return shards, chunks

    def state_file(self, chunks: Iterable[Chunks]) -> tuple[str, list[_tensors.Piece]]:
        """Returns the file of JSON, once the places of the tensors of all ranks are known."""
        for tensor in self.tensors:
            tensor.node["chunks"] = []
        for of_rank in chunks:
            for tensor, some in zip(self.tensors, of_rank):
                tensor.node["chunks"] += some
        for tensor in self.tensors:
            _check_covered(tensor)
        text = json.dumps(self._json, allow_nan=False, separators=(",", ":")).encode()
        return self._name, [np.frombuffer(text, np.uint8)]


def encode(state: Any, *, allow_pickle: bool) -> Shards:
    """Returns all files of a state that one process saves."""
    encoded = Encoded(state, allow_pickle=allow_pickle)
    shards, chunks = encoded.files()
    return [*shards, encoded.state_file([chunks])]


def _shares(tensors: list[Tensor], rank: int, world: int) -> list[list[Box]]:
    """Returns the boxes that a rank writes of each tensor. If all ranks have a tensor, these are the rows that begin in the rank's part of all bytes."""
    total = sum(tensor.bytes for tensor in tensors if tensor.parts is None)
    low, high = total * rank // world, total * (rank + 1) // world
    begin = 0
    shares = []
    for tensor in tensors:
        if tensor.parts is not None:
            shares.append(tensor.parts)
            continue
        whole = Box.whole(tensor.shape)
        if tensor.bytes == 0:
            shares.append([whole] if rank == 0 else [])
            continue
        rows = tensor.shape[0] if world > 1 and tensor.bytes >= _SPLIT_BYTES else 1
        row_bytes = tensor.bytes // rows
        first, last = (min(rows, max(0, -((begin - edge) // row_bytes))) for edge in (low, high))
        begin += tensor.bytes
        if first >= last:
            shares.append([])
        elif rows == 1:
            shares.append([whole])
        else:
            shares.append([Box((first, *whole.begin[1:]), (last - first, *whole.shape[1:]))])
    return shares


def _check_covered(tensor: Tensor) -> None:
    written = sum(math.prod(chunk.get("shape", tensor.shape)) for chunk in tensor.node["chunks"])
    if written == math.prod(tensor.shape):
        return
    raise MismatchError(
        f"{tensor.group}: of the {math.prod(tensor.shape)} elements of {tensor.name} the ranks have {written}; a tensor that is spread over "
        "ranks (DTensor) is saved by all of them: call save on every rank of millrace.Checkpoints(uri, all_ranks=True)"
    )


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


class _Encoder:
    def __init__(self, allow_pickle: bool, group: str | None) -> None:
        self._allow_pickle = allow_pickle
        self._torch = _tensors.torch_if_imported()
        self._fixed = group is not None
        self._group = group or ""
        self._names: dict[str, set[str]] = {}  # of tensors, by group
        self._nodes: dict[
            Any, dict[str, Any]
        ] = {}  # of tensors, by their memory: a tensor that occurs twice is written once
        self.tensors: list[Tensor] = []  # which also keeps their memory, so that its addresses in _nodes stay theirs

    def run(self, state: Any) -> Any:
        try:
            return self._top(state)
        except RecursionError:
            raise InvalidArgumentError("the state is nested too deeply, or contains itself") from None

    def _top(self, state: Any) -> Any:
        if type(state) not in (dict, collections.OrderedDict):
            if not self._fixed:
                self._group = _WHOLE
            return self._value(state, (_WHOLE,))
        return self._mapping(state, (), at_top=not self._fixed)

    def _enter_group(self, key: Any) -> None:
        plain = (
            isinstance(key, str)
            and re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,99}", key)
            and not key.startswith("rank-")
        )
        name = str(key) if plain else f"tensors-{len(self._names)}"
        while name.lower() in {other.lower() for other in self._names}:
            name += "-"
        self._group = name

    def _mapping(self, value: Any, path: tuple[Any, ...], at_top: bool = False) -> Any:
        items = []
        for key, item in value.items():
            if at_top:
                self._enter_group(key)
            items.append((key, self._value(item, (*path, key))))
        if type(value) is dict and all(type(key) is str and key != TAG for key in value):
            return dict(items)
        pairs = [[self._value(key, (*path, "a key")), item] for key, item in items]
        if type(value) is dict:
            return {TAG: "dict", "of": pairs}
        made = {TAG: "OrderedDict", "of": pairs}
        metadata = getattr(value, "_metadata", None)  # of a torch module's state: the versions of its layers
        return made if metadata is None else {**made, "metadata": self._value(metadata, (*path, "_metadata"))}

    def _value(self, value: Any, path: tuple[Any, ...]) -> Any:
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if math.isfinite(value) else {TAG: "float", "of": repr(value)}
        if kind in (dict, collections.OrderedDict):
            return self._mapping(value, path)
        if kind in (list, tuple, set, frozenset):
            items = [self._value(item, (*path, number)) for number, item in enumerate(value)]
            return items if kind is list else {TAG: kind.__name__, "of": items}
        if kind is bytes:
            return {TAG: "bytes", "of": _text(value)}
        if isinstance(value, _tensors.Later):
            return self._tensor("tensor", value, None, value.type, path)
        container = _containers.encoded(value, lambda item, key: self._value(item, (*path, key)))
        if container is None:
            container = _library_values.encoded(value)
        if container is not None:
            return {TAG: container.pop(""), **container}
        made = (
            self._array(value, path) if isinstance(value, (np.ndarray, np.generic)) else self._torch_value(value, path)
        )
        if made is not None:
            return made
        if self._allow_pickle:
            return {TAG: "pickle", "of": _text(pickle.dumps(value))}
        raise InvalidArgumentError(
            f"{_shown(path)} is a {kind.__module__}.{kind.__qualname__}, which is neither plain data nor a tensor that safetensors holds; "
            "convert it, leave it out, or save with allow_pickle=True"
        )

    def _array(self, value: Any, path: tuple[Any, ...]) -> Any:
        name = _tensors.numpy_type(value)
        if name is None or isinstance(value, np.ma.MaskedArray):
            return None
        if isinstance(value, np.generic):
            return {TAG: "scalar", "dtype": value.dtype.name, "of": _text(value.tobytes())}
        address = (value.__array_interface__["data"][0], value.strides, value.shape, name, "numpy")
        return self._tensor("array", value, address, name, path)

    def _torch_value(self, value: Any, path: tuple[Any, ...]) -> Any:
        torch = self._torch
        if torch is None:
            return None
        if isinstance(value, torch.Size):
            return {TAG: "torch.Size", "of": list(value)}
        if isinstance(value, torch.dtype):
            return {TAG: "torch.dtype", "of": str(value).removeprefix("torch.")}
        if isinstance(value, torch.device):
            return {TAG: "torch.device", "of": str(value)}
        if is_spread(value):
            return self._spread(value, path)
        if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout is not torch.strided or value.is_meta:
            return None
        name = _tensors.torch_type(value)
        if name is None or value.is_quantized:
            return None
        address = (
            str(value.device),
            value.data_ptr(),
            value.stride(),
            tuple(value.shape),
            name,
            value.is_conj(),
            value.is_neg(),
        )
        return self._tensor("tensor", value, address, name, path)

    def _spread(self, value: Any, path: tuple[Any, ...]) -> Any:
        """Encodes a DTensor. If several ranks have the same part, one of them writes it, and another one for the next tensor."""
        name = _tensors.torch_type(value)
        if name is None:
            return None
        if any(placement.is_partial() for placement in value.placements):
            raise InvalidArgumentError(
                f"{_shown(path)} is a DTensor of partial sums; redistribute it before it is saved"
            )
        mesh, coordinate = value.device_mesh, value.device_mesh.get_coordinate()
        replica, replicas = 0, 1
        for dimension, placement in enumerate(value.placements):
            if coordinate is not None and placement.is_replicate():
                replica = replica * mesh.size(dimension) + coordinate[dimension]
                replicas *= mesh.size(dimension)
        mine = coordinate is not None and replica == len(self.tensors) % replicas
        parts = [box for box in boxes_of(value) if box.size] if mine else []
        return self._tensor("tensor", value, None, name, path, parts)

    def _tensor(
        self, tag: str, value: Any, address: Any, kind: str, path: tuple[Any, ...], parts: list[Box] | None = None
    ) -> dict[str, Any]:
        shape = tuple(value.shape)
        node = None if address is None or 0 in shape else self._nodes.get(address)
        if node is None:
            names = self._names.setdefault(self._group, {"__metadata__"})
            name = ".".join(map(str, path[1:] or path)) or _WHOLE
            while name in names:
                name += "'"
            names.add(name)
            node = {TAG: tag, "dtype": kind, "shape": list(shape)}
            self.tensors.append(Tensor(self._group, name, kind, shape, tag == "tensor", value, node, parts))
            if address is not None:
                self._nodes[address] = node
        return node


def is_spread(value: Any) -> bool:
    """Says if a value is a DTensor."""
    return hasattr(value, "device_mesh") and hasattr(value, "placements") and hasattr(value, "to_local")


def boxes_of(value: Any) -> list[Box]:
    """Returns the parts of a DTensor that this rank has. Usually there is one."""
    return [Box(tuple(chunk.offsets), tuple(chunk.sizes)) for chunk in value.__create_chunk_list__()]


def _shown(path: Iterable[Any]) -> str:
    return _WHOLE + "".join(f"[{key!r}]" for key in path)
