"""Tests millrace.torch: MapDataset and IterableDataset under torch's DataLoader."""

from __future__ import annotations

import io
import json
import pathlib
import pickle
from typing import Any

import millrace
import numpy as np
import pytest
from PIL import Image
from support import Samples, check_script, png

torch = pytest.importorskip("torch")

import millrace.torch  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402


def pixels_of(data: bytes) -> np.ndarray:
    return np.array(Image.open(io.BytesIO(data)))


def label_of(value: Any) -> int:
    return int(value)


def as_list(items: list[Any]) -> list[Any]:
    return items


def key_and_length(item: millrace.torch.Object) -> tuple[str, int]:
    return item.key, len(item.read())


FIELDS = {"image": ("png", pixels_of), "label": ("cls", label_of), "meta": "json"}


def test_samples_by_number(raw: Samples, tar: Samples) -> None:
    for samples in (raw, tar):
        dataset = millrace.torch.MapDataset(samples.uri)
        assert len(dataset) == len(samples)
        for n, key in enumerate(sorted(samples.pixels)):
            assert dataset[n]["key"] == key and dataset[n]["png"] == png(samples.pixels[key])
    assert [each["key"] for each in dataset.__getitems__([3, -1, 3])] == ["0003", "0049", "0003"]
    with pytest.raises(IndexError, match="there is no sample 50"):
        dataset[50]


def test_a_shuffle_with_sizes(tar: Samples) -> None:
    dataset = millrace.Dataset(tar.uri)
    shuffle = millrace.Shuffle(window=4, extent=2, lanes=2)
    wanted = [int(number) for number in millrace.Plan(dataset, shuffle=shuffle, seed=3)[np.arange(len(dataset))]]
    samples = millrace.torch.IterableDataset(dataset, fields=["cls"], shuffle=shuffle, seed=3)
    assert [int(sample["key"]) for sample in samples] == wanted
    assert list(millrace.torch.Sampler(dataset, shuffle=shuffle, seed=3)) == wanted


def test_fields_by_name_and_decoded(tar: Samples) -> None:
    dataset = millrace.torch.MapDataset.from_prefix(tar.uri, fields=FIELDS)
    sample = dataset[7]
    assert list(sample) == ["key", "image", "label", "meta"]
    assert np.array_equal(sample["image"], tar.pixels["0007"]) and sample["label"] == 7
    assert sample["meta"]["meta"]["name"] == "n7"
    assert list(millrace.torch.MapDataset(tar.uri, fields=["cls"])[0]) == ["key", "cls"]
    for wrong, error, message in [
        ({"x": "jpg"}, millrace.InvalidArgumentError, "no field 'jpg'; its fields are: cls, json, png, txt"),
        ({"key": "png"}, millrace.InvalidArgumentError, "choose another name"),
        ({"x": ("png", 3)}, TypeError, r"fields\['x'\] must be the name of a field"),
        ("png", TypeError, "fields must be names of fields"),
    ]:
        with pytest.raises(error, match=message):
            millrace.torch.MapDataset(tar.uri, fields=wrong)


@pytest.mark.parametrize("method", [None, "fork", "spawn", "forkserver"])
def test_under_a_data_loader(tar: Samples, method: str | None) -> None:
    subset = millrace.Dataset(tar.uri).where(samples=range(3, 40))
    dataset = millrace.torch.MapDataset(subset, fields=FIELDS)
    assert len(dataset[0]["image"])  # used in the parent before workers are made
    workers = {} if method is None else {"num_workers": 2, "multiprocessing_context": method}
    loader = DataLoader(dataset, batch_size=5, shuffle=True, **workers)
    seen = []
    for batch in loader:
        for key, image, label in zip(batch["key"], batch["image"], batch["label"]):
            assert np.array_equal(image.numpy(), tar.pixels[key]) and int(label) == tar.labels[key]
            seen.append(key)
    assert sorted(seen) == sorted(tar.pixels)[3:40]


@pytest.mark.parametrize("method", [None, "fork", "spawn"])
def test_whole_objects(bucket: str, request: pytest.FixtureRequest, method: str | None) -> None:
    folder = f"{bucket}/{request.node.name}"
    contents = {f"o{n:02}.bin": bytes([n]) * (n * 1000) for n in range(20)}
    for name, data in contents.items():
        with millrace.open(f"{folder}/{name}", "wb") as file:
            file.write(data)
    listed = millrace.torch.MapDataset.from_prefix(folder + "/", objects=True)
    named = millrace.torch.MapDataset.from_objects([f"{folder}/{name}" for name in contents])
    assert len(listed) == len(named) == 20
    for dataset in (listed, named):
        item = dataset[3]
        assert isinstance(item, io.IOBase) and item.key == f"{request.node.name}/o03.bin"
        assert item.read(10) == contents["o03.bin"][:10] and item.tell() == 10 and item.size == 3000
        assert item.seek(-5, io.SEEK_END) == 2995 and item.read() == contents["o03.bin"][-5:]
        assert pickle.loads(pickle.dumps(item)).read() == contents["o03.bin"]
        workers = {} if method is None else {"num_workers": 2, "multiprocessing_context": method}
        loader = DataLoader(dataset, batch_size=6, collate_fn=as_list, **workers)
        got = {item.key.rpartition("/")[2]: item.read() for batch in loader for item in batch}
        assert got == contents
    transformed = millrace.torch.MapDataset.from_prefix(folder + "/", objects=True, transform=key_and_length)
    assert transformed[4] == (f"{request.node.name}/o04.bin", 4000)
    with pytest.raises(TypeError, match="several URIs"):
        millrace.torch.MapDataset.from_objects(folder)


