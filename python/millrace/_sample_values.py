"""This module has the values of fields as Python objects."""

from __future__ import annotations

import codecs
import io
from typing import Any

import numpy as np

from ._errors import DamagedDataError, UnsupportedError
from ._foreign_json import parse_json

_NPY_MAGIC = b"\x93NUMPY"

# This is the entry of a sample that holds its key, as in batches; and the entry of a field that has this name in the
# data.
KEY, FIELD_OF_THAT_NAME = "key", "key_field"
FORMER_KEY = "__key__"
RENAMED = "the key of a sample is its entry 'key', as in batches"


def to_python(name: str, kind: str, value: bytes) -> Any:
    """Returns a field's value. Raises ValueError if the bytes are not of that kind."""
    if kind == "ndarray":
        return _array(value)
    if kind == "int":
        return int(value)
    if kind == "float":
        return float(value)
    if kind == "text":
        return value.decode()
    if kind == "json":
        return parse_json(value)
    return _by_name(name.rpartition(".")[2].lower(), value)


def _by_name(extension: str, value: bytes) -> Any:
    """Returns the value of a file, whose type follows from its name. Bytes that do not match the name stay bytes."""
    try:
        if extension in ("txt", "text"):
            return value.decode()
        if extension == "cls":
            return int(value.removeprefix(codecs.BOM_UTF8))
        if extension == "json":
            return parse_json(value)
        if extension == "npy":
            return _array(value)
    except ValueError:
        pass
    return value


def _array(value: bytes) -> Any:
    if not value.startswith(_NPY_MAGIC):  # numpy would open an archive of arrays, or a pickle
        raise ValueError("it does not begin as an array of numpy does")
    try:
        return np.load(io.BytesIO(value), allow_pickle=False)
    except ValueError:
        raise
    except Exception as error:  # a head that claims more bytes than exist, or is not a dictionary of Python
        raise ValueError(str(error) or type(error).__name__) from None


def sample_of(uri: str, key: str, fields: list[tuple[str, str, bytes]]) -> dict[str, Any]:
    sample: dict[str, Any] = {KEY: key}
    for name, kind, value in fields:
        if name == KEY:
            if any(other == FIELD_OF_THAT_NAME for other, _, _ in fields):
                raise UnsupportedError(
                    f"{uri}: sample '{key}' has fields '{KEY}' and '{FIELD_OF_THAT_NAME}'; rename one"
                )
            name = FIELD_OF_THAT_NAME
        try:
            sample[name] = to_python(name, kind, value)
        except ValueError as error:  # the bytes of invalid json and text are returned unchanged
            raise DamagedDataError(f"{uri}: sample '{key}', field '{name}' is no {kind}: {error}") from None
    return sample


_OF_IMAGES = (
    "a transform gets a sample as a dict: write lambda sample: {**sample, 'image': function(sample['image'])}. "
    "Transforms of torchvision are image=millrace.Image(transforms=[...]), by their names in millrace.transforms"
)


def advice_of(error: BaseException) -> str:
    """Returns the remedy for an error of a transform: the new name of the key, or the way to call a function of images.

    It is empty for other errors.
    """
    if isinstance(error, KeyError) and error.args == (FORMER_KEY,):
        return f"; {RENAMED}"
    is_of_dict = isinstance(error, (TypeError, AttributeError)) and "dict" in str(error)
    return f"; {_OF_IMAGES}" if is_of_dict and "unhashable" not in str(error) else ""
