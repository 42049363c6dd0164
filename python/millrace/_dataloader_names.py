"""Arguments of torch's ``DataLoader``: a Loader applies them, ignores them with a warning, or refuses them with a remedy."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from . import _arguments
from ._errors import InvalidArgumentError

_NO_EFFECT = {
    "num_workers": "it needs no worker processes",
    "persistent_workers": "it needs no worker processes",
    "prefetch_factor": "it reads ahead as far as memory= allows",
    "pin_memory": "device='cuda' pins what it sends",
    "pin_memory_device": "device= says where batches go, and pins what it sends",
    "in_order": "batches always come in order",
}
_REFUSED = {
    "batch_sampler": "the order is made by shuffle= and seed=; weighted draws are dataset.weighted(...)",
    "generator": "the order is drawn from a number: write seed=, such as seed=generator.initial_seed()",
    "sampler": "the order is made by shuffle= and seed=, and ranks by rank= and world=; a part of the data is dataset.where(...), "
    "weighted draws are dataset.weighted(...)",
    "timeout": "a store that is away is waited for as millrace.configure(outage_limit=) says",
    "worker_init_fn": "it needs no worker processes; a transform with a parameter rng gets a generator of each sample",
}
_USUALLY_TRUE = ("in_order",)  # the others are None, False, 0 or ""

_told: set[str] = set()  # in this process


def check(given: Mapping[str, Any]) -> None:
    """Warns about or refuses the arguments that a Loader does not use, among those that are given. The defaults of DataLoader pass."""
    for name in (*_NO_EFFECT, *_REFUSED):
        value = given[name]
        if (
            value is True
            if name in _USUALLY_TRUE
            else value is None or (isinstance(value, (int, float, str)) and not value)
        ):
            continue
        if name in _REFUSED:
            raise InvalidArgumentError(f"a millrace.Loader takes no {name}: {_REFUSED[name]}")
        if name not in _told:
            _told.add(name)
            message = f"{name} has no effect on a millrace.Loader: {_NO_EFFECT[name]}; leave it out"
            warnings.warn(message, UserWarning, stacklevel=3)


def last_batch(last: str | None, drop_last: bool | None, keeps_shapes: bool) -> str:
    """``last``, or what ``drop_last`` says of it. None and False are torch's short batch, if shapes may change."""
    if drop_last is not None and _arguments.flag("drop_last", drop_last):
        if last not in (None, "drop"):
            raise InvalidArgumentError(f"drop_last=True and last={last!r} say different things; leave one out")
        return "drop"
    if drop_last is not None and last == "drop":
        raise InvalidArgumentError("drop_last=False and last='drop' say different things; leave one out")
    usual = "pad" if keeps_shapes else "short"
    return _arguments.choice("last", usual if last is None else last, ("pad", "short", "drop", "wrap"))


def drops_all(last: str, tokens: Any, samples: int, step: int) -> bool:
    """True if no batch is left because the last one is dropped; warns of it. The native loader refuses rows of tokens."""
    if last != "drop" or tokens is not None or not 0 < samples < step:
        return False
    message = f"a Loader without batches: an epoch has {samples} samples, a step of all ranks {step}, and the last step is dropped (drop_last)"
    warnings.warn(message, UserWarning, stacklevel=3)
    return True
