"""Tests device= of a Loader: what arrives there, and what becomes of positions and errors."""

from __future__ import annotations

import importlib
import sys
import threading
import types
import warnings
from typing import Any

import millrace
import numpy as np
import pytest
import torch
from fake_cuda import FakeCuda
from millrace._device import CudaDevice, Payload, Ring, Sent, TorchDevice
from support import HEIGHT, MEAN, NORMALISED, STD, WIDTH, Samples, check_equal, loader_of


def here() -> TorchDevice:
    """Returns a device to which batches are sent as to any other, and which is the CPU."""
    return TorchDevice(torch.device("cpu"))


# ---- What arrives


@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
@pytest.mark.parametrize("last", ["pad", "short", "wrap", "drop"])
def test_normalised_on_the_device_as_on_the_host(tar: Samples, layout: str, last: str) -> None:
    options: dict[str, Any] = {
        **NORMALISED,
        "image": millrace.Image(layout=layout),
        "augment": True,
        "last": last,
        "digest": "raw",
    }
    plain, loader = loader_of(tar, **options), loader_of(tar, device=here(), **options)
    assert loader.shapes() == plain.shapes() and len(loader) == len(plain)
    for wanted, batch in zip(plain, loader, strict=True):
        check_equal(batch, wanted, exact=False)
        assert "mask" not in batch
        assert loader.state_dict() == plain.state_dict()
    assert last != "pad" or not batch["image"][-1].any(), "padding is zeros"
    for wanted, batch in zip(plain.rehearse(), loader.rehearse(), strict=True):
        check_equal(batch, wanted)


def test_pixels_of_the_host_are_those_of_the_device(tar: Samples) -> None:
    every = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 256, 1)
    for mean, std in [(0.0, 1.0), (0.485, 0.229), (0.5, 0.1), (100.0, 0.01)]:
        from millrace._device import Affine

        payload = Payload({"image": Affine.of([mean], [std], channels_first=False)})
        moved, constants = payload.move({"image": every, "key": ["a"]}, lambda tensor: tensor, torch.is_tensor)
        wanted = ((np.arange(256) / 255 - mean) / std).astype(np.float32)
        got = payload.finish(moved, constants)["image"].flatten().numpy()
        assert np.abs(got - wanted).max() <= 1e-6 * (1 + abs(mean)) / std


def test_images_that_are_damaged_are_zeros_there_too(tmp_path: Any, tar: Samples) -> None:
    from support import write_raw

    samples = write_raw(tmp_path, count=10)
    (tmp_path / "cat" / "0003.png").write_bytes(b"\x89PNG\r\n\x1a\nno image")
    options: dict[str, Any] = {**NORMALISED, "bad_samples": "mask", "batch_size": 10, "shuffle": "none"}
    for wanted, batch in zip(loader_of(samples, **options), loader_of(samples, device=here(), **options), strict=True):
        assert list(batch["valid"]).count(False) == 1 and batch["valid"][-1]
        check_equal(batch, wanted, exact=False)


def test_what_is_no_array_stays(tar: Samples, cuda: FakeCuda) -> None:
    fields = {
        "image": millrace.Image("png", dtype="f32", mean=MEAN, std=STD),
        "grey": millrace.Image("png", channels=1, dtype="f32", mean=0.25, std=0.5, layout="nchw"),
        "bytes": millrace.Image("png"),
        "label": millrace.Label("cls"),
        "caption": millrace.Text("txt"),
        "meta": millrace.Json("json"),
        "file": millrace.Bytes("txt"),
    }
    plain, loader = (
        loader_of(tar, fields=fields, last="pad"),
        loader_of(tar, fields=fields, last="pad", device=CudaDevice(None, cuda)),
    )
    assert loader.shapes() == plain.shapes()
    for wanted, batch in zip(plain, loader, strict=True):
        check_equal(batch, wanted, exact=False)
        assert isinstance(batch["caption"], list) and isinstance(batch["key"], list)
    pixels = HEIGHT * WIDTH * 8
    assert cuda.copied_bytes.count(3 * pixels) == 2 * len(loader), "images travel as bytes"
    assert cuda.copied_bytes.count(pixels) == len(loader) and max(cuda.copied_bytes) == 3 * pixels
    loader.close()


