"""Tests functions of samples that workers run: the results are what they would make here."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import millrace
import numpy as np
import pytest
import worker_functions
from millrace._remote_rows import decode
from millrace.worker import _Functions
from service_support import OPTIONS, FunctionWorker, is_late, outcome
from support import Samples
from token_corpus import write_corpus

MODULE = "worker_functions"


def function_worker(*options: object, functions: str = MODULE) -> FunctionWorker:
    return FunctionWorker(*options, functions=functions, env={worker_functions.APART: "yes"})


@pytest.fixture(scope="module")
def pair() -> Iterator[list[FunctionWorker]]:
    both = [function_worker(), function_worker()]
    yield both
    for worker in both:
        worker.end()


@pytest.fixture(scope="module")
def addresses(pair: list[FunctionWorker]) -> list[str]:
    return [worker.address for worker in pair]


def shown(value: Any) -> Any:
    """Returns type and value, to the last bit."""
    if type(value).__module__ == "torch":
        return "tensor", str(value.dtype), tuple(value.shape), value.reshape(-1).tolist()
    if isinstance(value, (np.ndarray, np.generic)):
        return type(value).__name__, str(value.dtype), value.shape, hashlib.sha256(value.tobytes()).hexdigest()
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [shown(each) for each in value]
    if isinstance(value, dict):
        return {name: shown(each) for name, each in value.items()}
    return type(value).__name__, value


def received(uri: Any, function: str, **options: Any) -> tuple[list[Any], millrace.Loader]:
    with millrace.Loader(uri, transform=f"{MODULE}:{function}", **{**OPTIONS, "memory": "128MiB", **options}) as loader:
        return [shown(batch) for _ in range(options.get("epochs", 1)) for batch in loader], loader


def punctual(run: Callable[[], tuple[Any, millrace.Loader]]) -> tuple[Any, millrace.Loader]:
    """Returns the result of a run in which no worker was late. On a busy machine one may be given up or overtaken, and
    then its rows are of this process, or of the other one."""
    deadline = time.monotonic() + 180
    while True:
        got, loader = run()
        if not any(map(is_late, loader.report()["workers"][:-1])):
            return got, loader
        if time.monotonic() > deadline:
            break
    raise AssertionError(loader.report()["workers"])


def check_equal(uri: Any, function: str, workers: list[str] | millrace.Service, **options: Any) -> None:
    local, one = received(uri, function, **options)

    def run() -> tuple[list[Any], millrace.Loader]:
        remote, other = received(uri, function, workers=workers, **options)
        assert remote == local and local
        assert outcome(other) == outcome(one)
        return remote, other

    report = punctual(run)[1].report()["workers"]
    assert report[-1]["rows"] == 0 and all(entry["rows"] > 0 and not entry["last_failure"] for entry in report[:-1]), (
        report
    )


@pytest.mark.parametrize("last", ["pad", "short", "drop", "wrap"])
def test_equal_to_a_local_loader(tar: Samples, addresses: list[str], last: str) -> None:
    service = millrace.Service(addresses, streams=4)
    for world in (1, 2):
        for rank in range(world):
            check_equal(tar.uri, "noisy", service, last=last, world=world, rank=rank, epochs=2)


def test_values_of_all_kinds(tar: Samples, addresses: list[str]) -> None:
    check_equal(tar.uri, "of_all_kinds", addresses, augment=False)
    fields = {
        "image": millrace.Image("png"),
        "text": millrace.Text("txt"),
        "label": millrace.Label("cls"),
        "json": millrace.Json("json"),
    }
    check_equal(tar.uri, "noisy", addresses, fields=fields)


def test_tensors(tar: Samples, addresses: list[str]) -> None:
    pytest.importorskip("torch")
    check_equal(tar.uri, "of_tensors", addresses, output="torch")


def test_mixes_and_tokens(tar: Samples, raw: Samples, addresses: list[str], tmp_path: pathlib.Path) -> None:
    mix = millrace.Mix([millrace.Dataset(raw.uri), millrace.Dataset(tar.uri)], weights=[1, 2], epoch_samples=60)
    check_equal(
        mix,
        "noisy",
        millrace.Service(addresses, streams=4),
        epochs=2,
        fields={"image": millrace.Image("png"), "label": millrace.Bytes("png")},
    )
    corpus = write_corpus(tmp_path / "corpus", [int(n) for n in np.random.default_rng(1).integers(1, 90, 300)])
    check_equal(corpus.uri, "of_tokens", addresses, tokens=millrace.Tokens(64, "pack"))


def test_another_world_after_a_resume(tar: Samples, raw: Samples, addresses: list[str]) -> None:
    """A mix draws random numbers by position, also where a batch begins within one of the streams before."""
    mix = millrace.Mix([millrace.Dataset(raw.uri), millrace.Dataset(tar.uri)], weights=[1, 2], epoch_samples=60)
    options = {
        **OPTIONS,
        "fields": {"image": millrace.Image("png"), "label": millrace.Bytes("png")},
        "transform": f"{MODULE}:noisy",
        "memory": "128MiB",
    }
    with millrace.Loader(mix, **{**options, "batch_size": 7}) as loader:
        next(iter(loader))
        state = loader.state_dict()
    got = []
    for workers in (None, millrace.Service(addresses, streams=4)):
        with millrace.Loader(mix, **options, workers=workers, world=3, rank=1) as loader:
            loader.load_state_dict(state)
            got.append([shown(batch) for batch in loader])
    assert got[0] == got[1] and got[0]


def test_collate_and_batch_transform_run_here(tar: Samples, addresses: list[str]) -> None:
    def collate(rows: list[dict[str, Any]]) -> dict[str, Any]:
        return {"apart": [row["apart"] for row in rows], "pid": os.getpid()}

    remote, _ = punctual(lambda: received(tar.uri, "where", workers=addresses, collate_fn=collate))
    assert remote[0] == shown({"apart": ["yes"] * 8, "pid": os.getpid()})


def test_rows_of_this_process(tar: Samples, addresses: list[str]) -> None:
    """Those of local streams are transformed here, and batches are of both."""
    local, one = received(tar.uri, "noisy", last="pad")  # each stream has equally many rows
    remote, other = punctual(
        lambda: received(tar.uri, "noisy", workers=millrace.Service(addresses, streams=4, local_streams=2), last="pad")
    )
    assert remote == local and outcome(other) == outcome(one)
    report = other.report()["workers"]
    assert report[-1]["rows"] == sum(entry["rows"] for entry in report[:-1]) > 0, report
    batches, _ = punctual(
        lambda: received(tar.uri, "where", workers=millrace.Service(addresses, streams=4, local_streams=2))
    )
    assert sorted(batches[0]["apart"][1]) == [("str", "")] * 4 + [("str", "yes")] * 4


def test_workers_that_are_killed(many: Samples) -> None:
    both = [function_worker(), function_worker()]
    try:
        local, one = received(many.uri, "noisy", epochs=6)
        options = {**OPTIONS, "memory": "128MiB", "epochs": 6}  # many more batches than can be on their way
        with millrace.Loader(
            many.uri, transform=f"{MODULE}:noisy", workers=[worker.address for worker in both], **options
        ) as loader:
            got = []
            for _ in range(6):
                for batch in loader:
                    got.append(shown(batch))
                    if len(got) in (5, 15):  # the second one leaves none
                        both[len(got) // 10].process.send_signal(signal.SIGKILL)
        assert got == local and outcome(loader) == outcome(one)
        assert loader.report()["workers"][-1]["rows"] > 0
    finally:
        for worker in both:
            worker.end()


def raised_by(
    uri: str, function: str, workers: list[str] | None
) -> tuple[millrace.TransformError | None, millrace.Loader]:
    with millrace.Loader(
        uri, transform=f"{MODULE}:{function}", workers=workers, **{**OPTIONS, "memory": "128MiB"}
    ) as loader:
        try:
            for _ in loader:
                pass
        except millrace.TransformError as error:
            return error, loader
    return None, loader


def test_exceptions_name_the_sample(tar: Samples, addresses: list[str]) -> None:
    here, _ = raised_by(tar.uri, "raises_at_17", None)
    there, _ = punctual(lambda: raised_by(tar.uri, "raises_at_17", addresses))
    assert (
        str(here) == str(there) and "sample '0017'" in str(there) and "LookupError: no such thing as 17" in str(there)
    )
    assert there is not None and "raises_at_17" in str(there.__cause__), "the traceback of the worker"


def test_what_cannot_be_sent(tar: Samples, addresses: list[str]) -> None:
    error, _ = punctual(lambda: raised_by(tar.uri, "not_sendable", addresses))
    assert re.search(r"sample '\d+'.*\['what'\] is a builtins.object, which workers cannot send", str(error)), error


def test_refusals_say_why(
    tar: Samples,
    workers: Any,
    tmp_path: pathlib.Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The program then continues by itself."""
    native = workers()
    module = f"only_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{module}.py").write_text("def same(sample):\n    return sample\n")
    monkeypatch.syspath_prepend(tmp_path)
    other = function_worker("--allow-functions", module, functions="json")
    try:
        for worker, function, why in (
            (native, f"{MODULE}:noisy", "runs no functions"),
            (other, f"{MODULE}:noisy", f"runs functions of json, {module} only"),
            (other, f"{module}:same", f"'{module}:same' cannot be imported: ModuleNotFoundError"),
        ):
            for _ in range(10):
                capfd.readouterr()
                with millrace.Loader(
                    tar.uri, transform=function, workers=[worker.address], **{**OPTIONS, "memory": "128MiB"}
                ) as loader:
                    assert len(list(loader)) == 7
                    report = loader.report()["workers"]
                if not is_late(report[0]):
                    break
            assert report[0]["rows"] == 0 and why in report[0]["last_failure"], report
            assert why in capfd.readouterr().err
    finally:
        other.end()


