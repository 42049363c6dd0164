"""Tests device= of a Loader: slots are pinned once, and used again and freed only when the copies from them have
ended."""

from __future__ import annotations

import gc
import warnings
from typing import Any

import millrace
import pytest
import torch
from fake_cuda import FakeCuda
from millrace._device import CudaDevice, Payload, Ring, Sent
from support import HEIGHT, NORMALISED, WIDTH, Samples, check_equal, loader_of


def test_copies_slots_and_streams(tar: Samples, cuda: FakeCuda) -> None:
    plain, loader = (
        loader_of(tar, epochs=3, **NORMALISED),
        loader_of(tar, epochs=3, device=CudaDevice(None, cuda), **NORMALISED),
    )
    batches = 0
    for _ in range(3):
        for wanted, batch in zip(plain, loader, strict=True):
            batches += 1
            check_equal(batch, wanted, exact=False)
            assert len(cuda.program.waited_for) == batches, "the program's stream waits for the batch"
            assert cuda.program.waited_for[-1].stream is cuda.streams[0]
            for name in ("image", "label", "valid", "sample"):
                assert set(cuda.used_by[batch[name].data_ptr()]) == {cuda.program}, name
            cuda.used_by.clear()
    assert batches == 21 and len(cuda.streams) == 1
    # Reading begins again once, when the first epoch was taken to its end: from then on it goes beyond epochs.
    slots, begun = len(cuda.registered), len(cuda.log) - cuda.log[::-1].index("unregister")
    assert 1 <= slots < batches and cuda.log[begun:].count("register") == slots, "each slot is pinned once"
    pinned = cuda.log.count("register")
    assert cuda.log.count("unregister") == pinned - slots
    # image, label, valid, sample; and two constants of each batch, which lie elsewhere.
    assert cuda.copies == 6 * batches and cuda.pinned_copies == 4 * batches
    assert cuda.copying == []
    loader.close()
    assert cuda.log.count("unregister") == pinned


def test_the_fake_sees_memory_that_is_used_too_early(tar: Samples) -> None:
    class Careless(CudaDevice):
        def send(self, batch: Any, payload: Payload, slot: Any, ring: Ring) -> Sent:
            with ring.sending(slot), self._api.use(self._stream):
                moved, _ = payload.move(batch, self._api.copy, torch.is_tensor)
                return Sent(moved, payload, {}, self._api.event(self._stream))

    cuda = FakeCuda()
    with loader_of(tar, device=Careless(None, cuda)) as loader:
        for _ in loader:
            pass
        cuda.read(list(cuda.copying))
    assert any("before it was read" in fault for fault in cuda.faults)


def test_slots_are_unpinned_before_they_are_freed(tar: Samples, cuda: FakeCuda) -> None:
    loader = loader_of(tar, raw=True, device=CudaDevice(None, cuda))
    stream: Any = loader._stream

    class Spy:
        def __init__(self, native: Any) -> None:
            self.native = native

        def __getattr__(self, name: str) -> Any:
            if name in ("close", "begin"):
                cuda.log.append(name)
            return getattr(self.native, name)

    stream._native = Spy(stream._native)
    iterator = iter(loader)
    first, state = next(iterator), loader.state_dict()
    wanted = next(iterator)
    del iterator
    loader.load_state_dict(state)
    iterator = iter(loader)
    check_equal(next(iterator), wanted)
    loader.close()
    log = [event for event, before in zip(cuda.log, [None, *cuda.log]) if event != before]
    assert log == ["begin", "register", "unregister", "begin", "register", "unregister", "close"]
    assert first["image"].shape == (8, HEIGHT, WIDTH, 3), "and batches stay"


def test_a_position_that_is_refused_changes_nothing(tar: Samples, raw: Samples, cuda: FakeCuda) -> None:
    with loader_of(tar, raw=True, device=CudaDevice(None, cuda)) as loader:
        plain = iter(loader_of(tar, raw=True))
        batches = iter(loader)
        check_equal(next(batches), next(plain))
        before = loader.state_dict()
        with pytest.raises(millrace.MismatchError):
            loader.load_state_dict(loader_of(raw).state_dict())
        assert loader.state_dict() == before
        for wanted, batch in zip(plain, batches, strict=True):
            check_equal(batch, wanted)


def test_a_loader_that_nobody_holds_unpins_its_slots(tar: Samples, cuda: FakeCuda) -> None:
    loader = loader_of(tar, device=CudaDevice(None, cuda))
    next(iter(loader))
    threads = loader._stream._threads if loader._stream else []
    assert cuda.registered
    del loader
    gc.collect()
    for thread in threads:
        thread.join(300)
        assert not thread.is_alive()
    assert cuda.registered == {}


def test_memory_that_cannot_be_pinned_is_copied_all_the_same(tar: Samples) -> None:
    cuda = FakeCuda(trouble="out of memory")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with loader_of(tar, raw=True, device=CudaDevice(None, cuda)) as loader:
            for wanted, batch in zip(loader_of(tar, raw=True), loader, strict=True):
                check_equal(batch, wanted)
    told = [str(warning.message) for warning in said if "pinned" in str(warning.message)]
    assert len(told) == 1 and "out of memory" in told[0] and "memory=" in told[0]
    assert cuda.faults == [] and cuda.pinned_copies == 0 and cuda.log == []


def test_two_slots_are_enough(tar: Samples, cuda: FakeCuda) -> None:
    options: dict[str, Any] = {"batch_size": 25, "size": 224}
    least = None
    for mebibytes in range(2, 64):
        try:
            with loader_of(tar, memory=f"{mebibytes}MiB", **options):
                least = f"{mebibytes}MiB"
                break
        except millrace.ExhaustedError:
            pass
    assert least is not None
    kept = []
    with loader_of(
        tar, memory=least, epochs=4, device=millrace.Transfer(CudaDevice(None, cuda), ahead=3), **options
    ) as loader:
        for _ in range(4):
            kept += list(loader)  # on the device, where they take none of the loader's memory
    assert len(kept) == 8


def test_the_host_holds_what_the_program_keeps(tar: Samples) -> None:
    with loader_of(tar, raw=True, device="cpu", batch_size=2, epochs=None, memory="2MiB") as loader:
        kept = []
        with pytest.raises(millrace.ExhaustedError, match="holds all"):
            while True:
                kept += list(loader)
        del kept[1:]
        assert next(iter(loader))["image"].shape == (2, HEIGHT, WIDTH, 3)
