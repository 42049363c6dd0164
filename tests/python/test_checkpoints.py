"""Tests `millrace.Checkpoints`: what is saved comes back as it was, any tool reads the tensors, and nothing is
unpickled unasked."""

from __future__ import annotations

import json
import pathlib
import random
import subprocess
import sys
from typing import Any

import millrace
import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from millrace import _tensors
from support import binary, check_script, same


def test_a_training_goes_on(uri: str) -> None:
    """A training has model, optimizer, schedule and loader: the second half of a training is the same after a load."""

    def start() -> tuple[torch.nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
        torch.manual_seed(3)
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1)).to(
            torch.float64
        )
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        return model, optimizer, torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-1, total_steps=20)

    def steps(model: Any, optimizer: Any, schedule: Any, count: int) -> None:
        for _ in range(count):
            optimizer.zero_grad()
            model(torch.randn(16, 8, dtype=torch.float64)).square().mean().backward()
            optimizer.step()
            schedule.step()

    model, optimizer, schedule = start()
    steps(model, optimizer, schedule, 5)
    ckpt = millrace.Checkpoints(uri, keep=2)
    assert ckpt.latest() is None
    parts = {"model": model, "optimizer": optimizer, "schedule": schedule}
    ckpt.save(5, {**{name: part.state_dict() for name, part in parts.items()}, "rng": torch.get_rng_state(), "step": 5})
    steps(model, optimizer, schedule, 5)
    expected = {name: value.clone() for name, value in model.state_dict().items()}

    model, optimizer, schedule = start()
    again = millrace.Checkpoints(uri)
    assert again.latest() == 5
    state = again.load()
    assert state["step"] == 5 and state["model"]._metadata["1"]["version"] == 2
    for name, part in (("model", model), ("optimizer", optimizer), ("schedule", schedule)):
        part.load_state_dict(state[name])  # type: ignore[attr-defined]
    torch.set_rng_state(state["rng"])
    steps(model, optimizer, schedule, 5)
    assert all(torch.equal(value, expected[name]) for name, value in model.state_dict().items())
    again.save(10, state)  # tensors that were loaded can be saved
    assert same(again.load(10)["optimizer"], state["optimizer"])


def test_a_bucket_that_does_not_exist_is_an_error(bucket: str) -> None:
    """It is not a place where nothing was saved yet, from which a training would begin."""
    assert millrace.Checkpoints(f"{bucket}/nothing-is-there").latest() is None
    ckpt = millrace.Checkpoints("s3://nobucket/run-7")
    for ask in (ckpt.latest, ckpt.steps, ckpt.load, ckpt.claim, lambda: ckpt.save(1, {})):
        with pytest.raises(
            millrace.NotFoundError, match="s3://nobucket: LIST failed: the bucket does not exist .*create it first"
        ):
            ask()
    for command in ("ls", "show", "verify", "gc"):
        said = subprocess.run(
            [str(binary()), "checkpoint", command, "s3://nobucket/run-7"], capture_output=True, text=True
        )
        assert said.returncode == 1 and "s3://nobucket: LIST failed: the bucket does not exist" in said.stderr, said


