"""Several ranks: what DistributedSampler does. Here the ranks take turns, or are two processes."""

from __future__ import annotations

import millrace
import torch
from habits import group, habit, ours
from programs_losses import linear, network
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, Subset

ALL = list(range(37))

group("Ranks, as `DistributedSampler` divides samples")


@habit(
    "Each rank validates its part",
    same="samples of each batch of each rank; first samples come again until all ranks have equally many",
    cases=(
        {"world": 2, "batch_size": 8},
        {"world": 4, "batch_size": 8},
        {"world": 8, "batch_size": 4},
        {"world": 3, "batch_size": 64},
    ),
)
def _(dataset, world, batch_size):
    ranks = []
    for rank in range(world):
        sampler = DistributedSampler(dataset, num_replicas=world, rank=rank, shuffle=False)
        loader = DataLoader(dataset, batch_size=batch_size, sampler=sampler)
        ranks.append((len(loader), [label.tolist() for image, label in loader]))
    return ranks


@ours()
def _(uri, world, batch_size):
    ranks = []
    for rank in range(world):
        loader = millrace.Loader(
            uri, batch_size=batch_size, size=16, shuffle=False, rank=rank, world=world, as_tuple=("image", "label")
        )
        ranks.append((len(loader), [label.tolist() for image, label in loader]))
    return ranks


@habit(
    "More ranks than samples",
    same="samples of each rank",
    data="few",
    cases=({"world": 5, "batch_size": 4}, {"world": 2, "batch_size": 1}, {"world": 8, "batch_size": 2}),
)
def _(dataset, world, batch_size):
    ranks = []
    for rank in range(world):
        sampler = DistributedSampler(dataset, num_replicas=world, rank=rank, shuffle=False)
        ranks.append([label.tolist() for image, label in DataLoader(dataset, batch_size=batch_size, sampler=sampler)])
    return ranks


@ours()
def _(uri, world, batch_size):
    ranks = []
    for rank in range(world):
        loader = millrace.Loader(
            uri, batch_size=batch_size, size=16, shuffle=False, rank=rank, world=world, as_tuple=("image", "label")
        )
        ranks.append([label.tolist() for image, label in loader])
    return ranks


@habit(
    "All ranks together, shuffled, with `set_epoch`",
    same="rows of each rank's batches; all samples, and one of them twice, in each epoch",
    result=[[[8, 8, 3], [8, 8, 3]], ALL, 38] * 2,
)
def _(dataset):
    samplers = [DistributedSampler(dataset, num_replicas=2, rank=rank, shuffle=True) for rank in range(2)]
    loaders = [DataLoader(dataset, batch_size=8, sampler=sampler) for sampler in samplers]
    found = []
    for epoch in range(2):
        for sampler in samplers:
            sampler.set_epoch(epoch)
        ranks = [[label.tolist() for image, label in loader] for loader in loaders]
        seen = [n for batches in ranks for batch in batches for n in batch]
        found += [[len(batch) for batch in batches] for batches in ranks], sorted(set(seen)), len(seen)
    return found


@ours()
def _(uri):
    options = dict(batch_size=8, size=16, shuffle=True, world=2, as_tuple=("image", "label"))
    loaders = [millrace.Loader(uri, rank=rank, **options) for rank in range(2)]
    found = []
    for epoch in range(2):
        for loader in loaders:
            loader.set_epoch(epoch)
        ranks = [[label.tolist() for image, label in loader] for loader in loaders]
        seen = [n for batches in ranks for batch in batches for n in batch]
        found += [[len(batch) for batch in batches] for batches in ranks], sorted(set(seen)), len(seen)
    return found


@habit(
    "`set_epoch(e)` again", same="the order of that epoch again; another epoch has another one", result=[True, False]
)
def _(dataset):
    sampler = DistributedSampler(dataset, num_replicas=2, rank=1, shuffle=True)
    loader, orders = DataLoader(dataset, batch_size=8, sampler=sampler), []
    for epoch in (2, 5, 2):
        sampler.set_epoch(epoch)
        orders.append([n for image, label in loader for n in label.tolist()])
    return orders[0] == orders[2], orders[0] == orders[1]


