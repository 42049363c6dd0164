"""The border between absl::Status and exceptions, and what users see of it."""

from __future__ import annotations

import builtins
import io
import pathlib
import pickle
import tarfile
from typing import Any

import millrace
import pytest
from millrace import _core, errors
from support import AT_SIZE, Samples, make_pixels, png, write_raw


def test_the_table_is_complete() -> None:
    assert len(_core.STATUS_CODES) == 16
    assert set(errors.BY_CODE) == set(_core.STATUS_CODES)


@pytest.mark.parametrize("code", sorted(errors.BY_CODE))
def test_each_code_has_an_error_that_is_also_a_builtin_one(code: str) -> None:
    kind = errors.BY_CODE[code]
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
    assert issubclass(errors.BY_CODE[code], builtin)


def test_all_errors_are_exported() -> None:
    assert set(errors.__all__) == {
        name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)
    }
    assert set(errors.__all__) <= set(millrace.__all__)


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
    assert "cat/0003" in bad["reason"] and bad["replacement"] in keys and bad["epoch"] == 0


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
        ({"batch_size": 0}, "batch"),
        ({"batch_size": -1}, "batch_size is -1"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**64}, "seed is 18446744073709551616"),
        ({"epochs": 0}, "epochs is 0"),
        ({"size": 0}, "pixels"),
        ({"size": (10, -1)}, "pixels"),
        ({"channels": 2}, "channels"),
        ({"dtype": "f16"}, "dtype is 'f16'; choose one of 'u8', 'f32'"),
        ({"layout": "hw"}, "layout is 'hw'; choose one of 'nhwc', 'nchw'"),
        ({"mean": 0.5}, "mean and std apply to dtype='f32'"),
        ({"dtype": "f32", "mean": (0.5, 0.5)}, "mean has 2 numbers for 3 channels"),
        ({"dtype": "f32", "std": (1, 1, 0)}, "deviation"),
        ({"augment": True, "crop_scale": (0.5, 0.1)}, "crop scale"),
        ({"augment": True, "flip": 1.5}, "flip"),
        ({"shuffle": "random"}, "random"),
        ({"last": "keep"}, "keep"),
        ({"bad_samples": "skip"}, "bad_samples is 'skip'"),
        ({"digest": "md5"}, "digest is 'md5'"),
        ({"memory": "lots"}, "lots"),
        ({"memory": -5}, "-5"),
        ({"rank": 3, "world": 3}, "rank 3"),
        ({"rank": 0}, "rank and world belong together"),
        ({"output": "jax"}, "output is 'jax'"),
        ({"image_field": "jpg"}, "no field 'jpg'; its fields are: cls, json, png, txt"),
        ({"label_field": "caption"}, "no field 'caption'"),
        ({"label_kind": "text"}, "label_field"),
        ({"label_field": "cls", "label_kind": "float"}, "float"),
        ({"batch_size": 51, "last": "drop"}, "51 samples"),
    ],
)
def test_options_that_make_no_sense(tar: Samples, options: dict[str, Any], message: str) -> None:
    with pytest.raises(millrace.InvalidArgumentError, match=message) as error:
        millrace.Loader(tar.uri, **options)
    assert isinstance(error.value, ValueError)


@pytest.mark.parametrize("options", [{"io_threads": 0}, {"cpu_threads": -1}, {"memory": "0.x"}])
def test_configure_checks_its_numbers(options: dict[str, Any]) -> None:
    with pytest.raises(millrace.InvalidArgumentError):
        millrace.configure(**options)