def test_arrays_of_different_shapes_are_a_list_on_the_host(tmp_path: Any) -> None:
    for number in range(4):
        np.save(tmp_path / f"{number}.npy", np.arange(number + 1))
        (tmp_path / f"{number}.cls").write_text(str(number))
    options: dict[str, Any] = {
        "fields": {"x": millrace.Array("npy")},
        "batch_size": 4,
        "shuffle": "none",
        "output": "torch",
    }
    for wanted, batch in zip(
        millrace.Loader(tmp_path, epochs=1, **options), millrace.Loader(tmp_path, epochs=1, device=here(), **options)
    ):
        assert (
            [x.tolist() for x in batch["x"]]
            == [x.tolist() for x in wanted["x"]]
            == [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3]]
        )
        assert all(isinstance(x, torch.Tensor) for x in batch["x"])


def test_functions_run_before_on_the_host(tar: Samples, cuda: FakeCuda) -> None:
    seen: list[Any] = []

    def look(batch: dict[str, Any]) -> dict[str, Any]:
        seen.append(batch["image"].dtype)
        return {**batch, "twice": 2 * batch["label"]}

    plain = loader_of(tar, batch_transform=look, **NORMALISED)
    loader = loader_of(tar, batch_transform=look, device=CudaDevice(None, cuda), **NORMALISED)
    for wanted, batch in zip(plain, loader, strict=True):
        check_equal(batch, wanted)
        assert cuda.used_by[batch["twice"].data_ptr()], "what it has made moves, too"
    assert set(seen) == {torch.float32}, "functions get what they get without a device"
    loader.close()
    plain.close()


