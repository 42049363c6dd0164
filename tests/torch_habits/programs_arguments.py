"""Programs about arguments of DataLoader, about batches, and about what loaders and data sets are made with."""

from __future__ import annotations

import io

import millrace
import numpy as np
import torch
from habits import group, habit, ours
from PIL import Image
from samples import pixels, to_tensor
from shout import Shout, shout
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
    default_collate,
    random_split,
)

ALL = list(range(37))

group("Arguments of `DataLoader`")


def initialise(worker):
    pass


def parts(size):
    """Numbers of samples, batch by batch."""
    return [range(start, min(start + size, 37)) for start in range(0, 37, size)]


def decode(data):
    return to_tensor(np.array(Image.open(io.BytesIO(data))))


@habit(
    "Workers and pinned memory",
    same="all batches; these arguments have no effect here",
    cases=tuple(
        {"options": options}
        for options in (
            {"num_workers": 2},
            {"num_workers": 0, "pin_memory": True},
        )
    ),
)
def _(dataset, options):
    return list(DataLoader(dataset, batch_size=8, **options))


@ours()
def _(uri, options):
    return list(millrace.Loader(uri, batch_size=8, size=16, shuffle=False, as_tuple=("image", "label"), **options))


@habit(
    "Arguments for workers",
    same="all batches, or an error that names the argument",
    cases=tuple(
        {"name": name, "value": value}
        for name, value in {
            "prefetch_factor": 4,
            "persistent_workers": True,
            "worker_init_fn": initialise,
            "timeout": 600,
            "multiprocessing_context": "fork",
        }.items()
    ),
)
def _(dataset, name, value):
    return list(DataLoader(dataset, batch_size=8, num_workers=1, **{name: value}))


@ours(or_explains="prefetch_factor|persistent_workers|worker_init_fn|timeout|multiprocessing_context")
def _(uri, name, value):
    return list(
        millrace.Loader(
            uri, batch_size=8, num_workers=1, size=16, shuffle=False, as_tuple=("image", "label"), **{name: value}
        )
    )


@habit("`collate_fn=default_collate`", same="images and labels of each batch", data="dicts")
def _(dataset):
    loader = DataLoader(dataset, batch_size=8, collate_fn=default_collate)
    return [(batch["image"], batch["label"], batch["key"]) for batch in loader]


@ours()
def _(uri):
    loader = millrace.Loader(uri, batch_size=8, size=16, shuffle=False, collate_fn=default_collate)
    return [(batch["image"], batch["label"], batch["key"]) for batch in loader]


@habit("A `collate_fn` of your own", same="what it returns", data="dicts")
def _(dataset):
    def collate(samples):
        return torch.stack([sample["image"] for sample in samples]), [f"photo {sample['label']}" for sample in samples]

    return list(DataLoader(dataset, batch_size=8, collate_fn=collate))


@ours()
def _(uri):
    def collate(samples):
        return torch.stack([sample["image"] for sample in samples]), [f"photo {sample['label']}" for sample in samples]

    return list(millrace.Loader(uri, batch_size=8, size=16, shuffle=False, collate_fn=collate))


@habit("`sampler=SubsetRandomSampler(numbers)`", same="those samples, in each epoch", result=[[2, 3, 5, 7, 11, 13]] * 2)
def _(dataset):
    numbers = [2, 3, 5, 7, 11, 13]
    loader = DataLoader(dataset, batch_size=4, sampler=SubsetRandomSampler(numbers))
    return [sorted(n for image, label in loader for n in label.tolist()) for epoch in range(2)]


@ours()
def _(uri):
    numbers = [2, 3, 5, 7, 11, 13]
    part = millrace.Dataset(uri).where(samples=numbers)
    loader = millrace.Loader(part, batch_size=4, size=16, shuffle=True, as_tuple=("image", "label"))
    return [sorted(n for image, label in loader for n in label.tolist()) for epoch in range(2)]


def all_by_number(dataset):
    return SubsetRandomSampler(range(len(dataset)))


def all_by_weight(dataset):
    return WeightedRandomSampler([1.0] * len(dataset), len(dataset), replacement=False)


def all_ranks(dataset):
    return DistributedSampler(dataset, num_replicas=1, rank=0)


@habit(
    "`sampler=` as it is",
    same="the samples, or an error that says what to write in its place",
    cases=tuple({"make": make} for make in (RandomSampler, SequentialSampler, all_by_number, all_by_weight, all_ranks)),
    result=ALL,
)
def _(dataset, make):
    loader = DataLoader(dataset, batch_size=8, sampler=make(dataset))
    return sorted(n for image, label in loader for n in label.tolist())


