"""A reward model and a posterior of one's own, in one file outside the package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

import offpolicy as op
from offpolicy.core.memory import Need
from offpolicy.models.embedding_table import Affine, Embedding
from offpolicy.models.posteriors.base import Known, Pooling
from offpolicy.models.rewards.base import Fits, FitShape, FitStatistic, Savable, check_shapes
from offpolicy.statistics.base import State, added


@dataclass(frozen=True)
class RewardSums(FitStatistic):
    """Rounds and rewards by group and action."""

    def zero(self) -> State:
        s = self.shape
        return {"n": np.zeros((s.groups, s.n_actions)), "r": np.zeros((s.groups, s.n_actions, s.rewards))}

    def fold(self, state: State, batch: Any) -> State:
        weights = self.shape.weights(batch)
        w = np.ones(len(batch)) if weights is None else weights
        key = self.shape.group(batch), batch.action
        np.add.at(state["n"], key, w)
        np.add.at(state["r"], key, w[:, None] * batch.reward)
        return state

    def merge(self, a: State, b: State) -> State:
        return added(a, b)

    def finish(self, state: State) -> State:
        return state


@dataclass(frozen=True)
class Means(Savable):
    """q(x, a) = means_a."""

    means: np.ndarray
    kind = "action-means"

    def all(self, batch: Any) -> np.ndarray:
        return np.tile(self.means, (len(batch), 1))

    def taken(self, batch: Any) -> np.ndarray:
        return self.means[batch.action]

    def arrays(self) -> dict[str, np.ndarray]:
        return {"means": self.means}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], settings: Mapping[str, int], shape: FitShape) -> Self:
        check_shapes(arrays, {"means": (shape.n_actions,)}, ("means",))
        return cls(arrays["means"])

    def for_actions(self, at: np.ndarray, features: Any) -> Self:
        return type(self)(self.means[at])


@dataclass(frozen=True)
class MeansFits(Fits):
    """No diagnostics, which says nothing about whether it was fitted."""

    sums: State
    prior_rounds: int

    def on_all(self, reward: int) -> Means:
        return self._means(reward, np.ones(len(self.sums["n"]), bool))

    def without_fold(self, reward: int, fold: int, folds: int) -> Means:
        groups = len(self.sums["n"])
        return self._means(reward, np.arange(groups) * folds // groups != fold)

    def _means(self, reward: int, keep: np.ndarray) -> Means:
        n, r = self.sums["n"][keep].sum(axis=0), self.sums["r"][keep, :, reward].sum(axis=0)
        return Means((r + self.prior_rounds * r.sum() / n.sum()) / (n + self.prior_rounds))


@dataclass(frozen=True)
class ActionMeans(op.RewardModel):
    """The mean reward of each action, as if it had been logged `prior_rounds` times more often with the mean of all."""

    prior_rounds: int = 10
    kind = "action-means"
    packages = ("pandas",)

    def statistics(self, shape: FitShape) -> tuple[RewardSums, ...]:
        return (RewardSums(shape.without_inputs()),)

    def fits(self, shape: FitShape, results: Sequence[Any]) -> Fits:
        return MeansFits(results[0], self.prior_rounds)

    def needs(self, shape: FitShape, threads: int) -> tuple[Need, ...]:
        numbers = shape.groups * (1 + shape.rewards)
        bytes_ = 8.0 * numbers * shape.n_actions * (threads + 1)
        return (Need("reward sums", bytes_, f"{shape.n_actions:,} actions × {numbers} numbers × {threads + 1} × 8 bytes"),)


plain = ActionMeans(0)


@dataclass(frozen=True)
class Kernel(op.Posterior):
    """p(a|e) ∝ n_a exp(−|e − f(a)|² / 2h²), in the posterior form."""

    width: float = 1.0
    scale: bool = True
    kind = "kernel"

    def fit(self, name: str, embedding: Embedding, affine: Affine, known: Known) -> Pooling:
        z = affine(embedding.table)
        with np.errstate(divide="ignore"):
            bias = np.log(known.sums.n) - 0.5 * (z**2).sum(axis=1) / self.width**2
        return Pooling("posterior", embedding, affine, z / self.width**2, bias)

    def numbers_per_action(self, n_actions: int, size: int) -> int:
        return n_actions + size
