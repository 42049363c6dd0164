"""This module has the transfer of batches to the device that trains."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Callable, NamedTuple, Optional, Protocol

import numpy as np

from . import _arguments, _float_types
from ._device_decode import DeviceDecoder
from ._errors import InvalidArgumentError, UnsupportedError

Copy = Callable[[Any], Any]
"""Copies a tensor of the host to the device."""

Slot = tuple[int, int]
"""The address and the size of the memory that holds the arrays of a batch."""


class Affine(NamedTuple):
    """The computation on the pixels of an image on the device: ``pixel * scale + shift`` in each channel."""

    scale: Sequence[float]
    shift: Sequence[float]
    channels_first: bool

    @classmethod
    def of(cls, mean: Sequence[float], std: Sequence[float], channels_first: bool) -> Affine:
        """Returns the computation ``(pixel / 255 - mean) / std``."""
        return cls([1 / (255 * s) for s in std], [-m / s for m, s in zip(mean, std)], channels_first)


class Normalization(NamedTuple):
    """Converts the pixels of an image to floats: ``(pixel / 255 - mean) / std``, for up to three channels."""

    channels: int
    channels_first: bool
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    kind: str = "f32"  # or "f16", "bf16": these, rounded
    is_done: bool = False  # all but the rounding

    @property
    def affine(self) -> Affine:
        return Affine.of(self.mean[: self.channels], self.std[: self.channels], self.channels_first)


Constants = dict[str, tuple[Any, Any]]  # by the images that are normalized: the scale, and the shift of each row
Apply = Callable[[Any, Optional[tuple[Any, Any]], str], Any]
"""Returns the floats of an image in the given type: normalized by the constants, if there are any, and rounded."""


class Payload:
    """Represents the arrays of a batch that go to the device, and the form in which they arrive.

    If a batch is a dict, its arrays move, and lists, texts and other objects stay. A batch that ``collate_fn`` or ``batch_transform`` has made
    (``deep``) is searched for arrays: dicts, lists, tuples. Images in ``normalised`` are sent as bytes, and :meth:`finish` normalizes them.
    It also rounds images in ``kinds`` to ``"f16"`` or ``"bf16"``. Images of ``decoder`` are files until :meth:`decode`.
    """

    def __init__(
        self,
        normalised: Mapping[str, Affine] | None = None,
        deep: bool = False,
        decoder: DeviceDecoder | None = None,
        kinds: Mapping[str, str] | None = None,
    ) -> None:
        self._normalised = dict(normalised or {})
        self._kinds = {**dict.fromkeys(self._normalised, "f32"), **(kinds or {})}
        self._deep = deep
        self.decoder = decoder

    @property
    def floats(self) -> dict[str, str]:
        """The types of the images that :meth:`finish` makes, as numpy calls them, by name."""
        return {name: _float_types.NAMES[kind] for name, kind in self._kinds.items()}

    def move(
        self, batch: Any, copy: Copy, is_array: Callable[[Any], bool], constant: Copy | None = None
    ) -> tuple[Any, Constants]:
        """Returns the batch on the device, with the constants for :meth:`finish`. ``constant`` copies arrays that are not columns of a batch."""
        moved: dict[Any, Any] = {}  # by their memory: an array that comes under two names is copied once

        def once(array: Any) -> Any:
            place = _place_of(array)
            if place not in moved:
                moved[place] = copy(array)
            return moved[place]

        if self._deep:
            return _deeply(batch, once, is_array), {}
        if not isinstance(batch, dict):
            return (once(batch) if is_array(batch) else batch), {}
        constants: Constants = {}
        for name, affine in self._normalised.items():
            if name in batch:
                scale, shift = _constants(batch[name], batch["key"], affine)
                constants[name] = (constant or copy)(scale), copy(shift)
        return {name: once(value) if is_array(value) else value for name, value in batch.items()}, constants

    def decode(self, batch: Any, device: Any) -> Any:
        """Returns the batch with pixels in place of files. ``device`` is a torch.device."""
        return batch if self.decoder is None else self.decoder(batch, device)

    def finish(self, batch: Any, constants: Constants, apply: Apply | None = None) -> Any:
        """Returns the batch with normalized images. The device computes them, by the same operations and shapes for all batches."""
        if not self._kinds:
            return batch
        apply = apply or _finished
        return {
            name: apply(value, constants.get(name), self._kinds[name]) if name in self._kinds else value
            for name, value in batch.items()
        }


def _place_of(array: Any) -> Any:
    if isinstance(array, np.ndarray):
        return array.__array_interface__["data"][0], array.shape, array.strides, array.dtype.str
    return array.data_ptr(), tuple(array.shape), array.stride(), array.dtype


def _deeply(value: Any, move: Copy, is_array: Callable[[Any], bool]) -> Any:
    if is_array(value):
        return move(value)
    if isinstance(value, dict):
        return {key: _deeply(item, move, is_array) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [_deeply(item, move, is_array) for item in value]
        if isinstance(value, list):
            return items
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return value


def _constants(image: Any, keys: Sequence[str], affine: Affine) -> tuple[Any, Any]:
    """Returns the constants as the same kind of array as the image. Padding, which has no key, is not shifted, and stays zero."""
    scale = np.asarray(affine.scale, np.float32)
    shift = np.outer(np.array([bool(key) for key in keys]), np.asarray(affine.shift)).astype(np.float32)
    shape = (-1, 1, 1) if affine.channels_first else (1, 1, -1)
    scale, shift = scale.reshape(shape), shift.reshape(len(keys), *shape)
    if isinstance(image, np.ndarray):
        return scale, shift
    import torch

    return torch.from_numpy(scale), torch.from_numpy(shift)


def normalised(image: Any, scale: Any, shift: Any) -> Any:
    return image * scale + shift


def _finished(image: Any, constants: tuple[Any, Any] | None, kind: str) -> Any:
    import torch

    floats = image if constants is None else normalised(image, *constants)
    return floats if kind == "f32" else floats.to(getattr(torch, _float_types.NAMES[kind]))


class Sent(NamedTuple):
    """Represents a batch whose bytes have left the host."""

    batch: Any
    payload: Payload
    constants: Constants = {}
    landed: Any = None  # the event for which the program's stream has to wait


class Ring:
    """The slots of a loader as a device sees them. It is closed before the first slot is freed."""

    def sending(self, slot: Slot | None) -> contextlib.AbstractContextManager[None]:
        """Returns a context that lasts as long as the device reads the slot."""
        return contextlib.nullcontext()

    def close(self) -> None:
        """Ends the use of the slots, which are about to be freed."""


class Device:
    """Represents the destination of batches. With this class itself, they stay on the host.

    The threads of a Stream call ``send``, which returns when the memory of the host is free. The program's thread calls ``receive`` for each
    batch that it gets. If a signal has interrupted ``receive``, it may be called again with the same batch.
    """

    normalises = False  # images are sent as bytes and normalized there
    decodes = False  # or as files
    pins = False  # slots are pinned: the Ring has to be closed before they are freed
    uses_torch = True  # else the device takes numpy's arrays
    fixed_shapes = False  # programs are compiled for the shapes of batches, so that all batches have the same shapes

    def ring(self) -> Ring:
        return Ring()

    def send(self, batch: Any, payload: Payload, slot: Slot | None, ring: Ring) -> Sent:
        return Sent(batch, payload)

    def receive(self, sent: Sent) -> Any:
        return sent.batch

    def after_batch(self) -> Callable[[], object] | None:
        """Returns the function that is called after each batch, unless the program names another one."""
        return None


class TorchDevice(Device):
    """A device of torch whose copies end before ``Tensor.to`` returns."""

    normalises = True
    decodes = True

    def __init__(self, device: Any) -> None:
        self._device = device

    def send(self, batch: Any, payload: Payload, slot: Slot | None, ring: Ring) -> Sent:
        moved, constants = payload.move(batch, lambda tensor: tensor.to(self._device), _is_tensor)
        return Sent(payload.finish(payload.decode(moved, self._device), constants), payload)


class XlaDevice(Device):
    """Represents a device of torch-xla. The program's step normalizes images, so that every step is the same graph."""

    normalises = True
    fixed_shapes = True

    def __init__(self, name: str) -> None:
        try:
            import torch_xla  # type: ignore[import-not-found,unused-ignore]
            import torch_xla.core.xla_model as xm  # type: ignore[import-not-found,unused-ignore]
        except ImportError as error:
            raise UnsupportedError(f"device={name!r} needs torch-xla, which cannot be imported: {error}") from error
        self._torch_xla, self._xm = torch_xla, xm
        if name == "xla":
            self._device = xm.xla_device()
        else:
            import torch

            self._device = torch.device(name)

    def send(self, batch: Any, payload: Payload, slot: Slot | None, ring: Ring) -> Sent:
        # A transfer keeps its tensor, and with it the slot, until it is done.
        send = self._xm.send_cpu_data_to_device
        moved, constants = payload.move(batch, lambda tensor: send([tensor], self._device)[0], _is_tensor)
        return Sent(moved, payload, constants)

    def receive(self, sent: Sent) -> Any:
        return sent.payload.finish(sent.batch, sent.constants)

    def after_batch(self) -> Callable[[], object] | None:
        sync: Callable[[], object] = getattr(self._torch_xla, "sync", None) or self._xm.mark_step
        return sync