@ours(or_explains="(?s)sampler.*(shuffle|where|rank|weighted)")
def _(uri, dataset, make):
    loader = millrace.Loader(uri, batch_size=8, sampler=make(dataset), size=16, as_tuple=("image", "label"))
    return sorted(n for image, label in loader for n in label.tolist())


@habit(
    "`batch_sampler=` as it is",
    same="the batches, or an error that says what to write in its place",
    result=[8, 8, 8, 8, 5],
)
def _(dataset):
    batches = BatchSampler(SequentialSampler(dataset), batch_size=8, drop_last=False)
    return [len(label) for image, label in DataLoader(dataset, batch_sampler=batches)]


@ours(or_explains="batch_sampler.*batch_size=, shuffle= and drop_last=")
def _(uri, dataset):
    batches = BatchSampler(SequentialSampler(dataset), batch_size=8, drop_last=False)
    loader = millrace.Loader(uri, batch_sampler=batches, size=16, as_tuple=("image", "label"))
    return [len(label) for image, label in loader]


@habit("`WeightedRandomSampler(weights, n)`", same="only samples whose weight is not 0, as many as were asked for")
def _(dataset):
    weights = [float(number % 2) for number in range(37)]
    loader = DataLoader(dataset, batch_size=8, sampler=WeightedRandomSampler(weights, 20))
    labels = [n for image, label in loader for n in label.tolist()]
    return len(labels), {n % 2 for n in labels} == {1}


@ours()
def _(uri):
    weights = [float(number % 2) for number in range(37)]
    drawn = millrace.Dataset(uri).weighted(weights, epoch_samples=20, draws="independent")
    loader = millrace.Loader(drawn, batch_size=8, size=16, as_tuple=("image", "label"))
    labels = [n for image, label in loader for n in label.tolist()]
    return len(labels), {n % 2 for n in labels} == {1}


@habit("Batch size and shuffle without names", same="rows, and all samples", result=[[8, 8, 8, 8, 5], ALL])
def _(dataset):
    labels = [label for image, label in DataLoader(dataset, 8, True)]
    return [len(label) for label in labels], sorted(torch.cat(labels).tolist())


@ours()
def _(uri):
    labels = [label for image, label in millrace.Loader(uri, 8, True, size=16, as_tuple=("image", "label"))]
    return [len(label) for label in labels], sorted(torch.cat(labels).tolist())


@habit("Ask the loader for its arguments", same="what it was given", result=[8, False, 0, False, 0, None, 37, 5, 5])
def _(dataset):
    loader = DataLoader(dataset, batch_size=8)
    arguments = [loader.batch_size, loader.drop_last, loader.num_workers, loader.pin_memory, loader.timeout]
    return [*arguments, loader.generator, len(loader.dataset), len(loader), len(iter(loader))]


@ours()
def _(uri):
    loader = millrace.Loader(uri, batch_size=8, size=16)
    arguments = [loader.batch_size, loader.drop_last, loader.num_workers, loader.pin_memory, loader.timeout]
    return [*arguments, loader.generator, len(loader.dataset), len(loader), len(iter(loader))]


@habit("`generator=` of a seed", same="two runs have one order, or an error that names `seed=`", result=True)
def _(dataset):
    runs = []
    for _run in range(2):
        loader = DataLoader(dataset, batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(3))
        runs.append([n for image, label in loader for n in label.tolist()])
    return runs[0] == runs[1]


@ours(or_explains="(?s)generator.*seed")
def _(uri):
    runs = []
    for _run in range(2):
        loader = millrace.Loader(
            uri,
            batch_size=8,
            size=16,
            shuffle=True,
            generator=torch.Generator().manual_seed(3),
            as_tuple=("image", "label"),
        )
        runs.append([n for image, label in loader for n in label.tolist()])
    return runs[0] == runs[1]


@habit("A batch size that makes no sense", same="`ValueError`", raises=ValueError, cases=({"size": 0}, {"size": -4}))
def _(dataset, size):
    DataLoader(dataset, batch_size=size)


@ours(match="batch_size")
def _(uri, size):
    millrace.Loader(uri, batch_size=size, size=16)


@habit("An argument that is misspelt", same="`TypeError`, which names it", raises=TypeError)
def _(dataset):
    DataLoader(dataset, batchsize=8)


