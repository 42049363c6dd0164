"""Programs whose samples have parts: views, targets in dicts, tuples with names. Also loops that repositories wrap around a loader."""

from __future__ import annotations

import millrace
import torch
from habits import group, habit, ours
from programs_losses import network
from structures import Prefetcher, from_thread, named, of_own_class, target, two_views
from torch.utils.data import DataLoader

group("Samples with parts")


@habit(
    "Two views of an image, for contrastive losses",
    same="both views of each batch, stacked; `torch.cat` takes them",
    data="dicts",
    cases=({"kind": list}, {"kind": tuple}),
)
def _(dataset, kind):
    loader = DataLoader([two_views(sample, kind) for sample in dataset], batch_size=8)
    return [(batch["views"], torch.cat(batch["views"], dim=0)) for batch in loader]


@ours()
def _(uri, kind):
    loader = millrace.Loader(
        uri, batch_size=8, size=16, shuffle=False, transform=lambda sample: two_views(sample, kind)
    )
    return [(batch["views"], torch.cat(batch["views"], dim=0)) for batch in loader]


@habit(
    "A target that is a dict with dicts", same="its arrays, numbers and texts, stacked each for itself", data="dicts"
)
def _(dataset):
    loader = DataLoader([target(sample) for sample in dataset], batch_size=8)
    return [batch["target"] for batch in loader]


@ours()
def _(uri):
    loader = millrace.Loader(uri, batch_size=8, size=16, shuffle=False, transform=target)
    return [batch["target"] for batch in loader]


@habit("A named tuple", same="its class and its parts", data="dicts")
def _(dataset):
    loader = DataLoader([named(sample) for sample in dataset], batch_size=8)
    return [(type(batch["pair"]).__name__, batch["pair"].number, batch["pair"].half) for batch in loader]


@ours()
def _(uri):
    loader = millrace.Loader(uri, batch_size=8, size=16, shuffle=False, transform=named)
    return [(type(batch["pair"]).__name__, batch["pair"].number, batch["pair"].half) for batch in loader]


@habit("Tensors of a class of their own, as of `transforms.v2.ToImage`", same="stacked images", data="dicts")
def _(dataset):
    loader = DataLoader([of_own_class(sample) for sample in dataset], batch_size=8)
    return [batch["image"].as_subclass(torch.Tensor) for batch in loader]


@ours()
def _(uri):
    loader = millrace.Loader(uri, batch_size=8, size=16, shuffle=False, transform=of_own_class)
    return [batch["image"].as_subclass(torch.Tensor) for batch in loader]


@habit(
    "Samples with different numbers of parts",
    same="an error at the batch",
    data="dicts",
    raises=RuntimeError,
)
def _(dataset):
    samples = [{"boxes": [torch.zeros(4)] * (1 + sample["label"] % 3)} for sample in dataset]
    for _batch in DataLoader(samples, batch_size=8):
        pass


@ours(match="collate_fn=")
def _(uri):
    def boxes(sample):
        return {"boxes": [torch.zeros(4)] * (1 + sample["label"] % 3)}

    for _batch in millrace.Loader(uri, batch_size=8, size=16, shuffle=False, transform=boxes):
        pass


group("Loops of repositories")


@habit("`torch.optim.swa_utils.update_bn(loader, model)`", same="running statistics", close=1e-4)
def _(dataset):
    net, loader = network(), DataLoader(dataset, batch_size=8)
    torch.optim.swa_utils.update_bn(loader, net)
    return net[1].running_mean, net[1].running_var


@ours()
def _(uri):
    net = network()
    loader = millrace.Loader(uri, batch_size=8, size=16, shuffle=False, as_tuple=("image", "label"))
    torch.optim.swa_utils.update_bn(loader, net)
    return net[1].running_mean, net[1].running_var


@habit("A prefetcher that holds the next batch, for two epochs", same="all batches")
def _(dataset):
    loader = DataLoader(dataset, batch_size=8)
    return [list(Prefetcher(loader)) for epoch in range(2)]


@ours()
def _(uri):
    loader = millrace.Loader(uri, batch_size=8, size=16, shuffle=False, as_tuple=("image", "label"))
    return [list(Prefetcher(loader)) for epoch in range(2)]


@habit("A thread that fills a queue, for two epochs", same="all batches")
def _(dataset):
    loader = DataLoader(dataset, batch_size=8)
    return [list(from_thread(loader)) for epoch in range(2)]


@ours()
def _(uri):
    loader = millrace.Loader(uri, batch_size=8, size=16, shuffle=False, as_tuple=("image", "label"))
    return [list(from_thread(loader)) for epoch in range(2)]


@habit("A loop within a loop, over one loader", same="all pairs of batches; we warn")
def _(dataset):
    loader = DataLoader(dataset, batch_size=16)
    return [[(one[0] - other[0]).item() for _, other in loader] for _, one in loader]


@ours(warns="iterator")
def _(uri):
    loader = millrace.Loader(uri, batch_size=16, size=16, shuffle=False, as_tuple=("image", "label"))
    return [[(one[0] - other[0]).item() for _, other in loader] for _, one in loader]
