"""Tests Dataset.split, where, balanced and weighted, and Mix: what they select, and that loaders, plans and pickles go
by it."""

from __future__ import annotations

import collections
import io
import pathlib
import pickle
import shutil
import tarfile
from typing import Any

import millrace
import numpy as np
import numpy.typing as npt
import pytest
from support import AT_SIZE, CLASSES, Samples, make_pixels, png


def fed(data: Any, **options: Any) -> list[tuple[int, int, str]]:
    """Returns (part, sample, key) of one epoch."""
    rows = []
    with millrace.Loader(data, **{"batch_size": 7, "output": "numpy", "epochs": 1, **AT_SIZE, **options}) as loader:
        for batch in loader:
            parts = batch["part"] if "part" in batch else np.zeros(7, dtype=np.int64)
            rows += [
                row
                for *row, real in zip(parts.tolist(), batch["sample"].tolist(), batch["key"], batch["valid"])
                if real
            ]
    return [(part, sample, key) for part, sample, key in rows]


def test_a_split_deals_every_sample_once(raw: Samples) -> None:
    dataset = millrace.Dataset(raw.uri)
    parts = dataset.split(train=0.7, valid=0.2, test=0.1, seed=3)
    assert list(parts) == ["train", "valid", "test"]
    samples = [sample for part in parts.values() for sample in part.samples.tolist()]
    assert sorted(samples) == list(range(len(raw)))
    assert len(parts["train"]) > len(parts["valid"]) > 0
    assert sum(part.total_bytes for part in parts.values()) == dataset.total_bytes
    again = dataset.split(train=0.7, rest=0.3, seed=3)["train"]
    assert again.samples.tolist() == parts["train"].samples.tolist() and again.fingerprint == parts["train"].fingerprint
    assert dataset.split(train=0.7, seed=4)["train"].fingerprint != again.fingerprint


def test_a_split_is_that_of_the_keys_alone(raw: Samples, tmp_path: Any) -> None:
    """In a data set with half of the samples, each stays in its part."""
    import xxhash

    dataset = millrace.Dataset(raw.uri)
    train = {key for _, _, key in fed(dataset.split(train=0.6)["train"])}
    assert train == {key for key in raw.pixels if xxhash.xxh3_64_intdigest(key.encode(), seed=0) < 0.6 * 2**64}


def test_conditions(raw: Samples, tar: Samples) -> None:
    dataset = millrace.Dataset(raw.uri)
    assert {key.split("/")[0] for _, _, key in fed(dataset.where(label="dog"))} == {"dog"}
    assert dataset.where(label=[0, 2]).fingerprint == dataset.where(label=["cat", "eel"]).fingerprint
    assert dataset.where(label="cat").class_counts == {"cat": 15, "dog": 0, "eel": 0}
    assert dataset.where(samples=range(5, 9)).samples.tolist() == [5, 6, 7, 8]
    with pytest.warns(UserWarning, match="repeats 1 of its 3 numbers.*weighted"):
        assert dataset.where(samples=[9, 3, 3]).samples.tolist() == [3, 9]
    assert dataset.where(samples=np.arange(45) % 2 == 0).where(label="cat").samples.tolist() == list(range(0, 15, 2))
    assert len(dataset.where(bytes=(0, None))) == 45 and len(dataset.where(bytes=(None, 1))) == 0
    assert dataset.where(samples=range(45)).fingerprint == dataset.fingerprint
    shards = millrace.Dataset(tar.uri)
    assert len(shards.where(has=["cls", "txt"])) == 50
    with pytest.raises(millrace.InvalidArgumentError, match="no field 'wav'"):
        shards.where(has="wav")
    assert {key for _, _, key in fed(shards.where(label=3))} == {key for key, label in tar.labels.items() if label == 3}
    assert shards.where(label=[3, 7]).class_counts == {str(n): 5 if n in (3, 7) else 0 for n in range(10)}
    with pytest.raises(millrace.InvalidArgumentError, match="no class '11'; its 10 classes are: 0, 1, 2"):
        shards.where(label=11)
    with pytest.raises(millrace.InvalidArgumentError, match="no class 'cow'"):
        dataset.where(label="cow")
    with pytest.raises(millrace.InvalidArgumentError, match="0 to 2"):
        dataset.where(label=3)
    with pytest.raises(IndexError, match="no sample 45"):
        dataset.where(samples=[45])
    with pytest.raises(millrace.InvalidArgumentError, match="mask of shape"):
        dataset.where(samples=np.ones(44, dtype=bool))
    with pytest.raises(TypeError, match="boolean mask"):
        dataset.where(samples="all")


