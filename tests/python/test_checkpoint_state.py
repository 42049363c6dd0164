"""Tests how a state becomes the files of a checkpoint, and comes back as it was: plain data, tensors, what is refused.
There is no store."""

from __future__ import annotations

import argparse
import collections
import dataclasses
import datetime
import enum
import math
import pathlib
import sys
import zoneinfo
from typing import Any, NamedTuple

import hypothesis
import hypothesis.strategies as st
import millrace
import numpy as np
import pytest
import torch
from millrace import _boxes, _state
from millrace._boxes import Box
from millrace._restore import Restore
from support import same

repeatable = hypothesis.settings(
    derandomize=True, database=None, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)


def written(piece: Any) -> Any:
    """Returns the bytes of a piece of a file. A piece that is copied out is copied in parts that have nothing to do
    with its elements."""
    if isinstance(piece, np.ndarray):
        return piece
    data = np.empty(piece.size, np.uint8)
    for begin in range(0, piece.size, 1001):
        piece.copy_to(begin, data[begin : begin + 1001])
    return data


class Files:
    """Is a checkpoint in memory."""

    def __init__(self, shards: _state.Shards) -> None:
        self.shards = [(name, sum(piece.size for piece in pieces)) for name, pieces in shards]
        self._data = [np.concatenate([written(piece) for piece in pieces]) for _, pieces in shards]

    def read_ranges(self, ranges: list[tuple[int, int, Any]]) -> int:
        for shard, offset, into in ranges:
            into[:] = self._data[shard][offset : offset + into.size]
        return sum(into.size for _, _, into in ranges)


def restored(shards: _state.Shards, **options: Any) -> Any:
    restore = Restore(Files(shards), allow_pickle=False)
    return restore.run(restore.json(), **options)


def round_trip(state: Any) -> Any:
    """Returns what comes back through the files, without a store."""
    return restored(_state.encode(state, allow_pickle=False))


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.sampled_from(["$", "of"]), inner, max_size=4)
        | st.dictionaries(
            st.integers() | st.booleans() | st.none() | st.tuples(st.integers(), st.text()), inner, max_size=4
        )
    ),
    max_leaves=20,
)


@hypothesis.given(plain)
@repeatable
def test_plain_state_comes_back_as_it_was(state: Any) -> None:
    assert same(round_trip(state), state)


def test_other_plain_kinds() -> None:
    state = {
        "sets": [{1, 2}, frozenset({"a"})],
        "numpy": [np.float64(0.1), np.int8(-3), np.bool_(True), np.float32("nan")],
        "torch": [torch.Size([2, 3]), torch.bfloat16, torch.device("cuda:1")],
        "ordered": collections.OrderedDict([(2, "b"), (1, "a")]),
        "large": 2**200,
    }
    after = round_trip(state)
    assert after["sets"] == state["sets"] and type(after["sets"][1]) is frozenset
    assert [type(value) for value in after["numpy"]] == [np.float64, np.int8, np.bool_, np.float32]
    assert after["numpy"][:3] == state["numpy"][:3] and np.isnan(after["numpy"][3])
    assert after["torch"] == state["torch"]
    assert after["ordered"] == state["ordered"] and type(after["ordered"]) is collections.OrderedDict
    assert after["large"] == 2**200


class Point(NamedTuple):
    x: float
    y: Any


@dataclasses.dataclass
class Progress:
    step: int
    best: float
    name: str = ""
    made: int = dataclasses.field(default=0, init=False)

    def __post_init__(self) -> None:
        Progress.calls += 1


Progress.calls = 0  # type: ignore[attr-defined]


@dataclasses.dataclass(frozen=True)
class Frozen:
    rate: float


@dataclasses.dataclass
class Words:
    words: list[str]


@dataclasses.dataclass
class Grown:
    number: int

    def __setstate__(self, state: Any) -> None:
        raise AssertionError


