"""Loops over a loader: the last batch, epochs, iterators, and states."""

from __future__ import annotations

import itertools

import millrace
import torch
from habits import group, habit, ours
from torch.utils.data import DataLoader, Subset, default_collate
from torchdata.stateful_dataloader import StatefulDataLoader

ALL = list(range(37))

group("The last batch")


@habit(
    "The last batch is short",
    same="rows of each batch",
    cases=tuple({"batch_size": size} for size in (1, 8, 37, 64)),
)
def _(dataset, batch_size):
    loader = DataLoader(dataset, batch_size=batch_size)
    return len(loader), [len(label) for image, label in loader]


@ours()
def _(uri, batch_size):
    loader = millrace.Loader(uri, batch_size=batch_size, size=16, shuffle=False, as_tuple=("image", "label"))
    return len(loader), [len(label) for image, label in loader]


@habit(
    "`drop_last=True`",
    same="rows of each batch",
    cases=tuple({"batch_size": size} for size in (8, 37, 38)),
)
def _(dataset, batch_size):
    loader = DataLoader(dataset, batch_size=batch_size, drop_last=True)
    return len(loader), [len(label) for image, label in loader]


@ours()
def _(uri, batch_size):
    loader = millrace.Loader(
        uri, batch_size=batch_size, drop_last=True, size=16, shuffle=False, as_tuple=("image", "label")
    )
    return len(loader), [len(label) for image, label in loader]


@habit("One sample is left for the last batch", same="shapes and labels of the last batch")
def _(dataset):
    loader = DataLoader(Subset(dataset, range(33)), batch_size=8)
    *_, (image, label) = loader
    return image.shape, label


@ours()
def _(uri):
    loader = millrace.Loader(
        millrace.Dataset(uri)[:33], batch_size=8, size=16, shuffle=False, as_tuple=("image", "label")
    )
    *_, (image, label) = loader
    return image.shape, label


@habit("Divide by `len(loader.dataset)`", same="a mean over all samples", result=18.0)
def _(dataset):
    loader = DataLoader(dataset, batch_size=8)
    return sum(label.sum().item() for image, label in loader) / len(loader.dataset)


@ours()
def _(uri):
    loader = millrace.Loader(uri, batch_size=8, size=16, shuffle=False, as_tuple=("image", "label"))
    return sum(label.sum().item() for image, label in loader) / len(loader.dataset)


group("Epochs")


@habit("Each loop is an epoch", same="the samples of three epochs", result=[ALL, ALL, ALL])
def _(dataset):
    loader = DataLoader(dataset, batch_size=8, shuffle=True)
    return [sorted(n for image, label in loader for n in label.tolist()) for epoch in range(3)]


@ours()
def _(uri):
    loader = millrace.Loader(uri, batch_size=8, size=16, shuffle=True, as_tuple=("image", "label"))
    return [sorted(n for image, label in loader for n in label.tolist()) for epoch in range(3)]


@habit(
    "Each epoch has another order",
    same="first order, second order: different",
    result=True,
    cases=({"batch_size": 8}, {"batch_size": 37}, {"batch_size": 64}),  # also if an epoch is a single batch
)
def _(dataset, batch_size):
    loader = DataLoader(dataset, batch_size=batch_size, shuffle=True)
    first, second = ([n for image, label in loader for n in label.tolist()] for epoch in range(2))
    return first != second


@ours()
def _(uri, batch_size):
    loader = millrace.Loader(uri, batch_size=batch_size, size=16, shuffle=True, as_tuple=("image", "label"))
    first, second = ([n for image, label in loader for n in label.tolist()] for epoch in range(2))
    return first != second


@habit("The same seed gives the same order", same="two runs: equal, epoch by epoch", result=True)
def _(dataset):
    runs = []
    for _run in range(2):
        loader = DataLoader(dataset, batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(3))
        runs.append([[n for image, label in loader for n in label.tolist()] for epoch in range(2)])
    return runs[0] == runs[1]


@ours()
def _(uri):
    runs = []
    for _run in range(2):
        loader = millrace.Loader(uri, batch_size=8, size=16, shuffle=True, seed=3, as_tuple=("image", "label"))
        runs.append([[n for image, label in loader for n in label.tolist()] for epoch in range(2)])
    return runs[0] == runs[1]


@habit("`break`, and the next loop (shuffled)", same="the next loop has all samples", result=[ALL, ALL])
def _(dataset):
    loader = DataLoader(dataset, batch_size=8, shuffle=True)
    epochs = []
    for _epoch in range(2):
        for step, _batch in enumerate(loader):
            if step == 2:
                break
        epochs.append(sorted(n for image, label in loader for n in label.tolist()))
    return epochs


