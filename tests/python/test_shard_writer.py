"""Tests results that are written as shards: they are whole or not to be seen, and each sample comes once, whatever
interrupts the program."""

from __future__ import annotations

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tarfile
import time
from typing import Any

import millrace
import numpy as np
import pytest
from support import Samples, run_script
from thoroughness import repeats


@pytest.fixture(params=["folder", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> str:
    if request.param == "folder":
        return str(tmp_path / "results")
    bucket: str = request.getfixturevalue("bucket")
    return f"{bucket}/{request.node.name}"


def names(uri: str) -> list[str]:
    objects, _ = millrace._core.list_place(uri.rstrip("/") + "/", True, 0)
    return sorted(name for name, *_ in objects)


def keys(uri: str) -> list[str]:
    return sorted(sample["key"] for sample in millrace.Dataset(uri))


def test_samples_come_back_as_they_were_written(place: str) -> None:
    vector = np.arange(6, dtype=np.float32).reshape(2, 3)
    with millrace.ShardWriter(place) as writer:
        writer.write(
            {
                "key": "a/1",
                "jpg": b"\xff\xd8",
                "cls": 7,
                "txt": "größe",
                "embedding.npy": vector,
                "json": {"x": [1, None]},
            }
        )
        writer.write({"key": "a/2.5", "jpg": bytearray(b"2"), "score": 0.25, "cls": np.int64(8)})
        assert (writer.samples, writer.complete) == (2, False)
    assert writer.complete
    one, two = millrace.Dataset(place)
    assert (
        one["key"] == "a/1" and one["jpg"] == b"\xff\xd8" and one["txt"] == "größe" and one["json"] == {"x": [1, None]}
    )
    assert one["cls"] == 7 and two["cls"] == 8 and two["score"] in (b"0.25", "0.25", 0.25)
    np.testing.assert_array_equal(one["embedding.npy"], vector)
    assert two["key"] == "a/2.5"


def test_tensors(tmp_path: pathlib.Path) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.arange(4.0, requires_grad=True).reshape(2, 2)
    with millrace.ShardWriter(tmp_path / "results") as writer:
        writer.write({"key": "a", "npy": tensor, "cls": torch.tensor(3)})
    sample = millrace.Dataset(tmp_path / "results")[0]
    np.testing.assert_array_equal(sample["npy"], tensor.detach().numpy())
    assert sample["cls"] == 3


def test_other_programs_read_the_shards(tmp_path: pathlib.Path) -> None:
    with millrace.ShardWriter(tmp_path / "results", shard_size=1) as writer:
        for number in range(3):
            writer.write({"key": f"{number}", "bin": bytes([number]) * 1000})
    shards = sorted((tmp_path / "results").glob("*.tar"))
    assert [shard.name for shard in shards] == [f"shard-00000-{number:06d}.tar" for number in range(3)]
    for number, shard in enumerate(shards):
        with tarfile.open(shard) as archive:
            assert archive.getnames() == [f"{number}.bin"]
            member = archive.extractfile(f"{number}.bin")
            assert member is not None and member.read() == bytes([number]) * 1000


def test_nothing_is_visible_before_all_ranks_have_ended(place: str) -> None:
    writers = [millrace.ShardWriter(place, rank=rank, world=3, shard_size=1) for rank in range(3)]
    for writer in writers:
        writer.write({"key": f"{writer.rank}", "txt": "x"})
    for writer in writers[:2]:
        writer.close()
        assert not writer.complete
        with pytest.raises(millrace.MismatchError, match="interrupted.*ShardWriter.*again"):
            millrace.Dataset(place)
    writers[2].close()
    assert writers[2].complete
    assert names(place) == [".millrace/written", *(f"shard-{rank:05d}-000000.tar" for rank in range(3))]
    assert keys(place) == ["0", "1", "2"]


def test_a_rank_without_samples(tmp_path: pathlib.Path) -> None:
    with millrace.ShardWriter(tmp_path / "r", rank=0, world=2) as writer:
        writer.write({"key": "a", "txt": "x"})
    with millrace.ShardWriter(tmp_path / "r", rank=1, world=2) as writer:
        pass
    assert writer.complete and keys(str(tmp_path / "r")) == ["a"]


def test_an_exception_leaves_whole_shards_and_the_next_run_goes_on(place: str) -> None:
    with pytest.raises(RuntimeError, match="out of power"):
        with millrace.ShardWriter(place, shard_size=1500) as writer:
            for step in range(5):
                writer.write({"key": f"{step}", "txt": f"first {step}"})
                writer.advance(step + 1)
            raise RuntimeError("out of power")
    with millrace.ShardWriter(place, shard_size=1500) as writer:
        assert writer.state == 4 and writer.samples == 4  # two shards of two
        for step in range(writer.state, 7):
            writer.write({"key": f"{step}", "txt": f"second {step}"})
            writer.advance(step + 1)
    texts = [sample["txt"] for sample in millrace.Dataset(place)]
    assert texts == [f"first {step}" for step in range(4)] + [f"second {step}" for step in range(4, 7)]
    # It is started once more, as a job that is interrupted right at its end may be: there is nothing left to do.
    with millrace.ShardWriter(place) as writer:
        assert writer.complete and writer.state == 7
        with pytest.raises(millrace.UsageError, match="written all"):
            writer.write({"key": "8", "txt": ""})
    assert len(millrace.Dataset(place)) == 7


def test_what_a_killed_run_has_not_entered_is_removed(place: str) -> None:
    writer = millrace.ShardWriter(place, shard_size=1)
    writer.advance(0)
    writer.write({"key": "a", "txt": "first"})
    writer.advance(1)
    # The place is as if the run was killed between the second shard and its entry.
    with millrace.open(f"{place}/shard-00000-000001.tar", "wb") as orphan:
        orphan.write(b"x" * 512)
    writer.discard()
    with millrace.ShardWriter(place, shard_size=1) as writer:
        assert writer.samples == 1
        assert "shard-00000-000001.tar" not in names(place)
        writer.write({"key": "b", "txt": "second"})
    assert [sample["txt"] for sample in millrace.Dataset(place)] == ["first", "second"]


def test_without_advance_a_killed_run_begins_anew(place: str) -> None:
    writer = millrace.ShardWriter(place, shard_size=1)
    writer.write({"key": "a", "txt": "first"})
    writer.write({"key": "b", "txt": "first"})
    writer.discard()
    with millrace.ShardWriter(place, shard_size=1) as writer:
        assert writer.state is None and writer.samples == 0
        writer.write({"key": "a", "txt": "second"})
    assert [sample["txt"] for sample in millrace.Dataset(place)] == ["second"]


def test_only_one_of_two_processes_of_a_rank_gets_on(place: str) -> None:
    zombie = millrace.ShardWriter(place, shard_size=1)
    writer = millrace.ShardWriter(place, shard_size=1)
    writer.write({"key": "a", "txt": "writer"})
    with pytest.raises(millrace.AlreadyExistsError, match="shard-00000-000000"):
        zombie.write({"key": "a", "txt": "zombie"})
    zombie.discard()
    writer.close()
    assert [sample["txt"] for sample in millrace.Dataset(place)] == ["writer"]


def test_an_entry_whose_shard_was_replaced_does_not_count(place: str) -> None:
    writer = millrace.ShardWriter(place, shard_size=1)
    writer.advance("")
    for name in "abc":
        writer.write({"key": name, "txt": name})
        writer.advance(name)
    writer.discard()
    with millrace.open(f"{place}/shard-00000-000001.tar", "wb") as other:
        other.write(b"y" * 512)
    again = millrace.ShardWriter(place, shard_size=1)
    assert again.samples == 1
    assert [name for name in names(place) if not name.startswith(".millrace/incomplete")] == [
        ".millrace/writer-00000-000000",
        "shard-00000-000000.tar",
    ]


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        ({"txt": "x"}, "key"),
        ({"key": 3, "txt": "x"}, "key"),
        ({"key": "a"}, "'a' has no fields"),
        ({"key": "a/", "txt": "x"}, "'a/'.*must not end with"),
        ({"key": "a", "TXT": "x"}, "'a'.*'TXT'.*lower case"),
        ({"key": "a", "x/y": "x"}, "'a'.*'x/y'"),
        ({"key": "a", "embedding": np.zeros(3)}, "'embedding' is an array.*'embedding.npy'"),
        ({"key": "a", "npy": np.array([object()])}, "[Oo]bject arrays"),
        ({"key": "a", "meta": {"x": 1}}, "'meta' is a dict.*'json'"),
    ],
)
def test_what_a_shard_cannot_hold_is_refused(tmp_path: pathlib.Path, sample: Any, message: str) -> None:
    with millrace.ShardWriter(tmp_path / "r") as writer:
        with pytest.raises((ValueError, TypeError), match=message):
            writer.write(sample)
        writer.write({"key": "good", "txt": "x"})
        with pytest.raises(millrace.InvalidArgumentError, match="two samples in a row have the key 'good'"):
            writer.write({"key": "good", "txt": "y"})
    assert keys(str(tmp_path / "r")) == ["good"]


