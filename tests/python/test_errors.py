"""Tests the border between absl::Status and exceptions, and what users see of it."""

from __future__ import annotations

import builtins
import io
import pathlib
import pickle
import tarfile
from typing import Any

import millrace
import millrace.transforms as T
import numpy as np
import pytest
from millrace import _core, _errors
from support import AT_SIZE, Samples, make_pixels, png, write_raw


def test_the_table_is_complete() -> None:
    assert len(_core.STATUS_CODES) == 16
    assert set(_errors.BY_CODE) == set(_core.STATUS_CODES)


@pytest.mark.parametrize("code", sorted(_errors.BY_CODE))
def test_each_code_has_an_error_that_is_also_a_builtin_one(code: str) -> None:
    kind = _errors.BY_CODE[code]
    bases = [base for base in kind.__mro__[1:] if hasattr(builtins, base.__name__)]
    assert issubclass(kind, millrace.Error) and getattr(millrace, kind.__name__) is kind
    assert bases[0] not in (Exception, BaseException, object)
    assert kind.__doc__
    error = kind("s3://b/k: no")
    assert str(error) == "s3://b/k: no"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


EXPECTED = {
    "NOT_FOUND": FileNotFoundError,
    "ALREADY_EXISTS": FileExistsError,
    "PERMISSION_DENIED": PermissionError,
    "UNAUTHENTICATED": PermissionError,
    "INVALID_ARGUMENT": ValueError,
    "RESOURCE_EXHAUSTED": MemoryError,
    "FAILED_PRECONDITION": RuntimeError,
    "DATA_LOSS": OSError,
    "UNAVAILABLE": ConnectionError,
}


@pytest.mark.parametrize(("code", "builtin"), EXPECTED.items())
def test_what_people_catch(code: str, builtin: type[Exception]) -> None:
    assert issubclass(_errors.BY_CODE[code], builtin)


def test_all_errors_are_exported() -> None:
    assert set(_errors.__all__) == {
        name for name, value in vars(_errors).items() if isinstance(value, type) and issubclass(value, Exception)
    }
    assert set(_errors.__all__) <= set(millrace.__all__)


def test_missing_folder(tmp_path: pathlib.Path) -> None:
    with pytest.raises(millrace.NotFoundError, match="nowhere") as error:
        millrace.Dataset(tmp_path / "nowhere")
    assert isinstance(error.value, FileNotFoundError)


def test_empty_folder(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError):
        millrace.Dataset(tmp_path)


def test_message_with_bytes_that_are_no_utf8(tmp_path: pathlib.Path) -> None:
    (tmp_path / "c").mkdir()
    with open(bytes(tmp_path / "c") + b"/bad\xff.png", "wb") as file:
        file.write(b"not a png")
    with pytest.raises(millrace.Error) as error:
        next(iter(millrace.Loader(tmp_path, batch_size=1)))
    assert "bad\\xff" in str(error.value)
    str(error.value).encode()


def test_scheme_that_is_none() -> None:
    with pytest.raises(ValueError, match="ftp"):
        millrace.Dataset("ftp://host/path")