def test_split_refuses(raw: Samples) -> None:
    dataset = millrace.Dataset(raw.uri)
    for fractions in ({}, {"a": 0.0}, {"a": 0.6, "b": 0.6}, {"a": float("nan")}):
        with pytest.raises(millrace.InvalidArgumentError):
            dataset.split(**fractions)
    with pytest.raises(TypeError):
        dataset.split(train="most")  # type: ignore[arg-type]


@pytest.mark.parametrize("shuffle", ["none", "global", "window"])
def test_a_loader_feeds_the_subset_in_its_plans_order(tar: Samples, shuffle: str) -> None:
    subset = millrace.Dataset(tar.uri).split(train=0.6, valid=0.4)["train"]
    plan = millrace.Plan(subset, shuffle=shuffle, seed=5)
    order = plan[np.arange(len(subset))]
    assert sorted(order.tolist()) == subset.samples.tolist()
    np.testing.assert_array_equal(plan.position_of(order), np.arange(len(subset)))
    assert [sample for _, sample, _ in fed(subset, shuffle=shuffle, seed=5)] == order.tolist()
    outside = next(sample for sample in range(50) if sample not in subset.samples)
    with pytest.raises(IndexError, match="not one of the plan's"):
        plan.position_of(outside)


def test_a_subset_is_pickled_with_its_samples(raw: Samples) -> None:
    subset = millrace.Dataset(raw.uri).where(label="eel").split(half=0.5)["half"]
    copy = pickle.loads(pickle.dumps(subset))
    assert copy.fingerprint == subset.fingerprint and copy.samples.tolist() == subset.samples.tolist()
    assert len(pickle.loads(pickle.dumps(millrace.Dataset(raw.uri)))) == 45


def test_a_pickled_subset_of_other_data_is_refused(raw: Samples, tmp_path: Any) -> None:
    """Its samples are numbers, which would mean others after the data grew."""
    folder = tmp_path / "data"
    shutil.copytree(raw.uri, folder, ignore=shutil.ignore_patterns(".millrace"))
    pickled = pickle.dumps(millrace.Dataset(folder).where(label="eel"))
    first = next(path for path in sorted(folder.rglob("*.*")) if path.is_file() and ".millrace" not in path.parts)
    shutil.copy(first, first.parent / f"0{first.name}")
    shutil.rmtree(folder / ".millrace")
    with pytest.raises(millrace.MismatchError, match="make the subset again"):
        pickle.loads(pickled)


def test_balanced_classes_are_exact_in_every_epoch(raw: Samples) -> None:
    uneven = millrace.Dataset(raw.uri).where(samples=[*range(0, 15), *range(15, 19), *range(30, 41)])
    assert uneven.class_counts == {"cat": 15, "dog": 4, "eel": 11}
    mix = uneven.balanced(epoch_samples=36)
    assert len(mix) == 36 and list(mix.datasets) == CLASSES and "36 samples" in repr(mix)
    for epoch in range(3):
        plan = millrace.Plan(mix, seed=1, epoch=epoch)
        times = collections.Counter(plan[np.arange(36)].tolist())
        assert [sum(times[s] for s in part.samples.tolist()) for part in mix.datasets.values()] == [12, 12, 12]
        assert {times[s] for s in range(15, 19)} == {3}, "each of the few as often as the others"
        assert max(times[s] for s in range(15)) == 1 and max(times[s] for s in range(30, 41)) == 2
    rows = fed(mix, seed=1, shuffle="window")
    plan = millrace.Plan(mix, seed=1)
    assert [sample for _, sample, _ in rows] == plan[np.arange(36)].tolist()
    assert [part for part, _, _ in rows] == plan.part(np.arange(36)).tolist()
    assert [CLASSES[part] for part, _, _ in rows] == [key.split("/")[0] for _, _, key in rows]
    for sample in (0, 16, 40):
        assert plan.positions(sample).tolist() == [p for p, row in enumerate(rows) if row[1] == sample]
        assert plan.position_of(sample) == (plan.positions(sample).tolist() or [-1])[0]


def test_balanced_by_labels_of_ones_own(tar: Samples) -> None:
    dataset = millrace.Dataset(tar.uri)
    labels = np.arange(50) % 10
    mix = dataset.balanced(groups=labels, weights={3: 1, 7: 3}, epoch_samples=40)
    counts = collections.Counter(labels[millrace.Plan(mix)[np.arange(40)]].tolist())
    assert counts == {3: 10, 7: 30}
    with pytest.raises(millrace.InvalidArgumentError, match="give one for each"):
        dataset.balanced(groups=labels[:4])
    with pytest.raises(millrace.InvalidArgumentError, match="no such classes"):
        dataset.balanced(groups=labels, weights={11: 1})