def test_containers_of_the_library() -> None:
    progress = Progress(3, math.inf, "a")
    progress.made = 7
    state = {
        "counter": collections.Counter({"a": 2, ("b", 1): -1}),
        "seen": collections.defaultdict(list, {1: [2.5], "x": []}),
        "bare": collections.defaultdict(None, {1: torch.ones(2)}),
        "points": [Point(1.5, torch.arange(3)), Point(0.0, (None, b"x"))],
        "progress": progress,
        "frozen": Frozen(0.1),
    }
    calls = Progress.calls  # type: ignore[attr-defined]
    after = round_trip(state)
    assert Progress.calls == calls  # type: ignore[attr-defined]
    assert same(after, state)
    assert after["seen"].default_factory is list and after["bare"].default_factory is None
    assert after["seen"]["new"] == [] and after["points"][1].y == (None, b"x")
    assert dataclasses.asdict(after["progress"]) == {"step": 3, "best": math.inf, "name": "a", "made": 7}


class Phase(enum.Enum):
    WARM = "warm"
    COLD = ("a", 1)


class Level(enum.IntEnum):
    LOW = 1


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    rate: float
    name: str


PLAIN = {
    "recent": collections.deque([1.5, (2, 3)], maxlen=4),
    "all": collections.deque(),
    "arguments": argparse.Namespace(lr=0.1, layers=[1, 2], out=None),
    "path": pathlib.Path("/data/run"),
    "pure": pathlib.PurePosixPath("a/b"),
    "moment": datetime.datetime(2026, 3, 1, 12, 30, 0, 5, tzinfo=datetime.timezone(datetime.timedelta(hours=2))),
    "naive": datetime.datetime(2026, 3, 1, 12, 30, fold=1),
    "day": datetime.date(2026, 3, 1),
    "time": datetime.time(1, 2, 3),
    "elapsed": datetime.timedelta(days=-1, seconds=5, microseconds=7),
    "complex": [complex(1.5, -0.0), complex(math.inf, 2)],
    "buffer": bytearray(b"\x00\xff"),
    "phases": {Phase.WARM: 1, "now": Phase.COLD, "level": Level.LOW},
    "slotted": Slotted(0.5, "a"),
}


def test_plain_types_of_the_library() -> None:
    after = round_trip(PLAIN)
    assert same(after, PLAIN)
    assert after["recent"].maxlen == 4 and after["all"].maxlen is None
    assert after["naive"].fold == 1 and after["moment"].utcoffset() == datetime.timedelta(hours=2)
    assert math.copysign(1, after["complex"][0].imag) == -1
    assert after["phases"]["now"] is Phase.COLD and after["phases"][Phase.WARM] == 1
    assert vars(after["arguments"]) == {"lr": 0.1, "layers": [1, 2], "out": None}


def test_plain_types_that_any_program_reads() -> None:
    shards = _state.encode(PLAIN, allow_pickle=False)
    restore = Restore(Files(shards), allow_pickle=False, plain=True)
    state = restore.run(restore.json())
    assert state["recent"] == [1.5, (2, 3)] and state["arguments"]["layers"] == [1, 2]
    assert state["path"] == "/data/run" and state["moment"] == "2026-03-01T12:30:00.000005+02:00"
    assert state["elapsed"] == -86394.999993 and state["slotted"] == {"rate": 0.5, "name": "a"}
    assert state["phases"] == {"warm": 1, "now": ("a", 1), "level": 1}


def test_tensors_in_a_namespace_or_deque_are_read_into_those_that_exist() -> None:
    saved = {"x": {"n": argparse.Namespace(w=torch.ones(2)), "d": collections.deque([torch.ones(1)])}}
    shards = _state.encode(saved, allow_pickle=False)
    mine, last = torch.zeros(2), torch.zeros(1)
    after = restored(shards, into={"x": {"n": argparse.Namespace(w=mine), "d": collections.deque([last])}})
    assert after["x"]["n"].w is mine and mine.tolist() == [1, 1] and after["x"]["d"][0] is last


