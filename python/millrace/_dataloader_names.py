"""Arguments of torch's ``DataLoader``: a Loader applies them, ignores them with a warning, or refuses them with a remedy.

Torch's data sets (subsets, concatenations) and samplers get a remedy, too.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import Any

from . import _arguments
from ._errors import InvalidArgumentError

_NO_EFFECT = {
    "num_workers": "it needs no worker processes",
    "persistent_workers": "it needs no worker processes",
    "prefetch_factor": "it reads ahead as far as memory= allows",
    "pin_memory": "device='cuda' pins the memory that it sends",
    "pin_memory_device": "device= names the device, and pins the memory that it sends",
    "in_order": "batches always come in order",
}
_SAMPLER = (
    "the order is made by shuffle= and seed=, and ranks by rank= and world=; a part of the data is dataset.where(...), "
    "weighted draws are dataset.weighted(...)"
)
_REFUSED = {
    "batch_sampler": "the order is made by shuffle= and seed=; weighted draws are dataset.weighted(...)",
    "generator": "the order is drawn from a number: write seed=, such as seed=generator.initial_seed()",
    "sampler": _SAMPLER,
    "timeout": "a store that is away is waited for as millrace.configure(outage_limit=) says",
    "worker_init_fn": "it needs no worker processes; a transform with a parameter rng gets a generator of each sample",
}
_SAMPLERS = {  # by the names of their classes
    "DistributedSampler": "leave it out, since a Loader finds rank and world of torch.distributed, and has set_epoch(); shuffle= and drop_last= are arguments of the Loader",
    "WeightedRandomSampler": "write millrace.Loader(dataset.weighted(weights, epoch_samples=num_samples, draws='independent'))",
    "SubsetRandomSampler": "write millrace.Loader(dataset.where(samples=dataset.samples[indices]), shuffle=True)",
    "SequentialSampler": "write shuffle=False",
    "RandomSampler": "write shuffle=True",
    "BatchSampler": "write batch_size=, shuffle= and drop_last= in its place",
}
_NO_ATTRIBUTE = {
    "sampler": "set_epoch() is a method of the Loader itself, and the samples of an epoch are len(loader.dataset); load_state_dict() skips what an "
    "earlier run has taken, in place of accelerate's skip_first_batches",
    "batch_sampler": "batch_size, drop_last and set_epoch() are those of the Loader itself",
}
_USUALLY_TRUE = ("in_order",)  # the others are None, False, 0 or ""

_told: set[str] = set()  # in this process


def check(given: Mapping[str, Any]) -> None:
    """Warns about or refuses the arguments that a Loader does not use, among those that are given. The defaults of DataLoader pass."""
    if given["batch_size"] is None:
        raise InvalidArgumentError(
            "batch_size is None, and a Loader delivers batches: batch_size=1 has one sample in each, and `for sample in loader.dataset` "
            "reads samples as they are stored"
        )
    for name in (*_NO_EFFECT, *_REFUSED):
        value = given[name]
        if (
            value is True
            if name in _USUALLY_TRUE
            else value is None or (isinstance(value, (int, float, str)) and not value)
        ):
            continue
        if name in _REFUSED:
            raise InvalidArgumentError(f"a millrace.Loader takes no {name}: {_remedy(name, value)}")
        if name not in _told:
            _told.add(name)
            message = f"{name} has no effect on a millrace.Loader: {_NO_EFFECT[name]}; leave it out"
            warnings.warn(message, UserWarning, stacklevel=3)


def _remedy(name: str, value: Any) -> str:
    """Returns the remedy for the class of a sampler, or for the argument."""
    own = [_SAMPLERS[kind.__name__] for kind in type(value).__mro__ if kind.__name__ in _SAMPLERS]
    return own[0] if own else _REFUSED[name]


def attribute(loader: Any, name: str) -> Any:
    """Returns the value of an argument, since arguments of a DataLoader are also its attributes. Raises AttributeError for other names."""
    if name in _NO_ATTRIBUTE:
        raise AttributeError(f"a millrace.Loader has no {name}: {_NO_ATTRIBUTE[name]}")
    if name not in (*_NO_EFFECT, *_REFUSED, "collate_fn", "multiprocessing_context"):
        object.__getattribute__(loader, name)  # raises Python's own error
    return object.__getattribute__(loader, "_given")[name]


def advice_of_data(data: Any) -> str:
    """Returns the remedy for the error that refuses one of torch's data sets. It is empty for all else."""
    if isinstance(data, (str, bytes)) or not (hasattr(data, "__getitem__") or hasattr(data, "__iter__")):
        return ""
    if hasattr(data, "indices") and hasattr(data, "dataset"):  # torch's Subset
        return (
            ". A part of a data set is dataset.where(samples=dataset.samples[subset.indices]), dataset[10:20], or for torch's random_split "
            "dataset.split(train=0.8, valid=0.2)"
        )
    if hasattr(data, "datasets") or (isinstance(data, (list, tuple)) and any(hasattr(one, "uri") for one in data)):
        return ". Several data sets are a list of their URIs, or millrace.Mix([one, other]), which draws from them by weights"
    if type(data).__module__.partition(".")[0] == "millrace":  # MapDataset, a Loader
        return ". Give it the URI or the Dataset that this one was made with"
    root = getattr(data, "root", None)
    shown = f", such as {os.fspath(root)!r}" if isinstance(root, (str, os.PathLike)) else ""
    return (
        f". A Loader reads files by itself: give it the folder, the bucket or the shards that this data set reads{shown}. "
        "Samples that a program computes stay with torch's DataLoader"
    )


def last_batch(last: str | None, drop_last: bool | None, keeps_shapes: bool) -> str:
    """Returns ``last``, or the value that ``drop_last`` means. None and False mean torch's short batch, if shapes may change."""
    if drop_last is not None and _arguments.flag("drop_last", drop_last):
        if last not in (None, "drop"):
            raise InvalidArgumentError(f"drop_last=True and last={last!r} say different things; leave one out")
        return "drop"
    if drop_last is not None and last == "drop":
        raise InvalidArgumentError("drop_last=False and last='drop' say different things; leave one out")
    usual = "pad" if keeps_shapes else "short"
    return _arguments.choice("last", usual if last is None else last, ("pad", "short", "drop", "wrap"))


def drops_all(last: str, tokens: Any, samples: int, step: int) -> bool:
    """Returns True, and warns, if no batch is left because the last one is dropped. The native loader refuses rows of tokens."""
    if last != "drop" or tokens is not None or not 0 < samples < step:
        return False
    message = f"a Loader without batches: an epoch has {samples} samples, a step of all ranks {step}, and the last step is dropped (drop_last)"
    warnings.warn(message, UserWarning, stacklevel=3)
    return True