def test_balanced_by_the_numbers_in_shards(tar: Samples) -> None:
    dataset = millrace.Dataset(tar.uri)
    labels = np.array([tar.labels[key] for _, _, key in sorted(fed(dataset), key=lambda row: row[1])])
    mix = dataset.balanced(weights={3: 1, "7": 3}, epoch_samples=40)
    assert list(mix.datasets) == [str(n) for n in range(10)]
    assert collections.Counter(labels[millrace.Plan(mix)[np.arange(40)]].tolist()) == {3: 10, 7: 30}
    part = dataset.where(samples=range(13)).balanced(epoch_samples=20)
    assert collections.Counter(labels[millrace.Plan(part, seed=2)[np.arange(20)]].tolist()) == dict.fromkeys(
        range(10), 2
    )
    with pytest.raises(millrace.InvalidArgumentError, match="no such classes"):
        dataset.balanced(weights={11: 1})


def test_weighted_samples(raw: Samples) -> None:
    dataset = millrace.Dataset(raw.uri)
    weights = np.where(np.arange(45) < 5, 8.0, 1.0)
    mix = dataset.weighted(weights, epoch_samples=160)
    times = np.bincount(millrace.Plan(mix, seed=2)[np.arange(160)], minlength=45)
    assert times[:5].tolist() == [16] * 5 and times[5:].tolist() == [2] * 40
    independent = dataset.weighted(weights, epoch_samples=8000, draws="independent")
    plan = millrace.Plan(independent, seed=2)
    times = np.bincount(plan[np.arange(8000)], minlength=45)
    assert abs(times[:5].sum() - 4000) < 250 and times[5:].max() > times[5:].min()
    with pytest.raises(millrace.UnsupportedError, match="no inverse"):
        plan.position_of(3)
    assert len(plan.positions(3)) == times[3]
    for wrong in (weights[:3], -weights, weights * np.nan):
        with pytest.raises(millrace.InvalidArgumentError):
            dataset.weighted(wrong)


@pytest.mark.parametrize("draws", ["exact", "replacement"])
def test_epochs_make_up_for_what_each_rounds(raw: Samples, draws: str) -> None:
    """With exact counts that do not go up, no class and no sample is passed over for ever."""
    dataset = millrace.Dataset(raw.uri)

    def drawn(mix: millrace.Mix, epochs: int) -> npt.NDArray[np.int64]:
        times = np.zeros(45, dtype=np.int64)
        for epoch in range(epochs):
            times += np.bincount(millrace.Plan(mix, epoch=epoch)[np.arange(len(mix))], minlength=45)
        return times

    short = drawn(dataset.balanced(groups=np.arange(45), epoch_samples=10, draws=draws), 450)
    assert abs(short - 100).max() <= 3
    weights = np.linspace(0.1, 1, 45)
    wanted = 300 * 45 * weights / weights.sum()
    assert abs(drawn(dataset.weighted(weights, draws=draws), 300) - wanted).max() <= 3
    rare = np.where(np.arange(45) == 7, 0.4, 1.0)
    assert abs(drawn(dataset.weighted(rare, draws=draws), 200)[7] - 81) <= 3


def test_a_mix_has_its_counts_and_resumes(raw: Samples, tar: Samples) -> None:
    photos, shards = millrace.Dataset(raw.uri), millrace.Dataset(tar.uri)
    mix = millrace.Mix({"photos": photos, "shards": shards}, weights={"shards": 1, "photos": 3}, epoch_samples=60)
    options: dict[str, Any] = {"batch_size": 8, "output": "numpy", "epochs": 2, "seed": 9, **AT_SIZE}
    with millrace.Loader(mix, **options) as loader:
        whole = [(b["part"].tolist(), b["sample"].tolist()) for _ in range(2) for b in loader]
        assert loader.report()["parts"] == [90, 30] and loader.dataset is mix
    with millrace.Loader(mix, **options) as loader:
        batches = iter(loader)
        first = [next(batches) for _ in range(3)]
        state = loader.state_dict()
    with millrace.Loader(mix, **options) as loader:
        loader.load_state_dict(state)
        rest = [b for _ in range(2) for b in loader]
    assert [(b["part"].tolist(), b["sample"].tolist()) for b in first + rest] == whole
    other = millrace.Mix({"photos": photos, "shards": shards}, epoch_samples=60)
    with millrace.Loader(other, **options) as loader, pytest.raises(millrace.MismatchError, match="another order"):
        loader.load_state_dict(state)