class CudaApi(Protocol):
    """Represents the part of ``torch.cuda`` that a CudaDevice needs."""

    def stream(self) -> Any:
        """Returns a new stream of the device."""

    def current_stream(self) -> Any:
        """Returns the current stream of the calling thread. It has ``wait_event``."""

    def use(self, stream: Any) -> contextlib.AbstractContextManager[Any]:
        """Returns a context whose operations go to that stream."""

    def event(self, stream: Any) -> Any:
        """Records an event in the stream. It has ``synchronize``, which sleeps."""

    def copy(self, tensor: Any) -> Any:
        """Copies a tensor to the device, in the stream in use. It may return before the bytes are read."""

    def record_stream(self, tensor: Any, stream: Any) -> None:
        """Keeps the memory of a tensor in use until the stream has done its present work."""

    def register(self, address: int, size: int) -> str:
        """Pins memory, and returns ``""`` or an error message."""

    def unregister(self, address: int) -> None: ...


class TorchCuda:
    """Represents the CudaApi of torch."""

    def __init__(self, device: Any) -> None:
        import torch

        self._torch: Any = torch
        self._cuda: Any = torch.cuda
        self._device = device

    def stream(self) -> Any:
        return self._cuda.Stream(self._device)

    def current_stream(self) -> Any:
        return self._cuda.current_stream(self._device)

    def use(self, stream: Any) -> contextlib.AbstractContextManager[Any]:
        context: contextlib.AbstractContextManager[Any] = self._cuda.stream(stream)
        return context

    def event(self, stream: Any) -> Any:
        event = self._cuda.Event(blocking=True)
        event.record(stream)
        return event

    def copy(self, tensor: Any) -> Any:
        return tensor.to(self._device, non_blocking=True)

    def record_stream(self, tensor: Any, stream: Any) -> None:
        tensor.record_stream(stream)

    def register(self, address: int, size: int) -> str:
        with self._cuda.device(self._device):
            runtime = self._cuda.cudart()
            status = runtime.cudaHostRegister(address, size, 1)  # portable: for all contexts of the process
            if int(status) == 0:
                return ""
            with contextlib.suppress(
                RuntimeError
            ):  # removes the error from this thread, where the next kernel would report it
                self._torch.zeros(1, device=self._device)
            return f"{runtime.cudaGetErrorString(status)} (cudaError {int(status)})"

    def unregister(self, address: int) -> None:
        with self._cuda.device(self._device):
            self._cuda.cudart().cudaHostUnregister(address)


