"""Tests Loader.stats(): what a dashboard gets."""

from __future__ import annotations

import io
import math
import pathlib
from typing import Any

import millrace
import numpy as np
import pytest
from PIL import Image
from support import AT_SIZE, Samples


def test_numbers_of_a_training(raw: Samples) -> None:
    with millrace.Loader(raw.uri, batch_size=8, epochs=2, **AT_SIZE) as loader:
        first = loader.stats()
        assert first["samples"] == 0 and first["samples_per_second"] == 0 and first["waited_share"] == 0
        batches = iter(loader)
        for _ in range(3):
            next(batches)
        some = loader.stats("data/")
        assert some["data/samples"] == 24 and some["data/samples_per_second"] > 0
        for _ in batches:
            pass
        report, last = loader.report(), loader.stats("data/")
    assert last["data/samples"] == 45 == report["samples"]
    assert last["data/waited_seconds"] == report["waited"] and last["data/bad_samples"] == 0
    assert set(some) == set(last) and all(isinstance(value, (int, float)) for value in last.values())
    assert all(0 <= value <= 1.001 for name, value in last.items() if "share" in name)
    causes = sum(value for name, value in last.items() if name.startswith("data/waited_share/"))
    assert math.isclose(causes, last["data/waited_share"], abs_tol=0.01)
    assert not any("token" in name or "cache" in name for name in last)


def test_rates_are_of_the_time_since_the_last_call() -> None:
    from millrace._report import flat

    def report(samples: int, seconds: float, waited: float) -> dict[str, object]:
        return {
            "samples": samples,
            "seconds": seconds,
            "waited": waited,
            "conversion_cpu_seconds": waited / 4,
            "stalls": {"decode": waited},
            "quarantined": 1,
            "odd_images": 0,
            "tokens": 50 * samples,
            "token_places": 100 * samples,
            "cache": {"hit_bytes": 30, "miss_bytes": 70},
        }

    stats = flat(report(300, 4.0, 2.5), report(100, 2.0, 0.5))
    assert stats["samples"] == 300 and stats["samples_per_second"] == 100 and stats["waited_share"] == 1
    assert stats["waited_share/decode"] == 1 and stats["tokens_per_second"] == 5000
    assert stats["conversion_cpu_seconds"] == 0.625 and stats["conversion_cpu_share"] == 0.25
    assert stats["padding_share"] == 0.5 and stats["cache_hit_share"] == pytest.approx(0.3)
    again = flat(report(10, 1.0, 0.1), report(300, 4.0, 2.5))  # after load_state_dict
    assert again["samples_per_second"] == 10 and again["waited_share"] == pytest.approx(0.1)


FLOATS = {"batch_size": 8, "size": 64, "image": millrace.Image(dtype="float32"), "output": "numpy"}


def same(sample: dict[str, Any]) -> dict[str, Any]:
    return sample


@pytest.mark.parametrize(
    "options",
    [{}, {"transform": same}, {"image": millrace.Image(dtype="float16")}],
    ids=["float32", "transform", "float16"],
)
def test_cpu_of_conversions_is_counted(raw: Samples, options: dict[str, Any]) -> None:
    with millrace.Loader(raw.uri, **{**FLOATS, "epochs": 1, **options}) as loader:
        assert loader.report()["conversion_cpu_seconds"] == 0
        batches = iter(loader)
        next(batches)
        first = loader.report()["conversion_cpu_seconds"]
        state = loader.state_dict()
        for _ in batches:
            pass
        report, stats = loader.report(), loader.stats()
        assert 0 < first < report["conversion_cpu_seconds"] == stats["conversion_cpu_seconds"]
        assert stats["conversion_cpu_share"] > 0
        loader.load_state_dict(state)
        again = iter(loader)
        next(again)
        assert 0 < loader.report()["conversion_cpu_seconds"]


def test_bytes_need_no_conversion(raw: Samples) -> None:
    with millrace.Loader(raw.uri, batch_size=8, size=64, raw=True, epochs=1) as loader:
        for _ in loader:
            pass
        assert loader.report()["conversion_cpu_seconds"] == 0


def test_the_table_shows_conversions_that_took_long(raw: Samples) -> None:
    with millrace.Loader(raw.uri, **FLOATS) as loader:
        report = loader.report()
    assert "made floats" not in str(report)
    report["conversion_cpu_seconds"] = 1.26
    assert "made floats  in 1.3 s of CPU time" in str(report)


@pytest.mark.parametrize("options", [{}, {"transform": lambda sample: sample}])
def test_damage_of_an_interrupted_training_is_counted_and_logged_once(
    options: dict[str, Any], tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for number in range(24):
        out = io.BytesIO()
        pixels = np.random.default_rng(number).integers(0, 256, (48, 64, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(out, "JPEG")
        data = out.getvalue()
        odd = data[:-2] + bytes(228) + data[-2:]
        damaged = data[: len(data) // 2]
        (tmp_path / f"{number:02}.jpg").write_bytes({0: odd, 1: damaged}.get(number % 8, data))
    usual: dict[str, Any] = {"shuffle": "none", "epochs": 3, "bad_samples": "replace", **AT_SIZE, **options}
    with millrace.Loader(tmp_path, batch_size=2, **usual) as loader:
        for epoch in range(3):
            for number, _batch in enumerate(loader):
                if number == 8 and epoch == 0:
                    break  # reading ends here, and begins again with the next loop
        report, stats = loader.report(), loader.stats()
    assert report["odd_images"] == report["quarantined"] == stats["bad_samples"] >= 6
    assert capfd.readouterr().err.count("further samples that are damaged are in the report") == 1