def test_places_that_are_taken(tmp_path: pathlib.Path, tar: Samples) -> None:
    with pytest.raises(millrace.AlreadyExistsError, match="holds '.*' already; results need an empty place"):
        millrace.ShardWriter(tar.uri)
    millrace.ShardWriter(tmp_path / "r", rank=0, world=2).discard()
    with pytest.raises(millrace.MismatchError, match="begun by 2 ranks, and this is one of 3"):
        millrace.ShardWriter(tmp_path / "r", rank=0, world=3)
    (tmp_path / "pack/.millrace").mkdir(parents=True)
    (tmp_path / "pack/.millrace/incomplete").write_text('{"version": 1}')
    with pytest.raises(millrace.MismatchError, match="is not of a ShardWriter"):
        millrace.ShardWriter(tmp_path / "pack")


def test_states_must_be_plain(tmp_path: pathlib.Path) -> None:
    with millrace.ShardWriter(tmp_path / "r") as writer:
        with pytest.raises(millrace.InvalidArgumentError, match="as JSON"):
            writer.advance(object())
        writer.write({"key": "a", "txt": "x"})


_INFERENCE = """
import sys, millrace
data, results, rank, world = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
with millrace.ShardWriter(results, shard_size=4000, rank=rank, world=world) as writer:
    loader = millrace.Loader(data, batch_size=2, size=8, epochs=1, seed=3, rank=rank, world=world)
    if writer.state is not None:
        loader.load_state_dict(writer.state)
    print("begun", flush=True)
    for _ in range(loader.epoch, 1):  # no loop if all samples were written before
        for batch in loader:
            for key, valid, image in zip(batch["key"], batch["valid"], batch["image"]):
                if valid:
                    writer.write({"key": key, "mean.npy": image.mean(axis=(0, 1))})
            writer.advance(loader.state_dict())
print("ended")
"""


