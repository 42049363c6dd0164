"""Tests properties of the plan that must hold for any numbers, found by hypothesis. In jobs that are killed and resumed
at any place with any number of ranks, each sample is delivered exactly as the policy for the last batch says."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import millrace
import numpy as np
import pytest
from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st
from support import Samples
from thoroughness import repeats
from window_oracle import lanes_of, shares, structure

EPOCHS = 2
WORLDS = st.integers(1, 16)
SEEDS = st.integers(0, 2**64 - 1)

# The same examples in every run; what was found once becomes an @example.
repeatable = settings(derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def policies(draw: st.DrawFn) -> dict[str, Any]:
    lanes = 2 ** draw(st.integers(0, 7))
    kind = draw(st.sampled_from(["none", "global", "window"]))
    sizes = millrace.Shuffle(lanes * draw(st.integers(1, 6)), draw(st.integers(1, 400)), lanes)
    return {
        "shuffle": sizes if kind == "window" else kind,
        "seed": draw(SEEDS),
        "epoch": draw(st.integers(0, 2**64 - 1)),
    }


@settings(repeatable, max_examples=repeats(200, least=20))
@given(st.integers(1, 5000), policies())
@example(4097, {"shuffle": "global"})  # 4^6 + 1, where Grain's index shuffle is no bijection
@example(5, {"shuffle": millrace.Shuffle(extent=16, window=64, lanes=64)})
def test_an_epoch_has_each_sample_once(samples: int, policy: dict[str, Any]) -> None:
    plan = millrace.Plan(samples, **policy)
    order = plan[np.arange(samples)]
    np.testing.assert_array_equal(np.sort(order), np.arange(samples))
    np.testing.assert_array_equal(plan.position_of(order), np.arange(samples))


@settings(repeatable, max_examples=repeats(200, least=20))
@given(st.integers(1, 10**12), policies(), st.integers(0, 2**32 - 1))
def test_position_and_sample_are_inverse(samples: int, policy: dict[str, Any], points: int) -> None:
    plan = millrace.Plan(samples, **policy)
    positions = np.random.default_rng(points).integers(0, samples, 1000)
    found = plan[positions]
    assert found.min() >= 0 and found.max() < samples
    np.testing.assert_array_equal(plan.position_of(found), positions)
    np.testing.assert_array_equal(plan[plan.position_of(positions)], positions)


@settings(repeatable, max_examples=repeats(300, least=20))
@given(st.integers(1, 6000), SEEDS, st.integers(0, 5), st.integers(1, 40), st.integers(0, 5), st.integers(1, 4))
@example(27, 7, 0, 4, 1, 2)  # that of docs/plan.md
@example(1, 1, 0, 16, 6, 3)
@example(15, 1, 0, 16, 6, 3)
@example(16 * 63, 1, 0, 16, 6, 3)  # fewer extents than lanes
@example(16 * 63 + 15, 1, 0, 16, 6, 1)
@example(16 * 64 * 3 + 1, 1, 0, 16, 6, 1)  # windows of one row, and one of one sample
@example(7 * 8 * 5 + 55, 1, 0, 7, 3, 2)
def test_windows_and_lanes_are_those_of_the_oracle(
    samples: int, seed: int, epoch: int, extent: int, log2_lanes: int, rows: int
) -> None:
    lanes = 1 << log2_lanes
    plan = millrace.Plan(
        samples, shuffle=millrace.Shuffle(extent=extent, window=rows * lanes, lanes=lanes), seed=seed, epoch=epoch
    )
    order = plan[np.arange(samples)]
    told = shares(samples, extent, rows * lanes, lanes, seed=1)
    # The epoch begins with any of the windows.
    for start in range(len(told)):
        turned = told[start:] + told[:start]
        ends = np.cumsum([len(window) for window in turned])
        window_lanes = [lanes_of(len(window) // extent, lanes) for window in turned]
        found = [structure(*each) for each in zip(np.split(order, ends[:-1]), [extent] * len(told), window_lanes)]
        if found == [structure(window, extent, own) for window, own in zip(turned, window_lanes)]:
            return
    raise AssertionError("no window to begin with makes this order")


def test_the_order_is_frozen() -> None:
    """Does what plan_golden_test.cc does, through the package. A change here needs a new version of the position
    (src/plan/position.cc)."""
    assert millrace.Plan(8, shuffle="global", seed=1)[range(8)].tolist() == [4, 5, 0, 1, 2, 6, 7, 3]
    small = millrace.Plan(11, shuffle=millrace.Shuffle(extent=4, window=4, lanes=2), seed=7, epoch=1)
    assert small[range(11)].tolist() == [9, 0, 5, 2, 7, 1, 6, 3, 4, 10, 8]
    huge = millrace.Plan(1_000_000_000_007, shuffle=millrace.Shuffle(extent=16, window=192, lanes=64), seed=9, epoch=9)
    assert huge[[0, 1, len(huge) - 1]].tolist() == [908726971807, 271397375695, 179697913500]


@st.composite
def mixes(draw: st.DrawFn, raw: Samples) -> millrace.Mix:
    """Draws overlapping subsets of one data set, with weights, counts or a schedule."""
    dataset = millrace.Dataset(raw.uri)
    if draw(st.booleans()):
        return dataset.balanced(epoch_samples=draw(st.integers(1, 90)))
    starts = draw(st.lists(st.integers(0, len(raw) - 1), min_size=1, max_size=4))
    parts = [dataset.where(samples=range(start, draw(st.integers(start + 1, len(raw))))) for start in starts]
    weights = st.lists(st.integers(0, 5), min_size=len(parts), max_size=len(parts)).filter(any)
    return millrace.Mix(
        parts,
        weights=draw(weights),
        epoch_samples=draw(st.integers(1, 90)),
        schedule=draw(st.dictionaries(st.integers(1, 200), weights, max_size=3)),
        draws=draw(st.sampled_from(["exact", "replacement", "independent"])),
    )


@settings(repeatable, max_examples=repeats(150, least=20))
@given(st.data(), policies())
def test_position_of_and_positions_of_a_mix_are_those_of_the_walk(
    raw: Samples, data: st.DataObject, policy: dict[str, Any]
) -> None:
    mix = data.draw(mixes(raw))
    plan = millrace.Plan(mix, **policy)
    walk = list(zip(plan.part(np.arange(len(mix))).tolist(), plan[np.arange(len(mix))].tolist()))
    for number, part in enumerate(mix.datasets.values()):
        for sample in part.samples.tolist():
            positions = [position for position, row in enumerate(walk) if row == (number, sample)]
            assert plan.positions(sample, part=number).tolist() == positions
            if mix._mix[2] == "exact":
                assert plan.position_of(sample, part=number) == (positions or [-1])[0]
    # The draws are exact: in one epoch the counts of a part's samples are at most two apart (at the end of a pass and
    # the start of the next).
    if mix._mix[2] == "exact":
        times = collections.Counter(walk)
        for number, part in enumerate(mix.datasets.values()):
            counts = [times[number, sample] for sample in part.samples.tolist()]
            assert max(counts) - min(counts) <= (1 if mix._mix[3] else 2)


@settings(repeatable, max_examples=repeats(60, least=20))
@given(st.lists(st.integers(0, 44), min_size=1), st.floats(0.01, 0.99), st.integers(0, 2**64 - 1), policies())
def test_a_plan_of_a_subset_is_a_bijection(
    raw: Samples, chosen: list[int], fraction: float, seed: int, policy: dict[str, Any]
) -> None:
    dataset = millrace.Dataset(raw.uri)
    parts = [dataset.where(samples=chosen), *dataset.split(a=fraction, b=1 - fraction, seed=seed).values()]
    assert sorted(np.concatenate([part.samples for part in parts[1:]]).tolist()) == list(range(len(raw)))
    for part in parts:
        plan = millrace.Plan(part, **policy)
        order = plan[np.arange(len(part))]
        np.testing.assert_array_equal(np.sort(order), part.samples)
        np.testing.assert_array_equal(plan.position_of(order), np.arange(len(part)))


@dataclasses.dataclass(frozen=True)
class Leg:
    """Is a stretch of a job, from its start or its last checkpoint to its death."""

    world: int
    batch: int
    kept: int  # steps up to the checkpoint
    lost: int  # steps after it, which the next leg repeats


@st.composite
def legs(draw: st.DrawFn) -> Leg:
    return Leg(draw(WORLDS), draw(st.integers(1, 9)), draw(st.integers(0, 6)), draw(st.integers(0, 2)))


Row = tuple[int, bool]  # the sample, and whether the mask says that it is one
Step = list[list[Row]]  # the rows of each rank


def stream(loader: millrace.Loader) -> Iterator[Any]:
    while loader.epoch < EPOCHS:
        yield from loader


def place(loader: millrace.Loader) -> tuple[int, int]:
    """Returns the epoch and the samples consumed."""
    version, epoch, consumed, _ = loader.state_dict()["position"].split("-")
    assert version == "mr2" and int(epoch) == loader.epoch
    return int(epoch), int(consumed)


class Job:
    """Runs the legs of a job, each with fresh loaders. `steps`: (epoch, consumed, world, batch, rows) of what was kept."""

    def __init__(self, dataset: millrace.Dataset | millrace.Mix, **options: Any) -> None:
        self._dataset = dataset
        self._options = options
        self.state: Any = None
        self.steps: list[tuple[int, int, int, int, Step]] = []

    def run(self, leg: Leg) -> tuple[int, int]:
        """Returns the epoch and the samples consumed at the end."""
        with contextlib.ExitStack() as stack:
            ranks = [self._loader(stack, leg, rank) for rank in range(leg.world)]
            streams = [stream(loader) for loader in ranks]
            for step in range(leg.kept + leg.lost):
                before = place(ranks[0])
                received = [next(batches, None) for batches in streams]
                batches = [batch for batch in received if batch is not None]
                assert len(batches) in (0, leg.world), "all ranks make equally many steps"
                if not batches:
                    break
                states = [loader.state_dict() for loader in ranks]
                assert len({state["position"] for state in states}) == 1
                if step < leg.kept:
                    rows = [list(zip(batch["sample"].tolist(), batch["valid"].tolist())) for batch in batches]
                    self.state = states[step % leg.world]
                    self.steps.append((*before, leg.world, leg.batch, rows))
            return place(ranks[0])

    def _loader(self, stack: contextlib.ExitStack, leg: Leg, rank: int) -> millrace.Loader:
        loader = millrace.Loader(
            self._dataset,
            batch_size=leg.batch,
            rank=rank,
            world=leg.world,
            epochs=EPOCHS,
            size=8,
            memory="3MiB",
            output="numpy",
            **self._options,
        )
        stack.enter_context(loader)
        if self.state is not None:
            loader.load_state_dict(self.state)
        return loader


def counted(job: Job, plan: list[millrace.Plan], last: str) -> dict[int, collections.Counter[int]]:
    """Holds each step against the policy; returns how often each sample was delivered as one, by epoch."""
    delivered: dict[int, collections.Counter[int]] = {epoch: collections.Counter() for epoch in range(EPOCHS)}
    samples = len(plan[0])
    for epoch, consumed, world, batch, ranks in job.steps:
        end = consumed + world * batch
        if last == "short":  # every rank gets equally many rows, and as few as hold the rest
            end = min(end, consumed - (consumed - samples) // world * world)
        for rank, rows in enumerate(ranks):
            mine = [position for position in range(consumed, end) if position % world == rank]
            for position, (sample, masked_in) in zip(mine, rows, strict=True):
                if position < samples:
                    assert masked_in and sample == plan[epoch][position]
                    delivered[epoch][sample] += 1
                elif last == "short":
                    assert not masked_in and sample == plan[epoch][position % samples]
                elif last == "wrap":
                    assert masked_in and sample == plan[epoch][(position - samples) % samples]
                else:
                    assert last == "pad" and not masked_in
    return delivered


def delivered_before_the_drop(samples: int, legs: list[Leg]) -> list[int]:
    """Returns the samples of each epoch. A step after which less than another one of its size is left drops that rest,
    for all who follow.

    So does a leg that finds less than a step of its own, once it has made one in the next epoch.
    """
    kept = [0] * EPOCHS
    epoch = 0
    for leg in legs:
        step = leg.world * leg.batch
        for _ in range(leg.kept):
            wanted = epoch if epoch == EPOCHS or samples - kept[epoch] >= step else epoch + 1
            if wanted == EPOCHS:
                break
            kept[wanted] += step
            epoch = wanted if samples - kept[wanted] >= step else wanted + 1
    return kept


@pytest.mark.parametrize("last", ["pad", "short", "wrap", "drop"])
@settings(repeatable, max_examples=repeats(80, least=20))
@given(st.lists(legs(), max_size=5), legs(), st.sampled_from(["none", "global", "window"]), SEEDS)
@example([Leg(8, 1, 3, 1), Leg(6, 1, 2, 0)], Leg(8, 1, 0, 0), "window", 1)
@example([Leg(1, 9, 6, 0), Leg(1, 9, 3, 1)], Leg(4, 4, 0, 0), "none", 1)  # leaves less than a step of the last epoch
@example(
    [Leg(3, 4, 5, 0), Leg(4, 6, 1, 0)], Leg(1, 1, 0, 0), "none", 0
)  # a leg that finds no step, and leaves no trace
def test_any_kills_and_worlds_deliver_as_the_policy_says(
    last: str, raw: Samples, parts: list[Leg], end: Leg, shuffle: str, seed: int
) -> None:
    dataset = millrace.Dataset(raw.uri)
    job = Job(dataset, last=last, shuffle=shuffle, seed=seed)
    if last == "drop":  # else there is no step, and the loader refuses
        parts = [leg for leg in parts if leg.world * leg.batch <= len(raw)]
        end = end if end.world * end.batch <= len(raw) else dataclasses.replace(end, batch=1)
    end = dataclasses.replace(end, kept=EPOCHS * len(raw), lost=0)
    for leg in parts:
        job.run(leg)
    assert job.run(end) == (EPOCHS, 0)
    event(f"{len(parts)} kills")
    kept = delivered_before_the_drop(len(raw), [*parts, end]) if last == "drop" else []

    plan = [millrace.Plan(dataset, shuffle=shuffle, seed=seed, epoch=epoch) for epoch in range(EPOCHS)]
    for epoch, delivered in counted(job, plan, last).items():
        if last != "drop":
            assert delivered == collections.Counter(range(len(raw))), "each sample once"
            continue
        assert delivered == collections.Counter(plan[epoch][position] for position in range(kept[epoch])), (
            "only the end is dropped"
        )


@settings(repeatable, max_examples=repeats(60, least=20))
@given(
    st.data(),
    st.lists(legs(), max_size=5),
    legs(),
    st.sampled_from(["none", "global", "window"]),
    SEEDS,
    st.sampled_from(["pad", "short", "wrap"]),
)
def test_any_kills_and_worlds_deliver_the_mix(
    raw: Samples, data: st.DataObject, parts: list[Leg], end: Leg, shuffle: str, seed: int, last: str
) -> None:
    mix = data.draw(st.one_of(mixes(raw), st.just(millrace.Dataset(raw.uri).split(most=0.7)["most"])))
    job = Job(mix, last=last, shuffle=shuffle, seed=seed)
    for leg in parts:
        job.run(leg)
    assert job.run(dataclasses.replace(end, kept=EPOCHS * len(mix), lost=0)) == (EPOCHS, 0)
    plan = [millrace.Plan(mix, shuffle=shuffle, seed=seed, epoch=epoch) for epoch in range(EPOCHS)]
    for epoch, delivered in counted(job, plan, last).items():
        assert delivered == collections.Counter(plan[epoch][np.arange(len(mix))].tolist()), "each draw once"