def test_results_that_are_too_large(tar: Samples, addresses: list[str]) -> None:
    def run() -> tuple[Any, millrace.Loader]:
        with millrace.Loader(
            tar.uri, transform=f"{MODULE}:large", workers=addresses, **{**OPTIONS, "memory": "128MiB"}
        ) as loader:
            batches = iter(loader)
            return (next(batches)["zeros"].shape, batches), loader

    (shape, _), loader = punctual(run)  # the report counts an iterator of one batch as long as it is there
    report = loader.report()["workers"]
    assert shape == (8, 3_000_000) and report[-1]["rows"] > 0
    assert all(entry["rows"] == 0 for entry in report[:-1]), report
    assert any("give its Loader more memory" in entry["last_failure"] for entry in report[:-1]), report


def test_what_makes_no_sense(tar: Samples) -> None:
    for transform, why in (
        ("noisy", "'module:function'"),
        ("no_such_module:f", "ModuleNotFoundError"),
        (f"{MODULE}:nothing", "AttributeError"),
        ("os:sep", "no function"),
    ):
        with pytest.raises(millrace.InvalidArgumentError, match=why):
            millrace.Loader(tar.uri, transform=transform)
    with pytest.raises(millrace.InvalidArgumentError, match="workers run the function"):
        millrace.Loader(tar.uri, transform=millrace.Map(f"{MODULE}:noisy", processes=1), workers=["127.0.0.1:1"])