def test_weights_counts_and_schedules_of_a_mix(raw: Samples, tar: Samples) -> None:
    one, two = millrace.Dataset(raw.uri), millrace.Dataset(tar.uri)

    def parts(mix: millrace.Mix, epoch: int = 0) -> list[int]:
        plan = millrace.Plan(mix, epoch=epoch)
        return np.bincount(plan.part(np.arange(len(plan))), minlength=2).tolist()

    assert parts(millrace.Mix([one, two])) == [45, 50]
    assert parts(millrace.Mix([one, two], counts=[7, 200])) == [7, 200]
    scheduled = millrace.Mix([one, two], weights=[1, 0], epoch_samples=100, schedule={150: [1, 1], 250: [0, 1]})
    assert [parts(scheduled, epoch) for epoch in range(4)] == [[100, 0], [75, 25], [25, 75], [0, 100]]
    assert (
        millrace.Mix([one, two]).datasets == {"0": one, "1": two}
        and millrace.Mix([one, two]).uri == f"{one.uri} + {two.uri}"
    )
    for wrong in (
        {"weights": [1]},
        {"weights": [0, 0]},
        {"weights": [-1, 2]},
        {"weights": {"0": 1}},
        {"counts": [1, 2], "epoch_samples": 3},
        {"epoch_samples": 0},
        {"draws": "some"},
        {"schedule": {-5: [1, 1]}},
        {"schedule": {2**64: [1, 1]}},
        {"epoch_samples": 2**64},
        {"counts": [2**64, 1]},
        {"counts": [0, 0]},
    ):
        with pytest.raises(millrace.InvalidArgumentError):
            millrace.Mix([one, two], **wrong)  # type: ignore[arg-type]
    with pytest.raises(millrace.InvalidArgumentError, match="no data sets"):
        millrace.Mix([])
    with pytest.raises(millrace.InvalidArgumentError, match="part 1 has a weight but no samples"):
        millrace.Mix([one, two.where(bytes=(0, 1))], weights=[1, 1])
    with pytest.raises(TypeError):
        millrace.Mix([raw.uri])  # type: ignore[list-item]
    with pytest.raises(IndexError):
        millrace.Plan(millrace.Mix([one, two])).where(49, part=0)
    assert millrace.Plan(millrace.Mix([one, two])).where(49) >= 0


def test_labels_of_a_mix_are_numbered_by_all_names(raw: Samples, tar: Samples, tmp_path: pathlib.Path) -> None:
    for name in ("zebra", "ant"):
        shutil.copytree(f"{raw.uri}/eel", tmp_path / name)
    dataset, other = millrace.Dataset(raw.uri), millrace.Dataset(str(tmp_path))
    mix = millrace.Mix([dataset, other])
    assert mix.classes == sorted([*CLASSES, "ant", "zebra"])
    with millrace.Loader(mix, batch_size=7, output="numpy", epochs=1, **AT_SIZE) as loader:
        for batch in loader:
            for label, key, real in zip(batch["label"], batch["key"], batch["valid"]):
                assert not real or mix.classes[label] == key.split("/")[0]
    with pytest.raises(millrace.InvalidArgumentError, match="by one --class-map"):
        millrace.Loader(millrace.Mix([dataset, millrace.Dataset(tar.uri), other]), **AT_SIZE)


@pytest.mark.parametrize("draws", ["exact", "independent"])
def test_a_sample_is_found_in_all_parts_that_have_it(raw: Samples, tar: Samples, draws: str) -> None:
    dataset = millrace.Dataset(raw.uri)
    mix = millrace.Mix(
        [dataset.where(samples=range(30)), dataset.where(samples=range(20, 45))],
        weights=[1, 3],
        epoch_samples=40,
        draws=draws,
    )
    plan = millrace.Plan(mix, seed=3)
    order, parts = plan[np.arange(40)], plan.part(np.arange(40))
    for sample in range(45):
        assert plan.positions(sample).tolist() == np.flatnonzero(order == sample).tolist()
        for part in (0, 1):
            if sample in list(mix.datasets.values())[part].samples:
                assert (
                    plan.positions(sample, part=part).tolist()
                    == np.flatnonzero((order == sample) & (parts == part)).tolist()
                )
        if draws == "exact":
            assert plan.position_of(sample) == (plan.positions(sample).tolist() or [-1])[0]
    for find in (plan.positions,) if draws == "independent" else (plan.positions, plan.position_of):
        for sample, part in ((45, None), (-1, None), (3, 1), (3, 2), (3, 2**63 - 1), (2**62, 0)):
            with pytest.raises(IndexError, match="is not one of"):
                find(sample, part=part)
    both = millrace.Plan(millrace.Mix([dataset, millrace.Dataset(tar.uri)], draws=draws))
    with pytest.raises(
        millrace.InvalidArgumentError, match="several data sets of the mix have a sample 7; say by part="
    ):
        both.positions(7)
    assert len(both.positions(7, part=1)) <= 95