def test_what_a_transform_makes_moves(tar: Samples, cuda: FakeCuda) -> None:
    def shifted(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        return {**sample, "image": sample["image"] + 1, "draw": rng.random()}

    plain = loader_of(tar, transform=millrace.Map(shifted, threads=3), **NORMALISED)
    with loader_of(
        tar, transform=millrace.Map(shifted, threads=3), device=CudaDevice(None, cuda), **NORMALISED
    ) as loader:
        for wanted, batch in zip(plain, loader, strict=True):
            check_equal(batch, wanted)
            assert cuda.used_by[batch["image"].data_ptr()] and cuda.used_by[batch["valid"].data_ptr()]
            assert loader.state_dict() == plain.state_dict()
    assert cuda.log == [], "no slot is sent"
    plain.close()


def test_what_collate_makes_is_searched(tar: Samples, cuda: FakeCuda) -> None:
    def collate(samples: list[dict[str, Any]]) -> Any:
        return [
            {"x": (torch.stack([sample["image"] for sample in samples]), "text")},
            [sample["label"] for sample in samples],
        ]

    with loader_of(tar, collate_fn=collate, device=CudaDevice(None, cuda)) as loader:
        for batch in loader:
            assert batch[0]["x"][1] == "text" and cuda.used_by[batch[0]["x"][0].data_ptr()] == [cuda.program]


# ---- Positions, errors, hooks


def test_what_is_sent_ahead_is_not_received(tar: Samples) -> None:
    sent: list[int] = []
    asked = threading.Event()

    class Counting(TorchDevice):
        def send(self, batch: Any, payload: Payload, slot: Any, ring: Ring) -> Sent:
            sent.append(len(sent))
            if len(sent) == 4:
                asked.set()
            return super().send(batch, payload, slot, ring)

    with loader_of(tar, device=millrace.Transfer(Counting(torch.device("cpu")), ahead=3), digest="raw") as loader:
        plain = loader_of(tar, digest="raw")
        batches = iter(loader)
        next(batches)
        batches_of_plain = iter(plain)
        next(batches_of_plain)
        assert asked.wait(300), "three batches come ahead of the program"
        assert len(sent) == 4 and loader.state_dict() == plain.state_dict() and loader.report()["samples"] == 8
        state = loader.state_dict()
        assert set(loader.report()["stalls"]) >= {"device"}
        with loader_of(tar, device="cpu") as resumed:
            resumed.load_state_dict(state)
            assert [batch["key"] for batch in resumed] == [batch["key"] for batch in batches]


def test_an_exception_of_the_source_is_not_the_end(tmp_path: Any, cuda: FakeCuda) -> None:
    from support import write_raw

    samples = write_raw(tmp_path, count=12)
    (tmp_path / "eel" / "0008.png").write_bytes(b"\x89PNG\r\n\x1a\nno image")
    with loader_of(samples, batch_size=2, shuffle="none", device=CudaDevice(None, cuda)) as loader:
        keys = []
        with pytest.raises(millrace.DamagedDataError, match="eel/0008"):
            for batch in loader:
                keys += batch["key"]
        assert keys and len(keys) == loader.report()["samples"] < 12
        with pytest.raises(millrace.DamagedDataError, match="eel/0008"):
            next(iter(loader))


def test_an_exception_of_the_device_is_raised(tar: Samples) -> None:
    class Lost(RuntimeError):
        pass

    cuda = FakeCuda()
    with loader_of(tar, device=millrace.Transfer(CudaDevice(None, cuda), ahead=1)) as loader:
        batches = iter(loader)
        next(batches)
        cuda.copy_error, cuda.good_copies = Lost("the device is gone"), 2
        with pytest.raises(Lost, match="is gone"):
            for _ in batches:
                pass
        assert loader.report()["samples"] < len(tar)
    assert cuda.copying == [] and cuda.faults == [], "copies that had begun were waited for"


def test_a_signal_while_a_batch_is_handed_over_loses_nothing(tar: Samples) -> None:
    class Interrupted(TorchDevice):
        times = 3

        def receive(self, sent: Sent) -> Any:
            if self.times:
                self.times -= 1
                raise KeyboardInterrupt
            return super().receive(sent)

    with loader_of(tar, device=Interrupted(torch.device("cpu"))) as loader:
        keys: list[str] = []
        interrupts = 0
        batches = iter(loader)
        while True:
            try:
                keys += next(batches)["key"]
            except KeyboardInterrupt:
                interrupts += 1
                assert loader.report()["samples"] == len(keys)
            except StopIteration:
                break
    assert interrupts == 3 and keys == [key for batch in loader_of(tar) for key in batch["key"]]


def test_the_hook_is_called_after_each_batch(tar: Samples) -> None:
    calls: list[tuple[threading.Thread, int]] = []
    received = 0

    def hook() -> None:
        calls.append((threading.current_thread(), received))
        if len(calls) == 3:
            raise ValueError("of the hook")

    with loader_of(tar, device=millrace.Transfer("cpu", on_batch=hook)) as loader:
        batches = iter(loader)
        while True:
            try:
                batch = next(batches)
            except ValueError:
                assert received == 3
                continue
            except StopIteration:
                break
            received += 1
            assert "mask" not in batch
    assert received == len(loader) == 7
    assert calls == [(threading.main_thread(), number) for number in range(1, 8)], (
        "once for each, also the last, and after an error"
    )


def test_the_hook_is_called_after_a_loop_that_was_left(tar: Samples) -> None:
    calls: list[None] = []
    with loader_of(tar, device=millrace.Transfer("cpu", on_batch=lambda: calls.append(None))) as loader:
        for _ in loader:
            break
        assert len(calls) == 0
        for _batch in loader:
            assert len(calls) == 1, "when the next batch is asked for"
            break


def test_looking_ahead(tar: Samples, cuda: FakeCuda) -> None:
    calls: list[None] = []
    with loader_of(
        tar, device=millrace.Transfer(CudaDevice(None, cuda), on_batch=lambda: calls.append(None))
    ) as loader:
        peeked = loader.peek()
        assert peeked is not None and cuda.copies
        copies = cuda.copies
        assert "<img" in loader._repr_html_()
        assert cuda.copies <= copies + 4 * 3, "what a notebook shows is not sent"
        check_equal(next(iter(loader)), peeked)
        assert calls == []


# ---- Other devices and arguments


class FakeXla:
    """Stands for torch_xla and its core.xla_model."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, with_sync: bool) -> None:
        self.steps: list[tuple[str, threading.Thread]] = []
        self.transfers: list[tuple[torch.Tensor, str]] = []
        package, core, model = (
            types.ModuleType(name) for name in ("torch_xla", "torch_xla.core", "torch_xla.core.xla_model")
        )
        package.core, core.xla_model = core, model  # type: ignore[attr-defined]
        model.xla_device = lambda: "xla:0"  # type: ignore[attr-defined]
        model.mark_step = lambda: self.steps.append(("mark_step", threading.current_thread()))  # type: ignore[attr-defined]
        model.send_cpu_data_to_device = self.send  # type: ignore[attr-defined]
        if with_sync:
            package.sync = lambda: self.steps.append(("sync", threading.current_thread()))  # type: ignore[attr-defined]
        for module in (package, core, model):
            monkeypatch.setitem(sys.modules, module.__name__, module)

    def send(self, data: list[torch.Tensor], device: Any) -> list[torch.Tensor]:
        assert all(isinstance(tensor, torch.Tensor) and tensor.device.type == "cpu" for tensor in data)
        self.transfers += [(tensor, str(device)) for tensor in data]
        return [tensor.clone() for tensor in data]


@pytest.mark.parametrize("with_sync", [False, True])
def test_xla(tar: Samples, monkeypatch: pytest.MonkeyPatch, with_sync: bool) -> None:
    xla = FakeXla(monkeypatch, with_sync)
    options: dict[str, Any] = {**NORMALISED, "image": millrace.Image(layout="nchw")}
    with loader_of(tar, device="xla", **options) as loader:
        shapes = loader.shapes()
        received = 0
        for wanted, batch in zip(loader_of(tar, last="pad", **options), loader, strict=True):
            assert len(xla.steps) == received
            received += 1
            check_equal(batch, wanted, exact=False)
            assert {name: tuple(batch[name].shape) for name in shapes[0]} == {
                name: shape.shape for name, shape in shapes[0].items()
            }
    assert xla.steps == [("sync" if with_sync else "mark_step", threading.main_thread())] * 7, "a step after each batch"
    assert {device for _, device in xla.transfers} == {"xla:0"}
    images = [tensor for tensor, _ in xla.transfers if tensor.ndim == 4 and tensor.shape[1:] == (3, HEIGHT, WIDTH)]
    assert len(images) == 7 and all(image.dtype == torch.uint8 for image in images)


def test_padding_is_finite_in_compiled_programs(tar: Samples, monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels that are floats have no NaN, since one that is multiplied by a weight of zero stays one."""
    FakeXla(monkeypatch, with_sync=True)
    options: dict[str, Any] = {"label": millrace.Label("json", "float", path="meta.label")}
    with loader_of(tar, device="xla", **options) as loader:
        *_, last = loader
    *_, wanted = loader_of(tar, last="pad", **options)
    padding = ~wanted["valid"]
    assert padding.any() and torch.isnan(wanted["label"][padding]).all()
    assert torch.equal(last["label"], torch.where(padding, torch.zeros(8), wanted["label"]))


def test_xla_normalises_as_part_of_the_step(tar: Samples, monkeypatch: pytest.MonkeyPatch) -> None:
    # Operations on tensors of batches that nobody has received yet would become part of another step's graph.
    FakeXla(monkeypatch, with_sync=True)
    threads: list[threading.Thread] = []
    finish = Payload.finish

    def spied(self: Payload, *arguments: Any) -> Any:
        threads.append(threading.current_thread())
        return finish(self, *arguments)

    monkeypatch.setattr(Payload, "finish", spied)
    with loader_of(tar, device=millrace.Transfer("xla:1", on_batch=lambda: None), **NORMALISED) as loader:
        assert len(list(loader)) == 7
    assert threads == [threading.main_thread()] * 7


def test_without_torch_xla(tar: Samples) -> None:
    with pytest.raises(millrace.UnsupportedError, match="needs torch-xla"):
        loader_of(tar, device="xla")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("device", ["cuda", "cuda:1", torch.device("cuda:0")])
def test_without_a_gpu(tar: Samples, device: Any) -> None:
    with pytest.raises(millrace.InvalidArgumentError, match="torch finds 0 CUDA devices"):
        loader_of(tar, device=device)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_a_gpu(tar: Samples) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # slots are pinned
        plain, loader = loader_of(tar, epochs=3, **NORMALISED), loader_of(tar, epochs=3, device="cuda", **NORMALISED)
        kept = []
        for _ in range(3):
            for wanted, batch in zip(plain, loader, strict=True):
                assert batch["image"].device.type == "cuda"
                kept.append((wanted, batch))
        loader.close()
        for wanted, batch in kept:
            check_equal(
                {name: value.cpu() if isinstance(value, torch.Tensor) else value for name, value in batch.items()},
                wanted,
                exact=False,
            )
        with loader_of(tar, device=0) as again:
            state = again.state_dict()
            first = next(iter(again))["key"]
            again.load_state_dict(state)
            assert next(iter(again))["key"] == first


def test_arguments(tar: Samples) -> None:
    with pytest.raises(millrace.InvalidArgumentError, match="device is 'gpu'"):
        loader_of(tar, device="gpu")
    with pytest.raises(TypeError, match="device must be 'cuda'"):
        loader_of(tar, device=1.5)
    with pytest.raises(millrace.InvalidArgumentError, match="leave output out"):
        loader_of(tar, device=here(), output="numpy")
    with pytest.raises(millrace.InvalidArgumentError, match="ahead of a Transfer goes with a device"):
        loader_of(tar, device=millrace.Transfer(None, ahead=2))
    with pytest.raises(millrace.InvalidArgumentError, match="on_batch of a Transfer goes with a device"):
        loader_of(tar, device=millrace.Transfer(None, on_batch=print))
    with pytest.raises(millrace.InvalidArgumentError, match="ahead is 0"):
        loader_of(tar, device=millrace.Transfer("cpu", ahead=0))
    with pytest.raises(TypeError, match="on_batch must be a function"):
        loader_of(tar, device=millrace.Transfer("cpu", on_batch=3))
    with loader_of(tar, device=torch.device("cpu"), output="numpy") as loader:
        assert isinstance(next(iter(loader))["image"], np.ndarray)


def test_the_digest_of_pixels_is_that_of_the_host(tar: Samples) -> None:
    options: dict[str, Any] = {**NORMALISED, "digest": "decoded"}
    digests = []
    for device in (None, here()):
        loader = loader_of(tar, device=device, **options)
        list(loader)
        digests.append(loader.report()["digest"])
    assert digests[0] == digests[1]


def test_what_batch_transform_makes_moves_at_any_depth(tar: Samples) -> None:
    def split(batch: Any) -> Any:
        return batch["image"], {"targets": [batch["label"], batch["key"]]}

    image, rest = next(iter(loader_of(tar, batch_transform=split, device=TorchDevice(torch.device("meta")))))  # type: ignore[misc]
    assert image.device.type == "meta" and rest["targets"][0].device.type == "meta" and len(rest["targets"][1]) == 8


def test_tensorflow_takes_batches_from_the_host(tar: Samples, monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorFlow is not there, since no more than its names is needed here; tests/frameworks has the rest."""
    for name in ("tensorflow", "keras", "keras.callbacks"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    sys.modules["keras.callbacks"].Callback = object  # type: ignore[attr-defined]
    sys.modules["tensorflow"].TensorSpec = lambda shape, kind: (shape, kind)  # type: ignore[attr-defined]
    sys.modules["tensorflow"].as_dtype = str  # type: ignore[attr-defined]
    sys.modules["tensorflow"].string = "string"  # type: ignore[attr-defined]
    monkeypatch.delitem(sys.modules, "millrace.tf", raising=False)
    made = importlib.import_module("millrace.tf")
    try:
        ahead = loader_of(tar, device=millrace.Transfer("cpu", ahead=3), raw=True)
        assert made._signature(ahead)["image"] == ((None, HEIGHT, WIDTH, 3), "uint8")
        ahead = loader_of(tar, device=millrace.Transfer("cpu", ahead=3), raw=True, last="pad")
        assert made._signature(ahead)["image"] == ((8, HEIGHT, WIDTH, 3), "uint8")
        with pytest.raises(millrace.UnsupportedError, match="make it without device="):
            made.dataset(loader_of(tar, device=here()))
        with pytest.raises(millrace.UnsupportedError, match="signature="):
            made.dataset(loader_of(tar, transform=dict))
    finally:
        del sys.modules["millrace.tf"]
        if hasattr(millrace, "tf"):
            del millrace.tf
