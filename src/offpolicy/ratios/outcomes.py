"""Outcome weights E[w | r]: the mean action weight of rounds with similar rewards (Taufiq et al. 2023)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self, final

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.data.batch import Batch
from offpolicy.models.rewards.base import FitStatistic
from offpolicy.ratios.base import FittedRatio, Fitting, Moves, Ratio
from offpolicy.ratios.pools import Rounds
from offpolicy.statistics.base import State, Statistic

MOST_ROWS = 500_000
MOST_DISTINCT = 100
# Up to so many distinct rewards, with so many rows each on average, have a mean weight each; otherwise there are bins.
ROWS_OF_A_VALUE = 10


@final
@dataclass(frozen=True)
class OutcomeRatio(Ratio):
    """E[w | r]: rounds are pooled by their reward."""

    cross_fit: int = 0
    reward: int = 0

    def for_reward(self, reward: int) -> Self:
        return replace(self, reward=reward)

    def statistics(self, fitting: Fitting) -> tuple[Statistic, ...]:
        assert fitting.action_ratio is not None
        return (OutcomeRows(fitting.shape, fitting.action_ratio),)

    def fit(self, fitting: Fitting, results: Sequence[Any]) -> FittedRatio:
        fits = OutcomeFits(results[0], self.reward, fitting.shape.groups)
        return _Fitted(self.reward, fits.edges, np.array(fits.by_fold(self.cross_fit)), fits)


@final
@dataclass(frozen=True, eq=False)
class _Fitted(FittedRatio):
    """The mean weight of each bin of rewards, once or without each fold.

    Attributes
    ----------
    means : FloatArray
        Folds × bins.
    fits : OutcomeFits | None
        None on workers.
    """

    reward: int
    edges: FloatArray
    means: FloatArray
    fits: OutcomeFits | None

    def _bins(self, rounds: Rounds) -> IntArray:
        return bin_of(rounds.batch.reward[:, self.reward], self.edges)

    def weights(self, rounds: Rounds) -> FloatArray:
        means: FloatArray = self.means[rounds.fold, self._bins(rounds)]
        return means

    def zero(self, corrections: int) -> State:
        return {"bins": np.zeros((1 + corrections, self.means.shape[1]))}

    def fold(self, state: State, rounds: Rounds, ratio: FloatArray) -> None:  # noqa: ARG002
        """Σω and Σω·residual of each bin."""
        at = self._bins(rounds)
        for sums, multiplier in zip(state["bins"], rounds.multipliers.T, strict=True):
            sums += np.bincount(at, multiplier, len(sums))

    def largest(self, state: State) -> float:  # noqa: ARG002
        return float(self.means.max())

    def moves(self, state: State, correction: int) -> Moves | None:
        sums = state["bins"]
        return None if self.fits is None else (self.fits.moves(sums[[0, 1 + correction]]), float(sums[0].sum()))

    def light(self) -> FittedRatio:
        return replace(self, fits=None)


def bin_of(reward: FloatArray, edges: FloatArray) -> IntArray:
    return np.searchsorted(edges, reward, side="right").astype(np.int64)


@dataclass(frozen=True)
class OutcomeRows(FitStatistic):
    """The rewards and action weights of at most `MOST_ROWS` rounds: those with the smallest hashes."""

    ratio: Callable[[Batch], FloatArray]

    def zero(self) -> State:
        return {
            "order": np.empty(0, np.uint64),
            "group": np.empty(0, np.int64),
            "reward": np.empty((0, self.shape.rewards)),
            "ratio": np.empty(0),
            "count": np.empty(0),
        }

    def fold(self, state: State, batch: Batch) -> State:
        weight = self.shape.weights(batch)
        part = {
            "order": batch.unit,
            "group": self.shape.group(batch),
            "reward": batch.reward,
            "ratio": self.ratio(batch),
            "count": np.ones(len(batch)) if weight is None else weight,
        }
        return self.merge(state, part)

    def merge(self, a: State, b: State) -> State:
        joined = {name: np.concatenate([a[name], b[name]]) for name in a}
        if len(joined["order"]) <= MOST_ROWS:
            return joined
        smallest = np.argpartition(joined["order"], MOST_ROWS)[:MOST_ROWS]
        return {name: values[smallest] for name, values in joined.items()}


@dataclass(frozen=True)
class OutcomeFits:
    """The mean weight of each bin of rewards, from the rows of any groups."""

    rows: State
    reward: int
    groups: int

    @cached_property
    def edges(self) -> FloatArray:
        """Between distinct rewards, or, if these are many, between quantiles: about ∛n bins, the usual rate."""
        values = np.unique(self.rows["reward"][:, self.reward])
        if len(values) > min(MOST_DISTINCT, len(self.rows["ratio"]) / ROWS_OF_A_VALUE):
            bins = int(np.ceil(len(self.rows["ratio"]) ** (1 / 3)))
            values = np.unique(np.quantile(self.rows["reward"][:, self.reward], np.linspace(0, 1, bins + 1)))
            return values[1:-1]
        return np.asarray((values[1:] + values[:-1]) / 2, dtype=np.float64)

    @cached_property
    def _sums(self) -> tuple[FloatArray, FloatArray]:
        """Rounds, and their summed weights, by group and bin."""
        bins = len(self.edges) + 1
        key = self.rows["group"] * bins + bin_of(self.rows["reward"][:, self.reward], self.edges)
        count, shape = self.rows["count"], (self.groups, bins)
        rounds = np.bincount(key, count, self.groups * bins).astype(np.float64)
        weights = np.bincount(key, count * self.rows["ratio"], self.groups * bins).astype(np.float64)
        return rounds.reshape(shape), weights.reshape(shape)

    def weights(self, included: npt.NDArray[np.bool_]) -> FloatArray:
        """The mean weight of each bin, from the rows of some groups; a bin without rows has the overall mean."""
        rounds, weights = (part[included].sum(axis=0) for part in self._sums)
        overall = weights.sum() / rounds.sum() if rounds.sum() > 0 else 1.0
        means: FloatArray = np.where(rounds > 0, weights / np.where(rounds > 0, rounds, 1.0), overall)
        return means

    def by_fold(self, folds: int) -> list[FloatArray]:
        """One, or one without each fold."""
        if not folds:
            return [self.weights(np.ones(self.groups, bool))]
        fold = np.arange(self.groups) * folds // self.groups
        return [self.weights(fold != k) for k in range(folds)]

    def moves(self, sums: FloatArray) -> FloatArray:
        """How sums over the bins (sums × bins) change when each group is left out of the fit: groups × sums."""
        whole = self.weights(np.ones(self.groups, bool))
        without = [self.weights(np.arange(self.groups) != g) - whole for g in range(self.groups)]
        return np.array([sums @ each for each in without])
