"""Tests `Loader(start="staged")`: it begins before there is an index, and the order does not show whether there was
one."""

from __future__ import annotations

import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
from collections import Counter
from typing import Any

import millrace
import pytest
from millrace._progress_line import ProgressLine
from support import AT_SIZE, Samples, add_digests, binary, keys_of, write_tar

SHARDS = 150  # stages of 64 shards, and of the rest
COUNT = 320


@pytest.fixture
def shards(tmp_path: pathlib.Path) -> Samples:
    (tmp_path / "set").mkdir()
    return write_tar(tmp_path / "set", count=COUNT, shards=SHARDS)


def forget(shards: Samples) -> None:
    shutil.rmtree(pathlib.Path(shards.uri) / ".millrace", ignore_errors=True)
    shutil.rmtree(os.environ["MILLRACE_CACHE"], ignore_errors=True)


def loader_of(shards: Samples, **options: Any) -> millrace.Loader:
    usual: dict[str, Any] = {
        "batch_size": 8,
        **AT_SIZE,
        "output": "numpy",
        "start": "staged",
        "seed": 3,
        "digest": "raw",
    }
    return millrace.Loader(shards.uri, **{**usual, **options})


def epoch_of(loader: millrace.Loader) -> list[str]:
    return [key for batch in loader for key in keys_of(batch)]


def test_each_sample_comes_once_in_every_epoch(shards: Samples) -> None:
    loader = loader_of(shards)
    numbers: list[int] = []
    for epoch in range(3):
        keys = []
        for batch in loader:
            keys += keys_of(batch)
            numbers += [int(number) for number in batch["sample"]]
        assert sorted(keys) == sorted(shards.labels), epoch
        assert set(numbers) == {-1} if epoch == 0 else min(numbers[COUNT:]) == 0
        assert loader.epoch == epoch + 1
    indexed = loader_of(shards, start="indexed")
    indexed.set_epoch(2)
    assert epoch_of(indexed) == keys, "later epochs are those of the index"


def test_an_index_changes_nothing(shards: Samples) -> None:
    without = loader_of(shards)
    first = epoch_of(without)
    forget(shards)
    millrace.Dataset(shards.uri)
    with_index = loader_of(shards)
    assert epoch_of(with_index) == first
    assert with_index.state_dict() == without.state_dict()
    opened = millrace.Loader(
        millrace.Dataset(shards.uri), batch_size=8, **AT_SIZE, output="numpy", seed=3, start="staged"
    )
    assert epoch_of(opened) == first, "a Dataset may be staged, too"


@pytest.mark.parametrize("world", [1, 2, 3, 8])
def test_worlds_add_up(shards: Samples, world: int) -> None:
    whole = loader_of(shards)
    epoch_of(whole)
    digests = []
    keys: Counter[str] = Counter()
    for rank in range(world):
        if rank == world - 1:
            forget(shards)
        part = loader_of(shards, rank=rank, world=world)
        keys.update(epoch_of(part))
        digests.append(part.report()["digest"])
    assert add_digests(*digests) == whole.report()["digest"]
    assert keys == Counter(shards.labels.keys())


def test_it_resumes_within_and_across_stages(shards: Samples) -> None:
    batches = list(map(keys_of, iter(loader_of(shards))))
    for taken in (0, 1, 5, 20, 25, len(batches) - 1, len(batches)):
        loader = loader_of(shards)
        iterator = iter(loader)
        for number in range(taken):
            assert keys_of(next(iterator)) == batches[number]
        state = iterator.state_dict()
        assert state["position"].startswith("mr3-")
        if taken % 2:
            forget(shards)
        again = loader_of(shards, batch_size=16, world=1, rank=0)
        again.load_state_dict(state)
        rest = epoch_of(again)
        if taken < len(batches):
            assert sorted(rest) == sorted(key for batch in batches[taken:] for key in batch), taken
            assert again.report()["samples"] == COUNT - sum(map(len, batches[:taken]))
        else:
            assert again.epoch == 2, "that was the second epoch"


