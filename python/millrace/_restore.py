"""Restores the state of a checkpoint from its JSON and tensors (_state.py): all items or some, also into existing tensors.

It reads only the needed bytes, in large requests, and verifies all of them.
"""

from __future__ import annotations

import argparse
import base64
import collections
import functools
import math
import pickle
from collections.abc import Iterable, Mapping
from typing import Any, Callable, Protocol

import numpy as np

from . import _containers, _library_values, _tensors
from ._boxes import Box, strip_size, strips, widened
from ._errors import DamagedDataError, Error, ExhaustedError, InvalidArgumentError
from ._foreign_json import parse_json
from ._memory import NewMemory
from ._state import STATE_NAME, TAG, boxes_of, is_spread

_STAGED_BYTES = 256 << 20  # bytes at a time that cannot be read directly into their place
_DEVICE_PART_BYTES = 64 << 20  # bytes at a time of a tensor on a device
_ALIGN = 64  # of tensors in staging memory
_MOST_JSON_BYTES = 1 << 30
_STRIP_BYTES = 256 << 10  # shorter strips of a region are read together with the bytes between them

Range = tuple[int, int, _tensors.Bytes]  # number of the shard, offset, memory


class Found(Protocol):
    """Represents a checkpoint to read."""

    @property
    def shards(self) -> list[tuple[str, int]]: ...
    def read_ranges(self, ranges: list[Range]) -> int: ...