@ours(match="batchsize")
def _(uri):
    millrace.Loader(uri, batchsize=8)


@habit("`Subset(dataset, range(10, 20))`", same="those samples", result=list(range(10, 20)))
def _(dataset):
    loader = DataLoader(Subset(dataset, range(10, 20)), batch_size=4)
    return [n for image, label in loader for n in label.tolist()]


@ours()
def _(uri):
    loader = millrace.Loader(
        millrace.Dataset(uri)[10:20], batch_size=4, size=16, shuffle=False, as_tuple=("image", "label")
    )
    return [n for image, label in loader for n in label.tolist()]


@habit(
    "A part that `Subset` or `random_split` has made",
    same="its samples, or an error that says what to write in its place",
    result=20,
    cases=tuple(
        {"part": part}
        for part in (lambda dataset: Subset(dataset, range(20)), lambda dataset: random_split(dataset, [20, 17])[0])
    ),
)
def _(dataset, part):
    return sum(len(label) for image, label in DataLoader(part(dataset), batch_size=8))


@ours(or_explains=r"dataset\.where\(samples=.*dataset\.split\(train=")
def _(uri, part):
    loader = millrace.Loader(part(millrace.Dataset(uri)), batch_size=8, size=16, as_tuple=("image", "label"))
    return sum(len(label) for image, label in loader)


@habit("`random_split` by numbers of samples", same="sizes; the parts have no sample in common", result=[20, 17, 0])
def _(dataset):
    train, valid = random_split(dataset, [20, 17])
    one, other = ({n for image, label in DataLoader(part, 8) for n in label.tolist()} for part in (train, valid))
    return len(one), len(other), len(one & other)


@ours()
def _(uri):
    train, valid = millrace.Dataset(uri).split(train=20, valid=17).values()
    options = {"size": 16, "as_tuple": ("image", "label")}
    one, other = (
        {n for image, label in millrace.Loader(part, 8, **options) for n in label.tolist()} for part in (train, valid)
    )
    return len(one), len(other), len(one & other)


@habit("`ConcatDataset`", same="rows and samples of both", data="few", result=[[4, 2], [0, 0, 1, 1, 2, 2]])
def _(dataset):
    loader = DataLoader(ConcatDataset([dataset, dataset]), batch_size=4, shuffle=True)
    labels = [label for image, label in loader]
    return [len(label) for label in labels], sorted(torch.cat(labels).tolist())


@ours()
def _(uri, copy):
    loader = millrace.Loader([uri, copy], batch_size=4, size=16, shuffle=True, as_tuple=("image", "label"))
    labels = [label for image, label in loader]
    return [len(label) for label in labels], sorted(torch.cat(labels).tolist())


@habit("Keep `DataLoader`, and read through `MapDataset`", same="all batches", data="dicts")
def _(dataset):
    loader = DataLoader(dataset, batch_size=8)
    return [(batch["image"], batch["label"]) for batch in loader]


@ours()
def _(uri):
    dataset = millrace.torch.MapDataset(uri, fields={"image": ("png", decode), "label": ("cls", int)})
    loader = DataLoader(dataset, batch_size=8)
    return [(batch["image"], batch["label"]) for batch in loader]


group("Batches")


@habit("`for images, labels in loader`", same="types, shapes and values: float32, NCHW, 0 to 1; int64")
def _(dataset):
    return [[images, labels] for images, labels in DataLoader(dataset, batch_size=8)]


@ours()
def _(uri):
    loader = millrace.Loader(uri, batch_size=8, size=16, shuffle=False, as_tuple=("image", "label"))
    return [[images, labels] for images, labels in loader]


@habit("A batch is a dict", same="its images, labels and keys", data="dicts")
def _(dataset):
    loader = DataLoader(dataset, batch_size=8)
    return [{name: batch[name] for name in ("image", "label", "key")} for batch in loader]


@ours()
def _(uri):
    loader = millrace.Loader(uri, batch_size=8, size=16, shuffle=False)
    return [{name: batch[name] for name in ("image", "label", "key")} for batch in loader]


@habit("Bytes, as they are decoded", same="uint8, NHWC")
def _(dataset):
    arrays = [torch.from_numpy(pixels(number)) for number in range(len(dataset))]
    return list(DataLoader(arrays, batch_size=8))


@ours()
def _(uri):
    return [batch["image"] for batch in millrace.Loader(uri, batch_size=8, size=16, shuffle=False, raw=True)]


