"""This module has the choice of a Loader: to begin with some of the shards, or when all of them are indexed."""

from __future__ import annotations

import sys
from typing import Any, Literal, Union

from . import _arguments, _core
from ._dataloader_names import advice_of_data
from ._dataset import Dataset
from ._errors import InvalidArgumentError
from ._mix import Mix
from ._opening import Opening
from ._progress_line import ProgressLine
from ._ranks import share_of_work

Start = Union[Literal["staged", "indexed"], None]


def option_for_whole(data: Any, tokens: Any, workers: Any) -> str | None:
    """Returns the option that needs the whole index. None: there is none."""
    if isinstance(data, Mix):
        return "a Mix"
    options = {"tokens": tokens is not None, "workers": workers is not None}
    if isinstance(data, Dataset):
        opening, native = data._opening, data._native
        options["a subset"] = len(native) < native.indexed
        options["labels of the Dataset"] = native.labels is not None
        options["classes of the Dataset"] = bool(opening.classes)
        options["the columns of a manifest"] = opening._replace(**_OF_SHARDS) != Opening()
        options["index='require' of the Dataset"] = opening.index_use == "require"
    return next((name for name, is_given in options.items() if is_given), None)


_OF_SHARDS: dict[str, Any] = {"endpoint": "", "profile": "", "region": "", "classes": (), "index_use": "build"}


def staged_data(data: Any, start: Start, whole: str | None) -> _core.StagedDataset | None:
    """Returns the shards of a Loader whose first epoch is staged. None: it begins when all are indexed.

    ``whole``: the option that needs the whole index. An index that exists makes no difference.
    """
    if start is not None:
        _arguments.choice("start", start, ("staged", "indexed"))
    if start != "staged":
        return None
    if whole is not None:
        raise InvalidArgumentError(
            f"{whole}: the whole index must be known, and start='staged' begins before it is; use start='indexed'"
        )
    return _open(data)


def _open(data: Any) -> _core.StagedDataset:
    opening = data._opening if isinstance(data, Dataset) else Opening()
    uri = data.uri if isinstance(data, Dataset) else _uri(data)
    line = ProgressLine(f"the first stage of {uri}") if sys.stderr.isatty() else None
    progress = None if line is None else lambda done, total: line.update(done, total)
    part, parts = share_of_work()
    return _core.StagedDataset(
        uri,
        progress,
        endpoint=opening.endpoint,
        profile=opening.profile,
        region=opening.region,
        index=opening.index_use,
        part=part,
        parts=parts,
    )


def _uri(data: Any) -> str:
    try:
        return _arguments.uri_of_data("data", data, "a Dataset, a Mix or a URI")
    except TypeError as error:
        raise TypeError(f"{error}{advice_of_data(data)}") from None


def opened_data(data: Any) -> Dataset | Mix:
    return data if isinstance(data, (Dataset, Mix)) else Dataset(_uri(data))
