"""Provides batches as arrays of JAX. ``millrace.Loader`` delivers them with ``device="jax"``, or with a device or
sharding of JAX.

    # On the first device of this process:
    loader = millrace.Loader(uri, device="jax")
    # On another device:
    loader = millrace.Loader(uri, device=jax.devices()[1])
    # Global arrays, over all devices of all processes:
    loader = millrace.Loader(uri, device=NamedSharding(mesh, PartitionSpec("data")),
                             rank=jax.process_index(), world=jax.process_count())

With a sharding, each array is the global array of ``batch_size`` x world rows, beginning with those of process 0. A ``PartitionSpec`` of one
name divides its first axis. Lists, such as ``key``, have the rows of this process. Integers of 64 bits become integers of 32 bits on the
device, unless ``jax_enable_x64`` is set. On a CPU, an array may be a view of the loader's memory, which it then keeps in use.
"""

from __future__ import annotations

import functools
from typing import Any

import jax  # type: ignore[import-not-found,unused-ignore]
import numpy as np

from . import _float_types
from ._device import Device, Payload, Ring, Sent, Slot, normalised
from ._errors import InvalidArgumentError


@functools.partial(jax.jit, static_argnames="kind")
def _finished(image: Any, constants: tuple[Any, Any] | None, kind: str) -> Any:
    floats = image if constants is None else normalised(image, *constants)
    return floats.astype(_float_types.NAMES[kind])


class JaxDevice(Device):
    """Represents a device, or the devices of a sharding.

    The program's thread starts the computation that normalizes images. So all processes of a job give their devices the same work in the
    same order.
    """

    normalises = True
    uses_torch = False
    fixed_shapes = True

    def __init__(self, target: Any) -> None:
        """Takes a ``jax.Device`` or a ``jax.sharding.Sharding``. None is the first device of this process."""
        self._target = jax.local_devices()[0] if target is None else target
        if not isinstance(self._target, (jax.Device, jax.sharding.Sharding)):
            raise InvalidArgumentError(f"device is {target!r}; of JAX it must be a device or a sharding")

    def send(self, batch: Any, payload: Payload, slot: Slot | None, ring: Ring) -> Sent:
        moved, constants = payload.move(batch, self._put, _is_array, constant=lambda array: array)
        jax.block_until_ready([leaf for leaf in jax.tree.leaves((moved, constants)) if isinstance(leaf, jax.Array)])
        return Sent(moved, payload, constants)

    def receive(self, sent: Sent) -> Any:
        return sent.payload.finish(sent.batch, sent.constants, _finished)

    def _put(self, array: Any) -> Any:
        if isinstance(self._target, jax.Device):
            return jax.device_put(array, self._target)
        try:
            return jax.make_array_from_process_local_data(self._target, array)
        except ValueError as error:
            raise InvalidArgumentError(
                f"an array of {list(array.shape)} does not divide as {self._target} says; choose another batch_size or sharding. JAX says: {error}"
            ) from error


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) and (value.dtype.kind in "biuc" or _float_types.is_float(value.dtype))