@ours()
def _(uri):
    loader = millrace.Loader(uri, batch_size=8, size=16, shuffle=True, as_tuple=("image", "label"))
    epochs = []
    for _epoch in range(2):
        for step, _batch in enumerate(loader):
            if step == 2:
                break
        epochs.append(sorted(n for image, label in loader for n in label.tolist()))
    return epochs


@habit("`break`, and the next loop (in order)", same="the next loop begins at the first sample", result=[17, ALL])
def _(dataset):
    loader = DataLoader(dataset, batch_size=8)
    for _image, label in loader:
        if 17 in label:
            break
    return [17, [n for image, label in loader for n in label.tolist()]]


@ours()
def _(uri):
    loader = millrace.Loader(uri, batch_size=8, size=16, shuffle=False, as_tuple=("image", "label"))
    for _image, label in loader:
        if 17 in label:
            break
    return [17, [n for image, label in loader for n in label.tolist()]]


@habit("One validation loader for all epochs", same="samples of each validation", result=[[37, 37]] * 3)
def _(dataset):
    train = DataLoader(dataset, batch_size=8, shuffle=True)
    valid = DataLoader(dataset, batch_size=16)
    counts = []
    for _epoch in range(3):
        trained = sum(len(label) for image, label in train)
        counts.append([trained, sum(len(label) for image, label in valid)])
    return counts


@ours()
def _(uri):
    train = millrace.Loader(uri, batch_size=8, size=16, shuffle=True, as_tuple=("image", "label"))
    valid = millrace.Loader(uri, batch_size=16, size=16, shuffle=False, as_tuple=("image", "label"))
    counts = []
    for _epoch in range(3):
        trained = sum(len(label) for image, label in train)
        counts.append([trained, sum(len(label) for image, label in valid)])
    return counts


@habit(
    "Validate in the middle of an epoch", same="training and validation each have all samples", result=[ALL, [37, 37]]
)
def _(dataset):
    train = DataLoader(dataset, batch_size=8, shuffle=True)
    valid = DataLoader(dataset, batch_size=16)
    seen, validated = [], []
    for step, (_image, label) in enumerate(train):
        seen += label.tolist()
        if step % 2 == 1:
            validated.append(sum(len(label) for image, label in valid))
    return sorted(seen), validated


@ours()
def _(uri):
    train = millrace.Loader(uri, batch_size=8, size=16, shuffle=True, as_tuple=("image", "label"))
    valid = millrace.Loader(uri, batch_size=16, size=16, shuffle=False, as_tuple=("image", "label"))
    seen, validated = [], []
    for step, (_image, label) in enumerate(train):
        seen += label.tolist()
        if step % 2 == 1:
            validated.append(sum(len(label) for image, label in valid))
    return sorted(seen), validated


@habit("Validate on the first batches only", same="the same samples each time", result=[ALL[:16]] * 3)
def _(dataset):
    valid = DataLoader(dataset, batch_size=8)
    return [[n for image, label in itertools.islice(valid, 2) for n in label.tolist()] for epoch in range(3)]


@ours()
def _(uri):
    valid = millrace.Loader(uri, batch_size=8, size=16, shuffle=False, as_tuple=("image", "label"))
    return [[n for image, label in itertools.islice(valid, 2) for n in label.tolist()] for epoch in range(3)]


@habit(
    "More loops than planned: torch has it in schedules",
    same="an error when all that was planned is used up, which names the parameter",
    raises=(ValueError, millrace.Error),
)
def _(dataset):
    loader = DataLoader(dataset, batch_size=8, shuffle=True)
    optimizer = torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, epochs=2, steps_per_epoch=len(loader))
    for _epoch in range(3):
        for _image, _label in loader:
            optimizer.step()
            schedule.step()


@ours(match="epochs=")
def _(uri):
    loader = millrace.Loader(uri, batch_size=8, size=16, shuffle=True, epochs=2, as_tuple=("image", "label"))
    for _epoch in range(3):
        for _image, _label in loader:
            pass


group("Looking at a batch")


@habit("`next(iter(loader))` before the loop", same="the loop has all samples", result=[8, ALL, ALL])
def _(dataset):
    loader = DataLoader(dataset, batch_size=8, shuffle=True)
    image, _ = next(iter(loader))
    return [len(image), *(sorted(n for image, label in loader for n in label.tolist()) for epoch in range(2))]