class Staged:
    """Stands for a device: a tensor whose bytes come only when they are asked for."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.type, self.shape = "F32", tuple(tensor.shape)
        self.asked: list[tuple[int, int]] = []
        self._bytes = tensor.numpy().tobytes()

    def later(self) -> _tensors.Later:
        piece = _tensors.Deferred(lambda: None, len(self._bytes))
        piece.copy_to = self._copy  # type: ignore[method-assign]
        return _tensors.Later(self.type, self.shape, piece)

    def _copy(self, offset: int, memory: Any) -> None:
        size = memoryview(memory).nbytes
        self.asked.append((offset, size))
        memoryview(memory)[:] = self._bytes[offset : offset + size]


def test_what_lies_elsewhere_is_copied_piece_by_piece(folder: str) -> None:
    ckpt = millrace.Checkpoints(folder)
    tensors = [torch.arange(5 << 20, dtype=torch.float32) * (number + 1) for number in range(2)]
    staged = [Staged(tensor) for tensor in tensors]
    turned = torch.arange(6.0).reshape(2, 3).t()
    ckpt.save(1, {"model": {"0": staged[0].later(), "1": staged[1].later(), "turned": turned}})
    loaded = ckpt.load()["model"]
    assert all(
        torch.equal(loaded[name], value) for name, value in {"0": tensors[0], "1": tensors[1], "turned": turned}.items()
    )
    for one in staged:
        assert max(size for _, size in one.asked) <= 8 << 20
        assert [offset for offset, _ in one.asked] == sorted(offset for offset, _ in one.asked)
        assert sum(size for _, size in one.asked) == 20 << 20


def test_a_tensor_that_cannot_be_copied_is_told(folder: str) -> None:
    def fail() -> None:
        raise RuntimeError("device lost")

    ckpt = millrace.Checkpoints(folder)
    ckpt.save(1, {"x": 1})
    with pytest.raises(millrace.InternalError, match="device lost"):
        ckpt.save(2, {"w": _tensors.Later("F32", (2,), _tensors.Deferred(fail, 8))})
    assert ckpt.steps() == [1]


def test_any_tool_reads_the_tensors(folder: str) -> None:
    model = torch.nn.Linear(3, 5)
    millrace.Checkpoints(folder).save(
        1, {"model": model.state_dict(), "numbers": {"a": np.arange(5)}, "bf16": torch.ones(3, dtype=torch.bfloat16)}
    )
    (attempt,) = pathlib.Path(folder).glob("000000000001/*")
    loaded = safetensors.torch.load_file(attempt / "model.safetensors")
    assert sorted(loaded) == ["bias", "weight"] and torch.equal(loaded["weight"], model.weight)
    with safetensors.safe_open(attempt / "model.safetensors", "pt") as file:  # type: ignore[no-untyped-call]
        assert file.metadata() == {"format": "pt"}
    assert safetensors.numpy.load_file(attempt / "numbers.safetensors")["a"].tolist() == [0, 1, 2, 3, 4]
    assert safetensors.torch.load_file(attempt / "bf16.safetensors")["bf16"].dtype == torch.bfloat16
    assert json.loads((attempt / "state.json").read_bytes())["model"]["$"] == "OrderedDict"


def test_load_into(uri: str) -> None:
    torch.manual_seed(4)
    big = torch.randn(3000, 1000)
    state: dict[str, Any] = {
        "model": {
            "w": big,
            "half": torch.randn(5).half(),
            "scalar": torch.tensor(2.5),
            "turned": torch.randn(40, 30).t(),
            "none": torch.empty(0, 2),
        },
        "arrays": [np.arange(1000.0).reshape(10, 100), np.float32(1)],
        "step": 7,
    }
    ckpt = millrace.Checkpoints(uri)
    ckpt.save(1, state)
    into: dict[str, Any] = {
        "model": {name: torch.zeros_like(tensor) for name, tensor in state["model"].items()},
        "arrays": [np.zeros((100, 10)).T, None],
    }
    into["model"]["half"] = torch.zeros(10).half()[::2]
    found = ckpt.load(into=into)
    for name, tensor in state["model"].items():
        assert found["model"][name] is into["model"][name] and torch.equal(found["model"][name], tensor), name
    assert found["arrays"][0] is into["arrays"][0] and same(found["arrays"][1], np.float32(1)) and found["step"] == 7
    assert np.array_equal(found["arrays"][0], state["arrays"][0])


def test_load_into_a_model_that_does_not_fit(folder: str) -> None:
    ckpt = millrace.Checkpoints(folder)
    ckpt.save(1, {"model": {"w": torch.zeros(2, 3), "b": torch.zeros(3)}})
    for into, said in (
        (
            {"w": torch.zeros(3, 2), "b": torch.zeros(3)},
            r"state\['model'\]\['w'\] of the checkpoint is F32 of the shape \(2, 3\); .* \(3, 2\)",
        ),
        ({"w": torch.zeros(2, 3).double(), "b": torch.zeros(3)}, "that of `into` is F64"),
        ({"w": torch.zeros(2, 3)}, r"\['b'\] is in the checkpoint and not in `into`"),
        ({"w": torch.zeros(2, 3), "b": torch.zeros(3), "c": 1}, r"\['c'\] is in `into` and not in the checkpoint"),
    ):
        with pytest.raises(millrace.InvalidArgumentError, match=said):
            ckpt.load(into={"model": into})
    frozen = np.zeros((2, 3), np.float32)
    frozen.flags.writeable = False
    with pytest.raises(millrace.InvalidArgumentError, match="read-only"):
        ckpt.load(into={"model": {"w": frozen, "b": torch.zeros(3)}})


def test_load_only_what_is_wanted(place: tuple[str, pathlib.Path]) -> None:
    uri, folder = place
    ckpt = millrace.Checkpoints(uri)
    ckpt.save(1, {"model": {"w": torch.arange(5)}, "optimizer": {0: torch.zeros(100)}, "step": 3, 4: "five"})
    (large,) = folder.glob("000000000001/*/optimizer.safetensors")
    large.unlink()  # which is not even looked at
    assert same(ckpt.load(only=["step", "model"]), {"model": {"w": torch.arange(5)}, "step": 3})
    with pytest.raises(
        millrace.InvalidArgumentError,
        match="only names 'modle', which the checkpoint has not; it has 'model', 'optimizer', 'step'",
    ):
        ckpt.load(only=["modle"])
    with pytest.raises(TypeError, match="only must be a list"):
        ckpt.load(only="model")  # type: ignore[arg-type]
    with pytest.raises(millrace.NotFoundError):
        ckpt.load()


def test_map_location(folder: str) -> None:
    tensor = torch.arange(3)
    millrace.Checkpoints(folder).save(1, {"a": tensor, "b": [tensor]})
    state = millrace.Checkpoints(folder).load(map_location="meta")
    assert state["a"].is_meta and state["a"] is state["b"][0]
    assert not millrace.Checkpoints(folder).load(map_location=torch.device("cpu"))["a"].is_meta


def test_keep_every(folder: str) -> None:
    ckpt = millrace.Checkpoints(folder, keep=1, keep_every=10)
    for step in (5, 10, 15, 20, 25):
        ckpt.save(step, {"step": step})
    assert ckpt.steps() == [10, 20, 25]
    with pytest.raises(millrace.InvalidArgumentError, match="give keep, too"):
        millrace.Checkpoints(folder, keep_every=10)


def test_random_number_generators(folder: str) -> None:
    def draw() -> tuple[float, float, float]:
        return random.random(), np.random.rand(), torch.rand(1).item()

    ckpt = millrace.Checkpoints(folder)
    ckpt.save(1, {}, per_rank={"rng": millrace.rng_state()})
    drawn = draw()
    millrace.set_rng_state(ckpt.load_per_rank()["rng"])
    assert draw() == drawn
    assert ckpt.load_per_rank(rank=1) is None
    with pytest.raises(millrace.InvalidArgumentError, match="rng_state"):
        millrace.set_rng_state({})


def test_code_is_kept_beside(tmp_path: pathlib.Path) -> None:
    """The commit, and what git tracks and was changed; nothing else, and not without bound."""
    repository = tmp_path / "code"
    repository.mkdir()

    def git(*arguments: str) -> str:
        named = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
        return subprocess.run(
            ["git", "-C", str(repository), *named, *arguments], check=True, capture_output=True, text=True
        ).stdout.strip()

    (repository / "train.py").write_text(
        "import sys, millrace\nmillrace.Checkpoints(sys.argv[1], code=True).save(int(sys.argv[2]), {'x': 1})\n"
    )
    (repository / ".gitignore").write_text("ignored\n")
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "one")

    def saved(step: int) -> Any:
        command = [sys.executable, str(repository / "train.py"), str(tmp_path / "run"), str(step)]
        subprocess.run(command, check=True, cwd=tmp_path)
        (file,) = (tmp_path / "run").glob(f"{step:012}/*/code.json")
        return json.loads(file.read_bytes())

    assert saved(1)["commit"] == git("rev-parse", "HEAD") and saved(1)["diff"] == ""
    for name in ("secret", "ignored"):
        (repository / name).write_text("hidden key")
    with (repository / "train.py").open("a") as file:
        file.write("# " + "y" * 500_000 + "\n")
    code = saved(2)
    assert (
        code["truncated"]
        and len(code["diff"]) == 256 << 10
        and "+# yyy" in code["diff"]
        and "hidden key" not in code["diff"]
    )
    # If there is no repository, there is no commit.
    script = "import sys, millrace\nmillrace.Checkpoints(sys.argv[1], code=True).save(1, {'x': 1})\n"
    check_script(script, str(tmp_path / "other"), GIT_DIR=str(tmp_path / "none"))
    (file,) = (tmp_path / "other").glob("*/*/code.json")  # type: ignore[assignment]
    assert json.loads(file.read_bytes())["commit"] is None  # type: ignore[attr-defined]
    assert millrace.Checkpoints(tmp_path / "run").load() == {"x": 1}


class Odd:
    """Is no plain data."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Odd)


