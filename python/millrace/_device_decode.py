"""Decodes JPEGs on the device that trains: by nvJPEG, through torchvision, with cropping and resizing there."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Callable, Optional

from . import _arguments
from ._errors import DamagedDataError, InvalidArgumentError, UnsupportedError

Encoded = Optional[tuple[bytes, tuple[int, int], tuple[float, float, float, float], tuple[int, int, int, int], bool]]
"""A row as the native loader gives it. It has the file, (width, height), and the rectangle that is shown (x, y, width, height).
Then come the pixels that may contribute to it (left, top, right, bottom), and True if it is mirrored. None: padding."""

Decode = Callable[[Sequence[Any], bool, Any], Sequence[Any]]
"""Decodes files (uint8 tensors on the host), in color or gray, to uint8 tensors ``[C, H, W]`` on a device."""

_JPEG = b"\xff\xd8\xff"


@dataclasses.dataclass(frozen=True)
class ImageShape:
    """Represents the shape of the images of a batch on the device. They are uint8, and may be normalized later."""

    height: int
    width: int
    channels: int
    channels_first: bool

    @property
    def dims(self) -> tuple[int, ...]:
        size = (self.height, self.width)
        return (self.channels, *size) if self.channels_first else (*size, self.channels)


def left_encoded(
    image: tuple[Any, ...], native: Sequence[tuple[Any, ...]]
) -> tuple[tuple[Any, ...], list[tuple[Any, ...]], dict[str, ImageShape]]:
    """Returns the one image, or the fields, with color and gray images as they are stored, and the wanted shapes by name.

    The host decodes maps of numbers, and images that follow others.
    """
    shapes: dict[str, ImageShape] = {}

    def left(name: str, image: tuple[Any, ...]) -> tuple[Any, ...]:
        height, width, channels, _, _, layout, *_, interpolation, is_map, is_turned, _, transforms, _ = image
        if is_map or interpolation != "bilinear":
            return image
        if transforms:
            raise InvalidArgumentError(
                "decode='device' crops, resizes and flips; decode on the host for other transforms"
            )
        if is_turned:
            raise InvalidArgumentError(
                "decode='device' takes images as they are stored; leave orientation='exif' out, or decode on the host"
            )
        shapes[name] = ImageShape(height, width, channels, layout == "nchw")
        return (*image[:-1], True)

    if not native:
        return left("image", image), [], shapes
    fields = [
        (name, field, kind, left(name, image) if kind == "image" and not like else image, like, *rest)
        for name, field, kind, image, like, *rest in native
    ]
    if not shapes:
        raise InvalidArgumentError("decode='device' is for images, and no image in fields has a crop of its own")
    return image, fields, shapes


class DeviceDecoder:
    """Decodes the images of batches on a device of torch. One thread at a time calls it, and its kernels go to the stream in use."""

    def __init__(self, shapes: Mapping[str, ImageShape], decode: Decode | None = None) -> None:
        """Takes a function ``decode`` in place of torchvision's."""
        self.shapes = dict(shapes)
        self._decode = decode or _torchvision()

    def __call__(self, batch: dict[str, Any], device: Any) -> dict[str, Any]:
        """Returns the batch with uint8 pixels in place of files.

        Raises:
            DamagedDataError: A file cannot be decoded.
        """
        decoded = {
            name: self._images(name, shape, batch, device)
            for name, shape in self.shapes.items()
            if isinstance(batch[name], list)
        }
        return {**batch, **decoded}

    def _images(self, name: str, shape: ImageShape, batch: Mapping[str, Any], device: Any) -> Any:
        import torch

        rows: Sequence[Encoded] = batch[name]
        # Rows of padding stay zero.
        made = torch.zeros((len(rows), shape.channels, shape.height, shape.width), dtype=torch.uint8, device=device)
        places = [place for place, row in enumerate(rows) if row is not None]
        for place, image in zip(places, self._pixels(name, shape, batch, places, device)):
            made[place] = _shown(image, rows[place], shape)
        return made if shape.channels_first else made.permute(0, 2, 3, 1).contiguous()

    def _pixels(
        self, name: str, shape: ImageShape, batch: Mapping[str, Any], places: Sequence[int], device: Any
    ) -> Sequence[Any]:
        """Returns the pixels of whole images, ``[C, H, W]``."""
        import torch

        files = [torch.frombuffer(bytearray(batch[name][place][0]), dtype=torch.uint8) for place in places]
        if not files:
            return []
        try:
            return self._decode(files, shape.channels == 3, device)
        except RuntimeError:
            pass  # one of them is damaged, and the loop below finds it
        images: list[Any] = []
        for place, file in zip(places, files):
            try:
                images += self._decode([file], shape.channels == 3, device)
            except RuntimeError as error:
                raise DamagedDataError(
                    f"sample '{batch['key'][place]}', entry '{name}': it cannot be decoded on {device}: {str(error).splitlines()[0]}; remove it, or "
                    "leave decode='device' out: the host replaces or masks damaged samples (bad_samples=)"
                ) from error
        return images


