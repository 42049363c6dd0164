"""Programs that save and load states."""

from __future__ import annotations

import itertools

import millrace
from habits import group, habit, ours
from torchdata.stateful_dataloader import StatefulDataLoader

ALL = list(range(37))

group("States, as torchdata's `StatefulDataLoader` has them")


@habit(
    "A new loader continues in the middle of an epoch",
    same="the rest of the epoch, then a whole one",
    result=[ALL[16:], ALL],
)
def _(dataset):
    loader = StatefulDataLoader(dataset, batch_size=8)
    for step, _batch in enumerate(loader, 1):
        if step == 2:
            state = loader.state_dict()
            break
    loader = StatefulDataLoader(dataset, batch_size=8)
    loader.load_state_dict(state)
    return [[n for image, label in loader for n in label.tolist()] for epoch in range(2)]


@ours()
def _(uri):
    loader = millrace.Loader(uri, batch_size=8, size=16, shuffle=False, as_tuple=("image", "label"))
    for step, _batch in enumerate(loader, 1):
        if step == 2:
            state = loader.state_dict()
            break
    loader = millrace.Loader(uri, batch_size=8, size=16, shuffle=False, as_tuple=("image", "label"))
    loader.load_state_dict(state)
    return [[n for image, label in loader for n in label.tolist()] for epoch in range(2)]


@habit(
    "A shuffled epoch in two halves",
    same="before and after: each sample once",
    cases=tuple({"taken": taken} for taken in (0, 1, 3)),
    result=ALL,
)
def _(dataset, taken):
    loader = StatefulDataLoader(dataset, batch_size=8, shuffle=True)
    batches = iter(loader)
    seen = [n for image, label in itertools.islice(batches, taken) for n in label.tolist()]
    state = loader.state_dict()
    loader = StatefulDataLoader(dataset, batch_size=8, shuffle=True)
    loader.load_state_dict(state)
    return sorted(seen + [n for image, label in loader for n in label.tolist()])


@ours()
def _(uri, taken):
    loader = millrace.Loader(uri, batch_size=8, size=16, shuffle=True, as_tuple=("image", "label"))
    batches = iter(loader)
    seen = [n for image, label in itertools.islice(batches, taken) for n in label.tolist()]
    state = loader.state_dict()
    loader = millrace.Loader(uri, batch_size=8, size=16, shuffle=True, as_tuple=("image", "label"))
    loader.load_state_dict(state)
    return sorted(seen + [n for image, label in loader for n in label.tolist()])


@habit("The state at the end of an epoch", same="the next loop is a whole epoch", result=[ALL, ALL])
def _(dataset):
    loader = StatefulDataLoader(dataset, batch_size=8)
    seen = [n for image, label in loader for n in label.tolist()]
    state = loader.state_dict()
    loader = StatefulDataLoader(dataset, batch_size=8)
    loader.load_state_dict(state)
    return seen, [n for image, label in loader for n in label.tolist()]


@ours()
def _(uri):
    loader = millrace.Loader(uri, batch_size=8, size=16, shuffle=False, as_tuple=("image", "label"))
    seen = [n for image, label in loader for n in label.tolist()]
    state = loader.state_dict()
    loader = millrace.Loader(uri, batch_size=8, size=16, shuffle=False, as_tuple=("image", "label"))
    loader.load_state_dict(state)
    return seen, [n for image, label in loader for n in label.tolist()]


@habit("`iterator.state_dict()`", same="the rest of the epoch", result=ALL[24:])
def _(dataset):
    batches = iter(StatefulDataLoader(dataset, batch_size=8))
    for _step in range(3):
        next(batches)
    loader = StatefulDataLoader(dataset, batch_size=8)
    loader.load_state_dict(batches.state_dict())
    return [n for image, label in loader for n in label.tolist()]


@ours()
def _(uri):
    batches = iter(millrace.Loader(uri, batch_size=8, size=16, shuffle=False, as_tuple=("image", "label")))
    for _step in range(3):
        next(batches)
    loader = millrace.Loader(uri, batch_size=8, size=16, shuffle=False, as_tuple=("image", "label"))
    loader.load_state_dict(batches.state_dict())
    return [n for image, label in loader for n in label.tolist()]


@habit("Save, look at a batch, and continue", same="the state is of the loop: the rest of the epoch", result=ALL[16:])
def _(dataset):
    loader = StatefulDataLoader(dataset, batch_size=8)
    batches = iter(loader)
    next(batches), next(batches)
    state = batches.state_dict()
    next(iter(StatefulDataLoader(dataset, batch_size=8)))
    loader = StatefulDataLoader(dataset, batch_size=8)
    loader.load_state_dict(state)
    return [n for image, label in loader for n in label.tolist()]


@ours()
def _(uri):
    loader = millrace.Loader(uri, batch_size=8, size=16, shuffle=False, as_tuple=("image", "label"))
    batches = iter(loader)
    next(batches), next(batches)
    next(iter(loader))  # also of the same loader: its state is that of the iterator that has delivered most
    state = loader.state_dict()
    loader = millrace.Loader(uri, batch_size=8, size=16, shuffle=False, as_tuple=("image", "label"))
    loader.load_state_dict(state)
    return [n for image, label in loader for n in label.tolist()]


@habit("Load a state into the loader that is in use", same="the rest from that place", result=[ALL[8:], ALL])
def _(dataset):
    loader = StatefulDataLoader(dataset, batch_size=8)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    next(batches), next(batches)
    loader.load_state_dict(state)
    return [[n for image, label in loader for n in label.tolist()] for epoch in range(2)]


@ours()
def _(uri):
    loader = millrace.Loader(uri, batch_size=8, size=16, shuffle=False, as_tuple=("image", "label"))
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    next(batches), next(batches)
    loader.load_state_dict(state)
    return [[n for image, label in loader for n in label.tolist()] for epoch in range(2)]