@pytest.mark.parametrize("last", ["short", "pad", "drop", "wrap"])
@pytest.mark.parametrize("world", [1, 3])
def test_batches_are_full_but_the_last_one(shards: Samples, last: Any, world: int) -> None:
    order = epoch_of(loader_of(shards))
    batch_size = 7
    for rank in range(world):
        loader = loader_of(
            shards, last=last, rank=rank, world=world, batch_size=batch_size, transform=lambda sample: {}
        )
        batches = list(loader)
        steps = COUNT // (batch_size * world)
        mine = order[rank::world]
        for number, batch in enumerate(batches[:steps]):
            assert keys_of(batch) == mine[number * batch_size : (number + 1) * batch_size]
            assert batch["valid"].all() and len(batch["key"]) == batch_size, "also where a stage ends"
        if last == "drop":
            assert len(batches) == steps
        else:
            assert len(batches) == steps + 1
            rest = -(-(COUNT - steps * batch_size * world) // world)
            assert len(batches[-1]["key"]) == (rest if last == "short" else batch_size)
            own = mine[steps * batch_size :]
            assert list(batches[-1]["key"])[: len(own)] == own
            if last == "wrap":
                again = [number for number in range(COUNT, COUNT + batch_size * world) if number % world == rank]
                assert list(batches[-1]["key"])[len(own) :] == [
                    order[number % COUNT] for number in again[: batch_size - len(own)]
                ]
        assert loader.epoch == 1
        assert len(loader) == len(batches)


def test_more_than_an_epoch_is_dropped(shards: Samples) -> None:
    with pytest.raises(millrace.InvalidArgumentError, match="no full step"):
        list(loader_of(shards, last="drop", batch_size=COUNT + 1))
    assert len(list(loader_of(shards, last="drop", batch_size=COUNT))) == 1


def test_the_report_counts_the_first_stage(shards: Samples, tmp_path: pathlib.Path) -> None:
    loader = loader_of(shards, cache=tmp_path / "cache")
    report = loader.report()
    assert report["stalls"]["index"] > 0
    assert report["cache"]["miss_bytes"] > 0
    epoch_of(loader)
    later = loader.report()
    assert later["stalls"]["index"] >= report["stalls"]["index"]
    assert later["cache"]["hit_bytes"] > 0
    total = sum(path.stat().st_size for path in pathlib.Path(shards.uri).glob("*.tar"))
    assert later["cache"]["miss_bytes"] <= total


def test_set_epoch_and_reset(shards: Samples) -> None:
    loader = loader_of(shards)
    first, second = epoch_of(loader), epoch_of(loader)
    loader.reset()
    assert loader.epoch == 0 and epoch_of(loader) == first
    loader.set_epoch(1)
    assert epoch_of(loader) == second
    assert next(iter(loader_of(shards)))["key"][0] == first[0], "looking costs nothing"
    peeked = loader_of(shards)
    looked = peeked.peek()
    assert looked is not None and keys_of(looked) == first[:8]
    assert epoch_of(peeked) == first


def test_the_length_is_not_known_before_the_end_of_the_first_epoch(shards: Samples) -> None:
    loader = loader_of(shards)
    with pytest.raises(TypeError, match="start='indexed'"):
        len(loader)
    assert loader, "it is true, as an iterable without a length"
    exact = len(loader_of(shards, start="indexed"))
    assert 0.8 * exact <= loader.estimated_len() <= 1.2 * exact
    assert "about" in repr(loader) and "staged" in repr(loader)
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(TypeError):
        len(loader)
    for _ in iterator:
        pass
    next(iter(loader))
    assert len(loader) == loader.estimated_len() == exact
    loader.set_epoch(0)
    with pytest.raises(TypeError):
        len(loader)
    assert loader_of(shards, start="indexed").estimated_len() == exact


def write_counts(shards: Samples, wrong: int = 0) -> None:
    """Writes the index JSON of wids. `wrong`: the samples that it adds to those of each shard."""
    ends = [number * COUNT // SHARDS for number in range(SHARDS + 1)]
    entries = [
        {"url": f"shard-{shard:03}.tar", "nsamples": ends[shard + 1] - ends[shard] + wrong} for shard in range(SHARDS)
    ]
    index = {"__kind__": "wids-shard-index-v1", "wids_version": 1, "shardlist": entries}
    (pathlib.Path(shards.uri) / "shards.json").write_text(json.dumps(index))


@pytest.mark.parametrize("last", ["short", "drop"])
def test_an_index_of_wids_gives_the_length(shards: Samples, last: Any) -> None:
    order = epoch_of(loader_of(shards))
    forget(shards)
    write_counts(shards)
    for world in (1, 3):
        exact = len(loader_of(shards, start="indexed", last=last, world=world, rank=0))
        forget(shards)
        loader = loader_of(shards, last=last, world=world, rank=world - 1)
        assert len(loader) == loader.estimated_len() == exact
        iterator = iter(loader)
        assert len(iterator) == exact
        assert len(list(iterator)) == exact
        assert len(loader) == exact
    assert epoch_of(loader_of(shards)) == order, "it is no part of the order"


def test_an_index_of_wids_that_is_wrong_is_not_used(shards: Samples) -> None:
    write_counts(shards, wrong=1)
    loader = loader_of(shards)
    with pytest.raises(TypeError, match="start='indexed'"):
        len(loader)
    assert 0.8 * COUNT / 8 <= loader.estimated_len() <= 1.2 * COUNT / 8
    assert sorted(epoch_of(loader)) == sorted(shards.labels)


@pytest.mark.parametrize("kind", ["tfrecord", "recordio", "mds"])
def test_shards_of_all_kinds(shards: Samples, tmp_path: pathlib.Path, kind: str) -> None:
    packed = tmp_path / "packed"
    command = [binary(), "pack", shards.uri, packed, "--format", kind, "--shard-size", "1KiB"]
    command += ["--field", "png", "--field", "cls"]  # RecordIO has no others
    subprocess.run([*map(str, command)], check=True, capture_output=True)
    assert len(list(packed.glob("shard*"))) > 64
    of_kind = Samples(str(packed), {}, {})
    forget(of_kind)
    loader = loader_of(of_kind)
    if kind == "mds":
        assert len(loader) == COUNT // 8, "index.json counts the samples"
    first = epoch_of(loader)
    assert sorted(first) == sorted(epoch_of(loader_of(of_kind, start="indexed")))
    forget(of_kind)
    parts = [epoch_of(loader_of(of_kind, rank=rank, world=2)) for rank in range(2)]
    assert sorted(parts[0] + parts[1]) == sorted(first)


def test_ways_to_name_the_shards(shards: Samples) -> None:
    folder = pathlib.Path(shards.uri)
    pattern = f"{folder}/shard-{{000..{SHARDS - 1}}}.tar"
    names = [str(path) for path in sorted(folder.glob("*.tar"))]
    for uri in (pattern, names):
        loader = millrace.Loader(uri, batch_size=8, **AT_SIZE, output="numpy", seed=3, start="staged")
        assert sorted(epoch_of(loader)) == sorted(shards.labels)
        assert loader.state_dict()["position"].startswith("mr3-")


@pytest.mark.parametrize("name", ["list.csv", "list.jsonl", "list.json"])
def test_a_manifest_names_the_option(raw: Samples, tmp_path: pathlib.Path, name: str) -> None:
    shutil.copytree(raw.uri, tmp_path / "raw")
    paths = [str(path.relative_to(tmp_path)) for path in sorted((tmp_path / "raw").rglob("*.png"))]
    lines = [json.dumps({"path": path, "label": 1}) for path in paths]
    text = {
        "list.csv": "path,label\n" + "".join(f"{path},1\n" for path in paths),
        "list.jsonl": "\n".join(lines),
        "list.json": "[" + ",".join(lines) + "]",
    }[name]
    (tmp_path / name).write_text(text)
    manifest = Samples(str(tmp_path / name), {}, {})
    assert len(epoch_of(loader_of(manifest, start="indexed"))) == len(paths)
    for data in (manifest.uri, millrace.Dataset(manifest.uri, path_column="path")):
        with pytest.raises(millrace.InvalidArgumentError, match="manifest.*start=.indexed."):
            millrace.Loader(data, start="staged")


def test_a_later_stage_with_other_fields_names_the_option(tmp_path: pathlib.Path) -> None:
    """One shard alone has classes."""
    some = write_tar(tmp_path, count=COUNT, shards=SHARDS)
    special = tmp_path / "shard-077.tar"
    whole = special.read_bytes()
    for path in tmp_path.glob("*.tar"):
        with tarfile.open(path) as archive:
            images = [(member, archive.extractfile(member)) for member in archive if member.name.endswith(".png")]
            contents = [(member, file.read()) for member, file in images if file is not None]
        with tarfile.open(path, "w") as archive:
            for member, data in contents:
                archive.addfile(member, io.BytesIO(data))
    special.write_bytes(whole)
    delivered = []
    for seed in range(4):
        batches = 0
        with pytest.raises(millrace.Error) as caught:
            for _ in loader_of(some, seed=seed):
                batches += 1
        delivered.append(batches)
        if batches > 0:
            assert 'start="indexed"' in str(caught.value)
    assert max(delivered) >= 64 * COUNT // SHARDS // 8, "a stage was delivered before"


def test_augmentation_is_the_same_in_every_world(shards: Samples) -> None:
    def pictures(**options: Any) -> dict[str, bytes]:
        loader = loader_of(shards, augment=True, raw=True, **options)
        return {key: image.tobytes() for batch in loader for key, image in zip(batch["key"], batch["image"])}

    whole = pictures()
    parts = {**pictures(rank=0, world=2), **pictures(rank=1, world=2)}
    assert parts == whole


def test_a_transform_has_random_numbers_of_its_own(shards: Samples) -> None:
    def drawn(**options: Any) -> dict[str, int]:
        def draw(sample: dict[str, Any], rng: Any) -> dict[str, Any]:
            return {"number": int(rng.integers(1 << 62))}

        loader = loader_of(shards, transform=draw, **options)
        return {key: int(number) for batch in loader for key, number in zip(keys_of(batch), batch["number"])}

    whole = drawn()
    assert len(set(whole.values())) == COUNT
    assert {**drawn(rank=0, world=3), **drawn(rank=1, world=3), **drawn(rank=2, world=3)} == whole
    resumed = loader_of(shards)
    iterator = iter(resumed)
    [next(iterator) for _ in range(21)]
    loader = loader_of(shards, transform=lambda sample, rng: {"number": int(rng.integers(1 << 62))})
    loader.load_state_dict(iterator.state_dict())
    for batch in loader:
        for key, number in zip(keys_of(batch), batch["number"]):
            assert whole[key] == int(number)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"tokens": millrace.Tokens(16, "pack")}, "tokens"),
        ({"workers": ["127.0.0.1:1"]}, "workers"),
        ({"start": "soon"}, "'soon'"),
    ],
)
def test_options_that_need_the_index_are_named(shards: Samples, options: dict[str, Any], named: str) -> None:
    with pytest.raises(millrace.InvalidArgumentError, match=named):
        loader_of(shards, **options)
    assert not (pathlib.Path(shards.uri) / ".millrace").exists(), "nothing was read"


