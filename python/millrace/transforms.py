"""Transforms of images by torchvision's names, for ``millrace.Image(transforms=[...])``, and of whole batches, for ``batch_transform=``.

    from millrace.transforms import Normalize, RandomHorizontalFlip, RandomResizedCrop

    augment = [RandomResizedCrop(224), RandomHorizontalFlip(), Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))]
    loader = millrace.Loader("s3://bucket/train", image=millrace.Image(transforms=augment))

Transforms of images run in C++, together with decoding: cropping, resizing and normalizing are one step with it. Their random numbers are a
function of (seed, epoch, sample) and of their place in the list. So they are the same for every number of threads, ranks and workers.
Results are those of torchvision on PIL images. Transforms come in this order:

1. Transforms that choose the part of the image: :class:`Resize`, :class:`CenterCrop`, :class:`RandomResizedCrop`. Mirrors may stand
   anywhere between them: :class:`RandomHorizontalFlip`, :class:`RandomVerticalFlip`.
2. Transforms that change pixels: :class:`ColorJitter`, :class:`RandomGrayscale`, :class:`GaussianBlur`, :class:`RandAugment`,
   :class:`TrivialAugmentWide`, and mirrors.
3. :class:`Normalize` and :class:`RandomErasing`, each at most once, in either order.

Masks and boxes that follow the image (``like=``) are cropped, mirrored, sheared and turned with it. Colors, blurs and erased rectangles
apply only to the image.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Union

import numpy as np

from . import _arguments
from ._errors import InvalidArgumentError
from ._padding import filled

_PixelRange = Union[float, tuple[float, float]]
Entry = tuple[str, float, list[float]]
"""An entry has the name of a transform, its probability and its numbers, as the native part takes them."""


class Transform:
    """Represents the base class of the entries of ``transforms``."""

    def _entry(self) -> Entry:
        raise NotImplementedError(type(self).__name__)


@dataclasses.dataclass(frozen=True)
class Resize(Transform):
    """Resizes the shorter side to ``size`` and keeps the aspect ratio; or resizes to ``(height, width)``.

        image = millrace.Image(transforms=[Resize(256), CenterCrop(224)])

    Args:
        size: A number of pixels, or ``(height, width)``.
        interpolation: ``"bilinear"``, ``"bicubic"`` or ``"box"``, all antialiased, or ``"nearest"`` (torchvision's NEAREST_EXACT).
    """

    size: int | tuple[int, int]
    interpolation: str = "bilinear"

    def _entry(self) -> Entry:
        if isinstance(self.size, Sequence):
            return "Resize", 1, [float(side) for side in _arguments.image_size(self.size)]
        return "Resize", 1, [float(_arguments.integer("size", self.size, least=1))]


@dataclasses.dataclass(frozen=True)
class CenterCrop(Transform):
    """Crops the center of the image, which must be at least as large.

        image = millrace.Image(transforms=[Resize(256), CenterCrop(224)])

    Args:
        size: A number of pixels, or ``(height, width)``.
    """

    size: int | tuple[int, int]

    def _entry(self) -> Entry:
        return "CenterCrop", 1, [float(side) for side in _arguments.image_size(self.size)]


@dataclasses.dataclass(frozen=True)
class RandomResizedCrop(Transform):
    """Crops a random part of the image and resizes it.

        image = millrace.Image(transforms=[RandomResizedCrop(224, scale=(0.35, 1.0))])

    Args:
        size: The size of the result: a number of pixels, or ``(height, width)``.
        scale: The minimum and the maximum of the crop's area, as parts of the image's area.
        ratio: The minimum and the maximum of width over height.
        interpolation: As for :class:`Resize`.
    """

    size: int | tuple[int, int]
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    interpolation: str = "bilinear"

    def _entry(self) -> Entry:
        sides = [float(side) for side in _arguments.image_size(self.size)]
        return (
            "RandomResizedCrop",
            1,
            [*sides, *_arguments.pair("scale", self.scale), *_arguments.pair("ratio", self.ratio)],
        )


@dataclasses.dataclass(frozen=True)
class RandomHorizontalFlip(Transform):
    """Exchanges left and right with probability ``p``.

        image = millrace.Image(transforms=[RandomResizedCrop(224), RandomHorizontalFlip()])

    Args:
        p: The probability.
    """

    p: float = 0.5

    def _entry(self) -> Entry:
        return "RandomHorizontalFlip", _arguments.number("p", self.p), []


@dataclasses.dataclass(frozen=True)
class RandomVerticalFlip(Transform):
    """Exchanges top and bottom with probability ``p``.

        image = millrace.Image(transforms=[RandomResizedCrop(224), RandomVerticalFlip(0.25)])

    Args:
        p: The probability.
    """

    p: float = 0.5

    def _entry(self) -> Entry:
        return "RandomVerticalFlip", _arguments.number("p", self.p), []


@dataclasses.dataclass(frozen=True)
class ColorJitter(Transform):
    """Changes brightness, contrast, saturation and hue by random factors, in a random order.

        image = millrace.Image(transforms=[RandomResizedCrop(224), ColorJitter(0.4, 0.4, 0.4)])

    Args:
        brightness: The factor is drawn from ``[max(0, 1 - brightness), 1 + brightness]``, or from a pair ``(min, max)``. 0: no change.
        contrast: As ``brightness``, for the contrast.
        saturation: As ``brightness``, for the saturation.
        hue: The hue is turned by a part of the circle, drawn from ``[-hue, hue]`` with at most 0.5, or from a pair ``(min, max)``. 0: no
            change.
    """

    brightness: _PixelRange = 0
    contrast: _PixelRange = 0
    saturation: _PixelRange = 0
    hue: _PixelRange = 0

    def _entry(self) -> Entry:
        numbers: list[float] = []
        for name, around in (("brightness", 1.0), ("contrast", 1.0), ("saturation", 1.0), ("hue", 0.0)):
            value = getattr(self, name)
            if isinstance(value, Sequence):
                numbers += _arguments.pair(name, value)
                continue
            spread = _arguments.number(name, value)
            if spread < 0:
                raise InvalidArgumentError(f"ColorJitter: {name} is {spread}; it must not be below 0")
            numbers += [max(0.0, around - spread) if around else -spread, around + spread]
        return "ColorJitter", 1, numbers


@dataclasses.dataclass(frozen=True)
class RandomGrayscale(Transform):
    """Removes the colors with probability ``p``. The number of channels stays the same.

        image = millrace.Image(transforms=[RandomResizedCrop(224), RandomGrayscale(0.2)])

    Args:
        p: The probability.
    """

    p: float = 0.1

    def _entry(self) -> Entry:
        return "RandomGrayscale", _arguments.number("p", self.p), []


@dataclasses.dataclass(frozen=True)
class GaussianBlur(Transform):
    """Blurs the image with a Gaussian kernel.

        image = millrace.Image(transforms=[RandomResizedCrop(224), GaussianBlur(23)])

    Args:
        kernel_size: The size of the kernel in pixels: an odd number, or ``(width, height)``.
        sigma: The standard deviation in pixels, or a pair ``(min, max)`` from which it is drawn.
    """

    kernel_size: int | tuple[int, int]
    sigma: _PixelRange = (0.1, 2.0)

    def _entry(self) -> Entry:
        sides = self.kernel_size if isinstance(self.kernel_size, Sequence) else (self.kernel_size, self.kernel_size)
        return "GaussianBlur", 1, [*_arguments.pair("kernel_size", sides), *_range("sigma", self.sigma)]


@dataclasses.dataclass(frozen=True)
class RandAugment(Transform):
    """RandAugment: ``num_ops`` random operations out of 14, one after the other, with a given magnitude.

        image = millrace.Image(transforms=[RandomResizedCrop(224), RandAugment()])

    Args:
        num_ops: The number of operations.
        magnitude: The magnitude, from 0 to less than ``num_magnitude_bins``.
        num_magnitude_bins: The number of steps into which magnitudes are divided.
        interpolation: ``"nearest"`` or ``"bilinear"``, for shears, shifts and rotations.
        fill: The value of pixels that these operations leave empty: 0 to 255, or three such numbers. None: 0.
    """

    num_ops: int = 2
    magnitude: int = 9
    num_magnitude_bins: int = 31
    interpolation: str = "nearest"
    fill: float | Sequence[float] | None = None

    def _entry(self) -> Entry:
        numbers = [
            _arguments.number(name, getattr(self, name)) for name in ("num_ops", "magnitude", "num_magnitude_bins")
        ]
        return "RandAugment", 1, [*numbers, _bilinear(self.interpolation), *_fill(self.fill)]


@dataclasses.dataclass(frozen=True)
class TrivialAugmentWide(Transform):
    """Applies TrivialAugment Wide: one random operation out of 14, with a random magnitude.

        image = millrace.Image(transforms=[RandomResizedCrop(224), TrivialAugmentWide()])

    Args:
        num_magnitude_bins, interpolation, fill: As for :class:`RandAugment`.
    """

    num_magnitude_bins: int = 31
    interpolation: str = "nearest"
    fill: float | Sequence[float] | None = None

    def _entry(self) -> Entry:
        bins = _arguments.number("num_magnitude_bins", self.num_magnitude_bins)
        return "TrivialAugmentWide", 1, [bins, _bilinear(self.interpolation), *_fill(self.fill)]


@dataclasses.dataclass(frozen=True)
class Normalize(Transform):
    """Converts pixels to float32: ``(pixel / 255 - mean) / std`` for each channel.

        image = millrace.Image(transforms=[RandomResizedCrop(224), Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])

    Args:
        mean: One number for each channel, or one for all, of pixels from 0 to 1.
        std: One number for each channel, or one for all, of pixels from 0 to 1.
    """

    mean: float | Sequence[float]
    std: float | Sequence[float]


@dataclasses.dataclass(frozen=True)
class RandomErasing(Transform):
    """Overwrites a random rectangle with probability ``p``.

        image = millrace.Image(transforms=[RandomResizedCrop(224), Normalize(mean, std), RandomErasing(0.25)])

    Args:
        p: The probability.
        scale: The minimum and the maximum of the rectangle's area, as parts of the image's area.
        ratio: The minimum and the maximum of height over width.
        value: A number, three numbers, or ``"random"`` (a normal distribution; float32 only). Behind :class:`Normalize` the values are those
            of normalized pixels. Before it, they are 0 to 1.
    """

    p: float = 0.5
    scale: tuple[float, float] = (0.02, 0.33)
    ratio: tuple[float, float] = (0.3, 3.3)
    value: float | str | Sequence[float] = 0

    def _entry(self) -> Entry:
        random = self.value == "random"
        if isinstance(self.value, str) and not random:
            raise InvalidArgumentError(
                f"RandomErasing: value is {self.value!r}; give a number, three of them, or 'random'"
            )
        values = (0.0, 0.0, 0.0) if random else _arguments.per_channel("value", self.value, 3, 0.0)
        sizes = [*_arguments.pair("scale", self.scale), *_arguments.pair("ratio", self.ratio)]
        return "RandomErasing", _arguments.number("p", self.p), [*sizes, float(random), 0.0, *values]


@dataclasses.dataclass(frozen=True)
class RandomApply(Transform):
    """Applies one transform that changes pixels with probability ``p``.

        image = millrace.Image(transforms=[RandomResizedCrop(224), RandomApply([GaussianBlur(23)], p=0.1)])

    Args:
        transforms: A list of one transform: ColorJitter, GaussianBlur, RandAugment or TrivialAugmentWide.
        p: The probability.
    """

    transforms: Sequence[Transform]
    p: float = 0.5

    def _entry(self) -> Entry:
        if len(self.transforms) != 1 or not isinstance(
            self.transforms[0], (ColorJitter, GaussianBlur, RandAugment, TrivialAugmentWide)
        ):
            raise InvalidArgumentError(
                "RandomApply takes a list of one transform: ColorJitter, GaussianBlur, RandAugment or TrivialAugmentWide"
            )
        name, _, numbers = self.transforms[0]._entry()
        return name, _arguments.number("p", self.p), numbers


@dataclasses.dataclass(frozen=True)
class Compiled:
    """Represents the result of a list of transforms: the options of an image that they determine."""

    size: tuple[int, int]
    interpolation: str
    entries: list[Entry]
    normalize: Normalize | None


def compiled(transforms: Sequence[Transform]) -> Compiled:
    """Returns the options that a list of transforms determines. It checks only these, and the native part checks the rest."""
    if isinstance(transforms, (str, Mapping)) or not isinstance(transforms, Sequence):
        _arguments.refuse("transforms", "a list such as [millrace.transforms.RandomResizedCrop(224)]", transforms)
    entries: list[Entry] = []
    size: tuple[int, int] | None = None
    interpolation = "bilinear"
    normalize: Normalize | None = None
    for transform in transforms:
        if not isinstance(transform, Transform):
            _arguments.refuse(
                "a member of transforms", "one of millrace.transforms, such as RandomHorizontalFlip()", transform
            )
        if normalize is not None and not isinstance(transform, RandomErasing):
            raise InvalidArgumentError(f"{type(transform).__name__} comes after Normalize; only RandomErasing may")
        if isinstance(transform, Normalize):
            normalize = transform
            continue
        if isinstance(transform, (Resize, CenterCrop, RandomResizedCrop)):
            size = _arguments.image_size(transform.size)
        if isinstance(transform, (Resize, RandomResizedCrop)):
            interpolation = _arguments.choice(
                "interpolation", transform.interpolation, ("bilinear", "nearest", "bicubic", "box")
            )
        name, probability, numbers = transform._entry()
        if isinstance(transform, RandomErasing) and normalize is not None:
            numbers[5] = 1.0
        entries.append((name, probability, numbers))
    if size is None:
        raise InvalidArgumentError(
            "transforms say nothing of the size of the output; add RandomResizedCrop(size), CenterCrop(size) or Resize((height, width))"
        )
    return Compiled(size, interpolation, entries, normalize)


@dataclasses.dataclass(frozen=True)
class MixUp:
    """Mixes each sample with its neighbor in the batch: images and labels.

        loader = millrace.Loader("s3://bucket/train", batch_transform=millrace.transforms.MixUp(num_classes=1000))

    Labels become float32 ``[B, num_classes]``. One mixing ratio is drawn for a batch, from a Beta distribution, as a function of (seed, epoch,
    first sample). Rows of padding do not take part. The means of uint8 images are rounded.

    Args:
        num_classes: The number of classes.
        alpha: Both parameters of the Beta distribution.
        image: The entry of the batch with the images.
        label: The entry with the labels.
    """

    num_classes: int
    alpha: float = 1.0
    image: str = "image"
    label: str = "label"

    def __call__(self, batch: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        part, other, own = _partners(batch, self.alpha, rng)
        if other is not None:
            images = batch[self.image]
            mixed = _as_float(images[own]) * part + _as_float(images[other]) * (1 - part)
            images[own] = _as_type_of(images, mixed)
        batch[self.label] = _mixed_labels(batch[self.label], self.num_classes, own, other, part)
        return batch


@dataclasses.dataclass(frozen=True)
class CutMix:
    """Puts a rectangle of its neighbor in the batch into each sample, and mixes the labels by the rectangle's area.

        loader = millrace.Loader("s3://bucket/train", batch_transform=millrace.transforms.CutMix(num_classes=1000))

    In all other respects it works as :class:`MixUp`.

    Args:
        num_classes: The number of classes.
        alpha: Both parameters of the Beta distribution, from which the remaining part of the image is drawn.
        image: The entry of the batch with the images.
        label: The entry with the labels.
        layout: The layout of the images, ``"nhwc"`` or ``"nchw"``. None: it follows from the axis that has 1 or 3 entries.
    """

    num_classes: int
    alpha: float = 1.0
    image: str = "image"
    label: str = "label"
    layout: str | None = None

    def __call__(self, batch: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        part, other, own = _partners(batch, self.alpha, rng)
        if other is not None:
            images = batch[self.image]
            shape = tuple(images.shape)
            rows, columns = (2, 3) if self._is_nchw(shape) else (1, 2)
            height, width = shape[rows], shape[columns]
            y, x = int(rng.integers(height)), int(rng.integers(width))
            half = 0.5 * math.sqrt(1.0 - part)
            top, bottom = max(y - int(half * height), 0), min(y + int(half * height), height)
            left, right = max(x - int(half * width), 0), min(x + int(half * width), width)
            inside = (slice(top, bottom), slice(left, right))
            where = (slice(None), *inside) if rows == 1 else (slice(None), slice(None), *inside)
            piece = images[other][where]  # a copy: an index by numbers is one
            kept = images[own]
            kept[where] = piece
            images[own] = kept
            part = 1.0 - (bottom - top) * (right - left) / (height * width)
        batch[self.label] = _mixed_labels(batch[self.label], self.num_classes, own, other, part)
        return batch

    def _is_nchw(self, shape: tuple[int, ...]) -> bool:
        if self.layout is not None:
            return _arguments.layout(self.layout) == "nchw"
        last, second = shape[3] in (1, 3), shape[1] in (1, 3)
        if last == second:
            raise InvalidArgumentError(
                f"CutMix: images of shape {shape} may have either layout; say which with layout="
            )
        return second


def _partners(batch: Mapping[str, Any], alpha: float, rng: np.random.Generator) -> tuple[float, Any, np.ndarray]:
    own = np.flatnonzero(filled(batch))
    part = float(rng.beta(alpha, alpha))
    return part, np.roll(own, 1) if len(own) > 1 else None, own


def _as_float(images: Any) -> Any:
    return images.astype(np.float32) if isinstance(images, np.ndarray) else images.float()


def _as_type_of(images: Any, mixed: Any) -> Any:
    if isinstance(images, np.ndarray):
        return (np.rint(mixed) if images.dtype.kind == "u" else mixed).astype(images.dtype, copy=False)
    return (mixed if images.is_floating_point() else mixed.round()).to(images.dtype)


def _mixed_labels(labels: Any, classes: int, own: np.ndarray, other: np.ndarray | None, part: float) -> Any:
    numbers = np.asarray(labels)
    if len(own) and (numbers[own].min() < 0 or numbers[own].max() >= classes):
        raise InvalidArgumentError(f"a label of the batch is not one of {classes} classes, 0 to {classes - 1}")
    result = np.zeros((len(numbers), classes), np.float32)
    result[own, numbers[own]] = 1
    if other is not None:
        result[own] = result[own] * np.float32(part) + result[other] * np.float32(1 - part)
    if isinstance(labels, np.ndarray):
        return result
    import torch

    return torch.from_numpy(result)


def _range(name: str, value: _PixelRange) -> tuple[float, float]:
    if isinstance(value, Sequence):
        return _arguments.pair(name, value)
    number = _arguments.number(name, value)
    return number, number


def _bilinear(interpolation: str) -> float:
    return float(_arguments.choice("interpolation", interpolation, ("nearest", "bilinear")) == "bilinear")


def _fill(value: float | Sequence[float] | None) -> tuple[float, float, float]:
    return _arguments.per_channel("fill", value, 3, 0.0)