class Restore:
    """One restore. ``bytes_read`` counts the bytes that were read, and ``bytes_needed`` the bytes of tensors among them."""

    def __init__(self, found: Found, *, allow_pickle: bool, map_location: Any = None, plain: bool = False) -> None:
        """With ``plain``, containers of Python's library are returned as dicts and tuples, so that no class is needed."""
        self._found = found
        self._allow_pickle = allow_pickle
        self._device = _device_of(map_location)
        self._shards = {name: (number, size) for number, (name, size) in enumerate(found.shards)}
        self._made: dict[tuple[str, str, str], Any] = {}  # a value that occurred twice is one object again
        self._memory = NewMemory()
        self._reads = Reads(found)
        self._describes = False
        self._plain = plain
        self.bytes_needed = 0

    @property
    def bytes_read(self) -> int:
        return self._reads.bytes_read

    def json(self, name: str = STATE_NAME) -> Any:
        """Returns a parsed file of the checkpoint."""
        number, size = self.shard(name)
        if size > _MOST_JSON_BYTES:
            raise DamagedDataError(f"{name} would have {size} bytes, more than a description of a state takes")
        data = np.empty(size, np.uint8)
        self._found.read_ranges([(number, 0, data)])
        try:
            return parse_json(data.tobytes())
        except ValueError as error:
            raise DamagedDataError(f"{name} is no JSON: {error}") from None

    def shard(self, name: str) -> tuple[int, int]:
        """Returns the number and the size of a shard."""
        if name in self._shards:
            return self._shards[name]
        if name == STATE_NAME and "dcp.json" in self._shards:
            raise InvalidArgumentError(
                "torch.distributed.checkpoint has saved this checkpoint; load it by "
                "torch.distributed.checkpoint.load(state, storage_reader=millrace.torch.StorageReader(uri))"
            )
        raise DamagedDataError(f"the checkpoint has no {name}; millrace.Checkpoints did not save it")

    def run(self, tree: Any, *, only: list[str] | None = None, into: Any = None) -> Any:
        """Returns the state that ``tree`` describes."""
        try:
            if only is not None:
                tree = _only(tree, only)
            made = self._value(tree, into, ())
            self._reads.flush()
            return made
        except Error:
            raise
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise DamagedDataError(f"{STATE_NAME} does not describe the state: {error!r}") from error
        except (MemoryError, OSError, OverflowError) as error:
            raise ExhaustedError(f"the state needs more memory than there is: {error!r}") from error

    def _read_into(self, target: Target, chunks: Iterable[tuple[int, int, Box]], kind: str) -> None:
        """Requests the parts of a tensor's chunks that a target needs. A chunk is (number of the shard, offset, box). A later flush reads them."""
        for shard, offset, box in chunks:
            wanted = target.box & box
            if wanted.size:
                self.bytes_needed += wanted.size * _tensors.item_bytes(kind)
                self._reads.add(shard, offset, box, wanted, target, kind)

    def describe(self) -> Any:
        """Returns the state with (type, shape) in place of tensors."""
        self._describes = True
        return self.run(self.json())

    # ---- values

    def _value(self, value: Any, into: Any, path: tuple[Any, ...]) -> Any:
        if type(value) is list:
            return [self._value(item, _item(into, number), (*path, number)) for number, item in enumerate(value)]
        if type(value) is not dict:
            return value
        if TAG not in value:
            _check_keys(value, into, path)
            return {key: self._value(item, _item(into, key), (*path, key)) for key, item in value.items()}
        return self._tagged(value[TAG], value, into, path)

    def _tagged(self, tag: str, value: dict[str, Any], into: Any, path: tuple[Any, ...]) -> Any:
        if tag in ("tensor", "array"):
            return self._tensor(tag, value, into, path)
        if tag in ("dict", "OrderedDict"):
            keys = [self._value(key, None, path) for key, _ in value["of"]]
            _check_keys(keys, into, path)
            pairs = [
                (key, self._value(item, _item(into, key), (*path, key))) for key, (_, item) in zip(keys, value["of"])
            ]
            if tag == "dict":
                return dict(pairs)
            ordered = collections.OrderedDict(pairs)
            if "metadata" in value:
                ordered._metadata = self._value(value["metadata"], None, path)  # type: ignore[attr-defined]
            return ordered
        if tag in ("tuple", "set", "frozenset"):
            items = [self._value(item, _item(into, number), (*path, number)) for number, item in enumerate(value["of"])]
            return {"tuple": tuple, "set": set, "frozenset": frozenset}[tag](items)
        if tag in _containers.TAGS:
            return _containers.decoded(
                tag,
                value,
                lambda item, key: self._value(item, _item(into, key), (*path, key)),
                plain=self._plain or self._describes,
                where=_shown(path),
            )
        if tag in _library_values.TAGS:
            return _library_values.decoded(tag, value, plain=self._plain or self._describes, where=_shown(path))
        if tag == "float":
            return float(value["of"])
        if tag == "bytes":
            return base64.b64decode(value["of"])
        if tag == "scalar":
            return np.frombuffer(base64.b64decode(value["of"]), np.dtype(value["dtype"]))[0]
        if tag == "pickle":
            return self._unpickled(base64.b64decode(value["of"]), path)
        return _torch_value(tag, value["of"])

    def _unpickled(self, data: bytes, path: tuple[Any, ...]) -> Any:
        if self._describes:
            return "a pickle"
        if not self._allow_pickle:
            raise InvalidArgumentError(
                "the checkpoint holds pickles, which can run any code when they are read; load it with allow_pickle=True if you trust it"
            )
        try:
            return pickle.loads(data)
        except Exception as error:  # its classes may raise anything, although the bytes are those that were saved
            raise InvalidArgumentError(
                f"{_shown(path)} is a pickle that cannot be read here: {error!r}; import the modules that it needs, in the version that saved it, or load the rest "
                "by only=[...]"
            ) from error

    # ---- tensors

    def _tensor(self, tag: str, node: dict[str, Any], into: Any, path: tuple[Any, ...]) -> Any:
        kind, shape = str(node["dtype"]), tuple(int(side) for side in node["shape"])
        if self._describes:
            return kind, shape
        chunks = [self._chunk(chunk, kind, shape) for chunk in node["chunks"]]
        if sum(box.size for _, _, box in chunks) < math.prod(shape):  # before memory is taken for the shape
            raise DamagedDataError(f"{STATE_NAME} does not have all of {_shown(path)} of the shape {shape}")
        target = target_of(into, _shown(path), kind, shape) if into is not None else None
        if target is not None:
            self._read_into(target, chunks, kind)
            return into
        if chunks:
            key = (tag, str(node["chunks"][0]["shard"]), str(node["chunks"][0]["name"]))
        else:  # an empty DTensor, of which no rank has written anything
            key = (tag, "", _shown(path))
        if key not in self._made:
            torch = _torch_or_none() if tag == "tensor" else None
            made: Any
            if torch is not None and self._device is not None:
                made = torch.empty(shape, dtype=_tensors.torch_dtype(kind, torch), device=self._device)
            else:
                data = self._memory.take(math.prod(shape) * _tensors.item_bytes(kind))
                if torch is None:
                    made = _tensors.array_of(data, kind, shape, f"the tensor {_shown(path)}")
                else:
                    made = _tensors.tensor_of(data, kind, shape, torch)
            self._made[key] = made
            self._read_into(Target(made, Box.whole(shape)), chunks, kind)
        return self._made[key]

    def _chunk(self, chunk: dict[str, Any], kind: str, shape: tuple[int, ...]) -> tuple[int, int, Box]:
        box = Box.whole(shape)
        if "begin" in chunk:
            box = Box(tuple(int(side) for side in chunk["begin"]), tuple(int(side) for side in chunk["shape"]))
        number, size = self.shard(str(chunk["shard"]))
        offset = int(chunk["offset"])
        if not box.fits(shape) or not 0 <= offset <= size - box.size * _tensors.item_bytes(kind):
            raise DamagedDataError(
                f"{STATE_NAME}: a chunk of {chunk['name']} is not in its tensor, or not in {chunk['shard']}"
            )
        return number, offset, box


