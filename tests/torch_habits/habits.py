"""Programs of a torch user, each written twice: as torch has it, and with the few lines changed that Millrace needs.

A program is a function under `@habit`, which is the torch side, and the function under `@ours` that follows it. Both get what their
parameters name: `dataset` is a map-style data set, and `uri` is where Millrace finds the same samples (samples.py). The two return equal
values. With TORCH_SIDE_ONLY=1 only the torch sides run.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

TORCH_SIDE_ONLY = os.environ.get("TORCH_SIDE_ONLY", "") not in ("", "0")
_UNSET = object()


@dataclasses.dataclass
class Habit:
    words: str
    """The user's aim: the first column of the page."""
    same: str
    """This is equal on both sides: the last column of the page."""
    torch: Callable[..., Any]
    data: str
    cases: tuple[dict[str, Any], ...]
    result: Any
    """The torch side must return this, if that can be written down."""
    raises: type[BaseException] | tuple[type[BaseException], ...] | None
    """Both sides raise this."""
    close: float
    """How far numbers may differ, relative and absolute."""
    fresh: bool
    """Our side runs in an interpreter of its own, which has imported nothing, and returns what JSON can say."""
    processes: int
    """Both sides run in so many processes of a job, which have initialised torch.distributed."""
    ours: Callable[..., Any] | None = None
    match: str = ""
    """The message of our exception matches this."""
    or_explains: str = ""
    """We may raise an error in place of an equal result, if its message matches this."""
    warns: str = ""
    """We warn about this."""

    @property
    def id(self) -> str:
        return re.sub(r"[^a-z0-9]+", "_", self.words.lower()).strip("_")


_HABITS: dict[str, list[Habit]] = {}


def group(words: str) -> None:
    """A heading of the page, for the programs that follow."""