def decoder_of(
    decode: Any, can_decode: bool, options: dict[str, Any], has_functions: bool, has_tokens: bool
) -> DeviceDecoder | None:
    """Returns the decoder for a Loader's option ``decode``, or None if the host decodes.

    With a decoder, ``options`` are changed such that images stay as they are stored.

    Raises:
        InvalidArgumentError: Another option contradicts it.
        UnsupportedError: torchvision is missing.
    """
    if _arguments.choice("decode", decode, ("host", "device")) == "host":
        return None
    refused = {
        "needs a device of torch, such as device='cuda'": not can_decode,
        "goes with no transform, collate_fn or batch_transform, which get pixels of the host": has_functions,
        "is for images, not for tokens": has_tokens,
        "goes without workers, which decode by themselves": bool(options["workers"]),
        "finds damage when it is too late for another sample to take the place; give bad_samples='fail'": options[
            "bad_samples"
        ]
        != "fail",
        "has no digest of pixels; give digest='raw'": options["digest"] == "decoded",
    }
    for reason, holds in refused.items():
        if holds:
            raise InvalidArgumentError(f"decode='device' {reason}, or leave decode out")
    options["image"], options["fields"], shapes = left_encoded(options["image"], options["fields"])
    return DeviceDecoder(shapes)


def _torchvision() -> Decode:
    try:
        import torchvision.io as io  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except (ImportError, RuntimeError) as error:
        raise UnsupportedError(
            f"decode='device' needs torchvision, which cannot be imported: {error}; leave decode out, or install it"
        ) from error

    def decode(files: Sequence[Any], colour: bool, device: Any) -> Sequence[Any]:
        mode = io.ImageReadMode.RGB if colour else io.ImageReadMode.GRAY
        is_jpeg = [bytes(file[:3].tolist()) == _JPEG for file in files]
        decoded = iter(
            io.decode_jpeg([file for file, is_one in zip(files, is_jpeg) if is_one], mode=mode, device=device)
            if any(is_jpeg)
            else []
        )
        return [
            next(decoded) if is_one else io.decode_image(file, mode=mode).to(device)
            for file, is_one in zip(files, is_jpeg)
        ]

    return decode


def _shown(image: Any, row: Any, shape: ImageShape) -> Any:
    """Returns the part of an image that is shown, uint8 ``[C, height, width]``. The geometry is that of torchvision, antialiased."""
    from torch.nn import functional

    _, (width, height), (x, y, shown_width, shown_height), (left, top, right, bottom), flip = row
    size = (shape.height, shape.width)
    if (left, top, right, bottom) == (
        x,
        y,
        x + shown_width,
        y + shown_height,
    ):  # whole pixels, which do not depend on pixels outside
        pixels = functional.interpolate(
            image[None, :, top:bottom, left:right].float(), size, mode="bilinear", antialias=True
        )[0]
    else:  # a part of the whole image after it was resized
        columns, lines = round(width * shape.width / shown_width), round(height * shape.height / shown_height)
        resized = functional.interpolate(image[None].float(), (lines, columns), mode="bilinear", antialias=True)[0]
        line, column = round(y * shape.height / shown_height), round(x * shape.width / shown_width)
        pixels = resized[:, line : line + shape.height, column : column + shape.width]
    return (pixels.flip(-1) if flip else pixels).round_().clamp_(0, 255)
