"""Programs that look at a batch, and keep iterators."""

from __future__ import annotations

import itertools

import millrace
import torch
from habits import group, habit, ours
from torch.utils.data import DataLoader, default_collate

ALL = list(range(37))

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


@habit("`enumerate(loader, 1)`, and `itertools.islice`", same="steps and rows; the next loop has all samples")
def _(dataset):
    loader = DataLoader(dataset, batch_size=8, shuffle=True)
    steps = [(step, len(label)) for step, (image, label) in enumerate(itertools.islice(loader, 3), 1)]
    return steps, sorted(n for image, label in loader for n in label.tolist())


@ours()
def _(uri):
    loader = millrace.Loader(uri, batch_size=8, size=16, shuffle=True, as_tuple=("image", "label"))
    steps = [(step, len(label)) for step, (image, label) in enumerate(itertools.islice(loader, 3), 1)]
    return steps, sorted(n for image, label in loader for n in label.tolist())


@habit("A generator over the loader that is left early", same="rows; the next loop has all samples", result=[24, ALL])
def _(dataset):
    loader = DataLoader(dataset, batch_size=8, shuffle=True)

    def labels():
        for _image, label in loader:
            yield label

    rows = sum(len(label) for label, _step in zip(labels(), range(3)))
    return rows, sorted(n for image, label in loader for n in label.tolist())


@ours()
def _(uri):
    loader = millrace.Loader(uri, batch_size=8, size=16, shuffle=True, as_tuple=("image", "label"))

    def labels():
        for _image, label in loader:
            yield label

    rows = sum(len(label) for label, _step in zip(labels(), range(3)))
    return rows, sorted(n for image, label in loader for n in label.tolist())


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
