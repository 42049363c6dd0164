"""torchvision's ImageFolder and transforms."""

from __future__ import annotations

import millrace
import torch
from habits import group, habit, ours
from PIL import ImageOps
from torch.utils.data import DataLoader, random_split
from vision import datasets, transforms

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

group("torchvision")


@habit("`ImageFolder`", same="classes, their numbers, targets, and the label of each image", data="photos")
def _(folder):
    dataset = datasets.ImageFolder(folder, transforms.ToTensor())
    loader = DataLoader(dataset, batch_size=8)
    labels = torch.cat([label for image, label in loader])
    return dataset.classes, dataset.class_to_idx, dataset.targets, labels


@ours()
def _(uri):
    dataset = millrace.Dataset(uri)
    loader = millrace.Loader(dataset, batch_size=8, size=16, shuffle=False, as_tuple=("image", "label"))
    labels = torch.cat([label for image, label in loader])
    return dataset.classes, dataset.class_to_idx, dataset.targets, labels


@habit("`ToTensor()`", same="images", data="photos")
def _(folder):
    dataset = datasets.ImageFolder(folder, transforms.ToTensor())
    return [image for image, label in DataLoader(dataset, batch_size=8)]


@ours()
def _(uri):
    loader = millrace.Loader(uri, batch_size=8, size=16, shuffle=False, as_tuple=("image", "label"))
    return [image for image, label in loader]


@habit("`Normalize` of ImageNet", same="images", data="photos", close=1e-5)
def _(folder):
    transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize(MEAN, STD)])
    loader = DataLoader(datasets.ImageFolder(folder, transform), batch_size=8)
    return [image for image, label in loader]


@ours()
def _(uri):
    loader = millrace.Loader(
        uri, batch_size=8, size=16, shuffle=False, normalize="imagenet", as_tuple=("image", "label")
    )
    return [image for image, label in loader]


@habit("`Normalize` with other numbers", same="images", data="photos", close=1e-5)
def _(folder):
    transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.5, 0.4, 0.3), (0.2, 0.25, 0.3))])
    loader = DataLoader(datasets.ImageFolder(folder, transform), batch_size=8)
    return [image for image, label in loader]


@ours()
def _(uri):
    loader = millrace.Loader(
        uri,
        batch_size=8,
        size=16,
        shuffle=False,
        normalize=((0.5, 0.4, 0.3), (0.2, 0.25, 0.3)),
        as_tuple=("image", "label"),
    )
    return [image for image, label in loader]


@habit("`Resize` and `CenterCrop`", same="images, to 1 of 255", data="wide", close=1.01 / 255)
def _(folder):
    transform = transforms.Compose([transforms.Resize(12), transforms.CenterCrop(12), transforms.ToTensor()])
    loader = DataLoader(datasets.ImageFolder(folder, transform), batch_size=8)
    return [image for image, label in loader]


@ours()
def _(uri):
    fields = {"image": millrace.Image(size=12, exact=True), "label": millrace.Label()}
    loader = millrace.Loader(uri, batch_size=8, shuffle=False, fields=fields, as_tuple=("image", "label"))
    return [image for image, label in loader]