@ours()
def _(uri):
    loader = millrace.Loader(uri, batch_size=8, size=16, shuffle=True, rank=1, world=2, as_tuple=("image", "label"))
    orders = []
    for epoch in (2, 5, 2):
        loader.set_epoch(epoch)
        orders.append([n for image, label in loader for n in label.tolist()])
    return orders[0] == orders[2], orders[0] == orders[1]


@habit("`set_epoch(e)` after `break`", same="that epoch, whole: all ranks together have all samples", result=[ALL, ALL])
def _(dataset):
    samplers = [DistributedSampler(dataset, num_replicas=2, rank=rank, shuffle=True) for rank in range(2)]
    loaders = [DataLoader(dataset, batch_size=8, sampler=sampler) for sampler in samplers]
    epochs = []
    for epoch in range(2):
        seen = []
        for sampler, loader in zip(samplers, loaders):
            sampler.set_epoch(2 * epoch)
            for step, _batch in enumerate(loader):
                if step == 1:
                    break
            sampler.set_epoch(2 * epoch + 1)
            seen += [n for image, label in loader for n in label.tolist()]
        epochs.append(sorted(set(seen)))
    return epochs


@ours()
def _(uri):
    options = dict(batch_size=8, size=16, shuffle=True, world=2, as_tuple=("image", "label"))
    loaders = [millrace.Loader(uri, rank=rank, **options) for rank in range(2)]
    epochs = []
    for epoch in range(2):
        seen = []
        for loader in loaders:
            loader.set_epoch(2 * epoch)
            for step, _batch in enumerate(loader):
                if step == 1:
                    break
            loader.set_epoch(2 * epoch + 1)
            seen += [n for image, label in loader for n in label.tolist()]
        epochs.append(sorted(set(seen)))
    return epochs


@habit("`drop_last=True` on each rank", same="rows of each batch: all ranks have full batches", result=[[8, 8], [8, 8]])
def _(dataset):
    samplers = [DistributedSampler(dataset, num_replicas=2, rank=rank, shuffle=True) for rank in range(2)]
    loaders = [DataLoader(dataset, batch_size=8, sampler=sampler, drop_last=True) for sampler in samplers]
    return [[len(label) for image, label in loader] for loader in loaders]


@ours()
def _(uri):
    options = dict(batch_size=8, size=16, shuffle=True, world=2, drop_last=True, as_tuple=("image", "label"))
    loaders = [millrace.Loader(uri, rank=rank, **options) for rank in range(2)]
    return [[len(label) for image, label in loader] for loader in loaders]


@habit(
    "Only rank 0 looks at a batch",
    same="all ranks together have all samples of both epochs",
    cases=({"when": "before"}, {"when": "in the middle"}, {"when": "between epochs"}),
    result=[ALL, ALL],
)
def _(dataset, when):
    samplers = [DistributedSampler(dataset, num_replicas=2, rank=rank, shuffle=True) for rank in range(2)]
    loaders = [DataLoader(dataset, batch_size=8, sampler=sampler) for sampler in samplers]
    if when == "before":
        next(iter(loaders[0]))
    epochs = []
    for epoch in range(2):
        seen = []
        for rank, loader in enumerate(loaders):
            samplers[rank].set_epoch(epoch)
            for step, (_image, label) in enumerate(loader):
                if when == "in the middle" and rank == 0 and step == 1:
                    next(iter(loader))
                seen += label.tolist()
        if when == "between epochs":
            next(iter(loaders[0]))
        epochs.append(sorted(set(seen)))
    return epochs


