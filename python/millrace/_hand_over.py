"""The way of batches from the native loader to the program: where they go, and who makes floats of their pixels."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any, Callable, NamedTuple

from .device import Device, Normalization, Payload
from .device_decode import DeviceDecoder
from .errors import TransformError
from .fields import sent_as_bytes


class Destination(NamedTuple):
    """Where batches go."""

    device: Device
    payload: Payload
    on_batch: (
        Callable[[], object] | None
    )  # after each batch that the program has received, when it asks for the next one
    ahead: int | None  # batches that are made and sent before the program asks; None: as many as keep the threads busy


class HandOver(NamedTuple):
    """The form in which the program gets batches: images that become floats, and the entries of a tuple (none: a dict)."""

    floats: Mapping[str, Normalization] = {}
    as_tuple: tuple[str, ...] = ()

    @property
    def native_floats(self) -> list[tuple[Any, ...]]:
        return [(name, *each) for name, each in self.floats.items()]

    def chosen(self, batch: Any) -> Any:
        return tuple(batch[name] for name in self.as_tuple) if self.as_tuple else batch

    def check(self, batch: Any) -> None:
        """TransformError: functions have made something without these entries."""
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
    device: Device | None,
    decoder: DeviceDecoder | None,
    has_functions: bool,
    is_remote: bool,
    is_deep: bool,
) -> tuple[HandOver, Payload]:
    """Changes ``options``, those of the native loader, so that float pixels stay bytes up to the device, or up to the program.

    They are floats from the start in rows that workers transform, and in memory that is pinned if functions get them. Images in ``padded`` stay as they are.
    ``is_deep``: functions of whole batches may make what they like.
    """
    on_device = device is not None and device.normalises and not has_functions
    is_pinned = device is not None and device.pins
    normalised: dict[str, Normalization] = {}
    if on_device or not (is_remote or is_pinned):
        options["image"], options["fields"], normalised = sent_as_bytes(options["image"], options["fields"], padded)
    affine = {name: each.affine for name, each in normalised.items()} if on_device else {}
    return HandOver({} if on_device else normalised, tuple(as_tuple)), Payload(affine, is_deep, decoder)