class PinnedRing(Ring):
    """Pins each slot when it is first sent, and unpins all together. It is thread-safe, and sends one slot at a time."""

    def __init__(self, api: CudaApi, refused: Callable[[str], None]) -> None:
        self._api = api
        self._refused = refused
        self._lock = threading.Lock()
        self._pinned: dict[int, bool] = {}  # by address: True if it was possible
        self._is_open = True

    @contextlib.contextmanager
    def _sending(self, slot: Slot | None) -> Iterator[None]:
        with self._lock:
            if slot is not None and self._is_open and slot[0] not in self._pinned:
                trouble = self._api.register(*slot)
                self._pinned[slot[0]] = not trouble
                if trouble:
                    self._refused(trouble)
            yield

    def sending(self, slot: Slot | None) -> contextlib.AbstractContextManager[None]:
        return self._sending(slot)

    def close(self) -> None:
        with self._lock:
            self._is_open = False
            for address, is_pinned in self._pinned.items():
                if is_pinned:
                    self._api.unregister(address)
            self._pinned.clear()


class CudaDevice(Device):
    """A GPU. Copies, and the normalization of images, run in a stream of their own beside the program's stream. Slots are pinned.

    A slot is free when the event after its copies has come. The program's stream waits for the event after the normalization, and the
    program itself does not wait. The memory on the device is not used again before that stream has finished with it.
    """

    normalises = True
    decodes = True
    pins = True

    def __init__(self, device: Any, api: CudaApi | None = None) -> None:
        self._device = device
        self._api: CudaApi = TorchCuda(device) if api is None else api
        self._stream = self._api.stream()
        self._has_warned = False

    def ring(self) -> Ring:
        return PinnedRing(self._api, self._warn)

    def send(self, batch: Any, payload: Payload, slot: Slot | None, ring: Ring) -> Sent:
        sources: list[Any] = []  # they stay alive until they are read

        def copy(tensor: Any) -> Any:
            sources.append(tensor)
            return self._api.copy(tensor)

        with ring.sending(slot), self._api.use(self._stream):
            try:
                moved, constants = payload.move(batch, copy, _is_tensor)
                copied = self._api.event(self._stream)
                finished = payload.finish(payload.decode(moved, self._device), constants)
                landed = self._api.event(self._stream)
            except BaseException:
                self._api.event(self._stream).synchronize()  # of the copies that have begun
                raise
            copied.synchronize()
        return Sent(finished, payload, {}, landed)

    def receive(self, sent: Sent) -> Any:
        stream = self._api.current_stream()
        stream.wait_event(sent.landed)
        for tensor in _tensors(sent.batch):
            self._api.record_stream(tensor, stream)
        return sent.batch

    def _warn(self, trouble: str) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        warnings.warn(
            f"memory of the loader cannot be pinned: cudaHostRegister says {trouble}; batches are copied through the driver's own buffers, "
            "which is slower. Give the loader less memory=, so that there is less to pin",
            RuntimeWarning,
            stacklevel=2,
        )


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _tensors(value: Any) -> Iterator[Any]:
    """Yields all tensors of a value, at any depth."""
    if _is_tensor(value):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def device_of(value: Any) -> Device:
    """Returns the device that the option ``device`` of a Loader names.

    Raises:
        InvalidArgumentError: There is no such device.
        UnsupportedError: A package that it needs is not installed.
    """
    if isinstance(value, Device):
        return value
    if type(value).__module__.partition(".")[0] in ("jax", "jaxlib") or value == "jax":
        try:
            from .jax import JaxDevice
        except ImportError as error:
            raise UnsupportedError(f"device={value!r} needs jax, which cannot be imported: {error}") from error
        return JaxDevice(None if isinstance(value, str) else value)
    if value == "cpu":
        return Device()
    if isinstance(value, str) and value.partition(":")[0] == "xla":
        return XlaDevice(value)
    if isinstance(value, int) and not isinstance(value, bool):  # as in `model.to(local_rank)`
        value = f"cuda:{value}"
    wanted = (
        "'cuda', 'cuda:1', the number of a GPU, 'cpu', 'xla', 'jax', a torch.device, or a device or sharding of JAX"
    )
    if not isinstance(value, str) and type(value).__name__ != "device":
        _arguments.refuse("device", wanted, value)
    return _of_torch(value, wanted)


def _of_torch(value: Any, wanted: str) -> Device:
    try:
        import torch
    except ImportError as error:
        raise UnsupportedError(f"device={str(value)!r} needs torch, which cannot be imported: {error}") from error
    try:
        device = torch.device(value)
    except RuntimeError as error:
        raise InvalidArgumentError(
            f"device is {value!r}; it must be {wanted}. torch says: {str(error).splitlines()[0]}"
        ) from None
    if device.type == "cpu":
        return Device()
    if device.type == "xla":
        return XlaDevice(str(device))
    if device.type != "cuda":
        return TorchDevice(device)
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if (device.index or 0) >= count:
        raise InvalidArgumentError(
            f"device is {str(value)!r}, and torch finds {count} CUDA devices here; choose one of them, or device='cpu'"
        )
    # This is the device that is current now. Another thread may ask later.
    return CudaDevice(torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index))