@ours()
def _(uri):
    loader = millrace.Loader(uri, batch_size=8, size=16, shuffle=True, as_tuple=("image", "label"))
    image, _ = next(iter(loader))
    return [len(image), *(sorted(n for image, label in loader for n in label.tolist()) for epoch in range(2))]


@habit("`next(iter(loader))` thrice", same="first batches; the loop has all samples", result=[[0, 0, 0], ALL])
def _(dataset):
    loader = DataLoader(dataset, batch_size=8)
    first = [next(iter(loader))[1][0].item() for _ in range(3)]
    return first, [n for image, label in loader for n in label.tolist()]


@ours()
def _(uri):
    loader = millrace.Loader(uri, batch_size=8, size=16, shuffle=False, as_tuple=("image", "label"))
    first = [next(iter(loader))[1][0].item() for _ in range(3)]
    return first, [n for image, label in loader for n in label.tolist()]


@habit(
    "`next(iter(loader))` in the middle of a loop",
    same="that loop and the next one have all samples",
    result=[ALL, ALL],
)
def _(dataset):
    loader = DataLoader(dataset, batch_size=8, shuffle=True)
    seen = []
    for step, (_image, label) in enumerate(loader):
        if step == 2:
            next(iter(loader))
        seen += label.tolist()
    return sorted(seen), sorted(n for image, label in loader for n in label.tolist())


@ours()
def _(uri):
    loader = millrace.Loader(uri, batch_size=8, size=16, shuffle=True, as_tuple=("image", "label"))
    seen = []
    for step, (_image, label) in enumerate(loader):
        if step == 2:
            next(iter(loader))
        seen += label.tolist()
    return sorted(seen), sorted(n for image, label in loader for n in label.tolist())


@habit("A loop over one batch, to overfit it", same="a batch in each loop; then all samples", result=[[8] * 3, ALL])
def _(dataset):
    loader = DataLoader(dataset, batch_size=8, shuffle=True)
    rows = []
    for _try in range(3):
        for _image, label in loader:
            rows.append(len(label))
            break
    return rows, sorted(n for image, label in loader for n in label.tolist())


@ours()
def _(uri):
    loader = millrace.Loader(uri, batch_size=8, size=16, shuffle=True, as_tuple=("image", "label"))
    rows = []
    for _try in range(3):
        for _image, label in loader:
            rows.append(len(label))
            break
    return rows, sorted(n for image, label in loader for n in label.tolist())


group("Iterators")


@habit("`iter()` again at `StopIteration`", same="rows of twelve steps", result=[8, 8, 8, 8, 5] * 2 + [8, 8])
def _(dataset):
    loader = DataLoader(dataset, batch_size=8, shuffle=True)
    batches, rows = iter(loader), []
    for _step in range(12):
        try:
            _, label = next(batches)
        except StopIteration:
            batches = iter(loader)
            _, label = next(batches)
        rows.append(len(label))
    return rows


@ours()
def _(uri):
    loader = millrace.Loader(uri, batch_size=8, size=16, shuffle=True, as_tuple=("image", "label"))
    batches, rows = iter(loader), []
    for _step in range(12):
        try:
            _, label = next(batches)
        except StopIteration:
            batches = iter(loader)
            _, label = next(batches)
        rows.append(len(label))
    return rows


@habit("Ask an iterator beyond its end", same="`StopIteration` again and again", result=["the end", "the end"])
def _(dataset):
    batches = iter(DataLoader(dataset, batch_size=8))
    for _batch in batches:
        pass
    return next(batches, "the end"), next(batches, "the end")


@ours()
def _(uri):
    batches = iter(millrace.Loader(uri, batch_size=8, size=16, shuffle=False))
    for _batch in batches:
        pass
    return next(batches, "the end"), next(batches, "the end")


@habit("Keep the iterator to continue after `break`", same="what was left", result=[2, ALL[16:]])
def _(dataset):
    batches = iter(DataLoader(dataset, batch_size=8))
    for step, _batch in enumerate(batches, 1):
        if step == 2:
            break
    return step, [n for image, label in batches for n in label.tolist()]


@ours()
def _(uri):
    batches = iter(millrace.Loader(uri, batch_size=8, size=16, shuffle=False, as_tuple=("image", "label")))
    for step, _batch in enumerate(batches, 1):
        if step == 2:
            break
    return step, [n for image, label in batches for n in label.tolist()]


@habit("`itertools.cycle(loader)`", same="rows of twelve steps", result=[8, 8, 8, 8, 5] * 2 + [8, 8])
def _(dataset):
    endless = itertools.cycle(DataLoader(dataset, batch_size=8, shuffle=True))
    return [len(label) for image, label in itertools.islice(endless, 12)]


