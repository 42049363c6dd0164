"""This module has the shapes of a loader's batches, and batches of padding that have them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np

from . import _core, _float_types
from ._batch import Batch
from ._device import Device, Payload
from ._errors import InvalidArgumentError, UnsupportedError
from ._hand_over import HandOver
from ._pads import Pads
from ._sample_values import FORMER_KEY, RENAMED
from ._tokens import Shape

_ORIGIN = {"valid", "sample", "part", "row"}  # arrays of a batch that are not fields


class BatchShapes:
    """The shapes of the batches of a native loader, as the program gets them. ``values`` has the padding of entries that are lists."""

    def __init__(
        self,
        native: _core.Loader,
        torch: Any,
        device: Device | None,
        payload: Payload,
        hand_over: HandOver,
        pads: Pads,
        values: Mapping[str, Any],
        batch_size: int,
        has_functions: bool,
    ) -> None:
        self._native = native
        self._torch = torch
        self._device = device
        self._payload = payload
        self._hand_over = hand_over
        self._pads = pads
        self._values = values
        self._batch_size = batch_size
        self._has_functions = has_functions

    def listed(self) -> list[dict[str, Shape]]:
        """Returns the shapes by the names of arrays, once for each size of batches."""
        self._check_known()
        floats = {**self._payload.floats, **self._hand_over.types}
        return [
            {name: Shape(dims, floats.get(name, dtype)) for name, dtype, dims in self._with_decoded(arrays)}
            for arrays in self._native.shapes()
        ]

    def rehearsed(self) -> Iterator[Batch]:
        """Yields a batch of padding for each of the shapes."""
        self._check_known()
        for arrays in self._native.shapes():
            batch: dict[str, Any] = {}
            for name, dtype, dims in self._with_decoded(arrays):
                batch[name] = self._full(name, dtype, dims)
            rows = len(batch["valid"])
            convert = self._torch.from_numpy if self._torch else np.asarray
            values = {
                name: convert(empty) if isinstance(empty, np.ndarray) else empty for name, empty in self._values.items()
            }
            batch.update({name: [empty] * rows for name, empty in values.items()})
            batch["key"] = [""] * rows
            if self._device is not None:
                batch = self._device.receive(self._device.send(batch, self._payload, None, self._device.ring()))
            yield cast(Batch, self._hand_over.chosen(batch))

    def check_names(self, pad: Mapping[str, float], entries: Sequence[tuple[Any, ...]]) -> None:
        """Raises InvalidArgumentError if ``pad``, or the names of a tuple, contain a name that batches do not have."""
        present = {name for shape in self._native.shapes() for name, *_ in shape}
        arrays = present - _ORIGIN
        arrays |= {entry[0] for entry in entries if entry[2] == "array"}
        for name in pad:
            if name not in arrays:
                raise InvalidArgumentError(
                    f"pad names {name!r}, and the arrays of batches are {', '.join(sorted(arrays)) or 'none'}"
                )
        decoded = {} if self._payload.decoder is None else self._payload.decoder.shapes
        for name in self._hand_over.as_tuple:
            if name == FORMER_KEY:
                raise InvalidArgumentError(f"as_tuple names {name!r}: {RENAMED}")
            known = {*arrays, *present, "key", *self._values, *decoded}
            if name not in known:
                raise InvalidArgumentError(
                    f"as_tuple names {name!r}, and batches have {', '.join(sorted(known - _ORIGIN - {'key'})) or 'no such entry'}"
                )

    def _full(self, name: str, dtype: str, dims: tuple[int, ...]) -> Any:
        """Returns an array or a tensor of padding."""
        padding = 0 if name in _ORIGIN else self._pads.of(name, dtype)
        image = self._hand_over.floats.get(name)
        kind = np.dtype(dtype) if image is None else _float_types.element(image.kind, self._torch, True)[0]
        if self._torch is None:
            return np.full(dims, padding, dtype=kind)
        return self._torch.full(dims, padding, dtype=getattr(self._torch, self._hand_over.types.get(name, dtype)))

    def _with_decoded(self, arrays: list[Any]) -> list[Any]:
        """Adds the arrays of images that the device decodes."""
        shapes = {} if self._payload.decoder is None else self._payload.decoder.shapes
        return arrays + [(name, "uint8", (self._batch_size, *shape.dims)) for name, shape in shapes.items()]

    def _check_known(self) -> None:
        if self._has_functions:
            raise UnsupportedError(
                "the batches of a transform are not known ahead; take the shapes of a Loader without it"
            )