def habit(
    words: str,
    *,
    same: str,
    data: str = "numbers",
    cases: tuple[dict[str, Any], ...] = ({},),
    result: Any = _UNSET,
    raises: type[BaseException] | tuple[type[BaseException], ...] | None = None,
    close: float = 1e-6,
    fresh: bool = False,
    processes: int = 0,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        made = Habit(words, same, function, data, cases, result, raises, close, fresh, processes)
        _HABITS.setdefault(function.__module__, []).append(made)
        return function

    return add


def ours(*, match: str = "", or_explains: str = "", warns: str = "") -> Callable[[Callable[..., Any]], Any]:
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        last = _HABITS[function.__module__][-1]
        assert last.ours is None, f"{last.words}: there are two programs of ours"
        last.ours, last.match, last.or_explains, last.warns = function, match, or_explains, warns
        return function

    return add


def of_module(module: str) -> list[Habit]:
    habits = _HABITS[module]
    assert all(one.ours for one in habits) and len({one.id for one in habits}) == len(habits)
    return habits


def parameters(*modules: str) -> list[Any]:
    """For pytest.mark.parametrize("habit, case", ...)."""
    found = []
    for module in modules:
        for one in of_module(module):
            for case in one.cases:
                name = "-".join([one.id, *(f"{key}={_short(value)}" for key, value in case.items())])
                found.append(pytest.param(one, case, id=name))
    return found


def _short(value: Any) -> str:
    return value if isinstance(value, str) else re.sub(r"[^\w.]+", "_", getattr(value, "__name__", str(value)))


def check(one: Habit, case: dict[str, Any], inputs: Callable[[str, str], Any]) -> None:
    """Runs both sides of a program. `inputs(data, name)` gives what a parameter names."""
    assert one.ours is not None
    if one.processes:
        return _check_processes(one, inputs)
    theirs, error, _ = _run(one, one.torch, case, inputs)
    if one.raises:
        assert isinstance(error, one.raises), f"torch raised {error!r}, and returned {theirs!r}"
    elif error:
        raise error
    elif one.result is not _UNSET:
        check_same(theirs, one.result, one.close, "torch")
    if TORCH_SIDE_ONLY:
        return
    mine, error, warned = _run(one, one.ours, case, inputs)
    if error and one.or_explains and re.search(one.or_explains, str(error)):
        assert "millrace" in type(error).__module__ or isinstance(error, TypeError), repr(error)
        return
    if one.raises:
        assert isinstance(error, one.raises), f"ours raised {error!r}, and returned {mine!r}"
        assert re.search(one.match, str(error)), str(error)
    elif error:
        raise error
    else:
        check_same(mine, theirs, one.close)
    assert not one.warns or any(re.search(one.warns, text) for text in warned), f"ours warned: {warned}"


def _check_processes(one: Habit, inputs: Callable[[str, str], Any]) -> None:
    """Each process runs both sides, and prints what they return."""
    root = pathlib.Path(inputs(one.data, "uri")).parent
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(__file__).with_name("process_of_job.py")
        command = [sys.executable, str(script), one.torch.__module__, one.id, str(root), f"file://{folder}/meeting"]
        environments = [
            {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(one.processes), "OMP_NUM_THREADS": "1"}
            for rank in range(one.processes)
        ]
        jobs = [subprocess.Popen(command, env=each, stdout=subprocess.PIPE, text=True) for each in environments]
        try:
            printed = [job.communicate(timeout=300)[0] for job in jobs]
        finally:
            for job in jobs:
                job.kill()
    assert [job.returncode for job in jobs] == [0] * one.processes, printed
    for text in printed:
        theirs, mine = json.loads(text.splitlines()[-1])
        check_same(theirs, one.result, one.close, "torch")
        if not TORCH_SIDE_ONLY:
            check_same(mine, theirs, one.close)


def _run(
    one: Habit, side: Callable[..., Any], case: dict[str, Any], inputs: Callable[[str, str], Any]
) -> tuple[Any, BaseException | None, list[str]]:
    arguments = {name: case[name] if name in case else inputs(one.data, name) for name in names(side)}
    if one.fresh and side is one.ours:
        return _run_fresh(side, arguments), None, []
    torch.manual_seed(0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            value, error = side(**arguments), None
        except Exception as raised:
            value, error = None, raised
    return value, error, [str(warning.message) for warning in caught]


def names(side: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(side).parameters)


def _run_fresh(side: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    source = textwrap.dedent(inspect.getsource(side))
    source = source[re.search(r"^def ", source, re.MULTILINE).start() :]  # type: ignore[union-attr]
    script = f"{source}\nimport json, sys\nprint(json.dumps({side.__name__}(**json.loads(sys.argv[1]))))\n"
    command = [sys.executable, "-c", script, json.dumps(arguments)]
    environment = {**os.environ, **arguments.get("store", {})}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def check_same(mine: Any, theirs: Any, close: float = 1e-6, path: str = "result") -> None:
    """Equal in types, shapes and values; numbers may differ by `close`. A list is as good as a tuple."""
    if isinstance(theirs, torch.Tensor):
        assert isinstance(mine, torch.Tensor), f"{path}: {type(mine)} in place of a tensor"
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape), path
        assert mine.device == theirs.device, path
        if theirs.is_floating_point():
            near = torch.isclose(mine.double(), theirs.double(), rtol=close, atol=close, equal_nan=True)
            assert bool(near.all()), f"{path}: {int((~near).sum())} of {near.numel()} differ"
        else:
            assert torch.equal(mine, theirs), f"{path}: {mine} != {theirs}"
    elif isinstance(theirs, dict):
        assert isinstance(mine, dict) and set(mine) == set(theirs), f"{path}: {mine} != {theirs}"
        for key in theirs:
            check_same(mine[key], theirs[key], close, f"{path}[{key!r}]")
    elif isinstance(theirs, (list, tuple)):
        assert isinstance(mine, (list, tuple)) and len(mine) == len(theirs), f"{path}: {mine} != {theirs}"
        for number, (one, other) in enumerate(zip(mine, theirs)):
            check_same(one, other, close, f"{path}[{number}]")
    elif isinstance(theirs, float):
        assert isinstance(mine, float), f"{path}: {mine!r} is no float"
        equal = math.isclose(mine, theirs, rel_tol=close, abs_tol=close) or (math.isnan(mine) and math.isnan(theirs))
        assert equal, f"{path}: {mine} != {theirs}"
    else:
        assert type(mine) is type(theirs) and mine == theirs, f"{path}: {mine!r} != {theirs!r}"
