"""Programs of loops: the last batch, and epochs."""

from __future__ import annotations

import itertools

import millrace
import torch
from habits import group, habit, ours
from torch.utils.data import DataLoader, Subset

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
