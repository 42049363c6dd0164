"""This module has the way of batches from the native loader to the program: their destination, and the conversion of
their pixels to floats."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any, Callable, NamedTuple

from . import _float_types
from ._device import Device, Normalization, Payload
from ._device_decode import DeviceDecoder
from ._errors import TransformError, UnsupportedError
from ._fields import dtypes_of, sent_as_bytes


class Destination(NamedTuple):
    """Represents the destination of batches."""

    device: Device
    payload: Payload
    on_batch: (
        Callable[[], object] | None
    )  # after each batch that the program has received, when it asks for the next one
    ahead: int | None  # batches that are made and sent before the program asks; None: as many as keep the threads busy


class HandOver(NamedTuple):
    """Represents the form in which the program gets batches: images that become floats, and the entries of a tuple
    (none: a dict)."""

    floats: Mapping[str, Normalization] = {}
    as_tuple: tuple[str, ...] = ()
    torch: Any = None  # the module, if arrays become tensors

    @property
    def types(self) -> dict[str, str]:
        """The types of the images in ``floats``, as numpy calls them."""
        return {name: _float_types.NAMES[each.kind] for name, each in self.floats.items()}

    def native_floats(self, as_tensors: bool) -> list[tuple[Any, ...]]:
        """Returns the floats as the native loader takes them. With ``as_tensors`` the native loader makes tensors; otherwise Python does."""
        return [
            (
                name,
                each.channels,
                each.channels_first,
                each.mean,
                each.std,
                each.kind,
                *_float_types.element(each.kind, self.torch, as_tensors),
            )
            for name, each in self.floats.items()
        ]

    def chosen(self, batch: Any) -> Any:
        return tuple(batch[name] for name in self.as_tuple) if self.as_tuple else batch

    def check(self, batch: Any) -> None:
        """Raises TransformError if functions have made a batch without these entries."""
        if not self.as_tuple:
            return
        if not isinstance(batch, Mapping):
            raise TransformError(f"the batch_transform returned {type(batch).__name__}; as_tuple needs a dict")
        for name in self.as_tuple:
            if name not in batch:
                raise TransformError(f"as_tuple names {name!r}, and the batch has {', '.join(map(str, batch))}")


def handed_over(
    options: dict[str, Any],
    padded: Container[str],
    as_tuple: Sequence[str],
    torch: Any,
    device: Device | None,
    decoder: DeviceDecoder | None,
    has_functions: bool,
    is_remote: bool,
    is_deep: bool,
) -> tuple[HandOver, Payload]:
    """Changes ``options`` of the native loader such that float pixels stay bytes up to the device, or up to the program.

    Pixels are floats from the start in rows that workers transform. If functions get them, they are also floats in pinned memory. Images in
    ``padded`` are float32 from the start. Floats of 16 bits are always made at the end. With ``is_deep``, functions of whole batches may
    return anything.
    """
    on_device = device is not None and device.normalises and not has_functions
    is_pinned = device is not None and device.pins
    is_early = is_remote or (is_pinned and not on_device)
    images = options["image"], options["fields"]
    for name, dtype in dtypes_of(*images).items() if is_remote else ():
        if dtype in _float_types.HALVES:
            raise UnsupportedError(
                f"workers run the transform, which gets {name!r} as float32; leave dtype of the image out, and let the transform return "
                f"{_float_types.NAMES[dtype]}"
            )
    options["image"], options["fields"], floats = sent_as_bytes(*images, padded, only_halves=is_early)
    made = HandOver({} if on_device else floats, tuple(as_tuple), torch)
    made.native_floats(as_tensors=False)  # raises if they cannot be made
    if not on_device:
        return made, Payload({}, is_deep, decoder)
    affine = {name: each.affine for name, each in floats.items() if not each.is_done}
    return made, Payload(affine, is_deep, decoder, {name: each.kind for name, each in floats.items()})