class Target:
    """Represents the memory of a region of a tensor: a tensor or array, and its place in the whole tensor."""

    def __init__(self, value: Any, box: Box) -> None:
        self.value = value
        self.box = box

    def part(self, box: Box) -> Any:
        """Returns a view of a part."""
        inner = box.within(self.box)
        return (
            self.value[tuple(slice(begin, begin + side) for begin, side in zip(inner.begin, inner.shape))]
            if inner.shape
            else self.value
        )


def target_of(into: Any, where: str, kind: str, shape: tuple[int, ...]) -> Target | None:
    """Returns the memory of the user's value, which must be a tensor of that type and shape. Returns None for other values."""
    torch = _tensors.torch_if_imported()
    if isinstance(into, np.ndarray):
        found: tuple[Any, ...] = (_tensors.numpy_type(into), into.shape)
        target = Target(into, Box.whole(into.shape))
        if not into.flags.writeable:
            raise InvalidArgumentError(f"{where}: the array of `into` is read-only")
    elif torch is not None and isinstance(into, torch.Tensor):
        found = (_tensors.torch_type(into), tuple(into.shape))
        if is_spread(into):
            boxes = [box for box in boxes_of(into) if box.size]
            target = Target(into.to_local().detach(), boxes[0] if boxes else Box((0,) * len(shape), (0,) * len(shape)))
        else:
            target = Target(into.detach(), Box.whole(tuple(into.shape)))
    else:
        return None
    if found == (kind, shape):
        return target
    raise InvalidArgumentError(
        f"{where} of the checkpoint is {kind} of the shape {shape}; that of `into` is {found[0]} of the shape {found[1]}"
    )


