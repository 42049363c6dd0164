"""This module has the entries of a batch. Each is made from one field of the samples."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Container, Mapping, Sequence
from typing import Any, ClassVar, Literal, Union

import numpy as np

from . import _arguments, _core, _moved_options
from ._device import Normalization
from ._errors import Error, InvalidArgumentError
from .transforms import Entry, Transform, compiled

# This is the beginning of an .npy file.
_HEAD = re.compile(
    rb"\x93NUMPY(?:\x01.{3}|[\x02\x03].{5})\{'descr': (?P<descr>.{1,4096}?), 'fortran_order': (?P<fortran>True|False)",
    re.DOTALL,
)
_OBJECTS = re.compile(rb"'\|?O[0-9]*'")  # a type, or one within records

_SCALE, _RATIO = (0.08, 1.0), (3 / 4, 4 / 3)  # of a random crop
_IN_JSON = {"int": "json:", "float": "json-float:", "text": "json-text:"}  # what is in front of the path


@dataclasses.dataclass(frozen=True)
class Image:
    """Represents pixels of a JPEG, PNG, WebP, TIFF, BMP or GIF.

        fields = {"image": millrace.Image("jpg", 224, crop="random"), "mask": millrace.Image("png", like="image", interpolation="nearest")}
        loader = millrace.Loader("s3://bucket/train", fields=fields)

    The entry is uint8 or floats, ``[B, H, W, C]`` or ``[B, C, H, W]``, with zeros for padding. A map of numbers is uint8 ``[B, H, W]``, with 255
    for padding.

    Args:
        field: The field of the sample. None: its only field that is an image: jpg, jpeg, png, webp, tif, tiff, bmp or gif.
        size: The size of the output in pixels: ``s`` for s x s, or ``(height, width)``. None: the size of the Loader; with ``like``, that of the
            other image.
        channels: 3 (RGB) or 1 (gray). None: 3. None with ``interpolation="nearest"``: a map of numbers, such as the classes of pixels. Its
            numbers are the indices of a palette, or the values of a gray image as they are stored.
        crop: ``"center"``: the shorter side is resized, and the center is cropped. ``"random"``: a random resized crop, and a flip.
            ``(from, to)``: the part of the image's area that a random crop takes; ``"random"`` takes (0.08, 1). Two pairs: the second one is
            the crop's width over height; ``"random"`` takes (3 / 4, 4 / 3). None: as ``augment`` of the Loader says. The entry called ``image``
            is cropped as in a Loader without ``fields``. Other images of the sample have crops of their own, by their names.
        flip: The probability of a horizontal flip, if the crop is random. None: 0.5.
        dtype: ``"uint8"`` (0 to 255), or ``"float32"`` (0 to 1, minus ``mean``, divided by ``std``), or the same rounded to ``"float16"`` or
            ``"bfloat16"``. Also ``"u8"``, ``"f32"``, ``"f16"``, ``"bf16"``, ``torch.uint8``, ``numpy.float32`` and similar names. None: ``"f32"`` with
            ``mean`` or ``std``, for torch, and with ``normalize`` of the Loader; ``"u8"`` in all other cases, and with ``raw``.
        layout: ``"nhwc"`` or ``"nchw"``. None: ``"nchw"`` for torch without ``raw``, else ``"nhwc"``.
        mean: One number for each channel, or one for all (floats only), of pixels from 0 to 1. None: 0, or as ``normalize`` of the Loader says.
        std: One number for each channel, or one for all (floats only), of pixels from 0 to 1. None: 1, or as ``normalize`` of the Loader says.
        like: The name of another image of the batch. This image gets the crop and the flip of that image, as masks do. The two may differ in
            size, but not in aspect ratio: a sample in which it differs is damaged. None: the image has its own crop.
        interpolation: ``"bilinear"``, ``"bicubic"`` or ``"box"``, which are all antialiased. Or ``"nearest"``: each pixel is a pixel of the
            source, never a mean of several.
        orientation: ``"exif"``: an image is turned and mirrored as its EXIF data say. Most cameras need this, and most data sets do not have
            such data. ``"stored"``: pixels stay as they are stored, as Pillow's ``Image.open`` and torchvision read them. A TIFF is
            always turned, as by Pillow. None: ``"stored"``.
        exact: True: the whole image is decoded in full size before it is cropped and resized, and the result is bit for bit that of these
            steps. False or None: the codec shrinks a JPEG that is much larger than needed, and colors are converted after resizing,
            which is faster.
        transforms: A list of :mod:`millrace.transforms`, such as ``[RandomResizedCrop(224), RandomHorizontalFlip(), Normalize(mean, std)]``. It
            replaces ``size``, ``crop``, ``flip``, ``interpolation``, ``mean`` and ``std``. With Normalize, pixels are floats. None: these apply.
        pad: The number in rows of padding. None: 255 in a map of numbers, else 0.

    Raises:
        InvalidArgumentError: Options contradict each other. The Loader raises it when it gets the image.
    """

    field: str | None = None
    size: int | tuple[int, int] | None = None
    channels: int | None = None
    crop: Literal["center", "random"] | tuple[Any, Any] | None = None
    flip: float | None = None
    dtype: Any = None
    layout: Literal["nhwc", "nchw", "NHWC", "NCHW"] | None = None
    mean: float | Sequence[float] | None = None
    std: float | Sequence[float] | None = None
    like: str | None = None
    interpolation: Literal["bilinear", "bicubic", "box", "nearest"] = "bilinear"
    orientation: Literal["stored", "exif"] | None = None
    exact: bool | None = None
    transforms: Sequence[Transform] | None = None
    pad: float | None = None
    _entry: ClassVar[str] = "image"

    def __new__(cls, *args: Any, **options: Any) -> Image:
        _moved_options.check(options, "millrace.Image", _moved_options.OF_IMAGES)
        return super().__new__(cls)

    def _over(self, usual: Image) -> Image:
        """Returns the image with options that are None taken from ``usual``."""
        if self.transforms is not None:
            return self._transformed()._over(usual)
        is_map = self.interpolation == "nearest" and self.channels is None and not self._entries()
        open_ones = ("size", "layout", "orientation", "exact", "crop", "flip")
        changes: dict[str, Any] = {name: getattr(usual, name) for name in open_ones if getattr(self, name) is None}
        is_normalized = self.mean is not None or self.std is not None
        likely = "u8" if is_map else "f32" if is_normalized else usual.dtype
        dtype = likely if self.dtype is None else _arguments.dtype(self.dtype)
        if (dtype == "u8") == (usual.dtype == "u8") and not is_map:
            changes.update({name: getattr(usual, name) for name in ("mean", "std") if getattr(self, name) is None})
        if self.channels is None and not is_map:
            changes["channels"] = usual.channels
        return dataclasses.replace(self, dtype=dtype, **changes)

    def _transformed(self) -> _Transformed:
        """Returns the image with the other arguments as the transforms determine them."""
        if self.like is not None:
            raise InvalidArgumentError(
                f"transforms say how to crop, and so does like={self.like!r}, which gives an image those of the other one; leave one out"
            )
        for name in ("size", "crop", "flip", "mean", "std"):
            if getattr(self, name) is not None:
                raise InvalidArgumentError(f"{name} is given by transforms; leave it out")
        if self.interpolation != "bilinear":
            raise InvalidArgumentError(
                "interpolation is that of RandomResizedCrop or Resize in transforms; give it there"
            )
        made = compiled(self.transforms or ())
        dtype, mean, std = self.dtype, None, None
        if made.normalize is not None:
            dtype = "f32" if dtype is None else _arguments.dtype(dtype)
            if dtype == "u8":
                raise InvalidArgumentError("Normalize makes floats of pixels; leave dtype out")
            mean, std = made.normalize.mean, made.normalize.std
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        values.update(
            transforms=None,
            size=made.size,
            crop="center",
            interpolation=made.interpolation,
            dtype=dtype,
            mean=mean,
            std=std,
        )
        return _Transformed(**values, entries=tuple(made.entries))

    def _entries(self) -> tuple[Entry, ...]:
        return ()

    def _native(self) -> tuple[Any, ...]:
        """Checks an image without options that are None, and returns it as ``_core`` takes it."""
        interpolation = _arguments.choice(
            "interpolation", self.interpolation, ("bilinear", "nearest", "bicubic", "box")
        )
        is_map = self.channels is None
        dtype = _arguments.dtype(self.dtype)
        channels = 1 if is_map else _arguments.integer("channels", self.channels)
        if channels not in (1, 3):
            raise InvalidArgumentError(f"channels is {channels}; choose 3 (RGB) or 1 (gray)")
        if is_map and dtype != "u8":
            raise InvalidArgumentError(
                "a map of numbers (interpolation='nearest' without channels) has dtype='u8'; give channels=1 for pixels"
            )
        if dtype == "u8" and (self.mean is not None or self.std is not None):
            raise InvalidArgumentError("mean and std are for pixels that are floats; u8 pixels are never normalized")
        crop = (*_crop(self.crop), _arguments.number("flip", self.flip))
        return (
            *_arguments.image_size(self.size),
            channels,
            crop,
            dtype,
            _arguments.layout(self.layout),
            *_arguments.normalization(self.mean, self.std, channels),
            interpolation,
            is_map,
            _arguments.choice("orientation", self.orientation, ("stored", "exif")) == "exif",
            _arguments.flag("exact", self.exact),
            list(self._entries()),
            False,  # whether it stays encoded: device_decode.left_encoded
        )


@dataclasses.dataclass(frozen=True)
class _Transformed(Image):
    """An image whose transforms were checked."""

    entries: tuple[Entry, ...] = ()

    def _entries(self) -> tuple[Entry, ...]:
        return self.entries


@dataclasses.dataclass(frozen=True)
class Label:
    """Represents a label: a number or a text for each sample.

        loader = millrace.Loader("s3://bucket/train", label=millrace.Label("json", "float", path="annotation.score"))

    | ``kind`` | Entry | Padding |
    |---|---|---|
    | ``"int"`` | int64 ``[B]`` | -100 |
    | ``"float"`` | float32 ``[B]`` | NaN; 0 with a device of XLA or JAX |
    | ``"text"`` | list of B strings | ``""`` |

    Args:
        field: The field of the sample.
        kind: The form of the field: ``"int"`` (ASCII decimal), ``"float"`` (a number, which is delivered as float32) or ``"text"`` (UTF-8).
        path: In a JSON field, the names of members that lead to the label, with dots between them, such as ``"annotation.label"``. There,
            ``"int"`` is a whole number, ``"float"`` is any number, and ``"text"`` is a string. None: the whole field is the label.
        pad: The number in rows of padding. None: as in the table.
    """

    field: str = "cls"
    kind: Literal["int", "float", "text"] = "int"
    path: str | None = None
    pad: float | None = None
    _entry: ClassVar[str] = "label"

    def _form(self) -> str:
        """Returns the kind in the notation of ``feed --label-kind``."""
        if isinstance(self.kind, str) and self.kind.startswith("json"):
            raise InvalidArgumentError(
                f"kind is {self.kind!r}; name the member of the JSON by path=, as in millrace.Label(field, 'float', path='a.b')"
            )
        kind = _arguments.choice("kind", self.kind, tuple(_IN_JSON))
        path = _arguments.text("path", self.path)
        return kind if path is None else _IN_JSON[kind] + path


@dataclasses.dataclass(frozen=True)
class Text:
    """Represents a list of B strings: the UTF-8 text of a field, and ``""`` for padding.

        loader = millrace.Loader("s3://bucket/train", fields={"image": millrace.Image(), "caption": millrace.Text("txt")})

    Args:
        field: The field of the sample.
    """

    field: str
    _entry: ClassVar[str] = "text"


@dataclasses.dataclass(frozen=True)
class Json:
    """Represents a list of B objects: the values of a field with JSON, and None for padding.

        loader = millrace.Loader("s3://bucket/train", fields={"image": millrace.Image(), "meta": millrace.Json("json")})

    Args:
        field: The field of the sample.
    """

    field: str
    _entry: ClassVar[str] = "json"


@dataclasses.dataclass(frozen=True)
class Array:
    """Arrays: ``.npy`` files as ``numpy.load(allow_pickle=False)`` reads them, and the arrays of MDS, TFRecord and RecordIO.

        loader = millrace.Loader("s3://bucket/train", fields={"embedding": millrace.Array("embedding.npy")})

    If all rows of the batch have the same type and shape, the entry is an array ``[B, ...]``. Otherwise it is a list of B arrays, with None for
    padding.

    Args:
        field: The field of the sample.
        pad: The number in rows of padding of ``[B, ...]``. None: 0.
    """

    field: str
    pad: float | None = None
    _entry: ClassVar[str] = "array"


@dataclasses.dataclass(frozen=True)
class Bytes:
    """A list of B bytes objects: the values of a field as they are stored, and ``b""`` for padding.

        loader = millrace.Loader("s3://bucket/train", fields={"file": millrace.Bytes("jpg")})

    Args:
        field: The field of the sample.
    """

    field: str
    _entry: ClassVar[str] = "bytes"


@dataclasses.dataclass(frozen=True)
class Boxes:
    """Represents boxes that follow an image: a list of B float32 arrays ``[n, 4]``, with left, top, right and bottom in
    pixels of the batch's image.

        fields = {"image": millrace.Image(), "boxes": millrace.Boxes("json", format="xywh", path="annotations.bbox")}
        loader = millrace.Loader("s3://bucket/train", fields=fields)

    All boxes of the sample stay, in their order, so that their labels need not change. They are cropped, flipped and resized with the image.
    If nothing is left of a box, it is four zeros; ``boxes[:, 2] > boxes[:, 0]`` selects the others. Padding is an array without boxes.

    Args:
        field: The field of the sample: an ``.npy`` file ``[n, 4]``, or JSON with a list of lists of four numbers.
        like: The name of the image in the batch to which the boxes belong. That image has a crop of its own.
        format: ``"xyxy"``: left, top, right, bottom. ``"xywh"``: left, top, width, height, as in COCO. ``"cxcywh"``: the center, width, height.
        normalized: True: the numbers are parts of the image's width and height, 0 to 1; with ``"cxcywh"``, as in YOLO. False: they are
            pixels of the image as it is stored, or, with ``orientation="exif"`` of the image, as it is shown.
        path: The names of members of the JSON that lead to the boxes, with dots between them: ``"annotations.bbox"``. In a list, the path
            applies to each element. None: the whole field is the boxes.
    """

    field: str
    like: str = "image"
    format: Literal["xyxy", "xywh", "cxcywh"] = "xyxy"
    normalized: bool = False
    path: str | None = None
    _entry: ClassVar[str] = "boxes"

    def _form(self) -> str:
        form = _arguments.choice("format", self.format, ("xyxy", "xywh", "cxcywh"))
        path = _arguments.text("path", self.path)
        return (
            form
            + (",normalized" if _arguments.flag("normalized", self.normalized) else "")
            + (f":{path}" if path else "")
        )


Field = Union[Image, Label, Text, Json, Array, Bytes, Boxes]
"""This is one entry of a batch."""


def to_native(fields: Mapping[str, Field], usual: Image) -> list[tuple[Any, ...]]:
    """Checks the fields, and returns them with options of images that are None taken from ``usual``."""
    wanted = "a dict of names and fields, such as {'image': millrace.Image(), 'caption': millrace.Text('txt')}"
    if not isinstance(fields, Mapping):
        _arguments.refuse("fields", wanted, fields)
    if not fields:
        raise InvalidArgumentError(f"fields is empty; it must be {wanted}")
    native = []
    for name, field in fields.items():
        if not isinstance(name, str):
            _arguments.refuse("a name in fields", "a string", name)
        if not isinstance(field, (Image, Label, Text, Json, Array, Bytes, Boxes)):
            _arguments.refuse(f"fields[{name!r}]", "a millrace.Image, Label, Text, Json, Array, Bytes or Boxes", field)
        source = _arguments.text(f"the field of fields[{name!r}]", field.field)
        if source is None and not isinstance(field, Image):
            _arguments.refuse(f"the field of fields[{name!r}]", "the name of a field of the samples", source)
        try:
            image, like = _image(field, fields, usual) if isinstance(field, Image) else (None, "")
            form = field._form() if isinstance(field, Label) else ""
            if isinstance(field, Boxes):
                like, form = _arguments.text("like", field.like) or "", field._form()
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"fields[{name!r}]: {error}") from None
        except TypeError as error:
            raise TypeError(f"fields[{name!r}]: {error}") from None
        native.append((name, source or "", field._entry, image, like, form))
    return native


def refuse_objects(datasets: Sequence[_core.Dataset], native: Sequence[tuple[Any, ...]]) -> None:
    """Raises InvalidArgumentError if the first sample of a data set has an array of Python objects in one of the fields."""
    wanted = {source for _, source, kind, *_ in native if kind in ("array", "boxes")}
    for dataset in datasets if wanted else ():
        try:
            samples = dataset.read([0]) if len(dataset) else []
        except Error:
            continue  # the epoch says what is wrong
        for key, values in samples:
            for name, _, value in values:
                head = _HEAD.match(value) if name in wanted else None
                if head and _OBJECTS.search(head["descr"]):
                    dtype, order = head["descr"].decode("latin-1"), "Fortran" if head["fortran"] == b"True" else "C"
                    raise InvalidArgumentError(
                        f"{dataset.uri}: sample '{key}', field '{name}': an array of Python objects (dtype {dtype}, {order} order), whose pickles can "
                        'run any code and are never read; save numbers: numpy.save(FILE, numpy.asarray(array, dtype="float32"))'
                    )


def padding_of_values(native: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    """Returns the values of rows without a sample in the entries that are lists, by name."""
    usual: dict[str, Any] = {
        "text": "",
        "json": None,
        "array": None,
        "bytes": b"",
        "boxes": np.zeros((0, 4), np.float32),
    }
    texts = {
        name: ""
        for name, _, kind, *_, label in native
        if kind == "label" and (label == "text" or label.startswith("json-text:"))
    }
    return {name: usual[kind] for name, _, kind, *_ in native if kind in usual} | texts


def is_map(image: tuple[Any, ...]) -> bool:
    """Says if its pixels are numbers, such as classes."""
    numbers: bool = image[9]
    return numbers


def dtypes_of(image: tuple[Any, ...], native: Sequence[tuple[Any, ...]]) -> dict[str, str]:
    """Returns the type of the one image, or of each image field, by name."""
    return {name: made[4] for name, _, _, made, *_ in native if made} if native else {"image": image[4]}


def sent_as_bytes(
    image: tuple[Any, ...],
    native: Sequence[tuple[Any, ...]],
    padded: Container[str] = (),
    only_halves: bool = False,
) -> tuple[tuple[Any, ...], list[tuple[Any, ...]], dict[str, Normalization]]:
    """Returns the one image, or the fields, with u8 in place of floats, and the remaining work by the names of the images.

    Images in ``padded`` are f32, and at most have to be rounded. With ``only_halves``, all images that need no rounding are f32, too.
    """
    left: dict[str, Normalization] = {}

    def as_bytes(name: str, image: tuple[Any, ...]) -> tuple[Any, ...]:
        height, width, channels, crop, dtype, layout, mean, std, *rest = image
        *_, transforms, _ = rest
        erases = any(transform == "RandomErasing" for transform, *_ in transforms)  # perhaps of normalized pixels
        is_done = erases or name in padded
        if dtype == "u8" or (dtype == "f32" and (is_done or only_halves)):
            return image
        left[name] = Normalization(channels, layout == "nchw", mean, std, dtype, is_done)
        # Mean and std are checked there in any case.
        return (height, width, channels, crop, "f32" if is_done else "u8", layout, mean, std, *rest)

    fields = [(name, field, kind, image and as_bytes(name, image), *rest) for name, field, kind, image, *rest in native]
    return (image if native else as_bytes("image", image)), fields, left


def _crop(crop: Any) -> tuple[bool, tuple[float, float], tuple[float, float]]:
    """Returns whether a crop is random, and the limits of its part of the area and of its aspect ratio."""
    wanted = "'center', 'random', (from, to), or two of these pairs"
    if isinstance(crop, str):
        return _arguments.choice("crop", crop, ("center", "random")) == "random", _SCALE, _RATIO
    try:
        first, second = crop
    except (TypeError, ValueError):
        _arguments.refuse("crop", wanted, crop)
    if isinstance(first, Sequence) and not isinstance(first, str):
        return (
            True,
            _arguments.pair("the first pair of crop", first),
            _arguments.pair("the second pair of crop", second),
        )
    return True, _arguments.pair("crop", (first, second)), _RATIO


def the_image(image: Any, usual: Image) -> tuple[tuple[Any, ...], str]:
    """Returns the one image of batches without ``fields``, and its field. The field "" stands for the only field that is an image.

    Options of the image that are None are taken from ``usual``.
    """
    if image is None:
        return usual._native(), ""
    if not isinstance(image, Image):
        _arguments.refuse("image", "a millrace.Image", image)
    try:
        if image.like is not None:
            raise InvalidArgumentError("like names another image, and there is one; name both with fields")
        made = image._over(usual)
        if made.channels is None:
            raise InvalidArgumentError(
                "a map of numbers is not an image; name it beside one: fields={'image': millrace.Image(), 'mask': millrace.Image('png', ...)}"
            )
        return made._native(), _arguments.text("field", image.field) or ""
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"image: {error}") from None
    except TypeError as error:
        raise TypeError(f"image: {error}") from None


def _image(field: Image, fields: Mapping[str, Field], usual: Image) -> tuple[tuple[Any, ...], str]:
    like = _arguments.text("like", field.like)
    if like is None:
        return field._over(usual)._native(), ""
    for name in ("crop", "flip"):
        if getattr(field, name) is not None:
            raise InvalidArgumentError(f"{name} says how to crop, and so does like={like!r}; leave one out")
    leader = fields.get(like)
    if isinstance(leader, Image) and field.size is None:
        size = leader.size if leader.transforms is None else compiled(leader.transforms).size
        field = dataclasses.replace(field, size=size)
    return field._over(usual)._native(), like
