"""A ratio: how much more often the rounds of a weekday occur than in the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import offpolicy as op

DAYS = ("Mon", "Tue", "Wed")


def day_of(batch: op.Batch) -> np.ndarray:
    """The position of each round's weekday among the `DAYS`."""
    return np.searchsorted(DAYS, batch.column("weekday").astype(str))


@dataclass(frozen=True)
class DayCounts(op.FitStatistic):
    """Rounds of each weekday."""

    def zero(self) -> dict[str, np.ndarray]:
        return {"rounds": np.zeros(len(DAYS))}

    def fold(self, state: dict[str, np.ndarray], batch: op.Batch) -> dict[str, np.ndarray]:
        return {"rounds": state["rounds"] + np.bincount(day_of(batch), minlength=len(DAYS))}


@dataclass(frozen=True)
class WeekdayRatio(op.Ratio):
    """The share of a weekday in the mix to come, over its share of the log."""

    mix: tuple[float, ...]
    columns = ("weekday",)

    def lacks(self, available: Any) -> str | None:
        return None if np.isclose(sum(self.mix), 1) else "its shares do not sum to 1"

    def statistics(self, fitting: Any) -> tuple[DayCounts]:
        return (DayCounts(fitting.shape),)

    def fit(self, fitting: Any, results: Sequence[Any]) -> WeekdayWeights:
        rounds = results[0]["rounds"]
        return WeekdayWeights(np.array(self.mix) / (rounds / rounds.sum()))


@dataclass(frozen=True)
class WeekdayWeights(op.FittedRatio):
    by_day: np.ndarray

    def weights(self, rounds: Any) -> np.ndarray:
        return self.by_day[day_of(rounds.batch)]