def test_a_member_that_an_enum_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    shards = _state.encode({"a": Phase.WARM, "b": 1}, allow_pickle=False)
    monkeypatch.setattr(sys.modules[__name__], "Phase", Level)
    with pytest.raises(
        millrace.InvalidArgumentError, match=r"state\['a'\] is Phase\.WARM of .*, and the program has no"
    ):
        restored(shards)
    assert restored(shards, only=["b"]) == {"b": 1}


@dataclasses.dataclass
class Watched:
    rate: float


def test_no_setter_of_a_class_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """This also holds if the program that loads has made the field a property."""
    shards = _state.encode({"a": Watched(0.5)}, allow_pickle=False)
    called: list[Any] = []
    watched = property(lambda self: 0.0, lambda self, value: called.append(value))
    monkeypatch.setattr(Watched, "rate", watched, raising=False)
    with pytest.raises(millrace.InvalidArgumentError, match=r"is a dataclass .*Watched"):
        restored(shards)
    assert not called


def test_tensors_of_containers_are_read_into_those_that_exist() -> None:
    shards = _state.encode({"x": {"points": [Point(1.5, torch.arange(3))]}}, allow_pickle=False)
    mine = torch.zeros(3, dtype=torch.int64)
    after = restored(shards, into={"x": {"points": [Point(0.0, mine)]}})
    assert after["x"]["points"][0].y is mine and mine.tolist() == [0, 1, 2]


def test_a_class_that_the_program_lacks_is_named_and_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    shards = _state.encode({"a": Point(1.0, 2), "b": Frozen(0.5), "c": 1}, allow_pickle=False)
    module = sys.modules[__name__]
    monkeypatch.setattr(module, "Point", Frozen)  # another class of the name
    with pytest.raises(
        millrace.InvalidArgumentError, match=r"state\['a'\] is a namedtuple .*Point with the fields x, y"
    ):
        restored(shards)
    assert restored(shards, only=["b", "c"]) == {"b": Frozen(0.5), "c": 1}
    restore = Restore(Files(shards), allow_pickle=False, plain=True)
    assert restore.run(restore.json()) == {"a": (1.0, 2), "b": {"rate": 0.5}, "c": 1}
    monkeypatch.setattr(module, "Frozen", Words)
    with pytest.raises(millrace.InvalidArgumentError, match=r"is a dataclass .*Frozen with the fields rate"):
        restored(shards, only=["b"])


def test_tensors_of_every_type_and_shape() -> None:
    torch.manual_seed(1)
    kinds = [
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.complex64,
        torch.bool,
        torch.uint8,
        torch.int8,
    ]
    kinds += [
        torch.int16,
        torch.int32,
        torch.int64,
        torch.uint16,
        torch.uint32,
        torch.uint64,
        torch.float8_e4m3fn,
        torch.float8_e5m2,
    ]
    base = torch.arange(24).reshape(2, 3, 4)
    state = {
        "types": {str(kind): base.to(kind) for kind in kinds},
        "shapes": [
            base.float()[..., 1],
            base.t() if base.dim() == 2 else base.permute(2, 0, 1),
            torch.tensor(3.5),
            torch.empty(0, 3),
        ],
        "views": [torch.tensor([1 + 2j]).conj(), torch.nn.Parameter(torch.ones(3)), torch.ones(4, requires_grad=True)],
        "arrays": [
            np.arange(6, dtype=np.uint16).reshape(2, 3)[:, ::-1],
            np.array(1.5),
            np.empty((0, 2), np.int8),
            np.array([True]),
        ],
    }
    after = round_trip(state)
    for name, tensor in state["types"].items():  # type: ignore[attr-defined]
        assert after["types"][name].dtype == tensor.dtype
        assert after["types"][name].view(torch.uint8).tolist() == tensor.view(torch.uint8).tolist()
    assert all(map(same, after["shapes"], state["shapes"]))
    assert torch.equal(after["views"][0], state["views"][0]) and torch.equal(after["views"][1], torch.ones(3))
    assert all(map(same, after["arrays"], state["arrays"]))
    after["arrays"][0][0, 0] = 7  # writable