def test_truncated_shard(tmp_path: pathlib.Path) -> None:
    data = png(make_pixels(0))
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        member = tarfile.TarInfo("x.png")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    whole = (tmp_path / "a.tar").read_bytes()
    (tmp_path / "a.tar").write_bytes(whole[: 512 + len(data) // 2])
    with pytest.raises(millrace.DamagedDataError, match="a.tar"):
        millrace.Dataset(tmp_path)


def damaged(folder: pathlib.Path) -> Samples:
    samples = write_raw(folder, 20)
    (folder / "cat" / "0003.png").write_bytes(png(make_pixels(3))[:500])
    return samples


def test_damaged_sample_fails_with_its_name_for_good(tmp_path: pathlib.Path) -> None:
    loader = millrace.Loader(damaged(tmp_path).uri, batch_size=4, shuffle="none", epochs=1, **AT_SIZE)
    with pytest.raises(millrace.DamagedDataError, match="cat/0003"):
        for _ in loader:
            pass
    with pytest.raises(OSError, match="cat/0003"):
        next(iter(loader))


def test_damaged_sample_is_replaced_and_reported(tmp_path: pathlib.Path) -> None:
    samples = damaged(tmp_path)
    loader = millrace.Loader(samples.uri, batch_size=4, epochs=1, bad_samples="replace", **AT_SIZE)
    keys = [key for batch in loader for key in batch["key"]]
    report = loader.report()
    assert len(keys) == 20 and "cat/0003" not in keys
    assert report["quarantined"] == 1
    bad = report["quarantine"][0]
    assert (
        "cat/0003" in bad["sample"]
        and "cat/0003" not in bad["reason"]
        and bad["replacement"] in keys
        and bad["epoch"] == 0
    )


@pytest.mark.parametrize("way", ["plain", "transform", "collate", "torch"])
def test_damaged_sample_is_masked(tmp_path: pathlib.Path, way: str) -> None:
    samples = damaged(tmp_path)
    options: dict[str, object] = {}
    if way == "transform":
        options["transform"] = lambda sample: {"image": sample["image"], "sum": int(sample["image"].sum())}
    if way == "collate":
        options["collate_fn"] = lambda rows: {"key": [row["key"] for row in rows]}
    output = "torch" if way == "torch" else "numpy"
    loader = millrace.Loader(
        samples.uri,
        batch_size=4,
        epochs=1,
        shuffle="none",
        bad_samples="mask",
        output=output,
        **AT_SIZE,
        **options,  # type: ignore[arg-type]
    )
    batches = list(loader)
    assert len(batches) == 5, "ranks keep in step"
    keys = [key for batch in batches for key in batch["key"]]
    report = loader.report()
    assert (
        report["quarantined"] == 1
        and "cat/0003" in report["quarantine"][0]["sample"]
        and report["quarantine"][0]["replacement"] == ""
    )
    if way == "collate":
        assert len(keys) == 19 and "cat/0003" not in keys
        return
    assert len(keys) == 20 and keys.count("") == 1
    for batch in batches:
        for row, key in enumerate(batch["key"]):
            assert bool(batch["valid"][row]) == (key != "")
            if not key:
                assert not batch["image"][row].any()
            elif way == "transform":
                assert batch["sum"][row] == batch["image"][row].sum()
            else:
                assert batch["image"][row].any()
    again = millrace.Loader(samples.uri, batch_size=3, epochs=1, shuffle="none", bad_samples="mask", **AT_SIZE)
    for _ in again:
        pass
    assert again.report()["digest"] == report["digest"]


def test_objects_that_changed_after_indexing(tmp_path: pathlib.Path) -> None:
    samples = write_raw(tmp_path, 6)
    millrace.Dataset(samples.uri)
    (tmp_path / "cat" / "0000.png").write_bytes(png(make_pixels(77, 30, 30)))
    with pytest.raises(millrace.Error, match="0000.png") as caught:
        loader = millrace.Loader(samples.uri, batch_size=6, epochs=1, **AT_SIZE)
        list(loader)
    assert "millrace index" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size is 0; it must be at least 1"),
        ({"batch_size": -1}, "batch_size is -1; it must be at least 1"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**64}, "seed is 18446744073709551616"),
        ({"epochs": 0}, "epochs is 0"),
        ({"size": 0}, "size is 0; it must be 1 to"),
        ({"size": (10, -1)}, "size is -1"),
        ({"image": millrace.Image(channels=2)}, "channels"),
        ({"image": millrace.Image(dtype="f64")}, "dtype is 'f64'; choose one of 'u8', 'f32', 'f16', 'bf16'"),
        ({"image": millrace.Image(layout="hw")}, "layout is 'hw'; choose one of 'nhwc', 'nchw'"),
        ({"image": millrace.Image(dtype="u8", mean=0.5)}, "mean and std are for pixels that are floats"),
        ({"image": millrace.Image(mean=(0.5, 0.5))}, "mean has 2 numbers for 3 channels"),
        ({"image": millrace.Image(std=(1, 1, 0))}, "deviation 0 of channel 2"),
        (
            {"image": millrace.Image(mean=(123.7, 116.3, 103.5))},
            "mean has 123.7, as for pixels from 0 to 255 .* are 0 to 1;",
        ),
        ({"image": millrace.Image(mean=(0.5, 0.5, 1.1))}, "mean has 1.1, .* divide mean and std by 255"),
        ({"image": millrace.Image(std=255)}, "std has 255, .* divide mean and std by 255"),
        ({"normalize": ((123.7, 116.3, 103.5), (58.4, 57.1, 57.4))}, "mean has 123.7, as for pixels from 0 to 255"),
        ({"normalize": (0, (58.4, 57.1, 57.4))}, "std has 58.4, as for pixels from 0 to 255"),
        (
            {"image": millrace.Image(transforms=[T.Resize((8, 8)), T.Normalize((124, 116, 104), (58, 57, 57))])},
            "mean has 124, as for pixels from 0 to 255",
        ),
        ({"normalize": (0.5, (1, float("inf"), 1))}, "deviation inf of channel 1"),
        ({"image": millrace.Image(crop=(0.5, 0.1))}, "crop scale"),
        ({"image": millrace.Image(crop="random", flip=1.5)}, "flip"),
        ({"shuffle": "random"}, "shuffle is 'random'; choose one of 'window', 'global', 'none'"),
        ({"last": "keep"}, "last is 'keep'; choose one of"),
        ({"bad_samples": "skip"}, "bad_samples is 'skip'"),
        ({"digest": "md5"}, "digest is 'md5'"),
        ({"memory": "lots"}, "memory: 'lots'"),
        ({"memory": -5}, "-5"),
        ({"rank": 3, "world": 3}, "rank 3"),
        ({"rank": 0}, "rank and world belong together"),
        ({"output": "jax"}, "output is 'jax'"),
        ({"image": millrace.Image("jpg")}, "no field 'jpg'; its fields are: cls, json, png, txt"),
        ({"label": "caption"}, "no field 'caption'"),
        ({"label": millrace.Label("cls", "complex")}, "complex"),
        ({"label": millrace.Label("json", "json-float:a.b")}, "path="),
    ],
)
def test_options_that_make_no_sense(tar: Samples, options: dict[str, Any], message: str) -> None:
    with pytest.raises(millrace.InvalidArgumentError, match=message) as error:
        millrace.Loader(tar.uri, **options)
    assert isinstance(error.value, ValueError)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": "16"}, "batch_size must be an integer, not '16'"),
        ({"batch_size": 16.0}, "batch_size must be an integer, not 16.0"),
        ({"batch_size": True}, "batch_size must be an integer, not True"),
        ({"batch_size": np.arange(2)}, "batch_size must be an integer"),
        ({"seed": "1"}, "seed must be an integer"),
        ({"epochs": 1.5}, "epochs must be an integer, not 1.5"),
        ({"rank": "0", "world": 1}, "rank must be an integer"),
        ({"image": millrace.Image(channels="3")}, "channels must be an integer"),
        ({"size": "224"}, r"size must be an integer or \(height, width\), not '224'"),
        ({"size": (1, 2, 3)}, r"size must be an integer or \(height, width\), not \(1, 2, 3\)"),
        ({"size": (1.5, 2)}, "size must be an integer or"),
        ({"size": None}, "size must be an integer or"),
        ({"image": millrace.Image(crop=0.5)}, "crop must be 'center', 'random', .* not 0.5"),
        ({"image": millrace.Image(crop=("a", 1))}, r"crop must be two numbers, \(from, to\)"),
        ({"image": millrace.Image(crop=((0.1, 1), ("a", 1)))}, "the second pair of crop must be two numbers"),
        ({"image": millrace.Image(flip="often")}, "flip must be a number, not 'often'"),
        ({"augment": "yes"}, "augment must be True or False, not 'yes'"),
        ({"image": millrace.Image(mean="x")}, "mean must be a number or one for each channel, not 'x'"),
        ({"image": millrace.Image(std=(1, "2", 3))}, "std must be a number or one for each channel, not '2'"),
        ({"image": millrace.Image(dtype=np.float64)}, "dtype must be one of 'u8', 'f32'"),
        ({"shuffle": 1}, "shuffle must be one of 'window', 'global', 'none', not 1"),
        ({"digest": True}, "digest must be one of 'raw', 'decoded', 'none', not True"),
        ({"last": 3}, "last must be one of"),
        ({"label": 3}, "label must be a millrace.Label"),
        ({"memory": 1.5}, "memory must be an integer .* or a string"),
        ({"output": 1}, "output must be one of 'torch', 'numpy', not 1"),
    ],
)
def test_arguments_of_the_wrong_type(tar: Samples, options: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message) as error:
        millrace.Loader(tar.uri, **options)
    assert "incompatible" not in str(error.value), "no signatures of C++"