def test_objects_that_are_not_there(tmp_path: pathlib.Path) -> None:
    missing = millrace.torch.MapDataset.from_objects([tmp_path / "none.bin"])
    with pytest.raises(millrace.NotFoundError, match="none.bin"):
        missing[0].read()
    with pytest.raises(millrace.InvalidArgumentError, match="whole objects"):
        millrace.torch.MapDataset.from_prefix(tmp_path, objects=True, fields=["a"])


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_the_iterable_gives_each_sample_once_in_the_plans_order(tar: Samples, workers: int) -> None:
    subset = millrace.Dataset(tar.uri).where(samples=range(2, 49))
    keys = []
    for rank in range(2):
        dataset = millrace.torch.IterableDataset(
            subset, shuffle="global", seed=5, rank=rank, world=2, fields={"label": "cls"}
        )
        dataset.set_epoch(3)
        keys.append([key for batch in DataLoader(dataset, batch_size=4, num_workers=workers) for key in batch["key"]])
    assert sorted(keys[0] + keys[1]) == sorted(tar.pixels)[2:49]
    if workers < 2:
        plan = millrace.Plan(subset, shuffle="global", seed=5, epoch=3)
        assert keys[1] == [sorted(tar.pixels)[plan[p]] for p in range(1, 47, 2)]


def test_a_data_set_opens_itself_again_in_a_fork(tar: Samples) -> None:
    script = """
import os, sys, millrace
whole = millrace.Dataset(sys.argv[1])
part = whole.where(samples=[4, 9, 11])
pid = os.fork()
if pid == 0:
    try:
        assert len(part) == 3 and part.samples.tolist() == [4, 9, 11], part.samples
        assert part.read(1)["key"] == "0009" and whole.fields == ["cls", "json", "png", "txt"]
        assert sum(int(batch["valid"].sum()) for batch in millrace.Loader(part, batch_size=2, size=8, epochs=1)) == 3
        os._exit(0)
    except BaseException as error:
        print(repr(error), flush=True)
        os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
print(part.read(2)["key"])
"""
    assert check_script(script, tar.uri) == "0011\n"


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("style", ["map", "iterable"])
def test_torchdata_goes_on_with_the_next_sample(tar: Samples, style: str, workers: int) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader")
    dataset = millrace.Dataset(tar.uri)

    def make() -> Any:
        if style == "map":
            sampler = millrace.torch.Sampler(millrace.Plan(dataset, seed=3), rank=1, world=2)
            return stateful.StatefulDataLoader(
                millrace.torch.MapDataset(dataset, fields=["cls"]), batch_size=4, sampler=sampler, num_workers=workers
            )
        samples = millrace.torch.IterableDataset(dataset, fields=["cls"], seed=3, rank=1, world=2)
        return stateful.StatefulDataLoader(samples, batch_size=4, num_workers=workers)

    expected = [batch["key"] for batch in make()]
    assert len({key for keys in expected for key in keys}) == 25
    for taken in (0, 2, len(expected)):
        loader = make()
        batches = iter(loader)
        received = [next(batches)["key"] for _ in range(taken)]
        state = json.loads(json.dumps(loader.state_dict())) if style == "map" and not workers else loader.state_dict()
        resumed = make()
        resumed.load_state_dict(state)
        assert received + [batch["key"] for batch in resumed] == expected


def test_a_sampler_deals_the_plan_to_ranks(tar: Samples) -> None:
    dataset = millrace.Dataset(tar.uri).where(samples=range(3, 50))
    plan = millrace.Plan(dataset, seed=4, epoch=2)
    samplers = [millrace.torch.Sampler(plan, rank=rank, world=4) for rank in range(4)]
    numbers = [list(sampler) for sampler in samplers]
    assert [len(each) for each in numbers] == [len(sampler) for sampler in samplers] == [11] * 4, (
        "47 samples: three are left out"
    )
    dealt = [number for at in range(11) for number in (numbers[rank][at] for rank in range(4))]
    assert [int(dataset.samples[number]) for number in dealt] == plan[range(44)].tolist()
    samplers[0].set_epoch(0)
    assert list(samplers[0]) != numbers[0]
    samplers[0].set_epoch(2)
    assert list(samplers[0]) == numbers[0]
    with pytest.raises(millrace.UnsupportedError, match="this plan is of a Mix|the plan of a Dataset"):
        millrace.torch.Sampler(millrace.Plan(dataset.balanced()))
    with pytest.raises(TypeError, match="plan must be a millrace.Plan, a Dataset or a URI"):
        millrace.torch.Sampler([1, 2])  # type: ignore[arg-type]


def test_a_state_of_something_else_is_refused(tar: Samples, raw: Samples) -> None:
    def iterator(uri: str, **options: Any) -> Any:
        return iter(millrace.torch.IterableDataset(uri, **options))

    state = iterator(tar.uri).state_dict()
    with pytest.raises(millrace.MismatchError, match="another data set"):
        iterator(raw.uri).load_state_dict(state)
    with pytest.raises(millrace.MismatchError, match="another rank"):
        iterator(tar.uri, rank=0, world=2).load_state_dict(state)
