"""This module has the choice of the best checkpoints, by the metric with which each was saved."""

from __future__ import annotations

import json
import math
from typing import Any

from . import _arguments, _core
from ._errors import DamagedDataError, NotFoundError
from ._restore import Restore

NAME = "metric.json"  # beside the state


def as_file(metric: float) -> bytes:
    return json.dumps({"metric": metric}).encode()


def checked(metric: Any) -> float | None:
    """Returns a metric, or None for NaN and infinity, so that such a checkpoint is never among the best."""
    if metric is None:
        return None
    value = _arguments.number("metric", metric)
    return value if math.isfinite(value) else None


class Metrics:
    """Represents the metrics of the checkpoints of one place. Each is read once."""

    def __init__(self, core: _core.Checkpoints, mode: str) -> None:
        self._core = core
        self._sign = 1.0 if mode == "max" else -1.0
        self._known: dict[tuple[int, str], float | None] = {}

    def best(self, count: int, saved: tuple[int, float | None] | None = None) -> list[int]:
        """Returns the steps of the best checkpoints, beginning with the best one. If metrics are equal, the newer one comes first.

        ``saved`` is the step and the metric of a checkpoint that is about to be saved.
        """
        metrics = {step: self._metric(step) for step in self._core.steps()}
        if saved is not None:
            metrics.pop(saved[0], None)
            metrics[saved[0]] = saved[1]
        ranked = [
            (self._sign * metric, place, step)
            for place, (step, metric) in enumerate(metrics.items())
            if metric is not None
        ]
        return [step for _, _, step in sorted(ranked, reverse=True)[:count]]

    def _metric(self, step: int) -> float | None:
        try:
            found = self._core.find(step)
        except NotFoundError:  # another process has removed it
            return None
        key = (step, found.attempt)
        if key not in self._known:
            named = any(name == NAME for name, _ in found.shards)
            value = Restore(found, allow_pickle=False).json(NAME) if named else {}
            try:
                self._known[key] = None if value.get("metric") is None else float(value["metric"])
            except (AttributeError, TypeError, ValueError) as error:
                raise DamagedDataError(f"{NAME} of step {step} does not say its metric: {error!r}") from None
        return self._known[key]