def test_pickles_only_if_asked_for(folder: str) -> None:
    ckpt = millrace.Checkpoints(folder)
    with pytest.raises(
        millrace.InvalidArgumentError, match=r"state\['a'\]\[1\] is a test_checkpoints.Odd.*allow_pickle=True"
    ):
        ckpt.save(1, {"a": [0, Odd()]})
    assert ckpt.latest() is None
    ckpt.save(1, {"a": [0, Odd()]}, allow_pickle=True)
    with pytest.raises(millrace.InvalidArgumentError, match="allow_pickle=True if you trust it"):
        ckpt.load()
    assert ckpt.load(allow_pickle=True) == {"a": [0, Odd()]}


def test_a_pickle_whose_class_is_gone_is_not_damaged(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ckpt = millrace.Checkpoints(folder)
    ckpt.save(1, {"a": [0, Odd()], "b": 1}, allow_pickle=True)
    monkeypatch.delattr(sys.modules[__name__], "Odd")
    with pytest.raises(
        millrace.InvalidArgumentError,
        match=r"state\['a'\]\[1\] is a pickle that cannot be read here: AttributeError.*Odd",
    ):
        ckpt.load(allow_pickle=True)
    assert ckpt.load(only=["b"]) == {"b": 1}


def test_retention_and_steps(uri: str) -> None:
    ckpt = millrace.Checkpoints(uri, keep=2)
    for step in (1, 2, 3, 2):
        ckpt.save(step, {"step": step, "x": np.full(5, step)})
    assert ckpt.steps() == [3, 2] and ckpt.latest() == 2
    assert same(ckpt.load(3), {"step": 3, "x": np.full(5, 3)})
    with pytest.raises(millrace.NotFoundError, match="no checkpoint of step 1; the newest are those of 3, 2"):
        ckpt.load(1)


def test_arguments_are_checked(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(millrace.InvalidArgumentError, match="keep is 0; it must be at least 1"):
        millrace.Checkpoints(folder, keep=0)
    with pytest.raises(millrace.InvalidArgumentError, match="MILLRACE_CHECKPOINT is not set"):
        millrace.Checkpoints()
    ckpt = millrace.Checkpoints(folder)
    for step in (-1, 10**12):
        with pytest.raises(millrace.InvalidArgumentError, match="step is"):
            ckpt.save(step, {})
    with pytest.raises(TypeError, match="step must be an integer"):
        ckpt.save("1", {})  # type: ignore[arg-type]
    with pytest.raises(millrace.NotFoundError, match="there is no checkpoint"):
        ckpt.load()


def test_only_rank_0_saves(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    other = millrace.Checkpoints(folder)
    other.save(1, {"x": 1})
    assert other.claim() == 0 and other.latest() is None and not pathlib.Path(folder).exists()
    millrace.Checkpoints(folder, rank=0).save(2, {"x": 2})
    assert other.load() == {"x": 2}


def test_the_last_claim_counts(uri: str) -> None:
    zombie = millrace.Checkpoints(uri)
    zombie.save(1, {"x": 1})
    following = millrace.Checkpoints(uri)
    assert following.latest() == 1  # looking is no claim
    zombie.save(2, {"x": 2})
    assert following.claim() == 2
    with pytest.raises(millrace.MismatchError, match="another process has taken over"):
        zombie.save(3, {"x": 3})
    following.save(4, {"x": 4})
    assert following.steps() == [1, 2, 4]


def test_a_job_claims_at_its_first_call(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    zombie = millrace.Checkpoints(folder)
    zombie.save(1, {"x": 1})
    monkeypatch.setenv("MILLRACE_CHECKPOINT", folder)
    elsewhere = millrace.Checkpoints(f"{folder}-of-another")
    elsewhere.latest()
    assert not pathlib.Path(f"{folder}-of-another").exists()  # it is only read
    assert millrace.Checkpoints(rank=1).latest() == 1
    with (
        monkeypatch.context() as rank_1
    ):  # which is said to be rank 0, as each is by those for whom one rank alone saves
        rank_1.setenv("RANK", "1")
        rank_1.setenv("WORLD_SIZE", "2")
        assert millrace.Checkpoints(rank=0).latest() == 1
    zombie.save(2, {"x": 2})
    assert millrace.Checkpoints().latest() == 2
    with pytest.raises(millrace.MismatchError):
        zombie.save(3, {"x": 3})


def test_a_claim_that_fails_is_made_by_the_next_call(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    zombie = millrace.Checkpoints(folder)
    zombie.save(1, {"x": 1})
    monkeypatch.setenv("MILLRACE_CHECKPOINT", folder)
    ckpt = millrace.Checkpoints()
    core = ckpt._core

    class Down:
        def claim(self) -> int:
            raise millrace.UnavailableError("the store is down")

        def __getattr__(self, name: str) -> Any:
            return getattr(core, name)

    ckpt._core = Down()  # type: ignore[assignment]
    with pytest.raises(millrace.UnavailableError):
        ckpt.latest()
    ckpt._core = core
    assert ckpt.latest() == 1
    with pytest.raises(millrace.MismatchError):
        zombie.save(2, {"x": 2})


class Meanwhile:
    """Is a core, or a checkpoint that it has found, of which each read comes after something that another process does,
    once."""

    def __init__(self, below: Any, acts: list[Any]) -> None:
        self._below = below
        self._acts = acts

    def find(self, step: int | None) -> Any:
        return Meanwhile(self._below.find(step), self._acts)

    def read_ranges(self, ranges: Any) -> Any:
        if self._acts:
            self._acts.pop()()
        return self._below.read_ranges(ranges)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._below, name)


def test_what_a_training_removes_meanwhile_is_loaded_from_its_successor(uri: str) -> None:
    training, evaluation = millrace.Checkpoints(uri, keep=1), millrace.Checkpoints(uri)
    training.save(1, {"w": np.full(5, 1)}, per_rank={"rng": 1})

    def commit() -> None:
        step = training.steps()[-1] + 1
        training.save(step, {"w": np.full(5, step)}, per_rank={"rng": step})

    acts: list[Any] = []
    evaluation._core = Meanwhile(evaluation._core, acts)  # type: ignore[assignment]
    acts += [commit, commit]
    assert evaluation.load()["w"].tolist() == [3] * 5
    acts += [commit]
    assert evaluation.load_per_rank() == {"rng": 4}
    acts += [commit]
    assert evaluation.describe() == {"w": ("I64", (5,))}
    acts += [commit]
    with pytest.raises(millrace.NotFoundError, match="there is no checkpoint of step 5"):
        evaluation.load(5)
    assert evaluation.load()["w"].tolist() == [6] * 5 and not acts


def test_without_torch(folder: str) -> None:
    """A state that torch has saved comes back as arrays; bfloat16, which numpy lacks, is refused."""
    millrace.Checkpoints(folder).save(1, {"model": {"w": torch.arange(4.0)}, "dtype": torch.float32})
    millrace.Checkpoints(folder).save(2, {"model": {"w": torch.arange(4.0).bfloat16()}})
    script = """
import sys
sys.modules["torch"] = None
import millrace, numpy
ckpt = millrace.Checkpoints(sys.argv[1])
state = ckpt.load(1)
assert type(state["model"]["w"]) is numpy.ndarray and state["model"]["w"].tolist() == [0, 1, 2, 3] and state["dtype"] == "float32"
try:
    ckpt.load(2)
except millrace.UnsupportedError as error:
    print(error)
ckpt.save(3, state)
"""
    assert "import torch first" in check_script(script, folder)
    assert millrace.Checkpoints(folder).load(3)["dtype"] == "float32"


def test_damage_is_found(place: tuple[str, pathlib.Path]) -> None:
    """One bit of any file of a checkpoint is damaged: nothing wrong is ever returned, and `verify` says so."""
    uri, folder = place
    ckpt = millrace.Checkpoints(uri)
    ckpt.save(1, {"model": {"w": np.arange(1000)}, "step": 1})
    command = [str(binary()), "checkpoint", "verify", uri]
    assert subprocess.run(command, capture_output=True).returncode == 0
    files = sorted(folder.glob("000000000001/*/*"))
    assert [path.name for path in files] == ["MANIFEST.json", "model.safetensors", "state.json"]
    for path in files:
        whole = path.read_bytes()
        path.write_bytes(whole[:-9] + bytes([whole[-9] ^ 4]) + whole[-8:])
        with pytest.raises(millrace.DamagedDataError):
            ckpt.load()
        failed = subprocess.run(command, capture_output=True, text=True)
        assert failed.returncode == 1 and "step 1 is damaged" in failed.stderr
        path.write_bytes(whole)
    assert ckpt.load()["step"] == 1