def test_arguments_that_are_as_good(tar: Samples) -> None:
    import torch

    loader = millrace.Loader(
        pathlib.Path(tar.uri), batch_size=np.int32(4), size=[np.int64(8), 8], seed=np.uint64(2**64 - 1), epochs=np.int8(1), memory=np.int64(1 << 28),
        rank=np.int64(0), world=np.int64(1), shuffle=False, augment=np.bool_(True),
        image=millrace.Image(flip=1, crop=np.array([0.5, 1]), mean=torch.tensor([0.1, 0.2, 0.3]), std=np.float32(2)),
    )  # fmt: skip
    assert [int(s) for batch in loader for s, real in zip(batch["sample"], batch["valid"]) if real] == list(range(50))
    assert "none" in repr(millrace.Loader(tar.uri, shuffle=None))


def test_data_of_the_wrong_type(tar: Samples) -> None:
    with pytest.raises(TypeError, match="data must be a Dataset, a Mix or a URI, not 5"):
        millrace.Loader(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="uri must be a URI, a path, or a list of them, not None"):
        millrace.Dataset(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="data must be a Dataset, a Mix or a number of samples, not 1.5"):
        millrace.Plan(1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"write millrace.Plan\(millrace.Dataset\('s3://b/train'\)\)"):
        millrace.Plan("s3://b/train")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"positions are an integer or an array of integers, not slice"):
        millrace.Plan(10)[0:3]  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="unexpected keyword argument 'num_wrokers'"):
        millrace.Loader("/nowhere", num_wrokers=4)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="seed must be an integer, not 'x'"):
        millrace.Plan(10, seed="x")  # type: ignore[arg-type]
    assert millrace.Plan(np.int64(10), shuffle=False)[3] == 3
    assert (
        millrace.Plan(10, shuffle=True)[range(10)].tolist() == millrace.Plan(10, shuffle="window")[range(10)].tolist()
    )


