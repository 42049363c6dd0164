"""Programs that compute something from batches: statistics of BatchNorm, losses, metrics, also of padded ones."""

from __future__ import annotations

import millrace
import torch
import torch.nn.functional as F
from habits import group, habit, ours
from torch import nn
from torch.utils.data import DataLoader


def network() -> nn.Module:
    """A small one with BatchNorm, always the same."""
    torch.manual_seed(1)
    layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)]
    return nn.Sequential(*layers)


def linear(outputs: int = 3) -> nn.Module:
    """Without statistics: each row is by itself."""
    torch.manual_seed(1)
    return nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, outputs))


def segmenter() -> nn.Module:
    torch.manual_seed(1)
    return nn.Conv2d(3, 3, 3, padding=1)


group("BatchNorm and the last batch")


@habit(
    "Train a net with BatchNorm",
    same="running mean and variance, and the loss of each batch",
    cases=({"batch_size": 8}, {"batch_size": 36}, {"batch_size": 64}),
    close=1e-4,
)
def _(dataset, batch_size):
    net, criterion = network(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for _epoch in range(2):
        for image, label in DataLoader(dataset, batch_size=batch_size):
            loss = criterion(net(image), label % 3)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses, net[1].running_mean, net[1].running_var, net[1].num_batches_tracked


@ours()
def _(uri, batch_size):
    net, criterion = network(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for _epoch in range(2):
        for image, label in millrace.Loader(
            uri, batch_size=batch_size, size=16, shuffle=False, as_tuple=("image", "label")
        ):
            loss = criterion(net(image), label % 3)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses, net[1].running_mean, net[1].running_var, net[1].num_batches_tracked


@habit("Validate a net with BatchNorm after training", same="validation loss and accuracy", close=1e-4)
def _(dataset):
    train = DataLoader(dataset, batch_size=9)  # the last batch is one sample, which moves the statistics most
    valid = DataLoader(dataset, batch_size=16)
    net, criterion = network(), nn.CrossEntropyLoss(reduction="sum")
    for image, _label in train:
        net(image)
    net.eval()
    loss, right = 0.0, 0
    with torch.no_grad():
        for image, label in valid:
            logits = net(image)
            loss += criterion(logits, label % 3).item()
            right += (logits.argmax(1) == label % 3).sum().item()
    return loss / len(valid.dataset), right / len(valid.dataset)


@ours()
def _(uri):
    train = millrace.Loader(uri, batch_size=9, size=16, shuffle=False, as_tuple=("image", "label"))
    valid = millrace.Loader(uri, batch_size=16, size=16, shuffle=False, as_tuple=("image", "label"))
    net, criterion = network(), nn.CrossEntropyLoss(reduction="sum")
    for image, _label in train:
        net(image)
    net.eval()
    loss, right = 0.0, 0
    with torch.no_grad():
        for image, label in valid:
            logits = net(image)
            loss += criterion(logits, label % 3).item()
            right += (logits.argmax(1) == label % 3).sum().item()
    return loss / len(valid.dataset), right / len(valid.dataset)


group("Metrics of an evaluation")


@habit(
    "A running mean, weighted by the rows of batches",
    same="mean loss over samples",
    cases=({"batch_size": 8}, {"batch_size": 64}),
    close=1e-5,
)
def _(dataset, batch_size):
    net, criterion, total, count = linear(), nn.CrossEntropyLoss(), 0.0, 0
    for image, label in DataLoader(dataset, batch_size=batch_size):
        total += criterion(net(image), label % 3).item() * image.size(0)
        count += image.size(0)
    return total / count, count


@ours()
def _(uri, batch_size):
    net, criterion, total, count = linear(), nn.CrossEntropyLoss(), 0.0, 0
    for image, label in millrace.Loader(
        uri, batch_size=batch_size, size=16, shuffle=False, as_tuple=("image", "label")
    ):
        total += criterion(net(image), label % 3).item() * image.size(0)
        count += image.size(0)
    return total / count, count


@habit("The mean of the batches' means, by `len(loader)`", same="that mean", close=1e-5)
def _(dataset):
    net, loader = linear(), DataLoader(dataset, batch_size=8)
    return sum((net(image).argmax(1) == label % 3).float().mean().item() for image, label in loader) / len(loader)


@ours()
def _(uri):
    net, loader = linear(), millrace.Loader(uri, batch_size=8, size=16, shuffle=False, as_tuple=("image", "label"))
    return sum((net(image).argmax(1) == label % 3).float().mean().item() for image, label in loader) / len(loader)


class Accuracy:
    """As torchmetrics' classes are used: update() for each batch, then compute()."""

    def __init__(self) -> None:
        self.right, self.total = torch.tensor(0), torch.tensor(0)

    def update(self, logits: torch.Tensor, target: torch.Tensor) -> None:
        self.right += (logits.argmax(1) == target).sum()
        self.total += target.numel()

    def compute(self) -> torch.Tensor:
        return self.right.float() / self.total


@habit("A metric with `update()` and `compute()`", same="accuracy of two validations")
def _(dataset):
    net, valid, found = linear(), DataLoader(dataset, batch_size=8), []
    for _epoch in range(2):
        metric = Accuracy()
        for image, label in valid:
            metric.update(net(image), label % 3)
        found.append(metric.compute())
    return found


@ours()
def _(uri):
    valid = millrace.Loader(uri, batch_size=8, size=16, shuffle=False, as_tuple=("image", "label"))
    net, found = linear(), []
    for _epoch in range(2):
        metric = Accuracy()
        for image, label in valid:
            metric.update(net(image), label % 3)
        found.append(metric.compute())
    return found


@habit("A confusion matrix by `torch.bincount`", same="the matrix, which refuses negative labels")
def _(dataset):
    net, matrix = linear(), torch.zeros(3, 3, dtype=torch.int64)
    for image, label in DataLoader(dataset, batch_size=8):
        matrix += torch.bincount(label % 3 * 3 + net(image).argmax(1), minlength=9).reshape(3, 3)
    return matrix


@ours()
def _(uri):
    net, matrix = linear(), torch.zeros(3, 3, dtype=torch.int64)
    for image, label in millrace.Loader(uri, batch_size=8, size=16, shuffle=False, as_tuple=("image", "label")):
        matrix += torch.bincount(label % 3 * 3 + net(image).argmax(1), minlength=9).reshape(3, 3)
    return matrix


@habit("Predictions of a whole data set", same="rows and values", close=1e-5)
def _(dataset):
    net = linear().eval()
    with torch.inference_mode():
        return torch.cat([net(image).softmax(1) for image, label in DataLoader(dataset, batch_size=16)])


@ours()
def _(uri):
    net = linear().eval()
    loader = millrace.Loader(uri, batch_size=16, size=16, shuffle=False, as_tuple=("image", "label"))
    with torch.inference_mode():
        return torch.cat([net(image).softmax(1) for image, label in loader])


@habit("Regression on floats", same="targets (float32) and mean absolute error", data="scores", close=1e-5)
def _(dataset):
    net, total, targets = linear(1), 0.0, []
    for image, score in DataLoader(dataset, batch_size=8):
        total += (net(image).squeeze(1) - score).abs().sum().item()
        targets.append(score)
    return torch.cat(targets), total / sum(map(len, targets))


@ours()
def _(uri):
    fields = {"image": millrace.Image("png", size=16), "score": millrace.Label("score", "float")}
    net, total, targets = linear(1), 0.0, []
    for image, score in millrace.Loader(uri, batch_size=8, shuffle=False, fields=fields, as_tuple=("image", "score")):
        total += (net(image).squeeze(1) - score).abs().sum().item()
        targets.append(score)
    return torch.cat(targets), total / sum(map(len, targets))


group('Fixed shapes, `last="pad"`: padding does not count')


@habit(
    "`CrossEntropyLoss()`, whose `ignore_index` is -100",
    same="loss of each batch: labels of padding are -100",
    close=1e-5,
)
def _(dataset):
    net, criterion = linear(), nn.CrossEntropyLoss()
    return [
        criterion(net(image), label).item() for image, label in map(three_classes, DataLoader(dataset, batch_size=8))
    ]


@ours()
def _(uri):
    net, criterion = linear(), nn.CrossEntropyLoss()
    loader = millrace.Loader(uri, batch_size=8, size=16, shuffle=False, last="pad", as_tuple=("image", "label"))
    return [criterion(net(image), label).item() for image, label in map(three_classes, loader)]


def three_classes(batch):
    image, label = batch
    return image, torch.where(label < 0, label, label % 3)


@habit("Masks with `ignore_index=255`", same="loss of each batch: masks of padding are 255", data="masks", close=1e-5)
def _(dataset):
    net, criterion = segmenter(), nn.CrossEntropyLoss(ignore_index=255)
    return [criterion(net(image), mask.long()).item() for image, mask in DataLoader(dataset, batch_size=8)]


@ours()
def _(uri):
    fields = {
        "image": millrace.Image("png", size=16),
        "mask": millrace.Image("mask.png", like="image", interpolation="nearest"),
    }
    loader = millrace.Loader(uri, batch_size=8, shuffle=False, last="pad", fields=fields, as_tuple=("image", "mask"))
    net, criterion = segmenter(), nn.CrossEntropyLoss(ignore_index=255)
    return [criterion(net(image), mask.long()).item() for image, mask in loader]


@habit("Masks of a short batch", same="masks and their type", data="masks")
def _(dataset):
    return [mask for image, mask in DataLoader(dataset, batch_size=8)]


@ours()
def _(uri):
    fields = {
        "image": millrace.Image("png", size=16),
        "mask": millrace.Image("mask.png", like="image", interpolation="nearest"),
    }
    loader = millrace.Loader(uri, batch_size=8, shuffle=False, fields=fields, as_tuple=("image", "mask"))
    return [mask for image, mask in loader]


@habit("`nanmean` over float targets", same="loss of each batch: targets of padding are NaN", data="scores", close=1e-5)
def _(dataset):
    net = linear(1)
    return [
        ((net(image).squeeze(1) - score) ** 2).nanmean().item() for image, score in DataLoader(dataset, batch_size=8)
    ]


@ours()
def _(uri):
    fields = {"image": millrace.Image("png", size=16), "score": millrace.Label("score", "float")}
    net, loader = (
        linear(1),
        millrace.Loader(uri, batch_size=8, shuffle=False, last="pad", fields=fields, as_tuple=("image", "score")),
    )
    return [((net(image).squeeze(1) - score) ** 2).nanmean().item() for image, score in loader]


@habit("`F.pad` of labels", same="labels of the last batch", cases=tuple({"value": value} for value in (-100, -1, 7)))
def _(dataset, value):
    *_, (_, label) = DataLoader(dataset, batch_size=8)
    return F.pad(label, (0, 8 - len(label)), value=value)


@ours()
def _(uri, value):
    fields = {"image": millrace.Image(size=16), "label": millrace.Label(pad=value)}
    *_, batch = millrace.Loader(uri, batch_size=8, shuffle=False, last="pad", fields=fields)
    return batch["label"]


@habit("`F.pad` of masks", same="masks of the last batch", data="masks", cases=({"value": 255}, {"value": 0}))
def _(dataset, value):
    *_, (_, mask) = DataLoader(dataset, batch_size=8)
    return F.pad(mask, (0, 0, 0, 0, 0, 8 - len(mask)), value=value)


@ours()
def _(uri, value):
    fields = {
        "image": millrace.Image("png", size=16),
        "mask": millrace.Image("mask.png", like="image", interpolation="nearest", pad=value),
    }
    *_, batch = millrace.Loader(uri, batch_size=8, shuffle=False, last="pad", fields=fields)
    return batch["mask"]


@habit("Targets that a transform makes", same="targets of the last batch: -100 is padding", data="dicts")
def _(dataset):
    def add_target(sample):
        sample["target"] = sample["label"] // 2
        return sample

    *_, last = DataLoader([add_target(sample) for sample in dataset], batch_size=8)
    return F.pad(last["target"], (0, 8 - len(last["target"])), value=-100)


@ours()
def _(uri):
    def add_target(sample):
        sample["target"] = int(sample["label"]) // 2
        return sample

    *_, last = millrace.Loader(uri, batch_size=8, size=16, shuffle=False, last="pad", transform=add_target)
    return last["target"]


@habit(
    "`nanmean` over float targets that a transform makes",
    same="loss of each batch: targets of padding are NaN",
    data="dicts",
    close=1e-5,
)
def _(dataset):
    def add_target(sample):
        sample["target"] = sample["label"] / 2
        return sample

    net, loader = linear(1), DataLoader([add_target(sample) for sample in dataset], batch_size=8)
    return [((net(batch["image"]).squeeze(1) - batch["target"]) ** 2).nanmean().item() for batch in loader]


@ours()
def _(uri):
    def add_target(sample):
        sample["target"] = int(sample["label"]) / 2
        return sample

    net = linear(1)
    loader = millrace.Loader(uri, batch_size=8, size=16, shuffle=False, last="pad", transform=add_target)
    return [((net(batch["image"]).squeeze(1) - batch["target"]) ** 2).nanmean().item() for batch in loader]
