"""A reward model: the mean reward of each action, shrunk towards the mean of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

import offpolicy as op


@dataclass(frozen=True)
class RewardSums(op.FitStatistic):
    """Rounds and rewards by group of units and action."""

    def zero(self) -> dict[str, np.ndarray]:
        s = self.shape
        return {"n": np.zeros((s.groups, s.n_actions)), "r": np.zeros((s.groups, s.n_actions, s.rewards))}

    def fold(self, state: dict[str, np.ndarray], batch: op.Batch) -> dict[str, np.ndarray]:
        key = self.shape.group(batch), batch.codes
        np.add.at(state["n"], key, 1.0)
        np.add.at(state["r"], key, batch.reward)
        return state


@dataclass(frozen=True)
class Means(op.Savable):
    """q(x, a) = means_a."""

    means: np.ndarray
    kind = "extension-means"

    def all(self, batch: op.Batch) -> np.ndarray:
        return np.tile(self.means, (len(batch), 1))

    def taken(self, batch: op.Batch) -> np.ndarray:
        return self.means[batch.codes]

    def arrays(self) -> dict[str, np.ndarray]:
        return {"means": self.means}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], settings: Any, shape: Any) -> Self:
        if arrays["means"].shape != (shape.n_actions,):
            raise ValueError(f"there are {shape.n_actions} actions")
        return cls(arrays["means"])

    def for_actions(self, at: np.ndarray, features: Any) -> Self:
        return type(self)(self.means[at])


@dataclass(frozen=True)
class MeansFits(op.Fits):
    """A fold is a run of neighbouring groups."""

    sums: Mapping[str, np.ndarray]
    prior_rounds: int

    def on_all(self, reward: int) -> Means:
        return self._without(reward, np.zeros(len(self.sums["n"]), bool))

    def without_fold(self, reward: int, fold: int, folds: int) -> Means:
        groups = len(self.sums["n"])
        return self._without(reward, np.arange(groups) * folds // groups == fold)

    def _without(self, reward: int, left_out: np.ndarray) -> Means:
        n, r = self.sums["n"][~left_out].sum(axis=0), self.sums["r"][~left_out, :, reward].sum(axis=0)
        return Means((r + self.prior_rounds * r.sum() / n.sum()) / (n + self.prior_rounds))


@dataclass(frozen=True)
class ActionMeans(op.RewardModel):
    """As if each action had been logged `prior_rounds` times more often, with the mean reward of all."""

    prior_rounds: int = 0

    def statistics(self, shape: Any) -> tuple[RewardSums]:
        return (RewardSums(shape.without_inputs()),)

    def fits(self, shape: Any, results: Sequence[Any]) -> MeansFits:
        return MeansFits(results[0], self.prior_rounds)

    def needs(self, shape: Any, threads: int) -> tuple[op.Need]:
        numbers = shape.groups * (1 + shape.rewards) * (threads + 1)
        return (op.Need("reward sums", 8.0 * numbers * shape.n_actions, f"{shape.n_actions:,} actions × {numbers} numbers"),)