def test_data_that_are_not_staged(shards: Samples, raw: Samples) -> None:
    with pytest.raises(millrace.InvalidArgumentError, match='start="indexed"'):
        loader_of(raw)
    data = millrace.Dataset(shards.uri)
    for other, named in (
        (data.where(samples=range(9)), "a subset"),
        (millrace.Mix([data, data]), "a Mix"),
    ):
        with pytest.raises(millrace.InvalidArgumentError, match=named):
            millrace.Loader(other, start="staged")


def test_a_position_says_which_order_it_belongs_to(shards: Samples) -> None:
    for written, other in (("staged", "indexed"), ("indexed", "staged")):
        batches = list(map(keys_of, iter(loader_of(shards, start=written))))
        iterator = iter(loader_of(shards, start=written))
        [next(iterator) for _ in range(7)]
        state = iterator.state_dict()
        with pytest.raises(millrace.MismatchError):
            loader_of(shards, start=other).load_state_dict(state)
        free = loader_of(shards, start=None)
        free.load_state_dict(state)
        assert epoch_of(free) == [key for batch in batches[7:] for key in batch], written
        assert free.state_dict()["position"].split("-")[0] == state["position"].split("-")[0]


def test_order_of_the_index(shards: Samples) -> None:
    """shuffle=False is the order of the index, also with many shards: nothing is staged unless the program says so."""
    loader = millrace.Loader(shards.uri, **AT_SIZE, output="numpy", batch_size=2, shuffle=False, epochs=1)
    assert [key for batch in loader for key in keys_of(batch)] == sorted(shards.labels)


