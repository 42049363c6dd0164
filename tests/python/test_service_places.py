"""Tests rows that are so large that they are received where they belong. They are those of a local loader, byte by
byte, whatever becomes of their workers."""

from __future__ import annotations

import dataclasses
import hashlib
import signal
from typing import Any

import millrace
import numpy as np
import pytest
from service_support import OPTIONS, Proxy, is_sound, none_here, outcome
from support import Samples

LARGE: dict[str, Any] = {**OPTIONS, "size": 64, "memory": "128MiB"}  # rows of 12 KiB, and of 48 KiB as float32


def shown(batch: Any) -> dict[str, Any]:
    return {
        name: hashlib.sha256(value.tobytes()).hexdigest() if isinstance(value, np.ndarray) else value
        for name, value in batch.items()
    }


def received(uri: str, **options: Any) -> tuple[list[dict[str, Any]], millrace.Loader]:
    with millrace.Loader(uri, **{**LARGE, **options}) as loader:
        return [shown(batch) for _ in range(options.get("epochs", 1)) for batch in loader], loader


@pytest.mark.parametrize("last", ["pad", "short", "wrap"])
@pytest.mark.parametrize("streams", [1, 2, 4])
def test_equal_to_a_local_loader(tar: Samples, workers: Any, last: str, streams: int) -> None:
    addresses = [workers().address, workers().address]
    fields = {
        "image": millrace.Image("png", dtype="f32"),
        "small": millrace.Image("png", size=8),
        "text": millrace.Text("txt"),
    }
    plain = millrace.Service(addresses, streams=streams)
    for options, service in (
        ({}, plain),
        ({"fields": fields}, plain),
        ({}, dataclasses.replace(plain, local_streams=1)),
        ({}, dataclasses.replace(plain, compression="zstd")),
    ):
        local, one = received(tar.uri, last=last, epochs=2, **options)
        remote, other = received(tar.uri, last=last, epochs=2, workers=service, **options)
        assert remote == local and outcome(other) == outcome(one)
        assert all(map(is_sound, other.report()["workers"])), other.report()["workers"]


def test_values_that_are_large(tar: Samples, workers: Any) -> None:
    """They are sent from where they are stored, between those that are small."""
    fields = {
        "file": millrace.Bytes("png"),
        "image": millrace.Image("png"),
        "text": millrace.Text("txt"),
        "again": millrace.Bytes("png"),
    }
    local, one = received(tar.uri, fields=fields)
    remote, other = received(tar.uri, fields=fields, workers=[workers().address, workers().address])
    assert remote == local and outcome(other) == outcome(one)


def test_values_are_asked_for_ahead(many: Samples, workers: Any) -> None:
    """As many batches are in flight as fit with the size that they have, and not with the largest that they could have.
    Each request has a connection."""
    relay = Proxy(workers().address, delay=0.05)
    fields = {"file": millrace.Bytes("png")}
    local, _ = received(many.uri, fields=fields, memory="64MiB")
    remote, _ = received(many.uri, fields=fields, memory="64MiB", workers=[relay.address])
    relay.close()
    assert remote == local and relay.connections >= 3


@pytest.mark.parametrize("every", [3, 20])
def test_flipped_bytes(many: Samples, workers: Any, every: int) -> None:
    liar, honest = Proxy(workers().address, flips_every=every), workers()
    local, one = received(many.uri)
    remote, other = received(many.uri, workers=millrace.Service([liar.address, honest.address], streams=4))
    liar.close()
    assert remote == local and outcome(other) == outcome(one)
    report = other.report()["workers"]
    assert report[0]["last_failure"] and is_sound(report[1]), report


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP])
def test_a_worker_that_ends(many: Samples, workers: Any, end: int) -> None:
    both = [workers(), workers()]
    local, one = received(many.uri, epochs=4)
    with millrace.Loader(
        many.uri, workers=millrace.Service([worker.address for worker in both], streams=4), **{**LARGE, "epochs": 4}
    ) as loader:
        got = []
        for _ in range(4):
            for batch in loader:
                got.append(shown(batch))
                if len(got) == 10:
                    both[0].process.send_signal(end)
    assert got == local and outcome(loader) == outcome(one)
    assert loader.report()["workers"][0]["last_failure"]


def test_a_slow_worker_is_overtaken(many: Samples, workers: Any) -> None:
    """A slow worker has begun to send rows to their place, and continues with that, when another worker is faster."""
    slow, fast = Proxy(workers().address, drips=True), workers()
    local, one = received(many.uri)
    remote, other = received(many.uri, workers=millrace.Service([slow.address, fast.address], streams=4))
    slow.close()
    assert remote == local and outcome(other) == outcome(one)
    report = other.report()["workers"]
    assert report[0]["rows"] == 0 and report[0]["last_failure"], report


def test_batches_that_the_program_keeps(many: Samples, workers: Any) -> None:
    """There may then be no slot when rows come: they are received elsewhere, and copied."""
    options = {**LARGE, "size": 224, "epochs": 2}  # a quarter of the memory has 27 batches
    local, _ = received(many.uri, **options)
    with millrace.Loader(many.uri, workers=millrace.Service([workers().address], streams=2), **options) as loader:
        kept, got = [], []
        for _ in range(2):
            for batch in loader:
                kept.append(batch)
                if len(kept) == 23:
                    got += [shown(each) for each in kept]
                    kept.clear()
                del batch
        got += [shown(each) for each in kept]
    assert got == local


def test_batches_that_a_worker_keeps(many: Samples, workers: Any) -> None:
    """Those of each epoch are the same, and so are those of the next trainer."""
    worker = workers("--keep-decoded", "64MiB")
    for batch_size in (8, 16):
        plain: dict[str, Any] = {
            "shuffle": "none",
            "augment": False,
            "digest": None,
            "epochs": 3,
            "batch_size": batch_size,
        }
        local, _ = received(many.uri, **plain)
        for _ in range(2):
            remote, other = received(many.uri, workers=millrace.Service([worker.address], streams=2), **plain)
            assert remote == local
            assert none_here(other.report()["workers"])