@ours()
def _(uri):
    endless = itertools.cycle(millrace.Loader(uri, batch_size=8, size=16, as_tuple=("image", "label")))
    return [len(label) for image, label in itertools.islice(endless, 12)]


@habit(
    "`zip` of two loaders",
    same="pairs of rows; each loader is whole afterwards",
    result=[[(8, 16), (8, 16), (8, 5)], 37, 37],
)
def _(dataset):
    one = DataLoader(dataset, batch_size=8, shuffle=True)
    other = DataLoader(dataset, batch_size=16, shuffle=True)
    pairs = [(len(a), len(b)) for (_, a), (_, b) in zip(one, other)]
    return pairs, *(sum(len(label) for image, label in loader) for loader in (one, other))


@ours()
def _(uri):
    one = millrace.Loader(uri, batch_size=8, size=16, shuffle=True, as_tuple=("image", "label"))
    other = millrace.Loader(uri, batch_size=16, size=16, shuffle=True, as_tuple=("image", "label"))
    pairs = [(len(a), len(b)) for (_, a), (_, b) in zip(one, other)]
    return pairs, *(sum(len(label) for image, label in loader) for loader in (one, other))


@habit("`zip(loader, loader)`: two iterators at a time", same="both have all samples; we warn", result=[ALL, ALL])
def _(dataset):
    loader = DataLoader(dataset, batch_size=8)
    pairs = list(zip(loader, loader))
    return [[n for pair in pairs for n in pair[side][1].tolist()] for side in range(2)]


@ours(warns="iterator")
def _(uri):
    loader = millrace.Loader(uri, batch_size=8, size=16, shuffle=False, as_tuple=("image", "label"))
    pairs = list(zip(loader, loader))
    return [[n for pair in pairs for n in pair[side][1].tolist()] for side in range(2)]


@habit(
    "Gradients of four batches at a time, by `len(loader)`",
    same="steps at which the optimizer steps",
    result=[4, 5, 9, 10],
)
def _(dataset):
    loader = DataLoader(dataset, batch_size=8, shuffle=True)
    updates = []
    for epoch in range(2):
        for step, _batch in enumerate(loader, 1):
            if step % 4 == 0 or step == len(loader):
                updates.append(epoch * len(loader) + step)
    return updates


@ours()
def _(uri):
    loader = millrace.Loader(uri, batch_size=8, size=16, shuffle=True)
    updates = []
    for epoch in range(2):
        for step, _batch in enumerate(loader, 1):
            if step % 4 == 0 or step == len(loader):
                updates.append(epoch * len(loader) + step)
    return updates


@habit("Keep all batches, then `torch.cat`", same="all images and labels")
def _(dataset):
    images, labels = zip(*DataLoader(dataset, batch_size=8))
    return torch.cat(images), torch.cat(labels)


@ours()
def _(uri):
    images, labels = zip(*millrace.Loader(uri, batch_size=8, size=16, shuffle=False, as_tuple=("image", "label")))
    return torch.cat(images), torch.cat(labels)


@habit("Change a batch in place", same="the next loop has the samples as they were")
def _(dataset):
    loader = DataLoader(dataset, batch_size=8)
    for image, label in loader:
        image.mul_(0)
        label.fill_(-1)
    return [(image, label) for image, label in loader]


@ours()
def _(uri):
    loader = millrace.Loader(uri, batch_size=8, size=16, shuffle=False, as_tuple=("image", "label"))
    for image, label in loader:
        image.mul_(0)
        label.fill_(-1)
    return [(image, label) for image, label in loader]


@habit("A loop after an error", same="what was raised; the loop after it has all samples", result=["a bad batch", 37])
def _(dataset):
    bad = [False, True] + [False] * 100

    def collate(samples):
        if bad.pop(0):
            raise ValueError("a bad batch")
        return default_collate(samples)

    loader = DataLoader(dataset, batch_size=8, collate_fn=collate)
    said = ""
    try:
        for _batch in loader:
            pass
    except ValueError as error:
        said = str(error)
    return said, sum(len(image) for image, label in loader)


@ours()
def _(uri):
    bad = [False, True] + [False] * 100

    def collate(samples):
        if bad.pop(0):
            raise ValueError("a bad batch")
        return default_collate(samples)

    loader = millrace.Loader(uri, batch_size=8, size=16, shuffle=False, collate_fn=collate)
    start, said = loader.state_dict(), ""
    try:
        for _batch in loader:
            pass
    except millrace.TransformError as error:
        said = str(error.__cause__)
        loader.load_state_dict(start)
    return said, sum(len(batch["image"]) for batch in loader)


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
