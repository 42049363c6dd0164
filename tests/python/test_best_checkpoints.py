"""Tests checkpoints that remain for their metric, and steps at which one is due."""

from __future__ import annotations

import math
from typing import Any

import millrace
import pytest
import torch


def saved(place: str, metrics: dict[int, float | None], **options: Any) -> millrace.Checkpoints:
    ckpt = millrace.Checkpoints(place, **options)
    for step, metric in metrics.items():
        ckpt.save(step, {"step": step, "w": torch.full((4,), float(step))}, metric=metric)
    return ckpt


def test_the_best_remain_beside_the_newest(uri: str) -> None:
    metrics: dict[int, float | None] = {10: 0.5, 20: 0.9, 30: 0.7, 40: None, 50: 0.6, 60: 0.1}
    ckpt = saved(uri, metrics, keep=2, keep_best=2)
    assert ckpt.steps() == [20, 30, 50, 60] and ckpt.best() == 20 and ckpt.latest() == 60
    assert ckpt.load(ckpt.best())["step"] == 20
    # Another process continues with what is there.
    again = saved(uri, {70: 0.8, 80: 0.2}, keep=2, keep_best=2)
    assert again.steps() == [20, 70, 80] and again.best() == 20


def test_small_metrics_may_be_the_best(uri: str) -> None:
    ckpt = saved(uri, {1: 3.0, 2: 1.5, 3: 2.0, 4: 9.0, 5: 9.0}, keep=1, keep_best=1, best_mode="min")
    assert ckpt.steps() == [2, 5] and ckpt.best() == 2


def test_metrics_that_are_no_numbers_are_none(uri: str) -> None:
    ckpt = saved(uri, {1: math.nan, 2: math.inf, 3: 0.5, 4: None}, keep=1, keep_best=3)
    assert ckpt.steps() == [3, 4] and ckpt.best() == 3
    with pytest.raises(TypeError, match="metric"):
        ckpt.save(5, {}, metric="good")  # type: ignore[arg-type]


def test_of_equal_ones_the_newer_is_the_best(uri: str) -> None:
    assert saved(uri, {1: 0.5, 2: 0.5, 3: 0.5, 4: 0.1}, keep=1, keep_best=1).steps() == [3, 4]


def test_a_step_that_is_saved_again_has_its_new_metric(uri: str) -> None:
    ckpt = saved(uri, {1: 0.9, 2: 0.5, 1_0: 0.1}, keep=1, keep_best=1)
    assert ckpt.steps() == [1, 10]
    ckpt.save(1, {"step": 1}, metric=0.0)
    ckpt.save(11, {"step": 11}, metric=0.05)
    assert ckpt.best() == 10 and ckpt.steps() == [10, 11]


def test_saves_in_the_background_have_metrics(uri: str) -> None:
    ckpt = millrace.Checkpoints(uri, keep=1, keep_best=1)
    for step, metric in ((1, 0.2), (2, 0.8), (3, 0.4)):
        ckpt.save(step, {"w": torch.ones(3)}, metric=metric, asynchronous=True)
    ckpt.wait()
    assert ckpt.steps() == [2, 3] and ckpt.best() == 2


def test_without_metrics_there_is_no_best(uri: str) -> None:
    ckpt = saved(uri, {1: None, 2: None, 3: None}, keep=1, keep_best=1)
    assert ckpt.steps() == [3] and ckpt.best() is None


def test_when_a_checkpoint_is_due(uri: str) -> None:
    ckpt = millrace.Checkpoints(uri, save_interval_steps=100)
    assert [step for step in range(0, 501, 50) if ckpt.should_save(step)] == [100, 200, 300, 400, 500]
    with pytest.raises(millrace.UsageError, match="save_interval_steps"):
        millrace.Checkpoints(uri).should_save(100)
    for options in ({"keep_best": 1}, {"keep": 1, "keep_best": 0}, {"save_interval_steps": 0}, {"best_mode": "mean"}):
        with pytest.raises(millrace.InvalidArgumentError):
            millrace.Checkpoints(uri, **options)
