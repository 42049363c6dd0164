"""Transforms of images by torchvision's names, for ``millrace.Image(transforms=[...])``, and of whole batches, for ``batch_transform=``.

Those of images run where images are decoded, in C++: cropping, resizing and normalising are one step with decoding. What they draw is a
function of (seed, epoch, sample) and of their place in the list, so that it is the same for every number of threads, ranks and workers.
Results are those of torchvision on PIL images. In this order:

1. what says which part of the image becomes the output: :class:`Resize`, :class:`CenterCrop`, :class:`RandomResizedCrop`, with mirrors
   anywhere between them: :class:`RandomHorizontalFlip`, :class:`RandomVerticalFlip`;
2. what changes pixels: :class:`ColorJitter`, :class:`RandomGrayscale`, :class:`GaussianBlur`, :class:`RandAugment`,
   :class:`TrivialAugmentWide`, and mirrors;
3. :class:`Normalize`, :class:`RandomErasing`, each at most once, in either order.

Masks and boxes that follow the image (``like=``) are cropped, mirrored, sheared and turned with it; colours, blurs and what is erased are
those of the image alone.
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
"""The name of a transform, its probability and its numbers, as the native part takes them."""


class Transform:
    """One entry of ``transforms``."""

    def _entry(self) -> Entry:
        raise NotImplementedError(type(self).__name__)


@dataclasses.dataclass(frozen=True)
class Resize(Transform):
    """Resizes the shorter side to ``size``, keeping the shape; or to ``(height, width)``.

    Args:
        size: A number, or ``(height, width)``.
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
    """Cuts the centre out of the image, which must be at least as large."""

    size: int | tuple[int, int]

    def _entry(self) -> Entry:
        return "CenterCrop", 1, [float(side) for side in _arguments.image_size(self.size)]


@dataclasses.dataclass(frozen=True)
class RandomResizedCrop(Transform):
    """Cuts out a random part and resizes it.

    Args:
        size: A number, or ``(height, width)``.
        scale: Part of the image's area, from and to.
        ratio: Width over height, from and to.
        interpolation: As of :class:`Resize`.
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
    """Exchanges left and right with probability ``p``."""

    p: float = 0.5

    def _entry(self) -> Entry:
        return "RandomHorizontalFlip", _arguments.number("p", self.p), []


@dataclasses.dataclass(frozen=True)
class RandomVerticalFlip(Transform):
    """Exchanges top and bottom with probability ``p``."""

    p: float = 0.5

    def _entry(self) -> Entry:
        return "RandomVerticalFlip", _arguments.number("p", self.p), []


@dataclasses.dataclass(frozen=True)
class ColorJitter(Transform):
    """Changes brightness, contrast, saturation and hue by random factors, in a random order.

    Args:
        brightness: Factors are drawn from ``[max(0, 1 - brightness), 1 + brightness]``, or from ``(least, most)``.
        contrast: Likewise.
        saturation: Likewise.
        hue: The hue is turned by a part of the circle of ``[-hue, hue]``, at most 0.5, or of ``(least, most)``.
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
    """Takes the colours away with probability ``p``; the number of channels stays."""

    p: float = 0.1

    def _entry(self) -> Entry:
        return "RandomGrayscale", _arguments.number("p", self.p), []


@dataclasses.dataclass(frozen=True)
class GaussianBlur(Transform):
    """Blurs with a Gaussian kernel.

    Args:
        kernel_size: An odd number, or ``(width, height)``.
        sigma: A number, or ``(least, most)`` to draw from.
    """

    kernel_size: int | tuple[int, int]
    sigma: _PixelRange = (0.1, 2.0)

    def _entry(self) -> Entry:
        sides = self.kernel_size if isinstance(self.kernel_size, Sequence) else (self.kernel_size, self.kernel_size)
        return "GaussianBlur", 1, [*_arguments.pair("kernel_size", sides), *_range("sigma", self.sigma)]


@dataclasses.dataclass(frozen=True)
class RandAugment(Transform):
    """RandAugment: ``num_ops`` random operations of 14, one after the other, of a given magnitude.

    Args:
        num_ops: How many.
        magnitude: Of ``num_magnitude_bins``, from 0 on.
        num_magnitude_bins: How finely magnitudes are divided.
        interpolation: ``"nearest"`` or ``"bilinear"``, of shears, shifts and rotations.
        fill: Of what these leave open: 0 to 255, or three such numbers. None: 0.
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
    """TrivialAugment Wide: one random operation of 14, of a random magnitude. The arguments are those of :class:`RandAugment`."""

    num_magnitude_bins: int = 31
    interpolation: str = "nearest"
    fill: float | Sequence[float] | None = None

    def _entry(self) -> Entry:
        bins = _arguments.number("num_magnitude_bins", self.num_magnitude_bins)
        return "TrivialAugmentWide", 1, [bins, _bilinear(self.interpolation), *_fill(self.fill)]


@dataclasses.dataclass(frozen=True)
class Normalize(Transform):
    """``(pixel / 255 - mean) / std``, of each channel: makes float32 of the pixels."""

    mean: float | Sequence[float]
    std: float | Sequence[float]


@dataclasses.dataclass(frozen=True)
class RandomErasing(Transform):
    """Overwrites a random rectangle with probability ``p``.

    Args:
        p: The probability.
        scale: Part of the image's area, from and to.
        ratio: Height over width, from and to.
        value: A number, three of them, or ``"random"`` (a normal distribution; float32 only): behind :class:`Normalize`, of the normalised pixels;
            before it, 0 to 1.
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
    """Applies one transform that changes pixels with probability ``p``."""

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
    """What a list of transforms means for an image."""

    size: tuple[int, int]
    interpolation: str
    entries: list[Entry]
    normalize: Normalize | None


def compiled(transforms: Sequence[Transform]) -> Compiled:
    """Checked as far as it takes to say what it means; the native part checks the rest."""
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
    """Mixes each sample with its neighbour in the batch, images and labels: ``Loader(batch_transform=MixUp(num_classes=1000))``.

    Labels become float32 ``[B, num_classes]``. One part is drawn for a batch, from a Beta distribution, by (seed, epoch, first sample). Rows that are
    padding take no part. Of u8 images, means are rounded.

    Args:
        num_classes: How many there are.
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
    """Puts a rectangle of each sample's neighbour in the batch into it, and mixes the labels by its area. As :class:`MixUp` otherwise.

    Args:
        num_classes: How many there are.
        alpha: Both parameters of the Beta distribution, from which the part that stays is drawn.
        image: The entry of the batch with the images.
        label: The entry with the labels.
        layout: ``"nhwc"`` or ``"nchw"``, of the images. None: by which axis has 1 or 3 entries.
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
