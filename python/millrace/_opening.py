"""The settings with which a data set is opened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Callable, NamedTuple

from . import _arguments, _core
from ._errors import InvalidArgumentError
from ._labels import Native
from ._ranks import share_of_work

if TYPE_CHECKING:
    from ._dataset import Dataset


class Opening(NamedTuple):
    """The settings with which a data set is opened, except its labels. Empty ones mean the defaults, or the environment."""

    path_column: str = ""
    label_column: str = ""
    csv_quotes: bool | None = None
    endpoint: str = ""
    profile: str = ""
    region: str = ""
    classes: tuple[str, ...] = ()  # the order in which they are numbered; (): the order of their names
    index_use: str = "build"


def class_order(classes: Sequence[str] | Dataset | None) -> tuple[str, ...]:
    from ._dataset import Dataset

    wanted = "names of classes, or the Dataset that has them"
    if classes is None:
        return ()
    if isinstance(classes, Dataset):
        if not classes.classes:
            raise InvalidArgumentError(f"classes: those of {classes.uri} are numbers, or there are none")
        return tuple(classes.classes)
    if isinstance(classes, str) or not isinstance(classes, Sequence) or not classes:
        _arguments.refuse("classes", wanted, classes)
    return tuple(_arguments.texts("classes", classes, wanted))


def native_of(
    uri: str, opening: Opening, labels: Native | None, progress: Callable[[int, int], object] | None = None
) -> _core.Dataset:
    chosen = opening._asdict()
    index = chosen.pop("index_use")  # a field of a tuple cannot be called index
    chosen["classes"] = list(opening.classes)
    part, parts = share_of_work()
    return _core.Dataset(uri, progress, labels=labels, index=index, part=part, parts=parts, **chosen)
