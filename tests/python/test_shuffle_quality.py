"""Tests the orders and measures of bench/shuffle_quality.py, whose numbers docs/shuffle.md gives: each order is one,
each measure raises the alarm."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Iterator
from types import ModuleType

import numpy as np
import pytest


@pytest.fixture(scope="module")
def bench() -> Iterator[tuple[ModuleType, ModuleType]]:
    """Returns orders and measures."""
    folder = str(pathlib.Path(__file__).resolve().parents[2] / "bench")
    sys.path.insert(0, folder)
    try:
        from shuffle import measures, orders

        yield orders, measures
    finally:
        sys.path.remove(folder)


def test_orders_have_each_sample_once(bench: tuple[ModuleType, ModuleType]) -> None:
    orders, _ = bench
    samples = 4003
    whole = [
        orders.windowed(samples, 14, 64, 16, 1),
        orders.everything(samples, 1),
        orders.permutation(samples, 1),
        orders.py1e(samples, 14, 300, 1),
        orders.py1br(samples, 14, 300, 1),
    ]
    for order in whole:
        np.testing.assert_array_equal(np.sort(order), np.arange(samples))
    for order in (orders.litdata(samples, 14, 8, 4, 8, 1), orders.webdataset(samples, 64, 100, 4, 8, 1)):
        assert len(np.unique(order)) == len(order) > 0.9 * samples


def test_measures_tell_order_from_chance(bench: tuple[ModuleType, ModuleType]) -> None:
    orders, measures = bench
    samples, classes = 50_000, 100
    labels = measures.sorted_labels(samples, classes)
    assert np.bincount(labels).tolist() == [500] * 100
    chance, same = orders.permutation(samples, 3), np.arange(samples)
    assert measures.simulator_score(chance, 500) > 8 and measures.simulator_score(same, 500) < 0.1
    assert measures.clustering(labels[chance], 250).mean() == pytest.approx(1, abs=0.02)
    assert measures.clustering(labels[same], 250).mean() == pytest.approx(100)
    assert measures.displacement(chance) == pytest.approx(1, abs=0.02) and measures.displacement(same) == 0
    assert measures.adjacency(chance, 14) == pytest.approx(1, abs=0.3) and measures.adjacency(same, 14) > 1000
    assert measures.held(same, 50) == (1.0, 1)
    assert measures.held(np.arange(100).reshape(2, 50).T.ravel(), 50) == (pytest.approx(1.98), 2)
    assert measures.requests(same, 50, 1) == 1000 and measures.requests(same, 50, 2) == 50_000
    assert measures.same_places(same, same) == samples and measures.same_places(same, chance) < 10
