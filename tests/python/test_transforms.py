"""Tests transform= and batch_transform= of a Loader: threads, order, random numbers, errors, resuming, closing."""

from __future__ import annotations

import gc
import pathlib
import queue
import threading
import time
from typing import Any

import millrace
import numpy as np
import pytest
from support import HEIGHT, WIDTH, Samples, add_digests, check_script, keys_of


def loader_of(samples: Samples, **options: Any) -> millrace.Loader:
    size = {"size": (HEIGHT, WIDTH)}
    return millrace.Loader(
        samples.uri, **{"batch_size": 8, "output": "numpy", "epochs": 1, "seed": 2, **size, **options}
    )


def shifted(sample: dict[str, Any]) -> dict[str, Any]:
    sample["image"] = sample["image"].astype(np.int16) + 1
    return {**sample, "double": 2 * sample["label"], "name": sample["key"]}


def transform_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("millrace-")}


def test_a_function_of_each_sample(tar: Samples) -> None:
    plain = loader_of(tar)
    with loader_of(tar, transform=shifted) as loader:
        for before, batch in zip(plain, loader, strict=True):
            valid = batch["valid"]
            assert batch["key"] == before["key"] and np.array_equal(batch["sample"], before["sample"])
            assert np.array_equal(valid, before["valid"])
            assert batch["image"].dtype == np.int16 and np.array_equal(
                batch["image"][valid], before["image"][valid].astype(int) + 1
            )
            assert batch["label"].dtype == np.int64 and np.array_equal(batch["label"], before["label"]), (
                "-1 for padding"
            )
            assert np.array_equal(batch["double"][valid], 2 * before["label"][valid])
            assert batch["name"] == before["key"]
            assert plain.state_dict() == loader.state_dict() and plain.epoch == loader.epoch
        report = loader.report()
    assert report["samples"] == len(tar) and report["stalls"]["transform"] >= 0
    assert report["waited"] == pytest.approx(sum(report["stalls"].values()))


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_random_numbers_and_order_do_not_depend_on_threads(tar: Samples, threads: int) -> None:
    def noisy(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        time.sleep(float(np.random.default_rng().random()) / 500)  # threads finish in any order
        return {"draw": rng.random(), "wait": rng.integers(0, 1000, 3)}

    def draws(threads: int, **options: Any) -> dict[tuple[int, str], tuple[float, ...]]:
        loader = loader_of(tar, transform=millrace.Map(noisy, threads=threads), epochs=2, **options)
        found = {}
        for epoch in range(2):
            order = []
            for batch in loader:
                for key, real, draw, wait in zip(batch["key"], batch["valid"], batch["draw"], batch["wait"]):
                    if real:
                        found[epoch, key] = (float(draw), *map(int, wait))
                        order.append(key)
            if not {"world", "seed"} & options.keys():
                assert order == expected[epoch]
        return found

    expected = [
        [key for batch in plain for key in keys_of(batch)] for plain in [loader_of(tar, epochs=2)] for _ in range(2)
    ]
    found = draws(threads)
    assert len(found) == 2 * len(tar) and len(set(found.values())) == len(found), "each epoch and sample has its own"
    ranks = [draws(threads, batch_size=3, world=2, rank=rank) for rank in range(2)]
    assert ranks[0] | ranks[1] == found
    assert draws(1) == found
    assert set(draws(threads, seed=3).values()).isdisjoint(found.values())


def test_a_function_of_each_batch(tar: Samples) -> None:
    def flat(batch: Any, rng: np.random.Generator) -> Any:
        return batch["image"].mean(axis=(1, 2, 3)), batch["key"], rng.random()

    first = list(loader_of(tar, batch_transform=flat))
    assert [keys for _, keys, _ in first] == [batch["key"] for batch in loader_of(tar)]
    assert len({draw for _, _, draw in first}) == len(first)
    assert [draw for _, _, draw in loader_of(tar, batch_transform=flat, transform=millrace.Map(None, threads=3))] == [
        draw for _, _, draw in first
    ]


def test_fields_reach_the_transform(tar: Samples) -> None:
    def words(sample: dict[str, Any]) -> dict[str, Any]:
        assert set(sample) == {"key", "pixels", "mask", "meta"} and sample["pixels"].shape == (HEIGHT, WIDTH, 3)
        return {"words": sample["mask"].split(), "mask": len(sample["mask"]), "n": sample["meta"]["meta"]["label"]}

    fields = {"pixels": millrace.Image("png"), "mask": millrace.Text("txt"), "meta": millrace.Json("json")}
    for batch in loader_of(tar, fields=fields, transform=words):
        for row in np.flatnonzero(batch["valid"]):
            n = int(batch["key"][row])
            assert batch["words"][row] == ["Nummer", str(n), "–", "größer"] and batch["n"][row] == 1000 * n
            assert batch["mask"][row] == len(" ".join(batch["words"][row]))


def test_an_exception_names_the_sample_and_comes_in_its_turn(tar: Samples) -> None:
    order = [key for batch in loader_of(tar) for key in batch["key"]]

    def picky(sample: dict[str, Any]) -> dict[str, Any]:
        if sample["key"] in (order[19], order[22]):
            raise KeyError("no such thing")
        return sample

    loader = loader_of(tar, transform=millrace.Map(picky, threads=4))
    batches = iter(loader)
    assert [next(batches)["key"], next(batches)["key"]] == [order[:8], order[8:16]]
    for _ in range(2):
        with pytest.raises(
            millrace.TransformError, match=f"sample '{order[19]}' .*KeyError: 'no such thing'"
        ) as caught:
            next(batches)
        assert isinstance(caught.value.__cause__, KeyError)
        assert loader.report()["samples"] == 16
    for wrong, message in [
        (lambda sample: None, "returned NoneType; it must return a dict"),
        (lambda sample: {"valid": 1}, "returned 'valid', which every batch has itself"),
        (lambda sample: {sample["key"]: 1}, "and for the samples before it"),
    ]:
        with pytest.raises(millrace.TransformError, match=message):
            next(iter(loader_of(tar, transform=wrong)))
    with pytest.raises(millrace.InvalidArgumentError, match="'flip' names no function; write 'module:function'"):
        loader_of(tar, transform="flip")


def test_resuming_describes_what_was_received(tar: Samples) -> None:
    whole = loader_of(tar, transform=shifted, digest="raw", epochs=2)
    keys = [key for _ in range(2) for batch in whole for key in keys_of(batch)]
    for stop in (1, 3, 7, 9):
        first = loader_of(tar, transform=shifted, digest="raw", epochs=2)
        got: list[str] = []
        for _ in range(stop // 7):
            got += [key for batch in first for key in keys_of(batch)]
        batches = iter(first)
        for _ in range(stop % 7):
            got += keys_of(next(batches))
        time.sleep(0.05)  # batches that nobody has received are ready by now
        state = first.state_dict()
        assert state["samples"] == len(got)
        second = loader_of(tar, transform=millrace.Map(shifted, threads=3), digest="raw", epochs=2, batch_size=4)
        next(iter(second))
        second.load_state_dict(state)
        assert second.epoch == stop // 7
        for _ in range(2 - stop // 7):
            got += [key for batch in second for key in keys_of(batch)]
        assert got == keys
        assert add_digests(state["digest"], second.report()["digest"]) == whole.report()["digest"]
    with pytest.raises(millrace.MismatchError):
        whole.load_state_dict(loader_of(tar, seed=99).state_dict())
    assert whole.report()["samples"] == 100, "a position that is refused changes nothing"


def test_the_look_ahead_is_bounded(tar: Samples) -> None:
    calls: list[str] = []

    def counting(sample: dict[str, Any]) -> dict[str, Any]:
        calls.append(sample["key"])
        return sample

    loader = loader_of(tar, transform=millrace.Map(counting, threads=2), batch_size=4, epochs=None)
    batches = iter(loader)
    next(batches)
    deadline = time.monotonic() + 300
    while len(calls) < 12 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.2)
    assert len(calls) == 12, "one batch was received, two are ready"
    loader.close()


def test_closing_ends_the_threads(tar: Samples) -> None:
    def slow(sample: dict[str, Any]) -> dict[str, Any]:
        time.sleep(0.001)
        return sample

    before = transform_threads()  # of other tests
    for end in ("close", "drop", "exhaust"):
        loader: Any = loader_of(tar, transform=millrace.Map(slow, threads=3), epochs=1 if end == "exhaust" else None)
        batches: Any = iter(loader)
        next(batches)
        assert len(transform_threads() - before) == 4
        if end == "exhaust":
            assert sum(1 for _ in batches) == 6
        if end == "close":
            loader.close()
            assert transform_threads() <= before
            with pytest.raises(millrace.UsageError, match="closed"):
                next(batches)
        del loader, batches
        gc.collect()
        deadline = time.monotonic() + 300
        while not transform_threads() <= before and time.monotonic() < deadline:
            time.sleep(0.01)
        assert transform_threads() <= before


def test_a_loop_over_a_loader_that_nobody_else_holds(tar: Samples) -> None:
    assert sum(int(batch["valid"].sum()) for batch in loader_of(tar, transform=shifted)) == len(tar)


def test_a_rank_whose_last_batch_is_all_padding(tar: Samples) -> None:
    loader = loader_of(tar, transform=shifted, batch_size=8, rank=6, world=7, last="pad")  # 50 = 56 - 6
    batches = list(loader)
    assert len(batches) == 1 and batches[0]["valid"].sum() == 7
    loader = loader_of(tar, transform=shifted, batch_size=7, rank=6, world=7, last="pad")
    first, last = list(loader)
    assert not last["valid"].any() and {name: np.shape(column) for name, column in last.items()} == {
        name: np.shape(column) for name, column in first.items()
    }
    assert (last["label"] == -100).all() and last["name"] == [""] * 7


def test_tensors(tar: Samples) -> None:
    torch = pytest.importorskip("torch")

    def halved(sample: dict[str, Any]) -> dict[str, Any]:
        assert isinstance(sample["image"], torch.Tensor) and isinstance(sample["label"], int)
        return {"image": sample["image"].float() / 2, "label": sample["label"]}

    for before, batch in zip(loader_of(tar), loader_of(tar, transform=halved, output="torch", raw=True)):
        assert torch.equal(batch["image"][:2], torch.from_numpy(before["image"]).float()[:2] / 2)
        assert batch["label"].dtype == torch.int64 and batch["label"].tolist() == before["label"].tolist()


def test_memory_for_two_batches_is_enough(tar: Samples) -> None:
    loader = millrace.Loader(
        tar.uri, batch_size=16, size=128, memory="5MiB", epochs=3, output="numpy", transform=shifted
    )
    assert sum(int(batch["valid"].sum()) for _ in range(3) for batch in loader) == 3 * len(tar)
    same = millrace.Loader(
        tar.uri, batch_size=16, size=128, memory="5MiB", epochs=20, output="numpy", batch_transform=lambda batch: batch
    )
    for _ in range(20):  # each batch is let go of just when the next one is asked for
        assert sum(int(batch["valid"].sum()) for batch in same) == len(tar)
    kept: list[Any] = []
    plain = millrace.Loader(
        tar.uri, batch_size=16, size=128, memory="5MiB", output="numpy", batch_transform=lambda batch: batch
    )
    with pytest.raises(millrace.ExhaustedError, match="holds all"):
        for _ in range(100):
            kept.extend(plain)
    held = len(kept)
    kept.clear()
    assert len(next(iter(plain))["key"]) == 16 and held >= 2


def test_processes_signals_and_the_end_of_the_interpreter(tar: Samples) -> None:
    script = """
import os, signal, sys, threading, time, millrace
def slow(sample):
    time.sleep(0.002)
    return {"n": 1}
loader = millrace.Loader(sys.argv[1], batch_size=5, size=8, transform=slow, output="numpy", shuffle="none")
batches = iter(loader)
batch = next(batches)
pid = os.fork()
if pid == 0:
    for use in (lambda: next(batches), loader.report, lambda: loader.epoch):
        try:
            use()
            os._exit(1)
        except millrace.UsageError:
            pass
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
stop = time.monotonic() + 1
def ring(*_):
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, ring)
interrupts = 0
while time.monotonic() < stop or interrupts <= 10 or loader.report()["samples"] <= 100:
    try:
        # Longer and longer, so that a slow machine gets on. Python swallows an interrupt that meets a __del__,
        # so the timer rings again.
        signal.setitimer(signal.ITIMER_REAL, 0.003 + interrupts % 7 * 0.001 + interrupts * 1e-4, 2)
        while True:
            for batch in batches:
                pass
            batches = iter(loader)
    except KeyboardInterrupt:
        signal.setitimer(signal.ITIMER_REAL, 0)
        interrupts += 1
    # The loop's variable has just what the loader says was received.
    assert (loader.report()["samples"] - 1) % 50 == int(batch["key"][-1]), (loader.report()["samples"], batch["key"])
print("exact")
"""
    assert check_script(script, tar.uri) == "exact\n"


def test_the_draws_of_a_mix_have_numbers_of_their_own(raw: Samples) -> None:
    """A sample that comes several times an epoch is transformed otherwise each time, also after a resume."""

    def draw(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        return {"draw": rng.random()}

    mix = millrace.Dataset(raw.uri).balanced(epoch_samples=120)
    options: dict[str, Any] = {"size": 8, "output": "numpy", "epochs": 1, "transform": draw}
    whole = [
        (key, float(one))
        for batch in millrace.Loader(mix, batch_size=10, **options)
        for key, one in zip(batch["key"], batch["draw"])
    ]
    assert len(whole) == len(set(whole)) == 120 and len({key for key, _ in whole}) == 45
    first = millrace.Loader(mix, batch_size=15, **options)
    batches = iter(first)
    next(batches)
    options["transform"] = millrace.Map(draw, threads=3)
    second = millrace.Loader(mix, batch_size=7, **options, last="drop")
    second.load_state_dict(first.state_dict())
    rest = [(key, float(one)) for batch in second for key, one in zip(batch["key"], batch["draw"])]
    assert rest == whole[15:]


def test_the_generator_is_the_documented_one(tar: Samples) -> None:
    loader = loader_of(tar, seed=11, epochs=2, transform=lambda sample, rng: {"draw": rng.random()})
    for epoch in range(2):
        for batch in loader:
            for row in np.flatnonzero(batch["valid"]):
                expected = np.random.default_rng((11, epoch, int(batch["sample"][row]))).random()
                assert batch["draw"][row] == expected


def test_collate_takes_the_place_of_stacking(tar: Samples) -> None:
    def collate(samples: list[dict[str, Any]]) -> tuple[list[str], np.ndarray]:
        return [sample["key"] for sample in samples], np.stack([sample["double"] for sample in samples])

    plain = [key for batch in loader_of(tar) for key in batch["key"] if key]
    batches = list(loader_of(tar, transform=shifted, collate_fn=collate))
    assert [key for keys, _ in batches for key in keys] == plain
    assert [len(keys) for keys, _ in batches] == [8] * 6 + [2], "padding is left out"
    assert [int(double) for _, doubles in batches for double in doubles] == [2 * tar.labels[key] for key in plain]
    sizes = list(loader_of(tar, collate_fn=len, batch_transform=lambda size: {"size": size}))
    assert sizes == [{"size": 8}] * 6 + [{"size": 2}]

    def fails(samples: list[dict[str, Any]]) -> None:
        raise ValueError("uneven")

    with pytest.raises(
        millrace.TransformError, match="sample '.*' .* and those after it: collate_fn raised ValueError: uneven"
    ):
        next(iter(loader_of(tar, collate_fn=fails)))
    with pytest.raises(TypeError, match="collate_fn must be a function"):
        loader_of(tar, collate_fn=3)


def test_resuming_with_collate(tar: Samples) -> None:
    def keys(loader: millrace.Loader) -> list[list[str]]:
        return list(loader)  # type: ignore[arg-type]

    def collate(samples: list[dict[str, Any]]) -> list[str]:
        return [sample["key"] for sample in samples]

    expected = keys(loader_of(tar, collate_fn=collate))
    first = loader_of(tar, collate_fn=collate)
    batches = iter(first)
    received: list[Any] = [next(batches) for _ in range(3)]
    second = loader_of(tar, collate_fn=collate)
    second.load_state_dict(first.state_dict())
    assert received + keys(second) == expected


def test_lists_of_arrays_are_tensors_for_a_function_of_batches_too(tmp_path: pathlib.Path) -> None:
    torch = pytest.importorskip("torch")
    with millrace.ShardWriter(str(tmp_path / "data"), rank=0, world=1) as writer:
        for number in range(4):
            writer.write({"key": f"{number}", "vector.npy": np.arange(number + 1)})
    seen: list[Any] = []
    fields = {"vector": millrace.Array("vector.npy")}
    options: dict[str, Any] = {
        "batch_size": 4,
        "epochs": 1,
        "fields": fields,
        "output": "torch",
        "shuffle": False,
        "rank": 0,
        "world": 1,
    }
    batch = next(
        iter(
            millrace.Loader(
                str(tmp_path / "data"), batch_transform=lambda batch: seen.append(batch) or batch, **options
            )
        )
    )
    assert all(isinstance(vector, torch.Tensor) for vector in seen[0]["vector"]), "as without it"
    assert [vector.tolist() for vector in batch["vector"]] == [list(range(n + 1)) for n in range(4)]  # type: ignore[index]


def test_padding_of_a_label_of_any_name_is_no_class(tar: Samples) -> None:
    fields = {"kind": millrace.Label("cls"), "text": millrace.Text("txt")}
    options: dict[str, Any] = {
        "batch_size": 4,
        "epochs": 1,
        "output": "numpy",
        "fields": fields,
        "last": "pad",
        "transform": lambda sample: {**sample, "n": 1},
    }
    one = millrace.Dataset(tar.uri)[:1]
    batch = next(iter(millrace.Loader(one, rank=0, world=1, **options)))
    assert batch["kind"].tolist() == [0, -100, -100, -100] and batch["n"].tolist() == [1, -100, -100, -100]  # type: ignore[index]
    loader = millrace.Loader(millrace.Dataset(tar.uri)[:9], rank=1, world=2, **options)
    assert [batch["kind"].tolist() for batch in loader][1:] == [[-100] * 4], "all of it padding"  # type: ignore[index]


def parts_of(sample: dict[str, Any]) -> dict[str, Any]:
    number = sample["kind"]
    return {
        "target": {"n": number, "box": np.full(2, number, np.float32)},
        "views": (np.int8(number), [sample["image"]]),
    }


@pytest.mark.parametrize("output", ["numpy", "torch"])
def test_parts_of_samples_are_stacked_and_padded(tar: Samples, output: str) -> None:
    fields = {"kind": millrace.Label("cls"), "image": millrace.Image("png", size=8)}
    options: dict[str, Any] = {
        "batch_size": 4,
        "epochs": 1,
        "last": "pad",
        "fields": fields,
        "output": output,
        "world": 2,
    }
    data = millrace.Dataset(tar.uri)[:9]
    for transform in (parts_of, millrace.Map(parts_of, processes=1)):
        for rank, real in enumerate(([4, 1], [4, 0])):
            batches: list[Any] = list(millrace.Loader(data, rank=rank, transform=transform, **options))
            assert [int(batch["valid"].sum()) for batch in batches] == real
            for batch, rows in zip(batches, real):
                numbers, boxes, (small, (images,)) = batch["target"]["n"], batch["target"]["box"], batch["views"]
                kind = np.ndarray if output == "numpy" else pytest.importorskip("torch").Tensor
                assert {type(array) for array in (numbers, boxes, small, images)} == {kind}
                assert numbers[rows:].tolist() == small[rows:].tolist() == [-100] * (4 - rows)
                assert boxes[:rows, 1].tolist() == numbers[:rows].tolist() and tuple(boxes.shape) == (4, 2)
                assert len(images) == 4 and not bool(images[rows:].any())


def test_parts_that_differ_are_an_error_of_the_transform(tar: Samples) -> None:
    options: dict[str, Any] = {"batch_size": 4, "fields": {"kind": millrace.Label("cls")}, "shuffle": False}
    uneven = lambda sample: {"boxes": [np.zeros(4)] * (1 + sample["kind"] % 2)}  # noqa: E731
    with pytest.raises(millrace.TransformError, match="a list of 2 parts for one sample .* collate_fn="):
        next(iter(millrace.Loader(tar.uri, transform=uneven, **options)))


def test_threads_that_were_told_to_end_do_so_whatever_restarts(tar: Samples) -> None:
    stream = loader_of(tar, transform=millrace.Map(shifted, threads=2))._stream
    assert stream is not None
    waiting, stream._tasks = stream._tasks, queue.SimpleQueue()
    stream.abandon()
    stream._begin()  # a restart that was under way; no thread has taken its token yet
    assert stream._tasks.qsize() >= 2
    for _ in stream._threads:
        waiting.put(None)
    stream.close()
