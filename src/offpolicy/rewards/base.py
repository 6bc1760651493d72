"""What a reward model must do: name the statistic it is fitted from, and turn it into predictors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from offpolicy.batch import Batch, FloatArray
from offpolicy.statistics import Statistic
from offpolicy.units import IntArray, buckets, group_of_bucket

RowWeight = Callable[[Batch], FloatArray]


@dataclass(frozen=True)
class FitShape:
    """The sizes a fit needs to know, and the groups of units that folds are made of."""

    n_actions: int
    context: int
    rewards: int
    groups: int
    seed: int
    columns: tuple[str, ...] = ()
    rows: int = 0
    """Rows of the log; 0 where weights need not be scaled."""
    row_weight: RowWeight | None = None

    def group(self, batch: Batch) -> IntArray:
        """The group of each row's unit. A fold of K is a run of groups / K neighbouring groups."""
        groups: IntArray = group_of_bucket(self.groups)[buckets(batch.unit, self.seed)]
        return groups

    def weights(self, batch: Batch) -> FloatArray | None:
        """What each row counts in a fit: its weight in the log, times the fit's own."""
        own = None if self.row_weight is None else self.row_weight(batch)
        if own is None or batch.weight is None:
            return batch.weight if own is None else own
        return own * batch.weight


class Predictor(Protocol):
    """A fitted q(x, a)."""

    def all(self, batch: Batch) -> FloatArray:
        """Rounds × actions."""
        ...

    def taken(self, batch: Batch) -> FloatArray:
        """Of the logged action of each round."""
        ...


def design(batch: Batch, centre: FloatArray) -> FloatArray:
    """x̃ = (x − centre, 1), as (features + 1) × rounds."""
    out = np.empty((len(centre) + 1, len(batch)))
    np.subtract(batch.context.T, centre[:, None], out=out[:-1])
    out[-1] = 1.0
    return out


@dataclass(frozen=True)
class Linear:
    """q(x, a) = (x − centre)·slope_a + intercept_a. `coef` is actions × (features + 1), the intercept last."""

    coef: FloatArray
    centre: FloatArray

    def all(self, batch: Batch) -> FloatArray:
        product: FloatArray = design(batch, self.centre).T @ self.coef.T
        return product

    def taken(self, batch: Batch) -> FloatArray:
        return self.taken_of(design(batch, self.centre), batch.action)

    def taken_of(self, x: FloatArray, action: IntArray) -> FloatArray:
        """The same for a design that was made before."""
        values: FloatArray = np.einsum("ji,ij->i", x, self.coef[action])
        return values

    def moved(self, centre: FloatArray) -> Linear:
        """The same function written around another centre."""
        coef = self.coef.copy()
        coef[:, -1] += self.coef[:, :-1] @ (centre - self.centre)
        return Linear(coef, centre)


class Fits(Protocol):
    """What the fit pass gives: predictors for each reward, on all rows or without some."""

    def on_all(self, reward: int) -> Predictor: ...

    def without_fold(self, reward: int, fold: int, folds: int) -> Predictor: ...

    def without_group(self, reward: int, group: int) -> Linear | None:
        """For the jackknife; None where a refit without one group is not to be had from the statistics."""
        ...

    def diagnostics(self, reward: int) -> dict[str, Any]:
        """`r2`: out of fold, where known; and what was chosen in the fit."""
        ...


class RewardModel(ABC):
    """Settings of a reward model. `statistic` is folded over the log; `fits` turns its result into predictors."""

    @abstractmethod
    def statistic(self, shape: FitShape) -> Statistic | None:
        """None where nothing needs to be fitted."""

    @abstractmethod
    def fits(self, shape: FitShape, result: Any) -> Fits: ...