def test_states_that_are_none(tar: Samples) -> None:
    loader = millrace.Loader(tar.uri, batch_size=8, epochs=1)
    next(iter(loader))
    state = loader.state_dict()
    wrong: list[Any] = [None, 7, [1]]
    for value in wrong:
        with pytest.raises(TypeError, match=r"state must be the result of state_dict\(\), or its position"):
            loader.load_state_dict(value)
    for value, shown in (
        ({}, "has no keys. "),
        ({"version": 1}, "has the keys 'version'. "),
        ({"model": 1, "loader": dict(state)}, "has the keys 'model', 'loader'. "),
        (dict.fromkeys("abcdef"), "has the keys 'a', 'b', 'c', 'd', 'e', .... "),
    ):
        with pytest.raises(ValueError, match=r"Loader.state_dict\(\), a dict with 'version' and 'position'") as error:
            loader.load_state_dict(value)  # type: ignore[arg-type]
        assert shown in str(error.value) and "load_state_dict(checkpoint['loader'])" in str(error.value)
    with pytest.raises(ValueError, match="of version 2; this Millrace .* reads version 1"):
        loader.load_state_dict({**state, "version": 2})
    with pytest.raises(ValueError, match="position is None"):
        loader.load_state_dict({**state, "position": None})  # type: ignore[typeddict-item]
    with pytest.raises(ValueError, match="'mr2-' |\"mr2-\" is not a position"):
        loader.load_state_dict("mr2-")
    rest = [key for batch in loader for key in batch["key"]]
    loader.load_state_dict(state["position"])
    assert [key for batch in loader for key in batch["key"]] == rest and rest