def test_names_of_other_modules_are_refused() -> None:
    functions = _Functions([MODULE])
    functions.check((f"{MODULE}:noisy",))
    for name, why in (("os.getcwd", "leads through the module os"), ("noisy.__class__", "is one of builtins")):
        with pytest.raises(millrace.InvalidArgumentError, match=why):
            functions.check((f"{MODULE}:{name}",))


@pytest.mark.parametrize("function", [f"{MODULE}:raises_at_17", "builtins:id"])
def test_an_exception_does_not_hold_the_batch(function: str) -> None:
    """Its memory is a slot of the worker, which must not wait for the garbage collector."""
    label = np.array([17])
    held = weakref.ref(label)
    batch = {"valid": np.array([True]), "sample": np.array([17]), "key": ["0017"], "label": label}
    gc.disable()
    try:
        [made] = _Functions([MODULE]).apply((function, "data", False, 1 << 20, (0, 0, 1, False, 1, 0)), batch, 0, 0)
        del batch, label
        assert held() is None
    finally:
        gc.enable()
    with pytest.raises(millrace.TransformError, match="sample '0017'"):
        decode(made)


@pytest.mark.parametrize("kind, dtype", [("array", "<f8"), ("array", "<U0"), ("tensor", "float32")])
def test_c25_values_without_bytes_take_no_memory(kind: str, dtype: str) -> None:
    """A worker may send a shape of petabytes, and nothing else."""
    head = json.dumps({"value": ["dict", {"x": [kind, dtype, [1 << 50], 0, 0]}]}).encode()
    with pytest.raises(ValueError, match="without bytes"):
        decode(len(head).to_bytes(8, "little") + head)
    empty = json.dumps({"value": ["dict", {"x": [kind, dtype, [3, 0], 0, 0]}]}).encode()
    assert tuple(decode(len(empty).to_bytes(8, "little") + empty)["x"].shape) == (3, 0)


