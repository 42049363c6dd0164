"""Tests millrace.Plan."""

from __future__ import annotations

import itertools

import millrace
import numpy as np
import pytest
from support import AT_SIZE, Samples


@pytest.mark.parametrize("shuffle", ["none", "global", "window"])
@pytest.mark.parametrize("samples", [1, 2, 17, 1000, 5000])
def test_is_a_bijection_with_its_inverse(samples: int, shuffle: str) -> None:
    sizes = millrace.Shuffle(extent=3, window=16, lanes=4)
    plan = millrace.Plan(samples, shuffle=sizes if shuffle == "window" else shuffle, seed=9, epoch=2)
    assert len(plan) == samples
    order = plan[np.arange(samples)]
    assert order.dtype == np.int64
    np.testing.assert_array_equal(np.sort(order), np.arange(samples))
    np.testing.assert_array_equal(plan.position_of(order), np.arange(samples))


def test_scalars_lists_slices_and_shapes() -> None:
    plan = millrace.Plan(100, seed=1)
    order = [plan[i] for i in range(100)]
    assert all(type(sample) is int for sample in order)
    assert list(plan) == order
    assert plan[[3, 1]].tolist() == [order[3], order[1]]
    assert plan[range(5)].tolist() == order[:5]
    assert plan[np.arange(6).reshape(2, 3)].shape == (2, 3)
    assert plan[np.arange(6, dtype=np.uint8)[::2]].tolist() == order[0:6:2]
    assert plan[np.int32(7)] == order[7] and plan[np.array(7)].shape == ()
    assert plan[[]].size == 0
    assert plan.position_of(order[42]) == 42 == plan.where(order[42])


def test_depends_on_seed_epoch_and_policy() -> None:
    orders = [
        millrace.Plan(1000, seed=seed, epoch=epoch, shuffle=millrace.Shuffle(extent=extent))[np.arange(1000)].tolist()
        for seed, epoch, extent in itertools.product([0, 1], [0, 1], [8, 16])
    ]
    assert len({tuple(order) for order in orders}) == 8
    assert millrace.Plan(1000)[np.arange(1000)].tolist() == orders[1]


def test_millions_cost_nothing() -> None:
    plan = millrace.Plan(10**15, shuffle="global", seed=3)
    positions = np.array([0, 1, 10**15 - 1])
    assert plan.position_of(plan[positions]).tolist() == positions.tolist()


@pytest.mark.parametrize(
    "order",
    [
        {},
        {"shuffle": millrace.Shuffle(extent=7, window=4, lanes=2)},
        {"shuffle": millrace.Shuffle(lanes=32, window=96)},
        {"shuffle": millrace.Shuffle(extent=1)},
    ],
)
def test_a_loader_runs_the_order_of_a_plan_with_the_same_options(
    tar: Samples, order: dict[str, millrace.Shuffle]
) -> None:
    dataset = millrace.Dataset(tar.uri)
    with millrace.Loader(dataset, batch_size=10, seed=6, epochs=1, output="numpy", **order, **AT_SIZE) as loader:
        fed = [sample for batch in loader for sample in batch["sample"].tolist()]
    assert fed == millrace.Plan(dataset, seed=6, **order)[np.arange(50)].tolist()
    with pytest.raises(millrace.InvalidArgumentError, match="multiple of the 64 lanes"):
        millrace.Loader(dataset, shuffle=millrace.Shuffle(window=100), **AT_SIZE)
    with pytest.raises(TypeError, match="extent must be an integer"):
        millrace.Loader(dataset, shuffle=millrace.Shuffle(extent="7"), **AT_SIZE)  # type: ignore[arg-type]


@pytest.mark.parametrize("index", [-101, 100, 2**62, -(2**62)])
def test_out_of_range(index: int) -> None:
    plan = millrace.Plan(100)
    with pytest.raises(IndexError):
        plan[index]
    with pytest.raises(IndexError):
        plan[np.array([0, index])]
    with pytest.raises(IndexError):
        plan.part(index)
    for sample in (index, -1):
        with pytest.raises(IndexError):
            plan.position_of([0, sample])
    with pytest.raises(IndexError, match="18446744073709551615"):
        plan[np.array([0, 2**64 - 1], dtype=np.uint64)]


def test_negative_positions_count_from_the_end() -> None:
    plan = millrace.Plan(100, seed=4)
    order = plan[np.arange(100)]
    assert [plan[-1], plan[-100]] == [order[99], order[0]]
    assert plan[np.arange(-100, 100)].tolist() == order.tolist() * 2
    assert plan[[-1, 0]].tolist() == [order[99], order[0]] and plan[np.int8(-3)] == order[97]
    assert plan.part(-1) == 0 and plan.part([-1, 0]).tolist() == [0, 0]


def test_not_integers() -> None:
    with pytest.raises(TypeError, match="integers, not float64"):
        millrace.Plan(100)[np.array([0.5])]  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "options",
    [
        {"shuffle": millrace.Shuffle(lanes=3)},
        {"shuffle": millrace.Shuffle(window=100)},
        {"shuffle": millrace.Shuffle(extent=0)},
        {"shuffle": "some"},
        {"data": -1},
        {"data": 2**61},
        {"seed": -1},
        {"seed": 2**64},
    ],
)
def test_bad_options(options: dict[str, object]) -> None:
    with pytest.raises(millrace.InvalidArgumentError):
        millrace.Plan(**{"data": 100, **options})  # type: ignore[arg-type]