class Reads:
    """Reads that are collected and made together."""

    def __init__(self, found: Found) -> None:
        self._found = found
        self._staging = np.empty(0, np.uint8)
        self._ranges: list[Range] = []
        self._copies: list[Callable[[], None]] = []  # from staging memory to its place, once it is read
        self._staged = 0
        self.bytes_read = 0

    def add(self, shard: int, offset: int, box: Box, wanted: Box, target: Target, kind: str) -> None:
        """Requests ``wanted``, a part of the chunk ``box`` at ``offset``, for its place in the target."""
        width = _tensors.item_bytes(kind)
        inner = wanted.within(box)
        place = target.part(wanted)
        strip = strip_size(inner, box.shape)
        if strip != wanted.size and strip * width < _STRIP_BYTES:
            inner = widened(inner, box.shape)
        fits = inner.shape == wanted.shape
        direct = memory_of(place) if fits else None
        first = offset + next(strips(inner, box.shape)) * width
        flat = _flat_of(place) if fits and direct is None and strip == wanted.size else None
        if flat is not None:
            self._add_flat(shard, first, flat, kind)
            return
        taken = inner.size * width
        data = self._staged_memory(taken) if direct is None else direct
        done = 0
        run = min(strip_size(inner, box.shape) * width, taken)
        for begin in strips(inner, box.shape):
            self._ranges.append((shard, offset + begin * width, data[done : done + run]))
            done += run
        if direct is None:
            within = Box(wanted.begin, wanted.shape).within(
                Box(tuple(a + b for a, b in zip(inner.begin, box.begin)), inner.shape)
            )
            self._copies.append(lambda: _put(place, data, kind, inner.shape, within))

    def _add_flat(self, shard: int, offset: int, flat: Any, kind: str) -> None:
        """Requests ``flat``, all elements of a tensor outside the host's memory. The host has a part of them at a time."""
        width = _tensors.item_bytes(kind)
        for part in flat.split(_DEVICE_PART_BYTES // width):
            data = self._staged_memory(part.numel() * width)
            self._ranges.append((shard, offset, data))
            self._copies.append(functools.partial(_put_flat, part, data, kind))
            offset += data.size

    def _staged_memory(self, size: int) -> _tensors.Bytes:
        """Returns memory of the host for bytes that a copy then moves to their place. It is used again after the next flush."""
        if size > _STAGED_BYTES:
            self.flush()  # and this is flushed before anything else is staged, since there is no room
            self._staged = _STAGED_BYTES
            return np.empty(size, np.uint8)
        if self._staged + size > _STAGED_BYTES:
            self.flush()
        if self._staging.size == 0:
            self._staging = NewMemory().take(_STAGED_BYTES)
        data = self._staging[self._staged : self._staged + size]
        self._staged += size + -size % _ALIGN
        return data

    def add_bytes(self, shard: int, offset: int, data: _tensors.Bytes) -> None:
        """Requests bytes of a shard unchanged."""
        self._ranges.append((shard, offset, data))

    def flush(self) -> None:
        """Makes the reads. After that, all requested bytes are in their places."""
        if self._ranges:
            self.bytes_read += self._found.read_ranges(self._ranges)
        for copy in self._copies:
            copy()
        self._ranges, self._copies, self._staged = [], [], 0


def memory_of(place: Any) -> _tensors.Bytes | None:
    """Returns the bytes of a tensor or array if they are contiguous in the memory of the host; otherwise None."""
    if isinstance(place, np.ndarray):
        return _tensors.numpy_bytes(place) if place.flags.c_contiguous and place.ndim else None
    if place.device.type != "cpu" or not place.is_contiguous() or place.is_conj() or place.is_neg():
        return None
    return _tensors.torch_bytes(place)


def _flat_of(place: Any) -> Any:
    """Returns a flat view of the elements of a tensor of torch in any memory, or None if there is no such view."""
    if isinstance(place, np.ndarray) or not place.is_contiguous() or place.is_conj() or place.is_neg():
        return None
    return place.reshape(-1)


def _put_flat(part: Any, data: _tensors.Bytes, kind: str) -> None:
    torch: Any = _tensors.torch_if_imported()
    with torch.no_grad():
        part.copy_(_tensors.tensor_of(data, kind, tuple(part.shape), torch))


def _put(place: Any, data: _tensors.Bytes, kind: str, shape: tuple[int, ...], within: Box) -> None:
    torch = None if isinstance(place, np.ndarray) else _tensors.torch_if_imported()
    region = tuple(slice(begin, begin + side) for begin, side in zip(within.begin, within.shape))
    if torch is None:
        np.copyto(place, _tensors.array_of(data, kind, shape, "a tensor")[region])
        return
    tensor = _tensors.tensor_of(data, kind, shape, torch)
    with torch.no_grad():
        place.copy_(tensor[region] if shape else tensor)


def _only(tree: Any, only: list[str]) -> Any:
    mapping = isinstance(tree, dict) and (TAG not in tree or tree[TAG] in ("dict", "OrderedDict"))
    pairs = [] if not mapping else tree["of"] if TAG in tree else list(tree.items())
    names = [key for key, _ in pairs if isinstance(key, str)]
    lacking = [name for name in only if name not in names]
    if lacking:
        raise InvalidArgumentError(
            f"only names {lacking[0]!r}, which the checkpoint has not; it has {', '.join(map(repr, names)) or 'no items'}"
        )
    chosen = [[key, item] for key, item in pairs if isinstance(key, str) and key in only]
    return {**tree, "of": chosen} if TAG in tree else dict(chosen)


def _item(into: Any, key: Any) -> Any:
    if isinstance(into, Mapping):
        return into.get(key)
    if isinstance(into, (list, tuple, collections.deque)) and isinstance(key, int) and key < len(into):
        return into[key]
    if isinstance(into, argparse.Namespace):
        return vars(into).get(key)
    return None


def _check_keys(found: Iterable[Any], into: Any, path: tuple[Any, ...]) -> None:
    """Checks that `into` has the same keys as the checkpoint below the top. Otherwise the model is not the one that was saved."""
    if not path or not isinstance(into, Mapping) or not into:
        return
    keys = list(found)
    for lacking, whose, other in (
        ([key for key in keys if key not in into], "the checkpoint", "`into`"),
        ([key for key in into if key not in keys], "`into`", "the checkpoint"),
    ):
        if lacking:
            raise InvalidArgumentError(
                f"{_shown((*path, lacking[0]))} is in {whose} and not in {other} ({len(lacking)} such keys)"
            )


def _shown(path: Iterable[Any]) -> str:
    return "state" + "".join(f"[{key!r}]" for key in path)


def _torch_value(tag: str, of: Any) -> Any:
    torch = _torch_or_none()
    if tag == "torch.Size":
        return tuple(of) if torch is None else torch.Size(of)
    if tag in ("torch.dtype", "torch.device"):
        if torch is None:
            return of
        try:
            return getattr(torch, of) if tag == "torch.dtype" else torch.device(of)
        except RuntimeError as error:
            raise ValueError(str(error)) from None
    raise DamagedDataError(
        f"{STATE_NAME} has a value of the kind {tag!r}, which this Millrace does not know; use a newer one"
    )


def _device_of(location: Any) -> Any:
    """Returns the device of torch that ``location`` names. None means the host, or that torch is not installed."""
    torch = _torch_or_none() if location is not None else None
    if torch is None:
        return None
    try:
        device = torch.device(location)
    except (RuntimeError, TypeError) as error:
        raise InvalidArgumentError(f"map_location is {location!r}, which names no device of torch: {error}") from None
    return None if device.type == "cpu" else device


def _torch_or_none() -> Any:
    try:
        import torch
    except ImportError:
        return None
    return torch
