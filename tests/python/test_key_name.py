"""The key of a sample has one name, `key`, in batches, samples and what programs write. Its former name is an error that says so."""

from __future__ import annotations

import io
import pathlib
import tarfile
from typing import Any

import millrace
import pytest
from support import Samples
from transforms_of_processes import changed_key, former_key, former_key_returned, same_key

ADVICE = "the key of a sample is its entry 'key', as in batches"


def loader_of(samples: Samples, **options: Any) -> millrace.Loader:
    return millrace.Loader(
        samples.uri, **{"batch_size": 10, "size": 16, "shuffle": False, "output": "numpy", **options}
    )


def test_all_samples_and_batches_have_one_name(tar: Samples, tmp_path: pathlib.Path) -> None:
    keys = millrace.Dataset(tar.uri).keys()[:10]
    assert next(iter(loader_of(tar)))["key"] == keys
    assert next(iter(loader_of(tar, as_tuple=("key", "label"))))[0] == keys
    assert next(iter(loader_of(tar, transform=same_key)))["name"] == keys
    assert next(iter(loader_of(tar, transform=millrace.Map(same_key, processes=1))))["name"] == keys
    assert next(iter(loader_of(tar, collate_fn=lambda rows: [row["key"] for row in rows]))) == keys
    assert [sample["key"] for sample in millrace.Dataset(tar.uri).head(10)] == keys
    with millrace.ShardWriter(tmp_path / "out") as writer:
        for sample in millrace.Dataset(tar.uri).head(10):
            writer.write(sample)
    assert millrace.Dataset(tmp_path / "out").keys() == keys


@pytest.mark.parametrize("processes", [0, 1])
def test_the_former_name_in_functions_is_an_error(tar: Samples, processes: int) -> None:
    for function, message in [
        (former_key, f"KeyError: '__key__'; {ADVICE}"),
        (former_key_returned, f"returned '__key__'; {ADVICE}"),
        (changed_key, "changed 'key'; a sample keeps its key"),
    ]:
        transform = millrace.Map(function, processes=processes) if processes else function
        with pytest.raises(millrace.TransformError, match=message):
            next(iter(loader_of(tar, transform=transform)))


def test_the_former_name_elsewhere_is_an_error(tar: Samples, tmp_path: pathlib.Path) -> None:
    with pytest.raises(millrace.TransformError, match=f"KeyError: '__key__'; {ADVICE}"):
        next(iter(loader_of(tar, collate_fn=lambda rows: [row["__key__"] for row in rows])))
    with pytest.raises(millrace.InvalidArgumentError, match="'__key__': the keys of samples are the entry 'key'"):
        loader_of(tar, fields={"__key__": millrace.Text("txt")})
    with pytest.raises(millrace.InvalidArgumentError, match="as_tuple names '__key__'.*key"):
        next(iter(loader_of(tar, as_tuple=("__key__", "label"))))
    with millrace.ShardWriter(tmp_path / "out") as writer:
        with pytest.raises(TypeError, match=ADVICE):
            writer.write({"__key__": "a", "txt": "x"})
        writer.write({"key": "a", "txt": "x"})


def test_the_former_name_under_a_dataloader_is_an_error(tar: Samples) -> None:
    pytest.importorskip("torch")
    for name in ("key", "__key__"):
        with pytest.raises(millrace.InvalidArgumentError, match=ADVICE):
            millrace.torch.MapDataset(tar.uri, fields={name: "cls"})


def test_a_field_that_is_called_key(tmp_path: pathlib.Path) -> None:
    """Tables of img2dataset have such a column."""

    def write(path: pathlib.Path, members: dict[str, bytes]) -> None:
        with tarfile.open(path, "w") as shard:
            for name, data in members.items():
                member = tarfile.TarInfo(name)
                member.size = len(data)
                shard.addfile(member, io.BytesIO(data))

    (tmp_path / "one").mkdir()
    write(tmp_path / "one" / "1.tar", {"a.key": b"A", "a.txt": b"x", "b.key": b"B", "b.txt": b"y"})
    data = millrace.Dataset(tmp_path / "one")
    assert list(data) == [
        {"key": "a", "key_field": b"A", "txt": "x"},
        {"key": "b", "key_field": b"B", "txt": "y"},
    ]
    batch = next(iter(millrace.Loader(data, batch_size=2, shuffle=False, fields={"own": millrace.Bytes("key")})))
    assert (batch["key"], batch["own"]) == (["a", "b"], [b"A", b"B"])
    (tmp_path / "two").mkdir()
    write(tmp_path / "two" / "1.tar", {"a.key": b"A", "a.key_field": b"x", "a.txt": b"x"})
    with pytest.raises(millrace.UnsupportedError, match="'key' and 'key_field'"):
        millrace.Dataset(tmp_path / "two").read(0)
    pytest.importorskip("torch")
    assert millrace.torch.MapDataset(data, fields={"own": "key"})[1] == {"key": "b", "own": b"B"}


def test_examples_of_hugging_face_have_it(tar: Samples) -> None:
    datasets = pytest.importorskip("datasets")
    examples = millrace.huggingface.to_datasets(tar.uri)
    assert [example["key"] for example in examples.take(3)] == millrace.Dataset(tar.uri).keys()[:3]
    with pytest.raises(millrace.InvalidArgumentError, match=ADVICE):
        millrace.huggingface.to_datasets(tar.uri, features=datasets.Features({"__key__": datasets.Value("string")}))