@pytest.mark.parametrize("workers", [{}, {"num_workers": 2}, {"num_workers": 2, "multiprocessing_context": "spawn"}])
@pytest.mark.parametrize("options", [{}, {"batch_size": None}, {"shuffle": True}])
def test_a_loader_in_a_dataloader_says_what_to_write(
    tar: Samples, workers: dict[str, Any], options: dict[str, Any]
) -> None:
    from torch.utils.data import DataLoader

    loader = millrace.Loader(tar.uri, batch_size=8, epochs=1, **AT_SIZE)
    with pytest.raises(millrace.UnsupportedError, match="DataLoader"):
        next(iter(DataLoader(loader, **workers, **options)))  # type: ignore[arg-type]
    if not workers:
        with pytest.raises(millrace.UnsupportedError, match="for batch in loader"):
            next(iter(DataLoader(loader, **options)))  # type: ignore[arg-type]
    assert sum(1 for _ in loader) == len(loader), "it is as good as before"


def test_a_loader_shows_what_it_is(tar: Samples) -> None:
    shown = repr(millrace.Loader(tar.uri, batch_size=8, seed=3, rank=1, world=2))
    assert (
        shown == f"<millrace.Loader {tar.uri}: 4 batches an epoch, batch_size=8, shuffle='window', seed=3, rank 1 of 2>"
    )


def test_configure_refuses_wrong_types_and_too_little() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"io_threads": "2"}, "io_threads must be an integer, not '2'"),
        ({"cpu_threads": 1.5}, "cpu_threads must be an integer"),
        ({"memory": 1.5}, "memory must be an integer"),
    ]
    for options, message in wrong:
        with pytest.raises(TypeError, match=message):
            millrace.configure(**options)
    with pytest.raises(millrace.InvalidArgumentError, match="memory is 1 B; no loader works with less than 2.0 MiB"):
        millrace.configure(memory=1)
    with pytest.raises(millrace.InvalidArgumentError, match="memory: 'lots' is not a size"):
        millrace.configure(memory="lots")


@pytest.mark.parametrize("options", [{"io_threads": 0}, {"cpu_threads": -1}, {"memory": "0.x"}])
def test_configure_checks_its_numbers(options: dict[str, Any]) -> None:
    with pytest.raises(millrace.InvalidArgumentError):
        millrace.configure(**options)


def test_of_several_images_the_error_names_the_option_that_chooses(tmp_path: pathlib.Path) -> None:
    with tarfile.open(tmp_path / "0.tar", "w") as shard:
        for name in ("0.png", "0.jpg", "0.cls"):
            body = b"1" if name.endswith("cls") else png(make_pixels(0))
            member = tarfile.TarInfo(name)
            member.size = len(body)
            shard.addfile(member, io.BytesIO(body))
    with pytest.raises(millrace.Error, match=r"several images; name the field .*fields=\{\"image\": millrace.Image"):
        next(iter(millrace.Loader(tmp_path, batch_size=1, size=8, output="numpy")))