def test_a_worker_within_a_process(tar: Samples) -> None:
    from millrace.worker import Worker

    with Worker("127.0.0.1:0", functions=[MODULE]) as worker:
        check_equal(tar.uri, "noisy", [worker.address])
    worker.close()
    with pytest.raises(TypeError, match="list of modules"):
        Worker("127.0.0.1:0", functions="worker_functions")
    with pytest.raises(millrace.InvalidArgumentError, match="needs a bound"):
        Worker("127.0.0.1:0", functions=[MODULE], cache="memory")
    with pytest.raises(millrace.InvalidArgumentError, match="leave pin out"):
        Worker("127.0.0.1:0", functions=[MODULE], cache=millrace.Cache("memory", "64MiB", pin=True))
    with Worker("127.0.0.1:0", functions=[MODULE], cache=millrace.Cache("memory", "64MiB", tenant="us")) as worker:
        check_equal(tar.uri, "noisy", [worker.address], epochs=2)


def test_a_worker_keeps_what_it_reads_in_a_folder(tar: Samples, tmp_path: pathlib.Path) -> None:
    from millrace.worker import Worker

    for number, cache in enumerate((tmp_path / "0", millrace.Cache(tmp_path / "1", "1GiB", tenant="us"))):
        with Worker("127.0.0.1:0", functions=[MODULE], cache=cache) as worker:
            check_equal(tar.uri, "noisy", [worker.address])
        assert (tmp_path / str(number)).is_dir()


@pytest.mark.parametrize("name", ["cache_size", "cache_tenant"])
def test_old_names_of_a_workers_cache_say_the_new_place(name: str) -> None:
    from millrace.worker import Worker

    place = rf"Worker takes no {name}; write cache=millrace.Cache\(path, {name.removeprefix('cache_')}=\)"
    with pytest.raises(TypeError, match=place):
        Worker("127.0.0.1:0", functions=[MODULE], cache="memory", **{name: "1GiB"})  # type: ignore[arg-type]


@pytest.mark.parametrize("option", ["--cache-size", "--cache-tenant"])
def test_options_without_a_cache_are_refused(option: str) -> None:
    command = [sys.executable, "-m", "millrace.worker", "--allow-functions", MODULE, option, "64MiB"]
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode == 2 and f"{option} is for a cache; name its folder with --cache" in refused.stderr


def test_ends_by_a_signal() -> None:
    worker = function_worker()
    worker.process.send_signal(signal.SIGTERM)
    assert worker.process.wait() == 0
    worker.end()
    refused = subprocess.run(
        [sys.executable, "-m", "millrace.worker", "--listen", "0.0.0.0:0", "--allow-functions", "json"],
        capture_output=True,
        text=True,
    )
    assert refused.returncode == 2 and "--token-file" in refused.stderr