@habit("Texts and numbers beside the image", same="images, lists of texts, int64", data="captions")
def _(dataset):
    return [[image, list(text), number] for image, text, number in DataLoader(dataset, batch_size=8)]


@ours()
def _(uri):
    fields = {
        "image": millrace.Image("png", size=16),
        "text": millrace.Text("txt"),
        "number": millrace.Label("json", path="meta.number"),
    }
    loader = millrace.Loader(uri, batch_size=8, shuffle=False, fields=fields, as_tuple=("image", "text", "number"))
    return [[image, list(text), number] for image, text, number in loader]


@habit("A transform in the data set", same="what it returns", data="dicts")
def _(dataset):
    loader = DataLoader([shout(sample) for sample in dataset], batch_size=8)
    return [[batch["image"], batch["word"], batch["key"]] for batch in loader]


@ours()
def _(uri):
    loader = millrace.Loader(uri, batch_size=8, size=16, shuffle=False, transform=shout)
    return [[batch["image"], batch["word"], batch["key"]] for batch in loader]


@habit("A transform in worker processes", same="what it returns", data="dicts")
def _(dataset):
    loader = DataLoader(Shout(dataset), batch_size=8, num_workers=1)
    return [[batch["image"], batch["word"], batch["key"]] for batch in loader]


@ours()
def _(uri):
    loader = millrace.Loader(uri, batch_size=8, size=16, shuffle=False, transform=millrace.Map(shout, processes=1))
    return [[batch["image"], batch["word"], batch["key"]] for batch in loader]


@habit(
    "Shuffle within windows",
    same="all samples in each of two epochs",
    cases=({"window": 64, "extent": 2}, {"window": 128, "extent": 1}),
    result=[ALL, ALL],
)
def _(dataset, window, extent):
    loader = DataLoader(dataset, batch_size=8, shuffle=True)
    return [sorted(n for image, label in loader for n in label.tolist()) for epoch in range(2)]


@ours()
def _(uri, window, extent):
    shuffle = millrace.Shuffle(window, extent)
    loader = millrace.Loader(uri, batch_size=8, size=16, as_tuple=("image", "label"), shuffle=shuffle)
    return [sorted(n for image, label in loader for n in label.tolist()) for epoch in range(2)]


@habit("Keep samples after the first epoch", same="all batches of two epochs")
def _(dataset):
    kept = list(map(dataset.__getitem__, range(len(dataset))))
    loader = DataLoader(kept, batch_size=8)
    return [list(loader) for epoch in range(2)]


@ours()
def _(uri, scratch):
    loader = millrace.Loader(uri, batch_size=8, size=16, shuffle=False, cache=scratch, as_tuple=("image", "label"))
    return [list(loader) for epoch in range(2)]


group("Imports and stores")


@habit("`import`, then any part of the package", same="parts come by themselves", fresh=True, result=[True, True])
def _():
    import torch

    return [callable(torch.utils.data.DataLoader), callable(torch.distributed.is_available)]


@ours()
def _():
    import millrace

    return [callable(millrace.torch.MapDataset), callable(millrace.checkpoint_import.import_checkpoint)]


@habit(
    "A program that does not import torch itself", same="tensors", fresh=True, result=["torch.float32", "torch.int64"]
)
def _(uri):
    import torch
    from torch.utils.data import DataLoader

    dataset = torch.utils.data.TensorDataset(torch.rand(8, 3, 16, 16), torch.arange(8))
    image, label = next(iter(DataLoader(dataset, batch_size=8)))
    return [str(image.dtype), str(label.dtype)]


@ours()
def _(uri):
    import millrace

    image, label = next(iter(millrace.Loader(uri, batch_size=8, size=16, as_tuple=("image", "label"))))
    return [str(image.dtype), str(label.dtype)]


@habit(
    "`torch.load` of a URL by fsspec",
    same="what was saved; no import but that of the package",
    fresh=True,
    result=[0.0, 1.0, 2.0],
)
def _():
    import fsspec
    import torch

    with fsspec.open("memory://run/model.pt", "wb") as file:
        torch.save(torch.arange(3.0), file)
    with fsspec.open("memory://run/model.pt") as file:
        return torch.load(file).tolist()


@ours()
def _(store):
    import fsspec
    import millrace  # noqa: F401
    import torch

    with fsspec.open("millrace://one/run/model.pt", "wb") as file:
        torch.save(torch.arange(3.0), file)
    with fsspec.open("millrace://one/run/model.pt") as file:
        return torch.load(file).tolist()
