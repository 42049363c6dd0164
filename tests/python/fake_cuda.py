"""Imitates a GPU, and sees whether it is treated as one has to be."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import weakref
from collections.abc import Iterator

import torch


@dataclasses.dataclass(eq=False)
class Copying:
    """Is a copy whose bytes have not been read yet, as far as the host may know."""

    source: weakref.ref[torch.Tensor]
    address: int
    size: int
    copy: torch.Tensor


class Stream:
    def __init__(self) -> None:
        self.waited_for: list[Event] = []

    def wait_event(self, event: Event) -> None:
        self.waited_for.append(event)


class Event:
    """Comes when somebody waits for it: that is the last moment at which the bytes that were to be copied may be read."""

    def __init__(self, cuda: FakeCuda, stream: Stream) -> None:
        self.cuda = cuda
        self.stream = stream
        self.copies = list(cuda.copying)

    def synchronize(self) -> None:
        self.cuda.read(self.copies)


class FakeCuda:
    """Is a CudaApi. Its tensors are those of the CPU. A mistake of the caller is raised, or noted in ``faults`` if
    nobody would see the exception."""

    def __init__(self, trouble: str = "") -> None:
        self.trouble = trouble  # of register
        self.faults: list[str] = []
        self.log: list[str] = []
        self.program = Stream()
        self.streams: list[Stream] = []
        self.copying: list[Copying] = []
        self.copies = 0
        self.copied_bytes: list[int] = []
        self.pinned_copies = 0
        self.registered: dict[int, int] = {}
        self.used_by: dict[int, list[Stream]] = {}  # data_ptr of tensors: streams that were recorded
        self.copy_error: Exception | None = None
        self.good_copies = 0  # before it
        self._local = threading.local()
        self._reading = threading.Lock()

    def stream(self) -> Stream:
        self.streams.append(Stream())
        return self.streams[-1]

    def current_stream(self) -> Stream:
        return getattr(self._local, "stream", self.program)

    @contextlib.contextmanager
    def use(self, stream: Stream) -> Iterator[None]:
        self._local.stream = stream
        try:
            yield
        finally:
            del self._local.stream

    def event(self, stream: Stream) -> Event:
        return Event(self, stream)

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        assert self.current_stream() in self.streams, "a copy in the program's stream"
        if self.copy_error is not None:
            self.good_copies -= 1
            if self.good_copies < 0:
                raise self.copy_error
        copy = tensor.clone()
        address, size = tensor.data_ptr(), tensor.numel() * tensor.element_size()
        self.copying.append(Copying(weakref.ref(tensor), address, size, copy))
        self.copies += 1
        self.copied_bytes.append(size)
        self.pinned_copies += any(
            start <= address and address + size <= start + length for start, length in self.registered.items()
        )
        return copy

    def record_stream(self, tensor: torch.Tensor, stream: Stream) -> None:
        self.used_by.setdefault(tensor.data_ptr(), []).append(stream)

    def register(self, address: int, size: int) -> str:
        if self.trouble:
            return self.trouble
        if any(address < start + length and start < address + size for start, length in self.registered.items()):
            self.faults.append(f"{address:x} is registered already")
        self.registered[address] = size
        self.log.append("register")
        return ""

    def unregister(self, address: int) -> None:
        size = self.registered.pop(address, 0)
        if not size:
            self.faults.append(f"{address:x} is not registered")
        if any(address <= copy.address < address + size for copy in self.copying):
            self.faults.append(f"{address:x} is unregistered while it is read")
        self.log.append("unregister")

    def read(self, copies: list[Copying]) -> None:
        """Copies that another thread has read meanwhile may have been released."""
        with self._reading:
            for copying in copies:
                if copying not in self.copying:
                    continue
                source = copying.source()
                if source is None:
                    self.faults.append("memory was let go of before it was read")
                elif not torch.equal(source, copying.copy):
                    self.faults.append("memory was used again before it was read")
                self.copying.remove(copying)