def test_what_is_there_twice_is_stored_once() -> None:
    weight = torch.randn(1000)
    shards = _state.encode(
        {"model": {"in": weight, "out": weight}, "other": [weight, weight[:500]]}, allow_pickle=False
    )
    assert sum(piece.size for _, pieces in shards for piece in pieces) < 7000
    after = round_trip({"model": {"in": weight, "out": weight}})
    assert after["model"]["in"] is after["model"]["out"]


def test_names_that_would_clash() -> None:
    state = {
        "a": {
            "b": {"c": torch.ones(1)},
            "b.c": torch.zeros(1),
            1: torch.ones(2),
            "1": torch.zeros(2),
            "__metadata__": torch.ones(3),
        },
        "A": torch.ones(4),
        "../etc/passwd": torch.ones(5),
        "tensors-2": torch.ones(6),
        7: torch.ones(7),
        "state": torch.ones(8),
    }
    assert same(round_trip(state), state)
    for name, _ in _state.encode(state, allow_pickle=False):
        assert "/" not in name


@pytest.mark.parametrize(
    "value",
    [
        torch.eye(3).to_sparse(),
        torch.empty(3, device="meta"),
        torch.ones(3, dtype=torch.complex128),
        np.array([object()]),
        np.array(["text"]),
        np.arange(3, dtype=">i4"),
        np.ma.masked_array([1, 2], [True, False]),
        collections.defaultdict(lambda: 0),
        collections.namedtuple("Local", "a")(1),
        Words(["text"]),
        Grown(1),
        Grown,
        datetime.datetime(2026, 3, 1, tzinfo=zoneinfo.ZoneInfo("UTC")),
        enum.IntFlag("Bits", "A B")(3),
        lambda: 0,
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_be_stored_is_refused(value: Any) -> None:
    with pytest.raises(millrace.InvalidArgumentError, match=r"state\['model'\]\['x'\] is a "):
        _state.encode({"model": {"x": value}}, allow_pickle=False)


def test_a_state_that_contains_itself_is_refused() -> None:
    state: list[Any] = []
    state.append(state)
    with pytest.raises(millrace.InvalidArgumentError, match="contains itself"):
        _state.encode(state, allow_pickle=False)


def test_an_empty_tensor_of_no_rank() -> None:
    """No rank writes anything of an empty DTensor."""
    encoded = _state.Encoded(
        {"w": torch.empty(0, 3), "a": np.empty((2, 0), np.int16), "x": torch.ones(2)}, allow_pickle=False
    )
    for tensor in encoded.tensors[:2]:
        tensor.parts = []
    shards, chunks = encoded.files()
    name, pieces = encoded.state_file([chunks])
    found = restored([*shards, (name, pieces)])
    assert found["w"].shape == (0, 3) and found["w"].dtype == torch.float32 and found["x"].tolist() == [1, 1]
    assert found["a"].shape == (2, 0) and found["a"].dtype == np.int16
    text = pieces[0].tobytes().replace(b'"shape":[0,3]', b'"shape":[1,3]')
    with pytest.raises(millrace.DamagedDataError, match=r"state\['w'\]"):
        restored([*shards, (name, [np.frombuffer(text, np.uint8)])])


@hypothesis.given(st.data())
@repeatable
def test_strips_of_boxes(data: st.DataObject) -> None:
    """Compares with numpy where the bytes of a region are."""
    shape = tuple(data.draw(st.lists(st.integers(1, 4), max_size=4)))
    begin = tuple(data.draw(st.integers(0, side - 1)) for side in shape)
    box = Box(begin, tuple(data.draw(st.integers(1, side - first)) for side, first in zip(shape, begin)))
    places = np.arange(math.prod(shape)).reshape(shape)
    wanted = places[tuple(slice(first, first + side) for first, side in zip(begin, box.shape))].reshape(-1).tolist()
    length = _boxes.strip_size(box, shape)
    assert [place + more for place in _boxes.strips(box, shape) for more in range(length)] == wanted
    around = _boxes.widened(box, shape)
    assert len(list(_boxes.strips(around, shape))) == 1 and around & box == box