@ours()
def _(uri, when):
    options = dict(batch_size=8, size=16, shuffle=True, world=2, as_tuple=("image", "label"))
    loaders = [millrace.Loader(uri, rank=rank, **options) for rank in range(2)]
    if when == "before":
        next(iter(loaders[0]))
    epochs = []
    for _epoch in range(2):
        seen = []
        for rank, loader in enumerate(loaders):
            for step, (_image, label) in enumerate(loader):
                if when == "in the middle" and rank == 0 and step == 1:
                    next(iter(loader))
                seen += label.tolist()
        if when == "between epochs":
            next(iter(loaders[0]))
        epochs.append(sorted(set(seen)))
    return epochs


@habit("Train with BatchNorm on two ranks", same="running statistics of each rank", close=1e-4)
def _(dataset):
    statistics = []
    for rank in range(2):
        sampler = DistributedSampler(dataset, num_replicas=2, rank=rank, shuffle=False)
        net = network()
        for image, _label in DataLoader(dataset, batch_size=8, sampler=sampler):
            net(image)
        statistics.append((net[1].running_mean, net[1].running_var))
    return statistics


@ours()
def _(uri):
    statistics = []
    for rank in range(2):
        loader = millrace.Loader(
            uri, batch_size=8, size=16, shuffle=False, rank=rank, world=2, as_tuple=("image", "label")
        )
        net = network()
        for image, _label in loader:
            net(image)
        statistics.append((net[1].running_mean, net[1].running_var))
    return statistics


@habit("One sample is left for two ranks", same="losses of each rank: no NaN", close=1e-5)
def _(dataset):
    net, criterion, losses = linear(), nn.CrossEntropyLoss(), []
    for rank in range(2):
        sampler = DistributedSampler(Subset(dataset, range(33)), num_replicas=2, rank=rank, shuffle=False)
        for image, label in DataLoader(dataset, batch_size=16, sampler=sampler):
            losses.append(criterion(net(image), label % 3).item())
    assert not any(loss != loss for loss in losses)
    return losses


@ours()
def _(uri):
    net, criterion, losses = linear(), nn.CrossEntropyLoss(), []
    for rank in range(2):
        for image, label in millrace.Loader(
            millrace.Dataset(uri)[:33],
            batch_size=16,
            size=16,
            shuffle=False,
            rank=rank,
            world=2,
            as_tuple=("image", "label"),
        ):
            losses.append(criterion(net(image), label % 3).item())
    assert not any(loss != loss for loss in losses)
    return losses


@habit("Accuracy of one process, from two ranks", same="each sample counts once: `valid` is False for what comes again")
def _(dataset):
    net, right, total = linear(), 0, 0
    for image, label in DataLoader(dataset, batch_size=8):
        right += (net(image).argmax(1) == label % 3).sum().item()
        total += len(label)
    return right, total


@ours()
def _(uri):
    net, right, total = linear(), 0, 0
    for rank in range(2):
        for batch in millrace.Loader(uri, batch_size=8, size=16, shuffle=False, rank=rank, world=2):
            valid = batch["valid"]
            right += (net(batch["image"]).argmax(1) == batch["label"] % 3)[valid].sum().item()
            total += valid.sum().item()
    return right, total


@habit(
    "Two processes with `torch.distributed`",
    same="rank and world are found: sums of labels, rows and steps over both ranks",
    processes=2,
    result=[666.0, 38.0, 6.0],
)
def _(dataset):
    loader = DataLoader(dataset, batch_size=8, sampler=DistributedSampler(dataset, shuffle=False))
    sums = torch.zeros(3)
    for _image, label in loader:
        sums += torch.tensor([label.sum(), len(label), 1])
    torch.distributed.all_reduce(sums)
    return sums.tolist()


@ours()
def _(uri):
    loader = millrace.Loader(uri, batch_size=8, size=16, shuffle=False, as_tuple=("image", "label"))
    sums = torch.zeros(3)
    for _image, label in loader:
        sums += torch.tensor([label.sum(), len(label), 1])
    torch.distributed.all_reduce(sums)
    return sums.tolist()