@habit("`Compose`, name by name", same="images, to 1 of 255", data="wide", close=1.01 / 255 / 0.2)
def _(folder):
    transform = transforms.Compose(
        [transforms.Resize(12), transforms.CenterCrop(8), transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    )
    loader = DataLoader(datasets.ImageFolder(folder, transform), batch_size=8)
    return [image for image, label in loader]


@ours()
def _(uri):
    transform = [
        millrace.transforms.Resize(12),
        millrace.transforms.CenterCrop(8),
        millrace.transforms.Normalize(MEAN, STD),
    ]
    fields = {"image": millrace.Image(transforms=transform, exact=True), "label": millrace.Label()}
    loader = millrace.Loader(uri, batch_size=8, shuffle=False, fields=fields, as_tuple=("image", "label"))
    return [image for image, label in loader]


@habit("`Grayscale()`", same="images of one channel, to 1 of 255", data="photos", close=1.01 / 255)
def _(folder):
    transform = transforms.Compose([transforms.Grayscale(), transforms.ToTensor()])
    loader = DataLoader(datasets.ImageFolder(folder, transform), batch_size=8)
    return [image for image, label in loader]


@ours()
def _(uri):
    fields = {"image": millrace.Image(size=16, channels=1), "label": millrace.Label()}
    loader = millrace.Loader(uri, batch_size=8, shuffle=False, fields=fields, as_tuple=("image", "label"))
    return [image for image, label in loader]


@habit("`RandomHorizontalFlip(p)`", same="images", data="photos", cases=({"p": 1.0}, {"p": 0.0}))
def _(folder, p):
    transform = transforms.Compose([transforms.RandomHorizontalFlip(p), transforms.ToTensor()])
    loader = DataLoader(datasets.ImageFolder(folder, transform), batch_size=8)
    return [image for image, label in loader]


@ours()
def _(uri, p):
    flip = [millrace.transforms.Resize((16, 16)), millrace.transforms.RandomHorizontalFlip(p)]
    fields = {"image": millrace.Image(transforms=flip), "label": millrace.Label()}
    loader = millrace.Loader(uri, batch_size=8, shuffle=False, fields=fields, as_tuple=("image", "label"))
    return [image for image, label in loader]


@habit("`RandomResizedCrop` and a flip, for training", same="shapes, types and labels", data="wide")
def _(folder):
    transform = transforms.Compose(
        [transforms.RandomResizedCrop(12), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    )
    loader = DataLoader(datasets.ImageFolder(folder, transform), batch_size=8, shuffle=True)
    return [(image.shape, image.dtype, label) for image, label in loader]


@ours()
def _(uri):
    loader = millrace.Loader(uri, batch_size=8, size=12, augment=True, shuffle=True, as_tuple=("image", "label"))
    return [(image.shape, image.dtype, label) for image, label in loader]


@habit("Photos that lie on their side", same="images as they are stored, to 1 of 255", data="wide", close=1.01 / 255)
def _(folder):
    loader = DataLoader(datasets.ImageFolder(folder, transforms.ToTensor()), batch_size=8)
    return [image for image, label in loader]


@ours()
def _(uri):
    loader = millrace.Loader(uri, batch_size=8, size=(24, 40), shuffle=False, as_tuple=("image", "label"))
    return [image for image, label in loader]


@habit("`ImageOps.exif_transpose`", same="images as they are seen, to 1 of 255", data="wide", close=1.01 / 255)
def _(folder):
    transform = transforms.Compose([transforms.Lambda(ImageOps.exif_transpose), transforms.ToTensor()])
    loader = DataLoader(datasets.ImageFolder(folder, transform), batch_size=8)
    return [image for image, label in loader]


@ours()
def _(uri):
    fields = {"image": millrace.Image(size=(24, 40), orientation="exif"), "label": millrace.Label()}
    loader = millrace.Loader(uri, batch_size=8, shuffle=False, fields=fields, as_tuple=("image", "label"))
    return [image for image, label in loader]


@habit("`random_split`", same="the parts have all samples, and none in common", data="photos", result=[37, 37])
def _(folder):
    dataset = datasets.ImageFolder(folder, transforms.ToTensor())
    train, valid = random_split(dataset, [0.8, 0.2], generator=torch.Generator().manual_seed(1))
    return len(train) + len(valid), len({*train.indices, *valid.indices})


@ours()
def _(uri):
    dataset = millrace.Dataset(uri)
    train, valid = dataset.split(train=0.8, valid=0.2, seed=1).values()
    return len(train) + len(valid), len({*train.samples.tolist(), *valid.samples.tolist()})


@habit("A folder that does not exist", same="`FileNotFoundError`", data="photos", raises=FileNotFoundError)
def _(folder):
    DataLoader(datasets.ImageFolder(folder + "/none", transforms.ToTensor()), batch_size=8)


@ours(match="none")
def _(uri):
    millrace.Loader(uri + "/none", batch_size=8, size=16)


@habit("A folder without images", same="`FileNotFoundError`", data="empty", raises=FileNotFoundError)
def _(folder):
    DataLoader(datasets.ImageFolder(folder, transforms.ToTensor()), batch_size=8)


@ours()
def _(uri):
    millrace.Loader(uri, batch_size=8, size=16)


@habit("A file that is no image", same="`OSError`, at its batch", data="corrupt", raises=OSError)
def _(folder):
    for _batch in DataLoader(datasets.ImageFolder(folder, transforms.ToTensor()), batch_size=8):
        pass


@ours(match="0004")
def _(uri):
    for _batch in millrace.Loader(uri, batch_size=8, size=16, shuffle=False):
        pass