@pytest.mark.parametrize("shuffle", ["none", "global", "window"])
def test_many_positions_at_once_are_those_one_by_one(tmp_path: Any, shuffle: str) -> None:
    """In order they are read as a stream, otherwise looked up."""
    for number in range(900):
        (tmp_path / f"{number:03}.jpg").write_bytes(b"nothing is read of it")
    half = np.random.default_rng(1).choice(900, 450, replace=False)
    dataset = millrace.Dataset(str(tmp_path))
    for data in (dataset, dataset.where(samples=np.sort(half).tolist())):
        sizes = millrace.Shuffle(extent=7, window=16, lanes=8)
        plan = millrace.Plan(data, shuffle=sizes if shuffle == "window" else shuffle, seed=3)
        one_by_one = [plan[position] for position in range(len(data))]
        assert sorted(one_by_one) == data.samples.tolist()
        for positions in (
            np.arange(len(data)),
            np.arange(50, len(data)),
            np.arange(len(data))[::-1],
            np.repeat(np.arange(150), 3),
        ):
            assert plan[positions].tolist() == [one_by_one[position] for position in positions.tolist()]


def test_a_split_of_equal_keys_must_be_meant(tmp_path: pathlib.Path) -> None:
    for shard in range(4):
        with tarfile.open(tmp_path / f"{shard}.tar", "w") as archive:
            for number in range(10):
                member = tarfile.TarInfo(f"patient{number}.txt")
                member.size = 1
                archive.addfile(member, io.BytesIO(b"x"))
    data = millrace.Dataset(tmp_path)
    with pytest.raises(millrace.InvalidArgumentError, match="only about 10 of 40 samples.*groups=True"):
        data.split(train=0.5, valid=0.5)
    parts = data.split(groups=True, train=0.5, valid=0.5)
    train, valid = ({sample["key"] for sample in part} for part in parts.values())
    assert not train & valid and len(train | valid) == 10


def test_what_lies_beside_the_images_is_said_before_the_first_batch(tmp_path: pathlib.Path) -> None:
    for name in ("a/1.png", "a/2.png", "b/3.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(png(make_pixels(1)))
    for name in ("README.md", "a/Thumbs.db", "b/desktop.ini", "LICENSE.txt"):
        (tmp_path / name).write_bytes(b"not an image")
    assert [sample["key"] for sample in millrace.Dataset(tmp_path)] == ["a/1", "a/2", "b/3"], "these are no samples"
    other = tmp_path.with_name(tmp_path.name + "-other")
    shutil.copytree(tmp_path, other, ignore=shutil.ignore_patterns(".millrace"))
    (other / "a" / "notes.txt").write_bytes(b"a text")
    data = millrace.Dataset(other)
    with pytest.raises(
        millrace.InvalidArgumentError,
        match=r"1 of 4 samples have no image \(png\), the first of them 'a/notes' \(cls, txt\).*has=",
    ):
        fields = {"image": millrace.Image(size=8), "note": millrace.Text("txt")}
        millrace.Loader(data, batch_size=2, fields=fields)
    for left in (data, data.where(has="png"), data.where(has_any=["png"])):
        keys = [
            key
            for batch in millrace.Loader(left, batch_size=3, epochs=1, shuffle="none", **AT_SIZE)
            for key in batch["key"]
        ]
        assert keys == ["a/1", "a/2", "b/3"]
    masked = next(iter(millrace.Loader(data, batch_size=4, epochs=1, shuffle="none", bad_samples="mask", **AT_SIZE)))
    assert masked["valid"].tolist() == [True, True, True], "the text is left out, and no row of padding stands for it"
    with pytest.raises(millrace.InvalidArgumentError, match="no field 'jpg'"):
        data.where(has_any=["png", "jpg"])
