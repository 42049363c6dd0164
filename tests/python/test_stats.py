"""Loader.stats(): what a dashboard gets."""

from __future__ import annotations

import math

import millrace
import pytest
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
    assert stats["padding_share"] == 0.5 and stats["cache_hit_share"] == pytest.approx(0.3)
    again = flat(report(10, 1.0, 0.1), report(300, 4.0, 2.5))  # after load_state_dict
    assert again["samples_per_second"] == 10 and again["waited_share"] == pytest.approx(0.1)