def test_lengths_of_iterators(shards: Samples) -> None:
    loader = loader_of(shards, memory="64MiB")
    iterator = iter(loader)
    assert iterator
    with pytest.raises(TypeError, match="staged"):
        len(iterator)
    batches = len(list(iterator))
    assert len(loader) == -(-COUNT // loader.batch_size) and batches >= len(loader)
    later = iter(loader)
    next(later)
    assert len(later) == len(loader)


def test_two_iterators_and_the_data_set(shards: Samples) -> None:
    loader = loader_of(shards, memory="64MiB")
    first, second = iter(loader), iter(loader)
    a = [keys_of(next(first)) for _ in range(3)]
    b = [keys_of(next(second)) for _ in range(1)]
    assert a[0] == b[0]
    assert len(loader.dataset) == COUNT
    loader.close()
    with pytest.raises(millrace.UsageError):
        iter(loader)


def test_a_shard_that_changes_ends_the_epoch(shards: Samples) -> None:
    loader = loader_of(shards)
    for number in range(SHARDS):
        path = pathlib.Path(shards.uri) / f"shard-{number:03}.tar"
        path.write_bytes(path.read_bytes() + bytes(1024))
    with pytest.raises(millrace.MismatchError):
        epoch_of(loader)


def test_a_program_may_end_before_the_index_is_whole(shards: Samples) -> None:
    code = (
        "import millrace, sys\n"
        "loader = millrace.Loader(sys.argv[1], start='staged', size=8, output='numpy', batch_size=4)\n"
        "print(next(iter(loader))['key'][0])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, shards.uri], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout.strip() in shards.labels, done.stderr


@pytest.mark.parametrize(("seconds", "is_advised"), [(2.0, True), (0.2, False)])
def test_a_long_build_of_an_index_names_the_other_start(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, seconds: float, is_advised: bool
) -> None:
    """It judges by the time that a hundredth of the shards has taken."""
    now = 100.0
    monkeypatch.setattr("millrace._progress_line.time.monotonic", lambda: now)
    line = ProgressLine("s3://b/new", is_data=True)
    for done in range(5):
        line.update(done << 30, 200 << 30)
        now += seconds
    said = capsys.readouterr().err
    assert said.count("start='staged'") == is_advised
    assert said.count("takes about 7 minutes more") == is_advised