def test_each_sample_once_whatever_is_killed(tmp_path: pathlib.Path, bucket: str, tar: Samples) -> None:
    kills = repeats(120)
    place = f"{bucket}/{tmp_path.name}"
    generator = random.Random(kills)
    arguments = [tar.uri, place]
    finished: set[int] = set()
    attempts = 0
    while len(finished) < 2:
        rank = generator.choice([rank for rank in range(2) if rank not in finished])
        process = subprocess.Popen(
            [sys.executable, "-c", _INFERENCE, *arguments, str(rank), "2"], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        process.stdout.readline()
        attempts += 1
        if attempts <= kills:
            time.sleep(generator.uniform(0, 0.15))
            process.send_signal(signal.SIGKILL)
        process.wait(300)
        if "ended" in process.stdout.read():  # communicate() would lose what readline() has read beyond its line
            finished.add(rank)
        if attempts > kills:
            assert rank in finished
    assert keys(place) == sorted(tar.pixels)
    assert not [name for name in names(place) if name.startswith(".millrace/writer") or name == ".millrace/incomplete"]


def test_a_kill_before_the_mark_is_removed(tmp_path: pathlib.Path) -> None:
    with millrace.ShardWriter(tmp_path) as writer:
        writer.write({"key": "a", "txt": "x"})
    (tmp_path / ".millrace/incomplete").write_text('{"kind": "millrace.ShardWriter 2", "world": 1}')
    (tmp_path / ".millrace/writer-00000-last").write_text("{}")
    assert millrace.ShardWriter(tmp_path).complete
    assert keys(str(tmp_path)) == ["a"] and os.listdir(tmp_path / ".millrace") != []
    assert not [name for name in names(str(tmp_path)) if name.startswith(".millrace/writer")]


def test_ranks_that_end_at_once(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one reads the journals, the other makes the place complete, which removes them."""
    core = millrace._shard_writer._core
    opens, raced = core.ReadFile, []

    def open_late(uri: str) -> Any:
        file = opens(uri)
        if "/writer-" in uri and not raced:
            raced.append(uri)
            millrace.ShardWriter(tmp_path, rank=0, world=2).close()
        return file

    for rank in range(2):
        writer = millrace.ShardWriter(tmp_path, rank=rank, world=2)
        writer.write({"key": f"{rank}", "txt": "x"})
        if rank == 1:
            monkeypatch.setattr(core, "ReadFile", open_late)
        writer.close()
    assert raced and writer.complete
    assert keys(str(tmp_path)) == ["0", "1"]


def test_the_programs_in_the_documentation(tmp_path: pathlib.Path, tar: Samples) -> None:
    """Runs the docstring's example, with a model that makes vectors of images."""
    example = (millrace.ShardWriter.__doc__ or "").split("\n\n")[1]
    lines = "\n".join(line.removeprefix("        ") for line in example.splitlines())
    script = "import sys, millrace\nmodel = lambda images: images.mean(axis=(1, 2))\n" + lines.replace(
        '"s3://bucket/embeddings"', "sys.argv[2]"
    ).replace('"s3://bucket/images"', "sys.argv[1]")
    result = run_script(script, tar.uri, str(tmp_path / "r"))
    assert result.returncode == 0, result.stderr
    assert keys(str(tmp_path / "r")) == sorted(tar.pixels)
    assert json.loads((tmp_path / "r/.millrace/written").read_text())["samples"] == len(tar.pixels)
    assert set(os.listdir(tmp_path / "r/.millrace")) == {"index", "written"}


def test_a_complete_place_knows_what_each_rank_has_written(tmp_path: pathlib.Path) -> None:
    for rank in range(2):
        with millrace.ShardWriter(str(tmp_path / "r"), rank=rank, world=2) as writer:
            for number in range(3 + rank):
                writer.write({"key": f"{rank}/{number}", "cls": number})
    assert writer.samples == 4
    again = [millrace.ShardWriter(str(tmp_path / "r"), rank=rank, world=2) for rank in range(2)]
    assert [each.samples for each in again] == [3, 4] and again[0].complete
